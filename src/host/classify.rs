//! What a frame that has come is to a host: something to answer, a stream's frame, or a reason to
//! drop it.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::frame::HEAD_BYTES_MIN;
use crate::ledger::DropReason;
use crate::wire::arp::{ArpHeader, ArpPacket, Operation};
use crate::wire::checksum::Sum;
use crate::wire::ecn_tunnel::CE;
use crate::wire::icmpv4::{self, Icmpv4Message};
use crate::wire::icmpv6::{self, Icmpv6Message, NeighborHeader, NeighborMessage};
use crate::wire::ipv4::Ipv4Packet;
use crate::wire::ipv6::{self, Ipv6Packet};
use crate::wire::stream::{self, StreamHeader};
use crate::wire::udp::{self, UdpDatagram};
use crate::wire::{MacAddr, ParseError, WireError, ethertype, parse, protocol};

/// All nodes of the link (RFC 4291 section 2.7.1).
pub(super) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Who the host is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addresses {
    pub(super) mac: MacAddr,
    pub(super) ipv4: Option<Ipv4Addr>,
    pub(super) ipv6: Option<Ipv6Addr>,
    pub(super) mtu_bytes: u32,
}

/// What to do with a frame.
#[derive(Clone, Copy, Debug)]
pub(super) enum Verdict {
    /// Nothing, for this reason.
    Drop(DropReason),
    /// Nothing: a station announced itself.
    Heard,
    /// Tell where our IPv4 address is, behind the same `l2_bytes` of Ethernet header and tags.
    AnswerArp { asker: ArpHeader, l2_bytes: usize },
    /// Tell where our IPv6 address is; `asker` is unspecified when it checks for duplicates.
    AnswerSolicitation { asker: Ipv6Addr, asker_mac: MacAddr, l2_bytes: usize },
    /// Send the frame back: its IPv4 header is at `l3`, its ICMP header at `icmp`.
    EchoV4 { l3: usize, icmp: usize },
    /// Send the frame back: its IPv6 header is at `l3`, its ICMP header at `icmp`.
    EchoV6 { l3: usize, icmp: usize },
    /// A frame of a stream, whose payload is yet to be looked at.
    Stream(StreamFrame),
}

/// A stream's frame as far as its headers go.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamFrame {
    pub(super) header: StreamHeader,
    /// Where the payload begins, from the frame's start.
    pub(super) payload_at: u32,
    pub(super) payload_bytes: u32,
    /// Whether congestion was experienced on the way.
    pub(super) is_ce: bool,
    /// The UDP checksum's sum, up to the payload; None when the sender computed no checksum.
    pub(super) sum: Option<Sum>,
}

impl From<WireError> for Verdict {
    fn from(_: WireError) -> Self {
        Self::Drop(DropReason::Malformed)
    }
}

const fn drop_for(reason: DropReason) -> Verdict {
    Verdict::Drop(reason)
}

impl Addresses {
    /// What the frame of `len_bytes` bytes that begins with `head` is.
    pub(super) fn classify(&self, head: &[u8], len_bytes: u32) -> Verdict {
        let parsed = match parse(head) {
            Ok(parsed) => parsed,
            Err(ParseError::Runt) => return drop_for(DropReason::Runt),
            Err(_) => return drop_for(DropReason::Malformed),
        };
        let l3 = usize::from(parsed.l3_offset);
        if len_bytes > self.mtu_bytes.saturating_add(u32::from(parsed.l3_offset)) {
            return drop_for(DropReason::Oversize);
        }
        if parsed.source.is_group() {
            return drop_for(DropReason::SourceMulticast);
        }
        if !self.listens_to(parsed.destination) {
            return drop_for(DropReason::NotForUs);
        }
        // The whole packet's length, of which `head` may show a part.
        let available = usize::try_from(len_bytes).unwrap_or(usize::MAX) - l3;
        let packet = &head[l3..];
        let verdict = match parsed.ethertype {
            ethertype::ARP => self.arp(packet, l3),
            ethertype::IPV4 => self.ipv4(packet, available, l3),
            ethertype::IPV6 => self.ipv6(packet, available, l3, parsed.source),
            _ => Ok(drop_for(DropReason::Unhandled)),
        };
        match verdict.unwrap_or_else(Verdict::from) {
            Verdict::Stream(frame) => {
                Verdict::Stream(StreamFrame { is_ce: parsed.ecn() == Some(CE), ..frame })
            }
            verdict => verdict,
        }
    }

