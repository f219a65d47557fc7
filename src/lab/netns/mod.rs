//! Building a lab's network: a namespace per node, veth pairs between them, addresses.
//!
//! The lab touches nothing outside the namespaces it makes, which are called `tw-LAB-NODE`. Pairs
//! are made with each end in its namespace from the start, so none ever appears in another one.

mod guard;
mod ip;
mod offload;
mod state;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

pub use guard::{LabGuard, clear_leftover};
pub use state::{LabState, Liveness, RUN_DIR, start_ticks};

use super::topology::{Attachment, External, HostKind, HostNode, NodeId, Topology};
use crate::cli::Failure;
use crate::node::PortId;
use crate::xdp::NetNs;

/// The interface that a port of the lab is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its namespace: a name under `/run/netns`, a path, or the caller's when None.
    pub netns: Option<String>,
    /// Its name there.
    pub name: String,
    /// Its RX queues, and as many TX queues.
    pub queues: u32,
    /// True when it existed before the lab and stays after it.
    pub external: bool,
}

/// A lab's network that stands. Dropping it removes it.
#[derive(Debug)]
pub struct Network {
    interfaces: BTreeMap<(NodeId, PortId), Interface>,
    /// Removes the network; give it to whoever lives longest.
    pub guard: LabGuard,
    /// What a user should know, such as leftovers that were cleared.
    pub messages: Vec<String>,
}

impl Network {
    /// The interface of a port, or None when nothing hangs on it.
    pub fn interface(&self, node: NodeId, port: PortId) -> Option<&Interface> {
        self.interfaces.get(&(node, port))
    }
}

/// The namespace of a node.
pub fn namespace(lab: &str, node: &str) -> String {
    format!("tw-{lab}-{node}")
}

/// What a port's interface is called in its namespace: `swp3` for port `3`, as Linux calls ports of
/// a switch, and the port's own name when it has one.
pub fn interface_name(port: &str) -> String {
    if port.bytes().all(|b| b.is_ascii_digit()) { format!("swp{port}") } else { port.to_owned() }
}

/// Checks, before anything is made for it, that a lab of this name can be built here.
///
/// # Errors
/// `HostLacks` without root or without `ip` and `ethtool`; `Running` when a lab of this name runs.
pub fn check_can_build(name: &str) -> Result<(), Failure> {
    ip::require_tools()?;
    match LabState::look_up(name)? {
        Liveness::Running(state) => Err(guard::runs_already(&state)),
        Liveness::Absent | Liveness::Stale(_) => Ok(()),
    }
}

/// Builds the network of a lab.
///
/// What an earlier run of the same name left is removed first, with a message.
///
/// # Errors
/// `HostLacks` without root or without `ip` and `ethtool`; `Running` when a lab of this name runs,
/// a namespace of this name belongs to someone else, or the kernel refuses a step. Whatever was
/// made until then is removed.
pub fn build(topology: &Topology) -> Result<Network, Failure> {
    ip::require_tools()?;
    let mut messages = Vec::new();
    let namespaces: Vec<String> =
        topology.nodes().map(|node| namespace(&topology.name, topology.node_name(node))).collect();
    messages.extend(guard::clear_leftover(&topology.name)?);
    for name in &namespaces {
        if Path::new("/run/netns").join(name).exists() {
            return Err(Failure::Running(format!(
                "a namespace {name} exists that no lab of tailwater made; remove it with \
                 `ip netns del {name}` or give the lab another name"
            )));
        }
    }
    let interfaces = interfaces(topology);
    let made = interfaces.values().filter(|interface| !interface.external);
    let links = made.filter_map(|i| Some((i.netns.clone()?, i.name.clone()))).collect();
    // The state is on disk before the first namespace, so that a killed run can be cleared.
    let guard = LabGuard::begin(LabState::of_this_process(&topology.name, namespaces, links)?)?;
    make_namespaces(guard.state())?;
    make_pairs(topology, &interfaces)?;
    for node in topology.nodes() {
        configure(topology, node, &interfaces)?;
    }
    for host in topology.hosts.iter().filter(|host| host.kind == HostKind::Kernel) {
        let netns = namespace(&topology.name, &host.config.name);
        host.commands.iter().try_for_each(|command| ip::shell(&netns, command))?;
    }
    Ok(Network { interfaces, guard, messages })
}

/// Takes the external interfaces of a topology that has nothing else as they are, and makes
/// nothing. The state file says that it runs, for `show`, `set` and `top`.
///
/// # Errors
/// `Running` when an instance of this name runs.
pub fn take(topology: &Topology) -> Result<Network, Failure> {
    let messages = guard::clear_leftover(&topology.name)?.into_iter().collect();
    let state = LabState::of_this_process(&topology.name, Vec::new(), Vec::new())?;
    Ok(Network { interfaces: interfaces(topology), guard: LabGuard::begin(state)?, messages })
}

/// Every port's interface, made or external.
fn interfaces(topology: &Topology) -> BTreeMap<(NodeId, PortId), Interface> {
    let mut interfaces = BTreeMap::new();
    for (number, link) in topology.links.iter().enumerate() {
        let queues = topology.link_queues(number);
        for end in &link.ends {
            let netns = Some(namespace(&topology.name, topology.node_name(end.node)));
            let name = interface_name(port_name(topology, end.node, end.port));
            let interface = Interface { netns, name, queues, external: false };
            interfaces.insert((end.node, end.port), interface);
        }
    }
    for external in &topology.externals {
        let External { switch, port, interface, netns, .. } = external.clone();
        let queues = topology.lab.queues;
        let interface = Interface { netns, name: interface, queues, external: true };
        interfaces.insert((NodeId::Switch(switch), port), interface);
    }
    interfaces
}

