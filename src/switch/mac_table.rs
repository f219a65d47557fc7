//! The filtering database: which station of which VLAN lives behind which port.
//!
//! Open addressing with linear probing at a load of at most one half; a slot is 16 bytes, so a
//! look-up touches one or two cache lines however many stations there are. The hash is fixed, so
//! that runs repeat; stations that a flood of crafted addresses would put more than [`PROBES_MAX`]
//! slots from home are not learned, which bounds every look-up.
//!
//! A silent station is forgotten when a look-up finds it too old. A sweep, a few slots at a time
//! and only while stations are learned, gives its slot back.

use crate::node::PortId;
use crate::time::{Duration, Time};

/// Expiry is kept in units of 2^16 ps (65.5 ns): a time stamp then fits 48 bits beside the port.
const TICK_BITS: u32 = 16;

/// Set in a slot's value when it is never learned over; its expiry is [`NEVER_TICK`].
const STATIC: u64 = 1 << 15;

/// Later than every tick.
const NEVER_TICK: u64 = u64::MAX >> TICK_BITS;

/// The port, and whether it is static.
const PLACE_MASK: u64 = 0xffff;

/// Lower bits of the hash's product that are not used; as many as the largest table has are above.
const HASH_SHIFT: u32 = 40;

/// How far from home a station may be put.
const PROBES_MAX: usize = 64;

/// Slots that one step of the sweep looks at.
const SWEEP_SLOTS: usize = 256;

/// A pass of the sweep takes at most, and begins at most every, this part of the ageing time.
const SWEEPS_PER_AGEING: u64 = 16;

/// What the table has seen; stations learned and forgotten, since the start of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MacTableCounters {
    /// Stations that became known.
    pub learned: u64,
    /// Stations that appeared behind another port than before.
    pub moved: u64,
    /// Stations forgotten for their silence.
    pub aged: u64,
    /// Stations forgotten because their port's link went down, or because an operator said so.
    pub flushed: u64,
    /// Frames whose source found no place: their station stays unknown, traffic to it is flooded.
    pub not_learned: u64,
}

/// The table. A key has the VLAN, which is never 0, in its upper bits; 0 is an empty slot.
#[derive(Clone, Debug)]
pub(super) struct MacTable {
    /// Key, and value: the tick when it expires (48 bits), [`STATIC`], the port.
    slots: Vec<[u64; 2]>,
    hash_mask: u64,
    entries_max: usize,
    entries: usize,
    /// Entries that are not static.
    learned: usize,
    /// The ageing time at the place of an expiry in a value, less [`PLACE_MASK`].
    ageing: u64,
    sweep_at: usize,
    sweep_due: Time,
    sweep_gap: Duration,
    pass_gap: Duration,
    /// The first expiry that the pass under way has left in the table.
    earliest: u64,
    counters: MacTableCounters,
}

/// The key of a station: that of its VLAN, exclusive or its address. The VLAN is in the upper 16
/// bits, and spread over the maker's half of the address, so that it reaches every bit of the hash
/// and leaves numbered stations numbered.
#[inline]
pub(super) const fn key_of(vlan: u16, mac: u64) -> u64 {
    let spread = ((vlan as u64 * 0x9e_3779) & 0xff_ffff) << 24;
    (vlan as u64) << 48 ^ spread ^ mac
}

impl MacTable {
    pub(super) fn new(entries_max: u32, ageing: Duration) -> Self {
        let entries_max = entries_max as usize;
        let slots = (entries_max * 2).next_power_of_two().max(SWEEP_SLOTS);
        let mut table = Self {
            slots: vec![[0; 2]; slots],
            hash_mask: slots as u64 - 1,
            entries_max,
            entries: 0,
            learned: 0,
            ageing: 0,
            sweep_at: 0,
            sweep_due: Time::NEVER,
            sweep_gap: Duration::ZERO,
            pass_gap: Duration::ZERO,
            earliest: NEVER_TICK,
            counters: MacTableCounters::default(),
        };
        table.set_ageing(Time::ZERO, ageing);
        table
    }

