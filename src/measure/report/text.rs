//! A report as tables in the terminal.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Clock, Driver, FlowReport, Report};
use crate::measure::draw::{Style, show_count, show_ns};
use crate::units::Rate;

/// A table whose columns are as wide as their widest cell: the first flush left, the rest right.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(head: &[&str]) -> Self {
        Self { rows: vec![head.iter().map(|cell| (*cell).to_owned()).collect()] }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.len() < 2
    }

    pub(crate) fn render(&self, out: &mut String, style: Style) {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for (i, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let padding = " ".repeat(width - cell.chars().count());
                let _ = if column == 0 {
                    write!(line, "{cell}{padding}")
                } else {
                    write!(line, "  {padding}{cell}")
                };
            }
            let line = line.trim_end();
            let _ = writeln!(out, "{}", if i == 0 { style.bold(line) } else { line.to_owned() });
        }
    }
}

/// Sorts `s2` before `s10`: by runs of digits as numbers.
fn natural_key(name: &str) -> Vec<(u64, String)> {
    let mut key = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let text_end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (text, tail) = rest.split_at(text_end);
        let digits_end = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
        let (digits, tail) = tail.split_at(digits_end);
        key.push((0, text.to_owned()));
        key.push((digits.parse().unwrap_or(u64::MAX), String::new()));
        rest = tail;
    }
    key
}

fn naturally<V>(map: &BTreeMap<String, V>) -> Vec<(&String, &V)> {
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_by_key(|(name, _)| natural_key(name));
    entries
}

/// Rows of a table of streams before the rest is left to report.json.
const FLOW_ROWS_MAX: usize = 40;

impl Report {
    /// The tables that end a run: switches, links with losses, hosts, streams, latency, verdict.
    pub fn render_text(&self, style: Style) -> String {
        let mut out = String::new();
        let driver = match self.driver {
            Driver::Xdp => "AF_XDP",
            Driver::Sim => "simulator",
            Driver::Replay => "replay",
        };
        let clock = match self.clock {
            Clock::Virtual => "virtual time",
            Clock::Gated => "gated clock",
            Clock::Free => "free clock",
        };
        let _ = writeln!(
            out,
            "{}: {driver}, {clock}, seed {}, {} of node time in {} of wall time",
            style.bold(&self.name),
            self.seed,
            show_ns(self.duration_ns),
            show_ns(self.wall_ns)
        );
        self.render_nodes(&mut out, style);
        self.render_links(&mut out, style);
        self.render_flows(&mut out, style);
        if self.latency_ns.count > 0 {
            let p = &self.latency_ns;
            let _ = writeln!(
                out,
                "\nlatency of {} frames: min {}  p50 {}  p90 {}  p99 {}  p99.9 {}  p99.99 {}  max {}",
                show_count(p.count),
                show_ns(p.min),
                show_ns(p.p50),
                show_ns(p.p90),
                show_ns(p.p99),
                show_ns(p.p999),
                show_ns(p.p9999),
                show_ns(p.max)
            );
        }
        if self.lateness_ns.count > 0 {
            let p = &self.lateness_ns;
            let _ = writeln!(
                out,
                "lateness of the driver: p50 {}  p99 {}  max {}",
                show_ns(p.p50),
                show_ns(p.p99),
                show_ns(p.max)
            );
        }
        for note in &self.notes {
            let _ = writeln!(out, "{note}");
        }
        self.render_verdict(&mut out, style);
        out
    }

    fn render_nodes(&self, out: &mut String, style: Style) {
        let head = ["received", "generated", "copies", "sent", "consumed", "dropped", "queued"];
        let mut table = Table::new(&[&["node"], &head[..]].concat());
        let nodes = naturally(&self.switches)
            .into_iter()
            .map(|(name, node)| (name, &node.books))
            .chain(naturally(&self.hosts).into_iter().map(|(name, node)| (name, &node.books)));
        let mut drops = Vec::new();
        for (name, books) in nodes {
            let counts = [
                books.received,
                books.generated,
                books.replicated,
                books.transmitted,
                books.consumed,
                books.drops.total,
                books.queued,
            ];
            let mut row = vec![name.clone()];
            row.extend(counts.map(show_count));
            table.row(row);
            drops.extend(books.drops.reasons.iter().map(|(reason, n)| (name, reason, n)));
        }
        if !table.is_empty() {
            out.push('\n');
            table.render(out, style);
        }
        if !drops.is_empty() {
            let mut table = Table::new(&["drops", "reason", "frames"]);
            for (name, reason, n) in drops {
                table.row(vec![name.clone(), reason.clone(), show_count(*n)]);
            }
            out.push('\n');
            table.render(out, style);
        }
    }

    /// Only links that did not deliver everything.
    fn render_links(&self, out: &mut String, style: Style) {
        let mut table =
            Table::new(&["link", "sent", "delivered", "lost", "in flight", "kernel dropped"]);
        for (name, link) in naturally(&self.links) {
            if link.sent != link.delivered {
                let mut row = vec![name.clone()];
                let counts =
                    [link.sent, link.delivered, link.lost, link.in_flight, link.kernel_dropped];
                row.extend(counts.map(show_count));
                table.row(row);
            }
        }
        if !table.is_empty() {
            out.push('\n');
            table.render(out, style);
        }
    }

