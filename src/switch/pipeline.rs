//! The switch as a node: the order of the stages, from a frame's arrival to its place in a queue,
//! and from the queue onto the wire.
//!
//! Ingress: length and header, VLAN, learning, look-up, class. Egress, for each destination: link,
//! MTU, queue limit, memory, tag, queue. Transmission: schedule, wire. Stages hand on an
//! [`Arrival`], then a [`Meta`] that stays with the queued frame.

use super::buffer::Buffer;
use super::check::SwitchConfigError;
use super::classify::{self, Classifier};
use super::config::{PortConfig, QUEUES, SwitchConfig, Trust};
use super::counters::PortCounters;
use super::mac_table::{MacTable, MacTableCounters, key_of};
use super::port::Port;
use super::port_set::PortSet;
use super::queue::{Meta, Pool};
use super::ready::Ready;
use super::schedule;
use super::vlan::{TagChange, Vlans, vlan_of};
use crate::frame::{Frame, FrameStore};
use crate::ledger::{DropReason, Ledger};
use crate::node::{Node, PortId, Transmission};
use crate::time::{Duration, Time};

/// A switch.
#[derive(Debug)]
pub struct Switch {
    config: SwitchConfig,
    ports: Vec<Port>,
    vlans: Vlans,
    macs: MacTable,
    classifier: Classifier,
    buffer: Buffer,
    pool: Pool,
    ready: Ready,
    /// Ports whose link is up.
    up: PortSet,
    queued: u64,
    replicated: u64,
}

/// What the ingress stages found out about a frame.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    now: Time,
    ingress: PortId,
    vlan: u16,
    /// The outer tag that it came with.
    tag: Option<u16>,
    tags: u32,
    priority: u8,
    queue: u8,
    /// The port of the destination; None floods.
    egress: Option<PortId>,
}

/// What the egress stages need for a frame that they let in.
#[derive(Clone, Copy, Debug)]
struct Admission {
    tag: TagChange,
    cells: u32,
}

impl Switch {
    /// A switch whose links are all up and whose queues are empty.
    ///
    /// # Errors
    /// [`SwitchConfigError`] for a configuration that [`SwitchConfig::check`] refuses.
    pub fn new(config: SwitchConfig) -> Result<Self, SwitchConfigError> {
        config.check()?;
        let mut macs = MacTable::new(config.mac_table_entries, config.mac_ageing);
        for (index, entry) in config.static_macs.iter().enumerate() {
            if !macs.insert_static(key_of(entry.vlan, entry.mac.as_u64()), entry.port) {
                return Err(SwitchConfigError::static_mac_without_place(index, entry));
            }
        }
        let mut up = PortSet::default();
        for port in 0..config.ports.len() {
            up.insert(port);
        }
        let buffer = Buffer::new(config.buffer_bytes, config.cell_bytes);
        let classifier = Classifier::new(&config);
        let port = |port: &PortConfig| {
            Port::new(port, classifier.queue(port.default_priority), config.overhead_bytes)
        };
        Ok(Self {
            ports: config.ports.iter().map(port).collect(),
            vlans: Vlans::new(&config),
            macs,
            classifier,
            pool: Pool::new(buffer.cells()),
            buffer,
            ready: Ready::new(),
            up,
            queued: 0,
            replicated: 0,
            config,
        })
    }

    /// What the switch was built from.
    pub const fn config(&self) -> &SwitchConfig {
        &self.config
    }

    /// The counters of a port.
    ///
    /// # Panics
    /// When there is no such port.
    pub fn port_counters(&self, port: PortId) -> &PortCounters {
        &self.ports[port.index()].counters
    }

    /// Bytes in each queue of a port.
    ///
    /// # Panics
    /// When there is no such port.
    pub fn queue_bytes(&self, port: PortId) -> [u64; QUEUES] {
        self.ports[port.index()].queues.each_ref().map(|queue| queue.bytes())
    }

    /// Sending time of a port that a late driver could not use, in sum.
    ///
    /// # Panics
    /// When there is no such port.
    pub fn credit_expired(&self, port: PortId) -> Duration {
        self.ports[port.index()].line.credit_expired()
    }

    /// Whether the link of a port is up.
    pub const fn is_up(&self, port: PortId) -> bool {
        self.up.contains(port.index())
    }

    /// Packet memory in use, in bytes of whole cells.
    pub const fn buffer_bytes(&self) -> u64 {
        self.buffer.bytes()
    }

    /// The most packet memory that was ever in use, in bytes of whole cells.
    pub const fn buffer_bytes_max(&self) -> u64 {
        self.buffer.bytes_max()
    }

    /// What the MAC table has learned and forgotten.
    pub const fn mac_table_counters(&self) -> MacTableCounters {
        self.macs.counters()
    }

    /// Stations in the MAC table, static ones included.
    pub const fn stations(&self) -> usize {
        self.macs.len()
    }

