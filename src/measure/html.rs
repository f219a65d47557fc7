//! `report.html`: the report with charts in one file that needs nothing else.

use std::fmt::Write as _;

use super::draw::{Style, show_count, show_ns};
use super::histogram::{LatencyHistogram, Percentiles};
use super::plot::{Axis, Chart, Line, escape};
use super::report::Report;
use super::series::PortCharts;

const CSS: &str = "\
:root{color-scheme:light dark}
body{font:15px/1.45 system-ui,sans-serif;max-width:940px;margin:2em auto;padding:0 1em}
pre{font-size:12.5px;overflow-x:auto;padding:.8em;border:1px solid #8886;border-radius:6px}
table{border-collapse:collapse;margin:1em 0}
th,td{padding:.2em .7em;text-align:right;border-bottom:1px solid #8884}
th:first-child,td:first-child{text-align:left}
svg{width:100%;height:auto;margin:1em 0}
.good{color:#009e73}.bad{color:#d55e00}";

/// Lines that one chart holds at most.
const LINES_MAX: usize = 8;

/// The page.
pub(crate) fn page(
    report: &Report,
    histograms: &[(String, LatencyHistogram)],
    ports: &[PortCharts],
) -> String {
    let name = escape(&report.name);
    let held = report.all_held();
    let (class, verdict) = if held {
        ("good", "every invariant and expectation held")
    } else {
        ("bad", "an invariant or expectation did not hold")
    };
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>{name} - tailwater</title>\n<style>{CSS}</style></head>\n\
         <body><h1>{name}</h1>\n<p class=\"{class}\">{verdict}</p>\n\
         <pre>{}</pre>\n",
        escape(report.render_text(Style { width: 100, ..Style::PLAIN }).trim_end())
    );
    latency(&mut page, histograms);
    queues(&mut page, ports);
    page.push_str("</body></html>\n");
    page
}

fn latency(page: &mut String, histograms: &[(String, LatencyHistogram)]) {
    let filled: Vec<_> = histograms.iter().filter(|(_, histogram)| !histogram.is_empty()).collect();
    if filled.is_empty() {
        return;
    }
    page.push_str("<h2>Latency</h2>\n");
    let lines = filled
        .iter()
        .take(LINES_MAX)
        .map(|(name, histogram)| Line { name: name.clone(), points: curve(histogram) })
        .collect();
    let of = match filled.len() {
        n if n > LINES_MAX => format!(", the first {LINES_MAX} of {n} histograms"),
        _ => String::new(),
    };
    let chart = Chart {
        title: format!("Latency by percentile{of}"),
        x_label: "percentile".to_owned(),
        y_label: "latency, us".to_owned(),
        x: Axis::Percentile,
        y: Axis::Log,
        lines,
    };
    page.push_str(&chart.to_svg());
    page.push_str("<table><tr><th>histogram");
    for head in ["samples", "min", "p50", "p90", "p99", "p99.9", "p99.99", "max"] {
        let _ = write!(page, "<th>{head}");
    }
    page.push_str("</tr>\n");
    for (name, histogram) in filled {
        let Percentiles { min, p50, p90, p99, p999, p9999, max, count, .. } =
            histogram.percentiles();
        let _ = write!(page, "<tr><td>{}<td>{}", escape(name), show_count(count));
        for ns in [min, p50, p90, p99, p999, p9999, max] {
            let _ = write!(page, "<td>{}", show_ns(ns));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table>\n");
}

/// Quantile against microseconds, each value at least a nanosecond so that it has a logarithm.
fn curve(histogram: &LatencyHistogram) -> Vec<(f64, f64)> {
    #[allow(clippy::cast_precision_loss, reason = "60 s in nanoseconds fit a double's 53 bits")]
    let us = |ns: u64| ns.max(1) as f64 / 1e3;
    histogram.curve().into_iter().map(|(quantile, ns)| (quantile, us(ns))).collect()
}

fn queues(page: &mut String, ports: &[PortCharts]) {
    if ports.is_empty() {
        return;
    }
    let mut deepest: Vec<&PortCharts> = ports.iter().collect();
    deepest.sort_by(|a, b| b.queue_bytes_max.cmp(&a.queue_bytes_max).then(a.name.cmp(&b.name)));
    deepest.truncate(LINES_MAX);
    let of = if ports.len() > deepest.len() {
        format!(", the {LINES_MAX} of {} ports with the deepest queues", ports.len())
    } else {
        String::new()
    };
    page.push_str("<h2>Queues and rates</h2>\n");
    let chart = |title: &str, y_label: &str, lines: Vec<Line>| Chart {
        title: format!("{title}{of}"),
        x_label: "time, ms".to_owned(),
        y_label: y_label.to_owned(),
        x: Axis::Linear,
        y: Axis::Linear,
        lines,
    };
    let lines = |pick: fn(&PortCharts) -> &Line| deepest.iter().map(|p| pick(p).clone()).collect();
    page.push_str(&chart("Queue depth", "KB", lines(|port| &port.queue)).to_svg());
    page.push_str(&chart("Sent rate", "Gb/s", lines(|port| &port.tx)).to_svg());
}
