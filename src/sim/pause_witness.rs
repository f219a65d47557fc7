//! A witness beside a port, who believes frames alone: what was paused by the frames that came in
//! must not go out.
//!
//! It reads pauses and classes from the bytes that cross the port, with the standard's rules written
//! out again, and knows nothing of the node's own state. A frame whose first bit left before the
//! pause arrived is in flight and may be finished.

use crate::time::{Duration, Time};
use crate::units::Rate;
use crate::wire::parse;
use crate::wire::pfc::{CLASSES, MacControl, is_mac_control, pause_time};

/// How a node gives the frames that it sends a class.
#[derive(Clone, Debug)]
pub enum ClassRule {
    /// By the PCP of the outer tag; without one, the last member.
    Pcp([u8; 8], u8),
    /// By the DSCP; without one, the last member.
    Dscp(Box<[u8; 64]>, u8),
}

impl ClassRule {
    /// The class of a frame.
    pub fn class_of(&self, head: &[u8]) -> u8 {
        let parsed = parse(head).ok();
        match self {
            Self::Pcp(map, otherwise) => parsed
                .and_then(|frame| frame.outer_tag())
                .map_or(*otherwise, |tag| map[usize::from(tag.tci.pcp() & 7)]),
            Self::Dscp(map, otherwise) => parsed
                .and_then(|frame| frame.dscp())
                .map_or(*otherwise, |dscp| map[usize::from(dscp & 63)]),
        }
    }
}

/// One class that was told to stop.
#[derive(Clone, Copy, Debug, Default)]
struct Silence {
    since: Time,
    until: Time,
}

/// A frame that left while its class was to be silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breach {
    /// When its first bit left.
    pub at: Time,
    /// Its class.
    pub class: u8,
    /// Since when the class was to be silent,
    pub since: Time,
    /// and until when, as far as was known then.
    pub until: Time,
}

/// The witness at one port.
#[derive(Clone, Debug)]
pub struct PauseWitness {
    rate: Rate,
    /// The classes that the node is to obey, as bits.
    lossless: u8,
    rule: ClassRule,
    silences: [Silence; CLASSES],
    silent: [Duration; CLASSES],
    breaches: u64,
    first: Option<Breach>,
}

impl PauseWitness {
    /// A witness at a port of `rate` whose node obeys PFC for the classes `lossless`, as bits.
    pub fn new(rate: Rate, lossless: u8, rule: ClassRule) -> Self {
        Self {
            rate,
            lossless,
            rule,
            silences: [Silence::default(); CLASSES],
            silent: [Duration::ZERO; CLASSES],
            breaches: 0,
            first: None,
        }
    }

    /// A frame that begins with `head` has come in at `at`.
    pub fn on_inbound(&mut self, at: Time, head: &[u8]) {
        if !is_mac_control(head) {
            return;
        }
        let Ok(MacControl::Pfc(pfc)) = MacControl::read(head) else { return };
        for (class, quanta) in pfc.classes() {
            if self.lossless & 1 << class == 0 {
                continue;
            }
            let silence = &mut self.silences[class];
            let ended = silence.until.min(at);
            if silence.until <= at || quanta == 0 {
                self.silent[class] += ended.since(silence.since);
                silence.since = at;
            }
            silence.until = at + pause_time(quanta, self.rate);
        }
    }

    /// The first bit of a frame that begins with `head` goes out at `starts`.
    pub fn on_outbound(&mut self, starts: Time, head: &[u8]) {
        if self.lossless == 0 || is_mac_control(head) {
            return;
        }
        let class = self.rule.class_of(head) & 7;
        let silence = self.silences[usize::from(class)];
        if self.lossless & 1 << class == 0 || starts < silence.since || silence.until <= starts {
            return;
        }
        self.breaches += 1;
        let Silence { since, until } = silence;
        self.first.get_or_insert(Breach { at: starts, class, since, until });
    }

