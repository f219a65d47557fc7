//! The switch's pipeline alone, over the slab store, in one plain loop: for a clock and for
//! callgrind. `scripts/bench-pipeline` runs it and does the sums.
//!
//! A round hands `burst` frames of 60 bytes (64 with FCS) to `on_frame`, each between two stations
//! of different ports that the MAC table knows, and then serves ports as a driver does until all
//! have left, waiting on `next_deadline`. The frames come from a pool and go back to it, so that
//! allocating is not in the loop; writing each frame's addresses is, and `bare` measures that alone.
//!
//! `plain` frames are untagged IPv4 and have their port's class, `dscp` frames get theirs from the
//! DSCP, which the ports trust, and `trunk` frames come and leave with a VLAN tag whose PCP counts.
//! `usid` packets come by the first port for the switch's own SRv6 segment and are sprayed over the
//! others; ENTRIES are then routes. `all` packets are the same, with everything on: a code point, which
//! the ports trust, of a lossless class, shares of memory with dynamic thresholds, marks on every queue.

#![allow(clippy::print_stdout, reason = "a bench prints its result")]

use std::error::Error;
use std::net::Ipv6Addr;

use tailwater::frame::{Frame, FrameStore, SlabStore};
use tailwater::node::{Node, PortId};
use tailwater::rng::Rng;
use tailwater::switch::balance::Method;
use tailwater::switch::mark::{Curve, MarkConfig, PPB};
use tailwater::switch::memory::{Alpha, GroupConfig, Lossless, QueueConfig, Threshold};
use tailwater::switch::route::config::{
    Flavours, Neighbour, NextHop, Route, RouterConfig, SidBehaviour, SidConfig,
};
use tailwater::switch::route::prefix::IpPrefix;
use tailwater::switch::{PortConfig, Switch, SwitchConfig, Trust, VlanMode};
use tailwater::time::{Duration, Time};
use tailwater::units::Rate;
use tailwater::wire::MacAddr;
use tailwater::wire::usid::UsidLayout;

const USAGE: &str = "usage: pipeline PORTS ENTRIES FRAMES BURST plain|dscp|trunk|usid|all [bare]";

/// Length without FCS.
const FRAME_BYTES: u32 = 60;

/// The priority that is lossless where everything is on.
const LOSSLESS: u8 = 3;

/// The VLAN of tagged frames.
const VLAN: u16 = 100;

/// What the frames are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Traffic {
    Plain,
    Dscp,
    Trunk,
    Usid,
    All,
}

impl Traffic {
    const fn is_routed(self) -> bool {
        matches!(self, Self::Usid | Self::All)
    }
}

/// Long enough that every wire is free when a round begins.
const ROUND: Duration = Duration::from_us(10);

/// Bytes of two addresses: what differs from frame to frame.
const ADDRESSES: usize = 12;

/// Bytes that a router has changed and that are written anew for each frame.
const ROUTED: usize = FRAME_BYTES as usize;

/// What a frame begins with, and the port it comes by.
struct Start<const BYTES: usize> {
    bytes: [u8; BYTES],
    port: PortId,
}

struct Setting {
    ports: u16,
    entries: u32,
    frames: u64,
    burst: usize,
    traffic: Traffic,
    /// Around the switch.
    bare: bool,
}

impl Setting {
    /// What a frame has behind its addresses; frame `n` of a burst has priority n modulo 8.
    fn behind_addresses(&self, n: usize) -> Vec<u8> {
        let [.., n] = n.to_be_bytes();
        let priority = n % 8;
        let [vlan_high, vlan_low] = VLAN.to_be_bytes();
        match self.traffic {
            Traffic::Plain => vec![0x08, 0x00, 0x45, 0x00],
            Traffic::Dscp => vec![0x08, 0x00, 0x45, priority << 5],
            Traffic::Trunk => {
                vec![0x81, 0x00, priority << 5 | vlan_high, vlan_low, 0x08, 0x00, 0x45, 0x00]
            }
            Traffic::Usid => usid_packet(0),
            // CS3 and ECT(0).
            Traffic::All => usid_packet(LOSSLESS << 5 | 2),
        }
    }
}

