//! Path navigation: a static table gives flows their members, as a controller planned them. Flows
//! that are not in it, and those whose member is down, go by ECMP.

use rustc_hash::FxHashMap;

use super::hash::FlowHash;
use super::key::{Flow, FlowKey, Packet};
use super::{Loads, MemberId, Members, PathChoice};
use crate::rng::Rng;
use crate::time::Time;

/// Path navigation.
#[derive(Debug)]
pub struct PathNavigation {
    flows: FxHashMap<FlowKey, MemberId>,
    others: FlowHash,
}

impl PathNavigation {
    pub(super) fn new(flows: &[(Flow, MemberId)], flow: FlowHash) -> Self {
        let flows = flows.iter().map(|(flow, member)| (FlowKey::of_flow(flow), *member));
        Self { flows: flows.collect(), others: flow }
    }
}

impl PathChoice for PathNavigation {
    #[inline]
    fn choose<L: Loads>(
        &mut self,
        packet: &Packet<'_>,
        members: &Members,
        _loads: &L,
        _now: Time,
        _rng: &mut Rng,
    ) -> MemberId {
        let key = FlowKey::of(packet, self.others.fields());
        match self.flows.get(&key) {
            Some(member) if members.is_up(*member) => *member,
            _ => members.slot_of(self.others.of_key(&key)),
        }
    }

    fn refit(&mut self, _members: &Members) {}
}

#[cfg(test)]
mod tests {
    use super::super::config::{HashConfig, Method};
    use super::super::key::Fields;
    use super::super::trial::Trial;
    use super::*;
    use crate::node::PortId;

    /// Flows 0 to 7 of [`flow_frame`](super::super::trial::flow_frame) have member 2.
    fn trial() -> Trial {
        let fields = Fields::SOURCE_IP.and(Fields::DESTINATION_IP).and(Fields::DESTINATION_QP);
        let flow = |n: u8| Flow {
            destination_qp: Some(n.into()),
            ..Flow::between([10, 0, 0, n].into(), [10, 1, 0, 1].into())
        };
        let flows = (0..8).map(|n| (flow(n), MemberId(2))).collect();
        let hash = HashConfig { fields, ..HashConfig::new(4) };
        Trial::new(4, Method::PathNavigation { flows, hash })
    }

    #[test]
    fn planned_flows_keep_their_member_and_others_are_spread() {
        let mut trial = trial();
        assert!((0..8).all(|flow| trial.member_of(flow) == 2));
        let hash = HashConfig { fields: trial_fields(), ..HashConfig::new(4) };
        let mut ecmp = Trial::new(4, Method::Ecmp(hash));
        assert!((8..500).all(|flow| trial.member_of(flow) == ecmp.member_of(flow)));
    }

    fn trial_fields() -> Fields {
        Fields::SOURCE_IP.and(Fields::DESTINATION_IP).and(Fields::DESTINATION_QP)
    }

    #[test]
    fn planned_flows_are_spread_while_their_member_is_down() {
        let mut trial = trial();
        trial.group.set_up(PortId(2), false);
        let hash = HashConfig { fields: trial_fields(), ..HashConfig::new(4) };
        let mut ecmp = Trial::new(4, Method::Ecmp(hash));
        ecmp.group.set_up(PortId(2), false);
        assert!((0..500).all(|flow| trial.member_of(flow) == ecmp.member_of(flow)));
        trial.group.set_up(PortId(2), true);
        assert!((0..8).all(|flow| trial.member_of(flow) == 2));
    }
}
