//! A thread that does the ring I/O of another's ports: it takes the kernel's part towards them and
//! theirs towards the kernel.
//!
//! The worker of the ports keeps the store and with it all accounting of chunks. Between the two
//! threads go bare descriptors and addresses, in four rings for each queue that mirror those of its
//! socket; and a doorbell each way for a thread that sleeps.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam::channel::{Receiver, SendError, Sender, TryRecvError, bounded, unbounded};

use super::clock::Clock;
use super::counters::PortCounters;
use super::doorbell::Doorbell;
use super::idle::Idle;
use super::ring::{self, Consumer, Entry, Producer};
use super::socket::{FarEnd, Socket};
use super::sys;
use crate::time::Time;

/// Sleeping for longer is not needed for anything but to see that nobody wants the thread any more,
/// and to try again what the kernel did not take.
const SLEEP_MAX: Duration = Duration::from_millis(5);

/// What the I/O worker counts for a queue, for the port to read.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    tx_wakeups: AtomicU64,
    tx_wakeup_errors: AtomicU64,
    tx_kernel_dropped: AtomicU64,
}

impl Tally {
    fn publish(&self, counters: &PortCounters) {
        self.tx_wakeups.store(counters.tx_wakeups, Ordering::Relaxed);
        self.tx_wakeup_errors.store(counters.tx_wakeup_errors, Ordering::Relaxed);
        self.tx_kernel_dropped.store(counters.tx_kernel_dropped, Ordering::Relaxed);
    }

    pub(crate) fn add_to(&self, counters: &mut PortCounters) {
        counters.tx_wakeups += self.tx_wakeups.load(Ordering::Relaxed);
        counters.tx_wakeup_errors += self.tx_wakeup_errors.load(Ordering::Relaxed);
        counters.tx_kernel_dropped += self.tx_kernel_dropped.load(Ordering::Relaxed);
    }
}

/// One queue as the I/O worker has it: the kernel's rings, and the far ends of the port's.
#[derive(Debug)]
struct Pump {
    socket: Socket,
    rx: Producer<sys::xdp_desc>,
    tx: Consumer<sys::xdp_desc>,
    fill: Consumer<u64>,
    completion: Producer<u64>,
    /// Rung when something was done for the port.
    port_bell: Arc<Doorbell>,
    counters: PortCounters,
    tally: Arc<Tally>,
    tx_pending: bool,
    /// What lay in a ring when the ring behind it was full.
    blocked: Blocked,
}

#[derive(Clone, Copy, Debug, Default)]
struct Blocked {
    rx: bool,
    tx: bool,
    fill: bool,
}

/// Moves what `from` has and `to` has room for. Gives how many entries, and whether some are left
/// for want of room.
fn carry<T: Entry>(from: &mut Consumer<T>, to: &mut Producer<T>) -> (u32, bool) {
    let mut moved = 0;
    let mut blocked = false;
    loop {
        if !to.has_room(1) {
            blocked = from.has_more();
            break;
        }
        let Some(entry) = from.take() else { break };
        to.write(entry);
        moved += 1;
    }
    if moved > 0 {
        // Published before its place is given back: at any time it is in one of the two at least.
        to.publish();
        from.release();
    }
    (moved, blocked)
}

impl Pump {
    /// One round over the four rings; true when something moved.
    fn turn(&mut self) -> bool {
        let (filled, fill_blocked) = carry(&mut self.fill, &mut self.socket.fill);
        if filled > 0 {
            self.socket.wake_fill();
        }
        let (received, rx_blocked) = carry(&mut self.socket.rx, &mut self.rx);
        let (sent, tx_blocked) = carry(&mut self.tx, &mut self.socket.tx);
        self.blocked = Blocked { rx: rx_blocked, tx: tx_blocked, fill: fill_blocked };
        if sent > 0 || self.tx_pending {
            self.tx_pending = self.socket.kick(&mut self.counters);
            self.tally.publish(&self.counters);
        }
        let (completed, _) = carry(&mut self.socket.completion, &mut self.completion);
        if received > 0 || sent > 0 {
            self.port_bell.ring();
        }
        filled + received + sent + completed > 0
    }

    /// Whether the port has given something that can be moved.
    fn has_work(&self) -> bool {
        (self.tx.has_more() && !self.blocked.tx) || (self.fill.has_more() && !self.blocked.fill)
    }
}

enum Command {
    Serve(Box<Pump>),
    /// Gives back the sockets of the port with this bell, in the order in which they came.
    Return {
        port_bell: Arc<Doorbell>,
        reply: Sender<Vec<Socket>>,
    },
}

