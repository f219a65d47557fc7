//! One port: what its configuration says, its queues, its wire, its counters.

use super::classify::{Class, ETHERNET_BYTES};
use super::config::{PortConfig, QUEUES, Trust, VlanMode};
use super::counters::PortCounters;
use super::mac_table::key_of;
use super::mark::Marker;
use super::queue::{Pool, Queue};
use super::schedule::{Schedule, Turn};
use crate::ledger::DropReason;
use crate::line::Line;
use crate::node::PortId;
use crate::time::Time;

/// Every queue of a port, as bits.
const ALL_QUEUES: u32 = (1 << QUEUES) - 1;

/// In a port's backlog, above its queues: something is to be told to the other end of the link,
/// before all data.
pub(super) const CONTROL: u32 = 1 << QUEUES;

// In this order: the queues at the beginning are reached without an addition.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Port {
    pub(super) queues: [Queue; QUEUES],
    pub(super) line: Line,
    /// The longest frame, its tags not counted.
    frame_bytes_max: u32,
    /// The same while the link is up, none while it is down.
    egress_bytes_max: u32,
    /// The VLAN of untagged frames; 0 refuses them.
    pub(super) untagged_vlan: u16,
    /// That of frames that do not say theirs.
    pub(super) default_class: Class,
    pub(super) trust: Trust,
    /// Floods and learns: inside the spanning tree.
    pub(super) flood: bool,
    up: bool,
    held: bool,
    /// Nothing is to be done for a frame that leaves but to put it on the wire: strict priority, no
    /// marks, no accounts, and nobody who watches.
    pub(super) sends_plainly: bool,
    /// Bit n is set while frames of priority n that come by this port are dropped.
    dropping: u8,
    /// Under which destination stations behind it are learned: itself, or its aggregation.
    pub(super) station_port: PortId,
    /// The queue of `default_class`.
    pub(super) default_queue: u32,
    /// The longest untagged frame that is let in without further questions; 0 unless untagged
    /// frames have a VLAN here, are learned from, and have the default class whatever they carry.
    pub(super) plain_bytes_max: u32,
    /// The longest frame, its tag not counted, that is let in where tags and code points are looked
    /// at; 0 unless frames are learned from, none is dropped for its priority and, for untagged
    /// ones, these have a VLAN here.
    pub(super) known_tagged_bytes_max: u32,
    pub(super) known_bytes_max: u32,
    /// Every frame that comes by this port goes the long way.
    is_long: bool,
    /// The VLAN of untagged frames at its place in the MAC table's keys.
    pub(super) untagged_key: u64,
    /// How its queues are served, where that is not strict priority alone.
    pub(super) schedule: Option<Box<Schedule>>,
    markers: Box<[Marker; QUEUES]>,
    /// Bit n is set while queue n has frames.
    pub(super) backlog: u32,
    /// Bit n is set while queue n may send.
    open: u32,
    /// Bit n is set while a pause stops queue n.
    paused: u32,
    /// Bit n is set when queue n has sent a frame since the watchdog looked.
    served: u32,
    pub(super) counters: PortCounters,
}

impl Port {
    /// A port that is learned as `station_port`, whose frames have `default_class` unless they say
    /// theirs, with its link up. Unless `may_be_plain`, all of them are looked into.
    pub(super) fn new(
        config: &PortConfig,
        station_port: PortId,
        default_class: Class,
        overhead_bytes: u32,
        may_be_plain: bool,
    ) -> Self {
        let untagged_vlan = match config.vlan {
            VlanMode::Access(vlan) => vlan,
            VlanMode::Trunk { native, .. } => native.unwrap_or(0),
        };
        let frame_bytes_max = config.mtu_bytes.saturating_add(ETHERNET_BYTES);
        let is_plain =
            may_be_plain && untagged_vlan != 0 && config.trust != Trust::Dscp && config.flood;
        let schedule = Schedule::new(&config.schedule).map(Box::new);
        let sends_plainly =
            may_be_plain && schedule.is_none() && config.marks.iter().all(Option::is_none);
        let mut port = Self {
            frame_bytes_max,
            egress_bytes_max: frame_bytes_max,
            untagged_vlan,
            trust: config.trust,
            default_queue: default_class.queue(),
            default_class,
            flood: config.flood,
            up: true,
            held: false,
            plain_bytes_max: if is_plain { frame_bytes_max } else { 0 },
            untagged_key: key_of(untagged_vlan, 0),
            backlog: 0,
            open: ALL_QUEUES | CONTROL,
            paused: 0,
            served: 0,
            dropping: 0,
            line: Line::new(config.rate, overhead_bytes),
            queues: std::array::from_fn(|queue| {
                let marker = config.marks[queue].as_ref().map_or(Marker::OFF, Marker::new);
                Queue::new(config.queue_limit_bytes[queue], &marker)
            }),
            station_port,
            schedule,
            sends_plainly,
            known_tagged_bytes_max: 0,
            known_bytes_max: 0,
            is_long: false,
            markers: Box::new(
                config
                    .marks
                    .each_ref()
                    .map(|config| config.as_ref().map_or(Marker::OFF, Marker::new)),
            ),
            counters: PortCounters::default(),
        };
        port.find_known();
        port
    }

