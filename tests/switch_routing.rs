//! Routing, SRv6 and VXLAN through whole switches, at their ports.

mod bench;

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use tailwater::frame::{FrameStore, SlabStore};
use tailwater::ledger::DropReason;
use tailwater::node::{Node, PortId};
use tailwater::switch::balance::Method;
use tailwater::switch::route::config::{
    EncapConfig, Flavours, Neighbour, NextHop, Route, RouterAddress, RouterConfig, SidBehaviour,
    SidConfig,
};
use tailwater::switch::vtep::{RemoteVtep, VniConfig, VtepConfig};
use tailwater::switch::{PortConfig, SwitchConfig, VlanMode};
use tailwater::time::Duration;
use tailwater::units::Rate;
use tailwater::wire::MacAddr;
use tailwater::wire::ipv4::{Ipv4Header, Ipv4Packet};
use tailwater::wire::ipv6::Ipv6Packet;
use tailwater::wire::usid::UsidLayout;

use bench::Bench;

/// Long enough for every wire to be free again.
const LATER: Duration = Duration::from_ms(1);

fn mac(n: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0xf, n])
}

/// Ports `1` to `count`, each in a VLAN of its own from 101 on.
fn ports(switch: u8, count: u8) -> Vec<PortConfig> {
    (1..=count)
        .map(|n| {
            let own = MacAddr([2, 0, 0, 0, switch, n]);
            let port = PortConfig::new(&n.to_string(), own, Rate::from_gbps(10));
            PortConfig { vlan: VlanMode::Access(100 + u16::from(n)), ..port }
        })
        .collect()
}

fn neighbour(address: &str, port: u16, mac: MacAddr) -> Neighbour {
    let address = address.parse().expect("an address");
    Neighbour { address, mac, port: PortId(port), vlan: None }
}

fn route(prefix: &str, via: &[&str], balance: Option<Method>) -> Route {
    let hop = |text: &&str| NextHop { address: text.parse().expect("an address"), weight: 1 };
    let prefix = prefix.parse().expect("a prefix");
    Route { prefix, via: via.iter().map(hop).collect(), balance }
}

fn own(port: u16, address: &str) -> RouterAddress {
    RouterAddress { port: PortId(port), address: address.parse().expect("an address") }
}

/// A switch with its store and its time.
impl Bench {
    fn new(config: SwitchConfig) -> Self {
        Self::of(config, 4_096)
    }

    /// What comes out, and where, for a frame that comes in.
    fn pass(&mut self, port: u16, frame: &[u8]) -> Vec<(u16, Vec<u8>)> {
        self.now += LATER;
        self.arrives(port, frame);
        let mut out = Vec::new();
        loop {
            while let Some((port, sent)) = self.switch.poll_next(self.now, &mut self.store) {
                let mut bytes = Vec::new();
                self.store.copy_out(&sent.frame, &mut bytes);
                self.store.release(sent.frame);
                out.push((port.0, bytes));
            }
            if Node::<SlabStore>::ledger(&self.switch).queued == 0 {
                break;
            }
            self.now += LATER;
        }
        Node::<SlabStore>::ledger(&self.switch).check().expect("balanced books");
        assert_eq!(self.store.outstanding(), 0, "every frame went back");
        out
    }

    fn drops(&self, reason: DropReason) -> u64 {
        Node::<SlabStore>::ledger(&self.switch).drops.of(reason)
    }
}

/// UDP from 10.0.1.2 with this source port, to the router's MAC address.
fn ipv4_frame(to: MacAddr, destination: [u8; 4], source_port: u16, ttl: u8, ecn: u8) -> Vec<u8> {
    let mut frame = vec![0; 14 + 20 + 8 + 26];
    frame[..6].copy_from_slice(&to.0);
    frame[6..12].copy_from_slice(&mac(1).0);
    frame[12..14].copy_from_slice(&[8, 0]);
    let header = Ipv4Header {
        source: Ipv4Addr::new(10, 0, 1, 2),
        destination: destination.into(),
        protocol: 17,
        ttl,
        dscp: 0,
        ecn,
        identification: 0,
        dont_fragment: true,
        payload_bytes: 34,
    };
    header.emit(&mut frame[14..]).expect("room");
    frame[34..36].copy_from_slice(&source_port.to_be_bytes());
    frame[36..40].copy_from_slice(&[0x12, 0xb7, 0, 34]);
    frame
}

fn spray() -> SwitchConfig {
    let hops: Vec<String> = (2..=17).map(|n| format!("10.0.{n}.2")).collect();
    let hops: Vec<&str> = hops.iter().map(String::as_str).collect();
    let mut router = RouterConfig {
        addresses: vec![own(0, "10.0.1.1")],
        neighbours: vec![neighbour("10.0.1.2", 0, mac(1))],
        routes: vec![route("10.9.0.0/16", &hops, Some(Method::SprayRoundRobin))],
        ..RouterConfig::default()
    };
    for (port, hop) in (1..).zip(&hops) {
        router.neighbours.push(neighbour(hop, port, mac(u8::try_from(port).expect("few") + 1)));
    }
    SwitchConfig { router: Some(router), ..SwitchConfig::new("s", ports(1, 17)) }
}

