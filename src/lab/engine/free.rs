//! Free time: nodes driven by the OS clock, as fast as the machine goes. What came late is recorded.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam::channel::Receiver;

use crate::frame::{Frame, FrameStore};
use crate::lab::engine::port_io::{PortIo, SendFull};
use crate::lab::engine::visit::{LinkVisit, PortBooks, Visit, WorkerBooks};
use crate::measure::LatencyHistogram;
use crate::node::{Node, PortId, Transmission};
use crate::sim::{Fate, LinkChange, LinkCounters, LinkModel, Station};
use crate::time::{Duration, Time};

/// The clock of free time and how a worker waits.
pub trait Pace {
    /// Node time now; never runs backwards.
    fn now(&self) -> Time;

    /// Called when a turn found nothing to do: returns at once, or sleeps until one of `fds` is
    /// readable or node time reaches `until`.
    fn idle<'a>(&mut self, fds: impl IntoIterator<Item = BorrowedFd<'a>>, until: Time);

    /// Called when a turn found something to do.
    fn worked(&mut self);
}

/// How often links are looked at, and visits are let in, in node time.
const CHORES_EVERY: Duration = Duration::from_ms(5);

/// Frames a station may send in one turn, so that no station starves the rings of another.
const SENDS_PER_TURN: u32 = 256;

/// A port of a station, with its rings.
#[derive(Debug)]
pub struct FreePort<P> {
    io: P,
    /// The direction towards the port: its delay is added at the ring, since the wire has none.
    towards: LinkModel,
    /// The direction away from it, when the far end is not ours: no ring of ours receives there, so
    /// the delay is added before the ring here.
    away: Option<LinkModel>,
    /// Frames that wait for the end of that delay.
    delayed: VecDeque<(Time, Frame)>,
    held: bool,
    dirty: bool,
    sent: u64,
    tx_ring_full: u64,
}

impl<P> FreePort<P> {
    /// A port over `io`; `towards` is the link's direction to the port, and `away` the other one
    /// when the far end is not ours.
    pub const fn new(io: P, towards: LinkModel, away: Option<LinkModel>) -> Self {
        Self {
            io,
            towards,
            away,
            delayed: VecDeque::new(),
            held: false,
            dirty: false,
            sent: 0,
            tx_ring_full: 0,
        }
    }

    /// Changes the directions whose models are here.
    fn change_link(&mut self, now: Time, change: LinkChange) {
        self.towards.change(now, change);
        if let Some(away) = &mut self.away {
            away.change(now, change);
        }
    }

    /// This end's part of the link's books while it runs. What the kernel does not say it has lost
    /// counts as on its way: only at the end can nothing be.
    fn books<S: FrameStore>(&self, now: Time) -> PortBooks
    where
        P: PortIo<S>,
    {
        let towards = self.towards.counters();
        let refused = self.io.refused() + self.tx_ring_full;
        let mut counters = LinkCounters {
            sent: self.sent + self.tx_ring_full,
            kernel_dropped: refused + self.io.kernel_lost(),
            ..towards
        };
        if let Some(away) = self.away.as_ref().map(LinkModel::counters) {
            // Nobody of ours sees what the far end sent or got: what came out of the ring was sent,
            // and what went into it has arrived.
            let lost = away.lost + away.lost_down + away.corrupted;
            let gone = lost + refused + self.delayed.len() as u64;
            counters.sent = away.sent + towards.sent;
            counters.delivered += away.sent.saturating_sub(gone);
            counters.lost += away.lost;
            counters.lost_down += away.lost_down;
            counters.corrupted += away.corrupted;
            counters.held_back += away.held_back;
        }
        PortBooks { counters, link: self.towards.state(now) }
    }

    /// The direction away from the port, when the far end is not ours.
    pub const fn away(&self) -> Option<&LinkModel> {
        self.away.as_ref()
    }

    /// When the next delayed frame is due.
    fn next_delayed(&self) -> Time {
        self.delayed.front().map_or(Time::NEVER, |(at, _)| *at)
    }

    /// Puts a frame into the TX ring; one that finds it full for good is dropped and counted.
    #[inline]
    fn push<S: FrameStore>(&mut self, store: &mut S, frame: Frame)
    where
        P: PortIo<S>,
    {
        self.dirty = true;
        match self.io.send(store, frame) {
            Ok(()) => self.sent += 1,
            Err(SendFull(frame)) => {
                self.tx_ring_full += 1;
                store.release(frame);
            }
        }
    }

    /// Sends what the node has handed over, after the link's delay where that is added here.
    #[inline]
    fn transmit<S: FrameStore>(&mut self, now: Time, store: &mut S, sent: Transmission)
    where
        P: PortIo<S>,
    {
        let fate = match &mut self.away {
            None => Fate::Arrives(now),
            Some(model) => model.send(sent.ends),
        };
        match fate {
            Fate::Arrives(at) if at <= now => self.push(store, sent.frame),
            Fate::Arrives(at) => self.delayed.push_back((at, sent.frame)),
            Fate::Lost(_) => store.release(sent.frame),
        }
    }

