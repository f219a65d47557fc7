//! How a sender returns to its plan after its driver was late: at twice the planned pace, and not with
//! everything that is overdue at once.
//!
//! Each frame has an ideal time: when a punctual driver would have sent it. A driver that the
//! machine kept from its core comes when many of those have passed. The first frame then leaves, and
//! each behind it waits for half of the ideal gap to the one before, so that no two are closer than
//! that: the plan runs at double speed until it is met, and in it streams keep their order and their
//! shape. What a frame waits for the wire, behind others, is no lateness of the driver: a driver that
//! calls at each deadline, as in virtual and gated time, never starts to catch up, and nothing
//! changes there.
//!
//! Double speed is not enough for a sender that has its core for less than half of the time, or
//! whose driver takes longer for a turn than the planned gap. It is let go faster, no more than it
//! takes to keep to its mean rate:
//!
//! - More than [`LAG`] behind, the plan runs at `1 + (lag / LAG)^2` times its speed: 2 at [`LAG`], 5 at
//!   twice that.
//! - When [`LATE_CALLS`] calls in succession were late by more than the gap that is waited for, as many
//!   frames leave at once as their least lateness explains. A single stall, or a few in
//!   succession, do not count.
//!
//! When even that is not enough, the sender falls behind for good: it sends as fast as it is called,
//! and what is overdue at the end of the run was planned and not sent.

use std::hint::cold_path;

use crate::time::{Duration, Time};

/// Calls of the driver in succession that must be late before they count as its usual pace.
pub const LATE_CALLS: usize = 16;

/// How far behind its plan a sender is when it begins to go faster than at double speed.
pub const LAG: Duration = Duration::from_ms(20);

/// The state of a sender against its plan.
#[derive(Clone, Debug, Default)]
pub struct CatchUp {
    behind: Option<Behind>,
}

/// The last frame, which left later than it could have.
#[derive(Clone, Debug)]
struct Behind {
    ideal: Time,
    left: Time,
    /// From when the gap to the next frame counts: `left`, or earlier by what a driver
    /// that is always late is allowed to make up for at once.
    from: Time,
    /// By how much each of the last calls came later than a frame could have left, newest first.
    late: [Duration; LATE_CALLS],
}

impl Behind {
    /// How long the next frame waits: half of its ideal gap, or less far behind the plan.
    fn gap(&self, ideal: Time) -> Duration {
        let gap = ideal.since(self.ideal);
        let lag = self.left.since(self.ideal);
        if lag <= LAG {
            return gap / 2;
        }
        // In nanoseconds, so that the product of the gap and a square fits.
        let square = |span: Duration| u128::from(span.as_ns()).pow(2);
        let gap = u128::from(gap.as_ps()) * square(LAG) / (square(LAG) + square(lag));
        Duration::from_ps(u64::try_from(gap).unwrap_or(u64::MAX))
    }
}

impl CatchUp {
    /// The earliest time at which the next frame, which a punctual driver would send at `ideal`, may
    /// leave; [`Time::ZERO`] when the sender is on its plan.
    #[inline]
    pub fn not_before(&self, ideal: Time) -> Time {
        match &self.behind {
            None => Time::ZERO,
            Some(behind) => {
                cold_path();
                behind.from + behind.gap(ideal)
            }
        }
    }

    /// A frame leaves at `now`. By its plan it was to leave at `planned`, the wire is free for it
    /// since `line_free`, and a punctual driver would have sent it at `ideal`.
    #[inline]
    pub fn sent(&mut self, now: Time, planned: Time, line_free: Time, ideal: Time) {
        if self.behind.is_some() || now > planned.max(line_free) {
            cold_path();
            self.sent_late(now, planned, line_free, ideal);
        }
    }

    fn sent_late(&mut self, now: Time, planned: Time, line_free: Time, ideal: Time) {
        if now <= ideal {
            self.behind = None;
            return;
        }
        let Some(behind) = &mut self.behind else {
            let late = [Duration::ZERO; LATE_CALLS];
            self.behind = Some(Behind { ideal, left: now, from: now, late });
            return;
        };
        let gap = behind.gap(ideal);
        let due = planned.max(behind.from + gap);
        // What was due when the last frame left belongs to the same call.
        if due > behind.left {
            behind.late.rotate_right(1);
            behind.late[0] = now.since(due.max(line_free));
        }
        let usual = behind.late.into_iter().min().unwrap_or_default();
        let made_up = if usual < gap { Duration::ZERO } else { usual.min(now.since(due)) };
        behind.ideal = ideal;
        behind.left = now;
        behind.from = now.before(made_up);
    }

