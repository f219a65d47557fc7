//! The host in virtual time, against literal bytes and etherparse.

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

mod pauses;

use super::*;
use crate::frame::{Frame, FrameStore, SlabStore};
use crate::ledger::DropReason;
use crate::node::{Node, PortId, Transmission};
use crate::time::{Duration, Time};
use crate::units::{AnyRate, FrameRate, Rate};
use crate::wire::icmpv4::{self, EchoHeader, Icmpv4Message};
use crate::wire::icmpv6::{self, Icmpv6Message, NeighborHeader};
use crate::wire::ipv4::Ipv4Header;
use crate::wire::ipv6::Ipv6Header;
use crate::wire::{MacAddr, protocol};

const PORT: PortId = PortId(0);
const MAC_A: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x0a]);
const MAC_B: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x0b]);
const A4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const B4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const A6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xa);
const B6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xb);

fn config(name: &str, mac: MacAddr, v4: Ipv4Addr, v6: Ipv6Addr) -> HostConfig {
    HostConfig {
        name: name.to_owned(),
        port_name: "eth0".to_owned(),
        mac,
        ipv4: Some((v4, 24)),
        ipv6: Some((v6, 64)),
        rate: Rate::from_gbps(10),
        mtu_bytes: 9_000,
        overhead_bytes: 24,
        queue_frames_max: 64,
        ..HostConfig::new("", MacAddr::default(), Rate::from_gbps(10))
    }
}

fn config_a() -> HostConfig {
    config("a", MAC_A, A4, A6)
}

fn stream(id: u32, frame_bytes: u32, pps: u64) -> StreamConfig {
    StreamConfig {
        id,
        target: StreamTarget { mac: MAC_B, ip: B4.into(), vlan: None },
        source_port: 4_660,
        destination_port: 4_791,
        dscp: 46,
        priority: 0,
        frame_bytes,
        rate: AnyRate::Frames(FrameRate::from_pps(pps)),
        arrivals: Arrivals::Constant,
        start: Time::from_ns(10_000),
        stop: Time::from_ns(1_010_000),
        frames_max: u64::MAX,
    }
}

fn host(config: &HostConfig, expected: &[u32]) -> Host {
    let expected: Vec<_> = expected.iter().map(|id| ExpectedStream { id: *id }).collect();
    Host::new(config, &expected).expect("a good configuration")
}

fn ledger(host: &Host) -> crate::ledger::Ledger {
    let ledger = Node::<SlabStore>::ledger(host);
    assert_eq!(ledger.check(), Ok(()), "{ledger:?}");
    ledger
}

fn deadline(host: &Host) -> Time {
    Node::<SlabStore>::next_deadline(host)
}

/// Drives a host alone until `until`, `late` after each deadline, and gives what it sent.
fn run(host: &mut Host, store: &mut SlabStore, until: Time, late: Duration) -> Vec<Transmission> {
    let mut sent = Vec::new();
    loop {
        let at = deadline(host);
        if at > until {
            break;
        }
        drive(host, store, at + late, &mut sent);
        ledger(host);
    }
    sent
}

fn drive(host: &mut Host, store: &mut SlabStore, now: Time, sent: &mut Vec<Transmission>) {
    host.on_timer(now, store);
    while let Some(port) = Node::<SlabStore>::next_ready_port(host, now) {
        sent.extend(host.poll_transmit(now, store, port));
    }
}

fn bytes_of(store: &SlabStore, frame: &Frame) -> Vec<u8> {
    let mut bytes = Vec::new();
    store.copy_out(frame, &mut bytes);
    bytes
}

fn release_all(store: &mut SlabStore, sent: Vec<Transmission>) {
    for transmission in sent {
        store.release(transmission.frame);
    }
}

/// A host that has announced itself, and its store.
fn settled() -> (Host, SlabStore) {
    let mut store = SlabStore::new(10_000);
    let mut host = host(&config_a(), &[]);
    let sent = run(&mut host, &mut store, Time::from_ns(1_000), Duration::ZERO);
    assert_eq!(sent.len(), 2);
    release_all(&mut store, sent);
    (host, store)
}

/// What the host answers to `bytes`.
fn answers(host: &mut Host, store: &mut SlabStore, bytes: &[u8]) -> Vec<Vec<u8>> {
    let now = Time::from_ns(1_000_000);
    let frame = store.allocate_from(bytes).expect("room");
    host.on_frame(now, store, PORT, frame);
    let sent = run(host, store, Time::from_ns(2_000_000), Duration::ZERO);
    let bytes = sent.iter().map(|sent| bytes_of(store, &sent.frame)).collect();
    release_all(store, sent);
    assert_eq!(store.outstanding(), 0);
    bytes
}

