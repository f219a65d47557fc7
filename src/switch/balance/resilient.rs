//! Resilient hashing: the hash names one of a fixed number of buckets, and buckets keep their
//! members as long as these are up.
//!
//! A failure moves the buckets of the member that failed, to the survivors that have fewest for
//! their weight; its return gives it back the buckets that it had at first, and no other moves.

use super::hash::FlowHash;
use super::key::Packet;
use super::members::in_turn;
use super::{Loads, MemberId, Members, PathChoice};
use crate::rng::Rng;
use crate::time::Time;

/// Resilient ECMP.
#[derive(Debug)]
pub struct Resilient {
    flow: FlowHash,
    /// The member of each bucket while all are up.
    home: Vec<MemberId>,
    /// The member of each bucket now. A power of two of them.
    buckets: Vec<MemberId>,
    /// Buckets of each member.
    held: Vec<u32>,
}

impl Resilient {
    pub(super) fn new(flow: FlowHash, buckets: u32, members: &Members) -> Self {
        let home: Vec<MemberId> =
            (0..buckets).map(|bucket| in_turn(members.slots(), bucket)).collect();
        let mut held = vec![0; members.len()];
        for member in &home {
            held[member.index()] += 1;
        }
        Self { flow, buckets: home.clone(), home, held }
    }

    fn give(&mut self, bucket: usize, member: MemberId) {
        self.held[self.buckets[bucket].index()] -= 1;
        self.held[member.index()] += 1;
        self.buckets[bucket] = member;
    }
}

impl PathChoice for Resilient {
    #[inline]
    fn choose<L: Loads>(
        &mut self,
        packet: &Packet<'_>,
        _members: &Members,
        _loads: &L,
        _now: Time,
        _rng: &mut Rng,
    ) -> MemberId {
        let bucket = self.flow.of(packet) as usize & (self.buckets.len() - 1);
        self.buckets[bucket]
    }

    fn refit(&mut self, members: &Members) {
        for bucket in 0..self.home.len() {
            let home = self.home[bucket];
            if members.is_up(home) && self.buckets[bucket] != home {
                self.give(bucket, home);
            }
        }
        for bucket in 0..self.home.len() {
            if members.is_up(self.buckets[bucket]) {
                continue;
            }
            let fewest = members.live().iter().min_by_key(|member| {
                // Buckets for each unit of weight, as a fraction with a common denominator.
                let held = u64::from(self.held[member.index()]) + 1;
                (held << 32) / u64::from(members.weight(**member))
            });
            if let Some(fewest) = fewest {
                self.give(bucket, *fewest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::{GroupConfig, HashConfig, MemberConfig, Method};
    use super::super::trial::{Trial, assert_spread};
    use super::*;
    use crate::node::PortId;
    use crate::units::Rate;
    use proptest::prelude::*;

    const BUCKETS: u32 = 256;

    fn trial(weights: &[u32]) -> Trial {
        let member = |(port, weight): (u16, &u32)| MemberConfig {
            weight: Some(*weight),
            ..MemberConfig::new(PortId(port), Rate::from_gbps(100))
        };
        let members = (0..).zip(weights).map(member).collect();
        let hash = HashConfig::new(11);
        Trial::of(GroupConfig::new(members, Method::Resilient { hash, buckets: BUCKETS }), 1)
    }

    #[test]
    fn flows_spread_over_the_survivors() {
        let mut trial = trial(&[1; 4]);
        assert_spread(&trial.counts(20_000), &[1; 4]);
        trial.group.set_up(PortId(1), false);
        let counts = trial.counts(20_000);
        assert_eq!(counts[1], 0);
        // 64 buckets over three: 85, 85, 86.
        for member in [0, 2, 3] {
            assert!((6_200..7_150).contains(&counts[member]), "{counts:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// A change of one member moves a flow only away from a member that is down, or back to
        /// the member that has its bucket at first.
        #[test]
        fn only_flows_that_must_move_do(
            weights in proptest::collection::vec(1_u32..4, 2..9),
            events in proptest::collection::vec((0_u16..9, any::<bool>()), 1..16),
        ) {
            let mut trial = trial(&weights);
            let flows = 0..200;
            let home: Vec<u16> = flows.clone().map(|flow| trial.member_of(flow)).collect();
            let mut before = home.clone();
            for (port, up) in events {
                trial.group.set_up(PortId(port), up);
                if trial.group.members().live().is_empty() {
                    trial.group.set_up(PortId(port), true);
                }
                let after: Vec<u16> = flows.clone().map(|flow| trial.member_of(flow)).collect();
                for ((before, after), home) in before.iter().zip(&after).zip(&home) {
                    let is_up = |member: u16| trial.group.members().is_up(MemberId(member));
                    prop_assert!(is_up(*after));
                    if is_up(*home) {
                        prop_assert_eq!(after, home);
                    } else if is_up(*before) {
                        prop_assert_eq!(after, before);
                    }
                }
                before = after;
            }
        }

        /// After any failures each survivor has its share of the buckets, within one and what the
        /// table cannot divide.
        #[test]
        fn survivors_share_by_weight(down in proptest::collection::btree_set(0_u16..8, 0..7)) {
            let weights = [1, 2, 1, 2, 1, 2, 1, 2];
            let mut trial = trial(&weights);
            for port in &down {
                trial.group.set_up(PortId(*port), false);
            }
            let counts = trial.counts(20_000);
            let left: u32 = (0..).zip(weights).filter(|(port, _)| !down.contains(port)).map(|(_, w)| w).sum();
            for ((port, weight), count) in (0_u16..).zip(weights).zip(counts) {
                if down.contains(&port) {
                    prop_assert_eq!(count, 0);
                } else {
                    // One of 256 buckets is about 78 flows of 20,000.
                    let want = 20_000 * u64::from(weight) / u64::from(left);
                    prop_assert!(count.abs_diff(want) < 160 + want / 8, "{} {}", count, want);
                }
            }
        }
    }
}
