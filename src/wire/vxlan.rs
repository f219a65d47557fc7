//! VXLAN (RFC 7348): the 8-byte header, and what it stands behind in the underlay (IPv4 and UDP).

use std::net::Ipv4Addr;

use super::ipv4::{self, Ipv4Header};
use super::udp::{self, UdpHeader};
use super::{WireError, need, protocol, read_array, write_array};

const NAME: &str = "VXLAN";

/// Bytes of the header.
pub const HEADER_BYTES: usize = 8;

/// The UDP port of tunnel endpoints (IANA).
pub const UDP_PORT: u16 = 4_789;

/// The largest network identifier: 24 bits.
pub const VNI_MAX: u32 = (1 << 24) - 1;

/// Bytes of what an Ethernet frame gets before it in the underlay, but for Ethernet itself: IPv4,
/// UDP and VXLAN.
pub const OUTER_BYTES: usize = ipv4::HEADER_BYTES + udp::HEADER_BYTES + HEADER_BYTES;

/// The lowest of the ports that the source port is taken from (RFC 7348 section 5, RFC 6335).
const SOURCE_PORT_MIN: u16 = 49_152;

/// Set when the network identifier is there.
const FLAG_VNI: u8 = 0x08;

/// A view of a VXLAN header and the frame behind it.
#[derive(Clone, Copy, Debug)]
pub struct VxlanPacket<T>(T);

impl<T: AsRef<[u8]>> VxlanPacket<T> {
    /// A view of `buffer`, the header and as much behind it as there is.
    ///
    /// # Errors
    /// Fewer than 8 bytes, or no network identifier: such packets are dropped. The other flags and
    /// the reserved bytes are ignored (RFC 7348 section 5).
    pub fn new_checked(buffer: T) -> Result<Self, WireError> {
        let bytes = buffer.as_ref();
        need(NAME, HEADER_BYTES, bytes.len())?;
        if bytes[0] & FLAG_VNI == 0 {
            return Err(WireError::Malformed { header: NAME, what: "no network identifier" });
        }
        Ok(Self(buffer))
    }

    /// The network identifier, 24 bits.
    pub fn vni(&self) -> u32 {
        let [a, b, c] = read_array(self.0.as_ref(), 4);
        u32::from_be_bytes([0, a, b, c])
    }

    /// The frame behind the header, or as much of it as the buffer shows.
    pub fn payload(&self) -> &[u8] {
        &self.0.as_ref()[HEADER_BYTES..]
    }
}

/// What an encapsulated frame gets before it, from the outer IPv4 header to VXLAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VxlanOuter {
    /// The address of the endpoint that sends.
    pub source: Ipv4Addr,
    /// That of the one it is for.
    pub destination: Ipv4Addr,
    /// Hops that the underlay may take.
    pub ttl: u8,
    /// The outer differentiated services byte.
    pub ds_byte: u8,
    /// Which of the ports 49152 to 65535 it comes from: the inner flow's share of it.
    pub flow_hash: u16,
    /// The network identifier, 24 bits.
    pub vni: u32,
    /// Bytes of the inner frame.
    pub frame_bytes: u16,
}