    /// Keeps stations for `ageing` from when each was last heard, those that are known included.
    pub(super) fn set_ageing(&mut self, now: Time, ageing: Duration) {
        // Rounded up to a tick, of which it has one at least.
        let ticks = ageing.as_ps().max(1).checked_next_multiple_of(1 << TICK_BITS);
        let before = std::mem::replace(&mut self.ageing, ticks.unwrap_or(!PLACE_MASK) - PLACE_MASK);
        let steps = (self.slots.len() / SWEEP_SLOTS) as u64;
        let pass_gap = ageing / SWEEPS_PER_AGEING;
        self.sweep_gap = (pass_gap / steps).max(Duration::from_ps(1));
        self.pass_gap = pass_gap.max(Duration::from_ps(1));
        let mut earliest = NEVER_TICK;
        for at in 0..self.slots.len() {
            let [key, value] = self.slots[at];
            let tick = value >> TICK_BITS;
            if key == 0 || tick == NEVER_TICK {
                continue;
            }
            // One that was to stay to the end of time says no more when it was heard.
            let heard = match tick {
                tick if tick == NEVER_TICK - 1 => now.as_ps(),
                tick => (tick << TICK_BITS) - before,
            };
            let fresh = self.fresh(Time::from_ps(heard), value & PLACE_MASK);
            self.slots[at][1] = fresh;
            earliest = earliest.min(fresh >> TICK_BITS);
        }
        // The next pass begins anew, with the station that has been silent for longest.
        (self.sweep_at, self.earliest) = (0, NEVER_TICK);
        let due = if earliest == NEVER_TICK { Time::NEVER } else { time_of(earliest) };
        self.sweep_due = due.max(now);
    }

    /// Stations known now, static ones included; some of them may be past their age.
    pub(super) const fn len(&self) -> usize {
        self.entries
    }

    pub(super) const fn counters(&self) -> MacTableCounters {
        self.counters
    }

    #[inline(always)]
    fn home(&self, key: u64) -> usize {
        // Fibonacci hashing; every bit of an address reaches the middle of the product, which has
        // enough of them for every table.
        let product = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let hash = (product >> HASH_SHIFT) & self.hash_mask;
        // At most as many bits as the number of slots has.
        #[allow(clippy::cast_possible_truncation, reason = "fewer bits than a usize has")]
        let home = hash as usize;
        home
    }

    #[inline]
    const fn after(&self, slot: usize) -> usize {
        (slot + 1) & (self.slots.len() - 1)
    }

    /// The value of a station seen at `now`.
    #[inline]
    const fn fresh(&self, now: Time, place: u64) -> u64 {
        match last_of_tick(now).checked_add(self.ageing) {
            Some(expiry) => expiry | place,
            None => (NEVER_TICK - 1) << TICK_BITS | place,
        }
    }

    /// The port of a station that is known and has not been silent for too long.
    #[inline(always)]
    pub(super) fn find(&self, now: Time, key: u64) -> Option<PortId> {
        let value = match self.value_at_home(key) {
            Some(value) => value,
            None => self.value_elsewhere(key),
        };
        place_unless_expired(value, now).map(PortId::at)
    }

    /// The value of a station that is at home, as most are.
    #[inline(always)]
    pub(super) fn value_at_home(&self, key: u64) -> Option<u64> {
        match self.slots.get(self.home(key)) {
            Some([found, value]) if *found == key => Some(*value),
            _ => None,
        }
    }

    /// The value of a station that is not at home.
    #[cold]
    #[inline(never)]
    pub(super) fn value_elsewhere(&self, key: u64) -> u64 {
        self.value_of(key)
    }

    /// The value of a station; 0, which has expired, when there is none.
    fn value_of(&self, key: u64) -> u64 {
        let mut at = self.home(key);
        for _ in 0..PROBES_MAX {
            let Some(&[found, value]) = self.slots.get(at) else { return 0 };
            if found == key {
                return value;
            }
            if found == 0 {
                break;
            }
            at = self.after(at);
        }
        0
    }

