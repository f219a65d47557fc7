//! The members of a group: which are up, in which turn they come, and what each has been given.

use super::config::GroupConfig;
use super::imbalance::Imbalance;
use crate::node::PortId;
use crate::units::Rate;

/// A member of a group, counted from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u16);

impl MemberId {
    /// As an index into arrays with a place for each member.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Clone, Debug)]
struct Member {
    port: PortId,
    rate: Rate,
    weight: u32,
    up: bool,
    /// That were given to it.
    bytes: u64,
}

/// The members of a group.
#[derive(Clone, Debug)]
pub struct Members {
    all: Vec<Member>,
    /// Those that are up, ascending.
    live: Vec<MemberId>,
    /// Those that are up, each as often as its weight says, the turns of each spread evenly.
    slots: Vec<MemberId>,
    /// For each member, by how much it is ahead while turns are dealt out.
    credit: Vec<i64>,
}

impl Members {
    /// Members that are all up, from a configuration that was checked.
    pub(super) fn new(config: &GroupConfig) -> Self {
        let weights = config.weights();
        let slots: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
        let all: Vec<Member> = config
            .members
            .iter()
            .zip(weights)
            .map(|(member, weight)| Member {
                port: member.port,
                rate: member.rate,
                weight,
                up: true,
                bytes: 0,
            })
            .collect();
        let mut members = Self {
            live: Vec::with_capacity(all.len()),
            slots: Vec::with_capacity(usize::try_from(slots).unwrap_or(usize::MAX)),
            credit: vec![0; all.len()],
            all,
        };
        members.deal();
        members
    }

    /// How many there are, up or down.
    pub const fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there is none; a group has at least one.
    pub const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Every member, up or down.
    pub fn ids(&self) -> impl Iterator<Item = MemberId> + use<> {
        let count = u16::try_from(self.all.len()).unwrap_or(u16::MAX);
        (0..count).map(MemberId)
    }

    /// Those that are up, ascending.
    #[inline]
    pub fn live(&self) -> &[MemberId] {
        &self.live
    }

    /// Those that are up, each as often as its weight says. Not empty while a member is up.
    #[inline]
    pub fn slots(&self) -> &[MemberId] {
        &self.slots
    }

    /// The slot that a hash names; the first member when none is up.
    #[inline]
    pub fn slot_of(&self, hash: u32) -> MemberId {
        in_turn(&self.slots, hash)
    }

    /// Whether a member is up.
    #[inline]
    pub fn is_up(&self, member: MemberId) -> bool {
        self.all.get(member.index()).is_some_and(|member| member.up)
    }

    /// The port of a member.
    ///
    /// # Panics
    /// When there is no such member.
    #[inline]
    pub fn port(&self, member: MemberId) -> PortId {
        self.all[member.index()].port
    }

    /// The line rate of a member's port.
    ///
    /// # Panics
    /// When there is no such member.
    pub fn rate(&self, member: MemberId) -> Rate {
        self.all[member.index()].rate
    }

    /// The weight of a member, over the greatest common divisor of all.
    ///
    /// # Panics
    /// When there is no such member.
    #[inline]
    pub fn weight(&self, member: MemberId) -> u32 {
        self.all[member.index()].weight
    }

    /// Bytes that a member was given since the start of the run.
    ///
    /// # Panics
    /// When there is no such member.
    pub fn bytes(&self, member: MemberId) -> u64 {
        self.all[member.index()].bytes
    }

    /// How unevenly the members were used.
    pub fn imbalance(&self) -> Imbalance {
        Imbalance::of(self.all.iter().map(|member| (member.bytes, member.weight)))
    }

    /// Counts what a member is given, and says by which port it leaves.
    #[inline(always)]
    pub(super) fn count(&mut self, member: MemberId, len_bytes: u32) -> Option<PortId> {
        let member = self.all.get_mut(member.index())?;
        member.bytes += u64::from(len_bytes);
        Some(member.port)
    }

    /// The link of a port went down or up. False when no member has it, or none changed.
    pub(super) fn set_up(&mut self, port: PortId, up: bool) -> bool {
        let mut changed = false;
        for member in self.all.iter_mut().filter(|m| m.port == port && m.up != up) {
            member.up = up;
            changed = true;
        }
        if changed {
            self.deal();
        }
        changed
    }

    /// Deals the turns out anew. Each turn goes to the member that is furthest behind its share, so
    /// that no member's turns bunch.
    fn deal(&mut self) {
        self.live.clear();
        self.slots.clear();
        self.credit.fill(0);
        let mut total = 0;
        for (id, member) in (0_u16..).zip(&self.all).filter(|(_, member)| member.up) {
            self.live.push(MemberId(id));
            total += i64::from(member.weight);
        }
        for _ in 0..total {
            let mut next: Option<MemberId> = None;
            for id in &self.live {
                self.credit[id.index()] += i64::from(self.all[id.index()].weight);
                if next.is_none_or(|next| self.credit[id.index()] > self.credit[next.index()]) {
                    next = Some(*id);
                }
            }
            if let Some(next) = next {
                self.credit[next.index()] -= total;
                self.slots.push(next);
            }
        }
    }
}

/// The place of `among` that a number names by its remainder; the first member when `among` is
/// empty.
#[inline]
pub(super) fn in_turn(among: &[MemberId], number: u32) -> MemberId {
    // There are at most 4,096.
    let len = u32::try_from(among.len()).unwrap_or(u32::MAX);
    let at = number.checked_rem(len).unwrap_or(0);
    among.get(at as usize).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::config::{MemberConfig, Method};
    use super::*;
    use proptest::prelude::*;

    fn members(weights: &[u32]) -> Members {
        let member = |(port, weight): (u16, &u32)| MemberConfig {
            weight: Some(*weight),
            ..MemberConfig::new(PortId(port), Rate::from_gbps(100))
        };
        let members = (0..).zip(weights).map(member).collect();
        Members::new(&GroupConfig::new(members, Method::SprayRoundRobin))
    }

    #[test]
    fn turns_do_not_bunch() {
        let got: Vec<u16> = members(&[4, 1, 1]).slots().iter().map(|member| member.0).collect();
        assert_eq!(got, [0, 0, 1, 0, 2, 0]);
        let equal: Vec<u16> = members(&[7, 7, 7]).slots().iter().map(|member| member.0).collect();
        assert_eq!(equal, [0, 1, 2]);
    }

    proptest! {
        #[test]
        fn each_live_member_has_the_turns_of_its_weight(
            weights in proptest::collection::vec(1_u32..20, 1..12),
            events in proptest::collection::vec((0_u16..12, any::<bool>()), 0..20),
        ) {
            let mut members = members(&weights);
            let reduced: Vec<u32> = members.ids().map(|id| members.weight(id)).collect();
            let capacity = members.slots.capacity();
            let mut up = vec![true; weights.len()];
            for (port, to) in events {
                let known = usize::from(port) < up.len();
                let changes = known && up[usize::from(port)] != to;
                prop_assert_eq!(members.set_up(PortId(port), to), changes);
                if known {
                    up[usize::from(port)] = to;
                }
                for (id, up) in members.ids().zip(&up) {
                    let turns = members.slots().iter().filter(|member| **member == id).count();
                    let want = if *up { reduced[id.index()] } else { 0 };
                    prop_assert_eq!(turns, want as usize);
                    prop_assert_eq!(members.live().contains(&id), *up);
                    prop_assert_eq!(members.is_up(id), *up);
                }
            }
            prop_assert_eq!(members.slots.capacity(), capacity, "nothing is allocated later");
        }
    }
}
