//! Priority flow control of the switch over the slab store: pauses obeyed and asked for, the watchdog,
//! deadlock prevention, one behaviour a test, with the books checked after each.

mod bench;

use proptest::prelude::*;
use tailwater::frame::{FrameStore, SlabStore};
use tailwater::ledger::{DropReason, Ledger};
use tailwater::node::{Node, PortId};
use tailwater::switch::memory::{GroupConfig, Lossless, Threshold};
use tailwater::switch::prevention::{ChainStep, PreventionConfig};
use tailwater::switch::watchdog::{WatchdogAction, WatchdogConfig, WatchdogMode};
use tailwater::switch::{PortConfig, StaticMac, SwitchConfig, SwitchSetting, Trust, VlanMode};
use tailwater::time::{Duration, Time};
use tailwater::units::Rate;
use tailwater::wire::MacAddr;
use tailwater::wire::ipv4::{Ipv4Header, Ipv4Packet};
use tailwater::wire::pfc::{MacControl, Pfc, is_mac_control};

use bench::Bench;

/// At 10 Gb/s a byte lasts 800 ps and a quantum 51.2 ns.
const RATE: Rate = Rate::from_gbps(10);
const QUANTUM: Duration = Duration::from_ps(51_200);
/// Frames of data: 1,000 bytes, 819.2 ns on the wire.
const FRAME: usize = 1_000;
const WIRE: Duration = Duration::from_ps(819_200);

const fn us(us: u64) -> Time {
    Time::from_ns(us * 1_000)
}

fn station(n: u16) -> MacAddr {
    let [high, low] = n.to_be_bytes();
    MacAddr([2, 0, 0, 0, high, low])
}

/// Ports 0 to 3 with a station each, DSCP trusted, priorities 3 and 4 lossless: XOFF beyond 5,000
/// bytes, XON at 2,500.
fn config() -> SwitchConfig {
    let lossless =
        Lossless { headroom_bytes: 50_000, xon_bytes: 2_500, xon_offset_bytes: u64::MAX };
    let group = GroupConfig {
        min_bytes: 0,
        threshold: Threshold { static_bytes: Some(5_000), dt_alpha: None },
        lossless: Some(lossless),
    };
    let ports = (0..4_u8).map(|n| {
        let mut port = PortConfig::new(&n.to_string(), MacAddr([2, 0, 0, 0, 1, n]), RATE);
        port.trust = Trust::Dscp;
        port.shares.groups[3] = group;
        port.shares.groups[4] = group;
        port
    });
    let mut config = SwitchConfig::new("s1", ports.collect());
    config.cell_bytes = 100;
    config.static_macs =
        (0..4).map(|n| StaticMac { mac: station(n), vlan: 1, port: PortId(n) }).collect();
    config
}

/// What left: port, first bit, bytes.
#[derive(Clone, Debug, PartialEq)]
struct Sent {
    port: u16,
    starts: Time,
    bytes: Vec<u8>,
}

impl Sent {
    fn pauses(&self) -> Option<Pfc> {
        match MacControl::read(&self.bytes) {
            Ok(MacControl::Pfc(pfc)) => Some(pfc),
            _ => None,
        }
    }

    fn priority(&self) -> u8 {
        self.bytes[15] >> 5
    }
}

impl Bench {
    fn new(config: SwitchConfig) -> Self {
        Self::of(config, 100_000)
    }

    fn ledger(&self) -> Ledger {
        let ledger = Node::<SlabStore>::ledger(&self.switch);
        assert_eq!(ledger.check(), Ok(()), "{ledger:?}");
        ledger
    }

    fn take(&mut self, port: u16, bytes: &[u8]) {
        self.arrives(port, bytes);
        self.ledger();
    }

    fn hear(&mut self, port: u16, pfc: Pfc) {
        self.take(port, &MacControl::Pfc(pfc).frame(station(port)));
    }

    /// Frames of a priority from one port's station to another's.
    fn data(&mut self, from: u16, to: u16, priority: u8, count: usize) {
        for _ in 0..count {
            self.take(from, &ipv4(from, to, priority << 3));
        }
    }

