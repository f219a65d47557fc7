//! The seeded generator of every node: PCG XSL RR 128/64 (M. O'Neill, HMC-CS-2014-0905), a stable,
//! named algorithm. Same seed, same run, byte for byte.

use rand_core::Rng as _;
use rand_pcg::Pcg64;

/// A node's own random numbers.
#[derive(Clone, Debug)]
pub struct Rng(Pcg64);

impl Rng {
    /// The generator of the node called `name` under the run's `seed`: nodes draw from streams of
    /// their own, so adding a node changes no other node's numbers.
    pub fn for_node(seed: u64, name: &str) -> Self {
        // FNV-1a over the name gives the stream; PCG takes any odd increment made from it.
        let stream = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Self(Pcg64::new(u128::from(seed), u128::from(stream)))
    }

    /// 64 uniform bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A uniform integer in `0..bound`, without bias (Lemire 2019). `bound` 0 gives 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        let mut product = self.scaled(bound);
        // Only a low word below the bound may be one too many, and only then is it worth a division.
        if low(product) < bound {
            let threshold = bound.wrapping_neg() % bound;
            while low(product) < threshold {
                product = self.scaled(bound);
            }
        }
        high(product)
    }

    /// 64 uniform bits times `bound`.
    fn scaled(&mut self, bound: u64) -> u128 {
        u128::from(self.next_u64()) * u128::from(bound)
    }

    /// True with probability `ppb` in 1,000,000,000.
    pub fn chance_ppb(&mut self, ppb: u64) -> bool {
        self.below(1_000_000_000) < ppb
    }

    /// A uniform double in the half-open interval (0, 1], 53 bits.
    pub fn unit_f64(&mut self) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "53 bits fit a double exactly")]
        let numerator = ((self.next_u64() >> 11) + 1) as f64;
        numerator / 9_007_199_254_740_992.0
    }
}

#[allow(clippy::cast_possible_truncation, reason = "the low word is what is asked for")]
const fn low(product: u128) -> u64 {
    product as u64
}

const fn high(product: u128) -> u64 {
    low(product >> 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_of_a_seed_and_name_never_changes() {
        let mut rng = Rng::for_node(1, "s1");
        let drawn: Vec<u64> = (0..3).map(|_| rng.next_u64()).collect();
        let mut again = Rng::for_node(1, "s1");
        assert_eq!(drawn, (0..3).map(|_| again.next_u64()).collect::<Vec<_>>());
        assert_ne!(drawn[0], Rng::for_node(1, "s2").next_u64());
        assert_ne!(drawn[0], Rng::for_node(2, "s1").next_u64());
    }

    #[test]
    fn below_covers_its_range_evenly() {
        let mut rng = Rng::for_node(7, "x");
        let mut seen = [0_u32; 6];
        for _ in 0..60_000 {
            seen[usize::try_from(rng.below(6)).expect("small")] += 1;
        }
        assert!(seen.iter().all(|n| (9_500..10_500).contains(n)), "{seen:?}");
    }
}
