//! `tailwater top`: the ports of a running instance, refreshed.

use std::io::IsTerminal as _;

use clap::Args;
use nix::poll::{PollTimeout, poll};
use serde_json::Value;

use super::Failure;
use super::lab::name_of;
use super::outcome::print_while_read;
use crate::lab::control::{Request, ask};
use crate::lab::topology::natural;
use crate::time::Duration;

/// Arguments of `tailwater top`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tailwater top two-hosts\n  tailwater top two-hosts --interval 200ms --count 10"
)]
pub struct TopArgs {
    /// The instance's name, or its topology file
    target: String,
    /// Time between two tables
    #[arg(long, value_name = "TIME", default_value = "1s")]
    interval: Duration,
    /// End after this many tables
    #[arg(long, value_name = "N")]
    count: Option<u32>,
}

/// One port's counters at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    port: String,
    rx_frames: u64,
    tx_frames: u64,
    drops: u64,
    queued_bytes_max: u64,
}

impl TopArgs {
    /// Shows tables until interrupted or until the instance ends.
    ///
    /// # Errors
    /// When no such instance runs.
    pub fn run(&self) -> Result<(), Failure> {
        let name = name_of(&self.target)?;
        let clears = std::io::stdout().is_terminal();
        let millis = i32::try_from(self.interval.as_ns() / 1_000_000).unwrap_or(i32::MAX).max(100);
        let mut before: Option<(u64, Vec<Row>)> = None;
        let mut shown = 0;
        loop {
            let shot = ask(&name, &Request::Show)?;
            let now = shot["duration_ns"].as_u64().unwrap_or(0);
            let rows = rows(&shot);
            let home = if clears { "\x1b[H\x1b[J" } else { "" };
            let read = print_while_read(&format!(
                "{home}{name} at {}\n{}",
                Duration::from_ns(now),
                table(&before, now, &rows)
            ))?;
            before = Some((now, rows));
            shown += 1;
            if !read || self.count.is_some_and(|count| shown >= count) {
                return Ok(());
            }
            // Nothing to wait for but time; a signal ends the wait and the process.
            let _ = poll(&mut [], PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX));
        }
    }
}

fn rows(shot: &Value) -> Vec<Row> {
    let mut rows = Vec::new();
    for (switch, about) in shot["switches"].as_object().into_iter().flatten() {
        for (port, counters) in about["ports"].as_object().into_iter().flatten() {
            let count = |key: &str| counters[key].as_u64().unwrap_or(0);
            let queues = counters["queue_bytes_max"].as_array().into_iter().flatten();
            let drops = &counters["drops"];
            rows.push(Row {
                port: format!("{switch}:{port}"),
                rx_frames: count("rx_frames"),
                tx_frames: count("tx_frames"),
                drops: drops.as_u64().or_else(|| drops["total"].as_u64()).unwrap_or(0),
                queued_bytes_max: queues.filter_map(Value::as_u64).max().unwrap_or(0),
            });
        }
    }
    rows.sort_by(|a, b| natural(&a.port, &b.port));
    rows
}

/// Counts, and rates over node time since the table before.
fn table(before: &Option<(u64, Vec<Row>)>, now: u64, rows: &[Row]) -> String {
    let wide = rows.iter().map(|row| row.port.chars().count()).max().unwrap_or(4).max(4);
    let mut out = format!(
        "{:<wide$} {:>14} {:>12} {:>14} {:>12} {:>10} {:>12}\n",
        "port", "rx frames", "rx/s", "tx frames", "tx/s", "drops", "queue B max"
    );
    for row in rows {
        let rate = |pick: fn(&Row) -> u64| {
            let (then, old) = before.as_ref()?;
            let old = old.iter().find(|old| old.port == row.port)?;
            let span = u128::from(now.checked_sub(*then).filter(|span| *span > 0)?);
            let frames = u128::from(pick(row).saturating_sub(pick(old)));
            Some((frames * 1_000_000_000 / span).to_string())
        };
        let rx = rate(|row| row.rx_frames).unwrap_or_else(|| "-".to_owned());
        let tx = rate(|row| row.tx_frames).unwrap_or_else(|| "-".to_owned());
        out.push_str(&format!(
            "{:<wide$} {:>14} {rx:>12} {:>14} {tx:>12} {:>10} {:>12}\n",
            row.port, row.rx_frames, row.tx_frames, row.drops, row.queued_bytes_max
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rates_are_over_node_time() {
        let port = |rx: u64| {
            json!({ "rx_frames": rx, "tx_frames": 7, "drops": { "total": 1 },
                "queue_bytes_max": [0, 64] })
        };
        let shot = |rx| rows(&json!({ "switches": { "s1": { "ports": { "1": port(rx) } } } }));
        let first = table(&None, 0, &shot(10));
        assert!(first.contains("s1:1") && first.contains(" - "), "{first}");
        let second = table(&Some((0, shot(10))), 500_000_000, &shot(60));
        let cells: Vec<&str> =
            second.lines().nth(1).expect("a row").split_ascii_whitespace().collect();
        assert_eq!(cells, ["s1:1", "60", "100", "7", "0", "1", "64"]);
    }
}
