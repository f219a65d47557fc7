//! Writing pcapng (draft-ietf-opsawg-pcapng) with nanosecond stamps that the file names as such.
//!
//! The bytes depend on the arguments alone: no host name, no clock, so that two runs of one seed
//! write equal files.

use std::io::{self, Write};

use crate::time::Time;

pub use crate::sim::Direction;

/// One frame to write.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The interface, in the order in which they were named.
    pub interface: u32,
    /// Nanoseconds: since 1970 for replayed captures, since the start of the run for others.
    pub timestamp_ns: u64,
    /// Which way it went.
    pub direction: Direction,
    /// The frame, without FCS.
    pub bytes: &'a [u8],
    /// Its length before it was captured; longer than `bytes` when the capture was truncated.
    pub len_original: u32,
    /// What happened to it.
    pub comment: Option<&'a str>,
}

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const INTERFACE: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const LINK_TYPE_ETHERNET: u16 = 1;
const OPT_COMMENT: u16 = 1;
const SHB_USERAPPL: u16 = 4;
const IF_NAME: u16 = 2;
const IF_TSRESOL: u16 = 9;
const EPB_FLAGS: u16 = 2;

/// A pcapng file of one section being written, little endian. Wrap files in a
/// [`BufWriter`](std::io::BufWriter): each frame is one write.
#[derive(Debug)]
pub struct CaptureWriter<W> {
    out: W,
    block: Vec<u8>,
    interfaces: u32,
    frames: u64,
}

impl<W: Write> CaptureWriter<W> {
    /// Begins a file with Ethernet interfaces of the given names, numbered from 0.
    ///
    /// # Errors
    /// What `out` fails with.
    pub fn new<N: AsRef<str>>(out: W, interfaces: impl IntoIterator<Item = N>) -> io::Result<Self> {
        let mut writer = Self { out, block: Vec::new(), interfaces: 0, frames: 0 };
        writer.begin(SECTION_HEADER);
        writer.u32(BYTE_ORDER);
        writer.u16(1);
        writer.u16(0);
        // The section's length is not known.
        writer.block.extend_from_slice(&(-1_i64).to_le_bytes());
        writer.option(SHB_USERAPPL, b"tailwater");
        writer.end_options();
        writer.end()?;
        for name in interfaces {
            writer.begin(INTERFACE);
            writer.u16(LINK_TYPE_ETHERNET);
            writer.u16(0);
            // No limit.
            writer.u32(0);
            writer.option(IF_NAME, name.as_ref().as_bytes());
            writer.option(IF_TSRESOL, &[9]);
            writer.end_options();
            writer.end()?;
            writer.interfaces += 1;
        }
        Ok(writer)
    }

    /// Writes a whole frame that crossed its port at the node time `at`.
    ///
    /// # Errors
    /// As [`write_packet`](Self::write_packet).
    pub fn write(
        &mut self,
        interface: u32,
        at: Time,
        direction: Direction,
        bytes: &[u8],
        comment: Option<&str>,
    ) -> io::Result<()> {
        let len_original = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let timestamp_ns = at.as_ns();
        self.write_packet(&Packet {
            interface,
            timestamp_ns,
            direction,
            bytes,
            len_original,
            comment,
        })
    }

