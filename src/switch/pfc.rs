//! Pauses that a port asks the other end of its link for: what there is to say, and when it is to
//! be said again.
//!
//! The memory says which classes are to stop. News is the difference between that and what the other
//! end was last told, so that a class that goes to and fro while the wire is busy makes no frame.
//! One frame carries the news of all classes. A pause that is still wanted is asked for again when
//! half of it has passed, before it can run out; the other end can never be stopped for longer than
//! one pause behind a lost resume.

use crate::time::{Duration, Time};
use crate::units::Rate;
use crate::wire::pfc::{CLASSES, Pfc, pause_time};

/// What a port told the other end, in frames by priority: a frame counts for every class in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PfcCounters {
    /// Frames that asked the class to stop, the first and those that prolonged it.
    pub tx_xoff: [u64; CLASSES],
    /// Frames that let the class send again.
    pub tx_xon: [u64; CLASSES],
}

/// The sending side of PFC at one port.
#[derive(Clone, Debug)]
pub struct PfcSender {
    /// What each frame asks for.
    quanta: u16,
    /// How long after one frame the next asks again.
    refresh: Duration,
    /// The classes that the memory wants stopped.
    wanted: u8,
    /// The classes that the other end was last told to stop.
    told: u8,
    /// When each class that was told is told again.
    refresh_at: [Time; CLASSES],
    /// The earliest of those that are wanted and were told, or never.
    next_refresh: Time,
    /// The classes whose refresh is due.
    due: u8,
    counters: PfcCounters,
}

impl PfcSender {
    /// A port of `rate` that asks for pauses of `quanta`, which are more than one.
    ///
    /// # Panics
    /// When the rate is zero.
    pub fn new(rate: Rate, quanta: u16) -> Self {
        Self {
            quanta,
            refresh: pause_time(quanta, rate) / 2,
            wanted: 0,
            told: 0,
            refresh_at: [Time::NEVER; CLASSES],
            next_refresh: Time::NEVER,
            due: 0,
            counters: PfcCounters::default(),
        }
    }

    /// The memory wants these classes stopped, as bits, and no others. True when there is something
    /// to say now.
    pub fn want(&mut self, classes: u8) -> bool {
        self.wanted = classes;
        self.settle();
        self.has_news()
    }

    /// The classes that the memory wants stopped, as bits.
    pub const fn wanted(&self) -> u8 {
        self.wanted
    }

    /// The classes that the other end was last told to stop, as bits.
    pub const fn told(&self) -> u8 {
        self.told
    }

    /// Whether a frame is to be sent as soon as the wire is free.
    #[inline]
    pub const fn has_news(&self) -> bool {
        self.wanted != self.told || self.due != 0
    }

    /// When [`on_timer`](Self::on_timer) has something to do, or [`Time::NEVER`].
    #[inline]
    pub const fn next_refresh(&self) -> Time {
        self.next_refresh
    }

    /// Marks what is to be said again at `now`. True when there is something to say.
    pub fn on_timer(&mut self, now: Time) -> bool {
        if self.next_refresh <= now {
            for class in 0..CLASSES {
                let bit = 1 << class;
                if self.told & self.wanted & bit != 0 && self.refresh_at[class] <= now {
                    self.due |= bit;
                }
            }
            self.settle();
        }
        self.has_news()
    }

    /// The frame that says all the news, which the port puts on its wire: its last bit leaves at
    /// `ends`. None when there is none.
    pub fn take(&mut self, ends: Time) -> Option<Pfc> {
        if !self.has_news() {
            return None;
        }
        let stop = self.wanted & (!self.told | self.due);
        let go_on = self.told & !self.wanted;
        for class in 0..CLASSES {
            let bit = 1 << class;
            self.counters.tx_xoff[class] += u64::from(stop & bit != 0);
            self.counters.tx_xon[class] += u64::from(go_on & bit != 0);
            if stop & bit != 0 {
                self.refresh_at[class] = ends + self.refresh;
            }
        }
        self.told = self.wanted;
        self.due = 0;
        self.settle();
        Some(Pfc::default().with(stop, self.quanta).with(go_on, 0))
    }

    /// The link has gone down: the other end forgets what it was told, and is told again what is
    /// wanted when the link comes up.
    pub fn forget(&mut self) {
        self.told = 0;
        self.due = 0;
        self.settle();
    }

    /// What was told.
    pub const fn counters(&self) -> &PfcCounters {
        &self.counters
    }

