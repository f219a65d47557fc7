//! The UMEM as a frame store: chunks, chained into frames, and who owns each.
//!
//! A ring cannot be read back once its device is gone, so this table alone knows which chunks a
//! vanished port's rings held. Every chunk is in exactly one state at any time: the
//! [`Census`] of the states sums to the number of chunks, always.

mod frames;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;

use super::memory::{Memory, REGION_ALIGN_BYTES};
use super::socket::SharedUmem;
use super::stamp::{self, STAMP_BYTES};
use crate::frame::{Frame, HEAD_BYTES_MIN, HEADROOM_BYTES_MIN};

const NO_CHUNK: u32 = u32::MAX;

/// Bytes that the kernel leaves free before a received frame (`XDP_PACKET_HEADROOM`); we leave as
/// many before a frame of our own.
pub(crate) const HEADROOM_BYTES: u16 = 256;

const _: () = assert!(HEADROOM_BYTES as u32 >= HEADROOM_BYTES_MIN);

/// The size of every chunk of a store: what the kernel takes in aligned mode with 4 KiB pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChunkSize {
    /// 2,048 bytes, 1,792 of a frame.
    Bytes2048,
    /// 4,096 bytes, 3,840 of a frame.
    #[default]
    Bytes4096,
}

impl ChunkSize {
    /// Bytes of a chunk.
    pub const fn bytes(self) -> u32 {
        1 << self.shift()
    }

    const fn shift(self) -> u32 {
        match self {
            Self::Bytes2048 => 11,
            Self::Bytes4096 => 12,
        }
    }

    /// Bytes of a frame that a chunk holds.
    pub const fn frame_bytes(self) -> u16 {
        match self {
            Self::Bytes2048 => 2_048 - HEADROOM_BYTES,
            Self::Bytes4096 => 4_096 - HEADROOM_BYTES,
        }
    }
}

/// A part of the store that is one UMEM to the kernel. The first serves every port in copy mode;
/// each port in zero-copy mode has its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegionId(u8);

impl RegionId {
    /// The region of all ports in copy mode.
    pub(crate) const SHARED: Self = Self(0);
}

/// A port as the ownership table knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PortSlot(u16);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum State {
    Free,
    /// In a frame that a node or a driver holds.
    User,
    /// In a fill or RX ring of `port`.
    Fill,
    /// In a TX or completion ring of `port`.
    Tx,
}

#[derive(Clone, Copy, Debug)]
struct Chunk {
    next: u32,
    /// Where the bytes begin in the chunk.
    start: u16,
    len: u16,
    port: PortSlot,
    state: State,
    region: RegionId,
}

#[derive(Debug)]
struct Region {
    first: u32,
    count: u32,
    free: u32,
    free_count: u32,
    huge_pages: bool,
}

/// How many chunks are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Waiting to be used.
    pub free: u32,
    /// In frames that somebody holds.
    pub user: u32,
    /// In fill and RX rings.
    pub fill: u32,
    /// In TX and completion rings.
    pub tx: u32,
    /// All chunks.
    pub total: u32,
}

impl Census {
    /// Whether every chunk is accounted for.
    pub const fn is_whole(&self) -> bool {
        self.free + self.user + self.fill + self.tx == self.total
    }
}

/// What a port's rings held when they were given up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Chunks of the fill and RX rings.
    pub fill_chunks: u32,
    /// Chunks of the TX and completion rings.
    pub tx_chunks: u32,
}

/// What the kernel must know of a region to register it as a UMEM. Sent to the thread that opens
/// sockets; keeps the memory mapped.
#[derive(Clone, Debug)]
pub(crate) struct UmemArea {
    /// Held so that it stays mapped.
    _memory: Arc<Memory>,
    pub(crate) address: u64,
    pub(crate) len: u64,
    pub(crate) chunk_bytes: u32,
}

