//! The router beyond the vectors: IPv4, tunnels by RFC 6040, flavours, refusals, hostile bytes.

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::config::{
    EncapConfig, Flavours, Neighbour, NextHop, Route, RouterAddress, RouterConfig, SidBehaviour,
    SidConfig,
};
use super::{ERROR_BYTES_MAX, InnerPacket, Packet, Router, Verdict, Way};
use crate::ledger::DropReason;
use crate::node::PortId;
use crate::switch::config::{PortConfig, VlanMode};
use crate::time::{Duration, Time};
use crate::units::Rate;
use crate::wire::MacAddr;
use crate::wire::ecn_tunnel::{self, DscpMode, EcnDecap};
use crate::wire::icmp_error::IcmpError;
use crate::wire::ipv4::{Ipv4Header, Ipv4Packet};
use crate::wire::ipv6::{Ipv6Header, Ipv6Packet, extension};
use crate::wire::srv6;
use crate::wire::usid::UsidLayout;

const CE: u8 = ecn_tunnel::CE;

fn v6(text: &str) -> Ipv6Addr {
    text.parse().expect("an address")
}

fn ports() -> Vec<PortConfig> {
    (1..=3_u8)
        .map(|n| {
            let mac = MacAddr([2, 0, 0, 0, 1, n]);
            PortConfig::new(&n.to_string(), mac, Rate::from_gbps(10))
        })
        .collect()
}

fn hops(addresses: &[&str]) -> Vec<NextHop> {
    let hop = |text: &&str| NextHop { address: text.parse().expect("an address"), weight: 1 };
    addresses.iter().map(hop).collect()
}

fn sid(address: &str, behaviour: SidBehaviour) -> SidConfig {
    SidConfig { address: v6(address), layout: UsidLayout::F3216, behaviour }
}

fn flavours(psp: bool, usd: bool) -> Flavours {
    Flavours { psp, usd }
}

/// Neighbours 10.0.N.2 and 2001:db8:N::2 behind port N, routes to all the world behind port 2, and
/// a segment of every kind.
fn config() -> RouterConfig {
    let mut config = RouterConfig::default();
    for n in 1..=3_u8 {
        let port = PortId(u16::from(n) - 1);
        let mac = MacAddr([2, 0, 0, 0, 2, n]);
        for address in [
            Ipv4Addr::new(10, 0, n, 2).into(),
            Ipv6Addr::new(0x2001, 0xdb8, n.into(), 0, 0, 0, 0, 2).into(),
        ] {
            config.neighbours.push(Neighbour { address, mac, port, vlan: None });
        }
        for address in [
            Ipv4Addr::new(10, 0, n, 1).into(),
            Ipv6Addr::new(0x2001, 0xdb8, n.into(), 0, 0, 0, 0, 1).into(),
        ] {
            config.addresses.push(RouterAddress { port, address });
        }
    }
    let route = |prefix: &str, via: &[&str]| Route {
        prefix: prefix.parse().expect("a prefix"),
        via: hops(via),
        balance: None,
    };
    config.routes = vec![
        route("0.0.0.0/0", &["10.0.2.2"]),
        route("10.9.0.0/16", &[]),
        route("2001:db8::/32", &["2001:db8:2::2", "2001:db8:3::2"]),
        route("fcbb:bb00:2::/48", &["2001:db8:2::2"]),
    ];
    let (two, two_v4) = (hops(&["2001:db8:3::2"]), hops(&["10.0.3.2"]));
    config.sids = vec![
        sid("fcbb:bb00:1::", SidBehaviour::Un(Flavours::default())),
        sid("fcbb:bb00:a1::", SidBehaviour::Un(flavours(true, true))),
        sid("fcbb:bb00:e1::", SidBehaviour::Ua(two.clone(), flavours(false, true))),
        sid("fcbb:bb00:d4::", SidBehaviour::Udt4),
        sid("fcbb:bb00:d6::", SidBehaviour::Udt6),
        sid("fcbb:bb00:d46::", SidBehaviour::Udt46),
        sid("fcbb:bb00:c4::", SidBehaviour::Udx4(two_v4)),
        sid("fcbb:bb00:c6::", SidBehaviour::Udx6(two)),
    ];
    config
}

