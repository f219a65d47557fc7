//! One port: what its configuration says, its queues, its wire, its counters.

use super::classify::{ETHERNET_BYTES, TAG_BYTES};
use super::config::{PortConfig, QUEUES, Trust, VlanMode};
use super::counters::PortCounters;
use super::queue::Queue;
use crate::line::Line;

#[derive(Debug)]
pub(super) struct Port {
    pub(super) mtu_bytes: u32,
    /// The VLAN of untagged frames; 0 refuses them.
    pub(super) untagged_vlan: u16,
    pub(super) trust: Trust,
    pub(super) default_priority: u8,
    /// The queue of that priority.
    pub(super) default_queue: u8,
    /// Floods and learns: inside the spanning tree.
    pub(super) flood: bool,
    pub(super) up: bool,
    pub(super) held: bool,
    /// Bit n is set while queue n has frames.
    pub(super) backlog: u8,
    pub(super) line: Line,
    pub(super) queues: [Queue; QUEUES],
    pub(super) counters: PortCounters,
}

impl Port {
    pub(super) fn new(config: &PortConfig, default_queue: u8, overhead_bytes: u32) -> Self {
        Self {
            mtu_bytes: config.mtu_bytes,
            untagged_vlan: match config.vlan {
                VlanMode::Access(vlan) => vlan,
                VlanMode::Trunk { native, .. } => native.unwrap_or(0),
            },
            trust: config.trust,
            default_priority: config.default_priority,
            default_queue,
            flood: config.flood,
            up: true,
            held: false,
            backlog: 0,
            line: Line::new(config.rate, overhead_bytes),
            queues: config.queue_limit_bytes.map(Queue::new),
            counters: PortCounters::default(),
        }
    }

    /// Whether a frame of `len_bytes` with `tags` tags is within the port's MTU.
    #[inline]
    pub(super) const fn carries(&self, len_bytes: u32, tags: u32) -> bool {
        len_bytes as u64 <= self.mtu_bytes as u64 + (ETHERNET_BYTES + TAG_BYTES * tags) as u64
    }

    /// A queue of this port.
    #[inline]
    pub(super) const fn queue(&mut self, queue: u8) -> &mut Queue {
        &mut self.queues[queue as usize & (QUEUES - 1)]
    }
}