    /// Sends the delayed frames that are due.
    fn push_delayed<S: FrameStore>(&mut self, now: Time, store: &mut S)
    where
        P: PortIo<S>,
    {
        while let Some((_, frame)) = self.delayed.pop_front_if(|(at, _)| *at <= now) {
            self.push(store, frame);
        }
    }

    /// Gives every delayed frame back to the store, and the number of them.
    pub fn drain<S: FrameStore>(&mut self, store: &mut S) -> u64 {
        let delayed = self.delayed.len() as u64;
        for (_, frame) in self.delayed.drain(..) {
            store.release(frame);
        }
        delayed
    }

    /// The rings, to close them.
    pub const fn io_mut(&mut self) -> &mut P {
        &mut self.io
    }

    /// The rings.
    pub const fn io(&self) -> &P {
        &self.io
    }

    /// The rings, when the port has nothing that is delayed.
    pub fn into_io(self) -> P {
        self.io
    }

    /// The direction towards the port; `sent` in its books is what came out of the ring.
    pub const fn towards(&self) -> &LinkModel {
        &self.towards
    }

    /// Frames that the node put into the TX ring.
    pub const fn sent(&self) -> u64 {
        self.sent
    }

    /// Frames that were dropped because the TX ring stayed full.
    pub const fn tx_ring_full(&self) -> u64 {
        self.tx_ring_full
    }
}

/// A station of a free worker with its ports.
#[derive(Debug)]
pub struct FreeStation<N, P> {
    /// The node and what flies towards it.
    pub station: Station<N>,
    /// Its ports, in the order of their [`PortId`].
    pub ports: Vec<FreePort<P>>,
    /// When it was last served: what was due before is backlog, not lateness.
    served: Time,
}

impl<N, P> FreeStation<N, P> {
    /// A station with its ports.
    pub const fn new(station: Station<N>, ports: Vec<FreePort<P>>) -> Self {
        Self { station, ports, served: Time::ZERO }
    }
}

/// A worker of a free lab: its stations, their rings and its store.
#[derive(Debug)]
pub struct FreeWorker<N, S, P> {
    store: S,
    stations: Vec<FreeStation<N, P>>,
    received: Vec<Frame>,
    lateness: LatencyHistogram,
    chores_at: Time,
}

impl<N, S, P> FreeWorker<N, S, P>
where
    S: FrameStore,
    N: Node<S>,
    P: PortIo<S>,
{
    /// A worker over `store` with `stations`.
    pub fn new(store: S, stations: Vec<FreeStation<N, P>>) -> Self {
        Self {
            store,
            stations,
            received: Vec::with_capacity(1_024),
            lateness: LatencyHistogram::new(),
            chores_at: Time::ZERO,
        }
    }

    /// Runs until `end`, or until `stop` is set, and gives the node time that was reached. `quiet`
    /// shows whether there was nothing left to do when the worker last looked, and `observe` sees
    /// each node a hundred times a second.
    pub fn run<C: Pace>(
        &mut self,
        pace: &mut C,
        end: Time,
        stop: &AtomicBool,
        quiet: &AtomicBool,
        visits: &Receiver<Visit<N>>,
        mut observe: impl FnMut(Time, usize, &N),
    ) -> Time {
        loop {
            let now = pace.now();
            if now >= end || stop.load(Ordering::Relaxed) {
                return now.min(end);
            }
            if now >= self.chores_at {
                self.chores_at = now + CHORES_EVERY;
                self.do_chores(now, visits);
                let all_quiet = self.stations.iter().all(|s| s.station.is_quiet());
                quiet.store(all_quiet, Ordering::Relaxed);
                for (index, station) in self.stations.iter().enumerate() {
                    observe(now, index, station.station.node());
                }
            }
            if self.turn(pace) {
                pace.worked();
            } else {
                let due = self.stations.iter().map(FreeStation::next_event).min();
                let until = due.unwrap_or(Time::NEVER).min(end).min(self.chores_at);
                let ports = self.stations.iter().flat_map(|station| &station.ports);
                pace.idle(ports.flat_map(|port| port.io.wake_fds()), until);
            }
        }
    }

    fn do_chores(&mut self, now: Time, visits: &Receiver<Visit<N>>) {
        for visit in visits.try_iter() {
            match visit {
                Visit::Pass => {}
                Visit::Nodes(work) => {
                    work(now, self.stations.iter_mut().map(|s| s.station.node_mut()).collect());
                }
                Visit::Survey(work) => {
                    let books = self.books(now);
                    work(books, self.stations.iter_mut().map(|s| s.station.node_mut()).collect());
                }
                Visit::Links(links) => {
                    for link in links {
                        self.change_link(now, link);
                    }
                }
            }
        }
        for FreeStation { station, ports, .. } in &mut self.stations {
            for (number, port) in (0..).zip(ports) {
                if let Some(up) = port.io.poll_link(&mut self.store) {
                    // A link that an operator has taken down stays so, whatever its interface does.
                    let up = up && port.towards.state(now).up;
                    station.node_mut().on_link(now, &mut self.store, PortId(number), up);
                }
            }
        }
    }

    fn change_link(&mut self, now: Time, LinkVisit { station, port, change }: LinkVisit) {
        let FreeStation { station, ports, .. } = &mut self.stations[station];
        ports[port.index()].change_link(now, change);
        // The node is told, as it is of a planned change.
        if let LinkChange::Down | LinkChange::Up = change {
            let up = change == LinkChange::Up;
            station.node_mut().on_link(now, &mut self.store, port, up);
        }
    }

    fn books(&self, now: Time) -> WorkerBooks {
        let of_station = |station: &FreeStation<N, P>| {
            station.ports.iter().map(|port| port.books::<S>(now)).collect()
        };
        WorkerBooks {
            now,
            lateness: self.lateness.clone(),
            ports: self.stations.iter().map(of_station).collect(),
        }
    }

    /// One round over all stations; true when a frame moved or a timer was due.
    fn turn<C: Pace>(&mut self, pace: &C) -> bool {
        let mut worked = false;
        for station in &mut self.stations {
            worked |= station.receive(pace, &mut self.store, &mut self.received);
            worked |= station.serve(pace, &mut self.store, &mut self.lateness);
            station.flush(pace, &mut self.store);
        }
        worked
    }

    /// Ends the worker: its store, its stations with their ports, and how late things were served.
    pub fn into_parts(self) -> (S, Vec<FreeStation<N, P>>, LatencyHistogram) {
        (self.store, self.stations, self.lateness)
    }
}

