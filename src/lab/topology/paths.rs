//! Paths over the switches: the loop-free flood set, and static entries along shortest paths.

use std::collections::VecDeque;

use super::groups::{Multipaths, Sharing, aggregation_of};
use super::{Attachment, Forwarding, HostNode, Link, NodeId, SwitchNode};
use crate::node::PortId;
use crate::switch::{StaticMac, VlanMode};

/// A port of a switch that leads to another switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hop {
    port: PortId,
    link: usize,
    to: usize,
    /// The other end's port there.
    to_port: PortId,
}

/// Each switch's ports toward other switches, by port.
fn neighbours(switches: &[SwitchNode], links: &[Link]) -> Vec<Vec<Hop>> {
    let hops = |switch: &SwitchNode| {
        let ports = (0_u16..).zip(&switch.attachments);
        ports
            .filter_map(|(port, attachment)| {
                let Attachment::Link(link, end) = *attachment else { return None };
                let far = &links[link].ends[1 - end];
                match far.node {
                    NodeId::Switch(to) => {
                        Some(Hop { port: PortId(port), link, to, to_port: far.port })
                    }
                    NodeId::Host(_) => None,
                }
            })
            .collect()
    };
    switches.iter().map(hops).collect()
}

/// Leaves `flood` set on ports toward hosts and externals and on a spanning tree of the switches,
/// grown breadth first from the first name of each connected part, without branches that lead
/// nowhere. The links of an aggregation are one. True when there was a cycle.
pub(super) fn spanning_tree(switches: &mut [SwitchNode], links: &[Link]) -> bool {
    let hops = neighbours(switches, links);
    let mut in_tree = vec![false; links.len()];
    let mut seen = vec![false; switches.len()];
    let mut queue = VecDeque::new();
    for root in 0..switches.len() {
        if std::mem::replace(&mut seen[root], true) {
            continue;
        }
        queue.push_back(root);
        while let Some(switch) = queue.pop_front() {
            for hop in &hops[switch] {
                if !std::mem::replace(&mut seen[hop.to], true) {
                    in_tree[hop.link] = true;
                    for other in aggregated_with(&switches[switch], &hops[switch], hop) {
                        in_tree[other.link] = true;
                    }
                    queue.push_back(hop.to);
                }
            }
        }
    }
    let cyclic = hops.iter().flatten().any(|hop| !in_tree[hop.link]);
    prune(switches, &hops, &mut in_tree);
    for (switch, hops) in switches.iter_mut().zip(&hops) {
        for (port, attachment) in switch.config.ports.iter_mut().zip(&switch.attachments) {
            port.flood = *attachment != Attachment::None;
        }
        for hop in hops.iter().filter(|hop| !in_tree[hop.link]) {
            switch.config.ports[hop.port.index()].flood = false;
        }
    }
    cyclic
}

/// The hops by the ports that are aggregated with that of a hop.
fn aggregated_with<'a>(
    switch: &'a SwitchNode,
    hops: &'a [Hop],
    hop: &Hop,
) -> impl Iterator<Item = &'a Hop> {
    let group = aggregation_of(switch, hop.port);
    hops.iter().filter(move |other| group.is_some() && aggregation_of(switch, other.port) == group)
}

/// Takes branches that lead to no host and no external out of the tree: a flooded frame would only
/// come to its end there.
fn prune(switches: &[SwitchNode], hops: &[Vec<Hop>], in_tree: &mut [bool]) {
    let is_bare = |switch: &SwitchNode, hops: &[Hop]| {
        let hanging = switch.attachments.iter().filter(|a| **a != Attachment::None).count();
        hanging == hops.len()
    };
    let bare: Vec<bool> = switches.iter().zip(hops).map(|(s, hops)| is_bare(s, hops)).collect();
    loop {
        let dead_end = hops.iter().zip(&bare).find_map(|(hops, bare)| {
            let mut branches = hops.iter().filter(|hop| in_tree[hop.link]);
            // Several branches to one neighbour are an aggregation.
            let only = branches.next().filter(|_| *bare)?;
            branches.all(|branch| branch.to == only.to).then_some((hops, only.to))
        });
        let Some((hops, to)) = dead_end else { break };
        for hop in hops.iter().filter(|hop| hop.to == to) {
            in_tree[hop.link] = false;
        }
    }
}

/// Gives switches with static forwarding an entry per host and VLAN, out of the port on a shortest
/// path; among equal ones destination `n` takes the `n`-th, so that they are used evenly, or all of
/// them in a group, where the switch is to balance.
pub(super) fn static_entries(
    switches: &mut [SwitchNode],
    hosts: &[HostNode],
    links: &[Link],
    sharing: &[Sharing],
) {
    let hops = neighbours(switches, links);
    let mut multipaths: Vec<Multipaths> = switches.iter().map(|_| Multipaths::default()).collect();
    for (number, host) in hosts.iter().enumerate() {
        let Attachment::Link(link, end) = host.attachment else { continue };
        let far = &links[link].ends[1 - end];
        let NodeId::Switch(edge) = far.node else { continue };
        let distance = distances(&hops, edge);
        let vlans = vlans_of(&switches[edge].config.ports[far.port.index()].vlan);
        for (index, switch) in switches.iter_mut().enumerate() {
            if switch.forwarding != Forwarding::Static {
                continue;
            }
            let port = if index == edge {
                Some(far.port)
            } else {
                let next = |hop: &&Hop| distance[hop.to].checked_add(1) == Some(distance[index]);
                let mut equal: Vec<&Hop> = hops[index].iter().filter(next).collect();
                // By the addresses of the peers' ports, which go by switch and port.
                if sharing[index].balances() {
                    equal.sort_by_key(|hop| (hop.to, hop.to_port));
                }
                let equal: Vec<PortId> = equal.iter().map(|hop| hop.port).collect();
                multipaths[index].destination(switch, &sharing[index], &equal, number)
            };
            let Some(port) = port else { continue };
            let mac = host.config.mac;
            let entries = vlans.iter().map(|vlan| StaticMac { mac, vlan: *vlan, port });
            switch.config.static_macs.extend(entries);
        }
    }
}

/// Hops from each switch to `edge`; `usize::MAX` where there is no path.
fn distances(hops: &[Vec<Hop>], edge: usize) -> Vec<usize> {
    let mut distance = vec![usize::MAX; hops.len()];
    distance[edge] = 0;
    let mut queue = VecDeque::from([edge]);
    while let Some(at) = queue.pop_front() {
        for hop in &hops[at] {
            if distance[hop.to] == usize::MAX {
                distance[hop.to] = distance[at] + 1;
                queue.push_back(hop.to);
            }
        }
    }
    distance
}

fn vlans_of(mode: &VlanMode) -> Vec<u16> {
    match mode {
        VlanMode::Access(vlan) => vec![*vlan],
        VlanMode::Trunk { allowed, native } => {
            let mut vlans = allowed.clone();
            vlans.extend(*native);
            vlans.sort_unstable();
            vlans.dedup();
            vlans
        }
    }
}
