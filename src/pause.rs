//! Pauses that a port was asked for: which classes may not send, and until when.
//!
//! A pause takes effect when the frame that asks for it has arrived: the frame that is on the wire
//! then is finished, the next one waits. It ends when its quanta have passed, or at once with 0
//! quanta; the newest frame says how long, whatever was said before (IEEE 802.3 annex 31D.3).
//! Ends are exact however late they are asked about.

use crate::time::{Duration, Time};
use crate::units::Rate;
use crate::wire::pfc::{CLASSES, Pfc, pause_time};

/// Every class.
const ALL: u8 = 0xff;

/// What was received of pauses, by priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PauseCounters {
    /// PFC frames that asked the class to stop.
    pub rx_xoff: [u64; CLASSES],
    /// PFC frames that let the class send again.
    pub rx_xon: [u64; CLASSES],
    /// How long the class was stopped, by PFC or by PAUSE.
    pub rx_pause: [Duration; CLASSES],
    /// PAUSE frames (802.3x) that asked the port to stop.
    pub rx_global_xoff: u64,
    /// PAUSE frames that let it send again.
    pub rx_global_xon: u64,
}

/// The pauses of one port.
#[derive(Clone, Debug)]
pub struct Pauses {
    /// What a quantum is counted by.
    rate: Rate,
    /// The classes whose pauses are obeyed.
    obeyed: u8,
    /// Whether PAUSE is obeyed.
    global: bool,
    /// The classes that PFC has stopped.
    paused: u8,
    until: [Time; CLASSES],
    /// While PAUSE stops the port: until when.
    global_until: Option<Time>,
    /// The earliest end of a pause, or never.
    next_expiry: Time,
    /// Since when each class that is stopped is, by whichever of both.
    since: [Time; CLASSES],
    /// When a class could last send again.
    resumed_at: Time,
    counters: PauseCounters,
}

impl Pauses {
    /// A port of `rate` that obeys PFC for the classes `obeyed`, as bits, and PAUSE if `global`.
    ///
    /// # Panics
    /// When the rate is zero.
    pub fn new(rate: Rate, obeyed: u8, global: bool) -> Self {
        assert!(rate.as_bps() > 0, "a port has a rate above zero");
        Self {
            rate,
            obeyed,
            global,
            paused: 0,
            until: [Time::ZERO; CLASSES],
            global_until: None,
            next_expiry: Time::NEVER,
            since: [Time::ZERO; CLASSES],
            resumed_at: Time::ZERO,
            counters: PauseCounters::default(),
        }
    }

    /// The classes that may not send, as bits; call [`expire`](Self::expire) first when
    /// [`next_expiry`](Self::next_expiry) has come.
    #[inline]
    pub const fn stopped(&self) -> u8 {
        if self.global_until.is_some() { ALL } else { self.paused }
    }

    /// When the next pause ends by itself, or [`Time::NEVER`].
    #[inline]
    pub const fn next_expiry(&self) -> Time {
        self.next_expiry
    }

    /// Takes a PFC frame that has arrived at `now`.
    pub fn on_pfc(&mut self, now: Time, pfc: Pfc) {
        self.expire(now);
        let before = self.stopped();
        for (class, quanta) in pfc.classes() {
            let count =
                if quanta == 0 { &mut self.counters.rx_xon } else { &mut self.counters.rx_xoff };
            count[class] += 1;
            if self.obeyed & 1 << class == 0 {
                continue;
            }
            if quanta == 0 {
                self.paused &= !(1 << class);
            } else {
                self.paused |= 1 << class;
                self.until[class] = now + pause_time(quanta, self.rate);
            }
        }
        self.changed(now, before);
    }

    /// Takes a PAUSE frame that has arrived at `now`.
    pub fn on_pause(&mut self, now: Time, quanta: u16) {
        self.expire(now);
        let before = self.stopped();
        if quanta == 0 {
            self.counters.rx_global_xon += 1;
        } else {
            self.counters.rx_global_xoff += 1;
        }
        if self.global {
            self.global_until = (quanta > 0).then(|| now + pause_time(quanta, self.rate));
        }
        self.changed(now, before);
    }

    /// Ends every pause that is over at `now`.
    pub fn expire(&mut self, now: Time) {
        // Each end at its own time, so that a late caller counts no more than there was.
        while self.next_expiry <= now && self.next_expiry != Time::NEVER {
            let at = self.next_expiry;
            let before = self.stopped();
            for class in bits(self.paused) {
                if self.until[class] <= at {
                    self.paused &= !(1 << class);
                }
            }
            self.global_until = self.global_until.filter(|until| *until > at);
            self.changed(at, before);
        }
    }

    /// Which classes are obeyed from `now` on, as bits. A pause of one that is not ends.
    pub fn set_obeyed(&mut self, now: Time, obeyed: u8) {
        self.expire(now);
        let before = self.stopped();
        self.obeyed = obeyed;
        self.paused &= obeyed;
        self.changed(now, before);
    }

