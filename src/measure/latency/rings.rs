//! What the measuring loops ask of a port and of time, and AF_XDP as both.

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use crate::frame::{Frame, FrameStore};
use crate::time::{Duration, Time};
use crate::xdp::{Clock, Port, TxRefused, UmemStore};

/// Frames in and out of one interface.
pub trait Rings<S: FrameStore> {
    /// Moves what has come in to the end of `received`, and gives its number.
    fn receive(&mut self, store: &mut S, received: &mut Vec<Frame>) -> usize;

    /// Queues a frame; [`flush`](Self::flush) sends it. A frame that no wire can carry is released
    /// and counted as refused.
    ///
    /// # Errors
    /// The frame, when the ring has no room now.
    fn send(&mut self, store: &mut S, frame: Frame) -> Result<(), Frame>;

    /// Sends what is queued, and takes back what has been sent.
    fn flush(&mut self, store: &mut S);

    /// Whether the kernel has not yet taken everything: [`flush`](Self::flush) again.
    fn is_pending(&self) -> bool;

    /// Frames that [`send`](Self::send) refused.
    fn refused(&self) -> u64;
}

/// The clock of a loop, and how it waits.
pub trait Wait<P> {
    /// Time now; never runs backwards.
    fn now(&self) -> Time;

    /// The last turn did something.
    fn worked(&mut self);

    /// The last turn found nothing to do: returns at once, or when `port` has a frame or `until`
    /// has come.
    fn idle(&mut self, port: &P, until: Time);
}

/// Frames taken from the ring at once.
const BURST_FRAMES: usize = 64;

/// An AF_XDP port that counts what it refused.
#[derive(Debug)]
pub struct XdpRings {
    port: Port,
    refused: u64,
}

impl XdpRings {
    /// An open port.
    pub const fn new(port: Port) -> Self {
        Self { port, refused: 0 }
    }

    /// The port.
    pub const fn port(&self) -> &Port {
        &self.port
    }

    /// The port, to close it.
    pub const fn port_mut(&mut self) -> &mut Port {
        &mut self.port
    }
}

impl Rings<UmemStore> for XdpRings {
    fn receive(&mut self, store: &mut UmemStore, received: &mut Vec<Frame>) -> usize {
        self.port.rx_burst(store, received, BURST_FRAMES)
    }

    fn send(&mut self, store: &mut UmemStore, frame: Frame) -> Result<(), Frame> {
        match self.port.tx_push(store, frame) {
            Ok(()) => Ok(()),
            Err((frame, TxRefused::RingFull)) => Err(frame),
            Err((frame, _)) => {
                self.refused += 1;
                store.release(frame);
                Ok(())
            }
        }
    }

    fn flush(&mut self, store: &mut UmemStore) {
        self.port.kick();
        self.port.reap(store);
        self.port.refill(store);
    }

    fn is_pending(&self) -> bool {
        self.port.has_tx_pending()
    }

    fn refused(&self) -> u64 {
        self.refused
    }
}

/// Spinning for this long costs less than the wake-up that it saves.
const SPIN: Duration = Duration::from_us(100);

/// A sleep must end this long before something is due, since the kernel wakes late.
const WAKE_EARLY: Duration = Duration::from_us(80);

/// The OS clock. Spins for 100 us after the last work, then sleeps until a frame comes or something
/// is due; never sleeps with busy polling.
#[derive(Clone, Debug)]
pub struct OsWait {
    clock: Clock,
    busy_poll: bool,
    worked_at: Time,
}

impl OsWait {
    /// A loop's wait on `clock`, which the loops of one measurement share.
    pub fn new(clock: Clock, busy_poll: bool) -> Self {
        Self { clock, busy_poll, worked_at: clock.now() }
    }
}

impl Wait<XdpRings> for OsWait {
    fn now(&self) -> Time {
        self.clock.now()
    }

    fn worked(&mut self) {
        self.worked_at = self.clock.now();
    }

    fn idle(&mut self, rings: &XdpRings, until: Time) {
        std::hint::spin_loop();
        if self.busy_poll {
            return;
        }
        let now = self.clock.now();
        let wake = until.before(WAKE_EARLY);
        if now.since(self.worked_at) < SPIN || wake <= now {
            return;
        }
        let timeout = TimeSpec::from_duration(wake.since(now).to_std());
        let mut fds: Vec<PollFd<'_>> =
            rings.port.fds().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        // Any outcome, an interrupting signal too, only means to look again.
        if ppoll(&mut fds, Some(timeout), None).is_ok_and(|ready| ready > 0) {
            self.worked_at = self.clock.now();
        }
    }
}
