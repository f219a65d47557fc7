//! Deadlock, as the network shows it: ports that wait for each other in a cycle.
//!
//! A queue of a port is a vertex of the wait graph while it has frames and its class is paused. It
//! waits for the queues at the other end of its link that are vertices themselves and hold frames
//! which came by that link in the paused class: until those leave, the pause is prolonged. Queues on a
//! cycle wait for themselves (E. G. Coffman et al., Computing Surveys 3(2), 1971: with mutual
//! exclusion, no preemption and hold-and-wait given by lossless queues, the cycle is a deadlock).
//!
//! A cycle may pass: a group of which some frames leave by other ports falls under its threshold. So
//! one counts as a deadlock when it has stood for a time in which none of its queues sent a frame.

use std::collections::BTreeMap;

use crate::time::{Duration, Time};

/// A queue of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueRef {
    /// The station's number.
    pub station: usize,
    /// Its port.
    pub port: u16,
    /// The port's queue.
    pub queue: u8,
}

/// A queue that has frames and may not send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The queue.
    pub queue: QueueRef,
    /// What changes when it sends a frame: since when its first one waits.
    pub first_since: Time,
    /// The queues whose frames hold the pause up, whether or not they wait themselves.
    pub behind: Vec<QueueRef>,
}

/// Queues that wait for each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadlock {
    /// When the cycle was first seen.
    pub since: Time,
    /// When it had stood for so long that it counts.
    pub found: Time,
    /// Its queues, each of which waits for the next, and the last for the first; it begins with the
    /// lowest.
    pub cycle: Vec<QueueRef>,
}

/// A cycle among the waits, or None: the first by the order of queues.
pub fn find_cycle(waits: &[Wait]) -> Option<Vec<QueueRef>> {
    let at: BTreeMap<QueueRef, usize> =
        waits.iter().enumerate().map(|(index, wait)| (wait.queue, index)).collect();
    // Depth first, without recursion: the path, and for each queue on it the next one to try.
    let mut done = vec![false; waits.len()];
    for root in at.values() {
        let mut path = vec![(*root, 0)];
        while let Some((index, next)) = path.last_mut() {
            let wait = &waits[*index];
            let Some(behind) = wait.behind.get(*next) else {
                done[*index] = true;
                path.pop();
                continue;
            };
            *next += 1;
            let Some(behind) = at.get(behind).copied().filter(|behind| !done[*behind]) else {
                continue;
            };
            if let Some(start) = path.iter().position(|(index, _)| *index == behind) {
                let cycle = path[start..].iter().map(|(index, _)| waits[*index].queue);
                return Some(from_lowest(cycle.collect()));
            }
            path.push((behind, 0));
        }
    }
    None
}

fn from_lowest(mut cycle: Vec<QueueRef>) -> Vec<QueueRef> {
    let lowest = cycle.iter().enumerate().min_by_key(|(_, queue)| **queue);
    if let Some(at) = lowest.map(|(at, _)| at) {
        cycle.rotate_left(at);
    }
    cycle
}

/// Watches for cycles that stand.
#[derive(Clone, Debug)]
pub struct DeadlockWatch {
    /// For how long a cycle must stand to count.
    stands: Duration,
    /// The cycles that were seen at the last look.
    seen: Vec<Seen>,
    found: Vec<Deadlock>,
}

/// A cycle, with the first frames of its queues, since when it has stood, and whether it has been
/// counted.
#[derive(Clone, Debug)]
struct Seen {
    since: Time,
    cycle: Vec<QueueRef>,
    firsts: Vec<Time>,
    counted: bool,
}

impl DeadlockWatch {
    /// A watch that counts cycles which stand for `stands`.
    pub const fn new(stands: Duration) -> Self {
        Self { stands, seen: Vec::new(), found: Vec::new() }
    }

    /// Looks at the queues that wait at `now`.
    pub fn look(&mut self, now: Time, waits: &[Wait]) {
        let before = std::mem::take(&mut self.seen);
        // Cycles that have no queue in common.
        let mut left = waits.to_vec();
        while let Some(cycle) = find_cycle(&left) {
            let on_cycle = |wait: &Wait| cycle.contains(&wait.queue);
            let members = left.iter().filter(|wait| on_cycle(wait));
            let firsts: Vec<Time> = members.map(|wait| wait.first_since).collect();
            left.retain(|wait| !on_cycle(wait));
            let same = |seen: &&Seen| seen.cycle == cycle && seen.firsts == firsts;
            let mut seen = before.iter().find(same).cloned().unwrap_or_else(|| Seen {
                since: now,
                cycle: cycle.clone(),
                firsts: firsts.clone(),
                counted: false,
            });
            if !seen.counted && now.since(seen.since) >= self.stands {
                seen.counted = true;
                self.found.push(Deadlock { since: seen.since, found: now, cycle });
            }
            self.seen.push(seen);
        }
    }

