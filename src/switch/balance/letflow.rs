//! LetFlow (E. Vanini and others, NSDI 2017): a flow that pauses takes a random member. Flowlets
//! shrink on slow paths and grow on fast ones, which balances without any measurement.

use super::config::FlowletConfig;
use super::flowlet::Flowlets;
use super::hash::FlowHash;
use super::key::Packet;
use super::spray::random;
use super::{Loads, MemberId, Members, PathChoice};
use crate::rng::Rng;
use crate::time::Time;

/// LetFlow.
#[derive(Debug)]
pub struct LetFlow {
    flow: FlowHash,
    flowlets: Flowlets,
}

impl LetFlow {
    pub(super) fn new(flow: FlowHash, flowlets: &FlowletConfig) -> Self {
        Self { flow, flowlets: Flowlets::new(flowlets) }
    }
}

impl PathChoice for LetFlow {
    #[inline]
    fn choose<L: Loads>(
        &mut self,
        packet: &Packet<'_>,
        members: &Members,
        _loads: &L,
        now: Time,
        rng: &mut Rng,
    ) -> MemberId {
        let hash = self.flow.of(packet);
        self.flowlets.member(hash, now, members, || random(members.slots(), rng))
    }

    fn refit(&mut self, _members: &Members) {}
}

#[cfg(test)]
mod tests {
    use super::super::config::{HashConfig, Method};
    use super::super::trial::{Trial, assert_spread};
    use super::*;
    use crate::node::PortId;
    use crate::time::Duration;

    const IDLE: Duration = Duration::from_us(100);

    fn trial() -> Trial {
        let flowlets = FlowletConfig { flows: 1_024, idle: IDLE };
        Trial::new(4, Method::LetFlow { hash: HashConfig::new(3), flowlets })
    }

    #[test]
    fn a_flow_moves_only_when_it_has_paused() {
        let mut trial = trial();
        let mut moved = 0;
        for _ in 0..200 {
            let first = trial.member_of(9);
            for _ in 0..20 {
                trial.now += IDLE.saturating_sub(Duration::from_ps(1));
                assert_eq!(trial.member_of(9), first, "it has not paused for the idle time");
            }
            trial.now += IDLE;
            moved += u32::from(trial.member_of(9) != first);
        }
        // Of 200 pauses, three in four lead elsewhere.
        assert!((120..180).contains(&moved), "{moved}");
    }

    #[test]
    fn flowlets_spread_evenly() {
        let mut trial = trial();
        let mut counts = [0; 4];
        for _ in 0..20_000 {
            trial.now += IDLE;
            counts[usize::from(trial.member_of(9))] += 1;
        }
        assert_spread(&counts, &[1; 4]);
    }

    #[test]
    fn a_failure_moves_the_flows_of_the_member_alone() {
        let mut trial = trial();
        let before: Vec<u16> = (0..200).map(|flow| trial.member_of(flow)).collect();
        // Flows that share an entry with a later one have its member now.
        let before: Vec<u16> =
            (0..200).zip(before).map(|(flow, _)| trial.member_of(flow)).collect();
        trial.group.set_up(PortId(2), false);
        for (flow, before) in (0..200).zip(before) {
            let after = trial.member_of(flow);
            assert_eq!(after == before, before != 2, "flow {flow}");
        }
    }
}
