//! The gate of gated time: no worker's node time passes a window before every worker has served it.
//!
//! Each worker proposes the time of its next event; the gate opens on the least of them, and the
//! window from there lasts as long as the shortest link, so that nothing sent inside a window can
//! arrive in it (the conservative windows of parallel simulation: Nicol 1993, YAWNS).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crossbeam::utils::CachePadded;

use crate::time::Time;

/// A barrier that gives the least of what the workers propose.
#[derive(Debug)]
pub struct Gate {
    proposals: Vec<CachePadded<AtomicU64>>,
    arrived: CachePadded<AtomicUsize>,
    generation: CachePadded<AtomicU64>,
    opens_at: AtomicU64,
    stop: AtomicBool,
    failure: OnceLock<String>,
}

impl Gate {
    /// A gate for `workers` workers.
    pub fn new(workers: usize) -> Self {
        Self {
            proposals: (0..workers).map(|_| CachePadded::new(AtomicU64::new(0))).collect(),
            arrived: CachePadded::new(AtomicUsize::new(0)),
            generation: CachePadded::new(AtomicU64::new(0)),
            opens_at: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            failure: OnceLock::new(),
        }
    }

    /// Waits until every worker is here, doing `meanwhile` in the meantime, and gives the least
    /// proposal: [`Time::NEVER`] once a stop was asked for or a worker has failed.
    pub fn pass(&self, worker: usize, proposal: Time, mut meanwhile: impl FnMut()) -> Time {
        self.proposals[worker].store(proposal.as_ps(), Ordering::Relaxed);
        let generation = self.generation.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.proposals.len() {
            let least = self.proposals.iter().map(|p| p.load(Ordering::Relaxed)).min();
            let opens_at = if self.stop.load(Ordering::Relaxed) { None } else { least };
            self.opens_at.store(opens_at.unwrap_or(u64::MAX), Ordering::Relaxed);
            self.arrived.store(0, Ordering::Relaxed);
            self.generation.store(generation + 1, Ordering::Release);
        } else {
            while self.generation.load(Ordering::Acquire) == generation {
                if self.failure().is_some() {
                    return Time::NEVER;
                }
                meanwhile();
                std::hint::spin_loop();
            }
        }
        Time::from_ps(self.opens_at.load(Ordering::Relaxed))
    }

    /// Asks all workers to end at the next window, together.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Ends the run with an error; the first one told is kept.
    pub fn fail(&self, why: String) {
        // A second failure is a consequence of the first.
        let _ = self.failure.set(why);
        self.stop();
    }

    /// Why the run failed, if it did.
    pub fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }
}

/// Fails the gate when its worker panics, so that the others do not wait for it for ever.
#[derive(Debug)]
pub struct PanicGuard<'a> {
    gate: &'a Gate,
    worker: usize,
}

impl<'a> PanicGuard<'a> {
    /// Guards the current thread, which runs `worker`.
    pub const fn new(gate: &'a Gate, worker: usize) -> Self {
        Self { gate, worker }
    }
}

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.gate.fail(format!("worker {} panicked; its message is above", self.worker));
        }
    }
}
