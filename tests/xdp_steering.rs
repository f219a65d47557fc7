//! Which frames come to us, and which the kernel keeps.
#![allow(clippy::disallowed_types, reason = "the kernel's own sockets are the other end")]

mod namespaces;
mod traffic;

use std::net::UdpSocket;

use etherparse::PacketBuilder;
use namespaces::{Pair, run, try_run};
use tailwater::frame::FrameStore as _;
use tailwater::xdp::nic;
use tailwater::xdp::{Attach, Match, Port, PortConfig, RingSizes, Steering, UmemStore, XdpMode};
use traffic::{ROUNDS_MAX, finish, open, store, transfer};

fn open_with(
    store: &mut UmemStore,
    pair: &Pair,
    end: &str,
    change: impl FnOnce(&mut PortConfig),
) -> Port {
    let netns = if end.starts_with('a') { pair.in_a() } else { pair.in_b() };
    let mut config = PortConfig::new(netns, end);
    config.rings = RingSizes::of(256);
    change(&mut config);
    Port::open(store, config).expect("the port opens")
}

/// Sends raw frames from `a` and gives the last byte of each that arrives at `b`, the last of which
/// is a marker that must arrive.
fn deliver(store: &mut UmemStore, a: &mut Port, b: &mut Port, frames: &[Vec<u8>]) -> Vec<u8> {
    for bytes in frames {
        let frame = store.allocate_from(bytes).expect("room");
        a.tx_push(store, frame).expect("room");
    }
    a.kick();
    let marker = frames.last().and_then(|bytes| bytes.last()).copied();
    let (mut got, mut seen) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS_MAX {
        a.reap(store);
        b.rx_burst(store, &mut got, 64);
        for frame in got.drain(..) {
            let mut bytes = Vec::new();
            store.copy_out(&frame, &mut bytes);
            store.release(frame);
            seen.extend(bytes.last());
        }
        if seen.last().copied() == marker && a.counters().tx_completed >= frames.len() as u64 {
            return seen;
        }
    }
    panic!("the marker did not arrive: {seen:?}");
}

fn ethernet() -> etherparse::PacketBuilderStep<etherparse::Ethernet2Header> {
    PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
}

fn bytes(
    build: impl FnOnce(&mut Vec<u8>, &[u8]) -> Result<(), etherparse::err::packet::BuildWriteError>,
    id: u8,
) -> Vec<u8> {
    let mut out = Vec::new();
    build(&mut out, &[0, 0, 0, id]).expect("a packet");
    out
}

#[test]
fn a_list_of_matches_steers_just_those() {
    if !namespaces::available() {
        return;
    }
    let pair = Pair::new(1, 1_500);
    let mut store = store();
    let none = Steering::Matches(Vec::new());
    let mut a = open_with(&mut store, &pair, "a0", |config| config.steering = none);
    let matches = ["udp=4791", "ethertype=0x88b5", "ipv6=fcbb:bb00::/32"];
    let matches = matches.map(|text| text.parse().expect("a match")).to_vec();
    let mut b =
        open_with(&mut store, &pair, "b0", |config| config.steering = Steering::Matches(matches));
    let (v4, v6) = ([10, 0, 0, 1], [0x20; 16]);
    let mut block = [0; 16];
    block[..6].copy_from_slice(&[0xfc, 0xbb, 0xbb, 0x00, 0, 7]);
    let udp = |port| {
        move |out: &mut Vec<u8>, p: &[u8]| {
            ethernet().ipv4(v4, [10, 0, 0, 2], 64).udp(9, port).write(out, p)
        }
    };
    let tagged = |out: &mut Vec<u8>, p: &[u8]| {
        let one = 1.try_into().expect("a VLAN");
        ethernet().single_vlan(one).ipv4(v4, [10, 0, 0, 2], 64).udp(9, 4_791).write(out, p)
    };
    let twice = |out: &mut Vec<u8>, p: &[u8]| {
        let (one, two) = (1.try_into().expect("a VLAN"), 2.try_into().expect("a VLAN"));
        ethernet().double_vlan(one, two).ipv6(v6, v6, 64).udp(9, 4_791).write(out, p)
    };
    let to_block =
        |out: &mut Vec<u8>, p: &[u8]| ethernet().ipv6(v6, block, 64).tcp(9, 9, 0, 0).write(out, p);
    let mut fragment = bytes(udp(4_791), 8);
    fragment[20] = 0x20;
    let mut experimental = vec![2; 14];
    experimental[12..].copy_from_slice(&[0x88, 0xb5]);
    let marker = [experimental.clone(), vec![0; 60], vec![99]].concat();
    experimental.push(6);
    let frames = [
        bytes(udp(4_791), 1),
        bytes(udp(4_792), 2),
        bytes(tagged, 3),
        bytes(twice, 4),
        bytes(to_block, 5),
        experimental,
        bytes(|out, p| ethernet().ipv6(v6, v6, 64).udp(9, 53).write(out, p), 7),
        fragment,
        bytes(|out, p| ethernet().ipv4(v4, [10, 0, 0, 2], 64).tcp(9, 4_791, 0, 0).write(out, p), 9),
        vec![2; 14],
        marker,
    ];
    assert_eq!(deliver(&mut store, &mut a, &mut b, &frames), [1, 3, 4, 5, 6, 99]);
    finish(&mut store, [a, b]);
}

