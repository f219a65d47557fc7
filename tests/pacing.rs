//! A stream keeps its pace exactly in virtual time: each frame departs at its planned picosecond,
//! and after a stall of its driver it catches up at twice its rate, without a burst.

use std::sync::mpsc::{Sender, channel};

use proptest::prelude::*;
use tailwater::frame::{FrameStore as _, SlabStore};
use tailwater::host::{Arrivals, Host, HostConfig, StreamConfig, StreamTarget};
use tailwater::lab::Device;
use tailwater::node::{Node, PortId};
use tailwater::sim::{Direction, Network, Tap};
use tailwater::time::{Duration, Time};
use tailwater::units::{AnyRate, FrameRate, Rate};
use tailwater::wire::MacAddr;
use tailwater::wire::stream::StreamHeader;

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

fn config(rate: AnyRate, start: Time, frames: u64) -> HostConfig {
    let mac = |n| MacAddr([2, 0, 0, 0, 0, n]);
    let mut config = HostConfig::new("h1", mac(1), Rate::from_gbps(100));
    config.ipv4 = Some((std::net::Ipv4Addr::new(10, 0, 0, 1), 24));
    let ip = std::net::Ipv4Addr::new(10, 0, 0, 2).into();
    let mut stream = StreamConfig::new(1, StreamTarget { mac: mac(2), ip, vlan: None }, rate);
    stream.start = start;
    stream.frames_max = frames;
    config.streams.push(stream);
    config
}

fn host(config: &HostConfig) -> Host {
    Host::new(config, &[]).expect("a good configuration")
}

/// A frame of a stream on its way out.
#[derive(Clone, Copy, Debug)]
struct Sent {
    stream: u32,
    planned: Time,
    /// When the driver took it.
    left: Time,
    /// When it starts on the wire.
    starts: Time,
}

/// What a host sends when the driver's call for a deadline comes as `call` says.
fn drive(config: &HostConfig, mut call: impl FnMut(Time) -> Time) -> Vec<Sent> {
    let mut store = SlabStore::new(10);
    let mut host = host(config);
    let mut handed = Vec::new();
    loop {
        let due = Node::<SlabStore>::next_deadline(&host);
        if due == Time::NEVER {
            return handed;
        }
        let now = call(due);
        host.on_timer(now, &mut store);
        while let Some(port) = Node::<SlabStore>::next_ready_port(&mut host, now) {
            let Some(sent) = host.poll_transmit(now, &mut store, port) else { continue };
            if sent.frame.len_bytes() == 1_514 {
                let header =
                    StreamHeader::read(&store.head(&sent.frame)[42..]).expect("a stream's");
                let (stream, planned) = (header.stream, header.planned);
                handed.push(Sent { stream, planned, left: now, starts: sent.starts });
            }
            store.release(sent.frame);
        }
    }
}

/// Where the host announces itself, the line is busy: streams start after that.
const START: Time = Time::from_ns(10_000);
const FRAMES: u64 = 1_000;

fn departures(rate: AnyRate) -> Vec<Time> {
    let (tap, departures) = channel();
    let mut network: Network<Device, SlabStore> = Network::new(SlabStore::new(1_000));
    let station = network.add(host(&config(rate, START, FRAMES)).into(), 1);
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

    /// A driver that is late once, by any span, at any frame: what is due leaves no closer than half of
    /// the planned gap, at twice the rate until the plan is met, and then on it.
    #[test]
    fn after_a_stall_a_stream_catches_up_at_twice_its_rate(
        late_us in 1_u64..2_000,
        at in 0_u64..4_000,
    ) {
        let (gap, stall) = (Duration::from_us(1), Duration::from_us(late_us));
        let config = config(AnyRate::Frames(FrameRate::from_pps(1_000_000)), START, 8_000);
        let at = START + Duration::from_us(at);
        let sent = drive(&config, |due| if due == at { due + stall } else { due });
        for pair in sent.windows(2) {
            prop_assert!(pair[1].left.since(pair[0].left) >= gap / 2, "handed over: {pair:?}");
            prop_assert!(pair[1].starts.since(pair[0].starts) >= gap / 2, "on the wire: {pair:?}");
        }
        for (n, frame) in (0..).zip(&sent) {
            prop_assert_eq!(frame.planned, START + gap * n, "the plan stays in the stamp");
            let behind = stall - frame.planned.since(at) / 2;
            let lag = if frame.planned < at { Duration::ZERO } else { behind };
            prop_assert_eq!(frame.left.since(frame.planned), lag, "{:?}", frame);
        }
        prop_assert_eq!(sent.len(), 8_000);
    }

    /// Several streams on one host, any of them Poisson, and a driver that is late now and then: every
    /// frame is sent, none before its time, in the order of the plan, no two frames of a constant
    /// stream at one time, and those behind the last stall on their plan.
    #[test]
    fn streams_of_one_host_catch_up_together(
        gaps_ns in proptest::collection::vec((1_000_u64..50_000, any::<bool>()), 1..5),
        late_us in 1_u64..5_000,
        every in 10_u64..1_000,
    ) {
        let span = Duration::from_ms(20);
        let mut config = config(AnyRate::Frames(FrameRate::from_pps(1)), START, u64::MAX);
        let base = config.streams.pop().expect("one");
        for (id, (gap_ns, is_poisson)) in (1..).zip(&gaps_ns) {
            let mut stream = base.clone();
            stream.id = id;
            stream.rate = AnyRate::Frames(FrameRate::from_milli_pps(1_000_000_000_000 / gap_ns));
            if *is_poisson {
                stream.arrivals = Arrivals::Poisson;
            }
            stream.stop = START + span;
            config.streams.push(stream);
        }
        let punctual = drive(&config, |due| due);
        let mut calls = 0;
        let late = drive(&config, |due| {
            calls += 1;
            let is_late = calls % every == 0 && due < START + span / 2;
            if is_late { due + Duration::from_us(late_us) } else { due }
        });
        prop_assert_eq!(punctual.len(), late.len());
        let took = Rate::from_gbps(100).time_of(1_538);
        let mut last: Vec<Option<Sent>> = vec![None; gaps_ns.len() + 1];
        for (ideal, frame) in punctual.iter().zip(&late) {
            prop_assert_eq!((ideal.stream, ideal.planned), (frame.stream, frame.planned));
            prop_assert!(frame.left >= ideal.left);
            let (gap_ns, is_poisson) = gaps_ns[frame.stream as usize - 1];
            if let Some(before) = last[frame.stream as usize].replace(*frame)
                && !is_poisson
            {
                // Frames of other streams take the wire between two.
                let least = Duration::from_ns(gap_ns) / 2 - took * 5;
                prop_assert!(frame.left.since(before.left) >= least, "{before:?} {frame:?}");
            }
        }
        let (ideal, frame) = (punctual.last().expect("sent"), late.last().expect("sent"));
        let stall_ends_before = late.iter().map(|frame| frame.left.since(frame.planned)).max();
        if stall_ends_before.is_some_and(|lag| lag < span / 8) {
            prop_assert_eq!(ideal.left, frame.left, "on its plan again");
        }
    }
}
