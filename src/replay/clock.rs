//! Capture time as node time: the first record is at zero, time never runs backwards, and no gap
//! is longer than a bound.

use crate::time::{Duration, Time};

/// Node time ends after 213 days; a replay stops moving it here and says so.
const HORIZON: Time = Time::from_ns(200 * 86_400 * 1_000_000_000);

/// The clock of one replay.
#[derive(Clone, Debug)]
pub struct CaptureClock {
    gap_max: Duration,
    /// The latest stamp so far, and where the first was.
    latest_ns: Option<i128>,
    origin_ns: i128,
    now: Time,
    backwards: u64,
    bounded: u64,
}

impl CaptureClock {
    /// A clock that waits at most `gap_max` from one record to the next.
    pub const fn new(gap_max: Duration) -> Self {
        Self { gap_max, latest_ns: None, origin_ns: 0, now: Time::ZERO, backwards: 0, bounded: 0 }
    }

    /// The node time of a record with this stamp; never before that of the record before it.
    pub fn place(&mut self, timestamp_ns: i128) -> Time {
        let Some(latest) = self.latest_ns else {
            self.latest_ns = Some(timestamp_ns);
            self.origin_ns = timestamp_ns;
            return self.now;
        };
        if timestamp_ns < latest {
            self.backwards += 1;
            return self.now;
        }
        self.latest_ns = Some(timestamp_ns);
        let gap = Duration::from_ns(u64::try_from(timestamp_ns - latest).unwrap_or(u64::MAX));
        let room = HORIZON.since(self.now);
        let taken = gap.min(self.gap_max).min(room);
        if taken < gap {
            self.bounded += 1;
        }
        self.now += taken;
        self.now
    }

    /// A node time as a stamp: nanoseconds since 1970, as the capture counts them. Behind a gap
    /// that was bounded it is earlier than the capture's own.
    pub fn stamp_ns(&self, at: Time) -> u64 {
        u64::try_from((self.origin_ns + i128::from(at.as_ns())).max(0)).unwrap_or(u64::MAX)
    }

    /// Records with a stamp before an earlier record's: put at that record's time.
    pub const fn backwards(&self) -> u64 {
        self.backwards
    }

    /// Gaps that were cut to the bound.
    pub const fn bounded(&self) -> u64 {
        self.bounded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backwards_is_clamped_and_counted_and_gaps_are_bounded() {
        let mut clock = CaptureClock::new(Duration::from_ns(100));
        let origin = 1_700_000_000_000_000_000;
        let at = |clock: &mut CaptureClock, ns: i128| clock.place(origin + ns).as_ns();
        assert_eq!(at(&mut clock, 0), 0);
        assert_eq!(at(&mut clock, 50), 50);
        assert_eq!(at(&mut clock, 20), 50);
        assert_eq!(at(&mut clock, 60), 60);
        assert_eq!(at(&mut clock, 1_000), 160);
        assert_eq!(at(&mut clock, 1_001), 161);
        assert_eq!((clock.backwards(), clock.bounded()), (1, 1));
        assert_eq!(clock.stamp_ns(Time::from_ns(161)), 1_700_000_000_000_000_161);
    }

    #[test]
    fn stamps_at_the_ends_of_what_a_file_can_say_stay_finite() {
        let mut clock = CaptureClock::new(Duration::MAX);
        assert_eq!(clock.place(i128::from(i64::MIN) * 1_000_000_000), Time::ZERO);
        let late = clock.place(i128::from(u64::MAX) * 1_000_000_000);
        assert!(late < Time::NEVER);
        assert_eq!(clock.bounded(), 1);
        assert_eq!(clock.stamp_ns(late), 0);
    }

    /// tcpreplay's 35-minute capture came out with a negative duration.
    #[test]
    fn a_long_capture_has_its_duration() {
        let mut clock = CaptureClock::new(Duration::MAX);
        clock.place(0);
        assert_eq!(clock.place(2_100_000_000_000), Time::from_ns(2_100_000_000_000));
    }
}
