//! One trial: a schedule sent, what came of it, and when to stop waiting.

use std::sync::atomic::{AtomicBool, Ordering};

use super::ends::{Received, Receiver, Reflector, Sender, Sent};
use super::losses::Losses;
use super::rings::{Rings, Wait};
use super::search::TrialResult;
use crate::frame::FrameStore;
use crate::measure::LatencyHistogram;
use crate::measure::report::{FlowReport, SequenceCounts, bits_per_second};
use crate::time::{Duration, Time};
use crate::units::FrameRate;
use crate::xdp::RxStamps;

/// Without an arrival for this long after the last send, the missing frames count as lost.
const QUIET: Duration = Duration::from_ms(200);

/// However the frames trickle in, the wait ends here (RFC 2544 clause 23: two seconds).
const WAIT_MAX: Duration = Duration::from_secs(2);

/// How often a waiting loop looks at what is not a ring.
const LOOK_EVERY: Duration = Duration::from_ms(1);

/// How long a sender waits for the kernel to complete what the ring still holds.
const COMPLETE_WAIT_MAX: Duration = Duration::from_ms(100);

/// What one trial is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrialPlan {
    /// Mean rate.
    pub rate: FrameRate,
    /// Frames back to back.
    pub burst: u32,
    /// Frames in all.
    pub frames: u64,
}

/// What one trial gave.
#[derive(Clone, Debug)]
pub struct TrialOutcome {
    /// What was asked.
    pub plan: TrialPlan,
    /// When the first frame was planned.
    pub start: Time,
    /// The sending side.
    pub sent: Sent,
    /// The receiving side.
    pub received: Received,
    /// By which clock received frames were stamped.
    pub stamps: RxStamps,
    /// Where the frames are that were sent and did not arrive.
    pub losses: Losses,
}

impl TrialOutcome {
    /// For the search.
    pub const fn result(&self) -> TrialResult {
        TrialResult {
            rate: self.plan.rate,
            planned: self.sent.planned,
            sent: self.sent.sent,
            received: self.received.stream.received,
        }
    }

    /// Whether the latency is that of stamps of arrival, since frames bore some.
    pub fn is_stamped(&self) -> bool {
        self.received.stamped.as_ref().is_some_and(|stamped| !stamped.delay.is_empty())
    }

    /// What the latency goes by, as reports name it.
    pub fn timestamps(&self) -> &'static str {
        if self.is_stamped() { self.stamps.name() } else { RxStamps::Off.name() }
    }

    /// Latency from the planned send time: to the stamp of arrival where frames bore any, or else to
    /// when the receiver read the frame.
    pub fn latency(&self) -> &LatencyHistogram {
        match &self.received.stamped {
            Some(stamped) if !stamped.delay.is_empty() => &stamped.delay,
            _ => &self.received.stream.delay,
        }
    }

    /// For the report.
    pub fn flow(&self, id: u32, from: &str, to: &str) -> FlowReport {
        let stream = &self.received.stream;
        let counts = SequenceCounts::of(self.sent.planned, self.sent.sent, stream);
        let finish = stream.last_arrival.map(Time::as_ns);
        let start = self.start.as_ns();
        FlowReport {
            id,
            from: from.to_owned(),
            to: to.to_owned(),
            transport: "probe".to_owned(),
            bytes: stream.bytes,
            start_ns: start,
            finish_ns: finish,
            goodput_bps: finish
                .map_or(0, |finish| bits_per_second(stream.bytes, finish.saturating_sub(start))),
            verified: counts.all_verified(),
            stream: Some(counts),
            latency_ns: Some(self.latency().percentiles()),
            ..FlowReport::default()
        }
    }
}

/// Sends a whole schedule; the far end is somebody else's loop.
pub fn run_sender<S: FrameStore, P: Rings<S>>(
    mut sender: Sender,
    store: &mut S,
    port: &mut P,
    wait: &mut impl Wait<P>,
    interrupted: &AtomicBool,
) -> Sent {
    loop {
        let worked = sender.turn(wait, store, port);
        let now = wait.now();
        if sender.is_done(now) || interrupted.load(Ordering::Relaxed) {
            break;
        }
        if worked {
            wait.worked();
        } else {
            // A pending ring wants another kick soon, whatever the schedule says.
            let look =
                if port.is_pending() { now + Duration::from_us(20) } else { now + LOOK_EVERY };
            wait.idle(port, sender.next_due().min(look));
        }
    }
    let give_up = wait.now() + COMPLETE_WAIT_MAX;
    while port.is_pending() && wait.now() < give_up {
        port.flush(store);
        wait.idle(port, wait.now() + Duration::from_us(20));
    }
    sender.into_sent()
}