    /// A frame of the station has come by `port`: true, and it is noted, when the station is at
    /// home and was behind that port before, as most are. [`learn`](Self::learn) is for the others.
    #[inline(always)]
    pub(super) fn refresh(&mut self, now: Time, key: u64, port: PortId) -> bool {
        let home = self.home(key);
        let place = u64::from(port.0);
        let fresh = self.fresh(now, place);
        match self.slots.get_mut(home) {
            Some([found, value]) if *found == key && *value & PLACE_MASK == place => {
                *value = fresh;
                true
            }
            _ => false,
        }
    }

    /// A frame of the station has come by `port`.
    pub(super) fn learn(&mut self, now: Time, key: u64, port: PortId) {
        let place = u64::from(port.0);
        let fresh = self.fresh(now, place);
        let mut at = self.home(key);
        let mut reusable = None;
        for _ in 0..PROBES_MAX {
            let [found, value] = self.slots[at];
            if found == key {
                if value & STATIC == 0 {
                    if value & PLACE_MASK != place && !expired(value, now) {
                        self.counters.moved += 1;
                    }
                    self.slots[at][1] = fresh;
                }
                return;
            }
            if found == 0 {
                if reusable.is_none() && self.entries < self.entries_max {
                    reusable = Some(at);
                }
                break;
            }
            if reusable.is_none() && expired(value, now) {
                reusable = Some(at);
            }
            at = self.after(at);
        }
        let Some(at) = reusable else {
            self.counters.not_learned += 1;
            return;
        };
        self.counters.learned += 1;
        if self.slots[at][0] == 0 {
            self.entries += 1;
            self.learned += 1;
        } else {
            self.counters.aged += 1;
        }
        self.slots[at] = [key, fresh];
        if self.sweep_due == Time::NEVER {
            self.sweep_due = time_of(fresh >> TICK_BITS);
        }
    }

    /// Sets a station for good; false when the table has no place for it.
    pub(super) fn insert_static(&mut self, key: u64, port: PortId) -> bool {
        let mut at = self.home(key);
        for _ in 0..PROBES_MAX {
            let found = self.slots[at][0];
            if found == key || found == 0 {
                let new = found == 0;
                if new && self.entries >= self.entries_max {
                    return false;
                }
                self.entries += usize::from(new);
                self.slots[at] = [key, NEVER_TICK << TICK_BITS | STATIC | u64::from(port.0)];
                return true;
            }
            at = self.after(at);
        }
        false
    }

    /// Forgets the learned stations of a port, or of all ports.
    pub(super) fn flush(&mut self, port: Option<PortId>) {
        let mut at = 0;
        while at < self.slots.len() {
            let [key, value] = self.slots[at];
            let place = value & PLACE_MASK;
            let goes = port.map_or(place & STATIC == 0, |port| place == u64::from(port.0));
            if key != 0 && goes {
                self.remove(at);
                self.counters.flushed += 1;
            } else {
                at += 1;
            }
        }
    }

    /// Empties a slot, and moves those behind it up so that no probe ends early.
    fn remove(&mut self, slot: usize) {
        let mask = self.slots.len() - 1;
        let mut hole = slot;
        let mut at = slot;
        loop {
            at = self.after(at);
            let entry = self.slots[at];
            if entry[0] == 0 {
                break;
            }
            let from_home = at.wrapping_sub(self.home(entry[0])) & mask;
            if from_home >= at.wrapping_sub(hole) & mask {
                self.slots[hole] = entry;
                hole = at;
            }
        }
        self.slots[hole] = [0; 2];
        self.entries -= 1;
        self.learned -= 1;
    }

    /// When the sweep has something to do.
    #[inline]
    pub(super) const fn next_deadline(&self) -> Time {
        self.sweep_due
    }