/// A frame store over UMEM regions; one per worker.
#[derive(Debug)]
pub struct UmemStore {
    memory: Arc<Memory>,
    chunk_size: ChunkSize,
    chunks: Vec<Chunk>,
    regions: Vec<Region>,
    ports: u16,
    frames_out: u64,
    copies_across: u64,
    /// The UMEM of the first region, once a port asked for it.
    shared: Option<Arc<SharedUmem>>,
}

impl UmemStore {
    /// A store of at least `chunks` chunks, rounded up to whole huge pages (2 MiB).
    ///
    /// # Errors
    /// When the system has not that much memory to give.
    pub fn new(chunk_size: ChunkSize, chunks: u32) -> io::Result<Self> {
        let mut store = Self {
            memory: Arc::new(Memory::reserve()?),
            chunk_size,
            chunks: Vec::new(),
            regions: Vec::new(),
            ports: 0,
            frames_out: 0,
            copies_across: 0,
            shared: None,
        };
        store.add_region(chunks)?;
        Ok(store)
    }

    /// Adds a region of at least `chunks` chunks.
    pub(crate) fn add_region(&mut self, chunks: u32) -> io::Result<RegionId> {
        let too_many = || io::Error::other("a store has at most 255 regions and 2^32 chunks");
        let id = RegionId(u8::try_from(self.regions.len()).map_err(|_| too_many())?);
        let chunk_bytes = self.chunk_size.bytes() as usize;
        let len = (chunks.max(1) as usize * chunk_bytes).next_multiple_of(REGION_ALIGN_BYTES);
        let first = u32::try_from(self.chunks.len()).map_err(|_| too_many())?;
        let count = u32::try_from(len / chunk_bytes).map_err(|_| too_many())?;
        let end = first.checked_add(count).filter(|end| *end < NO_CHUNK).ok_or_else(too_many)?;
        let huge_pages = self.memory.make_real(first as usize * chunk_bytes, len)?;
        let mut free = NO_CHUNK;
        self.chunks.resize(
            end as usize,
            Chunk {
                next: NO_CHUNK,
                start: HEADROOM_BYTES,
                len: 0,
                port: PortSlot(0),
                state: State::Free,
                region: id,
            },
        );
        for index in (first..end).rev() {
            self.chunks[index as usize].next = free;
            free = index;
        }
        self.regions.push(Region { first, count, free, free_count: count, huge_pages });
        Ok(id)
    }

    /// The size of the store's chunks.
    pub const fn chunk_size(&self) -> ChunkSize {
        self.chunk_size
    }

    /// Whether all regions lie in reserved huge pages.
    pub fn has_huge_pages(&self) -> bool {
        self.regions.iter().all(|region| region.huge_pages)
    }

    /// Frames that were copied because they left by a port of another UMEM than they came from.
    pub const fn copies_across(&self) -> u64 {
        self.copies_across
    }

    /// Chunks that are free in all regions.
    pub fn free_chunks(&self) -> u32 {
        self.regions.iter().map(|region| region.free_count).sum()
    }

    /// Counts every chunk by its state: work proportional to the number of chunks.
    pub fn census(&self) -> Census {
        let mut census = Census {
            total: u32::try_from(self.chunks.len()).unwrap_or(u32::MAX),
            ..Census::default()
        };
        for chunk in &self.chunks {
            match chunk.state {
                State::Free => census.free += 1,
                State::User => census.user += 1,
                State::Fill => census.fill += 1,
                State::Tx => census.tx += 1,
            }
        }
        // The free lists and the table must tell the same.
        census.free = census.free.min(self.free_chunks());
        census
    }

    /// A name for a new port in the ownership table.
    pub(crate) fn new_port(&mut self) -> PortSlot {
        let slot = PortSlot(self.ports);
        self.ports += 1;
        slot
    }

    /// What to register with the kernel for `region`.
    pub(crate) fn area(&self, region: RegionId) -> UmemArea {
        let region = &self.regions[usize::from(region.0)];
        UmemArea {
            _memory: Arc::clone(&self.memory),
            address: self.memory.address(self.offset(region.first)),
            len: u64::from(region.count) << self.chunk_size.shift(),
            chunk_bytes: self.chunk_size.bytes(),
        }
    }

