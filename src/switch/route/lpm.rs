//! Longest-prefix match whose cost depends on how many prefix lengths a table has, not on how many
//! prefixes: a binary search over the lengths, with one hash table for each (M. Waldvogel, G.
//! Varghese, J. Turner, B. Plattner, SIGCOMM 1997).
//!
//! A table is built once. Its entry at one length knows the best match up to that length, and
//! whether a longer prefix lies under it: a search that finds an entry goes on to longer lengths or
//! ends, one that finds none goes on to shorter ones. Entries that exist only to lead a search to a
//! longer prefix are the paper's markers.

use std::collections::BTreeMap;

use super::quick::upper_half;

/// An address that prefixes are of: IPv4 as 32 bits, IPv6 as 128.
pub(super) trait Address: Copy + Ord + Default {
    /// Bits of an address.
    const LEN_MAX: u8;

    /// The first `len` bits, the others zero.
    fn first_bits(self, len: u8) -> Self;

    /// The bits that are set in `mask` too.
    fn masked(self, mask: Self) -> Self;

    /// All ones.
    fn ones() -> Self;

    /// A hash whose upper bits depend on every bit of the address.
    fn hash(self) -> u64;
}

/// The golden ratio's fraction, and an odd number without relation to it.
const MULTIPLIERS: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93];

impl Address for u32 {
    const LEN_MAX: u8 = 32;

    fn first_bits(self, len: u8) -> Self {
        self & Self::MAX.checked_shl(Self::from(Self::LEN_MAX - len)).unwrap_or(0)
    }

    #[inline]
    fn masked(self, mask: Self) -> Self {
        self & mask
    }

    fn ones() -> Self {
        Self::MAX
    }

    #[inline]
    fn hash(self) -> u64 {
        u64::from(self).wrapping_mul(MULTIPLIERS[0])
    }
}

impl Address for u64 {
    const LEN_MAX: u8 = 64;

    fn first_bits(self, len: u8) -> Self {
        self & Self::MAX.checked_shl(u32::from(Self::LEN_MAX - len)).unwrap_or(0)
    }

    #[inline]
    fn masked(self, mask: Self) -> Self {
        self & mask
    }

    fn ones() -> Self {
        Self::MAX
    }

    #[inline]
    fn hash(self) -> Self {
        self.wrapping_mul(MULTIPLIERS[0])
    }
}

impl Address for u128 {
    const LEN_MAX: u8 = 128;

    fn first_bits(self, len: u8) -> Self {
        self & Self::MAX.checked_shl(u32::from(Self::LEN_MAX - len)).unwrap_or(0)
    }

    #[inline]
    fn masked(self, mask: Self) -> Self {
        self & mask
    }

    fn ones() -> Self {
        Self::MAX
    }

    #[inline]
    fn hash(self) -> u64 {
        #[allow(clippy::cast_possible_truncation, reason = "both halves are taken")]
        let (upper, lower) = ((self >> 64) as u64, self as u64);
        upper.wrapping_mul(MULTIPLIERS[0]).wrapping_add(lower.wrapping_mul(MULTIPLIERS[1]))
    }
}

/// The largest value that a prefix can have.
pub(super) const VALUE_MAX: u32 = NONE - 1;

/// In place of a value: no prefix up to this length matches.
const NONE: u32 = 0x7fff_fffe;

/// Set in an entry under which a longer prefix lies.
const LONGER: u32 = 1 << 31;

/// What an entry has that is free: no other one has all bits set.
const FREE: u32 = u32::MAX;

/// Places that a search within one length may look at, on average over all entries fewer than two.
const PROBES_MAX: usize = 16;

/// In place of a level: there is none.
const NO_LEVEL: u8 = u8::MAX;

#[derive(Clone, Copy, Debug)]
struct Slot<A> {
    key: A,
    /// The best match up to this length, with [`LONGER`].
    value: u32,
}