#[test]
fn frames_are_sprayed_over_sixteen_next_hops_and_not_over_one_that_is_down() {
    let mut bench = Bench::new(spray());
    let to = MacAddr([2, 0, 0, 0, 1, 1]);
    let mut per_port = [0; 17];
    for n in 0..320 {
        let out = bench.pass(0, &ipv4_frame(to, [10, 9, 0, 1], 7, 64, 0));
        let [(port, frame)] = out.as_slice() else { panic!("{} frames", out.len()) };
        per_port[usize::from(*port)] += 1;
        assert_eq!(frame[..6], mac(u8::try_from(*port).expect("few") + 1).0, "{n}");
        assert_eq!(frame[6..12], [2, 0, 0, 0, 1, u8::try_from(*port).expect("few") + 1]);
        let view = Ipv4Packet::new_checked(&frame[14..]).expect("IPv4");
        assert!(view.ttl() == 63 && view.is_checksum_valid());
    }
    assert_eq!(per_port[0], 0);
    assert!(per_port[1..].iter().all(|frames| *frames == 20), "{per_port:?}");
    bench.switch.on_link(bench.now, &mut bench.store, PortId(3), false);
    for _ in 0..64 {
        let out = bench.pass(0, &ipv4_frame(to, [10, 9, 0, 1], 7, 64, 0));
        assert!(out.len() == 1 && out[0].0 != 3);
    }
    for port in 1..17 {
        bench.switch.on_link(bench.now, &mut bench.store, PortId(port), false);
    }
    assert!(bench.pass(0, &ipv4_frame(to, [10, 9, 0, 1], 7, 64, 0)).is_empty());
    assert_eq!(bench.drops(DropReason::NoNextHop), 1);
}

#[test]
fn a_source_is_told_of_its_last_hop_and_the_error_is_in_the_books() {
    let mut bench = Bench::new(spray());
    let to = MacAddr([2, 0, 0, 0, 1, 1]);
    let out = bench.pass(0, &ipv4_frame(to, [10, 9, 0, 1], 7, 1, 0));
    let [(0, error)] = out.as_slice() else { panic!("{out:?}") };
    assert_eq!(error[..14], [&mac(1).0[..], &to.0, &[8, 0]].concat());
    let view = Ipv4Packet::new_checked(&error[14..]).expect("IPv4");
    assert_eq!((view.source(), view.protocol()), (Ipv4Addr::new(10, 0, 1, 1), 1));
    assert_eq!(error[34..36], [11, 0]);
    let ledger = Node::<SlabStore>::ledger(&bench.switch);
    assert_eq!((ledger.generated, ledger.drops.of(DropReason::HopLimit)), (1, 1));
    // No route is told as well, an ARP request to the router's address alone is not answered.
    assert_eq!(bench.pass(0, &ipv4_frame(to, [10, 8, 0, 1], 7, 64, 0)).len(), 1);
    let mut arp = ipv4_frame(to, [10, 9, 0, 1], 7, 64, 0);
    arp[12..14].copy_from_slice(&[8, 6]);
    assert!(bench.pass(0, &arp).is_empty());
    assert_eq!(bench.drops(DropReason::Unhandled), 1);
}

/// One of three tunnel endpoints: port 1 and tagged port 2 are in VLAN 10, port 3 leads to the others.
fn leaf(number: u8) -> SwitchConfig {
    let mut ports = ports(number, 3);
    ports[0].vlan = VlanMode::Access(10);
    ports[1].vlan = VlanMode::Trunk { allowed: vec![10], native: None };
    let address = |n: u8| format!("10.255.0.{n}");
    let others: Vec<u8> = (1..=3).filter(|other| *other != number).collect();
    let router = RouterConfig {
        addresses: vec![own(2, &address(number))],
        neighbours: others
            .iter()
            .map(|n| neighbour(&address(*n), 2, MacAddr([2, 0, 0, 0, *n, 3])))
            .collect(),
        ..RouterConfig::default()
    };
    let remote = |n: &u8| RemoteVtep { address: Ipv4Addr::new(10, 255, 0, *n), vnis: Vec::new() };
    let vtep = VtepConfig {
        vnis: vec![VniConfig { vni: 77, vlan: 10 }],
        remotes: others.iter().map(remote).collect(),
        ..VtepConfig::new(Ipv4Addr::new(10, 255, 0, number))
    };
    let config = SwitchConfig::new(&format!("s{number}"), ports);
    SwitchConfig { router: Some(router), vtep: Some(vtep), ..config }
}

