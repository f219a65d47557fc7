//! The host itself: one port, one line, answers and streams out, echoes and sinks in.

mod pauses;
mod readiness;

use std::collections::BinaryHeap;
use std::collections::VecDeque;
use std::collections::binary_heap::PeekMut;

use std::cmp::Reverse;

use super::answer::{self, Answer};
use super::classify::{Addresses, StreamFrame, Verdict};
use super::config::{HostConfig, HostConfigError};
use super::lossless::{LosslessTurns, Turn};
use super::queue::PlannedQueue;
use super::sink::{ExpectedStream, Sink, StreamReceived};
use super::source::{Source, StreamSent, stream_payload};
use super::stats::HostStats;
use super::storm::Storm;
use crate::catch_up::CatchUp;
use crate::frame::{Frame, FrameStore};
use crate::ledger::{DropReason, Ledger};
use crate::line::Line;
use crate::node::{Node, PortId, Transmission};
use crate::pause::Pauses;
use crate::rng::Rng;
use crate::time::{Duration, Time};
use crate::wire::WireError;
use crate::wire::pfc;

const PORT: PortId = PortId(0);

/// An agent host: answers ARP, neighbour solicitations and echo requests for its addresses,
/// announces itself at the start and when its link comes up, sends its streams and checks those that end at it.
///
/// A frame of a stream leaves at its planned time, as soon as the line is free. After a late driver
/// the overdue ones follow at twice the planned pace, see [`CatchUp`]; each carries its planned
/// time, from which its latency counts. What is planned is not stored: however far behind a host is,
/// its overdue frames take no memory, and those that are still unsent when the run ends are in
/// [`StreamSent::planned`] and not in `sent`.
#[derive(Debug)]
pub struct Host {
    name: String,
    us: Addresses,
    line: Line,
    /// Answers and announcements that wait for the line, each since when.
    answers: VecDeque<(Time, Frame)>,
    answers_max: usize,
    sources: Vec<Source>,
    /// The sources that are not lossless and have a frame to come, by its planned time.
    turns: BinaryHeap<Reverse<(Time, usize)>>,
    lossless: LosslessTurns,
    storms: Vec<Storm>,
    planned: PlannedQueue,
    catch_up: CatchUp,
    /// By stream number.
    sinks: Vec<Sink>,
    ledger: Ledger,
    stats: HostStats,
    link_up: bool,
    held: bool,
    /// When the line is free and something waits for it: asked several times for each frame, and
    /// found anew behind whatever changes it.
    ready_at: Time,
    /// When the host announces itself, until it has.
    announce_at: Option<Time>,
    /// Where the payload of a frame that is not what was sent is put together.
    scratch: Vec<u8>,
}

impl Host {
    /// The host of `config`, at which the streams `expected` end.
    ///
    /// # Errors
    /// What [`HostConfig::check`] finds.
    pub fn new(config: &HostConfig, expected: &[ExpectedStream]) -> Result<Self, HostConfigError> {
        config.check()?;
        let line = Line::new(config.rate, config.overhead_bytes);
        let sources = config.streams.iter().map(|stream| Source::new(config, stream));
        let sources = sources.collect::<Result<Vec<_>, _>>()?;
        let pauses = Pauses::new(config.rate, config.lossless, config.obeys_pause);
        let mut lossless = LosslessTurns::new(pauses);
        let mut turns = BinaryHeap::with_capacity(sources.len());
        for (index, source) in sources.iter().enumerate() {
            let planned = source.next_planned();
            match source.lossless() {
                Some(class) => lossless.push(class, planned, index),
                None if planned != Time::NEVER => turns.push(Reverse((planned, index))),
                None => {}
            }
        }
        let storms = config.storms.iter().enumerate().map(|(place, storm)| {
            let rng = Rng::for_node(config.seed, &format!("{}/storm {place}", config.name));
            Storm::new(storm, config.mac, config.overhead_bytes, rng)
        });
        let mut expected = expected.to_vec();
        expected.sort_unstable_by_key(|stream| stream.id);
        expected.dedup();
        let answers_max = usize::try_from(config.queue_frames_max).unwrap_or(usize::MAX);
        let mut host = Self {
            name: config.name.clone(),
            us: Addresses {
                mac: config.mac,
                ipv4: config.ipv4.map(|(address, _)| address),
                ipv6: config.ipv6.map(|(address, _)| address),
                mtu_bytes: config.mtu_bytes,
            },
            answers: VecDeque::with_capacity(answers_max),
            answers_max,
            turns,
            lossless,
            storms: storms.collect(),
            sources,
            planned: PlannedQueue::new(line.clone(), config.queue_frames_max),
            catch_up: CatchUp::default(),
            line,
            sinks: expected.into_iter().map(Sink::new).collect(),
            ledger: Ledger::default(),
            stats: HostStats::default(),
            link_up: true,
            held: false,
            announce_at: Some(config.announce_at),
            scratch: Vec::new(),
            ready_at: Time::NEVER,
        };
        host.ready_at = host.find_ready_at();
        Ok(host)
    }

