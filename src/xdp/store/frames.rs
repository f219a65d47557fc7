//! Frames as chains of the store's chunks: making them, reading and writing their bytes.

use super::{Chunk, ChunkSize, HEADROOM_BYTES, NO_CHUNK, PortSlot, RegionId, State, UmemStore};
use crate::frame::{Frame, FrameStore, Payload};
use crate::xdp::memory::Memory;

impl UmemStore {
    /// The frame's bytes in chunks of `region`: the frame itself, or a copy, which is counted.
    pub(crate) fn bring_into(&mut self, region: RegionId, frame: Frame) -> Result<Frame, Frame> {
        if self.region_of(&frame) == region {
            return Ok(frame);
        }
        let Some(mut copy) = self.allocate_in(region, frame.len_bytes()) else {
            return Err(frame);
        };
        let mut at = 0;
        let mut from = frame.head();
        while from != NO_CHUNK {
            let place = self.place(from);
            // SAFETY: a chunk of a frame that we hold; the copy has chunks of its own.
            let bytes = unsafe { self.memory.slice(place.start, place.len()) };
            Self::write_chain(&self.chunks, &self.memory, self.chunk_size, copy.head(), at, bytes);
            at += place.len();
            from = self.chunks[from as usize].next;
        }
        debug_assert_eq!(at, copy.len_bytes() as usize);
        copy.set_len_bytes(frame.len_bytes());
        self.copies_across += 1;
        self.release(frame);
        Ok(copy)
    }

    fn allocate_in(&mut self, region: RegionId, len_bytes: u32) -> Option<Frame> {
        let capacity = self.chunk_size.frame_bytes();
        let mut left = len_bytes;
        let mut head = NO_CHUNK;
        let mut last = NO_CHUNK;
        loop {
            let Some(index) = self.take_chunk(region, State::User, PortSlot(0)) else {
                self.give_chain(head);
                return None;
            };
            let chunk = &mut self.chunks[index as usize];
            chunk.start = HEADROOM_BYTES;
            chunk.len = u16::try_from(left).unwrap_or(u16::MAX).min(capacity);
            left -= u32::from(chunk.len);
            if head == NO_CHUNK {
                head = index;
            } else {
                self.chunks[last as usize].next = index;
            }
            last = index;
            if left == 0 {
                self.frames_out += 1;
                return Some(Frame::new(head, len_bytes));
            }
        }
    }

    pub(super) fn give_chain(&mut self, head: u32) {
        let mut index = head;
        while index != NO_CHUNK {
            let chunk = &self.chunks[index as usize];
            assert!(chunk.state == State::User, "chunk {index} came back twice");
            let next = chunk.next;
            self.give_chunk(index);
            index = next;
        }
    }

    pub(super) fn chain(&self, head: u32) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(Some(head), |index| {
            let next = self.chunks[*index as usize].next;
            (next != NO_CHUNK).then_some(next)
        })
    }

    /// Where a chunk's bytes lie in the memory.
    pub(super) fn place(&self, index: u32) -> std::ops::Range<usize> {
        let chunk = &self.chunks[index as usize];
        let at = self.offset(index) + usize::from(chunk.start);
        at..at + usize::from(chunk.len)
    }

    fn bytes(&self, index: u32) -> &[u8] {
        debug_assert_eq!(self.chunks[index as usize].state, State::User);
        let place = self.place(index);
        // SAFETY: the chunk belongs to a frame that we hold, so the kernel has no descriptor of it,
        // and writing to it takes `&mut self`.
        unsafe { self.memory.slice(place.start, place.len()) }
    }

    fn bytes_mut(&mut self, index: u32) -> &mut [u8] {
        debug_assert_eq!(self.chunks[index as usize].state, State::User);
        let place = self.place(index);
        // SAFETY: the chunk belongs to a frame that we hold, so the kernel has no descriptor of it,
        // and `&mut self` excludes every other slice.
        unsafe { self.memory.slice_mut(place.start, place.len()) }
    }

    /// Writes `bytes` into the chain from `offset` on.
    fn write_chain(
        chunks: &[Chunk],
        memory: &Memory,
        size: ChunkSize,
        head: u32,
        offset: usize,
        bytes: &[u8],
    ) {
        let (mut skip, mut rest, mut index) = (offset, bytes, head);
        while !rest.is_empty() {
            assert!(
                index != NO_CHUNK,
                "write of {} bytes at {offset} past a frame's end",
                bytes.len()
            );
            let chunk = &chunks[index as usize];
            let len = usize::from(chunk.len);
            if skip < len {
                let at = ((index as usize) << size.shift()) + usize::from(chunk.start);
                // SAFETY: the chunk belongs to a frame that the caller holds and `bytes` are not
                // of that frame; the caller has the store alone.
                let to = unsafe { memory.slice_mut(at, len) };
                let n = rest.len().min(len - skip);
                to[skip..skip + n].copy_from_slice(&rest[..n]);
                rest = &rest[n..];
                skip = 0;
            } else {
                skip -= len;
            }
            index = chunk.next;
        }
    }

    fn duplicate_in(&mut self, region: RegionId, frame: &Frame) -> Option<Frame> {
        let (mut from, mut head, mut last) = (frame.head(), NO_CHUNK, NO_CHUNK);
        while from != NO_CHUNK {
            let Some(index) = self.take_chunk(region, State::User, PortSlot(0)) else {
                self.give_chain(head);
                return None;
            };
            let original = self.chunks[from as usize];
            let copy = &mut self.chunks[index as usize];
            (copy.start, copy.len) = (original.start, original.len);
            let (source, target) = (self.place(from), self.place(index));
            // SAFETY: a chunk of a frame that we hold; the target is another chunk.
            let bytes = unsafe { self.memory.slice(source.start, source.len()) };
            // SAFETY: a chunk that was free a moment ago and is not yet shown to anyone.
            let to = unsafe { self.memory.slice_mut(target.start, target.len()) };
            to.copy_from_slice(bytes);
            if head == NO_CHUNK {
                head = index;
            } else {
                self.chunks[last as usize].next = index;
            }
            last = index;
            from = original.next;
        }
        self.frames_out += 1;
        Some(Frame::new(head, frame.len_bytes()))
    }
}