    /// The ingress stages: counters, checks, VLAN, learning, look-up, class.
    #[inline(always)]
    fn receive(
        &mut self,
        now: Time,
        ingress: PortId,
        len_bytes: u32,
        head: &[u8],
    ) -> Result<Arrival, DropReason> {
        let port = &mut self.ports[ingress.index()];
        port.counters.received(len_bytes);
        let headers = classify::parse(head)?;
        if !port.carries(len_bytes, headers.tags) {
            return Err(DropReason::Oversize);
        }
        if headers.is_from_group() {
            return Err(DropReason::SourceMulticast);
        }
        let vlan = vlan_of(headers.tag, port.untagged_vlan);
        // A port is a member of the VLAN of its untagged frames, if it has one.
        if vlan != port.untagged_vlan || vlan == 0 {
            let members = &self.vlans.get(vlan).members;
            if !members.contains(ingress.index()) {
                let link_local = headers.is_to_link_local();
                return Err(if link_local {
                    DropReason::LinkLocal
                } else {
                    DropReason::VlanIngress
                });
            }
        }
        let egress = if headers.is_to_group() {
            if headers.is_to_link_local() {
                return Err(DropReason::LinkLocal);
            }
            None
        } else {
            self.macs.find(now, key_of(vlan, headers.destination))
        };
        if port.flood {
            self.macs.learn(now, key_of(vlan, headers.source), ingress);
        }
        let (priority, queue) = if headers.tag.is_none() && port.trust != Trust::Dscp {
            (port.default_priority, port.default_queue)
        } else {
            let (trust, default) = (port.trust, port.default_priority);
            let priority = self.classifier.priority(trust, default, &headers, head);
            (priority, self.classifier.queue(priority))
        };
        Ok(Arrival {
            now,
            ingress,
            vlan,
            tag: headers.tag,
            tags: headers.tags,
            priority,
            queue,
            egress,
        })
    }

    /// One destination, known from the MAC table.
    #[inline(always)]
    fn forward<S: FrameStore>(
        &mut self,
        store: &mut S,
        arrival: &Arrival,
        egress: PortId,
        frame: Frame,
    ) {
        if egress == arrival.ingress {
            return self.discard(store, arrival.ingress, DropReason::SamePort, frame);
        }
        match self.admit(arrival, egress, frame.len_bytes()) {
            Ok(admission) => self.enqueue(store, arrival, egress, admission, frame),
            Err(reason) => self.discard(store, egress, reason, frame),
        }
    }

    /// Every port of the VLAN that floods and is up, but the one the frame came by. The frame
    /// itself goes to the last of them, copies to the others, which are counted as replicated
    /// whether or not there was a frame for the copy.
    #[inline(never)]
    fn flood<S: FrameStore>(&mut self, store: &mut S, arrival: &Arrival, frame: Frame) {
        let mut targets = self.vlans.get(arrival.vlan).flood.and(self.up);
        targets.remove(arrival.ingress.index());
        // A port outside the spanning tree is no source of floods either.
        let first = if self.ports[arrival.ingress.index()].flood { targets.pop() } else { None };
        let Some(mut egress) = first else {
            return self.discard(store, arrival.ingress, DropReason::NoDestination, frame);
        };
        while let Some(next) = targets.pop() {
            self.replicated += 1;
            let copied = self.admit(arrival, egress, frame.len_bytes()).and_then(|admission| {
                let copy = store.duplicate(&frame).ok_or(DropReason::NoFrameForCopy)?;
                Ok((admission, copy))
            });
            match copied {
                Ok((admission, copy)) => self.enqueue(store, arrival, egress, admission, copy),
                Err(reason) => self.ports[egress.index()].counters.dropped(reason),
            }
            egress = next;
        }
        match self.admit(arrival, egress, frame.len_bytes()) {
            Ok(admission) => self.enqueue(store, arrival, egress, admission, frame),
            Err(reason) => self.discard(store, egress, reason, frame),
        }
    }

    /// Whether the egress side takes a frame that now has `len_bytes` bytes.
    #[inline(always)]
    fn admit(
        &mut self,
        arrival: &Arrival,
        egress: PortId,
        len_bytes: u32,
    ) -> Result<Admission, DropReason> {
        let port = &mut self.ports[egress.index()];
        // Where the frame leaves as it came: no tag, in the VLAN of the port's untagged frames.
        let tag = if arrival.tag.is_none() && port.untagged_vlan == arrival.vlan {
            TagChange::Keep
        } else {
            self.vlans.tag_change(arrival.tag, arrival.vlan, arrival.priority, egress)?
        };
        if !port.up {
            return Err(DropReason::LinkDown);
        }
        if !port.carries(len_bytes, arrival.tags) {
            return Err(DropReason::EgressMtu);
        }
        let len_bytes = tag.len_after(len_bytes);
        if !port.queue(arrival.queue).fits(len_bytes) {
            return Err(DropReason::QueueLimit);
        }
        let cells = self.buffer.cells_of(len_bytes);
        if !self.buffer.fits(cells) {
            return Err(DropReason::BufferFull);
        }
        Ok(Admission { tag, cells })
    }

