//! Once they are warm, a switch and a host allocate nothing per frame: forwarded, flooded, tagged,
//! dropped; sent, received, answered.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use tailwater::frame::{FrameStore, SlabStore};
use tailwater::host::{Arrivals, ExpectedStream, Host, HostConfig, StreamConfig, StreamTarget};
use tailwater::node::{Node, PortId};
use tailwater::switch::{PortConfig, Switch, SwitchConfig, VlanMode};
use tailwater::time::{Duration, Time};
use tailwater::units::{AnyRate, Rate};
use tailwater::wire::MacAddr;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is handed to the system's allocator unchanged; counting touches no memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises about `layout` are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` came from `alloc` above, that is from the system's allocator.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: `at` came from `alloc` above; the caller's promises are passed on.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static GLOBAL: Counting = Counting;

fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

/// One round: unicast, flood with tags going on and off, and drops at ingress, queue and memory.
fn round(switch: &mut Switch, store: &mut SlabStore, now: Time, round: u8) {
    let mut arrive = |port: u16, to: u8, from: u8, vlan: u8, len: u32| {
        let Some(mut frame) = store.allocate(len) else { return };
        let head = store.head_mut(&mut frame);
        let bytes = [2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 0x81, 0x00, 0xa0, vlan, 0x08, 0x00];
        let n = head.len().min(bytes.len());
        head[..n].copy_from_slice(&bytes[..n]);
        if to == 0xff && n == bytes.len() {
            head[..6].fill(0xff);
        }
        switch.on_frame(now, store, PortId(port), frame);
    };
    for n in 0..16_u8 {
        arrive(0, 2, 1, 10, 64);
        arrive(1, 1, 2, 10, 1_400);
        arrive(2, 0xff, 3, 10, 700);
        arrive(0, 200, n.wrapping_add(round), 10, 64);
        arrive(0, 2, 1, 77, 64);
        arrive(0, 2, 1, 10, 9);
    }
    let mut now = now;
    for _ in 0..200 {
        switch.on_timer(now, store);
        while let Some(port) = Node::<SlabStore>::next_ready_port(switch, now) {
            if let Some(out) = switch.poll_transmit(now, store, port) {
                store.release(out.frame);
            }
        }
        now = Node::<SlabStore>::next_deadline(switch).min(now + Duration::from_us(2));
    }
}

#[test]
fn no_allocation_per_frame() {
    let port =
        |n: u8| PortConfig::new(&n.to_string(), MacAddr([2, 0, 0, 0, 1, n]), Rate::from_gbps(10));
    let mut config = SwitchConfig::new("s1", (0..4).map(port).collect());
    config.ports[0].vlan = VlanMode::Trunk { allowed: vec![10, 20], native: None };
    config.ports[1].vlan = VlanMode::Trunk { allowed: vec![10], native: None };
    config.ports[2].vlan = VlanMode::Access(10);
    config.ports[3].vlan = VlanMode::Access(10);
    config.ports[3].queue_limit_bytes = [2_000; 8];
    config.buffer_bytes = 40_000;
    config.mac_table_entries = 64;
    config.mac_ageing = Duration::from_us(500);
    let mut switch = Switch::new(config).expect("a sound configuration");
    let mut store = SlabStore::new(512);
    store.reserve(512);

    let mut now = Time::ZERO;
    for n in 0..2 {
        round(&mut switch, &mut store, now, n);
        now += Duration::from_ms(1);
    }
    let before = allocations();
    for n in 2..50 {
        round(&mut switch, &mut store, now, n);
        now += Duration::from_ms(1);
    }
    assert_eq!(allocations() - before, 0);

    // Every path was taken.
    let ledger = Node::<SlabStore>::ledger(&switch);
    assert_eq!(ledger.check(), Ok(()));
    assert!(ledger.transmitted > 1_000 && ledger.replicated > 1_000, "{ledger:?}");
    let reasons: Vec<&str> = ledger.drops.iter().map(|(reason, _)| reason.name()).collect();
    assert_eq!(reasons, ["runt", "vlan_ingress", "same_port", "queue_limit", "buffer_full"]);
    let counted = allocations();
    drop(std::hint::black_box(vec![0_u8; 100]));
    assert_eq!(allocations() - counted, 1, "the counter counts");
    switch.drain(&mut store);
    assert_eq!(store.outstanding(), 0);
}

