//! The pcapng format (draft-ietf-opsawg-pcapng), read as a stream of blocks: several sections, each
//! with its byte order and interfaces; enhanced, simple and old packets; other blocks passed over.

use std::io::Read;

use super::capture::{Clock, Damage, Input, Interface, RECORD_BYTES_MAX, Record, Stop};
use super::link_type::LinkType;

/// The type of a section header block, the same in both byte orders.
pub(super) const SECTION_HEADER: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

/// The longest block that is kept to be read: a packet with room for its options.
const BLOCK_BYTES_MAX: u32 = 16 << 20;
/// Descriptions kept of one section.
const INTERFACES_MAX: usize = 65_536;
/// Type and both lengths.
const FRAMING_BYTES: u32 = 12;

/// A pcapng file at a block's beginning.
#[derive(Debug)]
pub(super) struct Reader {
    big_endian: bool,
    section: u32,
    interfaces: Vec<Interface>,
    body: Vec<u8>,
}

/// Reads fields of a block's body in its section's byte order.
struct Fields<'a> {
    bytes: &'a [u8],
    big_endian: bool,
}

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.bytes.split_first_chunk()?;
        self.bytes = rest;
        Some(*head)
    }

    fn u16(&mut self) -> Option<u16> {
        let bytes = self.take()?;
        Some(if self.big_endian { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    }

    fn u32(&mut self) -> Option<u32> {
        let bytes = self.take()?;
        Some(if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    /// The next option: its code and value; Ok(None) at the end, Err when it runs past it.
    fn option(&mut self) -> Result<Option<(u16, &'a [u8])>, ()> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let (code, len) = self.u16().zip(self.u16()).ok_or(())?;
        if code == 0 {
            return Ok(None);
        }
        let (value, rest) = self.bytes.split_at_checked(usize::from(len)).ok_or(())?;
        // The padding of the last option may be missing when nothing follows.
        self.bytes = rest.get(value.len().next_multiple_of(4) - value.len()..).unwrap_or(&[]);
        Ok(Some((code, value)))
    }
}

impl Reader {
    /// Reads the first section header, whose type has been read.
    pub(super) fn new<R: Read>(input: &mut Input<R>) -> Result<Self, Stop> {
        let mut reader =
            Self { big_endian: false, section: 0, interfaces: Vec::new(), body: Vec::new() };
        reader.read_section(input, 0)?;
        Ok(reader)
    }

    pub(super) fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn u32(&self, bytes: [u8; 4]) -> u32 {
        if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }

    /// Reads a section header behind its type, which begins at `at`.
    fn read_section<R: Read>(&mut self, input: &mut Input<R>, at: u64) -> Result<(), Stop> {
        let mut head = [0; 20];
        let have = input.read(&mut head)?;
        if have < head.len() {
            let (have, want) = (have as u64 + 4, 24);
            return Err(Stop::Damage(at, Damage::Ends { what: "a section header", have, want }));
        }
        let [l0, l1, l2, l3, b0, b1, b2, b3, v0, v1, v2, v3, ..] = head;
        self.big_endian = match u32::from_be_bytes([b0, b1, b2, b3]) {
            0x1a2b_3c4d => true,
            0x4d3c_2b1a => false,
            other => return Err(Stop::Damage(at, Damage::ByteOrder(other))),
        };
        let mut version = Fields { bytes: &[v0, v1, v2, v3], big_endian: self.big_endian };
        let (major, minor) = version.u16().zip(version.u16()).unwrap_or_default();
        // 1.2 was written by some, and differs in nothing (draft, section 4.1).
        if major != 1 || !matches!(minor, 0 | 2) {
            return Err(Stop::Damage(at, Damage::Version { major, minor }));
        }
        let len = self.u32([l0, l1, l2, l3]);
        if len < 28 || !len.is_multiple_of(4) {
            return Err(block_length(at, SECTION, len));
        }
        self.interfaces.clear();
        self.skip_rest(input, at, len, 24)
    }

    /// Passes over what is left of a block of `len` bytes of which `done` are read, and checks its
    /// second length.
    fn skip_rest<R: Read>(
        &self,
        input: &mut Input<R>,
        at: u64,
        len: u32,
        done: u32,
    ) -> Result<(), Stop> {
        let body = u64::from(len - done - 4);
        let have = input.skip(body)?;
        let mut tail = [0; 4];
        let have = have + input.read(&mut tail)? as u64;
        if have < body + 4 {
            let (have, want) = (u64::from(done) + have, u64::from(len));
            return Err(Stop::Damage(at, Damage::Ends { what: "a block", have, want }));
        }
        self.check_tail(at, len, tail)
    }

    fn check_tail(&self, at: u64, len: u32, tail: [u8; 4]) -> Result<(), Stop> {
        let tail = self.u32(tail);
        if tail != len {
            return Err(Stop::Damage(at, Damage::BlockTail { head: len, tail }));
        }
        Ok(())
    }

    /// Reads blocks up to and with the next packet.
    pub(super) fn read<R: Read>(
        &mut self,
        input: &mut Input<R>,
        record: &mut Record,
    ) -> Result<bool, Stop> {
        loop {
            let at = input.at();
            let mut kind = [0; 4];
            let have = input.read(&mut kind)?;
            if have == 0 {
                return Ok(false);
            }
            if kind == SECTION_HEADER {
                self.section = self.section.saturating_add(1);
                self.read_section(input, at)?;
                continue;
            }
            let mut len = [0; 4];
            let have = have + input.read(&mut len)?;
            if have < 8 {
                let (have, want) = (have as u64, 8);
                return Err(Stop::Damage(at, Damage::Ends { what: "a block's head", have, want }));
            }
            let (kind, len) = (self.u32(kind), self.u32(len));
            if len < FRAMING_BYTES || !len.is_multiple_of(4) {
                return Err(block_length(at, kind, len));
            }
            if !matches!(kind, INTERFACE | OLD_PACKET | SIMPLE_PACKET | ENHANCED_PACKET) {
                self.skip_rest(input, at, len, 8)?;
                continue;
            }
            self.read_body(input, at, kind, len)?;
            if kind == INTERFACE {
                self.read_interface(at, len)?;
            } else {
                return self.read_packet(at, kind, len, record).map(|()| true);
            }
        }
    }

    fn read_body<R: Read>(
        &mut self,
        input: &mut Input<R>,
        at: u64,
        kind: u32,
        len: u32,
    ) -> Result<(), Stop> {
        if len > BLOCK_BYTES_MAX {
            let why = "is more than a packet and its options can be";
            return Err(Stop::Damage(at, Damage::BlockLength { kind, len, why }));
        }
        input.read_into(&mut self.body, len - 8)?;
        let have = self.body.len() as u64;
        let Some((rest, tail)) =
            self.body.split_last_chunk().filter(|_| have == u64::from(len) - 8)
        else {
            let (have, want) = (have + 8, u64::from(len));
            return Err(Stop::Damage(at, Damage::Ends { what: "a block", have, want }));
        };
        let keep = rest.len();
        self.check_tail(at, len, *tail)?;
        self.body.truncate(keep);
        Ok(())
    }

    fn read_interface(&mut self, at: u64, len: u32) -> Result<(), Stop> {
        let number = self.interfaces.len();
        if number == INTERFACES_MAX {
            return Err(Stop::Damage(at, Damage::TooManyInterfaces(INTERFACES_MAX)));
        }
        let mut fields = Fields { bytes: &self.body, big_endian: self.big_endian };
        let (Some(link), Some(_reserved), Some(snaplen_bytes)) =
            (fields.u16(), fields.u16(), fields.u32())
        else {
            return Err(block_length(at, INTERFACE, len));
        };
        let mut interface = Interface {
            link_type: LinkType(u32::from(link)),
            snaplen_bytes,
            name: None,
            fcs_bytes: 0,
            clock: Clock::MICROSECONDS,
        };
        let damaged = |()| Stop::Damage(at, Damage::Options(number));
        while let Some((code, value)) = fields.option().map_err(damaged)? {
            match (code, value) {
                (2, name) => {
                    let name = String::from_utf8_lossy(name);
                    interface.name = Some(name.trim_end_matches('\0').to_owned());
                }
                (9, &[resolution]) => interface.clock.resolution = resolution,
                // The FCS is counted in bits.
                (13, &[bits]) => interface.fcs_bytes = u32::from(bits / 8),
                (14, value) => {
                    let bytes: [u8; 8] = value.try_into().map_err(|_| damaged(()))?;
                    interface.clock.offset_s = if self.big_endian {
                        i64::from_be_bytes(bytes)
                    } else {
                        i64::from_le_bytes(bytes)
                    };
                }
                (9 | 13, _) => return Err(damaged(())),
                _ => {}
            }
        }
        self.interfaces.push(interface);
        Ok(())
    }

    fn read_packet(&self, at: u64, kind: u32, len: u32, record: &mut Record) -> Result<(), Stop> {
        let mut fields = Fields { bytes: &self.body, big_endian: self.big_endian };
        let head = match kind {
            ENHANCED_PACKET => fields.u32().zip(stamp_and_lengths(&mut fields)),
            OLD_PACKET => fields.u16().zip(fields.u16()).and_then(|(interface, _drops)| {
                Some((u32::from(interface), stamp_and_lengths(&mut fields)?))
            }),
            _ => fields.u32().map(|original| (0, (None, u32::MAX, original))),
        };
        let Some((number, (units, captured, original))) = head else {
            return Err(block_length(at, kind, len));
        };
        let described = self.interfaces.len();
        let interface = usize::try_from(number)
            .ok()
            .and_then(|i| self.interfaces.get(i))
            .ok_or(Stop::Damage(at, Damage::NoInterface { interface: number, described }))?;
        let room = fields.bytes.len();
        let captured = if kind == SIMPLE_PACKET {
            // It has no field for it: the whole frame, or the snaplen (draft, section 4.4). A block
            // with less holds a truncated frame.
            let snaplen =
                if interface.snaplen_bytes == 0 { u32::MAX } else { interface.snaplen_bytes };
            original.min(snaplen).min(u32::try_from(room).unwrap_or(u32::MAX))
        } else {
            captured
        };
        if captured > RECORD_BYTES_MAX {
            return Err(Stop::Damage(at, Damage::RecordLength(captured)));
        }
        let Some(bytes) = fields.bytes.get(..captured as usize) else {
            return Err(Stop::Damage(at, Damage::PastBlock { captured, room }));
        };
        record.section = self.section;
        record.interface = number;
        if let Some(units) = units {
            record.timestamp_ns = interface.clock.nanoseconds(units);
        }
        record.len_original = original;
        record.bytes.clear();
        record.bytes.extend_from_slice(bytes);
        Ok(())
    }
}

/// The time, captured and original lengths, as enhanced and old packets have them.
fn stamp_and_lengths(fields: &mut Fields<'_>) -> Option<(Option<u64>, u32, u32)> {
    let (high, low) = fields.u32().zip(fields.u32())?;
    let (captured, original) = fields.u32().zip(fields.u32())?;
    Some((Some(u64::from(high) << 32 | u64::from(low)), captured, original))
}

fn block_length(at: u64, kind: u32, len: u32) -> Stop {
    let why = if len.is_multiple_of(4) {
        "is less than its fields need"
    } else {
        "is not a multiple of 4"
    };
    Stop::Damage(at, Damage::BlockLength { kind, len, why })
}

#[cfg(test)]
mod tests {
    use crate::replay::{CaptureReader, Record};

    /// A block with its framing, in `big_endian`.
    fn block(big_endian: bool, kind: u32, body: &[u8]) -> Vec<u8> {
        let word = |v: u32| if big_endian { v.to_be_bytes() } else { v.to_le_bytes() };
        let len = u32::try_from(body.len()).expect("short") + 12;
        [&word(kind)[..], &word(len), body, &word(len)].concat()
    }

    fn section(big_endian: bool) -> Vec<u8> {
        let mut body = if big_endian {
            vec![0x1a, 0x2b, 0x3c, 0x4d, 0, 1, 0, 0]
        } else {
            vec![0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 2, 0]
        };
        body.extend([0xff; 8]);
        block(big_endian, 0x0a0d_0d0a, &body)
    }

    fn all(bytes: &[u8]) -> (Vec<Record>, Option<String>) {
        let mut records = Vec::new();
        let mut reader = match CaptureReader::new(bytes) {
            Ok(reader) => reader,
            Err(error) => return (records, Some(error.to_string())),
        };
        let mut record = Record::default();
        loop {
            match reader.read(&mut record) {
                Ok(true) => records.push(record.clone()),
                Ok(false) => return (records, None),
                Err(error) => return (records, Some(error.to_string())),
            }
        }
    }

    #[test]
    fn sections_of_both_orders_with_interfaces_and_clocks_of_their_own() {
        let mut file = section(false);
        // Ethernet, snaplen 4, milliseconds, an offset of 10 s, an FCS of 32 bits.
        let options = [
            &[9, 0, 1, 0, 3, 0, 0, 0, 14, 0, 8, 0, 10, 0, 0, 0, 0, 0, 0, 0][..],
            &[13, 0, 1, 0, 32, 0, 0, 0],
            &[0; 4],
        ];
        let interface = [&[1, 0, 0, 0, 4, 0, 0, 0][..], &options.concat()].concat();
        file.extend(block(false, 1, &interface));
        // An unknown block is passed over.
        file.extend(block(false, 0x8000_0001, &[1; 40]));
        let enhanced = [0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 6, 0, 0, 0, 6, 0, 0, 0];
        file.extend(block(false, 6, &[&enhanced[..], &[1, 2, 3, 4, 5, 6, 0, 0]].concat()));
        // A simple packet: the stamp of the one before, cut by the snaplen.
        file.extend(block(false, 3, &[9, 0, 0, 0, 1, 2, 3, 4]));
        file.extend(section(true));
        file.extend(block(true, 1, &[0, 1, 0, 0, 0, 0, 0, 0]));
        file.extend(block(true, 1, &[0, 113, 0, 0, 0, 0, 0, 0]));
        // An old packet of interface 1, one drop counted, 5 us.
        let old = [0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 1];
        file.extend(block(true, 2, &[&old[..], &[7, 0, 0, 0]].concat()));
        let (records, error) = all(&file);
        assert_eq!(error, None);
        let [enhanced, simple, old] = records.as_slice() else {
            panic!("{} records", records.len());
        };
        let ms = (1_i128 << 32) + 2;
        assert_eq!(enhanced.timestamp_ns, ms * 1_000_000 + 10_000_000_000);
        assert_eq!((enhanced.bytes.as_slice(), enhanced.len_original), (&[1, 2][..], 2));
        assert_eq!(simple.timestamp_ns, enhanced.timestamp_ns);
        assert_eq!((simple.bytes.as_slice(), simple.len_original), (&[1, 2, 3, 4][..], 5));
        assert_eq!((old.section, old.interface, old.timestamp_ns), (1, 1, 5_000));
        assert_eq!(old.bytes, [7]);
    }

    #[test]
    fn damage_names_the_record_and_the_reason() {
        let start = [section(false), block(false, 1, &[1, 0, 0, 0, 0, 0, 0, 0])].concat();
        let good = block(false, 3, &[2, 0, 0, 0, 1, 2, 0, 0]);
        let mut bad_tail = good.clone();
        bad_tail[16] = 24;
        let bad_length = |len: u8| [&[3, 0, 0, 0, len, 0, 0, 0][..], &[0; 60]].concat();
        let enhanced = |interface: u8, captured: [u8; 4]| {
            let head = [[interface, 0, 0, 0], [0; 4], [0; 4], captured, [2, 0, 0, 0], [1, 2, 0, 0]];
            block(false, 6, &head.concat())
        };
        for (tail, says) in [
            (good[..18].to_vec(), "record 2 (byte 68): the file ends inside a block: 18 of 20"),
            (good[..5].to_vec(), "the file ends inside a block's head: 5 of 8 bytes"),
            (bad_tail, "a block is 20 bytes long by its head and 24 by its tail"),
            (bad_length(8), "says it is 8 bytes long, which is less than its fields need"),
            (bad_length(21), "says it is 21 bytes long, which is not a multiple of 4"),
            (bad_length(12), "a block is 12 bytes long by its head and 0 by its tail"),
            (block(false, 3, &[]), "says it is 12 bytes long, which is less than its fields need"),
            (enhanced(1, [2, 0, 0, 0]), "is of interface 1, but its section describes 1"),
            (enhanced(0, [5, 0, 0, 0]), "holds 5 captured bytes, but its block has room for 4"),
            (enhanced(0, [0, 0, 5, 0]), "holds 327680 captured bytes, more than the 262144"),
            (section(false)[..8].to_vec(), "the file ends inside a section header: 8 of 24"),
            (
                block(false, 1, &[1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 200, 0]),
                "the description of interface 1 has an option that runs past its end",
            ),
        ] {
            let (records, error) = all(&[&start[..], &good, &tail].concat());
            assert_eq!(records.len(), 1, "{says}");
            let error = error.expect("damage");
            assert!(error.starts_with("record 2 (byte 68): "), "{error}");
            assert!(error.contains(says), "{error} does not say {says}");
        }
    }

    #[test]
    fn a_section_begins_with_its_byte_order_and_version() {
        let mut file = section(false);
        file[8] = 0;
        assert!(all(&file).1.expect("damage").contains("byte order"));
        let mut file = section(false);
        file[12] = 9;
        assert!(all(&file).1.expect("damage").contains("version 9.2"));
    }
}