fn router(config: &RouterConfig) -> Router {
    config.check(&ports()).expect("a router");
    Router::new(config, &ports())
}

fn ipv4_packet(destination: [u8; 4], ttl: u8, ds_byte: u8) -> Vec<u8> {
    let mut bytes = vec![0; 28];
    let header = Ipv4Header {
        source: Ipv4Addr::new(10, 0, 1, 2),
        destination: destination.into(),
        protocol: 17,
        ttl,
        dscp: ds_byte >> 2,
        ecn: ds_byte & 3,
        identification: 1,
        dont_fragment: true,
        payload_bytes: 8,
    };
    header.emit(&mut bytes).expect("room");
    bytes
}

fn ipv6_packet(destination: Ipv6Addr, next_header: u8, ds_byte: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 40];
    let header = Ipv6Header {
        source: v6("2001:db8:1::2"),
        destination,
        next_header,
        hop_limit: 64,
        dscp: ds_byte >> 2,
        ecn: ds_byte & 3,
        flow_label: 7,
        payload_bytes: u16::try_from(payload.len()).expect("short"),
    };
    header.emit(&mut bytes).expect("room");
    bytes.extend_from_slice(payload);
    bytes
}

/// What becomes of a packet, and the packet after it.
fn routed(router: &Router, packet: &[u8]) -> (Verdict, Vec<u8>) {
    let mut frame = vec![0xee; 14];
    frame.extend_from_slice(packet);
    let len = frame.len();
    let mut packet = Packet::new(&mut frame, 14, len);
    let verdict = router.route(&mut packet);
    let bytes = packet.bytes().to_vec();
    (verdict, bytes)
}

/// The ports that a verdict leads to.
fn out(router: &Router, verdict: Verdict) -> Vec<u16> {
    let Verdict::Forward(group) = verdict else { panic!("{verdict:?}") };
    router.members(group).iter().map(|member| member.port.0).collect()
}

#[test]
fn ipv4_is_routed_with_one_hop_less_and_a_right_checksum() {
    let router = router(&config());
    let (verdict, bytes) = routed(&router, &ipv4_packet([192, 0, 2, 1], 64, 0));
    assert_eq!(out(&router, verdict), [1]);
    let view = Ipv4Packet::new_checked(&bytes[..]).expect("IPv4");
    assert!(view.ttl() == 63 && view.is_checksum_valid());
    // Padding goes.
    let padded = [ipv4_packet([10, 0, 3, 2], 2, 0), vec![0; 18]].concat();
    let (verdict, bytes) = routed(&router, &padded);
    assert_eq!((out(&router, verdict), bytes.len()), (vec![2], 28));

    let verdict = |bytes: &[u8]| routed(&router, bytes).0;
    let exceeded = Verdict::Refuse(DropReason::HopLimit, IcmpError::TimeExceeded);
    assert_eq!(verdict(&ipv4_packet([192, 0, 2, 1], 1, 0)), exceeded);
    assert_eq!(verdict(&ipv4_packet([192, 0, 2, 1], 0, 0)), exceeded);
    assert_eq!(verdict(&ipv4_packet([10, 9, 1, 1], 9, 0)), Verdict::Drop(DropReason::Blackhole));
    assert_eq!(verdict(&ipv4_packet([10, 0, 1, 1], 9, 0)), Verdict::Local);
    let mut wrong = ipv4_packet([192, 0, 2, 1], 64, 0);
    wrong[8] = 63;
    assert_eq!(verdict(&wrong), Verdict::Drop(DropReason::BadChecksum));
    assert_eq!(verdict(&wrong[..27]), Verdict::Drop(DropReason::Malformed));
}

#[test]
fn an_error_quotes_the_ttl_that_the_packet_came_with() {
    let mut router = router(&config());
    let mut frame = [vec![0; 14], ipv4_packet([192, 0, 2, 1], 9, 0)].concat();
    let before = frame.clone();
    let len = frame.len();
    let mut packet = Packet::new(&mut frame, 14, len);
    assert_eq!(out(&router, router.route(&mut packet)), [1]);
    packet.restore_hop_limit();
    assert_eq!(packet.bytes(), &before[14..]);
    let mut buffer = [0; ERROR_BYTES_MAX];
    let error = IcmpError::TooBig { mtu_bytes: 1_400 };
    let sent = router.error(Time::ZERO, PortId(0), error, packet.bytes(), &mut buffer);
    let (way, len) = sent.expect("an error");
    let Way::Group(group) = way else { panic!("{way:?}") };
    assert_eq!(out(&router, Verdict::Forward(group)), [0]);
    let view = Ipv4Packet::new_checked(&buffer[..len]).expect("IPv4");
    assert_eq!(view.source(), Ipv4Addr::new(10, 0, 1, 1));
    assert_eq!(view.destination(), Ipv4Addr::new(10, 0, 1, 2));
}