fn host_config(n: u8) -> HostConfig {
    HostConfig {
        name: format!("h{n}"),
        port_name: "eth0".to_owned(),
        mac: MacAddr([2, 0, 0, 0, 0, n]),
        ipv4: Some(([10, 0, 0, n].into(), 24)),
        ipv6: Some(([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(n)].into(), 64)),
        rate: Rate::from_gbps(10),
        mtu_bytes: 9_000,
        overhead_bytes: 24,
        queue_frames_max: 8,
        ..HostConfig::new("", MacAddr::default(), Rate::from_gbps(10))
    }
}

#[test]
fn a_host_allocates_nothing_per_frame() {
    let mut from = host_config(1);
    let to = host_config(2);
    for (id, v6, frame_bytes, gbps) in
        [(1, false, 66, 1), (2, true, 1_400, 2), (3, false, 9_014, 8)]
    {
        let (v4_address, v6_address) = (to.ipv4.expect("set").0, to.ipv6.expect("set").0);
        from.streams.push(StreamConfig {
            id,
            target: StreamTarget {
                mac: to.mac,
                ip: if v6 { v6_address.into() } else { v4_address.into() },
                vlan: v6.then_some((5, 3)),
            },
            source_port: 1,
            destination_port: 2,
            dscp: 0,
            priority: 0,
            ecn: 0,
            segments: Vec::new(),
            frame_bytes,
            rate: AnyRate::Bits(Rate::from_gbps(gbps)),
            arrivals: if v6 { Arrivals::Poisson } else { Arrivals::Constant },
            start: Time::ZERO,
            stop: Time::NEVER,
            frames_max: u64::MAX,
        });
    }
    let expected = [1, 2].map(|id| ExpectedStream { id });
    let mut sender = Host::new(&from, &[]).expect("a sound configuration");
    let mut receiver = Host::new(&to, &expected).expect("a sound configuration");
    let mut store = SlabStore::new(512);
    store.reserve(512);
    // h1 asks for the address of h2.
    let request = [
        &[0xff; 6][..],
        &[2, 0, 0, 0, 0, 1, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1],
        &[10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2],
    ]
    .concat();
    let mut before = 0;
    for n in 0..20_000_u32 {
        if n == 2_000 {
            before = allocations();
        }
        let now = Node::<SlabStore>::next_deadline(&sender);
        sender.on_timer(now, &mut store);
        while let Some(port) = Node::<SlabStore>::next_ready_port(&mut sender, now) {
            let Some(mut sent) = sender.poll_transmit(now, &mut store, port) else { continue };
            if n % 7 == 6 {
                let last = store.head(&sent.frame).len() - 1;
                store.head_mut(&mut sent.frame)[last] ^= 1;
            }
            receiver.on_frame(sent.ends, &mut store, PortId(0), sent.frame);
        }
        if let Some(frame) = store.allocate_from(&request) {
            receiver.on_frame(now, &mut store, PortId(0), frame);
        }
        receiver.on_timer(now, &mut store);
        while let Some(port) = Node::<SlabStore>::next_ready_port(&mut receiver, now) {
            if let Some(sent) = receiver.poll_transmit(now, &mut store, port) {
                store.release(sent.frame);
            }
        }
    }
    assert_eq!(allocations() - before, 0);

    let (sent, got) = (Node::<SlabStore>::ledger(&sender), Node::<SlabStore>::ledger(&receiver));
    assert_eq!((sent.check(), got.check()), (Ok(()), Ok(())));
    assert!(got.consumed > 20_000 && got.transmitted > 1_000, "{got:?}");
    let reasons: Vec<&str> = sent.drops.iter().map(|(reason, _)| reason.name()).collect();
    assert_eq!(reasons, ["nic_queue_full"], "11 Gb/s do not fit");
    let reasons: Vec<&str> = got.drops.iter().map(|(reason, _)| reason.name()).collect();
    assert_eq!(reasons, ["unhandled", "bad_checksum"]);
    sender.drain(&mut store);
    receiver.drain(&mut store);
    assert_eq!(store.outstanding(), 0);
}
