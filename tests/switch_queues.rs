//! Marks, early drops and schedules in the switch, by what leaves it and when.

mod bench;

use tailwater::frame::{FrameStore, SlabStore};
use tailwater::ledger::DropReason;
use tailwater::node::{Node, PortId};
use tailwater::switch::config::QUEUES;
use tailwater::switch::mark::{Curve, MarkAt, MarkConfig, PPB};
use tailwater::switch::schedule::{ScheduleConfig, ShaperConfig};
use tailwater::switch::{PortConfig, StaticMac, SwitchConfig, Trust};
use tailwater::time::{Duration, Time};
use tailwater::units::Rate;
use tailwater::wire::MacAddr;

use bench::Bench;

const SENDER: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const RECEIVER: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

/// A frame that left: its first bit, its queue, its ECN bits, its length.
struct Sent {
    starts: Time,
    queue: u8,
    ecn: u8,
    len_bytes: u32,
}

/// A switch with a sender at port 0 and a receiver at port 1, of 10 Gb/s.
impl Bench {
    fn new(seed: u64, change: impl FnOnce(&mut PortConfig)) -> Self {
        let port = |n: u8| {
            let mac = MacAddr([2, 0, 0, 0, 1, n]);
            PortConfig {
                trust: Trust::Dscp,
                ..PortConfig::new(&n.to_string(), mac, Rate::from_gbps(10))
            }
        };
        let mut config = SwitchConfig::new("s1", vec![port(0), port(1)]);
        config.seed = seed;
        config.buffer_bytes = 64_000_000;
        change(&mut config.ports[1]);
        config.static_macs.push(StaticMac { mac: RECEIVER, vlan: 1, port: PortId(1) });
        Self::of(config, 10_000)
    }

    /// A frame of `len_bytes` for `queue`, by its DSCP.
    fn receives(&mut self, queue: u8, ecn: u8, len_bytes: u32) {
        let mut bytes = [RECEIVER.0, SENDER.0].concat();
        bytes.extend([0x08, 0x00, 0x45, queue << 5 | ecn]);
        bytes.resize(len_bytes as usize, 0);
        self.arrives(0, &bytes);
    }

    fn hold(&mut self, held: bool) {
        Node::<SlabStore>::hold(&mut self.switch, self.now, PortId(1), held);
    }

    /// What leaves until `until`, or until all has.
    fn sends(&mut self, until: Time) -> Vec<Sent> {
        let mut sent = Vec::new();
        loop {
            while let Some((_, out)) = self.switch.poll_next(self.now, &mut self.store) {
                let head = self.store.head(&out.frame);
                let (queue, ecn) = (head[15] >> 5, head[15] & 3);
                let len_bytes = out.frame.len_bytes();
                sent.push(Sent { starts: out.starts, queue, ecn, len_bytes });
                self.store.release(out.frame);
            }
            let next = Node::<SlabStore>::next_deadline(&self.switch);
            if Node::<SlabStore>::is_quiet(&self.switch) || next > until {
                return sent;
            }
            self.now = next;
        }
    }

    fn marked(&self) -> u64 {
        self.switch.port_counters(PortId(1)).ecn_marked
    }
}

const KB: u64 = 1_000;
const CURVE: Curve = Curve { kmin_bytes: 500 * KB, kmax_bytes: 2_000 * KB, pmax_ppb: PPB / 20 };

fn marks(config: MarkConfig) -> impl FnOnce(&mut PortConfig) {
    move |port| port.marks[0] = Some(config)
}