#[test]
fn errors_keep_to_their_rate() {
    let mut config = config();
    (config.icmp_errors_per_second, config.icmp_errors_burst) = (10, 2);
    let mut router = router(&config);
    let quoted = ipv4_packet([192, 0, 2, 1], 1, 0);
    let mut buffer = [0; ERROR_BYTES_MAX];
    let mut sent = |router: &mut Router, ms| {
        let now = Time::ZERO + Duration::from_ms(ms);
        router.error(now, PortId(0), IcmpError::TimeExceeded, &quoted, &mut buffer).is_some()
    };
    let times = [0, 0, 0, 99, 100, 100];
    let sent = times.map(|ms| sent(&mut router, ms));
    assert_eq!(sent, [true, true, false, false, true, false]);
    assert_eq!(router.errors_suppressed(), 3);
}

#[test]
fn marks_come_out_of_a_tunnel_by_rfc_6040() {
    let config = config();
    let rfc = router(&config);
    let kernel = router(&RouterConfig { ecn_decap: EcnDecap::Kernel, ..config.clone() });
    let uniform = router(&RouterConfig { dscp_mode: DscpMode::Uniform, ..config });
    for inner in 0..4_u8 {
        for outer in 0..4_u8 {
            let inside = ipv4_packet([192, 0, 2, 1], 64, 34 << 2 | inner);
            let packet = ipv6_packet(v6("fcbb:bb00:d46::"), 4, 46 << 2 | outer, &inside);
            let byte = |router: &Router| {
                let (verdict, bytes) = routed(router, &packet);
                if verdict == Verdict::Drop(DropReason::TunnelCongestion) {
                    return None;
                }
                assert_eq!(out(router, verdict), [1]);
                let view = Ipv4Packet::new_checked(&bytes[..]).expect("IPv4");
                assert!(view.is_checksum_valid() && view.ttl() == 63);
                Some(view.dscp() << 2 | view.ecn())
            };
            let mark = ecn_tunnel::decapsulate(inner, outer);
            assert_eq!(byte(&rfc), mark.map(|mark| 34 << 2 | mark), "{inner} in {outer}");
            assert_eq!(byte(&kernel), Some(34 << 2 | inner));
            assert_eq!(byte(&uniform), mark.map(|mark| 46 << 2 | mark));
        }
    }
}

#[test]
fn every_endpoint_takes_out_what_it_is_for() {
    let router = router(&config());
    let inside_v4 = ipv4_packet([10, 0, 1, 2], 64, 0);
    let inside_v6 = ipv6_packet(v6("2001:db8:1::2"), 17, 0, &[0; 8]);
    let problem = IcmpError::ParameterProblem { code: 4, pointer: 40 };
    let wrong = Verdict::Refuse(DropReason::SegmentUpperLayer, problem);
    // The port that an IPv4 and an IPv6 packet inside leave by.
    for (usid, v4_out, v6_out) in [
        ("d4", Some(0), None),
        ("d6", None, Some(0)),
        ("d46", Some(0), Some(0)),
        ("c4", Some(2), None),
        ("c6", None, Some(2)),
        ("a1", Some(0), Some(0)),
        ("e1", Some(2), Some(2)),
        ("1", None, None),
    ] {
        let destination = v6(&format!("fcbb:bb00:{usid}::"));
        for (upper, inside, want) in [(4, &inside_v4, v4_out), (41, &inside_v6, v6_out)] {
            let (verdict, bytes) = routed(&router, &ipv6_packet(destination, upper, 0, inside));
            match want {
                None => assert_eq!(verdict, wrong, "{usid} {upper}"),
                Some(port) => {
                    assert_eq!(out(&router, verdict), [port], "{usid} {upper}");
                    assert_eq!(bytes.len(), inside.len(), "{usid} {upper}");
                }
            }
        }
        // The version inside is not what the header before it says.
        let (verdict, _) = routed(&router, &ipv6_packet(destination, 41, 0, &inside_v4));
        if v6_out.is_some() {
            assert_eq!(verdict, Verdict::Drop(DropReason::Malformed), "{usid}");
        }
    }
}

