//! The routers of switches: neighbours, routes, SRv6 segments, VXLAN.
//!
//! A switch is a router when its table has one of these keys. What a neighbour's MAC address is the
//! file need not say where the link leads to a node of the lab.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::str::FromStr;

use serde::Deserialize;
use toml::Spanned;

use super::balance::BalanceTable;
use super::error::Issue;
use super::file::SwitchTable;
use super::groups::port_index;
use super::resolve::{Resolver, plain, value};
use super::value::{OneOrMany, Q, S, Text};
use super::{Attachment, HostNode, Link, NodeId, SwitchNode};
use crate::node::PortId;
use crate::switch::balance::Method;
use crate::switch::balance::config::HashConfig;
use crate::switch::route::RouterPlace;
use crate::switch::route::config::{
    EncapConfig, Flavours, Neighbour, NextHop, Route, RouterAddress, RouterConfig, SidBehaviour,
    SidConfig,
};
use crate::switch::route::prefix::IpPrefix;
use crate::switch::vtep::{RemoteVtep, VniConfig, VtepConfig};
use crate::switch::{SwitchConfig, SwitchConfigError, SwitchConfigPlace};
use crate::wire::MacAddr;
use crate::wire::ecn_tunnel::{DscpMode, EcnDecap};
use crate::wire::usid::UsidLayout;

/// Bits of a uSID that does not say.
const USID_BITS: u8 = 16;

/// Outer hops of packets that a policy puts a path on.
const HOP_LIMIT: u8 = 64;

/// `[[switch.NAME.neighbour]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NeighbourTable {
    address: Q<IpAddr>,
    port: S<String>,
    mac: Option<Q<MacAddr>>,
    vlan: Option<S<u16>>,
}

/// `[[switch.NAME.route]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RouteTable {
    prefix: Q<IpPrefix>,
    via: S<OneOrMany<IpAddr>>,
    weights: Option<S<Vec<u16>>>,
    balance: Option<S<BalanceTable>>,
}

/// `[switch.NAME.srv6]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Srv6Table {
    block: Q<IpPrefix>,
    usid_bits: Option<S<u8>>,
    ecn_decap: Option<EcnDecapName>,
    dscp: Option<DscpName>,
    #[serde(default)]
    usid: Vec<UsidTable>,
    #[serde(default)]
    encap: Vec<EncapTable>,
}

/// `[[switch.NAME.srv6.usid]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UsidTable {
    usid: Q<Usids>,
    behaviour: BehaviourName,
    via: Option<S<OneOrMany<IpAddr>>>,
    psp: Option<bool>,
    usd: Option<bool>,
}

/// `[[switch.NAME.srv6.encap]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EncapTable {
    port: S<String>,
    prefix: Q<IpPrefix>,
    source: Q<Ipv6Addr>,
    path: Q<Usids>,
    hop_limit: Option<S<u8>>,
}

/// `[switch.NAME.vxlan]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VxlanTable {
    address: Q<Ipv4Addr>,
    ecn_decap: Option<EcnDecapName>,
    dscp: Option<DscpName>,
    #[serde(default)]
    vni: Vec<VniTable>,
    #[serde(default)]
    remote: Vec<RemoteTable>,
}

/// `[[switch.NAME.vxlan.vni]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VniTable {
    vni: S<u32>,
    vlan: S<u16>,
}

