//! SRv6 endpoints: what a packet asks for whose destination is a segment of this node (RFC 8986
//! section 4, with NEXT-C-SID of RFC 9800 section 4).
//!
//! | what is found | what is done |
//! |---|---|
//! | uN or uA, an argument behind the uSID | hop limit - 1, the argument moves up; the SRH is not looked at |
//! | the same without argument, segments left | hop limit - 1, the next segment of the SRH; with PSP and none left then, the SRH goes |
//! | the same without either | with USD and a packet inside: out with it; else ICMPv6 parameter problem, code 4 |
//! | uDT, uDX, no segments left, a packet inside of the right version | out with it |
//! | uDT, uDX, segments left | ICMPv6 parameter problem, code 0 |
//! | uDT, uDX, something else inside | ICMPv6 parameter problem, code 4 |
//!
//! uN then looks the new address up, which may be a segment of this node again; uA and uDX send to
//! their neighbours; uDT and USD look the inner destination up. A uSID of 0 has no meaning of its own
//! behind another one: it is looked up, and has no route. Fragments are not put together here: they
//! pass by uSIDs that forward, and are dropped where something would be taken out of them.
//!
//! Where the Linux kernel departs from this (it counts one hop limit a node, ignores PSP, is silent
//! where a parameter problem is due), the RFC is followed. Errors quote the packet as it would have
//! gone on, with the hop limit that it came with.

use super::ipv6::{self, Header};
use super::packet::{Chain, ChainError, Packet, protocol_of};
use super::{Router, Target, Verdict};
use crate::ledger::DropReason;
use crate::wire::ecn_tunnel;
use crate::wire::icmp_error::IcmpError;
use crate::wire::protocol;
use crate::wire::srv6::{self, Srh};
use crate::wire::usid::UsidLayout;

/// Segments of one node that a packet may name in a row: what is beyond is not worth its time.
const STEPS_MAX: u32 = 64;

/// A segment of this node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Endpoint {
    pub(super) layout: UsidLayout,
    pub(super) kind: EndpointKind,
    /// Where packets go without look-up: the group of uA and uDX.
    pub(super) group: Option<u32>,
    pub(super) psp: bool,
    /// What may be taken out at the end of a path.
    pub(super) inside: Inside,
}

/// Whether an endpoint is one on the way or the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndpointKind {
    /// uN, uA.
    Next,
    /// uDT, uDX.
    Last,
}

/// The packets that may be taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Inside {
    pub(super) ipv4: bool,
    pub(super) ipv6: bool,
}

impl Inside {
    fn allows(self, upper: u8) -> bool {
        match upper {
            protocol::IPV4 => self.ipv4,
            protocol::IPV6 => self.ipv6,
            _ => false,
        }
    }
}

/// How a packet goes on from a segment.
enum Step {
    /// With the destination and hop limit that were changed.
    On,
    /// No more.
    Stop(Verdict),
}

impl Router {
    /// Goes from segment to segment of this node, beginning with `sid`.
    #[inline]
    pub(super) fn walk(&self, packet: &mut Packet<'_>, mut header: Header, sid: u32) -> Verdict {
        let mut sid = sid;
        for _ in 0..STEPS_MAX {
            let Some(endpoint) = self.sids.get(sid as usize) else { break };
            if endpoint.kind == EndpointKind::Last {
                return self.last(packet, header, endpoint);
            }
            if endpoint.layout.argument(header.destination) == 0 {
                match self.next_segment(packet, &mut header, endpoint) {
                    Step::On => {}
                    Step::Stop(verdict) => return verdict,
                }
            } else {
                header.destination = endpoint.layout.shift(header.destination);
                if header.hop_limit <= 1 {
                    ipv6::set_destination(packet, header.destination);
                    return Verdict::Refuse(DropReason::HopLimit, IcmpError::TimeExceeded);
                }
                header.hop_limit -= 1;
            }
            let target = match endpoint.group {
                Some(group) => Some(Target::Group(group)),
                None => self.ipv6.find(header.destination).map(Target::unpack),
            };
            match target {
                Some(Target::Group(group)) if !header.source_is_link_local => {
                    let Header { destination, hop_limit, .. } = header;
                    ipv6::set_destination_and_hop_limit(packet, destination, hop_limit);
                    return Verdict::Forward(group);
                }
                Some(Target::Sid(next)) => sid = next,
                target => return turned_away(packet, header, target),
            }
        }
        Verdict::Drop(DropReason::SegmentSteps)
    }

