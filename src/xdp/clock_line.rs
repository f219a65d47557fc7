//! From one clock's readings to another's, by a straight line between two looks at both.

/// A device's clock, read between two readings of the OS's monotonic clock, all in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// The OS's clock before.
    pub before_ns: u64,
    /// The device's.
    pub device_ns: u64,
    /// The OS's clock after.
    pub after_ns: u64,
}

impl ClockReading {
    /// How far apart the two readings of the OS's clock are.
    pub const fn width_ns(&self) -> u64 {
        self.after_ns.saturating_sub(self.before_ns)
    }

    /// The best guess of the OS's clock when the device's was read; it is wrong by
    /// [`error_ns`](Self::error_ns) at most.
    pub const fn os_ns(&self) -> u64 {
        self.before_ns + self.width_ns() / 2
    }

    /// Half the width, rounded up.
    pub const fn error_ns(&self) -> u64 {
        self.width_ns().div_ceil(2)
    }

    /// That of several which says most: the narrowest. One during which the machine did something
    /// else is wide.
    pub fn narrowest(readings: impl IntoIterator<Item = Self>) -> Option<Self> {
        readings.into_iter().min_by_key(Self::width_ns)
    }
}

/// The OS's clock as a straight line over a device's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockLine {
    first: ClockReading,
    device_span_ns: u64,
    os_span_ns: u64,
    error_ns: u64,
}

/// Two clocks that run apart by more than this were set in between, not slewed: PTP servos stay far
/// below it.
const DRIFT_PPB_MAX: u64 = 1_000_000;

impl ClockLine {
    /// The line through two readings, the second later. None when the device's clock was set in
    /// between, forwards or backwards: by more than 1,000 ppm of the time between them, beyond what
    /// the readings themselves may be wrong by.
    pub fn through(first: ClockReading, second: ClockReading) -> Option<Self> {
        let device_span_ns = second.device_ns.checked_sub(first.device_ns)?;
        let os_span_ns = second.os_ns().checked_sub(first.os_ns())?;
        let apart = u128::from(device_span_ns.abs_diff(os_span_ns));
        let errors = first.error_ns() + second.error_ns();
        let allowed =
            u128::from(os_span_ns) * u128::from(DRIFT_PPB_MAX) / 1_000_000_000 + u128::from(errors);
        (device_span_ns > 0 && apart <= allowed).then_some(Self {
            first,
            device_span_ns,
            os_span_ns,
            error_ns: first.error_ns().max(second.error_ns()),
        })
    }

    /// The OS's clock when the device's stood at `device_ns`, between the readings or near them, to
    /// the nearest nanosecond.
    pub fn os_ns(&self, device_ns: u64) -> u64 {
        let span = i128::from(device_ns) - i128::from(self.first.device_ns);
        let scaled = span * i128::from(self.os_span_ns);
        let device_span = i128::from(self.device_span_ns);
        let ahead = (scaled + device_span / 2).div_euclid(device_span);
        u64::try_from(i128::from(self.first.os_ns()) + ahead).unwrap_or(0)
    }

    /// How far what [`os_ns`](Self::os_ns) gives between the readings may be from the truth, if the
    /// clocks ran evenly.
    pub const fn error_ns(&self) -> u64 {
        self.error_ns
    }

