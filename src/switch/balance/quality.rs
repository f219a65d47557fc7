//! The quality of a group's members, as DLB measures it.
//!
//! Every sampling interval two loads of each member's port are taken, as shares of what its line
//! carries in an interval: the past load, the bytes that it sent, and the future load, the bytes that
//! wait for it. Each moves an average of its own (EWMA); their mean by weight falls into one of
//! eight bands of equal width, from an idle port (0) to one that is full or has a queue (7). The
//! members of the best band are taken in turn. Samples are taken when a frame asks, and intervals
//! in which none did share what was sent in them.

use super::config::QualityConfig;
use super::spray::take_turn;
use super::{Loads, MemberId, Members};
use crate::time::{Duration, Time};
use crate::units::Rate;

/// Bands of quality.
const BANDS: u32 = 8;

/// What a line carries in an interval, in units of loads.
const FULL: u64 = 1 << 16;

/// Averages have settled after so many equal samples, whatever the exponent.
const SAMPLES_MAX: u64 = 1 << 16;

/// The loads of a member's port.
#[derive(Clone, Copy, Debug)]
struct Load {
    /// Bytes that the port had sent when it was looked at last.
    tx_bytes: u64,
    /// Averages, in units of 1/[`FULL`] of the line, times 2^16 to keep what divisions leave.
    past: u64,
    future: u64,
    band: u32,
}

/// The members' quality.
#[derive(Debug)]
pub struct Quality {
    config: QualityConfig,
    next_sample_at: Time,
    loads: Vec<Load>,
    /// The slots of members of the best band.
    best: Vec<MemberId>,
    next: usize,
}

impl Quality {
    pub(super) fn new(config: &QualityConfig, members: &Members) -> Self {
        let idle = Load { tx_bytes: 0, past: 0, future: 0, band: 0 };
        Self {
            config: *config,
            next_sample_at: Time::ZERO + config.sampling_interval,
            loads: vec![idle; members.len()],
            best: members.slots().to_vec(),
            next: 0,
        }
    }

    /// One of the best members, in turn.
    #[inline]
    pub(super) fn best<L: Loads>(&mut self, members: &Members, loads: &L, now: Time) -> MemberId {
        if now >= self.next_sample_at {
            self.sample(members, loads, now);
        }
        take_turn(&mut self.next, &self.best).unwrap_or_default()
    }

    /// The band of a member, 0 the best.
    #[cfg(test)]
    fn band(&self, member: MemberId) -> u32 {
        self.loads[member.index()].band
    }

    #[inline(never)]
    fn sample<L: Loads>(&mut self, members: &Members, loads: &L, now: Time) {
        let interval = self.config.sampling_interval;
        let late = now.since(self.next_sample_at).as_ps() / interval.as_ps();
        let intervals = late + 1;
        self.next_sample_at += interval * intervals;
        for (member, load) in members.ids().zip(&mut self.loads) {
            let port = members.port(member);
            let rate = members.rate(member);
            let tx_bytes = loads.tx_bytes(port);
            let sent = (tx_bytes - load.tx_bytes) / intervals;
            load.tx_bytes = tx_bytes;
            let past = share(sent, rate, interval);
            let future = share(loads.queue_bytes(port), rate, interval);
            for _ in 0..intervals.min(SAMPLES_MAX) {
                let before = (load.past, load.future);
                load.past = self.config.averaged(load.past, past);
                load.future = self.config.averaged(load.future, future);
                if before == (load.past, load.future) {
                    break;
                }
            }
            load.band = self.config.band(load.past, load.future);
        }
        self.find_best(members);
    }

    /// Members of the lowest band of those that are up.
    pub(super) fn find_best(&mut self, members: &Members) {
        let band = |member: &MemberId| self.loads[member.index()].band;
        let lowest = members.live().iter().map(band).min();
        let slots = members.slots().iter();
        self.best.clear();
        self.best.extend(slots.filter(|member| Some(band(member)) == lowest));
    }
}

/// Bytes as a share of what a line carries in an interval: [`FULL`] is all of it; four times that
/// at most, so that a queue that stood for long is forgotten in time.
fn share(bytes: u64, rate: Rate, interval: Duration) -> u64 {
    let ps = u128::from(rate.time_of(bytes).as_ps());
    let share = (ps * u128::from(FULL)).checked_div(u128::from(interval.as_ps())).unwrap_or(0);
    u64::try_from(share).unwrap_or(u64::MAX).min(FULL * 4)
}

impl QualityConfig {
    /// The average after a sample.
    const fn averaged(&self, average: u64, sample: u64) -> u64 {
        let sample = sample << 16;
        if sample >= average {
            average + ((sample - average) >> self.ewma_exponent)
        } else if self.load_current {
            sample
        } else {
            average - ((average - sample) >> self.ewma_exponent)
        }
    }