#[test]
fn psp_takes_the_segment_routing_header_with_the_last_step() {
    let router = router(&config());
    let mut srh = [0; 24];
    srv6::emit_reduced(&[v6("fcbb:bb00:2:d6::")], 17, &mut srh).expect("room");
    // Destination options before it, whose next header is then UDP.
    let options = [extension::ROUTING, 0, 1, 4, 0, 0, 0, 0];
    let payload = [&options[..], &srh, &[0, 7, 0, 9, 0, 8, 0, 0]].concat();
    let packet = ipv6_packet(v6("fcbb:bb00:a1::"), extension::DESTINATION, 0, &payload);
    let (verdict, bytes) = routed(&router, &packet);
    assert_eq!(out(&router, verdict), [1]);
    let view = Ipv6Packet::new_checked(&bytes[..]).expect("IPv6");
    assert_eq!((view.destination(), view.hop_limit()), (v6("fcbb:bb00:2:d6::"), 63));
    assert_eq!((view.next_header(), view.payload_bytes()), (extension::DESTINATION, 16));
    assert_eq!(view.upper_layer().map(|upper| (upper.protocol, upper.offset)), Ok((17, 48)));
    assert_eq!(bytes[48..], [0, 7, 0, 9, 0, 8, 0, 0]);
}

#[test]
fn a_policy_puts_a_path_on_that_the_far_end_takes_off() {
    let mut config = config();
    let policy = |prefix: &str, segments: &[&str]| EncapConfig {
        port: PortId(0),
        prefix: prefix.parse().expect("a prefix"),
        source: v6("2001:db8:1::1"),
        segments: segments.iter().map(|text| v6(text)).collect(),
        hop_limit: 64,
    };
    config.encapsulations = vec![
        policy("192.0.2.0/24", &["fcbb:bb00:1:d4::"]),
        policy("192.0.2.128/25", &["fcbb:bb00:1::", "fcbb:bb00:d4::"]),
    ];
    let router = router(&config);
    for (last, outer_bytes) in [(1, 40), (200, 40 + 24)] {
        let mut frame = [vec![0; 14], ipv4_packet([192, 0, 2, last], 64, 34 << 2 | CE)].concat();
        let len = frame.len();
        let mut packet = Packet::new(&mut frame, 14, len);
        assert_eq!(router.encapsulation(PortId(1), &packet), None);
        let policy = router.encapsulation(PortId(0), &packet).expect("a policy");
        assert_eq!(router.hop(&mut packet), None);
        let inner = InnerPacket::read(&packet);
        let inside = packet.bytes().to_vec();
        let policy = router.policy(policy);
        assert_eq!(policy.outer_bytes(), outer_bytes);
        let mut bytes = vec![0xa5; outer_bytes];
        policy.write(&mut bytes, inner, 0xabcde, &router).expect("room");
        bytes.extend_from_slice(&inside);
        let view = Ipv6Packet::new_checked(&bytes[..]).expect("IPv6");
        assert_eq!((view.ecn(), view.dscp(), view.flow_label()), (CE, 0, 0xabcde));
        // Its path is one uN and the uDT4 of this very node.
        let mut frame = [vec![0; 14], bytes].concat();
        let len = frame.len();
        let mut packet = Packet::new(&mut frame, 14, len);
        assert_eq!(out(&router, router.route_own(&mut packet)), [1]);
        let view = Ipv4Packet::new_checked(packet.bytes()).expect("IPv4");
        assert!(view.is_checksum_valid());
        // One hop where the policy was, one where the tunnel ended.
        assert_eq!((view.ttl(), view.ecn()), (62, CE));
    }
}

