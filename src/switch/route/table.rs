//! The tables of a router, made of its configuration.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::config::{NextHop, RouterConfig, SidBehaviour, SidConfig};
use super::encap::Encapsulation;
use super::limit::RateLimit;
use super::lpm::{Lpm, VALUE_MAX};
use super::quick::Quick;
use super::usid::{Endpoint, EndpointKind, Inside};
use super::{Adjacency, Group, Router, Target};
use crate::node::PortId;
use crate::switch::balance::Method;
use crate::switch::config::PortConfig;
use crate::wire::MacAddr;

const IPV4: Inside = Inside { ipv4: true, ipv6: false };
const IPV6: Inside = Inside { ipv4: false, ipv6: true };
const BOTH: Inside = Inside { ipv4: true, ipv6: true };
const NEITHER: Inside = Inside { ipv4: false, ipv6: false };

/// The tables as they grow.
struct Tables<'a> {
    config: &'a RouterConfig,
    ports: &'a [PortConfig],
    members: Vec<Adjacency>,
    groups: Vec<Group>,
    /// Groups by what they are made of, so that routes with the same next hops and the same way of
    /// choosing share one.
    known: BTreeMap<(usize, Vec<(IpAddr, u16)>), u32>,
    /// Ways of choosing: few.
    methods: Vec<&'a Method>,
    ipv4: Vec<(u32, u8, u32)>,
    ipv6: Vec<(u128, u8, u32)>,
}

impl<'a> Tables<'a> {
    fn enter(&mut self, address: IpAddr, len: u8, target: Target) {
        match address {
            IpAddr::V4(v4) => self.ipv4.push((v4.to_bits(), len, target.pack())),
            IpAddr::V6(v6) => self.ipv6.push((v6.to_bits(), len, target.pack())),
        }
    }

    /// The group of these next hops, which are neighbours (the configuration was checked).
    fn group(&mut self, via: &[NextHop], method: Option<&'a Method>) -> u32 {
        let method = method.unwrap_or(&self.config.balance);
        let known = self.methods.iter().position(|known| *known == method);
        let method = known.unwrap_or_else(|| {
            self.methods.push(method);
            self.methods.len() - 1
        });
        let key = (method, via.iter().map(|hop| (hop.address, hop.weight)).collect());
        if let Some(group) = self.known.get(&key) {
            return *group;
        }
        let first = self.members.len();
        for hop in via {
            let neighbours = &self.config.neighbours;
            let found = neighbours.iter().find(|neighbour| neighbour.address == hop.address);
            self.members.extend(found.map(|neighbour| {
                let vlan = neighbour.vlan.unwrap_or(0);
                self.adjacency(neighbour.port, neighbour.mac, vlan, hop.weight)
            }));
        }
        let group = u32::try_from(self.groups.len()).unwrap_or(VALUE_MAX);
        self.groups.push(Group { first, len: self.members.len() - first, method });
        self.known.insert(key, group);
        group
    }

    fn adjacency(&self, port: PortId, mac: MacAddr, vlan: u16, weight: u16) -> Adjacency {
        let own = self.config.mac.unwrap_or_else(|| self.ports[port.index()].mac);
        let mut addresses = [0; 12];
        addresses[..6].copy_from_slice(&mac.0);
        addresses[6..].copy_from_slice(&own.0);
        Adjacency { port, vlan, weight, addresses }
    }

    fn endpoint(&mut self, sid: &SidConfig) -> Endpoint {
        let (kind, via, psp, inside): (_, &[NextHop], _, _) = match &sid.behaviour {
            SidBehaviour::Un(flavours) => (EndpointKind::Next, &[], flavours.psp, flavours.usd),
            SidBehaviour::Ua(via, flavours) => {
                (EndpointKind::Next, via, flavours.psp, flavours.usd)
            }
            _ => (EndpointKind::Last, &[], false, false),
        };
        let (via, inside) = match &sid.behaviour {
            SidBehaviour::Udt4 => (via, IPV4),
            SidBehaviour::Udt6 => (via, IPV6),
            SidBehaviour::Udt46 => (via, BOTH),
            SidBehaviour::Udx4(via) => (via.as_slice(), IPV4),
            SidBehaviour::Udx6(via) => (via.as_slice(), IPV6),
            SidBehaviour::Un(_) | SidBehaviour::Ua(..) => {
                (via, if inside { BOTH } else { NEITHER })
            }
        };
        let group = (!via.is_empty()).then(|| self.group(via, None));
        Endpoint { layout: sid.layout, kind, group, psp, inside }
    }
}

impl Router {
    /// A router of a switch with these ports. The configuration has been
    /// [checked](RouterConfig::check).
    pub fn new(config: &RouterConfig, ports: &[PortConfig]) -> Self {
        let mut tables = Tables {
            config,
            ports,
            members: Vec::new(),
            groups: Vec::new(),
            known: BTreeMap::new(),
            methods: Vec::new(),
            ipv4: Vec::new(),
            ipv6: Vec::new(),
        };
        // Of two entries for one prefix the later counts: neighbours and own addresses before routes
        // would lose to them, and are never the same as a route's by the check.
        for neighbour in config.neighbours.iter().filter(|n| !is_link_local(n.address)) {
            let group = tables.group(&[NextHop { address: neighbour.address, weight: 1 }], None);
            tables.enter(neighbour.address, host_len(neighbour.address), Target::Group(group));
        }
        for route in &config.routes {
            let target = match route.via.as_slice() {
                [] => Target::Blackhole,
                via => Target::Group(tables.group(via, route.balance.as_ref())),
            };
            tables.enter(route.prefix.address(), route.prefix.len(), target);
        }
        for own in config.addresses.iter().filter(|own| !is_link_local(own.address)) {
            tables.enter(own.address, host_len(own.address), Target::Local);
        }
        let mut sids = Vec::new();
        for (index, sid) in (0..).zip(&config.sids) {
            tables.enter(sid.address.into(), sid.layout.prefix_bits(), Target::Sid(index));
            sids.push(tables.endpoint(sid));
        }
        let link_local = config.neighbours.iter().filter(|n| is_link_local(n.address)).map(|n| {
            let adjacency = tables.adjacency(n.port, n.mac, n.vlan.unwrap_or(0), 1);
            (n.address, adjacency)
        });
        let link_local = link_local.collect();
        let mut encapsulations: Vec<Encapsulation> =
            config.encapsulations.iter().map(Encapsulation::new).collect();
        encapsulations.sort_by_key(|policy| (policy.port, std::cmp::Reverse(policy.prefix.len())));
        let ipv6 = Lpm::new(&tables.ipv6);
        let addresses = config.sids.iter().map(|sid| sid.address.to_bits());
        let own: Vec<(u128, Endpoint)> = addresses.zip(sids.iter().copied()).collect();
        let quick = Quick::new(&own, &tables.ipv6, &ipv6);
        Self {
            ipv4: Lpm::new(&tables.ipv4),
            ipv6,
            quick,
            members: tables.members,
            groups: tables.groups,
            methods: tables.methods.into_iter().cloned().collect(),
            sids,
            link_local,
            addresses: config.addresses.clone(),
            encapsulations,
            ecn_decap: config.ecn_decap,
            dscp_mode: config.dscp_mode,
            errors: RateLimit::new(config.icmp_errors_per_second, config.icmp_errors_burst),
            errors_suppressed: 0,
        }
    }
}

/// Whether an address is of link-local scope (fe80::/10).
pub(super) const fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => false,
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

const fn host_len(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}
