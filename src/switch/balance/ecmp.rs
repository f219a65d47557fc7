//! Equal-cost multipath (RFC 2991, modulo-N hash): the hash of the flow, modulo the live members,
//! each counted as often as its weight says. A failure may move any flow.

use super::hash::FlowHash;
use super::key::Packet;
use super::{Loads, MemberId, Members, PathChoice};
use crate::rng::Rng;
use crate::time::Time;

/// ECMP.
#[derive(Debug)]
pub struct Ecmp {
    flow: FlowHash,
}

impl Ecmp {
    pub(super) fn new(flow: FlowHash) -> Self {
        Self { flow }
    }

    /// The member of a frame.
    #[inline]
    pub(super) fn member_of(&self, packet: &Packet<'_>, members: &Members) -> MemberId {
        members.slot_of(self.flow.of(packet))
    }
}

impl PathChoice for Ecmp {
    #[inline]
    fn choose<L: Loads>(
        &mut self,
        packet: &Packet<'_>,
        members: &Members,
        _loads: &L,
        _now: Time,
        _rng: &mut Rng,
    ) -> MemberId {
        self.member_of(packet, members)
    }

    fn refit(&mut self, _members: &Members) {}
}

#[cfg(test)]
mod tests {
    use super::super::config::{GroupConfig, HashConfig, MemberConfig, Method};
    use super::super::hash::HashAlgorithm;
    use super::super::key::Fields;
    use super::super::trial::{Trial, assert_spread};
    use crate::node::PortId;
    use crate::units::Rate;

    const WITH_QP: Fields = Fields::FIVE_TUPLE.and(Fields::DESTINATION_QP);

    fn ecmp(fields: Fields, algorithm: HashAlgorithm, seed: u32) -> Method {
        Method::Ecmp(HashConfig { fields, algorithm, seed: Some(seed) })
    }

    #[test]
    fn flows_spread_evenly_by_every_algorithm() {
        use HashAlgorithm::{Crc32, Murmur3, Toeplitz, Xor};
        for algorithm in [Crc32, Murmur3, Toeplitz, Xor] {
            for members in [2_u16, 5, 16] {
                let mut trial = Trial::new(members, ecmp(Fields::FIVE_TUPLE, algorithm, 3));
                assert_spread(&trial.counts(20_000), &vec![1; usize::from(members)]);
            }
        }
    }

    #[test]
    fn flows_spread_by_weight() {
        let weights = [4, 1, 2, 1];
        let member = |(port, weight)| MemberConfig {
            weight: Some(weight),
            ..MemberConfig::new(PortId(port), Rate::from_gbps(100))
        };
        let members = (0..).zip(weights).map(member).collect();
        let method = ecmp(Fields::FIVE_TUPLE, HashAlgorithm::Murmur3, 3);
        let mut trial = Trial::of(GroupConfig::new(members, method), 1);
        assert_spread(&trial.counts(20_000), &weights.map(u64::from));
        assert!(trial.group.imbalance().max_over_mean_permille() < 1_050);
    }

    #[test]
    fn a_flow_keeps_its_member() {
        let mut trial = Trial::new(7, ecmp(Fields::FIVE_TUPLE, HashAlgorithm::Crc32, 0));
        let first: Vec<u16> = (0..500).map(|flow| trial.member_of(flow)).collect();
        assert_eq!(first, (0..500).map(|flow| trial.member_of(flow)).collect::<Vec<_>>());
    }

    #[test]
    fn a_failure_moves_flows_of_other_members_too() {
        let mut trial = Trial::new(4, ecmp(Fields::FIVE_TUPLE, HashAlgorithm::Murmur3, 0));
        let before: Vec<u16> = (0..4_000).map(|flow| trial.member_of(flow)).collect();
        trial.group.set_up(PortId(2), false);
        let moved = (0..4_000)
            .zip(&before)
            .filter(|(flow, member)| **member != 2 && trial.member_of(*flow) != **member)
            .count();
        // Of three thousand, each keeps its member with probability 1/3.
        assert!((1_800..2_200).contains(&moved), "{moved}");
        trial.group.set_up(PortId(2), true);
        assert_eq!(before, (0..4_000).map(|flow| trial.member_of(flow)).collect::<Vec<_>>());
    }

    /// Flows of one leaf that go up by spine 0, and how the spine spreads them over its own group:
    /// the members it uses, and their counts.
    fn second_tier(first: Method, second: Method, size: u16) -> Vec<u64> {
        let mut leaf = Trial::new(size, first);
        let mut spine = Trial::new(size, second);
        let mut counts = vec![0; usize::from(size)];
        for flow in (0..20_000).filter(|flow| leaf.member_of(*flow) == 0) {
            counts[usize::from(spine.member_of(flow))] += 1;
        }
        counts
    }

    #[test]
    fn equal_seeds_polarise_two_tiers() {
        use HashAlgorithm::{Crc32, Murmur3, Toeplitz, Xor};
        for algorithm in [Crc32, Murmur3, Toeplitz, Xor] {
            let tier = || ecmp(Fields::FIVE_TUPLE, algorithm, 7);
            let counts = second_tier(tier(), tier(), 4);
            assert_eq!(counts.iter().filter(|n| **n > 0).count(), 1, "{algorithm:?}: {counts:?}");
        }
    }

    #[test]
    fn other_seeds_help_only_hashes_that_are_not_linear_in_them() {
        use HashAlgorithm::{Crc32, Murmur3, Toeplitz, Xor};
        for (algorithm, spreads) in
            [(Murmur3, true), (Toeplitz, true), (Crc32, false), (Xor, false)]
        {
            let tier = |seed| ecmp(Fields::FIVE_TUPLE, algorithm, seed);
            let counts = second_tier(tier(7), tier(8), 4);
            if spreads {
                assert_spread(&counts, &[1; 4]);
            } else {
                let used = counts.iter().filter(|n| **n > 0).count();
                assert_eq!(used, 1, "{algorithm:?}: {counts:?}");
            }
        }
    }

    #[test]
    fn the_queue_pair_in_the_second_tier_ends_polarisation() {
        for algorithm in [HashAlgorithm::Crc32, HashAlgorithm::Murmur3, HashAlgorithm::Toeplitz] {
            let counts =
                second_tier(ecmp(Fields::FIVE_TUPLE, algorithm, 7), ecmp(WITH_QP, algorithm, 7), 4);
            assert_spread(&counts, &[1; 4]);
        }
    }

    #[test]
    fn one_source_port_for_all_queue_pairs_is_one_flow_without_that_field() {
        let counts = |fields| {
            let mut trial = Trial::new(4, ecmp(fields, HashAlgorithm::Murmur3, 7));
            let mut counts = [0; 4];
            for qp in 0..20_000 {
                let frame =
                    super::super::trial::frame_v4([10, 0, 0, 1], [10, 0, 0, 2], 49_152, 4_791, qp);
                let member = trial.choose(&super::super::trial::packet(&frame));
                counts[member.expect("a member is up").index()] += 1;
            }
            counts
        };
        let alone = counts(Fields::FIVE_TUPLE);
        assert_eq!(alone.iter().max(), Some(&20_000));
        assert_spread(&counts(WITH_QP), &[1; 4]);
    }
}
