//! The three parties of a measurement over rings: who sends, who receives, who reflects.
//!
//! Each does one turn when it is called, and never waits.

use super::probe::{Probe, Seen, turn_around};
use super::rings::{Rings, Wait};
use super::schedule::Schedule;
use super::stamps::{StampClock, StampCollector, Stamped};
use crate::frame::{Frame, FrameStore};
use crate::host::{ExpectedStream, Sink, StreamReceived};
use crate::measure::LatencyHistogram;
use crate::time::{Duration, Time};

/// Frames of one turn at most, so that receiving in the same loop is not starved.
const BURST_MAX: u32 = 32;

/// How long after the end of its schedule a sender that is behind goes on.
const OVERTIME: Duration = Duration::from_ms(10);

/// Sends the frames of a schedule, each as soon as its time has come: an open loop, which no
/// answer and no loss slows down.
///
/// After a stall of its own it sends what is overdue at once, and does not pace it as a stream's host
/// does ([`CatchUp`](crate::catch_up::CatchUp)): latency counts from the plan, so that each frame that
/// is held back to look smooth would show the sender's stall as latency of the path once more. The
/// frames that were late already, and by how much, are in [`Sent::lateness`].
#[derive(Debug)]
pub struct Sender {
    probe: Probe,
    schedule: Schedule,
    next: u64,
    unsent: u64,
    refused_before: Option<u64>,
    refused: u64,
    lateness: LatencyHistogram,
}

/// What a sender has done.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Frames of the schedule.
    pub planned: u64,
    /// Frames that the ring took and the port did not refuse.
    pub sent: u64,
    /// Frames that the port refused: no wire of its MTU can carry them.
    pub refused: u64,
    /// How late each frame went into the ring, against its planned time.
    pub lateness: LatencyHistogram,
}

impl Sender {
    /// A sender of `probe`s at the times of `schedule`.
    pub fn new(probe: Probe, schedule: Schedule) -> Self {
        Self {
            probe,
            schedule,
            next: 0,
            unsent: 0,
            refused_before: None,
            refused: 0,
            lateness: LatencyHistogram::new(),
        }
    }

    /// Sends what is due. True when anything was done.
    pub fn turn<S: FrameStore, P: Rings<S>>(
        &mut self,
        wait: &impl Wait<P>,
        store: &mut S,
        port: &mut P,
    ) -> bool {
        let before = *self.refused_before.get_or_insert_with(|| port.refused());
        let mut queued = 0;
        while queued < BURST_MAX && self.next < self.schedule.frames() {
            let planned = self.schedule.planned(self.next);
            let now = wait.now();
            if planned > now {
                break;
            }
            // A full store or ring makes the frame late, not lost.
            let Some(frame) = self.probe.make(store, self.next, planned) else { break };
            if let Err(frame) = port.send(store, frame) {
                store.release(frame);
                break;
            }
            self.lateness.record(now.since(planned));
            self.next += 1;
            queued += 1;
        }
        if queued > 0 || port.is_pending() {
            port.flush(store);
        }
        self.refused = port.refused() - before;
        queued > 0
    }

    /// When the next frame is due; [`Time::NEVER`] after the last.
    pub fn next_due(&self) -> Time {
        if self.next < self.schedule.frames() {
            self.schedule.planned(self.next)
        } else {
            Time::NEVER
        }
    }

    /// True when every frame was sent, or the sender is so far behind that the rest stays unsent.
    pub fn is_done(&mut self, now: Time) -> bool {
        let left = self.schedule.frames() - self.next;
        if left > 0 && now > self.schedule.end() + OVERTIME {
            self.unsent = left;
        }
        left == self.unsent
    }

    /// Frames that the ring has taken and the port has not refused.
    pub const fn sent(&self) -> u64 {
        self.next.saturating_sub(self.refused)
    }

    /// What was done.
    pub fn into_sent(self) -> Sent {
        Sent {
            planned: self.schedule.frames(),
            sent: self.sent(),
            refused: self.refused,
            lateness: self.lateness,
        }
    }
}

/// A time in which a receiver does not look at its ring: what a test makes to see that a stall
/// shows in the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// When it begins.
    pub at: Time,
    /// How long it lasts.
    pub length: Duration,
}

/// A receiver that has not looked at its ring for this long was away: the machine took its core, or
/// a test stalled it. What samples say of such a time is about this machine.
const AWAY_MIN: Duration = Duration::from_ms(5);

/// Absences that are kept, at most.
const AWAY_KEPT_MAX: usize = 10_000;

/// Collects the frames of one stream.
#[derive(Debug)]
pub struct Receiver {
    probe: Probe,
    sink: Sink,
    stall: Option<Stall>,
    stamps: Option<StampCollector>,
    looked_at: Option<Time>,
    away: Vec<Duration>,
    other_streams: u64,
    foreign: u64,
    arrived: Vec<Frame>,
}

/// What a receiver has seen.
#[derive(Clone, Debug)]
pub struct Received {
    /// What came of the stream.
    pub stream: StreamReceived,
    /// Frames of other streams, such as late ones of an earlier trial.
    pub other_streams: u64,
    /// Frames that are no probes.
    pub foreign: u64,
    /// Each time of 5 ms or more in which the receiver did not look at its ring.
    pub away: Vec<Duration>,
    /// What the stamps of arrival gave; None when frames are not stamped.
    pub stamped: Option<Stamped>,
}