/// The entries of one prefix length, and its place in the binary search.
#[derive(Clone, Debug)]
struct Level<A> {
    len: u8,
    /// Where the search goes on when it finds no entry.
    shorter: u8,
    /// Where it goes on when it finds one that says so.
    longer: u8,
    hash_shift: u32,
    mask: A,
    /// A power of two of them, and [`PROBES_MAX`] behind, so that a search does not wrap.
    slots: Vec<Slot<A>>,
}

impl<A: Address> Level<A> {
    #[inline(always)]
    fn find(&self, address: A) -> Option<u32> {
        let key = address.masked(self.mask);
        #[allow(clippy::cast_possible_truncation, reason = "fewer bits than a usize has")]
        let home = (key.hash() >> self.hash_shift) as usize;
        let mut slots = self.slots.get(home..)?.iter();
        loop {
            let slot = slots.next()?;
            if slot.key == key && slot.value != FREE {
                return Some(slot.value);
            }
            if slot.value == FREE {
                return None;
            }
        }
    }

    /// Takes `entries` over into slots, twice as many or as many more as it takes to keep every one
    /// near its home.
    fn fill(&mut self, entries: &BTreeMap<A, u32>) {
        let mut bits = (entries.len() * 2).next_power_of_two().max(2).trailing_zeros();
        while !self.try_fill(entries, bits) {
            bits += 1;
        }
    }

    fn try_fill(&mut self, entries: &BTreeMap<A, u32>, bits: u32) -> bool {
        self.hash_shift = u64::BITS - bits;
        let free = Slot { key: A::default(), value: FREE };
        self.slots.clear();
        self.slots.resize((1 << bits) + PROBES_MAX, free);
        for (key, value) in entries {
            #[allow(clippy::cast_possible_truncation, reason = "fewer bits than a usize has")]
            let home = (key.hash() >> self.hash_shift) as usize;
            // The last one stays free: it ends every search.
            let near = &mut self.slots[home..home + PROBES_MAX];
            let Some(slot) = near.iter_mut().find(|slot| slot.value == FREE) else { return false };
            *slot = Slot { key: *key, value: *value };
        }
        true
    }
}

/// The first probe of a table of IPv6 prefixes, by the upper halves of addresses.
#[derive(Clone, Debug)]
pub(super) struct Short(Level<u64>);

impl Short {
    /// The value of the longest prefix that holds an address which begins so; None when one probe is
    /// not enough to tell.
    #[inline(always)]
    pub(super) fn find(&self, upper: u64) -> Option<u32> {
        self.0.find(upper).filter(|entry| *entry & LONGER == 0)
    }
}

impl Lpm<u128> {
    /// The first probe alone, if it is for a length of at most 64 bits.
    pub(super) fn short(&self) -> Option<Short> {
        let root = self.levels.get(usize::from(self.root)).filter(|level| level.len <= 64)?;
        let taken = root.slots.iter().filter(|slot| slot.value != FREE);
        let entries = taken.map(|slot| (upper_half(slot.key), slot.value)).collect();
        let mut level = Level {
            len: root.len,
            shorter: NO_LEVEL,
            longer: NO_LEVEL,
            hash_shift: 0,
            mask: upper_half(root.mask),
            slots: Vec::new(),
        };
        level.fill(&entries);
        Some(Short(level))
    }
}

/// A table of prefixes with a value each.
#[derive(Clone, Debug)]
pub(super) struct Lpm<A> {
    levels: Vec<Level<A>>,
    root: u8,
    /// The value of the prefix of length 0.
    default: u32,
}

