//! The differentiated services byte of tunnels: congestion marks by RFC 6040, code points by RFC
//! 2983.
//!
//! A mark that the outer header got on the way must reach the inner one, else the sender never
//! hears of it; and a sender that cannot hear of it (not-ECT inside) must lose the packet instead.

use super::checksum;
use super::{read_array, read_u16, write_array};

/// No ECN-capable transport (RFC 3168 section 5).
pub const NOT_ECT: u8 = 0;
/// ECN-capable transport, code point 1.
pub const ECT_1: u8 = 1;
/// ECN-capable transport, code point 0.
pub const ECT_0: u8 = 2;
/// Congestion experienced.
pub const CE: u8 = 3;

/// What becomes of the DSCP in a tunnel (RFC 2983 section 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DscpMode {
    /// One DSCP: copied out on the way in, and in on the way out.
    Uniform,
    /// The inner DSCP passes untouched; the outer header has that of the tunnel, here 0.
    #[default]
    Pipe,
}

/// What becomes of a congestion mark where a tunnel ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EcnDecap {
    /// Both marks are combined (RFC 6040 figure 4).
    #[default]
    Rfc6040,
    /// The inner mark stays, the outer is lost, as Linux does at SRv6 endpoints.
    Kernel,
}

/// The inner mark at the end of a tunnel (RFC 6040 figure 4); None drops the packet.
#[inline]
pub const fn decapsulate(inner: u8, outer: u8) -> Option<u8> {
    match (inner & 3, outer & 3) {
        (NOT_ECT, CE) => None,
        (NOT_ECT, _) => Some(NOT_ECT),
        (CE, _) | (_, CE) => Some(CE),
        (ECT_0, ECT_1) => Some(ECT_1),
        (inner, _) => Some(inner),
    }
}

/// The outer byte at the start of a tunnel, for a packet with the byte `inner`: the mark is copied
/// (RFC 6040 section 4.1, normal mode).
#[inline]
pub const fn outer_byte(inner: u8, mode: DscpMode) -> u8 {
    match mode {
        DscpMode::Uniform => inner,
        DscpMode::Pipe => inner & 3,
    }
}

/// The inner byte at the end of a tunnel; None drops the packet.
#[inline]
pub const fn inner_byte(inner: u8, outer: u8, ecn: EcnDecap, mode: DscpMode) -> Option<u8> {
    let dscp = match mode {
        DscpMode::Uniform => outer & !3,
        DscpMode::Pipe => inner & !3,
    };
    match ecn {
        EcnDecap::Kernel => Some(dscp | inner & 3),
        EcnDecap::Rfc6040 => match decapsulate(inner, outer) {
            Some(mark) => Some(dscp | mark),
            None => None,
        },
    }
}

/// The differentiated services byte of an IPv4 or IPv6 packet; None for other bytes.
#[inline]
pub fn byte_of(packet: &[u8]) -> Option<u8> {
    match packet {
        [first, second, ..] if first >> 4 == 4 => Some(*second),
        [first, second, ..] if first >> 4 == 6 => Some(first << 4 | second >> 4),
        _ => None,
    }
}

