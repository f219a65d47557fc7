//! The highest rate with at most a given loss, by binary search with loss verification.
//!
//! RFC 2544 clause 26.1 asks for the throughput; a plain binary search is led astray by one lost
//! frame of a busy machine. As in ETSI GS NFV-TST 009 clause 12.3.3, a trial with loss is repeated
//! at the same rate, and only a rate that fails every attempt counts as failed. The search is a
//! function of the trials so far, so that a second goal reuses what the first has measured.

use crate::units::FrameRate;

/// How much loss a goal allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Goal {
    /// Its name among operators.
    pub name: &'static str,
    /// Lost frames per million planned ones, at most.
    pub loss_ppm: u32,
}

/// The non-drop rate: no loss.
pub const NDR: Goal = Goal { name: "NDR", loss_ppm: 0 };

/// The partial drop rate: at most 0.5 %.
pub const PDR: Goal = Goal { name: "PDR", loss_ppm: 5_000 };

/// Where and how finely to search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchLimits {
    /// The lowest rate of interest.
    pub low: FrameRate,
    /// The highest: tried first.
    pub high: FrameRate,
    /// The search ends when a passed and a failed rate differ by no more than this, in millionths
    /// of the failed one.
    pub precision_ppm: u32,
    /// A rate fails when this many trials at it do.
    pub attempts_max: u32,
}

/// What one trial gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrialResult {
    /// The rate that was planned.
    pub rate: FrameRate,
    /// Frames planned.
    pub planned: u64,
    /// Frames that the sender brought out in time.
    pub sent: u64,
    /// Frames that arrived, each counted once.
    pub received: u64,
}

impl TrialResult {
    /// Planned frames that did not arrive: a frame that was not sent in time is one of them, or a
    /// slow sender would pass for a fast device.
    pub const fn lost(&self) -> u64 {
        self.planned.saturating_sub(self.received)
    }

    /// Whether the loss is at most what `goal` allows.
    pub fn passes(&self, goal: Goal) -> bool {
        u128::from(self.lost()) * 1_000_000 <= u128::from(self.planned) * u128::from(goal.loss_ppm)
    }

    /// Whether more frames were lost before the wire than behind it.
    pub const fn is_sender_limited(&self) -> bool {
        let unsent = self.planned.saturating_sub(self.sent);
        unsent > 0 && unsent >= self.lost().div_ceil(2)
    }

    /// The rate that arrived.
    fn delivered_milli_pps(&self) -> u64 {
        let product = u128::from(self.rate.as_milli_pps()) * u128::from(self.received);
        u64::try_from(product / u128::from(self.planned.max(1))).unwrap_or(u64::MAX)
    }
}

/// What the search knows about one goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// The next trial.
    Try(u64),
    /// The highest passed rate; None when even the lowest fails.
    Found(Option<u64>),
}

/// The search for one or more goals, strictest first.
#[derive(Clone, Debug)]
pub struct RateSearch {
    limits: SearchLimits,
    goals: Vec<Goal>,
    trials: Vec<TrialResult>,
}

impl RateSearch {
    /// A search that has measured nothing.
    pub fn new(limits: SearchLimits, goals: &[Goal]) -> Self {
        let low = FrameRate::from_milli_pps(limits.low.as_milli_pps().max(1));
        let high = limits.high.max(low);
        let attempts_max = limits.attempts_max.max(1);
        Self {
            limits: SearchLimits { low, high, attempts_max, ..limits },
            goals: goals.to_vec(),
            trials: Vec::new(),
        }
    }

    /// The rate to try next; None when every goal is decided.
    pub fn next_rate(&self) -> Option<FrameRate> {
        self.goals.iter().find_map(|goal| match self.known(*goal) {
            Known::Try(milli) => Some(FrameRate::from_milli_pps(milli)),
            Known::Found(_) => None,
        })
    }

    /// Takes in what a trial gave.
    pub fn record(&mut self, trial: TrialResult) {
        self.trials.push(trial);
    }

    /// The highest rate that passed `goal`: None while the search goes on, or when no rate passed.
    pub fn found(&self, goal: Goal) -> Option<FrameRate> {
        match self.known(goal) {
            Known::Found(Some(milli)) => Some(FrameRate::from_milli_pps(milli)),
            Known::Try(_) | Known::Found(None) => None,
        }
    }