    /// Everything that leaves until `end`.
    fn run(&mut self, end: Time) -> Vec<Sent> {
        let mut sent = Vec::new();
        loop {
            let at = Node::<SlabStore>::next_deadline(&self.switch).max(self.now);
            if at > end {
                break;
            }
            self.now = at;
            self.switch.on_timer(at, &mut self.store);
            while let Some((port, out)) = self.switch.poll_next(at, &mut self.store) {
                let mut bytes = Vec::new();
                self.store.copy_out(&out.frame, &mut bytes);
                self.store.release(out.frame);
                sent.push(Sent { port: port.0, starts: out.starts, bytes });
            }
            self.ledger();
            if Node::<SlabStore>::next_deadline(&self.switch) <= at {
                panic!("the switch wants to be called again at {at}");
            }
        }
        self.now = end;
        sent
    }
}

fn ipv4(from: u16, to: u16, dscp: u8) -> Vec<u8> {
    let mut bytes = [station(to).0, station(from).0].concat();
    bytes.extend_from_slice(&[0x08, 0x00]);
    bytes.resize(FRAME, 0);
    let header = Ipv4Header {
        source: [10, 0, 0, 1].into(),
        destination: [10, 0, 0, 2].into(),
        protocol: 17,
        ttl: 64,
        dscp,
        ecn: 1,
        identification: 0,
        dont_fragment: true,
        payload_bytes: u16::try_from(FRAME - 34).expect("short"),
    };
    header.emit(&mut bytes[14..]).expect("room");
    bytes
}

#[test]
fn a_pause_is_obeyed_behind_the_frame_in_flight_by_its_class_alone() {
    let mut bench = Bench::new(config());
    bench.data(0, 1, 3, 4);
    bench.data(0, 1, 0, 4);
    // The first frame has begun to leave when the pause comes.
    assert_eq!(bench.run(Time::ZERO).len(), 1);
    bench.now = Time::from_ns(400);
    bench.hear(1, Pfc::uniform(0b1001, 1_000));
    let sent = bench.run(us(100));
    let resumes = Time::from_ns(400) + QUANTUM * 1_000;
    let of = |priority: u8| sent.iter().filter(move |sent| sent.priority() == priority);
    assert_eq!(of(3).map(|sent| sent.starts).min(), Some(resumes), "to the picosecond");
    assert_eq!((of(3).count(), of(0).count()), (3, 4));
    assert!(of(0).all(|sent| sent.starts < us(5)), "not lossless: never stopped");
    let counters = bench.switch.flow_counters(us(100), PortId(1)).pauses;
    assert_eq!((counters.rx_xoff[3], counters.rx_xoff[0], counters.rx_xoff[4]), (1, 1, 0));
    assert_eq!((counters.rx_pause[3], counters.rx_pause[0]), (QUANTUM * 1_000, Duration::ZERO));
    assert_eq!(bench.ledger().consumed, 1);
}

#[test]
fn zero_quanta_resume_at_once_and_the_newest_value_wins() {
    let mut bench = Bench::new(config());
    bench.hear(1, Pfc::uniform(0b1000, 65_535));
    bench.data(0, 1, 3, 1);
    assert_eq!(bench.run(us(10)), []);
    bench.hear(1, Pfc::uniform(0b1000, 0));
    assert_eq!(bench.run(us(10)).len(), 1);
    bench.hear(1, Pfc::uniform(0b1000, 65_535));
    bench.hear(1, Pfc::uniform(0b1000, 100));
    bench.data(0, 1, 3, 1);
    let sent = bench.run(us(100));
    assert_eq!(sent[0].starts, us(10) + (QUANTUM * 100).max(WIRE));
}

#[test]
fn mac_control_frames_end_here_whatever_they_are() {
    let mut bench = Bench::new(config());
    let good = MacControl::Pfc(Pfc::uniform(0xff, 9)).frame(station(1));
    let mut unicast = good;
    unicast[..6].copy_from_slice(&station(2).0);
    let cases = [
        (good.to_vec(), None),
        (good[..34].to_vec(), None),
        (good[..33].to_vec(), Some(DropReason::Malformed)),
        (unicast.to_vec(), Some(DropReason::Malformed)),
        (MacControl::Pause(9).frame(station(1)).to_vec(), None),
        (MacControl::Other(7).frame(station(1)).to_vec(), Some(DropReason::Unhandled)),
        (good[..14].to_vec(), Some(DropReason::Malformed)),
    ];
    for (bytes, reason) in cases {
        let before = bench.ledger();
        bench.take(1, &bytes);
        let after = bench.ledger();
        assert_eq!(after.consumed - before.consumed, u64::from(reason.is_none()), "{bytes:x?}");
        let dropped = reason.map_or(0, |reason| after.drops.of(reason) - before.drops.of(reason));
        assert_eq!(dropped, u64::from(reason.is_some()));
    }
    assert_eq!(bench.run(us(10)), []);
    // The same at a switch without lossless priorities, where plain frames go the short way.
    let mut plain = config();
    for port in &mut plain.ports {
        port.shares = Default::default();
        port.trust = Trust::Pcp;
    }
    let mut bench = Bench::new(plain);
    bench.take(1, &unicast);
    bench.take(1, &good);
    assert_eq!((bench.run(us(10)), bench.ledger().consumed), (vec![], 1));
    let counters = bench.switch.flow_counters(us(10), PortId(1)).pauses;
    assert_eq!((counters.rx_xoff, counters.rx_pause), ([1; 8], [Duration::ZERO; 8]));
}

