//! The switch as a node: the order of the stages, from a frame's arrival to its place in a queue,
//! and from the queue onto the wire.
//!
//! Ingress: length and header, VLAN, learning, look-up, class. Egress, for each destination: link,
//! MTU, queue limit, memory, tag, queue. Transmission: schedule, wire. Stages hand on an
//! [`Arrival`], then a [`Meta`] that stays with the queued frame.

mod setting;

pub use setting::SwitchSetting;

use super::buffer::Buffer;
use super::check::SwitchConfigError;
use super::classify::{self, Addresses, Class, Classifier, Tags};
use super::config::{PortConfig, QUEUES, SwitchConfig};
use super::counters::PortCounters;
use super::mac_table::{self, MacTable, MacTableCounters, key_of};
use super::port::{Port, STOPPED};
use super::port_set::PortSet;
use super::queue::{Meta, Pool};
use super::ready::Ready;
use super::schedule;
use super::vlan::{TagChange, Vlans, vlan_of};
use crate::frame::{Frame, FrameStore, ParkedFrame};
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
    egress: Egress,
    /// Ports whose link is up.
    up: PortSet,
    replicated: u64,
    /// Frames that [`Node::drain`] gave back.
    drained: u64,
}

/// What the ingress stages found out about a frame.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    now: Time,
    ingress: PortId,
    vlan: u16,
    /// The tags that it came with.
    tags: Tags,
    class: Class,
    addresses: Addresses,
}

/// What all ports share on the egress side.
#[derive(Debug)]
struct Egress {
    buffer: Buffer,
    pool: Pool,
    ready: Ready,
}

/// What a frame is going to take of the egress side.
#[derive(Clone, Copy, Debug)]
struct Admission {
    /// Its length with the tag it leaves with.
    len_bytes: u32,
    cells: u32,
}

impl Egress {
    #[inline(always)]
    fn admission(&self, len_bytes: u32, tag: TagChange) -> Admission {
        let len_bytes = tag.len_after(len_bytes);
        Admission { len_bytes, cells: self.buffer.cells_of(len_bytes) }
    }

    /// Whether there is room for a frame of `len_bytes` bytes that is going to take `cells` cells.
    #[inline(always)]
    fn admit(
        &self,
        port: &mut Port,
        arrival: &Arrival,
        len_bytes: u32,
        admission: Admission,
    ) -> Result<(), DropReason> {
        if !port.up_and_carries(len_bytes - arrival.tags.bytes()) {
            return Err(if port.up { DropReason::EgressMtu } else { DropReason::LinkDown });
        }
        if !port.queue(u32::from(arrival.class.queue())).fits(admission.len_bytes) {
            return Err(DropReason::QueueLimit);
        }
        if !self.buffer.fits(admission.cells) {
            return Err(DropReason::BufferFull);
        }
        Ok(())
    }

    /// Puts an admitted frame, with the tag it leaves with, into its queue.
    #[inline(always)]
    fn enqueue(
        &mut self,
        port: &mut Port,
        egress: PortId,
        arrival: &Arrival,
        cells: u32,
        frame: ParkedFrame,
    ) {
        let queue = u32::from(arrival.class.queue());
        self.buffer.take(cells);
        let bytes = port.queue(queue).bytes_with(frame.len_bytes());
        port.queue(queue).note_held(bytes);
        port.counters.queued(queue, bytes);
        self.append(port, egress, queue, bytes, frame, Meta { enqueued_at: arrival.now, cells });
    }

