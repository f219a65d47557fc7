//! Rates and sizes as types of their own, and the contract's spelling of them: `10Gbps`, `64KB`,
//! `2.5Mpps`, `20us`. A unit is required; a bare number is an error.

use std::fmt;
use std::str::FromStr;

use crate::time::Duration;

/// A bit rate, in bits per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

/// A size in bytes (decimal prefixes: 1 KB is 1,000 bytes; binary ones are `KiB`, `MiB`, `GiB`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

/// Frames per second, in thousandths, so that `0.5pps` is exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameRate(u64);

/// What a user wrote where a rate is asked for: bits or frames per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnyRate {
    /// Bits per second.
    Bits(Rate),
    /// Frames per second.
    Frames(FrameRate),
}

const PS_PER_SECOND: u128 = 1_000_000_000_000;

impl Rate {
    /// A rate of `bps` bits per second.
    pub const fn from_bps(bps: u64) -> Self {
        Self(bps)
    }

    /// A rate of `gbps` gigabits per second.
    pub const fn from_gbps(gbps: u64) -> Self {
        Self(gbps * 1_000_000_000)
    }

    /// Bits per second.
    pub const fn as_bps(self) -> u64 {
        self.0
    }

    /// The time that `bytes` last on the wire at this rate, rounded up to a picosecond.
    ///
    /// # Panics
    /// When the rate is zero.
    pub const fn time_of(self, bytes: u64) -> Duration {
        let ps = (bytes as u128 * 8 * PS_PER_SECOND).div_ceil(self.0 as u128);
        // A span past 213 days saturates, as every span does.
        Duration::from_ps(if ps > u64::MAX as u128 { u64::MAX } else { ps_low(ps) })
    }
}

#[allow(clippy::cast_possible_truncation, reason = "the caller has checked the range")]
const fn ps_low(ps: u128) -> u64 {
    ps as u64
}

impl FrameRate {
    /// A rate of `frames` per second.
    pub const fn from_pps(frames: u64) -> Self {
        Self(frames * 1_000)
    }

    /// A rate of `milli` thousandths of a frame per second.
    pub const fn from_milli_pps(milli: u64) -> Self {
        Self(milli)
    }

    /// Thousandths of a frame per second.
    pub const fn as_milli_pps(self) -> u64 {
        self.0
    }

    /// The mean gap between two frames, in picoseconds, rounded to nearest. None when the rate is 0.
    pub const fn gap(self) -> Option<Duration> {
        if self.0 == 0 {
            return None;
        }
        Some(Duration::from_ps((1_000_000_000_000_000 + self.0 / 2) / self.0))
    }
}

/// Why a quantity could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// No digits at the start.
    #[error("`{0}` is not a number with a unit")]
    NotANumber(String),
    /// A number with no unit.
    #[error("`{text}` needs a unit: one of {units}")]
    NoUnit {
        /// What was written.
        text: String,
        /// The units that fit.
        units: &'static str,
    },
    /// A unit of another kind, or none that exists.
    #[error("`{unit}` is not a unit that fits here: one of {units}")]
    WrongUnit {
        /// What was written behind the number.
        unit: String,
        /// The units that fit.
        units: &'static str,
    },
    /// The value does not fit 64 bits, or is finer than the type can say.
    #[error("`{0}` is out of range")]
    OutOfRange(String),
}