#[test]
fn pause_of_the_whole_port_is_obeyed_where_it_is_asked_for() {
    for obeys_pause in [false, true] {
        let mut config = config();
        config.ports[1].obeys_pause = obeys_pause;
        let mut bench = Bench::new(config);
        bench.take(1, &MacControl::Pause(1_000).frame(station(1)));
        bench.data(0, 1, 0, 1);
        bench.data(0, 2, 0, 1);
        let sent = bench.run(us(100));
        let at = |port| sent.iter().find(|sent| sent.port == port).map(|sent| sent.starts);
        let resumes = Time::ZERO + QUANTUM * 1_000;
        assert_eq!(at(1), Some(if obeys_pause { resumes } else { Time::ZERO }));
        assert_eq!(at(2), Some(Time::ZERO));
    }
}

/// Two senders of priority 3 to port 1, at twice its rate, so that both are told to stop and to go on.
fn congest(bench: &mut Bench, frames: usize) -> Vec<Sent> {
    let mut sent = Vec::new();
    for _ in 0..frames {
        bench.data(0, 1, 3, 1);
        bench.data(2, 1, 3, 1);
        sent.extend(bench.run(bench.now + WIRE));
    }
    sent
}

#[test]
fn xoff_is_asked_for_at_the_threshold_and_xon_below_it() {
    let mut bench = Bench::new(config());
    let mut sent = congest(&mut bench, 12);
    sent.extend(bench.run(us(100)));
    for port in [0, 2] {
        let told: Vec<_> = sent.iter().filter(|sent| sent.port == port).collect();
        let pauses: Vec<Pfc> = told.iter().filter_map(|sent| sent.pauses()).collect();
        assert_eq!(pauses, [Pfc::uniform(0b1000, 65_535), Pfc::uniform(0b1000, 0)]);
        let mac = MacAddr([2, 0, 0, 0, 1, u8::try_from(port).expect("small")]);
        assert_eq!(told[0].bytes, MacControl::Pfc(pauses[0]).frame(mac), "from the port's MAC");
        assert_eq!(bench.switch.xoff_told(PortId(port)), 0, "nothing is left outstanding");
        let counters = bench.switch.flow_counters(bench.now, PortId(port)).pfc;
        assert_eq!((counters.tx_xoff[3], counters.tx_xon[3]), (1, 1));
        assert_eq!(counters.tx_xoff.iter().sum::<u64>(), 1);
    }
    let data = sent.iter().filter(|sent| sent.port == 1).count();
    let ledger = bench.ledger();
    assert_eq!((data, ledger.drops.total(), ledger.generated), (24, 0, 4));
    assert!(Node::<SlabStore>::is_quiet(&bench.switch));
}

#[test]
fn a_pause_frame_goes_before_all_data_and_waits_for_no_memory() {
    let mut bench = Bench::new(config());
    // The port that is to be told has a backlog of its own, of the highest priority.
    bench.data(1, 0, 7, 20);
    bench.data(0, 1, 3, 1);
    let first = bench.run(Time::ZERO);
    assert_eq!(first.len(), 2);
    bench.now = Time::from_ns(100);
    // Beyond the threshold in one instant; nothing of port 1 can leave, since it is paused.
    bench.hear(1, Pfc::uniform(0b1000, 65_535));
    bench.data(0, 1, 3, 8);
    let sent = bench.run(us(20));
    let of_port: Vec<_> = sent.iter().filter(|sent| sent.port == 0).collect();
    assert_eq!(of_port[0].pauses(), Some(Pfc::uniform(0b1000, 65_535)));
    assert_eq!(of_port[0].starts, Time::ZERO + WIRE, "behind the frame in flight alone");
    assert!(of_port[1..].iter().all(|sent| sent.pauses().is_none()));
}