/// The egress test of SONiC: the queue is held, filled with Kmax + 10 KB, and let go. A frame then
/// sees a known length, and over many runs it is marked as often as the curve says.
#[test]
fn marks_are_as_frequent_as_the_curve_says() {
    const FRAMES: u32 = 2_010;
    const REPEATS: u64 = 200;
    const BIN: usize = 67;
    let mut hits = vec![0_u32; FRAMES as usize];
    for seed in 0..REPEATS {
        let mut bench = Bench::new(seed, marks(MarkConfig::new(CURVE)));
        bench.hold(true);
        for _ in 0..FRAMES {
            bench.receives(0, 2, 1_000);
        }
        bench.hold(false);
        let sent = bench.sends(Time::NEVER);
        assert_eq!(sent.len(), FRAMES as usize);
        for (hit, frame) in hits.iter_mut().zip(&sent) {
            assert!(frame.ecn == 2 || frame.ecn == 3);
            *hit += u32::from(frame.ecn == 3);
        }
        let all = sent.iter().filter(|frame| frame.ecn == 3).count();
        assert_eq!(bench.marked(), all as u64);
    }
    // Frame i leaves 2,009 - i frames behind: ten see Kmax and more, the last five hundred see no
    // more than Kmin.
    let whole = u32::try_from(REPEATS).expect("small");
    assert!(hits[..10].iter().all(|hit| *hit == whole), "{:?}", &hits[..12]);
    assert!(hits[10..].iter().all(|hit| *hit < whole / 4));
    assert_eq!(hits[1_509..].iter().sum::<u32>(), 0);
    let probability = |at: usize| {
        let left = f64::from(FRAMES - 1) - f64::from(u32::try_from(at).expect("small"));
        0.05 * (left - 500.0) / 1_500.0
    };
    for begin in (10..1_509 - BIN).step_by(BIN) {
        let bin = begin..begin + BIN;
        let got = f64::from(hits[bin.clone()].iter().sum::<u32>());
        let mean: f64 = bin.clone().map(|at| f64::from(whole) * probability(at)).sum();
        let variance: f64 = bin
            .clone()
            .map(|at| f64::from(whole) * probability(at) * (1.0 - probability(at)))
            .sum();
        let bound = 4.5 * variance.sqrt() + 1.0;
        assert!((got - mean).abs() < bound, "frames {bin:?}: {got}, {mean:.1} +- {bound:.1}");
    }
}

/// The same with a step: the first frames are marked, the last are not.
#[test]
fn a_step_marks_all_above_it() {
    let step = Curve { kmin_bytes: 100 * KB, kmax_bytes: 100 * KB, pmax_ppb: PPB };
    let mut bench = Bench::new(1, marks(MarkConfig::new(step)));
    bench.hold(true);
    for _ in 0..200 {
        bench.receives(0, 1, 1_000);
    }
    bench.hold(false);
    let sent = bench.sends(Time::NEVER);
    let marked: Vec<bool> = sent.iter().map(|frame| frame.ecn == 3).collect();
    assert_eq!(marked, (0..200).map(|at| 199 - at > 100).collect::<Vec<_>>());
}

#[test]
fn marking_on_arrival_says_how_long_the_queue_was_then() {
    let step = Curve { kmin_bytes: 100 * KB, kmax_bytes: 100 * KB, pmax_ppb: PPB };
    let config = MarkConfig { at: MarkAt::Enqueue, ..MarkConfig::new(step) };
    let mut bench = Bench::new(1, marks(config));
    bench.hold(true);
    for _ in 0..200 {
        bench.receives(0, 1, 1_000);
    }
    bench.hold(false);
    let sent = bench.sends(Time::NEVER);
    let marked: Vec<bool> = sent.iter().map(|frame| frame.ecn == 3).collect();
    assert_eq!(marked, (0..200).map(|at| at > 100).collect::<Vec<_>>());
    // A second time, though the queue has been as long before.
    for _ in 0..3 {
        bench.hold(true);
        for _ in 0..150 {
            bench.receives(0, 1, 1_000);
        }
        bench.hold(false);
        assert_eq!(bench.sends(Time::NEVER).iter().filter(|frame| frame.ecn == 3).count(), 49);
    }
}

#[test]
fn only_the_queue_with_a_curve_marks() {
    let step = Curve { kmin_bytes: 0, kmax_bytes: 0, pmax_ppb: PPB };
    let mut bench = Bench::new(1, |port| port.marks[3] = Some(MarkConfig::new(step)));
    bench.hold(true);
    for _ in 0..10 {
        bench.receives(2, 2, 500);
        bench.receives(3, 2, 500);
    }
    bench.hold(false);
    let sent = bench.sends(Time::NEVER);
    let marked = |queue| sent.iter().filter(|f| f.queue == queue && f.ecn == 3).count();
    assert_eq!((marked(2), marked(3)), (0, 9), "the last leaves nothing behind");
}

#[test]
fn early_drops_spare_frames_that_can_be_marked() {
    let step = Curve { kmin_bytes: 50 * KB, kmax_bytes: 50 * KB, pmax_ppb: PPB };
    let mut bench = Bench::new(1, marks(MarkConfig { wred: true, ..MarkConfig::new(step) }));
    bench.hold(true);
    for _ in 0..100 {
        bench.receives(0, 0, 1_000);
    }
    let drops = |bench: &Bench| bench.switch.port_counters(PortId(1)).drops.of(DropReason::Wred);
    assert_eq!(drops(&bench), 49, "51 fit up to the first that is above");
    for _ in 0..100 {
        bench.receives(0, 2, 1_000);
    }
    assert_eq!(drops(&bench), 49);
    bench.hold(false);
    assert_eq!(bench.sends(Time::NEVER).len(), 151);
}