    /// Ends every pause: the link has gone down, and what its other end asked for is void.
    pub fn clear(&mut self, now: Time) {
        self.expire(now);
        let before = self.stopped();
        self.paused = 0;
        self.global_until = None;
        self.changed(now, before);
    }

    /// Brings what follows from the state up to it: `before` is what was stopped until `now`.
    fn changed(&mut self, now: Time, before: u8) {
        let after = self.stopped();
        for class in bits(before & !after) {
            self.counters.rx_pause[class] += now.since(self.since[class]);
            self.resumed_at = now;
        }
        for class in bits(after & !before) {
            self.since[class] = now;
        }
        let first = bits(self.paused).map(|class| self.until[class]).min();
        self.next_expiry =
            first.unwrap_or(Time::NEVER).min(self.global_until.unwrap_or(Time::NEVER));
    }

    /// How long a class has been stopped until `now`, in sum.
    pub fn paused_for(&self, now: Time, class: usize) -> Duration {
        let running = if self.stopped() & 1 << class == 0 {
            Duration::ZERO
        } else {
            now.min(self.end_of(class)).since(self.since[class])
        };
        self.counters.rx_pause[class] + running
    }

    /// When the running pause of a class ends; the start of the run without one.
    pub fn end_of(&self, class: usize) -> Time {
        let by_class = if self.paused & 1 << class == 0 { Time::ZERO } else { self.until[class] };
        by_class.max(self.end_of_all())
    }

    /// When the pause of the whole port ends; the start of the run without one.
    pub fn end_of_all(&self) -> Time {
        self.global_until.unwrap_or(Time::ZERO)
    }

    /// Whether a pause of the whole port runs.
    pub const fn is_whole_port(&self) -> bool {
        self.global_until.is_some()
    }

    /// When a class could last send again: what has waited could not leave before.
    pub const fn resumed_at(&self) -> Time {
        self.resumed_at
    }

    /// What was received until `now`, the running pauses as far as they have lasted.
    pub fn counters(&self, now: Time) -> PauseCounters {
        let rx_pause = std::array::from_fn(|class| self.paused_for(now, class));
        PauseCounters { rx_pause, ..self.counters }
    }

    /// PFC frames that have asked a class to stop.
    pub const fn xoff_received(&self, class: usize) -> u64 {
        self.counters.rx_xoff[class]
    }
}

