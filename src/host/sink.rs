//! What a host says of the streams that end at it: loss, duplicates and order by sequence number,
//! and one-way delay from the planned send time.

use crate::measure::LatencyHistogram;
use crate::time::{Duration, Time};

/// Sequence numbers behind the highest one that are still told apart.
pub const WINDOW_FRAMES: u64 = 4_096;

const WORDS: usize = 64;

/// A stream that ends at this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpectedStream {
    /// The stream's number.
    pub id: u32,
}

/// What sequence numbers show, with the names that TRex's statistics have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SequenceErrors {
    /// Frames with a number above the expected one: a gap begins.
    pub seq_too_high: u64,
    /// Frames with a number below the expected one.
    pub seq_too_low: u64,
    /// Of those, frames that came for the first time.
    pub out_of_order: u64,
    /// Of those, frames that had come before.
    pub duplicate: u64,
    /// Of those, frames too old to tell which.
    pub beyond_window: u64,
    /// Numbers below the expected one that have not come.
    pub dropped: u64,
}

/// What a sequence number is, next to those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arrival {
    /// New: in order, or behind a gap.
    InOrder,
    /// New, after a later one.
    OutOfOrder,
    /// Came before.
    Duplicate,
    /// Older than the window.
    BeyondWindow,
}

/// Which sequence numbers of a stream have come.
#[derive(Clone, Debug)]
struct SequenceWindow {
    /// One above the highest number that came.
    expected: u64,
    /// Bit `n mod 4096` tells whether `n` came, for the window below `expected`.
    seen: [u64; WORDS],
    errors: SequenceErrors,
}

const fn place(sequence: u64) -> (usize, u64) {
    let bit = sequence % WINDOW_FRAMES;
    #[allow(clippy::cast_possible_truncation, reason = "below 64")]
    let word = (bit / 64) as usize;
    (word, 1 << (bit % 64))
}

impl SequenceWindow {
    const fn new() -> Self {
        Self {
            expected: 0,
            seen: [0; WORDS],
            errors: SequenceErrors {
                seq_too_high: 0,
                seq_too_low: 0,
                out_of_order: 0,
                duplicate: 0,
                beyond_window: 0,
                dropped: 0,
            },
        }
    }

    fn take(&mut self, sequence: u64) -> Arrival {
        let (word, bit) = place(sequence);
        if sequence >= self.expected {
            let gap = sequence - self.expected;
            if gap > 0 {
                self.errors.seq_too_high += 1;
                self.errors.dropped += gap;
            }
            if gap >= WINDOW_FRAMES {
                self.seen = [0; WORDS];
            } else {
                for missing in self.expected..sequence {
                    let (word, bit) = place(missing);
                    self.seen[word] &= !bit;
                }
            }
            self.seen[word] |= bit;
            self.expected = sequence.saturating_add(1);
            return Arrival::InOrder;
        }
        self.errors.seq_too_low += 1;
        if self.expected - sequence > WINDOW_FRAMES {
            self.errors.beyond_window += 1;
            return Arrival::BeyondWindow;
        }
        if self.seen[word] & bit != 0 {
            self.errors.duplicate += 1;
            return Arrival::Duplicate;
        }
        self.seen[word] |= bit;
        self.errors.out_of_order += 1;
        self.errors.dropped = self.errors.dropped.saturating_sub(1);
        Arrival::OutOfOrder
    }
}

/// What has come of one stream.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamReceived {
    /// The stream's number.
    pub id: u32,
    /// Frames, those that came again not counted.
    pub received: u64,
    /// Bytes of those frames, without FCS.
    pub bytes: u64,
    /// What the sequence numbers show.
    pub sequence: SequenceErrors,
    /// Of the frames received, those that were marked on the way: congestion experienced (RFC 3168).
    pub ce_received: u64,
    /// Frames with right checksums whose payload is not what the sender wrote.
    pub content_errors: u64,
    /// From the planned send time to the arrival of the last bit; duplicates are not in it.
    pub delay: LatencyHistogram,
    /// The longest of those, to the picosecond.
    pub delay_max: Duration,
    /// When the first frame arrived.
    pub first_arrival: Option<Time>,
    /// When the last frame arrived.
    pub last_arrival: Option<Time>,
}

/// One stream that ends here.
#[derive(Clone, Debug)]
pub(crate) struct Sink {
    window: SequenceWindow,
    report: StreamReceived,
}

