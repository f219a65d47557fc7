//! Egress queues: first in, first out, linked through one pool of entries.
//!
//! The pool has as many places as the memory has cells, reserved once, so that a frame that is
//! admitted always finds one and none is allocated while frames move.

use crate::frame::Frame;
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
    /// The port it came by.
    pub(super) ingress: PortId,
    /// Its VLAN.
    pub(super) vlan: u16,
    /// Its priority.
    pub(super) priority: u8,
    /// Its egress queue.
    pub(super) queue: u8,
}

#[derive(Debug)]
struct Entry {
    frame: Option<Frame>,
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

/// One queue.
#[derive(Debug)]
pub(super) struct Queue {
    head: u32,
    tail: u32,
    bytes: u64,
    limit_bytes: u64,
}

impl Queue {
    pub(super) const fn new(limit_bytes: u64) -> Self {
        Self { head: NONE, tail: NONE, bytes: 0, limit_bytes }
    }

    /// Bytes queued.
    #[inline]
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether a frame of `len_bytes` stays within the limit.
    #[inline]
    pub(super) const fn fits(&self, len_bytes: u32) -> bool {
        self.bytes + len_bytes as u64 <= self.limit_bytes
    }

    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.head == NONE
    }
}

impl Pool {
    /// Places for `frames_max` frames: address space now, memory as it is first used.
    pub(super) fn new(frames_max: u32) -> Self {
        Self { entries: Vec::with_capacity(frames_max as usize), free: NONE }
    }

    /// Appends to a queue. The caller has found the frame admissible.
    #[inline(always)]
    pub(super) fn push(&mut self, queue: &mut Queue, frame: Frame, meta: Meta) {
        queue.bytes += u64::from(frame.len_bytes());
        let entry = Entry { frame: Some(frame), next: NONE, meta };
        let at = self.free;
        let at = if let Some(place) = self.entries.get_mut(at as usize) {
            self.free = place.next;
            *place = entry;
            at
        } else {
            self.grow(entry)
        };
        if queue.head == NONE {
            queue.head = at;
        } else {
            self.entries[queue.tail as usize].next = at;
        }
        queue.tail = at;
    }

    #[inline(never)]
    fn grow(&mut self, entry: Entry) -> u32 {
        // At most as many entries as cells, of which there are fewer than 2^32.
        let at = u32::try_from(self.entries.len()).unwrap_or(NONE);
        debug_assert!(self.entries.len() < self.entries.capacity(), "admission keeps within cells");
        self.entries.push(entry);
        at
    }

    /// Takes the frame at the head.
    #[inline(always)]
    pub(super) fn pop(&mut self, queue: &mut Queue) -> Option<(Frame, Meta)> {
        let at = queue.head;
        let entry = self.entries.get_mut(at as usize)?;
        let frame = entry.frame.take()?;
        queue.head = std::mem::replace(&mut entry.next, self.free);
        self.free = at;
        queue.bytes -= u64::from(frame.len_bytes());
        Some((frame, entry.meta))
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
        let mut queues = [Queue::new(1_000), Queue::new(1_000)];
        let meta = Meta {
            enqueued_at: Time::ZERO,
            cells: 1,
            ingress: PortId(0),
            vlan: 1,
            priority: 0,
            queue: 0,
        };
        let mut sent = [0_u32; 2];
        let mut got = [0_u32; 2];
        for round in 0..100_usize {
            for _ in 0..1 + round % 3 {
                let which = round % 2;
                if queues[which].fits(64 + sent[which]) && sent[which] - got[which] < 4 {
                    let frame = store.allocate(64 + sent[which]).expect("room");
                    pool.push(&mut queues[which], frame, meta);
                    sent[which] += 1;
                }
            }
            let which = round / 2 % 2;
            if let Some((frame, _)) = pool.pop(&mut queues[which]) {
                assert_eq!(frame.len_bytes(), 64 + got[which]);
                got[which] += 1;
                store.release(frame);
            }
        }
        for (which, queue) in queues.iter_mut().enumerate() {
            while let Some((frame, _)) = pool.pop(queue) {
                assert_eq!(frame.len_bytes(), 64 + got[which]);
                got[which] += 1;
                store.release(frame);
            }
            assert!(queue.is_empty() && queue.bytes() == 0);
        }
        assert!(sent[0] > 10 && sent == got);
        assert_eq!(store.outstanding(), 0);
    }
}
