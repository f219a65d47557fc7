//! Latency histograms with fixed bounds, and the two files that other tools read.
//!
//! HdrHistogram from 1 ns to 60 s at three significant digits: recording touches one counter and
//! never allocates. What lies above 60 s is recorded as 60 s and counted as saturated.

use std::fmt;
use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer as _, V2DeflateSerializer};
use serde::{Deserialize, Serialize};

use crate::time::Duration;

/// The longest latency that is told apart: 60 s, in nanoseconds.
pub const LATENCY_NS_MAX: u64 = 60_000_000_000;

const SIGNIFICANT_DIGITS: u8 = 3;

/// 2 x 10^3 rounded up to a power of two: what three significant digits take.
const SUB_BUCKETS: u32 = 2_048;

/// Rows of the `.hgrm` text for each halving of the distance to 100 %, as HdrHistogram's own tools
/// write it.
const TICKS_PER_HALF_DISTANCE: u32 = 5;

/// A latency histogram in nanoseconds.
#[derive(Clone)]
pub struct LatencyHistogram {
    counts: Histogram<u64>,
    /// Kept beside the counts, whose resolution is three digits.
    min_ns: u64,
    max_ns: u64,
    sum_ns: u128,
    saturated: u64,
}

/// What reports say of a histogram, in nanoseconds; all zero when nothing was recorded.
///
/// A percentile is the upper end of its bucket (at most 0.1 % above the sample), never above `max`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Percentiles {
    /// The least sample, exact.
    pub min: u64,
    /// 50 % of the samples are at most this.
    pub p50: u64,
    /// 90 %.
    pub p90: u64,
    /// 99 %.
    pub p99: u64,
    /// 99.9 %.
    pub p999: u64,
    /// 99.99 %.
    pub p9999: u64,
    /// The greatest sample, exact.
    pub max: u64,
    /// The mean, rounded down.
    pub mean: u64,
    /// Samples.
    pub count: u64,
}

/// The unit of the value column of a `.hgrm` text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HgrmUnit {
    /// Nanoseconds.
    Nanoseconds,
    /// Microseconds, with three decimals: exact.
    #[default]
    Microseconds,
    /// Milliseconds, the plotter's first choice.
    Milliseconds,
}

/// A text that is not a base64 V2 histogram of these bounds.
#[derive(Debug, thiserror::Error)]
#[error("not a base64 V2 histogram: {0}")]
pub struct HistogramReadError(String);

impl HgrmUnit {
    const fn ns(self) -> f64 {
        match self {
            Self::Nanoseconds => 1.0,
            Self::Microseconds => 1e3,
            Self::Milliseconds => 1e6,
        }
    }
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for LatencyHistogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LatencyHistogram")
            .field("percentiles", &self.percentiles())
            .field("saturated", &self.saturated)
            .finish_non_exhaustive()
    }
}

impl PartialEq for LatencyHistogram {
    /// Equal when every bucket, the extremes and the sum are: what gated runs are compared by.
    fn eq(&self, other: &Self) -> bool {
        self.counts == other.counts
            && (self.percentiles().min, self.max_ns) == (other.percentiles().min, other.max_ns)
            && (self.sum_ns, self.saturated) == (other.sum_ns, other.saturated)
    }
}

impl LatencyHistogram {
    /// An empty histogram: about 220 KB.
    ///
    /// # Panics
    /// Never: the bounds are constants that the histogram accepts.
    pub fn new() -> Self {
        let counts = match Histogram::new_with_bounds(1, LATENCY_NS_MAX, SIGNIFICANT_DIGITS) {
            Ok(counts) => counts,
            Err(error) => unreachable!("constant bounds are valid: {error}"),
        };
        Self { counts, min_ns: u64::MAX, max_ns: 0, sum_ns: 0, saturated: 0 }
    }

    /// Records one sample, rounded down to whole nanoseconds.
    pub fn record(&mut self, latency: Duration) {
        self.record_ns(latency.as_ns());
    }

