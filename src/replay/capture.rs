//! Reading a capture, pcap or pcapng, as a stream of records.
//!
//! The reader holds one record at a time, so that a capture of any length, from a file or a pipe,
//! is read in constant memory. It is our own, not a parsing crate's, because of what it owes to
//! damaged files: every record before the damage is yielded, lengths that lie are tolerated and
//! counted, and what cannot be tolerated is named with its record and its place in the file.

use std::io::{self, BufReader, Read};

use super::link_type::LinkType;
use super::{pcap, pcapng};

/// The most bytes of one record, as libpcap has it (`MAXIMUM_SNAPLEN`): longer ones are damage.
pub const RECORD_BYTES_MAX: u32 = 262_144;

/// One captured frame. Reused from record to record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Its number in the file, from 1.
    pub index: u64,
    /// The pcapng section it is in, from 0.
    pub section: u32,
    /// Its interface, counted from 0 in its section; 0 in a pcap file.
    pub interface: u32,
    /// When it was captured: nanoseconds since 1970, rounded down. A record that carries no time
    /// (a pcapng Simple Packet Block) has that of the record before it.
    pub timestamp_ns: i128,
    /// The frame's length on the wire, without FCS, as the file says it.
    pub len_original: u32,
    /// What was captured of it.
    pub bytes: Vec<u8>,
}

impl Record {
    /// Whether less was captured than was on the wire.
    pub fn is_truncated(&self) -> bool {
        self.bytes.len() < self.len_original as usize
    }
}

/// What a file says about where its records were captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The kind of its frames.
    pub link_type: LinkType,
    /// The most bytes that were to be captured of a frame; 0 for no limit. Records longer than it
    /// are accepted and counted.
    pub snaplen_bytes: u32,
    /// The name, where the file has one.
    pub name: Option<String>,
    /// Bytes of FCS at the end of each frame; the reader takes them off.
    pub fcs_bytes: u32,
    pub(super) clock: Clock,
}

/// How a file counts time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clock {
    /// `if_tsresol`: the unit is 10 to the minus this, or 2 to the minus this with the top bit set.
    pub(super) resolution: u8,
    /// `if_tsoffset`: seconds to add.
    pub(super) offset_s: i64,
}

impl Clock {
    pub(super) const MICROSECONDS: Self = Self { resolution: 6, offset_s: 0 };

    /// `units` of this clock as nanoseconds since 1970, rounded down.
    pub(super) fn nanoseconds(self, units: u64) -> i128 {
        let units = u128::from(units);
        let exponent = u32::from(self.resolution & 0x7f);
        let ns = if self.resolution & 0x80 != 0 {
            (units * 1_000_000_000) >> exponent
        } else if exponent <= 9 {
            units * 10_u128.pow(9 - exponent)
        } else {
            // A unit below 1e-47 s: 64 bits of them are less than a nanosecond.
            10_u128.checked_pow(exponent - 9).map_or(0, |divisor| units / divisor)
        };
        // Below 2^94, plus an offset below 2^93.
        i128::try_from(ns).unwrap_or(i128::MAX) + i128::from(self.offset_s) * 1_000_000_000
    }
}

/// How often something was odd, and where first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Oddity {
    /// Records that had it.
    pub count: u64,
    /// The number of the first.
    pub first_record: u64,
}

impl Oddity {
    pub(super) const fn note(&mut self, record: u64) {
        if self.count == 0 {
            self.first_record = record;
        }
        self.count += 1;
    }
}

/// What a reader tolerated in the records it yielded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tolerated {
    /// More bytes captured than the frame had: cut to the frame's length.
    pub longer_than_original: Oddity,
    /// More bytes than the snaplen that the file promises: kept.
    pub longer_than_snaplen: Oddity,
    /// A fraction of a second of a second or more: added as it is.
    pub fraction_past_second: Oddity,
    /// An FCS at the end of the frame: taken off.
    pub fcs_removed: Oddity,
    /// Fewer bytes captured than the frame had: yielded as captured.
    pub truncated: Oddity,
}

