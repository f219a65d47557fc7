//! What the shares of a memory are built from.

use std::fmt;
use std::str::FromStr;

/// Priorities of IEEE 802.1Q, and the queues of a port.
pub const PRIORITIES: usize = 8;

/// The factor of a dynamic threshold: a power of two, as switch silicon has it, from 1/128 to 128.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Alpha(i8);

/// The largest exponent of an [`Alpha`]; the smallest is its negative.
const EXPONENT_MAX: i8 = 7;

impl Alpha {
    /// One: as much as is free.
    pub const ONE: Self = Self(0);

    /// Two to the power of `exponent`, which is -7 to 7.
    pub const fn from_exponent(exponent: i8) -> Option<Self> {
        if exponent < -EXPONENT_MAX || exponent > EXPONENT_MAX {
            return None;
        }
        Some(Self(exponent))
    }

    /// The exponent.
    pub const fn exponent(self) -> i8 {
        self.0
    }
}

impl fmt::Display for Alpha {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let factor = 1_u32 << self.0.unsigned_abs();
        if self.0 < 0 { write!(f, "1/{factor}") } else { write!(f, "{factor}") }
    }
}

/// A factor that is no power of two in range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a power of two from 1/128 to 128, such as 1/8, 0.125 or 8")]
pub struct AlphaError(String);

impl FromStr for Alpha {
    type Err = AlphaError;

    /// Reads `8`, `1/8` and `0.125`.
    fn from_str(text: &str) -> Result<Self, AlphaError> {
        let trimmed = text.trim();
        (-EXPONENT_MAX..=EXPONENT_MAX)
            .map(Self)
            .find(|alpha| {
                let factor = 1_u32 << alpha.0.unsigned_abs();
                let decimal = if alpha.0 < 0 {
                    (1.0 / f64::from(factor)).to_string()
                } else {
                    format!("{factor}.0")
                };
                trimmed == alpha.to_string() || trimmed == decimal
            })
            .ok_or_else(|| AlphaError(text.to_owned()))
    }
}

/// How far a share may grow. With both parts the lower one counts, with none only the memory does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Threshold {
    /// So many bytes, the minimum included.
    pub static_bytes: Option<u64>,
    /// The minimum, and this times the shared memory that is free (the dynamic threshold of
    /// Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998).
    pub dt_alpha: Option<Alpha>,
}

/// What makes a priority group lossless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lossless {
    /// Memory that is kept for what arrives after XOFF.
    pub headroom_bytes: u64,
    /// XON once the group has at most this,
    pub xon_bytes: u64,
    /// or is at least this much under its threshold; and none of it is in headroom.
    pub xon_offset_bytes: u64,
}

/// The memory of one (ingress port, priority): a priority group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupConfig {
    /// Memory that is kept for it alone.
    pub min_bytes: u64,
    /// How far it grows: from there on a lossy group drops, a lossless one sends XOFF.
    pub threshold: Threshold,
    /// None drops.
    pub lossless: Option<Lossless>,
}

/// The memory of one (egress port, queue).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueConfig {
    /// Memory that is kept for it alone.
    pub min_bytes: u64,
    /// How far it grows, before frames for it are dropped.
    pub threshold: Threshold,
}

/// The shares of one port: its priority groups as an ingress, its queues as an egress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortShares {
    /// By priority.
    pub groups: [GroupConfig; PRIORITIES],
    /// By queue.
    pub queues: [QueueConfig; PRIORITIES],
}

impl PortShares {
    /// Whether nothing is set: no minimum, no threshold, no lossless group.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    /// The priorities that are lossless, as bits.
    pub fn lossless_mask(&self) -> u8 {
        (0..8).zip(&self.groups).fold(0, |mask, (priority, group)| {
            mask | u8::from(group.lossless.is_some()) << priority
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alpha_is_a_power_of_two_however_written() {
        for (text, exponent) in [
            ("1", 0),
            ("8", 3),
            ("1/8", -3),
            ("0.125", -3),
            ("128", 7),
            ("0.0078125", -7),
            ("2.0", 1),
        ] {
            let alpha: Alpha = text.parse().expect(text);
            assert_eq!(alpha.exponent(), exponent, "{text}");
            assert_eq!(alpha.to_string().parse(), Ok(alpha), "what is shown reads back");
        }
        for text in ["0", "3", "1/3", "256", "1/256", "-1", "", "0.1", "8x"] {
            assert!(text.parse::<Alpha>().is_err(), "{text}");
        }
        assert_eq!((Alpha::from_exponent(8), Alpha::from_exponent(-8)), (None, None));
    }
}
