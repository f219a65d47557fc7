//! Delays by stamps of arrival, which a NIC or the XDP program wrote, instead of by the moment at
//! which the receiver read the frame.

use serde::{Deserialize, Serialize};

use crate::measure::LatencyHistogram;
use crate::measure::histogram::Percentiles;
use crate::time::{Duration, Time};
use crate::xdp::{ClockLine, ClockReading};

/// Which clock the stamps are readings of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StampClock {
    /// The OS's monotonic clock.
    Os,
    /// The device's, which is read beside the OS's now and then.
    Device,
}

/// A device's clock is read this often: what its drift does meanwhile is a straight line to within
/// nanoseconds.
const READ_EVERY: Duration = Duration::from_ms(100);

/// Stamps that wait for the next reading, at most.
const WAITING_MAX: usize = 65_536;

/// What the stamps of one trial gave.
#[derive(Clone, Debug, Default)]
pub struct Stamped {
    /// From the planned send time to the stamp.
    pub delay: LatencyHistogram,
    /// From the stamp to when the receiver read the frame: what the kernel's queues and the
    /// receiver's sleep take.
    pub to_reader: LatencyHistogram,
    /// The rest.
    pub counts: StampCounts,
}

/// What is to be known of the stamps of a trial besides their delays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StampCounts {
    /// Frames that bore a stamp which counts.
    pub frames_with: u64,
    /// Frames that bore none: their delay is in the receiver's histogram alone.
    pub frames_without: u64,
    /// Frames whose stamp says nothing, since the device's clock was set, or was gone, meanwhile.
    pub frames_clock_set: u64,
    /// Stamps from before the planned send time: counted as no delay. More than the clock's error
    /// explains are a clock that is not the one it is taken for.
    pub before_planned: u64,
    /// By how much the mapping of the clock may be wrong, in nanoseconds.
    pub clock_error_ns_max: u64,
    /// How much faster the device's clock ran than the OS's; null when they are one, or it was set.
    pub clock_drift_ppb: Option<i64>,
}

/// What the stamps of a trial's frames gave, for a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StampReport {
    /// The counts.
    #[serde(flatten)]
    pub counts: StampCounts,
    /// From the stamp to when the receiver read the frame.
    pub to_reader_ns: Percentiles,
}

impl Stamped {
    /// For the report.
    pub fn report(&self) -> StampReport {
        StampReport { counts: self.counts, to_reader_ns: self.to_reader.percentiles() }
    }
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    planned: Time,
    stamp_ns: u64,
    read: Time,
}

/// Collects the stamps of a stream's frames.
#[derive(Debug)]
pub(crate) struct StampCollector {
    clock: StampClock,
    done: Stamped,
    waiting: Vec<Waiting>,
    first: Option<ClockReading>,
    last: Option<ClockReading>,
    was_set: bool,
    read_at: Time,
}

impl StampCollector {
    pub(crate) fn new(clock: StampClock) -> Self {
        let room = if clock == StampClock::Device { WAITING_MAX } else { 0 };
        Self {
            clock,
            done: Stamped::default(),
            waiting: Vec::with_capacity(room),
            first: None,
            last: None,
            was_set: false,
            read_at: Time::ZERO,
        }
    }

    /// A frame was read. `at` gives the node's time at a reading of the OS's clock.
    pub(crate) fn take(
        &mut self,
        planned: Time,
        stamp_ns: Option<u64>,
        read: Time,
        at: impl Fn(u64) -> Time,
    ) {
        let Some(stamp_ns) = stamp_ns else {
            self.done.counts.frames_without += 1;
            return;
        };
        let waiting = Waiting { planned, stamp_ns, read };
        match self.clock {
            StampClock::Os => self.done.place(waiting, at(stamp_ns)),
            StampClock::Device => self.waiting.push(waiting),
        }
    }

    /// Whether it is time for [`device_reads`](Self::device_reads).
    pub(crate) fn wants_reading(&self, now: Time) -> bool {
        self.clock == StampClock::Device
            && (self.last.is_none()
                || now.since(self.read_at) >= READ_EVERY
                || self.waiting.len() >= WAITING_MAX)
    }

    /// Whether stamps wait for a last reading.
    pub(crate) const fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The device's clock was read, or could not be: what waits is placed between this reading and
    /// the one before.
    pub(crate) fn device_reads(
        &mut self,
        now: Time,
        reading: Option<ClockReading>,
        at: impl Fn(u64) -> Time,
    ) {
        self.read_at = now;
        let between = self.last.zip(reading);
        let line = between.and_then(|(last, reading)| ClockLine::through(last, reading));
        // Before the first reading there is no clock that could have been set.
        self.was_set |= self.last.is_some() && line.is_none();
        match line {
            Some(line) => {
                let counts = &mut self.done.counts;
                counts.clock_error_ns_max = counts.clock_error_ns_max.max(line.error_ns());
                for waiting in self.waiting.drain(..) {
                    self.done.place(waiting, at(line.os_ns(waiting.stamp_ns)));
                }
            }
            None => {
                self.done.counts.frames_clock_set += self.waiting.len() as u64;
                self.waiting.clear();
            }
        }
        self.first = self.first.or(reading);
        self.last = reading;
    }