#[test]
fn the_kernel_answers_pings_while_one_udp_port_is_ours() {
    if !namespaces::available() {
        return;
    }
    let pair = Pair::new(1, 1_500);
    let mut store = store();
    let ours = Steering::Matches(vec![Match::UdpPort(4_791)]);
    let mut b = open_with(&mut store, &pair, "b0", |config| config.steering = ours);
    run(&format!("ip -n {} addr add 192.0.2.1/24 dev a0", pair.a));
    run(&format!("ip -n {} addr add 192.0.2.2/24 dev b0", pair.b));
    run(&format!("ip netns exec {} ping -q -c 3 -i 0.01 -W 5 192.0.2.2", pair.a));
    assert_eq!(b.counters().rx_frames, 0);
    let kernel = pair.in_b().run(|| UdpSocket::bind("192.0.2.2:4792")).expect("there is one");
    let kernel = kernel.expect("it binds");
    let sender = pair.in_a().run(|| UdpSocket::bind("192.0.2.1:0")).expect("there is one");
    let sender = sender.expect("it binds");
    sender.send_to(b"to tailwater", "192.0.2.2:4791").expect("it sends");
    sender.send_to(b"to the kernel", "192.0.2.2:4792").expect("it sends");
    let mut text = [0; 32];
    let len = kernel.recv(&mut text).expect("it arrives");
    assert_eq!(text[..len], *b"to the kernel");
    let mut got = Vec::new();
    for _ in 0..ROUNDS_MAX {
        if b.rx_burst(&mut store, &mut got, 8) > 0 {
            break;
        }
    }
    assert_eq!(got.len(), 1);
    assert!(store.head(&got[0]).ends_with(b"to tailwater"));
    got.into_iter().for_each(|frame| store.release(frame));
    assert_eq!(b.counters().rx_frames, 1);
    finish(&mut store, [b]);
}

#[test]
fn offloads_that_spoil_frames_are_seen_and_go_off() {
    if !namespaces::available() {
        return;
    }
    let pair = Pair::new(1, 1_500);
    let found = nic::inspect(&pair.in_a(), "a0").expect("it is there");
    let names: Vec<&str> = found.harmful.iter().map(|one| one.name).collect();
    assert!(names.contains(&"tx") && names.contains(&"tso"), "a fresh veth: {names:?}");
    assert!(found.xdp.is_none_or(|xdp| xdp.native && !xdp.zero_copy && !xdp.attached));
    let left = nic::turn_harmful_off(&pair.in_a(), "a0").expect("it is there");
    assert_eq!(left, [""; 0]);
    assert!(nic::inspect(&pair.in_a(), "none").is_err());
}

#[test]
fn generic_mode_works_and_is_what_is_left_when_native_is_refused() {
    if !namespaces::available() {
        return;
    }
    let pair = Pair::new(1, 9_000);
    let mut store = store();
    let generic = |config: &mut PortConfig| config.attach = Attach::Generic;
    let mut a = open_with(&mut store, &pair, "a0", generic);
    let mut b = open_with(&mut store, &pair, "b0", generic);
    assert_eq!((a.xdp_mode(), b.xdp_mode()), (Some(XdpMode::Generic), Some(XdpMode::Generic)));
    transfer(&mut store, &mut a, &mut b, 100, 64);
    transfer(&mut store, &mut b, &mut a, 100, 1_514);
    transfer(&mut store, &mut b, &mut a, 20, 9_014);
    finish(&mut store, [a, b]);

    // A veth does native XDP only with as many rx queues as its peer has tx queues.
    let (na, nb) = (&pair.a, &pair.b);
    let queues = |n| format!("numrxqueues {n} numtxqueues {n}");
    let (one, four) = (queues(1), queues(4));
    run(&format!("ip -n {na} link add a1 {one} type veth peer name b1 netns {nb} {four}"));
    run(&format!("ip -n {na} link set a1 up"));
    run(&format!("ip -n {nb} link set b1 up"));
    let mut a = open(&mut store, pair.in_a(), "a1");
    assert_eq!(a.xdp_mode(), Some(XdpMode::Generic));
    assert!(!a.is_zero_copy());
    let mut b = open(&mut store, pair.in_b(), "b1");
    transfer(&mut store, &mut a, &mut b, 100, 64);
    transfer(&mut store, &mut b, &mut a, 100, 64);
    finish(&mut store, [a, b]);
    assert!(try_run(&format!("ip -n {na} -d link show a1")).1.contains("veth"));
}
