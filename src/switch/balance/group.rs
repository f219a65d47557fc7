//! A group: its members and its way of choosing among them.

use super::config::{GroupConfig, GroupConfigError, Method};
use super::dlb::Dlb;
use super::drill::Drill;
use super::ecmp::Ecmp;
use super::imbalance::Imbalance;
use super::key::Packet;
use super::lbn::Lbn;
use super::letflow::LetFlow;
use super::path_navigation::PathNavigation;
use super::resilient::Resilient;
use super::spray::{SprayRandom, SprayRoundRobin};
use super::{Loads, MemberId, Members, PathChoice};
use crate::node::PortId;
use crate::rng::Rng;
use crate::time::Time;

/// A group.
#[derive(Debug)]
pub struct Group {
    members: Members,
    choice: Choice,
}

#[derive(Debug)]
enum Choice {
    Ecmp(Ecmp),
    Resilient(Resilient),
    Lbn(Lbn),
    SprayRoundRobin(SprayRoundRobin),
    SprayRandom(SprayRandom),
    Dlb(Box<Dlb>),
    LetFlow(LetFlow),
    Drill(Drill),
    PathNavigation(PathNavigation),
}

macro_rules! each {
    ($choice:expr, $method:ident => $call:expr) => {
        match $choice {
            Choice::Ecmp($method) => $call,
            Choice::Resilient($method) => $call,
            Choice::Lbn($method) => $call,
            Choice::SprayRoundRobin($method) => $call,
            Choice::SprayRandom($method) => $call,
            Choice::Dlb($method) => $call,
            Choice::LetFlow($method) => $call,
            Choice::Drill($method) => $call,
            Choice::PathNavigation($method) => $call,
        }
    };
}

impl Group {
    /// A group whose members are all up. `rng` gives a hash without a seed one, and the spray its
    /// first turn.
    ///
    /// # Errors
    /// What [`GroupConfig::check`] refuses.
    pub fn new(config: &GroupConfig, rng: &mut Rng) -> Result<Self, GroupConfigError> {
        config.check()?;
        let members = Members::new(config);
        let choice = match &config.method {
            Method::Ecmp(hash) => Choice::Ecmp(Ecmp::new(hash.build(rng))),
            Method::Resilient { hash, buckets } => {
                Choice::Resilient(Resilient::new(hash.build(rng), *buckets, &members))
            }
            Method::Lbn { indices, form, hash } => {
                Choice::Lbn(Lbn::new(indices, *form, hash.build(rng)))
            }
            Method::SprayRoundRobin => Choice::SprayRoundRobin(SprayRoundRobin::new(&members, rng)),
            Method::SprayRandom => Choice::SprayRandom(SprayRandom),
            Method::Dlb { mode, hash, flowlets, quality } => {
                Choice::Dlb(Box::new(Dlb::new(*mode, hash.build(rng), flowlets, quality, &members)))
            }
            Method::LetFlow { hash, flowlets } => {
                Choice::LetFlow(LetFlow::new(hash.build(rng), flowlets))
            }
            Method::Drill { samples, memory } => Choice::Drill(Drill::new(*samples, *memory)),
            Method::PathNavigation { flows, hash } => {
                Choice::PathNavigation(PathNavigation::new(flows, hash.build(rng)))
            }
        };
        Ok(Self { members, choice })
    }

    /// The member that `packet` leaves by; None when none is up.
    #[inline]
    pub fn choose<L: Loads>(
        &mut self,
        packet: &Packet<'_>,
        loads: &L,
        now: Time,
        rng: &mut Rng,
    ) -> Option<MemberId> {
        let member = self.member(packet, loads, now, rng)?;
        self.members.count(member, packet.len_bytes);
        Some(member)
    }

    /// The port of the member that `packet` leaves by; None when none is up.
    #[inline(always)]
    pub fn choose_port<L: Loads>(
        &mut self,
        packet: &Packet<'_>,
        loads: &L,
        now: Time,
        rng: &mut Rng,
    ) -> Option<PortId> {
        let member = self.member(packet, loads, now, rng)?;
        self.members.count(member, packet.len_bytes)
    }

    #[inline(always)]
    fn member<L: Loads>(
        &mut self,
        packet: &Packet<'_>,
        loads: &L,
        now: Time,
        rng: &mut Rng,
    ) -> Option<MemberId> {
        // Taking turns costs so little that what the other ways need must not be in its way.
        let member = match &mut self.choice {
            Choice::SprayRoundRobin(spray) => spray.turn(self.members.slots()),
            _ => self.by_choice(packet, loads, now, rng),
        };
        debug_assert!(member.is_none_or(|member| self.members.is_up(member)), "{member:?} is down");
        member
    }

    #[inline(never)]
    fn by_choice<L: Loads>(
        &mut self,
        packet: &Packet<'_>,
        loads: &L,
        now: Time,
        rng: &mut Rng,
    ) -> Option<MemberId> {
        let members = &self.members;
        if members.slots().is_empty() {
            return None;
        }
        Some(each!(&mut self.choice, method => method.choose(packet, members, loads, now, rng)))
    }

    /// The link of a port went down or up: members that have it leave the group or come back.
    pub fn set_up(&mut self, port: PortId, up: bool) {
        if self.members.set_up(port, up) && !self.members.live().is_empty() {
            let members = &self.members;
            each!(&mut self.choice, method => method.refit(members));
        }
    }