impl Tolerated {
    /// Each with what a user is told about it.
    pub const fn items(&self) -> [(&'static str, Oddity); 5] {
        [
            ("captured longer than the frame was; cut to its length", self.longer_than_original),
            (
                "longer than the snaplen that the file promises; kept whole",
                self.longer_than_snaplen,
            ),
            (
                "with a fraction of a second past the second; added as it is",
                self.fraction_past_second,
            ),
            ("with an FCS; taken off", self.fcs_removed),
            ("captured short of the frame's length; sent as captured", self.truncated),
        ]
    }
}

/// Why a capture could not be read, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The source failed.
    #[error("record {record}: cannot be read: {error}")]
    Io {
        /// The record that was to be read.
        record: u64,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// The file's head is not that of a pcap or pcapng file.
    #[error("not a pcap or pcapng file: {0}")]
    NotACapture(String),
    /// The file contradicts itself.
    #[error("record {record} (byte {at}): {damage}")]
    Damaged {
        /// The record that could not be read, from 1.
        record: u64,
        /// Where in the file the record, or the block before it that is damaged, begins.
        at: u64,
        /// What is wrong.
        damage: Damage,
    },
}

/// What is wrong with a record or block.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The file ends inside something.
    #[error("the file ends inside {what}: {have} of {want} bytes")]
    Ends {
        /// What it ends inside.
        what: &'static str,
        /// Bytes that are there.
        have: u64,
        /// Bytes that should be.
        want: u64,
    },
    /// A record longer than any.
    #[error(
        "says it holds {0} captured bytes, more than the {RECORD_BYTES_MAX} that any record has"
    )]
    RecordLength(u32),
    /// A pcapng block with a length that cannot be.
    #[error("a block of type {kind:#010x} says it is {len} bytes long, which {why}")]
    BlockLength {
        /// The block's type.
        kind: u32,
        /// Its length by its head.
        len: u32,
        /// What that contradicts.
        why: &'static str,
    },
    /// A pcapng block whose two lengths differ.
    #[error("a block is {head} bytes long by its head and {tail} by its tail")]
    BlockTail {
        /// The first.
        head: u32,
        /// The second.
        tail: u32,
    },
    /// A pcapng packet with more bytes than its block.
    #[error("says it holds {captured} captured bytes, but its block has room for {room}")]
    PastBlock {
        /// Bytes by the block's field.
        captured: u32,
        /// Bytes there are.
        room: usize,
    },
    /// A pcapng packet of an interface that is not described.
    #[error("is of interface {interface}, but its section describes {described}")]
    NoInterface {
        /// The interface by the packet's field.
        interface: u32,
        /// How many its section has described.
        described: usize,
    },
    /// A pcapng interface's options do not parse.
    #[error("the description of interface {0} has an option that runs past its end")]
    Options(usize),
    /// A pcapng section with a byte-order magic that is neither order.
    #[error("a section begins with {0:#010x} where its byte order should be")]
    ByteOrder(u32),
    /// A version that no reader knows.
    #[error("is of version {major}.{minor}, which is not known")]
    Version {
        /// Before the point.
        major: u16,
        /// After it.
        minor: u16,
    },
    /// More interfaces than a reader in constant memory keeps.
    #[error("its section describes more than {0} interfaces")]
    TooManyInterfaces(usize),
}

/// The source, with the place in it.
#[derive(Debug)]
pub(super) struct Input<R> {
    source: BufReader<R>,
    at: u64,
}

impl<R: Read> Input<R> {
    pub(super) const fn at(&self) -> u64 {
        self.at
    }

