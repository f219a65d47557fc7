//! Egress queues: first in, first out, linked through one pool of entries.
//!
//! The pool has as many places as the memory has cells, reserved once, so that a frame that is
//! admitted always finds one and none is allocated while frames move.

use super::mark::Marker;
use super::memory::{Account, GroupId};
use crate::frame::ParkedFrame;
use crate::node::PortId;
use crate::time::Time;

const NONE: u32 = u32::MAX;

/// What the pipeline knows of a queued frame beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meta {
    /// When it was queued.
    pub(super) enqueued_at: Time,
    /// Cells of memory that it holds.
    pub(super) cells: u32,
    pub(super) origin: Origin,
}

/// Where a frame came by and with which priority: the priority group that has its cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Origin(GroupId);

impl Origin {
    /// Of a frame in a memory that keeps no accounts.
    pub(super) const UNKNOWN: Self = Self::new(PortId(0), 0);

    #[inline(always)]
    pub(super) const fn new(ingress: PortId, priority: u8) -> Self {
        Self(GroupId::new(ingress, priority))
    }

    /// The port it came by, and its priority there.
    pub(super) const fn parts(self) -> (PortId, u8) {
        self.0.parts()
    }

    /// Where the cells of a frame from here are accounted while it is in a queue.
    #[inline(always)]
    pub(super) const fn account(self, egress: PortId, queue: u32) -> Account {
        Account::new(self.0, egress, queue)
    }
}

#[derive(Debug)]
struct Entry {
    frame: ParkedFrame,
    /// The entry behind it in its queue, or on the free list.
    next: u32,
    meta: Meta,
}

/// Places for the frames of all queues of a switch.
#[derive(Debug)]
pub(super) struct Pool {
    entries: Vec<Entry>,
    free: u32,
}

/// One queue: empty while it has no bytes, since no frame is without.
#[derive(Debug)]
pub(super) struct Queue {
    /// Its first and last entry, unless it is empty.
    head: u32,
    tail: u32,
    bytes: u64,
    limit_bytes: u64,
    /// The most bytes that it has held under this limit: so many fit without a look at the limit.
    /// No more than `arrivals_floor_bytes`, so that beyond it every frame is looked at.
    held_bytes_max: u64,
    /// While it is longer than this, frames that arrive or that leave are looked at for marks.
    arrivals_floor_bytes: u64,
    departures_floor_bytes: u64,
    /// Takes no frame, whatever its limit.
    is_closed: bool,
}

impl Queue {
    pub(super) const fn new(limit_bytes: u64, marker: &Marker) -> Self {
        Self {
            head: NONE,
            tail: NONE,
            bytes: 0,
            limit_bytes,
            held_bytes_max: 0,
            arrivals_floor_bytes: marker.enqueue_floor_bytes(),
            departures_floor_bytes: marker.dequeue_floor_bytes(),
            is_closed: false,
        }
    }

    /// Whether a frame that arrives now may be marked or dropped for the queue's length.
    #[inline]
    pub(super) const fn looks_at_arrivals(&self) -> bool {
        self.bytes > self.arrivals_floor_bytes
    }

    /// Whether a frame that leaves `left_bytes` behind may be marked.
    #[inline]
    pub(super) const fn looks_at_departures(&self, left_bytes: u64) -> bool {
        left_bytes > self.departures_floor_bytes
    }

    /// Gives the queue another limit. What it holds beyond it stays queued; nothing is let in until
    /// that has left.
    pub(super) fn set_limit(&mut self, limit_bytes: u64) {
        self.limit_bytes = limit_bytes;
        self.held_bytes_max = self.held_bytes_max.min(limit_bytes);
    }

    /// From now on the queue takes no frame, or does again.
    pub(super) const fn set_closed(&mut self, is_closed: bool) {
        self.is_closed = is_closed;
        self.held_bytes_max = 0;
    }

    /// Whether it takes no frame, whatever its limit.
    pub(super) const fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Notes that the queue is going to have `bytes`, which its limit allows.
    #[inline]
    pub(super) const fn note_held(&mut self, bytes: u64) {
        let bytes =
            if bytes < self.arrivals_floor_bytes { bytes } else { self.arrivals_floor_bytes };
        if bytes > self.held_bytes_max {
            self.held_bytes_max = bytes;
        }
    }

    /// Whether the queue has held `bytes` before, under the limit that it has now.
    #[inline]
    pub(super) const fn has_held(&self, bytes: u64) -> bool {
        bytes <= self.held_bytes_max
    }

    /// Bytes queued.
    #[inline]
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes queued with one more frame of `len_bytes`.
    #[inline]
    pub(super) const fn bytes_with(&self, len_bytes: u32) -> u64 {
        self.bytes + len_bytes as u64
    }

    /// Whether the queue may have `bytes`.
    #[inline]
    pub(super) const fn allows(&self, bytes: u64) -> bool {
        bytes <= self.limit_bytes && !self.is_closed
    }

    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.bytes == 0
    }
}

impl Pool {
    /// Places for `frames_max` frames: address space now, memory as it is first used.
    pub(super) fn new(frames_max: u32) -> Self {
        Self { entries: Vec::with_capacity(frames_max as usize), free: NONE }
    }

    /// Frames in all queues: counted, since nothing that is done for each frame needs it.
    pub(super) fn len(&self) -> usize {
        let next = |at: &u32| self.entries.get(*at as usize).map(|entry| entry.next);
        let free = std::iter::successors(Some(self.free), next).count() - 1;
        self.entries.len() - free
    }

    /// The length of the frame at the head of a queue; 0 when there is none.
    pub(super) fn first_len_bytes(&self, queue: &Queue) -> u32 {
        self.entries.get(queue.head as usize).map_or(0, |entry| entry.frame.len_bytes())
    }

