//! The four rings that a socket shares with the kernel: single producer, single consumer, indices
//! that run freely over 32 bits. Two threads share rings of the same kind ([`pair`]), so that a port
//! runs the same code whether the kernel or an I/O worker is at the other end.
//!
//! The side that writes an entry publishes it by a release store of the producer's index, which the
//! reading side acquires before it looks; the same holds the other way round for entries that are
//! given back. Each side keeps the other's index cached and reads it again only when the cached one
//! does not suffice, so that the cache line moves once per burst.

use std::cell::UnsafeCell;
use std::fmt;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crossbeam::utils::CachePadded;

use super::sys::{self, Mapping};

/// What an entry of a ring may be: read and written as plain bytes that the kernel shares.
pub(crate) trait Entry: Copy {}
impl Entry for u64 {}
impl Entry for sys::xdp_desc {}

/// The memory of a ring, wherever it lies.
struct Raw<T> {
    producer: *const AtomicU32,
    consumer: *const AtomicU32,
    flags: *const AtomicU32,
    entries: *mut T,
    mask: u32,
    /// Keeps the memory that the pointers name.
    _memory: Memory<T>,
}

// SAFETY: the pointers name memory that the ring keeps, wherever the ring moves. Whoever is at its
// other end, the kernel or a thread with the other half of a pair, orders its accesses by the indices.
unsafe impl<T: Send> Send for Raw<T> {}

enum Memory<T> {
    Kernel(#[allow(dead_code, reason = "held for its Drop")] Mapping),
    Heap(#[allow(dead_code, reason = "held for its Drop")] Arc<HeapMemory<T>>),
}

/// What the kernel lays out for a ring, on the heap. Each index has a cache line to itself, since
/// each is written by another thread.
struct HeapMemory<T> {
    producer: CachePadded<AtomicU32>,
    consumer: CachePadded<AtomicU32>,
    flags: CachePadded<AtomicU32>,
    entries: Box<[UnsafeCell<MaybeUninit<T>>]>,
}

// SAFETY: the two ends of the ring order their accesses to the entries by the indices.
unsafe impl<T: Send> Sync for HeapMemory<T> {}

impl<T: Entry> HeapMemory<T> {
    /// `size` entries, a power of two, with both indices at `start`.
    fn new(size: u32, start: u32) -> Arc<Self> {
        assert!(size.is_power_of_two(), "a ring of {size} entries");
        Arc::new(Self {
            producer: CachePadded::new(AtomicU32::new(start)),
            consumer: CachePadded::new(AtomicU32::new(start)),
            flags: CachePadded::new(AtomicU32::new(0)),
            entries: (0..size).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect(),
        })
    }

    fn raw(self: &Arc<Self>) -> Raw<T> {
        Raw {
            producer: &raw const *self.producer,
            consumer: &raw const *self.consumer,
            flags: &raw const *self.flags,
            entries: UnsafeCell::raw_get(self.entries.as_ptr()).cast(),
            // A power of two of at most 2^31.
            mask: u32::try_from(self.entries.len() - 1).unwrap_or(0),
            _memory: Memory::Heap(Arc::clone(self)),
        }
    }

    fn ends(self: &Arc<Self>) -> (Producer<T>, Consumer<T>) {
        (Producer::of(self.raw()), Consumer::of(self.raw()))
    }
}

/// The two ends of a ring of `size` entries, a power of two, between two threads.
pub(crate) fn pair<T: Entry>(size: u32) -> (Producer<T>, Consumer<T>) {
    HeapMemory::new(size, 0).ends()
}

impl<T: Entry> Raw<T> {
    fn of_kernel(mapping: Mapping, offsets: &sys::xdp_ring_offset, size: u32) -> Self {
        assert!(size.is_power_of_two(), "a ring of {size} entries");
        Self {
            producer: mapping.place(offsets.producer, 1),
            consumer: mapping.place(offsets.consumer, 1),
            flags: mapping.place(offsets.flags, 1),
            entries: mapping.place(offsets.desc, size as usize),
            mask: size - 1,
            _memory: Memory::Kernel(mapping),
        }
    }

    fn size(&self) -> u32 {
        self.mask + 1
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: it names an aligned word of the memory that `self` holds, shared as an atomic.
        unsafe { &*self.producer }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: it names an aligned word of the memory that `self` holds, shared as an atomic.
        unsafe { &*self.consumer }
    }

    fn wants_wakeup(&self) -> bool {
        // SAFETY: it names an aligned word of the memory that `self` holds, shared as an atomic.
        let flags = unsafe { &*self.flags };
        flags.load(Ordering::Relaxed) & sys::XDP_RING_NEED_WAKEUP != 0
    }

    fn entry(&self, index: u32) -> *mut T {
        // The mask keeps the place within the ring.
        self.entries.wrapping_add((index & self.mask) as usize)
    }
}

impl<T> fmt::Debug for Raw<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Raw").field("mask", &self.mask).finish_non_exhaustive()
    }
}