#[test]
fn a_pause_that_is_still_wanted_is_asked_for_again_at_its_half() {
    let mut bench = Bench::new(config());
    bench.hear(1, Pfc::uniform(0b1000, 65_535));
    bench.data(0, 1, 3, 8);
    // Pauses of the port without an end.
    let mut told = Vec::new();
    for _ in 0..10 {
        told.extend(bench.run(bench.now + Duration::from_ms(2)));
        bench.hear(1, Pfc::uniform(0b1000, 65_535));
    }
    let times: Vec<Time> = told.iter().map(|sent| sent.starts).collect();
    assert!(told.iter().all(|sent| sent.pauses() == Some(Pfc::uniform(0b1000, 65_535))));
    // A frame of 60 bytes lasts 67.2 ns with what is around it.
    let period = QUANTUM * 65_535 / 2 + Duration::from_ps(67_200);
    assert_eq!(times.len(), 12);
    assert!(times.windows(2).all(|pair| pair[1].since(pair[0]) == period), "{times:?}");
    bench.hear(1, Pfc::uniform(0b1000, 0));
    let sent = bench.run(bench.now + Duration::from_ms(20));
    let pauses: Vec<Pfc> = sent.iter().filter_map(Sent::pauses).collect();
    assert_eq!(pauses, [Pfc::uniform(0b1000, 0)], "and not again once it is over");
}

#[test]
fn a_full_store_delays_a_pause_frame_and_never_loses_it() {
    // Two chunks a frame: with six frames and one of somebody else none is left.
    let mut bench = Bench::of(config(), 13);
    bench.hear(1, Pfc::uniform(0b1000, 65_535));
    let elsewhere = bench.store.allocate(60).expect("room");
    bench.data(0, 1, 3, 6);
    assert_eq!(bench.run(us(10)), []);
    let no_frame = bench.switch.flow_counters(bench.now, PortId(0)).pfc_no_frame;
    assert!(no_frame > 5, "tried again: {no_frame}");
    bench.store.release(elsewhere);
    let sent = bench.run(us(12));
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].pauses(), Some(Pfc::uniform(0b1000, 65_535)));
}

#[test]
fn a_link_that_comes_back_knows_of_no_pause() {
    let mut bench = Bench::new(config());
    bench.hear(1, Pfc::uniform(0b1000, 65_535));
    bench.data(0, 1, 3, 8);
    bench.run(us(1));
    assert_eq!(bench.switch.xoff_told(PortId(0)), 0b1000);
    // The paused port: what waited is dropped, and so there is nothing to stop port 0 for.
    bench.switch.on_link(us(1), &mut bench.store, PortId(1), false);
    let sent = bench.run(us(2));
    assert_eq!(sent[0].pauses(), Some(Pfc::uniform(0b1000, 0)));
    bench.switch.on_link(us(2), &mut bench.store, PortId(1), true);
    bench.data(0, 1, 3, 1);
    assert_eq!(bench.run(us(3)).len(), 1, "not paused any more");
    // The port that was told: its other end has forgotten, and is told again.
    bench.hear(1, Pfc::uniform(0b1000, 65_535));
    bench.data(0, 1, 3, 8);
    assert_eq!(bench.run(us(4)).iter().filter_map(Sent::pauses).count(), 1);
    bench.switch.on_link(us(4), &mut bench.store, PortId(0), false);
    assert_eq!(bench.run(us(5)), []);
    bench.switch.on_link(us(5), &mut bench.store, PortId(0), true);
    let sent = bench.run(us(6));
    assert_eq!(sent[0].pauses(), Some(Pfc::uniform(0b1000, 65_535)));
}

const POLL: Duration = Duration::from_ms(4);

fn watched(mode: WatchdogMode, action: WatchdogAction) -> SwitchConfig {
    let mut config = config();
    config.watchdog = Some(WatchdogConfig { mode, poll: POLL, detection: POLL * 2, action });
    config
}

const SONIC: WatchdogMode = WatchdogMode::Sonic { restoration: Duration::from_ms(8) };

/// A storm of priority 3 at port 1 until `end`.
fn storm(bench: &mut Bench, end: Time) -> Vec<Sent> {
    let mut sent = Vec::new();
    while bench.now < end {
        bench.hear(1, Pfc::uniform(0b1000, 65_535));
        sent.extend(bench.run(bench.now + Duration::from_ms(1)));
    }
    sent
}

