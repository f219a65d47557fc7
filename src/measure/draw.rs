//! A histogram drawn in the terminal: one row a bucket, bars that grow with the count.

use std::fmt::Write as _;

use super::histogram::{LATENCY_NS_MAX, LatencyHistogram};

/// How text output looks. [`Style::PLAIN`] is what a file or a pipe gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Escape sequences for colour.
    pub colour: bool,
    /// Block characters instead of `#`.
    pub unicode: bool,
    /// Columns that a line may take.
    pub width: usize,
}

impl Style {
    /// 7-bit ASCII without colour, 80 columns.
    pub const PLAIN: Self = Self { colour: false, unicode: false, width: 80 };

    /// What fits the environment: colour only on a terminal and without `NO_COLOR`, block
    /// characters only on a terminal whose locale is UTF-8.
    pub fn detect(is_terminal: bool) -> Self {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
        let utf8 = ["LC_ALL", "LC_CTYPE", "LANG"]
            .iter()
            .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
            .is_some_and(|locale| locale.to_ascii_lowercase().replace('-', "").contains("utf8"));
        let width = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok()).unwrap_or(80);
        Self {
            colour: is_terminal && !set("NO_COLOR") && !dumb,
            unicode: is_terminal && utf8,
            width: width.clamp(60, 200),
        }
    }

    /// `text` in bold, where colour is allowed.
    pub fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    /// `text` in green or red.
    pub fn verdict(self, good: bool, text: &str) -> String {
        self.wrap(if good { "32" } else { "31" }, text)
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// Rows that a drawing has at most.
const ROWS_MAX: usize = 24;

/// `ns` in the unit that suits it, to three significant digits or more: `980ns`, `1.25us`, `25.0ms`.
pub fn show_ns(ns: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
    for (scale, name) in UNITS {
        if ns >= scale {
            let (whole, milli) = (ns / scale, ns % scale * 1_000 / scale);
            return match whole {
                0..10 => format!("{whole}.{:02}{name}", milli / 10),
                10..100 => format!("{whole}.{}{name}", milli / 100),
                _ => format!("{whole}{name}"),
            };
        }
    }
    format!("{ns}ns")
}

/// `n` with thousands separated: `1,234,567`.
pub fn show_count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Edges from `min` to past `max` in steps of 2^(octaves / per_octave).
fn edges(min: u64, max: u64, per_octave: u32, octaves: u32) -> Vec<u64> {
    let mut step = 0;
    while edge_at(step + 1, per_octave, octaves) <= min {
        step += 1;
    }
    let mut edges = vec![edge_at(step, per_octave, octaves)];
    while edges.last().is_some_and(|last| *last <= max) {
        step += 1;
        edges.push(edge_at(step, per_octave, octaves));
    }
    edges
}

/// One row of a drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Row {
    /// Samples from the first value up to, but not with, the second.
    Bucket(u64, u64, u64),
    /// Two or more buckets without samples.
    Gap,
}

/// The rows with the finest power-of-two ratio that needs at most [`ROWS_MAX`] of them: steps of
/// 2^(1/8), 2^(1/4), 2^(1/2), 2 or 4.
fn rows(histogram: &LatencyHistogram) -> Vec<Row> {
    let p = histogram.percentiles();
    let max = p.max.min(LATENCY_NS_MAX);
    let mut rows = Vec::new();
    for (per_octave, octaves) in [(8, 1), (4, 1), (2, 1), (1, 1), (1, 2)] {
        let mut edges = edges(p.min.min(LATENCY_NS_MAX), max, per_octave, octaves);
        // An edge inside a bucket of the histogram would count that bucket in two rows.
        for edge in &mut edges {
            *edge = histogram.bucket_start(*edge);
        }
        if let Some(last) = edges.last_mut() {
            *last = (*last).max(histogram.bucket_end(max));
        }
        edges.dedup();
        rows = collapse(
            edges
                .windows(2)
                .map(|pair| Row::Bucket(pair[0], pair[1], histogram.count_in(pair[0], pair[1]))),
        );
        if rows.len() <= ROWS_MAX {
            break;
        }
    }
    rows
}

/// Puts one gap in the place of neighbouring empty buckets.
fn collapse(buckets: impl Iterator<Item = Row>) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for row in buckets {
        let empty = matches!(row, Row::Bucket(_, _, 0));
        match rows.last_mut() {
            Some(last @ (Row::Gap | Row::Bucket(_, _, 0))) if empty => *last = Row::Gap,
            _ => rows.push(row),
        }
    }
    rows
}

/// 2^(step x octaves / per_octave), rounded up; step 0 is edge 0, so that zero has a row.
fn edge_at(step: u32, per_octave: u32, octaves: u32) -> u64 {
    /// 2^(k/8) in units of 2^-32.
    const EIGHTHS: [u64; 8] = [
        4_294_967_296,
        4_683_695_048,
        5_107_605_667,
        5_569_883_475,
        6_074_001_000,
        6_623_745_059,
        7_223_245_206,
        7_877_004_752,
    ];
    if step == 0 {
        return 0;
    }
    let eighths = (step - 1) * octaves * 8 / per_octave;
    let mantissa = EIGHTHS[(eighths % 8) as usize];
    let shift = (eighths / 8).min(63);
    let edge = (u128::from(mantissa) << shift).div_ceil(1 << 32);
    u64::try_from(edge).unwrap_or(u64::MAX)
}