impl Receiver {
    /// A receiver of the stream of `probe`; `stamps` is the clock of the stamps that its frames
    /// bear, if they do.
    pub fn new(probe: Probe, stall: Option<Stall>, stamps: Option<StampClock>) -> Self {
        let sink = Sink::new(ExpectedStream { id: probe.stream() });
        Self {
            probe,
            sink,
            stall,
            stamps: stamps.map(StampCollector::new),
            looked_at: None,
            away: Vec::new(),
            other_streams: 0,
            foreign: 0,
            arrived: Vec::with_capacity(256),
        }
    }

    /// Takes what has come. True when anything had.
    pub fn turn<S: FrameStore, P: Rings<S>>(
        &mut self,
        wait: &impl Wait<P>,
        store: &mut S,
        port: &mut P,
    ) -> bool {
        let now = wait.now();
        if self.stall.is_some_and(|stall| now >= stall.at && now < stall.at + stall.length) {
            return false;
        }
        let away = now.since(self.looked_at.unwrap_or(now));
        if away >= AWAY_MIN && self.away.len() < AWAY_KEPT_MAX {
            self.away.push(away);
        }
        self.looked_at = Some(now);
        if let Some(stamps) = self.stamps.as_mut().filter(|stamps| stamps.wants_reading(now)) {
            stamps.device_reads(now, port.read_device_clock(), |ns| wait.at(ns));
        }
        if port.receive(store, &mut self.arrived) == 0 {
            return false;
        }
        // Read behind the ring: no frame arrived later than this.
        let now = wait.now();
        for frame in self.arrived.drain(..) {
            match self.probe.look(store, &frame) {
                Seen::Probe { header, content_right } => {
                    let (planned, len_bytes) = (header.planned, frame.len_bytes());
                    let before = self.sink.report().received;
                    self.sink.take(now, header.sequence, planned, len_bytes, false, content_right);
                    // One that has come before has no latency.
                    let is_new = self.sink.report().received > before;
                    if let Some(stamps) = self.stamps.as_mut().filter(|_| is_new) {
                        let stamp = port.stamp_ns(store, &frame);
                        stamps.take(planned, stamp, now, |ns| wait.at(ns));
                    }
                }
                Seen::OtherStream => self.other_streams += 1,
                Seen::Foreign => self.foreign += 1,
            }
            store.release(frame);
        }
        true
    }

    /// Frames of the stream that have come, each counted once.
    pub const fn received(&self) -> u64 {
        self.sink.report().received
    }

    /// When the last one came.
    pub const fn last_arrival(&self) -> Option<Time> {
        self.sink.report().last_arrival
    }

    /// What was seen, when nothing more is waited for.
    pub fn finish<S: FrameStore, P: Rings<S>>(
        mut self,
        wait: &impl Wait<P>,
        port: &mut P,
    ) -> Received {
        let now = wait.now();
        if let Some(stamps) = self.stamps.as_mut().filter(|stamps| stamps.is_waiting()) {
            stamps.device_reads(now, port.read_device_clock(), |ns| wait.at(ns));
        }
        Received {
            stream: self.sink.report().clone(),
            other_streams: self.other_streams,
            foreign: self.foreign,
            away: self.away,
            stamped: self.stamps.map(StampCollector::finish),
        }
    }
}

/// Sends every probe back where it came from.
#[derive(Debug, Default)]
pub struct Reflector {
    arrived: Vec<Frame>,
    waiting: std::collections::VecDeque<Frame>,
    reflected: u64,
    dropped: u64,
    foreign: u64,
}

/// Frames that wait for a full TX ring, at most.
const WAITING_MAX: usize = 1_024;

impl Reflector {
    /// A reflector that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Turns around what has come. True when anything had.
    pub fn turn<S: FrameStore, P: Rings<S>>(&mut self, store: &mut S, port: &mut P) -> bool {
        let came = port.receive(store, &mut self.arrived);
        for mut frame in self.arrived.drain(..) {
            if !turn_around(store.head_mut(&mut frame)) {
                self.foreign += 1;
                store.release(frame);
            } else if self.waiting.len() < WAITING_MAX {
                self.waiting.push_back(frame);
            } else {
                self.dropped += 1;
                store.release(frame);
            }
        }
        let mut sent = false;
        while let Some(frame) = self.waiting.pop_front() {
            if let Err(frame) = port.send(store, frame) {
                self.waiting.push_front(frame);
                break;
            }
            self.reflected += 1;
            sent = true;
        }
        if sent || port.is_pending() {
            port.flush(store);
        }
        came > 0 || sent
    }

    /// Gives back what still waits, when the reflector ends.
    pub fn drain<S: FrameStore>(&mut self, store: &mut S) {
        for frame in self.waiting.drain(..) {
            self.dropped += 1;
            store.release(frame);
        }
    }

    /// Probes sent back.
    pub const fn reflected(&self) -> u64 {
        self.reflected
    }

    /// Probes dropped because the TX ring stayed full.
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Frames that were no probes.
    pub const fn foreign(&self) -> u64 {
        self.foreign
    }
}
