//! The store of replay and the simulator: chunks of one vector, chained as the UMEM chains them.
//!
//! The payload of a generated frame stays the triple `(seed, offset, length)` behind its header
//! chunk; real bytes exist only where something reads them.

use super::{Frame, FrameStore, HEAD_BYTES_MIN, HEADROOM_BYTES_MIN, Payload};

const NO_CHUNK: u32 = u32::MAX;

/// Bytes of one chunk; a frame longer than that is a chain.
pub const SLAB_CHUNK_BYTES: usize = 512;

const HEADROOM: usize = HEADROOM_BYTES_MIN as usize;

/// The headroom lies before a chunk's bytes, used on a chain's first alone.
const PLACE_BYTES: usize = HEADROOM + SLAB_CHUNK_BYTES;

/// Where the bytes of a new frame begin.
const START: u16 = 128;
const _: () = assert!(START as usize == HEADROOM && PLACE_BYTES < u16::MAX as usize);

/// Real bytes that a frame with a virtual payload begins with, so that `head` keeps its promise
/// after as much has been pulled as can be.
const REAL_BYTES_MIN: usize = HEAD_BYTES_MIN + HEADROOM;

const _: () = assert!(SLAB_CHUNK_BYTES >= REAL_BYTES_MIN);

// The bytes lie beside what is said of them, so that one index finds both.
#[derive(Debug)]
struct Chunk {
    /// Where the real bytes begin in `place`, and how many they are.
    start: u16,
    len: u16,
    /// Handed out, or on the free list: what the ownership assertion reads.
    used: bool,
    next: u32,
    /// The virtual tail of a chain, on its first chunk.
    payload: Option<Payload>,
    place: [u8; PLACE_BYTES],
}

impl Chunk {
    #[inline]
    fn bytes(&self) -> &[u8] {
        let start = usize::from(self.start);
        &self.place[start..start + usize::from(self.len)]
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        let start = usize::from(self.start);
        &mut self.place[start..start + usize::from(self.len)]
    }
}

/// A slab of chunks that grows up to a limit and never shrinks.
#[derive(Debug)]
pub struct SlabStore {
    chunks: Vec<Chunk>,
    free: u32,
    chunks_max: u32,
    frames_out: u64,
}

impl SlabStore {
    /// A store of at most `chunks_max` chunks of [`SLAB_CHUNK_BYTES`].
    pub fn new(chunks_max: u32) -> Self {
        Self {
            chunks: Vec::new(),
            free: NO_CHUNK,
            chunks_max: chunks_max.min(NO_CHUNK - 1),
            frames_out: 0,
        }
    }

    /// Makes room for `chunks` before a run, so that none is made while frames move.
    pub fn reserve(&mut self, chunks: u32) {
        while self.chunks.len() < chunks.min(self.chunks_max) as usize {
            self.grow();
        }
    }

    fn grow(&mut self) -> bool {
        let have = u32::try_from(self.chunks.len()).unwrap_or(u32::MAX);
        let wanted = have.max(64).min(self.chunks_max.saturating_sub(have));
        for index in have..have + wanted {
            self.chunks.push(Chunk {
                start: START,
                len: 0,
                used: false,
                next: self.free,
                payload: None,
                place: [0; PLACE_BYTES],
            });
            self.free = index;
        }
        wanted > 0
    }

    fn take_chunk(&mut self, len: u16) -> Option<u32> {
        if self.free == NO_CHUNK && !self.grow() {
            return None;
        }
        let index = self.free;
        let chunk = &mut self.chunks[index as usize];
        self.free = chunk.next;
        debug_assert!(!chunk.used, "chunk {index} was handed out twice");
        chunk.start = START;
        chunk.len = len;
        chunk.used = true;
        chunk.next = NO_CHUNK;
        chunk.payload = None;
        Some(index)
    }

    fn give_chain(&mut self, head: u32) {
        let mut index = head;
        while index != NO_CHUNK {
            let chunk = &mut self.chunks[index as usize];
            assert!(chunk.used, "chunk {index} came back twice");
            chunk.used = false;
            let next = std::mem::replace(&mut chunk.next, self.free);
            self.free = index;
            index = next;
        }
    }

