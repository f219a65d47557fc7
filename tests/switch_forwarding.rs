//! The switch over the slab store, one behaviour a test, with the books checked after each.

mod bench;

use tailwater::frame::{FrameStore, SlabStore};
use tailwater::ledger::DropReason;
use tailwater::line::ETHERNET_OVERHEAD_BYTES;
use tailwater::node::{Node, PortId};
use tailwater::switch::{PortConfig, StaticMac, SwitchConfig, SwitchSetting, Trust, VlanMode};
use tailwater::time::{Duration, Time};
use tailwater::units::Rate;
use tailwater::wire::MacAddr;

use bench::Bench;

const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xa]);
const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xb]);
const C: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xc]);

/// What left: port, first and last bit, bytes.
type Sent = (u16, Time, Time, Vec<u8>);

fn config(ports: u8) -> SwitchConfig {
    let port =
        |n: u8| PortConfig::new(&n.to_string(), MacAddr([2, 0, 0, 0, 1, n]), Rate::from_gbps(10));
    SwitchConfig::new("s1", (0..ports).map(port).collect())
}

fn trunk(allowed: &[u16], native: Option<u16>) -> VlanMode {
    VlanMode::Trunk { allowed: allowed.to_vec(), native }
}

/// A frame with `rest` from the first tag or type on, filled with zeros to `len`.
fn frame(to: MacAddr, from: MacAddr, rest: &[u8], len: usize) -> Vec<u8> {
    let mut bytes = [to.0, from.0].concat();
    bytes.extend_from_slice(rest);
    bytes.resize(len.max(bytes.len()), 0);
    bytes
}

fn ipv4(to: MacAddr, from: MacAddr) -> Vec<u8> {
    frame(to, from, &[0x08, 0x00, 0x45], 60)
}

impl Bench {
    fn new(config: SwitchConfig) -> Self {
        Self::of(config, 64)
    }

    /// What the switch sends now.
    fn sends_now(&mut self) -> Vec<Sent> {
        let mut sent = Vec::new();
        while let Some(port) = Node::<SlabStore>::next_ready_port(&mut self.switch, self.now) {
            let out = self.switch.poll_transmit(self.now, &mut self.store, port).expect("ready");
            let mut bytes = Vec::new();
            self.store.copy_out(&out.frame, &mut bytes);
            self.store.release(out.frame);
            sent.push((port.0, out.starts, out.ends, bytes));
        }
        sent
    }

    /// Everything queued, each frame when its time comes; the ports they leave by, with bytes.
    fn sends(&mut self) -> Vec<(u16, Vec<u8>)> {
        let mut sent = Vec::new();
        loop {
            sent.extend(self.sends_now().into_iter().map(|(port, _, _, bytes)| (port, bytes)));
            if Node::<SlabStore>::ledger(&self.switch).queued == 0 {
                return sent;
            }
            self.now = Node::<SlabStore>::next_deadline(&self.switch);
        }
    }

    fn ports_out(&mut self) -> Vec<u16> {
        let mut ports: Vec<u16> = self.sends().into_iter().map(|(port, _)| port).collect();
        ports.sort_unstable();
        ports
    }

    fn drops(&self, port: u16, reason: DropReason) -> u64 {
        self.switch.port_counters(PortId(port)).drops.of(reason)
    }
}

#[test]
fn unknown_is_flooded_and_known_is_not() {
    let mut bench = Bench::new(config(4));
    bench.arrives(0, &ipv4(B, A));
    assert_eq!(bench.ports_out(), [1, 2, 3]);
    bench.arrives(2, &ipv4(A, B));
    assert_eq!(bench.ports_out(), [0]);
    bench.arrives(0, &ipv4(B, A));
    assert_eq!(bench.ports_out(), [2]);
    bench.arrives(0, &ipv4(MacAddr::BROADCAST, A));
    assert_eq!(bench.ports_out(), [1, 2, 3]);
    bench.arrives(0, &ipv4(MacAddr([0x01, 0, 0x5e, 0, 0, 1]), A));
    assert_eq!(bench.ports_out(), [1, 2, 3]);
    let ledger = Node::<SlabStore>::ledger(&bench.switch);
    assert_eq!((ledger.received, ledger.replicated, ledger.transmitted), (5, 6, 11));
    let counters = bench.switch.port_counters(PortId(0));
    assert_eq!((counters.rx_frames, counters.rx_bytes), (4, 240));
    assert_eq!((counters.tx_frames, counters.tx_bytes), (1, 60));
}