    /// Every trial, in order.
    pub fn trials(&self) -> &[TrialResult] {
        &self.trials
    }

    /// The goals.
    pub fn goals(&self) -> &[Goal] {
        &self.goals
    }

    /// The best trial at `rate` for a report: the one with the least loss.
    pub fn best_at(&self, rate: FrameRate) -> Option<&TrialResult> {
        self.trials.iter().filter(|trial| trial.rate == rate).min_by_key(|trial| trial.lost())
    }

    /// Whether the lowest rate that failed `goal` failed at the sender, so that the found rate is
    /// the sender's and not the device's.
    pub fn is_sender_limited(&self, goal: Goal) -> bool {
        let Some(failed) = self.failed(goal) else { return false };
        let mut at_failed = self.trials.iter().filter(|trial| trial.rate.as_milli_pps() == failed);
        at_failed.all(TrialResult::is_sender_limited)
    }

    /// The lowest rate that failed every attempt.
    fn failed(&self, goal: Goal) -> Option<u64> {
        let rates = self.trials.iter().map(|trial| trial.rate.as_milli_pps());
        rates.filter(|milli| self.attempts_left(goal, *milli) == Some(0)).min()
    }

    /// Trials that a rate without a pass still has; None when it has passed.
    fn attempts_left(&self, goal: Goal, milli: u64) -> Option<u32> {
        let mut left = self.limits.attempts_max;
        for trial in self.trials.iter().filter(|trial| trial.rate.as_milli_pps() == milli) {
            if trial.passes(goal) {
                return None;
            }
            left = left.saturating_sub(1);
        }
        Some(left)
    }

    fn known(&self, goal: Goal) -> Known {
        let (low, high) = (self.limits.low.as_milli_pps(), self.limits.high.as_milli_pps());
        let failed = self.failed(goal);
        // A pass above a rate that failed every attempt was luck; the search stays below.
        let below = |milli: u64| failed.is_none_or(|failed| milli < failed);
        let rates =
            || self.trials.iter().map(|trial| trial.rate.as_milli_pps()).filter(|m| below(*m));
        if let Some(open) = rates().find(|milli| self.attempts_left(goal, *milli).is_some()) {
            return Known::Try(open);
        }
        let passed = rates().max();
        match (passed, failed) {
            (None, None) => Known::Try(high),
            (Some(passed), None) if passed >= high => Known::Found(Some(passed)),
            // A looser goal starts from what a stricter one has passed.
            (Some(_), None) => Known::Try(high),
            (None, Some(failed)) if failed <= low => Known::Found(None),
            (None, Some(failed)) => Known::Try(self.below_failed(failed, low)),
            (Some(passed), Some(failed)) => {
                let precision = u128::from(failed) * u128::from(self.limits.precision_ppm);
                let middle = geometric_middle(passed, failed);
                if u128::from(failed - passed) * 1_000_000 <= precision || middle <= passed {
                    Known::Found(Some(passed))
                } else {
                    Known::Try(middle)
                }
            }
        }
    }

    /// Where to go when nothing has passed yet: first to what the first trial delivered, then by
    /// halves.
    fn below_failed(&self, failed: u64, low: u64) -> u64 {
        let delivered = match self.trials.first() {
            Some(first) if first.rate.as_milli_pps() == failed => first.delivered_milli_pps(),
            _ => 0,
        };
        let hint = delivered > failed / 2 && delivered < failed;
        let rate = if hint { delivered } else { failed / 2 };
        rate.clamp(low, failed - 1)
    }
}