/// The producing end: of the fill ring and the TX ring.
#[derive(Debug)]
pub(crate) struct Producer<T> {
    raw: Raw<T>,
    /// Written up to here.
    head: u32,
    /// Published up to here.
    published: u32,
    /// The consumer's index as last seen.
    seen: u32,
}

impl<T: Entry> Producer<T> {
    /// The producing end of a ring that the kernel made.
    pub(crate) fn of_kernel(mapping: Mapping, offsets: &sys::xdp_ring_offset, size: u32) -> Self {
        Self::of(Raw::of_kernel(mapping, offsets, size))
    }

    fn of(raw: Raw<T>) -> Self {
        let head = raw.producer().load(Ordering::Relaxed);
        let seen = raw.consumer().load(Ordering::Acquire);
        Self { raw, head, published: head, seen }
    }

    /// Whether `wanted` entries can be written.
    pub(crate) fn has_room(&mut self, wanted: u32) -> bool {
        if self.raw.size() - self.head.wrapping_sub(self.seen) >= wanted {
            return true;
        }
        // Acquire: the consumer has read the entries that we are about to write over.
        self.seen = self.raw.consumer().load(Ordering::Acquire);
        self.raw.size() - self.head.wrapping_sub(self.seen) >= wanted
    }

    /// Writes one entry, for which [`has_room`](Self::has_room) was true. It is seen by the
    /// consumer after [`publish`](Self::publish).
    pub(crate) fn write(&mut self, entry: T) {
        debug_assert!(self.head.wrapping_sub(self.seen) < self.raw.size(), "a full ring");
        let at = self.raw.entry(self.head);
        // SAFETY: the place is in the ring, and the consumer does not read it before `publish`.
        unsafe { at.write(entry) };
        self.head = self.head.wrapping_add(1);
    }

    /// Shows the consumer everything written.
    pub(crate) fn publish(&mut self) {
        if self.head != self.published {
            // Release: the entries are written before the index says so.
            self.raw.producer().store(self.head, Ordering::Release);
            self.published = self.head;
        }
    }

    /// Entries that the consumer has not taken yet.
    pub(crate) fn pending(&mut self) -> u32 {
        if self.head != self.seen {
            self.seen = self.raw.consumer().load(Ordering::Acquire);
        }
        self.head.wrapping_sub(self.seen)
    }

    /// Shows every entry that the consumer has not taken, in order.
    pub(crate) fn for_each_pending(&mut self, mut each: impl FnMut(T)) {
        for step in (0..self.pending()).rev() {
            let at = self.raw.entry(self.head.wrapping_sub(step + 1));
            // SAFETY: the place is in the ring, we wrote it, and the consumer only reads.
            each(unsafe { at.read() });
        }
    }

    /// Whether the consumer has taken something since [`has_room`](Self::has_room) or
    /// [`pending`](Self::pending) last looked.
    pub(crate) fn has_moved(&self) -> bool {
        self.raw.consumer().load(Ordering::Acquire) != self.seen
    }

    /// The number of entries that fit.
    pub(crate) fn size(&self) -> u32 {
        self.raw.size()
    }

    /// Whether the kernel asks to be woken.
    pub(crate) fn wants_wakeup(&self) -> bool {
        self.raw.wants_wakeup()
    }
}

/// The consuming end: of the RX ring and the completion ring.
#[derive(Debug)]
pub(crate) struct Consumer<T> {
    raw: Raw<T>,
    /// Taken up to here.
    tail: u32,
    /// The producer's index as last seen.
    seen: u32,
}

