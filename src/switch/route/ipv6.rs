//! IPv6 on its way through: checks, look-up, hop limit.

use super::packet::Packet;
use super::{Router, Target, Verdict};
use crate::ledger::DropReason;
use crate::wire::icmp_error::IcmpError;

/// Bytes of the fixed header.
const HEADER_BYTES: usize = 40;

/// What was read of a header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) destination: u128,
    pub(super) hop_limit: u8,
    /// The source is of link-local scope, so that the packet must not leave its link.
    pub(super) source_is_link_local: bool,
}

impl Router {
    /// Routes the IPv6 packet; one that begins here keeps its hop limit.
    #[inline(always)]
    pub(super) fn route_ipv6(&self, packet: &mut Packet<'_>, begins_here: bool) -> Verdict {
        let header = match check(packet) {
            Ok(header) => header,
            Err(reason) => return Verdict::Drop(reason),
        };
        match self.ipv6.find(header.destination).map(Target::unpack) {
            Some(Target::Sid(sid)) => self.walk(packet, header, sid),
            Some(Target::Group(group)) => {
                if begins_here {
                    return Verdict::Forward(group);
                }
                hop(packet, header).unwrap_or(Verdict::Forward(group))
            }
            Some(Target::Local) => Verdict::Local,
            Some(Target::Blackhole) => Verdict::Drop(DropReason::Blackhole),
            None => Verdict::Refuse(DropReason::NoRoute, IcmpError::NoRoute),
        }
    }
}

/// Sends the IPv6 packet to `group` without looking it up.
pub(super) fn cross(packet: &mut Packet<'_>, group: u32) -> Verdict {
    match check(packet) {
        Err(reason) => Verdict::Drop(reason),
        Ok(header) => hop(packet, header).unwrap_or(Verdict::Forward(group)),
    }
}

/// Counts one hop; Some when the packet may not take it.
fn hop(packet: &mut Packet<'_>, header: Header) -> Option<Verdict> {
    if header.hop_limit <= 1 {
        return Some(Verdict::Refuse(DropReason::HopLimit, IcmpError::TimeExceeded));
    }
    if header.source_is_link_local {
        return Some(Verdict::Refuse(DropReason::BadSource, IcmpError::BeyondScope));
    }
    if let Some(bytes) = packet.header::<HEADER_BYTES>() {
        bytes[7] = header.hop_limit - 1;
    }
    None
}

/// Reads the header, if it is one whose packet may be forwarded (RFC 4291 sections 2.5.2, 2.5.3, 2.7);
/// cuts what is behind the packet.
#[inline(always)]
fn check(packet: &mut Packet<'_>) -> Result<Header, DropReason> {
    let (start, end) = (packet.start, packet.end);
    let bytes = packet.header::<HEADER_BYTES>().ok_or(DropReason::Malformed)?;
    let [version, _, _, _, p0, p1, _, hop_limit, ..] = *bytes;
    let packet_end = start + HEADER_BYTES + usize::from(u16::from_be_bytes([p0, p1]));
    if version >> 4 != 6 || packet_end > end {
        return Err(DropReason::Malformed);
    }
    let (source, destination) = addresses(bytes);
    let top = source >> 118;
    // Multicast is ff00::/8, link-local fe80::/10; the unspecified address is 0, the loopback 1.
    if top >= 0xff << 2 || source <= 1 {
        return Err(DropReason::BadSource);
    }
    packet.end = packet_end;
    packet.received_hop_limit = hop_limit;
    Ok(Header { destination, hop_limit, source_is_link_local: top == 0xfe80 >> 6 })
}

#[inline(always)]
fn addresses(bytes: &[u8; HEADER_BYTES]) -> (u128, u128) {
    let at = |at: usize| {
        let mut address = [0; 16];
        address.copy_from_slice(&bytes[at..at + 16]);
        u128::from_be_bytes(address)
    };
    (at(8), at(24))
}

/// Writes the destination address.
#[inline(always)]
pub(super) fn set_destination(packet: &mut Packet<'_>, destination: u128) {
    if let Some(bytes) = packet.header::<HEADER_BYTES>() {
        bytes[24..40].copy_from_slice(&destination.to_be_bytes());
    }
}

/// Writes destination address and hop limit.
#[inline(always)]
pub(super) fn set_destination_and_hop_limit(
    packet: &mut Packet<'_>,
    destination: u128,
    hop_limit: u8,
) {
    if let Some(bytes) = packet.header::<HEADER_BYTES>() {
        bytes[7] = hop_limit;
        bytes[24..40].copy_from_slice(&destination.to_be_bytes());
    }
}