    /// The name in topology files and reports.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the host has done.
    pub const fn stats(&self) -> &HostStats {
        &self.stats
    }

    /// What was sent of each stream until `now`, in the order of the configuration.
    pub fn streams_sent(&self, now: Time) -> impl Iterator<Item = StreamSent> + '_ {
        self.sources.iter().map(move |source| source.report(now))
    }

    /// What has come of each stream that ends here, by number.
    pub fn streams_received(&self) -> impl Iterator<Item = &StreamReceived> {
        self.sinks.iter().map(Sink::report)
    }

    /// Sending time that a late driver could not use.
    pub const fn credit_expired(&self) -> Duration {
        self.line.credit_expired()
    }

    /// Bytes that wait for the line at `now`: answers, and frames of streams that were due before, at
    /// most as many as the queue holds.
    pub fn queue_bytes(&self, now: Time) -> u64 {
        let mut places = self.answers_max as u64;
        let mut bytes: u64 =
            self.answers.iter().map(|(_, frame)| u64::from(frame.len_bytes())).sum();
        for source in &self.sources {
            let waiting = source.waiting(now.before(Duration::from_ps(1)), places);
            places -= waiting;
            bytes += waiting * u64::from(source.frame_bytes());
        }
        bytes
    }

    /// True when every stream and storm has sent its last frame and nothing waits for the line.
    pub fn has_finished(&self) -> bool {
        self.turns.is_empty()
            && self.lossless.is_empty()
            && self.answers.is_empty()
            && self.next_storm_at() == Time::NEVER
    }

    fn drop_frame<S: FrameStore>(&mut self, store: &mut S, frame: Frame, reason: DropReason) {
        self.ledger.drops.count(reason);
        store.release(frame);
    }

    /// Queues a frame that the host made; it is in the books as generated.
    fn queue_answer<S: FrameStore>(&mut self, now: Time, store: &mut S, frame: Frame) -> bool {
        self.ledger.generated += 1;
        if !self.link_up {
            self.drop_frame(store, frame, DropReason::LinkDown);
            return false;
        }
        if self.answers.len() >= self.answers_max {
            self.drop_frame(store, frame, DropReason::NicQueueFull);
            return false;
        }
        self.answers.push_back((now, frame));
        self.ready_at = self.find_ready_at();
        self.stats.answers_queued_max =
            self.stats.answers_queued_max.max(self.answers.len() as u64);
        true
    }

    /// Makes a frame of an answer and queues it; true when it waits for the line.
    fn send_answer<S: FrameStore>(
        &mut self,
        now: Time,
        store: &mut S,
        answer: Result<Answer, WireError>,
    ) -> bool {
        // The buffer of an answer holds the longest one: no builder refuses it.
        let Ok(answer) = answer else { return false };
        match store.allocate_from(answer.bytes()) {
            Some(frame) => self.queue_answer(now, store, frame),
            None => {
                self.ledger.generated += 1;
                self.ledger.drops.count(DropReason::NoFrameToSend);
                false
            }
        }
    }

    fn announce<S: FrameStore>(&mut self, now: Time, store: &mut S) {
        self.announce_at = None;
        if let Some(own) = self.us.ipv4 {
            let sent = self.send_answer(now, store, Answer::arp_announcement(&self.us, own));
            self.stats.announcements_sent += u64::from(sent);
        }
        if let Some(own) = self.us.ipv6 {
            let answer = Answer::unsolicited_advertisement(&self.us, own);
            let sent = self.send_answer(now, store, answer);
            self.stats.announcements_sent += u64::from(sent);
        }
    }

    /// Takes a stream's frame in, or says why not.
    fn take_stream_frame<S: FrameStore>(
        &mut self,
        now: Time,
        store: &S,
        frame: &Frame,
        found: &StreamFrame,
    ) -> Result<(), DropReason> {
        let StreamFrame { header, payload_at, payload_bytes, is_ce, sum } = *found;
        let payload = stream_payload(header.stream, header.sequence, payload_bytes);
        let content_right = store.payload_matches(frame, payload_at, payload);
        if let Some(mut sum) = sum {
            if content_right {
                sum.add_u16(payload.ones_complement_sum());
            } else {
                self.scratch.clear();
                store.copy_out(frame, &mut self.scratch);
                let from = usize::try_from(payload_at).unwrap_or(usize::MAX);
                sum.add_bytes(self.scratch.get(from..).unwrap_or_default());
            }
            if !sum.is_valid() {
                return Err(DropReason::BadChecksum);
            }
        }
        let Ok(place) = self.sinks.binary_search_by_key(&header.stream, Sink::id) else {
            self.stats.unknown_stream_frames += 1;
            return Err(DropReason::Unhandled);
        };
        self.stats.stream_frames_received += 1;
        let (sequence, planned) = (header.sequence, header.planned);
        self.sinks[place].take(now, sequence, planned, frame.len_bytes(), is_ce, content_right);
        Ok(())
    }

    /// Goes on to the source whose turn is next after that of `index`.
    fn end_turn(&mut self, index: usize) {
        let next = self.sources[index].next_planned();
        if let Some(mut first) = self.turns.peek_mut() {
            debug_assert_eq!(first.0.1, index, "the first in turn has had it");
            if next == Time::NEVER {
                PeekMut::pop(first);
            } else {
                *first = Reverse((next, index));
            }
        }
    }

    /// Drops every planned frame that is due, for the link is down.
    fn drop_planned(&mut self, now: Time) {
        while let Some(Reverse((at, index))) = self.turns.peek().copied() {
            if at > now {
                break;
            }
            self.ledger.generated += 1;
            self.ledger.drops.count(DropReason::LinkDown);
            self.sources[index].drop_next();
            self.end_turn(index);
        }
        self.drop_planned_lossless(now);
    }

    /// The next frame of the streams that is due at `now`, and since when it is.
    fn next_stream_frame<S: FrameStore>(
        &mut self,
        now: Time,
        store: &mut S,
    ) -> Option<(Time, usize, Frame)> {
        while let Some(Reverse((planned, index))) = self.turns.peek().copied() {
            let due = self.due_at(planned);
            if due > now {
                break;
            }
            let source = &mut self.sources[index];
            self.ledger.generated += 1;
            if let Some(ideal) = self.planned.admit(planned, source.frame_bytes()) {
                let frame = source.make_next(store);
                self.end_turn(index);
                let Some(frame) = frame else {
                    self.ledger.drops.count(DropReason::NoFrameToSend);
                    continue;
                };
                self.catch_up.sent(now, planned, self.line.busy_until(), ideal);
                return Some((due, index, frame));
            } else {
                source.drop_next();
                self.ledger.drops.count(DropReason::NicQueueFull);
                self.end_turn(index);
            }
        }
        None
    }

    fn transmit(&mut self, now: Time, since: Time, frame: Frame) -> Transmission {
        let (starts, ends) = self.line.occupy(now, since, frame.len_bytes());
        self.ledger.transmitted += 1;
        self.stats.tx_frames += 1;
        self.stats.tx_bytes += u64::from(frame.len_bytes());
        Transmission { frame, starts, ends }
    }

    fn transmit_of_stream(
        &mut self,
        now: Time,
        since: Time,
        index: usize,
        frame: Frame,
    ) -> Transmission {
        let sent = self.transmit(now, since, frame);
        self.sources[index].count_sent(sent.starts, sent.ends);
        self.stats.stream_frames_sent += 1;
        sent
    }

    /// Sends what comes next at `now`, when the line is free.
    fn send_next<S: FrameStore>(&mut self, now: Time, store: &mut S) -> Option<Transmission> {
        self.end_pauses(now);
        if let Some((planned, frame)) = self.next_storm_frame(now, store) {
            self.stats.storm_frames_sent += 1;
            return Some(self.transmit(now, planned, frame));
        }
        let others_at = self.others_at();
        if let Turn::Lossless(class) = self.lossless.next_turn(now, others_at) {
            let (since, index, frame) = self.next_lossless_frame(class, store)?;
            return Some(self.transmit_of_stream(now, since, index, frame));
        }
        if others_at > now {
            return None;
        }
        // First come, first served; an answer of the same instant goes before a stream's frame.
        let next_planned = self.next_planned();
        if let Some((since, frame)) =
            self.answers.pop_front_if(|(since, _)| *since <= now && *since <= next_planned)
        {
            return Some(self.transmit(now, since, frame));
        }
        if let Some((due, index, frame)) = self.next_stream_frame(now, store) {
            return Some(self.transmit_of_stream(now, due, index, frame));
        }
        // What was planned before the answer found no place, or waits while the host catches up.
        let (since, frame) = self.answers.pop_front_if(|(since, _)| *since <= now)?;
        Some(self.transmit(now, since, frame))
    }
}

