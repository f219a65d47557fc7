//! A wire in memory for tests of the engine: what one end flushes, the other receives, like veth.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crossbeam::queue::ArrayQueue;

use super::port_io::{PortIo, SendFull};
use crate::frame::{Frame, FrameStore};

/// Frames that a wire holds; one more is lost, as in a veth queue.
const WIRE_FRAMES: usize = 256;

/// One end of the wire.
#[derive(Debug)]
pub(crate) struct MemoryPort {
    queued: Vec<Vec<u8>>,
    out: Arc<ArrayQueue<Vec<u8>>>,
    into: Arc<ArrayQueue<Vec<u8>>>,
    /// Every so many frames one is lost, when above 0.
    pub(crate) lose_every: u64,
    flushed: u64,
}

/// A wire's two ends.
pub(crate) fn memory_wire() -> (MemoryPort, MemoryPort) {
    let there = Arc::new(ArrayQueue::new(WIRE_FRAMES));
    let back = Arc::new(ArrayQueue::new(WIRE_FRAMES));
    let end = |out: &Arc<_>, into: &Arc<_>| MemoryPort {
        queued: Vec::new(),
        out: Arc::clone(out),
        into: Arc::clone(into),
        lose_every: 0,
        flushed: 0,
    };
    (end(&there, &back), end(&back, &there))
}

impl<S: FrameStore> PortIo<S> for MemoryPort {
    fn receive(&mut self, store: &mut S, received: &mut Vec<Frame>) -> usize {
        let mut count = 0;
        while let Some(bytes) = self.into.pop() {
            received.push(store.allocate_from(&bytes).expect("room in the store"));
            count += 1;
        }
        count
    }

    fn send(&mut self, store: &mut S, frame: Frame) -> Result<(), SendFull> {
        if self.queued.len() >= 64 {
            return Err(SendFull(frame));
        }
        let mut bytes = Vec::new();
        store.copy_out(&frame, &mut bytes);
        store.release(frame);
        self.queued.push(bytes);
        Ok(())
    }

    fn flush(&mut self, _store: &mut S) {
        for bytes in self.queued.drain(..) {
            self.flushed += 1;
            if self.lose_every > 0 && self.flushed.is_multiple_of(self.lose_every) {
                continue;
            }
            self.out.push(bytes).expect("no more frames in flight than a veth queue holds");
        }
    }

    fn has_room(&mut self) -> bool {
        self.queued.len() < 64
    }

    fn is_pending(&self) -> bool {
        false
    }

    fn poll_link(&mut self, _store: &mut S) -> Option<bool> {
        None
    }

    fn wake_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::empty()
    }

    fn refused(&self) -> u64 {
        0
    }

    fn kernel_lost(&self) -> u64 {
        0
    }
}