    #[inline]
    fn chunk_bytes(&self, index: u32) -> &[u8] {
        self.chunks[index as usize].bytes()
    }

    #[inline]
    fn chunk_bytes_mut(&mut self, index: u32) -> &mut [u8] {
        self.chunks[index as usize].bytes_mut()
    }

    /// A copy of one chunk that ends its chain, or None when the store is full.
    fn duplicate_chunk(&mut self, index: u32) -> Option<u32> {
        let copy = self.take_chunk(self.chunks[index as usize].len)?;
        let pair = self.chunks.get_disjoint_mut([index as usize, copy as usize]);
        if let Ok([from, to]) = pair {
            to.start = from.start;
            to.payload = from.payload;
            to.bytes_mut().copy_from_slice(from.bytes());
        }
        Some(copy)
    }

    /// The chunks of a frame, in order.
    fn chain(&self, head: u32) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(Some(head), |index| {
            let next = self.chunks[*index as usize].next;
            (next != NO_CHUNK).then_some(next)
        })
    }

    fn payload_of(&self, frame: &Frame) -> Option<Payload> {
        self.chunks[frame.head() as usize].payload
    }
}

#[cold]
#[inline(never)]
fn no_such_chunk(index: u32) -> ! {
    panic!("the store has no chunk {index}")
}

fn chunk_len(bytes: usize) -> u16 {
    u16::try_from(bytes.min(SLAB_CHUNK_BYTES)).unwrap_or(u16::MAX)
}

impl FrameStore for SlabStore {
    fn allocate(&mut self, len_bytes: u32) -> Option<Frame> {
        let mut left = len_bytes as usize;
        let first_len = chunk_len(left);
        let head = self.take_chunk(first_len)?;
        left -= usize::from(first_len);
        let mut last = head;
        while left > 0 {
            let len = chunk_len(left);
            let Some(index) = self.take_chunk(len) else {
                self.give_chain(head);
                return None;
            };
            self.chunks[last as usize].next = index;
            last = index;
            left -= usize::from(len);
        }
        self.frames_out += 1;
        Some(Frame::new(head, len_bytes))
    }

    fn release(&mut self, frame: Frame) {
        self.frames_out -= 1;
        self.give_chain(frame.into_head());
    }

