//! Payload that is cheap to make and to check: a window into one fixed pseudo-random tile.
//!
//! A message's byte at position `p` under seed `s` is `TILE[(mix(s) + p) mod TILE_BYTES]`, so a
//! payload is copied and compared with `memcpy` and `memcmp`, and two messages, or two places of
//! one, agree only by chance. The simulator keeps the triple instead of the bytes.

/// Which bytes a payload holds: those of the stream `seed`, from `offset` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    /// The stream of bytes, one per flow or message.
    pub seed: u64,
    /// The position of the first byte in that stream.
    pub offset: u64,
    /// The number of bytes.
    pub len_bytes: u32,
}

/// The tile's length: a prime, so that windows of aligned offsets do not repeat early.
const TILE_BYTES: usize = 16_381;

static TILE: [u8; TILE_BYTES] = make_tile();

/// SplitMix64 (Steele, Lea, Flood 2014) a byte at a time.
const fn make_tile() -> [u8; TILE_BYTES] {
    let mut tile = [0; TILE_BYTES];
    let mut state = 0x7a11_a7e7_u64;
    let mut i = 0;
    while i < TILE_BYTES {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        tile[i] = z.to_le_bytes()[7];
        i += 1;
    }
    tile
}

/// One's complement sums (RFC 1071) of the tile's first `i` bytes, modulo 65,535, as if its first
/// byte were the high half of a word: the sum of any window is a difference of two of them.
static TILE_SUMS: [u16; TILE_BYTES + 1] = make_tile_sums();

const fn make_tile_sums() -> [u16; TILE_BYTES + 1] {
    let mut sums = [0; TILE_BYTES + 1];
    let mut i = 0;
    while i < TILE_BYTES {
        let weight = if i.is_multiple_of(2) { 256 } else { 1 };
        let [.., high, low] = ((sums[i] as u32 + TILE[i] as u32 * weight) % 65_535).to_be_bytes();
        sums[i + 1] = u16::from_be_bytes([high, low]);
        i += 1;
    }
    sums
}

/// The one's complement sum of the tile's bytes from `from` to `to`, the first one a high half.
const fn window_sum(from: usize, to: usize) -> u16 {
    // `a - b` in one's complement is `a + !b`.
    let (sum, carry) = TILE_SUMS[to].overflowing_add(!TILE_SUMS[from]);
    let sum = sum.wrapping_add(carry as u16);
    if from.is_multiple_of(2) { sum } else { sum.swap_bytes() }
}

impl Payload {
    /// The one's complement sum (RFC 1071) of the bytes, the first one being the high half of a
    /// word, without reading them.
    pub fn ones_complement_sum(self) -> u16 {
        let (mut at, mut left, mut sum, mut odd) =
            (self.start(), self.len_bytes as usize, 0_u32, false);
        while left > 0 {
            let n = left.min(TILE_BYTES - at);
            let part = window_sum(at, at + n);
            sum += u32::from(if odd { part.swap_bytes() } else { part });
            odd ^= !n.is_multiple_of(2);
            at = 0;
            left -= n;
            sum = (sum >> 16) + (sum & 0xffff);
        }
        u16::try_from((sum >> 16) + (sum & 0xffff)).unwrap_or(u16::MAX)
    }

    fn start(self) -> usize {
        let spread = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let start = (spread + self.offset % TILE_BYTES as u64) % TILE_BYTES as u64;
        usize::try_from(start).unwrap_or(0)
    }

    /// The bytes as slices of the tile, in order.
    pub fn slices(self) -> impl Iterator<Item = &'static [u8]> {
        let mut at = self.start();
        let mut left = self.len_bytes as usize;
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let n = left.min(TILE_BYTES - at);
            let slice = &TILE[at..at + n];
            at = 0;
            left -= n;
            Some(slice)
        })
    }

    /// Writes the bytes into `out`, which has their length.
    ///
    /// # Panics
    /// When `out` has another length.
    pub fn fill(self, out: &mut [u8]) {
        assert_eq!(out.len(), self.len_bytes as usize, "a payload fills its own length");
        let mut at = 0;
        for slice in self.slices() {
            out[at..at + slice.len()].copy_from_slice(slice);
            at += slice.len();
        }
    }

    /// Whether `bytes` are exactly this payload.
    pub fn matches(self, bytes: &[u8]) -> bool {
        if bytes.len() != self.len_bytes as usize {
            return false;
        }
        let mut at = 0;
        self.slices().all(|slice| {
            let same = bytes[at..at + slice.len()] == *slice;
            at += slice.len();
            same
        })
    }

    /// The part of this payload from its byte `skip` on, `len_bytes` long.
    #[must_use]
    pub const fn part(self, skip: u32, len_bytes: u32) -> Self {
        Self { seed: self.seed, offset: self.offset + skip as u64, len_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_that_of_the_bytes() {
        for offset in [0, 1, 7, 16_000, 16_380] {
            for len_bytes in [0_u32, 1, 2, 3, 999, 1_458, 16_381, 16_382, 50_001] {
                let payload = Payload { seed: 5, offset, len_bytes };
                let mut bytes = vec![0; len_bytes as usize];
                payload.fill(&mut bytes);
                let mut sum = crate::wire::checksum::Sum::new();
                sum.add_bytes(&bytes);
                // Both zeros of one's complement stand for the same sum.
                let same = |a: u16, b: u16| a % 65_535 == b % 65_535;
                assert!(same(payload.ones_complement_sum(), sum.folded()), "{offset} {len_bytes}");
            }
        }
    }

    #[test]
    fn parts_join_to_the_whole_across_the_tiles_end() {
        let whole = Payload { seed: 3, offset: 16_000, len_bytes: 40_000 };
        let mut bytes = vec![0; 40_000];
        whole.fill(&mut bytes);
        assert!(whole.matches(&bytes));
        let mut joined = vec![0; 40_000];
        for at in (0..40_000).step_by(1_000) {
            whole.part(at, 1_000).fill(&mut joined[at as usize..at as usize + 1_000]);
        }
        assert_eq!(bytes, joined);
        bytes[20_000] ^= 1;
        assert!(!whole.matches(&bytes));
        assert!(!Payload { seed: 4, ..whole }.matches(&joined));
    }
}