    /// Puts an admitted frame into its queue.
    #[inline(always)]
    fn enqueue<S: FrameStore>(
        &mut self,
        store: &mut S,
        arrival: &Arrival,
        egress: PortId,
        admission: Admission,
        mut frame: Frame,
    ) {
        if !admission.tag.apply(store, &mut frame) {
            return self.discard(store, egress, DropReason::NoHeadroom, frame);
        }
        let meta = Meta {
            enqueued_at: arrival.now,
            cells: admission.cells,
            ingress: arrival.ingress,
            vlan: arrival.vlan,
            priority: arrival.priority,
            queue: arrival.queue,
        };
        self.buffer.take(admission.cells);
        self.queued += 1;
        let port = &mut self.ports[egress.index()];
        let queue = port.queue(arrival.queue);
        self.pool.push(queue, frame, meta);
        let bytes = queue.bytes();
        port.counters.queued(arrival.queue, bytes);
        if port.backlog == 0 {
            self.ready.arm(arrival.now, egress.index(), port.line.busy_until());
        }
        port.backlog |= 1 << arrival.queue;
    }

    #[cold]
    fn discard<S: FrameStore>(
        &mut self,
        store: &mut S,
        port: PortId,
        reason: DropReason,
        frame: Frame,
    ) {
        self.ports[port.index()].counters.dropped(reason);
        store.release(frame);
    }

    #[inline]
    fn advance(&mut self, now: Time) {
        let ports = &self.ports;
        self.ready.advance(now, |port| ports[port].backlog != 0);
    }

    /// Makes a port ready that may have been stopped, or stops it.
    fn restart(&mut self, now: Time, index: usize) {
        let port = &self.ports[index];
        if port.held || !port.up {
            self.ready.stop(index);
            return;
        }
        self.ready.start(index);
        if port.backlog != 0 {
            self.ready.arm(now, index, port.line.busy_until());
        }
    }
}

impl<S: FrameStore> Node<S> for Switch {
    fn on_frame(&mut self, now: Time, store: &mut S, port: PortId, frame: Frame) {
        match self.receive(now, port, frame.len_bytes(), store.head(&frame)) {
            Ok(arrival) => match arrival.egress {
                Some(egress) => self.forward(store, &arrival, egress, frame),
                None => self.flood(store, &arrival, frame),
            },
            Err(reason) => self.discard(store, port, reason, frame),
        }
    }

    fn on_timer(&mut self, now: Time, _store: &mut S) {
        self.macs.sweep(now);
    }

    fn next_ready_port(&mut self, now: Time) -> Option<PortId> {
        self.advance(now);
        self.ready.first()
    }

    fn poll_transmit(&mut self, now: Time, _store: &mut S, port: PortId) -> Option<Transmission> {
        let index = port.index();
        if !self.ready.is_ready(index) {
            self.advance(now);
            if !self.ready.is_ready(index) {
                return None;
            }
        }
        let port = &mut self.ports[index];
        let served = schedule::strict(port.backlog)?;
        let queue = port.queue(served);
        let (frame, meta) = self.pool.pop(queue)?;
        if queue.is_empty() {
            port.backlog &= !(1 << served);
        }
        self.buffer.give(meta.cells);
        self.queued -= 1;
        port.counters.transmitted(frame.len_bytes());
        let (starts, ends) = port.line.occupy(now, meta.enqueued_at, frame.len_bytes());
        if port.backlog == 0 {
            self.ready.disarm(index);
        } else if ends > now {
            self.ready.disarm(index);
            self.ready.arm(now, index, ends);
        }
        Some(Transmission { frame, starts, ends })
    }

    fn next_deadline(&self) -> Time {
        self.ready.next_deadline().min(self.macs.next_deadline())
    }

    fn on_link(&mut self, now: Time, store: &mut S, port: PortId, up: bool) {
        let index = port.index();
        let state = &mut self.ports[index];
        if state.up == up {
            return;
        }
        state.up = up;
        if up {
            self.up.insert(index);
        } else {
            self.up.remove(index);
            for queue in &mut state.queues {
                while let Some((frame, meta)) = self.pool.pop(queue) {
                    state.counters.dropped(DropReason::LinkDown);
                    self.buffer.give(meta.cells);
                    self.queued -= 1;
                    store.release(frame);
                }
            }
            state.backlog = 0;
            // Its stations may come back by another way; until they do, frames for them are flooded.
            self.macs.flush(port);
        }
        self.restart(now, index);
    }

    fn hold(&mut self, now: Time, port: PortId, held: bool) {
        self.ports[port.index()].held = held;
        self.restart(now, port.index());
    }

    fn ledger(&self) -> Ledger {
        let mut ledger =
            Ledger { replicated: self.replicated, queued: self.queued, ..Ledger::default() };
        for port in &self.ports {
            ledger.received += port.counters.rx_frames;
            ledger.transmitted += port.counters.tx_frames;
            ledger.drops.add(&port.counters.drops);
        }
        ledger
    }

    fn drain(&mut self, store: &mut S) {
        for port in &mut self.ports {
            for queue in &mut port.queues {
                while let Some((frame, _)) = self.pool.pop(queue) {
                    store.release(frame);
                }
            }
            port.backlog = 0;
        }
    }
}