    #[inline]
    fn head<'a>(&'a self, frame: &Frame) -> &'a [u8] {
        match self.chunks.get(frame.head() as usize) {
            Some(chunk) => chunk.bytes(),
            None => no_such_chunk(frame.head()),
        }
    }

    fn head_mut<'a>(&'a mut self, frame: &mut Frame) -> &'a mut [u8] {
        self.chunk_bytes_mut(frame.head())
    }

    fn copy_out(&self, frame: &Frame, out: &mut Vec<u8>) {
        for index in self.chain(frame.head()) {
            out.extend_from_slice(self.chunk_bytes(index));
        }
        for slice in self.payload_of(frame).into_iter().flat_map(Payload::slices) {
            out.extend_from_slice(slice);
        }
    }

    fn write(&mut self, frame: &mut Frame, offset: u32, bytes: &[u8]) {
        let mut skip = offset as usize;
        let mut rest = bytes;
        let mut index = frame.head();
        while !rest.is_empty() {
            assert!(
                index != NO_CHUNK,
                "write of {} bytes at {offset} past a frame's real bytes",
                bytes.len()
            );
            let chunk = self.chunk_bytes_mut(index);
            if skip < chunk.len() {
                let n = rest.len().min(chunk.len() - skip);
                chunk[skip..skip + n].copy_from_slice(&rest[..n]);
                rest = &rest[n..];
                skip = 0;
            } else {
                skip -= chunk.len();
            }
            index = self.chunks[index as usize].next;
        }
    }

    fn duplicate(&mut self, frame: &Frame) -> Option<Frame> {
        let mut from = frame.head();
        let head = self.duplicate_chunk(from)?;
        let mut to = head;
        loop {
            from = self.chunks[from as usize].next;
            if from == NO_CHUNK {
                break;
            }
            let Some(index) = self.duplicate_chunk(from) else {
                self.give_chain(head);
                return None;
            };
            self.chunks[to as usize].next = index;
            to = index;
        }
        self.frames_out += 1;
        Some(Frame::new(head, frame.len_bytes()))
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

    fn truncate(&mut self, frame: &mut Frame, len_bytes: u32) {
        assert!(len_bytes <= frame.len_bytes(), "a cut makes a frame no longer");
        let payload = self.payload_of(frame);
        let real = frame.len_bytes() - payload.map_or(0, |p| p.len_bytes);
        self.chunks[frame.head() as usize].payload =
            payload.map(|p| p.part(0, len_bytes.saturating_sub(real))).filter(|p| p.len_bytes > 0);
        let mut left = real.min(len_bytes) as usize;
        let mut index = frame.head();
        loop {
            let chunk = &mut self.chunks[index as usize];
            let keep = usize::from(chunk.len).min(left);
            chunk.len = u16::try_from(keep).unwrap_or(chunk.len);
            left -= keep;
            if left == 0 {
                let tail = std::mem::replace(&mut chunk.next, NO_CHUNK);
                self.give_chain(tail);
                break;
            }
            index = chunk.next;
        }
        frame.set_len_bytes(len_bytes);
    }

    fn allocate_with_payload(&mut self, header: &[u8], payload: Payload) -> Option<Frame> {
        // A short frame is kept real, so that `head` shows as much of it as it promises.
        if header.len() + payload.len_bytes as usize <= SLAB_CHUNK_BYTES {
            let total = u32::try_from(header.len()).ok()? + payload.len_bytes;
            let mut frame = self.allocate(total)?;
            let bytes = self.head_mut(&mut frame);
            bytes[..header.len()].copy_from_slice(header);
            payload.fill(&mut bytes[header.len()..]);
            return Some(frame);
        }
        let real = REAL_BYTES_MIN.saturating_sub(header.len());
        let real = u32::try_from(real).ok()?.min(payload.len_bytes);
        let header_len = u32::try_from(header.len()).ok()?;
        let mut frame = self.allocate(header_len + real)?;
        if frame.len_bytes() as usize <= SLAB_CHUNK_BYTES {
            let (front, behind) = self.head_mut(&mut frame).split_at_mut(header.len());
            front.copy_from_slice(header);
            payload.part(0, real).fill(behind);
        } else {
            // Headers that are longer than a chunk have no real payload behind them.
            self.write(&mut frame, 0, header);
        }
        self.chunks[frame.head() as usize].payload =
            Some(payload.part(real, payload.len_bytes - real)).filter(|p| p.len_bytes > 0);
        frame.set_len_bytes(header_len + payload.len_bytes);
        Some(frame)
    }

    fn payload_matches(&self, frame: &Frame, offset: u32, payload: Payload) -> bool {
        if frame.len_bytes() != offset + payload.len_bytes {
            return false;
        }
        let (mut skip, mut checked) = (offset as usize, 0_u32);
        for index in self.chain(frame.head()) {
            let bytes = self.chunk_bytes(index);
            let from = skip.min(bytes.len());
            skip -= from;
            let here = u32::try_from(bytes.len() - from).unwrap_or(u32::MAX);
            if !payload.part(checked, here).matches(&bytes[from..]) {
                return false;
            }
            checked += here;
        }
        match self.payload_of(frame) {
            None => true,
            // The offset lies inside the virtual part when `skip` is left over.
            Some(tail) => {
                let skip = u32::try_from(skip).unwrap_or(u32::MAX);
                let (want, have) = (
                    payload.part(checked, tail.len_bytes - skip),
                    tail.part(skip, tail.len_bytes - skip),
                );
                want == have || want.slices().flatten().eq(have.slices().flatten())
            }
        }
    }

    fn outstanding(&self) -> u64 {
        self.frames_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(store: &SlabStore, frame: &Frame) -> Vec<u8> {
        let mut out = Vec::new();
        store.copy_out(frame, &mut out);
        out
    }

    #[test]
    fn virtual_and_real_payloads_are_the_same_bytes() {
        let mut store = SlabStore::new(1_000);
        let header: Vec<u8> = (0..42).collect();
        for len in [0_u32, 1, 18, 213, 214, 215, 470, 471, 1_458, 8_958, 40_000] {
            let payload = Payload { seed: 9, offset: 77, len_bytes: len };
            let frame = store.allocate_with_payload(&header, payload).expect("room");
            let mut want = header.clone();
            want.resize(42 + len as usize, 0);
            payload.fill(&mut want[42..]);
            assert_eq!(bytes_of(&store, &frame), want, "length {len}");
            assert!(store.head(&frame).len() >= want.len().min(HEAD_BYTES_MIN));
            assert!(store.payload_matches(&frame, 42, payload));
            let real = store.allocate_from(&want).expect("room");
            assert!(store.payload_matches(&real, 42, payload));
            if len > 0 {
                assert!(!store.payload_matches(&real, 42, Payload { offset: 78, ..payload }));
            }
            let mut copy = store.duplicate(&frame).expect("room");
            for cut in [len + 41, len / 2 + 42, 42, 7] {
                let cut = cut.min(copy.len_bytes());
                store.truncate(&mut copy, cut);
                assert_eq!(bytes_of(&store, &copy), want[..cut as usize]);
                let again = store.duplicate(&copy).expect("room");
                assert_eq!(bytes_of(&store, &again), want[..cut as usize]);
                store.release(again);
            }
            for frame in [frame, real, copy] {
                store.release(frame);
            }
        }
        assert_eq!(store.outstanding(), 0);
    }

    #[test]
    fn the_head_moves_without_the_bytes_behind_it() {
        let mut store = SlabStore::new(1_000);
        let header: Vec<u8> = (0..42).collect();
        for len in [22_u32, 400, 470, 471, 2_000] {
            let payload = Payload { seed: 4, offset: 1, len_bytes: len };
            let mut frame = store.allocate_with_payload(&header, payload).expect("room");
            let mut want = bytes_of(&store, &frame);
            assert!(store.push_head(&mut frame, 4));
            store.write(&mut frame, 0, &[1, 2, 3, 4]);
            want.splice(0..0, [1, 2, 3, 4]);
            assert_eq!((bytes_of(&store, &frame), frame.len_bytes()), (want.clone(), len + 46));
            assert!(!store.push_head(&mut frame, HEADROOM_BYTES_MIN - 3), "4 of them are gone");
            assert!(store.push_head(&mut frame, HEADROOM_BYTES_MIN - 4));
            let copy = store.duplicate(&frame).expect("room");
            assert_eq!(bytes_of(&store, &copy), bytes_of(&store, &frame));
            store.pull_head(&mut frame, HEADROOM_BYTES_MIN - 4);
            assert_eq!(bytes_of(&store, &frame), want);
            store.pull_head(&mut frame, 50);
            assert_eq!(bytes_of(&store, &frame), want[50..]);
            assert!(store.head(&frame).len() >= HEAD_BYTES_MIN.min(want.len() - 50));
            assert!(store.payload_matches(&frame, 0, payload.part(4, len - 4)));
            store.truncate(&mut frame, 11);
            assert_eq!(bytes_of(&store, &frame), want[50..61]);
            store.release(frame);
            store.release(copy);
        }
        assert_eq!(store.outstanding(), 0);
    }

    #[test]
    fn it_is_a_frame_store() {
        super::super::conformance::check(&mut SlabStore::new(1_000));
    }

    #[test]
    fn a_full_store_refuses_and_recovers() {
        let mut store = SlabStore::new(4);
        let frame = store.allocate(2_048).expect("four chunks");
        assert!(store.allocate(1).is_none());
        store.release(frame);
        assert!(store.allocate(2_049).is_none(), "five chunks");
        let frame = store.allocate(2_048).expect("nothing leaked");
        store.release(frame);
    }

    #[test]
    #[should_panic(expected = "dropped without its store")]
    fn dropping_a_frame_asserts() {
        let mut store = SlabStore::new(4);
        drop(store.allocate(64));
    }
}
