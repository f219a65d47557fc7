//! Gated time: real frames over real rings, with node time that advances only as far as every
//! worker has served. A gated run equals the simulation of the same file.

use crossbeam::channel::Receiver;

use crate::frame::{Frame, FrameStore};
use crate::lab::engine::gate::{Gate, PanicGuard, Proposal};
use crate::lab::engine::notes::{NoteReceiver, NoteSender, Pairing};
use crate::lab::engine::port_io::{PortIo, SendFull};
use crate::lab::engine::visit::{LinkVisit, PortBooks, Visit, WorkerBooks};
use crate::measure::LatencyHistogram;
use crate::node::{Node, PortId, Transmission};
use crate::sim::{
    Agenda, Fate, LinkChange, LinkCounters, LinkModel, QUIET_LIMIT, Station, quiet_end,
};
use crate::time::{Duration, Time};

/// How long a noted frame may take through the kernel before it counts as lost.
const LOST_AFTER: std::time::Duration = std::time::Duration::from_secs(2);

/// Looks at the rings in vain before a worker lets others run.
const ROUNDS_BEFORE_YIELD: u32 = 32;

/// How long a worker has waited for the kernel; reads the clock once in many rounds.
#[derive(Debug)]
struct Patience {
    since: std::time::Instant,
    rounds: u32,
}

impl Patience {
    #[allow(
        clippy::disallowed_methods,
        reason = "the engine is a driver, and no node time is made of it"
    )]
    fn new() -> Self {
        Self { since: std::time::Instant::now(), rounds: 0 }
    }

    /// True when it is over. Lets the kernel run now and then: the frame may sit behind work of
    /// this very core.
    fn is_over(&mut self) -> bool {
        self.rounds = self.rounds.wrapping_add(1);
        if self.rounds.is_multiple_of(ROUNDS_BEFORE_YIELD) {
            std::thread::yield_now();
        }
        self.rounds.is_multiple_of(1_024) && self.since.elapsed() > LOST_AFTER
    }
}

/// One end of a link in gated time: the model of the direction away, and both directions' notes.
#[derive(Debug)]
pub struct LinkEnd {
    /// The direction away from the port.
    pub model: LinkModel,
    /// Notes of what is sent.
    pub notes_out: NoteSender,
    /// Notes of what is to come.
    pub notes_in: NoteReceiver,
}

/// A port of a station, with its rings.
#[derive(Debug)]
pub struct GatedPort<P> {
    io: P,
    end: LinkEnd,
    dirty: bool,
    /// Frames handed to the node.
    delivered: u64,
    /// Noted frames that never came.
    kernel_dropped: u64,
    /// Frames that no node of the lab sent.
    foreign: u64,
}

impl<P> GatedPort<P> {
    /// A port over `io` at `end` of a link.
    pub const fn new(io: P, end: LinkEnd) -> Self {
        Self { io, end, dirty: false, delivered: 0, kernel_dropped: 0, foreign: 0 }
    }

    /// The rings.
    pub const fn io(&self) -> &P {
        &self.io
    }

    /// This end's part of the link's books: what it sent, and what reached it.
    pub const fn books(&self) -> LinkCounters {
        let away = self.end.model.counters();
        LinkCounters {
            delivered: self.delivered,
            kernel_dropped: self.kernel_dropped + away.kernel_dropped,
            ..away
        }
    }

    /// Frames that no node of the lab sent.
    pub const fn foreign(&self) -> u64 {
        self.foreign
    }

    /// The rings, to close them.
    pub const fn io_mut(&mut self) -> &mut P {
        &mut self.io
    }

    /// Moves what the ring has into the station's arrivals. Gives the earliest arrival added.
    fn collect<S: FrameStore, N>(
        &mut self,
        store: &mut S,
        station: &mut Station<N>,
        port: PortId,
        received: &mut Vec<Frame>,
    ) -> Time
    where
        P: PortIo<S>,
    {
        let mut earliest = Time::NEVER;
        self.io.receive(store, received);
        for frame in received.drain(..) {
            match self.end.notes_in.pair(store, &frame) {
                Pairing::Arrives { at, lost } => {
                    self.kernel_dropped += lost;
                    station.arrive(at, port, frame);
                    earliest = earliest.min(at);
                }
                Pairing::Foreign => {
                    self.foreign += 1;
                    store.release(frame);
                }
            }
        }
        earliest
    }
}

/// A station of a gated worker with its ports.
pub type GatedStation<N, P> = (Station<N>, Vec<GatedPort<P>>);