    /// Fills `out` as far as the source goes; gives the bytes that it had.
    pub(super) fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut have = 0;
        while have < out.len() {
            match self.source.read(&mut out[have..]) {
                Ok(0) => break,
                Ok(n) => have += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.at += have as u64;
        Ok(have)
    }

    /// Replaces `out` by the next `len` bytes, or by as many as there are. Memory grows with what
    /// is there and not with a length that lies.
    pub(super) fn read_into(&mut self, out: &mut Vec<u8>, len: u32) -> io::Result<()> {
        out.clear();
        let have = self.source.by_ref().take(u64::from(len)).read_to_end(out)?;
        self.at += have as u64;
        Ok(())
    }

    /// Passes over `len` bytes, or as many as there are; gives how many.
    pub(super) fn skip(&mut self, len: u64) -> io::Result<u64> {
        let have = io::copy(&mut self.source.by_ref().take(len), &mut io::sink())?;
        self.at += have;
        Ok(have)
    }
}

/// What stops a format's reader; the capture's reader adds the record and the place.
#[derive(Debug)]
pub(super) enum Stop {
    Io(io::Error),
    Damage(u64, Damage),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

#[derive(Debug)]
enum Format {
    Pcap(pcap::Reader),
    Pcapng(pcapng::Reader),
}

/// A capture being read.
#[derive(Debug)]
pub struct CaptureReader<R> {
    input: Input<R>,
    format: Format,
    tolerated: Tolerated,
    records: u64,
    last_ns: i128,
    ended: bool,
}

impl<R: Read> CaptureReader<R> {
    /// Reads the head of the file.
    ///
    /// # Errors
    /// When it is not one of a pcap or pcapng file that can be read.
    pub fn new(source: R) -> Result<Self, CaptureError> {
        let mut input = Input { source: BufReader::with_capacity(1 << 16, source), at: 0 };
        let mut magic = [0; 4];
        let stopped = |stop| match stop {
            Stop::Io(error) => CaptureError::Io { record: 1, error },
            Stop::Damage(at, damage) => CaptureError::Damaged { record: 1, at, damage },
        };
        let have = input.read(&mut magic).map_err(|error| stopped(error.into()))?;
        if have < magic.len() {
            let text = if have == 0 {
                "it is empty".to_owned()
            } else {
                format!("it ends after {have} bytes")
            };
            return Err(CaptureError::NotACapture(text));
        }
        let format = if magic == pcapng::SECTION_HEADER {
            Format::Pcapng(pcapng::Reader::new(&mut input).map_err(stopped)?)
        } else if let Some(flavour) = pcap::Flavour::of(magic) {
            Format::Pcap(pcap::Reader::new(&mut input, flavour).map_err(stopped)?)
        } else {
            return Err(CaptureError::NotACapture(what_begins_with(magic)));
        };
        Ok(Self {
            input,
            format,
            tolerated: Tolerated::default(),
            records: 0,
            last_ns: 0,
            ended: false,
        })
    }

    /// Reads the next record into `record`; false at the end of the file. After an error there is
    /// nothing more.
    ///
    /// # Errors
    /// When the source fails or the file is damaged; every record before the damage has been read.
    pub fn read(&mut self, record: &mut Record) -> Result<bool, CaptureError> {
        if self.ended {
            return Ok(false);
        }
        let number = self.records + 1;
        record.index = number;
        record.timestamp_ns = self.last_ns;
        let read = match &mut self.format {
            Format::Pcap(reader) => reader.read(&mut self.input, record, &mut self.tolerated),
            Format::Pcapng(reader) => reader.read(&mut self.input, record),
        };
        let more = read.map_err(|stop| {
            self.ended = true;
            match stop {
                Stop::Io(error) => CaptureError::Io { record: number, error },
                Stop::Damage(at, damage) => CaptureError::Damaged { record: number, at, damage },
            }
        })?;
        if !more {
            self.ended = true;
            return Ok(false);
        }
        self.records = number;
        self.last_ns = record.timestamp_ns;
        self.settle_lengths(record);
        Ok(true)
    }

    /// Applies what is tolerated about lengths, the same for both formats.
    fn settle_lengths(&mut self, record: &mut Record) {
        let Some(interface) = self.interface(record.interface) else {
            return;
        };
        let (snaplen, fcs) = (interface.snaplen_bytes as usize, interface.fcs_bytes);
        if snaplen > 0 && record.bytes.len() > snaplen {
            self.tolerated.longer_than_snaplen.note(record.index);
        }
        if record.bytes.len() > record.len_original as usize {
            self.tolerated.longer_than_original.note(record.index);
            record.bytes.truncate(record.len_original as usize);
        }
        if fcs > 0 {
            self.tolerated.fcs_removed.note(record.index);
            record.len_original = record.len_original.saturating_sub(fcs);
            record.bytes.truncate(record.len_original as usize);
        }
        if record.is_truncated() {
            self.tolerated.truncated.note(record.index);
        }
    }