/// The drawing, with its title and a line of percentiles.
pub fn draw(title: &str, histogram: &LatencyHistogram, style: Style) -> String {
    let p = histogram.percentiles();
    let mut out = String::new();
    let _ = writeln!(out, "{} ({} samples)", style.bold(title), show_count(p.count));
    if p.count == 0 {
        return out;
    }
    let rows = rows(histogram);
    let count_of = |row: &Row| if let Row::Bucket(_, _, count) = row { *count } else { 0 };
    let most = rows.iter().map(count_of).max().unwrap_or(1).max(1);
    let count_width = show_count(most).len().max(5);
    let bar_max = style.width.saturating_sub(9 + 3 + 9 + 2 + count_width + 10);
    for row in rows {
        let Row::Bucket(low, high, count) = row else {
            let _ = writeln!(out, "{:>9} :", "");
            continue;
        };
        let bar = bar(count, most, bar_max, style);
        let percent_milli = u128::from(count) * 100_000 / u128::from(p.count);
        let _ = writeln!(
            out,
            "{:>9} - {:>9} {bar} {:>count_width$} {:>3}.{:02}%",
            show_ns(low),
            show_ns(high),
            show_count(count),
            percent_milli / 1_000,
            percent_milli % 1_000 / 10,
        );
    }
    let _ = writeln!(
        out,
        "min {}  p50 {}  p90 {}  p99 {}  p99.9 {}  p99.99 {}  max {}",
        show_ns(p.min),
        show_ns(p.p50),
        show_ns(p.p90),
        show_ns(p.p99),
        show_ns(p.p999),
        show_ns(p.p9999),
        show_ns(p.max)
    );
    if histogram.saturated() > 0 {
        let _ = writeln!(out, "{} samples above 60s", show_count(histogram.saturated()));
    }
    out
}

/// A bar padded to `columns`: eighths of a column with block characters, whole ones without. Any
/// count above zero shows.
fn bar(count: u64, most: u64, columns: usize, style: Style) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let share = |parts: usize| {
        let scaled = u128::from(count) * u128::try_from(columns * parts).unwrap_or(0);
        usize::try_from(scaled.div_ceil(u128::from(most))).unwrap_or(0)
    };
    let (drawn, used) = if style.unicode {
        let eighths = share(8);
        let part = EIGHTHS[eighths % 8];
        let used = eighths / 8 + usize::from(!part.is_empty());
        (format!("{}{part}", "█".repeat(eighths / 8)), used)
    } else {
        let used = share(1);
        ("#".repeat(used), used)
    };
    format!("{}{}", style.wrap("36", &drawn), " ".repeat(columns.saturating_sub(used)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_is_in_one_row() {
        for (low, high) in [(0, 1), (1, 1), (900, 1_100), (1, 60_000_000_000), (5_000, 40_000_000)]
        {
            let mut histogram = LatencyHistogram::new();
            let step = ((high - low) / 997).max(1);
            let mut ns = low;
            while ns <= high {
                histogram.record_ns(ns);
                ns += step;
            }
            let rows = rows(&histogram);
            assert!(rows.len() <= ROWS_MAX, "{low}..{high}: {} rows", rows.len());
            let counted: u64 = rows
                .iter()
                .map(|row| if let Row::Bucket(_, _, count) = row { *count } else { 0 })
                .sum();
            assert_eq!(counted, histogram.count(), "{low}..{high}: {rows:?}");
        }
    }

    #[test]
    fn a_plain_drawing_is_ascii_and_fits() {
        let mut histogram = LatencyHistogram::new();
        (0..1_000_u64).for_each(|i| histogram.record_ns(10_000 + i * 37));
        histogram.record_ns(50_000_000);
        let text = draw("one-way latency", &histogram, Style::PLAIN);
        assert!(text.is_ascii(), "{text}");
        assert!(text.lines().all(|line| line.len() <= 80 || line.starts_with("min ")), "{text}");
        assert!(text.lines().any(|line| line.trim() == ":"), "the gap is one row: {text}");
        assert!(text.starts_with("one-way latency (1,001 samples)\n"), "{text}");
        assert!(text.contains("max 50.0ms"), "{text}");
        let bars: u64 = text
            .lines()
            .filter(|line| line.contains(" - "))
            .map(|line| {
                let fields: Vec<&str> = line.split_whitespace().collect();
                fields[fields.len() - 2].replace(',', "").parse::<u64>().expect("a count")
            })
            .sum();
        assert_eq!(bars, 1_001, "{text}");
    }

    #[test]
    fn times_and_counts_read_well() {
        assert_eq!(show_ns(0), "0ns");
        assert_eq!(show_ns(1_250), "1.25us");
        assert_eq!(show_ns(25_000_000), "25.0ms");
        assert_eq!(show_ns(123_456_789_000), "123s");
        assert_eq!(show_count(1_234_567), "1,234,567");
        assert_eq!(show_count(12), "12");
    }
}
