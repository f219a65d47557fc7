//! When each agent announces itself: all at once where the switches have room for that, and spread
//! over the first millisecond where they have not.
//!
//! An announcement is flooded to every port, so that those of N hosts at one instant make N times N
//! copies: of some hundred hosts they fill the memory of a switch, and drop one another. Hosts
//! therefore announce themselves in groups whose copies take at most half of it.

use super::{Attachment, HostKind, HostNode, SwitchNode};
use crate::time::{Duration, Time};

/// The time in which all hosts announce themselves.
const SPREAD: Duration = Duration::from_ms(1);

/// What a host says of itself, in bytes without FCS: an ARP request, and an unsolicited neighbour
/// advertisement with its address option.
const FRAMES_BYTES: [u64; 2] = [42, 86];

/// Sets when each agent announces itself, in the order of the hosts.
pub(super) fn spread(hosts: &mut [HostNode], switches: &[SwitchNode]) {
    let at_once = switches.iter().map(hosts_at_once).min().unwrap_or(u64::MAX);
    let agents = hosts.iter().filter(|host| host.kind == HostKind::Agent).count() as u64;
    let groups = agents.div_ceil(at_once).max(1);
    let agents = hosts.iter_mut().filter(|host| host.kind == HostKind::Agent);
    for (index, host) in (0..).zip(agents) {
        host.config.announce_at = Time::ZERO + SPREAD * (index / at_once) / groups;
    }
}

/// How many hosts' announcements, flooded to every port, fill at most half of a switch's memory and
/// of each of its queues.
fn hosts_at_once(switch: &SwitchNode) -> u64 {
    let config = &switch.config;
    let cell = u64::from(config.cell_bytes).max(1);
    let host_bytes: u64 = FRAMES_BYTES.iter().map(|bytes| bytes.div_ceil(cell) * cell).sum();
    let used = switch.attachments.iter().filter(|used| **used != Attachment::None).count() as u64;
    let copies = used.saturating_sub(1).max(1);
    let of_memory = config.shared_bytes() / 2 / (host_bytes * copies);
    let limits = config.ports.iter().flat_map(|port| port.queue_limit_bytes);
    let of_queues = limits.min().unwrap_or(u64::MAX) / 2 / host_bytes;
    of_memory.min(of_queues).max(1)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::lab::captures::Captures;
    use crate::lab::plan::Plan;
    use crate::lab::simulate::simulate;
    use crate::lab::topology::Topology;

    /// Hosts shared out over two switches.
    fn lab(hosts: usize, switch: &str, rate: &str) -> Topology {
        let mut text = format!(
            "name = \"many\"\n[defaults.link]\nrate = \"{rate}\"\n[defaults.switch]\n{switch}\n\
             [switch.s1]\n[switch.s2]\n[[link]]\nends = [\"s1:up\", \"s2:up\"]\n"
        );
        for host in 1..=hosts {
            let switch = 1 + host % 2;
            writeln!(
                text,
                "[host.h{host}]\n[[link]]\nends = [\"h{host}:eth0\", \"s{switch}:{host}\"]"
            )
            .expect("a string takes it");
        }
        Topology::parse("many.toml", &text).expect("a topology")
    }

    #[test]
    fn every_host_hears_every_other_whatever_the_memory() {
        for hosts in [2, 17, 40, 64] {
            for switch in ["buffer = \"12MB\"", "buffer = \"80KB\"", "queue_limit = \"4KB\""] {
                for rate in ["1Gbps", "100Gbps"] {
                    let what = format!("{hosts} hosts, {switch}, {rate}");
                    let topology = lab(hosts, switch, rate);
                    let plan = Plan::of(&topology).expect("a plan");
                    let mut captures = Captures::none(plan.nodes.len());
                    let (finished, _) = simulate(&topology, plan, &mut captures, |_| true);
                    assert!(finished.reached < Time::from_ns(1_500_000), "{what}");
                    let report = finished.into_outcome(&topology).report;
                    let drops: u64 = report.switches.values().map(|s| s.books.drops.total).sum();
                    assert_eq!(drops, 0, "{what}");
                    for (name, host) in &report.hosts {
                        let heard = host.counters["announcements_heard"];
                        assert_eq!(heard, 2 * (hosts as u64 - 1), "{what}: {name}");
                    }
                }
            }
        }
    }

    #[test]
    fn hosts_wait_for_each_other_only_where_the_memory_asks_for_it() {
        let at = |switch| {
            let topology = lab(40, switch, "10Gbps");
            topology.hosts.iter().map(|host| host.config.announce_at).collect::<Vec<_>>()
        };
        assert_eq!(at("buffer = \"12MB\""), [Time::ZERO; 40]);
        // Each host's two frames take a cell of 208 bytes on each of 20 other ports: 8,320 bytes, of
        // which half of 80 KB holds four.
        let expected: Vec<_> = (0..40).map(|host| Time::from_ns(host / 4 * 100_000)).collect();
        assert_eq!(at("buffer = \"80KB\""), expected);
    }
}