    /// One step of the sweep, when it is due.
    pub(super) fn sweep(&mut self, now: Time) {
        if now < self.sweep_due {
            return;
        }
        let end = (self.sweep_at + SWEEP_SLOTS).min(self.slots.len());
        while self.sweep_at < end {
            let [key, value] = self.slots[self.sweep_at];
            if key != 0 && expired(value, now) {
                self.remove(self.sweep_at);
                self.counters.aged += 1;
                continue;
            }
            if key != 0 {
                self.earliest = self.earliest.min(value >> TICK_BITS);
            }
            self.sweep_at += 1;
        }
        self.sweep_due = if self.learned == 0 {
            self.sweep_at = 0;
            self.earliest = NEVER_TICK;
            Time::NEVER
        } else if end < self.slots.len() {
            now + self.sweep_gap
        } else {
            self.sweep_at = 0;
            // A station learned behind the sweep, in this pass, expires after those it has seen.
            let earliest = std::mem::replace(&mut self.earliest, NEVER_TICK);
            time_of(earliest.min(self.fresh(now, 0) >> TICK_BITS)).max(now + self.pass_gap)
        };
    }
}

const fn time_of(tick: u64) -> Time {
    Time::from_ps(tick << TICK_BITS)
}

#[inline]
const fn expired(value: u64, now: Time) -> bool {
    value <= last_of_tick(now)
}

/// The last picosecond of a tick.
#[inline]
const fn last_of_tick(now: Time) -> u64 {
    now.as_ps() | PLACE_MASK
}

/// The port that a value has, as an index, unless it has expired.
#[inline]
pub(super) const fn place_unless_expired(value: u64, now: Time) -> Option<usize> {
    if expired(value, now) { None } else { Some(place_of(value)) }
}