    /// How much faster the device's clock runs, in parts per thousand million.
    pub fn drift_ppb(&self) -> i64 {
        let apart = i128::from(self.device_span_ns) - i128::from(self.os_span_ns);
        let os_span = i128::from(self.os_span_ns.max(1));
        i64::try_from(apart * 1_000_000_000 / os_span).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(before_ns: u64, device_ns: u64, after_ns: u64) -> ClockReading {
        ClockReading { before_ns, device_ns, after_ns }
    }

    #[test]
    fn the_narrowest_reading_is_taken() {
        let readings = [at(0, 500, 900), at(1_000, 1_300, 1_600), at(2_000, 2_400, 9_000)];
        assert_eq!(ClockReading::narrowest(readings), Some(readings[1]));
        assert_eq!(ClockReading::narrowest([]), None);
        assert_eq!((readings[1].os_ns(), readings[1].error_ns()), (1_300, 300));
        assert_eq!(at(0, 0, 5).error_ns(), 3);
    }

    #[test]
    fn a_line_goes_through_both_readings_and_on() {
        // The device began 1,000,000 ns later and runs 100 ppm fast.
        let line = ClockLine::through(at(0, 1_000_000, 0), at(1_000_000, 2_000_100, 1_000_000));
        let line = line.expect("an even clock");
        assert_eq!(line.os_ns(1_000_000), 0);
        assert_eq!(line.os_ns(2_000_100), 1_000_000);
        assert_eq!(line.os_ns(1_500_050), 500_000);
        assert_eq!(line.os_ns(3_000_200), 2_000_000);
        assert_eq!(line.os_ns(999_000), 0, "the OS's clock does not begin before zero");
        assert_eq!((line.drift_ppb(), line.error_ns()), (100_000, 0));
    }

    #[test]
    fn a_clock_that_was_set_has_no_line() {
        let first = at(0, 5_000_000, 10);
        for second in [
            at(1_000_000, 4_999_999, 1_000_010),
            at(1_000_000, 5_000_000, 1_000_010),
            at(1_000_000, 5_998_000, 1_000_010),
            at(1_000_000, 6_002_000, 1_000_010),
            at(1_000_000, 37_006_000_000, 1_000_010),
        ] {
            assert_eq!(ClockLine::through(first, second), None, "{second:?}");
        }
        assert!(ClockLine::through(first, at(1_000_000, 6_000_900, 1_000_010)).is_some());
        assert_eq!(ClockLine::through(at(1_000_000, 1, 1_000_010), at(0, 2, 10)), None);
    }

    proptest! {
        /// Whatever the offset, drift, time and jitter of the readings: between them the line is no
        /// further from the truth than it says, and rounding.
        #[test]
        fn the_line_keeps_to_its_error(
            start in 0_u64..1 << 60,
            epoch in 0_u64..1 << 61,
            drift_ppb in -500_000_i64..=500_000,
            span in 1_000_000_u64..10_000_000_000,
            part in 0_u64..=1_000,
            widths in (0_u64..20_000, 0_u64..20_000),
            where_in in (0_u64..=100, 0_u64..=100),
        ) {
            let device = |os: u64| {
                let on = i128::from(os - start);
                let on = on + on * i128::from(drift_ppb) / 1_000_000_000;
                epoch + u64::try_from(on).expect("forwards")
            };
            let read = |os: u64, width: u64, percent: u64| {
                let before = os - width * percent / 100;
                ClockReading { before_ns: before, device_ns: device(os), after_ns: before + width }
            };
            let start_of_span = start + 20_000;
            let line = ClockLine::through(
                read(start_of_span, widths.0, where_in.0),
                read(start_of_span + span, widths.1, where_in.1),
            );
            let line = line.expect("an even clock");
            let truth = start_of_span + span / 1_000 * part;
            let found = line.os_ns(device(truth));
            prop_assert!(
                found.abs_diff(truth) <= line.error_ns() + 2,
                "{} from the truth, {} allowed", found.abs_diff(truth), line.error_ns()
            );
        }

        #[test]
        fn later_stamps_are_later(
            span in 1_u64..1 << 40,
            a in 0_u64..1 << 41,
            b in 0_u64..1 << 41,
        ) {
            let line = ClockLine::through(at(1 << 42, 1 << 42, 1 << 42), {
                let end = (1 << 42) + span;
                at(end, end, end)
            });
            let line = line.expect("an even clock");
            prop_assert_eq!(line.os_ns(a) <= line.os_ns(b), a <= b);
            prop_assert_eq!(line.os_ns(a), a);
        }
    }
}
