//! The Internet checksum (RFC 1071) and its incremental update (RFC 1624).

use std::net::{Ipv4Addr, Ipv6Addr};

/// A one's complement sum under way, over bytes in network order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    /// Carries are folded in only at the end: 2^32 additions of 32 bits fit.
    sum: u64,
    /// An odd number of bytes was added: the next one is the low half of its word.
    odd: bool,
}

/// A sum folded to 16 bits.
const fn fold(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let [.., high, low] = sum.to_be_bytes();
    u16::from_be_bytes([high, low])
}

impl Sum {
    /// Nothing added yet.
    pub const fn new() -> Self {
        Self { sum: 0, odd: false }
    }

    /// The pseudo-header of RFC 768 over an upper layer of `len_bytes` (header and payload).
    pub fn pseudo_v4(
        source: Ipv4Addr,
        destination: Ipv4Addr,
        protocol: u8,
        len_bytes: u32,
    ) -> Self {
        let sum = u64::from(source.to_bits())
            + u64::from(destination.to_bits())
            + u64::from(protocol)
            + u64::from(len_bytes);
        Self { sum, odd: false }
    }

    /// The pseudo-header of RFC 8200 section 8.1 over an upper layer of `len_bytes`.
    pub fn pseudo_v6(
        source: Ipv6Addr,
        destination: Ipv6Addr,
        protocol: u8,
        len_bytes: u32,
    ) -> Self {
        let mut sum = Self::new();
        sum.add_bytes(&source.octets());
        sum.add_bytes(&destination.octets());
        sum.sum += u64::from(protocol) + u64::from(len_bytes);
        sum
    }

    /// Adds `bytes`, which follow those added before.
    pub fn add_bytes(&mut self, bytes: &[u8]) {
        let mut sum = 0_u64;
        let (words, rest) = bytes.as_chunks::<4>();
        for word in words {
            sum += u64::from(u32::from_be_bytes(*word));
        }
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        sum += u64::from(u32::from_be_bytes(last));
        // Swapping the bytes of every word swaps those of the sum (RFC 1071 section 2 B).
        self.sum += if self.odd { u64::from(fold(sum).swap_bytes()) } else { sum };
        self.odd ^= bytes.len() % 2 == 1;
    }

    /// Adds one word.
    ///
    /// # Panics
    /// In debug builds, behind an odd number of bytes, where it would not be a word.
    pub fn add_u16(&mut self, word: u16) {
        debug_assert!(!self.odd, "a word behind an odd number of bytes");
        self.sum += u64::from(word);
    }

    /// The one's complement sum of what was added.
    pub const fn folded(self) -> u16 {
        fold(self.sum)
    }

    /// The checksum to send: the complement of the sum.
    pub const fn checksum(self) -> u16 {
        !self.folded()
    }

    /// The checksum to send in UDP, where 0 would mean "none" (RFC 768).
    pub const fn udp_checksum(self) -> u16 {
        match self.checksum() {
            0 => 0xffff,
            checksum => checksum,
        }
    }

    /// True when what was added holds its own right checksum.
    pub const fn is_valid(self) -> bool {
        self.folded() == 0xffff
    }
}

/// The checksum of `bytes`.
pub fn checksum(bytes: &[u8]) -> u16 {
    let mut sum = Sum::new();
    sum.add_bytes(bytes);
    sum.checksum()
}

/// The checksum after one of the words under it changed: `~(~HC + ~m + m')` (RFC 1624 equation 3).
pub const fn update(checksum: u16, old_word: u16, new_word: u16) -> u16 {
    !fold(!checksum as u64 + !old_word as u64 + new_word as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_example_of_rfc_1071() {
        let mut sum = Sum::new();
        sum.add_bytes(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(sum.folded(), 0xddf2);
        // In pieces of odd length as well.
        let mut sum = Sum::new();
        for piece in [&[0x00_u8][..], &[0x01, 0xf2, 0x03], &[], &[0xf4, 0xf5, 0xf6], &[0xf7]] {
            sum.add_bytes(piece);
        }
        assert_eq!(sum.folded(), 0xddf2);
    }

    #[test]
    fn the_example_of_rfc_1624() {
        // Section 4: HC = 0xDD2F, m = 0x5555, m' = 0x3285 gives 0x0000.
        assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn many_large_words_keep_their_carries() {
        let bytes = vec![0xff; 65_535];
        assert_eq!(checksum(&bytes), !0xff00_u16);
    }

    /// Word by word, carry by carry, as RFC 1071 section 4.1 does it.
    fn plain(bytes: &[u8]) -> u16 {
        let mut sum = 0_u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        u16::try_from(sum).expect("folded")
    }

    proptest! {
        #[test]
        fn pieces_sum_to_the_whole(
            bytes in proptest::collection::vec(any::<u8>(), 0..2_000),
            cuts in proptest::collection::vec(0_usize..2_000, 0..6),
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let mut sum = Sum::new();
            for pair in cuts.windows(2) {
                sum.add_bytes(&bytes[pair[0]..pair[1]]);
            }
            prop_assert_eq!(sum.folded(), plain(&bytes));
        }

        #[test]
        fn an_update_is_a_recomputation(
            mut bytes in proptest::collection::vec(any::<u8>(), 20),
            at in 0_usize..10,
            new in any::<u16>(),
        ) {
            // The word at 0 keeps the data from being all zero, where both zeros stand for it.
            bytes[0] |= 1;
            let at = at.max(1) * 2;
            let before = checksum(&bytes);
            let old = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
            bytes[at..at + 2].copy_from_slice(&new.to_be_bytes());
            prop_assert_eq!(update(before, old, new), checksum(&bytes));
        }
    }
}