/// The middle in the ratio: halves the number of steps that are left at any scale.
fn geometric_middle(a: u64, b: u64) -> u64 {
    u64::try_from((u128::from(a) * u128::from(b)).isqrt()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn limits(low: u64, high: u64) -> SearchLimits {
        SearchLimits {
            low: FrameRate::from_pps(low),
            high: FrameRate::from_pps(high),
            precision_ppm: 5_000,
            attempts_max: 3,
        }
    }

    /// A device that forwards up to `capacity` milli-pps and loses the rest; `noise` decides per
    /// trial whether one more frame is lost.
    fn drive(search: &mut RateSearch, capacity: u64, mut noise: impl FnMut(usize) -> bool) {
        while let Some(rate) = search.next_rate() {
            let planned = rate.as_milli_pps().div_ceil(1_000);
            let carried = u128::from(planned) * u128::from(capacity)
                / u128::from(rate.as_milli_pps().max(capacity));
            let extra = u64::from(noise(search.trials().len()));
            let received = u64::try_from(carried).expect("small").saturating_sub(extra);
            search.record(TrialResult { rate, planned, sent: planned, received });
            assert!(search.trials().len() < 200, "the search ends: {search:?}");
        }
    }

    proptest! {
        #[test]
        fn finds_the_capacity_to_its_precision(capacity_pps in 20_000_u64..9_000_000) {
            let capacity = capacity_pps * 1_000;
            let mut search = RateSearch::new(limits(9_001, 14_880_952), &[NDR, PDR]);
            drive(&mut search, capacity, |_| false);
            let ndr = search.found(NDR).expect("a rate passes").as_milli_pps();
            prop_assert!(ndr <= capacity && ndr >= capacity / 1_000 * 994, "{} {}", ndr, capacity);
            let pdr = search.found(PDR).expect("a rate passes").as_milli_pps();
            let most = capacity / 995 * 1_000 + 1_000;
            prop_assert!(pdr >= ndr && pdr <= most && pdr >= capacity / 1_000 * 999,
                "{} {}", pdr, capacity);
            // Up to 18 bisections for NDR, three attempts at each rate that fails, and half for PDR.
            prop_assert!(search.trials().len() <= 80, "{} trials", search.trials().len());
        }

        #[test]
        fn a_lost_frame_now_and_then_is_verified_away(
            capacity_pps in 20_000_u64..9_000_000, phase in 0_usize..3,
        ) {
            let mut search = RateSearch::new(limits(9_001, 14_880_952), &[NDR]);
            drive(&mut search, capacity_pps * 1_000, |n| n % 3 != phase);
            let ndr = search.found(NDR).expect("a rate passes").as_milli_pps();
            prop_assert!(ndr <= capacity_pps * 1_000 && ndr >= capacity_pps * 994);
        }

        #[test]
        fn always_ends(results in prop::collection::vec(0_u64..=1_000, 1..50)) {
            let mut search = RateSearch::new(limits(10, 1_000_000), &[NDR, PDR]);
            let mut at = 0;
            while let Some(rate) = search.next_rate() {
                let received = results[at % results.len()];
                at += 1;
                search.record(TrialResult { rate, planned: 1_000, sent: 1_000, received });
                prop_assert!(at < 1_000, "{:?}", search);
            }
        }
    }

    #[test]
    fn without_verification_lost_frames_mislead() {
        let mut search =
            RateSearch::new(SearchLimits { attempts_max: 1, ..limits(9_001, 1_000_000) }, &[NDR]);
        drive(&mut search, 1_000_000_000, |n| n < 5);
        assert!(search.found(NDR).expect("found") < FrameRate::from_pps(999_999));
    }

    #[test]
    fn the_ends_of_the_range_are_answers() {
        let mut search = RateSearch::new(limits(9_001, 1_000_000), &[NDR, PDR]);
        drive(&mut search, u64::MAX, |_| false);
        assert_eq!(search.found(NDR), Some(FrameRate::from_pps(1_000_000)));
        assert_eq!(search.trials().len(), 1, "the highest rate passes at once for both goals");

        let mut search = RateSearch::new(limits(9_001, 1_000_000), &[NDR, PDR]);
        drive(&mut search, 1_000, |_| false);
        assert_eq!((search.found(NDR), search.found(PDR)), (None, None));
    }

    #[test]
    fn a_slow_sender_is_named() {
        let mut search = RateSearch::new(limits(9_001, 1_000_000), &[NDR]);
        while let Some(rate) = search.next_rate() {
            let planned = rate.as_milli_pps() / 1_000;
            let sent = planned.min(300_000);
            search.record(TrialResult { rate, planned, sent, received: sent });
        }
        assert!(search.is_sender_limited(NDR));
        let mut search = RateSearch::new(limits(9_001, 1_000_000), &[NDR]);
        drive(&mut search, 300_000_000, |_| false);
        assert!(!search.is_sender_limited(NDR));
    }
}
