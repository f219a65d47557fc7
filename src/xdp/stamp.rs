//! Stamps of arrival, which the XDP program writes right before a frame.

/// By which clock the program stamps the frames that it steers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RxStamps {
    /// Not at all.
    #[default]
    Off,
    /// By the OS's monotonic clock, when the program runs: before the frame waits for its reader.
    Xdp,
    /// By the NIC's clock, through its driver; a frame for which the driver has no stamp gets none.
    /// The program is then attached in the driver or not at all.
    Hardware,
}

impl RxStamps {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "software",
            Self::Xdp => "xdp",
            Self::Hardware => "hardware",
        }
    }
}

/// Bytes of a stamp, which end where the frame begins.
pub(crate) const STAMP_BYTES: usize = 16;

/// What the program writes first, so that other bytes in the same place are no stamp.
const MARK: u64 = 0x7477_2d73_7461_6d70;

/// What stands for no stamp.
pub(crate) const NO_STAMP: [u8; STAMP_BYTES] = [0; STAMP_BYTES];

/// The stamp, in nanoseconds of its clock; None when there is none, and zero is none as well: veth
/// says it of every frame that no NIC stamped.
pub(crate) fn read(bytes: &[u8]) -> Option<u64> {
    let (mark, time_ns) = bytes.split_first_chunk()?;
    let time_ns = u64::from_ne_bytes(time_ns.try_into().ok()?);
    (u64::from_ne_bytes(*mark) == MARK && time_ns != 0).then_some(time_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(mark: u64, time_ns: u64) -> Vec<u8> {
        [mark.to_ne_bytes(), time_ns.to_ne_bytes()].concat()
    }

    #[test]
    fn only_what_bears_the_mark_is_a_stamp() {
        assert_eq!(read(&bytes(MARK, 7)), Some(7));
        assert_eq!(read(&bytes(MARK, u64::MAX)), Some(u64::MAX));
        assert_eq!(read(&bytes(MARK, 0)), None, "zero is none");
        assert_eq!(read(&bytes(MARK ^ 1, 7)), None, "whatever lay there before");
        assert_eq!(read(&NO_STAMP), None);
        assert_eq!(read(&bytes(MARK, 7)[..15]), None);
    }
}
