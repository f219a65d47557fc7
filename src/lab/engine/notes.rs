//! Notes of departures beside the wire: how a gated run knows when a frame arrives, whenever its
//! ring delivers it, and finds each one that the kernel lost.

use std::collections::VecDeque;
use std::hash::Hasher as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam::utils::CachePadded;
use rustc_hash::FxHasher;

use crate::frame::{Frame, FrameStore, HEAD_BYTES_MIN};
use crate::time::Time;

/// Frames of one link direction that may be in the kernel at once: a veth queue holds 256, and past
/// that the kernel drops.
pub const OUTSTANDING_MAX: u64 = 128;

/// What the sender says of a frame that it put on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// When its last bit arrives.
    pub arrives: Time,
    len_bytes: u32,
    digest: u64,
}

fn digest<S: FrameStore>(store: &S, frame: &Frame) -> u64 {
    let head = store.head(frame);
    let mut hasher = FxHasher::default();
    hasher.write(&head[..head.len().min(HEAD_BYTES_MIN)]);
    hasher.finish()
}

/// The two ends of one link direction's notes.
pub fn note_pair() -> (NoteSender, NoteReceiver) {
    let capacity = usize::try_from(OUTSTANDING_MAX).unwrap_or(usize::MAX);
    let (producer, consumer) = rtrb::RingBuffer::new(capacity);
    let collected = Arc::new(CachePadded::new(AtomicU64::new(0)));
    (
        NoteSender { ring: producer, sent: 0, collected: Arc::clone(&collected) },
        NoteReceiver { ring: consumer, waiting: VecDeque::new(), collected },
    )
}

/// The sender's end.
#[derive(Debug)]
pub struct NoteSender {
    ring: rtrb::Producer<Note>,
    sent: u64,
    collected: Arc<CachePadded<AtomicU64>>,
}

impl NoteSender {
    /// Whether another frame may be sent before the receiver has collected some.
    pub fn has_room(&self) -> bool {
        self.sent - self.collected.load(Ordering::Acquire) < OUTSTANDING_MAX
    }

    /// Notes a frame that is about to be sent; there is room.
    ///
    /// # Panics
    /// When there is none.
    pub fn note<S: FrameStore>(&mut self, store: &S, frame: &Frame, arrives: Time) {
        let note = Note { arrives, len_bytes: frame.len_bytes(), digest: digest(store, frame) };
        assert!(self.ring.push(note).is_ok(), "a note was sent without room");
        self.sent += 1;
    }
}

/// The receiver's end.
#[derive(Debug)]
pub struct NoteReceiver {
    ring: rtrb::Consumer<Note>,
    waiting: VecDeque<Note>,
    collected: Arc<CachePadded<AtomicU64>>,
}

/// What the notes say of a frame that came out of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// It is the frame of a note, after `lost` others that will never come.
    Arrives {
        /// When its last bit arrives.
        at: Time,
        /// Frames noted before it that the kernel has lost.
        lost: u64,
    },
    /// No one of ours sent it.
    Foreign,
}

impl NoteReceiver {
    /// True while a noted frame has not come.
    pub fn is_waiting(&mut self) -> bool {
        self.pull();
        !self.waiting.is_empty()
    }

    fn pull(&mut self) {
        while let Ok(note) = self.ring.pop() {
            self.waiting.push_back(note);
        }
    }

    fn settle(&mut self, notes: usize) {
        self.waiting.drain(..notes);
        self.collected.fetch_add(notes as u64, Ordering::Release);
    }

    /// Pairs a frame with its note.
    pub fn pair<S: FrameStore>(&mut self, store: &S, frame: &Frame) -> Pairing {
        self.pull();
        let (len_bytes, digest) = (frame.len_bytes(), digest(store, frame));
        let found = self
            .waiting
            .iter()
            .position(|note| note.len_bytes == len_bytes && note.digest == digest);
        match found {
            Some(place) => {
                let at = self.waiting[place].arrives;
                self.settle(place + 1);
                Pairing::Arrives { at, lost: place as u64 }
            }
            None => Pairing::Foreign,
        }
    }

    /// Gives up on every frame that has not come, and gives their number.
    pub fn give_up(&mut self) -> u64 {
        self.pull();
        let lost = self.waiting.len();
        self.settle(lost);
        lost as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::SlabStore;

    #[test]
    fn a_lost_frame_is_found_and_a_strangers_is_told() {
        let mut store = SlabStore::new(16);
        let frames: Vec<Frame> =
            (0..4_u8).map(|n| store.allocate_from(&[n; 64]).expect("room")).collect();
        let (mut sender, mut receiver) = note_pair();
        for (frame, at) in frames.iter().take(3).zip(10..) {
            sender.note(&store, frame, Time::from_ns(at));
        }
        assert!(receiver.is_waiting());
        assert_eq!(receiver.pair(&store, &frames[3]), Pairing::Foreign);
        assert_eq!(
            receiver.pair(&store, &frames[1]),
            Pairing::Arrives { at: Time::from_ns(11), lost: 1 }
        );
        assert_eq!(receiver.give_up(), 1);
        assert!(!receiver.is_waiting());
        for _ in 0..OUTSTANDING_MAX {
            assert!(sender.has_room());
            sender.note(&store, &frames[0], Time::ZERO);
        }
        assert!(!sender.has_room());
        frames.into_iter().for_each(|frame| store.release(frame));
    }
}
