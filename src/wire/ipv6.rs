//! The IPv6 header (RFC 8200) and the walk over its extension headers.

use std::net::Ipv6Addr;

use super::{WireError, need, read_array, read_u16, write_array};

const NAME: &str = "IPv6";

/// Bytes of the fixed header.
pub const HEADER_BYTES: usize = 40;

/// Numbers of the extension headers that the walk steps over (IANA).
pub mod extension {
    /// Hop-by-hop options (RFC 8200 section 4.3).
    pub const HOP_BY_HOP: u8 = 0;
    /// Routing (RFC 8200 section 4.4).
    pub const ROUTING: u8 = 43;
    /// Fragment (RFC 8200 section 4.5).
    pub const FRAGMENT: u8 = 44;
    /// Authentication (RFC 4302), whose length counts other units.
    pub const AUTHENTICATION: u8 = 51;
    /// Destination options (RFC 8200 section 4.6).
    pub const DESTINATION: u8 = 60;
    /// Mobility (RFC 6275).
    pub const MOBILITY: u8 = 135;
    /// Host identity protocol (RFC 7401).
    pub const HIP: u8 = 139;
    /// Shim6 (RFC 5533).
    pub const SHIM6: u8 = 140;
}

/// A view of a packet from its IPv6 header on.
#[derive(Clone, Copy, Debug)]
pub struct Ipv6Packet<T>(T);

impl<T: AsRef<[u8]>> Ipv6Packet<T> {
    /// A view of `buffer`, which holds the whole packet and may go on behind it (padding).
    ///
    /// # Errors
    /// Another version, or lengths past the buffer's end.
    pub fn new_checked(buffer: T) -> Result<Self, WireError> {
        let have = buffer.as_ref().len();
        Self::new_checked_prefix(buffer, have)
    }

    /// A view of `buffer`, the leading part of `available_bytes` that hold the packet.
    ///
    /// # Errors
    /// As [`new_checked`](Self::new_checked), with the payload length checked against
    /// `available_bytes`; the fixed header itself is in `buffer`.
    pub fn new_checked_prefix(buffer: T, available_bytes: usize) -> Result<Self, WireError> {
        let bytes = buffer.as_ref();
        need(NAME, HEADER_BYTES, bytes.len())?;
        if bytes[0] >> 4 != 6 {
            return Err(WireError::Malformed { header: NAME, what: "the version is not 6" });
        }
        need(NAME, HEADER_BYTES + usize::from(read_u16(bytes, 4)), available_bytes)?;
        Ok(Self(buffer))
    }

    fn traffic_class(&self) -> u8 {
        let bytes = self.0.as_ref();
        (bytes[0] << 4) | (bytes[1] >> 4)
    }

    /// The differentiated services code point, 0 to 63.
    pub fn dscp(&self) -> u8 {
        self.traffic_class() >> 2
    }

    /// The explicit congestion notification bits, 0 to 3.
    pub fn ecn(&self) -> u8 {
        self.traffic_class() & 3
    }

    /// The flow label, 20 bits.
    pub fn flow_label(&self) -> u32 {
        let [_, b, c, d] = read_array(self.0.as_ref(), 0);
        u32::from_be_bytes([0, b & 0x0f, c, d])
    }

    /// Bytes behind the fixed header.
    pub fn payload_bytes(&self) -> u16 {
        read_u16(self.0.as_ref(), 4)
    }

    /// What follows the fixed header: an extension header or the upper layer.
    pub fn next_header(&self) -> u8 {
        self.0.as_ref()[6]
    }

    /// Hops that are left.
    pub fn hop_limit(&self) -> u8 {
        self.0.as_ref()[7]
    }

    /// The source address.
    pub fn source(&self) -> Ipv6Addr {
        read_array::<16>(self.0.as_ref(), 8).into()
    }

    /// The destination address.
    pub fn destination(&self) -> Ipv6Addr {
        read_array::<16>(self.0.as_ref(), 24).into()
    }

    /// What is behind the fixed header, or as much of it as the buffer shows.
    pub fn payload(&self) -> &[u8] {
        let bytes = self.0.as_ref();
        let end = HEADER_BYTES + usize::from(self.payload_bytes());
        &bytes[HEADER_BYTES..end.min(bytes.len())]
    }

