//! The I/O workers of a lab: which ports each serves, and their threads.

use std::thread::{Scope, ScopedJoinHandle};

use super::ports::Berth;
use super::{WorkerThread, is_pinned, settle, worker_name};
use crate::cli::Failure;
use crate::lab::engine::Placement;
use crate::lab::plan::Plan;
use crate::lab::topology::Attachment;
use crate::xdp::{IoHandle, IoWorker, Port};

/// An I/O worker's thread to be.
#[derive(Debug)]
pub(super) struct IoCrew {
    worker: IoWorker,
    core: Option<usize>,
}

/// Deals the ports of a node to its I/O workers, in turn.
pub(super) struct IoDeal<'a> {
    cores: &'a [Option<u32>],
    crews: Vec<(IoCrew, IoHandle)>,
    dealt: usize,
}

impl<'a> IoDeal<'a> {
    /// For a node with these I/O workers, given as the core of each.
    pub(super) const fn new(cores: &'a [Option<u32>]) -> Self {
        Self { cores, crews: Vec::new(), dealt: 0 }
    }

    /// Has the next I/O worker serve the rings of `port`; there may be none.
    pub(super) fn hand_over(&mut self, name: &str, port: &mut Port) -> Result<(), Failure> {
        if self.cores.is_empty() {
            return Ok(());
        }
        let lacks =
            |error| Failure::HostLacks(format!("port {name}: no I/O worker for it: {error}"));
        let turn = self.dealt % self.cores.len();
        self.dealt += 1;
        if turn == self.crews.len() {
            let (worker, handle) = IoWorker::new().map_err(lacks)?;
            let core = self.cores[turn].and_then(|core| usize::try_from(core).ok());
            self.crews.push((IoCrew { worker, core }, handle));
        }
        let (_, handle) = &mut self.crews[turn];
        port.run_rings_on(handle).map_err(lacks)
    }

    /// Those that have a port. Each ends when its ports are gone.
    pub(super) fn into_crews(self) -> Vec<IoCrew> {
        self.crews.into_iter().map(|(crew, _)| crew).collect()
    }
}

fn io_name(index: usize) -> String {
    format!("tw-io-{index}")
}

/// The threads that a lab runs on: its workers with their nodes, then the I/O workers with the ports
/// that [`IoDeal`] gives them.
pub(super) fn threads(plan: &Plan, placements: &[Placement]) -> Vec<WorkerThread> {
    let pinned = is_pinned(placements);
    let (mut threads, mut io) = (Vec::new(), Vec::new());
    for (index, placement) in placements.iter().enumerate() {
        let nodes = placement.nodes.iter().map(|number| &plan.nodes[*number]);
        threads.push(WorkerThread {
            thread: worker_name(index),
            core: placement.core.filter(|_| pinned),
            serves: nodes.clone().map(|node| node.name.clone()).collect(),
        });
        for node in nodes {
            let ports = node.ports.iter().filter(|port| port.attachment != Attachment::None);
            for (turn, core) in node.io_workers.iter().enumerate() {
                let mine = ports.clone().skip(turn).step_by(node.io_workers.len());
                let serves: Vec<String> = mine.map(|port| port.name.clone()).collect();
                if !serves.is_empty() {
                    let core = core.and_then(|core| usize::try_from(core).ok());
                    io.push(WorkerThread { thread: io_name(io.len()), core, serves });
                }
            }
        }
    }
    threads.extend(io);
    threads
}

/// Takes the I/O workers out of the berths, in the order of [`threads`].
pub(super) fn take_crews(berths: &mut [Berth]) -> Vec<IoCrew> {
    let nodes = berths.iter_mut().flat_map(|berth| &mut berth.nodes);
    nodes.flat_map(|node| std::mem::take(&mut node.io)).collect()
}

type Started<'scope> = std::io::Result<ScopedJoinHandle<'scope, Result<(), String>>>;

/// Starts the I/O workers; each ends when its ports are gone.
pub(super) fn start<'scope>(
    scope: &'scope Scope<'scope, '_>,
    crews: Vec<IoCrew>,
    busy_poll: bool,
) -> Vec<Started<'scope>> {
    let spawn = |(index, crew): (usize, IoCrew)| {
        std::thread::Builder::new().name(io_name(index)).spawn_scoped(scope, move || {
            settle(crew.core)?;
            crew.worker.run(busy_poll);
            Ok(())
        })
    };
    crews.into_iter().enumerate().map(spawn).collect()
}
