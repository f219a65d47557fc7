//! ICMP messages about a packet that went no further: whole packets of IPv6 (RFC 4443 section 3)
//! and IPv4 (RFC 792), with as much of the packet quoted as may be.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::checksum::{self, Sum};
use super::ipv4::{self, Ipv4Header};
use super::ipv6::{self, Ipv6Header};
use super::{WireError, need, protocol, read_u16, write_array};

const NAME: &str = "ICMP error";

/// Bytes of the ICMP header before the quoted packet.
pub const HEADER_BYTES: usize = 8;

/// The longest ICMPv6 error, IPv6 header included: the smallest MTU of a link (RFC 4443 section
/// 2.4 c).
pub const IPV6_BYTES_MAX: usize = 1_280;

/// The longest ICMP error, IPv4 header included (RFC 1812 section 4.3.2.3).
pub const IPV4_BYTES_MAX: usize = 576;

/// The hop limit and TTL of errors.
const HOP_LIMIT: u8 = 64;

/// The DSCP of ICMPv4 errors: internetwork control (RFC 1812 section 4.3.2.5).
const DSCP_IPV4: u8 = 48;

/// What is wrong with a packet, for either version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpError {
    /// No route to the destination.
    NoRoute,
    /// The source address is of a scope that ends before the destination (RFC 4443 section 3.1,
    /// code 2). IPv4 has no such address here: it is "net unreachable".
    BeyondScope,
    /// There is a route, but no way to the next hop.
    AddressUnreachable,
    /// The packet is longer than the next link's MTU.
    TooBig {
        /// That MTU.
        mtu_bytes: u16,
    },
    /// The hop limit was exceeded in transit.
    TimeExceeded,
    /// A field of a header is wrong (RFC 4443 section 3.4).
    ParameterProblem {
        /// 0: erroneous field, 1: unknown next header, 4: wrong upper layer of a segment (RFC
        /// 8754 section 4.3.1.2).
        code: u8,
        /// The field, in bytes from the packet's start.
        pointer: u32,
    },
}

impl IcmpError {
    /// Type, code, and the four bytes behind the checksum of the ICMPv6 message.
    pub const fn ipv6_fields(self) -> (u8, u8, u32) {
        match self {
            Self::NoRoute => (1, 0, 0),
            Self::BeyondScope => (1, 2, 0),
            Self::AddressUnreachable => (1, 3, 0),
            Self::TooBig { mtu_bytes } => (2, 0, mtu_bytes as u32),
            Self::TimeExceeded => (3, 0, 0),
            Self::ParameterProblem { code, pointer } => (4, code, pointer),
        }
    }

    /// Type, code, and the four bytes behind the checksum of the ICMPv4 message.
    pub const fn ipv4_fields(self) -> (u8, u8, u32) {
        match self {
            Self::NoRoute | Self::BeyondScope => (3, 0, 0),
            Self::AddressUnreachable => (3, 1, 0),
            // RFC 1191 section 4.
            Self::TooBig { mtu_bytes } => (3, 4, mtu_bytes as u32),
            Self::TimeExceeded => (11, 0, 0),
            Self::ParameterProblem { pointer, .. } => {
                let [.., pointer] = pointer.to_be_bytes();
                (12, 0, (pointer as u32) << 24)
            }
        }
    }

    /// Writes the ICMPv6 packet at the start of `buffer` and gives its length. `quoted` is the
    /// packet that it is about, from its IPv6 header on; what does not fit is left out.
    ///
    /// # Errors
    /// A buffer of less than the packet, of which [`IPV6_BYTES_MAX`] is the longest.
    pub fn emit_ipv6(
        self,
        source: Ipv6Addr,
        destination: Ipv6Addr,
        quoted: &[u8],
        buffer: &mut [u8],
    ) -> Result<usize, WireError> {
        const BEFORE: usize = ipv6::HEADER_BYTES + HEADER_BYTES;
        let quoted = &quoted[..quoted.len().min(IPV6_BYTES_MAX - BEFORE)];
        let len = BEFORE + quoted.len();
        need(NAME, len, buffer.len())?;
        let message_bytes = HEADER_BYTES + quoted.len();
        let header = Ipv6Header {
            source,
            destination,
            next_header: protocol::ICMPV6,
            hop_limit: HOP_LIMIT,
            dscp: 0,
            ecn: 0,
            flow_label: 0,
            payload_bytes: u16::try_from(message_bytes).unwrap_or(u16::MAX),
        };
        header.emit(buffer)?;
        let message = &mut buffer[ipv6::HEADER_BYTES..len];
        self.write(self.ipv6_fields(), quoted, message);
        let len_bytes = u32::try_from(message_bytes).unwrap_or(u32::MAX);
        let mut sum = Sum::pseudo_v6(source, destination, protocol::ICMPV6, len_bytes);
        sum.add_bytes(message);
        write_array(message, 2, sum.checksum().to_be_bytes());
        Ok(len)
    }