    /// Appends a frame, whose cells are taken, to a queue, which is going to have `bytes`.
    #[inline(always)]
    fn append(
        &mut self,
        port: &mut Port,
        egress: PortId,
        queue: u32,
        bytes: u64,
        frame: ParkedFrame,
        meta: Meta,
    ) {
        let at = self.pool.insert(frame, meta);
        let backlog = port.backlog;
        if backlog.wrapping_shr(queue) & 1 != 0 {
            return self.pool.append(port.queue(queue), bytes, at);
        }
        Pool::begin(port.queue(queue), bytes, at);
        if backlog == 0 {
            self.ready.arm(meta.enqueued_at, egress, port.line.busy_until());
        }
        port.backlog = backlog | 1_u32.wrapping_shl(queue);
    }
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
            Port::new(port, classifier.class(port.default_priority), config.overhead_bytes)
        };
        let egress = Egress { pool: Pool::new(buffer.cells()), buffer, ready: Ready::new() };
        Ok(Self {
            ports: config.ports.iter().map(port).collect(),
            vlans: Vlans::new(&config),
            macs,
            classifier,
            egress,
            up,
            replicated: 0,
            drained: 0,
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
        self.egress.buffer.bytes()
    }

    /// The most packet memory that was ever in use, in bytes of whole cells.
    pub const fn buffer_bytes_max(&self) -> u64 {
        self.egress.buffer.bytes_max()
    }

    /// What the MAC table has learned and forgotten.
    pub const fn mac_table_counters(&self) -> MacTableCounters {
        self.macs.counters()
    }

    /// Stations in the MAC table, static ones included.
    pub const fn stations(&self) -> usize {
        self.macs.len()
    }

    /// The first ingress stages: checks, VLAN, class.
    #[inline(always)]
    fn inspect(
        &self,
        now: Time,
        ingress: PortId,
        len_bytes: u32,
        head: &[u8],
    ) -> Result<Arrival, DropReason> {
        let port = port_of(&self.ports, ingress);
        let addresses = classify::parse(head)?;
        let tags = if classify::is_tagged(head) { classify::parse_tags(head)? } else { Tags::NONE };
        if !port.carries(len_bytes - tags.bytes()) {
            return Err(DropReason::Oversize);
        }
        if addresses.is_from_group() {
            return Err(DropReason::SourceMulticast);
        }
        let vlan = vlan_of(tags, port.untagged_vlan);
        // A port is a member of the VLAN of its untagged frames, if it has one.
        if vlan != port.untagged_vlan || vlan == 0 {
            let members = &self.vlans.get(vlan).members;
            if !members.contains(ingress.index()) {
                return Err(if addresses.is_to_link_local() {
                    DropReason::LinkLocal
                } else {
                    DropReason::VlanIngress
                });
            }
        }
        let default = port.default_class.priority();
        let class = self.classifier.classify(port.trust, default, tags, head);
        Ok(Arrival { now, ingress, vlan, tags, class, addresses })
    }

    /// The short way, for the untagged frame between known stations that nothing stops. A frame
    /// that something stops goes through the stages one by one, from the first that has not taken
    /// effect.
    #[inline(always)]
    fn pass<S: FrameStore>(
        &mut self,
        now: Time,
        store: &mut S,
        ingress: PortId,
        frame: ParkedFrame,
    ) {
        let len_bytes = frame.len_bytes();
        let from = port_mut(&mut self.ports, ingress);
        if len_bytes > from.plain_bytes_max {
            return self.handle(now, store, ingress, frame);
        }
        let Some(addresses) = classify::parse_plain(store.head(&frame)) else {
            return self.handle(now, store, ingress, frame);
        };
        let vlan_key = from.untagged_key;
        let destination = vlan_key ^ addresses.destination;
        let value = match self.macs.value_at_home(destination) {
            Some(value) => value,
            None => self.macs.value_elsewhere(destination),
        };
        let Some(egress) = mac_table::port_unless_expired(value, now) else {
            return self.handle(now, store, ingress, frame);
        };
        let queue = from.default_queue;
        from.counters.received(len_bytes);
        let source = vlan_key ^ addresses.source;
        if !self.macs.refresh(now, source, ingress) {
            self.learn(now, source, ingress);
        }
        let to = port_mut(&mut self.ports, egress);
        let bytes = to.queue(queue).bytes_with(len_bytes);
        let cells = self.egress.buffer.cells_of(len_bytes);
        // Within what the queue and the memory have held before, there is no limit to look at and
        // no record to keep.
        if egress.index() == ingress.index()
            || to.untagged_key != vlan_key
            || !to.up_and_carries(len_bytes)
            || !to.queue(queue).has_held(bytes)
            || !self.egress.buffer.take_again(cells)
        {
            return self.handle_known(now, store, ingress, frame);
        }
        self.egress.append(to, egress, queue, bytes, frame, Meta { enqueued_at: now, cells });
    }

    /// What [`pass`](Self::pass) does not do, for a frame that it has counted and learned from.
    #[inline(never)]
    fn handle_known<S: FrameStore>(
        &mut self,
        now: Time,
        store: &mut S,
        ingress: PortId,
        frame: ParkedFrame,
    ) {
        let head = store.head(&frame);
        let arrival = match self.inspect(now, ingress, frame.len_bytes(), head) {
            Ok(arrival) => arrival,
            Err(reason) => return self.discard(store, ingress, reason, frame),
        };
        match self.look_up(&arrival) {
            Some(egress) if egress != ingress => self.forward(store, arrival, egress, frame),
            _ => self.discard(store, ingress, DropReason::SamePort, frame),
        }
    }

    /// What becomes of a frame that has arrived.
    #[inline(never)]
    fn handle<S: FrameStore>(
        &mut self,
        now: Time,
        store: &mut S,
        ingress: PortId,
        frame: ParkedFrame,
    ) {
        let len_bytes = frame.len_bytes();
        let arrival = match self.inspect(now, ingress, len_bytes, store.head(&frame)) {
            Ok(arrival) => arrival,
            Err(reason) => return self.refuse(store, ingress, reason, frame),
        };
        let port = port_mut(&mut self.ports, ingress);
        port.counters.received(len_bytes);
        let learns = port.flood;
        let Some(egress) = self.look_up(&arrival) else {
            return self.flood(store, arrival, frame);
        };
        if learns {
            let source = key_of(arrival.vlan, arrival.addresses.source);
            if !self.macs.refresh(now, source, ingress) {
                self.learn(now, source, ingress);
            }
        }
        if egress == ingress {
            return self.discard(store, ingress, DropReason::SamePort, frame);
        }
        self.forward(store, arrival, egress, frame);
    }

    /// The port of the destination; None floods.
    #[inline(always)]
    fn look_up(&self, arrival: &Arrival) -> Option<PortId> {
        if arrival.addresses.is_to_group() {
            return None;
        }
        self.macs.find(arrival.now, key_of(arrival.vlan, arrival.addresses.destination))
    }

    // It takes the whole switch, so that its address is all it needs to be given.
    #[cold]
    #[inline(never)]
    fn learn(&mut self, now: Time, station: u64, port: PortId) {
        self.macs.learn(now, station, port);
    }

    /// One destination: its port's egress side takes the frame, or it is dropped there.
    #[inline(never)]
    fn forward<S: FrameStore>(
        &mut self,
        store: &mut S,
        arrival: Arrival,
        egress: PortId,
        frame: ParkedFrame,
    ) {
        // Where the frame leaves as it came: no tag, in the VLAN of the port's untagged frames.
        let leaves_untagged = port_of(&self.ports, egress).untagged_vlan == arrival.vlan;
        let tag = if arrival.tags.is_none() && leaves_untagged {
            Ok(TagChange::Keep)
        } else {
            self.tag_change(&arrival, egress)
        };
        match tag {
            Ok(tag) => self.deliver(store, &arrival, egress, tag, frame),
            Err(reason) => self.discard(store, egress, reason, frame),
        }
    }

    fn tag_change(&self, arrival: &Arrival, egress: PortId) -> Result<TagChange, DropReason> {
        self.vlans.tag_change(arrival.tags, arrival.vlan, arrival.class.priority(), egress)
    }

    /// The egress stages.
    #[inline(always)]
    fn deliver<S: FrameStore>(
        &mut self,
        store: &mut S,
        arrival: &Arrival,
        egress: PortId,
        tag: TagChange,
        mut frame: ParkedFrame,
    ) {
        let port = port_mut(&mut self.ports, egress);
        let admission = self.egress.admission(frame.len_bytes(), tag);
        if let Err(reason) = self.egress.admit(port, arrival, frame.len_bytes(), admission) {
            return self.discard(store, egress, reason, frame);
        }
        if !tag.apply(store, &mut frame) {
            return self.discard(store, egress, DropReason::NoHeadroom, frame);
        }
        self.egress.enqueue(port, egress, arrival, admission.cells, frame);
    }

    /// A frame for a group or an unknown station, which has passed inspection: learning, and then
    /// every port of the VLAN that floods and is up, but the one the frame came by. The frame itself
    /// goes to the last of them, copies to the others, which are counted as replicated whether or
    /// not there was a frame for the copy.
    #[inline(never)]
    fn flood<S: FrameStore>(&mut self, store: &mut S, arrival: Arrival, frame: ParkedFrame) {
        let ingress = arrival.ingress;
        if arrival.addresses.is_to_link_local() {
            return self.discard(store, ingress, DropReason::LinkLocal, frame);
        }
        let floods = self.ports[ingress.index()].flood;
        if floods {
            self.learn(arrival.now, key_of(arrival.vlan, arrival.addresses.source), ingress);
        }
        let mut targets = self.vlans.get(arrival.vlan).flood.and(self.up);
        targets.remove(ingress.index());
        // A port outside the spanning tree is no source of floods either.
        let first = if floods { targets.pop() } else { None };
        let Some(mut egress) = first else {
            return self.discard(store, ingress, DropReason::NoDestination, frame);
        };
        while let Some(next) = targets.pop() {
            self.replicated += 1;
            if let Err(reason) = self.copy_to(store, &arrival, egress, &frame) {
                self.ports[egress.index()].counters.dropped(reason);
            }
            egress = next;
        }
        self.forward(store, arrival, egress, frame);
    }

    /// A copy of the frame for one of several destinations, made once it is sure to be let in.
    fn copy_to<S: FrameStore>(
        &mut self,
        store: &mut S,
        arrival: &Arrival,
        egress: PortId,
        frame: &Frame,
    ) -> Result<(), DropReason> {
        let tag = self.tag_change(arrival, egress)?;
        let port = port_mut(&mut self.ports, egress);
        let admission = self.egress.admission(frame.len_bytes(), tag);
        self.egress.admit(port, arrival, frame.len_bytes(), admission)?;
        let copy = store.duplicate(frame).ok_or(DropReason::NoFrameForCopy)?;
        let mut copy = ParkedFrame::new(copy);
        if !tag.apply(store, &mut copy) {
            store.release(copy.into_frame());
            return Err(DropReason::NoHeadroom);
        }
        self.egress.enqueue(port, egress, arrival, admission.cells, copy);
        Ok(())
    }

    /// Drops a frame that has not passed inspection, which counts as received all the same.
    #[cold]
    fn refuse<S: FrameStore>(
        &mut self,
        store: &mut S,
        ingress: PortId,
        reason: DropReason,
        frame: ParkedFrame,
    ) {
        self.ports[ingress.index()].counters.received(frame.len_bytes());
        self.discard(store, ingress, reason, frame);
    }

    #[cold]
    fn discard<S: FrameStore>(
        &mut self,
        store: &mut S,
        port: PortId,
        reason: DropReason,
        frame: ParkedFrame,
    ) {
        self.ports[port.index()].counters.dropped(reason);
        store.release(frame.into_frame());
    }

    /// The next frame of a port that was ready and has been taken out of those that are.
    // Inlined, the transmission stays in registers: written to memory in halves and read back whole
    // it stalls the loads.
    #[inline(always)]
    fn transmit(&mut self, now: Time, port: PortId) -> Transmission {
        let Egress { buffer, pool, ready } = &mut self.egress;
        let state = port_mut(&mut self.ports, port);
        let served = schedule::strict(state.backlog_of_queues());
        let (frame, meta, was_last) = pool.pop(state.queue(served));
        if was_last {
            state.backlog &= !(1 << served);
        }
        buffer.give(meta.cells);
        state.counters.transmitted(frame.len_bytes());
        let (starts, ends) = state.line.occupy(now, meta.enqueued_at, frame.len_bytes());
        if state.backlog != 0 {
            ready.arm(now, port, ends);
        }
        Transmission { frame: frame.into_frame(), starts, ends }
    }

    #[inline]
    fn advance(&mut self, now: Time) {
        self.egress.ready.advance(now);
    }

    /// Makes a port ready that may have been stopped, or stops it.
    fn restart(&mut self, now: Time, port: PortId) {
        let state = &mut self.ports[port.index()];
        self.egress.ready.stop(port);
        if state.held || !state.up {
            state.backlog |= STOPPED;
            return;
        }
        state.backlog &= !STOPPED;
        if state.may_send() {
            self.egress.ready.arm(now, port, state.line.busy_until());
        }
    }
}