impl<T: Entry> Consumer<T> {
    /// The consuming end of a ring that the kernel made.
    pub(crate) fn of_kernel(mapping: Mapping, offsets: &sys::xdp_ring_offset, size: u32) -> Self {
        Self::of(Raw::of_kernel(mapping, offsets, size))
    }

    fn of(raw: Raw<T>) -> Self {
        let tail = raw.consumer().load(Ordering::Relaxed);
        Self { raw, tail, seen: tail }
    }

    /// Takes the next entry; its place is given back by [`release`](Self::release).
    pub(crate) fn take(&mut self) -> Option<T> {
        if self.tail == self.seen {
            // Acquire: the entries that this index announces are written.
            self.seen = self.raw.producer().load(Ordering::Acquire);
            if self.tail == self.seen {
                return None;
            }
        }
        let at = self.raw.entry(self.tail);
        // SAFETY: the place is in the ring, and the producer has published it.
        let entry = unsafe { at.read() };
        self.tail = self.tail.wrapping_add(1);
        Some(entry)
    }

    /// Whether [`take`](Self::take) would give something.
    pub(crate) fn has_more(&self) -> bool {
        self.raw.producer().load(Ordering::Acquire) != self.tail
    }

    /// The number of entries that fit.
    pub(crate) fn size(&self) -> u32 {
        self.raw.size()
    }

    /// Gives the places of everything taken back to the producer.
    pub(crate) fn release(&mut self) {
        // Release: the entries are read before their places are written over.
        self.raw.consumer().store(self.tail, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    fn heap_ring(size: u32, start: u32) -> (Producer<u64>, Consumer<u64>, Arc<HeapMemory<u64>>) {
        let memory = HeapMemory::new(size, start);
        let (producer, consumer) = memory.ends();
        (producer, consumer, memory)
    }

    proptest! {
        #[test]
        fn a_ring_is_a_bounded_queue(
            start in prop_oneof![Just(0), Just(u32::MAX - 5), any::<u32>()],
            steps in proptest::collection::vec((any::<bool>(), 0_u32..12), 1..200),
        ) {
            let (mut producer, mut consumer, _) = heap_ring(8, start);
            let (mut model, mut published, mut next) = (VecDeque::new(), 0_usize, 0_u64);
            let mut taken_unreleased = 0_usize;
            for (produce, n) in steps {
                if produce {
                    for _ in 0..n {
                        let room = model.len() + taken_unreleased < 8;
                        prop_assert_eq!(producer.has_room(1), room);
                        if room {
                            producer.write(next);
                            model.push_back(next);
                            next += 1;
                        }
                    }
                    if n % 2 == 0 {
                        producer.publish();
                        published = model.len();
                    }
                } else {
                    for _ in 0..n {
                        let want = (published > 0).then(|| model.pop_front()).flatten();
                        published = published.saturating_sub(1);
                        prop_assert_eq!(consumer.take(), want);
                        taken_unreleased += usize::from(want.is_some());
                    }
                    if n % 3 != 0 {
                        consumer.release();
                        taken_unreleased = 0;
                    }
                }
            }
            prop_assert_eq!(consumer.has_more(), published > 0);
            prop_assert_eq!(producer.pending() as usize, model.len() + taken_unreleased);
            prop_assert!(!producer.has_moved());
            if consumer.take().is_some() {
                prop_assert!(!producer.has_moved(), "its place is not given back yet");
                consumer.release();
                prop_assert!(producer.has_moved());
            }
        }
    }

    #[test]
    fn entries_cross_threads_in_order() {
        const COUNT: u64 = 200_000;
        let (mut producer, mut consumer, _) = heap_ring(64, u32::MAX - 1_000);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut next = 0;
                while next < COUNT {
                    while next < COUNT && producer.has_room(1) {
                        producer.write(next);
                        next += 1;
                    }
                    producer.publish();
                    std::thread::yield_now();
                }
            });
            let mut want = 0;
            while want < COUNT {
                while let Some(entry) = consumer.take() {
                    assert_eq!(entry, want);
                    want += 1;
                }
                consumer.release();
                std::thread::yield_now();
            }
        });
    }

    #[test]
    fn the_wakeup_flag_is_read_anew() {
        let (producer, _, memory) = heap_ring(2, 0);
        assert!(!producer.wants_wakeup());
        memory.flags.store(sys::XDP_RING_NEED_WAKEUP, Ordering::Relaxed);
        assert!(producer.wants_wakeup());
    }
}
