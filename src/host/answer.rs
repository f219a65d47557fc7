//! The frames with which a host answers and announces itself.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::classify::{ALL_NODES, Addresses};
use crate::wire::arp::{self, ArpHeader, Operation};
use crate::wire::checksum;
use crate::wire::ethernet::{self, EthernetFrame, EthernetHeader};
use crate::wire::icmpv4::{self, Icmpv4Message};
use crate::wire::icmpv6::{self, Icmpv6Message, NeighborHeader};
use crate::wire::ipv4::Ipv4Packet;
use crate::wire::ipv6::{self, Ipv6Header, Ipv6Packet};
use crate::wire::vlan::{TAG_BYTES, TAGS_MAX};
use crate::wire::{MacAddr, WireError, ethertype, protocol};

const L2_BYTES_MAX: usize = ethernet::HEADER_BYTES + TAGS_MAX * TAG_BYTES;
const ADVERTISEMENT_BYTES: usize = icmpv6::NEIGHBOR_BYTES + icmpv6::LINK_LAYER_OPTION_BYTES;

/// The longest frame made here: a neighbour advertisement behind four tags.
const ANSWER_BYTES_MAX: usize = L2_BYTES_MAX + ipv6::HEADER_BYTES + ADVERTISEMENT_BYTES;

/// Hops of an answer to an echo request.
const HOP_LIMIT: u8 = 64;

/// A frame under construction, on the stack.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    bytes: [u8; ANSWER_BYTES_MAX],
    len_bytes: usize,
}

impl Answer {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len_bytes]
    }

    /// An untagged frame's first bytes.
    fn untagged(destination: MacAddr, source: MacAddr, ethertype: u16) -> Result<Self, WireError> {
        let mut answer = Self { bytes: [0; ANSWER_BYTES_MAX], len_bytes: ethernet::HEADER_BYTES };
        let mut frame = EthernetFrame::new_checked(&mut answer.bytes[..])?;
        EthernetHeader { destination, source, ethertype }.emit(&mut frame);
        Ok(answer)
    }

    /// A frame's first bytes, with the tags of the frame that is answered.
    fn tagged_as(l2: &[u8], destination: MacAddr, source: MacAddr) -> Result<Self, WireError> {
        let mut answer = Self { bytes: [0; ANSWER_BYTES_MAX], len_bytes: l2.len() };
        answer.bytes[..l2.len()].copy_from_slice(l2);
        let mut frame = EthernetFrame::new_checked(&mut answer.bytes[..])?;
        frame.set_destination(destination);
        frame.set_source(source);
        Ok(answer)
    }

    fn room(&mut self, len_bytes: usize) -> &mut [u8] {
        let at = self.len_bytes;
        self.len_bytes += len_bytes;
        &mut self.bytes[at..at + len_bytes]
    }

    /// An ARP reply: we have `own`. `l2` is the request's Ethernet header with tags.
    pub(super) fn arp_reply(
        l2: &[u8],
        us: &Addresses,
        own: Ipv4Addr,
        asker: &ArpHeader,
    ) -> Result<Self, WireError> {
        let mut answer = Self::tagged_as(l2, asker.sender_mac, us.mac)?;
        let reply = ArpHeader {
            operation: Operation::Reply,
            sender_mac: us.mac,
            sender_ip: own,
            target_mac: asker.sender_mac,
            target_ip: asker.sender_ip,
        };
        reply.emit(answer.room(arp::PACKET_BYTES))?;
        Ok(answer)
    }

    /// An announcement by RFC 5227 section 2.3: a request for our own address.
    pub(super) fn arp_announcement(us: &Addresses, own: Ipv4Addr) -> Result<Self, WireError> {
        let mut answer = Self::untagged(MacAddr::BROADCAST, us.mac, ethertype::ARP)?;
        let announcement = ArpHeader {
            operation: Operation::Request,
            sender_mac: us.mac,
            sender_ip: own,
            target_mac: MacAddr::default(),
            target_ip: own,
        };
        announcement.emit(answer.room(arp::PACKET_BYTES))?;
        Ok(answer)
    }

    /// An answer to a solicitation. Who asks without an address is answered through the group of
    /// all nodes (RFC 4861 section 7.2.4).
    pub(super) fn advertisement(
        l2: &[u8],
        us: &Addresses,
        own: Ipv6Addr,
        asker: Ipv6Addr,
        asker_mac: MacAddr,
    ) -> Result<Self, WireError> {
        if asker.is_unspecified() {
            let answer = Self::tagged_as(l2, icmpv6::multicast_mac(ALL_NODES), us.mac)?;
            return answer.with_advertisement(us, own, ALL_NODES, false);
        }
        Self::tagged_as(l2, asker_mac, us.mac)?.with_advertisement(us, own, asker, true)
    }

    /// An unsolicited advertisement (RFC 4861 section 7.2.6).
    pub(super) fn unsolicited_advertisement(
        us: &Addresses,
        own: Ipv6Addr,
    ) -> Result<Self, WireError> {
        Self::untagged(icmpv6::multicast_mac(ALL_NODES), us.mac, ethertype::IPV6)?
            .with_advertisement(us, own, ALL_NODES, false)
    }

    fn with_advertisement(
        mut self,
        us: &Addresses,
        own: Ipv6Addr,
        destination: Ipv6Addr,
        solicited: bool,
    ) -> Result<Self, WireError> {
        let header = Ipv6Header {
            source: own,
            destination,
            next_header: protocol::ICMPV6,
            hop_limit: 255,
            dscp: 0,
            ecn: 0,
            flow_label: 0,
            payload_bytes: 32,
        };
        header.emit(self.room(ipv6::HEADER_BYTES))?;
        let advertisement = NeighborHeader::Advertisement {
            target: own,
            target_mac: Some(us.mac),
            router: false,
            solicited,
            overrides: true,
        };
        advertisement.emit(own, destination, self.room(ADVERTISEMENT_BYTES))?;
        Ok(self)
    }
}