#[test]
fn segments_left_beyond_the_list_are_refused_where_they_lie() {
    let router = router(&config());
    let bad = |pointer| {
        let error = IcmpError::ParameterProblem { code: 0, pointer };
        Verdict::Refuse(DropReason::BadSegments, error)
    };
    let mut srh = [0; 24];
    srv6::emit_reduced(&[v6("fcbb:bb00:2::")], 59, &mut srh).expect("room");
    let with = |destination: &str, srh: &[u8]| {
        routed(&router, &ipv6_packet(v6(destination), extension::ROUTING, 0, srh)).0
    };
    assert_eq!(out(&router, with("fcbb:bb00:1::", &srh)), [1]);
    for (left, last) in [(2, 0), (255, 0), (1, 1), (1, 255)] {
        let mut srh = srh;
        (srh[3], srh[4]) = (left, last);
        assert_eq!(with("fcbb:bb00:1::", &srh), bad(43), "{left} {last}");
        // Where an argument is left nobody looks.
        assert_eq!(out(&router, with("fcbb:bb00:1:2::", &srh)), [1]);
    }
    assert_eq!(with("fcbb:bb00:d6::", &srh), bad(43));
    // Another routing type with segments left; the header does not end.
    let mut other = srh;
    other[2] = 0;
    assert_eq!(with("fcbb:bb00:1::", &other), bad(42));
    assert_eq!(with("fcbb:bb00:1::", &srh[..16]), Verdict::Drop(DropReason::Malformed));
}

#[test]
fn contradictions_are_refused_by_name() {
    type Change = fn(&mut RouterConfig);
    let neighbour = |address: &str| Neighbour {
        address: address.parse().expect("an address"),
        mac: MacAddr([2, 0, 0, 0, 9, 9]),
        port: PortId(0),
        vlan: None,
    };
    config().check(&ports()).expect("a router");
    let cases: [(Change, &str); 17] = [
        (|c| c.mac = Some(MacAddr::BROADCAST), "router: mac: ff:ff:ff:ff:ff:ff is a group address"),
        (|c| c.icmp_errors_burst = 0, "router: icmp_errors_burst: 0: 1 to 1000000"),
        (
            |c| c.addresses[0].port = PortId(3),
            "router address 10.0.1.1: port: there is no port 3: the switch has 3",
        ),
        (
            |c| c.addresses[1].address = Ipv4Addr::new(10, 0, 1, 1).into(),
            "router address 10.0.1.1: address: 10.0.1.1/32 is taken by router address 10.0.1.1",
        ),
        (
            |c| c.neighbours[0].address = Ipv4Addr::new(224, 0, 0, 1).into(),
            "neighbour 224.0.0.1: address: 224.0.0.1 is no station's address",
        ),
        (
            |c| c.neighbours[0].mac = MacAddr::BROADCAST,
            "neighbour 10.0.1.2: mac: ff:ff:ff:ff:ff:ff is a group address",
        ),
        (|c| c.neighbours[0].vlan = Some(7), "neighbour 10.0.1.2: vlan: port 1 is not in VLAN 7"),
        (
            |c| c.routes[0].via = hops(&["10.0.2.9"]),
            "route 0.0.0.0/0: via: 10.0.2.9 is no neighbour: add one with its MAC",
        ),
        (
            |c| c.routes[0].via = hops(&["2001:db8:2::2"]),
            "route 0.0.0.0/0: via: 2001:db8:2::2 is of the other IP version",
        ),
        (
            |c| c.routes[0].via = hops(&["10.0.2.2", "10.0.2.2"]),
            "route 0.0.0.0/0: via: 10.0.2.2 is there twice: give it a weight of 2",
        ),
        (
            |c| c.routes[0].via[0].weight = 0,
            "route 0.0.0.0/0: weight: 10.0.2.2 has weight 0: leave it out",
        ),
        (
            |c| c.routes[1].prefix = "0.0.0.0/0".parse().expect("a prefix"),
            "route 0.0.0.0/0: prefix: 0.0.0.0/0 is taken by route 0.0.0.0/0",
        ),
        (
            |c| c.sids[1].address = v6("fcbb:bb00:1::"),
            "segment fcbb:bb00:1::/48: address: fcbb:bb00:1::/48 is a segment already",
        ),
        (
            |c| c.sids[0].address = v6("fcbb:bb00::"),
            "segment fcbb:bb00::/48: address: uSID 0 ends a container: it can be no node's",
        ),
        (
            |c| c.sids[0].address = v6("fcbb:bb00:1:2::"),
            "segment fcbb:bb00:1:2::/128: address: bits are set behind block and uSID, 48 bits",
        ),
        (
            |c| c.sids[0].address = v6("fcbb:bb00:2::"),
            "segment fcbb:bb00:2::/48: address: fcbb:bb00:2::/48 is taken by route fcbb:bb00:2::/48",
        ),
        (
            |c| c.sids[6].behaviour = SidBehaviour::Udx4(Vec::new()),
            "segment fcbb:bb00:c4::/48: via: names no neighbour",
        ),
    ];
    for (change, want) in cases {
        let mut config = config();
        change(&mut config);
        assert_eq!(config.check(&ports()).expect_err(want).to_string(), want);
    }
    let mut twice = config();
    twice.neighbours.extend([neighbour("fe80::1"), neighbour("fe80::1")]);
    let error = twice.check(&ports()).expect_err("twice").to_string();
    assert_eq!(error, "neighbour fe80::1: address: set twice on this port");
    let mut trunk = ports();
    trunk[0].vlan = VlanMode::Trunk { allowed: vec![5], native: None };
    let error = config().check(&trunk).expect_err("no VLAN").to_string();
    assert_eq!(error, "neighbour 10.0.1.2: vlan: port 1 has no VLAN of untagged frames: name one");
}