/// When a receiver has waited long enough.
#[derive(Clone, Copy, Debug, Default)]
struct Patience {
    /// When the sender ended, and how many frames it sent.
    ended: Option<(Time, u64)>,
}

impl Patience {
    fn is_over(&self, receiver: &Receiver, now: Time) -> bool {
        let Some((at, sent)) = self.ended else { return false };
        let last = receiver.last_arrival().map_or(at, |last| last.max(at));
        receiver.received() >= sent || now >= last + QUIET || now >= at + WAIT_MAX
    }
}

/// Receives until the sender has ended and its frames have come or are given up. `sent` tells how
/// many frames the sender sent, once it has ended.
pub fn run_receiver<S: FrameStore, P: Rings<S>>(
    mut receiver: Receiver,
    store: &mut S,
    port: &mut P,
    wait: &mut impl Wait<P>,
    mut sent: impl FnMut() -> Option<u64>,
) -> Received {
    let mut patience = Patience::default();
    let mut look_at = Time::ZERO;
    loop {
        let worked = receiver.turn(wait, store, port);
        let now = wait.now();
        if now >= look_at {
            look_at = now + LOOK_EVERY;
            if patience.ended.is_none() {
                patience.ended = sent().map(|sent| (now, sent));
            }
            if patience.is_over(&receiver, now) {
                return receiver.finish(wait, port);
            }
        }
        if worked {
            wait.worked();
        } else {
            wait.idle(port, look_at);
        }
    }
}

/// Sends and receives in one loop: the round trip over a reflector, on one port.
pub fn run_round_trip<S: FrameStore, P: Rings<S>>(
    mut sender: Sender,
    mut receiver: Receiver,
    store: &mut S,
    port: &mut P,
    wait: &mut impl Wait<P>,
    interrupted: &AtomicBool,
) -> (Sent, Received) {
    let mut patience = Patience::default();
    loop {
        let sent = sender.turn(wait, store, port);
        let came = receiver.turn(wait, store, port);
        let now = wait.now();
        if patience.ended.is_none() && (sender.is_done(now) || interrupted.load(Ordering::Relaxed))
        {
            patience.ended = Some((now, sender.sent()));
        }
        if patience.is_over(&receiver, now) {
            break;
        }
        if sent || came {
            wait.worked();
        } else {
            let due = if patience.ended.is_some() { Time::NEVER } else { sender.next_due() };
            let look =
                if port.is_pending() { now + Duration::from_us(20) } else { now + LOOK_EVERY };
            wait.idle(port, due.min(look));
        }
    }
    (sender.into_sent(), receiver.finish(wait, port))
}

