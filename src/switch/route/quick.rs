//! The short way of the packet that most are: IPv6, with its first segment a uN of this node that has
//! an argument behind it, or on its way to somewhere else; to a route of the length that most routes
//! have. It is the long way in one go, to the same effect; whatever is unusual is left to that.

use super::lpm::{Lpm, Short};
use super::packet::Packet;
use super::usid::{Endpoint, EndpointKind};
use super::{Target, Verdict};

/// Bytes of the fixed header.
const HEADER_BYTES: usize = 40;

/// What the short way looks at.
#[derive(Clone, Debug)]
pub(super) struct Quick {
    own: Own,
    routes: Option<Short>,
}

/// A uN of this node, in the upper halves of addresses.
#[derive(Clone, Copy, Debug)]
struct Own {
    /// Block and uSID, and the mask of both.
    prefix: u64,
    mask: u64,
    prefix_bits: u32,
    block_mask: u64,
    usid_bits: u32,
}

impl Own {
    /// No address is this one.
    const NONE: Self = Self { prefix: 1, mask: 0, prefix_bits: 8, block_mask: 0, usid_bits: 8 };
}

impl Quick {
    /// For these segments, by address, and a table made of `prefixes`.
    pub(super) fn new(
        sids: &[(u128, Endpoint)],
        prefixes: &[(u128, u8, u32)],
        table: &Lpm<u128>,
    ) -> Self {
        let own = sids.iter().find_map(|(address, endpoint)| own(*address, endpoint, prefixes));
        Self { own: own.unwrap_or(Own::NONE), routes: table.short() }
    }

    /// What becomes of the packet; None, and nothing has changed, for the long way.
    #[inline(always)]
    pub(super) fn route(&self, packet: &mut Packet<'_>) -> Option<Verdict> {
        let routes = self.routes.as_ref()?;
        let (start, end) = (packet.start, packet.end);
        let header = packet.header::<HEADER_BYTES>()?;
        let [first, source] = [word(header, 0), word(header, 8)];
        let [.., p0, p1, _, hop_limit] = first.to_be_bytes();
        let packet_end = start + HEADER_BYTES + usize::from(u16::from_be_bytes([p0, p1]));
        // Below fe00::/8 there is neither multicast nor link-local; zero begins what is special.
        let is_plain = source.wrapping_sub(1) < (0xfe << 56) - 1;
        if first >> 60 != 6 || packet_end > end || hop_limit <= 1 || !is_plain {
            return None;
        }
        let mut upper = word(header, 24);
        let own = &self.own;
        if upper & own.mask == own.prefix {
            let lower = word(header, 32);
            if upper << own.prefix_bits | lower == 0 {
                return None;
            }
            let moved = upper << own.usid_bits | lower >> (u64::BITS - own.usid_bits);
            upper = upper & own.block_mask | moved & !own.block_mask;
            let group = group_of(routes, upper)?;
            header[24..32].copy_from_slice(&upper.to_be_bytes());
            header[32..40].copy_from_slice(&(lower << own.usid_bits).to_be_bytes());
            header[7] = hop_limit - 1;
            return Some(done(packet, packet_end, hop_limit, group));
        }
        let group = group_of(routes, upper)?;
        header[7] = hop_limit - 1;
        Some(done(packet, packet_end, hop_limit, group))
    }
}

#[inline(always)]
const fn done(packet: &mut Packet<'_>, end: usize, hop_limit: u8, group: u32) -> Verdict {
    packet.end = end;
    packet.received_hop_limit = hop_limit;
    Verdict::Forward(group)
}

#[inline(always)]
fn group_of(routes: &Short, upper: u64) -> Option<u32> {
    match routes.find(upper).map(Target::unpack) {
        Some(Target::Group(group)) => Some(group),
        _ => None,
    }
}

#[inline(always)]
fn word(header: &[u8; HEADER_BYTES], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&header[at..at + 8]);
    u64::from_be_bytes(bytes)
}

/// A segment as the short way knows it: a uN whose prefix lies in the upper half of addresses and
/// holds no other one.
fn own(address: u128, endpoint: &Endpoint, prefixes: &[(u128, u8, u32)]) -> Option<Own> {
    let layout = endpoint.layout;
    let prefix_bits = layout.prefix_bits();
    if endpoint.kind != EndpointKind::Next || endpoint.group.is_some() || prefix_bits >= 64 {
        return None;
    }
    let mask = u128::MAX << (128 - u32::from(prefix_bits));
    let under = |(other, len, _): &(u128, u8, u32)| *len > prefix_bits && other & mask == address;
    if prefixes.iter().any(under) {
        return None;
    }
    let [mask, prefix] = [mask, address].map(upper_half);
    let block_mask = u64::MAX << (64 - u32::from(layout.block_bits()));
    let (prefix_bits, usid_bits) = (u32::from(prefix_bits), u32::from(layout.usid_bits()));
    Some(Own { prefix, mask, prefix_bits, block_mask, usid_bits })
}

/// The first 64 bits of an address.
pub(super) const fn upper_half(address: u128) -> u64 {
    #[allow(clippy::cast_possible_truncation, reason = "the upper half is what is asked for")]
    let upper = (address >> 64) as u64;
    upper
}
