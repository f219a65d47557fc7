//! The classic pcap format, in both byte orders: microseconds, nanoseconds, and the variant with
//! longer record heads that Alexey Kuznetsov's patches wrote (draft-ietf-opsawg-pcap; libpcap's
//! `sf-pcap.c` for what files in the wild hold).

use std::io::Read;

use super::capture::{Clock, Damage, Input, Interface, RECORD_BYTES_MAX, Record, Stop, Tolerated};
use super::link_type::LinkType;

const FILE_HEAD_BYTES: usize = 24;

/// What the magic says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flavour {
    big_endian: bool,
    nanoseconds: bool,
    /// Record heads have 8 more bytes: interface index, protocol, packet type.
    modified: bool,
}

impl Flavour {
    /// The flavour that the first four bytes of a file name.
    pub(super) fn of(magic: [u8; 4]) -> Option<Self> {
        [true, false].into_iter().find_map(|big_endian| {
            let (nanoseconds, modified) = match u32_at(big_endian, magic) {
                0xa1b2_c3d4 => (false, false),
                0xa1b2_3c4d => (true, false),
                0xa1b2_cd34 => (false, true),
                _ => return None,
            };
            Some(Self { big_endian, nanoseconds, modified })
        })
    }
}

fn u32_at(big_endian: bool, bytes: [u8; 4]) -> u32 {
    if big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
}

/// A pcap file behind its magic.
#[derive(Debug)]
pub(super) struct Reader {
    flavour: Flavour,
    version_minor: u16,
    interface: Interface,
}

impl Reader {
    pub(super) fn new<R: Read>(input: &mut Input<R>, flavour: Flavour) -> Result<Self, Stop> {
        let mut head = [0; FILE_HEAD_BYTES - 4];
        let have = input.read(&mut head)?;
        if have < head.len() {
            let (have, want) = (have as u64 + 4, FILE_HEAD_BYTES as u64);
            return Err(Stop::Damage(0, Damage::Ends { what: "its head", have, want }));
        }
        let [v0, v1, v2, v3, _, _, _, _, _, _, _, _, s0, s1, s2, s3, l0, l1, l2, l3] = head;
        let word = |bytes| u32_at(flavour.big_endian, bytes);
        let half = |a, b| {
            if flavour.big_endian { u16::from_be_bytes([a, b]) } else { u16::from_le_bytes([a, b]) }
        };
        let (major, minor) = (half(v0, v1), half(v2, v3));
        if (major, minor) != (543, 0) && (major != 2 || minor > 4) {
            return Err(Stop::Damage(0, Damage::Version { major, minor }));
        }
        let link = word([l0, l1, l2, l3]);
        // Bit 26 says that the top four bits count the FCS in units of 16 bits.
        let fcs_bytes = if link & 0x0400_0000 != 0 { (link >> 28) * 2 } else { 0 };
        Ok(Self {
            flavour,
            version_minor: minor,
            interface: Interface {
                link_type: LinkType(link & 0x03ff_ffff),
                snaplen_bytes: word([s0, s1, s2, s3]),
                name: None,
                fcs_bytes,
                clock: Clock {
                    resolution: if flavour.nanoseconds { 9 } else { 6 },
                    ..Clock::MICROSECONDS
                },
            },
        })
    }

    pub(super) const fn interface(&self) -> &Interface {
        &self.interface
    }

