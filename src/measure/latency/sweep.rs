//! The table that operators know: NDR and PDR, then latency at shares of the NDR.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::losses::Losses;
use super::schedule::{Schedule, wire_bps};
use super::search::{Goal, NDR, PDR, RateSearch, SearchLimits};
use super::trial::{TrialOutcome, TrialPlan};
use crate::measure::draw::{Style, show_count, show_ns};
use crate::measure::histogram::Percentiles;
use crate::measure::report::text::Table;
use crate::time::Duration;
use crate::units::{FrameRate, Rate};

/// Shares of the NDR at which latency is measured, in percent.
pub const LEVELS_PERCENT: [u64; 3] = [10, 50, 90];

/// How to sweep.
#[derive(Clone, Copy, Debug)]
pub struct SweepConfig {
    /// Where to search.
    pub limits: SearchLimits,
    /// How long each trial of the search sends.
    pub trial: Duration,
    /// How long each latency measurement sends.
    pub level: Duration,
    /// Frames back to back.
    pub burst: u32,
    /// Bytes of each frame, without FCS.
    pub frame_bytes: u32,
}

/// One goal's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoalReport {
    /// `NDR` or `PDR`.
    pub goal: String,
    /// Lost frames per million that it allows.
    pub loss_ppm: u32,
    /// The highest rate that passed, in thousandths of a frame per second; null when none did.
    pub rate_milli_pps: Option<u64>,
    /// The same as bits per second of wire time.
    pub wire_bps: Option<u64>,
    /// Frames planned in the best trial at that rate.
    pub planned: u64,
    /// Frames lost in it.
    pub lost: u64,
    /// The next rate above failed because the sender could not send it: the device may do more.
    pub sender_limited: bool,
    /// The rate is the highest that was tried: the device may do more.
    pub is_highest_tried: bool,
}

/// One trial of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialReport {
    /// Planned rate, in thousandths of a frame per second.
    pub rate_milli_pps: u64,
    /// Frames planned.
    pub planned: u64,
    /// Frames sent in time.
    pub sent: u64,
    /// Frames received.
    pub received: u64,
    /// Where the others are.
    #[serde(default)]
    pub losses: Losses,
}

/// Latency at one share of the NDR.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LevelReport {
    /// Percent of the NDR.
    pub percent: u64,
    /// Rate, in thousandths of a frame per second.
    pub rate_milli_pps: u64,
    /// Frames planned.
    pub planned: u64,
    /// Frames sent in time; the rest the sender did not bring out.
    pub sent: u64,
    /// Frames sent that did not arrive.
    pub lost: u64,
    /// Where those are.
    #[serde(default)]
    pub losses: Losses,
    /// What the latency goes by.
    #[serde(default)]
    pub timestamps: String,
    /// Latency from the planned send time.
    pub latency_ns: Percentiles,
}

/// A whole sweep.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SweepReport {
    /// NDR, then PDR.
    pub goals: Vec<GoalReport>,
    /// Latency at 10, 50 and 90 % of the NDR.
    pub levels: Vec<LevelReport>,
    /// The trials of the search, in order.
    pub trials: Vec<TrialReport>,
}

