//! Links, streams and flows in a report.

use serde::{Deserialize, Serialize};

use crate::host::StreamReceived;
use crate::measure::histogram::Percentiles;

/// One link, both directions together, in frames:
/// `sent + duplicated == delivered + lost + in_flight + kernel_dropped`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinkReport {
    /// Handed to the wire by its two ends.
    pub sent: u64,
    /// Arrived at the other end.
    pub delivered: u64,
    /// Lost by the link model: loss, corruption and a link that was down together.
    pub lost: u64,
    /// On the wire when the run ended.
    pub in_flight: u64,
    /// Dropped by the kernel outside of both nodes.
    pub kernel_dropped: u64,
    /// Made by the link model.
    #[serde(skip_serializing_if = "is_zero")]
    pub duplicated: u64,
    /// Of those lost, frames on a link that was down.
    #[serde(skip_serializing_if = "is_zero")]
    pub lost_down: u64,
    /// Of those lost, frames with a wrong FCS.
    #[serde(skip_serializing_if = "is_zero")]
    pub corrupted: u64,
    /// Frames that the link model held back, so that those behind them passed.
    #[serde(skip_serializing_if = "is_zero")]
    pub held_back: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(value: &u64) -> bool {
    *value == 0
}

impl LinkReport {
    /// Both sides of the link's books: what came, and where it went.
    pub const fn sums(&self) -> (u64, u64) {
        (
            self.sent + self.duplicated,
            self.delivered + self.lost + self.in_flight + self.kernel_dropped,
        )
    }
}

/// What the sequence numbers of a stream say, with TRex's names where it has one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SequenceCounts {
    /// Frames that were due by the end of the run.
    pub planned: u64,
    /// Frames that left the sender.
    pub sent: u64,
    /// Frames that arrived, duplicates not counted.
    pub received: u64,
    /// `sent - received - in_flight`.
    pub lost: u64,
    /// On their way when the run ended: those behind the last that arrived, at most as many as links
    /// and switches still held.
    pub in_flight: u64,
    /// Frames that arrived again.
    pub duplicates: u64,
    /// Frames that arrived after a later one.
    pub out_of_order: u64,
    /// Frames whose number was above the expected one: a gap began.
    pub seq_too_high: u64,
    /// Frames whose number was below the expected one.
    pub seq_too_low: u64,
    /// Frames whose payload was not what the sender wrote.
    pub content_errors: u64,
    /// Frames that arrived with congestion experienced.
    pub ce_received: u64,
}

impl SequenceCounts {
    /// The counts of a stream of which `planned` frames were due and `sent` left.
    pub const fn of(planned: u64, sent: u64, received: &StreamReceived) -> Self {
        Self {
            planned,
            sent,
            received: received.received,
            lost: sent.saturating_sub(received.received),
            in_flight: 0,
            duplicates: received.sequence.duplicate,
            out_of_order: received.sequence.out_of_order,
            seq_too_high: received.sequence.seq_too_high,
            seq_too_low: received.sequence.seq_too_low,
            content_errors: received.content_errors,
            ce_received: received.ce_received,
        }
    }

    /// Names frames that were not lost: those numbered `next` and above, of which the network `held`
    /// some when the run ended. `next` is one above the highest number that arrived.
    pub fn spare_in_flight(&mut self, next: u64, held: u64) {
        let behind = self.planned.saturating_sub(next);
        self.in_flight = self.lost.min(behind).min(held);
        self.lost -= self.in_flight;
    }

    /// Frames arrived, and each held what the sender wrote.
    pub const fn all_verified(&self) -> bool {
        self.received > 0 && self.content_errors == 0
    }
}

/// One stream or flow. What a transport does not have is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FlowReport {
    /// The number, unique in the run.
    pub id: u32,
    /// The sending host.
    pub from: String,
    /// The receiving host.
    pub to: String,
    /// `udp-stream`, `roce`, ….
    pub transport: String,
    /// The rate control.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cc: Option<String>,
    /// Bytes that arrived: of frames for a stream, of the message for a flow.
    pub bytes: u64,
    /// When the first frame left, in nanoseconds of node time.
    pub start_ns: u64,
    /// When the last frame arrived, in nanoseconds of node time; null when none did.
    pub finish_ns: Option<u64>,
    /// Completion time of a flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fct_ns: Option<u64>,
    /// Payload bits per second between start and finish.
    pub goodput_bps: u64,
    /// Frames arrived, and each held what the sender wrote.
    pub verified: bool,
    /// What the sequence numbers of a stream say.
    #[serde(flatten)]
    pub stream: Option<SequenceCounts>,
    /// One-way latency from the planned send time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<Percentiles>,
}

/// Bits per second of `bytes` in `ns` nanoseconds, rounded down; 0 when no time passed.
pub fn bits_per_second(bytes: u64, ns: u64) -> u64 {
    if ns == 0 {
        return 0;
    }
    u64::try_from(u128::from(bytes) * 8_000_000_000 / u128::from(ns)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_behind_the_last_arrival_is_in_flight_as_far_as_the_network_held_it() {
        let counts = |next, held| {
            let mut counts = SequenceCounts {
                planned: 100,
                sent: 98,
                received: 90,
                lost: 8,
                ..SequenceCounts::default()
            };
            counts.spare_in_flight(next, held);
            assert_eq!(counts.sent, counts.received + counts.lost + counts.in_flight);
            (counts.lost, counts.in_flight)
        };
        assert_eq!(counts(95, 50), (3, 5), "three are missing before the last");
        assert_eq!(counts(95, 2), (6, 2), "a cut link has taken some of them");
        assert_eq!(counts(95, 0), (8, 0), "the network is empty");
        assert_eq!(counts(90, 50), (0, 8), "no more than were sent");
        assert_eq!(counts(100, 50), (8, 0), "the last has arrived");
    }

    #[test]
    fn goodput_is_exact_in_integers() {
        assert_eq!(bits_per_second(1_250_000_000, 1_000_000_000), 10_000_000_000);
        assert_eq!(bits_per_second(1, 0), 0);
        assert_eq!(bits_per_second(u64::MAX, 1), u64::MAX);
    }
}