    /// Interface number `index` of the section that the last record is in.
    pub fn interface(&self, index: u32) -> Option<&Interface> {
        self.interfaces().get(usize::try_from(index).ok()?)
    }

    /// The interfaces of the section that the last record is in, as far as they are described.
    pub fn interfaces(&self) -> &[Interface] {
        match &self.format {
            Format::Pcap(reader) => std::slice::from_ref(reader.interface()),
            Format::Pcapng(reader) => reader.interfaces(),
        }
    }

    /// Records read.
    pub const fn records(&self) -> u64 {
        self.records
    }

    /// What was tolerated in them.
    pub const fn tolerated(&self) -> &Tolerated {
        &self.tolerated
    }
}

/// What a file that is no capture of ours is, when its first bytes say so.
fn what_begins_with(magic: [u8; 4]) -> String {
    let known = match magic {
        [0x1f, 0x8b, ..] => Some("gzip data; unpack it: gunzip -c FILE | tailwater replay -"),
        [0x28, 0xb5, 0x2f, 0xfd] => {
            Some("zstd data; unpack it: zstd -dc FILE | tailwater replay -")
        }
        [0x04, 0x22, 0x4d, 0x18] => Some("lz4 data; unpack it: lz4 -dc FILE | tailwater replay -"),
        [0xfd, b'7', b'z', b'X'] => Some("xz data; unpack it: xz -dc FILE | tailwater replay -"),
        [b's', b'n', b'o', b'o'] => Some("a snoop capture; convert it: editcap FILE out.pcapng"),
        [b'b', b't', b's', b'n'] => Some("a btsnoop capture, which holds no Ethernet frames"),
        [b'G', b'M', b'B', b'U'] | [b'R', b'T', b'S', b'S'] => {
            Some("a Network Monitor capture; convert it: editcap FILE out.pcapng")
        }
        [0x1c, 0x00, 0x01, 0xab | 0xac] | [0xab | 0xac, 0x01, 0x00, 0x1c] => {
            Some("an IxVeriWave or Ixia lcap capture; convert it: editcap FILE out.pcapng")
        }
        [0xa1, 0xb2, 0x23, 0x4d] | [0x4d, 0x23, 0xb2, 0xa1] => Some("a Navtel variant of pcap"),
        _ => None,
    };
    let [a, b, c, d] = magic;
    match known {
        Some(text) => format!("it begins as {text}"),
        None => format!("it begins with {a:02x} {b:02x} {c:02x} {d:02x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_of_every_resolution() {
        let clock = |resolution, offset_s| Clock { resolution, offset_s };
        assert_eq!(clock(6, 0).nanoseconds(1_500_001), 1_500_001_000);
        assert_eq!(clock(9, -1).nanoseconds(1_500_001), 1_500_001 - 1_000_000_000);
        assert_eq!(clock(0, 0).nanoseconds(2), 2_000_000_000);
        assert_eq!(clock(12, 0).nanoseconds(1_999), 1);
        assert_eq!(clock(127, 0).nanoseconds(u64::MAX), 0);
        assert_eq!(clock(0x80 | 10, 0).nanoseconds(1_024 + 512), 1_500_000_000);
        assert_eq!(clock(0xff, 0).nanoseconds(u64::MAX), 0);
        assert_eq!(clock(0, i64::MAX).nanoseconds(u64::MAX) % 1_000_000_000, 0);
        assert_eq!(clock(0, i64::MIN).nanoseconds(0), i128::from(i64::MIN) * 1_000_000_000);
    }

    #[test]
    fn what_is_no_capture_is_named() {
        for (bytes, says) in [
            (&b""[..], "it is empty"),
            (b"\x0a\x0d", "ends after 2 bytes"),
            (b"\x1f\x8b\x08\x00", "gunzip"),
            (b"GIF89a", "it begins with 47 49 46 38"),
        ] {
            let error = CaptureReader::new(bytes).expect_err("no capture").to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