/// Searches NDR and PDR and measures latency at its shares; `run` makes one trial. Gives the report
/// and the outcome of the trial at each of [`LEVELS_PERCENT`].
///
/// The first trial warms caches and rings up and does not count.
///
/// # Errors
/// Those of `run`.
pub fn sweep<E>(
    config: &SweepConfig,
    mut run: impl FnMut(TrialPlan) -> Result<TrialOutcome, E>,
    mut said: impl FnMut(&str),
) -> Result<(SweepReport, Vec<(u64, TrialOutcome)>), E> {
    let plan = |rate: FrameRate, span: Duration| TrialPlan {
        rate,
        burst: config.burst,
        frames: Schedule::frames_in(rate, span),
    };
    said("warm-up");
    run(plan(config.limits.low, config.trial))?;
    let mut search = RateSearch::new(config.limits, &[NDR, PDR]);
    let mut losses = Vec::new();
    while let Some(rate) = search.next_rate() {
        said(&format!("trial {} at {}", search.trials().len() + 1, show_frame_rate(rate)));
        let outcome = run(plan(rate, config.trial))?;
        losses.push(outcome.losses);
        search.record(outcome.result());
    }
    let mut report = SweepReport {
        goals: [NDR, PDR].map(|goal| goal_report(&search, goal, config.frame_bytes)).to_vec(),
        trials: search
            .trials()
            .iter()
            .zip(losses)
            .map(|(trial, losses)| TrialReport {
                rate_milli_pps: trial.rate.as_milli_pps(),
                planned: trial.planned,
                sent: trial.sent,
                received: trial.received,
                losses,
            })
            .collect(),
        levels: Vec::new(),
    };
    let mut outcomes = Vec::new();
    if let Some(ndr) = search.found(NDR) {
        for percent in LEVELS_PERCENT {
            let rate = FrameRate::from_milli_pps(ndr.as_milli_pps() / 100 * percent);
            said(&format!("latency at {percent} % of NDR"));
            let outcome = run(plan(rate, config.level))?;
            report.levels.push(LevelReport {
                percent,
                rate_milli_pps: rate.as_milli_pps(),
                planned: outcome.sent.planned,
                sent: outcome.sent.sent,
                lost: outcome.sent.sent.saturating_sub(outcome.received.stream.received),
                losses: outcome.losses,
                timestamps: outcome.timestamps().to_owned(),
                latency_ns: outcome.latency().percentiles(),
            });
            outcomes.push((percent, outcome));
        }
    }
    Ok((report, outcomes))
}

fn goal_report(search: &RateSearch, goal: Goal, frame_bytes: u32) -> GoalReport {
    let found = search.found(goal);
    let best = found.and_then(|rate| search.best_at(rate));
    GoalReport {
        goal: goal.name.to_owned(),
        loss_ppm: goal.loss_ppm,
        rate_milli_pps: found.map(FrameRate::as_milli_pps),
        wire_bps: found.map(|rate| wire_bps(rate, frame_bytes)),
        planned: best.map_or(0, |trial| trial.planned),
        lost: best.map_or(0, super::search::TrialResult::lost),
        sender_limited: search.is_sender_limited(goal),
        is_highest_tried: found
            .is_some_and(|rate| search.trials().iter().all(|trial| trial.rate <= rate)),
    }
}

/// A rate in whole frames per second, short enough for a table.
fn show_frame_rate(rate: FrameRate) -> String {
    let milli = rate.as_milli_pps();
    let unit = if milli >= 1_000_000_000 { 1_000_000 } else { 1_000 };
    FrameRate::from_milli_pps(milli / unit * unit).to_string()
}

