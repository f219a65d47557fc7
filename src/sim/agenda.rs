//! Whose turn is next: a knock-out tree with a leaf per station, ordered by (time, station).
//!
//! A station has one next event however many frames fly towards it, so the tree is as large as the
//! network and never grows. A change plays the matches from its leaf upwards, as far as they come
//! out differently.

use crate::time::Time;

/// Stations by the time of their next event.
#[derive(Clone, Debug)]
pub struct Agenda {
    /// The winner of each match at 1 and above, whose sides are at twice its place and the place
    /// behind that; the leaves follow, from `leaves` on. Leaves without a station never have an
    /// event.
    winners: Vec<Winner>,
    leaves: usize,
}

/// The earlier of two sides. The left side has the lower stations and wins a tie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Winner {
    time: Time,
    station: u32,
}

impl Agenda {
    /// An agenda for stations `0..stations`, none of which has an event.
    pub fn new(stations: u32) -> Self {
        let leaves = (stations.max(1) as usize).next_power_of_two();
        let nobody = Winner { time: Time::NEVER, station: 0 };
        let mut winners = vec![nobody; 2 * leaves];
        for (station, leaf) in (0..stations).zip(&mut winners[leaves..]) {
            leaf.station = station;
        }
        for at in (1..leaves).rev() {
            winners[at] = winners[2 * at];
        }
        Self { winners, leaves }
    }

    /// The earliest event and whose it is; [`Time::NEVER`] when there is none.
    #[inline]
    pub fn first(&self) -> (Time, usize) {
        let Winner { time, station } = self.winners[1];
        (time, station as usize)
    }

    /// The time of `station`'s next event.
    pub fn time_of(&self, station: usize) -> Time {
        self.winners[self.leaves + station].time
    }

    /// Sets the time of `station`'s next event.
    #[inline]
    pub fn set(&mut self, station: usize, time: Time) {
        let mut at = self.leaves + station;
        let winners = self.winners.as_mut_slice();
        let Some(leaf) = winners.get_mut(at) else { return no_such_station(station) };
        leaf.time = time;
        let mut winner = *leaf;
        while at > 1 {
            let Some(other) = winners.get(at ^ 1) else { return };
            let is_left = at & 1 == 0;
            let loses = if is_left { other.time < winner.time } else { other.time <= winner.time };
            if loses {
                winner = *other;
            }
            at >>= 1;
            let Some(before) = winners.get_mut(at) else { return };
            if *before == winner {
                return;
            }
            *before = winner;
        }
    }

    /// Brings `station`'s event forward to `time` when it is later than that.
    #[inline]
    pub fn advance(&mut self, station: usize, time: Time) {
        if time < self.time_of(station) {
            self.set(station, time);
        }
    }
}

#[cold]
#[inline(never)]
fn no_such_station(station: usize) {
    debug_assert!(false, "the agenda has no station {station}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn the_earliest_comes_first_under_any_changes() {
        let mut rng = Rng::for_node(5, "agenda");
        let mut agenda = Agenda::new(37);
        let mut want = vec![Time::NEVER; 37];
        for _ in 0..20_000 {
            let station = usize::try_from(rng.below(37)).expect("small");
            let time = Time::from_ps(rng.below(500));
            if rng.below(2) == 0 {
                agenda.set(station, time);
                want[station] = time;
            } else {
                agenda.advance(station, time);
                want[station] = want[station].min(time);
            }
            let first = want.iter().zip(0..).min().map(|(time, station)| (*time, station));
            assert_eq!(Some(agenda.first()), first);
        }
    }
}