    /// Writes the ICMPv4 packet at the start of `buffer` and gives its length. `quoted` is the
    /// packet that it is about, from its IPv4 header on; what does not fit is left out.
    ///
    /// # Errors
    /// A buffer of less than the packet, of which [`IPV4_BYTES_MAX`] is the longest.
    pub fn emit_ipv4(
        self,
        source: Ipv4Addr,
        destination: Ipv4Addr,
        quoted: &[u8],
        buffer: &mut [u8],
    ) -> Result<usize, WireError> {
        const BEFORE: usize = ipv4::HEADER_BYTES + HEADER_BYTES;
        let quoted = &quoted[..quoted.len().min(IPV4_BYTES_MAX - BEFORE)];
        let len = BEFORE + quoted.len();
        need(NAME, len, buffer.len())?;
        let header = Ipv4Header {
            source,
            destination,
            protocol: protocol::ICMPV4,
            ttl: HOP_LIMIT,
            dscp: DSCP_IPV4,
            ecn: 0,
            identification: 0,
            dont_fragment: true,
            payload_bytes: u16::try_from(HEADER_BYTES + quoted.len()).unwrap_or(u16::MAX),
        };
        header.emit(buffer)?;
        let message = &mut buffer[ipv4::HEADER_BYTES..len];
        self.write(self.ipv4_fields(), quoted, message);
        let checksum = checksum::checksum(message);
        write_array(message, 2, checksum.to_be_bytes());
        Ok(len)
    }

    /// Writes the message with a checksum of 0.
    fn write(self, (kind, code, value): (u8, u8, u32), quoted: &[u8], message: &mut [u8]) {
        write_array(message, 0, [kind, code, 0, 0]);
        write_array(message, 4, value.to_be_bytes());
        message[HEADER_BYTES..].copy_from_slice(quoted);
    }
}

/// Whether an ICMPv6 error may be sent about a packet: its source is one node's address, its
/// destination no group's (but for "too big"), and it is no ICMPv6 error itself (RFC 4443 section 2.4
/// e). Bytes that end before the upper layer count as one.
pub fn may_answer_ipv6(packet: &[u8], error: IcmpError) -> bool {
    let Ok(view) = ipv6::Ipv6Packet::new_checked_prefix(packet, usize::MAX) else { return false };
    if view.destination().is_multicast() && !matches!(error, IcmpError::TooBig { .. }) {
        return false;
    }
    let source = view.source();
    if source.is_multicast() || source.is_unspecified() || source.is_loopback() {
        return false;
    }
    let Ok(upper) = view.upper_layer() else { return false };
    match packet.get(upper.offset) {
        Some(kind) if upper.protocol == protocol::ICMPV6 => *kind >= 128,
        _ => upper.protocol != protocol::ICMPV6,
    }
}