/// Reads `text` as a decimal number times the scale of its unit, exactly, in integers.
fn parse_scaled(
    text: &str,
    units: &'static str,
    scales: &[(&str, u64)],
) -> Result<u64, QuantityError> {
    let trimmed = text.trim();
    let split = trimmed
        .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_'))
        .unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let unit = unit.trim();
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits: String = whole.chars().filter(|c| *c != '_').collect();
    if digits.is_empty() || fraction.contains('.') {
        return Err(QuantityError::NotANumber(text.to_owned()));
    }
    if unit.is_empty() {
        return Err(QuantityError::NoUnit { text: text.to_owned(), units });
    }
    let Some((_, scale)) = scales.iter().find(|(name, _)| *name == unit) else {
        return Err(QuantityError::WrongUnit { unit: unit.to_owned(), units });
    };
    let out_of_range = || QuantityError::OutOfRange(text.to_owned());
    let fraction = fraction.trim_end_matches('0');
    let fraction_scale = u32::try_from(fraction.len())
        .ok()
        .and_then(|n| 10_u128.checked_pow(n))
        .ok_or_else(out_of_range)?;
    let whole: u128 = digits.parse().map_err(|_| out_of_range())?;
    let fraction: u128 =
        if fraction.is_empty() { 0 } else { fraction.parse().map_err(|_| out_of_range())? };
    let scaled = whole
        .checked_mul(fraction_scale)
        .and_then(|n| n.checked_add(fraction))
        .and_then(|n| n.checked_mul(u128::from(*scale)))
        .ok_or_else(out_of_range)?;
    if !scaled.is_multiple_of(fraction_scale) {
        return Err(out_of_range());
    }
    u64::try_from(scaled / fraction_scale).map_err(|_| out_of_range())
}

const RATE_UNITS: &str = "bps, Kbps, Mbps, Gbps, Tbps (or K, M, G, T)";
const BYTE_UNITS: &str = "B, KB, MB, GB, KiB, MiB, GiB";
const TIME_UNITS: &str = "ps, ns, us, ms, s";
const FRAME_RATE_UNITS: &str = "pps, Kpps, Mpps, Gpps";
const ANY_RATE_UNITS: &str = "bps, Kbps, Mbps, Gbps, Tbps (or K, M, G, T), pps, Kpps, Mpps, Gpps";

impl FromStr for Rate {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        const SCALES: [(&str, u64); 12] = [
            ("bps", 1),
            ("Kbps", 1_000),
            ("kbps", 1_000),
            ("Mbps", 1_000_000),
            ("Gbps", 1_000_000_000),
            ("Tbps", 1_000_000_000_000),
            ("K", 1_000),
            ("k", 1_000),
            ("M", 1_000_000),
            ("G", 1_000_000_000),
            ("T", 1_000_000_000_000),
            ("bit/s", 1),
        ];
        parse_scaled(text, RATE_UNITS, &SCALES).map(Self)
    }
}

impl FromStr for Bytes {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        const SCALES: [(&str, u64); 8] = [
            ("B", 1),
            ("KB", 1_000),
            ("kB", 1_000),
            ("MB", 1_000_000),
            ("GB", 1_000_000_000),
            ("KiB", 1 << 10),
            ("MiB", 1 << 20),
            ("GiB", 1 << 30),
        ];
        parse_scaled(text, BYTE_UNITS, &SCALES).map(Self)
    }
}

impl FromStr for Duration {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        const SCALES: [(&str, u64); 5] = [
            ("ps", 1),
            ("ns", 1_000),
            ("us", 1_000_000),
            ("ms", 1_000_000_000),
            ("s", 1_000_000_000_000),
        ];
        parse_scaled(text, TIME_UNITS, &SCALES).map(Self::from_ps)
    }
}

impl FromStr for FrameRate {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        const SCALES: [(&str, u64); 5] = [
            ("pps", 1_000),
            ("Kpps", 1_000_000),
            ("kpps", 1_000_000),
            ("Mpps", 1_000_000_000),
            ("Gpps", 1_000_000_000_000),
        ];
        parse_scaled(text, FRAME_RATE_UNITS, &SCALES).map(Self)
    }
}

impl FromStr for AnyRate {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        if text.trim_end().ends_with("pps") {
            return text.parse().map(Self::Frames);
        }
        text.parse().map(Self::Bits).map_err(|error| match error {
            QuantityError::NoUnit { text, .. } => {
                QuantityError::NoUnit { text, units: ANY_RATE_UNITS }
            }
            QuantityError::WrongUnit { unit, .. } => {
                QuantityError::WrongUnit { unit, units: ANY_RATE_UNITS }
            }
            other => other,
        })
    }
}