impl Sink {
    pub(crate) fn new(expected: ExpectedStream) -> Self {
        Self {
            window: SequenceWindow::new(),
            report: StreamReceived {
                id: expected.id,
                received: 0,
                bytes: 0,
                sequence: SequenceErrors::default(),
                ce_received: 0,
                content_errors: 0,
                delay: LatencyHistogram::new(),
                delay_max: Duration::ZERO,
                first_arrival: None,
                last_arrival: None,
            },
        }
    }

    pub(crate) const fn id(&self) -> u32 {
        self.report.id
    }

    /// A frame of the stream has come whole.
    pub(crate) fn take(
        &mut self,
        now: Time,
        sequence: u64,
        planned: Time,
        len_bytes: u32,
        is_ce: bool,
        content_right: bool,
    ) {
        let arrival = self.window.take(sequence);
        let report = &mut self.report;
        report.sequence = self.window.errors;
        report.content_errors += u64::from(!content_right);
        report.first_arrival.get_or_insert(now);
        report.last_arrival = Some(now);
        if matches!(arrival, Arrival::InOrder | Arrival::OutOfOrder) {
            report.received += 1;
            report.bytes += u64::from(len_bytes);
            report.ce_received += u64::from(is_ce);
            let delay = now.since(planned);
            report.delay.record(delay);
            report.delay_max = report.delay_max.max(delay);
        }
    }

    pub(crate) const fn report(&self) -> &StreamReceived {
        &self.report
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_name_is_counted_once() {
        let mut window = SequenceWindow::new();
        let arrivals: Vec<Arrival> =
            [0, 1, 4, 2, 2, 5, 4].into_iter().map(|sequence| window.take(sequence)).collect();
        use Arrival::{BeyondWindow, Duplicate, InOrder, OutOfOrder};
        assert_eq!(
            arrivals,
            [InOrder, InOrder, InOrder, OutOfOrder, Duplicate, InOrder, Duplicate]
        );
        let want = SequenceErrors {
            seq_too_high: 1,
            seq_too_low: 3,
            out_of_order: 1,
            duplicate: 2,
            beyond_window: 0,
            dropped: 1,
        };
        assert_eq!(window.errors, want);
        assert_eq!(window.take(10_000), InOrder);
        assert_eq!(window.errors.dropped, 1 + 9_994);
        assert_eq!(window.take(10_000 - 4_095), OutOfOrder, "the oldest that is told");
        assert_eq!(window.take(10_000 - 4_096), BeyondWindow);
        assert_eq!(window.take(u64::MAX), InOrder);
    }

    #[test]
    fn delay_counts_from_the_plan_and_duplicates_are_not_in_it() {
        let mut sink = Sink::new(ExpectedStream { id: 3 });
        sink.take(Time::from_ns(1_500), 0, Time::from_ns(1_000), 100, true, true);
        sink.take(Time::from_ns(2_500), 0, Time::from_ns(1_000), 100, true, false);
        let report = sink.report();
        assert_eq!((report.received, report.bytes, report.content_errors), (1, 100, 1));
        assert_eq!(report.ce_received, 1, "the mark of a duplicate is not counted");
        assert_eq!((report.delay.count(), report.delay_max), (1, Duration::from_ns(500)));
        assert_eq!(report.first_arrival, Some(Time::from_ns(1_500)));
        assert_eq!(report.last_arrival, Some(Time::from_ns(2_500)));
    }

    proptest! {
        /// A set of all numbers is the model, for arrivals that stray less than the window.
        #[test]
        fn agrees_with_a_set(steps in proptest::collection::vec((0_u64..4, -2_000_i64..2_000), 0..400)) {
            let mut window = SequenceWindow::new();
            let mut seen = BTreeSet::new();
            let mut base = 0_u64;
            for (step, stray) in steps {
                base += step * 100;
                let sequence = base.saturating_add_signed(stray);
                let highest = seen.last().copied();
                let want = if !seen.insert(sequence) {
                    Arrival::Duplicate
                } else if highest.is_none_or(|h| sequence > h) {
                    Arrival::InOrder
                } else {
                    Arrival::OutOfOrder
                };
                let in_window = highest.is_none_or(|h| h < sequence + WINDOW_FRAMES);
                prop_assume!(in_window);
                prop_assert_eq!(window.take(sequence), want);
                let expected = seen.last().map_or(0, |h| h + 1);
                prop_assert_eq!(window.errors.dropped, expected - seen.len() as u64);
            }
        }
    }
}