    /// The UMEM of all ports in copy mode.
    pub(crate) fn shared_umem(&mut self) -> Arc<SharedUmem> {
        let area = self.area(RegionId::SHARED);
        Arc::clone(self.shared.get_or_insert_with(|| Arc::new(SharedUmem::new(area))))
    }

    fn offset(&self, chunk: u32) -> usize {
        (chunk as usize) << self.chunk_size.shift()
    }

    fn take_chunk(&mut self, region: RegionId, state: State, port: PortSlot) -> Option<u32> {
        let region = &mut self.regions[usize::from(region.0)];
        let index = region.free;
        let chunk = self.chunks.get_mut(index as usize)?;
        region.free = chunk.next;
        region.free_count -= 1;
        debug_assert_eq!(chunk.state, State::Free, "chunk {index} was handed out twice");
        (chunk.next, chunk.state, chunk.port) = (NO_CHUNK, state, port);
        Some(index)
    }

    fn give_chunk(&mut self, index: u32) {
        let chunk = &mut self.chunks[index as usize];
        assert!(chunk.state != State::Free, "chunk {index} came back twice");
        let region = &mut self.regions[usize::from(chunk.region.0)];
        chunk.state = State::Free;
        chunk.next = region.free;
        region.free = index;
        region.free_count += 1;
    }

    /// Lends a chunk to the fill ring of `port`; gives its address in the region.
    pub(crate) fn lend(&mut self, region: RegionId, port: PortSlot) -> Option<u64> {
        let index = self.take_chunk(region, State::Fill, port)?;
        let local = index - self.regions[usize::from(region.0)].first;
        Some(u64::from(local) << self.chunk_size.shift())
    }

    /// Erases what an earlier frame's stamp has left in a chunk that is lent and that the kernel has
    /// not been shown yet. `address` is what [`lend`](Self::lend) gave.
    pub(crate) fn erase_stamp(&mut self, region: RegionId, address: u64) {
        let Some(index) = self.chunk_at(region, address) else { return };
        debug_assert_eq!(self.chunks[index as usize].state, State::Fill);
        let at = self.offset(index) + usize::from(HEADROOM_BYTES) - STAMP_BYTES;
        // SAFETY: the chunk was free a moment ago, and the kernel is shown it after this.
        let place = unsafe { self.memory.slice_mut(at, STAMP_BYTES) };
        place.copy_from_slice(&stamp::NO_STAMP);
    }

    /// When the frame arrived, by the clock of the port's [`RxStamps`](super::RxStamps), in
    /// nanoseconds; None when it bears no stamp. For a frame as it was received: whoever pushes or
    /// pulls its head has the place for other bytes.
    pub fn rx_stamp_ns(&self, frame: &Frame) -> Option<u64> {
        let chunk = &self.chunks[frame.head() as usize];
        let before = usize::from(chunk.start).checked_sub(STAMP_BYTES)?;
        // SAFETY: bytes before a frame that we hold, in its own chunk, of which the kernel has no
        // descriptor; writing to it takes `&mut self`.
        let bytes = unsafe { self.memory.slice(self.offset(frame.head()) + before, STAMP_BYTES) };
        stamp::read(bytes)
    }

    fn chunk_at(&self, region: RegionId, address: u64) -> Option<u32> {
        let region = &self.regions[usize::from(region.0)];
        let local = u32::try_from(address >> self.chunk_size.shift()).ok()?;
        (local < region.count).then(|| region.first + local)
    }

