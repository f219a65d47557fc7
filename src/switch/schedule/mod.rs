//! Which queue of a port is served next: strict priority, deficit weighted round robin, or strict
//! queues before weighted ones; and how fast each queue, and the port, may be served at most.
//!
//! Strict queues go first, the highest first. Those with a weight share what is left ([`dwrr`]).
//! A queue whose shaper has no credit ([`shaper`]) is passed over, so a strict queue that is shaped
//! leaves the rest of the line to others. Lengths are those on the wire, so that shares and rates
//! hold for frames of every size.

pub mod dwrr;
pub mod shaper;

use dwrr::Dwrr;
use shaper::Shaper;

use super::config::QUEUES;
use crate::time::{Duration, Time};
use crate::units::Rate;

/// Highest weight.
pub const WEIGHT_MAX: u32 = 255;

/// The limit of a queue or of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShaperConfig {
    /// Bits of wire time per second.
    pub rate: Rate,
    /// Wire bytes that may leave at once after a silence; at least one frame always may.
    pub burst_bytes: u64,
}

/// How a port serves its queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleConfig {
    /// The weight of each queue, 1 to [`WEIGHT_MAX`]; None for strict priority.
    pub weights: [Option<u32>; QUEUES],
    /// Wire bytes that a weight of 1 is good for in a round. Shares do not depend on it; the
    /// smaller it is, the finer turns alternate.
    pub quantum_bytes: u32,
    /// The limit of each queue.
    pub queue_shapers: [Option<ShaperConfig>; QUEUES],
    /// The limit of the port.
    pub port_shaper: Option<ShaperConfig>,
}

impl Default for ScheduleConfig {
    /// Strict priority, no limit.
    fn default() -> Self {
        Self {
            weights: [None; QUEUES],
            quantum_bytes: 1_600,
            queue_shapers: [None; QUEUES],
            port_shaper: None,
        }
    }
}

/// A schedule that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct ScheduleError {
    /// The field that is wrong.
    pub field: &'static str,
    /// Why.
    pub message: String,
}

impl ScheduleConfig {
    /// Whether a port of `rate` can be served so.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub fn check(&self, rate: Rate) -> Result<(), ScheduleError> {
        let refuse = |field, message| Err(ScheduleError { field, message });
        for (queue, weight) in self.weights.iter().enumerate() {
            if let Some(weight) = weight.filter(|weight| !(1..=WEIGHT_MAX).contains(weight)) {
                let message = format!("queue {queue} has weight {weight}: 1 to {WEIGHT_MAX}");
                return refuse("weights", message);
            }
        }
        if !(64..=65_536).contains(&self.quantum_bytes) {
            let message = format!("{} bytes: 64 to 65536", self.quantum_bytes);
            return refuse("quantum_bytes", message);
        }
        let shapers = self.queue_shapers.iter().map(|shaper| ("queue_shapers", shaper));
        for (field, shaper) in shapers.chain([("port_shaper", &self.port_shaper)]) {
            let Some(shaper) = shaper else { continue };
            if shaper.rate.as_bps() == 0 || shaper.rate > rate {
                let message = format!("{}: above 0, at most the line's {rate}", shaper.rate);
                return refuse(field, message);
            }
        }
        Ok(())
    }

    const fn is_strict(&self) -> bool {
        let mut queue = 0;
        while queue < QUEUES {
            if self.weights[queue].is_some() || self.queue_shapers[queue].is_some() {
                return false;
            }
            queue += 1;
        }
        self.port_shaper.is_none()
    }
}

/// Strict priority: the highest queue of those that have frames and may send, of which there is
/// one. `eligible` has bit n set for queue n.
#[inline]
pub const fn strict(eligible: u32) -> u32 {
    debug_assert!(eligible != 0, "a port without anything to send");
    // There always is one, and it is below 8: that the compiler knows.
    (eligible & 0xff | 1).ilog2()
}

/// The answer of a [`Schedule`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The head of this queue is to be sent.
    Queue {
        /// The queue.
        queue: u32,
        /// Since when its limit and the port's allow it.
        allowed_at: Time,
    },
    /// Queues have frames, and the first of them has credit at this instant.
    Wait(Time),
    /// No queue has a frame that may be sent.
    None,
}

/// How one port is served where strict priority alone does not say it.
#[derive(Debug)]
pub struct Schedule {
    strict: u32,
    dwrr: Dwrr,
    /// Queues that have a shaper.
    shaped: u32,
    queue_shapers: [Shaper; QUEUES],
    port_shaper: Option<Shaper>,
}

