//! A topology on AF_XDP: nodes on worker threads, links as veth pairs, in gated or free time.

mod free;
mod gated;
mod handle;
mod io;
mod ports;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration as WallDuration;

use crossbeam::channel::{Receiver, RecvTimeoutError};

pub use handle::{LabHandle, PortMode, Survey, WorkerThread};

use crate::cli::Failure;
use crate::lab::captures::Captures;
use crate::lab::engine::{OpenRequest, Placement, place};
use crate::lab::netns::Network;
use crate::lab::outcome::Finished;
use crate::lab::plan::Plan;
use crate::lab::series::NodeSeries;
use crate::lab::topology::{Clock, Topology};
use crate::xdp::privileges;

/// How often the control thread looks around.
const SUPERVISE_EVERY: WallDuration = WallDuration::from_millis(5);

/// What a run is given beside its topology.
#[derive(Debug)]
pub struct Setting<'a> {
    /// The nodes and links.
    pub plan: Plan,
    /// Which ports are captured.
    pub captures: &'a mut Captures,
    /// The standing network.
    pub network: &'a Network,
    /// Ends the run when it is set.
    pub stop: &'a AtomicBool,
    /// Goes on when there is nothing left to do: for a lab that stays up.
    pub stay: bool,
}

/// What came of it.
pub type Ended = (Finished, Vec<NodeSeries>);

/// Runs a topology to the end that it sets, or until it is stopped. `started` is told how to reach
/// the workers once every port is open.
///
/// # Errors
/// A port that does not open, with what mends it; a worker that panicked. The network is the
/// caller's.
pub fn run(
    topology: &Topology,
    setting: Setting<'_>,
    started: &mut dyn FnMut(Arc<LabHandle>) -> Result<(), Failure>,
) -> Result<Ended, Failure> {
    match topology.run.clock {
        Clock::Gated => gated::run(topology, setting, started),
        Clock::Free => free::run(topology, setting, started),
    }
}

#[allow(clippy::disallowed_methods, reason = "wall time of the run, which no node sees")]
fn wall_now() -> std::time::Instant {
    std::time::Instant::now()
}

/// The control thread gives up all but what opening a port again takes, before workers start.
fn give_up_privileges() -> Result<(), Failure> {
    privileges::forbid_new_privileges()
        .and_then(|()| privileges::keep(&privileges::TO_OPEN_PORTS))
        .map_err(|error| Failure::Running(format!("cannot drop capabilities: {error}")))
}

/// The control thread's work while workers run: opens ports again for them until `ended`. True when
/// the run was stopped.
fn supervise(
    requests: &Receiver<OpenRequest>,
    stop: &AtomicBool,
    mut ended: impl FnMut() -> bool,
) -> bool {
    while !ended() {
        match requests.recv_timeout(SUPERVISE_EVERY) {
            Ok(OpenRequest { plan, reply }) => {
                // A worker that has ended meanwhile takes no answer.
                let _ = reply.send(plan.open());
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
        if stop.load(Ordering::Relaxed) {
            return true;
        }
    }
    false
}

/// Starts a thread for each worker's work.
fn start<'scope, 'env, T: Send + 'scope>(
    scope: &'scope Scope<'scope, 'env>,
    works: impl IntoIterator<Item = impl FnOnce() -> T + Send + 'scope>,
) -> Vec<std::io::Result<ScopedJoinHandle<'scope, T>>> {
    (0..)
        .zip(works)
        .map(|(index, work)| {
            std::thread::Builder::new().name(worker_name(index)).spawn_scoped(scope, work)
        })
        .collect()
}

/// True when no worker runs any more.
fn all_ended<T>(threads: &[std::io::Result<ScopedJoinHandle<'_, T>>]) -> bool {
    threads.iter().flatten().all(ScopedJoinHandle::is_finished)
}

/// True when a thread has ended, or did not start.
fn any_ended<T>(threads: &[std::io::Result<ScopedJoinHandle<'_, T>>]) -> bool {
    threads.iter().any(|thread| thread.as_ref().map_or(true, ScopedJoinHandle::is_finished))
}

/// Waits for all workers.
fn join<T>(threads: Vec<std::io::Result<ScopedJoinHandle<'_, T>>>) -> Vec<Result<T, Failure>> {
    let join = |thread: std::io::Result<ScopedJoinHandle<'_, T>>| {
        let thread =
            thread.map_err(|error| Failure::Running(format!("cannot start a worker: {error}")))?;
        thread.join().map_err(|_| Failure::Running("a worker panicked; see above".to_owned()))
    };
    threads.into_iter().map(join).collect()
}

/// The name of a worker's thread.
fn worker_name(index: usize) -> String {
    format!("tw-worker-{index}")
}

/// How many workers the lab wants, at most.
fn workers_wanted(topology: &Topology) -> usize {
    let wanted = topology.lab.workers.and_then(|workers| usize::try_from(workers).ok());
    wanted.unwrap_or_else(|| cores().len())
}

/// Whether workers get cores of their own: when there are as many.
fn is_pinned(placements: &[Placement]) -> bool {
    placements.len() <= cores().len()
}

/// The threads that the plan of a lab would run on here.
pub fn threads(topology: &Topology, plan: &Plan) -> Vec<WorkerThread> {
    io::threads(plan, &place(plan, workers_wanted(topology), &cores()))
}

/// What every worker thread does first: goes to its core, and drops every capability.
fn settle(core: Option<usize>) -> Result<(), String> {
    // Asked first, since a number beyond the kernel's set of cores is a panic there.
    if let Some(core) = core
        && !(cores().contains(&core)
            && core_affinity::set_for_current(core_affinity::CoreId { id: core }))
    {
        return Err(format!("cannot run on core {core}: this machine does not offer it"));
    }
    privileges::drop_all().map_err(|error| format!("cannot drop capabilities: {error}"))
}

/// The cores that workers may be pinned to.
fn cores() -> Vec<usize> {
    core_affinity::get_core_ids().unwrap_or_default().into_iter().map(|core| core.id).collect()
}