/// From fd00::99 to fcbb:bb00:1:2:3::, six bytes of nothing, behind its type.
fn usid_packet(traffic_class: u8) -> Vec<u8> {
    let (high, low) = (0x60 | traffic_class >> 4, traffic_class << 4);
    [
        &[0x86, 0xdd, high, low, 0, 0, 0, 6, 59, 64, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0][..],
        &[0, 0, 0, 0, 0, 0x99, 0xfc, 0xbb, 0xbb, 0, 0, 1, 0, 2, 0, 3],
        &[0; 12],
    ]
    .concat()
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let [ports, entries, frames, burst, what, bare @ ..] = args.as_slice() else {
        // `cargo test --benches` runs this without arguments, and a short run shows that it works.
        return run::<ADDRESSES>(&Setting {
            ports: 4,
            entries: 10,
            frames: 1_000,
            burst: 8,
            traffic: Traffic::Plain,
            bare: false,
        });
    };
    let setting = Setting {
        ports: ports.parse()?,
        entries: entries.parse()?,
        frames: frames.parse()?,
        burst: burst.parse()?,
        traffic: match what.as_str() {
            "plain" => Traffic::Plain,
            "dscp" => Traffic::Dscp,
            "trunk" => Traffic::Trunk,
            "usid" => Traffic::Usid,
            "all" => Traffic::All,
            _ => return Err(USAGE.into()),
        },
        bare: match bare {
            [] => false,
            [bare] if bare == "bare" => true,
            _ => return Err(USAGE.into()),
        },
    };
    if setting.ports < 2 || setting.entries < u32::from(setting.ports) || setting.burst == 0 {
        return Err(
            format!("{USAGE}\nat least 2 ports, as many entries as ports, a burst of 1").into()
        );
    }
    if setting.traffic.is_routed() { run::<ROUTED>(&setting) } else { run::<ADDRESSES>(&setting) }
}

fn station(number: u32) -> MacAddr {
    MacAddr::from_u64(0x0200_0000_0000 | u64::from(number))
}

fn make_switch(setting: &Setting) -> Result<Switch, Box<dyn Error>> {
    let ports = (0..setting.ports).map(|n| {
        let mut port = PortConfig::new(
            &n.to_string(),
            MacAddr::from_u64(0x0600_0000_0000 | u64::from(n)),
            Rate::from_gbps(100),
        );
        match setting.traffic {
            Traffic::Plain => {}
            Traffic::Usid => port.vlan = VlanMode::Access(n + 1),
            Traffic::All => turn_everything_on(&mut port, n),
            Traffic::Dscp => port.trust = Trust::Dscp,
            Traffic::Trunk => port.vlan = VlanMode::Trunk { allowed: vec![VLAN], native: None },
        }
        port
    });
    let mut config = SwitchConfig::new("bench", ports.collect());
    config.mac_table_entries = setting.entries.max(u32::from(setting.ports));
    if setting.traffic.is_routed() {
        config.router = Some(make_router(setting)?);
    }
    Ok(Switch::new(config)?)
}

/// Marks, shares and a lossless class for a port that has a VLAN of its own.
fn turn_everything_on(port: &mut PortConfig, n: u16) {
    port.vlan = VlanMode::Access(n + 1);
    port.trust = Trust::Dscp;
    let curve = Curve { kmin_bytes: 40_000, kmax_bytes: 160_000, pmax_ppb: PPB / 10 };
    port.marks = std::array::from_fn(|_| Some(MarkConfig::new(curve)));
    let threshold = Threshold { dt_alpha: Some(Alpha::ONE), ..Threshold::default() };
    port.shares.groups =
        std::array::from_fn(|_| GroupConfig { min_bytes: 0, threshold, lossless: None });
    port.shares.queues = std::array::from_fn(|_| QueueConfig { min_bytes: 0, threshold });
    port.shares.groups[usize::from(LOSSLESS)].lossless =
        Some(Lossless { headroom_bytes: 50_000, xon_bytes: 2_500, xon_offset_bytes: 2_500 });
}

