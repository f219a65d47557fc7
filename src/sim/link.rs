//! The one model of a link: delay, loss, and going down. The simulator and the lab use it alike;
//! serialisation belongs to the node that sends.

use crate::rng::Rng;
use crate::time::{Duration, Time};

/// The longest delay, jitter and holding back of a link. Frames keep their order, so that one that is
/// held for hours would hold all behind it, for as long, whatever is set afterwards.
pub const DELAY_MAX: Duration = Duration::from_secs(1);

/// What changes on a link at a planned time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkChange {
    /// The cable is cut: what is on it is lost, and so is what is sent until it is up.
    Down,
    /// The cable is whole again.
    Up,
    /// From now on each frame is lost with this probability, in parts per billion.
    LossPpb(u64),
    /// From now on each frame arrives with a wrong FCS with this probability, in parts per billion.
    CorruptPpb(u64),
    /// From now on frames take this long from their last bit sent to their last bit received.
    Delay(Duration),
    /// From now on up to this much is added to the delay, uniform; frames keep their order.
    Jitter(Duration),
    /// From now on each frame is held back with this probability, in parts per billion, while
    /// those behind it pass.
    ReorderPpb(u64),
    /// From now on a frame that is held back takes this much longer.
    ReorderBy(Duration),
}

/// Why a link lost a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossCause {
    /// The link was down, or went down while the frame was on it.
    Down,
    /// The configured random loss.
    Random,
    /// The configured corruption: the far MAC finds a wrong FCS and drops the frame.
    Corrupt,
}

/// What becomes of a frame that is put on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its last bit arrives at this time.
    Arrives(Time),
    /// It does not arrive.
    Lost(LossCause),
}

/// The books of one direction of a link, in frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Put on the link.
    pub sent: u64,
    /// Handed to the far node.
    pub delivered: u64,
    /// Lost by the model's random loss.
    pub lost: u64,
    /// Lost because the link was down.
    pub lost_down: u64,
    /// Arrived with a wrong FCS.
    pub corrupted: u64,
    /// Held back on purpose, so that frames behind them could pass; they arrive all the same.
    pub held_back: u64,
    /// Lost by the kernel between two rings (AF_XDP only).
    pub kernel_dropped: u64,
}

impl LinkCounters {
    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            sent: self.sent + other.sent,
            delivered: self.delivered + other.delivered,
            lost: self.lost + other.lost,
            lost_down: self.lost_down + other.lost_down,
            corrupted: self.corrupted + other.corrupted,
            held_back: self.held_back + other.held_back,
            kernel_dropped: self.kernel_dropped + other.kernel_dropped,
        }
    }

    /// Frames that are on the link now.
    pub const fn in_flight(&self) -> u64 {
        self.sent
            - self.delivered
            - self.lost
            - self.lost_down
            - self.corrupted
            - self.kernel_dropped
    }
}

/// What a link does to frames at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkState {
    /// The cable is whole.
    pub up: bool,
    /// From the last bit sent to the last bit received.
    pub delay: Duration,
    /// Added to the delay, uniform from zero to this.
    pub jitter: Duration,
    /// Probability that a frame is lost, in parts per billion.
    pub loss_ppb: u64,
    /// Probability that a frame arrives with a wrong FCS, in parts per billion.
    pub corrupt_ppb: u64,
    /// Probability that a frame is held back, in parts per billion.
    pub reorder_ppb: u64,
    /// How much longer such a frame takes.
    pub reorder_by: Duration,
}

impl LinkState {
    const fn change(&mut self, change: LinkChange) {
        match change {
            LinkChange::Down => self.up = false,
            LinkChange::Up => self.up = true,
            LinkChange::LossPpb(ppb) => self.loss_ppb = ppb,
            LinkChange::CorruptPpb(ppb) => self.corrupt_ppb = ppb,
            LinkChange::Delay(delay) => self.delay = delay,
            LinkChange::Jitter(jitter) => self.jitter = jitter,
            LinkChange::ReorderPpb(ppb) => self.reorder_ppb = ppb,
            LinkChange::ReorderBy(by) => self.reorder_by = by,
        }
    }
}

/// One direction of a link.
#[derive(Clone, Debug)]
pub struct LinkModel {
    state: LinkState,
    /// No frame arrives before the one sent before it, unless that one is held back.
    last_arrival: Time,
    /// Planned changes in order of time; those before `applied` are in force.
    changes: Vec<(Time, LinkChange)>,
    applied: usize,
    rng: Rng,
    counters: LinkCounters,
}