    /// The extension headers, in order, as far as they go or the buffer shows them.
    pub fn extensions(&self) -> Extensions<'_> {
        Extensions { kind: self.next_header(), offset: HEADER_BYTES, rest: self.payload() }
    }

    /// Walks the extension headers to what they carry.
    ///
    /// # Errors
    /// A header that ends behind the payload or the buffer.
    pub fn upper_layer(&self) -> Result<UpperLayer, WireError> {
        let mut fragment = None;
        let mut walk = self.extensions();
        for header in walk.by_ref() {
            let header = header?;
            if header.kind == extension::FRAGMENT {
                let position = read_u16(header.bytes, 2);
                fragment = Some(Fragment {
                    offset_bytes: position & !7,
                    more: position & 1 == 1,
                    identification: u32::from_be_bytes(read_array(header.bytes, 4)),
                });
            }
        }
        Ok(UpperLayer { protocol: walk.kind, offset: walk.offset, fragment })
    }

    /// The buffer.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ipv6Packet<T> {
    /// Sets DSCP (0 to 63) and ECN (0 to 3).
    pub fn set_dscp_ecn(&mut self, dscp: u8, ecn: u8) {
        let class = (dscp << 2) | (ecn & 3);
        let bytes = self.0.as_mut();
        bytes[0] = 0x60 | (class >> 4);
        bytes[1] = (class << 4) | (bytes[1] & 0x0f);
    }

    /// Sets the flow label; bits above the twentieth are cut off.
    pub fn set_flow_label(&mut self, label: u32) {
        let [_, b, c, d] = label.to_be_bytes();
        let bytes = self.0.as_mut();
        bytes[1] = (bytes[1] & 0xf0) | (b & 0x0f);
        write_array(bytes, 2, [c, d]);
    }

    /// Sets the hops that are left.
    pub fn set_hop_limit(&mut self, hop_limit: u8) {
        self.0.as_mut()[7] = hop_limit;
    }

    /// Sets the source address.
    pub fn set_source(&mut self, source: Ipv6Addr) {
        write_array(self.0.as_mut(), 8, source.octets());
    }

    /// Sets the destination address.
    pub fn set_destination(&mut self, destination: Ipv6Addr) {
        write_array(self.0.as_mut(), 24, destination.octets());
    }

    /// What is behind the fixed header, or as much of it as the buffer shows, to write.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let end = HEADER_BYTES + usize::from(self.payload_bytes());
        let end = end.min(self.0.as_ref().len());
        &mut self.0.as_mut()[HEADER_BYTES..end]
    }
}

/// One extension header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtensionHeader<'a> {
    /// Which one, as the header before it says: see [`extension`].
    pub kind: u8,
    /// Where it begins, in bytes from the fixed header's start.
    pub offset: usize,
    /// All of it, a multiple of four bytes and at least eight.
    pub bytes: &'a [u8],
}

/// The walk over extension headers. It stops at the upper layer, and behind a fragment header that
/// is not the first of its packet, since what follows is the middle of something.
#[derive(Clone, Copy, Debug)]
pub struct Extensions<'a> {
    kind: u8,
    offset: usize,
    rest: &'a [u8],
}

impl<'a> Iterator for Extensions<'a> {
    type Item = Result<ExtensionHeader<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        let kind = self.kind;
        if !matches!(
            kind,
            extension::HOP_BY_HOP
                | extension::ROUTING
                | extension::FRAGMENT
                | extension::AUTHENTICATION
                | extension::DESTINATION
                | extension::MOBILITY
                | extension::HIP
                | extension::SHIM6
        ) {
            return None;
        }
        let len = match (self.rest, kind) {
            ([_, _, ..], extension::FRAGMENT) => 8,
            // Counted in units of 4 bytes, less 2; RFC 4302 section 2.2.
            ([_, len, ..], extension::AUTHENTICATION) => (usize::from(*len) + 2) * 4,
            ([_, len, ..], _) => (usize::from(*len) + 1) * 8,
            _ => 8,
        };
        let Some((bytes, rest)) = self.rest.split_at_checked(len.max(8)) else {
            let have_bytes = self.rest.len();
            // The walk ends here: 59 is "no next header".
            *self = Self { kind: 59, offset: self.offset + have_bytes, rest: &[] };
            let header = "IPv6 extension";
            return Some(Err(WireError::Truncated { header, need_bytes: len.max(8), have_bytes }));
        };
        let header = ExtensionHeader { kind, offset: self.offset, bytes };
        let later_fragment = kind == extension::FRAGMENT && read_u16(bytes, 2) & !7 != 0;
        *self = Self {
            kind: if later_fragment { 59 } else { bytes[0] },
            offset: self.offset + bytes.len(),
            rest,
        };
        Some(Ok(header))
    }
}

/// Where a fragment lies in its packet (RFC 8200 section 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// The position of its first byte, a multiple of 8.
    pub offset_bytes: u16,
    /// Whether more fragments follow.
    pub more: bool,
    /// Names the fragments of one packet.
    pub identification: u32,
}