impl VxlanOuter {
    /// Writes the headers, [`OUTER_BYTES`] of them, at the start of `buffer`. The packet must not be
    /// fragmented and its UDP checksum is 0 (RFC 7348 sections 4.3 and 5).
    ///
    /// # Errors
    /// A buffer too short, or an inner frame that makes the packet longer than 65,535 bytes.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<(), WireError> {
        need(NAME, OUTER_BYTES, buffer.len())?;
        let payload_bytes = self.frame_bytes.checked_add(8);
        let datagram_bytes = payload_bytes.and_then(|bytes| bytes.checked_add(8));
        let (Some(payload_bytes), Some(datagram_bytes)) = (payload_bytes, datagram_bytes) else {
            return Err(WireError::Malformed { header: NAME, what: "longer than 65,535 bytes" });
        };
        let ip = Ipv4Header {
            source: self.source,
            destination: self.destination,
            protocol: protocol::UDP,
            ttl: self.ttl,
            dscp: self.ds_byte >> 2,
            ecn: self.ds_byte & 3,
            identification: 0,
            dont_fragment: true,
            payload_bytes: datagram_bytes,
        };
        ip.emit(buffer)?;
        let (_, buffer) = buffer.split_at_mut(ipv4::HEADER_BYTES);
        let source_port = SOURCE_PORT_MIN | self.flow_hash;
        UdpHeader { source_port, destination_port: UDP_PORT, payload_bytes }.emit(buffer)?;
        let (_, buffer) = buffer.split_at_mut(udp::HEADER_BYTES);
        let [_, a, b, c] = self.vni.to_be_bytes();
        write_array(buffer, 0, [FLAG_VNI, 0, 0, 0, a, b, c, 0]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // 10.0.0.1 to 10.0.0.2, ECT(0), TTL 64, port 50000, VNI 77, an inner frame of 68 bytes.
    const OUTER: [u8; 36] = [
        0x45, 0x02, 0x00, 0x68, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0x26, 0x81, 10, 0, 0, 1, 10, 0,
        0, 2, 0xc3, 0x50, 0x12, 0xb5, 0x00, 0x54, 0x00, 0x00, 0x08, 0, 0, 0, 0, 0, 0x4d, 0,
    ];

    fn outer() -> VxlanOuter {
        VxlanOuter {
            source: Ipv4Addr::new(10, 0, 0, 1),
            destination: Ipv4Addr::new(10, 0, 0, 2),
            ttl: 64,
            ds_byte: 2,
            flow_hash: 50_000 - 49_152,
            vni: 77,
            frame_bytes: 68,
        }
    }

    #[test]
    fn builds_and_reads_literal_bytes() {
        let mut buffer = [0xa5; 37];
        outer().emit(&mut buffer).expect("room");
        assert_eq!(buffer[..36], OUTER);
        assert_eq!(buffer[36], 0xa5);
        let packet = VxlanPacket::new_checked(&OUTER[28..]).expect("a header");
        assert_eq!((packet.vni(), packet.payload().len()), (77, 0));
        assert!(outer().emit(&mut buffer[..35]).is_err());
        let too_long = VxlanOuter { frame_bytes: 65_500, ..outer() };
        assert!(too_long.emit(&mut buffer).is_err());
    }

    #[test]
    fn a_header_without_identifier_is_refused_and_reserved_bits_are_ignored() {
        let mut bytes: [u8; 8] = [0; 8];
        bytes.copy_from_slice(&OUTER[28..]);
        bytes[0] = 0;
        assert!(VxlanPacket::new_checked(&bytes[..]).is_err());
        bytes = [0xff; 8];
        assert_eq!(VxlanPacket::new_checked(&bytes[..]).map(|p| p.vni()), Ok(VNI_MAX));
        assert!(VxlanPacket::new_checked(&bytes[..7]).is_err());
    }

    proptest! {
        #[test]
        fn what_is_built_reads_back(
            source: [u8; 4], destination: [u8; 4], ttl: u8, ds_byte: u8, flow_hash: u16,
            vni in 0..=VNI_MAX, frame_bytes in 14_u16..9_000,
        ) {
            let outer = VxlanOuter {
                source: source.into(), destination: destination.into(), ttl, ds_byte, flow_hash,
                vni, frame_bytes,
            };
            let mut buffer = [0xa5; OUTER_BYTES];
            outer.emit(&mut buffer).expect("room");
            let ip = ipv4::Ipv4Packet::new_checked_prefix(&buffer[..], 65_535).expect("IPv4");
            prop_assert!(ip.is_checksum_valid() && ip.dont_fragment());
            prop_assert_eq!(ip.payload_bytes(), usize::from(frame_bytes) + 16);
            prop_assert_eq!((ip.dscp() << 2) | ip.ecn(), ds_byte);
            let udp = udp::UdpDatagram::new_checked_prefix(ip.payload(), 65_535).expect("UDP");
            prop_assert!(udp.source_port() >= SOURCE_PORT_MIN);
            prop_assert_eq!((udp.destination_port(), udp.checksum()), (UDP_PORT, 0));
            prop_assert_eq!(VxlanPacket::new_checked(udp.payload()).map(|p| p.vni()), Ok(vni));
        }
    }
}
