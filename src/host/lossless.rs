//! The streams of lossless classes: a pause holds them back, and nothing drops them.
//!
//! A frame that is planned while its class is paused leaves afterwards, at the rate of the line. It
//! takes no place in the queue in front of the line, since the plan is what waits. Classes that have
//! frames due at one time take turns, frame by frame, and so does everything that is not lossless:
//! one that is far behind does not keep the others from the line.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::pause::Pauses;
use crate::time::Time;
use crate::wire::pfc::CLASSES;

/// The place of what is not lossless in the turns, behind the classes.
const OTHERS: u32 = 8;

/// The sources of lossless classes, and what is paused.
#[derive(Debug)]
pub(super) struct LosslessTurns {
    pauses: Pauses,
    /// The sources that have a frame to come, by its planned time, of each class.
    turns: [BinaryHeap<Reverse<(Time, usize)>>; CLASSES],
    /// The classes that have such sources, as bits.
    waiting: u8,
    /// Whose turn was last: a class or [`OTHERS`].
    last: u32,
}

/// Who sends next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// The first source of a lossless class.
    Lossless(u8),
    /// What is not lossless.
    Others,
}

impl LosslessTurns {
    pub(super) fn new(pauses: Pauses) -> Self {
        Self { pauses, turns: Default::default(), waiting: 0, last: OTHERS }
    }

    pub(super) const fn pauses(&self) -> &Pauses {
        &self.pauses
    }

    pub(super) const fn pauses_mut(&mut self) -> &mut Pauses {
        &mut self.pauses
    }

    /// Source `index` of a class has a frame to come.
    pub(super) fn push(&mut self, class: u8, planned: Time, index: usize) {
        if planned != Time::NEVER {
            self.turns[usize::from(class & 7)].push(Reverse((planned, index)));
            self.waiting |= 1 << (class & 7);
        }
    }

    /// Takes the source whose turn it is in a class out of it.
    pub(super) fn pop(&mut self, class: u8) -> Option<(Time, usize)> {
        let turns = &mut self.turns[usize::from(class & 7)];
        let first = turns.pop();
        if turns.is_empty() {
            self.waiting &= !(1 << (class & 7));
        }
        first.map(|Reverse(first)| first)
    }

    /// The classes that have frames to come.
    fn classes(&self) -> impl Iterator<Item = (usize, Time)> + '_ {
        let waits = |class: &usize| self.waiting & 1 << *class != 0;
        (0..CLASSES).filter(waits).filter_map(|class| {
            self.turns[class].peek().map(|Reverse((planned, _))| (class, *planned))
        })
    }

    /// True when no source has a frame to come.
    pub(super) const fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// The first planned time, paused or not.
    pub(super) fn next_planned(&self) -> Time {
        self.classes().map(|(_, planned)| planned).min().unwrap_or(Time::NEVER)
    }

    /// When the next frame of a lossless class may leave, for all that the line says.
    pub(super) fn next_at(&self) -> Time {
        if self.waiting == 0 {
            return Time::NEVER;
        }
        let at = |(class, planned): (usize, Time)| planned.max(self.pauses.end_of(class));
        self.classes().map(at).min().unwrap_or(Time::NEVER)
    }

    /// Who sends at `now`, when the pauses that are over have ended and what is not lossless may send
    /// from `others_at` on.
    pub(super) fn next_turn(&mut self, now: Time, others_at: Time) -> Turn {
        if self.waiting == 0 {
            return Turn::Others;
        }
        let may = |(class, planned): &(usize, Time)| {
            *planned <= now && self.pauses.stopped() & 1 << *class == 0
        };
        let due = self.classes().filter(may).fold(0_u32, |due, (class, _)| due | 1 << class);
        let due = if others_at <= now { due | 1 << OTHERS } else { due };
        // The first behind the last one, around.
        let behind = due & (u32::MAX << (self.last + 1));
        let first = if behind == 0 { due } else { behind };
        self.last = first.trailing_zeros().min(OTHERS);
        match u8::try_from(self.last) {
            Ok(class) if self.last < OTHERS => Turn::Lossless(class),
            _ => Turn::Others,
        }
    }

    /// Forgets every frame to come.
    pub(super) fn clear(&mut self) {
        self.turns.iter_mut().for_each(BinaryHeap::clear);
        self.waiting = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Rate;
    use crate::wire::pfc::Pfc;

    const fn ns(ns: u64) -> Time {
        Time::from_ns(ns)
    }

    #[test]
    fn a_paused_class_waits_and_the_others_take_turns() {
        let rate = Rate::from_gbps(100);
        let mut turns = LosslessTurns::new(Pauses::new(rate, 0b1_1000, false));
        assert_eq!(turns.next_turn(ns(0), Time::NEVER), Turn::Others);
        for (class, index) in [(3, 0), (3, 1), (4, 2)] {
            turns.push(class, ns(10), index);
        }
        turns.push(4, Time::NEVER, 9);
        assert_eq!((turns.next_at(), turns.next_planned()), (ns(10), ns(10)));
        let next = |turns: &mut LosslessTurns, now| {
            turns.pauses_mut().expire(ns(now));
            turns.next_turn(ns(now), ns(10))
        };
        let four: Vec<Turn> = (0..4).map(|_| next(&mut turns, 10)).collect();
        let [three, others] = [Turn::Lossless(3), Turn::Others];
        assert_eq!(four, [three, Turn::Lossless(4), others, three]);
        // 100 quanta of 5.12 ns.
        turns.pauses_mut().on_pfc(ns(20), Pfc::uniform(0b1000, 100));
        assert_eq!((next(&mut turns, 20), next(&mut turns, 20)), (Turn::Lossless(4), others));
        assert_eq!(turns.pop(4), Some((ns(10), 2)));
        assert_eq!((next(&mut turns, 20), next(&mut turns, 531)), (others, others));
        assert_eq!(turns.next_at(), ns(532));
        assert_eq!((next(&mut turns, 532), next(&mut turns, 532)), (three, others));
        assert_eq!(
            (turns.pop(3), turns.pop(3), turns.pop(3)),
            (Some((ns(10), 0)), Some((ns(10), 1)), None)
        );
        assert!(turns.is_empty() && turns.next_at() == Time::NEVER);
    }
}
