//! Per-packet spraying: every frame goes to the next member in turn, or to a random one. Flows are
//! reordered; their ends must take that.

use super::key::Packet;
use super::{Loads, MemberId, Members, PathChoice};
use crate::rng::Rng;
use crate::time::Time;

/// In turn, each member as often as its weight says.
#[derive(Debug)]
pub struct SprayRoundRobin {
    next: usize,
}

impl SprayRoundRobin {
    /// The first turn is drawn, so that switches that start together do not spray in step.
    pub(super) fn new(members: &Members, rng: &mut Rng) -> Self {
        Self { next: random_index(members.slots(), rng) }
    }

    /// The member whose turn it is, of these slots; None when there is none.
    #[inline(always)]
    pub(super) fn turn(&mut self, slots: &[MemberId]) -> Option<MemberId> {
        take_turn(&mut self.next, slots)
    }
}

impl PathChoice for SprayRoundRobin {
    #[inline]
    fn choose<L: Loads>(
        &mut self,
        _packet: &Packet<'_>,
        members: &Members,
        _loads: &L,
        _now: Time,
        _rng: &mut Rng,
    ) -> MemberId {
        self.turn(members.slots()).unwrap_or_default()
    }

    fn refit(&mut self, _members: &Members) {}
}

/// At random, by weight.
#[derive(Debug)]
pub struct SprayRandom;

impl PathChoice for SprayRandom {
    #[inline]
    fn choose<L: Loads>(
        &mut self,
        _packet: &Packet<'_>,
        members: &Members,
        _loads: &L,
        _now: Time,
        rng: &mut Rng,
    ) -> MemberId {
        random(members.slots(), rng)
    }

    fn refit(&mut self, _members: &Members) {}
}

/// The member whose turn it is; None when `among` is empty. A turn past the end, as after a member
/// left, begins again.
#[inline(always)]
pub(super) fn take_turn(next: &mut usize, among: &[MemberId]) -> Option<MemberId> {
    let at = *next;
    if let Some(member) = among.get(at) {
        *next = at + 1;
        return Some(*member);
    }
    *next = 1;
    among.first().copied()
}

#[inline]
fn random_index(among: &[MemberId], rng: &mut Rng) -> usize {
    // There are at most 4,096.
    let bound = u64::try_from(among.len()).unwrap_or(u64::MAX);
    usize::try_from(rng.below(bound)).unwrap_or(0)
}

/// A random one of `among`; the first member when it is empty.
#[inline]
pub(super) fn random(among: &[MemberId], rng: &mut Rng) -> MemberId {
    among.get(random_index(among, rng)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::config::{GroupConfig, MemberConfig, Method};
    use super::super::trial::{Trial, assert_spread};
    use crate::node::PortId;
    use crate::units::Rate;

    #[test]
    fn round_robin_is_exact() {
        let mut trial = Trial::new(16, Method::SprayRoundRobin);
        assert_eq!(trial.counts(1_600), [100; 16]);
        assert_eq!(trial.group.imbalance().max_over_mean_permille(), 1_000);
        let first = trial.member_of(0);
        assert_eq!(trial.member_of(0), (first + 1) % 16, "one flow as well");
        trial.group.set_up(PortId(3), false);
        let counts = trial.counts(1_500);
        assert_eq!(counts[3], 0);
        assert!(counts.iter().enumerate().all(|(member, n)| member == 3 || *n == 100));
    }

    #[test]
    fn turns_follow_weights() {
        let weights = [4, 1, 2];
        let member = |(port, weight)| MemberConfig {
            weight: Some(weight),
            ..MemberConfig::new(PortId(port), Rate::from_gbps(100 * u64::from(weight)))
        };
        let members: Vec<MemberConfig> = (0..).zip(weights).map(member).collect();
        let config = GroupConfig::new(members, Method::SprayRoundRobin);
        assert_eq!(Trial::of(config.clone(), 1).counts(7_000), [4_000, 1_000, 2_000]);
        let config = GroupConfig { method: Method::SprayRandom, ..config };
        assert_spread(&Trial::of(config, 1).counts(20_000), &weights.map(u64::from));
    }

    #[test]
    fn random_spray_is_even_and_has_no_memory() {
        let mut trial = Trial::new(4, Method::SprayRandom);
        let drawn: Vec<u16> = (0..32_000).map(|_| trial.member_of(7)).collect();
        let mut pairs = [0; 16];
        for pair in drawn.chunks(2) {
            pairs[usize::from(pair[0] * 4 + pair[1])] += 1;
        }
        assert_spread(&pairs, &[1; 16]);
    }

    #[test]
    fn switches_do_not_spray_in_step() {
        let firsts: std::collections::BTreeSet<u16> = (0..40)
            .map(|seed| {
                let member = |port| MemberConfig::new(PortId(port), Rate::from_gbps(100));
                let config =
                    GroupConfig::new((0..8).map(member).collect(), Method::SprayRoundRobin);
                Trial::of(config, seed).member_of(0)
            })
            .collect();
        assert!(firsts.len() > 4, "{firsts:?}");
    }
}