/// The port, without what an index keeps ready for its message.
#[inline(always)]
fn port_of(ports: &[Port], port: PortId) -> &Port {
    match ports.get(port.index()) {
        Some(state) => state,
        None => no_such_port(port),
    }
}

#[inline(always)]
fn port_mut(ports: &mut [Port], port: PortId) -> &mut Port {
    match ports.get_mut(port.index()) {
        Some(state) => state,
        None => no_such_port(port),
    }
}

#[cold]
#[inline(never)]
fn no_such_port(port: PortId) -> ! {
    panic!("the switch has no port {}", port.0)
}

impl<S: FrameStore> Node<S> for Switch {
    // On its own it has all registers.
    #[inline(never)]
    fn on_frame(&mut self, now: Time, store: &mut S, port: PortId, frame: Frame) {
        self.pass(now, store, port, ParkedFrame::new(frame));
    }

    fn on_timer(&mut self, now: Time, _store: &mut S) {
        self.macs.sweep(now);
    }

    #[inline]
    fn next_ready_port(&mut self, now: Time) -> Option<PortId> {
        self.advance(now);
        self.egress.ready.first()
    }

    #[inline]
    fn poll_transmit(&mut self, now: Time, _store: &mut S, port: PortId) -> Option<Transmission> {
        if !self.egress.ready.is_ready(port) {
            self.advance(now);
            if !self.egress.ready.is_ready(port) {
                return None;
            }
        }
        self.egress.ready.disarm(port);
        Some(self.transmit(now, port))
    }