fn port_name(topology: &Topology, node: NodeId, port: PortId) -> &str {
    match node {
        NodeId::Switch(switch) => &topology.switches[switch].config.ports[port.index()].name,
        NodeId::Host(host) => &topology.hosts[host].config.port_name,
    }
}

fn make_namespaces(state: &LabState) -> Result<(), Failure> {
    let lines: String = state.namespaces.iter().map(|name| format!("netns add {name}\n")).collect();
    ip::batch(None, &lines)
}

fn make_pairs(
    topology: &Topology,
    interfaces: &BTreeMap<(NodeId, PortId), Interface>,
) -> Result<(), Failure> {
    let mut lines = String::new();
    for link in &topology.links {
        let ends = link.ends.each_ref().map(|end| interfaces.get(&(end.node, end.port)));
        let [Some(a), Some(b)] = ends else { continue };
        let end = |i: &Interface| {
            let netns = i.netns.as_deref().unwrap_or_default();
            format!("name {} netns {netns} numrxqueues {q} numtxqueues {q}", i.name, q = i.queues)
        };
        lines.push_str(&format!("link add {} type veth peer {}\n", end(a), end(b)));
    }
    ip::batch(None, &lines)
}

/// One port of a node that the lab made, with what its interface gets.
struct Port<'a> {
    interface: &'a str,
    mac: crate::wire::MacAddr,
    mtu_bytes: u32,
}

fn configure(
    topology: &Topology,
    node: NodeId,
    interfaces: &BTreeMap<(NodeId, PortId), Interface>,
) -> Result<(), Failure> {
    let netns = namespace(&topology.name, topology.node_name(node));
    let made = |port: PortId| interfaces.get(&(node, port)).filter(|i| !i.external);
    let mut ports = Vec::new();
    let mut kernel = None;
    match node {
        NodeId::Switch(index) => {
            let switch = &topology.switches[index];
            for (number, config) in (0_u16..).zip(&switch.config.ports) {
                if let Some(Interface { name: interface, .. }) = made(PortId(number)) {
                    ports.push(Port { interface, mac: config.mac, mtu_bytes: config.mtu_bytes });
                }
            }
        }
        NodeId::Host(index) => {
            let host = &topology.hosts[index];
            kernel = (host.kind == HostKind::Kernel).then_some(host);
            if let Some(Interface { name: interface, .. }) = made(PortId(0)) {
                let HostNode { config, .. } = host;
                ports.push(Port { interface, mac: config.mac, mtu_bytes: config.mtu_bytes });
            }
        }
    }
    let mut lines = "link set lo up\n".to_owned();
    for port in &ports {
        let Port { interface, mac, mtu_bytes } = port;
        let promisc = if kernel.is_some() { "off" } else { "on" };
        // Writing to a string cannot fail.
        let _ = writeln!(
            lines,
            "link set dev {interface} address {mac} mtu {mtu_bytes} promisc {promisc} up"
        );
        if let Some(host) = kernel {
            addresses(topology, host, interface, &mut lines);
        }
    }
    let driven = kernel.is_none();
    let inside = NetNs::Named(netns.clone());
    let quiet =
        inside.run(|| ports.iter().try_for_each(|port| ip::quieten(port.interface, driven)));
    quiet.and_then(|done| done).map_err(|error| {
        Failure::Running(format!("cannot set the IPv6 settings of {netns}: {error}"))
    })?;
    ip::batch(Some(&netns), &lines)?;
    let names: Vec<&str> = ports.iter().map(|port| port.interface).collect();
    inside
        .run(|| offload::turn_off(&names))
        .map_err(|error| Failure::Running(format!("cannot enter {netns}: {error}")))?
        .map_err(|error| Failure::Running(format!("in {netns}: {error}")))
}

/// Addresses and gateways of a kernel host, and where every other host is, so that nothing waits
/// for ARP.
fn addresses(topology: &Topology, host: &HostNode, interface: &str, lines: &mut String) {
    if let Some((address, prefix)) = host.config.ipv4 {
        let _ = writeln!(lines, "addr add {address}/{prefix} dev {interface}");
    }
    if let Some((address, prefix)) = host.config.ipv6 {
        let _ = writeln!(lines, "addr add {address}/{prefix} dev {interface} nodad");
    }
    for gateway in &host.gateways {
        let Some(mac) = topology.router_mac(*gateway) else { continue };
        let _ =
            writeln!(lines, "neigh replace {gateway} lladdr {mac} dev {interface} nud permanent");
        let _ = writeln!(lines, "route add default via {gateway} dev {interface}");
    }
    for other in topology.hosts.iter().filter(|other| other.attachment != Attachment::None) {
        let config = &other.config;
        if config.name == host.config.name {
            continue;
        }
        let v4 = config.ipv4.map(|(address, _)| std::net::IpAddr::from(address));
        let v6 = config.ipv6.map(|(address, _)| std::net::IpAddr::from(address));
        for address in v4.into_iter().chain(v6) {
            let mac = config.mac;
            let _ = writeln!(
                lines,
                "neigh replace {address} lladdr {mac} dev {interface} nud permanent"
            );
        }
    }
}