    pub(super) fn read<R: Read>(
        &mut self,
        input: &mut Input<R>,
        record: &mut Record,
        tolerated: &mut Tolerated,
    ) -> Result<bool, Stop> {
        let at = input.at();
        let mut head = [0; 24];
        let head_len = if self.flavour.modified { 24 } else { 16 };
        let have = input.read(&mut head[..head_len])?;
        if have == 0 {
            return Ok(false);
        }
        if have < head_len {
            let (have, want) = (have as u64, head_len as u64);
            return Err(Stop::Damage(at, Damage::Ends { what: "its head", have, want }));
        }
        let word = |i: usize| {
            u32_at(self.flavour.big_endian, [head[i], head[i + 1], head[i + 2], head[i + 3]])
        };
        let (seconds, fraction) = (word(0), word(4));
        let (mut captured, mut original) = (word(8), word(12));
        // Files before version 2.3 have the two lengths the other way round, those of 2.3 either.
        if self.version_minor < 3 || (self.version_minor == 3 && captured > original) {
            std::mem::swap(&mut captured, &mut original);
        }
        if captured > RECORD_BYTES_MAX {
            return Err(Stop::Damage(at, Damage::RecordLength(captured)));
        }
        let units_per_second = if self.flavour.nanoseconds { 1_000_000_000 } else { 1_000_000 };
        if fraction >= units_per_second {
            tolerated.fraction_past_second.note(record.index);
        }
        let units = u64::from(seconds) * u64::from(units_per_second) + u64::from(fraction);
        record.timestamp_ns = self.interface.clock.nanoseconds(units);
        record.section = 0;
        record.interface = 0;
        record.len_original = original;
        input.read_into(&mut record.bytes, captured)?;
        if record.bytes.len() < captured as usize {
            let (have, want) = (record.bytes.len() as u64, u64::from(captured));
            return Err(Stop::Damage(at, Damage::Ends { what: "its frame", have, want }));
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use crate::replay::{CaptureReader, Record};

    /// A file of the given magic with one record of three bytes, all fields in `big_endian`.
    fn file(
        magic: u32,
        big_endian: bool,
        link: u32,
        fraction: u32,
        lens: (u32, u32),
        extra: &[u8],
    ) -> Vec<u8> {
        let mut out = Vec::new();
        let mut word =
            |v: u32| out.extend(if big_endian { v.to_be_bytes() } else { v.to_le_bytes() });
        word(magic);
        word(if big_endian { 0x0002_0004 } else { 0x0004_0002 });
        for v in [0, 0, 2, link, 0x8000_0000, fraction, lens.0, lens.1] {
            word(v);
        }
        out.extend(extra);
        out.extend([0xaa, 0xbb, 0xcc]);
        out
    }

    fn first(bytes: &[u8]) -> (Record, crate::replay::Tolerated) {
        let mut reader = CaptureReader::new(bytes).expect("a head");
        let mut record = Record::default();
        assert!(reader.read(&mut record).expect("a record"));
        let tolerated = *reader.tolerated();
        assert!(!reader.read(&mut Record::default()).expect("the end"));
        (record, tolerated)
    }

    #[test]
    fn both_orders_and_both_resolutions() {
        for big_endian in [false, true] {
            for (magic, unit) in [(0xa1b2_c3d4, 1_000), (0xa1b2_3c4d, 1), (0xa1b2_cd34, 1_000)] {
                let extra: &[u8] = if magic == 0xa1b2_cd34 { &[9; 8] } else { &[] };
                let (record, tolerated) =
                    first(&file(magic, big_endian, 1, 999_999, (3, 60), extra));
                assert_eq!(record.bytes, [0xaa, 0xbb, 0xcc]);
                // Seconds are unsigned: this is in 2038.
                assert_eq!(record.timestamp_ns, 0x8000_0000 * 1_000_000_000 + 999_999 * unit);
                assert!(record.is_truncated());
                assert_eq!(tolerated.longer_than_snaplen.count, 1, "a snaplen of 2");
            }
        }
    }

    #[test]
    fn a_capture_longer_than_its_frame_is_cut_and_counted() {
        let (record, tolerated) = first(&file(0xa1b2_c3d4, false, 1, 0, (3, 2), &[]));
        assert_eq!(record.bytes, [0xaa, 0xbb]);
        assert_eq!(tolerated.longer_than_original.count, 1);
        assert_eq!(tolerated.longer_than_original.first_record, 1);
    }

    #[test]
    fn an_fcs_that_the_file_names_is_taken_off() {
        let (record, tolerated) = first(&file(0xa1b2_c3d4, true, 0x1400_0001, 0, (3, 3), &[]));
        assert_eq!((record.bytes.as_slice(), record.len_original), (&[0xaa][..], 1));
        assert_eq!(tolerated.fcs_removed.count, 1);
        // Without bit 26 the top bits say nothing.
        let (record, _) = first(&file(0xa1b2_c3d4, true, 0x3000_0001, 0, (3, 3), &[]));
        assert_eq!(record.bytes.len(), 3);
    }

    #[test]
    fn damage_names_the_record_and_the_reason() {
        let whole = file(0xa1b2_c3d4, false, 1, 0, (3, 3), &[]);
        let says = |bytes: &[u8]| -> String {
            let mut reader = match CaptureReader::new(bytes) {
                Ok(reader) => reader,
                Err(error) => return error.to_string(),
            };
            let error = reader.read(&mut Record::default()).expect_err("damage").to_string();
            assert!(!reader.read(&mut Record::default()).expect("nothing more"));
            error
        };
        assert_eq!(
            says(&whole[..42]),
            "record 1 (byte 24): the file ends inside its frame: 2 of 3 bytes"
        );
        assert_eq!(
            says(&whole[..30]),
            "record 1 (byte 24): the file ends inside its head: 6 of 16 bytes"
        );
        assert_eq!(
            says(&whole[..20]),
            "record 1 (byte 0): the file ends inside its head: 20 of 24 bytes"
        );
        let absurd = file(0xa1b2_c3d4, false, 1, 0, (0x7fff_ffff, 3), &[]);
        assert!(says(&absurd).contains("2147483647 captured bytes"), "{}", says(&absurd));
    }
}
