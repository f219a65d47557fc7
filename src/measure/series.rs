//! Queue depths and rates over time: `series.csv`, written as the run goes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, BufRead as _, Write};
use std::path::Path;

use super::plot::Line;
use super::report::bits_per_second;
use crate::time::Time;

const HEAD: &str = "time_ns,node,port,queue_bytes,rx_bps,tx_bps";

/// What a port shows at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortSample {
    /// Bytes in its egress queues.
    pub queue_bytes: u64,
    /// Bytes received since the start of the run.
    pub rx_bytes: u64,
    /// Bytes sent since the start of the run.
    pub tx_bytes: u64,
}

/// Writes rows as they come; rates are those since the last row of the same port.
#[derive(Debug)]
pub struct SeriesWriter<W> {
    out: W,
    last: BTreeMap<(String, String), (Time, PortSample)>,
}

impl<W: Write> SeriesWriter<W> {
    /// Writes the head.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new(mut out: W) -> io::Result<Self> {
        writeln!(out, "{HEAD}")?;
        Ok(Self { out, last: BTreeMap::new() })
    }

    /// Writes one row.
    ///
    /// # Errors
    /// Those of the file.
    pub fn sample(
        &mut self,
        now: Time,
        node: &str,
        port: &str,
        sample: PortSample,
    ) -> io::Result<()> {
        let key = (node.to_owned(), port.to_owned());
        let (then, before) = self.last.insert(key, (now, sample)).unwrap_or_default();
        let ns = now.since(then).as_ns();
        let rate = |now: u64, then: u64| bits_per_second(now.saturating_sub(then), ns);
        writeln!(
            self.out,
            "{},{},{},{},{},{}",
            now.as_ns(),
            field(node),
            field(port),
            sample.queue_bytes,
            rate(sample.rx_bytes, before.rx_bytes),
            rate(sample.tx_bytes, before.tx_bytes)
        )
    }

    /// Flushes and gives the file back.
    ///
    /// # Errors
    /// Those of the file.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}

/// A field of RFC 4180: quoted when it has to be. A line break, which no name has, becomes a blank.
fn field(text: &str) -> String {
    let text = text.replace(['\n', '\r'], " ");
    if text.contains([',', '"']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

/// The fields of one line of [`field`]s, of which only those that were quoted are made anew.
fn fields(line: &str) -> impl Iterator<Item = Cow<'_, str>> {
    let mut rest = Some(line);
    std::iter::from_fn(move || {
        let line = rest?;
        let Some(quoted) = line.strip_prefix('"') else {
            let (first, behind) = line.split_once(',').map_or((line, None), |(a, b)| (a, Some(b)));
            rest = behind;
            return Some(Cow::Borrowed(first));
        };
        // A quote inside is doubled.
        let mut text = String::new();
        let mut parts = quoted.split('"');
        let mut at = 0;
        while let Some(part) = parts.next() {
            text.push_str(part);
            at += part.len() + 1;
            if !quoted[at.min(quoted.len())..].starts_with('"') {
                break;
            }
            text.push('"');
            at += 1;
            parts.next();
        }
        rest = quoted.get(at..).and_then(|behind| behind.strip_prefix(','));
        Some(Cow::Owned(text))
    })
}

/// What charts show of one port, at most [`POINTS`] points each.
#[derive(Clone, Debug)]
pub(crate) struct PortCharts {
    /// `node:port`.
    pub(crate) name: String,
    /// The deepest queue of all, in bytes.
    pub(crate) queue_bytes_max: u64,
    /// Time in milliseconds, queue depth in kilobytes.
    pub(crate) queue: Line,
    /// Time in milliseconds, sent rate in Gb/s.
    pub(crate) tx: Line,
}

/// Points of one line in a chart: each is the greatest of its slice of time.
const POINTS: u64 = 600;

struct Row<'a> {
    time_ns: u64,
    node: &'a str,
    port: &'a str,
    queue_bytes: u64,
    tx_bps: u64,
}