    /// The members.
    pub const fn members(&self) -> &Members {
        &self.members
    }

    /// The port of a member.
    ///
    /// # Panics
    /// When there is no such member.
    #[inline]
    pub fn port(&self, member: MemberId) -> PortId {
        self.members.port(member)
    }

    /// How unevenly the members were used.
    pub fn imbalance(&self) -> Imbalance {
        self.members.imbalance()
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::{
        DlbMode, FlowletConfig, HashConfig, LbnForm, MemberConfig, QualityConfig,
    };
    use super::super::key::Flow;
    use super::super::trial::{SetLoads, Trial, flow_frame, packet};
    use super::*;
    use crate::time::Duration;
    use crate::units::Rate;
    use proptest::prelude::*;

    fn methods() -> Vec<Method> {
        let hash = HashConfig::new(5);
        let (flowlets, quality) = (FlowletConfig::default(), QualityConfig::default());
        let dlb = |mode| Method::Dlb { mode, hash, flowlets, quality };
        let mut methods = vec![
            Method::Ecmp(hash),
            Method::Resilient { hash, buckets: 64 },
            Method::SprayRoundRobin,
            Method::SprayRandom,
            dlb(DlbMode::Eligible),
            dlb(DlbMode::Spray),
            dlb(DlbMode::Fixed),
            Method::LetFlow { hash, flowlets },
            Method::Drill { samples: 2, memory: 1 },
            Method::Drill { samples: 1, memory: 0 },
            Method::Drill { samples: 8, memory: 8 },
            Method::PathNavigation {
                flows: (0..4)
                    .map(|flow| {
                        let flow = Flow {
                            source_port: Some(49_152),
                            destination_port: Some(4_791),
                            protocol: Some(17),
                            ..Flow::between([10, 0, 0, flow].into(), [10, 1, 0, 1].into())
                        };
                        (flow, MemberId(1))
                    })
                    .collect(),
                hash,
            },
        ];
        for form in [LbnForm::Base, LbnForm::Enhanced] {
            methods.push(Method::Lbn { indices: vec![(PortId(0), 3)], form, hash });
        }
        methods
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        /// Whatever happens, and by every method: a member that is up is chosen as long as there is
        /// one, nobody gets a frame after it went down, and every frame is counted.
        #[test]
        fn only_live_members_are_chosen(
            method in proptest::sample::select(methods()),
            weights in proptest::collection::vec(1_u32..5, 2..12),
            events in proptest::collection::vec(
                (0_u16..16, any::<bool>(), 0_u32..50, 0_u64..600_000, 0_u64..1_000_000), 1..60),
        ) {
            let weighs = !matches!(method, Method::Lbn { .. });
            let member = |(port, weight): (u16, &u32)| MemberConfig {
                weight: weighs.then_some(*weight),
                ..MemberConfig::new(PortId(port), Rate::from_gbps(100))
            };
            let members = (0..).zip(&weights).map(member).collect();
            let mut trial = Trial::of(GroupConfig::new(members, method), 3);
            let mut given = 0;
            for (port, up, flow, wait_ns, load) in events {
                trial.group.set_up(PortId(port), up);
                trial.now += Duration::from_ns(wait_ns);
                trial.loads.queue_bytes[usize::from(port)] = load;
                trial.loads.tx_bytes[usize::from(port)] += load;
                for flow in flow..flow + 4 {
                    let bytes = flow_frame(flow);
                    let chosen = trial.choose(&packet(&bytes));
                    prop_assert_eq!(chosen.is_none(), trial.group.members().live().is_empty());
                    if let Some(member) = chosen {
                        given += u64::from(packet(&bytes).len_bytes);
                        prop_assert!(trial.group.members().is_up(member));
                    }
                }
            }
            let members = trial.group.members();
            let counted: u64 = members.ids().map(|member| members.bytes(member)).sum();
            prop_assert_eq!(counted, given);
        }
    }

    #[test]
    fn one_seed_gives_one_run() {
        for method in methods() {
            let run = |seed: u64| {
                let member = |port| MemberConfig::new(PortId(port), Rate::from_gbps(100));
                let config = GroupConfig::new((0..8).map(member).collect(), method.clone());
                let mut trial = Trial::of(config, seed);
                (0..200).map(|flow| trial.member_of(flow % 50)).collect::<Vec<_>>()
            };
            assert_eq!(run(1), run(1), "{method:?}");
            let is_random = matches!(
                method,
                Method::SprayRandom | Method::LetFlow { .. } | Method::Drill { samples: 1 | 2, .. }
            );
            if is_random {
                assert_ne!(run(1), run(2), "{method:?}");
            }
        }
    }

    #[test]
    fn two_members_may_share_a_port() {
        let members = [4, 4, 5].map(|port| MemberConfig::new(PortId(port), Rate::from_gbps(10)));
        let config = GroupConfig::new(members.to_vec(), Method::SprayRoundRobin);
        let mut rng = crate::rng::Rng::for_node(1, "s1");
        let mut group = Group::new(&config, &mut rng).expect("a good group");
        group.set_up(PortId(4), false);
        let bytes = flow_frame(1);
        let loads = SetLoads::default();
        let chosen = group.choose(&packet(&bytes), &loads, Time::ZERO, &mut rng);
        assert_eq!(chosen.map(|member| group.port(member)), Some(PortId(5)));
    }
}
