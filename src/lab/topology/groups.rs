//! Ports that are used together: link aggregation groups as the file has them, and groups of equal
//! paths where static forwarding is to balance.

use std::collections::BTreeMap;
use std::ops::Range;

use super::balance::Balance;
use super::error::Issue;
use super::resolve::Resolver;
use super::{Attachment, Link, NodeId, SwitchNode};
use crate::node::PortId;
use crate::switch::SwitchConfig;
use crate::switch::config::{PortGroup, PortGroupKind, group_port};
use crate::units::Rate;

/// How one switch uses its ports together.
pub(super) struct Sharing {
    /// Equal paths, where it has static forwarding.
    balance: Option<Balance>,
    lags: Vec<Lag>,
}

impl Sharing {
    /// Whether equal paths are used together.
    pub(super) const fn balances(&self) -> bool {
        self.balance.is_some()
    }
}

struct Lag {
    name: String,
    ports: Vec<PortId>,
    /// Whether it names ports that the switch does not have.
    is_cut: bool,
    balance: Balance,
    span: Range<usize>,
}

impl Resolver<'_> {
    /// What the file says of each switch's ports together.
    pub(super) fn sharing(&mut self, switches: &[SwitchNode]) -> Vec<Sharing> {
        let tables = self.switch_names.clone();
        let defaults = &self.file.defaults.switch;
        if let Some((name, _)) = defaults.lag.iter().next() {
            let message = "link aggregation groups are each switch's own";
            self.issue(Issue::new(name.span(), message).help("put them into [switch.NAME.lag.L]"));
        }
        let mut all = Vec::new();
        for ((_, table), switch) in tables.into_iter().zip(switches) {
            let port = |name: &str| port_index(&switch.config, name);
            let own = table.balance.as_ref().or(defaults.balance.as_ref());
            let balance = own.map(|own| self.balance(own, &port));
            let mut lags = Vec::new();
            for (name, lag) in &table.lag {
                let mut ports = Vec::new();
                for member in lag.ports.get_ref() {
                    match port(member.get_ref()) {
                        Some(port) => ports.push(port),
                        None if self.links_are_whole => {
                            let message = format!("the switch has no port `{}`", member.get_ref());
                            let issue = Issue::new(member.span(), message);
                            self.issue(issue.help("is its name as in the link?"));
                        }
                        None => {}
                    }
                }
                let balance = match &lag.balance {
                    Some(own) => self.balance(own, &port),
                    None => balance.clone().unwrap_or_else(|| Balance::ecmp(name.span())),
                };
                let (name, span) = (name.get_ref().clone(), lag.ports.span());
                let is_cut = ports.len() < lag.ports.get_ref().len();
                lags.push(Lag { name, ports, is_cut, balance, span });
            }
            all.push(Sharing { balance, lags });
        }
        all
    }

    /// Makes the groups of the aggregations.
    pub(super) fn aggregate(
        &mut self,
        switches: &mut [SwitchNode],
        links: &[Link],
        sharing: &[Sharing],
    ) {
        for (index, shared) in sharing.iter().enumerate() {
            for (number, lag) in shared.lags.iter().enumerate() {
                // A port that does not exist has been pointed at.
                if lag.is_cut {
                    continue;
                }
                if let Some(message) = aggregation_problem(switches, links, sharing, index, number)
                {
                    self.issue(Issue::new(lag.span.clone(), message));
                    continue;
                }
                let config = &mut switches[index].config;
                let mut ports = lag.ports.clone();
                ports.sort_unstable();
                let members = with_rates(&config.ports, &ports);
                let group = lag.balance.group(&members);
                if let Err(error) = group.check() {
                    let message = format!("{}: {error}", lag.name);
                    self.issue(Issue::new(lag.balance.span.clone(), message));
                }
                let (name, kind) = (lag.name.clone(), PortGroupKind::Aggregation);
                config.groups.push(PortGroup { name, kind, group });
            }
        }
    }

    /// Says what is wrong with the groups of equal paths.
    pub(super) fn check_paths(&mut self, switches: &[SwitchNode], sharing: &[Sharing]) {
        for (switch, shared) in switches.iter().zip(sharing) {
            let Some(balance) = &shared.balance else { continue };
            let paths = |group: &&PortGroup| group.kind == PortGroupKind::Multipath;
            for group in switch.config.groups.iter().filter(paths) {
                if let Err(error) = group.group.check() {
                    let message = format!("{} of `{}`: {error}", group.name, switch.config.name);
                    self.issue(Issue::new(balance.span.clone(), message));
                }
            }
        }
    }
}