    /// What was collected. A device's clock has been read once more before.
    pub(crate) fn finish(mut self) -> Stamped {
        self.done.counts.frames_clock_set += self.waiting.len() as u64;
        if !self.was_set
            && let Some((first, last)) = self.first.zip(self.last)
        {
            let whole = ClockLine::through(first, last);
            self.done.counts.clock_drift_ppb = whole.map(|line| line.drift_ppb());
        }
        self.done
    }
}

impl Stamped {
    fn place(&mut self, waiting: Waiting, arrival: Time) {
        self.counts.frames_with += 1;
        self.counts.before_planned += u64::from(arrival < waiting.planned);
        self.delay.record(arrival.since(waiting.planned));
        self.to_reader.record(waiting.read.since(arrival));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Node time that began when the OS's clock stood at one second.
    fn at(os_ns: u64) -> Time {
        Time::from_ns(os_ns.saturating_sub(1_000_000_000))
    }

    /// A device's clock that began 500 s earlier and runs 20 ppm fast, and the OS's node time.
    fn device(node_ns: u64) -> u64 {
        500_000_000_000 + node_ns + node_ns / 50_000
    }

    fn reading(node_ns: u64) -> ClockReading {
        let os_ns = node_ns + 1_000_000_000;
        ClockReading { before_ns: os_ns - 100, device_ns: device(node_ns), after_ns: os_ns + 100 }
    }

    #[test]
    fn stamps_of_the_os_s_clock_count_at_once_and_zero_counts_as_none() {
        let mut stamps = StampCollector::new(StampClock::Os);
        assert!(!stamps.wants_reading(Time::from_ns(1 << 40)));
        stamps.take(Time::from_ns(1_000), Some(1_000_003_000), Time::from_ns(10_000), at);
        stamps.take(Time::from_ns(5_000), Some(1_000_004_000), Time::from_ns(10_000), at);
        stamps.take(Time::from_ns(6_000), None, Time::from_ns(10_000), at);
        let done = stamps.finish();
        assert_eq!((done.delay.count(), done.delay.percentiles().max), (2, 2_000));
        assert_eq!(
            (done.to_reader.percentiles().min, done.to_reader.percentiles().max),
            (6_000, 7_000)
        );
        let counts = StampCounts {
            frames_with: 2,
            frames_without: 1,
            before_planned: 1,
            ..StampCounts::default()
        };
        assert_eq!(done.counts, counts);
    }

    #[test]
    fn a_device_s_stamps_are_placed_between_its_readings() {
        let mut stamps = StampCollector::new(StampClock::Device);
        // A frame each millisecond that arrives 2,000 ns after its time and is read 7,000 ns later.
        for n in 0..1_000_u64 {
            let planned = n * 1_000_000;
            if stamps.wants_reading(Time::from_ns(planned)) {
                stamps.device_reads(Time::from_ns(planned), Some(reading(planned)), at);
            }
            let (arrival, read) = (planned + 2_000, Time::from_ns(planned + 9_000));
            stamps.take(Time::from_ns(planned), Some(device(arrival)), read, at);
        }
        let end = Time::from_ns(1_000_000_000);
        stamps.device_reads(end, Some(reading(1_000_000_000)), at);
        let done = stamps.finish();
        assert_eq!(done.counts.frames_with, 1_000);
        assert_eq!(done.counts.frames_clock_set + done.counts.before_planned, 0);
        assert_eq!(
            (done.counts.clock_error_ns_max, done.counts.clock_drift_ppb),
            (100, Some(20_000))
        );
        let (delay, wait) = (done.delay.percentiles(), done.to_reader.percentiles());
        assert!(delay.min >= 1_995 && delay.max <= 2_005, "{delay:?}");
        assert!(wait.min >= 6_995 && wait.max <= 7_005, "{wait:?}");
    }

    #[test]
    fn a_clock_that_is_set_or_gone_spoils_what_waits_and_no_more() {
        let mut stamps = StampCollector::new(StampClock::Device);
        let second = |n: u64| n * 1_000_000_000;
        let turn = |stamps: &mut StampCollector, n, read: Option<ClockReading>| {
            stamps.device_reads(Time::from_ns(second(n)), read, at);
            let planned = Time::from_ns(second(n));
            stamps.take(planned, Some(device(second(n)) + 10), planned, at);
        };
        let set = |n| ClockReading { device_ns: device(second(n)) + 37_000, ..reading(second(n)) };
        turn(&mut stamps, 1, Some(reading(second(1))));
        // 37 s later in a second, then back, then gone.
        let jump = ClockReading { device_ns: set(2).device_ns + 37_000_000_000, ..set(2) };
        turn(&mut stamps, 2, Some(jump));
        turn(&mut stamps, 3, Some(reading(second(3))));
        turn(&mut stamps, 4, Some(reading(second(4))));
        turn(&mut stamps, 5, None);
        let done = stamps.finish();
        assert_eq!((done.counts.frames_with, done.counts.frames_clock_set), (1, 4));
        assert_eq!(done.counts.clock_drift_ppb, None);
    }

    #[test]
    fn a_flood_of_stamps_asks_for_a_reading_before_its_time() {
        let mut stamps = StampCollector::new(StampClock::Device);
        stamps.device_reads(Time::ZERO, Some(reading(1)), at);
        assert!(!stamps.wants_reading(Time::from_ns(1)));
        for _ in 0..WAITING_MAX {
            stamps.take(Time::ZERO, Some(device(5)), Time::from_ns(9), at);
        }
        assert!(stamps.wants_reading(Time::from_ns(1)));
    }
}
