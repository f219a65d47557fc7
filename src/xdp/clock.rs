//! The OS clock as node time.
//!
//! `CLOCK_MONOTONIC` through the vDSO, some 30 ns a reading; a loop that reads it per frame has a
//! [`ClockReader`]. The only place where the OS clock is read.

use super::tsc::FastClock;
use crate::time::{Duration, Time};

/// Node time that follows the OS clock, slowed by a whole number.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start_ns: u64,
    dilation: u64,
}

impl Clock {
    /// A clock that begins now and in which one nanosecond of node time lasts `dilation` real ones.
    ///
    /// # Panics
    /// When `dilation` is zero.
    pub fn start(dilation: u32) -> Self {
        assert!(dilation > 0, "time does not stand still");
        Self { start_ns: monotonic_ns(), dilation: u64::from(dilation) }
    }

    /// Node time now; zero before the clock began.
    pub fn now(&self) -> Time {
        self.at(monotonic_ns())
    }

    /// Node time when the OS clock stood at `monotonic_ns`, as the kernel stamps frames.
    #[inline]
    pub const fn at(&self, monotonic_ns: u64) -> Time {
        let real = monotonic_ns.saturating_sub(self.start_ns);
        let ps = real.saturating_mul(1_000);
        // A fraction of a nanosecond survives the division, which costs more than the test.
        Time::from_ps(if self.dilation == 1 { ps } else { ps / self.dilation })
    }

    /// How many real nanoseconds one of node time lasts.
    pub const fn dilation(&self) -> u64 {
        self.dilation
    }

    /// How long, in real time, until `deadline`; zero when it has come.
    pub fn real_until(&self, deadline: Time) -> std::time::Duration {
        let left = deadline.since(self.now());
        if deadline == Time::NEVER {
            return std::time::Duration::MAX;
        }
        std::time::Duration::from_nanos(self.real(left))
    }

    /// How many real nanoseconds `span` of node time lasts, rounded up.
    const fn real(&self, span: Duration) -> u64 {
        span.as_ps().div_ceil(1_000).saturating_mul(self.dilation)
    }
}

/// A [`Clock`] as one thread reads it, by the CPU's time stamp counter where that is constant.
#[derive(Debug)]
pub struct ClockReader {
    clock: Clock,
    os: FastClock,
}

impl ClockReader {
    /// A reader for the calling thread or one that it is moved to.
    pub fn new(clock: Clock) -> Self {
        Self { clock, os: FastClock::new() }
    }

    /// Node time now; never runs backwards.
    #[inline]
    pub fn now(&self) -> Time {
        self.clock.at(self.os.monotonic_ns())
    }

    /// The clock that is read.
    pub const fn clock(&self) -> &Clock {
        &self.clock
    }
}

/// The OS's monotonic clock, in nanoseconds since some fixed moment.
pub fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one `timespec`, and this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_time_is_real_time_by_the_dilation() {
        let clock = Clock { start_ns: 1_000, dilation: 3 };
        assert_eq!(clock.at(1_000), Time::ZERO);
        assert_eq!(clock.at(500), Time::ZERO, "before the start");
        assert_eq!(clock.at(1_010), Time::from_ps(3_333));
        assert_eq!(clock.real(Duration::from_ns(10)), 30);
        let clock = Clock { start_ns: 1_000, dilation: 1 };
        assert_eq!(clock.at(1_010), Time::from_ns(10));
    }

    #[test]
    fn it_runs_and_never_waits_for_never() {
        let clock = Clock::start(1);
        let first = clock.now();
        assert!(clock.now() >= first);
        assert_eq!(clock.real_until(Time::ZERO), std::time::Duration::ZERO);
        assert_eq!(clock.real_until(Time::NEVER), std::time::Duration::MAX);
    }
}
