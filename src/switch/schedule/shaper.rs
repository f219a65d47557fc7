//! A limit on how fast a queue or a port is served: the generic cell rate algorithm (ITU-T I.371,
//! virtual scheduling), which is a token bucket that needs no refill.
//!
//! Exact over any number of frames: the fraction of a picosecond that one leaves over is carried to
//! the next.

use super::{ShaperConfig, burst_time};
use crate::time::{Duration, Time};

const PS_PER_SECOND: u128 = 1_000_000_000_000;

/// A limit.
#[derive(Clone, Debug)]
pub struct Shaper {
    rate_bps: u64,
    /// How far ahead of its rate it may be.
    tolerance: Duration,
    /// When it has sent no more than its rate allows.
    conforms_at: Time,
    /// What the last frame left over, in bit-picoseconds modulo the rate.
    remainder: u64,
}

impl Shaper {
    /// No limit.
    pub(super) const UNLIMITED: Self =
        Self { rate_bps: 0, tolerance: Duration::ZERO, conforms_at: Time::ZERO, remainder: 0 };

    /// A limit, whose rate is above zero.
    pub(super) const fn new(config: &ShaperConfig) -> Self {
        Self {
            rate_bps: config.rate.as_bps(),
            tolerance: burst_time(config),
            conforms_at: Time::ZERO,
            remainder: 0,
        }
    }

    /// When the next frame may start.
    #[inline]
    pub const fn allowed_at(&self) -> Time {
        self.conforms_at.before(self.tolerance)
    }

    /// A frame of `wire_bytes` starts at `starts`.
    pub(super) fn take(&mut self, starts: Time, wire_bytes: u64) {
        if self.conforms_at < starts {
            self.conforms_at = starts;
            self.remainder = 0;
        }
        let rate = u128::from(self.rate_bps);
        let work = u128::from(wire_bytes) * 8 * PS_PER_SECOND + u128::from(self.remainder);
        let ps = work.checked_div(rate).unwrap_or(0);
        // The remainder is below the rate, which has 64 bits.
        self.remainder = u64::try_from(work.checked_rem(rate).unwrap_or(0)).unwrap_or(0);
        self.conforms_at += Duration::from_ps(u64::try_from(ps).unwrap_or(u64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Rate;

    fn shaper(bps: u64, burst_bytes: u64) -> Shaper {
        Shaper::new(&ShaperConfig { rate: Rate::from_bps(bps), burst_bytes })
    }

    #[test]
    fn a_busy_queue_keeps_the_rate_to_the_byte() {
        let mut shaper = shaper(3_333_333_334, 0);
        for _ in 0..1_000 {
            shaper.take(shaper.allowed_at(), 88);
        }
        // 704,000 bits, rounded down once and not a thousand times.
        let exact = 704_000 * PS_PER_SECOND / 3_333_333_334;
        assert_eq!(u128::from(shaper.allowed_at().as_ps()), exact);
    }

    #[test]
    fn a_silence_is_worth_the_burst_and_no_more() {
        let mut shaper = shaper(8_000_000_000, 3_000);
        let late = Time::from_ns(1_000_000);
        let mut sent = 0;
        while shaper.allowed_at() <= late {
            shaper.take(late, 1_000);
            sent += 1;
        }
        // Three frames of credit, and one that goes with the last of it.
        assert_eq!(sent, 4);
        assert_eq!(shaper.allowed_at(), late + Duration::from_ns(1_000));
    }
}
