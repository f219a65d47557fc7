//! The IPv4 header (RFC 791) with options; DSCP and ECN by RFC 2474 and RFC 3168.

use std::net::Ipv4Addr;

use super::checksum::{self, Sum};
use super::{WireError, need, read_array, read_u16, write_array};

const NAME: &str = "IPv4";

/// Bytes of a header without options.
pub const HEADER_BYTES: usize = 20;

/// Bytes of the longest header.
pub const HEADER_BYTES_MAX: usize = 60;

/// A view of a packet from its IPv4 header on.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4Packet<T>(T);

impl<T: AsRef<[u8]>> Ipv4Packet<T> {
    /// A view of `buffer`, which holds the whole packet and may go on behind it (padding).
    ///
    /// # Errors
    /// Another version, a header length below 20, or lengths past the buffer's end.
    pub fn new_checked(buffer: T) -> Result<Self, WireError> {
        let have = buffer.as_ref().len();
        Self::new_checked_prefix(buffer, have)
    }

    /// A view of `buffer`, the leading part of `available_bytes` that hold the packet.
    ///
    /// # Errors
    /// As [`new_checked`](Self::new_checked), with the total length checked against
    /// `available_bytes`; the header itself is in `buffer`.
    pub fn new_checked_prefix(buffer: T, available_bytes: usize) -> Result<Self, WireError> {
        let bytes = buffer.as_ref();
        need(NAME, HEADER_BYTES, bytes.len())?;
        if bytes[0] >> 4 != 4 {
            return Err(WireError::Malformed { header: NAME, what: "the version is not 4" });
        }
        let header_bytes = usize::from(bytes[0] & 0x0f) * 4;
        if header_bytes < HEADER_BYTES {
            return Err(WireError::Malformed { header: NAME, what: "header length below 20" });
        }
        need(NAME, header_bytes, bytes.len())?;
        let total = usize::from(read_u16(bytes, 2));
        if total < header_bytes {
            return Err(WireError::Malformed {
                header: NAME,
                what: "total length below the header's",
            });
        }
        need(NAME, total, available_bytes)?;
        Ok(Self(buffer))
    }

    /// Bytes of the header, options included.
    pub fn header_bytes(&self) -> usize {
        usize::from(self.0.as_ref()[0] & 0x0f) * 4
    }

    /// The differentiated services code point, 0 to 63.
    pub fn dscp(&self) -> u8 {
        self.0.as_ref()[1] >> 2
    }

    /// The explicit congestion notification bits, 0 to 3.
    pub fn ecn(&self) -> u8 {
        self.0.as_ref()[1] & 3
    }

    /// Bytes of the packet, header included.
    pub fn total_bytes(&self) -> u16 {
        read_u16(self.0.as_ref(), 2)
    }

    /// Names the fragments of one packet.
    pub fn identification(&self) -> u16 {
        read_u16(self.0.as_ref(), 4)
    }

    /// The "don't fragment" flag.
    pub fn dont_fragment(&self) -> bool {
        self.0.as_ref()[6] & 0x40 != 0
    }

    /// The "more fragments" flag.
    pub fn more_fragments(&self) -> bool {
        self.0.as_ref()[6] & 0x20 != 0
    }

    /// Where this fragment's payload lies in the packet's, in bytes.
    pub fn fragment_offset_bytes(&self) -> u16 {
        (read_u16(self.0.as_ref(), 6) & 0x1fff) << 3
    }

    /// True for any part of a fragmented packet.
    pub fn is_fragment(&self) -> bool {
        read_u16(self.0.as_ref(), 6) & 0x3fff != 0
    }

    /// Hops that are left.
    pub fn ttl(&self) -> u8 {
        self.0.as_ref()[8]
    }

    /// What the payload is.
    pub fn protocol(&self) -> u8 {
        self.0.as_ref()[9]
    }

    /// The header checksum as it stands.
    pub fn header_checksum(&self) -> u16 {
        read_u16(self.0.as_ref(), 10)
    }

    /// True when the header checksum is right.
    pub fn is_checksum_valid(&self) -> bool {
        let mut sum = Sum::new();
        sum.add_bytes(self.header());
        sum.is_valid()
    }

    /// The source address.
    pub fn source(&self) -> Ipv4Addr {
        read_array(self.0.as_ref(), 12).into()
    }

    /// The destination address.
    pub fn destination(&self) -> Ipv4Addr {
        read_array(self.0.as_ref(), 16).into()
    }