#[test]
fn a_station_that_moves_is_found_at_its_new_port() {
    let mut bench = Bench::new(config(3));
    bench.arrives(0, &ipv4(B, A));
    bench.arrives(1, &ipv4(B, A));
    let _ = bench.ports_out();
    bench.arrives(2, &ipv4(A, B));
    assert_eq!(bench.ports_out(), [1]);
    assert_eq!(bench.switch.mac_table_counters().moved, 1);
}

#[test]
fn a_silent_station_is_forgotten() {
    let mut bench = Bench::new(config(3));
    bench.arrives(0, &ipv4(B, A));
    let _ = bench.ports_out();
    let deadline = Node::<SlabStore>::next_deadline(&bench.switch);
    assert!(deadline > Time::ZERO + Duration::from_secs(299), "{deadline}");
    bench.now = Time::ZERO + Duration::from_secs(301);
    bench.arrives(1, &ipv4(A, B));
    assert_eq!(bench.ports_out(), [0, 2], "flooded");
    while bench.now < Time::ZERO + Duration::from_secs(330) {
        bench.switch.on_timer(bench.now, &mut bench.store);
        bench.now = Node::<SlabStore>::next_deadline(&bench.switch);
    }
    assert_eq!((bench.switch.mac_table_counters().aged, bench.switch.stations()), (1, 1));
}

#[test]
fn frames_that_no_switch_forwards_are_dropped_by_name() {
    let mut bench = Bench::new(config(2));
    bench.arrives(0, &[0; 13]);
    bench.arrives(0, &frame(B, A, &[0x08, 0x00], 1_515));
    bench.arrives(0, &frame(B, A, &[0x81, 0x00, 0, 1, 0x08, 0x00], 1_519));
    bench.arrives(0, &frame(B, A, &[0x81, 0x00, 0, 1].repeat(5), 100));
    bench.arrives(0, &ipv4(B, MacAddr([3, 0, 0, 0, 0, 1])));
    bench.arrives(0, &ipv4(MacAddr([1, 0x80, 0xc2, 0, 0, 0x0f]), A));
    bench.arrives(0, &frame(B, A, &[0x81, 0x00, 0, 2, 0x08, 0x00], 64));
    assert_eq!(bench.switch.stations(), 0, "none of them is learned from");
    bench.arrives(1, &ipv4(A, B));
    bench.arrives(1, &ipv4(B, A));
    let _ = bench.ports_out();
    for (port, reason, n) in [
        (0, DropReason::Runt, 1),
        (0, DropReason::Oversize, 2),
        (0, DropReason::Malformed, 1),
        (0, DropReason::SourceMulticast, 1),
        (0, DropReason::LinkLocal, 1),
        (0, DropReason::VlanIngress, 1),
        (1, DropReason::SamePort, 1),
    ] {
        assert_eq!(bench.drops(port, reason), n, "{}", reason.name());
    }
    bench.arrives(0, &frame(B, C, &[0x08, 0x00], 1_514));
    bench.arrives(0, &frame(B, C, &[0x81, 0x00, 0, 1, 0x08, 0x00], 1_518));
    assert_eq!(bench.ports_out(), [1, 1], "as long as the MTU allows");
}

