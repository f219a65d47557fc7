//! A token bucket in integers, by the generic cell rate algorithm (ITU-T I.371): the time is kept
//! at which the bucket would be full, not the tokens.

use crate::time::{Duration, Time};

/// Lets through so many a second, and so many at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct RateLimit {
    /// What one takes; zero lets none through.
    interval: Duration,
    /// What may be taken ahead.
    ahead_max: Duration,
    full_at: Time,
}

impl RateLimit {
    /// A full bucket of `burst` (at least 1), with `per_second` coming in; 0 lets none through.
    pub(super) fn new(per_second: u32, burst: u32) -> Self {
        let interval = match per_second {
            0 => Duration::ZERO,
            n => Duration::from_secs(1) / u64::from(n),
        };
        let ahead_max = interval * u64::from(burst.saturating_sub(1));
        Self { interval, ahead_max, full_at: Time::ZERO }
    }

    /// Takes one, if there is one at `now`.
    pub(super) fn take(&mut self, now: Time) -> bool {
        let from = self.full_at.max(now);
        if self.interval == Duration::ZERO || from.since(now) > self.ahead_max {
            return false;
        }
        self.full_at = from + self.interval;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let mut limit = RateLimit::new(10, 3);
        let at = |ms| Time::ZERO + Duration::from_ms(ms);
        let took: Vec<bool> = (0..5).map(|_| limit.take(at(0))).collect();
        assert_eq!(took, [true, true, true, false, false]);
        assert!(!limit.take(at(99)) && limit.take(at(100)) && !limit.take(at(100)));
        // Full again after 300 ms, and not fuller later.
        let took: Vec<bool> = (0..5).map(|_| limit.take(at(5_000))).collect();
        assert_eq!(took, [true, true, true, false, false]);
    }

    #[test]
    fn no_rate_lets_none_through() {
        assert!(!RateLimit::new(0, 10).take(Time::ZERO));
    }
}
