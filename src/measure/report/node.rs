//! Switches, their ports, and hosts in a report.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ledger::{Drops, Ledger};

/// Dropped frames: the total, then each reason that occurred by its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropsReport {
    /// For any reason.
    pub total: u64,
    /// By [`DropReason::name`](crate::ledger::DropReason::name).
    #[serde(flatten)]
    pub reasons: BTreeMap<String, u64>,
}

impl From<&Drops> for DropsReport {
    fn from(drops: &Drops) -> Self {
        Self {
            total: drops.total(),
            reasons: drops.iter().map(|(reason, n)| (reason.name().to_owned(), n)).collect(),
        }
    }
}

/// The books of a node, in frames:
/// `received + generated + replicated == transmitted + consumed + queued + drops`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BooksReport {
    /// Arrived by a port.
    pub received: u64,
    /// Made by the node itself.
    pub generated: u64,
    /// Copies made for flooding.
    pub replicated: u64,
    /// Handed to a port's wire.
    pub transmitted: u64,
    /// Delivered to the node itself.
    pub consumed: u64,
    /// Still held when the run ended.
    pub queued: u64,
    /// Dropped, by reason.
    pub drops: DropsReport,
}

impl BooksReport {
    /// Both sides of the books: what came, and where it went.
    pub const fn sums(&self) -> (u64, u64) {
        (
            self.received + self.generated + self.replicated,
            self.transmitted + self.consumed + self.queued + self.drops.total,
        )
    }
}

impl From<&Ledger> for BooksReport {
    fn from(ledger: &Ledger) -> Self {
        Self {
            received: ledger.received,
            generated: ledger.generated,
            replicated: ledger.replicated,
            transmitted: ledger.transmitted,
            consumed: ledger.consumed,
            queued: ledger.queued,
            drops: DropsReport::from(&ledger.drops),
        }
    }
}

/// One port of a switch. Arrays have one place per priority or queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PortReport {
    /// Frames that arrived.
    pub rx_frames: u64,
    /// Their bytes, without FCS.
    pub rx_bytes: u64,
    /// Frames that left.
    pub tx_frames: u64,
    /// Their bytes, without FCS.
    pub tx_bytes: u64,
    /// Frames marked congestion experienced on their way out.
    pub ecn_marked: u64,
    /// Frames for which there was no room but for their headers (SONiC's TRIM): the next two together.
    pub trimmed: u64,
    /// Frames cut to their headers and queued.
    pub trim_tx: u64,
    /// Frames whose headers had no room either.
    pub trim_drop: u64,
    /// Pause frames sent, by priority.
    pub tx_xoff: [u64; 8],
    /// Resume frames sent, by priority.
    pub tx_xon: [u64; 8],
    /// Pause frames received, by priority.
    pub rx_xoff: [u64; 8],
    /// Resume frames received, by priority.
    pub rx_xon: [u64; 8],
    /// How long the port was paused, by priority, in nanoseconds.
    pub rx_pause_ns: [u64; 8],
    /// 802.3x PAUSE frames received that stop the port.
    pub rx_global_xoff: u64,
    /// 802.3x PAUSE frames received that let it go on.
    pub rx_global_xon: u64,
    /// Storms that the watchdog found, by priority.
    pub storms_detected: [u64; 8],
    /// Times that it gave the class back, by priority.
    pub storms_restored: [u64; 8],
    /// Pause frames that had to wait for a free frame of the store.
    pub pfc_no_frame: u64,
    /// Frames dropped that came in by this port or were to leave by it.
    pub drops: DropsReport,
    /// The most bytes each queue held.
    pub queue_bytes_max: [u64; 8],
    /// The most memory that frames of each priority that came by this port held, in bytes of whole
    /// cells; zero where the memory keeps no accounts.
    pub ingress_bytes_max: [u64; 8],
    /// Of it, the most in headroom.
    pub headroom_bytes_max: [u64; 8],
    /// Sending time that a late driver could not use, in nanoseconds.
    pub credit_expired_ns: u64,
}

/// One switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SwitchReport {
    /// Frames by where they went.
    #[serde(flatten)]
    pub books: BooksReport,
    /// The most packet memory in use, in bytes of whole cells.
    pub buffer_bytes_max: u64,
    /// Memory outside the minima and headrooms of priority groups.
    pub shared_bytes: u64,
    /// The most memory in use in all headrooms together.
    pub headroom_bytes_max: u64,
    /// Ports by name.
    pub ports: BTreeMap<String, PortReport>,
    /// Groups of ports by name: aggregations, and equal paths.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub groups: BTreeMap<String, GroupReport>,
}

/// Several ports that were used as one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupReport {
    /// Bytes that were given to each port.
    pub bytes: BTreeMap<String, u64>,
    /// The most that a port got over its share, in thousandths: 1,000 is even.
    pub imbalance_permille: u64,
}

/// One agent host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostReport {
    /// Frames by where they went.
    #[serde(flatten)]
    pub books: BooksReport,
    /// Congestion notifications sent.
    pub cnp_sent: u64,
    /// Congestion notifications acted on.
    pub cnp_handled: u64,
    /// Frames sent again.
    pub retransmitted: u64,
    /// Frames that came after a later one of their stream or flow.
    pub out_of_order: u64,
    /// Pause frames received, by priority.
    pub rx_xoff: [u64; 8],
    /// Resume frames received, by priority.
    pub rx_xon: [u64; 8],
    /// How long the host was paused, by priority, in nanoseconds.
    pub rx_pause_ns: [u64; 8],
    /// 802.3x PAUSE frames received that stop the port.
    pub rx_global_xoff: u64,
    /// 802.3x PAUSE frames received that let it go on.
    pub rx_global_xon: u64,
    /// Further counters of the host, by name.
    #[serde(flatten)]
    pub counters: BTreeMap<String, u64>,
}

impl From<&Ledger> for HostReport {
    fn from(ledger: &Ledger) -> Self {
        Self { books: BooksReport::from(ledger), ..Self::default() }
    }
}