/// A uN, a route behind it over all ports but the first, and others beside it.
fn make_router(setting: &Setting) -> Result<RouterConfig, Box<dyn Error>> {
    let mut router = RouterConfig::default();
    let mut via = Vec::new();
    for port in 1..setting.ports {
        let address = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, port).into();
        let mac = station(u32::from(port));
        router.neighbours.push(Neighbour { address, mac, port: PortId(port), vlan: None });
        via.push(NextHop { address, weight: 1 });
    }
    let balance = Some(Method::SprayRoundRobin);
    let next = IpPrefix::new(Ipv6Addr::new(0xfcbb, 0xbb00, 2, 0, 0, 0, 0, 0).into(), 48)?;
    router.routes.push(Route { prefix: next, via: via.clone(), balance: balance.clone() });
    for n in 0..setting.entries {
        let [a, b, c, d] = n.to_be_bytes().map(u16::from);
        let address = Ipv6Addr::new(0x2a00 | a, b << 8 | c, d << 8, 0, 0, 0, 0, 0);
        let prefix = IpPrefix::new(address.into(), 40 + u8::try_from(n % 3)? * 4)?;
        let route = Route { prefix, via: via.clone(), balance: balance.clone() };
        router.routes.push(route);
    }
    router.sids.push(SidConfig {
        address: Ipv6Addr::new(0xfcbb, 0xbb00, 1, 0, 0, 0, 0, 0),
        layout: UsidLayout::F3216,
        behaviour: SidBehaviour::Un(Flavours::default()),
    });
    Ok(router)
}

/// Lets the switch hear every station once, so that the loop meets none that it does not know.
fn teach(
    switch: &mut Switch,
    store: &mut SlabStore,
    setting: &Setting,
) -> Result<(), Box<dyn Error>> {
    if setting.traffic.is_routed() {
        return Ok(());
    }
    for number in 0..setting.entries {
        let mut frame = store.allocate(FRAME_BYTES).ok_or("the store is full")?;
        let to = station(if number == 0 { 1 } else { 0 });
        let addresses = [to.0, station(number).0].concat();
        store.write(&mut frame, 0, &addresses);
        store.write(&mut frame, 12, &setting.behind_addresses(0));
        let port = PortId(u16::try_from(number % u32::from(setting.ports))?);
        switch.on_frame(Time::ZERO, store, port, frame);
        let mut now = Time::ZERO;
        while Node::<SlabStore>::ledger(switch).queued > 0 {
            while let Some((_, out)) = switch.poll_next(now, store) {
                store.release(out.frame);
            }
            now = Node::<SlabStore>::next_deadline(switch);
        }
    }
    Ok(())
}

fn make_starts<const BYTES: usize>(setting: &Setting) -> Result<Vec<Start<BYTES>>, Box<dyn Error>> {
    let mut rng = Rng::for_node(1, "pairs");
    let ports = u32::from(setting.ports);
    let start = |to: MacAddr, from: MacAddr, port| {
        let bytes = [&to.0[..], &from.0, &setting.behind_addresses(0)].concat();
        let bytes = *bytes.first_chunk::<BYTES>().ok_or("a frame begins with fewer bytes")?;
        Ok(Start { bytes, port })
    };
    if setting.traffic.is_routed() {
        return Ok(vec![start(MacAddr::from_u64(0x0600_0000_0000), station(0), PortId(0))?]);
    }
    (0..setting.entries.max(4_096))
        .map(|_| {
            let from = u32::try_from(rng.below(u64::from(setting.entries)))?;
            let mut to = from;
            while to % ports == from % ports {
                to = u32::try_from(rng.below(u64::from(setting.entries)))?;
            }
            start(station(to), station(from), PortId(u16::try_from(from % ports)?))
        })
        .collect()
}