impl<S: FrameStore> Node<S> for Host {
    fn on_frame(&mut self, now: Time, store: &mut S, _port: PortId, mut frame: Frame) {
        self.ledger.received += 1;
        self.stats.rx_frames += 1;
        self.stats.rx_bytes += u64::from(frame.len_bytes());
        if pfc::is_mac_control(store.head(&frame)) {
            return self.take_mac_control(now, store, frame);
        }
        let verdict = self.us.classify(store.head(&frame), frame.len_bytes());
        let turned = match verdict {
            Verdict::Drop(reason) => return self.drop_frame(store, frame, reason),
            Verdict::Heard => {
                self.stats.announcements_heard += 1;
                self.ledger.consumed += 1;
                return store.release(frame);
            }
            Verdict::AnswerArp { asker, l2_bytes } => {
                if let Some(own) = self.us.ipv4 {
                    let l2 = &store.head(&frame)[..l2_bytes];
                    let answer = Answer::arp_reply(l2, &self.us, own, &asker);
                    self.stats.arp_answered += u64::from(self.send_answer(now, store, answer));
                }
                self.ledger.consumed += 1;
                return store.release(frame);
            }
            Verdict::AnswerSolicitation { asker, asker_mac, l2_bytes } => {
                if let Some(own) = self.us.ipv6 {
                    let l2 = &store.head(&frame)[..l2_bytes];
                    let answer = Answer::advertisement(l2, &self.us, own, asker, asker_mac);
                    let sent = self.send_answer(now, store, answer);
                    self.stats.solicitations_answered += u64::from(sent);
                }
                self.ledger.consumed += 1;
                return store.release(frame);
            }
            Verdict::Stream(found) => {
                // Padding is no payload.
                let end = found.payload_at.saturating_add(found.payload_bytes);
                if end < frame.len_bytes() {
                    store.truncate(&mut frame, end);
                }
                match self.take_stream_frame(now, store, &frame, &found) {
                    Ok(()) => self.ledger.consumed += 1,
                    Err(reason) => self.ledger.drops.count(reason),
                }
                return store.release(frame);
            }
            Verdict::EchoV4 { l3, icmp } => {
                answer::turn_echo_v4(store.head_mut(&mut frame), &self.us, l3, icmp)
            }
            Verdict::EchoV6 { l3, icmp } => {
                answer::turn_echo_v6(store.head_mut(&mut frame), &self.us, l3, icmp)
            }
        };
        if turned.is_err() {
            return self.drop_frame(store, frame, DropReason::Malformed);
        }
        // The request is consumed; the reply that its bytes became is a frame of our own.
        self.ledger.consumed += 1;
        if self.queue_answer(now, store, frame) {
            match verdict {
                Verdict::EchoV6 { .. } => self.stats.echo_v6_answered += 1,
                _ => self.stats.echo_v4_answered += 1,
            }
        }
    }

