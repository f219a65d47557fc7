//! The serialisation of one port onto its wire: when it is busy, and until when.
//!
//! Exact to the byte: a frame occupies `max(length, 60) + overhead` bytes, the overhead being
//! preamble and start delimiter (8), FCS (4) and the gap (12) of IEEE 802.3 clause 4.4.2, and the
//! fraction of a picosecond that a frame's time leaves over is carried to the next.

use std::hint::cold_path;

use crate::time::{Duration, Time};
use crate::units::Rate;

/// Preamble, start delimiter, FCS and interframe gap.
pub const ETHERNET_OVERHEAD_BYTES: u32 = 24;

/// The shortest frame without FCS; shorter ones are padded on the wire (IEEE 802.3 clause 3.2.8).
pub const FRAME_BYTES_MIN: u32 = 60;

const PS_PER_SECOND: u64 = 1_000_000_000_000;

/// One port's wire.
#[derive(Clone, Debug)]
pub struct Line {
    rate_bps: u64,
    overhead_bytes: u32,
    /// Set when a byte lasts a whole number of picoseconds, as at every Ethernet rate.
    ps_per_byte: Option<u64>,
    busy_until: Time,
    /// What the last frame left over, in bit-picoseconds modulo the rate.
    remainder: u64,
    credit_expired: Duration,
}

impl Line {
    /// A wire of `rate` with `overhead_bytes` around each frame.
    ///
    /// # Panics
    /// When the rate is zero.
    pub fn new(rate: Rate, overhead_bytes: u32) -> Self {
        let rate_bps = rate.as_bps();
        assert!(rate_bps > 0, "a line has a rate above zero");
        let ps_per_byte =
            (PS_PER_SECOND * 8).is_multiple_of(rate_bps).then(|| PS_PER_SECOND * 8 / rate_bps);
        Self {
            rate_bps,
            overhead_bytes,
            ps_per_byte,
            busy_until: Time::ZERO,
            remainder: 0,
            credit_expired: Duration::ZERO,
        }
    }

    /// The rate.
    pub const fn rate(&self) -> Rate {
        Rate::from_bps(self.rate_bps)
    }

    /// Bytes that a frame of `len_bytes` occupies on the wire.
    pub const fn wire_bytes(&self, len_bytes: u32) -> u64 {
        let len = if len_bytes < FRAME_BYTES_MIN { FRAME_BYTES_MIN } else { len_bytes };
        len as u64 + self.overhead_bytes as u64
    }

    /// How long a frame of `len_bytes` occupies the wire, rounded up to a picosecond.
    pub const fn wire_time(&self, len_bytes: u32) -> Duration {
        let bytes = self.wire_bytes(len_bytes);
        match self.ps_per_byte {
            Some(ps) => Duration::from_ps(bytes * ps),
            None => self.rate().time_of(bytes),
        }
    }

    /// When the wire is free for the next frame.
    pub const fn busy_until(&self) -> Time {
        self.busy_until
    }

    /// Nothing could have been sent before `at`, however late the driver comes.
    pub fn not_before(&mut self, at: Time) {
        self.busy_until = self.busy_until.max(at);
    }

    /// Sending time that a driver that came late could not use, in sum.
    pub const fn credit_expired(&self) -> Duration {
        self.credit_expired
    }

    /// Puts a frame on the wire at `now`, when it has waited since `ready_at`; the wire must be
    /// free. Gives the times of its first and last bit.
    ///
    /// A driver that comes late may catch up by one frame: the start is taken back at most by this
    /// frame's own wire time, so that two frames leave back to back, and the rest of the lost time
    /// expires.
    #[inline]
    pub fn occupy(&mut self, now: Time, ready_at: Time, len_bytes: u32) -> (Time, Time) {
        debug_assert!(self.busy_until <= now, "the wire is busy until {}", self.busy_until);
        let took = match self.ps_per_byte {
            Some(ps) => Duration::from_ps(self.wire_bytes(len_bytes) * ps),
            None => {
                cold_path();
                self.take_inexact(len_bytes)
            }
        };
        let starts = if ready_at >= now || self.busy_until >= now {
            now
        } else {
            cold_path();
            self.start_late(now, self.busy_until.max(ready_at), took)
        };
        // Node time ends before the sum does.
        self.busy_until = Time::from_ps(starts.as_ps().wrapping_add(took.as_ps()));
        (starts, self.busy_until)
    }

    /// The start of a frame that could have left at `ideal`, before `now`.
    fn start_late(&mut self, now: Time, ideal: Time, took: Duration) -> Time {
        let earliest = now.before(took);
        if ideal < earliest {
            self.credit_expired += earliest.since(ideal);
        }
        ideal.max(earliest)
    }

    #[cold]
    fn take_inexact(&mut self, len_bytes: u32) -> Duration {
        let bits = u128::from(self.wire_bytes(len_bytes)) * 8;
        let work = bits * u128::from(PS_PER_SECOND) + u128::from(self.remainder);
        let rate = u128::from(self.rate_bps);
        self.remainder = u64::try_from(work % rate).unwrap_or(0);
        Duration::from_ps(u64::try_from(work / rate).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_to_back_frames_keep_the_rate_to_the_byte() {
        let mut line = Line::new(Rate::from_bps(3_333_333_334), ETHERNET_OVERHEAD_BYTES);
        let mut now = Time::ZERO;
        for _ in 0..1_000 {
            now = line.occupy(now, Time::ZERO, 64).1;
        }
        // 1,000 x 88 bytes x 8 bits, rounded down once and not a thousand times.
        let exact = 704_000_u128 * 1_000_000_000_000 / 3_333_333_334;
        assert_eq!(u128::from(now.as_ps()), exact);
    }

    #[test]
    fn short_frames_are_padded_on_the_wire() {
        let line = Line::new(Rate::from_gbps(10), ETHERNET_OVERHEAD_BYTES);
        assert_eq!(line.wire_time(14), line.wire_time(60));
        assert_eq!(line.wire_time(60), Duration::from_ps(84 * 800));
    }

    #[test]
    fn a_late_driver_catches_up_by_one_frame_and_the_rest_expires() {
        let mut line = Line::new(Rate::from_gbps(10), ETHERNET_OVERHEAD_BYTES);
        let took = line.wire_time(60);
        let late = Time::from_ns(10_000);
        let (starts, ends) = line.occupy(late, Time::ZERO, 60);
        assert_eq!((starts, ends), (late.before(took), late));
        let (starts, ends) = line.occupy(late, Time::ZERO, 60);
        assert_eq!((starts, ends), (late, late + took), "the second leaves with the first");
        assert_eq!(line.credit_expired(), Duration::from_ns(10_000) - took);
    }

    #[test]
    fn a_driver_in_time_loses_nothing() {
        let mut line = Line::new(Rate::from_gbps(100), ETHERNET_OVERHEAD_BYTES);
        let at = Time::from_ns(500);
        let (starts, ends) = line.occupy(at, at, 1_500);
        assert_eq!((starts, ends), (at, at + Duration::from_ps(1_524 * 80)));
        assert_eq!(line.credit_expired(), Duration::ZERO);
    }
}
