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

mod answers;
mod streams;

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
        ecn: 0,
        segments: Vec::new(),
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