impl<A: Address> Lpm<A> {
    /// A table of `prefixes`: address, length (at most [`Address::LEN_MAX`]), value (at most
    /// [`VALUE_MAX`]). Of two that are the same the later one counts.
    pub(super) fn new(prefixes: &[(A, u8, u32)]) -> Self {
        let mut by_len: BTreeMap<u8, BTreeMap<A, u32>> = BTreeMap::new();
        for (address, len, value) in prefixes {
            let at_len = by_len.entry(*len).or_default();
            at_len.insert(address.first_bits(*len), *value);
        }
        let default = by_len.remove(&0).and_then(|all| all.values().next().copied());
        let mut table =
            Self { levels: Vec::new(), root: NO_LEVEL, default: default.unwrap_or(NONE) };
        // Prefixes of one address are stations: fewer packets end here than pass.
        let size = |len: u8, all: &BTreeMap<A, u32>| if len == A::LEN_MAX { 0 } else { all.len() };
        let sizes: Vec<_> = by_len.iter().map(|(len, all)| (*len, size(*len, all))).collect();
        for (len, _) in &sizes {
            table.levels.push(Level {
                len: *len,
                shorter: NO_LEVEL,
                longer: NO_LEVEL,
                hash_shift: 0,
                mask: A::ones().first_bits(*len),
                slots: Vec::new(),
            });
        }
        // One probe more than the fewest that can do, so that frequent lengths can come first.
        let depth_max = (sizes.len() + 1).next_power_of_two().trailing_zeros() + 1;
        table.root = table.arrange(&sizes, 0, depth_max);
        table.enter(&by_len);
        table
    }

    /// Makes a search tree of the levels from `first` on, as many as `sizes` has, and says which is
    /// its root: the largest one that leaves a tree of at most `depth_max` probes.
    fn arrange(&mut self, sizes: &[(u8, usize)], first: usize, depth_max: u32) -> u8 {
        if sizes.is_empty() {
            return NO_LEVEL;
        }
        let side_max = (1_usize << (depth_max - 1)) - 1;
        let middle = sizes.len() / 2;
        let allowed = sizes.len().saturating_sub(side_max + 1)..=side_max.min(sizes.len() - 1);
        let rank = |at: &usize| (sizes[*at].1, std::cmp::Reverse(at.abs_diff(middle)));
        let at = allowed.max_by_key(rank).unwrap_or(middle);
        let shorter = self.arrange(&sizes[..at], first, depth_max - 1);
        let longer = self.arrange(&sizes[at + 1..], first + at + 1, depth_max - 1);
        let level = &mut self.levels[first + at];
        (level.shorter, level.longer) = (shorter, longer);
        // At most 128 lengths.
        u8::try_from(first + at).unwrap_or(NO_LEVEL)
    }

    /// Fills the levels with the prefixes and what leads to them.
    fn enter(&mut self, by_len: &BTreeMap<u8, BTreeMap<A, u32>>) {
        let mut entries: Vec<BTreeMap<A, u32>> = vec![BTreeMap::new(); self.levels.len()];
        for (len, prefixes) in by_len {
            for (address, value) in prefixes {
                let mut at = self.root;
                while let Some(level) = self.levels.get(usize::from(at)) {
                    let here = &mut entries[usize::from(at)];
                    if level.len == *len {
                        let longer = here.get(address).map_or(0, |old| old & LONGER);
                        here.insert(*address, *value | longer);
                        break;
                    }
                    if level.len < *len {
                        *here.entry(address.first_bits(level.len)).or_insert(NONE) |= LONGER;
                        at = level.longer;
                    } else {
                        at = level.shorter;
                    }
                }
            }
        }
        // A marker's best match is that of the longest prefix that holds it.
        for (level, entries) in self.levels.iter().zip(&mut entries) {
            for (address, value) in
                entries.iter_mut().filter(|(_, value)| **value & !LONGER == NONE)
            {
                let mut shorter = by_len.range(..level.len).rev();
                let best = shorter.find_map(|(len, all)| all.get(&address.first_bits(*len)));
                *value = *value & LONGER | *best.unwrap_or(&self.default);
            }
        }
        for (level, entries) in self.levels.iter_mut().zip(&entries) {
            level.fill(entries);
        }
    }