impl LinkModel {
    /// A link of `delay` that is up and loses nothing. Its random stream is named by `name`, which
    /// differs between the two directions.
    pub fn new(name: &str, delay: Duration, seed: u64) -> Self {
        Self {
            state: LinkState {
                up: true,
                delay,
                jitter: Duration::ZERO,
                loss_ppb: 0,
                corrupt_ppb: 0,
                reorder_ppb: 0,
                reorder_by: Duration::ZERO,
            },
            last_arrival: Time::ZERO,
            changes: Vec::new(),
            applied: 0,
            rng: Rng::for_node(seed, name),
            counters: LinkCounters::default(),
        }
    }

    /// Plans a change. Changes are planned before the run, in any order; of two at one time the one
    /// planned later wins.
    pub fn plan(&mut self, at: Time, change: LinkChange) {
        let place = self.changes.partition_point(|(time, _)| *time <= at);
        self.changes.insert(place, (at, change));
    }

    /// Sets what the link does from the start.
    pub const fn begin_with(&mut self, change: LinkChange) {
        self.state.change(change);
    }

    /// Makes a change at `now` (a running lab's operator does), over what was planned for before:
    /// frames already on the link keep their fate.
    pub fn change(&mut self, now: Time, change: LinkChange) {
        self.apply_planned(now);
        self.state.change(change);
    }

    /// What the link does to a frame at `now`.
    pub fn state(&self, now: Time) -> LinkState {
        let mut state = self.state;
        for (_, change) in self.changes[self.applied..].iter().take_while(|(at, _)| *at <= now) {
            state.change(*change);
        }
        state
    }

    #[inline]
    fn apply_planned(&mut self, now: Time) {
        while let Some((_, change)) = self.changes.get(self.applied).filter(|(at, _)| *at <= now) {
            self.state.change(*change);
            self.applied += 1;
        }
    }

    /// The least delay from the last bit's departure to its arrival, planned changes included.
    pub fn delay_min(&self) -> Duration {
        let planned = self.changes.iter().filter_map(|(_, change)| match change {
            LinkChange::Delay(delay) => Some(*delay),
            _ => None,
        });
        planned.chain([self.state.delay]).min().unwrap_or(self.state.delay)
    }

    /// The fate of a frame whose last bit departs at `departs`. Called once per frame, in the order
    /// of departures; the frame counts as sent.
    #[inline]
    pub fn send(&mut self, departs: Time) -> Fate {
        self.counters.sent += 1;
        self.apply_planned(departs);
        let state = &self.state;
        let mut arrives = departs + state.delay;
        if !state.jitter.is_zero() {
            arrives += Duration::from_ps(self.rng.below(state.jitter.as_ps() + 1));
        }
        let mut arrives = arrives.max(self.last_arrival);
        if state.reorder_ppb > 0 && self.rng.chance_ppb(state.reorder_ppb) {
            self.counters.held_back += 1;
            arrives += state.reorder_by;
        } else {
            self.last_arrival = arrives;
        }
        let cut_in_flight = self.changes[self.applied..]
            .iter()
            .take_while(|(at, _)| *at <= arrives)
            .any(|(_, change)| *change == LinkChange::Down);
        if !state.up || cut_in_flight {
            self.counters.lost_down += 1;
            return Fate::Lost(LossCause::Down);
        }
        if state.loss_ppb > 0 && self.rng.chance_ppb(state.loss_ppb) {
            self.counters.lost += 1;
            return Fate::Lost(LossCause::Random);
        }
        if state.corrupt_ppb > 0 && self.rng.chance_ppb(state.corrupt_ppb) {
            self.counters.corrupted += 1;
            return Fate::Lost(LossCause::Corrupt);
        }
        Fate::Arrives(arrives)
    }

    /// Counts a frame that reached the far node.
    pub const fn delivered(&mut self) {
        self.counters.delivered += 1;
    }

    /// Counts frames that the kernel lost between two rings.
    pub const fn kernel_dropped(&mut self, frames: u64) {
        self.counters.kernel_dropped += frames;
    }

