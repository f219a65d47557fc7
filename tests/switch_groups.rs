//! Groups of ports in the switch: aggregations and equal paths, with the books checked after each.

mod bench;

use tailwater::frame::{FrameStore, SlabStore};
use tailwater::ledger::DropReason;
use tailwater::node::{Node, PortId};
use tailwater::switch::balance::config::HashConfig;
use tailwater::switch::balance::{GroupConfig, MemberConfig, Method};
use tailwater::switch::config::{PortGroup, PortGroupKind, group_port};
use tailwater::switch::{PortConfig, StaticMac, SwitchConfig};
use tailwater::units::Rate;
use tailwater::wire::MacAddr;

use bench::Bench;

const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xa]);
const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xb]);

fn ports(count: u8) -> SwitchConfig {
    let port =
        |n: u8| PortConfig::new(&n.to_string(), MacAddr([2, 0, 0, 0, 1, n]), Rate::from_gbps(10));
    SwitchConfig::new("s1", (0..count).map(port).collect())
}

fn group(kind: PortGroupKind, ports: &[u16], method: Method) -> PortGroup {
    let member = |port: &u16| MemberConfig::new(PortId(*port), Rate::from_gbps(10));
    let group = GroupConfig::new(ports.iter().map(member).collect(), method);
    PortGroup { name: "up".to_owned(), kind, group }
}

/// Ports 0 and 1 for stations, 2 to 4 an aggregation.
fn aggregated(method: Method) -> Bench {
    let mut config = ports(5);
    config.groups.push(group(PortGroupKind::Aggregation, &[2, 3, 4], method));
    Bench::new(config)
}

fn ecmp() -> Method {
    Method::Ecmp(HashConfig::new(3))
}

/// UDP over IPv4 whose source port is the flow's number.
fn flow(to: MacAddr, from: MacAddr, number: u16) -> Vec<u8> {
    let mut bytes = [to.0, from.0].concat();
    bytes.extend([0x08, 0x00, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0]);
    bytes.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    bytes.extend(number.to_be_bytes());
    bytes.resize(60, 0);
    bytes
}

impl Bench {
    fn new(config: SwitchConfig) -> Self {
        Self::of(config, 1_024)
    }

    /// The ports that a frame which comes now leaves by.
    fn passes(&mut self, port: u16, bytes: &[u8]) -> Vec<u16> {
        self.arrives(port, bytes);
        let mut out = Vec::new();
        loop {
            while let Some((port, sent)) = self.switch.poll_next(self.now, &mut self.store) {
                self.store.release(sent.frame);
                out.push(port.0);
            }
            if Node::<SlabStore>::ledger(&self.switch).queued == 0 {
                out.sort_unstable();
                return out;
            }
            self.now = Node::<SlabStore>::next_deadline(&self.switch);
        }
    }

    fn link(&mut self, port: u16, up: bool) {
        self.switch.on_link(self.now, &mut self.store, PortId(port), up);
    }

    fn bytes_given(&self) -> Vec<u64> {
        let members = self.switch.group(0).expect("a group").members();
        members.ids().map(|member| members.bytes(member)).collect()
    }
}

#[test]
fn a_flooded_frame_goes_to_one_port_of_an_aggregation() {
    let mut bench = aggregated(ecmp());
    let mut used = std::collections::BTreeSet::new();
    for number in 0..64 {
        let out = bench.passes(0, &flow(MacAddr::BROADCAST, A, number));
        assert_eq!(out.len(), 2, "port 1 and one of the aggregation: {out:?}");
        assert_eq!(out[0], 1);
        assert!((2..5).contains(&out[1]));
        used.insert(out[1]);
    }
    assert_eq!(used.len(), 3, "by the flow");
}

#[test]
fn a_frame_never_goes_back_by_its_aggregation() {
    let mut bench = aggregated(ecmp());
    for port in 2..5 {
        assert_eq!(bench.passes(port, &flow(MacAddr::BROADCAST, B, port)), [0, 1]);
    }
    // B is behind the aggregation, whichever of its ports a frame for it comes by.
    for port in 2..5 {
        for number in 0..16 {
            assert_eq!(bench.passes(port, &flow(B, A, number)), [] as [u16; 0]);
        }
    }
    let drops = (2..5).map(|port| bench.switch.port_counters(PortId(port)).drops);
    assert_eq!(drops.map(|drops| drops.of(DropReason::SamePort)).sum::<u64>(), 48);
}

