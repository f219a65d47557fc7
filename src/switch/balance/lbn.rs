//! LBN: each ingress port of the LBN group has a configured index, and its frames leave by the
//! member of that index modulo the size of the group. Ports of one leaf therefore share the uplinks
//! evenly whatever their flows are. Frames that come by other ports are spread by ECMP.

use super::config::LbnForm;
use super::ecmp::Ecmp;
use super::hash::FlowHash;
use super::key::Packet;
use super::members::in_turn;
use super::{Loads, MemberId, Members, PathChoice};
use crate::node::PortId;
use crate::rng::Rng;
use crate::time::Time;

/// In the table for ports that have no index.
const NO_INDEX: u16 = u16::MAX;

/// LBN.
#[derive(Debug)]
pub struct Lbn {
    /// By ingress port.
    indices: Vec<u16>,
    form: LbnForm,
    others: Ecmp,
}

impl Lbn {
    pub(super) fn new(indices: &[(PortId, u16)], form: LbnForm, flow: FlowHash) -> Self {
        let len = indices.iter().map(|(port, _)| port.index() + 1).max().unwrap_or(0);
        let mut table = vec![NO_INDEX; len];
        for (port, index) in indices {
            table[port.index()] = *index;
        }
        Self { indices: table, form, others: Ecmp::new(flow) }
    }
}

impl PathChoice for Lbn {
    #[inline]
    fn choose<L: Loads>(
        &mut self,
        packet: &Packet<'_>,
        members: &Members,
        _loads: &L,
        _now: Time,
        _rng: &mut Rng,
    ) -> MemberId {
        let index = self.indices.get(packet.ingress.index()).copied().unwrap_or(NO_INDEX);
        if index == NO_INDEX {
            return self.others.member_of(packet, members);
        }
        if self.form == LbnForm::Enhanced {
            // A group has 1 to 256 members.
            let size = u16::try_from(members.len()).unwrap_or(u16::MAX);
            let home = MemberId(index % size.max(1));
            if members.is_up(home) {
                return home;
            }
        }
        in_turn(members.live(), u32::from(index))
    }

    fn refit(&mut self, _members: &Members) {}
}

#[cfg(test)]
mod tests {
    use super::super::config::{HashConfig, Method};
    use super::super::trial::{Trial, assert_spread, flow_frame, packet};
    use super::*;
    use proptest::prelude::*;

    /// Ports 16 to 31 have the indices 0 to 15; the group is on ports 0 and up.
    fn trial(members: u16, form: LbnForm) -> Trial {
        let indices = (0..16).map(|index| (PortId(16 + index), index)).collect();
        Trial::new(members, Method::Lbn { indices, form, hash: HashConfig::new(1) })
    }

    fn by_port(trial: &mut Trial) -> Vec<u16> {
        (16..32)
            .map(|port| {
                let bytes = flow_frame(u32::from(port));
                let packet = Packet { ingress: PortId(port), ..packet(&bytes) };
                trial.choose(&packet).expect("a member is up").0
            })
            .collect()
    }

    #[test]
    fn the_index_modulo_the_size_is_the_member() {
        for form in [LbnForm::Base, LbnForm::Enhanced] {
            let mut trial = trial(4, form);
            let want: Vec<u16> = (0..16).map(|index| index % 4).collect();
            assert_eq!(by_port(&mut trial), want);
            assert_eq!(trial.group.imbalance().max_over_mean_permille(), 1_000);
        }
    }

    #[test]
    fn the_base_form_recomputes_over_the_survivors() {
        let mut trial = trial(4, LbnForm::Base);
        trial.group.set_up(PortId(1), false);
        let want: Vec<u16> = (0..16).map(|index| [0, 2, 3][index % 3]).collect();
        assert_eq!(by_port(&mut trial), want);
    }

    #[test]
    fn the_enhanced_form_moves_the_ports_of_the_failed_member_alone() {
        let mut trial = trial(4, LbnForm::Enhanced);
        let before = by_port(&mut trial);
        trial.group.set_up(PortId(1), false);
        let after = by_port(&mut trial);
        for (index, (before, after)) in before.iter().zip(&after).enumerate() {
            assert_eq!(before == after, *before != 1, "index {index}");
        }
        // Its four ports, of indices 1, 5, 9, 13, spread over the three that are left.
        assert_eq!([after[1], after[5], after[9], after[13]], [2, 3, 0, 2]);
    }

    #[test]
    fn other_ports_are_spread_by_their_flows() {
        let mut trial = trial(4, LbnForm::Base);
        assert_spread(&trial.counts(20_000), &[1; 4]);
    }

    proptest! {
        #[test]
        fn a_failure_moves_no_more_ports_than_its_form_says(
            members in 2_u16..16,
            down in 0_u16..16,
        ) {
            let down = down % members;
            for form in [LbnForm::Base, LbnForm::Enhanced] {
                let mut trial = trial(members, form);
                let before = by_port(&mut trial);
                trial.group.set_up(PortId(down), false);
                let after = by_port(&mut trial);
                let moved = before.iter().zip(&after).filter(|(a, b)| a != b).count();
                let must = before.iter().filter(|member| **member == down).count();
                match form {
                    LbnForm::Enhanced => prop_assert_eq!(moved, must),
                    LbnForm::Base => prop_assert!(moved >= must),
                }
                trial.group.set_up(PortId(down), true);
                prop_assert_eq!(by_port(&mut trial), before);
            }
        }
    }
}
