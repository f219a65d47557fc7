//! Dynamic load balancing by the quality of members: for every frame (spray), for every flowlet
//! (eligible), or once for each flow (fixed).

use super::config::{DlbMode, FlowletConfig, QualityConfig};
use super::flowlet::Flowlets;
use super::hash::FlowHash;
use super::key::Packet;
use super::quality::Quality;
use super::{Loads, MemberId, Members, PathChoice};
use crate::rng::Rng;
use crate::time::{Duration, Time};

/// DLB.
#[derive(Debug)]
pub struct Dlb {
    quality: Quality,
    /// None sprays.
    flows: Option<(FlowHash, Flowlets)>,
}

impl Dlb {
    pub(super) fn new(
        mode: DlbMode,
        flow: FlowHash,
        flowlets: &FlowletConfig,
        quality: &QualityConfig,
        members: &Members,
    ) -> Self {
        let idle = match mode {
            DlbMode::Spray => None,
            DlbMode::Eligible => Some(flowlets.idle),
            DlbMode::Fixed => Some(Duration::MAX),
        };
        let flows = idle.map(|idle| (flow, Flowlets::new(&FlowletConfig { idle, ..*flowlets })));
        Self { quality: Quality::new(quality, members), flows }
    }
}

impl PathChoice for Dlb {
    #[inline]
    fn choose<L: Loads>(
        &mut self,
        packet: &Packet<'_>,
        members: &Members,
        loads: &L,
        now: Time,
        _rng: &mut Rng,
    ) -> MemberId {
        let quality = &mut self.quality;
        match &mut self.flows {
            None => quality.best(members, loads, now),
            Some((flow, flowlets)) => {
                let hash = flow.of(packet);
                flowlets.member(hash, now, members, || quality.best(members, loads, now))
            }
        }
    }

    fn refit(&mut self, members: &Members) {
        self.quality.find_best(members);
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::{HashConfig, Method};
    use super::super::trial::Trial;
    use super::*;
    use crate::node::PortId;

    const INTERVAL: Duration = Duration::from_us(16);
    const IDLE: Duration = Duration::from_us(256);

    fn trial(mode: DlbMode) -> Trial {
        let method = Method::Dlb {
            mode,
            hash: HashConfig::new(3),
            flowlets: FlowletConfig { flows: 1_024, idle: IDLE },
            quality: QualityConfig::default(),
        };
        Trial::new(4, method)
    }

    /// Ports 0 and 2 have long queues, for long enough that averages know it.
    fn congest(trial: &mut Trial) {
        trial.loads.queue_bytes[0] = 1_000_000;
        trial.loads.queue_bytes[2] = 1_000_000;
        trial.now += INTERVAL * 20;
    }

    #[test]
    fn spray_takes_the_best_members_in_turn() {
        let mut trial = trial(DlbMode::Spray);
        assert_eq!(trial.counts(400), [100; 4]);
        congest(&mut trial);
        assert_eq!(trial.counts(400), [0, 200, 0, 200]);
        trial.group.set_up(PortId(3), false);
        assert_eq!(trial.counts(400), [0, 400, 0, 0]);
        trial.group.set_up(PortId(1), false);
        assert_eq!(trial.counts(400), [200, 0, 200, 0], "nobody better is left");
    }

    #[test]
    fn eligible_moves_a_flow_that_has_paused_to_the_best() {
        let mut trial = trial(DlbMode::Eligible);
        let before: Vec<u16> = (0..100).map(|flow| trial.member_of(flow)).collect();
        congest(&mut trial);
        trial.now = Time::ZERO + IDLE.saturating_sub(Duration::from_ps(1));
        let same: Vec<u16> = (0..100).map(|flow| trial.member_of(flow)).collect();
        let kept = before.iter().zip(&same).filter(|(a, b)| a == b).count();
        assert!(kept > 90, "all but those that share an entry: {kept}");
        trial.now += IDLE;
        let after: Vec<u16> = (0..100).map(|flow| trial.member_of(flow)).collect();
        assert!(after.iter().all(|member| member % 2 == 1), "{after:?}");
    }

    #[test]
    fn fixed_keeps_its_member_through_pauses() {
        let mut trial = trial(DlbMode::Fixed);
        let before: Vec<u16> = (0..20).map(|flow| trial.member_of(flow)).collect();
        congest(&mut trial);
        trial.now += Duration::from_secs(1);
        assert_eq!(before, (0..20).map(|flow| trial.member_of(flow)).collect::<Vec<_>>());
        // A new flow goes to the best, as does one whose member fails.
        let new: Vec<u16> = (500..510).map(|flow| trial.member_of(flow)).collect();
        assert!(new.iter().filter(|member| *member % 2 == 1).count() >= 9, "{new:?}");
        trial.group.set_up(PortId(0), false);
        for (flow, before) in (0..20).zip(before) {
            let after = trial.member_of(flow);
            assert!(if before == 0 { after % 2 == 1 } else { after == before }, "flow {flow}");
        }
    }
}