/// The classes of a set, ascending.
fn bits(set: u8) -> impl Iterator<Item = usize> {
    (0..CLASSES).filter(move |class| set & 1 << *class != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RATE: Rate = Rate::from_gbps(100);
    /// 512 bits at 100 Gb/s.
    const QUANTUM: Duration = Duration::from_ps(5_120);

    const fn at(quanta: u64) -> Time {
        Time::from_ps(quanta * QUANTUM.as_ps())
    }

    #[test]
    fn a_pause_ends_by_itself_to_the_picosecond() {
        let mut pauses = Pauses::new(RATE, 0b1000, false);
        pauses.on_pfc(at(1), Pfc::uniform(0b1000, 10));
        assert_eq!((pauses.stopped(), pauses.next_expiry()), (0b1000, at(11)));
        pauses.expire(Time::from_ps(at(11).as_ps() - 1));
        assert_eq!(pauses.stopped(), 0b1000);
        pauses.expire(at(11));
        assert_eq!((pauses.stopped(), pauses.next_expiry()), (0, Time::NEVER));
        assert_eq!(pauses.counters(at(99)).rx_pause[3], QUANTUM * 10);
        pauses.on_pfc(at(20), Pfc::uniform(0b1000, 10));
        pauses.expire(Time::NEVER);
        assert_eq!((pauses.stopped(), pauses.next_expiry()), (0, Time::NEVER));
    }

    #[test]
    fn the_newest_frame_says_how_long_and_zero_ends_it() {
        let mut pauses = Pauses::new(RATE, 0b1000, false);
        pauses.on_pfc(at(0), Pfc::uniform(0b1000, 100));
        pauses.on_pfc(at(10), Pfc::uniform(0b1000, 5));
        assert_eq!(pauses.next_expiry(), at(15), "shorter than before");
        pauses.on_pfc(at(12), Pfc::uniform(0b1000, 100));
        assert_eq!(pauses.next_expiry(), at(112), "and longer");
        pauses.on_pfc(at(20), Pfc::uniform(0b1000, 0));
        assert_eq!((pauses.stopped(), pauses.next_expiry()), (0, Time::NEVER));
        let counters = pauses.counters(at(50));
        assert_eq!((counters.rx_xoff[3], counters.rx_xon[3]), (3, 1));
        assert_eq!(counters.rx_pause[3], QUANTUM * 20, "one pause from the first to the last");
    }

    #[test]
    fn classes_that_are_not_enabled_or_not_lossless_go_on() {
        let mut pauses = Pauses::new(RATE, 0b1_1000, false);
        pauses.on_pfc(at(0), Pfc { enabled: 0b1000, quanta: [9; 8] });
        assert_eq!(pauses.stopped(), 0b1000);
        pauses.on_pfc(at(0), Pfc::uniform(0xff, 9));
        assert_eq!(pauses.stopped(), 0b1_1000);
        let counters = pauses.counters(at(0));
        assert_eq!(counters.rx_xoff, [1, 1, 1, 2, 1, 1, 1, 1], "counted, whether obeyed or not");
    }

    #[test]
    fn a_late_caller_counts_what_there_was() {
        let mut pauses = Pauses::new(RATE, 0b11, false);
        pauses.on_pfc(at(0), Pfc::uniform(0b01, 10).with(0b10, 30));
        // Both have ended long ago when the next frame is looked at.
        pauses.on_pfc(at(100), Pfc::uniform(0b01, 1));
        let counters = pauses.counters(at(1_000));
        assert_eq!(counters.rx_pause[..2], [QUANTUM * 11, QUANTUM * 30]);
    }

    #[test]
    fn pause_stops_everything_where_it_is_obeyed() {
        let mut deaf = Pauses::new(RATE, 0b1000, false);
        deaf.on_pause(at(0), 9);
        assert_eq!((deaf.stopped(), deaf.counters(at(9)).rx_global_xoff), (0, 1));
        let mut pauses = Pauses::new(RATE, 0b1000, true);
        pauses.on_pause(at(0), 20);
        pauses.on_pfc(at(5), Pfc::uniform(0b1000, 10));
        assert_eq!((pauses.stopped(), pauses.next_expiry()), (0xff, at(15)));
        pauses.expire(at(15));
        assert_eq!((pauses.stopped(), pauses.next_expiry()), (0xff, at(20)));
        pauses.on_pause(at(18), 0);
        assert_eq!(pauses.stopped(), 0);
        assert_eq!(pauses.counters(at(99)).rx_pause, [QUANTUM * 18; 8]);
        assert_eq!(pauses.counters(at(99)).rx_global_xon, 1);
    }

    #[test]
    fn what_is_no_longer_obeyed_goes_on_at_once_and_a_dead_link_asks_for_nothing() {
        let mut pauses = Pauses::new(RATE, 0b1_1000, false);
        pauses.on_pfc(at(0), Pfc::uniform(0b1_1000, 1_000));
        pauses.set_obeyed(at(10), 0b1_0000);
        assert_eq!(pauses.stopped(), 0b1_0000);
        pauses.on_pfc(at(20), Pfc::uniform(0b1000, 1_000));
        assert_eq!(pauses.stopped(), 0b1_0000);
        pauses.clear(at(30));
        assert_eq!((pauses.stopped(), pauses.next_expiry()), (0, Time::NEVER));
        let counters = pauses.counters(at(99));
        assert_eq!(counters.rx_pause[3..5], [QUANTUM * 10, QUANTUM * 30]);
    }

    /// The model: for each quantum of time, whether each class was stopped.
    fn model(frames: &[(u64, u8, u16)], class: usize, end: u64) -> Vec<bool> {
        let mut until = 0;
        (0..end)
            .map(|now| {
                for (_, classes, quanta) in frames.iter().filter(|(at, ..)| *at == now) {
                    if classes & 1 << class != 0 {
                        until = now + u64::from(*quanta);
                    }
                }
                now < until
            })
            .collect()
    }

    proptest! {
        #[test]
        fn agrees_with_a_model_however_it_is_asked(
            mut frames in proptest::collection::vec((0_u64..200, any::<u8>(), 0_u16..40), 0..40),
            looks in proptest::collection::vec(0_u64..300, 0..20),
        ) {
            const OBEYED: u8 = 0b0101_1010;
            frames.sort_unstable_by_key(|(at, ..)| *at);
            let mut pauses = Pauses::new(RATE, OBEYED, false);
            for now in 0..300 {
                for (_, classes, quanta) in frames.iter().filter(|(at, ..)| *at == now) {
                    pauses.on_pfc(at(now), Pfc::uniform(*classes, *quanta));
                }
                if !looks.contains(&now) {
                    continue;
                }
                pauses.expire(at(now));
                for class in 0..CLASSES {
                    let obeyed = OBEYED & 1 << class != 0;
                    let model = model(&frames, class, now + 1);
                    let stopped = pauses.stopped() & 1 << class != 0;
                    prop_assert_eq!(stopped, obeyed && model[usize::try_from(now).expect("small")]);
                    let before = &model[..usize::try_from(now).expect("small")];
                    let quanta = before.iter().filter(|stopped| **stopped && obeyed).count() as u64;
                    prop_assert_eq!(pauses.paused_for(at(now), class), QUANTUM * quanta);
                }
            }
        }
    }
}