    fn listens_to(&self, mac: MacAddr) -> bool {
        mac == self.mac
            || mac == MacAddr::BROADCAST
            || self.ipv6.is_some_and(|own| {
                mac == icmpv6::multicast_mac(icmpv6::solicited_node(own))
                    || mac == icmpv6::multicast_mac(ALL_NODES)
            })
    }

    fn arp(&self, packet: &[u8], l2_bytes: usize) -> Result<Verdict, WireError> {
        let asker = match ArpPacket::new_checked(packet) {
            Ok(packet) => ArpHeader::read(&packet),
            Err(WireError::Malformed { .. }) => return Ok(drop_for(DropReason::Unhandled)),
            Err(error) => return Err(error),
        };
        Ok(if asker.sender_ip == asker.target_ip {
            Verdict::Heard
        } else if Some(asker.target_ip) != self.ipv4 {
            drop_for(DropReason::NotForUs)
        } else if asker.operation == Operation::Request {
            Verdict::AnswerArp { asker, l2_bytes }
        } else {
            drop_for(DropReason::Unhandled)
        })
    }

    fn ipv4(&self, bytes: &[u8], available: usize, l3: usize) -> Result<Verdict, WireError> {
        let packet = Ipv4Packet::new_checked_prefix(bytes, available)?;
        if !packet.is_checksum_valid() {
            return Ok(drop_for(DropReason::BadChecksum));
        }
        if Some(packet.destination()) != self.ipv4 {
            return Ok(drop_for(DropReason::NotForUs));
        }
        let source = packet.source();
        if source.is_multicast() || source.is_broadcast() {
            return Ok(drop_for(DropReason::Malformed));
        }
        if packet.is_fragment() {
            return Ok(drop_for(DropReason::Unhandled));
        }
        let (payload, payload_bytes) = (packet.payload(), packet.payload_bytes());
        let at = l3 + packet.header_bytes();
        match packet.protocol() {
            protocol::ICMPV4 => {
                let message = Icmpv4Message::new_checked(payload)?;
                if message.kind() != icmpv4::ECHO_REQUEST || message.code() != 0 {
                    return Ok(drop_for(DropReason::Unhandled));
                }
                if is_whole_in_any_store(at, payload_bytes) && !message.is_checksum_valid() {
                    return Ok(drop_for(DropReason::BadChecksum));
                }
                Ok(Verdict::EchoV4 { l3, icmp: at })
            }
            protocol::UDP => {
                let pseudo = |len| {
                    Sum::pseudo_v4(source, packet.destination(), protocol::UDP, u32::from(len))
                };
                stream_frame(payload, payload_bytes, at, pseudo)
            }
            _ => Ok(drop_for(DropReason::Unhandled)),
        }
    }