/// Expects that the host says nothing to `bytes` and counts `reason`.
fn dropped(bytes: &[u8], reason: DropReason) {
    let (mut host, mut store) = settled();
    assert_eq!(answers(&mut host, &mut store, bytes), Vec::<Vec<u8>>::new());
    let drops = ledger(&host).drops;
    assert_eq!((drops.of(reason), drops.total()), (1, 1), "{:?}", drops.iter().next());
}

fn ethernet(destination: MacAddr, ethertype: u16, packet: &[u8]) -> Vec<u8> {
    [&destination.0[..], &MAC_B.0, &ethertype.to_be_bytes(), packet].concat()
}

fn arp(operation: u8, sender: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    [&[0, 1, 8, 0, 6, 4, 0, operation][..], &MAC_B.0, &sender.octets(), &[0; 6], &target.octets()]
        .concat()
}

fn ipv6_packet(
    source: Ipv6Addr,
    destination: Ipv6Addr,
    next_header: u8,
    payload: &[u8],
) -> Vec<u8> {
    let mut packet = vec![0; 40 + payload.len()];
    let payload_bytes = u16::try_from(payload.len()).expect("short");
    Ipv6Header {
        source,
        destination,
        next_header,
        hop_limit: 255,
        dscp: 0,
        ecn: 0,
        flow_label: 0,
        payload_bytes,
    }
    .emit(&mut packet)
    .expect("room");
    packet[40..].copy_from_slice(payload);
    packet
}

fn solicitation(source: Ipv6Addr, destination: Ipv6Addr, mac: Option<MacAddr>) -> Vec<u8> {
    let header = NeighborHeader::Solicitation { target: A6, source_mac: mac };
    let mut message = vec![0; header.len_bytes()];
    header.emit(source, destination, &mut message).expect("room");
    ipv6_packet(source, destination, protocol::ICMPV6, &message)
}

fn echo_v4(data: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; 28 + data.len()];
    let payload_bytes = u16::try_from(8 + data.len()).expect("short");
    Ipv4Header {
        source: B4,
        destination: A4,
        protocol: protocol::ICMPV4,
        ttl: 3,
        dscp: 10,
        ecn: 1,
        identification: 77,
        dont_fragment: true,
        payload_bytes,
    }
    .emit(&mut packet)
    .expect("room");
    let header = EchoHeader { kind: icmpv4::ECHO_REQUEST, identifier: 0x1234, sequence: 7 };
    header.emit(&mut packet[20..]).expect("room");
    packet[28..].copy_from_slice(data);
    Icmpv4Message::new_checked(&mut packet[20..]).expect("8 bytes").fill_checksum();
    packet
}

fn echo_v6_message(data: &[u8]) -> Vec<u8> {
    let mut message = vec![0; 8 + data.len()];
    let header = EchoHeader { kind: icmpv6::ECHO_REQUEST, identifier: 0x1234, sequence: 7 };
    header.emit(&mut message).expect("room");
    message[8..].copy_from_slice(data);
    Icmpv6Message::new_checked(&mut message[..]).expect("8 bytes").fill_checksum(B6, A6);
    message
}

#[test]
fn announces_itself_at_time_zero() {
    let mut store = SlabStore::new(100);
    let mut host = host(&config_a(), &[]);
    assert_eq!(deadline(&host), Time::ZERO);
    let sent = run(&mut host, &mut store, Time::from_ns(1_000), Duration::ZERO);
    let gratuitous = [
        &[0xff; 6][..],
        &MAC_A.0,
        &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1],
        &MAC_A.0,
        &[10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 1],
    ]
    .concat();
    assert_eq!(bytes_of(&store, &sent[0].frame), gratuitous);
    assert_eq!(sent[0].starts, Time::ZERO);
    let advertisement = bytes_of(&store, &sent[1].frame);
    assert_eq!(advertisement[..12], [&[0x33, 0x33, 0, 0, 0, 1][..], &MAC_A.0].concat());
    let packet = etherparse::SlicedPacket::from_ethernet(&advertisement).expect("a packet");
    let Some(etherparse::TransportSlice::Icmpv6(message)) = packet.transport else {
        panic!("an ICMPv6 message: {packet:?}");
    };
    assert!(message.is_checksum_valid(A6.octets(), classify::ALL_NODES.octets()));
    assert_eq!(message.slice()[..8][4], 0x20, "override, neither router nor solicited");
    assert_eq!(host.stats().announcements_sent, 2);
    assert_eq!((ledger(&host).generated, ledger(&host).transmitted), (2, 2));
    assert_eq!(deadline(&host), Time::NEVER);
    release_all(&mut store, sent);
}