/// A worker of a gated lab: its stations, their rings and its store.
#[derive(Debug)]
pub struct GatedWorker<N, S, P> {
    index: usize,
    store: S,
    stations: Vec<Station<N>>,
    ports: Vec<Vec<GatedPort<P>>>,
    agenda: Agenda,
    lookahead: Duration,
    received: Vec<Frame>,
    windows: u64,
    /// Sets of visits that were let in.
    visited: u64,
    /// The start of the last window.
    reached: Time,
    /// When a station here was last not quiet.
    last_busy: Time,
    /// Of what was sent in the last window.
    first_arrival: Time,
}

impl<N, S, P> GatedWorker<N, S, P>
where
    S: FrameStore,
    N: Node<S>,
    P: PortIo<S>,
{
    /// Worker number `index` over `store`. `lookahead` is the least time from a frame's first bit
    /// leaving any node of the lab to its last bit arriving at another.
    pub fn new(index: usize, store: S, lookahead: Duration) -> Self {
        Self {
            index,
            store,
            stations: Vec::new(),
            ports: Vec::new(),
            agenda: Agenda::new(0),
            lookahead,
            received: Vec::with_capacity(1_024),
            windows: 0,
            visited: 0,
            reached: Time::ZERO,
            last_busy: Time::ZERO,
            first_arrival: Time::NEVER,
        }
    }

    /// Adds a station with its ports, in the order of their [`PortId`], and gives its number.
    pub fn add(&mut self, station: Station<N>, ports: Vec<GatedPort<P>>) -> usize {
        self.stations.push(station);
        self.ports.push(ports);
        self.stations.len() - 1
    }

    /// Runs every event before `end`, in step with the other workers of `gate`; without an end,
    /// until every worker is quiet, or [`QUIET_LIMIT`] has passed. `observe` sees each station before it is served. Gives the node
    /// time that was reached.
    pub fn run(
        &mut self,
        gate: &Gate,
        end: Option<Time>,
        visits: &Receiver<Visit<N>>,
        mut observe: impl FnMut(Time, usize, &N),
    ) -> Time {
        let _guard = PanicGuard::new(gate, self.index);
        self.agenda = Agenda::new(u32::try_from(self.stations.len()).unwrap_or(u32::MAX));
        for (index, station) in self.stations.iter().enumerate() {
            self.agenda.set(index, station.next_event());
        }
        let mut proposal =
            Proposal { next: self.agenda.first().0, quiet: false, last_busy: Time::ZERO };
        loop {
            let index = self.index;
            let opening = gate.pass(index, proposal, || self.collect());
            // What was sent in the window before is all noted by now, and is all collected here.
            if let Err(lost) = self.collect_all(gate) {
                gate.fail(lost);
            }
            let quiet_end = opening.quiet_since.map(quiet_end);
            let limit = Time::ZERO + QUIET_LIMIT;
            let end = end.unwrap_or_else(|| quiet_end.map_or(limit, |quiet| quiet.min(limit)));
            if opening.at >= end {
                // A stop has no time of its own: the last window's start stands for it.
                return if opening.at == Time::NEVER && quiet_end.is_none() {
                    self.reached
                } else {
                    end
                };
            }
            while self.visited < opening.visits {
                self.visited += 1;
                // One that is not there was taken back with its sender.
                if let Ok(visit) = visits.try_recv() {
                    self.let_in(opening.at, visit);
                }
            }
            self.windows += 1;
            self.reached = opening.at;
            let window_end = (opening.at + self.lookahead).min(end);
            let next = self.serve_window(window_end, gate, &mut observe);
            let quiet =
                self.first_arrival == Time::NEVER && self.stations.iter().all(Station::is_quiet);
            proposal = Proposal { next, quiet, last_busy: self.last_busy };
        }
    }

    fn let_in(&mut self, now: Time, visit: Visit<N>) {
        match visit {
            Visit::Pass => {}
            Visit::Nodes(work) => {
                work(now, self.stations.iter_mut().map(Station::node_mut).collect());
            }
            Visit::Survey(work) => {
                let books = self.books(now);
                work(books, self.stations.iter_mut().map(Station::node_mut).collect());
            }
            Visit::Links(links) => {
                for link in links {
                    self.change_link(now, link);
                }
            }
        }
        for (index, station) in self.stations.iter().enumerate() {
            self.agenda.set(index, station.next_event());
        }
    }

    fn change_link(&mut self, now: Time, LinkVisit { station, port, change }: LinkVisit) {
        self.ports[station][port.index()].end.model.change(now, change);
        // The node is told, as it is of a planned change.
        if let LinkChange::Down | LinkChange::Up = change {
            let up = change == LinkChange::Up;
            self.stations[station].node_mut().on_link(now, &mut self.store, port, up);
        }
    }

    fn books(&self, now: Time) -> WorkerBooks {
        let of_port = |port: &GatedPort<P>| PortBooks {
            counters: port.books(),
            link: port.end.model.state(now),
        };
        let ports = self.ports.iter().map(|ports| ports.iter().map(of_port).collect());
        WorkerBooks { now, lateness: LatencyHistogram::new(), ports: ports.collect() }
    }

    /// Windows of node time that have passed.
    pub const fn windows(&self) -> u64 {
        self.windows
    }

    /// Serves every event before `window_end`; gives the time of the next event here or of the
    /// first arrival of what was sent.
    fn serve_window(
        &mut self,
        window_end: Time,
        gate: &Gate,
        observe: &mut impl FnMut(Time, usize, &N),
    ) -> Time {
        self.first_arrival = Time::NEVER;
        loop {
            let (now, station) = self.agenda.first();
            if now >= window_end {
                break;
            }
            observe(now, station, self.stations[station].node());
            // A stream over a cut link moves no frame, and yet the run goes on until it has ended.
            if !self.stations[station].is_quiet() {
                self.last_busy = now;
            }
            let ports = &mut self.ports[station];
            self.stations[station].take_in(now, &mut self.store, |port, _| {
                ports[port.index()].delivered += 1;
            });
            while let Some((port, sent)) = self.stations[station].take_out(now, &mut self.store) {
                self.last_busy = now;
                let arrives = self.put(station, port, sent, gate);
                self.first_arrival = self.first_arrival.min(arrives);
            }
            self.agenda.set(station, self.stations[station].next_event());
        }
        for port in self.ports.iter_mut().flatten().filter(|port| port.dirty) {
            port.io.flush(&mut self.store);
            port.dirty = false;
        }
        self.first_arrival.min(self.agenda.first().0)
    }

    /// Puts a frame on its link and gives the time of its arrival.
    fn put(&mut self, station: usize, port: PortId, sent: Transmission, gate: &Gate) -> Time {
        let at = match self.ports[station][port.index()].end.model.send(sent.ends) {
            Fate::Arrives(at) => at,
            Fate::Lost(_) => {
                self.store.release(sent.frame);
                return Time::NEVER;
            }
        };
        let mut patience = None;
        while !self.ports[station][port.index()].end.notes_out.has_room() {
            if patience.get_or_insert_with(Patience::new).is_over() {
                gate.fail(format!(
                    "worker {}: the far end of {port:?} collects nothing",
                    self.index
                ));
            }
            if gate.failure().is_some() {
                self.ports[station][port.index()].end.model.kernel_dropped(1);
                self.store.release(sent.frame);
                return Time::NEVER;
            }
            // The far end may be ours: its ring is emptied here, or by the worker that waits.
            self.ports[station][port.index()].io.flush(&mut self.store);
            self.collect();
        }
        let end = &mut self.ports[station][port.index()];
        end.end.notes_out.note(&self.store, &sent.frame, at);
        let mut frame = sent.frame;
        while let Err(SendFull(back)) = end.io.send(&mut self.store, frame) {
            frame = back;
            end.io.flush(&mut self.store);
        }
        end.dirty = true;
        at
    }

    /// Empties the rings of all ports that wait for frames.
    fn collect(&mut self) {
        for (index, (station, ports)) in self.stations.iter_mut().zip(&mut self.ports).enumerate() {
            for (number, port) in (0..).zip(ports) {
                if port.end.notes_in.is_waiting() {
                    let first =
                        port.collect(&mut self.store, station, PortId(number), &mut self.received);
                    self.agenda.advance(index, first);
                }
            }
        }
    }

    fn is_waiting(&mut self) -> bool {
        self.ports.iter_mut().flatten().any(|port| port.end.notes_in.is_waiting())
    }

    fn collect_all(&mut self, gate: &Gate) -> Result<(), String> {
        if !self.is_waiting() {
            return Ok(());
        }
        let mut patience = Patience::new();
        while self.is_waiting() {
            self.collect();
            if patience.is_over() || gate.failure().is_some() {
                return self.give_up();
            }
        }
        Ok(())
    }

    fn give_up(&mut self) -> Result<(), String> {
        let mut lost = 0;
        for port in self.ports.iter_mut().flatten() {
            let here = port.end.notes_in.give_up();
            port.kernel_dropped += here;
            lost += here;
        }
        Err(format!(
            "worker {}: {lost} frames that were sent did not come out of the kernel within {} s",
            self.index,
            LOST_AFTER.as_secs()
        ))
    }

    /// Ends the worker: its stations with their ports, and its store.
    pub fn into_parts(self) -> (S, Vec<GatedStation<N, P>>) {
        (self.store, self.stations.into_iter().zip(self.ports).collect())
    }
}