/// `[[switch.NAME.vxlan.remote]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RemoteTable {
    address: Q<Ipv4Addr>,
    vnis: Option<S<Vec<u32>>>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum BehaviourName {
    Un,
    Ua,
    Udt4,
    Udt6,
    Udt46,
    Udx4,
    Udx6,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum EcnDecapName {
    Rfc6040,
    Kernel,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum DscpName {
    Pipe,
    Uniform,
}

/// uSIDs in hexadecimal with colons between them, as in an address: `2:3:d6`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Usids(Vec<u32>);

/// Not uSIDs.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` are no uSIDs in hexadecimal, like 2:3:d6")]
pub(super) struct UsidsError(String);

impl FromStr for Usids {
    type Err = UsidsError;
    fn from_str(text: &str) -> Result<Self, UsidsError> {
        let usid = |group: &str| u32::from_str_radix(group, 16).ok().filter(|usid| *usid != 0);
        let all: Option<Vec<u32>> = text.split(':').map(usid).collect();
        all.map(Self).ok_or_else(|| UsidsError(text.to_owned()))
    }
}

const fn ecn_decap(name: Option<EcnDecapName>) -> EcnDecap {
    match name {
        Some(EcnDecapName::Kernel) => EcnDecap::Kernel,
        Some(EcnDecapName::Rfc6040) | None => EcnDecap::Rfc6040,
    }
}

const fn dscp_mode(name: Option<DscpName>) -> DscpMode {
    match name {
        Some(DscpName::Uniform) => DscpMode::Uniform,
        Some(DscpName::Pipe) | None => DscpMode::Pipe,
    }
}

fn hops(via: &S<OneOrMany<IpAddr>>) -> Vec<NextHop> {
    let hop = |address: &IpAddr| NextHop { address: *address, weight: 1 };
    via.get_ref().0.iter().map(hop).collect()
}

/// Whether a switch routes.
fn is_router(table: &SwitchTable) -> bool {
    table.router_mac.is_some()
        || !table.neighbour.is_empty()
        || !table.route.is_empty()
        || table.srv6.is_some()
        || table.vxlan.is_some()
        || table.port.values().any(|port| port.addresses.is_some())
}

/// The MAC address of the router that has an IP address, if a switch of the lab is it.
pub(super) fn router_mac(switches: &[SwitchNode], address: IpAddr) -> Option<MacAddr> {
    switches.iter().find_map(|switch| {
        let router = switch.config.router.as_ref()?;
        let own = router.addresses.iter().find(|own| own.address == address)?;
        Some(router.mac.unwrap_or_else(|| switch.config.ports[own.port.index()].mac))
    })
}

/// Whether `other` is in the network that an address with a prefix of `len` bits is in.
pub(super) fn is_near(own: IpAddr, len: u8, other: IpAddr) -> bool {
    IpPrefix::around(own, len).is_some_and(|network| network.contains(other))
}

impl<'a> Resolver<'a> {
    /// Checks that every host's gateways are routers of the lab, or some kernel host.
    pub(super) fn gateways(&mut self, switches: &[SwitchNode], hosts: &[HostNode]) {
        let tables = self.host_names.clone();
        for ((_, table), host) in tables.into_iter().zip(hosts) {
            let Some(gateways) = &table.gateway else { continue };
            for gateway in &host.gateways {
                if router_mac(switches, *gateway).is_none() {
                    let message = format!("no switch has the router address {gateway}");
                    let help = "add it to `addresses` of a [switch.NAME.port.P]";
                    self.issue(Issue::new(gateways.span(), message).help(help));
                }
            }
        }
    }

    /// Makes routers of the switches that have the keys of one.
    pub(super) fn routers(
        &mut self,
        switches: &mut [SwitchNode],
        hosts: &[HostNode],
        links: &[Link],
    ) {
        let tables = self.switch_names.clone();
        for (index, (name, table)) in tables.iter().enumerate() {
            let table: &'a SwitchTable = table;
            if !is_router(table) {
                continue;
            }
            let mut router =
                RouterConfig { mac: value(table.router_mac.as_ref()), ..RouterConfig::default() };
            if let Some(rate) = plain(table.icmp_errors_per_second.as_ref()) {
                router.icmp_errors_per_second = rate;
            }
            if let Some(burst) = plain(table.icmp_errors_burst.as_ref()) {
                router.icmp_errors_burst = burst;
            }
            router.balance = Method::Ecmp(HashConfig::new(u32::try_from(index).unwrap_or(0)));
            let balance = table.balance.as_ref().or(self.file.defaults.switch.balance.as_ref());
            if let Some(balance) = balance {
                let named = |name: &str| port_index(&switches[index].config, name);
                router.balance = self.balance(balance, &named).into_method();
            }
            for (port, own) in &table.port {
                let Some(addresses) = &own.addresses else { continue };
                let Some(port) = self.port_named(&switches[index], port) else { continue };
                for address in &addresses.get_ref().0 {
                    router.addresses.push(RouterAddress { port, address: *address });
                }
            }
            switches[index].config.router = Some(router);
            let _ = name;
        }
        for (index, (_, table)) in tables.iter().enumerate() {
            let table: &'a SwitchTable = table;
            let Some(mut router) = switches[index].config.router.take() else { continue };
            for neighbour in &table.neighbour {
                let neighbour = self.neighbour(neighbour, index, switches, &router, hosts, links);
                router.neighbours.extend(neighbour);
            }
            let switch = &switches[index];
            let routes = table.route.iter().map(|route| self.route(route, switch, &router));
            router.routes = routes.collect();
            if let Some(srv6) = &table.srv6 {
                self.srv6(srv6, &switches[index], &mut router);
            }
            switches[index].config.vtep = table.vxlan.as_ref().map(vtep);
            switches[index].config.router = Some(router);
        }
        let defaults = &self.file.defaults.switch;
        let mut own: Vec<Range<usize>> = Vec::new();
        own.extend(defaults.router_mac.as_ref().map(Spanned::span));
        own.extend(defaults.neighbour.first().map(|table| table.address.span()));
        own.extend(defaults.route.first().map(|table| table.prefix.span()));
        own.extend(defaults.srv6.as_ref().map(|table| table.block.span()));
        own.extend(defaults.vxlan.as_ref().map(|table| table.address.span()));
        own.extend(defaults.icmp_errors_per_second.as_ref().map(Spanned::span));
        own.extend(defaults.icmp_errors_burst.as_ref().map(Spanned::span));
        for span in own {
            let message = "what a router is made of is each switch's own";
            self.issue(Issue::new(span, message).help("put it into [switch.NAME]"));
        }
    }

    /// The port of that name; an issue without one.
    fn port_named(&mut self, switch: &SwitchNode, name: &S<String>) -> Option<PortId> {
        let ports = &switch.config.ports;
        let at = ports.iter().position(|port| port.name == *name.get_ref());
        if at.is_none() && self.links_are_whole {
            let message = format!("`{}` has no port `{}`", switch.config.name, name.get_ref());
            self.issue(Issue::new(name.span(), message));
        }
        at.and_then(|at| u16::try_from(at).ok()).map(PortId)
    }

    fn neighbour(
        &mut self,
        table: &NeighbourTable,
        switch: usize,
        switches: &[SwitchNode],
        router: &RouterConfig,
        hosts: &[HostNode],
        links: &[Link],
    ) -> Option<Neighbour> {
        let port = self.port_named(&switches[switch], &table.port)?;
        let there = far_mac(&switches[switch], port, switches, router, hosts, links);
        let mac = value(table.mac.as_ref()).or(there);
        if mac.is_none() {
            let message =
                format!("what MAC address has the station behind port `{}`?", table.port.get_ref());
            self.issue(Issue::new(table.address.span(), message).help("add mac = \"…\""));
        }
        let address = table.address.get_ref().0;
        Some(Neighbour { address, mac: mac?, port, vlan: plain(table.vlan.as_ref()) })
    }

    fn route(&mut self, table: &RouteTable, switch: &SwitchNode, router: &RouterConfig) -> Route {
        let mut via = hops(&table.via);
        if let Some(weights) = &table.weights {
            if weights.get_ref().len() != via.len() {
                let message =
                    format!("{} weights for {} next hops", weights.get_ref().len(), via.len());
                self.issue(Issue::new(weights.span(), message));
            }
            for (hop, weight) in via.iter_mut().zip(weights.get_ref()) {
                hop.weight = *weight;
            }
        }
        let ports = &switch.config.ports;
        let balance = table.balance.as_ref().map(|own| {
            let named = |name: &str| {
                let at = ports.iter().position(|port| port.name == name);
                at.and_then(|at| u16::try_from(at).ok()).map(PortId)
            };
            let balance = self.balance(own, &named);
            let port_of = |hop: &NextHop| {
                let found = router.neighbours.iter().find(|n| n.address == hop.address);
                found.map(|neighbour| (neighbour.port, ports[neighbour.port.index()].rate))
            };
            let hops: Vec<_> = via.iter().filter_map(port_of).collect();
            let group = balance.group(&hops);
            for (hop, member) in via.iter_mut().zip(&group.members) {
                let weight = member.weight.and_then(|weight| u16::try_from(weight).ok());
                hop.weight = weight.unwrap_or(hop.weight);
            }
            group.method
        });
        Route { prefix: table.prefix.get_ref().0, via, balance }
    }

    fn srv6(&mut self, table: &Srv6Table, switch: &SwitchNode, router: &mut RouterConfig) {
        router.ecn_decap = ecn_decap(table.ecn_decap);
        router.dscp_mode = dscp_mode(table.dscp);
        let Text(block) = table.block.get_ref();
        let usid_bits = plain(table.usid_bits.as_ref()).unwrap_or(USID_BITS);
        let (IpAddr::V6(block), len) = (block.address(), block.len()) else {
            self.issue(Issue::new(table.block.span(), "a locator block is of IPv6 addresses"));
            return;
        };
        let layout = match UsidLayout::new(len, usid_bits) {
            Ok(layout) => layout,
            Err(error) => {
                let span =
                    table.usid_bits.as_ref().map_or_else(|| table.block.span(), Spanned::span);
                self.issue(Issue::new(span, error.to_string()));
                return;
            }
        };
        for usid in &table.usid {
            let Some(address) = self.one_container(layout, block, &usid.usid) else { continue };
            // A local uSID behind a uN's stands for both: a shift takes both away.
            let count = u8::try_from(usid.usid.get_ref().0.0.len()).unwrap_or(u8::MAX);
            let Ok(layout) = UsidLayout::new(len, usid_bits.saturating_mul(count)) else {
                self.issue(Issue::new(
                    usid.usid.span(),
                    "block and uSIDs are more than an address",
                ));
                continue;
            };
            let behaviour = self.behaviour(usid);
            router.sids.push(SidConfig { address, layout, behaviour });
        }
        for encap in &table.encap {
            let Some(port) = self.port_named(switch, &encap.port) else { continue };
            match layout.pack(block, &encap.path.get_ref().0.0) {
                Err(error) => self.issue(Issue::new(encap.path.span(), error.to_string())),
                Ok(segments) => router.encapsulations.push(EncapConfig {
                    port,
                    prefix: encap.prefix.get_ref().0,
                    source: encap.source.get_ref().0,
                    segments,
                    hop_limit: plain(encap.hop_limit.as_ref()).unwrap_or(HOP_LIMIT),
                }),
            }
        }
    }

    /// The address of a uSID, or of a few behind one another, in one container.
    fn one_container(
        &mut self,
        layout: UsidLayout,
        block: Ipv6Addr,
        usids: &Q<Usids>,
    ) -> Option<Ipv6Addr> {
        match layout.pack(block, &usids.get_ref().0.0).as_deref() {
            Ok([address]) => Some(*address),
            Ok(_) => {
                self.issue(Issue::new(usids.span(), "more uSIDs than an address holds"));
                None
            }
            Err(error) => {
                self.issue(Issue::new(usids.span(), error.to_string()));
                None
            }
        }
    }

    fn behaviour(&mut self, table: &UsidTable) -> SidBehaviour {
        let via = table.via.as_ref().map(hops).unwrap_or_default();
        let flavours =
            Flavours { psp: table.psp.unwrap_or(false), usd: table.usd.unwrap_or(false) };
        let (behaviour, takes_via, takes_flavours) = match table.behaviour {
            BehaviourName::Un => (SidBehaviour::Un(flavours), false, true),
            BehaviourName::Ua => (SidBehaviour::Ua(via, flavours), true, true),
            BehaviourName::Udt4 => (SidBehaviour::Udt4, false, false),
            BehaviourName::Udt6 => (SidBehaviour::Udt6, false, false),
            BehaviourName::Udt46 => (SidBehaviour::Udt46, false, false),
            BehaviourName::Udx4 => (SidBehaviour::Udx4(via), true, false),
            BehaviourName::Udx6 => (SidBehaviour::Udx6(via), true, false),
        };
        if let Some(via) = table.via.as_ref().filter(|_| !takes_via) {
            let message = "this behaviour looks the destination up and has no next hop of its own";
            self.issue(Issue::new(via.span(), message).help("ua, udx4 and udx6 have"));
        }
        if !takes_flavours && (flavours.psp || flavours.usd) {
            let message = "psp and usd are flavours of un and ua";
            self.issue(Issue::new(table.usid.span(), message));
        }
        behaviour
    }
}

/// The MAC address at the other end of a port's link.
fn far_mac(
    switch: &SwitchNode,
    port: PortId,
    switches: &[SwitchNode],
    router: &RouterConfig,
    hosts: &[HostNode],
    links: &[Link],
) -> Option<MacAddr> {
    let Some(Attachment::Link(link, end)) = switch.attachments.get(port.index()) else {
        return None;
    };
    let far = &links[*link].ends[1 - *end];
    match far.node {
        NodeId::Host(host) => Some(hosts.get(host)?.config.mac),
        NodeId::Switch(other) => {
            let other = &switches[other];
            // Its own router is out while its neighbours are made.
            let its = if other.config.name == switch.config.name {
                Some(router)
            } else {
                other.config.router.as_ref()
            };
            its.and_then(|router| router.mac)
                .or_else(|| other.config.ports.get(far.port.index()).map(|port| port.mac))
        }
    }
}

fn vtep(table: &VxlanTable) -> VtepConfig {
    let vni =
        |table: &VniTable| VniConfig { vni: *table.vni.get_ref(), vlan: *table.vlan.get_ref() };
    let remote = |table: &RemoteTable| RemoteVtep {
        address: table.address.get_ref().0,
        vnis: table.vnis.as_ref().map(|vnis| vnis.get_ref().clone()).unwrap_or_default(),
    };
    VtepConfig {
        address: table.address.get_ref().0,
        vnis: table.vni.iter().map(vni).collect(),
        remotes: table.remote.iter().map(remote).collect(),
        ecn_decap: ecn_decap(table.ecn_decap),
        dscp_mode: dscp_mode(table.dscp),
    }
}

/// Where the file sets what a switch's router or tunnel endpoint refuses.
pub(super) fn span_of(
    table: &SwitchTable,
    config: &SwitchConfig,
    error: &SwitchConfigError,
) -> Option<Range<usize>> {
    match error.place {
        SwitchConfigPlace::Router(place) => match place {
            RouterPlace::Router => table.router_mac.as_ref().map(Spanned::span),
            RouterPlace::Address(index) => {
                let own = config.router.as_ref()?.addresses.get(index)?;
                let name = &config.ports.get(own.port.index())?.name;
                let port = table.port.iter().find(|(key, _)| key.get_ref() == name)?;
                port.1.addresses.as_ref().map(Spanned::span)
            }
            RouterPlace::Neighbour(index) => {
                table.neighbour.get(index).map(|neighbour| neighbour.address.span())
            }
            RouterPlace::Route(index) => table.route.get(index).map(|route| match error.field {
                "via" | "balance" => route.via.span(),
                "weight" => route.weights.as_ref().map_or_else(|| route.via.span(), Spanned::span),
                _ => route.prefix.span(),
            }),
            RouterPlace::Sid(index) => {
                table.srv6.as_ref()?.usid.get(index).map(|usid| usid.usid.span())
            }
            RouterPlace::Encapsulation(index) => {
                table.srv6.as_ref()?.encap.get(index).map(|encap| encap.path.span())
            }
        },
        SwitchConfigPlace::Vtep(index) => {
            let vxlan = table.vxlan.as_ref()?;
            match error.field {
                "vnis" => vxlan.vni.get(index).map(|vni| vni.vni.span()),
                "remotes" => vxlan.remote.get(index).map(|remote| remote.address.span()),
                _ => Some(vxlan.address.span()),
            }
        }
        _ => None,
    }
}