    fn on_timer(&mut self, now: Time, store: &mut S) {
        if !self.link_up {
            self.drop_planned(now);
            self.ready_at = self.find_ready_at();
        } else if self.announce_at.is_some_and(|at| at <= now) {
            self.announce(now, store);
        }
    }

    fn next_ready_port(&mut self, now: Time) -> Option<PortId> {
        (self.link_up && !self.held && self.ready_at <= now).then_some(PORT)
    }

    fn poll_transmit(&mut self, now: Time, store: &mut S, _port: PortId) -> Option<Transmission> {
        if !self.link_up || self.held || self.line.busy_until() > now {
            return None;
        }
        let sent = self.send_next(now, store);
        self.ready_at = self.find_ready_at();
        sent
    }

    fn next_deadline(&self) -> Time {
        if !self.link_up {
            let planned = self.next_planned().min(self.lossless.next_planned());
            return planned.min(self.next_storm_at());
        }
        debug_assert_eq!(self.ready_at, self.find_ready_at(), "found anew behind every change");
        let ready = if self.held { Time::NEVER } else { self.ready_at };
        ready.min(self.announce_at.unwrap_or(Time::NEVER))
    }

    fn on_link(&mut self, now: Time, store: &mut S, _port: PortId, up: bool) {
        if up == self.link_up {
            return;
        }
        // Planned frames that are due were for the time before: on the way down they were waiting,
        // on the way up the link was down.
        self.drop_planned(now);
        while let Some((_, frame)) = self.answers.pop_front() {
            self.drop_frame(store, frame, DropReason::LinkDown);
        }
        self.planned.restart(self.line.clone());
        self.catch_up.reset();
        self.lossless.pauses_mut().clear(now);
        self.link_up = up;
        if up {
            self.announce(now, store);
        }
        self.ready_at = self.find_ready_at();
    }

    fn hold(&mut self, _now: Time, _port: PortId, held: bool) {
        self.held = held;
    }

    fn is_quiet(&self) -> bool {
        // The announcement goes out at its time, or when the link comes up.
        (self.announce_at.is_none() || !self.link_up) && self.has_finished()
    }

    fn ledger(&self) -> Ledger {
        let waiting = self.answers.len() as u64;
        Ledger { queued: self.ledger.queued + waiting, ..self.ledger }
    }

    fn drain(&mut self, store: &mut S) {
        while let Some((_, frame)) = self.answers.pop_front() {
            self.ledger.queued += 1;
            store.release(frame);
        }
        self.turns.clear();
        self.lossless.clear();
        self.storms.clear();
        self.ready_at = self.find_ready_at();
    }
}