/// Calls `each` for every row; rows that do not read are passed over.
fn for_each_row(path: &Path, mut each: impl FnMut(Row<'_>)) -> io::Result<()> {
    let mut file = io::BufReader::new(std::fs::File::open(path)?);
    let mut line = String::new();
    file.read_line(&mut line)?;
    loop {
        line.clear();
        if file.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let mut fields = fields(line.trim_end());
        let mut next = || fields.next();
        let (Some(time), Some(node), Some(port)) = (next(), next(), next()) else { continue };
        let (Some(queue), Some(_), Some(tx), None) = (next(), next(), next(), next()) else {
            continue;
        };
        if let (Ok(time_ns), Ok(queue_bytes), Ok(tx_bps)) =
            (time.parse(), queue.parse(), tx.parse())
        {
            each(Row { time_ns, node: &node, port: &port, queue_bytes, tx_bps });
        }
    }
}

/// Reads a series for its charts in memory that does not grow with the file: once for the end of
/// time, once for the greatest values of each slice.
pub(crate) fn read_charts(path: &Path) -> io::Result<Vec<PortCharts>> {
    let mut end_ns = 0;
    for_each_row(path, |row| end_ns = end_ns.max(row.time_ns))?;
    let slice_ns = (end_ns / POINTS).max(1);
    let mut ports: BTreeMap<String, BTreeMap<u64, (u64, u64)>> = BTreeMap::new();
    let mut name = String::new();
    for_each_row(path, |row| {
        name.clear();
        name.extend([row.node, ":", row.port]);
        if !ports.contains_key(&name) {
            ports.insert(name.clone(), BTreeMap::new());
        }
        let Some(slices) = ports.get_mut(&name) else { return };
        let slice = slices.entry(row.time_ns / slice_ns).or_default();
        slice.0 = slice.0.max(row.queue_bytes);
        slice.1 = slice.1.max(row.tx_bps);
    })?;
    Ok(ports
        .into_iter()
        .map(|(name, slices)| {
            let ms = |slice: u64| to_f64(slice * slice_ns) / 1e6;
            let line = |value: &dyn Fn(&(u64, u64)) -> f64| Line {
                name: name.clone(),
                points: slices.iter().map(|(slice, both)| (ms(*slice), value(both))).collect(),
            };
            PortCharts {
                queue_bytes_max: slices.values().map(|both| both.0).max().unwrap_or(0),
                queue: line(&|both| to_f64(both.0) / 1e3),
                tx: line(&|both| to_f64(both.1) / 1e9),
                name: name.clone(),
            }
        })
        .collect())
}

#[allow(clippy::cast_precision_loss, reason = "a chart shows a few hundred pixels")]
const fn to_f64(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_hold_rates_since_the_ports_last_row() {
        let mut series = SeriesWriter::new(Vec::new()).expect("memory");
        let at = |us: u64| Time::from_ns(us * 1_000);
        let sample = |tx_bytes| PortSample { queue_bytes: 7, rx_bytes: 0, tx_bytes };
        series.sample(at(10), "s1", "1", sample(1_250)).expect("memory");
        series.sample(at(10), "s,1", "2", sample(0)).expect("memory");
        series.sample(at(20), "s1", "1", sample(2_500)).expect("memory");
        let text = String::from_utf8(series.finish().expect("memory")).expect("ASCII");
        assert_eq!(
            text,
            "time_ns,node,port,queue_bytes,rx_bps,tx_bps\n\
             10000,s1,1,7,0,1000000000\n\
             10000,\"s,1\",2,7,0,0\n\
             20000,s1,1,7,0,1000000000\n"
        );
        let read = |line| fields(line).collect::<Vec<_>>();
        assert_eq!(read("1,\"s,\"\"1\",2"), ["1", "s,\"1", "2"]);
        assert_eq!(read("\"\"\"\",\"\",,\"a\"\"\"\"b\""), ["\"", "", "", "a\"\"b"]);
        assert_eq!(read("\"never,\"\"ended"), ["never,\"ended"]);
    }

    #[test]
    fn charts_keep_the_peak_of_a_long_series() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("series.csv");
        let mut series =
            SeriesWriter::new(std::fs::File::create(&path).expect("a file")).expect("written");
        for i in 0..10_000_u64 {
            let queue_bytes = if i == 5_001 { 9_000 } else { 0 };
            let sample = PortSample { queue_bytes, rx_bytes: 0, tx_bytes: 0 };
            series.sample(Time::from_ns(i * 1_000), "s1", "1", sample).expect("written");
        }
        series.finish().expect("flushed");
        let charts = read_charts(&path).expect("read");
        assert_eq!(charts.len(), 1);
        assert_eq!((charts[0].name.as_str(), charts[0].queue_bytes_max), ("s1:1", 9_000));
        assert!(charts[0].queue.points.len() <= 1 + usize::try_from(POINTS).expect("small") * 2);
        assert!(charts[0].queue.points.iter().any(|point| point.1 == 9.0));
    }
}