#[test]
fn answers_arp_for_its_own_address_alone() {
    let (mut host, mut store) = settled();
    let reply = [
        &MAC_B.0[..],
        &MAC_A.0,
        &[8, 6, 0, 1, 8, 0, 6, 4, 0, 2],
        &MAC_A.0,
        &[10, 0, 0, 1],
        &MAC_B.0,
        &[10, 0, 0, 2],
    ]
    .concat();
    for destination in [MacAddr::BROADCAST, MAC_A] {
        let request = ethernet(destination, 0x0806, &arp(1, B4, A4));
        assert_eq!(answers(&mut host, &mut store, &request), std::slice::from_ref(&reply));
    }
    // Padded as a NIC pads it, and behind a VLAN tag, which the reply carries too.
    let mut tagged = ethernet(MacAddr::BROADCAST, 0x8100, &[0x60, 5, 8, 6]);
    tagged.extend(arp(1, B4, A4));
    tagged.resize(64, 0);
    let want = [&reply[..12], &[0x81, 0, 0x60, 5], &reply[12..]].concat();
    assert_eq!(answers(&mut host, &mut store, &tagged), [want]);
    assert_eq!(host.stats().arp_answered, 3);
    // A station that announces itself is heard.
    let announcement = ethernet(MacAddr::BROADCAST, 0x0806, &arp(1, B4, B4));
    assert!(answers(&mut host, &mut store, &announcement).is_empty());
    assert_eq!((host.stats().announcements_heard, ledger(&host).drops.total()), (1, 0));
    let other = Ipv4Addr::new(10, 0, 0, 9);
    dropped(&ethernet(MacAddr::BROADCAST, 0x0806, &arp(1, B4, other)), DropReason::NotForUs);
    dropped(&ethernet(MAC_A, 0x0806, &arp(2, B4, A4)), DropReason::Unhandled);
    dropped(&ethernet(MAC_A, 0x0806, &arp(1, B4, A4)[..27]), DropReason::Malformed);
}

#[test]
fn answers_neighbour_solicitations() {
    let group = icmpv6::solicited_node(A6);
    let group_mac = icmpv6::multicast_mac(group);
    let unicast = (MAC_B, B6, true);
    let all_nodes = (MacAddr([0x33, 0x33, 0, 0, 0, 1]), classify::ALL_NODES, false);
    for (mac, request, (to_mac, to, solicited)) in [
        (group_mac, solicitation(B6, group, Some(MAC_B)), unicast),
        (MAC_A, solicitation(B6, A6, Some(MAC_B)), unicast),
        (MAC_A, solicitation(B6, A6, None), unicast),
        // Someone checks whether our address is free: it is not.
        (group_mac, solicitation(Ipv6Addr::UNSPECIFIED, group, None), all_nodes),
    ] {
        let (mut host, mut store) = settled();
        let got = answers(&mut host, &mut store, &ethernet(mac, 0x86dd, &request));
        let header = NeighborHeader::Advertisement {
            target: A6,
            target_mac: Some(MAC_A),
            router: false,
            solicited,
            overrides: true,
        };
        let mut message = [0; 32];
        header.emit(A6, to, &mut message).expect("room");
        let packet = ipv6_packet(A6, to, protocol::ICMPV6, &message);
        let want = [&to_mac.0[..], &MAC_A.0, &[0x86, 0xdd], &packet].concat();
        assert_eq!(got, [want]);
        assert_eq!(host.stats().solicitations_answered, 1);
    }
}

