//! The gate of gated time: no worker's node time passes a window before every worker has served it.
//!
//! Each worker proposes the time of its next event; the gate opens on the least of them, and the
//! window from there lasts as long as the shortest link, so that nothing sent inside a window can
//! arrive in it (the conservative windows of parallel simulation: Nicol 1993, YAWNS).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crossbeam::utils::CachePadded;

use crate::time::Time;

/// What a worker says at the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// Its next event, or the first arrival of what it has sent.
    pub next: Time,
    /// No frame is queued, planned or on its way here.
    pub quiet: bool,
    /// When a station here was last not quiet.
    pub last_busy: Time,
}

/// What the gate answers, the same to all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// Where the next window begins; [`Time::NEVER`] once a stop was asked for or a worker failed.
    pub at: Time,
    /// When a station anywhere was last not quiet, once every worker is.
    pub quiet_since: Option<Time>,
    /// Sets of visits that are let in before this window, since the start.
    pub visits: u64,
}

impl Opening {
    const STOP: Self = Self { at: Time::NEVER, quiet_since: None, visits: 0 };
}

#[derive(Debug, Default)]
struct Slot {
    next: AtomicU64,
    last_busy: AtomicU64,
    quiet: AtomicBool,
}

/// A barrier that gives the least of what the workers propose.
#[derive(Debug)]
pub struct Gate {
    slots: Vec<CachePadded<Slot>>,
    arrived: CachePadded<AtomicUsize>,
    generation: CachePadded<AtomicU64>,
    /// What the last worker to come has decided: one window's opening, for all to read.
    opens_at: AtomicU64,
    quiet_since: AtomicU64,
    visits: AtomicU64,
    /// Sets of visits that lie ready for every worker.
    posted: AtomicU64,
    stop: AtomicBool,
    failure: OnceLock<String>,
}

impl Gate {
    /// A gate for `workers` workers.
    pub fn new(workers: usize) -> Self {
        Self {
            slots: (0..workers).map(|_| CachePadded::new(Slot::default())).collect(),
            arrived: CachePadded::new(AtomicUsize::new(0)),
            generation: CachePadded::new(AtomicU64::new(0)),
            opens_at: AtomicU64::new(0),
            quiet_since: AtomicU64::new(0),
            visits: AtomicU64::new(0),
            posted: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            failure: OnceLock::new(),
        }
    }

    /// Waits until every worker is here, doing `meanwhile` in the meantime, and gives the opening
    /// that their proposals lead to.
    pub fn pass(&self, worker: usize, proposal: Proposal, mut meanwhile: impl FnMut()) -> Opening {
        let slot = &self.slots[worker];
        slot.next.store(proposal.next.as_ps(), Ordering::Relaxed);
        slot.last_busy.store(proposal.last_busy.as_ps(), Ordering::Relaxed);
        slot.quiet.store(proposal.quiet, Ordering::Relaxed);
        let generation = self.generation.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.slots.len() {
            self.decide();
            self.arrived.store(0, Ordering::Relaxed);
            self.generation.store(generation + 1, Ordering::Release);
        } else {
            let mut rounds = 0_u32;
            while self.generation.load(Ordering::Acquire) == generation {
                if self.failure().is_some() {
                    return Opening::STOP;
                }
                meanwhile();
                std::hint::spin_loop();
                rounds = rounds.wrapping_add(1);
                // More workers than cores: the one that is waited for must get to run.
                if rounds.is_multiple_of(32) {
                    std::thread::yield_now();
                }
            }
        }
        let quiet_since = self.quiet_since.load(Ordering::Relaxed);
        Opening {
            at: Time::from_ps(self.opens_at.load(Ordering::Relaxed)),
            quiet_since: (quiet_since != u64::MAX).then(|| Time::from_ps(quiet_since)),
            visits: self.visits.load(Ordering::Relaxed),
        }
    }

    fn decide(&self) {
        let least = self.slots.iter().map(|slot| slot.next.load(Ordering::Relaxed)).min();
        let opens_at = if self.stop.load(Ordering::Relaxed) { None } else { least };
        self.opens_at.store(opens_at.unwrap_or(u64::MAX), Ordering::Relaxed);
        let quiet = self.slots.iter().all(|slot| slot.quiet.load(Ordering::Relaxed));
        let last = self.slots.iter().map(|slot| slot.last_busy.load(Ordering::Relaxed)).max();
        self.quiet_since.store(last.filter(|_| quiet).unwrap_or(u64::MAX), Ordering::Relaxed);
        // What was posted before has been sent to every worker.
        self.visits.store(self.posted.load(Ordering::Acquire), Ordering::Relaxed);
    }

    /// Says that a set of visits has been sent, one to each worker: all let theirs in before the same
    /// window, the next one that is decided on.
    pub fn post_visits(&self) {
        self.posted.fetch_add(1, Ordering::Release);
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