impl Schedule {
    /// The schedule of a configuration that was checked; None where [`strict`] alone decides.
    pub fn new(config: &ScheduleConfig) -> Option<Self> {
        if config.is_strict() {
            return None;
        }
        let bits = |is_set: &dyn Fn(usize) -> bool| {
            (0..QUEUES).filter(|queue| is_set(*queue)).fold(0_u32, |bits, queue| bits | 1 << queue)
        };
        Some(Self {
            strict: bits(&|queue| config.weights[queue].is_none()),
            dwrr: Dwrr::new(
                config
                    .weights
                    .map(|weight| u64::from(weight.unwrap_or(0)) * u64::from(config.quantum_bytes)),
            ),
            shaped: bits(&|queue| config.queue_shapers[queue].is_some()),
            queue_shapers: config
                .queue_shapers
                .map(|shaper| shaper.map_or(Shaper::UNLIMITED, |shaper| Shaper::new(&shaper))),
            port_shaper: config.port_shaper.as_ref().map(Shaper::new),
        })
    }

    /// Whose turn it is. `eligible` are the queues that have frames and are not paused;
    /// `head_wire_bytes` gives the length of a queue's first frame. A queue that is given its turn
    /// must send that frame, and then [`sent`](Self::sent) be called.
    pub fn turn(&mut self, now: Time, eligible: u32, head_wire_bytes: impl Fn(u32) -> u64) -> Turn {
        if eligible == 0 {
            return Turn::None;
        }
        let port_at = self.port_shaper.as_ref().map_or(Time::ZERO, Shaper::allowed_at);
        if now < port_at {
            return Turn::Wait(port_at);
        }
        let mut may_send = eligible;
        let mut first_at = Time::NEVER;
        let mut shaped = eligible & self.shaped;
        while shaped != 0 {
            let queue = shaped.trailing_zeros();
            shaped &= shaped - 1;
            let at = self.shaper(queue).allowed_at();
            if now < at {
                may_send &= !(1 << queue);
                first_at = first_at.min(at);
            }
        }
        let strict = (may_send & self.strict).checked_ilog2();
        match strict.or_else(|| self.dwrr.turn(may_send & !self.strict, &head_wire_bytes)) {
            Some(queue) => {
                let is_shaped = self.shaped & 1 << queue != 0;
                let queue_at = if is_shaped { self.shaper(queue).allowed_at() } else { port_at };
                Turn::Queue { queue, allowed_at: queue_at.max(port_at) }
            }
            None => Turn::Wait(first_at),
        }
    }

    /// The head of `queue` starts at `starts` and is `wire_bytes` long; `is_empty` when nothing is
    /// behind it.
    pub fn sent(&mut self, starts: Time, queue: u32, wire_bytes: u64, is_empty: bool) {
        if self.strict & 1 << queue == 0 {
            self.dwrr.sent(queue, wire_bytes, is_empty);
        }
        if self.shaped & 1 << queue != 0 {
            self.shaper(queue).take(starts, wire_bytes);
        }
        if let Some(shaper) = &mut self.port_shaper {
            shaper.take(starts, wire_bytes);
        }
    }

    /// The queues have been emptied without being served: nobody has a turn, or a part of one.
    pub fn forget(&mut self) {
        self.dwrr.forget();
    }

    fn shaper(&mut self, queue: u32) -> &mut Shaper {
        &mut self.queue_shapers[queue as usize & (QUEUES - 1)]
    }
}