    /// Whether a frame of `len_bytes`, its tags not counted, is within the port's MTU.
    #[inline]
    pub(super) const fn carries(&self, len_bytes: u32) -> bool {
        len_bytes <= self.frame_bytes_max
    }

    /// Whether a frame of `len_bytes`, its tags not counted, can leave.
    #[inline]
    pub(super) const fn up_and_carries(&self, len_bytes: u32) -> bool {
        len_bytes <= self.egress_bytes_max
    }

    /// Why a frame cannot leave that [`up_and_carries`](Self::up_and_carries) does not let out.
    #[cold]
    pub(super) const fn why_it_refuses(&self) -> DropReason {
        if self.up { DropReason::EgressMtu } else { DropReason::LinkDown }
    }

    /// Whether the link is up.
    pub(super) const fn is_up(&self) -> bool {
        self.up
    }

    /// The link has gone up or down.
    pub(super) const fn set_up(&mut self, up: bool) {
        self.up = up;
        self.egress_bytes_max = if up { self.frame_bytes_max } else { 0 };
        self.find_open();
    }

    /// The driver takes no frames of this port for now, or does again.
    pub(super) const fn set_held(&mut self, held: bool) {
        self.held = held;
        self.find_open();
    }

    /// Pauses stop these queues, as bits, and no others. True when that is a change.
    pub(super) const fn set_paused(&mut self, queues: u32) -> bool {
        let changed = self.paused != queues;
        self.paused = queues;
        self.find_open();
        changed
    }

    /// The queues that have frames and that a pause stops, as bits.
    pub(super) const fn stopped_backlog(&self) -> u32 {
        self.backlog & self.paused
    }

    /// A queue is served.
    #[inline(always)]
    pub(super) const fn note_served(&mut self, queue: u32) {
        self.served |= 1_u32.wrapping_shl(queue);
    }

    /// The queues that were served since the last call, as bits.
    pub(super) const fn take_served(&mut self) -> u32 {
        std::mem::replace(&mut self.served, 0)
    }

    /// From now on frames of a priority are dropped, those that come by this port and those for the
    /// queue of that priority, or no longer.
    pub(super) fn set_dropping(&mut self, priority: usize, queue: u32, drops: bool) {
        let bit = 1_u8.wrapping_shl(u32::try_from(priority).unwrap_or(0));
        self.dropping = if drops { self.dropping | bit } else { self.dropping & !bit };
        self.find_known();
        self.queue(queue).set_closed(drops);
    }

    /// Whether frames of a priority that come by this port are dropped.
    #[inline]
    pub(super) const fn drops(&self, priority: u8) -> bool {
        self.dropping & 1_u8.wrapping_shl(priority as u32) != 0
    }

    /// From now on every frame that comes by this port goes the long way.
    pub(super) const fn go_long(&mut self) {
        self.plain_bytes_max = 0;
        self.is_long = true;
        self.find_known();
    }

    const fn find_known(&mut self) {
        let is_short = self.flood && !self.is_long && self.dropping == 0;
        self.known_tagged_bytes_max = if is_short { self.frame_bytes_max } else { 0 };
        self.known_bytes_max =
            if self.untagged_vlan == 0 { 0 } else { self.known_tagged_bytes_max };
    }

    const fn find_open(&mut self) {
        let open = ALL_QUEUES & !self.paused | CONTROL;
        self.open = if self.up && !self.held { open } else { 0 };
    }

    /// The queues that have frames and may send, as bits.
    #[inline]
    pub(super) const fn queues_to_serve(&self) -> u32 {
        self.backlog & self.open
    }

    /// Whether there is something to send.
    #[inline]
    pub(super) const fn has_work(&self) -> bool {
        self.queues_to_serve() != 0
    }

    /// Bytes in all queues.
    pub(super) fn queue_bytes(&self) -> u64 {
        self.queues.iter().map(Queue::bytes).sum()
    }

    /// What a queue does with marks.
    pub(super) const fn marker(&self, queue: u32) -> &Marker {
        &self.markers[queue as usize & (QUEUES - 1)]
    }

    /// Whose turn it is at a port that has a schedule.
    pub(super) fn whose_turn(&mut self, now: Time, pool: &Pool) -> Turn {
        let eligible = self.queues_to_serve();
        let (queues, line) = (&self.queues, &self.line);
        let Some(schedule) = &mut self.schedule else { return Turn::None };
        schedule.turn(now, eligible, |queue| {
            line.wire_bytes(pool.first_len_bytes(&queues[queue as usize & (QUEUES - 1)]))
        })
    }

    /// The queue whose turn it was has sent a frame.
    #[inline(never)]
    pub(super) fn has_had_its_turn(&mut self, starts: Time, queue: u32, len_bytes: u32) {
        let wire_bytes = self.line.wire_bytes(len_bytes);
        let is_empty = self.queue(queue).is_empty();
        if let Some(schedule) = &mut self.schedule {
            schedule.sent(starts, queue, wire_bytes, is_empty);
        }
    }

    /// All queues have been emptied at once.
    pub(super) fn forget_turns(&mut self) {
        if let Some(schedule) = &mut self.schedule {
            schedule.forget();
        }
    }

    /// A queue of this port.
    #[inline]
    pub(super) const fn queue(&mut self, queue: u32) -> &mut Queue {
        &mut self.queues[queue as usize & (QUEUES - 1)]
    }
}