/// Reflects until `stop`.
pub fn run_reflector<S: FrameStore, P: Rings<S>>(
    reflector: &mut Reflector,
    store: &mut S,
    port: &mut P,
    wait: &mut impl Wait<P>,
    stop: &AtomicBool,
) {
    while !stop.load(Ordering::Relaxed) {
        if reflector.turn(store, port) {
            wait.worked();
        } else {
            let look =
                if port.is_pending() { Duration::from_us(20) } else { Duration::from_ms(50) };
            wait.idle(port, wait.now() + look);
        }
    }
    reflector.drain(store);
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::collections::VecDeque;
    use std::rc::Rc;

    use super::*;
    use crate::frame::{Frame, SlabStore};
    use crate::measure::latency::ends::Stall;
    use crate::measure::latency::probe::{Carrier, Probe, read_probe};
    use crate::measure::latency::schedule::Schedule;
    use crate::measure::latency::stamps::StampClock;
    use crate::wire::MacAddr;
    use crate::xdp::ClockReading;

    /// Time that passes only when a loop waits: 1 us each.
    #[derive(Clone, Default)]
    struct Steps(Rc<Cell<u64>>);

    impl Wait<Loop> for Steps {
        fn now(&self) -> Time {
            Time::from_ns(self.0.get())
        }
        fn at(&self, monotonic_ns: u64) -> Time {
            Time::from_ns(monotonic_ns)
        }
        fn idle(&mut self, _: &Loop, _: Time) {
            self.0.set(self.0.get() + 1_000);
        }
        fn worked(&mut self) {
            self.0.set(self.0.get() + 1_000);
        }
    }

    /// What is sent comes back at once, but for what `lose` takes; at most `room` frames wait.
    /// Every tenth frame bears no stamp; the others one of a device's clock, 2 us after their time.
    struct Loop {
        ring: RefCell<VecDeque<Frame>>,
        time: Steps,
        room: usize,
        lose: fn(u64) -> bool,
        twice: fn(u64) -> bool,
        sent: u64,
    }

    impl Loop {
        fn new(lose: fn(u64) -> bool, twice: fn(u64) -> bool) -> Self {
            let time = Steps::default();
            Self { ring: RefCell::default(), time, room: 100_000, lose, twice, sent: 0 }
        }
    }

    impl Rings<SlabStore> for Loop {
        fn receive(&mut self, _: &mut SlabStore, received: &mut Vec<Frame>) -> usize {
            let before = received.len();
            received.extend(self.ring.borrow_mut().drain(..));
            received.len() - before
        }
        fn send(&mut self, store: &mut SlabStore, frame: Frame) -> Result<(), Frame> {
            if self.ring.borrow().len() >= self.room {
                return Err(frame);
            }
            let n = self.sent;
            self.sent += 1;
            if (self.twice)(n) {
                self.ring.borrow_mut().push_back(store.duplicate(&frame).expect("room"));
            }
            if (self.lose)(n) {
                store.release(frame);
            } else {
                self.ring.borrow_mut().push_back(frame);
            }
            Ok(())
        }
        fn flush(&mut self, _: &mut SlabStore) {}
        fn is_pending(&self) -> bool {
            false
        }
        fn refused(&self) -> u64 {
            0
        }
        fn stamp_ns(&self, store: &SlabStore, frame: &Frame) -> Option<u64> {
            let header = read_probe(store.head(frame), Carrier::Ethernet).expect("a probe");
            let arrival = header.planned.as_ns() + 2_000;
            (!header.sequence.is_multiple_of(10)).then(|| device_ns(arrival))
        }
        fn read_device_clock(&mut self) -> Option<ClockReading> {
            let now = self.time.0.get();
            let device_ns = device_ns(now);
            Some(ClockReading { before_ns: now, device_ns, after_ns: now })
        }
    }

    /// A device's clock that is 7 s ahead and runs 50 ppm fast.
    fn device_ns(ns: u64) -> u64 {
        7_000_000_000 + ns + ns / 20_000
    }

    fn trial(port: &mut Loop, pps: u64, frames: u64, stall: Option<Stall>) -> TrialOutcome {
        stamped_trial(port, pps, frames, stall, None)
    }

    fn stamped_trial(
        port: &mut Loop,
        pps: u64,
        frames: u64,
        stall: Option<Stall>,
        stamps: Option<StampClock>,
    ) -> TrialOutcome {
        let mut store = SlabStore::new(200_000);
        let mac = |n| MacAddr([2, 0, 0, 0, 0, n]);
        let probe = Probe::new(1, Carrier::Ethernet, mac(1), mac(2), 60).expect("fits");
        let mut time = port.time.clone();
        let start = Time::from_ns(5_000);
        let rate = FrameRate::from_pps(pps);
        let schedule = Schedule::new(start, rate, 1, frames);
        let (sent, received) = run_round_trip(
            Sender::new(probe.clone(), schedule),
            Receiver::new(probe, stall, stamps),
            &mut store,
            port,
            &mut time,
            &AtomicBool::new(false),
        );
        assert_eq!(store.outstanding(), 0, "every frame came back to its store");
        let plan = TrialPlan { rate, burst: 1, frames };
        let losses = Losses::default();
        TrialOutcome { plan, start, sent, received, stamps: RxStamps::Hardware, losses }
    }

    #[test]
    fn a_stall_shows_as_the_samples_that_it_delays() {
        let pps = 10_000;
        let stall = Stall { at: Time::from_ns(300_000_000), length: Duration::from_ms(50) };
        let quiet = trial(&mut Loop::new(|_| false, |_| false), pps, 10_000, None);
        let outcome = trial(&mut Loop::new(|_| false, |_| false), pps, 10_000, Some(stall));
        assert_eq!(outcome.received.stream.received, 10_000);
        assert_eq!(quiet.received.stream.delay.count_above_ns(25_000_000), 0);
        // 50 ms at 10 Kpps delay 500 frames, half of them by more than 25 ms.
        let late = outcome.received.stream.delay.count_above_ns(25_000_000);
        assert!(late.abs_diff(pps * 25 / 1_000) <= 1, "{late} samples above 25 ms");
        let max = outcome.received.stream.delay.percentiles().max;
        assert!((49_900_000..50_100_000).contains(&max), "{max}");
    }

    #[test]
    fn stamps_show_the_latency_that_a_stalled_reader_hides() {
        let stall = Stall { at: Time::from_ns(300_000_000), length: Duration::from_ms(50) };
        let mut port = Loop::new(|_| false, |n| n % 100 == 3);
        let clock = Some(StampClock::Device);
        let outcome = stamped_trial(&mut port, 10_000, 10_000, Some(stall), clock);
        assert_eq!((outcome.is_stamped(), outcome.timestamps()), (true, "hardware"));
        let stamped = outcome.received.stamped.as_ref().expect("asked for");
        let counts = stamped.counts;
        assert_eq!((counts.frames_with, counts.frames_without), (9_000, 1_000), "{counts:?}");
        assert_eq!((counts.frames_clock_set, counts.before_planned), (0, 0));
        assert!(counts.clock_drift_ppb.is_some_and(|ppb| ppb.abs_diff(50_000) <= 10), "{counts:?}");
        let latency = outcome.latency().percentiles();
        assert!(latency.min >= 1_995 && latency.max <= 2_005, "{latency:?}");
        // What the reader did shows where it belongs.
        assert!(stamped.to_reader.percentiles().max > 49_000_000);
        assert!(outcome.received.stream.delay.percentiles().max > 49_000_000);
        let flow = outcome.flow(1, "a", "b");
        assert_eq!(flow.latency_ns.expect("samples").count, 9_000);
        assert_eq!(flow.stream.expect("a stream").received, 10_000);
    }

    #[test]
    fn a_ring_that_stays_full_makes_frames_late_and_hides_none() {
        let mut port = Loop::new(|_| false, |_| false);
        port.room = 4;
        // While the receiver does not look, the ring is full and nothing can be sent.
        let stall = Stall { at: Time::from_ns(20_000_000), length: Duration::from_ms(5) };
        let outcome = trial(&mut port, 100_000, 10_000, Some(stall));
        assert_eq!(outcome.result().lost(), 0);
        assert!(outcome.sent.lateness.percentiles().max > 4_900_000, "{:?}", outcome.sent);
        let late = outcome.received.stream.delay.count_above_ns(2_500_000);
        // Catching up takes as long as a few more frames.
        assert!(late.abs_diff(250) <= 10, "{late} samples above 2.5 ms");
    }

    #[test]
    fn what_is_sent_is_received_or_lost() {
        let mut port = Loop::new(|n| n % 100 == 7, |n| n % 1_000 == 5);
        let outcome = trial(&mut port, 100_000, 20_000, None);
        let flow = outcome.flow(1, "a", "b");
        let counts = flow.stream.expect("a stream");
        assert_eq!((counts.planned, counts.sent), (20_000, 20_000));
        assert_eq!((counts.received, counts.lost, counts.duplicates), (19_800, 200, 20));
        assert_eq!(counts.sent, counts.received + counts.lost);
        assert_eq!(flow.latency_ns.expect("samples").count, 19_800);
        assert!(flow.verified);
        assert_eq!(outcome.result().lost(), 200);
    }

    #[test]
    fn a_sender_that_cannot_keep_up_ends_and_says_so() {
        let mut port = Loop::new(|_| false, |_| false);
        port.room = 1;
        // One frame a microsecond is all that this loop can do.
        let outcome = trial(&mut port, 10_000_000, 100_000, None);
        assert!(outcome.sent.sent < 100_000 && outcome.sent.sent > 10_000, "{:?}", outcome.sent);
        assert_eq!(outcome.received.stream.received, outcome.sent.sent);
        assert!(outcome.result().is_sender_limited());
    }
}