    /// Records one sample of `ns` nanoseconds.
    pub fn record_ns(&mut self, ns: u64) {
        if ns > LATENCY_NS_MAX {
            self.saturated += 1;
        }
        self.counts.saturating_record(ns.min(LATENCY_NS_MAX));
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
        self.sum_ns += u128::from(ns);
    }

    /// Adds the samples of `other`.
    pub fn merge(&mut self, other: &Self) {
        // Both have the same fixed bounds, so that every sample of one fits the other.
        if let Err(error) = self.counts.add(&other.counts) {
            unreachable!("histograms of the same bounds add up: {error}");
        }
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.sum_ns += other.sum_ns;
        self.saturated += other.saturated;
    }

    /// Forgets every sample.
    pub fn clear(&mut self) {
        self.counts.reset();
        self.min_ns = u64::MAX;
        self.max_ns = 0;
        self.sum_ns = 0;
        self.saturated = 0;
    }

    /// Samples recorded.
    pub fn count(&self) -> u64 {
        self.counts.len()
    }

    /// True when nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Samples above 60 s, recorded as 60 s.
    pub const fn saturated(&self) -> u64 {
        self.saturated
    }

    /// Samples above `ns`, to the resolution of the bucket that holds `ns`: that bucket counts as
    /// not above.
    pub fn count_above_ns(&self, ns: u64) -> u64 {
        self.counts.len() - self.counts.count_between(0, ns.min(LATENCY_NS_MAX))
    }

    /// The least value that shares a bucket with `ns`.
    pub(crate) fn bucket_start(&self, ns: u64) -> u64 {
        self.counts.lowest_equivalent(ns)
    }

    /// The least value above the bucket of `ns`.
    pub(crate) fn bucket_end(&self, ns: u64) -> u64 {
        self.counts.next_non_equivalent(ns)
    }

    /// Samples in the buckets from that of `low` up to, but not with, that of `high`.
    pub(crate) fn count_in(&self, low: u64, high: u64) -> u64 {
        if high <= low {
            return 0;
        }
        self.counts.count_between(low, high - 1)
    }

    /// The value at each quantile of `quantiles` (0 to 1), in nanoseconds.
    pub fn at_quantile(&self, quantile: f64) -> u64 {
        self.counts.value_at_quantile(quantile).min(self.max_ns)
    }

    /// The figures for a report.
    pub fn percentiles(&self) -> Percentiles {
        let count = self.count();
        if count == 0 {
            return Percentiles::default();
        }
        Percentiles {
            min: self.min_ns,
            p50: self.at_quantile(0.5),
            p90: self.at_quantile(0.9),
            p99: self.at_quantile(0.99),
            p999: self.at_quantile(0.999),
            p9999: self.at_quantile(0.9999),
            max: self.max_ns,
            mean: u64::try_from(self.sum_ns / u128::from(count)).unwrap_or(u64::MAX),
            count,
        }
    }

    /// Points of the percentile curve for plots: (quantile, nanoseconds), ascending.
    pub fn curve(&self) -> Vec<(f64, u64)> {
        self.counts
            .iter_quantiles(TICKS_PER_HALF_DISTANCE)
            .map(|point| (point.quantile_iterated_to(), point.value_iterated_to().min(self.max_ns)))
            .collect()
    }