#[test]
fn solicitations_that_rfc_4861_forbids_are_dropped() {
    let group = icmpv6::solicited_node(A6);
    let good = ethernet(MAC_A, 0x86dd, &solicitation(B6, group, Some(MAC_B)));
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        bytes
    };
    dropped(&with(21, 64), DropReason::Malformed); // through a router
    dropped(&with(56, 0xff), DropReason::BadChecksum);
    dropped(&with(6, 0x03), DropReason::SourceMulticast);
    let none = Ipv6Addr::UNSPECIFIED;
    let bad = solicitation(none, group, Some(MAC_B));
    dropped(&ethernet(MAC_A, 0x86dd, &bad), DropReason::Malformed);
    dropped(&ethernet(MAC_A, 0x86dd, &solicitation(none, A6, None)), DropReason::Malformed);
    let header = NeighborHeader::Solicitation { target: B6, source_mac: None };
    let mut message = [0; 24];
    header.emit(none, group, &mut message).expect("room");
    let other = ipv6_packet(none, group, protocol::ICMPV6, &message);
    dropped(&ethernet(MAC_A, 0x86dd, &other), DropReason::NotForUs);
}

#[test]
fn echoes_every_size_with_payload_intact_and_checksums_right() {
    let (mut host, mut store) = settled();
    for size in [0_usize, 1, 2, 56, 213, 214, 470, 471, 1_472, 1_473, 8_951, 8_952, 8_972] {
        let data: Vec<u8> = (0_u8..=250).cycle().take(size).collect();
        let request = ethernet(MAC_A, 0x0800, &echo_v4(&data));
        let got = answers(&mut host, &mut store, &request);
        let packet = etherparse::SlicedPacket::from_ethernet(&got[0]).expect("a packet");
        let Some(etherparse::NetSlice::Ipv4(ip)) = &packet.net else { panic!("IPv4") };
        let header = ip.header().to_header();
        assert_eq!((header.source, header.destination), (A4.octets(), B4.octets()));
        assert_eq!(header.header_checksum, header.calc_header_checksum());
        assert_eq!(header.time_to_live, 64);
        let Some(etherparse::TransportSlice::Icmpv4(icmp)) = &packet.transport else {
            panic!("ICMP")
        };
        let icmp_header = icmp.header();
        assert_eq!(icmp.payload(), data, "{size}");
        assert_eq!(icmp_header.checksum, icmp_header.icmp_type.calc_checksum(&data));
        let echo = etherparse::IcmpEchoHeader { id: 0x1234, seq: 7 };
        assert_eq!(icmp_header.icmp_type, etherparse::Icmpv4Type::EchoReply(echo));
        assert_eq!((&got[0][..6], &got[0][6..12]), (&MAC_B.0[..], &MAC_A.0[..]));
        if size > 8_952 {
            continue;
        }
        // Behind an empty destination options header and two tags.
        let message = echo_v6_message(&data);
        let behind = [&[58_u8, 0, 1, 4, 0, 0, 0, 0][..], &message].concat();
        let plain = ipv6_packet(B6, A6, protocol::ICMPV6, &message);
        let mut frames = vec![(ethernet(MAC_A, 0x86dd, &plain), 14)];
        if size <= 8_944 {
            let extended = ipv6_packet(B6, A6, 60, &behind);
            let tags = [0, 5, 0x81, 0, 0, 6, 0x86, 0xdd];
            frames.push((ethernet(MAC_A, 0x88a8, &[&tags[..], &extended].concat()), 30));
        }
        for (frame, to_icmp_less_40) in frames {
            let got = answers(&mut host, &mut store, &frame);
            assert_eq!(got[0].len(), frame.len());
            let packet = etherparse::SlicedPacket::from_ethernet(&got[0]).expect("a packet");
            let Some(etherparse::TransportSlice::Icmpv6(icmp)) = &packet.transport else {
                panic!("ICMPv6")
            };
            assert!(icmp.is_checksum_valid(A6.octets(), B6.octets()), "{size}");
            assert_eq!(icmp.type_u8(), icmpv6::ECHO_REPLY);
            assert_eq!(got[0][to_icmp_less_40 + 40 + 8..], data);
        }
    }
    assert_eq!(host.stats().echo_v4_answered, 13);
    assert_eq!(ledger(&host).drops.total(), 0);
}