    /// The deadlocks there were, in order of time. One that was broken and came back is there twice.
    pub fn found(&self) -> &[Deadlock] {
        &self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn queue(station: usize) -> QueueRef {
        QueueRef { station, port: 1, queue: 3 }
    }

    fn waits(edges: &[(usize, &[usize])]) -> Vec<Wait> {
        let wait = |(from, behind): &(usize, &[usize])| Wait {
            queue: queue(*from),
            first_since: Time::ZERO,
            behind: behind.iter().map(|to| queue(*to)).collect(),
        };
        edges.iter().map(wait).collect()
    }

    #[test]
    fn a_ring_is_found_and_a_chain_is_not() {
        let ring = waits(&[(2, &[0]), (0, &[1]), (1, &[2])]);
        assert_eq!(find_cycle(&ring), Some(vec![queue(0), queue(1), queue(2)]));
        assert_eq!(find_cycle(&waits(&[(0, &[1]), (1, &[2]), (2, &[3])])), None, "3 sends");
        assert_eq!(find_cycle(&waits(&[(0, &[1, 2]), (1, &[3]), (2, &[3]), (3, &[])])), None);
        let tail = waits(&[(0, &[1]), (1, &[2, 3]), (2, &[]), (3, &[4]), (4, &[1])]);
        assert_eq!(find_cycle(&tail), Some(vec![queue(1), queue(3), queue(4)]));
        assert_eq!(find_cycle(&waits(&[(5, &[5])])), Some(vec![queue(5)]));
        assert_eq!(find_cycle(&[]), None);
    }

    #[test]
    fn only_what_stands_counts_and_once() {
        let us = |us: u64| Time::from_ns(us * 1_000);
        let mut watch = DeadlockWatch::new(Duration::from_us(300));
        let mut ring = waits(&[(0, &[1]), (1, &[0])]);
        watch.look(us(0), &ring);
        watch.look(us(200), &ring);
        ring[1].first_since = us(300);
        watch.look(us(400), &ring);
        watch.look(us(600), &ring);
        assert_eq!(watch.found(), [], "a frame left in between");
        watch.look(us(700), &ring);
        watch.look(us(800), &ring);
        watch.look(us(900), &[]);
        watch.look(us(1_000), &ring);
        watch.look(us(1_300), &ring);
        let times: Vec<_> = watch.found().iter().map(|found| (found.since, found.found)).collect();
        assert_eq!(times, [(us(400), us(700)), (us(1_000), us(1_300))]);
        assert_eq!(watch.found()[0].cycle, [queue(0), queue(1)]);
        let two = waits(&[(0, &[1]), (1, &[0]), (2, &[3]), (3, &[2, 0])]);
        let mut watch = DeadlockWatch::new(Duration::ZERO);
        watch.look(us(0), &two);
        assert_eq!(watch.found().len(), 2, "each cycle for itself");
    }

    proptest! {
        /// The model: some vertex reaches itself.
        #[test]
        fn agrees_with_reachability(
            edges in proptest::collection::vec(proptest::collection::vec(0_usize..8, 0..3), 1..8),
        ) {
            let lists: Vec<(usize, &[usize])> =
                edges.iter().enumerate().map(|(from, to)| (from, &to[..])).collect();
            let cycle = find_cycle(&waits(&lists));
            let n = edges.len();
            let mut reaches = vec![vec![false; n]; n];
            for (from, to) in edges.iter().enumerate() {
                for to in to.iter().filter(|to| **to < n) {
                    reaches[from][*to] = true;
                }
            }
            for via in 0..n {
                for from in 0..n {
                    for to in 0..n {
                        reaches[from][to] |= reaches[from][via] && reaches[via][to];
                    }
                }
            }
            prop_assert_eq!(cycle.is_some(), (0..n).any(|v| reaches[v][v]));
            for pair in cycle.iter().flat_map(|c| c.iter().zip(c.iter().cycle().skip(1))) {
                prop_assert!(edges[pair.0.station].contains(&pair.1.station));
            }
        }
    }
}