    /// Writes the percentile distribution as HdrHistogram's `.hgrm` text, which its plotter and
    /// `HistogramLogProcessor` read and write.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_hgrm(&self, out: &mut impl io::Write, unit: HgrmUnit) -> io::Result<()> {
        let scale = unit.ns();
        let digits = usize::from(SIGNIFICANT_DIGITS);
        writeln!(
            out,
            "{:>12} {:>14} {:>10} {:>14}\n",
            "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
        )?;
        let mut total = 0;
        for point in self.counts.iter_quantiles(TICKS_PER_HALF_DISTANCE) {
            total += point.count_since_last_iteration();
            let value = as_f64(point.value_iterated_to()) / scale;
            let quantile = point.quantile_iterated_to();
            write!(out, "{value:>12.digits$} {quantile:.12} {total:>10}")?;
            // The last row has no fourth column: it would be infinite.
            if quantile < 1.0 {
                writeln!(out, " {:>14.2}", 1.0 / (1.0 - quantile))?;
            } else {
                writeln!(out)?;
            }
        }
        let max = if self.is_empty() { 0 } else { self.counts.max() };
        writeln!(
            out,
            "#[Mean    = {:>12.digits$}, StdDeviation   = {:>12.digits$}]",
            self.counts.mean() / scale,
            self.counts.stdev() / scale
        )?;
        writeln!(
            out,
            "#[Max     = {:>12.digits$}, Total count    = {:>12}]",
            as_f64(max) / scale,
            self.count()
        )?;
        writeln!(
            out,
            "#[Buckets = {:>12}, SubBuckets     = {:>12}]",
            self.counts.buckets(),
            SUB_BUCKETS
        )
    }

    /// The histogram in HdrHistogram's compressed V2 encoding, base64: what histogram logs hold and
    /// what the Java, C and Python libraries decode.
    pub fn to_v2_base64(&self) -> String {
        let mut bytes = Vec::new();
        // Writing to a vector cannot fail, and counts stay far below the encoding's 2^63.
        if let Err(error) = V2DeflateSerializer::new().serialize(&self.counts, &mut bytes) {
            unreachable!("a histogram encodes into memory: {error}");
        }
        BASE64.encode(bytes)
    }

    /// Reads what [`to_v2_base64`](Self::to_v2_base64) wrote. The extremes and the sum come back to
    /// the resolution of the buckets, and saturated samples as samples of 60 s.
    ///
    /// # Errors
    /// [`HistogramReadError`] when the text is not such a histogram.
    pub fn from_v2_base64(text: &str) -> Result<Self, HistogramReadError> {
        let bytes =
            BASE64.decode(text.trim()).map_err(|error| HistogramReadError(error.to_string()))?;
        let read: Histogram<u64> = Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .map_err(|error| HistogramReadError(error.to_string()))?;
        let mut histogram = Self::new();
        histogram.counts.add(&read).map_err(|error| HistogramReadError(error.to_string()))?;
        if !read.is_empty() {
            histogram.min_ns = read.min();
            histogram.max_ns = read.max();
        }
        histogram.sum_ns = read
            .iter_recorded()
            .map(|point| {
                u128::from(read.median_equivalent(point.value_iterated_to()))
                    * u128::from(point.count_at_value())
            })
            .sum();
        Ok(histogram)
    }
}