#[allow(clippy::disallowed_methods, reason = "a bench reads the clock")]
fn run<const BYTES: usize>(setting: &Setting) -> Result<(), Box<dyn Error>> {
    let mut store = SlabStore::new(4_096);
    store.reserve(4_096);
    let mut switch = make_switch(setting)?;
    teach(&mut switch, &mut store, setting)?;
    let starts = make_starts::<BYTES>(setting)?;
    let mut pool = Vec::new();
    for n in 0..setting.burst {
        let mut frame = store.allocate(FRAME_BYTES).ok_or("the store is full")?;
        store.write(&mut frame, 12, &setting.behind_addresses(n));
        pool.push(frame);
    }
    let before = Node::<SlabStore>::ledger(&switch);
    let start = std::time::Instant::now();
    let sent = if setting.bare {
        forward_bare(setting, &mut store, &starts, &mut pool)
    } else {
        forward(setting, &mut switch, &mut store, &starts, &mut pool)
    };
    let took = start.elapsed();
    let after = Node::<SlabStore>::ledger(&switch);
    after.check()?;
    for frame in pool {
        store.release(frame);
    }
    let dropped = after.drops.total() - before.drops.total();
    let copied = after.replicated - before.replicated;
    if !setting.bare && (after.transmitted - before.transmitted, dropped, copied) != (sent, 0, 0) {
        return Err(format!("{dropped} frames were dropped and {copied} copied").into());
    }
    #[allow(clippy::cast_precision_loss, reason = "a figure to read")]
    let ns_per_frame = took.as_nanos() as f64 / sent as f64;
    println!("{sent} frames {ns_per_frame:.2} ns/frame {:.3} Mpps", 1_000.0 / ns_per_frame);
    Ok(())
}

/// Rounds of frames through the switch; gives the number of frames that left.
#[inline(never)]
fn forward<const BYTES: usize>(
    setting: &Setting,
    switch: &mut Switch,
    store: &mut SlabStore,
    starts: &[Start<BYTES>],
    pool: &mut Vec<Frame>,
) -> u64 {
    let mut next = starts.iter().cycle();
    let mut round = Time::ZERO + ROUND;
    let mut sent = 0;
    while sent < setting.frames {
        let mut now = round;
        for _ in 0..setting.burst {
            if let (Some(mut frame), Some(start)) = (pool.pop(), next.next()) {
                store.head_mut(&mut frame)[..BYTES].copy_from_slice(&start.bytes);
                switch.on_frame(now, store, start.port, frame);
            }
        }
        while pool.len() < setting.burst {
            while let Some((_, out)) = switch.poll_next(now, store) {
                pool.push(out.frame);
                sent += 1;
            }
            now = Node::<SlabStore>::next_deadline(switch);
        }
        round += ROUND;
    }
    sent
}

/// The loop around the switch alone.
#[inline(never)]
fn forward_bare<const BYTES: usize>(
    setting: &Setting,
    store: &mut SlabStore,
    starts: &[Start<BYTES>],
    pool: &mut Vec<Frame>,
) -> u64 {
    let mut next = starts.iter().cycle();
    let mut sent = 0;
    let mut inside = Vec::with_capacity(setting.burst);
    while sent < setting.frames {
        for _ in 0..setting.burst {
            if let (Some(mut frame), Some(start)) = (pool.pop(), next.next()) {
                store.head_mut(&mut frame)[..BYTES].copy_from_slice(&start.bytes);
                inside.push(std::hint::black_box(frame));
            }
        }
        while let Some(frame) = inside.pop() {
            pool.push(frame);
            sent += 1;
        }
    }
    sent
}