/// Whether an ICMP error may be sent about a packet: its source is one node's address, its
/// destination no group's, it is a first or only fragment, and no ICMP error itself (RFC 1122 section 3.2.2, RFC 1812 section 4.3.2.7).
pub fn may_answer_ipv4(packet: &[u8]) -> bool {
    let Ok(view) = ipv4::Ipv4Packet::new_checked_prefix(packet, usize::MAX) else { return false };
    let source = view.source();
    let is_one = !source.is_multicast()
        && !source.is_broadcast()
        && !source.is_loopback()
        && source.octets()[0] != 0
        && source.octets()[0] < 240;
    let to = view.destination();
    let to_group = to.is_multicast() || to.is_broadcast();
    if !is_one || to_group || read_u16(packet, 6) & 0x1fff != 0 {
        return false;
    }
    // Echo, router solicitation and advertisement, timestamp and information: no errors.
    let is_query = |kind: u8| matches!(kind, 0 | 8 | 9 | 10 | 13..=16);
    match packet.get(view.header_bytes()) {
        Some(kind) if view.protocol() == protocol::ICMPV4 => is_query(*kind),
        _ => view.protocol() != protocol::ICMPV4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EXCEEDED: IcmpError = IcmpError::TimeExceeded;

    fn v6(text: &str) -> Ipv6Addr {
        text.parse().expect("an address")
    }

    // From 2001:db8::1 to fd00::7, UDP without payload.
    fn ipv6_packet(next_header: u8, rest: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 40];
        let header = Ipv6Header {
            source: v6("2001:db8::1"),
            destination: v6("fd00::7"),
            next_header,
            hop_limit: 1,
            dscp: 0,
            ecn: 0,
            flow_label: 0,
            payload_bytes: u16::try_from(rest.len()).expect("short"),
        };
        header.emit(&mut bytes).expect("room");
        bytes.extend_from_slice(rest);
        bytes
    }

    fn ipv4_packet(protocol: u8, source: [u8; 4], rest: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 20];
        let header = Ipv4Header {
            source: source.into(),
            destination: Ipv4Addr::new(10, 9, 9, 9),
            protocol,
            ttl: 1,
            dscp: 0,
            ecn: 0,
            identification: 0,
            dont_fragment: false,
            payload_bytes: u16::try_from(rest.len()).expect("short"),
        };
        header.emit(&mut bytes).expect("room");
        bytes.extend_from_slice(rest);
        bytes
    }

    #[test]
    fn time_exceeded_in_literal_bytes() {
        let mut buffer = [0xa5; 100];
        let quoted = ipv4_packet(17, [10, 0, 0, 1], &[0, 7, 0, 9, 0, 8, 0, 0]);
        let len = IcmpError::TimeExceeded
            .emit_ipv4(
                Ipv4Addr::new(10, 0, 0, 254),
                Ipv4Addr::new(10, 0, 0, 1),
                &quoted,
                &mut buffer,
            )
            .expect("room");
        assert_eq!(
            buffer[..28],
            [
                0x45, 0xc0, 0x00, 0x38, 0, 0, 0x40, 0, 64, 1, 0x25, 0x07, 10, 0, 0, 254, 10, 0, 0,
                1, 11, 0, 0xf4, 0xe7, 0, 0, 0, 0
            ]
        );
        assert_eq!(buffer[28..len], quoted);
        let quoted = ipv6_packet(17, &[0, 7, 0, 9, 0, 8, 0, 0]);
        let len = IcmpError::TimeExceeded
            .emit_ipv6(v6("2001:db8::fe"), v6("2001:db8::1"), &quoted, &mut buffer)
            .expect("room");
        assert_eq!(buffer[..8], [0x60, 0, 0, 0, 0, 56, 58, 64]);
        assert_eq!(buffer[40..42], [3, 0]);
        assert_eq!(buffer[44..48], [0; 4]);
        assert_eq!(buffer[48..len], quoted);
    }

    #[test]
    fn types_and_codes() {
        let problem = IcmpError::ParameterProblem { code: 4, pointer: 40 };
        for (error, ipv6, ipv4) in [
            (IcmpError::NoRoute, (1, 0, 0), (3, 0, 0)),
            (IcmpError::BeyondScope, (1, 2, 0), (3, 0, 0)),
            (IcmpError::AddressUnreachable, (1, 3, 0), (3, 1, 0)),
            (IcmpError::TooBig { mtu_bytes: 1_400 }, (2, 0, 1_400), (3, 4, 1_400)),
            (IcmpError::TimeExceeded, (3, 0, 0), (11, 0, 0)),
            (problem, (4, 4, 40), (12, 0, 40 << 24)),
        ] {
            assert_eq!((error.ipv6_fields(), error.ipv4_fields()), (ipv6, ipv4));
        }
    }

    #[test]
    fn quotes_end_where_the_error_would_be_too_long() {
        let quoted = vec![0x5a; 9_000];
        let mut buffer = [0; 1_400];
        let error = IcmpError::TooBig { mtu_bytes: 1_500 };
        let len = error.emit_ipv6(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST, &quoted, &mut buffer);
        assert_eq!(len, Ok(1_280));
        let len = error.emit_ipv4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, &quoted, &mut buffer);
        assert_eq!(len, Ok(576));
        assert!(
            error
                .emit_ipv6(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST, &quoted, &mut buffer[..1_279])
                .is_err()
        );
    }

    #[test]
    fn no_error_about_an_error_nor_to_a_group() {
        assert!(may_answer_ipv6(&ipv6_packet(17, &[0; 8]), EXCEEDED));
        assert!(
            may_answer_ipv6(&ipv6_packet(58, &[128, 0, 0, 0, 0, 0, 0, 0]), EXCEEDED),
            "an echo request"
        );
        assert!(!may_answer_ipv6(&ipv6_packet(58, &[1, 0, 0, 0, 0, 0, 0, 0]), EXCEEDED));
        assert!(!may_answer_ipv6(&ipv6_packet(58, &[]), EXCEEDED), "cut before its type");
        // Destination options before the error hide nothing.
        let options = [58, 0, 1, 4, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0];
        assert!(!may_answer_ipv6(&ipv6_packet(60, &options), EXCEEDED));
        for source in ["::", "ff02::1", "::1"] {
            let mut bytes = ipv6_packet(17, &[0; 8]);
            bytes[8..24].copy_from_slice(&v6(source).octets());
            assert!(!may_answer_ipv6(&bytes, EXCEEDED), "{source}");
        }
        let mut to_group = ipv6_packet(17, &[0; 8]);
        to_group[24..40].copy_from_slice(&v6("ff05::2").octets());
        assert!(!may_answer_ipv6(&to_group, EXCEEDED));
        assert!(may_answer_ipv6(&to_group, IcmpError::TooBig { mtu_bytes: 1_280 }));
        assert!(may_answer_ipv4(&ipv4_packet(17, [10, 0, 0, 1], &[0; 8])));
        assert!(may_answer_ipv4(&ipv4_packet(1, [10, 0, 0, 1], &[8, 0, 0, 0, 0, 0, 0, 0])));
        assert!(!may_answer_ipv4(&ipv4_packet(1, [10, 0, 0, 1], &[11, 0, 0, 0, 0, 0, 0, 0])));
        for source in [[0, 0, 0, 0], [255; 4], [224, 0, 0, 1], [127, 0, 0, 1], [240, 0, 0, 1]] {
            assert!(!may_answer_ipv4(&ipv4_packet(17, source, &[0; 8])), "{source:?}");
        }
        let mut fragment = ipv4_packet(17, [10, 0, 0, 1], &[0; 8]);
        fragment[7] = 1;
        assert!(!may_answer_ipv4(&fragment));
    }

    proptest! {
        #[test]
        fn checksums_agree_with_etherparse(
            source: [u8; 16], destination: [u8; 16], code: u8, pointer: u32,
            quoted in proptest::collection::vec(any::<u8>(), 0..1_300),
        ) {
            let error = IcmpError::ParameterProblem { code, pointer };
            let mut buffer = [0xa5; IPV6_BYTES_MAX];
            let len = error.emit_ipv6(source.into(), destination.into(), &quoted, &mut buffer)
                .expect("room");
            let theirs = etherparse::Icmpv6Slice::from_slice(&buffer[40..len]).expect("a message");
            prop_assert!(theirs.is_checksum_valid(source, destination));
            let [a, b, c, d, ..] = source;
            let len = error.emit_ipv4([a, b, c, d].into(), [d, c, b, a].into(), &quoted, &mut buffer)
                .expect("room");
            prop_assert_eq!(checksum::checksum(&buffer[20..len]), 0);
            let view = ipv4::Ipv4Packet::new_checked(&buffer[..len]).expect("our own");
            prop_assert!(view.is_checksum_valid());
        }

        #[test]
        fn no_byte_string_panics(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..100), version in 3_u8..8,
        ) {
            if let Some(first) = bytes.first_mut() {
                *first = version << 4 | *first & 0x0f;
            }
            let _ = (may_answer_ipv4(&bytes), may_answer_ipv6(&bytes, EXCEEDED));
        }
    }
}