    /// The options, padding included, as they stand.
    pub fn option_bytes(&self) -> &[u8] {
        self.header().get(HEADER_BYTES..).unwrap_or_default()
    }

    /// The options one by one, up to the end-of-list option.
    pub fn options(&self) -> Ipv4Options<'_> {
        Ipv4Options(self.option_bytes())
    }

    fn header(&self) -> &[u8] {
        let bytes = self.0.as_ref();
        &bytes[..self.header_bytes().min(bytes.len())]
    }

    /// The payload, or as much of it as the buffer shows.
    pub fn payload(&self) -> &[u8] {
        let bytes = self.0.as_ref();
        let end = usize::from(self.total_bytes()).min(bytes.len());
        bytes.get(self.header_bytes()..end).unwrap_or_default()
    }

    /// Bytes of the payload, whether the buffer shows them or not.
    pub fn payload_bytes(&self) -> usize {
        usize::from(self.total_bytes()).saturating_sub(self.header_bytes())
    }

    /// The buffer.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ipv4Packet<T> {
    /// Sets DSCP (0 to 63) and ECN (0 to 3).
    pub fn set_dscp_ecn(&mut self, dscp: u8, ecn: u8) {
        self.0.as_mut()[1] = (dscp << 2) | (ecn & 3);
    }

    /// Sets the number that names the fragments of one packet.
    pub fn set_identification(&mut self, identification: u16) {
        write_array(self.0.as_mut(), 4, identification.to_be_bytes());
    }

    /// Sets the hops that are left.
    pub fn set_ttl(&mut self, ttl: u8) {
        self.0.as_mut()[8] = ttl;
    }

    /// Sets the header checksum to `checksum`.
    pub fn set_header_checksum(&mut self, checksum: u16) {
        write_array(self.0.as_mut(), 10, checksum.to_be_bytes());
    }

    /// Computes the header checksum and sets it.
    pub fn fill_checksum(&mut self) {
        self.set_header_checksum(0);
        let checksum = checksum::checksum(self.header());
        self.set_header_checksum(checksum);
    }

    /// Sets the source address.
    pub fn set_source(&mut self, source: Ipv4Addr) {
        write_array(self.0.as_mut(), 12, source.octets());
    }

    /// Sets the destination address.
    pub fn set_destination(&mut self, destination: Ipv4Addr) {
        write_array(self.0.as_mut(), 16, destination.octets());
    }

    /// The payload, or as much of it as the buffer shows, to write.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let from = self.header_bytes();
        let end = usize::from(self.total_bytes()).min(self.0.as_ref().len());
        self.0.as_mut().get_mut(from..end).unwrap_or_default()
    }
}

/// One option of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Option<'a> {
    /// The option's type, copied flag and class included.
    pub kind: u8,
    /// Its data, behind type and length.
    pub data: &'a [u8],
}

/// The options of a header, without no-operations; ends at the end-of-list option.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4Options<'a>(&'a [u8]);

impl<'a> Iterator for Ipv4Options<'a> {
    type Item = Result<Ipv4Option<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match *self.0 {
                [] | [0, ..] => return None,
                [1, ref rest @ ..] => self.0 = rest,
                [kind, len_bytes, ..]
                    if len_bytes >= 2 && usize::from(len_bytes) <= self.0.len() =>
                {
                    let (option, rest) = self.0.split_at(usize::from(len_bytes));
                    self.0 = rest;
                    return Some(Ok(Ipv4Option { kind, data: &option[2..] }));
                }
                _ => {
                    self.0 = &[];
                    let what = "an option's length is wrong";
                    return Some(Err(WireError::Malformed { header: NAME, what }));
                }
            }
        }
    }
}

/// What a header without options says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Header {
    /// The source address.
    pub source: Ipv4Addr,
    /// The destination address.
    pub destination: Ipv4Addr,
    /// What the payload is.
    pub protocol: u8,
    /// Hops that are left.
    pub ttl: u8,
    /// The differentiated services code point, 0 to 63.
    pub dscp: u8,
    /// The explicit congestion notification bits, 0 to 3.
    pub ecn: u8,
    /// Names the fragments of one packet.
    pub identification: u16,
    /// The "don't fragment" flag.
    pub dont_fragment: bool,
    /// Bytes of the payload, at most 65,535 less the header's.
    pub payload_bytes: u16,
}