/// What is behind all extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpperLayer {
    /// What it is; 59 is nothing, which a later fragment is taken for.
    pub protocol: u8,
    /// Where it begins, in bytes from the fixed header's start.
    pub offset: usize,
    /// The fragment header, when there is one.
    pub fragment: Option<Fragment>,
}

/// What a header without extensions says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Header {
    /// The source address.
    pub source: Ipv6Addr,
    /// The destination address.
    pub destination: Ipv6Addr,
    /// What follows.
    pub next_header: u8,
    /// Hops that are left.
    pub hop_limit: u8,
    /// The differentiated services code point, 0 to 63.
    pub dscp: u8,
    /// The explicit congestion notification bits, 0 to 3.
    pub ecn: u8,
    /// The flow label, 20 bits.
    pub flow_label: u32,
    /// Bytes behind the fixed header.
    pub payload_bytes: u16,
}

impl Ipv6Header {
    /// Reads the fixed header.
    pub fn read<T: AsRef<[u8]>>(packet: &Ipv6Packet<T>) -> Self {
        Self {
            source: packet.source(),
            destination: packet.destination(),
            next_header: packet.next_header(),
            hop_limit: packet.hop_limit(),
            dscp: packet.dscp(),
            ecn: packet.ecn(),
            flow_label: packet.flow_label(),
            payload_bytes: packet.payload_bytes(),
        }
    }

    /// Writes the fixed header at the start of `buffer`.
    ///
    /// # Errors
    /// Fewer than 40 bytes.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<(), WireError> {
        need(NAME, HEADER_BYTES, buffer.len())?;
        write_array(buffer, 4, self.payload_bytes.to_be_bytes());
        buffer[6] = self.next_header;
        let mut packet = Ipv6Packet(buffer);
        packet.set_dscp_ecn(self.dscp, self.ecn);
        packet.set_flow_label(self.flow_label);
        packet.set_hop_limit(self.hop_limit);
        packet.set_source(self.source);
        packet.set_destination(self.destination);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // DSCP 46, ECN 1, label 0xabcde, UDP, hop limit 64, 2001:db8::1 to 2001:db8::2, four bytes.
    const PACKET: [u8; 44] = [
        0x6b, 0x9a, 0xbc, 0xde, 0x00, 0x04, 0x11, 0x40, 0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 1, 0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0xca, 0xfe,
        0xba, 0xbe,
    ];

    fn header() -> Ipv6Header {
        Ipv6Header {
            source: "2001:db8::1".parse().expect("an address"),
            destination: "2001:db8::2".parse().expect("an address"),
            next_header: 17,
            hop_limit: 64,
            dscp: 46,
            ecn: 1,
            flow_label: 0xabcde,
            payload_bytes: 4,
        }
    }

    fn with_extensions(first: u8, extensions: &[u8]) -> Vec<u8> {
        let mut bytes = PACKET[..40].to_vec();
        bytes[5] = u8::try_from(extensions.len()).expect("short");
        bytes[6] = first;
        bytes.extend_from_slice(extensions);
        bytes
    }

    #[test]
    fn reads_literal_bytes() {
        let packet = Ipv6Packet::new_checked(&PACKET[..]).expect("a packet");
        assert_eq!(Ipv6Header::read(&packet), header());
        assert_eq!(packet.payload(), [0xca, 0xfe, 0xba, 0xbe]);
        let upper = packet.upper_layer().expect("no extensions");
        assert_eq!(upper, UpperLayer { protocol: 17, offset: 40, fragment: None });
        assert!(Ipv6Packet::new_checked(&PACKET[..43]).is_err());
        assert!(Ipv6Packet::new_checked_prefix(&PACKET[..40], 44).is_ok());
        assert!(Ipv6Packet::new_checked(&[0x45; 60][..]).is_err());
    }

    #[test]
    fn builds_over_dirt() {
        let mut buffer = [0xa5; 44];
        header().emit(&mut buffer).expect("room");
        let mut packet = Ipv6Packet::new_checked(&mut buffer[..]).expect("our own");
        packet.payload_mut().copy_from_slice(&PACKET[40..]);
        assert_eq!(buffer, PACKET);
    }

