//! What a router refuses to be built from, and why.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use super::config::{
    EncapConfig, Neighbour, NextHop, Route, RouterAddress, RouterConfig, SidBehaviour, SidConfig,
};
use super::prefix::IpPrefix;
use super::table::is_link_local;
use crate::switch::balance::Method;
use crate::switch::config::{PortConfig, VlanMode};
use crate::wire::srv6;

/// ICMP errors at once.
const ERRORS_BURST_MAX: u32 = 1_000_000;

/// Part of a router's configuration, by its place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouterPlace {
    /// The router as a whole.
    Router,
    /// The address of that index.
    Address(usize),
    /// The neighbour of that index.
    Neighbour(usize),
    /// The route of that index.
    Route(usize),
    /// The segment of that index.
    Sid(usize),
    /// The encapsulation of that index.
    Encapsulation(usize),
}

/// A configuration that makes no router: where, which field, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{label}: {field}: {problem}")]
pub struct RouterConfigError {
    /// The part of the configuration.
    pub place: RouterPlace,
    /// That part, for people.
    pub label: String,
    /// The field, as the configuration type names it.
    pub field: &'static str,
    /// What is wrong with it, and what would be right.
    pub problem: String,
}

type Problem = (&'static str, String);

fn at(place: RouterPlace, label: impl fmt::Display) -> impl FnOnce(Problem) -> RouterConfigError {
    let label = label.to_string();
    move |(field, problem)| RouterConfigError { place, label, field, problem }
}

impl RouterConfig {
    /// Whether a router can be built from this, in a switch with these ports.
    ///
    /// # Errors
    /// [`RouterConfigError`] for the first thing that is wrong.
    pub fn check(&self, ports: &[PortConfig]) -> Result<(), RouterConfigError> {
        self.check_router().map_err(at(RouterPlace::Router, "router"))?;
        let mut taken: BTreeMap<IpPrefix, String> = BTreeMap::new();
        for (index, own) in self.addresses.iter().enumerate() {
            let label = format!("router address {}", own.address);
            check_address(own, ports)
                .and_then(|()| self.take_address(&mut taken, own.address, &label))
                .map_err(at(RouterPlace::Address(index), &label))?;
        }
        for (index, neighbour) in self.neighbours.iter().enumerate() {
            let label = format!("neighbour {}", neighbour.address);
            self.check_neighbour(index, neighbour, ports)
                .and_then(|()| self.take_address(&mut taken, neighbour.address, &label))
                .map_err(at(RouterPlace::Neighbour(index), &label))?;
        }
        for (index, route) in self.routes.iter().enumerate() {
            let label = format!("route {}", route.prefix);
            self.check_route(route, ports)
                .and_then(|()| take(&mut taken, route.prefix, "prefix", &label))
                .map_err(at(RouterPlace::Route(index), &label))?;
        }
        for (index, sid) in self.sids.iter().enumerate() {
            let label = format!("segment {}", sid_prefix(sid));
            self.check_sid(index, sid, ports)
                .and_then(|()| take(&mut taken, sid_prefix(sid), "address", &label))
                .map_err(at(RouterPlace::Sid(index), &label))?;
        }
        for (index, policy) in self.encapsulations.iter().enumerate() {
            self.check_encapsulation(index, policy, ports).map_err(at(
                RouterPlace::Encapsulation(index),
                format!("encapsulation of {}", policy.prefix),
            ))?;
        }
        Ok(())
    }

    fn check_router(&self) -> Result<(), Problem> {
        if let Some(mac) = self.mac.filter(|mac| mac.is_group()) {
            return Err(("mac", format!("{mac} is a group address")));
        }
        if self.icmp_errors_burst == 0 || self.icmp_errors_burst > ERRORS_BURST_MAX {
            let burst = self.icmp_errors_burst;
            return Err(("icmp_errors_burst", format!("{burst}: 1 to {ERRORS_BURST_MAX}")));
        }
        Ok(())
    }

    /// A link-local address is taken on its link alone, which the other checks look at.
    #[allow(clippy::unused_self, reason = "beside the other checks")]
    fn take_address(
        &self,
        taken: &mut BTreeMap<IpPrefix, String>,
        address: IpAddr,
        label: &str,
    ) -> Result<(), Problem> {
        if is_link_local(address) {
            return Ok(());
        }
        take(taken, IpPrefix::host(address), "address", label)
    }

    fn check_neighbour(
        &self,
        index: usize,
        neighbour: &Neighbour,
        ports: &[PortConfig],
    ) -> Result<(), Problem> {
        let Some(port) = ports.get(neighbour.port.index()) else {
            return Err(no_such_port(neighbour.port.index(), ports));
        };
        check_unicast(neighbour.address)?;
        if neighbour.mac.is_group() {
            return Err(("mac", format!("{} is a group address", neighbour.mac)));
        }
        check_vlan(neighbour.vlan, port)?;
        let twice = self.neighbours[..index]
            .iter()
            .any(|other| (other.address, other.port) == (neighbour.address, neighbour.port));
        if twice {
            return Err(("address", "set twice on this port".to_owned()));
        }
        Ok(())
    }

    fn check_route(&self, route: &Route, ports: &[PortConfig]) -> Result<(), Problem> {
        if route.via.is_empty() {
            return Ok(());
        }
        self.check_via(&route.via, route.prefix.address().is_ipv4())?;
        self.check_group(&route.via, route.balance.as_ref(), ports)
    }

    /// Whether the way of choosing fits the next hops, which are neighbours.
    fn check_group(
        &self,
        via: &[NextHop],
        method: Option<&Method>,
        ports: &[PortConfig],
    ) -> Result<(), Problem> {
        let port_of = |hop: &NextHop| {
            let found = self.neighbours.iter().find(|n| n.address == hop.address);
            found.map(|neighbour| (neighbour.port, hop.weight))
        };
        let hops: Vec<_> = via.iter().filter_map(port_of).collect();
        if hops.len() < 2 {
            return Ok(());
        }
        let method = method.unwrap_or(&self.balance).clone();
        let group = super::group_config(&hops, method, ports);
        group.check().map_err(|error| ("balance", error.to_string()))
    }

    /// Next hops must be neighbours, once each. An IPv4 route may lead to an IPv6 neighbour's MAC
    /// address only under that neighbour's own IPv4 address: families do not mix.
    fn check_via(&self, via: &[NextHop], is_ipv4: bool) -> Result<(), Problem> {
        if via.is_empty() {
            return Err(("via", "names no neighbour".to_owned()));
        }
        for (index, hop) in via.iter().enumerate() {
            let address = hop.address;
            if address.is_ipv4() != is_ipv4 {
                return Err(("via", format!("{address} is of the other IP version")));
            }
            let found = self.neighbours.iter().filter(|n| n.address == address).count();
            match found {
                0 => {
                    return Err((
                        "via",
                        format!("{address} is no neighbour: add one with its MAC"),
                    ));
                }
                1 => {}
                n => return Err(("via", format!("{address} is a neighbour on {n} ports"))),
            }
            if via[..index].iter().any(|other| other.address == address) {
                return Err(("via", format!("{address} is there twice: give it a weight of 2")));
            }
            if hop.weight == 0 {
                return Err(("weight", format!("{address} has weight 0: leave it out")));
            }
        }
        Ok(())
    }

    fn check_sid(
        &self,
        index: usize,
        sid: &SidConfig,
        ports: &[PortConfig],
    ) -> Result<(), Problem> {
        let (bits, layout) = (sid.address.to_bits(), sid.layout);
        if layout.argument(bits) != 0 {
            let len = layout.prefix_bits();
            return Err(("address", format!("bits are set behind block and uSID, {len} bits")));
        }
        // What is behind the block.
        if bits << layout.block_bits() == 0 {
            return Err(("address", "uSID 0 ends a container: it can be no node's".to_owned()));
        }
        match &sid.behaviour {
            SidBehaviour::Ua(via, _) | SidBehaviour::Udx6(via) => {
                self.check_via(via, false)?;
                self.check_group(via, None, ports)?;
            }
            SidBehaviour::Udx4(via) => {
                self.check_via(via, true)?;
                self.check_group(via, None, ports)?;
            }
            SidBehaviour::Un(_) | SidBehaviour::Udt4 | SidBehaviour::Udt6 | SidBehaviour::Udt46 => {
            }
        }
        for other in &self.sids[..index] {
            overlap(sid, other)?;
        }
        Ok(())
    }

    fn check_encapsulation(
        &self,
        index: usize,
        policy: &EncapConfig,
        ports: &[PortConfig],
    ) -> Result<(), Problem> {
        if policy.port.index() >= ports.len() {
            return Err(no_such_port(policy.port.index(), ports));
        }
        check_unicast(policy.source.into()).map_err(|(_, problem)| ("source", problem))?;
        if policy.segments.is_empty() {
            return Err(("segments", "a path has one segment at least".to_owned()));
        }
        let srh = srv6::len_bytes(policy.segments.len() - 1);
        // An Ethernet and an IPv6 header take 54 of the bytes that every store keeps free.
        let free = crate::frame::HEADROOM_BYTES_MIN as usize - 54;
        if policy.segments.len() > 1 && srh > free {
            let most = (free - srv6::FIXED_BYTES) / srv6::SEGMENT_BYTES + 1;
            let n = policy.segments.len();
            return Err(("segments", format!("{n} segments: at most {most} fit before a packet")));
        }
        if let Some(bad) = policy.segments.iter().find(|s| s.is_multicast() || s.is_unspecified()) {
            return Err(("segments", format!("{bad} is no segment")));
        }
        if policy.hop_limit == 0 {
            return Err(("hop_limit", "0: no hop would be left".to_owned()));
        }
        let same = |other: &EncapConfig| (other.port, other.prefix) == (policy.port, policy.prefix);
        if self.encapsulations[..index].iter().any(same) {
            return Err(("prefix", "set twice for this port".to_owned()));
        }
        Ok(())
    }
}

/// The prefix by which a segment is known.
fn sid_prefix(sid: &SidConfig) -> IpPrefix {
    let len = sid.layout.prefix_bits();
    IpPrefix::new(sid.address.into(), len).unwrap_or_else(|_| IpPrefix::host(sid.address.into()))
}

/// Whether two segments leave a packet's meaning open. A longer one may lie under a uN of the same
/// block: it stands for that uN and the uSID behind it (RFC 9800 section 4, a local uSID).
fn overlap(sid: &SidConfig, other: &SidConfig) -> Result<(), Problem> {
    let (here, there) = (sid_prefix(sid), sid_prefix(other));
    if here == there {
        return Err(("address", format!("{here} is a segment already")));
    }
    let (shorter, longer) = match (here.covers(there), there.covers(here)) {
        (true, _) => (sid, other),
        (_, true) => (other, sid),
        _ => return Ok(()),
    };
    let is_un = matches!(shorter.behaviour, SidBehaviour::Un(_));
    if is_un && shorter.layout.block_bits() == longer.layout.block_bits() {
        return Ok(());
    }
    Err((
        "address",
        format!(
            "overlaps with {there}: of segments that hold one another, the shorter is a uN of the same block"
        ),
    ))
}

fn take(
    taken: &mut BTreeMap<IpPrefix, String>,
    prefix: IpPrefix,
    field: &'static str,
    label: &str,
) -> Result<(), Problem> {
    match taken.insert(prefix, label.to_owned()) {
        None => Ok(()),
        Some(other) => Err((field, format!("{prefix} is taken by {other}"))),
    }
}

fn check_address(own: &RouterAddress, ports: &[PortConfig]) -> Result<(), Problem> {
    if own.port.index() >= ports.len() {
        return Err(no_such_port(own.port.index(), ports));
    }
    check_unicast(own.address)
}

fn check_unicast(address: IpAddr) -> Result<(), Problem> {
    let is_broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    if address.is_multicast() || address.is_unspecified() || address.is_loopback() || is_broadcast {
        return Err(("address", format!("{address} is no station's address")));
    }
    Ok(())
}

fn check_vlan(vlan: Option<u16>, port: &PortConfig) -> Result<(), Problem> {
    let (allowed, untagged): (&[u16], _) = match &port.vlan {
        VlanMode::Access(vlan) => (&[], Some(*vlan)),
        VlanMode::Trunk { allowed, native } => (allowed, *native),
    };
    match (vlan, untagged) {
        (None, None) => {
            let name = &port.name;
            Err(("vlan", format!("port {name} has no VLAN of untagged frames: name one")))
        }
        (Some(vlan), _) if Some(vlan) != untagged && !allowed.contains(&vlan) => {
            Err(("vlan", format!("port {} is not in VLAN {vlan}", port.name)))
        }
        _ => Ok(()),
    }
}

fn no_such_port(index: usize, ports: &[PortConfig]) -> Problem {
    ("port", format!("there is no port {index}: the switch has {}", ports.len()))
}