impl FrameStore for UmemStore {
    fn allocate(&mut self, len_bytes: u32) -> Option<Frame> {
        self.region_ids().find_map(|region| self.allocate_in(region, len_bytes))
    }

    fn release(&mut self, frame: Frame) {
        self.frames_out -= 1;
        self.give_chain(frame.into_head());
    }

    fn head<'a>(&'a self, frame: &Frame) -> &'a [u8] {
        self.bytes(frame.head())
    }

    fn head_mut<'a>(&'a mut self, frame: &mut Frame) -> &'a mut [u8] {
        self.bytes_mut(frame.head())
    }

    fn copy_out(&self, frame: &Frame, out: &mut Vec<u8>) {
        for index in self.chain(frame.head()) {
            out.extend_from_slice(self.bytes(index));
        }
    }

    fn write(&mut self, frame: &mut Frame, offset: u32, bytes: &[u8]) {
        let offset = offset as usize;
        Self::write_chain(&self.chunks, &self.memory, self.chunk_size, frame.head(), offset, bytes);
    }

    fn duplicate(&mut self, frame: &Frame) -> Option<Frame> {
        let home = self.region_of(frame);
        if let Some(copy) = self.duplicate_in(home, frame) {
            return Some(copy);
        }
        let mut others = self.region_ids().filter(|region| *region != home);
        others.find_map(|region| self.duplicate_in(region, frame))
    }

    fn truncate(&mut self, frame: &mut Frame, len_bytes: u32) {
        assert!(len_bytes <= frame.len_bytes(), "a cut makes a frame no longer");
        let mut left = len_bytes;
        let mut index = frame.head();
        loop {
            let chunk = &mut self.chunks[index as usize];
            chunk.len = chunk.len.min(u16::try_from(left).unwrap_or(u16::MAX));
            left -= u32::from(chunk.len);
            if left == 0 {
                let tail = std::mem::replace(&mut chunk.next, NO_CHUNK);
                self.give_chain(tail);
                break;
            }
            index = chunk.next;
        }
        frame.set_len_bytes(len_bytes);
    }

    fn pull_head(&mut self, frame: &mut Frame, bytes: u32) {
        let chunk = &mut self.chunks[frame.head() as usize];
        let taken = u16::try_from(bytes).unwrap_or(u16::MAX);
        assert!(taken <= chunk.len, "pull of {bytes} bytes from a head of {}", chunk.len);
        chunk.start += taken;
        chunk.len -= taken;
        frame.set_len_bytes(frame.len_bytes() - bytes);
    }

    fn push_head(&mut self, frame: &mut Frame, bytes: u32) -> bool {
        let chunk = &mut self.chunks[frame.head() as usize];
        let Some(taken) = u16::try_from(bytes).ok().filter(|taken| *taken <= chunk.start) else {
            return false;
        };
        chunk.start -= taken;
        chunk.len += taken;
        frame.set_len_bytes(frame.len_bytes() + bytes);
        true
    }

    fn allocate_with_payload(&mut self, header: &[u8], payload: Payload) -> Option<Frame> {
        let header_len = u32::try_from(header.len()).ok()?;
        let mut frame = self.allocate(header_len + payload.len_bytes)?;
        self.write(&mut frame, 0, header);
        let (mut skip, mut done) = (header.len(), 0_u32);
        let mut index = frame.head();
        while index != NO_CHUNK {
            let bytes = self.bytes_mut(index);
            let from = skip.min(bytes.len());
            skip -= from;
            let here = u32::try_from(bytes.len() - from).ok()?;
            payload.part(done, here).fill(&mut bytes[from..]);
            done += here;
            index = self.chunks[index as usize].next;
        }
        Some(frame)
    }

    fn payload_matches(&self, frame: &Frame, offset: u32, payload: Payload) -> bool {
        if frame.len_bytes() != offset + payload.len_bytes {
            return false;
        }
        let (mut skip, mut checked) = (offset as usize, 0_u32);
        self.chain(frame.head()).all(|index| {
            let bytes = self.bytes(index);
            let from = skip.min(bytes.len());
            skip -= from;
            let here = u32::try_from(bytes.len() - from).unwrap_or(u32::MAX);
            let same = payload.part(checked, here).matches(&bytes[from..]);
            checked += here;
            same
        })
    }

    fn outstanding(&self) -> u64 {
        self.frames_out
    }
}