impl<N, P> FreeStation<N, P> {
    fn next_event<S: FrameStore>(&self) -> Time
    where
        N: Node<S>,
    {
        let delayed = self.ports.iter().map(FreePort::next_delayed).min().unwrap_or(Time::NEVER);
        self.station.next_event().min(delayed)
    }

    /// Takes what the rings have. Frames of a link without delay go straight to the node.
    fn receive<S: FrameStore, C: Pace>(
        &mut self,
        pace: &C,
        store: &mut S,
        received: &mut Vec<Frame>,
    ) -> bool
    where
        N: Node<S>,
        P: PortIo<S>,
    {
        let mut worked = false;
        for (number, port) in (0..).zip(&mut self.ports) {
            if port.io.receive(store, received) == 0 {
                continue;
            }
            worked = true;
            let now = pace.now();
            for frame in received.drain(..) {
                match port.towards.send(now) {
                    Fate::Arrives(at) if at <= now => {
                        port.towards.delivered();
                        self.station.hand_in(now, store, PortId(number), frame);
                    }
                    Fate::Arrives(at) => {
                        self.station.arrive(at, PortId(number), frame);
                    }
                    Fate::Lost(_) => store.release(frame),
                }
            }
        }
        worked
    }

    /// Serves what is due, and sends what is ready.
    fn serve<S: FrameStore, C: Pace>(
        &mut self,
        pace: &C,
        store: &mut S,
        lateness: &mut LatencyHistogram,
    ) -> bool
    where
        N: Node<S>,
        P: PortIo<S>,
    {
        let mut now = pace.now();
        for port in &mut self.ports {
            port.push_delayed(now, store);
        }
        let due = self.station.next_event();
        if due > now {
            return false;
        }
        if due > self.served {
            lateness.record(now.since(due));
        }
        self.served = now;
        let ports = &mut self.ports;
        self.station.take_in(now, store, |port, _| ports[port.index()].towards.delivered());
        let mut left = SENDS_PER_TURN;
        let mut is_fresh = false;
        while left > 0 {
            let Some((number, sent)) = self.station.take_out(now, store) else {
                // The clock is read when nothing can go by the last reading, not for each frame: a
                // frame may have taken longer than its time on the wire, and then the next can go.
                let next = self.station.next_event();
                if is_fresh || next == Time::NEVER {
                    break;
                }
                now = pace.now();
                is_fresh = true;
                if next > now {
                    break;
                }
                continue;
            };
            is_fresh = false;
            left -= 1;
            let port = &mut self.ports[number.index()];
            port.transmit(now, store, sent);
            if !port.io.has_room() {
                port.held = true;
                self.station.node_mut().hold(now, number, true);
            }
        }
        true
    }

    /// Wakes the kernel for what was queued, and frees ports whose rings have room again.
    fn flush<S: FrameStore, C: Pace>(&mut self, pace: &C, store: &mut S)
    where
        N: Node<S>,
        P: PortIo<S>,
    {
        for (number, port) in (0..).zip(&mut self.ports) {
            if !port.dirty {
                continue;
            }
            port.io.flush(store);
            // A port stays dirty while its ring holds what the kernel has not taken.
            port.dirty = port.io.is_pending();
            if port.held && port.io.has_room() {
                port.held = false;
                self.station.node_mut().hold(pace.now(), PortId(number), false);
            }
        }
    }
}