    /// Writes one frame.
    ///
    /// # Errors
    /// What `out` fails with; `InvalidInput` for an interface that was not named or a frame that no
    /// block can hold.
    pub fn write_packet(&mut self, packet: &Packet<'_>) -> io::Result<()> {
        if packet.interface >= self.interfaces {
            let text = format!(
                "a frame of interface {} in a capture that names {}",
                packet.interface, self.interfaces
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let captured = u32::try_from(packet.bytes.len()).map_err(|_| too_long())?;
        self.begin(ENHANCED_PACKET);
        self.u32(packet.interface);
        let [a, b, c, d, e, f, g, h] = packet.timestamp_ns.to_le_bytes();
        self.block.extend_from_slice(&[e, f, g, h, a, b, c, d]);
        self.u32(captured);
        self.u32(packet.len_original.max(captured));
        self.block.extend_from_slice(packet.bytes);
        self.pad();
        let direction: u32 = match packet.direction {
            Direction::Inbound => 1,
            Direction::Outbound => 2,
        };
        self.option(EPB_FLAGS, &direction.to_le_bytes());
        if let Some(comment) = packet.comment {
            self.option(OPT_COMMENT, comment.as_bytes());
        }
        self.end_options();
        self.end()?;
        self.frames += 1;
        Ok(())
    }

    /// Frames written.
    pub const fn frames(&self) -> u64 {
        self.frames
    }

    /// Hands on what is buffered, so that the file is whole.
    ///
    /// # Errors
    /// What `out` fails with.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Flushes what was written and gives the destination back.
    ///
    /// # Errors
    /// What `out` fails with.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }

    fn begin(&mut self, kind: u32) {
        self.block.clear();
        self.u32(kind);
        self.u32(0);
    }

    fn end(&mut self) -> io::Result<()> {
        let len = u32::try_from(self.block.len() + 4).map_err(|_| too_long())?;
        self.block[4..8].copy_from_slice(&len.to_le_bytes());
        self.u32(len);
        self.out.write_all(&self.block)
    }

    fn u16(&mut self, value: u16) {
        self.block.extend_from_slice(&value.to_le_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.block.extend_from_slice(&value.to_le_bytes());
    }

    fn pad(&mut self) {
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    /// An option; a text longer than its length field can say is cut at a character's end.
    fn option(&mut self, code: u16, value: &[u8]) {
        let mut len = value.len().min(usize::from(u16::MAX));
        while len < value.len() && value[len] & 0xc0 == 0x80 {
            len -= 1;
        }
        self.u16(code);
        self.u16(u16::try_from(len).unwrap_or(u16::MAX));
        self.block.extend_from_slice(&value[..len]);
        self.pad();
    }

    fn end_options(&mut self) {
        self.u32(0);
    }
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "a frame longer than a pcapng block can hold")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::replay::{CaptureReader, LinkType, Record};

    #[test]
    fn the_bytes_of_a_small_file() {
        let mut writer = CaptureWriter::new(Vec::new(), ["p1"]).expect("memory");
        let packet = Packet {
            interface: 0,
            timestamp_ns: 0x0102_0304_0506_0708,
            direction: Direction::Outbound,
            bytes: &[0xee; 5],
            len_original: 9,
            comment: Some("ok"),
        };
        writer.write_packet(&packet).expect("memory");
        assert!(
            writer
                .write(1, Time::ZERO, Direction::Inbound, &[], None)
                .expect_err("no such interface")
                .to_string()
                .contains("interface 1")
        );
        let bytes = writer.finish().expect("memory");
        #[rustfmt::skip]
        let want = [
            // Section header: no length known, named by its program.
            0x0a, 0x0d, 0x0d, 0x0a, 48, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0,
            0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
            4, 0, 9, 0, b't', b'a', b'i', b'l', b'w', b'a', b't', b'e', b'r', 0, 0, 0,
            0, 0, 0, 0, 48, 0, 0, 0,
            // Interface: Ethernet, no snaplen, its name, nanoseconds.
            1, 0, 0, 0, 40, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0,
            2, 0, 2, 0, b'p', b'1', 0, 0, 9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0, 40, 0, 0, 0,
            // Packet: the stamp's upper half, its lower half, the lengths, flags, the comment.
            6, 0, 0, 0, 60, 0, 0, 0, 0, 0, 0, 0, 4, 3, 2, 1, 8, 7, 6, 5,
            5, 0, 0, 0, 9, 0, 0, 0, 0xee, 0xee, 0xee, 0xee, 0xee, 0, 0, 0,
            2, 0, 4, 0, 2, 0, 0, 0, 1, 0, 2, 0, b'o', b'k', 0, 0, 0, 0, 0, 0, 60, 0, 0, 0,
        ];
        assert_eq!(bytes, want);
    }

    #[test]
    fn a_comment_of_any_length_keeps_the_file_whole() {
        let long = "é".repeat(40_000);
        let mut writer = CaptureWriter::new(Vec::new(), ["p"]).expect("memory");
        writer.write(0, Time::ZERO, Direction::Inbound, &[1; 60], Some(&long)).expect("memory");
        let bytes = writer.finish().expect("memory");
        let mut reader = CaptureReader::new(bytes.as_slice()).expect("ours");
        let mut record = Record::default();
        assert!(reader.read(&mut record).expect("a record"));
        assert!(!reader.read(&mut record).expect("the end"));
    }

    /// Interface, stamp, bytes, bytes not captured, comment.
    type Written = (u32, u64, Vec<u8>, u32, Option<String>);

    fn packets() -> impl Strategy<Value = Vec<Written>> {
        let bytes = prop::collection::vec(any::<u8>(), 0..200);
        prop::collection::vec(
            (0..3_u32, any::<u64>(), bytes, 0..100_u32, prop::option::of("\\PC{0,20}")),
            0..20,
        )
    }

    fn file(packets: &[Written]) -> Vec<u8> {
        let mut writer = CaptureWriter::new(Vec::new(), ["a", "", "port 3"]).expect("memory");
        for (interface, timestamp_ns, bytes, missing, comment) in packets {
            let len_original = u32::try_from(bytes.len()).expect("short") + missing;
            let packet = Packet {
                interface: *interface,
                timestamp_ns: *timestamp_ns,
                direction: Direction::Inbound,
                bytes,
                len_original,
                comment: comment.as_deref(),
            };
            writer.write_packet(&packet).expect("memory");
        }
        assert_eq!(writer.frames(), packets.len() as u64);
        writer.finish().expect("memory")
    }

    /// Reads to the end or to damage; panics when it does not come to an end.
    fn read_all(bytes: &[u8]) -> Vec<Record> {
        let Ok(mut reader) = CaptureReader::new(bytes) else {
            return Vec::new();
        };
        let mut records = Vec::new();
        let mut record = Record::default();
        while let Ok(true) = reader.read(&mut record) {
            records.push(record.clone());
            // A record is at least its head.
            assert!(records.len() <= bytes.len() / 12, "more records than bytes for them");
        }
        records
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(packets in packets()) {
            let bytes = file(&packets);
            let mut reader = CaptureReader::new(bytes.as_slice()).expect("ours");
            let mut record = Record::default();
            for (n, (interface, ns, frame, missing, _)) in packets.iter().enumerate() {
                prop_assert!(reader.read(&mut record).expect("a record"));
                prop_assert_eq!(record.index, n as u64 + 1);
                prop_assert_eq!(record.interface, *interface);
                prop_assert_eq!(record.timestamp_ns, i128::from(*ns));
                prop_assert_eq!(&record.bytes, frame);
                prop_assert_eq!(record.len_original as usize, frame.len() + *missing as usize);
                prop_assert_eq!(record.is_truncated(), *missing > 0);
            }
            prop_assert!(!reader.read(&mut record).expect("the end"));
            let link = reader.interface(2).map(|i| (i.link_type, i.name.clone()));
            prop_assert_eq!(link, Some((LinkType::ETHERNET, Some("port 3".to_owned()))));
        }

        #[test]
        fn a_second_reader_agrees(packets in packets()) {
            let bytes = file(&packets);
            let mut theirs = Vec::new();
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let (left, block) = pcap_parser::pcapng::parse_block_le(rest).expect("a block");
                rest = left;
                if let pcap_parser::Block::EnhancedPacket(block) = block {
                    let comment = block.options.iter().find(|o| o.code.0 == 1);
                    theirs.push((
                        block.if_id,
                        u64::from(block.ts_high) << 32 | u64::from(block.ts_low),
                        block.data[..block.caplen as usize].to_vec(),
                        block.origlen - block.caplen,
                        comment.map(|o| String::from_utf8(o.value[..o.len.into()].to_vec())
                            .expect("UTF-8")),
                    ));
                }
            }
            prop_assert_eq!(theirs, packets);
        }

        #[test]
        fn no_byte_string_panics_or_loops(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            read_all(&bytes);
            for magic in [[0xd4, 0xc3, 0xb2, 0xa1], [0xa1, 0xb2, 0x3c, 0x4d], [0x0a, 0x0d, 0x0d, 0x0a]] {
                let mut with = magic.to_vec();
                with.extend(&bytes);
                read_all(&with);
                let mut pcap = magic.to_vec();
                pcap.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0]);
                pcap.extend(&bytes);
                read_all(&pcap);
            }
        }

        #[test]
        fn no_mutation_panics_or_loops_or_hides_what_is_before_it(
            packets in packets(),
            place in any::<prop::sample::Index>(),
            value in any::<u8>(),
            cut in any::<prop::sample::Index>(),
        ) {
            let whole = file(&packets);
            let good = read_all(&whole);
            prop_assert_eq!(good.len(), packets.len());
            let mut bytes = whole.clone();
            let place = place.index(bytes.len());
            bytes[place] = value;
            read_all(&bytes);
            let cut = cut.index(whole.len());
            let read = read_all(&whole[..cut]);
            prop_assert_eq!(&good[..read.len()], read.as_slice());
        }
    }
}