#[test]
fn the_watchdog_drops_what_belongs_to_the_class_and_leaves_the_others() {
    let mut bench = Bench::new(watched(SONIC, WatchdogAction::Drop));
    bench.data(0, 1, 3, 8);
    bench.data(0, 1, 4, 1);
    let before = storm(&mut bench, Time::from_ns(11_000_000));
    let told: Vec<Pfc> = before.iter().filter_map(Sent::pauses).collect();
    assert_eq!(told[0], Pfc::uniform(0b1000, 65_535), "port 0 was told to stop");
    // Found at 8 ms: what waited is dropped, and so port 0 may go on.
    assert_eq!(told.last(), Some(&Pfc::uniform(0b1000, 0)));
    let port = *bench.switch.port_counters(PortId(1));
    assert_eq!(port.drops.of(DropReason::Watchdog), 8);
    let flow = bench.switch.flow_counters(bench.now, PortId(1));
    assert_eq!((flow.storms_detected[3], flow.storms_restored[3]), (1, 0));
    // What comes for the queue or by the port in that class is dropped; other classes pass.
    bench.data(0, 1, 3, 2);
    bench.data(1, 0, 3, 3);
    bench.data(0, 1, 4, 5);
    bench.data(0, 2, 3, 7);
    let sent = bench.run(Time::from_ns(11_500_000));
    let data = |sent: &&Sent| sent.pauses().is_none();
    let to = |port: u16| sent.iter().filter(data).filter(|sent| sent.port == port).count();
    assert_eq!((to(0), to(1), to(2)), (0, 5, 7));
    assert_eq!(bench.switch.port_counters(PortId(1)).drops.of(DropReason::Watchdog), 13);
    // The storm ends; 8 ms without a pause later the class is lossless again.
    bench.run(Time::from_ns(21_000_000));
    assert_eq!(bench.switch.flow_counters(bench.now, PortId(1)).storms_restored[3], 1);
    bench.data(0, 1, 3, 1);
    bench.data(1, 0, 3, 1);
    assert_eq!(bench.run(Time::from_ns(21_100_000)).len(), 2);
    assert_eq!(bench.ledger().drops.total(), 13);
}

#[test]
fn the_watchdog_forwards_through_the_storm() {
    let mut bench = Bench::new(watched(SONIC, WatchdogAction::Forward));
    bench.data(0, 1, 3, 8);
    let sent = storm(&mut bench, Time::from_ns(11_000_000));
    let data: Vec<_> = sent.iter().filter(|sent| sent.port == 1).collect();
    assert_eq!((data.len(), data[0].starts), (8, Time::from_ns(8_000_000)));
    assert_eq!(bench.ledger().drops.total(), 0);
}

#[test]
fn an_operator_rearms_what_h3c_has_turned_off() {
    let mode = WatchdogMode::H3c { recovery: POLL, detections_max: Some(1) };
    let mut bench = Bench::new(watched(mode, WatchdogAction::Forward));
    storm(&mut bench, Time::from_ns(100_000_000));
    let detected = |bench: &Bench| bench.switch.flow_counters(bench.now, PortId(1)).storms_detected;
    assert_eq!(detected(&bench), [0, 0, 0, 1, 0, 0, 0, 0], "once, and then it stays off");
    bench.data(0, 1, 3, 1);
    assert_eq!(bench.run(bench.now + WIRE).len(), 1);
    let rearm = SwitchSetting::RearmWatchdog { port: PortId(1), priority: Some(3) };
    bench.switch.set(bench.now, rearm).expect("there is a watchdog");
    bench.hear(1, Pfc::uniform(0b1000, 65_535));
    bench.data(0, 1, 3, 1);
    assert_eq!(bench.run(bench.now + Duration::from_ms(1)), [], "pauses are obeyed again");
    let end = bench.now + Duration::from_ms(100);
    storm(&mut bench, end);
    assert_eq!(detected(&bench)[3], 2);
    let mut plain = Bench::new(config());
    let why = plain.switch.set(us(0), rearm).expect_err("no watchdog");
    assert_eq!(why.field, "watchdog");
}