#[test]
fn tags_are_put_on_and_taken_off_and_vlans_keep_apart() {
    let mut config = config(4);
    config.ports[0].vlan = VlanMode::Access(10);
    config.ports[1].vlan = trunk(&[10, 20], None);
    config.ports[2].vlan = trunk(&[20], Some(10));
    config.ports[3].vlan = VlanMode::Access(20);
    config.ports[0].default_priority = 5;
    let mut bench = Bench::new(config);
    let untagged = frame(B, A, &[0x08, 0x00, 0x45], 60);
    let tagged = frame(B, A, &[0x81, 0x00, 0xa0, 10, 0x08, 0x00, 0x45], 64);
    bench.arrives(0, &untagged);
    assert_eq!(bench.sends(), [(1, tagged.clone()), (2, untagged.clone())]);
    bench.arrives(1, &tagged);
    let mut sent = bench.sends();
    sent.sort();
    assert_eq!(sent, [(0, untagged.clone()), (2, untagged.clone())]);
    // A tag with a priority alone: the native VLAN, and it keeps its priority.
    bench.arrives(2, &frame(B, A, &[0x81, 0x00, 0x60, 0, 0x08, 0x00, 0x45], 64));
    let mut sent = bench.sends();
    sent.sort();
    let with_vlan = frame(B, A, &[0x81, 0x00, 0x60, 10, 0x08, 0x00, 0x45], 64);
    assert_eq!(sent, [(0, untagged.clone()), (1, with_vlan)]);
    bench.arrives(3, &untagged);
    let mut sent = bench.sends();
    sent.sort();
    let in_20 = frame(B, A, &[0x81, 0x00, 0x00, 20, 0x08, 0x00, 0x45], 64);
    assert_eq!(sent, [(1, in_20.clone()), (2, in_20)]);
    bench.arrives(1, &untagged);
    assert_eq!(bench.drops(1, DropReason::VlanIngress), 1, "a trunk without native VLAN");
}

#[test]
fn the_highest_queue_goes_first_and_each_keeps_its_order() {
    let mut config = config(2);
    config.ports[0].trust = Trust::Dscp;
    let mut bench = Bench::new(config);
    for (n, dscp) in [(0, 0), (1, 8), (2, 56), (3, 8), (4, 56)] {
        bench.arrives(0, &frame(B, A, &[0x08, 0x00, 0x45, dscp << 2, n], 60));
    }
    let order: Vec<u8> = bench.sends().into_iter().map(|(_, bytes)| bytes[16]).collect();
    assert_eq!(order, [2, 4, 1, 3, 0]);
    assert_eq!(
        bench.switch.port_counters(PortId(1)).queue_bytes_max,
        [60, 120, 0, 0, 0, 0, 0, 120]
    );
}

#[test]
fn a_port_sends_at_its_line_rate_to_the_picosecond() {
    let mut config = config(2);
    config.ports[1].rate = Rate::from_gbps(100);
    let mut bench = Bench::new(config);
    bench.now = Time::from_ns(500);
    let bytes = frame(B, A, &[0x08, 0x00], 1_514);
    for _ in 0..3 {
        bench.arrives(0, &bytes);
    }
    let took = Duration::from_ps((1_514 + u64::from(ETHERNET_OVERHEAD_BYTES)) * 80);
    for n in 0..3 {
        let starts = Time::from_ns(500) + took * n;
        assert_eq!(Node::<SlabStore>::next_deadline(&bench.switch), starts);
        bench.now = starts;
        let sent = bench.sends_now();
        assert_eq!(sent.len(), 1);
        assert_eq!((sent[0].1, sent[0].2), (starts, starts + took));
    }
    assert_eq!(bench.switch.credit_expired(PortId(1)), Duration::ZERO);
}

#[test]
fn a_late_driver_gets_two_frames_back_to_back() {
    let mut bench = Bench::new(config(2));
    for _ in 0..4 {
        bench.arrives(0, &ipv4(B, A));
    }
    bench.now = Time::from_ns(100_000);
    assert_eq!(bench.sends_now().len(), 2);
    assert!(bench.switch.credit_expired(PortId(1)) > Duration::from_us(99));
}