#[test]
fn what_is_not_ours_is_dropped_by_name() {
    let echo = ethernet(MAC_A, 0x0800, &echo_v4(b"data"));
    let with = |at: usize, value: u8| {
        let mut bytes = echo.clone();
        bytes[at] ^= value;
        bytes
    };
    dropped(&echo[..13], DropReason::Runt);
    dropped(&echo[..33], DropReason::Malformed);
    dropped(&echo[..45], DropReason::Malformed);
    dropped(&with(5, 1), DropReason::NotForUs);
    dropped(&with(24, 1), DropReason::BadChecksum);
    dropped(&with(36, 1), DropReason::BadChecksum);
    dropped(&with(45, 1), DropReason::BadChecksum);
    dropped(&ethernet(MAC_A, 0x88cc, &[0; 46]), DropReason::Unhandled);
    dropped(&ethernet(MAC_A, 0x0800, &echo_v4(&[0; 8_973])), DropReason::Oversize);
    let mut fragment = echo_v4(b"data");
    fragment[6] |= 0x20;
    fragment[10..12].copy_from_slice(&[0, 0]);
    let checksum = crate::wire::checksum::checksum(&fragment[..20]).to_be_bytes();
    fragment[10..12].copy_from_slice(&checksum);
    dropped(&ethernet(MAC_A, 0x0800, &fragment), DropReason::Unhandled);
}

/// Two hosts on a link without delay; gives both when nothing is left to do.
fn pair(mut a: Host, mut b: Host, store: &mut SlabStore) -> (Host, Host, Time) {
    let mut now = Time::ZERO;
    let mut flying: Vec<(Time, bool, Frame)> = Vec::new();
    loop {
        let arrival = flying.iter().map(|(at, ..)| *at).min().unwrap_or(Time::NEVER);
        let next = arrival.min(deadline(&a)).min(deadline(&b));
        if next == Time::NEVER {
            return (a, b, now);
        }
        assert!(next >= now, "time does not run backwards");
        now = next;
        while let Some(place) = flying.iter().position(|(at, ..)| *at <= now) {
            let (at, to_a, frame) = flying.remove(place);
            assert_eq!(at, now);
            if to_a { &mut a } else { &mut b }.on_frame(now, store, PORT, frame);
        }
        for (host, to_a) in [(&mut a, false), (&mut b, true)] {
            let mut sent = Vec::new();
            drive(host, store, now, &mut sent);
            flying.extend(sent.into_iter().map(|sent| (sent.ends, to_a, sent.frame)));
            ledger(host);
        }
    }
}

#[test]
fn a_stream_arrives_whole_and_on_time() {
    let mut a = config_a();
    let mut v6 = stream(9, 1_400, 50_000);
    v6.target.ip = B6.into();
    v6.target.vlan = Some((5, 3));
    v6.arrivals = Arrivals::Poisson;
    a.streams = vec![stream(7, 9_014, 100_000), v6, stream(3, 66, 30_000)];
    let b = config("b", MAC_B, B4, B6);
    let mut store = SlabStore::new(10_000);
    let (a, b, now) = pair(host(&a, &[]), host(&b, &[3, 7, 9]), &mut store);
    assert!(a.has_finished() && store.outstanding() == 0);
    let sent: Vec<_> = a.streams_sent(now).collect();
    assert_eq!(sent.iter().map(|s| s.id).collect::<Vec<_>>(), [7, 9, 3]);
    assert_eq!((sent[0].planned, sent[0].sent, sent[0].dropped), (100, 100, 0));
    assert_eq!(sent[2].sent, 30);
    assert_eq!(sent[0].first_start, Some(Time::from_ns(10_000)));
    for received in b.streams_received() {
        let sent = sent.iter().find(|s| s.id == received.id).expect("sent");
        assert_eq!((received.received, received.bytes), (sent.sent, sent.bytes));
        assert_eq!(received.sequence, SequenceErrors::default());
        assert_eq!(received.content_errors, 0);
        assert_eq!(received.delay.count(), sent.sent);
        assert_eq!(received.last_arrival, sent.last_end);
    }
    // 9,038 bytes of wire at 10 Gb/s, alone on the line at least once.
    let jumbo = b.streams_received().find(|s| s.id == 7).expect("it ends here");
    assert_eq!(jumbo.delay.percentiles().min, 7_230);
    let ledger = ledger(&b);
    assert_eq!(ledger.consumed, ledger.received, "two announcements were heard");
    assert_eq!(ledger.drops.total(), 0);
}