    fn render_flows(&self, out: &mut String, style: Style) {
        let mut table = Table::new(&[
            "stream", "sent", "received", "lost", "dup", "ooo", "bad", "goodput", "p50", "p99",
            "max", "verified",
        ]);
        for flow in self.flows.iter().take(FLOW_ROWS_MAX) {
            table.row(flow_row(flow));
        }
        if !table.is_empty() {
            out.push('\n');
            table.render(out, style);
        }
        if self.flows.len() > FLOW_ROWS_MAX {
            let _ = writeln!(out, "… {} more in report.json", self.flows.len() - FLOW_ROWS_MAX);
        }
    }

    fn render_verdict(&self, out: &mut String, style: Style) {
        out.push('\n');
        for violation in &self.violations {
            let _ = writeln!(out, "{} {violation}", style.verdict(false, "violated:"));
        }
        for expectation in &self.expectations {
            let word = if expectation.held { "held" } else { "not held" };
            let _ = writeln!(
                out,
                "{} {} (value {})",
                style.verdict(expectation.held, &format!("{word}:")),
                expectation.expr,
                expectation.value
            );
        }
        for (name, held) in &self.invariants {
            let word = if *held { "yes" } else { "NO" };
            let _ = writeln!(out, "{name}: {}", style.verdict(*held, word));
        }
        if self.interrupted {
            let _ = writeln!(out, "interrupted: the figures are those of a part of the run");
        }
    }
}

fn flow_row(flow: &FlowReport) -> Vec<String> {
    let name = format!("{} {} > {}", flow.id, flow.from, flow.to);
    let mut row = vec![name];
    match &flow.stream {
        Some(counts) => row.extend(
            [
                counts.sent,
                counts.received,
                counts.lost,
                counts.duplicates,
                counts.out_of_order,
                counts.content_errors,
            ]
            .map(show_count),
        ),
        None => row.extend(std::iter::repeat_n("-".to_owned(), 6)),
    }
    row.push(show_rate(flow.goodput_bps));
    match &flow.latency_ns {
        Some(p) => row.extend([p.p50, p.p99, p.max].map(show_ns)),
        None => row.extend(std::iter::repeat_n("-".to_owned(), 3)),
    }
    row.push(match (flow.verified, flow.latency_ns) {
        (true, _) => "yes".to_owned(),
        (false, Some(latency)) if latency.count > 0 => "NO".to_owned(),
        // Nobody looked, or nothing came.
        (false, _) => "-".to_owned(),
    });
    row
}

/// A measured rate with at most three significant decimals, which a configured one would show in
/// full.
fn show_rate(bps: u64) -> String {
    let unit = match bps {
        0..1_000_000 => 1,
        1_000_000..1_000_000_000 => 1_000,
        1_000_000_000..1_000_000_000_000 => 1_000_000,
        _ => 1_000_000_000,
    };
    Rate::from_bps(bps / unit * unit).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{DropReason, Ledger};
    use crate::measure::report::{BooksReport, SequenceCounts, SwitchReport};

    #[test]
    fn names_sort_as_people_count() {
        let mut names = ["s10", "s2", "s1", "a", "s2:10", "s2:9"];
        names.sort_by_key(|name| natural_key(name));
        assert_eq!(names, ["a", "s1", "s2", "s2:9", "s2:10", "s10"]);
    }

    #[test]
    fn the_text_names_losses_and_failures() {
        let mut report = Report::new("dumbbell", Driver::Sim, Clock::Virtual, 7);
        let mut ledger = Ledger { received: 2_000, transmitted: 1_998, ..Ledger::default() };
        ledger.drops.count(DropReason::QueueLimit);
        let books = BooksReport::from(&ledger);
        report.switches.insert("s1".to_owned(), SwitchReport { books, ..Default::default() });
        report.flows.push(FlowReport {
            id: 3,
            from: "h1".to_owned(),
            to: "h2".to_owned(),
            goodput_bps: 1_234_567_890,
            stream: Some(SequenceCounts {
                sent: 2_000,
                received: 1_998,
                lost: 2,
                ..Default::default()
            }),
            ..FlowReport::default()
        });
        report.check_conservation();
        report.notes.push("the figures are those of a test".to_owned());
        let text = report.render_text(Style::PLAIN);
        assert!(
            text.contains("s1       2,000          0       0  1,998         0        1       0"),
            "{text}"
        );
        assert!(text.contains("s1     queue_limit       1"), "{text}");
        assert!(text.contains("3 h1 > h2  2,000     1,998     2"), "{text}");
        assert!(text.contains("1.234Gbps"), "{text}");
        assert!(text.contains("\nthe figures are those of a test\n"), "{text}");
        assert!(text.contains("violated: switch s1: 2000 frames came"), "{text}");
        assert!(text.contains("frames_conserved: NO"), "{text}");
    }
}
