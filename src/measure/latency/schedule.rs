//! When each frame of a trial is planned to be sent.

use crate::line::{ETHERNET_OVERHEAD_BYTES, FRAME_BYTES_MIN};
use crate::time::{Duration, Time};
use crate::units::{AnyRate, FrameRate};

/// Evenly spaced bursts. Frame `n` is planned at the exact product, so that a long run does not
/// drift.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    start: Time,
    milli_pps: u64,
    burst: u64,
    frames: u64,
}

/// Picoseconds per second times thousandths of a frame.
const PS_MILLI: u128 = 1_000_000_000_000_000;

/// `rate` in frames per second: bits per second are those of the wire, overhead included.
pub fn frame_rate(rate: AnyRate, frame_bytes: u32) -> FrameRate {
    match rate {
        AnyRate::Frames(rate) => rate,
        AnyRate::Bits(rate) => {
            let milli = u128::from(rate.as_bps()) * 1_000 / u128::from(wire_bits(frame_bytes));
            FrameRate::from_milli_pps(u64::try_from(milli).unwrap_or(u64::MAX))
        }
    }
}

/// Bits per second that `rate` frames of `frame_bytes` (without FCS) take on the wire.
pub fn wire_bps(rate: FrameRate, frame_bytes: u32) -> u64 {
    let bps = u128::from(rate.as_milli_pps()) * u128::from(wire_bits(frame_bytes)) / 1_000;
    u64::try_from(bps).unwrap_or(u64::MAX)
}

fn wire_bits(frame_bytes: u32) -> u64 {
    (u64::from(frame_bytes.max(FRAME_BYTES_MIN)) + u64::from(ETHERNET_OVERHEAD_BYTES)) * 8
}

impl Schedule {
    /// `frames` frames at a mean of `rate` from `start` on, in bursts of `burst` back to back.
    /// A rate or burst of zero counts as the least above it.
    pub fn new(start: Time, rate: FrameRate, burst: u32, frames: u64) -> Self {
        Self {
            start,
            milli_pps: rate.as_milli_pps().max(1),
            burst: u64::from(burst.max(1)),
            frames,
        }
    }

    /// Frames that `rate` plans in `span`, at least one.
    pub fn frames_in(rate: FrameRate, span: Duration) -> u64 {
        let frames = u128::from(span.as_ps()) * u128::from(rate.as_milli_pps()) / PS_MILLI;
        u64::try_from(frames).unwrap_or(u64::MAX).max(1)
    }

    /// When frame `n` is planned.
    pub fn planned(&self, n: u64) -> Time {
        let first = u128::from(n / self.burst * self.burst);
        let ps = first * PS_MILLI / u128::from(self.milli_pps);
        self.start + Duration::from_ps(u64::try_from(ps).unwrap_or(u64::MAX))
    }

    /// When the schedule ends: one gap after its last frame.
    pub fn end(&self) -> Time {
        let ps = u128::from(self.frames) * PS_MILLI / u128::from(self.milli_pps);
        self.start + Duration::from_ps(u64::try_from(ps).unwrap_or(u64::MAX))
    }

    /// Frames in all.
    pub const fn frames(&self) -> u64 {
        self.frames
    }

    /// The first planned time.
    pub const fn start(&self) -> Time {
        self.start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planned_times_do_not_drift() {
        let rate = FrameRate::from_pps(3);
        let schedule = Schedule::new(Time::from_ns(1), rate, 1, u64::MAX);
        assert_eq!(schedule.planned(0), Time::from_ns(1));
        assert_eq!(schedule.planned(3_000_000), Time::from_ns(1_000_000_000_000_001));
        assert_eq!(schedule.planned(1).as_ps(), 333_333_333_333 + 1_000);
    }

    #[test]
    fn bursts_keep_the_mean_rate() {
        let rate = FrameRate::from_pps(1_000_000);
        let schedule = Schedule::new(Time::ZERO, rate, 4, 8);
        let planned: Vec<u64> = (0..9).map(|n| schedule.planned(n).as_ns()).collect();
        assert_eq!(planned, [0, 0, 0, 0, 4_000, 4_000, 4_000, 4_000, 8_000]);
        assert_eq!(schedule.end(), Time::from_ns(8_000));
    }

    #[test]
    fn bit_rates_count_the_wire() {
        let ten_gig = "10Gbps".parse().expect("a rate");
        // 64 bytes with FCS, 20 of preamble and gap: 14.88 Mpps, as everyone knows.
        assert_eq!(frame_rate(ten_gig, 60).as_milli_pps(), 14_880_952_380);
        assert_eq!(wire_bps(FrameRate::from_pps(1_000), 60), 672_000);
        let second = Duration::from_secs(1);
        assert_eq!(Schedule::frames_in(FrameRate::from_pps(10_000), second), 10_000);
        assert_eq!(Schedule::frames_in(FrameRate::from_pps(10_000), Duration::from_ns(1)), 1);
    }
}
