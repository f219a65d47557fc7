//! Packet memory: a frame takes whole cells, and is admitted only when as many are free.

/// Cells per byte are kept as a fraction of 2^40, so that a division is a multiplication; exact
/// for frames and cells below 2^20 bytes.
const SCALE_BITS: u32 = 40;

/// The largest cell for which the scaled division is exact, with a margin.
pub(super) const CELL_BYTES_MAX: u32 = 1 << 16;

/// The memory of a switch, in cells.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    cell_bytes: u32,
    /// What rounds up: the bytes of a cell but one.
    round_up_bytes: u64,
    cells_per_byte: u64,
    cells: u32,
    /// Cells that were free at any time, and free ones beyond them: within these there is neither a
    /// limit to look at nor a record to keep.
    free_min: u32,
    spare: u32,
}

impl Buffer {
    /// A memory of `buffer_bytes` in cells of `cell_bytes`, both checked before.
    pub(super) fn new(buffer_bytes: u64, cell_bytes: u32) -> Self {
        let cells = u32::try_from(buffer_bytes / u64::from(cell_bytes)).unwrap_or(u32::MAX);
        Self {
            cell_bytes,
            round_up_bytes: u64::from(cell_bytes - 1),
            cells_per_byte: (1_u64 << SCALE_BITS).div_ceil(u64::from(cell_bytes)),
            cells,
            free_min: cells,
            spare: 0,
        }
    }

    /// Cells that a frame takes: at least one.
    #[inline]
    pub(super) const fn cells_of(&self, len_bytes: u32) -> u32 {
        let rounded = len_bytes as u64 + self.round_up_bytes;
        // The quotient of two 32-bit numbers.
        #[allow(
            clippy::cast_possible_truncation,
            reason = "a frame has at most as many cells as bytes"
        )]
        let cells = ((rounded * self.cells_per_byte) >> SCALE_BITS) as u32;
        cells
    }

    #[inline]
    pub(super) const fn fits(&self, cells: u32) -> bool {
        cells <= self.free_min + self.spare
    }

    /// Takes cells if that leaves as many free as ever were at least.
    #[inline]
    pub(super) const fn take_again(&mut self, cells: u32) -> bool {
        let again = cells <= self.spare;
        if again {
            self.spare -= cells;
        }
        again
    }

    #[inline]
    pub(super) const fn take(&mut self, cells: u32) {
        if cells <= self.spare {
            self.spare -= cells;
        } else {
            self.free_min -= cells - self.spare;
            self.spare = 0;
        }
    }

    #[inline]
    pub(super) const fn give(&mut self, cells: u32) {
        self.spare += cells;
    }

    /// All cells: also the most frames that can be queued.
    pub(super) const fn cells(&self) -> u32 {
        self.cells
    }

    /// Memory in use, in bytes of whole cells.
    pub(super) const fn bytes(&self) -> u64 {
        (self.cells - self.free_min - self.spare) as u64 * self.cell_bytes as u64
    }

    /// The most memory that was ever in use.
    pub(super) const fn bytes_max(&self) -> u64 {
        (self.cells - self.free_min) as u64 * self.cell_bytes as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_counted_exactly() {
        for cell_bytes in [1, 3, 64, 80, 208, 254, 65_535, CELL_BYTES_MAX] {
            let buffer = Buffer::new(1 << 20, cell_bytes);
            for len in (1..70_000).step_by(7).chain([cell_bytes, cell_bytes + 1, 69_999]) {
                assert_eq!(buffer.cells_of(len), len.div_ceil(cell_bytes), "{len} / {cell_bytes}");
            }
        }
    }

    #[test]
    fn use_and_record_are_those_of_plain_sums() {
        let mut buffer = Buffer::new(64_000, 64);
        let mut rng = crate::rng::Rng::for_node(1, "buffer");
        let (mut held, mut used, mut used_max) = (Vec::new(), 0_u64, 0);
        for _ in 0..10_000 {
            let cells = 1 + u32::try_from(rng.below(150)).expect("small");
            let free = 1_000 - used;
            assert_eq!(buffer.fits(cells), u64::from(cells) <= free);
            if rng.below(2) == 0 && buffer.fits(cells) {
                let again = u64::from(cells) + used <= used_max;
                assert_eq!(buffer.take_again(cells), again);
                if !again {
                    buffer.take(cells);
                }
                held.push(cells);
                used += u64::from(cells);
                used_max = used_max.max(used);
            } else if let Some(cells) = held.pop() {
                buffer.give(cells);
                used -= u64::from(cells);
            }
            assert_eq!((buffer.bytes(), buffer.bytes_max()), (used * 64, used_max * 64));
        }
        assert_eq!(used_max, 1_000, "the memory was full at times");
    }

    #[test]
    fn no_more_than_the_memory_is_given_out() {
        let mut buffer = Buffer::new(1_000, 300);
        assert!(buffer.fits(3) && !buffer.fits(4));
        buffer.take(2);
        assert!(buffer.fits(1) && !buffer.fits(2));
        buffer.give(2);
        assert_eq!((buffer.bytes(), buffer.bytes_max()), (0, 600));
    }
}