#[test]
fn a_full_queue_and_a_full_memory_drop_by_name() {
    let mut limited = config(3);
    limited.ports[1].queue_limit_bytes = [1_600; 8];
    // Seven cells of 300 bytes; frames of 310 take two.
    limited.cell_bytes = 300;
    limited.buffer_bytes = 2_300;
    limited.static_macs = vec![
        StaticMac { mac: B, vlan: 1, port: PortId(1) },
        StaticMac { mac: C, vlan: 1, port: PortId(2) },
    ];
    let mut bench = Bench::new(limited);
    bench.arrives(0, &frame(B, A, &[0x08, 0x00], 1_000));
    bench.arrives(0, &frame(B, A, &[0x08, 0x00], 601));
    assert_eq!(bench.drops(1, DropReason::QueueLimit), 1);
    bench.arrives(0, &frame(C, A, &[0x08, 0x00], 310));
    bench.arrives(0, &frame(C, A, &[0x08, 0x00], 310));
    assert_eq!(bench.drops(2, DropReason::BufferFull), 1);
    bench.arrives(0, &frame(C, A, &[0x08, 0x00], 300));
    assert_eq!(bench.drops(2, DropReason::BufferFull), 1, "the last cell");
    assert_eq!(bench.switch.queue_bytes(PortId(2))[0], 610);
    assert_eq!((bench.switch.buffer_bytes(), bench.switch.buffer_bytes_max()), (2_100, 2_100));
    assert_eq!(bench.ports_out(), [1, 2, 2]);
    assert_eq!(bench.switch.buffer_bytes(), 0);
}

#[test]
fn a_frame_longer_than_the_egress_mtu_is_dropped_there() {
    let mut config = config(2);
    config.ports[0].mtu_bytes = 9_000;
    let mut bench = Bench::new(config);
    bench.arrives(0, &frame(B, A, &[0x08, 0x00], 1_514));
    bench.arrives(0, &frame(B, A, &[0x08, 0x00], 1_515));
    assert_eq!(bench.ports_out(), [1]);
    assert_eq!(bench.drops(1, DropReason::EgressMtu), 1);
}

#[test]
fn a_port_outside_the_tree_neither_floods_nor_learns_but_static_entries_use_it() {
    let mut config = config(3);
    config.ports[2].flood = false;
    config.static_macs = vec![StaticMac { mac: C, vlan: 1, port: PortId(2) }];
    let mut bench = Bench::new(config);
    bench.arrives(0, &ipv4(MacAddr::BROADCAST, A));
    assert_eq!(bench.ports_out(), [1]);
    bench.arrives(0, &ipv4(C, A));
    assert_eq!(bench.ports_out(), [2]);
    bench.arrives(2, &ipv4(A, B));
    assert_eq!(bench.ports_out(), [0]);
    bench.arrives(0, &ipv4(B, A));
    assert_eq!(bench.ports_out(), [1], "B was not learned at port 2");
    bench.arrives(2, &ipv4(MacAddr::BROADCAST, C));
    assert_eq!(bench.drops(2, DropReason::NoDestination), 1);
}

#[test]
fn a_link_that_goes_down_drops_what_waits_and_forgets_its_stations() {
    let mut bench = Bench::new(config(3));
    bench.arrives(1, &ipv4(A, B));
    let _ = bench.ports_out();
    bench.arrives(0, &ipv4(B, A));
    bench.arrives(0, &ipv4(B, A));
    bench.switch.on_link(bench.now, &mut bench.store, PortId(1), false);
    assert_eq!(bench.drops(1, DropReason::LinkDown), 2);
    assert_eq!(bench.switch.buffer_bytes(), 0);
    bench.arrives(0, &ipv4(B, A));
    assert_eq!(bench.ports_out(), [2], "flooded, but not to the link that is down");
    bench.switch.on_link(bench.now, &mut bench.store, PortId(1), true);
    bench.arrives(0, &ipv4(B, A));
    assert_eq!(bench.ports_out(), [1, 2]);
    assert_eq!(bench.switch.mac_table_counters().flushed, 1);
}

#[test]
fn a_static_station_behind_a_link_that_is_down_is_not_reached() {
    let mut config = config(3);
    config.static_macs = vec![StaticMac { mac: B, vlan: 1, port: PortId(1) }];
    let mut bench = Bench::new(config);
    bench.switch.on_link(bench.now, &mut bench.store, PortId(1), false);
    bench.arrives(0, &ipv4(B, A));
    assert_eq!(bench.drops(1, DropReason::LinkDown), 1);
}

