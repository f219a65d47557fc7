//! The router in the switch: static routes of IPv4 and IPv6 by longest prefix, groups of next hops,
//! static neighbours, SRv6 endpoints and encapsulation, ICMP errors.
//!
//! A router changes a packet's headers in its frame and says what is to become of it; it moves no
//! frame and knows no queue. One table holds all that a destination can be: a group of next hops, a
//! segment of this node, an address of this node, nothing. [`Router::route`] is what a frame for the
//! router's MAC address goes through.

mod check;
pub mod config;
mod encap;
mod error;
mod ipv4;
mod ipv6;
mod limit;
mod lpm;
mod packet;
pub mod prefix;
mod quick;
mod table;
#[cfg(test)]
mod tests;
mod usid;
#[cfg(test)]
mod vectors;

use std::net::IpAddr;

pub use check::{RouterConfigError, RouterPlace};
use config::RouterAddress;
pub use encap::{Encapsulation, InnerPacket};
pub use error::{ERROR_BYTES_MAX, Way};
use limit::RateLimit;
use lpm::Lpm;
pub use packet::Packet;
use quick::Quick;
use usid::Endpoint;

use crate::ledger::DropReason;
use crate::node::PortId;
use crate::switch::balance::{GroupConfig, MemberConfig, Method};
use crate::switch::config::PortConfig;
use crate::wire::ecn_tunnel::{DscpMode, EcnDecap};
use crate::wire::icmp_error::IcmpError;

/// The tables of a router, and what it may still say about packets that it drops.
#[derive(Clone, Debug)]
pub struct Router {
    ipv4: Lpm<u32>,
    ipv6: Lpm<u128>,
    quick: Quick,
    members: Vec<Adjacency>,
    groups: Vec<Group>,
    methods: Vec<Method>,
    sids: Vec<Endpoint>,
    /// Neighbours of link-local scope: for errors alone.
    link_local: Vec<(IpAddr, Adjacency)>,
    addresses: Vec<RouterAddress>,
    encapsulations: Vec<Encapsulation>,
    ecn_decap: EcnDecap,
    dscp_mode: DscpMode,
    errors: RateLimit,
    /// Errors that were due, but for their rate.
    errors_suppressed: u64,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A member of this group sends it.
    Forward(u32),
    /// It is for an address of this node.
    Local,
    /// It is dropped.
    Drop(DropReason),
    /// It is dropped, and its source may be told.
    Refuse(DropReason, IcmpError),
}

/// A next hop: a place on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adjacency {
    /// The port that frames leave by.
    pub port: PortId,
    /// The VLAN that frames go in; 0: that of the port's untagged frames.
    pub vlan: u16,
    /// Its share of the group's packets.
    pub weight: u16,
    /// Destination and source address of frames.
    pub addresses: [u8; 12],
}

/// Next hops among which each packet or flow gets one: a part of the list of members.
#[derive(Clone, Copy, Debug)]
struct Group {
    first: usize,
    len: usize,
    /// How one of them is chosen, by its place among the ways that the router knows.
    method: usize,
}

/// What a destination is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Group(u32),
    Sid(u32),
    Local,
    Blackhole,
}

impl Target {
    const KIND_SHIFT: u32 = 28;
    const INDEX_MASK: u32 = (1 << Self::KIND_SHIFT) - 1;

    /// As a value of the table.
    const fn pack(self) -> u32 {
        match self {
            Self::Group(group) => group & Self::INDEX_MASK,
            Self::Sid(sid) => 1 << Self::KIND_SHIFT | sid & Self::INDEX_MASK,
            Self::Local => 2 << Self::KIND_SHIFT,
            Self::Blackhole => 3 << Self::KIND_SHIFT,
        }
    }

    #[inline]
    const fn unpack(value: u32) -> Self {
        match value >> Self::KIND_SHIFT {
            0 => Self::Group(value),
            1 => Self::Sid(value & Self::INDEX_MASK),
            2 => Self::Local,
            _ => Self::Blackhole,
        }
    }
}

impl Router {
    /// Routes a packet that came in for this node's MAC address.
    #[inline]
    pub fn route(&self, packet: &mut Packet<'_>) -> Verdict {
        match self.quick.route(packet) {
            Some(verdict) => verdict,
            None => self.route_long(packet),
        }
    }

    /// The same, whatever the packet is.
    #[inline(never)]
    fn route_long(&self, packet: &mut Packet<'_>) -> Verdict {
        match packet.bytes().first().map(|first| first >> 4) {
            Some(6) => self.route_ipv6(packet, false),
            Some(4) => self.route_ipv4(packet, false),
            _ => Verdict::Drop(DropReason::Malformed),
        }
    }

    /// Routes a packet that this node has made or put an outer header on: its first hop is not
    /// counted.
    pub fn route_own(&self, packet: &mut Packet<'_>) -> Verdict {
        match packet.bytes().first().map(|first| first >> 4) {
            Some(6) => self.route_ipv6(packet, true),
            Some(4) => self.route_ipv4(packet, true),
            _ => Verdict::Drop(DropReason::Malformed),
        }
    }

    /// Counts the hop of a packet that is going to get an outer header; Some when it has none left, or
    /// is no packet.
    pub fn hop(&self, packet: &mut Packet<'_>) -> Option<Verdict> {
        let verdict = match packet.bytes().first().map(|first| first >> 4) {
            Some(6) => ipv6::cross(packet, 0),
            Some(4) => self.cross_ipv4(packet, 0),
            _ => Verdict::Drop(DropReason::Malformed),
        };
        (verdict != Verdict::Forward(0)).then_some(verdict)
    }

    /// The next hops of a group.
    #[inline]
    pub fn members(&self, group: u32) -> &[Adjacency] {
        let group = self.groups.get(group as usize);
        let members =
            group.and_then(|group| self.members.get(group.first..group.first + group.len));
        members.unwrap_or_default()
    }

    /// How each group chooses among its members, in the order of groups, on ports of these rates; None
    /// where there is one member.
    pub fn balances(&self, ports: &[PortConfig]) -> Vec<Option<GroupConfig>> {
        let balance = |group: &Group| {
            let members = &self.members[group.first..group.first + group.len];
            let hops: Vec<_> = members.iter().map(|member| (member.port, member.weight)).collect();
            (hops.len() > 1).then(|| group_config(&hops, self.methods[group.method].clone(), ports))
        };
        self.groups.iter().map(balance).collect()
    }

    /// The policy of that number, which [`encapsulation`](Self::encapsulation) gave.
    pub fn policy(&self, index: usize) -> &Encapsulation {
        &self.encapsulations[index]
    }

    /// ICMP errors that were due, but for their rate.
    pub const fn errors_suppressed(&self) -> u64 {
        self.errors_suppressed
    }
}

/// A group of next hops on these ports with these weights, all 1 for none.
fn group_config(hops: &[(PortId, u16)], method: Method, ports: &[PortConfig]) -> GroupConfig {
    let is_weighted = hops.iter().any(|(_, weight)| *weight != 1);
    let member = |(port, weight): &(PortId, u16)| MemberConfig {
        port: *port,
        rate: ports[port.index()].rate,
        weight: is_weighted.then_some(u32::from(*weight)),
    };
    GroupConfig::new(hops.iter().map(member).collect(), method)
}
