//! A packet on its way through the router: the frame's leading bytes, and where in them it is.

use crate::frame::HEADROOM_BYTES_MIN;
use crate::wire::ipv6::extension;
use crate::wire::{ecn_tunnel, protocol, srv6};

/// Bytes of an Ethernet header without tags.
const ETHERNET_BYTES: usize = 14;

/// A packet in its frame. Headers are changed in place; what is taken off at the front moves
/// `start`, and the driver of this moves the frame's start and writes an Ethernet header before it.
#[derive(Debug)]
pub struct Packet<'a> {
    /// The frame's leading bytes, from its destination address on.
    pub head: &'a mut [u8],
    /// Where the IP header begins.
    pub start: usize,
    /// Where the IP packet ends, in bytes of the frame, of which `head` may show fewer.
    pub end: usize,
    /// The hop limit or TTL that the packet came with, which an error quotes.
    pub received_hop_limit: u8,
}

/// Why a header chain cannot be walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChainError {
    /// It goes on behind the bytes that the store shows.
    TooLong,
    /// It goes on behind the packet.
    Malformed,
    /// A routing header of another type with segments left: the type's place (RFC 8200 section
    /// 4.4).
    UnknownRouting(u32),
}

/// What lies between an IPv6 header and the upper layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Chain {
    /// Where the segment routing header begins, in bytes from the IPv6 header's start; 0: there is
    /// none.
    pub(super) srh_at: usize,
    /// Where the number of the segment routing header is.
    pub(super) srh_named_at: usize,
    /// Where the upper layer begins.
    pub(super) upper_at: usize,
    /// What the upper layer is.
    pub(super) upper: u8,
    pub(super) is_fragment: bool,
}

impl<'a> Packet<'a> {
    /// The packet from `start` on, in a frame of `len_bytes` bytes whose leading ones are `head`.
    #[inline]
    pub const fn new(head: &'a mut [u8], start: usize, len_bytes: usize) -> Self {
        Self { head, start, end: len_bytes, received_hop_limit: 0 }
    }

    /// The packet, or as much of it as the store shows.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.head.get(self.start..self.end.min(self.head.len())).unwrap_or_default()
    }

    /// The same, to write.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let end = self.end.min(self.head.len());
        self.head.get_mut(self.start..end).unwrap_or_default()
    }

    /// The first `N` bytes of the packet, if the store shows so many.
    #[inline(always)]
    pub(super) fn header<const N: usize>(&mut self) -> Option<&mut [u8; N]> {
        self.head.get_mut(self.start..)?.first_chunk_mut::<N>()
    }

    /// Takes `bytes` off the front; false when that would be more than a store can give back.
    pub(super) const fn strip(&mut self, bytes: usize) -> bool {
        let start = self.start + bytes;
        // An Ethernet header goes before the packet again.
        let fits = start <= HEADROOM_BYTES_MIN as usize + ETHERNET_BYTES;
        if fits {
            self.start = start;
        }
        fits
    }

    /// Walks the IPv6 extension headers.
    pub(super) fn chain(&self) -> Result<Chain, ChainError> {
        let bytes = self.bytes();
        let packet_bytes = self.end.saturating_sub(self.start);
        let short = |at: usize| {
            if at > packet_bytes { ChainError::Malformed } else { ChainError::TooLong }
        };
        let mut chain = Chain { upper_at: 40, ..Chain::default() };
        let mut named_at = 6;
        chain.upper = *bytes.get(named_at).ok_or(ChainError::Malformed)?;
        loop {
            let at = chain.upper_at;
            let kind = chain.upper;
            if !matches!(
                kind,
                extension::HOP_BY_HOP
                    | extension::ROUTING
                    | extension::FRAGMENT
                    | extension::DESTINATION
            ) {
                return Ok(chain);
            }
            let header = bytes.get(at..at + 8).ok_or_else(|| short(at + 8))?;
            let len = match kind {
                extension::FRAGMENT => 8,
                _ => (usize::from(header[1]) + 1) * 8,
            };
            if at + len > packet_bytes {
                return Err(ChainError::Malformed);
            }
            match kind {
                extension::FRAGMENT => chain.is_fragment = true,
                extension::ROUTING if header[2] == srv6::ROUTING_TYPE && chain.srh_at == 0 => {
                    chain.srh_at = at;
                    chain.srh_named_at = named_at;
                }
                extension::ROUTING if header[3] != 0 => {
                    let pointer = u32::try_from(at + 2).unwrap_or(u32::MAX);
                    return Err(ChainError::UnknownRouting(pointer));
                }
                _ => {}
            }
            named_at = at;
            chain.upper = header[0];
            chain.upper_at = at + len;
            if chain.upper_at > bytes.len() {
                return Err(short(chain.upper_at));
            }
        }
    }

    /// Takes the segment routing header of `chain` out of the packet, whose bytes before it move.
    /// False when the store could not give so many bytes back.
    pub(super) fn pop_srh(&mut self, chain: &Chain) -> bool {
        let from = self.start;
        let bytes = self.bytes();
        let Some([next, len, ..]) = bytes.get(chain.srh_at..) else { return false };
        let (next, len) = (*next, (usize::from(*len) + 1) * 8);
        let payload = u16::from_be_bytes([bytes[4], bytes[5]]);
        let payload = payload.saturating_sub(u16::try_from(len).unwrap_or(u16::MAX));
        if !self.strip(len) {
            return false;
        }
        self.head.copy_within(from..from + chain.srh_at, self.start);
        let bytes = self.bytes_mut();
        bytes[chain.srh_named_at] = next;
        bytes[4..6].copy_from_slice(&payload.to_be_bytes());
        true
    }

    /// Puts the received hop limit or TTL back for an error to quote.
    pub fn restore_hop_limit(&mut self) {
        let hop_limit = self.received_hop_limit;
        match self.bytes_mut() {
            [first, _, _, _, _, _, _, place, ..] if *first >> 4 == 6 => *place = hop_limit,
            bytes => super::ipv4::set_ttl(bytes, hop_limit),
        }
    }

    /// The differentiated services byte.
    pub(super) fn ds_byte(&self) -> u8 {
        ecn_tunnel::byte_of(self.bytes()).unwrap_or(0)
    }
}

/// The next header number of a packet inside of another one, by its version.
pub(super) fn protocol_of(packet: &[u8]) -> u8 {
    match packet.first().map(|first| first >> 4) {
        Some(4) => protocol::IPV4,
        _ => protocol::IPV6,
    }
}