    fn band(&self, past: u64, future: u64) -> u32 {
        let (for_past, for_future) =
            (u64::from(self.load_past_weight), u64::from(self.load_future_weight));
        let weights = for_past + for_future;
        let mean = (past * for_past + future * for_future).checked_div(weights).unwrap_or(0) >> 16;
        u32::try_from(mean * u64::from(BANDS) / FULL).unwrap_or(u32::MAX).min(BANDS - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::{GroupConfig, MemberConfig, Method};
    use super::super::trial::SetLoads;
    use super::*;
    use crate::node::PortId;

    /// 16 us at 100 Gb/s.
    const LINE_BYTES: u64 = 200_000;

    fn members(count: u16) -> Members {
        let member = |port| MemberConfig::new(PortId(port), Rate::from_gbps(100));
        let members = (0..count).map(member).collect();
        Members::new(&GroupConfig::new(members, Method::SprayRandom))
    }

    fn after(intervals: u64) -> Time {
        Time::ZERO + QualityConfig::default().sampling_interval * intervals
    }

    #[test]
    fn averages_follow_the_samples_by_a_quarter() {
        let members = members(1);
        let mut quality = Quality::new(&QualityConfig::default(), &members);
        let mut loads = SetLoads::default();
        let mut past = 0.0;
        for interval in 1..=40 {
            loads.tx_bytes[0] += LINE_BYTES;
            quality.best(&members, &loads, after(interval));
            past += (1.0 - past) / 4.0;
            let got = f64::from(u32::try_from(quality.loads[0].past >> 16).expect("small"));
            assert!((got / 65_536.0 - past).abs() < 0.001, "after {interval}: {got}");
        }
        // Full, but no queue: half of the range, and its upper end with a queue of an interval.
        assert!([3, 4].contains(&quality.band(MemberId(0))));
        loads.queue_bytes[0] = LINE_BYTES;
        for interval in 41..=80 {
            loads.tx_bytes[0] += LINE_BYTES;
            quality.best(&members, &loads, after(interval));
        }
        assert_eq!(quality.band(MemberId(0)), 7);
    }

    #[test]
    fn bands_have_equal_width() {
        let members = members(1);
        let config =
            QualityConfig { load_future_weight: 0, ewma_exponent: 0, ..Default::default() };
        for eighth in 0..8 {
            for (part, want) in [(0, eighth), (LINE_BYTES / 8 - 10, eighth)] {
                let mut quality = Quality::new(&config, &members);
                let mut loads = SetLoads::default();
                // 10 bytes past the edge, which rounding to whole picoseconds may move.
                loads.tx_bytes[0] = LINE_BYTES / 8 * eighth + part + 5;
                quality.best(&members, &loads, after(1));
                assert_eq!(u64::from(quality.band(MemberId(0))), want);
            }
        }
    }

    #[test]
    fn nothing_is_sampled_before_its_time() {
        let members = members(2);
        let mut quality = Quality::new(&QualityConfig::default(), &members);
        let mut loads = SetLoads::default();
        loads.queue_bytes[0] = 10 * LINE_BYTES;
        let just_before = after(1).before(Duration::from_ps(1));
        let chosen: Vec<u16> =
            (0..4).map(|_| quality.best(&members, &loads, just_before).0).collect();
        assert_eq!(chosen, [0, 1, 0, 1]);
        let chosen: Vec<u16> = (0..4).map(|_| quality.best(&members, &loads, after(1)).0).collect();
        assert_eq!(chosen, [1; 4], "member 0 has a queue");
    }

    #[test]
    fn intervals_without_a_frame_count() {
        // Sampled every interval, or once at the end: the same average where the load is even.
        let members = members(1);
        let mut loads = SetLoads::default();
        let mut each = Quality::new(&QualityConfig::default(), &members);
        for interval in 1..=10 {
            loads.tx_bytes[0] += LINE_BYTES / 2;
            each.best(&members, &loads, after(interval));
        }
        let mut once = Quality::new(&QualityConfig::default(), &members);
        once.best(&members, &loads, after(10));
        assert_eq!(each.loads[0].past, once.loads[0].past);
        // After a long silence the past is forgotten.
        once.best(&members, &loads, after(100_000));
        assert!(once.loads[0].past < 1 << 20, "{}", once.loads[0].past);
    }

    #[test]
    fn a_sample_below_the_average_may_count_at_once() {
        let members = members(1);
        let config = QualityConfig { load_current: true, ..Default::default() };
        let mut quality = Quality::new(&config, &members);
        let mut loads = SetLoads::default();
        loads.tx_bytes[0] = LINE_BYTES * 100;
        quality.best(&members, &loads, after(100));
        assert!(quality.loads[0].past > 0);
        quality.best(&members, &loads, after(101));
        assert_eq!(quality.loads[0].past, 0);
    }
}