impl SweepReport {
    /// The table.
    pub fn render_text(&self, style: Style) -> String {
        let mut out = String::new();
        let mut table = Table::new(&["", "loss allowed", "frames", "wire", "lost", "limited by"]);
        for goal in &self.goals {
            let allowed = format!("{}.{:02}%", goal.loss_ppm / 10_000, goal.loss_ppm / 100 % 100);
            let Some(milli) = goal.rate_milli_pps else {
                table.row(vec![goal.goal.clone(), allowed, "none passed".to_owned()]);
                continue;
            };
            let limited_by = match (goal.is_highest_tried, goal.sender_limited) {
                (true, _) => "--rate",
                (false, true) => "sender",
                (false, false) => "path",
            };
            table.row(vec![
                goal.goal.clone(),
                allowed,
                show_frame_rate(FrameRate::from_milli_pps(milli)),
                Rate::from_bps(goal.wire_bps.unwrap_or(0) / 1_000_000 * 1_000_000).to_string(),
                format!("{} of {}", show_count(goal.lost), show_count(goal.planned)),
                limited_by.to_owned(),
            ]);
        }
        table.render(&mut out, style);
        if !self.levels.is_empty() {
            let mut table = Table::new(&[
                "latency at",
                "frames",
                "min",
                "p50",
                "p90",
                "p99",
                "p99.9",
                "max",
                "lost",
                "unsent",
            ]);
            for level in &self.levels {
                let p = &level.latency_ns;
                let mut row = vec![
                    format!("{}% of NDR", level.percent),
                    show_frame_rate(FrameRate::from_milli_pps(level.rate_milli_pps)),
                ];
                row.extend([p.min, p.p50, p.p90, p.p99, p.p999, p.max].map(show_ns));
                row.push(show_count(level.lost));
                row.push(show_count(level.planned.saturating_sub(level.sent)));
                table.row(row);
            }
            let _ = writeln!(out);
            table.render(&mut out, style);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{ExpectedStream, Sink};
    use crate::measure::LatencyHistogram;
    use crate::measure::latency::ends::{Received, Sent};
    use crate::time::Time;
    use crate::xdp::RxStamps;

    /// A path that carries 100 Kpps and answers in 5 us.
    fn device(plan: TrialPlan) -> Result<TrialOutcome, ()> {
        let carried = plan.rate.as_milli_pps().min(100_000_000);
        let received =
            u128::from(plan.frames) * u128::from(carried) / u128::from(plan.rate.as_milli_pps());
        let received = u64::try_from(received).map_err(|_| ())?;
        let mut sink = Sink::new(ExpectedStream { id: 1 });
        for n in 0..received {
            sink.take(Time::from_ns(5_000), n, Time::ZERO, 60, false, true);
        }
        let sent = Sent {
            planned: plan.frames,
            sent: plan.frames,
            refused: 0,
            lateness: LatencyHistogram::new(),
        };
        let received = Received {
            stream: sink.report().clone(),
            other_streams: 0,
            foreign: 0,
            away: Vec::new(),
            stamped: None,
        };
        let losses =
            Losses { elsewhere: sent.sent - received.stream.received, ..Losses::default() };
        let (start, stamps) = (Time::ZERO, RxStamps::Off);
        Ok(TrialOutcome { plan, start, sent, received, stamps, losses })
    }

    #[test]
    fn the_table_of_a_known_device() {
        let config = SweepConfig {
            limits: SearchLimits {
                low: FrameRate::from_pps(1_000),
                high: FrameRate::from_pps(1_000_000),
                precision_ppm: 5_000,
                attempts_max: 2,
            },
            trial: Duration::from_ms(100),
            level: Duration::from_ms(100),
            burst: 1,
            frame_bytes: 60,
        };
        let (report, outcomes) = sweep(&config, device, |_| {}).expect("never fails");
        let ndr = report.goals[0].rate_milli_pps.expect("found");
        assert!((99_500_000..=100_000_000).contains(&ndr), "{ndr}");
        assert!(report.goals[1].rate_milli_pps.expect("found") >= ndr);
        assert_eq!(report.levels.iter().map(|l| l.percent).collect::<Vec<_>>(), LEVELS_PERCENT);
        assert_eq!(report.levels[1].latency_ns.p50, 5_000);
        assert_eq!(
            outcomes.iter().map(|(percent, _)| *percent).collect::<Vec<_>>(),
            LEVELS_PERCENT
        );
        assert!(report.levels.iter().all(|level| level.timestamps == "software"));
        for trial in &report.trials {
            assert_eq!(trial.losses.total(), trial.sent - trial.received);
        }
        assert!(!report.goals[0].is_highest_tried && !report.goals[0].sender_limited);
        let text = report.render_text(Style::PLAIN);
        assert!(text.contains("NDR") && text.contains("50% of NDR"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
    }
}