    /// Takes a chunk out of an RX ring of `port`; None when the kernel names one that the port was
    /// not lent, or bytes outside it.
    pub(crate) fn receive(
        &mut self,
        region: RegionId,
        port: PortSlot,
        address: u64,
        len: u32,
    ) -> Option<u32> {
        let index = self.chunk_at(region, address)?;
        let within = address & u64::from(self.chunk_size.bytes() - 1);
        let (start, len) = (u16::try_from(within).ok()?, u16::try_from(len).ok()?);
        let chunk = &mut self.chunks[index as usize];
        let fits = u32::from(start) + u32::from(len) <= self.chunk_size.bytes();
        if chunk.state != State::Fill || chunk.port != port || !fits {
            return None;
        }
        (chunk.start, chunk.len, chunk.next, chunk.state) = (start, len, NO_CHUNK, State::User);
        Some(index)
    }

    /// Chains `next` behind `last`, both received.
    pub(crate) fn chain_behind(&mut self, last: u32, next: u32) {
        self.chunks[last as usize].next = next;
    }

    /// Makes a frame of a received chain. Its header will be read soon: the cache fetches it
    /// while the rest of the burst is received.
    pub(crate) fn adopt(&mut self, head: u32, len_bytes: u32) -> Frame {
        self.frames_out += 1;
        self.memory.prefetch(self.place(head).start);
        Frame::new(head, len_bytes)
    }

    /// Gives a received chain back that never became a frame.
    pub(crate) fn discard(&mut self, head: u32) {
        self.give_chain(head);
    }

    /// The region that the frame's chunks are in.
    pub(crate) fn region_of(&self, frame: &Frame) -> RegionId {
        self.chunks[frame.head() as usize].region
    }

    /// The number of descriptors that the frame takes in a TX ring.
    pub(crate) fn descriptors(&self, frame: &Frame) -> u32 {
        if self.chunks[frame.head() as usize].next == NO_CHUNK {
            return 1;
        }
        u32::try_from(self.chain(frame.head()).count()).unwrap_or(u32::MAX)
    }

    /// Hands the frame's chunks to a TX ring of `port`: `each` gets the address and length of one
    /// and whether another follows.
    pub(crate) fn send(
        &mut self,
        region: RegionId,
        port: PortSlot,
        frame: Frame,
        mut each: impl FnMut(u64, u32, bool),
    ) {
        let first = self.regions[usize::from(region.0)].first;
        let shift = self.chunk_size.shift();
        self.frames_out -= 1;
        let mut index = frame.into_head();
        loop {
            let chunk = &mut self.chunks[index as usize];
            debug_assert!(chunk.region == region && chunk.state == State::User);
            (chunk.state, chunk.port) = (State::Tx, port);
            let next = chunk.next;
            let address = (u64::from(index - first) << shift) + u64::from(chunk.start);
            each(address, u32::from(chunk.len), next != NO_CHUNK);
            if next == NO_CHUNK {
                return;
            }
            index = next;
        }
    }

    /// Takes a chunk back from the completion ring of `port`; false when the kernel names one that
    /// was not there.
    pub(crate) fn complete(&mut self, region: RegionId, port: PortSlot, address: u64) -> bool {
        let Some(index) = self.chunk_at(region, address) else {
            return false;
        };
        let chunk = &self.chunks[index as usize];
        if chunk.state != State::Tx || chunk.port != port {
            return false;
        }
        self.give_chunk(index);
        true
    }

    /// Takes back everything that the rings of `port` hold: its sockets are closed.
    pub(crate) fn recover(&mut self, port: PortSlot) -> Recovered {
        let mut recovered = Recovered::default();
        for index in 0..u32::try_from(self.chunks.len()).unwrap_or(u32::MAX) {
            let chunk = &self.chunks[index as usize];
            if chunk.port != port {
                continue;
            }
            match chunk.state {
                State::Free | State::User => continue,
                State::Fill => recovered.fill_chunks += 1,
                State::Tx => recovered.tx_chunks += 1,
            }
            self.give_chunk(index);
        }
        recovered
    }

    fn region_ids(&self) -> impl Iterator<Item = RegionId> + use<> {
        (0..u8::try_from(self.regions.len()).unwrap_or(u8::MAX)).map(RegionId)
    }
}

const _: () = assert!(ChunkSize::Bytes2048.frame_bytes() as usize >= HEAD_BYTES_MIN + 128);