#[test]
fn segments_may_hold_one_another_only_under_a_un_of_their_block() {
    let with = |block_bits, usid_bits, shorter: SidBehaviour| {
        let mut config = config();
        config.sids[0].behaviour = shorter;
        config.sids.push(SidConfig {
            address: v6("fcbb:bb00:1:e001::"),
            layout: UsidLayout::new(block_bits, usid_bits).expect("a layout"),
            behaviour: SidBehaviour::Ua(hops(&["2001:db8:3::2"]), Flavours::default()),
        });
        config.check(&ports()).map_err(|error| error.to_string())
    };
    let un = SidBehaviour::Un(Flavours::default());
    assert_eq!(with(32, 32, un.clone()), Ok(()));
    let overlap = "segment fcbb:bb00:1:e001::/64: address: overlaps with fcbb:bb00:1::/48: of \
                   segments that hold one another, the shorter is a uN of the same block";
    assert_eq!(with(48, 16, un), Err(overlap.to_owned()));
    assert_eq!(with(32, 32, SidBehaviour::Udt6), Err(overlap.to_owned()));
}

#[test]
fn encapsulations_are_checked() {
    let policy = || EncapConfig {
        port: PortId(0),
        prefix: "::/0".parse().expect("a prefix"),
        source: v6("2001:db8:1::1"),
        segments: vec![v6("fcbb:bb00:1::")],
        hop_limit: 64,
    };
    let refused = |change: fn(&mut EncapConfig)| {
        let mut config = config();
        config.encapsulations = vec![policy()];
        change(&mut config.encapsulations[0]);
        config.check(&ports()).expect_err("refused").to_string()
    };
    for (message, want) in [
        (refused(|p| p.port = PortId(9)), "port: there is no port 9: the switch has 3"),
        (refused(|p| p.segments.clear()), "segments: a path has one segment at least"),
        (refused(|p| p.segments = vec![Ipv6Addr::UNSPECIFIED]), "segments: :: is no segment"),
        (
            refused(|p| p.segments = vec![p.segments[0]; 6]),
            "segments: 6 segments: at most 5 fit before a packet",
        ),
        (refused(|p| p.hop_limit = 0), "hop_limit: 0: no hop would be left"),
        (refused(|p| p.source = Ipv6Addr::UNSPECIFIED), "source: :: is no station's address"),
    ] {
        assert_eq!(message, format!("encapsulation of ::/0: {want}"));
    }
    let mut twice = config();
    twice.encapsulations = vec![policy(), policy()];
    assert!(twice.check(&ports()).is_err());
}

