//! The I/O workers of a lab: which ports each serves, and their threads.

use std::thread::{Scope, ScopedJoinHandle};

use super::ports::Berth;
use super::{WorkerThread, settle, worker_name};
use crate::cli::Failure;
use crate::lab::topology::Topology;
use crate::xdp::{IoHandle, IoWorker, Port};

/// An I/O worker's thread to be.
#[derive(Debug)]
pub(super) struct IoCrew {
    worker: IoWorker,
    core: Option<usize>,
    /// `NODE:PORT`.
    ports: Vec<String>,
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
            self.crews.push((IoCrew { worker, core, ports: Vec::new() }, handle));
        }
        let (crew, handle) = &mut self.crews[turn];
        port.run_rings_on(handle).map_err(lacks)?;
        crew.ports.push(name.to_owned());
        Ok(())
    }

    /// Those that have a port. Each ends when its ports are gone.
    pub(super) fn into_crews(self) -> Vec<IoCrew> {
        self.crews.into_iter().map(|(crew, _)| crew).collect()
    }
}

fn io_name(index: usize) -> String {
    format!("tw-io-{index}")
}

/// The threads that the lab will run on.
pub(super) fn worker_threads(topology: &Topology, berths: &[Berth]) -> Vec<WorkerThread> {
    let mut threads = Vec::new();
    for (index, berth) in berths.iter().enumerate() {
        let nodes = berth.nodes.iter().map(|node| topology.node_name(node.id).to_owned());
        let serves = nodes.collect();
        threads.push(WorkerThread { thread: worker_name(index), core: berth.core, serves });
    }
    let crews = berths.iter().flat_map(|berth| &berth.nodes).flat_map(|node| &node.io);
    for (index, crew) in crews.enumerate() {
        let serves = crew.ports.clone();
        threads.push(WorkerThread { thread: io_name(index), core: crew.core, serves });
    }
    threads
}

/// Takes the I/O workers out of the berths, in the order of [`worker_threads`].
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