/// The endpoint that a frame of the underlay is for.
fn endpoint(frame: &[u8]) -> usize {
    usize::from(frame[4]) - 1
}

#[test]
fn three_leaves_are_one_vlan_over_vxlan() {
    let mut leaves: Vec<Bench> = (1..=3).map(|n| Bench::new(leaf(n))).collect();
    let between = |to: u8, from: u8, ecn: u8| {
        let mut frame = ipv4_frame(mac(to), [10, 0, 0, to], 7, 64, ecn);
        frame[6..12].copy_from_slice(&mac(from).0);
        frame
    };
    // From station 1 behind leaf 1 to station 2, which nobody knows: to the tagged port and both leaves.
    let frame = between(2, 1, 2);
    let mut out = leaves[0].pass(0, &frame);
    out.sort();
    assert_eq!(out.iter().map(|(port, _)| *port).collect::<Vec<_>>(), [1, 2, 2]);
    let tagged = [&frame[..12], &[0x81, 0, 0, 10], &frame[12..]].concat();
    assert_eq!(out[0].1, tagged);
    let mut reached = Vec::new();
    for (_, outer) in &out[1..] {
        assert_eq!(outer.len(), frame.len() + 50);
        let view = Ipv4Packet::new_checked(&outer[14..]).expect("IPv4");
        assert!(view.is_checksum_valid() && view.ecn() == 2, "the mark is copied out");
        reached.push(endpoint(outer));
        // Congestion on the underlay.
        let mut outer = outer.clone();
        tailwater::wire::ecn_tunnel::set_byte_of(&mut outer[14..], 3);
        let inside = leaves[endpoint(&outer)].pass(2, &outer);
        // To both ports of the VLAN there, marked; not back into the tunnel.
        let marked = between(2, 1, 3);
        let marked_tagged = [&marked[..12], &[0x81, 0, 0, 10], &marked[12..]].concat();
        let mut inside = inside;
        inside.sort();
        assert_eq!(inside, [(0, marked), (1, marked_tagged)]);
    }
    reached.sort_unstable();
    assert_eq!(reached, [1, 2]);
    // Station 2 answers behind leaf 3, tagged: leaf 3 has learned where station 1 is.
    let answer = between(1, 2, 0);
    let tagged = [&answer[..12], &[0x81, 0, 0xe0, 10], &answer[12..]].concat();
    let out = leaves[2].pass(1, &tagged);
    let [(2, outer)] = out.as_slice() else { panic!("{} frames", out.len()) };
    assert_eq!((endpoint(outer), &outer[50..]), (0, &answer[..]));
    assert_eq!(leaves[0].pass(2, outer), [(0, answer)]);
    // And leaf 1 where station 2 is.
    let out = leaves[0].pass(0, &frame);
    assert!(out.len() == 1 && endpoint(&out[0].1) == 2);
    // A network that is none here, congestion that cannot be told.
    let mut stray = out[0].1.clone();
    stray[46..49].copy_from_slice(&[0, 0, 78]);
    assert!(leaves[2].pass(2, &stray).is_empty());
    assert_eq!(leaves[2].drops(DropReason::UnknownVni), 1);
    let mut lost = leaves[0].pass(0, &between(2, 1, 0))[0].1.clone();
    tailwater::wire::ecn_tunnel::set_byte_of(&mut lost[14..], 3);
    assert!(leaves[2].pass(2, &lost).is_empty());
    assert_eq!(leaves[2].drops(DropReason::TunnelCongestion), 1);
}

/// A router that puts a path on what comes by port 1, and is itself the end of it.
fn on_path() -> SwitchConfig {
    let sid = |address: &str, behaviour| SidConfig {
        address: address.parse().expect("an address"),
        layout: UsidLayout::F3216,
        behaviour,
    };
    let router = RouterConfig {
        addresses: vec![own(1, "2001:db8::1")],
        neighbours: vec![neighbour("2001:db8::2", 1, mac(2)), neighbour("10.0.3.2", 2, mac(3))],
        routes: vec![
            route("fcbb:bb00:2::/48", &["2001:db8::2"], None),
            route("10.0.0.0/8", &["10.0.3.2"], None),
        ],
        sids: vec![
            sid("fcbb:bb00:1::", SidBehaviour::Un(Flavours::default())),
            sid("fcbb:bb00:d4::", SidBehaviour::Udt4),
        ],
        encapsulations: vec![EncapConfig {
            port: PortId(0),
            prefix: "10.9.0.0/16".parse().expect("a prefix"),
            source: "2001:db8::1".parse().expect("an address"),
            segments: ["fcbb:bb00:1:2::", "fcbb:bb00:1:d4::"]
                .map(|text| text.parse().expect("an address"))
                .to_vec(),
            hop_limit: 64,
        }],
        ..RouterConfig::default()
    };
    SwitchConfig { router: Some(router), ..SwitchConfig::new("s", ports(1, 3)) }
}

