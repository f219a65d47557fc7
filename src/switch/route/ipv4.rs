//! IPv4 on its way through: checks, look-up, TTL.

use super::packet::Packet;
use super::{Router, Target, Verdict};
use crate::ledger::DropReason;
use crate::wire::checksum;
use crate::wire::icmp_error::IcmpError;
use crate::wire::ipv4::Ipv4Packet;

impl Router {
    /// Routes the IPv4 packet; one that begins here keeps its TTL.
    pub(super) fn route_ipv4(&self, packet: &mut Packet<'_>, begins_here: bool) -> Verdict {
        if let Err(reason) = check(packet) {
            return Verdict::Drop(reason);
        }
        let destination = destination(packet);
        match self.ipv4.find(destination).map(Target::unpack) {
            Some(Target::Group(group)) => {
                if begins_here {
                    return Verdict::Forward(group);
                }
                self.hop_ipv4(packet).unwrap_or(Verdict::Forward(group))
            }
            Some(Target::Local) => Verdict::Local,
            Some(Target::Blackhole) => Verdict::Drop(DropReason::Blackhole),
            // An IPv4 address is no segment.
            Some(Target::Sid(_)) | None => Verdict::Refuse(DropReason::NoRoute, IcmpError::NoRoute),
        }
    }

    /// Sends the IPv4 packet to `group` without looking it up.
    pub(super) fn cross_ipv4(&self, packet: &mut Packet<'_>, group: u32) -> Verdict {
        match check(packet) {
            Err(reason) => Verdict::Drop(reason),
            Ok(()) => self.hop_ipv4(packet).unwrap_or(Verdict::Forward(group)),
        }
    }

    /// Counts one hop; Some when there is none left.
    #[allow(clippy::unused_self, reason = "the counterpart of IPv6's")]
    fn hop_ipv4(&self, packet: &mut Packet<'_>) -> Option<Verdict> {
        let ttl = packet.received_hop_limit;
        if ttl <= 1 {
            return Some(Verdict::Refuse(DropReason::HopLimit, IcmpError::TimeExceeded));
        }
        set_ttl(packet.bytes_mut(), ttl - 1);
        None
    }
}

/// Whether the header is one (RFC 1812 section 5.2.2); cuts what is behind the packet.
fn check(packet: &mut Packet<'_>) -> Result<(), DropReason> {
    let available = packet.end.saturating_sub(packet.start);
    let view = Ipv4Packet::new_checked_prefix(packet.bytes(), available)
        .map_err(|_| DropReason::Malformed)?;
    if !view.is_checksum_valid() {
        return Err(DropReason::BadChecksum);
    }
    let source = view.source();
    let from = source.octets()[0];
    if source.is_multicast()
        || from == 127
        || from >= 240
        || (from == 0 && !source.is_unspecified())
    {
        return Err(DropReason::BadSource);
    }
    let (total, ttl) = (usize::from(view.total_bytes()), view.ttl());
    packet.end = packet.start + total;
    packet.received_hop_limit = ttl;
    Ok(())
}

/// The destination of a packet that has been checked.
pub(super) fn destination(packet: &Packet<'_>) -> u32 {
    let at = packet.bytes().get(16..20).and_then(|bytes| bytes.first_chunk::<4>());
    at.map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// Sets TTL, and the header checksum with it (RFC 1624).
pub(super) fn set_ttl(bytes: &mut [u8], ttl: u8) {
    let Some(header) = bytes.first_chunk_mut::<20>() else { return };
    let old = u16::from_be_bytes([header[8], header[9]]);
    let new = u16::from_be_bytes([ttl, header[9]]);
    if old == new {
        return;
    }
    let sum = checksum::update(u16::from_be_bytes([header[10], header[11]]), old, new);
    header[8] = ttl;
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}