    #[inline(always)]
    fn poll_next(&mut self, now: Time, _store: &mut S) -> Option<(PortId, Transmission)> {
        self.advance(now);
        let port = self.egress.ready.pop()?;
        Some((port, self.transmit(now, port)))
    }

    #[inline]
    fn next_deadline(&self) -> Time {
        self.egress.ready.next_deadline().min(self.macs.next_deadline())
    }

    fn on_link(&mut self, now: Time, store: &mut S, port: PortId, up: bool) {
        let index = port.index();
        let state = &mut self.ports[index];
        if state.up == up {
            return;
        }
        state.set_up(up);
        if up {
            self.up.insert(index);
        } else {
            self.up.remove(index);
            for queue in &mut state.queues {
                while !queue.is_empty() {
                    let (frame, meta, _) = self.egress.pool.pop(queue);
                    state.counters.dropped(DropReason::LinkDown);
                    self.egress.buffer.give(meta.cells);
                    store.release(frame.into_frame());
                }
            }
            state.backlog &= STOPPED;
            // Its stations may come back by another way; until they do, frames for them are flooded.
            self.macs.flush(Some(port));
        }
        self.restart(now, port);
    }

    fn hold(&mut self, now: Time, port: PortId, held: bool) {
        self.ports[port.index()].held = held;
        self.restart(now, port);
    }

    fn ledger(&self) -> Ledger {
        let queued = self.drained + self.egress.pool.len() as u64;
        let mut ledger = Ledger { replicated: self.replicated, queued, ..Ledger::default() };
        for port in &self.ports {
            ledger.received += port.counters.rx_frames;
            ledger.transmitted += port.counters.tx_frames;
            ledger.drops.add(&port.counters.drops);
        }
        ledger
    }

    fn is_quiet(&self) -> bool {
        self.drained == 0 && self.egress.buffer.bytes() == 0
    }

    fn drain(&mut self, store: &mut S) {
        for port in &mut self.ports {
            for queue in &mut port.queues {
                while !queue.is_empty() {
                    let (frame, ..) = self.egress.pool.pop(queue);
                    store.release(frame.into_frame());
                    self.drained += 1;
                }
            }
            port.backlog &= STOPPED;
        }
    }
}