#[test]
fn frames_of_a_stream_are_what_etherparse_reads() {
    let mut config = config_a();
    let mut v6 = stream(9, 200, 50_000);
    v6.target.ip = B6.into();
    v6.target.vlan = Some((5, 3));
    config.streams = vec![stream(7, 9_014, 100_000), v6, stream(3, 66, 30_000)];
    let mut store = SlabStore::new(10_000);
    let mut host = host(&config, &[]);
    let sent = run(&mut host, &mut store, Time::from_ns(400_000), Duration::ZERO);
    assert!(sent.len() > 60);
    for sent in &sent[2..] {
        let bytes = bytes_of(&store, &sent.frame);
        let packet = etherparse::SlicedPacket::from_ethernet(&bytes).expect("a packet");
        let Some(etherparse::TransportSlice::Udp(udp)) = &packet.transport else { panic!("UDP") };
        assert_eq!((udp.source_port(), udp.destination_port()), (4_660, 4_791));
        let header = udp.to_header();
        let checksum = match &packet.net {
            Some(etherparse::NetSlice::Ipv4(ip)) => {
                let ip = ip.header().to_header();
                assert_eq!(ip.header_checksum, ip.calc_header_checksum());
                assert_eq!(ip.dscp.value(), 46);
                header.calc_checksum_ipv4(&ip, udp.payload())
            }
            Some(etherparse::NetSlice::Ipv6(ip)) => {
                assert_eq!(packet.vlan_ids()[0].value(), 5);
                header.calc_checksum_ipv6(&ip.header().to_header(), udp.payload())
            }
            _ => panic!("IP"),
        };
        assert_eq!(Ok(header.checksum), checksum.map_err(|_| ()));
    }
    release_all(&mut store, sent);
}

#[test]
fn pacing_is_exact_and_a_line_too_slow_drops_by_name() {
    let mut config = config_a();
    // 1,514 and 24 bytes last 1,230.4 ns at 10 Gb/s; 1 Mpps is 1.23 times too much.
    config.streams = vec![stream(1, 1_514, 1_000_000)];
    config.queue_frames_max = 8;
    let mut store = SlabStore::new(10_000);
    let mut host = host(&config, &[]);
    let sent = run(&mut host, &mut store, Time::from_ns(5_000_000), Duration::ZERO);
    let report = host.streams_sent(Time::from_ns(5_000_000)).next().expect("one stream");
    assert_eq!(report.planned, 1_000);
    assert_eq!(report.sent + report.dropped, 1_000);
    // The line's share of one millisecond, and what waited at the end.
    assert!((812..=822).contains(&report.sent), "{report:?}");
    assert_eq!(ledger(&host).drops.of(DropReason::NicQueueFull), report.dropped);
    for pair in sent[2..].windows(2) {
        assert_eq!(pair[0].ends, pair[1].starts, "the line is never idle");
    }
    // No frame waits longer than the queue lasts.
    for sent in &sent[2..] {
        let planned = crate::wire::stream::StreamHeader::read(&store.head(&sent.frame)[42..])
            .expect("a stream's frame")
            .planned;
        assert!(sent.starts.since(planned) <= Duration::from_ps(1_230_400 * 9));
    }
    release_all(&mut store, sent);
}

#[test]
fn a_late_driver_changes_no_plan_and_loses_no_frame() {
    let mut config = config_a();
    config.streams = vec![stream(1, 1_514, 500_000)];
    config.queue_frames_max = 8;
    let run_late = |late: u64| {
        let mut store = SlabStore::new(10_000);
        let mut host = host(&config, &[]);
        let sent = run(&mut host, &mut store, Time::from_ns(30_000_000), Duration::from_ns(late));
        // Announcements are made when the driver comes; the stream's frames are planned before.
        let planned: Vec<Vec<u8>> = sent
            .iter()
            .filter(|sent| sent.frame.len_bytes() == 1_514)
            .map(|sent| bytes_of(&store, &sent.frame))
            .collect();
        let mut at_once = 0_usize;
        for pair in sent.windows(2) {
            assert!(pair[1].starts >= pair[0].ends, "one frame at a time");
            let gap = pair[1].starts.since(pair[0].ends);
            at_once += usize::from(gap.is_zero());
        }
        release_all(&mut store, sent);
        (planned, at_once)
    };
    let (punctual, none) = run_late(0);
    assert_eq!((punctual.len(), none), (500, 1), "announcements alone are back to back");
    // 50 us late: 25 frames of the stream are due at once, more than may wait in the queue.
    let (late, _) = run_late(50_000);
    assert!(late == punctual, "the same frames with the same plan");
}