/// Sets that byte, the IPv4 header checksum with it (RFC 1624); bytes that are neither IPv4 nor
/// IPv6, or end before the checksum, stay as they are.
#[inline]
pub fn set_byte_of(packet: &mut [u8], byte: u8) {
    match packet.first().map(|first| first >> 4) {
        Some(4) if packet.len() >= 12 => {
            let [first, old] = read_array(packet, 0);
            let [old, new] = [old, byte].map(|byte| u16::from_be_bytes([first, byte]));
            packet[1] = byte;
            if old != new {
                let checksum = checksum::update(read_u16(packet, 10), old, new);
                write_array(packet, 10, checksum.to_be_bytes());
            }
        }
        Some(6) if packet.len() >= 2 => {
            packet[0] = 0x60 | byte >> 4;
            packet[1] = byte << 4 | packet[1] & 0x0f;
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn all_sixteen_cells_of_figure_4() {
        // Rows: inner not-ECT, ECT(0), ECT(1), CE; columns: outer in the same order.
        let order = [NOT_ECT, ECT_0, ECT_1, CE];
        let cells = [
            [Some(NOT_ECT), Some(NOT_ECT), Some(NOT_ECT), None],
            [Some(ECT_0), Some(ECT_0), Some(ECT_1), Some(CE)],
            [Some(ECT_1), Some(ECT_1), Some(ECT_1), Some(CE)],
            [Some(CE), Some(CE), Some(CE), Some(CE)],
        ];
        for (inner, row) in order.iter().zip(cells) {
            for (outer, want) in order.iter().zip(row) {
                assert_eq!(decapsulate(*inner, *outer), want, "{inner} in {outer}");
            }
        }
    }

    #[test]
    fn the_code_point_follows_the_mode_and_the_mark_does_not() {
        let (af41_ect0, ef_ce) = (34 << 2 | ECT_0, 46 << 2 | CE);
        assert_eq!(outer_byte(af41_ect0, DscpMode::Uniform), af41_ect0);
        assert_eq!(outer_byte(af41_ect0, DscpMode::Pipe), ECT_0);
        let inner = |ecn, mode| inner_byte(af41_ect0, ef_ce, ecn, mode);
        assert_eq!(inner(EcnDecap::Rfc6040, DscpMode::Uniform), Some(46 << 2 | CE));
        assert_eq!(inner(EcnDecap::Rfc6040, DscpMode::Pipe), Some(34 << 2 | CE));
        assert_eq!(inner(EcnDecap::Kernel, DscpMode::Uniform), Some(46 << 2 | ECT_0));
        assert_eq!(inner(EcnDecap::Kernel, DscpMode::Pipe), Some(af41_ect0));
        assert_eq!(inner_byte(NOT_ECT, CE, EcnDecap::Rfc6040, DscpMode::Pipe), None);
        assert_eq!(inner_byte(NOT_ECT, CE, EcnDecap::Kernel, DscpMode::Pipe), Some(NOT_ECT));
    }

    proptest! {
        #[test]
        fn the_byte_that_was_set_reads_back_under_a_right_checksum(
            source: [u8; 4], destination: [u8; 4], old: u8, new: u8, label in 0_u32..1 << 20,
        ) {
            let mut bytes = [0_u8; 40];
            crate::wire::ipv4::Ipv4Header {
                source: source.into(), destination: destination.into(), protocol: 17, ttl: 64,
                dscp: old >> 2, ecn: old & 3, identification: 7, dont_fragment: true,
                payload_bytes: 20,
            }.emit(&mut bytes).expect("room");
            prop_assert_eq!(byte_of(&bytes), Some(old));
            set_byte_of(&mut bytes, new);
            prop_assert_eq!(byte_of(&bytes), Some(new));
            let packet = crate::wire::ipv4::Ipv4Packet::new_checked(&bytes[..]).expect("ours");
            prop_assert!(packet.is_checksum_valid());
            bytes[0] = 0x60 | old >> 4;
            bytes[1] = old << 4;
            let mut packet = crate::wire::ipv6::Ipv6Packet::new_checked_prefix(&mut bytes[..], 65_575)
                .expect("ours");
            packet.set_flow_label(label);
            let bytes = packet.into_inner();
            prop_assert_eq!(byte_of(bytes), Some(old));
            set_byte_of(bytes, new);
            let packet = crate::wire::ipv6::Ipv6Packet::new_checked_prefix(&bytes[..], 65_575)
                .expect("ours");
            prop_assert_eq!((packet.dscp(), packet.ecn()), (new >> 2, new & 3));
            prop_assert_eq!(packet.flow_label(), label);
        }

        #[test]
        fn no_byte_string_panics(mut bytes in proptest::collection::vec(any::<u8>(), 0..16), byte: u8) {
            let was = byte_of(&bytes);
            set_byte_of(&mut bytes, byte);
            prop_assert_eq!(byte_of(&bytes).is_some(), was.is_some());
        }
    }
}
