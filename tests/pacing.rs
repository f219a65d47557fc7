//! A stream keeps its pace exactly in virtual time: each frame departs at its planned picosecond,
//! and after a stall no more than two frames are back to back.

use std::sync::mpsc::{Sender, channel};

use proptest::prelude::*;
use tailwater::frame::{FrameStore as _, SlabStore};
use tailwater::host::{Host, HostConfig, StreamConfig, StreamTarget};
use tailwater::lab::Device;
use tailwater::node::{Node, PortId};
use tailwater::sim::{Direction, Network, Tap};
use tailwater::time::{Duration, Time};
use tailwater::units::{AnyRate, FrameRate, Rate};
use tailwater::wire::MacAddr;

/// When each frame of 1,514 bytes left.
#[derive(Debug)]
struct Departures(Sender<Time>);

impl Tap for Departures {
    fn on_wire(&mut self, at: Time, direction: Direction, bytes: &[u8]) {
        if direction == Direction::Outbound && bytes.len() == 1_514 {
            self.0.send(at).expect("the test listens");
        }
    }

    fn finish(&mut self) {}
}

fn host(rate: AnyRate, start: Time, frames: u64) -> Host {
    let mac = |n| MacAddr([2, 0, 0, 0, 0, n]);
    let mut config = HostConfig::new("h1", mac(1), Rate::from_gbps(100));
    config.ipv4 = Some((std::net::Ipv4Addr::new(10, 0, 0, 1), 24));
    let ip = std::net::Ipv4Addr::new(10, 0, 0, 2).into();
    let mut stream = StreamConfig::new(1, StreamTarget { mac: mac(2), ip, vlan: None }, rate);
    stream.start = start;
    stream.frames_max = frames;
    config.streams.push(stream);
    Host::new(&config, &[]).expect("a good configuration")
}

/// Where the host announces itself, the line is busy: streams start after that.
const START: Time = Time::from_ns(10_000);
const FRAMES: u64 = 1_000;

fn departures(rate: AnyRate) -> Vec<Time> {
    let (tap, departures) = channel();
    let mut network: Network<Device, SlabStore> = Network::new(SlabStore::new(1_000));
    let station = network.add(host(rate, START, FRAMES).into(), 1);
    network.station_mut(station).set_tap(PortId(0), Box::new(Departures(tap)));
    network.run_until(Time::NEVER);
    drop(network);
    departures.iter().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Frame n leaves at `start + floor(n / rate)`, to the picosecond: the mean is exact and no two
    /// frames are closer than the gap rounded down.
    #[test]
    fn frames_per_second_are_exact(milli_pps in 1_000_u64..8_000_000_000) {
        let rate = AnyRate::Frames(FrameRate::from_milli_pps(milli_pps));
        for (n, at) in (0_u128..).zip(departures(rate)) {
            let planned = n * 1_000_000_000_000_000 / u128::from(milli_pps);
            prop_assert_eq!(u128::from(at.since(START).as_ps()), planned);
        }
    }

    /// The same in bits per second of wire time: 1,538 bytes for a frame of 1,514.
    #[test]
    fn bits_per_second_are_exact(bps in 1_000_000_u64..=100_000_000_000) {
        let sent = departures(AnyRate::Bits(Rate::from_bps(bps)));
        prop_assert_eq!(sent.len() as u64, FRAMES);
        for (n, at) in (0_u128..).zip(sent) {
            let planned = n * 1_538 * 8 * 1_000_000_000_000 / u128::from(bps);
            prop_assert_eq!(u128::from(at.since(START).as_ps()), planned);
        }
    }

    /// A driver that is late by any span, at any frame: what is due goes out with at most two frames
    /// back to back, and the line's gap behind them.
    #[test]
    fn a_late_driver_sends_no_burst_above_two_frames(late_us in 1_u64..2_000, at in 0_u64..400) {
        let mut store = SlabStore::new(2_000);
        let mut host = host(AnyRate::Frames(FrameRate::from_pps(1_000_000)), START, 500);
        let mut handed = Vec::new();
        let stall = START + Duration::from_us(at);
        let mut stalled = false;
        loop {
            let mut now = Node::<SlabStore>::next_deadline(&host);
            if now == Time::NEVER {
                break;
            }
            if !stalled && now >= stall {
                stalled = true;
                now += Duration::from_us(late_us);
            }
            host.on_timer(now, &mut store);
            while let Some(port) = Node::<SlabStore>::next_ready_port(&mut host, now) {
                if let Some(sent) = host.poll_transmit(now, &mut store, port) {
                    handed.push(now);
                    store.release(sent.frame);
                }
            }
        }
        let burst = handed.chunk_by(|a, b| a == b).map(<[Time]>::len).max();
        prop_assert!(burst.is_some_and(|burst| burst <= 2), "{:?}", burst);
    }
}