#[inline]
const fn place_of(value: u64) -> usize {
    // A port of the switch has 8 bits, a place that is none of them 15, below STATIC.
    #[allow(clippy::cast_possible_truncation, reason = "15 bits")]
    let place = (value & (STATIC - 1)) as usize;
    place
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const AGEING: Duration = Duration::from_secs(300);

    fn at(secs: u64) -> Time {
        Time::ZERO + Duration::from_secs(secs)
    }

    #[test]
    fn a_station_is_known_until_it_has_been_silent_for_the_ageing_time() {
        let mut table = MacTable::new(16, AGEING);
        table.learn(at(1), key_of(1, 7), PortId(3));
        assert_eq!(table.find(at(300), key_of(1, 7)), Some(PortId(3)));
        assert_eq!(table.find(at(300), key_of(2, 7)), None, "another VLAN");
        table.learn(at(200), key_of(1, 7), PortId(3));
        assert_eq!(table.find(at(499), key_of(1, 7)), Some(PortId(3)));
        assert_eq!(table.find(at(501), key_of(1, 7)), None);
    }

    #[test]
    fn the_sweep_empties_the_table_and_then_rests() {
        let mut table = MacTable::new(4_000, AGEING);
        assert_eq!(table.next_deadline(), Time::NEVER);
        for mac in 0..3_000 {
            table.learn(at(mac / 100), key_of(1, mac), PortId(0));
        }
        assert!(table.insert_static(key_of(1, 9_999), PortId(1)));
        let mut steps = 0;
        while table.next_deadline() != Time::NEVER {
            let due = table.next_deadline();
            assert!(due >= at(300) && due <= at(400), "{due}");
            table.sweep(due);
            assert!(table.next_deadline() > due);
            steps += 1;
        }
        assert!(steps < 32 * 34, "{steps}");
        assert_eq!((table.len(), table.counters().aged), (1, 3_000));
        assert_eq!(table.find(at(10_000), key_of(1, 9_999)), Some(PortId(1)));
    }

    #[test]
    fn a_full_table_counts_and_takes_again_what_has_aged() {
        let mut table = MacTable::new(100, AGEING);
        for mac in 0..150 {
            table.learn(at(0), key_of(1, mac), PortId(0));
        }
        let counters = table.counters();
        assert_eq!((counters.learned, counters.not_learned, table.len()), (100, 50, 100));
        table.learn(at(1), key_of(1, 5), PortId(2));
        assert_eq!(table.counters().moved, 1);
        while table.next_deadline() <= at(320) {
            table.sweep(table.next_deadline());
        }
        table.learn(at(320), key_of(1, 1_000), PortId(0));
        assert_eq!(table.find(at(320), key_of(1, 1_000)), Some(PortId(0)));
    }

    #[test]
    fn a_static_station_is_never_learned_over() {
        let mut table = MacTable::new(16, AGEING);
        assert!(table.insert_static(key_of(1, 7), PortId(200)));
        table.learn(at(1), key_of(1, 7), PortId(3));
        table.flush(Some(PortId(200)));
        table.flush(None);
        assert_eq!(table.find(at(9_999), key_of(1, 7)), Some(PortId(200)));
        assert_eq!(table.counters(), MacTableCounters::default());
    }

    #[test]
    fn crafted_addresses_cannot_make_a_long_probe() {
        let mut table = MacTable::new(65_536, AGEING);
        let home = table.home(key_of(1, 0));
        let crafted: Vec<u64> =
            (0..60_000_000).filter(|mac| table.home(key_of(1, *mac)) == home).take(100).collect();
        assert_eq!(crafted.len(), 100);
        for mac in crafted {
            table.learn(at(0), key_of(1, mac), PortId(0));
        }
        assert_eq!(table.counters().not_learned, 100 - PROBES_MAX as u64);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Learn { mac: u64, port: u16 },
        Flush { port: u16 },
        FlushAll,
        Age { secs: u64 },
        Wait { secs: u64 },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            // Few distinct addresses, some of which differ in the maker's half alone.
            20 => (0_u64..40, any::<bool>(), 0_u16..4)
                .prop_map(|(mac, high, port)| Step::Learn { mac: if high { mac << 40 } else { mac }, port }),
            1 => (0_u16..4).prop_map(|port| Step::Flush { port }),
            1 => Just(Step::FlushAll),
            1 => (1_u64..600).prop_map(|secs| Step::Age { secs }),
            4 => (0_u64..120).prop_map(|secs| Step::Wait { secs }),
        ]
    }

    proptest! {
        #[test]
        fn the_table_agrees_with_a_map(steps in prop::collection::vec(step(), 1..400)) {
            let mut table = MacTable::new(100, AGEING);
            let mut model: BTreeMap<u64, (u16, u64)> = BTreeMap::new();
            let (mut secs, mut ageing) = (0, 300);
            for step in steps {
                match step {
                    Step::Learn { mac, port } => {
                        table.learn(at(secs), key_of(1, mac), PortId(port));
                        model.insert(key_of(1, mac), (port, secs));
                    }
                    Step::Flush { port } => {
                        table.flush(Some(PortId(port)));
                        model.retain(|_, (at, _)| *at != port);
                    }
                    Step::FlushAll => {
                        table.flush(None);
                        prop_assert_eq!(table.len(), 0);
                        model.clear();
                    }
                    Step::Age { secs: for_secs } => {
                        ageing = for_secs;
                        table.set_ageing(at(secs), Duration::from_secs(ageing));
                        // A longer time brings nothing back that the table has given up.
                        model.retain(|key, _| table.value_of(*key) != 0);
                    }
                    Step::Wait { secs: wait } => secs += wait,
                }
                while table.next_deadline() <= at(secs) {
                    table.sweep(table.next_deadline());
                }
                for (key, (port, seen)) in &model {
                    // The age is counted in ticks; whole seconds differ from them by one at most.
                    let age = secs - seen;
                    let found = table.find(at(secs), *key);
                    if age < ageing {
                        prop_assert_eq!(found, Some(PortId(*port)));
                    } else if age > ageing {
                        prop_assert_eq!(found, None);
                    }
                }
            }
        }
    }
}