    /// How long each class was to be silent until `now`.
    pub fn silent_for(&self, now: Time) -> [Duration; CLASSES] {
        std::array::from_fn(|class| {
            let silence = self.silences[class];
            self.silent[class] + silence.until.min(now).since(silence.since)
        })
    }

    /// Frames that left while their class was to be silent.
    pub const fn breaches(&self) -> u64 {
        self.breaches
    }

    /// The first of them.
    pub const fn first(&self) -> Option<Breach> {
        self.first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pause::Pauses;
    use crate::wire::MacAddr;
    use crate::wire::pfc::Pfc;
    use proptest::prelude::*;

    const RATE: Rate = Rate::from_gbps(100);
    const QUANTUM: Duration = Duration::from_ps(5_120);
    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

    const fn at(quanta: u64) -> Time {
        Time::from_ps(quanta * QUANTUM.as_ps())
    }

    fn pcp() -> ClassRule {
        ClassRule::Pcp([0, 1, 2, 3, 4, 5, 6, 7], 0)
    }

    fn tagged(pcp: u8) -> [u8; 18] {
        [2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8, 0x81, 0, pcp << 5, 1, 8, 0]
    }

    #[test]
    fn a_frame_in_a_silence_is_a_breach_and_one_in_flight_is_none() {
        let mut witness = PauseWitness::new(RATE, 0b1000, pcp());
        witness.on_inbound(at(10), &MacControl::Pfc(Pfc::uniform(0xff, 20)).frame(MAC));
        witness.on_outbound(Time::from_ps(at(10).as_ps() - 1), &tagged(3));
        witness.on_outbound(at(15), &tagged(4));
        witness.on_outbound(at(15), &MacControl::Pfc(Pfc::uniform(0xff, 20)).frame(MAC));
        witness.on_outbound(at(30), &tagged(3));
        assert_eq!(witness.breaches(), 0);
        witness.on_outbound(at(10), &tagged(3));
        witness.on_outbound(at(29), &tagged(3));
        assert_eq!(witness.breaches(), 2);
        let first = Breach { at: at(10), class: 3, since: at(10), until: at(30) };
        assert_eq!(witness.first(), Some(first));
        witness.on_inbound(at(29), &MacControl::Pfc(Pfc::uniform(0b1000, 0)).frame(MAC));
        witness.on_outbound(at(29), &tagged(3));
        assert_eq!(witness.breaches(), 2, "resumed");
    }

    #[test]
    fn classes_are_read_as_the_node_reads_them() {
        let dscp = ClassRule::Dscp(
            Box::new(std::array::from_fn(|dscp| if dscp == 46 { 5 } else { 1 })),
            2,
        );
        let v4 = [2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8, 8, 0, 0x45, 46 << 2 | 3];
        assert_eq!((dscp.class_of(&v4), pcp().class_of(&v4)), (5, 0));
        assert_eq!((dscp.class_of(&tagged(3)[..16]), pcp().class_of(&tagged(3))), (2, 3));
        assert_eq!(dscp.class_of(&v4[..5]), 2);
    }

    proptest! {
        /// The node's own account and the witness's agree, whatever comes.
        #[test]
        fn silences_are_what_the_node_counts_as_pauses(
            frames in proptest::collection::vec((0_u64..50, any::<u8>(), 0_u16..60), 0..60),
        ) {
            const LOSSLESS: u8 = 0b0001_1000;
            let mut witness = PauseWitness::new(RATE, LOSSLESS, pcp());
            let mut pauses = Pauses::new(RATE, LOSSLESS, false);
            let mut now = 0;
            for (pass, classes, quanta) in frames {
                now += pass;
                let pfc = Pfc::uniform(classes, quanta);
                witness.on_inbound(at(now), &MacControl::Pfc(pfc).frame(MAC));
                pauses.on_pfc(at(now), pfc);
            }
            for later in [0, 10, 1_000] {
                let counted = pauses.counters(at(now + later)).rx_pause;
                prop_assert_eq!(witness.silent_for(at(now + later)), counted);
            }
        }
    }
}
