//! What the measuring loops ask of a port and of time, and AF_XDP as both.

use super::losses::EndCounts;
use crate::frame::{Frame, FrameStore};
use crate::time::{Duration, Time};
use crate::xdp::idle::SPIN_MIN;
use crate::xdp::{Clock, ClockReading, DropsReader, Idle, Phc, Port, TxRefused, UmemStore};

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

    /// When a frame that has just been received arrived, by the clock of the port's stamps; None
    /// when it bears no stamp.
    fn stamp_ns(&self, store: &S, frame: &Frame) -> Option<u64>;

    /// Reads the clock of the stamps beside the OS's, when it is another one.
    fn read_device_clock(&mut self) -> Option<ClockReading>;
}

/// The clock of a loop, and how it waits.
pub trait Wait<P> {
    /// Time now; never runs backwards.
    fn now(&self) -> Time;

    /// Time when the OS's monotonic clock stood there.
    fn at(&self, monotonic_ns: u64) -> Time;

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
    device_clock: Option<Phc>,
    interface_drops: Option<DropsReader>,
}

impl XdpRings {
    /// An open port; the NIC's clock, when that stamps what comes in, and the counters of the
    /// interface, where they can be had.
    pub const fn new(
        port: Port,
        device_clock: Option<Phc>,
        interface_drops: Option<DropsReader>,
    ) -> Self {
        Self { port, refused: 0, device_clock, interface_drops }
    }

    /// What this end has counted.
    pub fn counts(&mut self) -> EndCounts {
        let interface = self.interface_drops.as_mut().map(DropsReader::read).unwrap_or_default();
        EndCounts { port: self.port.counters(), interface }
    }

    /// The NIC's clock, when that stamps what comes in.
    pub const fn device_clock(&self) -> Option<&Phc> {
        self.device_clock.as_ref()
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

    fn stamp_ns(&self, store: &UmemStore, frame: &Frame) -> Option<u64> {
        store.rx_stamp_ns(frame)
    }

    fn read_device_clock(&mut self) -> Option<ClockReading> {
        self.device_clock.as_ref().and_then(|clock| clock.read().ok())
    }
}

/// A sleep must end this long before something is due, since the kernel wakes late.
const WAKE_EARLY: Duration = Duration::from_us(80);

/// The OS clock. Spins for 100 us after the last work, then sleeps until a frame comes or something
/// is due; never sleeps with busy polling.
#[derive(Debug)]
pub struct OsWait {
    clock: Clock,
    idle: Idle,
}

impl OsWait {
    /// A loop's wait on `clock`, which the loops of one measurement share.
    pub fn new(clock: Clock, busy_poll: bool) -> Self {
        Self { clock, idle: Idle::new(SPIN_MIN, busy_poll) }
    }
}

impl Wait<XdpRings> for OsWait {
    fn now(&self) -> Time {
        self.clock.now()
    }

    fn at(&self, monotonic_ns: u64) -> Time {
        self.clock.at(monotonic_ns)
    }

    fn worked(&mut self) {
        self.idle.worked();
    }

    fn idle(&mut self, rings: &XdpRings, until: Time) {
        let forever = std::time::Duration::MAX;
        self.idle.wait(&self.clock, until.before(WAKE_EARLY), forever, rings.port.fds());
    }
}