#[allow(clippy::cast_precision_loss, reason = "60 s in nanoseconds fit a double's 53 bits")]
const fn as_f64(ns: u64) -> f64 {
    ns as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(samples: &[u64]) -> LatencyHistogram {
        let mut histogram = LatencyHistogram::new();
        samples.iter().for_each(|ns| histogram.record_ns(*ns));
        histogram
    }

    fn hgrm(histogram: &LatencyHistogram, unit: HgrmUnit) -> String {
        let mut out = Vec::new();
        histogram.write_hgrm(&mut out, unit).expect("memory");
        String::from_utf8(out).expect("ASCII")
    }

    /// Reads the rows as the plotter does: trim, split at blanks, take lines of four fields whose
    /// first and last are numbers. Returns (value, 1/(1-percentile)).
    fn plotter_rows(text: &str) -> Vec<(f64, f64)> {
        text.split('\n')
            .map(str::trim)
            .filter(|line| !line.starts_with('#'))
            .map(|line| line.split(' ').filter(|field| !field.is_empty()).collect::<Vec<_>>())
            .filter(|fields| fields.len() == 4)
            .filter_map(|fields| Some((fields[0].parse().ok()?, fields[3].parse().ok()?)))
            .collect()
    }

    #[test]
    fn the_hgrm_text_is_the_reference_layout() {
        let text = hgrm(&of(&[1_000, 2_000, 3_000, 4_000]), HgrmUnit::Microseconds);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "       Value     Percentile TotalCount 1/(1-Percentile)");
        assert_eq!(lines[1], "");
        assert_eq!(lines[2], "       1.000 0.000000000000          1           1.00");
        let last_row = lines.iter().rev().find(|line| !line.starts_with('#')).expect("rows");
        assert_eq!(*last_row, "       4.001 1.000000000000          4");
        assert_eq!(
            lines[lines.len() - 3],
            "#[Mean    =        2.501, StdDeviation   =        1.118]"
        );
        assert_eq!(
            lines[lines.len() - 2],
            "#[Max     =        4.001, Total count    =            4]"
        );
        assert_eq!(
            lines[lines.len() - 1],
            "#[Buckets =           26, SubBuckets     =         2048]"
        );
    }

    #[test]
    fn an_empty_histogram_writes_a_footer_and_zeros() {
        let empty = LatencyHistogram::new();
        assert_eq!(empty.percentiles(), Percentiles::default());
        let text = hgrm(&empty, HgrmUnit::Nanoseconds);
        assert!(plotter_rows(&text).is_empty());
        assert!(
            text.contains("#[Max     =        0.000, Total count    =            0]"),
            "{text}"
        );
        let back = LatencyHistogram::from_v2_base64(&empty.to_v2_base64()).expect("decodes");
        assert!(back.is_empty());
    }

    #[test]
    fn samples_above_the_bound_are_kept_and_counted() {
        let histogram = of(&[5, LATENCY_NS_MAX, LATENCY_NS_MAX + 1, u64::MAX]);
        assert_eq!((histogram.count(), histogram.saturated()), (4, 2));
        assert_eq!(histogram.percentiles().max, u64::MAX);
        assert_eq!(histogram.percentiles().min, 5);
    }

    #[test]
    fn v2_text_has_the_compressed_cookie_and_refuses_garbage() {
        assert!(of(&[7]).to_v2_base64().starts_with("HISTFAAAA"));
        for bad in ["", "HISTFAAAA", "%%%", "AAAAAAAAAAAAAAAA"] {
            assert!(LatencyHistogram::from_v2_base64(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn percentiles_are_ordered_and_within_a_thousandth(
            mut samples in prop::collection::vec(0_u64..10_000_000_000, 1..400),
        ) {
            let p = of(&samples).percentiles();
            samples.sort_unstable();
            prop_assert_eq!((p.min, p.max), (samples[0], samples[samples.len() - 1]));
            prop_assert!(p.min <= p.p50 && p.p50 <= p.p90 && p.p90 <= p.p99);
            prop_assert!(p.p99 <= p.p999 && p.p999 <= p.p9999 && p.p9999 <= p.max);
            let exact = samples[samples.len().div_ceil(2) - 1];
            prop_assert!(p.p50 >= exact && p.p50 - exact <= exact / 1_000, "{} {}", p.p50, exact);
        }

        #[test]
        fn files_agree_with_the_samples(
            samples in prop::collection::vec(0_u64..LATENCY_NS_MAX, 1..200),
        ) {
            let histogram = of(&samples);
            let back = LatencyHistogram::from_v2_base64(&histogram.to_v2_base64()).expect("own");
            prop_assert!(back.counts == histogram.counts);
            let text = hgrm(&histogram, HgrmUnit::Microseconds);
            let rows = plotter_rows(&text);
            prop_assert!(rows.windows(2).all(|w| w[0].0 <= w[1].0 && w[0].1 <= w[1].1));
            let total = format!("Total count    = {:>12}]", samples.len());
            prop_assert!(text.contains(&total));
        }

        #[test]
        fn merging_is_recording_both(
            a in prop::collection::vec(0_u64..u64::MAX, 0..50),
            b in prop::collection::vec(0_u64..u64::MAX, 0..50),
        ) {
            let mut merged = of(&a);
            merged.merge(&of(&b));
            let both: Vec<u64> = a.iter().chain(&b).copied().collect();
            prop_assert!(merged == of(&both));
            prop_assert_eq!(merged.percentiles(), of(&both).percentiles());
        }
    }
}
