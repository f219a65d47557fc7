//! How unevenly a group's members were used.

/// The share of the most used member against the mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imbalance {
    /// Bytes given to all members.
    pub bytes: u64,
    /// Bytes of the member that got most for its weight.
    pub bytes_max: u64,
    /// What that member would have got if each had its share, rounded to nearest.
    pub bytes_fair: u64,
}

impl Imbalance {
    /// Of members by bytes and weight.
    pub(super) fn of(members: impl Iterator<Item = (u64, u32)> + Clone) -> Self {
        let bytes: u64 = members.clone().map(|(bytes, _)| bytes).sum();
        let weights: u64 = members.clone().map(|(_, weight)| u64::from(weight)).sum();
        // Fractions are compared by cross products.
        let most = members.max_by(|(a, for_a), (b, for_b)| {
            (u128::from(*a) * u128::from(*for_b)).cmp(&(u128::from(*b) * u128::from(*for_a)))
        });
        let (bytes_max, weight) = most.unwrap_or_default();
        let share = u128::from(bytes) * u128::from(weight) + u128::from(weights / 2);
        let bytes_fair = share.checked_div(u128::from(weights)).unwrap_or(0);
        Self { bytes, bytes_max, bytes_fair: u64::try_from(bytes_fair).unwrap_or(u64::MAX) }
    }

    /// Most over mean, in thousandths: 1,000 is perfect, 1,000 times the number of members when one
    /// of equal weight got all. 1,000 before anything was sent.
    pub fn max_over_mean_permille(&self) -> u64 {
        let permille = u128::from(self.bytes_max) * 1_000;
        let rounded = permille + u128::from(self.bytes_fair / 2);
        let ratio = rounded.checked_div(u128::from(self.bytes_fair)).unwrap_or(1_000);
        u64::try_from(ratio).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permille(members: &[(u64, u32)]) -> u64 {
        Imbalance::of(members.iter().copied()).max_over_mean_permille()
    }

    #[test]
    fn the_most_used_member_counts_against_its_share() {
        assert_eq!(permille(&[(0, 1), (0, 1)]), 1_000, "nothing sent");
        assert_eq!(permille(&[(500, 1), (500, 1)]), 1_000);
        assert_eq!(permille(&[(1_000, 1), (0, 1), (0, 1), (0, 1)]), 4_000);
        assert_eq!(permille(&[(300, 1), (100, 1)]), 1_500);
        // 400 of 500 bytes are the share of weight 4 of 5.
        assert_eq!(permille(&[(400, 4), (100, 1)]), 1_000);
        assert_eq!(permille(&[(250, 4), (250, 1)]), 2_500);
    }
}
