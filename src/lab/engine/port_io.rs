//! What the engine asks of a port: frames in, frames out. AF_XDP is one; tests have another in
//! memory.

use std::os::fd::BorrowedFd;

use crate::frame::{Frame, FrameStore};

/// The port has no room for the frame now; it comes back.
#[derive(Debug)]
#[must_use = "the frame must be sent later or released"]
pub struct SendFull(pub Frame);

/// A pair of rings towards one interface.
pub trait PortIo<S: FrameStore> {
    /// Moves frames that have come in to the end of `received`, and gives their number.
    fn receive(&mut self, store: &mut S, received: &mut Vec<Frame>) -> usize;

    /// Queues a frame for sending; [`flush`](Self::flush) sends it. A frame that the wire can never
    /// carry is released and counted by the port under a name.
    ///
    /// # Errors
    /// [`SendFull`] when the ring has no room.
    fn send(&mut self, store: &mut S, frame: Frame) -> Result<(), SendFull>;

    /// Sends what is queued, and takes back what has been sent.
    fn flush(&mut self, store: &mut S);

    /// Whether [`send`](Self::send) would take a frame of any length now.
    fn has_room(&mut self) -> bool;

    /// True while the kernel has not taken everything that was sent: the port wants
    /// [`flush`](Self::flush) again.
    fn is_pending(&self) -> bool;

    /// Looks whether the link is up, reopening what has come back; gives the new state when it has
    /// changed. Called a hundred times a second, not per frame.
    fn poll_link(&mut self, store: &mut S) -> Option<bool>;

    /// The descriptors that become readable when a frame has come, for a worker that is about to
    /// sleep on them.
    fn wake_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>>;

    /// Frames that [`send`](Self::send) took and released because no wire could carry them.
    fn refused(&self) -> u64;

    /// Frames that the kernel says it has lost between this port's wire and its rings.
    fn kernel_lost(&self) -> u64;
}