/// Writes `value` with the largest unit that divides it to at most three decimals.
fn write_scaled(f: &mut fmt::Formatter<'_>, value: u64, units: &[(u64, &str)]) -> fmt::Result {
    for (scale, name) in units {
        if value >= *scale && value.is_multiple_of((*scale / 1_000).max(1)) {
            let (whole, rest) = (value / scale, value % scale * 1_000 / scale);
            if rest == 0 {
                return write!(f, "{whole}{name}");
            }
            return write!(f, "{whole}.{}{name}", format!("{rest:03}").trim_end_matches('0'));
        }
    }
    match units.last() {
        Some((_, name)) => write!(f, "{value}{name}"),
        None => write!(f, "{value}"),
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 5] = [
            (1_000_000_000_000, "Tbps"),
            (1_000_000_000, "Gbps"),
            (1_000_000, "Mbps"),
            (1_000, "Kbps"),
            (1, "bps"),
        ];
        write_scaled(f, self.0, &UNITS)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 4] =
            [(1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "KB"), (1, "B")];
        write_scaled(f, self.0, &UNITS)
    }
}

impl fmt::Display for FrameRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 4] = [
            (1_000_000_000_000, "Gpps"),
            (1_000_000_000, "Mpps"),
            (1_000_000, "Kpps"),
            (1_000, "pps"),
        ];
        if self.0 < 1_000 {
            return write!(f, "0.{}pps", format!("{:03}", self.0).trim_end_matches('0'));
        }
        write_scaled(f, self.0, &UNITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_read_as_the_contract_spells_them() {
        assert_eq!("10G".parse(), Ok(Rate::from_gbps(10)));
        assert_eq!("40Gbps".parse(), Ok(Rate::from_gbps(40)));
        assert_eq!("2.5Mpps".parse(), Ok(AnyRate::Frames(FrameRate::from_pps(2_500_000))));
        assert_eq!("1.5ms".parse(), Ok(Duration::from_us(1_500)));
        assert_eq!("64KB".parse(), Ok(Bytes(64_000)));
        assert_eq!("9000B".parse(), Ok(Bytes(9_000)));
        assert_eq!("1KiB".parse(), Ok(Bytes(1_024)));
    }

    #[test]
    fn a_missing_or_wrong_unit_names_those_that_fit() {
        assert!(matches!("10".parse::<Rate>(), Err(QuantityError::NoUnit { .. })));
        assert!(matches!("10KB".parse::<Duration>(), Err(QuantityError::WrongUnit { .. })));
        assert!(matches!("fast".parse::<Rate>(), Err(QuantityError::NotANumber(_))));
        assert!(matches!("0.1ps".parse::<Duration>(), Err(QuantityError::OutOfRange(_))));
        assert!(matches!("99999999999T".parse::<Rate>(), Err(QuantityError::OutOfRange(_))));
    }

    #[test]
    fn wire_time_is_exact() {
        assert_eq!(Rate::from_gbps(400).time_of(88), Duration::from_ps(1_760));
        assert_eq!(Rate::from_gbps(10).time_of(1), Duration::from_ps(800));
        assert_eq!(Rate::from_bps(3).time_of(1).as_ps(), 2_666_666_666_667);
    }

    #[test]
    fn what_is_shown_reads_back() {
        for text in ["40Gbps", "2.5Mbps", "1.234Kbps", "7bps"] {
            let rate: Rate = text.parse().expect("a rate");
            assert_eq!(rate.to_string(), text);
        }
        assert_eq!(FrameRate::from_pps(2_500_000).to_string(), "2.5Mpps");
        assert_eq!(Bytes(64_000).to_string(), "64KB");
    }
}
