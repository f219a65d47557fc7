//! MAC control frames (IEEE 802.3 clause 31): priority-based flow control (annex 31D, IEEE
//! 802.1Qbb) and the older PAUSE (annex 31B), which stops a whole port.
//!
//! | bytes | field |
//! |---|---|
//! | 0 to 5 | destination, 01:80:C2:00:00:01 |
//! | 6 to 11 | source, the sending port |
//! | 12, 13 | EtherType 8808 |
//! | 14, 15 | opcode: 0101 PFC, 0001 PAUSE |
//! | 16, 17 | PFC: class enable vector, class n is bit n of the lower byte; PAUSE: quanta |
//! | 18 to 33 | PFC: quanta of classes 0 to 7, two bytes each |
//!
//! Zeros follow up to 60 bytes. A quantum lasts 512 bit times of the port. A PFC frame without the
//! bit of a class says nothing of that class; one with the bit and 0 quanta lets it send again.

use super::{MacAddr, WireError, ethertype, need, read_array, read_u16, write_array};
use crate::time::Duration;
use crate::units::Rate;

const NAME: &str = "MAC control";

/// Where MAC control frames go; no bridge forwards it.
pub const DESTINATION: MacAddr = MacAddr([0x01, 0x80, 0xc2, 0, 0, 0x01]);

/// Bytes of a frame as built here: the shortest of Ethernet, without FCS.
pub const FRAME_BYTES: usize = 60;

/// The longest pause that a frame can ask for, in quanta.
pub const QUANTA_MAX: u16 = u16::MAX;

/// Opcode of PAUSE (annex 31B).
pub const OPCODE_PAUSE: u16 = 0x0001;

/// Opcode of PFC (annex 31D).
pub const OPCODE_PFC: u16 = 0x0101;

/// Priorities, each with its own pause.
pub const CLASSES: usize = 8;

/// Bytes that a quantum of 512 bits lasts.
const QUANTUM_BYTES: u64 = 64;

const OPCODE_AT: usize = 14;
const PARAMETERS_AT: usize = 16;
const QUANTA_AT: usize = 18;
const PAUSE_BYTES: usize = 18;
const PFC_BYTES: usize = 34;

/// How long `quanta` last at a port of `rate`, rounded up to a picosecond.
///
/// # Panics
/// When the rate is zero.
pub const fn pause_time(quanta: u16, rate: Rate) -> Duration {
    rate.time_of(quanta as u64 * QUANTUM_BYTES)
}

/// Whether a frame is for the MAC control sublayer: an EtherType of 8808 without a VLAN tag before
/// it. Such a frame ends at the port that received it, whatever its destination (clause 31.5).
#[inline]
pub fn is_mac_control(frame: &[u8]) -> bool {
    frame.get(12..14) == Some(&ethertype::MAC_CONTROL.to_be_bytes())
}

/// What a PFC frame says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pfc {
    /// The classes that it speaks of: class n is bit n.
    pub enabled: u8,
    /// How long each class pauses; 0 ends its pause. Those not enabled mean nothing.
    pub quanta: [u16; CLASSES],
}

impl Pfc {
    /// The same `quanta` for every class of `classes`, as bits.
    pub fn uniform(classes: u8, quanta: u16) -> Self {
        Self { enabled: classes, quanta: [0; CLASSES] }.with(classes, quanta)
    }

    /// This, and `quanta` for every class of `classes`, as bits.
    #[must_use]
    pub fn with(mut self, classes: u8, quanta: u16) -> Self {
        self.enabled |= classes;
        for (class, of_class) in self.quanta.iter_mut().enumerate() {
            if classes & 1 << class != 0 {
                *of_class = quanta;
            }
        }
        self
    }

    /// Each enabled class, ascending, with its quanta.
    pub fn classes(self) -> impl Iterator<Item = (usize, u16)> {
        let enabled = move |class: &usize| self.enabled & 1 << *class != 0;
        (0..CLASSES).filter(enabled).map(move |class| (class, self.quanta[class]))
    }
}

