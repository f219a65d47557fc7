//! A store that remembers which record each frame came from.
//!
//! A node moves frames, copies them and gives them back; none of that names a record. This store
//! tags each frame with the record that it, or what it is a copy of, came from, and notes what the
//! node does to it, so that the driver can say of every record what became of it.

use crate::frame::{Frame, FrameStore, Payload, SlabStore};

/// The tag of frames that the node makes itself.
pub(super) const OF_NO_RECORD: u64 = 0;

/// What the node did to a frame of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// Made a copy.
    Copied { tag: u64 },
    /// Gave it back: dropped or consumed it. Its bytes are the next `len` of the released bytes.
    Released { tag: u64, len: usize },
}

/// A slab with a tag on each frame.
#[derive(Debug)]
pub struct TaggedStore {
    slab: SlabStore,
    /// By the frame's head.
    tags: Vec<u64>,
    events: Vec<Event>,
    released: Vec<u8>,
}

impl TaggedStore {
    pub(super) fn new(chunks_max: u32) -> Self {
        Self {
            slab: SlabStore::new(chunks_max),
            tags: Vec::new(),
            events: Vec::new(),
            released: Vec::new(),
        }
    }

    fn tag(&self, frame: &Frame) -> u64 {
        self.tags.get(frame.head() as usize).copied().unwrap_or(OF_NO_RECORD)
    }

    fn set_tag(&mut self, frame: &Frame, tag: u64) {
        let place = frame.head() as usize;
        if self.tags.len() <= place {
            self.tags.resize((place + 1).next_power_of_two(), OF_NO_RECORD);
        }
        self.tags[place] = tag;
    }

    /// A frame of the record numbered `tag`, or None when the store is full.
    pub(super) fn insert(&mut self, bytes: &[u8], tag: u64) -> Option<Frame> {
        let frame = self.slab.allocate_from(bytes)?;
        self.set_tag(&frame, tag);
        Some(frame)
    }

    /// Takes a frame that left the node back, replacing `bytes` by its own; gives its tag.
    pub(super) fn take(&mut self, frame: Frame, bytes: &mut Vec<u8>) -> u64 {
        bytes.clear();
        self.slab.copy_out(&frame, bytes);
        let tag = self.tag(&frame);
        self.slab.release(frame);
        tag
    }

    /// Moves what the node did since the last call into `events`, and the bytes of the frames it
    /// gave back into `released`, one behind the other.
    pub(super) fn take_events(&mut self, events: &mut Vec<Event>, released: &mut Vec<u8>) {
        events.clear();
        released.clear();
        std::mem::swap(&mut self.events, events);
        std::mem::swap(&mut self.released, released);
    }

    /// A change of a frame by the slab that may give it another head.
    fn keeping_tag<T>(
        &mut self,
        frame: &mut Frame,
        change: impl FnOnce(&mut SlabStore, &mut Frame) -> T,
    ) -> T {
        let tag = self.tag(frame);
        let result = change(&mut self.slab, frame);
        self.set_tag(frame, tag);
        result
    }
}

impl FrameStore for TaggedStore {
    fn allocate(&mut self, len_bytes: u32) -> Option<Frame> {
        let frame = self.slab.allocate(len_bytes)?;
        self.set_tag(&frame, OF_NO_RECORD);
        Some(frame)
    }

    fn release(&mut self, frame: Frame) {
        let before = self.released.len();
        self.slab.copy_out(&frame, &mut self.released);
        let len = self.released.len() - before;
        self.events.push(Event::Released { tag: self.tag(&frame), len });
        self.slab.release(frame);
    }

    fn head<'a>(&'a self, frame: &Frame) -> &'a [u8] {
        self.slab.head(frame)
    }

    fn head_mut<'a>(&'a mut self, frame: &mut Frame) -> &'a mut [u8] {
        self.slab.head_mut(frame)
    }

    fn copy_out(&self, frame: &Frame, out: &mut Vec<u8>) {
        self.slab.copy_out(frame, out);
    }

    fn write(&mut self, frame: &mut Frame, offset: u32, bytes: &[u8]) {
        self.slab.write(frame, offset, bytes);
    }

    fn duplicate(&mut self, frame: &Frame) -> Option<Frame> {
        let copy = self.slab.duplicate(frame)?;
        let tag = self.tag(frame);
        self.set_tag(&copy, tag);
        self.events.push(Event::Copied { tag });
        Some(copy)
    }

    fn truncate(&mut self, frame: &mut Frame, len_bytes: u32) {
        self.keeping_tag(frame, |slab, frame| slab.truncate(frame, len_bytes));
    }

    fn pull_head(&mut self, frame: &mut Frame, bytes: u32) {
        self.keeping_tag(frame, |slab, frame| slab.pull_head(frame, bytes));
    }

    fn push_head(&mut self, frame: &mut Frame, bytes: u32) -> bool {
        self.keeping_tag(frame, |slab, frame| slab.push_head(frame, bytes))
    }

    fn allocate_with_payload(&mut self, header: &[u8], payload: Payload) -> Option<Frame> {
        let frame = self.slab.allocate_with_payload(header, payload)?;
        self.set_tag(&frame, OF_NO_RECORD);
        Some(frame)
    }

    fn payload_matches(&self, frame: &Frame, offset: u32, payload: Payload) -> bool {
        self.slab.payload_matches(frame, offset, payload)
    }

    fn outstanding(&self) -> u64 {
        self.slab.outstanding()
    }
}
