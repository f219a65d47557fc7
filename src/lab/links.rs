//! The books of links from what their two ends counted, by the free clock.
//!
//! In virtual and gated time the sender knows each frame's fate. By the free clock it does not: what
//! one end handed to the kernel and the other never saw was lost there.

use crate::sim::LinkCounters;

/// What one end of a link has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndBooks {
    /// Frames that the node sent.
    pub sent: u64,
    /// Frames that had come and lay in the RX rings when the port closed.
    pub rx_abandoned: u64,
    /// Frames that came and that the kernel found no room for in the RX rings.
    pub rx_kernel_lost: u64,
    /// Frames to send that waited before or in the TX rings when the port closed.
    pub tx_abandoned: u64,
    /// The direction towards this end, as the model here saw it: `sent` is what came out of the ring.
    pub towards: LinkCounters,
    /// The direction away, where the model of it is here because the far end is not ours.
    pub away: Option<LinkCounters>,
    /// Frames that this end sent and that its own ring or the kernel refused.
    pub refused: u64,
}

/// Both directions of a link together.
pub fn link_counters(ends: [Option<EndBooks>; 2]) -> LinkCounters {
    let [a, b] = ends;
    let mut both = LinkCounters::default();
    for (from, to) in [(a, b), (b, a)] {
        both = both.plus(match (from, to) {
            (Some(from), Some(to)) => between_ours(&from, &to),
            (Some(from), None) => {
                let model = from.away.unwrap_or_default();
                let lost = model.lost + model.lost_down + model.corrupted;
                let delivered = from.sent.saturating_sub(lost + from.refused + from.tx_abandoned);
                LinkCounters { sent: from.sent, delivered, kernel_dropped: from.refused, ..model }
            }
            // Nobody of ours knows what was sent, but the kernel says what it dropped here.
            (None, Some(to)) => LinkCounters {
                sent: to.towards.sent + to.rx_kernel_lost,
                kernel_dropped: to.rx_kernel_lost,
                ..to.towards
            },
            (None, None) => LinkCounters::default(),
        });
    }
    both
}

fn between_ours(from: &EndBooks, to: &EndBooks) -> LinkCounters {
    let came = to.towards.sent;
    let in_rings = from.tx_abandoned + to.rx_abandoned;
    LinkCounters {
        sent: from.sent,
        kernel_dropped: from.sent.saturating_sub(came + in_rings),
        ..to.towards
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_neither_end_saw_was_lost_in_the_kernel() {
        let a = EndBooks { sent: 100, tx_abandoned: 3, rx_abandoned: 7, ..EndBooks::default() };
        let towards = LinkCounters { sent: 90, delivered: 80, lost: 5, ..LinkCounters::default() };
        let b = EndBooks { towards, rx_abandoned: 2, ..EndBooks::default() };
        let link = link_counters([Some(a), Some(b)]);
        assert_eq!((link.sent, link.delivered, link.lost), (100, 80, 5));
        assert_eq!(link.kernel_dropped, 5);
        assert_eq!(link.in_flight(), 10, "five on the model's wire and five in rings");
    }

    #[test]
    fn towards_a_kernel_host_what_the_ring_took_is_delivered() {
        let a = EndBooks { sent: 50, refused: 1, ..EndBooks::default() };
        let link = link_counters([Some(a), None]);
        assert_eq!(
            (link.sent, link.delivered, link.kernel_dropped, link.in_flight()),
            (50, 49, 1, 0)
        );
        let towards = LinkCounters { sent: 20, delivered: 20, ..LinkCounters::default() };
        let b = EndBooks { towards, rx_kernel_lost: 7, ..EndBooks::default() };
        let link = link_counters([None, Some(b)]);
        assert_eq!((link.sent, link.delivered, link.kernel_dropped), (27, 20, 7));
    }
}