#[test]
fn a_station_behind_an_aggregation_is_one_station() {
    let mut bench = aggregated(ecmp());
    for port in [2, 3, 4, 2] {
        let _ = bench.passes(port, &flow(MacAddr::BROADCAST, B, 1));
    }
    let counters = bench.switch.mac_table_counters();
    assert_eq!((counters.learned, counters.moved), (1, 0));
    // Unicast to it is spread by flow, and a flow keeps its port.
    let way: Vec<u16> = (0..300).flat_map(|n| bench.passes(0, &flow(B, A, n))).collect();
    assert_eq!(way.len(), 300);
    for port in 2..5 {
        let count = way.iter().filter(|out| **out == port).count();
        assert!((60..140).contains(&count), "port {port}: {count}");
    }
    assert_eq!(way, (0..300).flat_map(|n| bench.passes(0, &flow(B, A, n))).collect::<Vec<_>>());
}

#[test]
fn a_link_that_goes_down_leaves_its_aggregation_at_once() {
    let mut bench = aggregated(Method::SprayRoundRobin);
    let _ = bench.passes(2, &flow(MacAddr::BROADCAST, B, 1));
    bench.link(3, false);
    let way: Vec<u16> = (0..20).flat_map(|n| bench.passes(0, &flow(B, A, n))).collect();
    assert_eq!(way.iter().filter(|port| **port == 2).count(), 10);
    assert_eq!(way.iter().filter(|port| **port == 4).count(), 10);
    assert_eq!(bench.switch.mac_table_counters().flushed, 0, "B is still there");
    // Without any, its stations are forgotten, and frames for them flooded.
    bench.link(2, false);
    bench.link(4, false);
    assert_eq!(bench.switch.mac_table_counters().flushed, 1);
    assert_eq!(bench.passes(0, &flow(B, A, 1)), [1]);
    bench.link(4, true);
    assert_eq!(bench.passes(0, &flow(B, A, 1)), [1, 4], "flooded to the one that is back");
}

#[test]
fn a_spray_counts_each_frame_once() {
    let mut bench = aggregated(Method::SprayRoundRobin);
    let _ = bench.passes(2, &flow(MacAddr::BROADCAST, B, 1));
    let mut count = [0; 5];
    // The first frames go the long way and later ones the short: both take one turn each.
    for number in 0..300 {
        for port in bench.passes(0, &flow(B, A, number)) {
            count[usize::from(port)] += 1;
        }
    }
    assert_eq!(count, [0, 0, 100, 100, 100]);
    assert_eq!(bench.bytes_given(), [6_000; 3]);
    let group = bench.switch.group(0).expect("a group");
    assert_eq!(group.imbalance().max_over_mean_permille(), 1_000);
}

#[test]
fn equal_paths_are_one_destination_and_flood_as_ports() {
    let mut config = ports(5);
    config.groups.push(group(PortGroupKind::Multipath, &[3, 4], Method::SprayRoundRobin));
    config.static_macs.push(StaticMac { mac: B, vlan: 1, port: group_port(0) });
    let mut bench = Bench::new(config);
    let mut count = [0; 5];
    for number in 0..100 {
        for port in bench.passes(0, &flow(B, A, number)) {
            count[usize::from(port)] += 1;
        }
    }
    assert_eq!(count, [0, 0, 0, 50, 50]);
    // Its ports have neighbours of their own, which all are to see what is flooded.
    assert_eq!(bench.passes(0, &flow(MacAddr::BROADCAST, A, 1)), [1, 2, 3, 4]);
    // Static entries stay when all paths are down: frames for them are lost under that name.
    bench.link(3, false);
    bench.link(4, false);
    assert_eq!(bench.passes(0, &flow(B, A, 1)), [] as [u16; 0]);
    assert_eq!(bench.switch.port_counters(PortId(3)).drops.of(DropReason::LinkDown), 1);
}

#[test]
fn what_cannot_be_a_group_is_refused_with_its_place() {
    let refused = |groups: Vec<PortGroup>| {
        let mut config = ports(5);
        config.groups = groups;
        config.check().expect_err("a bad group").to_string()
    };
    let lag = |ports: &[u16]| group(PortGroupKind::Aggregation, ports, ecmp());
    assert_eq!(refused(vec![lag(&[])]), "group s1:up: members: a group has at least one member");
    assert_eq!(refused(vec![lag(&[5])]), "group s1:up: members: there is no port 5");
    assert_eq!(
        refused(vec![lag(&[1, 2]), lag(&[2, 3])]),
        "group s1:up: members: port 2 is in an aggregation already"
    );
    let mut config = ports(5);
    config.static_macs.push(StaticMac { mac: B, vlan: 1, port: group_port(0) });
    assert_eq!(
        config.check().expect_err("no such group").to_string(),
        "static MAC 02:00:00:00:00:0b in VLAN 1: port: there is no group 0"
    );
}