/// What a MAC control frame asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MacControl {
    /// Stop these classes for so long.
    Pfc(Pfc),
    /// Stop sending altogether for so many quanta; 0 ends that.
    Pause(u16),
    /// Another opcode, which a MAC that does not know it discards.
    Other(u16),
}

impl MacControl {
    /// Reads the frame, which may go on behind its parameters. The reserved upper byte of a PFC
    /// frame's class enable vector and the bytes behind the quanta are not looked at.
    ///
    /// # Errors
    /// The frame ends before its opcode's parameters do; it is no MAC control frame; or it is a PFC
    /// or PAUSE frame for another destination than 01:80:C2:00:00:01.
    pub fn read(frame: &[u8]) -> Result<Self, WireError> {
        need(NAME, PARAMETERS_AT, frame.len())?;
        if !is_mac_control(frame) {
            return Err(WireError::Malformed { header: NAME, what: "another EtherType" });
        }
        let opcode = read_u16(frame, OPCODE_AT);
        let need_bytes = match opcode {
            OPCODE_PFC => PFC_BYTES,
            OPCODE_PAUSE => PAUSE_BYTES,
            other => return Ok(Self::Other(other)),
        };
        need(NAME, need_bytes, frame.len())?;
        if read_array(frame, 0) != DESTINATION.0 {
            return Err(WireError::Malformed { header: NAME, what: "another destination" });
        }
        if opcode == OPCODE_PAUSE {
            return Ok(Self::Pause(read_u16(frame, PARAMETERS_AT)));
        }
        let mut quanta = [0; CLASSES];
        for (class, of_class) in quanta.iter_mut().enumerate() {
            *of_class = read_u16(frame, QUANTA_AT + 2 * class);
        }
        Ok(Self::Pfc(Pfc { enabled: frame[PARAMETERS_AT + 1], quanta }))
    }