    fn settle(&mut self) {
        self.due &= self.wanted;
        let waiting = self.wanted & self.told & !self.due;
        let waits = |class: &usize| waiting & 1 << *class != 0;
        let first = (0..CLASSES).filter(waits).map(|class| self.refresh_at[class]).min();
        self.next_refresh = first.unwrap_or(Time::NEVER);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pause::Pauses;
    use proptest::prelude::*;

    const RATE: Rate = Rate::from_gbps(100);
    /// 512 bits at 100 Gb/s.
    const QUANTUM: Duration = Duration::from_ps(5_120);

    const fn at(quanta: u64) -> Time {
        Time::from_ps(quanta * QUANTUM.as_ps())
    }

    #[test]
    fn a_pause_is_asked_for_once_and_prolonged_at_its_half() {
        let mut sender = PfcSender::new(RATE, 100);
        assert_eq!((sender.has_news(), sender.next_refresh()), (false, Time::NEVER));
        assert!(sender.want(0b1000) && sender.want(0b1000));
        assert_eq!(sender.take(at(2)), Some(Pfc::uniform(0b1000, 100)));
        assert_eq!(sender.take(at(3)), None, "the same news once");
        assert_eq!(sender.next_refresh(), at(52));
        assert!(!sender.on_timer(at(51)));
        assert!(sender.on_timer(at(52)));
        assert_eq!(sender.next_refresh(), Time::NEVER, "it waits for the wire");
        assert_eq!(sender.take(at(55)), Some(Pfc::uniform(0b1000, 100)));
        assert_eq!(sender.next_refresh(), at(105));
        assert!(sender.want(0));
        assert_eq!(sender.take(at(60)), Some(Pfc::uniform(0b1000, 0)));
        assert_eq!((sender.has_news(), sender.next_refresh()), (false, Time::NEVER));
        let counters = sender.counters();
        assert_eq!((counters.tx_xoff[3], counters.tx_xon[3]), (2, 1));
        assert_eq!(counters.tx_xoff.iter().sum::<u64>(), 2);
    }

    #[test]
    fn what_goes_to_and_fro_before_the_wire_is_free_is_no_news() {
        let mut sender = PfcSender::new(RATE, 100);
        assert!(sender.want(0b1000));
        assert!(!sender.want(0));
        assert_eq!(sender.take(at(1)), None);
        sender.want(0b1000);
        assert!(sender.take(at(1)).is_some());
        sender.want(0);
        assert!(!sender.want(0b1000), "it still holds");
        assert_eq!(sender.next_refresh(), at(51));
        // A refresh that has become due is void when the class may go on.
        assert!(sender.on_timer(at(51)));
        sender.want(0);
        assert_eq!(sender.take(at(60)), Some(Pfc::uniform(0b1000, 0)));
        assert_eq!(sender.take(at(61)), None);
    }

    #[test]
    fn one_frame_has_the_news_of_all_classes() {
        let mut sender = PfcSender::new(RATE, 100);
        sender.want(0b1000);
        sender.take(at(0));
        sender.want(0b11_0000);
        assert_eq!(sender.take(at(1)), Some(Pfc::uniform(0b11_0000, 100).with(0b1000, 0)));
        assert_eq!(sender.take(at(2)), None);
    }

    #[test]
    fn a_link_that_comes_back_is_told_again() {
        let mut sender = PfcSender::new(RATE, 100);
        sender.want(0b1000);
        sender.take(at(0));
        sender.forget();
        assert_eq!(sender.next_refresh(), Time::NEVER);
        assert_eq!(sender.take(at(9)), Some(Pfc::uniform(0b1000, 100)));
        sender.want(0);
        sender.forget();
        assert_eq!(sender.take(at(10)), None, "nobody waits for a resume");
    }

    proptest! {
        /// Whatever the memory wants and however long the wire is busy, the other end is stopped
        /// from the frame after the wish to the frame after its end, without a gap.
        #[test]
        fn the_other_end_follows_what_is_wanted(
            wishes in proptest::collection::vec((0_u64..60, 0_u8..8, any::<bool>()), 0..60),
            busy in 1_u64..30,
        ) {
            let mut sender = PfcSender::new(RATE, 100);
            let mut peer = Pauses::new(RATE, 0xff, false);
            let (mut now, mut free) = (0, 0);
            // At the end nothing changes for long.
            for (pass, class, stopped) in wishes.into_iter().chain([(500, 0, false)]) {
                let mut frames = 0;
                for _ in 0..pass {
                    now += 1;
                    sender.on_timer(at(now));
                    if free <= now && let Some(pfc) = sender.take(at(now)) {
                        free = now + busy;
                        frames += 1;
                        peer.on_pfc(at(now), pfc);
                    }
                    peer.expire(at(now));
                    prop_assert_eq!(peer.stopped(), sender.told(), "at {}", now);
                    if free <= now {
                        prop_assert_eq!(sender.told(), sender.wanted());
                    }
                }
                // The news, and for each class that is stopped one frame in half a pause.
                let stopped_classes = u64::from(sender.wanted().count_ones());
                prop_assert!(frames <= 2 + stopped_classes * (pass / 50 + 1), "{} frames", frames);
                let bit = 1 << class;
                let wanted = sender.wanted();
                sender.want(if stopped { wanted | bit } else { wanted & !bit });
            }
        }
    }
}