    /// The value of the longest prefix that holds `address`.
    #[inline(always)]
    pub(super) fn find(&self, address: A) -> Option<u32> {
        let mut best = self.default;
        let mut at = self.root;
        while let Some(level) = self.levels.get(usize::from(at)) {
            at = match level.find(address) {
                Some(entry) => {
                    best = entry & !LONGER;
                    if entry & LONGER == 0 {
                        break;
                    }
                    level.longer
                }
                None => level.shorter,
            };
        }
        (best != NONE).then_some(best)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Looks at every prefix.
    fn plain<A: Address>(prefixes: &[(A, u8, u32)], address: A) -> Option<u32> {
        let holds = |p: &&(A, u8, u32)| p.0.first_bits(p.1) == address.first_bits(p.1);
        // The last of the longest.
        prefixes.iter().filter(holds).max_by_key(|p| p.1).map(|p| p.2)
    }

    fn agree<A: Address>(prefixes: &[(A, u8, u32)], addresses: impl Iterator<Item = A>) {
        let table = Lpm::new(prefixes);
        for address in addresses {
            assert_eq!(table.find(address), plain(prefixes, address));
        }
    }

    #[test]
    fn the_longest_prefix_wins() {
        let v4 = |text: &str| text.parse::<std::net::Ipv4Addr>().expect("an address").to_bits();
        let prefixes = [
            (v4("10.0.0.0"), 8, 1),
            (v4("10.1.0.0"), 16, 2),
            (v4("10.1.2.0"), 24, 3),
            (v4("10.1.2.3"), 32, 4),
            (v4("0.0.0.0"), 0, 5),
        ];
        let table = Lpm::new(&prefixes);
        for (address, value) in [
            ("10.1.2.3", 4),
            ("10.1.2.4", 3),
            ("10.1.3.4", 2),
            ("10.2.0.1", 1),
            ("11.0.0.0", 5),
            ("0.0.0.0", 5),
        ] {
            assert_eq!(table.find(v4(address)), Some(value), "{address}");
        }
        let table = Lpm::new(&prefixes[..4]);
        assert_eq!(table.find(v4("11.0.0.0")), None);
        assert_eq!(Lpm::<u32>::new(&[]).find(7), None);
    }

    #[test]
    fn an_entry_of_all_zeros_is_no_free_slot() {
        agree(&[(0_u32, 8, 7)], [0, 1 << 23, 1 << 24, u32::MAX].into_iter());
        agree(&[(0_u128, 48, 7)], [0, 1 << 79, 1 << 80, u128::MAX].into_iter());
    }

    #[test]
    fn many_neighbouring_prefixes_stay_near_their_homes() {
        let block = 0xfcbb_bb00_u128 << 96;
        let prefixes: Vec<(u128, u8, u32)> =
            (0..60_000).map(|n| (block | u128::from(n) << 80, 48, n)).collect();
        let table = Lpm::new(&prefixes);
        assert!(table.levels[0].slots.len() <= 4 * prefixes.len() + PROBES_MAX);
        for (address, _, n) in prefixes {
            assert_eq!(table.find(address | 0xffff), Some(n));
        }
        assert_eq!(table.find(block | 60_000 << 80), None);
    }

    proptest! {
        #[test]
        fn agrees_with_looking_at_every_prefix(
            // Few distinct bits, so that prefixes hold one another.
            prefixes in proptest::collection::vec((any::<[u8; 4]>(), 0_u8..=32, 0_u32..100), 0..60),
            addresses in proptest::collection::vec(any::<[u8; 4]>(), 40),
        ) {
            let thin = |bytes: [u8; 4]| u32::from_be_bytes(bytes) & 0x8421_0803;
            let prefixes: Vec<_> = prefixes.into_iter().map(|(a, l, v)| (thin(a), l, v)).collect();
            let near = prefixes.iter().map(|p| p.0).collect::<Vec<_>>().into_iter();
            agree(&prefixes, addresses.iter().copied().map(thin).chain(near));
            let widen = |address: u32| u128::from(address) << 96 | u128::from(address) << 40;
            let wide: Vec<_> = prefixes.iter().map(|(a, l, v)| (widen(*a), l * 4, *v)).collect();
            let near = wide.iter().map(|p| p.0).collect::<Vec<_>>().into_iter();
            agree(&wide, addresses.into_iter().map(thin).map(widen).chain(near));
        }
    }
}
