//! When each record of a capture is to be sent: planned from the start of the run, never from the
//! record before, so that no rounding and no late frame adds up over any number of them.

use std::fmt;
use std::str::FromStr;

use crate::time::{Duration, Time};
use crate::units::{AnyRate, QuantityError};

/// How fast a capture is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speed {
    /// With the capture's own gaps, divided by a factor in thousandths: 1,000 is the original pace.
    Times(u64),
    /// As fast as the interface takes it.
    TopSpeed,
    /// Evenly, at a rate of frames or of bits on the wire.
    Rate(AnyRate),
}

impl Speed {
    /// The capture's own pace.
    pub const ORIGINAL: Self = Self::Times(1_000);
}

/// A `--speed` that does not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpeedError {
    /// A factor that is no number above zero with at most three decimals.
    #[error("`{0}` is not a speed like x2 or x0.5 (above zero, at most three decimals)")]
    Factor(String),
    /// No rate either.
    #[error("`{text}` is not a speed: original, topspeed, xN, or a rate ({error})")]
    Rate {
        /// What was written.
        text: String,
        /// Why it is no rate.
        error: QuantityError,
    },
    /// A rate of zero.
    #[error("a speed of `{0}` sends nothing")]
    Zero(String),
}

impl FromStr for Speed {
    type Err = SpeedError;
    fn from_str(text: &str) -> Result<Self, SpeedError> {
        match text {
            "original" => return Ok(Self::ORIGINAL),
            "topspeed" => return Ok(Self::TopSpeed),
            _ => {}
        }
        if let Some(factor) = text.strip_prefix('x') {
            return thousandths(factor)
                .filter(|milli| *milli > 0)
                .map(Self::Times)
                .ok_or_else(|| SpeedError::Factor(text.to_owned()));
        }
        let rate =
            text.parse().map_err(|error| SpeedError::Rate { text: text.to_owned(), error })?;
        let is_zero = match rate {
            AnyRate::Bits(rate) => rate.as_bps() == 0,
            AnyRate::Frames(rate) => rate.as_milli_pps() == 0,
        };
        if is_zero { Err(SpeedError::Zero(text.to_owned())) } else { Ok(Self::Rate(rate)) }
    }
}

fn thousandths(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || fraction.len() > 3 || !digits(whole) || !digits(fraction) {
        return None;
    }
    let fraction: u64 = format!("{fraction:0<3}").parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1_000)?.checked_add(fraction)
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Times(1_000) => f.write_str("original"),
            Self::Times(milli) => {
                write!(f, "x{}", milli / 1_000)?;
                match milli % 1_000 {
                    0 => Ok(()),
                    rest => write!(f, ".{}", format!("{rest:03}").trim_end_matches('0')),
                }
            }
            Self::TopSpeed => f.write_str("topspeed"),
            Self::Rate(AnyRate::Bits(rate)) => rate.fmt(f),
            Self::Rate(AnyRate::Frames(rate)) => rate.fmt(f),
        }
    }
}

const PS_PER_SECOND: u128 = 1_000_000_000_000;

/// The planned send times of a run: node time from its start.
#[derive(Clone, Debug)]
pub struct Pacer {
    speed: Speed,
    /// Frames and wire bytes planned so far, over all loops.
    frames: u128,
    wire_bytes: u128,
    /// Of this loop: records planned and the capture time of the last.
    in_loop: u64,
    last_capture: Time,
    /// Where this loop begins, in picoseconds of capture time over all loops.
    loop_base_ps: u128,
}

impl Pacer {
    /// A pacer at the start of a run.
    pub const fn new(speed: Speed) -> Self {
        Self {
            speed,
            frames: 0,
            wire_bytes: 0,
            in_loop: 0,
            last_capture: Time::ZERO,
            loop_base_ps: 0,
        }
    }

    /// When the next record is to be sent: `capture` is its time in the capture, from the first
    /// record's and never backwards (a [`CaptureClock`](super::CaptureClock)'s), and `wire_bytes`
    /// what it occupies on the wire.
    pub fn plan(&mut self, capture: Time, wire_bytes: u64) -> Time {
        let at = match self.speed {
            Speed::TopSpeed => 0,
            Speed::Times(milli) => {
                let capture = self.loop_base_ps + u128::from(capture.as_ps());
                capture * 1_000 / u128::from(milli)
            }
            // Frame n at n gaps, and not a gap after frame n - 1.
            Speed::Rate(AnyRate::Frames(rate)) => {
                self.frames * PS_PER_SECOND * 1_000 / u128::from(rate.as_milli_pps().max(1))
            }
            Speed::Rate(AnyRate::Bits(rate)) => {
                self.wire_bytes * 8 * PS_PER_SECOND / u128::from(rate.as_bps().max(1))
            }
        };
        self.frames += 1;
        self.wire_bytes += u128::from(wire_bytes);
        self.in_loop += 1;
        self.last_capture = capture;
        Time::from_ps(u64::try_from(at).unwrap_or(u64::MAX))
    }

