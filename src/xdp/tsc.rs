//! Readings of the OS clock by the CPU's time stamp counter, for a loop that reads it per frame.
//!
//! The vDSO takes some 30 ns a reading, the counter less than half. The counter only interpolates:
//! every half millisecond the OS clock is read again, so that whatever the counter does (a virtual
//! machine that moves, a clock that is slewed) is mended then. Where the counter does not run at a
//! constant rate, every reading is the OS clock's.

use std::cell::Cell;

use super::clock::monotonic_ns;

/// Ticks after which the OS clock is read again.
const WINDOW_TICKS: u64 = 1 << 20;

/// Ticks over which the rate is measured: the first time, and later.
const FIRST_RATE_TICKS: u64 = 1 << 22;
const RATE_TICKS: u64 = 1 << 27;

/// A reading of the OS clock between two of the counter that lie further apart than this says little
/// of either.
const PAIR_TICKS_MAX: u64 = 4_000;

/// Nanoseconds per tick times 2^32 of counters between 0.5 and 16 GHz. Times [`WINDOW_TICKS`] it
/// fits in 64 bits.
const SCALE: std::ops::RangeInclusive<u64> = 1 << 28..=1 << 33;

/// The OS's monotonic clock as one thread reads it; never runs backwards.
#[derive(Debug)]
pub(crate) struct FastClock {
    counts: bool,
    /// A moment by the counter and by the OS clock.
    anchor: Cell<(u64, u64)>,
    /// An older one, from which the rate is measured.
    rate_anchor: Cell<(u64, u64)>,
    /// 0 until the rate is known.
    scale: Cell<u64>,
    last_ns: Cell<u64>,
}

impl FastClock {
    pub(crate) fn new() -> Self {
        let counts = counter::is_constant();
        let now = if counts { (counter::read(), monotonic_ns()) } else { (0, 0) };
        Self {
            counts,
            anchor: Cell::new(now),
            rate_anchor: Cell::new(now),
            scale: Cell::new(0),
            last_ns: Cell::new(0),
        }
    }

    /// Nanoseconds since some fixed moment, as [`monotonic_ns`] gives them.
    #[inline]
    pub(crate) fn monotonic_ns(&self) -> u64 {
        if !self.counts {
            return monotonic_ns();
        }
        let (ticks, ns) = self.anchor.get();
        let passed = counter::read().wrapping_sub(ticks);
        let scale = self.scale.get();
        let ns = if passed < WINDOW_TICKS && scale > 0 {
            ns + ((passed * scale) >> 32)
        } else {
            self.read_again()
        };
        let ns = ns.max(self.last_ns.get());
        self.last_ns.set(ns);
        ns
    }

    #[cold]
    fn read_again(&self) -> u64 {
        let before = counter::read();
        let ns = monotonic_ns();
        let after = counter::read();
        if after.wrapping_sub(before) > PAIR_TICKS_MAX {
            return ns;
        }
        let now = (before.midpoint(after), ns);
        self.anchor.set(now);
        let since = self.rate_anchor.get();
        let (ticks, passed_ns) = (now.0.wrapping_sub(since.0), ns.saturating_sub(since.1));
        let wanted = if self.scale.get() == 0 { FIRST_RATE_TICKS } else { RATE_TICKS };
        if ticks >= wanted {
            self.rate_anchor.set(now);
            self.scale.set(scale_of(ticks, passed_ns));
        }
        ns
    }
}

/// Nanoseconds per tick times 2^32; 0 when that cannot be.
fn scale_of(ticks: u64, ns: u64) -> u64 {
    let scale = (u128::from(ns) << 32) / u128::from(ticks.max(1));
    u64::try_from(scale).ok().filter(|scale| SCALE.contains(scale)).unwrap_or(0)
}

#[cfg(target_arch = "x86_64")]
mod counter {
    use std::arch::x86_64::{__cpuid, _rdtsc};

    /// Intel SDM volume 3, 19.17.1: CPUID leaf 0x80000007, bit 8 of EDX.
    pub(super) fn is_constant() -> bool {
        const LEAF: u32 = 0x8000_0007;
        __cpuid(0x8000_0000).eax >= LEAF && __cpuid(LEAF).edx & 1 << 8 != 0
    }

    #[inline]
    pub(super) fn read() -> u64 {
        // SAFETY: every x86-64 processor has the counter.
        unsafe { _rdtsc() }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod counter {
    pub(super) const fn is_constant() -> bool {
        false
    }

    pub(super) const fn read() -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stays_with_the_os_clock_and_never_runs_backwards() {
        let clock = FastClock::new();
        let end = monotonic_ns() + 20_000_000;
        let (mut last, mut near) = (0, false);
        while last < end {
            let before = monotonic_ns();
            let now = clock.monotonic_ns();
            let after = monotonic_ns();
            assert!(now >= last);
            // A thread that is held up reads late and not wrongly: ahead it may never be.
            assert!(now <= after + 20_000, "{} ns ahead", now - after);
            near |= now + 2_000 >= before && after - before < 2_000;
            last = now;
        }
        assert!(near);
        assert!(!clock.counts || clock.scale.get() > 0, "{clock:?}");
    }

    #[test]
    fn a_rate_that_cannot_be_is_refused() {
        assert_eq!(scale_of(2_000, 1_000), 1 << 31);
        assert_eq!(scale_of(1, 1_000), 0);
        assert_eq!(scale_of(1_000_000, 1), 0);
        assert_eq!(scale_of(0, u64::MAX), 0);
    }
}