    /// The whole frame from the port with the address `source`.
    pub fn frame(&self, source: MacAddr) -> [u8; FRAME_BYTES] {
        let mut frame = [0; FRAME_BYTES];
        write_array(&mut frame, 0, DESTINATION.0);
        write_array(&mut frame, 6, source.0);
        write_array(&mut frame, 12, ethertype::MAC_CONTROL.to_be_bytes());
        let opcode = match *self {
            Self::Pfc(pfc) => {
                write_array(&mut frame, PARAMETERS_AT, [0, pfc.enabled]);
                for (class, quanta) in pfc.classes() {
                    write_array(&mut frame, QUANTA_AT + 2 * class, quanta.to_be_bytes());
                }
                OPCODE_PFC
            }
            Self::Pause(quanta) => {
                write_array(&mut frame, PARAMETERS_AT, quanta.to_be_bytes());
                OPCODE_PAUSE
            }
            Self::Other(opcode) => opcode,
        };
        write_array(&mut frame, OPCODE_AT, opcode.to_be_bytes());
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const VECTORS: &str = include_str!("../../tests/vectors/pfc.json");
    const SOURCE: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

    fn bytes_of(hex: &str) -> Vec<u8> {
        let digits = |at: usize| hex.get(at..at + 2).expect("an even number of digits");
        let octets = (0..hex.len()).step_by(2).map(digits);
        octets.map(|octet| u8::from_str_radix(octet, 16).expect("hexadecimal")).collect()
    }

    #[test]
    fn every_vector_reads_and_builds_bit_for_bit() {
        let cases: serde_json::Value = serde_json::from_str(VECTORS).expect("JSON");
        let cases = cases.as_array().expect("a list");
        assert!(cases.len() >= 5);
        for case in cases {
            let frame = bytes_of(case["frame"].as_str().expect("a frame"));
            let quanta = |value: &serde_json::Value| {
                u16::try_from(value.as_u64().expect("a number")).expect("16 bits")
            };
            let want = match case.get("quanta") {
                Some(classes) => {
                    let classes = classes.as_object().expect("classes").iter();
                    let add = |pfc: Pfc, (class, value): (&String, _)| {
                        pfc.with(1 << class.parse::<u8>().expect("a class"), quanta(value))
                    };
                    MacControl::Pfc(classes.fold(Pfc::default(), add))
                }
                None => MacControl::Pause(quanta(&case["pause_time"])),
            };
            assert!(is_mac_control(&frame));
            assert_eq!(MacControl::read(&frame), Ok(want), "{}", case["name"]);
            assert_eq!(want.frame(SOURCE)[..], frame, "{}", case["name"]);
        }
    }

    #[test]
    fn a_frame_that_ends_early_is_truncated_wherever_it_does() {
        let pfc = MacControl::Pfc(Pfc::uniform(0xff, QUANTA_MAX)).frame(SOURCE);
        let pause = MacControl::Pause(9).frame(SOURCE);
        for (frame, need_bytes) in [(&pfc, 34), (&pause, 18)] {
            for len in 0..FRAME_BYTES {
                let read = MacControl::read(&frame[..len]);
                assert_eq!(read.is_ok(), len >= need_bytes, "{len}");
                if len < need_bytes {
                    assert!(matches!(read, Err(WireError::Truncated { .. })), "{len}: {read:?}");
                }
            }
        }
    }

    #[test]
    fn reserved_bits_and_other_frames() {
        let mut frame = MacControl::Pfc(Pfc::uniform(0b1000, 7)).frame(SOURCE);
        frame[16] = 0xff;
        let read = MacControl::read(&frame);
        assert_eq!(
            read,
            Ok(MacControl::Pfc(Pfc::uniform(0b1000, 7))),
            "the upper byte is reserved"
        );
        frame[14..16].copy_from_slice(&[0x01, 0x02]);
        assert_eq!(MacControl::read(&frame), Ok(MacControl::Other(0x0102)));
        frame[14..16].copy_from_slice(&[0x01, 0x01]);
        frame[5] = 0x0e;
        assert!(matches!(MacControl::read(&frame), Err(WireError::Malformed { .. })));
        frame[12..14].copy_from_slice(&[0x81, 0x00]);
        assert!(!is_mac_control(&frame) && MacControl::read(&frame).is_err());
        assert!(!is_mac_control(&frame[..13]));
    }

    #[test]
    fn a_quantum_is_512_bit_times() {
        for (gbps, ps) in [(10, 51_200), (25, 20_480), (40, 12_800), (100, 5_120), (400, 1_280)] {
            let rate = Rate::from_gbps(gbps);
            assert_eq!(pause_time(1, rate), Duration::from_ps(ps), "{gbps}");
            assert_eq!(pause_time(QUANTA_MAX, rate), Duration::from_ps(65_535 * ps), "{gbps}");
            assert_eq!(pause_time(0, rate), Duration::ZERO);
        }
    }

    proptest! {
        #[test]
        fn whatever_is_built_reads_back(enabled: u8, quanta: [u16; 8], pause: u16) {
            let pfc = Pfc { enabled, quanta };
            let read = MacControl::read(&MacControl::Pfc(pfc).frame(SOURCE));
            let Ok(MacControl::Pfc(read)) = read else { panic!("{read:?}") };
            prop_assert_eq!(read.enabled, enabled);
            prop_assert!(read.classes().eq(pfc.classes()));
            let pause = MacControl::Pause(pause);
            prop_assert_eq!(MacControl::read(&pause.frame(SOURCE)), Ok(pause));
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80), head: bool) {
            let mut bytes = bytes;
            if head && bytes.len() >= 16 {
                bytes[..6].copy_from_slice(&DESTINATION.0);
                bytes[12..16].copy_from_slice(&[0x88, 0x08, 0x01, 0x01]);
            }
            let read = MacControl::read(&bytes);
            if let Ok(control @ MacControl::Pfc(_)) = read {
                prop_assert_eq!(MacControl::read(&control.frame(SOURCE)).is_ok(), true);
            }
        }
    }
}
