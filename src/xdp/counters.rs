//! What a port counts: frames it moved, and every frame it could not, by name.

use super::sys;

/// Why a port did not take a frame. The caller has the frame back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxRefused {
    /// Shorter than an Ethernet header (14 bytes): the kernel would complete and not deliver it.
    Runt,
    /// Longer than MTU plus headers: the kernel would complete and not deliver it.
    Oversize,
    /// More descriptors than the kernel takes for one frame.
    TooManyDescriptors,
    /// The TX ring is full: try again after [`Port::reap`](super::Port::reap).
    RingFull,
    /// The port is down.
    LinkDown,
    /// The frame is in another UMEM than the port's, and there is no chunk for a copy.
    NoFrameForCopy,
}

impl TxRefused {
    /// The name under which reports count it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Runt => "tx_refused_runt",
            Self::Oversize => "tx_refused_oversize",
            Self::TooManyDescriptors => "tx_refused_descriptors",
            Self::RingFull => "tx_refused_ring_full",
            Self::LinkDown => "tx_refused_link_down",
            Self::NoFrameForCopy => "tx_refused_no_frame_for_copy",
        }
    }
}

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// The counters of a port since it was first opened, over every reopening.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct PortCounters { $($(#[doc = $doc])+ pub $name: u64,)+ }

        impl PortCounters {
            /// All counters with their names, in the order of reports.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)+].into_iter()
            }

            /// What was counted since `earlier`.
            #[must_use]
            pub const fn since(&self, earlier: &Self) -> Self {
                Self { $($name: self.$name.saturating_sub(earlier.$name),)+ }
            }
        }
    };
}

counters! {
    /// Frames received.
    rx_frames,
    /// Their bytes, without FCS.
    rx_bytes,
    /// Frames handed to the kernel for sending.
    tx_frames,
    /// Their bytes, without FCS.
    tx_bytes,
    /// Descriptors that the kernel has given back.
    tx_completed,
    /// Frames that the kernel took, completed and did not deliver (copy mode): the other end is
    /// down or its ring full.
    tx_kernel_dropped,
    /// Refused: shorter than an Ethernet header.
    tx_refused_runt,
    /// Refused: longer than MTU plus headers.
    tx_refused_oversize,
    /// Refused: more descriptors than the kernel takes for a frame.
    tx_refused_descriptors,
    /// Refused since the TX ring was full: the caller keeps the frame and may try again.
    tx_refused_ring_full,
    /// Refused: the port was down.
    tx_refused_link_down,
    /// Refused: no chunk for a copy into the port's own UMEM.
    tx_refused_no_frame_for_copy,
    /// Frames that were in the TX rings when the interface vanished.
    tx_abandoned,
    /// Frames that were in the RX rings when the interface vanished.
    rx_abandoned,
    /// Descriptors from the kernel that name no chunk of the port's.
    rx_foreign,
    /// Completions from the kernel that name no chunk of the port's.
    tx_foreign,
    /// System calls to wake the sending side.
    tx_wakeups,
    /// Those of them that came back with an error that is not of the usual kind.
    tx_wakeup_errors,
    /// Bursts after which the fill ring could not be filled up again for want of chunks.
    rx_refill_short,
    /// XSK statistics: dropped for other reasons, such as a frame longer than a chunk.
    xsk_rx_dropped,
    /// XSK statistics: fill descriptors that the kernel did not take.
    xsk_rx_invalid_descs,
    /// XSK statistics: TX descriptors that the kernel did not take.
    xsk_tx_invalid_descs,
    /// XSK statistics: dropped because the RX ring was full.
    xsk_rx_ring_full,
    /// XSK statistics: dropped, or late, because the fill ring was empty.
    xsk_rx_fill_ring_empty,
}

impl PortCounters {
    pub(crate) fn refuse(&mut self, reason: TxRefused) {
        let counter = match reason {
            TxRefused::Runt => &mut self.tx_refused_runt,
            TxRefused::Oversize => &mut self.tx_refused_oversize,
            TxRefused::TooManyDescriptors => &mut self.tx_refused_descriptors,
            TxRefused::RingFull => &mut self.tx_refused_ring_full,
            TxRefused::LinkDown => &mut self.tx_refused_link_down,
            TxRefused::NoFrameForCopy => &mut self.tx_refused_no_frame_for_copy,
        };
        *counter += 1;
    }

    pub(crate) fn add_statistics(&mut self, of: &sys::xdp_statistics) {
        self.xsk_rx_dropped += of.rx_dropped;
        self.xsk_rx_invalid_descs += of.rx_invalid_descs;
        self.xsk_tx_invalid_descs += of.tx_invalid_descs;
        self.xsk_rx_ring_full += of.rx_ring_full;
        self.xsk_rx_fill_ring_empty += of.rx_fill_ring_empty_descs;
    }

    /// Frames that the kernel lost on their way between this port's wire and its rings.
    pub const fn kernel_lost(&self) -> u64 {
        self.tx_kernel_dropped
            + self.tx_abandoned
            + self.rx_abandoned
            + self.xsk_rx_dropped
            + self.xsk_rx_ring_full
    }
}
