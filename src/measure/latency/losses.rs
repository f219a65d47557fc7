//! Where the frames of a trial went that did not arrive: by the counters of the two ports and of
//! their interfaces.

use serde::{Deserialize, Serialize};

use crate::xdp::{InterfaceDrops, PortCounters};

/// What one end of a path counted in a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndCounts {
    /// The port.
    pub port: PortCounters,
    /// Its interface.
    pub interface: InterfaceDrops,
}

impl EndCounts {
    /// What was counted since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            port: self.port.since(&before.port),
            interface: self.interface.since(before.interface),
        }
    }
}

macro_rules! places {
    ($($name:ident: $says:literal,)+) => {
        /// Frames that were sent and did not arrive, by the place that lost them.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Losses { $(#[doc = $says] pub $name: u64,)+ }

        impl Losses {
            /// Each place with its name and what it means.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
                [$((stringify!($name), $says, self.$name),)+].into_iter()
            }

            fn places_mut(&mut self) -> impl Iterator<Item = &mut u64> {
                [$(&mut self.$name,)+].into_iter()
            }
        }
    };
}

// In the order in which a frame comes by.
places! {
    tx_kernel_dropped: "the sender's kernel did not deliver them: the wire's queue full, or the other end down",
    tx_abandoned: "the sending interface vanished",
    tx_interface_dropped: "the sending interface dropped them",
    rx_interface_dropped: "the receiving interface dropped them before the socket",
    rx_ring_full: "the receiver's RX ring was full (--ring makes it larger)",
    rx_fill_ring_empty: "the receiver's fill ring was empty (--ring makes it larger)",
    rx_dropped: "the receiver's socket dropped them, such as a frame longer than a chunk",
    rx_abandoned: "the receiving interface vanished",
    elsewhere: "no counter of the two ends has them: lost in between, or later than the wait",
}

impl Losses {
    /// Attributes `lost` frames, of which no more are told than were lost: a counter also counts
    /// frames of others, and late ones of the trial before.
    pub fn attribute(lost: u64, tx: &EndCounts, rx: &EndCounts) -> Self {
        let fill_ring_empty = rx.port.xsk_rx_fill_ring_empty.min(rx.port.xsk_rx_dropped);
        let by_socket = rx.port.xsk_rx_ring_full + rx.port.xsk_rx_dropped;
        let mut losses = Self {
            tx_kernel_dropped: tx.port.tx_kernel_dropped,
            tx_abandoned: tx.port.tx_abandoned,
            rx_ring_full: rx.port.xsk_rx_ring_full,
            rx_fill_ring_empty: fill_ring_empty,
            rx_dropped: rx.port.xsk_rx_dropped - fill_ring_empty,
            rx_abandoned: rx.port.rx_abandoned,
            // An interface may count once more what its socket or its sender counts.
            tx_interface_dropped: tx.interface.tx.saturating_sub(tx.port.tx_kernel_dropped),
            rx_interface_dropped: rx.interface.rx.saturating_sub(by_socket),
            elsewhere: u64::MAX,
        };
        let mut left = lost;
        for place in losses.places_mut() {
            *place = left.min(*place);
            left -= *place;
        }
        losses
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.iter().map(|(.., frames)| frames).sum()
    }

    /// Adds those of another trial.
    pub fn add(&mut self, other: &Self) {
        for (place, (.., frames)) in self.places_mut().zip(other.iter()) {
            *place += frames;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rx(ring_full: u64, dropped: u64, fill_empty: u64, interface: u64) -> EndCounts {
        EndCounts {
            port: PortCounters {
                xsk_rx_ring_full: ring_full,
                xsk_rx_dropped: dropped,
                xsk_rx_fill_ring_empty: fill_empty,
                ..PortCounters::default()
            },
            interface: InterfaceDrops { rx: interface, tx: 0 },
        }
    }

    fn tx(kernel_dropped: u64, interface: u64) -> EndCounts {
        EndCounts {
            port: PortCounters { tx_kernel_dropped: kernel_dropped, ..PortCounters::default() },
            interface: InterfaceDrops { rx: 0, tx: interface },
        }
    }

    #[test]
    fn every_lost_frame_has_a_place() {
        let losses = Losses::attribute(100, &tx(10, 12), &rx(20, 30, 25, 55));
        let want = Losses {
            tx_kernel_dropped: 10,
            tx_interface_dropped: 2,
            rx_ring_full: 20,
            rx_fill_ring_empty: 25,
            rx_dropped: 5,
            rx_interface_dropped: 5,
            elsewhere: 33,
            ..Losses::default()
        };
        assert_eq!(losses, want);
        assert_eq!(losses.total(), 100);
    }

    #[test]
    fn a_fill_ring_that_was_empty_without_a_drop_lost_nothing() {
        let losses = Losses::attribute(1, &tx(0, 0), &rx(0, 0, 9, 0));
        assert_eq!((losses.rx_fill_ring_empty, losses.elsewhere), (0, 1));
    }

    proptest! {
        #[test]
        fn the_places_sum_to_what_was_lost(
            lost in 0_u64..1_000,
            sent in (0_u64..500, 0_u64..500),
            got in (0_u64..500, 0_u64..500, 0_u64..500, 0_u64..500),
        ) {
            let (tx, rx) = (tx(sent.0, sent.1), rx(got.0, got.1, got.2, got.3));
            let losses = Losses::attribute(lost, &tx, &rx);
            prop_assert_eq!(losses.total(), lost);
            let mut twice = losses;
            twice.add(&losses);
            prop_assert_eq!(twice.total(), 2 * lost);
        }
    }
}