#[test]
fn a_hook_goes_on_in_the_next_queue_of_the_chain() {
    let mut config = config();
    let step = |priority, dscp| ChainStep { priority, dscp };
    config.prevention = Some(PreventionConfig {
        groups: vec![Some(0), Some(0), None, Some(1)],
        chain: vec![step(3, 24), step(4, 32), step(1, 10)],
    });
    for port in &mut config.ports[..2] {
        port.vlan = VlanMode::Trunk { allowed: vec![1, 5], native: Some(1) };
    }
    config.static_macs.push(StaticMac { mac: station(9), vlan: 5, port: PortId(1) });
    let mut bench = Bench::new(config);
    bench.data(0, 1, 3, 1);
    bench.data(0, 1, 4, 1);
    bench.data(0, 1, 1, 1);
    bench.data(0, 2, 3, 1);
    bench.data(2, 3, 3, 1);
    let sent = bench.run(us(10));
    let dscps = |port: u16| -> Vec<u8> {
        let of_port = sent.iter().filter(|sent| sent.port == port);
        let packets = of_port.map(|sent| {
            let packet = Ipv4Packet::new_checked(&sent.bytes[14..]).expect("a packet");
            assert!(packet.is_checksum_valid());
            Ipv4Header::read(&packet).dscp
        });
        let mut dscps: Vec<u8> = packets.collect();
        dscps.sort_unstable();
        dscps
    };
    assert_eq!((dscps(1), dscps(2), dscps(3)), (vec![8, 10, 32], vec![24], vec![24]));
    // The memory is still the ingress group's: what was moved on is what port 0 is stopped for.
    bench.hear(1, Pfc::uniform(0b1_0000, 65_535));
    bench.data(0, 1, 3, 8);
    let sent = bench.run(us(20));
    assert_eq!(sent[0].pauses(), Some(Pfc::uniform(0b1000, 65_535)));
    // A tag's PCP follows.
    let mut tagged = ipv4(0, 9, 24);
    tagged.splice(12..12, [0x81, 0x00, 3 << 5, 5]);
    bench.hear(1, Pfc::uniform(0b1_0000, 0));
    bench.run(us(30));
    bench.take(0, &tagged);
    let sent = bench.run(us(40));
    assert_eq!(sent[0].bytes[12..20], [0x81, 0x00, 4 << 5, 5, 0x08, 0x00, 0x45, 32 << 2 | 1]);
}

/// Frames of data, or for the MAC: good, cut, with another destination, of another opcode.
fn hostile() -> impl Strategy<Value = (u16, Vec<u8>)> {
    let data = (0_u16..4, 0_u16..4, 0_u8..8)
        .prop_map(|(from, to, priority)| (from, ipv4(from, to, priority << 3)));
    let control = (0_u16..4, any::<u8>(), any::<[u16; 8]>(), 14_usize..61, 0_u8..6).prop_map(
        |(port, enabled, quanta, len, lie)| {
            let mut bytes = MacControl::Pfc(Pfc { enabled, quanta }).frame(station(port)).to_vec();
            match lie {
                0 => bytes.truncate(len),
                1 => bytes[..6].copy_from_slice(&station(1).0),
                2 => bytes[14] = enabled,
                3 => bytes[16] = enabled,
                _ => {}
            }
            (port, bytes)
        },
    );
    prop_oneof![3 => data, 2 => control]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever comes: the books balance, nothing for the MAC goes on, no lossless frame is dropped
    /// but for full headroom, and once all is over nothing is left outstanding.
    #[test]
    fn hostile_pauses_break_nothing(
        frames in proptest::collection::vec((0_u64..3_000, hostile()), 1..200),
    ) {
        let mut config = config();
        for port in &mut config.ports {
            for group in [3, 4] {
                port.shares.groups[group].lossless =
                    Some(Lossless { headroom_bytes: 400_000, xon_bytes: 2_500, xon_offset_bytes: u64::MAX });
            }
        }
        let mut bench = Bench::new(config);
        let mut sent = Vec::new();
        for (wait, (port, bytes)) in frames {
            sent.extend(bench.run(bench.now + Duration::from_ns(wait)));
            bench.take(port, &bytes);
        }
        sent.extend(bench.run(bench.now + Duration::from_ms(8)));
        let ledger = bench.ledger();
        prop_assert_eq!(ledger.queued, 0);
        for sent in sent.iter().filter(|sent| is_mac_control(&sent.bytes)) {
            prop_assert_eq!(&sent.bytes[6..12], &[2, 0, 0, 0, 1, u8::try_from(sent.port).expect("small")]);
        }
        for reason in [DropReason::HeadroomFull, DropReason::IngressLimit, DropReason::BufferFull] {
            prop_assert_eq!(ledger.drops.of(reason), 0);
        }
        for port in 0..4 {
            prop_assert_eq!(bench.switch.xoff_told(PortId(port)), 0);
        }
    }
}