#[test]
fn a_store_without_room_and_a_link_that_is_down_are_counted() {
    let mut config = config_a();
    config.streams = vec![stream(1, 100, 1_000_000)];
    let mut store = SlabStore::new(2);
    let mut host = host(&config, &[]);
    let mut kept = Vec::new();
    drive(&mut host, &mut store, Time::ZERO, &mut kept);
    let line_free = deadline(&host);
    drive(&mut host, &mut store, line_free, &mut kept);
    drive(&mut host, &mut store, Time::from_ns(10_000), &mut kept);
    assert_eq!(kept.len(), 2, "both chunks are out");
    assert_eq!(ledger(&host).drops.of(DropReason::NoFrameToSend), 1);
    release_all(&mut store, kept);
    host.on_link(Time::from_ns(12_500), &mut store, PORT, false);
    assert_eq!(ledger(&host).drops.of(DropReason::LinkDown), 2, "planned and not sent");
    let sent = run(&mut host, &mut store, Time::from_ns(20_000), Duration::ZERO);
    assert!(sent.is_empty());
    assert_eq!(ledger(&host).drops.of(DropReason::LinkDown), 10);
    host.on_link(Time::from_ns(20_500), &mut store, PORT, true);
    assert_eq!(ledger(&host).queued, 2, "it announces itself again");
    Node::<SlabStore>::hold(&mut host, Time::from_ns(20_500), PORT, true);
    assert_eq!(deadline(&host), Time::NEVER);
    assert_eq!(Node::<SlabStore>::next_ready_port(&mut host, Time::from_ns(20_500)), None);
    Node::<SlabStore>::hold(&mut host, Time::from_ns(20_600), PORT, false);
    assert!(deadline(&host) <= Time::from_ns(20_600));
    host.drain(&mut store);
    assert_eq!(ledger(&host).queued, 2);
    assert_eq!(store.outstanding(), 0);
}

#[test]
fn answers_beyond_the_queue_are_dropped_by_name() {
    let (mut host, mut store) = settled();
    let request = ethernet(MAC_A, 0x0800, &echo_v4(b"data"));
    for _ in 0..70 {
        let frame = store.allocate_from(&request).expect("room");
        host.on_frame(Time::from_ns(1_000_000), &mut store, PORT, frame);
    }
    assert_eq!(ledger(&host).drops.of(DropReason::NicQueueFull), 6);
    assert_eq!(host.stats().echo_v4_answered, 64);
    let sent = run(&mut host, &mut store, Time::from_ns(2_000_000), Duration::ZERO);
    assert_eq!(sent.len(), 64);
    release_all(&mut store, sent);
}

#[test]
fn configurations_that_cannot_be_sent_are_refused() {
    let check = |change: &dyn Fn(&mut HostConfig)| {
        let mut config = config_a();
        config.streams = vec![stream(1, 100, 1_000)];
        change(&mut config);
        Host::new(&config, &[]).map(|_| ()).map_err(|error| error.to_string())
    };
    let says = |text: &str| Err(text.to_owned());
    assert_eq!(check(&|_| {}), Ok(()));
    assert_eq!(check(&|c| c.rate = Rate::from_bps(0)), says("the line's rate is zero"));
    assert_eq!(check(&|c| c.queue_frames_max = 0), says("queue_frames_max is 0; it is 1 to 65536"));
    assert_eq!(
        check(&|c| c.streams[0].frame_bytes = 65),
        says("stream 1: frames of 65 bytes; 66 to 9014 fit")
    );
    assert_eq!(
        check(&|c| c.streams[0].frame_bytes = 9_015),
        says("stream 1: frames of 9015 bytes; 66 to 9014 fit")
    );
    assert_eq!(check(&|c| c.streams[0].dscp = 64), says("stream 1: a DSCP is 0 to 63"));
    assert!(check(&|c| c.ipv4 = None).is_err());
    assert!(check(&|c| c.streams.push(stream(1, 100, 1))).is_err());
    assert!(check(&|c| c.streams[0].rate = AnyRate::Bits(Rate::from_bps(0))).is_err());
    assert!(check(&|c| c.streams[0].target.vlan = Some((4_095, 0))).is_err());
}

/// A frame of stream 1 to A.
fn stream_frame(v6: bool, frame_bytes: u32) -> Vec<u8> {
    let mut config = config("b", MAC_B, B4, B6);
    let mut stream = stream(1, frame_bytes, 1_000);
    let ip = if v6 { A6.into() } else { A4.into() };
    stream.target = StreamTarget { mac: MAC_A, ip, vlan: None };
    config.streams = vec![stream];
    let mut store = SlabStore::new(1_000);
    let mut host = host(&config, &[]);
    let sent = run(&mut host, &mut store, Time::from_ns(10_000), Duration::ZERO);
    let bytes = bytes_of(&store, &sent[2].frame);
    release_all(&mut store, sent);
    bytes
}