#[test]
fn a_path_goes_on_at_one_port_and_comes_off_at_another() {
    let mut bench = Bench::new(on_path());
    let frame = ipv4_frame(MacAddr([2, 0, 0, 0, 1, 1]), [10, 9, 0, 1], 7, 64, 1);
    let out = bench.pass(0, &frame);
    let [(1, outer)] = out.as_slice() else { panic!("{out:?}") };
    let view = Ipv6Packet::new_checked(&outer[14..]).expect("IPv6");
    // Its first uSID was this switch's own.
    let next: Ipv6Addr = "fcbb:bb00:2::".parse().expect("an address");
    assert_eq!((view.destination(), view.hop_limit(), view.ecn()), (next, 63, 1));
    assert_eq!((view.next_header(), outer.len()), (43, frame.len() + 64));
    // Router 2 takes the next segment and sends it back.
    let mut back = outer.clone();
    back[..6].copy_from_slice(&[2, 0, 0, 0, 1, 2]);
    back[6..12].copy_from_slice(&mac(2).0);
    let last: Ipv6Addr = "fcbb:bb00:1:d4::".parse().expect("an address");
    back[38..54].copy_from_slice(&last.octets());
    back[57] = 0;
    let out = bench.pass(1, &back);
    let [(2, inner)] = out.as_slice() else { panic!("{out:?}") };
    assert_eq!(inner[12..14], [8, 0]);
    let view = Ipv4Packet::new_checked(&inner[14..]).expect("IPv4");
    assert!(view.is_checksum_valid());
    assert_eq!(
        (view.ttl(), view.ecn()),
        (62, 1),
        "one hop where the path went on, one where it ended"
    );
    assert_eq!(inner[34..], frame[34..]);
    // Other destinations get no path.
    let plain = ipv4_frame(MacAddr([2, 0, 0, 0, 1, 1]), [10, 8, 0, 1], 7, 64, 1);
    let out = bench.pass(0, &plain);
    assert!(out.len() == 1 && out[0].0 == 2 && out[0].1.len() == plain.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever comes: no panic, balanced books, no frame kept.
    #[test]
    fn any_bytes_are_accounted_for(
        frames in proptest::collection::vec(
            (0_u16..3, 0_usize..4, proptest::collection::vec(any::<u8>(), 0..300), any::<u16>()), 1..20),
    ) {
        let mut leaf_config = leaf(1);
        let path = on_path();
        let router = leaf_config.router.as_mut().expect("a router");
        router.sids = path.router.expect("a router").sids;
        let mut bench = Bench::new(leaf_config);
        for (port, kind, mut bytes, cut) in frames {
            // Mostly for the router, in VLANs that exist, of the kinds that it looks into.
            let head: &[u8] = match kind {
                0 => &[8, 0, 0x45],
                1 => &[0x86, 0xdd, 0x60],
                2 => &[0x81, 0, 0, 10, 0x86, 0xdd, 0x60],
                _ => &[],
            };
            if kind < 3 && bytes.len() > 80 {
                bytes[..6].copy_from_slice(&[2, 0, 0, 0, 1, u8::try_from(port).expect("few") + 1]);
                bytes[6] &= 0xfe;
                bytes[12..12 + head.len()].copy_from_slice(head);
                let at = 12 + head.len() - 1;
                if kind == 0 {
                    let len = u16::try_from(bytes.len() - at).expect("short").min(cut.max(20));
                    bytes[at + 2..at + 4].copy_from_slice(&len.to_be_bytes());
                    bytes[at + 9] = 17;
                    bytes[at + 16..at + 20].copy_from_slice(&[10, 255, 0, 1]);
                    bytes[at + 10..at + 12].fill(0);
                    let sum = tailwater::wire::checksum::checksum(&bytes[at..at + 20]);
                    bytes[at + 10..at + 12].copy_from_slice(&sum.to_be_bytes());
                    bytes[at + 22..at + 24].copy_from_slice(&[0x12, 0xb5]);
                } else {
                    let len = u16::try_from(bytes.len() - at - 40).expect("short");
                    bytes[at + 4..at + 6].copy_from_slice(&(cut % (len + 1)).to_be_bytes());
                    let usid = if cut % 2 == 0 { "fcbb:bb00:1:d4::" } else { "fcbb:bb00:1::" };
                    let usid: Ipv6Addr = usid.parse().expect("an address");
                    bytes[at + 24..at + 40].copy_from_slice(&usid.octets());
                    bytes[at + 6] = [4, 41, 43, 0, 60, 17][usize::from(cut % 6)];
                }
            }
            bench.pass(port, &bytes);
        }
    }
}