/// The port of a switch that has this name.
pub(super) fn port_index(config: &SwitchConfig, name: &str) -> Option<PortId> {
    let at = config.ports.iter().position(|port| port.name == name)?;
    u16::try_from(at).ok().map(PortId)
}

/// Why the ports are no aggregation, if they are none.
fn aggregation_problem(
    switches: &[SwitchNode],
    links: &[Link],
    sharing: &[Sharing],
    switch: usize,
    number: usize,
) -> Option<String> {
    let lag = &sharing[switch].lags[number];
    let node = &switches[switch];
    let name = |port: PortId| &node.config.ports[port.index()].name;
    let Some(first) = lag.ports.first() else {
        return Some("an aggregation has at least one port".to_owned());
    };
    for (at, port) in lag.ports.iter().enumerate() {
        if lag.ports[..at].contains(port) {
            return Some(format!("port `{}` is in it twice", name(*port)));
        }
        let mut others = sharing[switch].lags.iter().enumerate();
        let other = others.find(|(at, other)| *at != number && other.ports.contains(port));
        if let Some((_, other)) = other {
            return Some(format!("port `{}` is in `{}` as well", name(*port), other.name));
        }
        let vlan = |port: PortId| &node.config.ports[port.index()].vlan;
        if vlan(*port) != vlan(*first) {
            return Some(format!("`{}` and `{}` have other VLANs", name(*first), name(*port)));
        }
    }
    // Where the other ends are switches of the file, they are one aggregation of one switch.
    let ends = lag.ports.iter().map(|port| match node.attachments[port.index()] {
        Attachment::Link(link, end) => Some(&links[link].ends[1 - end]),
        Attachment::External(_) | Attachment::None => None,
    });
    let ends: Vec<_> = ends.collect();
    if ends.iter().all(Option::is_none) {
        return None;
    }
    let far_lag = |end: &super::LinkEnd| match end.node {
        NodeId::Switch(far) => {
            let lags = &sharing[far].lags;
            lags.iter().position(|lag| lag.ports.contains(&end.port)).map(|lag| (far, lag))
        }
        NodeId::Host(_) => None,
    };
    let far: Vec<_> = ends.iter().map(|end| end.and_then(far_lag)).collect();
    let is_one = far.iter().all(|lag| lag.is_some() && *lag == far[0]);
    let is_whole = far[0].is_some_and(|(far, lag)| {
        sharing[far].lags[lag].ports.len() == lag_len(sharing, switch, number)
    });
    (!is_one || !is_whole).then(|| {
        "the other ends of its links are not the ports of one aggregation of one switch".to_owned()
    })
}

const fn lag_len(sharing: &[Sharing], switch: usize, number: usize) -> usize {
    sharing[switch].lags.as_slice()[number].ports.len()
}

fn with_rates(config: &[crate::switch::PortConfig], ports: &[PortId]) -> Vec<(PortId, Rate)> {
    ports.iter().map(|port| (*port, config[port.index()].rate)).collect()
}

/// The group of a switch that a port is aggregated in.
pub(super) fn aggregation_of(switch: &SwitchNode, port: PortId) -> Option<usize> {
    switch.config.groups.iter().position(|group| {
        group.kind == PortGroupKind::Aggregation
            && group.group.members.iter().any(|member| member.port == port)
    })
}

/// Groups of equal paths, made as destinations need them.
#[derive(Default)]
pub(super) struct Multipaths(BTreeMap<Vec<PortId>, PortId>);

impl Multipaths {
    /// Where frames for destination `number` go, which are ports that lead there equally well, in the
    /// order of their peers. Without `balance` it is one of them, or its aggregation.
    pub(super) fn destination(
        &mut self,
        switch: &mut SwitchNode,
        sharing: &Sharing,
        equal: &[PortId],
        number: usize,
    ) -> Option<PortId> {
        let mut ways: Vec<PortId> = Vec::new();
        for port in equal {
            let way = aggregation_of(switch, *port).map_or(*port, group_port);
            if !ways.contains(&way) {
                ways.push(way);
            }
        }
        let balance = sharing.balance.as_ref().filter(|_| ways.len() > 1);
        let Some(balance) = balance else {
            // Hosts of one edge have consecutive numbers, so they spread over its next hops.
            return ways.get(number % ways.len().max(1)).copied();
        };
        if let Some(known) = self.0.get(equal) {
            return Some(*known);
        }
        let config = &mut switch.config;
        let members = with_rates(&config.ports, equal);
        let destination = group_port(config.groups.len());
        config.groups.push(PortGroup {
            name: format!("paths{}", self.0.len() + 1),
            kind: PortGroupKind::Multipath,
            group: balance.group(&members),
        });
        self.0.insert(equal.to_vec(), destination);
        Some(destination)
    }
}
