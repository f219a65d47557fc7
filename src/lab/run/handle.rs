//! Reaching into a run that is under way: what workers own, only they touch.

use std::sync::{Arc, PoisonError};
use std::time::Duration as WallDuration;

use crossbeam::channel::{Receiver, Sender, bounded, unbounded};

use crate::lab::device::Device;
use crate::lab::engine::{Gate, LinkVisit, Placement, Visit, WorkerBooks};
use crate::lab::plan::Plan;
use crate::lab::topology::NodeId;
use crate::node::PortId;
use crate::sim::LinkChange;
use crate::time::Time;

/// How long the asker waits for a worker.
const ANSWER_WITHIN: WallDuration = WallDuration::from_secs(2);

#[allow(clippy::disallowed_types, reason = "threads that ask take turns here; no node sees it")]
type Turns<T> = std::sync::Mutex<T>;

/// A run that is under way. Any thread may ask.
#[derive(Debug)]
pub struct LabHandle {
    /// One to each worker. Held while a set of visits is sent, so that all workers have the sets in
    /// one order.
    visits: Turns<Vec<Sender<Visit<Device>>>>,
    /// Where workers learn of a set by the gated clock; by the free one they look themselves.
    gate: Option<Arc<Gate>>,
    places: Vec<Place>,
    ports: Vec<PortMode>,
    workers: Vec<WorkerThread>,
}

/// A thread of the run.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct WorkerThread {
    /// Its name, as `ps -T` shows it.
    pub thread: String,
    /// The core it is pinned to.
    pub core: Option<usize>,
    /// The nodes that it runs; `NODE:PORT` for an I/O worker.
    pub serves: Vec<String>,
}

/// How a port was opened.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct PortMode {
    /// `NODE:PORT`.
    pub port: String,
    /// Its interface.
    pub interface: String,
    /// `native` or `generic`.
    pub mode: String,
    /// Frames go without copies.
    pub zero_copy: bool,
    /// The interface's queues that it has.
    pub queues: Vec<u32>,
}

/// A worker's books, and what was seen of each of its nodes.
pub type Survey<T> = (WorkerBooks, Vec<(NodeId, T)>);

/// Where a node runs.
#[derive(Clone, Copy, Debug)]
struct Place {
    id: NodeId,
    worker: usize,
    station: usize,
}

impl LabHandle {
    /// A handle on workers that are placed so, and what each of them listens on.
    pub(super) fn new(
        gate: Option<Arc<Gate>>,
        plan: &Plan,
        placements: &[Placement],
    ) -> (Self, Vec<Receiver<Visit<Device>>>) {
        let (visits, receivers): (Vec<_>, _) = placements.iter().map(|_| unbounded()).unzip();
        let mut places = Vec::new();
        for (worker, placement) in placements.iter().enumerate() {
            for (station, node) in placement.nodes.iter().enumerate() {
                places.push(Place { id: plan.nodes[*node].id, worker, station });
            }
        }
        let visits = Turns::new(visits);
        (Self { visits, gate, places, ports: Vec::new(), workers: Vec::new() }, receivers)
    }

    /// Sends a set of visits: to each worker what `visit_of` makes for it. False when no worker is
    /// there any more.
    fn send(&self, mut visit_of: impl FnMut(usize) -> Visit<Device>) -> bool {
        let visits = self.visits.lock().unwrap_or_else(PoisonError::into_inner);
        let mut is_sent = false;
        for (worker, visits) in visits.iter().enumerate() {
            is_sent |= visits.send(visit_of(worker)).is_ok();
        }
        if let Some(gate) = &self.gate {
            gate.post_visits();
        }
        is_sent
    }

    /// Has the worker of `node` do `work` on it between two rounds, and waits for the answer. None
    /// for a node that is not ours, or when the worker has ended.
    pub fn ask<T: Send + 'static>(
        &self,
        node: NodeId,
        work: impl FnOnce(Time, &mut Device) -> T + Send + 'static,
    ) -> Option<T> {
        let place = self.places.iter().find(|place| place.id == node)?;
        let (reply, answer) = bounded(1);
        let station = place.station;
        let mut visit = Some(Visit::Nodes(Box::new(move |now, mut nodes: Vec<&mut Device>| {
            if let Some(device) = nodes.get_mut(station) {
                // The asker may have stopped waiting.
                let _ = reply.send(work(now, device));
            }
        })));
        self.send(|worker| visit.take_if(|_| worker == place.worker).unwrap_or(Visit::Pass));
        drop(visit);
        answer.recv_timeout(ANSWER_WITHIN).ok()
    }

    /// What every worker has counted, by worker, with what `look` makes of each of its nodes: by the
    /// gated clock all of one moment. None for a worker that has ended.
    pub fn survey<T: Send + 'static>(
        &self,
        look: fn(Time, &mut Device) -> T,
    ) -> Vec<Option<Survey<T>>> {
        let mut answers = Vec::new();
        self.send(|worker| {
            let (reply, answer) = bounded(1);
            answers.push(answer);
            let mine = self.places.iter().filter(|place| place.worker == worker);
            let ids: Vec<NodeId> = mine.map(|place| place.id).collect();
            Visit::Survey(Box::new(move |books, nodes| {
                let now = books.now;
                let parts = ids.into_iter().zip(nodes).map(|(id, node)| (id, look(now, node)));
                // The asker may have stopped waiting.
                let _ = reply.send((books, parts.collect()));
            }))
        });
        answers.into_iter().map(|answer| answer.recv_timeout(ANSWER_WITHIN).ok()).collect()
    }

    /// Changes the link at each of these ports now, as far as their nodes are ours; all of them at one
    /// node time by the gated clock. Gives that time once the change is in force; None when no port is
    /// ours or its worker has ended.
    pub fn change_link(&self, ports: &[(NodeId, PortId)], change: LinkChange) -> Option<Time> {
        let placed: Vec<_> = ports
            .iter()
            .filter_map(|(node, port)| Some((*self.places.iter().find(|p| p.id == *node)?, *port)))
            .collect();
        let (first, _) = placed.first()?;
        self.send(|worker| {
            let mine = placed.iter().filter(|(place, _)| place.worker == worker);
            let visit = |(place, port): &(Place, PortId)| LinkVisit {
                station: place.station,
                port: *port,
                change,
            };
            Visit::Links(mine.map(visit).collect())
        });
        // Visits are let in one after another: once this is answered, the change is in force.
        let now = self.ask(first.id, |now, _| now);
        for (place, _) in &placed[1..] {
            let _ = self.ask(place.id, |_, _| ());
        }
        now
    }

    /// The worker that runs a node, and the node's number there.
    pub fn place(&self, node: NodeId) -> Option<(usize, usize)> {
        let place = self.places.iter().find(|place| place.id == node)?;
        Some((place.worker, place.station))
    }

    /// Notes how the ports were opened.
    pub(super) fn note_ports(&mut self, ports: Vec<PortMode>) {
        self.ports = ports;
    }

    /// Notes which threads there are.
    pub(super) fn note_workers(&mut self, workers: Vec<WorkerThread>) {
        self.workers = workers;
    }

    /// The threads that the lab runs on.
    pub fn workers(&self) -> &[WorkerThread] {
        &self.workers
    }

    /// How each port was opened.
    pub fn ports(&self) -> &[PortMode] {
        &self.ports
    }

    /// The nodes that can be asked.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.places.iter().map(|place| place.id)
    }
}