/// Turns the Ethernet header round, back to who sent the frame.
fn turn_ethernet(head: &mut [u8], us: &Addresses) -> Result<(), WireError> {
    let mut frame = EthernetFrame::new_checked(head)?;
    let asker = frame.source();
    frame.set_destination(asker);
    frame.set_source(us.mac);
    Ok(())
}

/// Makes an ICMPv4 echo request the reply, in place: the payload is never touched, so it may lie
/// behind `head`, and the checksums are updated by RFC 1624.
pub(super) fn turn_echo_v4(
    head: &mut [u8],
    us: &Addresses,
    l3: usize,
    icmp: usize,
) -> Result<(), WireError> {
    turn_ethernet(head, us)?;
    // The total length may pass `head`, which `classify` has checked against the frame.
    let mut packet = Ipv4Packet::new_checked_prefix(&mut head[l3..], usize::MAX)?;
    let (asker, own) = (packet.source(), packet.destination());
    // Swapped addresses leave the sum as it is.
    packet.set_source(own);
    packet.set_destination(asker);
    let before = u16::from_be_bytes([packet.ttl(), packet.protocol()]);
    packet.set_ttl(HOP_LIMIT);
    let after = u16::from_be_bytes([packet.ttl(), packet.protocol()]);
    packet.set_header_checksum(checksum::update(packet.header_checksum(), before, after));
    let mut message = Icmpv4Message::new_checked(&mut head[icmp..])?;
    let (request, reply) =
        (u16::from(icmpv4::ECHO_REQUEST) << 8, u16::from(icmpv4::ECHO_REPLY) << 8);
    message.set_kind(icmpv4::ECHO_REPLY);
    message.set_checksum(checksum::update(message.checksum(), request, reply));
    Ok(())
}

/// The same for ICMPv6, whose pseudo-header's sum is that of both addresses in any order.
pub(super) fn turn_echo_v6(
    head: &mut [u8],
    us: &Addresses,
    l3: usize,
    icmp: usize,
) -> Result<(), WireError> {
    turn_ethernet(head, us)?;
    let mut packet = Ipv6Packet::new_checked_prefix(&mut head[l3..], usize::MAX)?;
    let (asker, own) = (packet.source(), packet.destination());
    packet.set_source(own);
    packet.set_destination(asker);
    packet.set_hop_limit(HOP_LIMIT);
    let mut message = Icmpv6Message::new_checked(&mut head[icmp..])?;
    let (request, reply) =
        (u16::from(icmpv6::ECHO_REQUEST) << 8, u16::from(icmpv6::ECHO_REPLY) << 8);
    message.set_kind(icmpv6::ECHO_REPLY);
    message.set_checksum(checksum::update(message.checksum(), request, reply));
    Ok(())
}