    #[test]
    fn walks_every_kind_of_extension() {
        let bytes = with_extensions(
            extension::HOP_BY_HOP,
            &[
                &[43_u8, 0, 1, 4, 0, 0, 0, 0][..], // hop by hop, padding
                &[51, 1, 4, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8], // routing of 16 bytes
                &[60, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2], // authentication of 12 bytes
                &[44, 0, 1, 4, 0, 0, 0, 0],        // destination options
                &[58, 0, 0, 1, 0, 0, 0x12, 0x34],  // first fragment, more follow
                &[128, 0],
            ]
            .concat(),
        );
        let packet = Ipv6Packet::new_checked(&bytes[..]).expect("a packet");
        let kinds: Vec<_> = packet
            .extensions()
            .map(|header| header.map(|h| (h.kind, h.offset, h.bytes.len())).expect("whole"))
            .collect();
        assert_eq!(kinds, [(0, 40, 8), (43, 48, 16), (51, 64, 12), (60, 76, 8), (44, 84, 8)]);
        let fragment = Fragment { offset_bytes: 0, more: true, identification: 0x1234 };
        let upper = UpperLayer { protocol: 58, offset: 92, fragment: Some(fragment) };
        assert_eq!(packet.upper_layer(), Ok(upper));
    }

    #[test]
    fn a_later_fragment_has_no_upper_layer_and_a_cut_header_is_an_error() {
        let bytes = with_extensions(44, &[17, 0, 0x05, 0xa8, 0, 0, 0, 1, 1, 2, 3, 4]);
        let packet = Ipv6Packet::new_checked(&bytes[..]).expect("a packet");
        let upper = packet.upper_layer().expect("whole");
        assert_eq!((upper.protocol, upper.fragment.map(|f| f.offset_bytes)), (59, Some(1_448)));
        for cut in [&[][..], &[17], &[17, 1, 0, 0, 0, 0, 0, 0], &[17, 255, 0, 0, 0, 0, 0, 0]] {
            let bytes = with_extensions(60, cut);
            let packet = Ipv6Packet::new_checked(&bytes[..]).expect("a packet");
            assert!(packet.upper_layer().is_err(), "{cut:?}");
        }
    }

    proptest! {
        #[test]
        fn no_byte_string_panics_and_etherparse_agrees(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..120),
            first in prop::sample::select(vec![0_u8, 6, 17, 43, 44, 51, 58, 60, 135, 139, 140]),
            plausible: bool,
        ) {
            if plausible && bytes.len() >= 40 {
                bytes[0] = 0x60 | (bytes[0] & 0x0f);
                bytes[4] = 0;
                bytes[5] %= 81;
                bytes[6] = first;
                for at in (40..bytes.len()).step_by(8) {
                    bytes[at] = [0, 17, 43, 44, 51, 60][usize::from(bytes[at] % 6)];
                    if let Some(len) = bytes.get_mut(at + 1) {
                        *len &= 1;
                    }
                }
            }
            let Ok(packet) = Ipv6Packet::new_checked(&bytes[..]) else { return Ok(()) };
            let theirs = etherparse::Ipv6HeaderSlice::from_slice(&bytes).expect("40 bytes");
            prop_assert_eq!(packet.source(), theirs.source_addr());
            prop_assert_eq!(packet.destination(), theirs.destination_addr());
            prop_assert_eq!(packet.dscp(), theirs.dscp().value());
            prop_assert_eq!(packet.ecn(), theirs.ecn().value());
            prop_assert_eq!(packet.flow_label(), theirs.flow_label().value());
            prop_assert_eq!(packet.hop_limit(), theirs.hop_limit());
            let upper = packet.upper_layer();
            prop_assert!(packet.extensions().count() <= 11);
            // etherparse refuses a hop-by-hop header that is not the first, and stops at mobility,
            // HIP and Shim6.
            if let Ok((slice, protocol, rest)) = etherparse::Ipv6ExtensionsSlice::from_slice(
                etherparse::IpNumber(packet.next_header()), packet.payload())
                && let Ok(upper) = upper
                && upper.fragment.is_none()
                && !slice.is_fragmenting_payload()
                && !packet.extensions().flatten().skip(1).any(|h| h.kind == 0)
                && !packet.extensions().flatten().any(|h| h.kind >= 135)
            {
                prop_assert_eq!(upper.protocol, protocol.0);
                prop_assert_eq!(upper.offset, 40 + packet.payload().len() - rest.len());
            }
        }

        #[test]
        fn what_is_built_reads_back(
            source: [u8; 16], destination: [u8; 16], next_header: u8, hop_limit: u8,
            dscp in 0_u8..64, ecn in 0_u8..4, flow_label in 0_u32..1 << 20,
            payload_bytes in 0_u16..50,
        ) {
            let header = Ipv6Header {
                source: source.into(), destination: destination.into(), next_header, hop_limit,
                dscp, ecn, flow_label, payload_bytes,
            };
            let mut buffer = [0xa5; 90];
            header.emit(&mut buffer).expect("room");
            let packet = Ipv6Packet::new_checked(&buffer[..]).expect("our own");
            prop_assert_eq!(Ipv6Header::read(&packet), header);
        }
    }
}
