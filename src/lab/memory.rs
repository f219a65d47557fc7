//! How many UMEM chunks a worker needs: for what its nodes may hold and for its rings.
//!
//! Admission to a switch's queues is by cells, and no frame takes more chunks than cells, so a chunk
//! per cell is always enough. A store that has them never refuses a frame that the node would take:
//! that is what makes a gated run equal the simulation, whose store has no end.

use crate::lab::engine::notes::OUTSTANDING_MAX;
use crate::lab::plan::PlannedNode;
use crate::lab::topology::{Attachment, NodeId, Topology};
use crate::line::FRAME_BYTES_MIN;
use crate::time::Duration;

/// Bytes of a chunk that hold no frame: the headroom of XDP.
pub const CHUNK_OVERHEAD_BYTES: u32 = 256;

/// The chunks of one node, by what they are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeChunks {
    /// Queues: a switch's memory in cells, a host's waiting answers.
    pub held: u64,
    /// Fill and TX rings of its ports.
    pub rings: u64,
    /// Frames on their way to it: what its links hold, and what is in the kernel at once.
    pub in_flight: u64,
}

impl NodeChunks {
    /// All of them.
    pub const fn total(&self) -> u64 {
        self.held + self.rings + self.in_flight
    }
}

/// What a node needs.
pub fn node_chunks(topology: &Topology, node: &PlannedNode) -> NodeChunks {
    let room = topology.lab.chunk_bytes - CHUNK_OVERHEAD_BYTES;
    let mut chunks = NodeChunks::default();
    let (rates, mtu_max): (Vec<_>, u32) = match node.id {
        NodeId::Switch(index) => {
            let config = &topology.switches[index].config;
            chunks.held = config.buffer_bytes / u64::from(config.cell_bytes);
            let rates = config.ports.iter().map(|port| port.rate).collect();
            (rates, config.ports.iter().map(|port| port.mtu_bytes).max().unwrap_or(0))
        }
        NodeId::Host(index) => {
            let config = &topology.hosts[index].config;
            (vec![config.rate], config.mtu_bytes)
        }
    };
    let chunks_per_frame = u64::from((mtu_max + 32).div_ceil(room));
    if let NodeId::Host(index) = node.id {
        let waiting = u64::from(topology.hosts[index].config.queue_frames_max);
        chunks.held = waiting * chunks_per_frame;
    }
    // Fill and TX rings; an I/O worker has the kernel's TX ring behind the port's.
    let rings_per_queue = if node.io_workers.is_empty() { 3 } else { 4 };
    let ring_chunks = rings_per_queue * u64::from(topology.lab.ring_entries);
    for (port, rate) in node.ports.iter().zip(&rates) {
        let Attachment::Link(link, _) = port.attachment else {
            if matches!(port.attachment, Attachment::External(_)) {
                chunks.rings += ring_chunks;
            }
            continue;
        };
        chunks.rings += ring_chunks * u64::from(topology.lab.queues);
        let shortest = rate.time_of(u64::from(FRAME_BYTES_MIN)).max(Duration::from_ps(1));
        let impairment = &topology.links[link].impairment;
        let longest = impairment.delay + impairment.jitter;
        let on_wire = longest.as_ps() / shortest.as_ps() + 1;
        // Short frames fill the wire with more of them, long ones with more chunks each: a frame
        // of n chunks lasts more than n times as long, so the former is the worst.
        chunks.in_flight += on_wire + OUTSTANDING_MAX * chunks_per_frame;
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