#[test]
fn no_flipped_bit_of_a_stream_goes_unnoticed() {
    for frame_bytes in [66_u32, 700] {
        let good = stream_frame(false, frame_bytes);
        let mut store = SlabStore::new(1_000);
        let mut host = host(&config_a(), &[1]);
        let mut take = |bytes: &[u8]| {
            let frame = store.allocate_from(bytes).expect("room");
            host.on_frame(Time::from_ns(20_000), &mut store, PORT, frame);
            (ledger(&host).consumed, ledger(&host).drops.of(DropReason::BadChecksum))
        };
        let mut bad = 0;
        for bit in 14 * 8..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let (consumed, _) = take(&bytes);
            assert_eq!(consumed, 0, "bit {bit}");
            bad += 1;
        }
        let mut padded = good.clone();
        padded.extend([0; 10]);
        assert_eq!(take(&padded).0, 1, "padding is no error");
        // UDP without a checksum, which IPv4 allows: the content alone is judged.
        let mut unchecked = good;
        unchecked[40..42].copy_from_slice(&[0, 0]);
        assert_eq!(take(&unchecked).0, 2);
        let last = unchecked.len() - 1;
        unchecked[last] ^= 1;
        assert_eq!(take(&unchecked).0, 3);
        assert_eq!(ledger(&host).drops.total(), bad);
        let report = host.streams_received().next().expect("one stream");
        let wrong = u64::from(frame_bytes > 66);
        assert_eq!((report.received, report.sequence.duplicate), (1, 2));
        assert_eq!(report.content_errors, wrong, "of 66 bytes none is payload");
    }
    // Over IPv6 the checksum is not optional.
    let mut v6 = stream_frame(true, 100);
    v6[60..62].copy_from_slice(&[0, 0]);
    dropped(&v6, DropReason::BadChecksum);
}

#[test]
fn a_stream_that_does_not_end_here_is_counted() {
    let (mut host, mut store) = settled();
    let frame = stream_frame(true, 300);
    assert!(answers(&mut host, &mut store, &frame).is_empty());
    assert_eq!(host.stats().unknown_stream_frames, 1);
    assert_eq!(ledger(&host).drops.of(DropReason::Unhandled), 1);
}

fn seeds() -> Vec<Vec<u8>> {
    let group = icmpv6::solicited_node(A6);
    let mut options = ipv6_packet(B6, A6, 60, &[58, 0, 1, 4, 0, 0, 0, 0]);
    options.extend(echo_v6_message(b"data"));
    options[5] = 20;
    vec![
        ethernet(MAC_A, 0x0806, &arp(1, B4, A4)),
        ethernet(MAC_A, 0x0800, &echo_v4(b"some data")),
        ethernet(MAC_A, 0x86dd, &options),
        ethernet(MAC_A, 0x86dd, &ipv6_packet(B6, A6, 58, &echo_v6_message(&[7; 300]))),
        ethernet(MAC_A, 0x86dd, &solicitation(B6, group, Some(MAC_B))),
        ethernet(MAC_A, 0x8100, &[&[0, 5, 0x08, 0x00][..], &echo_v4(&[1; 600])].concat()),
        stream_frame(false, 66),
        stream_frame(false, 900),
        stream_frame(true, 90),
    ]
}

proptest! {
    #[test]
    fn no_byte_string_panics_or_is_lost(
        seed in prop::sample::select(seeds()),
        changes in proptest::collection::vec((0_usize..700, any::<u8>()), 0..4),
        cut in 0_usize..1_200,
        extra in proptest::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut bytes = seed;
        for (at, value) in changes {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        bytes.extend(extra);
        bytes.truncate(cut);
        let mut store = SlabStore::new(100);
        let mut host = host(&config_a(), &[1]);
        let frame = store.allocate_from(&bytes).expect("room");
        host.on_frame(Time::ZERO, &mut store, PORT, frame);
        let sent = run(&mut host, &mut store, Time::from_ns(1_000_000), Duration::ZERO);
        release_all(&mut store, sent);
        prop_assert_eq!(store.outstanding(), 0);
        prop_assert_eq!(ledger(&host).received, 1);
        prop_assert_eq!(ledger(&host).queued, 0);
    }
}
