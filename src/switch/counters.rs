//! What a port counts, under the names of reports.

use super::config::QUEUES;
use crate::ledger::{DropReason, Drops};

/// Counters of one port since the start of the run. Bytes are those of frames without FCS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Frames that arrived.
    pub rx_frames: u64,
    /// Frames handed to the wire.
    pub tx_frames: u64,
    /// Bytes that arrived.
    pub rx_bytes: u64,
    /// Bytes handed to the wire.
    pub tx_bytes: u64,
    /// Frames dropped. A frame that reached no egress port counts at the port it came by; one that
    /// the egress side refused or lost (its queue, the memory, the copy, the MTU, the link, its
    /// VLAN) at the port it would have left by.
    pub drops: Drops,
    /// Frames marked congestion experienced on their way out of the port.
    pub ecn_marked: u64,
    /// The most bytes that each queue ever held.
    pub queue_bytes_max: [u64; QUEUES],
    /// Frames without room in their queue that were trimmed and queued here (SONiC's TRIM_TX).
    pub trim_tx: u64,
    /// Frames that were to be trimmed, and had no room among the trimmed either (TRIM_DROP).
    pub trim_drop: u64,
}

impl PortCounters {
    #[inline]
    pub(super) fn received(&mut self, len_bytes: u32) {
        self.rx_frames += 1;
        self.rx_bytes += u64::from(len_bytes);
    }

    #[inline]
    pub(super) fn transmitted(&mut self, len_bytes: u32) {
        self.tx_frames += 1;
        self.tx_bytes += u64::from(len_bytes);
    }

    #[inline]
    pub(super) fn queued(&mut self, queue: u32, bytes: u64) {
        let max = &mut self.queue_bytes_max[queue as usize & (QUEUES - 1)];
        if bytes > *max {
            *max = bytes;
        }
    }

    #[cold]
    pub(super) fn dropped(&mut self, reason: DropReason) {
        self.drops.count(reason);
    }
}
