//! Cells: memory is handed out in whole ones.

/// Cells per byte are kept as a fraction of 2^40, so that a division is a multiplication; exact
/// for frames and cells below 2^20 bytes.
const SCALE_BITS: u32 = 40;

/// The largest cell for which the scaled division is exact, with a margin.
pub const CELL_BYTES_MAX: u32 = 1 << 16;

/// The most cells of a memory: sums of two counts stay below 2^32.
pub const CELLS_MAX: u32 = 1 << 30;

/// The size of a cell, ready to divide by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cells {
    cell_bytes: u32,
    /// What rounds up: the bytes of a cell but one.
    round_up_bytes: u64,
    cells_per_byte: u64,
}

impl Cells {
    /// Cells of `cell_bytes`, from 1 to [`CELL_BYTES_MAX`].
    pub fn new(cell_bytes: u32) -> Self {
        let cell_bytes = cell_bytes.clamp(1, CELL_BYTES_MAX);
        Self {
            cell_bytes,
            round_up_bytes: u64::from(cell_bytes - 1),
            cells_per_byte: (1_u64 << SCALE_BITS).div_ceil(u64::from(cell_bytes)),
        }
    }

    /// The size of one.
    #[inline]
    pub const fn cell_bytes(self) -> u32 {
        self.cell_bytes
    }

    /// Cells that a frame of `len_bytes` takes: at least one.
    #[inline]
    pub const fn of_frame(self, len_bytes: u32) -> u32 {
        let rounded = len_bytes as u64 + self.round_up_bytes;
        // The quotient of two 32-bit numbers.
        #[allow(
            clippy::cast_possible_truncation,
            reason = "a frame has at most as many cells as bytes"
        )]
        let cells = ((rounded * self.cells_per_byte) >> SCALE_BITS) as u32;
        cells
    }

    /// Whole cells within `bytes`.
    pub fn within(self, bytes: u64) -> u32 {
        u32::try_from(bytes / u64::from(self.cell_bytes)).unwrap_or(u32::MAX)
    }

    /// Cells that hold `bytes`.
    pub fn holding(self, bytes: u64) -> u32 {
        u32::try_from(bytes.div_ceil(u64::from(self.cell_bytes))).unwrap_or(u32::MAX)
    }

    /// Bytes of `cells` cells.
    #[inline]
    pub const fn bytes(self, cells: u32) -> u64 {
        cells as u64 * self.cell_bytes as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_counted_exactly() {
        for cell_bytes in [1, 3, 64, 80, 208, 254, 65_535, CELL_BYTES_MAX] {
            let cells = Cells::new(cell_bytes);
            for len in (1..70_000).step_by(7).chain([cell_bytes, cell_bytes + 1, 69_999]) {
                assert_eq!(cells.of_frame(len), len.div_ceil(cell_bytes), "{len} / {cell_bytes}");
            }
        }
    }
}