    /// The step to the next segment of the SRH (RFC 8986 section 4.1), or what is to be done where
    /// there is none.
    #[cold]
    #[inline(never)]
    fn next_segment(
        &self,
        packet: &mut Packet<'_>,
        header: &mut Header,
        endpoint: &Endpoint,
    ) -> Step {
        let chain = match packet.chain() {
            Ok(chain) => chain,
            Err(error) => return Step::Stop(refuse_chain(packet, *header, error)),
        };
        let srh = packet.bytes_mut().get_mut(chain.srh_at..).filter(|_| chain.srh_at != 0);
        let srh = srh.and_then(|bytes| Srh::new_checked(bytes).ok());
        let Some(mut srh) = srh.filter(|srh| srh.segments_left() > 0) else {
            return Step::Stop(self.upper_layer(packet, *header, &chain, endpoint));
        };
        let left = srh.segments_left() - 1;
        let segment = srh.segment(left).filter(|_| srh.is_consistent());
        if let Some(segment) = segment {
            srh.set_segments_left(left);
            header.destination = segment.to_bits();
        }
        if header.hop_limit <= 1 {
            ipv6::set_destination(packet, header.destination);
            return Step::Stop(Verdict::Refuse(DropReason::HopLimit, IcmpError::TimeExceeded));
        }
        if segment.is_none() {
            return Step::Stop(refuse_segments(packet, *header, &chain));
        }
        header.hop_limit -= 1;
        if endpoint.psp && left == 0 && !packet.pop_srh(&chain) {
            return Step::Stop(Verdict::Drop(DropReason::HeadersTooLong));
        }
        Step::On
    }

    /// The end of a path at a segment for ends of paths (RFC 8986 sections 4.4 to 4.8).
    fn last(&self, packet: &mut Packet<'_>, header: Header, endpoint: &Endpoint) -> Verdict {
        let chain = match packet.chain() {
            Ok(chain) => chain,
            Err(error) => return refuse_chain(packet, header, error),
        };
        let left = packet.bytes().get(chain.srh_at + srv6::SEGMENTS_LEFT_AT);
        if chain.srh_at != 0 && left.is_none_or(|left| *left != 0) {
            return refuse_segments(packet, header, &chain);
        }
        self.upper_layer(packet, header, &chain, endpoint)
    }

    /// What is behind all headers: a packet to be taken out, or something that has no business here.
    fn upper_layer(
        &self,
        packet: &mut Packet<'_>,
        header: Header,
        chain: &Chain,
        endpoint: &Endpoint,
    ) -> Verdict {
        if chain.is_fragment {
            return Verdict::Drop(DropReason::SegmentFragment);
        }
        if !endpoint.inside.allows(chain.upper) {
            ipv6::set_destination(packet, header.destination);
            let pointer = u32::try_from(chain.upper_at).unwrap_or(u32::MAX);
            let error = IcmpError::ParameterProblem { code: 4, pointer };
            return Verdict::Refuse(DropReason::SegmentUpperLayer, error);
        }
        let outer = packet.ds_byte();
        if !packet.strip(chain.upper_at) {
            return Verdict::Drop(DropReason::HeadersTooLong);
        }
        if protocol_of(packet.bytes()) != chain.upper {
            return Verdict::Drop(DropReason::Malformed);
        }
        let inner = packet.ds_byte();
        match ecn_tunnel::inner_byte(inner, outer, self.ecn_decap, self.dscp_mode) {
            None => return Verdict::Drop(DropReason::TunnelCongestion),
            Some(byte) if byte != inner => ecn_tunnel::set_byte_of(packet.bytes_mut(), byte),
            Some(_) => {}
        }
        match (endpoint.group, chain.upper) {
            (None, _) => self.route(packet),
            (Some(group), protocol::IPV4) => self.cross_ipv4(packet, group),
            (Some(group), _) => ipv6::cross(packet, group),
        }
    }
}

/// A packet that does not leave, with the destination that its segments led to.
#[cold]
fn turned_away(packet: &mut Packet<'_>, header: Header, target: Option<Target>) -> Verdict {
    ipv6::set_destination(packet, header.destination);
    match target {
        Some(Target::Group(_)) => Verdict::Refuse(DropReason::BadSource, IcmpError::BeyondScope),
        Some(Target::Local) => Verdict::Local,
        Some(Target::Blackhole) => Verdict::Drop(DropReason::Blackhole),
        Some(Target::Sid(_)) | None => Verdict::Refuse(DropReason::NoRoute, IcmpError::NoRoute),
    }
}

/// Segments left where there should be none, or more than the list has: the error points at them.
fn refuse_segments(packet: &mut Packet<'_>, header: Header, chain: &Chain) -> Verdict {
    ipv6::set_destination(packet, header.destination);
    let pointer = u32::try_from(chain.srh_at + srv6::SEGMENTS_LEFT_AT).unwrap_or(u32::MAX);
    let error = IcmpError::ParameterProblem { code: 0, pointer };
    Verdict::Refuse(DropReason::BadSegments, error)
}

#[cold]
fn refuse_chain(packet: &mut Packet<'_>, header: Header, error: ChainError) -> Verdict {
    match error {
        ChainError::TooLong => Verdict::Drop(DropReason::HeadersTooLong),
        ChainError::Malformed => Verdict::Drop(DropReason::Malformed),
        ChainError::UnknownRouting(pointer) => {
            ipv6::set_destination(packet, header.destination);
            let error = IcmpError::ParameterProblem { code: 0, pointer };
            Verdict::Refuse(DropReason::BadSegments, error)
        }
    }
}
