//! H.Encaps.Red (RFC 8986 section 5.2): an outer IPv6 header whose destination is the first segment
//! of a path, and an SRH for the others, if there are any.

use std::net::{IpAddr, Ipv6Addr};

use super::Router;
use super::config::EncapConfig;
use super::packet::{Packet, protocol_of};
use super::prefix::IpPrefix;
use crate::node::PortId;
use crate::wire::ecn_tunnel;
use crate::wire::ipv6::{self, Ipv6Header, extension};
use crate::wire::srv6;

/// A policy, with all that does not depend on the packet.
#[derive(Clone, Debug)]
pub struct Encapsulation {
    pub(super) port: PortId,
    pub(super) prefix: IpPrefix,
    source: Ipv6Addr,
    first: Ipv6Addr,
    others: Vec<Ipv6Addr>,
    hop_limit: u8,
}

impl Encapsulation {
    pub(super) fn new(config: &EncapConfig) -> Self {
        // The check asks for one segment at least.
        let (first, others) = match config.segments.as_slice() {
            [first, others @ ..] => (*first, others.to_vec()),
            [] => (Ipv6Addr::UNSPECIFIED, Vec::new()),
        };
        let EncapConfig { port, prefix, source, hop_limit, .. } = *config;
        Self { port, prefix, source, first, others, hop_limit }
    }

    /// Bytes that go before the packet.
    pub fn outer_bytes(&self) -> usize {
        let srh = if self.others.is_empty() { 0 } else { srv6::len_bytes(self.others.len()) };
        ipv6::HEADER_BYTES + srh
    }

    /// Writes the outer headers at the start of `outer`, which has room for them, before a packet of
    /// `inner_bytes` bytes whose first ones are `inner`. `flow` becomes the flow label (RFC 6437
    /// section 3).
    pub fn write(
        &self,
        outer: &mut [u8],
        inner: InnerPacket,
        flow: u32,
        router: &Router,
    ) -> Result<(), crate::wire::WireError> {
        let ds_byte = ecn_tunnel::outer_byte(inner.ds_byte, router.dscp_mode);
        let srh_bytes = self.outer_bytes() - ipv6::HEADER_BYTES;
        let next_header = if srh_bytes == 0 { inner.protocol } else { extension::ROUTING };
        let header = Ipv6Header {
            source: self.source,
            destination: self.first,
            next_header,
            hop_limit: self.hop_limit,
            dscp: ds_byte >> 2,
            ecn: ds_byte & 3,
            flow_label: flow & 0xf_ffff,
            payload_bytes: inner.len_bytes.saturating_add(u16::try_from(srh_bytes).unwrap_or(0)),
        };
        header.emit(outer)?;
        if srh_bytes > 0 {
            let (_, rest) = outer.split_at_mut(ipv6::HEADER_BYTES);
            srv6::emit_reduced(&self.others, inner.protocol, rest)?;
        }
        Ok(())
    }
}

/// What the outer headers say of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InnerPacket {
    protocol: u8,
    ds_byte: u8,
    len_bytes: u16,
}

impl InnerPacket {
    /// Reads it from a packet that has been routed.
    pub fn read(packet: &Packet<'_>) -> Self {
        let len = packet.end.saturating_sub(packet.start);
        Self {
            protocol: protocol_of(packet.bytes()),
            ds_byte: packet.ds_byte(),
            len_bytes: u16::try_from(len).unwrap_or(u16::MAX),
        }
    }
}

impl Router {
    /// The policy for a packet that came by `port`.
    pub fn encapsulation(&self, port: PortId, packet: &Packet<'_>) -> Option<usize> {
        if self.encapsulations.is_empty() {
            return None;
        }
        let bytes = packet.bytes();
        let destination = match bytes.first().map(|first| first >> 4) {
            Some(4) => IpAddr::from(*bytes.get(16..20)?.first_chunk::<4>()?),
            Some(6) => IpAddr::from(*bytes.get(24..40)?.first_chunk::<16>()?),
            _ => return None,
        };
        // The longest prefix of a port comes first.
        let fits = |p: &Encapsulation| p.port == port && p.prefix.contains(destination);
        self.encapsulations.iter().position(fits)
    }
}
