//! How many UMEM chunks a switch needs, and whether this machine has the memory.

use std::fmt;

use super::topology::{Attachment, LabOptions, SwitchNode, Topology};
use crate::units::Bytes;

/// The chunks of one switch, with what they are for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchChunks {
    /// The switch's name.
    pub switch: String,
    /// Packet memory, in bytes.
    pub buffer_bytes: u64,
    /// Its cells' size, in bytes.
    pub cell_bytes: u32,
    /// Sockets: one for each queue of each port.
    pub sockets: u64,
    /// Descriptors in the four rings of one socket.
    pub ring_entries: u64,
    /// Bytes of one chunk.
    pub chunk_bytes: u32,
}

impl SwitchChunks {
    /// What the switch needs under these options.
    pub fn of(switch: &SwitchNode, lab: LabOptions) -> Self {
        let ports = switch.attachments.iter().filter(|a| **a != Attachment::None).count();
        let ports = u64::try_from(ports).unwrap_or(u64::MAX);
        Self {
            switch: switch.config.name.clone(),
            buffer_bytes: switch.config.buffer_bytes,
            cell_bytes: switch.config.cell_bytes,
            sockets: ports.saturating_mul(u64::from(lab.queues)),
            // RX and TX as configured, fill and completion twice that.
            ring_entries: u64::from(lab.ring_entries) * 6,
            chunk_bytes: lab.chunk_bytes,
        }
    }

    /// Chunks that hold a full buffer: a frame takes at least one cell and one chunk, and a cell is
    /// never larger than a chunk, so there are never more chunks in use than cells.
    pub const fn buffer_chunks(&self) -> u64 {
        self.buffer_bytes / self.cell_bytes as u64
    }

    /// Chunks that rings can hold when the buffer is full.
    pub const fn ring_chunks(&self) -> u64 {
        self.sockets.saturating_mul(self.ring_entries)
    }

    /// Chunks in sum.
    pub const fn chunks(&self) -> u64 {
        self.buffer_chunks().saturating_add(self.ring_chunks())
    }

    /// Memory in bytes.
    pub const fn umem_bytes(&self) -> u64 {
        self.chunks().saturating_mul(self.chunk_bytes as u64)
    }
}

impl fmt::Display for SwitchChunks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} of buffer / {} B cells = {} chunks; {} sockets x {} ring entries = {} chunks; \
             {} x {} B = {}",
            self.switch,
            Bytes(self.buffer_bytes),
            self.cell_bytes,
            self.buffer_chunks(),
            self.sockets,
            self.ring_entries,
            self.ring_chunks(),
            self.chunks(),
            self.chunk_bytes,
            mebibytes(self.umem_bytes()),
        )
    }
}

/// A size rounded up to whole MiB, for people.
pub fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}

/// Every switch's chunks.
pub fn of_lab(topology: &Topology) -> Vec<SwitchChunks> {
    topology.switches.iter().map(|switch| SwitchChunks::of(switch, topology.lab)).collect()
}

/// Memory that the kernel says is available, in bytes. None without `/proc/meminfo`.
pub fn memory_available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arithmetic_is_shown() {
        let chunks = SwitchChunks {
            switch: "s1".to_owned(),
            buffer_bytes: 12_000_000,
            cell_bytes: 208,
            sockets: 4,
            ring_entries: 12_288,
            chunk_bytes: 4_096,
        };
        assert_eq!(
            chunks.to_string(),
            "s1: 12MB of buffer / 208 B cells = 57692 chunks; 4 sockets x 12288 ring entries = \
             49152 chunks; 106844 x 4096 B = 418 MiB"
        );
    }
}
