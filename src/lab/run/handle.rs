//! Reaching into a run that is under way: what workers own, only they touch.

use std::time::Duration as WallDuration;

use crossbeam::channel::{Receiver, Sender, bounded, unbounded};

use crate::lab::device::Device;
use crate::lab::engine::{Placement, Visit};
use crate::lab::plan::Plan;
use crate::lab::topology::{Clock, NodeId, Topology};
use crate::sim::LinkChange;
use crate::time::Time;

/// How long the asker waits for a worker.
const ANSWER_WITHIN: WallDuration = WallDuration::from_secs(2);

/// A run that is under way. Any thread may ask.
#[derive(Debug)]
pub struct LabHandle {
    visits: Vec<Sender<Visit<Device>>>,
    places: Vec<Place>,
    clock: Clock,
    ports: Vec<PortMode>,
    workers: Vec<WorkerThread>,
}

/// A thread of the run.
#[derive(Clone, Debug, serde::Serialize)]
pub struct WorkerThread {
    /// Its name, as `ps -T` shows it.
    pub thread: String,
    /// The core it is pinned to.
    pub core: Option<usize>,
    /// The nodes that it runs; `NODE:PORT` for an I/O worker.
    pub serves: Vec<String>,
}

/// How a port was opened.
#[derive(Clone, Debug, serde::Serialize)]
pub struct PortMode {
    /// `NODE:PORT`.
    pub port: String,
    /// Its interface.
    pub interface: String,
    /// `native` or `generic`.
    pub mode: &'static str,
    /// Frames go without copies.
    pub zero_copy: bool,
    /// The interface's queues that it has.
    pub queues: Vec<u32>,
}

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
        clock: Clock,
        plan: &Plan,
        placements: &[Placement],
    ) -> (Self, Vec<Receiver<Visit<Device>>>) {
        let (visits, receivers) = placements.iter().map(|_| unbounded()).unzip();
        let mut places = Vec::new();
        for (worker, placement) in placements.iter().enumerate() {
            for (station, node) in placement.nodes.iter().enumerate() {
                places.push(Place { id: plan.nodes[*node].id, worker, station });
            }
        }
        (Self { visits, places, clock, ports: Vec::new(), workers: Vec::new() }, receivers)
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
        let visit = Visit::Nodes(Box::new(move |now, mut nodes: Vec<&mut Device>| {
            if let Some(device) = nodes.get_mut(station) {
                // The asker may have stopped waiting.
                let _ = reply.send(work(now, device));
            }
        }));
        self.visits[place.worker].send(visit).ok()?;
        answer.recv_timeout(ANSWER_WITHIN).ok()
    }

    /// Changes a link of the topology now, by the free clock. False when the clock is gated (what
    /// happens when is in the file) or neither end is ours.
    pub fn change_link(&self, topology: &Topology, link: usize, change: LinkChange) -> bool {
        if self.clock == Clock::Gated {
            return false;
        }
        let mut changed = false;
        for end in &topology.links[link].ends {
            let Some(place) = self.places.iter().find(|place| place.id == end.node) else {
                continue;
            };
            let visit = Visit::Link { station: place.station, port: end.port, change };
            changed |= self.visits[place.worker].send(visit).is_ok();
        }
        // Visits are let in one after another: once this is answered, the change is in force.
        for end in &topology.links[link].ends {
            let _ = self.ask(end.node, |_, _| ());
        }
        changed
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