impl Ipv4Header {
    /// Reads the header; options and fragment position are not in it.
    pub fn read<T: AsRef<[u8]>>(packet: &Ipv4Packet<T>) -> Self {
        Self {
            source: packet.source(),
            destination: packet.destination(),
            protocol: packet.protocol(),
            ttl: packet.ttl(),
            dscp: packet.dscp(),
            ecn: packet.ecn(),
            identification: packet.identification(),
            dont_fragment: packet.dont_fragment(),
            payload_bytes: u16::try_from(packet.payload_bytes()).unwrap_or(u16::MAX),
        }
    }

    /// Writes the header, with its checksum, at the start of `buffer`.
    ///
    /// # Errors
    /// As [`emit_with_options`](Self::emit_with_options).
    pub fn emit(&self, buffer: &mut [u8]) -> Result<(), WireError> {
        self.emit_with_options(&[], buffer).map(|_| ())
    }

    /// Writes the header with `options`, padded with end-of-list options to a multiple of four
    /// bytes, and gives the bytes of the header.
    ///
    /// # Errors
    /// The buffer is shorter than the header, options above 40 bytes, or a total length above
    /// 65,535.
    pub fn emit_with_options(&self, options: &[u8], buffer: &mut [u8]) -> Result<usize, WireError> {
        let header_bytes = HEADER_BYTES + options.len().next_multiple_of(4);
        need(NAME, header_bytes, buffer.len())?;
        let words = u8::try_from(header_bytes / 4).ok().filter(|words| *words <= 15);
        let Some(words) = words else {
            return Err(WireError::Malformed { header: NAME, what: "options above 40 bytes" });
        };
        let total = self.payload_bytes.checked_add(u16::from(words) * 4);
        let Some(total) = total else {
            return Err(WireError::Malformed { header: NAME, what: "longer than 65,535 bytes" });
        };
        buffer[..header_bytes].fill(0);
        buffer[0] = 0x40 | words;
        write_array(buffer, 2, total.to_be_bytes());
        buffer[6] = u8::from(self.dont_fragment) << 6;
        buffer[9] = self.protocol;
        buffer[HEADER_BYTES..HEADER_BYTES + options.len()].copy_from_slice(options);
        let mut packet = Ipv4Packet(buffer);
        packet.set_dscp_ecn(self.dscp, self.ecn);
        packet.set_identification(self.identification);
        packet.set_ttl(self.ttl);
        packet.set_source(self.source);
        packet.set_destination(self.destination);
        packet.fill_checksum();
        Ok(header_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // DSCP 46, ECN 1, id 0x1234, DF, TTL 64, UDP, 10.0.0.1 to 10.0.0.2, router alert (RFC 2113).
    const PACKET: [u8; 28] = [
        0x46, 0xb9, 0x00, 0x1c, 0x12, 0x34, 0x40, 0x00, 0x40, 0x11, 0x7e, 0xdd, 10, 0, 0, 1, 10, 0,
        0, 2, 0x94, 0x04, 0x00, 0x00, 0xca, 0xfe, 0xba, 0xbe,
    ];

    fn header() -> Ipv4Header {
        Ipv4Header {
            source: Ipv4Addr::new(10, 0, 0, 1),
            destination: Ipv4Addr::new(10, 0, 0, 2),
            protocol: 17,
            ttl: 64,
            dscp: 46,
            ecn: 1,
            identification: 0x1234,
            dont_fragment: true,
            payload_bytes: 4,
        }
    }

    #[test]
    fn reads_literal_bytes() {
        let packet = Ipv4Packet::new_checked(&PACKET[..]).expect("a packet");
        assert_eq!(Ipv4Header::read(&packet), header());
        assert_eq!((packet.header_bytes(), packet.total_bytes()), (24, 28));
        assert!(packet.is_checksum_valid());
        assert!(!packet.is_fragment() && !packet.more_fragments());
        let options: Vec<_> = packet.options().collect();
        assert_eq!(options, [Ok(Ipv4Option { kind: 0x94, data: &[0, 0] })]);
        assert_eq!(packet.payload(), [0xca, 0xfe, 0xba, 0xbe]);
    }

    #[test]
    fn builds_over_dirt() {
        let mut buffer = [0xa5; 28];
        let took = header().emit_with_options(&[0x94, 0x04, 0, 0], &mut buffer).expect("room");
        buffer[took..].copy_from_slice(&PACKET[24..]);
        assert_eq!(buffer, PACKET);
        assert!(header().emit_with_options(&[1; 41], &mut [0; 80]).is_err());
        assert!(header().emit(&mut [0; 19]).is_err());
        let long = Ipv4Header { payload_bytes: 65_516, ..header() };
        assert!(long.emit(&mut [0; 20]).is_err());
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        for (at, value) in [(0, 0x44), (0, 0x65), (0, 0x4f), (3, 0x17), (3, 0x1d)] {
            let mut bytes = PACKET;
            bytes[at] = value;
            assert!(Ipv4Packet::new_checked(&bytes[..]).is_err(), "{at} {value:#x}");
        }
        // A packet that goes on behind the buffer shows the part that is there.
        let mut bytes = PACKET;
        bytes[2..4].copy_from_slice(&1_500_u16.to_be_bytes());
        let packet = Ipv4Packet::new_checked_prefix(&bytes[..], 1_500).expect("a prefix");
        assert_eq!((packet.payload().len(), packet.payload_bytes()), (4, 1_476));
        assert!(Ipv4Packet::new_checked_prefix(&bytes[..], 1_499).is_err());
    }

    #[test]
    fn a_fragment_is_recognised() {
        let mut bytes = PACKET;
        bytes[6..8].copy_from_slice(&[0x20, 0xb9]);
        let packet = Ipv4Packet::new_checked(&bytes[..]).expect("a packet");
        assert!(packet.is_fragment() && packet.more_fragments() && !packet.dont_fragment());
        assert_eq!(packet.fragment_offset_bytes(), 1_480);
    }

    #[test]
    fn broken_options_end_the_walk_with_an_error() {
        for options in [[7_u8, 0, 0, 0], [7, 1, 0, 0], [7, 5, 0, 0], [1, 1, 1, 7]] {
            let got: Vec<_> = Ipv4Options(&options).collect();
            assert_eq!(got.len(), 1, "{options:?}");
            assert!(got[0].is_err());
        }
        assert_eq!(Ipv4Options(&[1, 1, 0, 9]).count(), 0);
    }

    proptest! {
        #[test]
        fn no_byte_string_panics_and_etherparse_agrees(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..80),
            plausible: bool,
        ) {
            if plausible && bytes.len() >= 20 {
                bytes[0] = 0x40 | (bytes[0] & 7);
                bytes[2] = 0;
                bytes[3] &= 0x5f;
            }
            let theirs = etherparse::Ipv4HeaderSlice::from_slice(&bytes);
            let Ok(packet) = Ipv4Packet::new_checked(&bytes[..]) else { return Ok(()) };
            let theirs = theirs.expect("ours is the stricter one");
            prop_assert_eq!(packet.source(), theirs.source_addr());
            prop_assert_eq!(packet.destination(), theirs.destination_addr());
            prop_assert_eq!(packet.dscp(), theirs.dcp().value());
            prop_assert_eq!(packet.ecn(), theirs.ecn().value());
            prop_assert_eq!(packet.protocol(), theirs.protocol().0);
            prop_assert_eq!(packet.ttl(), theirs.ttl());
            prop_assert_eq!(packet.is_fragment(), theirs.is_fragmenting_payload());
            prop_assert_eq!(packet.option_bytes(), theirs.options());
            prop_assert_eq!(packet.identification(), theirs.identification());
            let right = theirs.to_header().calc_header_checksum();
            if packet.header_checksum() != 0xffff && right != 0xffff && bytes[6] & 0x80 == 0 {
                prop_assert_eq!(packet.is_checksum_valid(), packet.header_checksum() == right);
            }
            let _ = (packet.options().count(), packet.payload().len());
        }

        #[test]
        fn what_is_built_reads_back(
            source: [u8; 4], destination: [u8; 4], protocol: u8, ttl: u8, dscp in 0_u8..64,
            ecn in 0_u8..4, identification: u16, dont_fragment: bool, payload_bytes in 0_u16..100,
        ) {
            let header = Ipv4Header {
                source: source.into(), destination: destination.into(), protocol, ttl, dscp, ecn,
                identification, dont_fragment, payload_bytes,
            };
            let mut buffer = [0xa5; 120];
            header.emit(&mut buffer).expect("room");
            let packet = Ipv4Packet::new_checked(&buffer[..]).expect("our own");
            prop_assert_eq!(Ipv4Header::read(&packet), header);
            prop_assert!(packet.is_checksum_valid());
            let theirs = etherparse::Ipv4Header::from_slice(&buffer).expect("valid").0;
            prop_assert_eq!(theirs.header_checksum, theirs.calc_header_checksum());
        }
    }
}
