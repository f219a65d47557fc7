//! Whose turn is next: a heap with one entry per station, ordered by (time, station).
//!
//! A station has one next event however many frames fly towards it, so the heap stays as small as
//! the network and moves an entry instead of growing by one per frame.

use crate::time::Time;

const ARITY: usize = 4;

/// A heap of stations by the time of their next event.
#[derive(Clone, Debug)]
pub struct Agenda {
    /// Stations in heap order.
    heap: Vec<u32>,
    /// Where each station stands in `heap`.
    place: Vec<u32>,
    time: Vec<Time>,
}

impl Agenda {
    /// An agenda for stations `0..stations`, none of which has an event.
    pub fn new(stations: u32) -> Self {
        Self {
            heap: (0..stations).collect(),
            place: (0..stations).collect(),
            time: vec![Time::NEVER; stations as usize],
        }
    }

    /// The earliest event and whose it is; [`Time::NEVER`] when there is none.
    pub fn first(&self) -> (Time, usize) {
        match self.heap.first() {
            Some(station) => (self.time[*station as usize], *station as usize),
            None => (Time::NEVER, 0),
        }
    }

    /// The time of `station`'s next event.
    pub fn time_of(&self, station: usize) -> Time {
        self.time[station]
    }

    /// Sets the time of `station`'s next event.
    pub fn set(&mut self, station: usize, time: Time) {
        let old = std::mem::replace(&mut self.time[station], time);
        let place = self.place[station] as usize;
        if time < old {
            self.rise(place);
        } else if time > old {
            self.sink(place);
        }
    }

    /// Brings `station`'s event forward to `time` when it is later than that.
    pub fn advance(&mut self, station: usize, time: Time) {
        if time < self.time[station] {
            self.time[station] = time;
            self.rise(self.place[station] as usize);
        }
    }

    fn key(&self, place: usize) -> (Time, u32) {
        let station = self.heap[place];
        (self.time[station as usize], station)
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.place.swap(self.heap[a] as usize, self.heap[b] as usize);
    }

    fn rise(&mut self, mut place: usize) {
        while place > 0 {
            let parent = (place - 1) / ARITY;
            if self.key(parent) <= self.key(place) {
                break;
            }
            self.swap(parent, place);
            place = parent;
        }
    }

    fn sink(&mut self, mut place: usize) {
        loop {
            let first = place * ARITY + 1;
            let last = (first + ARITY).min(self.heap.len());
            let Some(least) = (first..last).min_by_key(|child| self.key(*child)) else { break };
            if self.key(place) <= self.key(least) {
                break;
            }
            self.swap(place, least);
            place = least;
        }
    }
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