/// A line's time for `bytes` at `rate`, for bursts.
const fn burst_time(config: &ShaperConfig) -> Duration {
    config.rate.time_of(config.burst_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINE: Rate = Rate::from_gbps(100);

    /// A port whose queues always have frames of these wire lengths; 0 has none.
    struct Port {
        schedule: Schedule,
        now: Time,
        frames: [u64; QUEUES],
        paused: u32,
        sent: [u64; QUEUES],
        order: Vec<u32>,
    }

    impl Port {
        fn new(config: &ScheduleConfig, frames: [u64; QUEUES]) -> Self {
            config.check(LINE).expect("a good schedule");
            let schedule = Schedule::new(config).expect("more than strict priority");
            Self {
                schedule,
                now: Time::ZERO,
                frames,
                paused: 0,
                sent: [0; QUEUES],
                order: Vec::new(),
            }
        }

        /// Sends at the line's rate until `until`.
        fn run(&mut self, until: Time) {
            while self.now < until {
                let has_frames = |queue: &u32| self.frames[*queue as usize] > 0;
                let queues = (0..8_u32).filter(has_frames);
                let eligible = queues.fold(0, |bits, queue| bits | 1 << queue) & !self.paused;
                let frames = self.frames;
                match self.schedule.turn(self.now, eligible, |queue| frames[queue as usize]) {
                    Turn::Queue { queue, .. } => {
                        assert_ne!(eligible & 1 << queue, 0);
                        let bytes = frames[queue as usize];
                        self.schedule.sent(self.now, queue, bytes, false);
                        self.sent[queue as usize] += bytes;
                        self.order.push(queue);
                        self.now += LINE.time_of(bytes);
                    }
                    Turn::Wait(at) => {
                        assert!(at > self.now);
                        self.now = at;
                    }
                    Turn::None => return,
                }
            }
        }
    }

    fn limit(mbps: u64, burst_bytes: u64) -> Option<ShaperConfig> {
        Some(ShaperConfig { rate: Rate::from_bps(mbps * 1_000_000), burst_bytes })
    }

    #[test]
    fn queue_seven_goes_first() {
        assert_eq!(strict(0b1000_0001), 7);
        assert_eq!(strict(0b0000_0101), 2);
        assert_eq!(strict(1), 0);
        assert!(Schedule::new(&ScheduleConfig::default()).is_none());
    }

    #[test]
    fn strict_queues_go_before_weighted_ones() {
        let mut config = ScheduleConfig::default();
        config.weights[5] = Some(1);
        config.weights[1] = Some(3);
        let mut port = Port::new(&config, [100, 100, 0, 100, 0, 100, 0, 0]);
        port.run(Time::from_ns(10_000));
        assert!(port.order.iter().all(|queue| *queue == 3), "3 and 0 are strict, 3 is higher");
        port.frames[3] = 0;
        port.order.clear();
        port.run(Time::from_ns(20_000));
        assert!(port.order.iter().all(|queue| *queue == 0), "queue 0 goes before 5 and 1");
        port.frames[0] = 0;
        port.sent = [0; 8];
        port.run(Time::from_ns(2_000_000));
        let ratio = port.sent[1] * 100 / port.sent[5];
        assert!((299..=301).contains(&ratio), "{:?}", port.sent);
    }

    #[test]
    fn a_shaped_strict_queue_leaves_the_rest_to_others() {
        let mut config = ScheduleConfig::default();
        config.queue_shapers[7] = limit(25_000, 3_000);
        let mut port = Port::new(&config, [1_500, 0, 0, 0, 0, 0, 0, 1_500]);
        port.run(Time::from_ns(10_000_000));
        let share = port.sent[7] * 1_000 / (port.sent[7] + port.sent[0]);
        assert!((249..=251).contains(&share), "{share}");
    }

    #[test]
    fn a_shaped_port_sends_at_its_rate() {
        let config = ScheduleConfig { port_shaper: limit(40_000, 0), ..Default::default() };
        let mut port = Port::new(&config, [1_000, 0, 0, 0, 0, 0, 0, 0]);
        port.run(Time::from_ns(10_000_000));
        // 40 Gb/s for 10 ms are 50 MB.
        assert!(port.sent[0].abs_diff(50_000_000) <= 1_000, "{}", port.sent[0]);
    }

    #[test]
    fn a_burst_leaves_at_once_after_a_silence() {
        let mut config = ScheduleConfig::default();
        config.queue_shapers[2] = limit(1_000, 10_000);
        let mut port = Port::new(&config, [0, 0, 1_000, 0, 0, 0, 0, 0]);
        port.now = Time::from_ns(1_000_000);
        port.run(Time::from_ns(1_001_000));
        // Ten frames are the burst; the line carries 12 in this microsecond, the limit 1/8 of one.
        assert!((10_000..=12_000).contains(&port.sent[2]), "{}", port.sent[2]);
        let before = port.sent[2];
        port.run(Time::from_ns(1_101_000));
        // 1 Gb/s for 100 us are 12,500 bytes.
        assert!((11_500..=13_500).contains(&(port.sent[2] - before)));
    }

    #[test]
    fn nothing_waits_for_a_queue_that_has_nothing() {
        let mut config = ScheduleConfig::default();
        config.queue_shapers[7] = limit(1, 0);
        let queue = |queue, allowed_at| Turn::Queue { queue, allowed_at };
        let mut schedule = Schedule::new(&config).expect("a shaper");
        assert_eq!(schedule.turn(Time::ZERO, 0, |_| 1_000), Turn::None);
        assert_eq!(schedule.turn(Time::ZERO, 1 << 7, |_| 1_000), queue(7, Time::ZERO));
        schedule.sent(Time::ZERO, 7, 1_000, false);
        let free = Time::from_ns(8_000_000);
        assert_eq!(schedule.turn(Time::ZERO, 1 << 7, |_| 1_000), Turn::Wait(free));
        assert_eq!(schedule.turn(Time::ZERO, 1 << 7 | 1, |_| 1_000), queue(0, Time::ZERO));
        schedule.sent(Time::ZERO, 0, 1_000, false);
        assert_eq!(schedule.turn(free + Duration::from_ns(9), 1 << 7, |_| 1_000), queue(7, free));
    }

    #[test]
    fn what_cannot_be_is_refused_by_field() {
        let refused = |change: &dyn Fn(&mut ScheduleConfig)| {
            let mut config = ScheduleConfig::default();
            change(&mut config);
            config.check(LINE).expect_err("a bad schedule").to_string()
        };
        let cases: [(String, &str); 6] = [
            (refused(&|c| c.weights[3] = Some(0)), "weights: queue 3 has weight 0: 1 to 255"),
            (refused(&|c| c.weights[3] = Some(256)), "weights: queue 3 has weight 256: 1 to 255"),
            (refused(&|c| c.quantum_bytes = 63), "quantum_bytes: 63 bytes: 64 to 65536"),
            (
                refused(&|c| c.queue_shapers[1] = limit(0, 0)),
                "queue_shapers: 0bps: above 0, at most the line's 100Gbps",
            ),
            (
                refused(&|c| c.queue_shapers[1] = limit(100_001, 0)),
                "queue_shapers: 100.001Gbps: above 0, at most the line's 100Gbps",
            ),
            (
                refused(&|c| c.port_shaper = limit(200_000, 0)),
                "port_shaper: 200Gbps: above 0, at most the line's 100Gbps",
            ),
        ];
        for (got, want) in cases {
            assert_eq!(got, want);
        }
    }

    proptest! {
        /// Weighted queues that always have frames share the line by weight, whatever the lengths
        /// and the quantum: the services over the weights differ by less than a round.
        #[test]
        fn shares_follow_weights(
            weights in proptest::array::uniform8(1_u32..20),
            frames in proptest::array::uniform8(84_u64..9_100),
            quantum_bytes in 64_u32..10_000,
        ) {
            let config = ScheduleConfig {
                weights: weights.map(Some), quantum_bytes, ..Default::default()
            };
            let mut port = Port::new(&config, frames);
            port.run(Time::from_ns(3_000_000));
            for (a, b) in (0..8).flat_map(|a| (0..8).map(move |b| (a, b))) {
                let rounds = |queue: usize, slack: u64| {
                    (port.sent[queue] + slack) / u64::from(weights[queue] * quantum_bytes)
                };
                // A queue is behind by less than a frame, and by a round where the run ends in one.
                prop_assert!(rounds(a, 0) <= rounds(b, 2 * frames[b]) + 2, "{:?}", port.sent);
            }
        }

        /// A queue that is paused again and again gets its share of the time that it may send, no
        /// more: what it kept over a pause is not given twice.
        #[test]
        fn pauses_do_not_multiply_credit(
            pauses in proptest::collection::vec((100_u64..3_000, 100_u64..3_000), 30..60),
        ) {
            let mut config = ScheduleConfig::default();
            config.weights[0] = Some(8);
            config.weights[1] = Some(8);
            let mut port = Port::new(&config, [1_538, 1_538, 0, 0, 0, 0, 0, 0]);
            for (on, off) in pauses {
                port.paused = 0;
                let until = port.now + Duration::from_ns(on);
                let before = port.sent;
                port.run(until);
                let got = [port.sent[0] - before[0], port.sent[1] - before[1]];
                // Within the span that both may send, one turn of 12,800 bytes and what was kept.
                prop_assert!(got[1] <= got[0] + 2 * (12_800 + 1_538), "{:?}", got);
                port.paused = 1 << 1;
                let until = port.now + Duration::from_ns(off);
                port.run(until);
            }
        }
    }
}