    /// The capture begins again. The gap from its last record to its first is not in it: it is
    /// taken as the capture's mean gap, so that the next loop keeps the pace.
    pub fn next_loop(&mut self) {
        let gaps = self.in_loop.saturating_sub(1).max(1);
        let length = self.last_capture.since(Time::ZERO);
        let mean: Duration = length / gaps;
        self.loop_base_ps += u128::from(length.as_ps()) + u128::from(mean.as_ps());
        self.in_loop = 0;
        self.last_capture = Time::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(speed: &str, capture_ns: &[u64], wire_bytes: u64, loops: usize) -> Vec<u64> {
        let mut pacer = Pacer::new(speed.parse().expect("a speed"));
        let mut times = Vec::new();
        for n in 0..loops {
            if n > 0 {
                pacer.next_loop();
            }
            times.extend(
                capture_ns.iter().map(|ns| pacer.plan(Time::from_ns(*ns), wire_bytes).as_ns()),
            );
        }
        times
    }

    /// tcpreplay sent the second of two packets a second apart at once.
    #[test]
    fn the_first_gap_is_honoured() {
        assert_eq!(plan("original", &[0, 1_000_000_000], 84, 1), [0, 1_000_000_000]);
        assert_eq!(plan("x4", &[0, 1_000_000_000], 84, 1), [0, 250_000_000]);
        assert_eq!(plan("x0.5", &[0, 1_000_000_000], 84, 1), [0, 2_000_000_000]);
        assert_eq!(plan("topspeed", &[0, 1_000_000_000], 84, 1), [0, 0]);
    }

    #[test]
    fn a_second_loop_keeps_the_pace() {
        assert_eq!(
            plan("original", &[0, 100, 400], 84, 3),
            [0, 100, 400, 600, 700, 1_000, 1_200, 1_300, 1_600]
        );
        assert_eq!(plan("2Mpps", &[0, 7], 84, 2), [0, 500, 1_000, 1_500]);
        // 125 bytes at 1 Gb/s are 1 us.
        assert_eq!(plan("1G", &[0, 7], 125, 2), [0, 1_000, 2_000, 3_000]);
        assert_eq!(plan("original", &[0], 84, 2), [0, 0], "a single record has no gap");
    }

    /// A gap that is no whole number of picoseconds, five thousand million times.
    #[test]
    fn the_rate_does_not_drift() {
        let mut pacer = Pacer::new("3pps".parse().expect("a speed"));
        pacer.frames = 15_000_000;
        assert_eq!(pacer.plan(Time::ZERO, 84), Time::from_ns(5_000_000_000_000_000));
        let mut pacer = Pacer::new("7Mpps".parse().expect("a speed"));
        pacer.frames = 7_000_000_000;
        assert_eq!(pacer.plan(Time::ZERO, 84), Time::from_ns(1_000_000_000_000));
        let mut pacer = Pacer::new("3G".parse().expect("a speed"));
        pacer.wire_bytes = 375_000_000 * 3_600;
        assert_eq!(pacer.plan(Time::ZERO, 84), Time::from_ns(3_600_000_000_000));
        let mut pacer = Pacer::new("x3".parse().expect("a speed"));
        pacer.loop_base_ps = 3 * 5_000_000_000_000_000_000;
        assert_eq!(pacer.plan(Time::from_ps(3), 84), Time::from_ps(5_000_000_000_000_000_001));
    }

    #[test]
    fn speeds_read_and_show() {
        for text in ["original", "topspeed", "x2", "x0.125", "10Gbps", "2.5Mpps"] {
            assert_eq!(text.parse::<Speed>().expect(text).to_string(), text);
        }
        for text in ["", "x", "x0", "x-1", "x1.2345", "fast", "10", "0pps", "0bps", "10KB"] {
            assert!(text.parse::<Speed>().is_err(), "{text}");
        }
    }
}
