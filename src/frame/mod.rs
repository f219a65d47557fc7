//! Frames as move-only handles into a store.
//!
//! A node never owns bytes: it owns [`Frame`] tokens and asks the [`FrameStore`] for what they
//! name. Under AF_XDP the store is the UMEM and a frame a chain of its chunks; in replay and in the
//! simulator it is the [`SlabStore`]. Forwarding moves the token, never the bytes.

#[cfg(test)]
pub(crate) mod conformance;
pub mod payload;
pub mod slab;

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

pub use payload::Payload;
pub use slab::SlabStore;

/// A frame held by exactly one owner: 8 bytes that name a chain of descriptors in one store.
///
/// A frame must end in [`FrameStore::release`] or leave through a driver that takes it back into
/// its store; dropping one asserts, since it would leak descriptors.
#[derive(Debug)]
#[must_use = "a frame must be forwarded or released to its store"]
pub struct Frame {
    head: u32,
    len: u32,
}

impl Frame {
    /// Only a store makes frames: `head` is its descriptor, `len_bytes` the length of the whole frame.
    pub(crate) const fn new(head: u32, len_bytes: u32) -> Self {
        Self { head, len: len_bytes }
    }

    /// The length in bytes, from destination address to the end of the payload, without FCS.
    pub const fn len_bytes(&self) -> u32 {
        self.len
    }

    /// The first descriptor, for the store and for drivers.
    pub(crate) const fn head(&self) -> u32 {
        self.head
    }

    pub(crate) const fn set_len_bytes(&mut self, len_bytes: u32) {
        self.len = len_bytes;
    }

    /// Ends the token without releasing what it names: the store has taken it back.
    pub(crate) const fn into_head(self) -> u32 {
        let head = self.head;
        std::mem::forget(self);
        head
    }
}

/// A frame at rest in a table, or on its way through code that may panic, without the assertion of
/// [`Frame`]'s drop: whoever parks a frame accounts for it.
#[derive(Debug)]
pub(crate) struct ParkedFrame(ManuallyDrop<Frame>);

impl ParkedFrame {
    /// Parks a frame.
    #[inline]
    pub(crate) const fn new(frame: Frame) -> Self {
        Self(ManuallyDrop::new(frame))
    }

    /// The frame again.
    #[inline]
    pub(crate) fn into_frame(self) -> Frame {
        ManuallyDrop::into_inner(self.0)
    }

    /// The frame, out of a place of a table that is free from now on.
    #[inline]
    pub(crate) fn take(&mut self) -> Self {
        let (head, len) = (self.0.head, self.0.len);
        Self::new(Frame::new(head, len))
    }
}

impl Deref for ParkedFrame {
    type Target = Frame;
    #[inline]
    fn deref(&self) -> &Frame {
        &self.0
    }
}

impl DerefMut for ParkedFrame {
    #[inline]
    fn deref_mut(&mut self) -> &mut Frame {
        &mut self.0
    }
}

impl Drop for Frame {
    // Inlined and by value: a frame whose address is taken cannot stay in a register.
    #[inline]
    fn drop(&mut self) {
        lost(self.head, self.len);
    }
}

#[cold]
#[inline(never)]
fn lost(head: u32, len_bytes: u32) {
    // While a panic unwinds, owners drop their queues; a second panic would hide the first.
    if !std::thread::panicking() {
        panic!("frame {head} of {len_bytes} bytes dropped without its store");
    }
}

/// The least number of leading bytes that [`FrameStore::head`] shows in one slice, for frames that
/// are that long: room for every header the pipeline reads.
pub const HEAD_BYTES_MIN: usize = 256;

/// The least room in front of a new frame: what [`FrameStore::push_head`] can add to a frame that
/// nothing was pushed onto, enough for an outer IPv6, UDP and VXLAN header with tags, or for an
/// outer Ethernet and IPv6 header.
pub const HEADROOM_BYTES_MIN: u32 = 128;

/// What holds the bytes of frames. Not shared between threads; a worker owns one.
pub trait FrameStore {
    /// A frame of `len_bytes` bytes whose contents are unspecified, or None when the store is full.
    fn allocate(&mut self, len_bytes: u32) -> Option<Frame>;

    /// Takes a frame back.
    fn release(&mut self, frame: Frame);

    /// The leading bytes in one slice: at least `min(len, HEAD_BYTES_MIN)`, often all of them.
    fn head<'a>(&'a self, frame: &Frame) -> &'a [u8];

    /// The same bytes, to write.
    fn head_mut<'a>(&'a mut self, frame: &mut Frame) -> &'a mut [u8];

    /// Appends all bytes of the frame to `out`, virtual payload made real.
    fn copy_out(&self, frame: &Frame, out: &mut Vec<u8>);

    /// Overwrites bytes from `offset` on.
    ///
    /// # Panics
    /// When `offset + bytes.len()` is past the frame's end.
    fn write(&mut self, frame: &mut Frame, offset: u32, bytes: &[u8]);

    /// Another frame with the same bytes, or None when the store is full.
    fn duplicate(&mut self, frame: &Frame) -> Option<Frame>;

    /// Cuts the frame to `len_bytes`, which is at most its length.
    fn truncate(&mut self, frame: &mut Frame, len_bytes: u32);

    /// Takes the first `bytes` bytes off the frame, at most [`HEADROOM_BYTES_MIN`]; no byte moves,
    /// and the room is there for [`push_head`](Self::push_head).
    ///
    /// # Panics
    /// When the frame's first descriptor has fewer.
    fn pull_head(&mut self, frame: &mut Frame, bytes: u32);

    /// Puts `bytes` bytes of unspecified content in front of the frame, without moving the others.
    /// False, and nothing changes, when there is not so much room: a new frame has
    /// [`HEADROOM_BYTES_MIN`].
    #[must_use]
    fn push_head(&mut self, frame: &mut Frame, bytes: u32) -> bool;

    /// A frame of `header` followed by `payload`; a store may keep the payload virtual.
    fn allocate_with_payload(&mut self, header: &[u8], payload: Payload) -> Option<Frame>;

    /// Whether the bytes from `offset` on are exactly `payload`, to the frame's end.
    fn payload_matches(&self, frame: &Frame, offset: u32, payload: Payload) -> bool;

    /// Frames handed out and not yet returned. Zero once every owner has given its frames back.
    fn outstanding(&self) -> u64;

    /// A frame with the given bytes, or None when the store is full.
    fn allocate_from(&mut self, bytes: &[u8]) -> Option<Frame> {
        let len = u32::try_from(bytes.len()).ok()?;
        let mut frame = self.allocate(len)?;
        self.write(&mut frame, 0, bytes);
        Some(frame)
    }
}