    /// Forgets what was overdue: it was dropped.
    pub fn reset(&mut self) {
        self.behind = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GAP: u64 = 10;

    const fn us(us: u64) -> Time {
        Time::from_ns(us * 1_000)
    }

    /// When each of `frames` frames, one each 10 us, leaves, when the driver's call for a deadline
    /// comes as `call` says: the number of the call and the deadline in, when it comes out.
    fn departures(frames: u64, mut call: impl FnMut(u64, Time) -> Time) -> Vec<Time> {
        let mut catch_up = CatchUp::default();
        let (mut left, mut now, mut calls) = (Vec::new(), Time::ZERO, 0);
        for n in 0..frames {
            let planned = us(n * GAP);
            let due = planned.max(catch_up.not_before(planned));
            if n == 0 || due > now {
                now = call(calls, due).max(now);
                calls += 1;
            }
            catch_up.sent(now, planned, Time::ZERO, planned);
            left.push(now);
        }
        left
    }

    fn gaps(left: &[Time]) -> Vec<u64> {
        left.windows(2).map(|pair| pair[1].since(pair[0]).as_ns()).collect()
    }

    #[test]
    fn a_punctual_driver_never_catches_up() {
        assert_eq!(
            departures(100, |_, due| due),
            (0..100).map(|n| us(n * GAP)).collect::<Vec<_>>()
        );
    }

    #[test]
    fn after_a_stall_the_plan_runs_at_double_speed_until_it_is_met() {
        // 1 ms late at frame 100, then punctual: the 100 frames that came due and those that come
        // due meanwhile leave 5 us apart, until frame 300 is on its plan.
        let stall = Duration::from_ms(1);
        let left = departures(1_000, |n, due| if n == 100 { due + stall } else { due });
        for (n, at) in (0..).zip(&left) {
            let expected = if (100..300).contains(&n) { 2_000 + (n - 100) * 5 } else { n * GAP };
            assert_eq!(*at, us(expected), "frame {n}");
        }
    }

    #[test]
    fn three_stalls_in_succession_make_no_burst() {
        let late = |n| if (100..103).contains(&n) { Duration::from_ms(3) } else { Duration::ZERO };
        let left = departures(10_000, |n, due| due + late(n));
        assert_eq!(gaps(&left).into_iter().min(), Some(5_000));
        assert_eq!(left.last(), Some(&us(9_999 * GAP)));
    }

    #[test]
    fn a_driver_that_is_always_late_keeps_up() {
        // Turns of 45 us after each deadline, four and a half gaps.
        let left = departures(10_000, |_, due| due + Duration::from_us(45));
        let (n, lag) =
            (0..).zip(&left).map(|(n, at)| (n, at.since(us(n * GAP)))).last().expect("n");
        assert!(lag <= Duration::from_us(50), "frame {n} is {lag} late");
        let bursts = left.chunk_by(|a, b| a == b).map(<[Time]>::len);
        assert_eq!(bursts.max(), Some(10), "what one turn at double speed explains");
    }

    #[test]
    fn a_driver_that_has_its_core_for_a_fifth_of_the_time_keeps_its_mean_rate() {
        // Away for 12 ms of each 15.
        let slice = |at: Time| at.as_ns() % 15_000_000;
        let away = |at: Time| slice(at) >= 3_000_000;
        let on = |at| at + Duration::from_ns(15_000_000 - slice(at));
        let left = departures(100_000, |_, due| if away(due) { on(due) } else { due });
        let lags: Vec<_> = (0..).zip(&left).map(|(n, at)| at.since(us(n * GAP))).collect();
        // Five times the pace is that of 40 ms behind, and a frame waits for 12 ms at most.
        assert!(lags.iter().all(|lag| *lag < LAG * 2 + Duration::from_ms(12)), "{:?}", lags.last());
        // In its slices it spreads what is due, and sends no burst.
        assert!(gaps(&left).into_iter().min() > Some(1_000));
    }

    #[test]
    fn lateness_of_less_than_half_a_gap_is_not_carried_into_the_gap() {
        // Some lateness at each call: the gaps stay at half the planned one and above.
        let left = departures(10_000, |n, due| due + Duration::from_ns(n * 7_919 % 4_900));
        assert!(gaps(&left).into_iter().all(|gap| gap >= 5_000));
        assert!(left.last().is_some_and(|at| at.since(us(9_999 * GAP)) < Duration::from_us(5)));
    }

    #[test]
    fn waiting_for_the_wire_is_no_lateness() {
        let mut catch_up = CatchUp::default();
        // Planned at 0, but the wire was free at 50 us alone, and the driver came right then.
        catch_up.sent(us(50), us(0), us(50), us(0));
        assert_eq!(catch_up.not_before(us(10)), Time::ZERO);
        catch_up.sent(us(51), us(0), us(50), us(0));
        assert_eq!(catch_up.not_before(us(10)), us(56));
        catch_up.reset();
        assert_eq!(catch_up.not_before(us(10)), Time::ZERO);
    }
}