fn schedule(change: impl FnOnce(&mut ScheduleConfig)) -> impl FnOnce(&mut PortConfig) {
    move |port| change(&mut port.schedule)
}

fn limit(gbps: u64, burst_bytes: u64) -> ShaperConfig {
    ShaperConfig { rate: Rate::from_gbps(gbps), burst_bytes }
}

#[test]
fn weighted_queues_share_what_strict_ones_leave() {
    let mut bench = Bench::new(
        1,
        schedule(|schedule| {
            schedule.weights[0] = Some(1);
            schedule.weights[1] = Some(3);
        }),
    );
    bench.hold(true);
    for _ in 0..1_000 {
        bench.receives(0, 0, 300);
        bench.receives(1, 0, 1_500);
    }
    for _ in 0..50 {
        bench.receives(7, 0, 1_000);
    }
    bench.hold(false);
    let sent = bench.sends(Time::NEVER);
    assert_eq!(sent.len(), 2_050);
    assert!(sent[..50].iter().all(|frame| frame.queue == 7));
    // While both have frames, which is until queue 0 is empty.
    let last = sent.iter().rposition(|frame| frame.queue == 0).expect("queue 0 sends");
    let mut bytes = [0_u64; QUEUES];
    for frame in &sent[50..=last] {
        bytes[usize::from(frame.queue)] += u64::from(frame.len_bytes) + 24;
    }
    let permille = bytes[1] * 1_000 / bytes[0];
    assert!((2_950..3_050).contains(&permille), "{bytes:?}");
}

#[test]
fn a_limit_holds_to_the_picosecond_and_wakes_the_port() {
    let mut bench = Bench::new(
        1,
        schedule(|schedule| {
            schedule.queue_shapers[5] = Some(limit(1, 0));
        }),
    );
    for _ in 0..10 {
        bench.receives(5, 0, 976);
    }
    let sent = bench.sends(Time::NEVER);
    // 1,000 bytes of wire at 1 Gb/s are 8 us.
    let starts: Vec<u64> = sent.iter().map(|frame| frame.starts.as_ns()).collect();
    assert_eq!(starts, (0..10).map(|n| n * 8_000).collect::<Vec<_>>());
}

#[test]
fn a_frame_that_may_go_does_not_wait_for_one_that_may_not() {
    let mut bench = Bench::new(
        1,
        schedule(|schedule| {
            schedule.queue_shapers[5] = Some(limit(1, 0));
        }),
    );
    bench.receives(5, 0, 976);
    bench.receives(5, 0, 976);
    let first = bench.sends(Time::from_ns(3_000));
    assert_eq!(first.len(), 1, "the second waits until 8 us");
    bench.now = Time::from_ns(3_000);
    bench.receives(1, 0, 976);
    let sent = bench.sends(Time::NEVER);
    let order: Vec<(u8, u64)> = sent.iter().map(|f| (f.queue, f.starts.as_ns())).collect();
    assert_eq!(order, [(1, 3_000), (5, 8_000)]);
}

#[test]
fn a_late_driver_does_not_break_a_limit() {
    let mut bench = Bench::new(
        1,
        schedule(|schedule| {
            schedule.port_shaper = Some(limit(1, 0));
        }),
    );
    for _ in 0..3 {
        bench.receives(0, 0, 976);
    }
    assert_eq!(bench.sends(Time::ZERO).len(), 1);
    // Called at 20 us: the second could have left at 8 us, and catches up by its own wire time of
    // 0.8 us, from where the limit counts on.
    bench.now = Time::from_ns(20_000);
    let sent = bench.sends(Time::NEVER);
    let starts: Vec<u64> = sent.iter().map(|frame| frame.starts.as_ns()).collect();
    assert_eq!(starts, [19_200, 27_200]);
}

#[test]
fn frames_of_a_link_that_goes_down_take_their_turns_along() {
    let mut bench = Bench::new(
        1,
        schedule(|schedule| {
            schedule.weights = [Some(1); QUEUES];
        }),
    );
    for _ in 0..20 {
        bench.receives(0, 0, 1_000);
        bench.receives(1, 0, 1_000);
    }
    let _ = bench.sends(Time::from_ns(2_000));
    bench.switch.on_link(bench.now, &mut bench.store, PortId(1), false);
    bench.switch.on_link(bench.now, &mut bench.store, PortId(1), true);
    bench.now += Duration::from_us(10);
    bench.receives(1, 0, 1_000);
    assert_eq!(bench.sends(Time::NEVER).len(), 1);
}
