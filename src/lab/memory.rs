//! How many UMEM chunks a node needs: for what it may hold, for its rings, and for its links.
//!
//! Admission to a switch's queues is by cells, and no frame takes more chunks than cells, so a chunk
//! per cell is always enough. A store that has them never refuses a frame that the node would take:
//! that is what makes a gated run equal the simulation, whose store has no end.

use std::fmt::{self, Write as _};

use crate::lab::engine::notes::OUTSTANDING_MAX;
use crate::lab::plan::{Plan, PlannedNode};
use crate::lab::topology::{Attachment, NodeId, Topology};
use crate::line::FRAME_BYTES_MIN;
use crate::time::Duration;
use crate::units::Bytes;
use crate::xdp::{DESCRIPTORS_MAX, RingSizes};

/// Bytes of a chunk that hold no frame: the headroom of XDP.
pub const CHUNK_OVERHEAD_BYTES: u32 = 256;

/// Pause frames of one port: what is to be told next, and what is on its way out.
const PAUSE_FRAMES: u64 = 2;

/// Chunks of one port that the kernel has taken from the TX ring and not given back. In copy mode
/// they are bounded by the socket's send buffer, which holds fewer than 300 of the shortest frames.
const KERNEL_TX_CHUNKS: u64 = 512;

/// The chunks of one node, by what they are for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeChunks {
    /// The node's name.
    pub node: String,
    /// How [`held`](Self::held) comes about.
    held_as: String,
    /// Queues: a switch's memory in cells, a host's waiting answers.
    pub held: u64,
    /// Queues of all its interfaces: each has a fill ring.
    pub fill_rings: u64,
    /// Interfaces: each sends by one TX ring.
    pub tx_rings: u64,
    /// Descriptors of one fill ring. What lies in an RX ring was lent to it first, so that both
    /// together hold no more.
    pub fill_entries: u64,
    /// Descriptors of one TX ring.
    pub tx_entries: u64,
    /// Frames on their way: what its links hold, and what is in the kernel at once.
    pub in_flight: u64,
    /// Bytes of one chunk.
    pub chunk_bytes: u32,
}

impl NodeChunks {
    /// Chunks in rings and with the kernel.
    pub const fn rings(&self) -> u64 {
        self.fill_rings * self.fill_entries + self.tx_rings * (self.tx_entries + KERNEL_TX_CHUNKS)
    }

    /// All of them.
    pub const fn total(&self) -> u64 {
        self.held + self.rings() + self.in_flight
    }

    /// Memory in bytes.
    pub const fn umem_bytes(&self) -> u64 {
        self.total().saturating_mul(self.chunk_bytes as u64)
    }
}

impl fmt::Display for NodeChunks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} = {} chunks; {} fill rings x {} + {} TX rings x ({} + {} in the kernel) = {}; \
             {} on links; {} x {} B = {}",
            self.node,
            self.held_as,
            self.held,
            self.fill_rings,
            self.fill_entries,
            self.tx_rings,
            self.tx_entries,
            KERNEL_TX_CHUNKS,
            self.rings(),
            self.in_flight,
            self.total(),
            self.chunk_bytes,
            mebibytes(self.umem_bytes()),
        )
    }
}

/// Descriptors of a ring that takes every frame which the gated clock lets be in the kernel.
pub fn gated_ring_entries(topology: &Topology) -> u32 {
    let ports = topology.switches.iter().flat_map(|switch| &switch.config.ports);
    let mtus = ports.map(|port| port.mtu_bytes);
    let mtu_max = mtus.chain(topology.hosts.iter().map(|host| host.config.mtu_bytes)).max();
    let descriptors = chunks_per_frame(topology, mtu_max.unwrap_or(0)) * OUTSTANDING_MAX;
    u32::try_from(descriptors).map_or(32_768, u32::next_power_of_two).clamp(256, 32_768)
}

/// Chunks of the longest frame, with room for two VLAN tags.
fn chunks_per_frame(topology: &Topology, mtu_bytes: u32) -> u64 {
    u64::from((mtu_bytes + 32).div_ceil(topology.lab.chunk_bytes - CHUNK_OVERHEAD_BYTES))
}

/// The largest MTU that chunks of this size carry, with two VLAN tags: the kernel takes a frame in so
/// many descriptors, and no more.
pub const fn mtu_bytes_max(chunk_bytes: u32) -> u32 {
    DESCRIPTORS_MAX * (chunk_bytes - CHUNK_OVERHEAD_BYTES) - 22
}