/// A thread's work: the ring I/O of the ports that were handed to it.
pub struct IoWorker {
    commands: Receiver<Command>,
    bell: Arc<Doorbell>,
    pumps: Vec<Pump>,
}

impl std::fmt::Debug for IoWorker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IoWorker").field("pumps", &self.pumps.len()).finish_non_exhaustive()
    }
}

/// Leads to an [`IoWorker`]; see [`Port::run_rings_on`](super::Port::run_rings_on).
#[derive(Clone, Debug)]
pub struct IoHandle {
    commands: Sender<Command>,
    bell: Arc<Doorbell>,
}

impl IoWorker {
    /// An I/O worker without ports yet.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn new() -> io::Result<(Self, IoHandle)> {
        let (sender, commands) = unbounded();
        let bell = Arc::new(Doorbell::new()?);
        let handle = IoHandle { commands: sender, bell: Arc::clone(&bell) };
        Ok((Self { commands, bell, pumps: Vec::new() }, handle))
    }

    /// Works until every port that was handed over is gone, with all other handles. With `busy_poll`
    /// it never sleeps.
    pub fn run(mut self, busy_poll: bool) {
        let mut idle = Idle::new(Duration::ZERO, busy_poll);
        let clock = Clock::start(1);
        loop {
            match self.commands.try_recv() {
                Ok(command) => {
                    self.obey(command);
                    continue;
                }
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return,
            }
            if self.turn() {
                idle.worked();
            } else {
                let descriptors = std::iter::once_with(|| self.listen()).chain(self.readable());
                idle.wait(&clock, Time::NEVER, SLEEP_MAX, descriptors);
            }
        }
    }

    fn turn(&mut self) -> bool {
        self.pumps.iter_mut().fold(false, |moved, pump| pump.turn() | moved)
    }

    /// Says that the thread is about to sleep.
    fn listen(&self) -> BorrowedFd<'_> {
        self.bell
            .listen(|| !self.commands.is_empty() || self.pumps.iter().any(|pump| pump.has_work()));
        self.bell.fd()
    }

    /// Sockets that frames can be taken from. One behind which the port's ring is full would be
    /// readable all the time; the port rings when it has taken some.
    fn readable(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.pumps.iter().filter(|pump| !pump.blocked.rx).map(|pump| pump.socket.fd())
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Serve(pump) => self.pumps.push(*pump),
            Command::Return { port_bell, reply } => {
                let of_port = |pump: &mut Pump| Arc::ptr_eq(&pump.port_bell, &port_bell);
                let returned = self.pumps.extract_if(.., of_port);
                // A port that has not waited has no use for them.
                let _ = reply.send(returned.map(|pump| pump.socket).collect());
            }
        }
    }
}

impl IoHandle {
    /// Hands a queue over. Gives what the port uses in its place; the socket itself when the I/O
    /// worker is gone.
    pub(crate) fn serve(&self, socket: Socket, port_bell: &Arc<Doorbell>) -> Socket {
        let (rx_far, rx) = ring::pair(socket.rx.size());
        let (tx, tx_far) = ring::pair(socket.tx.size());
        let (fill, fill_far) = ring::pair(socket.fill.size());
        let (completion_far, completion) = ring::pair(socket.completion.size());
        let tally = Arc::new(Tally::default());
        let worker_bell = Arc::clone(&self.bell);
        let far_end = FarEnd::IoWorker { bell: worker_bell, tally: Arc::clone(&tally) };
        let near = Socket {
            rx,
            tx,
            fill,
            completion,
            far_end,
            zero_copy: socket.zero_copy,
            fd: Arc::clone(&socket.fd),
        };
        let pump = Pump {
            socket,
            rx: rx_far,
            tx: tx_far,
            fill: fill_far,
            completion: completion_far,
            port_bell: Arc::clone(port_bell),
            counters: PortCounters::default(),
            tally,
            tx_pending: false,
            blocked: Blocked::default(),
        };
        match self.commands.send(Command::Serve(Box::new(pump))) {
            Ok(()) => {
                self.bell.ring();
                near
            }
            Err(SendError(Command::Serve(pump))) => pump.socket,
            Err(SendError(Command::Return { .. })) => near,
        }
    }

    /// Takes the sockets of a port back; waits for the I/O worker to be through with them. None come
    /// when it has ended, and then the sockets have with it.
    pub(crate) fn take_back(&self, port_bell: &Arc<Doorbell>) -> Vec<Socket> {
        let (reply, returned) = bounded(1);
        let command = Command::Return { port_bell: Arc::clone(port_bell), reply };
        if self.commands.send(command).is_err() {
            return Vec::new();
        }
        self.bell.ring();
        returned.recv().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
