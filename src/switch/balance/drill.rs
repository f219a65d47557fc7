//! DRILL(d, m) (S. Ghorbani and others, SIGCOMM 2017): for every frame the queues of d random
//! members are compared with those of the m that were shortest at the last frame, and the shortest
//! takes it. Queues count by weight, so that a faster member may have a longer one.

use super::config::DRILL_MAX;
use super::key::Packet;
use super::spray::random;
use super::{Loads, MemberId, Members, PathChoice};
use crate::rng::Rng;
use crate::time::Time;

const CANDIDATES_MAX: usize = DRILL_MAX as usize;

#[derive(Clone, Copy, Debug, Default)]
struct Candidate {
    member: MemberId,
    /// Queued bytes over the weight, in 1/4,096 of a byte.
    load: u64,
}

/// DRILL.
#[derive(Debug)]
pub struct Drill {
    samples: usize,
    memory_max: usize,
    /// The shortest of the last frame, shortest first; the first `remembered` of these.
    memory: [MemberId; CANDIDATES_MAX],
    remembered: usize,
}

impl Drill {
    pub(super) fn new(samples: u8, memory: u8) -> Self {
        Self {
            samples: usize::from(samples).min(CANDIDATES_MAX),
            memory_max: usize::from(memory).min(CANDIDATES_MAX),
            memory: [MemberId(0); CANDIDATES_MAX],
            remembered: 0,
        }
    }
}

/// The candidates so far, shortest queue first.
struct Shortlist {
    candidates: [Candidate; CANDIDATES_MAX],
    len: usize,
}

impl Shortlist {
    /// Puts a member in its place, behind those that are as short, unless it is there.
    #[inline]
    fn insert(&mut self, new: Candidate) {
        let known = &self.candidates[..self.len];
        if self.len == CANDIDATES_MAX || known.iter().any(|old| old.member == new.member) {
            return;
        }
        let at = known.iter().position(|old| new.load < old.load).unwrap_or(self.len);
        self.candidates.copy_within(at..self.len, at + 1);
        self.candidates[at] = new;
        self.len += 1;
    }
}

impl PathChoice for Drill {
    #[inline]
    fn choose<L: Loads>(
        &mut self,
        _packet: &Packet<'_>,
        members: &Members,
        loads: &L,
        _now: Time,
        rng: &mut Rng,
    ) -> MemberId {
        let mut list = Shortlist { candidates: [Candidate::default(); CANDIDATES_MAX], len: 0 };
        let candidate = |member: MemberId| Candidate {
            member,
            load: (loads.queue_bytes(members.port(member)) << 12)
                / u64::from(members.weight(member)),
        };
        // Of queues that are as short a new one is taken, so that idle ports are used alike.
        for _ in 0..self.samples {
            list.insert(candidate(random(members.slots(), rng)));
        }
        for member in &self.memory[..self.remembered] {
            list.insert(candidate(*member));
        }
        self.remembered = list.len.min(self.memory_max);
        for (to, from) in self.memory[..self.remembered].iter_mut().zip(&list.candidates) {
            *to = from.member;
        }
        list.candidates[0].member
    }

    fn refit(&mut self, members: &Members) {
        let mut kept = 0;
        for at in 0..self.remembered {
            if members.is_up(self.memory[at]) {
                self.memory[kept] = self.memory[at];
                kept += 1;
            }
        }
        self.remembered = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::{GroupConfig, MemberConfig, Method};
    use super::super::trial::{Trial, assert_spread};
    use crate::node::PortId;
    use crate::units::Rate;

    /// The longest queue of any of 16 members that each send one frame of 1,000 bytes while 15
    /// arrive.
    fn longest_queue(method: Method, frames: u32) -> u64 {
        let mut trial = Trial::new(16, method);
        let mut longest = 0;
        for frame in 0..frames {
            let member = trial.member_of(frame);
            let queue = &mut trial.loads.queue_bytes[usize::from(member)];
            *queue += 1_000;
            longest = longest.max(*queue);
            if frame % 15 == 0 {
                for queue in &mut trial.loads.queue_bytes {
                    *queue = queue.saturating_sub(1_000);
                }
            }
        }
        longest
    }

    #[test]
    fn two_choices_and_a_memory_keep_queues_short() {
        let random = longest_queue(Method::SprayRandom, 30_000);
        let drill = longest_queue(Method::Drill { samples: 2, memory: 1 }, 30_000);
        assert!(drill * 5 < random, "DRILL(2, 1) {drill}, random spray {random}");
        assert!(drill <= 5_000, "DRILL(2, 1) {drill}, random spray {random}");
    }

    #[test]
    fn one_sample_without_memory_is_random_spray() {
        let mut trial = Trial::new(8, Method::Drill { samples: 1, memory: 0 });
        trial.loads.queue_bytes[3] = 1_000_000;
        assert_spread(&trial.counts(20_000), &[1; 8]);
    }

    #[test]
    fn the_shortest_is_remembered() {
        let mut trial = Trial::new(8, Method::Drill { samples: 2, memory: 1 });
        trial.loads.queue_bytes = [500; 32];
        trial.loads.queue_bytes[6] = 0;
        let found = (0..1_000).position(|_| trial.member_of(0) == 6).expect("it is sampled soon");
        assert!(found < 100, "{found}");
        assert_eq!(trial.counts(100)[6], 100, "and kept while it is the shortest");
        trial.group.set_up(PortId(6), false);
        assert_eq!(trial.counts(100)[6], 0);
    }

    #[test]
    fn idle_ports_are_used_alike() {
        let mut trial = Trial::new(8, Method::Drill { samples: 2, memory: 1 });
        let counts = trial.counts(8_000);
        assert!(counts.iter().all(|count| (850..1_150).contains(count)), "{counts:?}");
    }

    #[test]
    fn queues_count_by_weight() {
        let weights = [4, 1];
        let member = |(port, weight)| MemberConfig {
            weight: Some(weight),
            ..MemberConfig::new(PortId(port), Rate::from_gbps(100 * u64::from(weight)))
        };
        let members = (0..).zip(weights).map(member).collect();
        let method = Method::Drill { samples: 8, memory: 1 };
        let mut trial = Trial::of(GroupConfig::new(members, method), 1);
        trial.loads.queue_bytes[0] = 3_999;
        trial.loads.queue_bytes[1] = 1_000;
        assert_eq!(trial.member_of(0), 0);
        assert_eq!(trial.member_of(0), 0, "and remembered");
        trial.loads.queue_bytes[0] = 4_001;
        trial.member_of(0);
        assert_eq!(trial.member_of(0), 1);
    }
}