/// A packet for a segment of this node, with extension headers that may lie.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let usids = prop::sample::select(vec![
        "fcbb:bb00:1::",
        "fcbb:bb00:1:1:1:1:1:1",
        "fcbb:bb00:1:a1:e1:2::",
        "fcbb:bb00:a1::",
        "fcbb:bb00:e1::",
        "fcbb:bb00:d4::",
        "fcbb:bb00:d6:ffff::",
        "fcbb:bb00:d46::",
        "fcbb:bb00:c6::",
        "2001:db8:9::1",
    ]);
    let kinds = prop::sample::select(vec![0_u8, 4, 17, 41, 43, 44, 58, 59, 60]);
    let headers = proptest::collection::vec((kinds.clone(), any::<[u8; 8]>(), 0_u8..6), 0..5);
    let rest = proptest::collection::vec(any::<u8>(), 0..120);
    (usids, kinds, headers, rest, any::<u8>(), any::<u16>(), any::<bool>()).prop_map(
        |(destination, first, headers, rest, hop_limit, payload, honest)| {
            let mut body = Vec::new();
            for (kind, mut bytes, len) in headers {
                bytes[0] = kind;
                bytes[1] = len;
                if bytes[2] < 200 {
                    bytes[2] = 4;
                }
                body.extend_from_slice(&bytes);
                // The segments, some of them of this node.
                for at in 0..usize::from(len) {
                    let word = if at % 2 == 0 { [0xfc, 0xbb, 0xbb, 0, 0, 1, 0, 0] } else { [0; 8] };
                    body.extend_from_slice(&word);
                }
            }
            body.extend_from_slice(&rest);
            body.truncate(400);
            let mut packet = ipv6_packet(v6(destination), first, 0, &body);
            packet[7] = hop_limit;
            if !honest {
                packet[4..6].copy_from_slice(&payload.to_be_bytes());
            }
            packet
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_024))]

    #[test]
    fn no_byte_string_panics_and_what_goes_on_is_a_packet(
        packet in prop_oneof![
            hostile(),
            proptest::collection::vec(any::<u8>(), 0..200),
        ],
        shown in 0_usize..300,
        longer in 0_usize..9_000,
    ) {
        let mut config = config();
        config.icmp_errors_per_second = 1_000_000;
        let mut router = router(&config);
        let mut frame = [vec![0xee; 14], packet].concat();
        let before = frame.clone();
        // The store shows the leading bytes; the frame may be longer.
        let len = frame.len() + longer;
        let shown = (14 + shown).min(frame.len());
        // The short way has the effect of the long one.
        let mut again = frame.clone();
        let mut packet = Packet::new(&mut again[..shown], 14, len);
        let want = (router.route_long(&mut packet), packet.start, packet.end);
        let want_hop_limit = packet.received_hop_limit;
        let mut packet = Packet::new(&mut frame[..shown], 14, len);
        let verdict = router.route(&mut packet);
        prop_assert_eq!((verdict, packet.start, packet.end), want);
        prop_assert_eq!(packet.received_hop_limit, want_hop_limit);
        prop_assert_eq!(&packet.head[..], &again[..shown]);
        prop_assert!(packet.end <= len && packet.start >= 14);
        prop_assert!(packet.start - 14 <= 128, "more than a store can take off");
        match verdict {
            Verdict::Forward(group) => {
                prop_assert!(!router.members(group).is_empty());
                let available = packet.end - packet.start;
                match packet.bytes()[0] >> 4 {
                    4 => {
                        let view = Ipv4Packet::new_checked_prefix(packet.bytes(), available);
                        prop_assert!(view.is_ok_and(|view| view.is_checksum_valid()));
                    }
                    _ => {
                        let view = Ipv6Packet::new_checked_prefix(packet.bytes(), available);
                        let payload = view.map(|view| usize::from(view.payload_bytes()));
                        prop_assert_eq!(payload, Ok(available - 40));
                    }
                }
            }
            Verdict::Refuse(_, error) => {
                packet.restore_hop_limit();
                let mut buffer = [0xa5; ERROR_BYTES_MAX];
                if let Some((_, len)) =
                    router.error(Time::ZERO, PortId(0), error, packet.bytes(), &mut buffer)
                {
                    prop_assert!(len <= ERROR_BYTES_MAX);
                }
            }
            Verdict::Local | Verdict::Drop(_) => {}
        }
        // Nothing before the packet is touched but by what moved there.
        prop_assert_eq!(&frame[..14], &before[..14]);
    }
}