#[test]
fn a_held_port_keeps_its_frames() {
    let mut bench = Bench::new(config(2));
    Node::<SlabStore>::hold(&mut bench.switch, bench.now, PortId(1), true);
    bench.arrives(0, &ipv4(B, A));
    assert_eq!(bench.sends_now().len(), 0);
    bench.switch.on_timer(bench.now, &mut bench.store);
    Node::<SlabStore>::hold(&mut bench.switch, bench.now, PortId(1), false);
    assert_eq!(bench.sends_now().len(), 1);
    // Held while its wire is busy, and let go after.
    bench.arrives(0, &ipv4(B, A));
    Node::<SlabStore>::hold(&mut bench.switch, bench.now, PortId(1), true);
    bench.now = Time::from_ns(10_000);
    assert_eq!(bench.sends_now().len(), 0);
    Node::<SlabStore>::hold(&mut bench.switch, bench.now, PortId(1), false);
    assert_eq!(bench.sends_now().len(), 1);
}

#[test]
fn a_full_store_loses_copies_by_name() {
    let mut bench = Bench::new(config(4));
    bench.store = SlabStore::new(2);
    bench.arrives(0, &ipv4(MacAddr::BROADCAST, A));
    assert_eq!(bench.ports_out(), [1, 3]);
    assert_eq!(bench.drops(2, DropReason::NoFrameForCopy), 1);
}

#[test]
fn a_lower_limit_holds_for_what_the_queue_has_held_before() {
    let mut bench = Bench::new(config(2));
    bench.arrives(1, &ipv4(A, B));
    bench.sends();
    let long = frame(B, A, &[0x08, 0x00, 0x45], 1_000);
    for _ in 0..5 {
        bench.arrives(0, &long);
    }
    assert_eq!((bench.ports_out().len(), bench.drops(1, DropReason::QueueLimit)), (5, 0));
    let limit =
        |limit_bytes| SwitchSetting::QueueLimit { port: PortId(1), queue: Some(0), limit_bytes };
    bench.switch.set(bench.now, limit(2_000)).expect("set");
    for _ in 0..5 {
        bench.arrives(0, &long);
    }
    assert_eq!((bench.ports_out().len(), bench.drops(1, DropReason::QueueLimit)), (2, 3));
    bench.switch.set(bench.now, limit(4_000)).expect("set");
    for _ in 0..5 {
        bench.arrives(0, &long);
    }
    assert_eq!((bench.ports_out().len(), bench.drops(1, DropReason::QueueLimit)), (4, 4));
    let refused = bench.switch.set(bench.now, limit(10)).expect_err("less than a frame");
    let wants =
        "port s1:1: queue_limit_bytes: queue 0 holds 10 bytes, a frame of this port's MTU 1518";
    assert_eq!(refused.to_string(), wants);
    assert_eq!(bench.switch.config().ports[1].queue_limit_bytes[0], 4_000, "nothing has changed");
}

#[test]
fn stations_are_forgotten_on_demand_and_sooner_by_a_shorter_ageing() {
    let mut bench = Bench::new(config(3));
    let known = |bench: &mut Bench| {
        bench.arrives(0, &ipv4(B, A));
        bench.ports_out() == [1]
    };
    bench.arrives(1, &ipv4(A, B));
    bench.sends();
    assert!(known(&mut bench));
    bench.switch.set(bench.now, SwitchSetting::ForgetStations(Some(PortId(1)))).expect("set");
    assert!(!known(&mut bench));
    assert_eq!(bench.switch.mac_table_counters().flushed, 1);
    bench.arrives(1, &ipv4(A, B));
    bench.sends();
    bench.now += Duration::from_secs(20);
    assert!(known(&mut bench), "300 s are the default");
    bench.switch.set(bench.now, SwitchSetting::MacAgeing(Duration::from_secs(10))).expect("set");
    let deadline = Node::<SlabStore>::next_deadline(&bench.switch);
    assert_eq!(deadline, bench.now, "there is something to forget now");
    for _ in 0..100 {
        bench.now = bench.now.max(Node::<SlabStore>::next_deadline(&bench.switch));
        bench.switch.on_timer(bench.now, &mut bench.store);
        if bench.switch.mac_table_counters().aged == 1 {
            break;
        }
    }
    assert_eq!(bench.switch.stations(), 1, "the sweep has come by");
    assert!(!known(&mut bench), "silent for 20 s");
}

#[test]
fn an_idle_switch_waits_for_nothing() {
    let bench = Bench::new(config(2));
    assert_eq!(Node::<SlabStore>::next_deadline(&bench.switch), Time::NEVER);
}