    /// The books.
    pub const fn counters(&self) -> LinkCounters {
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_on_the_cable_when_it_is_cut_is_lost() {
        let mut link = LinkModel::new("a>b", Duration::from_ns(1_000), 1);
        link.plan(Time::from_ns(5_000), LinkChange::Up);
        link.plan(Time::from_ns(2_000), LinkChange::Down);
        assert_eq!(link.send(Time::from_ns(999)), Fate::Arrives(Time::from_ns(1_999)));
        assert_eq!(link.send(Time::from_ns(1_000)), Fate::Lost(LossCause::Down));
        assert_eq!(link.send(Time::from_ns(4_999)), Fate::Lost(LossCause::Down));
        assert_eq!(link.send(Time::from_ns(5_000)), Fate::Arrives(Time::from_ns(6_000)));
        link.delivered();
        let counters = link.counters();
        assert_eq!((counters.sent, counters.lost_down, counters.in_flight()), (4, 2, 1));
    }

    #[test]
    fn an_operator_changes_what_the_plan_made_of_the_link() {
        let mut link = LinkModel::new("a>b", Duration::from_ns(1_000), 1);
        link.plan(Time::from_ns(2_000), LinkChange::LossPpb(1_000_000_000));
        link.plan(Time::from_ns(4_000), LinkChange::Down);
        let at = Time::from_ns;
        assert_eq!(
            (link.state(at(1_999)).loss_ppb, link.state(at(2_000)).loss_ppb),
            (0, 1_000_000_000)
        );
        // No frame has passed since the plan's change, and yet it is not the later one.
        link.change(at(3_000), LinkChange::LossPpb(0));
        assert_eq!(link.send(at(3_001)), Fate::Lost(LossCause::Down), "cut on its way");
        assert_eq!(link.state(at(3_001)).loss_ppb, 0);
        assert!(link.state(at(3_999)).up && !link.state(at(4_000)).up);
        link.change(at(5_000), LinkChange::Up);
        link.change(at(5_000), LinkChange::Delay(Duration::from_ns(7)));
        assert_eq!(link.send(at(5_000)), Fate::Arrives(at(5_007)));
    }

    #[test]
    fn jitter_and_a_shorter_delay_keep_the_order() {
        let mut link = LinkModel::new("a>b", Duration::from_ns(1_000), 1);
        link.plan(Time::ZERO, LinkChange::Jitter(Duration::from_ns(500)));
        link.plan(Time::from_ns(900), LinkChange::Delay(Duration::from_ns(10)));
        assert_eq!(link.delay_min(), Duration::from_ns(10));
        let mut last = Time::ZERO;
        for at in (0..2_000).step_by(10).map(Time::from_ns) {
            let Fate::Arrives(arrives) = link.send(at) else { panic!("nothing is lost") };
            assert!(arrives >= last && arrives >= at + Duration::from_ns(10));
            last = arrives;
        }
    }

    #[test]
    fn a_frame_that_is_held_back_is_passed_by_those_behind_it_and_by_no_other() {
        let mut link = LinkModel::new("a>b", Duration::from_ns(1_000), 1);
        link.plan(Time::ZERO, LinkChange::ReorderPpb(100_000_000));
        link.plan(Time::ZERO, LinkChange::ReorderBy(Duration::from_ns(55)));
        let arrivals: Vec<Time> = (0..10_000)
            .map(|n| match link.send(Time::from_ns(n * 10)) {
                Fate::Arrives(at) => at,
                lost @ Fate::Lost(_) => panic!("{lost:?}"),
            })
            .collect();
        let held_back = link.counters().held_back;
        assert!((850..1_150).contains(&held_back), "{held_back} of 10,000 at 10 %");
        let mut late = 0;
        for (n, at) in (0..).zip(&arrivals) {
            let planned = Time::from_ns(1_000 + n * 10);
            assert!(*at == planned || *at == planned + Duration::from_ns(55));
            late += u64::from(*at != planned);
        }
        assert_eq!(late, held_back);
    }

    #[test]
    fn random_loss_keeps_its_rate_and_its_seed() {
        let run = |seed| {
            let mut link = LinkModel::new("a>b", Duration::ZERO, seed);
            link.plan(Time::ZERO, LinkChange::LossPpb(10_000_000));
            (0..100_000)
                .map(|n| link.send(Time::from_ps(n)) == Fate::Lost(LossCause::Random))
                .collect::<Vec<_>>()
        };
        let lost = run(1).iter().filter(|lost| **lost).count();
        assert!((850..1_150).contains(&lost), "{lost} of 100,000 at 1 %");
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }
}