/// What a node needs.
pub fn node_chunks(topology: &Topology, node: &PlannedNode) -> NodeChunks {
    let rings = RingSizes::of(topology.ring_entries());
    let mut chunks = NodeChunks {
        node: node.name.clone(),
        fill_entries: rings.fill.into(),
        // An I/O worker has the kernel's TX ring behind the port's.
        tx_entries: u64::from(rings.tx) * if node.io_workers.is_empty() { 1 } else { 2 },
        chunk_bytes: topology.lab.chunk_bytes,
        ..NodeChunks::default()
    };
    let mtu_max = node.ports.iter().map(|port| port.mtu_bytes).max().unwrap_or(0);
    let chunks_per_frame = chunks_per_frame(topology, mtu_max);
    let rates: Vec<_> = match node.id {
        NodeId::Switch(index) => {
            let config = &topology.switches[index].config;
            chunks.held = config.buffer_bytes / u64::from(config.cell_bytes);
            let cell = config.cell_bytes;
            chunks.held_as = format!("{} of buffer / {cell} B cells", Bytes(config.buffer_bytes));
            let lossless =
                config.ports.iter().filter(|port| port.shares.lossless_mask() != 0).count();
            if lossless > 0 {
                let frames = PAUSE_FRAMES * lossless as u64;
                chunks.held += frames;
                let _ = write!(chunks.held_as, " + {frames} for pauses");
            }
            config.ports.iter().map(|port| port.rate).collect()
        }
        NodeId::Host(index) => {
            let config = &topology.hosts[index].config;
            let waiting = config.queue_frames_max;
            chunks.held = u64::from(waiting) * chunks_per_frame;
            chunks.held_as = format!("{waiting} waiting frames x {chunks_per_frame}");
            vec![config.rate]
        }
    };
    for (port, rate) in node.ports.iter().zip(&rates) {
        let Attachment::Link(link, end) = port.attachment else {
            if matches!(port.attachment, Attachment::External(_)) {
                // Only the machine knows how many queues it has; the others come on top.
                chunks.fill_rings += 1;
                chunks.tx_rings += 1;
            }
            continue;
        };
        chunks.fill_rings += u64::from(topology.link_queues(link));
        chunks.tx_rings += 1;
        let shortest = rate.time_of(u64::from(FRAME_BYTES_MIN)).max(Duration::from_ps(1));
        let longest = topology.longest_delay(link);
        // Short frames fill the wire with more of them, long ones with more chunks each: a frame
        // of n chunks lasts more than n times as long, so the former is the worst.
        let on_wire = longest.as_ps() / shortest.as_ps() + 1;
        // Towards a kernel host the delay is added here as well.
        let far_is_ours = topology.is_run_here(topology.links[link].ends[1 - end].node);
        let directions = if far_is_ours { 1 } else { 2 };
        chunks.in_flight += directions * on_wire + OUTSTANDING_MAX * chunks_per_frame;
    }
    chunks
}

/// What a worker needs for all its nodes.
pub fn worker_chunks<'a>(
    topology: &Topology,
    nodes: impl IntoIterator<Item = &'a PlannedNode>,
) -> u64 {
    nodes.into_iter().map(|node| node_chunks(topology, node).total()).sum()
}

/// What every node of a lab needs, by the plan's order.
pub fn of_lab(topology: &Topology, plan: &Plan) -> Vec<NodeChunks> {
    plan.nodes.iter().map(|node| node_chunks(topology, node)).collect()
}

/// A size rounded up to whole MiB, for people.
pub fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
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
    fn the_arithmetic_is_shown_and_counts_every_queue_of_a_link() {
        let text = "name = \"m\"\n[defaults]\nlink = { rate = \"1Gbps\", delay = \"0us\" }\n\
            [run]\nclock = \"free\"\n[lab]\nring = 1024\n\
            [switch.s1]\nbuffer = \"208KB\"\n[host.h1]\nqueues = 2\n[host.h2]\n\
            [[link]]\nends = [\"h1:eth0\", \"s1:1\"]\n[[link]]\nends = [\"h2:eth0\", \"s1:2\"]\n";
        let topology = Topology::parse("m.toml", text).unwrap_or_else(|error| panic!("{error}"));
        let plan = Plan::of(&topology).expect("a plan");
        let chunks = of_lab(&topology, &plan);
        assert_eq!(
            chunks[0].to_string(),
            "s1: 208KB of buffer / 208 B cells = 1000 chunks; 3 fill rings x 2048 + 2 TX rings x \
             (1024 + 512 in the kernel) = 9216; 258 on links; 10474 x 4096 B = 41 MiB"
        );
        assert_eq!((chunks[1].fill_rings, chunks[2].fill_rings), (2, 1));
        let sum: u64 = chunks.iter().map(NodeChunks::total).sum();
        assert_eq!(worker_chunks(&topology, &plan.nodes), sum);
    }
}