    fn ipv6(
        &self,
        bytes: &[u8],
        available: usize,
        l3: usize,
        mac: MacAddr,
    ) -> Result<Verdict, WireError> {
        let packet = Ipv6Packet::new_checked_prefix(bytes, available)?;
        let Some(own) = self.ipv6 else { return Ok(drop_for(DropReason::NotForUs)) };
        let (source, destination) = (packet.source(), packet.destination());
        let to_group = destination == ALL_NODES || destination == icmpv6::solicited_node(own);
        if destination != own && !to_group {
            return Ok(drop_for(DropReason::NotForUs));
        }
        if source.is_multicast() {
            return Ok(drop_for(DropReason::Malformed));
        }
        let upper = packet.upper_layer()?;
        if upper.fragment.is_some() {
            return Ok(drop_for(DropReason::Unhandled));
        }
        let skip = upper.offset - ipv6::HEADER_BYTES;
        let payload = packet.payload().get(skip..).unwrap_or_default();
        let payload_bytes = usize::from(packet.payload_bytes()).saturating_sub(skip);
        let at = l3 + upper.offset;
        match upper.protocol {
            protocol::ICMPV6 => {
                let message = Icmpv6Message::new_checked(payload)?;
                match message.kind() {
                    icmpv6::NEIGHBOR_SOLICITATION | icmpv6::NEIGHBOR_ADVERTISEMENT => {
                        if payload.len() != payload_bytes {
                            return Ok(drop_for(DropReason::Unhandled));
                        }
                        // RFC 4861 section 7.1: a router in between would have counted it down.
                        if packet.hop_limit() != 255 {
                            return Ok(drop_for(DropReason::Malformed));
                        }
                        if !message.is_checksum_valid(source, destination) {
                            return Ok(drop_for(DropReason::BadChecksum));
                        }
                        self.neighbor(payload, source, destination, mac, l3)
                    }
                    icmpv6::ECHO_REQUEST
                        if message.code() == 0 && !to_group && !source.is_unspecified() =>
                    {
                        if is_whole_in_any_store(at, payload_bytes)
                            && !message.is_checksum_valid(source, destination)
                        {
                            return Ok(drop_for(DropReason::BadChecksum));
                        }
                        Ok(Verdict::EchoV6 { l3, icmp: at })
                    }
                    _ => Ok(drop_for(DropReason::Unhandled)),
                }
            }
            protocol::UDP if !to_group => {
                let pseudo =
                    |len| Sum::pseudo_v6(source, destination, protocol::UDP, u32::from(len));
                match stream_frame(payload, payload_bytes, at, pseudo)? {
                    // RFC 8200 section 8.1: over IPv6 the checksum is not optional.
                    Verdict::Stream(StreamFrame { sum: None, .. }) => {
                        Ok(drop_for(DropReason::BadChecksum))
                    }
                    verdict => Ok(verdict),
                }
            }
            _ => Ok(drop_for(DropReason::Unhandled)),
        }
    }

    fn neighbor(
        &self,
        payload: &[u8],
        source: Ipv6Addr,
        destination: Ipv6Addr,
        mac: MacAddr,
        l2_bytes: usize,
    ) -> Result<Verdict, WireError> {
        let message = NeighborMessage::new_checked(payload)?;
        Ok(match NeighborHeader::read(&message) {
            NeighborHeader::Advertisement { solicited: false, .. } => Verdict::Heard,
            NeighborHeader::Advertisement { .. } => drop_for(DropReason::Unhandled),
            // RFC 4861 section 7.1.1: who has no address asks the group and names no MAC.
            NeighborHeader::Solicitation { target, source_mac }
                if target.is_multicast()
                    || source.is_unspecified()
                        && (source_mac.is_some() || !destination.is_multicast()) =>
            {
                drop_for(DropReason::Malformed)
            }
            NeighborHeader::Solicitation { target, .. } if Some(target) != self.ipv6 => {
                drop_for(DropReason::NotForUs)
            }
            NeighborHeader::Solicitation { source_mac, .. } => Verdict::AnswerSolicitation {
                asker: source,
                asker_mac: source_mac.unwrap_or(mac),
                l2_bytes,
            },
        })
    }
}

/// Whether every store shows a message of `len_bytes` at `at` whole: only then is its checksum
/// looked at, so that what a host does never depends on its driver. A longer echo is answered with
/// an updated checksum, which is wrong if it was wrong.
const fn is_whole_in_any_store(at: usize, len_bytes: usize) -> bool {
    at + len_bytes <= HEAD_BYTES_MIN
}

/// Reads UDP and stream header; `payload` may be the leading part of `payload_bytes`.
fn stream_frame(
    payload: &[u8],
    payload_bytes: usize,
    at: usize,
    pseudo: impl Fn(u16) -> Sum,
) -> Result<Verdict, WireError> {
    let datagram = UdpDatagram::new_checked_prefix(payload, payload_bytes)?;
    let Ok(header) = StreamHeader::read(datagram.payload()) else {
        return Ok(drop_for(DropReason::Unhandled));
    };
    const HEADERS: usize = udp::HEADER_BYTES + stream::HEADER_BYTES;
    let mut sum = pseudo(datagram.len_bytes());
    sum.add_bytes(&payload[..HEADERS]);
    let (Ok(payload_at), Ok(behind)) =
        (u32::try_from(at + HEADERS), u32::try_from(usize::from(datagram.len_bytes()) - HEADERS))
    else {
        return Ok(drop_for(DropReason::Malformed));
    };
    Ok(Verdict::Stream(StreamFrame {
        header,
        payload_at,
        payload_bytes: behind,
        is_ce: false,
        sum: (datagram.checksum() != 0).then_some(sum),
    }))
}