    /// An entry for a frame, which the caller has found admissible.
    #[inline(always)]
    pub(super) fn insert(&mut self, frame: ParkedFrame, meta: Meta) -> u32 {
        let at = self.free;
        let Some(entry) = self.entries.get_mut(at as usize) else {
            return self.insert_behind_last(frame, meta.enqueued_at, meta.cells, meta.origin);
        };
        self.free = entry.next;
        entry.frame = frame;
        // One by one, they come from registers.
        entry.meta.enqueued_at = meta.enqueued_at;
        entry.meta.cells = meta.cells;
        entry.meta.origin = meta.origin;
        at
    }

    /// The same when no entry is free: another one is made.
    #[cold]
    #[inline(never)]
    fn insert_behind_last(
        &mut self,
        frame: ParkedFrame,
        enqueued_at: Time,
        cells: u32,
        origin: Origin,
    ) -> u32 {
        let meta = Meta { enqueued_at, cells, origin };
        // At most as many entries as cells, of which there are fewer than 2^32.
        let at = u32::try_from(self.entries.len()).unwrap_or(NONE);
        debug_assert!(self.entries.len() < self.entries.capacity(), "admission keeps within cells");
        self.entries.push(Entry { frame, next: NONE, meta });
        at
    }

    /// Puts an entry into an empty queue, which is going to have `bytes`.
    #[inline(always)]
    pub(super) const fn begin(queue: &mut Queue, bytes: u64, at: u32) {
        debug_assert!(queue.is_empty(), "a queue with frames");
        queue.bytes = bytes;
        queue.head = at;
        queue.tail = at;
    }

    /// Puts an entry at the end of a queue that is not empty and is going to have `bytes`.
    #[inline(always)]
    pub(super) fn append(&mut self, queue: &mut Queue, bytes: u64, at: u32) {
        debug_assert!(!queue.is_empty(), "a queue without frames");
        queue.bytes = bytes;
        match self.entries.get_mut(queue.tail as usize) {
            Some(last) => last.next = at,
            None => no_such_entry(queue.tail),
        }
        queue.tail = at;
    }

    /// What is known of each frame of a queue, from its head on.
    pub(super) fn metas(&self, queue: &Queue) -> impl Iterator<Item = Meta> {
        let first = (!queue.is_empty()).then_some(queue.head);
        let next = |at: &u32| {
            let entry = self.entries.get(*at as usize)?;
            (*at != queue.tail).then_some(entry.next)
        };
        let places = std::iter::successors(first, next);
        places.filter_map(|at| self.entries.get(at as usize).map(|entry| entry.meta))
    }

    /// Takes the frame at the head of a queue that is not empty; true when it was the last.
    #[inline(always)]
    pub(super) fn pop(&mut self, queue: &mut Queue) -> (ParkedFrame, Meta, bool) {
        debug_assert!(!queue.is_empty(), "a queue without frames");
        let at = queue.head;
        let Some(entry) = self.entries.get_mut(at as usize) else { no_such_entry(at) };
        queue.head = std::mem::replace(&mut entry.next, self.free);
        self.free = at;
        queue.bytes -= u64::from(entry.frame.len_bytes());
        (entry.frame.take(), entry.meta, queue.tail == at)
    }
}

#[cold]
#[inline(never)]
fn no_such_entry(at: u32) -> ! {
    panic!("a queue has entry {at}, which the pool does not have")
}

impl Drop for Pool {
    /// What a [`Frame`](crate::frame::Frame) asserts for itself: a switch is drained before it goes.
    fn drop(&mut self) {
        let queued = self.len();
        if queued > 0 && !std::thread::panicking() {
            panic!("a switch with {queued} queued frames was dropped without its store");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{FrameStore, SlabStore};

    #[test]
    fn queues_share_the_pool_and_keep_their_order() {
        let mut store = SlabStore::new(64);
        let mut pool = Pool::new(8);
        let mut queues = [Queue::new(1_000, &Marker::OFF), Queue::new(1_000, &Marker::OFF)];
        let meta = Meta { enqueued_at: Time::ZERO, cells: 1, origin: Origin::new(PortId(0), 0) };
        let mut sent = [0_u32; 2];
        let mut got = [0_u32; 2];
        for round in 0..100_usize {
            for _ in 0..1 + round % 3 {
                let which = round % 2;
                let bytes = queues[which].bytes_with(64 + sent[which]);
                if queues[which].allows(bytes) && sent[which] - got[which] < 4 {
                    let frame = store.allocate(64 + sent[which]).expect("room");
                    let bytes = queues[which].bytes_with(frame.len_bytes());
                    let at = pool.insert(ParkedFrame::new(frame), meta);
                    if queues[which].is_empty() {
                        Pool::begin(&mut queues[which], bytes, at);
                    } else {
                        pool.append(&mut queues[which], bytes, at);
                    }
                    sent[which] += 1;
                }
            }
            let which = round / 2 % 2;
            if !queues[which].is_empty() {
                let (frame, _, was_last) = pool.pop(&mut queues[which]);
                assert_eq!(was_last, queues[which].is_empty());
                assert_eq!(frame.len_bytes(), 64 + got[which]);
                got[which] += 1;
                store.release(frame.into_frame());
            }
        }
        for (which, queue) in queues.iter_mut().enumerate() {
            while !queue.is_empty() {
                let (frame, ..) = pool.pop(queue);
                assert_eq!(frame.len_bytes(), 64 + got[which]);
                got[which] += 1;
                store.release(frame.into_frame());
            }
            assert!(queue.is_empty() && queue.bytes() == 0);
        }
        assert!(sent[0] > 10 && sent == got);
        assert_eq!(store.outstanding(), 0);
    }
}
