//! From a known egress port into one of its queues, and out of it.

use super::ingress::Arrival;
use super::{Switch, port_mut, port_of};
use crate::frame::{FrameStore, ParkedFrame};
use crate::ledger::DropReason;
use crate::node::PortId;
use crate::switch::config::SwitchConfig;
use crate::switch::memory::Memory;
use crate::switch::port::Port;
use crate::switch::queue::{Meta, Origin, Pool};
use crate::switch::ready::Ready;
use crate::switch::trim::TrimConfig;
use crate::switch::vlan::TagChange;
use crate::time::Time;

/// What all ports share on the egress side.
#[derive(Debug)]
pub(super) struct Egress {
    pub(super) memory: Memory,
    pub(super) pool: Pool,
    pub(super) ready: Ready,
}

impl Egress {
    pub(super) fn new(config: &SwitchConfig) -> Self {
        let memory = Memory::new(
            config.buffer_bytes,
            config.cell_bytes,
            config.ports.iter().map(|port| &port.shares),
        );
        Self { pool: Pool::new(memory.cells_total()), memory, ready: Ready::new() }
    }

    /// Lets in a frame of `came_bytes` bytes that is going to have `len_bytes` when it leaves, or
    /// says why not. Its cells are taken; it is to be queued, or [withdrawn](Self::withdraw).
    #[inline(always)]
    pub(super) fn admit(
        &mut self,
        port: &mut Port,
        egress: PortId,
        arrival: &Arrival,
        came_bytes: u32,
        len_bytes: u32,
    ) -> Result<Meta, DropReason> {
        if !port.up_and_carries(came_bytes - arrival.tags.bytes()) {
            return Err(port.why_it_refuses());
        }
        let queue = arrival.class.queue();
        let cells = self.memory.cells().of_frame(len_bytes);
        let bytes = port.queue(queue).bytes_with(len_bytes);
        if !port.queue(queue).has_held(bytes)
            || !self.memory.admit_again(arrival.origin.account(egress, queue), cells)
        {
            self.admit_anew(port, egress, queue, bytes, cells, arrival.origin)?;
        }
        Ok(Meta { enqueued_at: arrival.now, cells, origin: arrival.origin })
    }

    /// The same for a frame that takes the queue or the memory beyond what they have held before.
    #[inline(never)]
    fn admit_anew(
        &mut self,
        port: &mut Port,
        egress: PortId,
        queue: u32,
        bytes: u64,
        cells: u32,
        origin: Origin,
    ) -> Result<(), DropReason> {
        if !port.queue(queue).allows(bytes) {
            let is_closed = port.queue(queue).is_closed();
            return Err(if is_closed { DropReason::Watchdog } else { DropReason::QueueLimit });
        }
        self.memory.admit(origin.account(egress, queue), cells)?;
        port.queue(queue).note_held(bytes);
        port.counters.queued(queue, bytes);
        Ok(())
    }

    /// Puts an admitted frame, which has the tag that it leaves with, into its queue.
    #[inline(always)]
    pub(super) fn enqueue(
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
        let had_work = port.has_work();
        port.backlog = backlog | 1_u32.wrapping_shl(queue);
        if !had_work && port.has_work() {
            self.ready.arm(meta.enqueued_at, egress, port.line.busy_until());
        } else if port.schedule.is_some() {
            self.look_again(meta.enqueued_at, port, egress);
        }
    }

    /// A port that waits because its queues with frames are at their limits may have one now that
    /// is not.
    #[cold]
    #[inline(never)]
    fn look_again(&mut self, now: Time, port: &Port, egress: PortId) {
        if port.has_work() {
            self.ready.stop(egress);
            self.ready.arm(now, egress, port.line.busy_until());
        }
    }

    /// Takes the first frame out of a queue that has one, and gives back what admission took.
    #[inline(always)]
    pub(super) fn dequeue(
        &mut self,
        port: &mut Port,
        egress: PortId,
        queue: u32,
    ) -> (ParkedFrame, Meta) {
        let (frame, meta, was_last) = self.pool.pop(port.queue(queue));
        if was_last {
            port.backlog &= !1_u32.wrapping_shl(queue);
        }
        self.memory.release(meta.origin.account(egress, queue), meta.cells);
        (frame, meta)
    }

    /// The same where the memory keeps no accounts.
    #[inline(always)]
    pub(super) fn dequeue_plainly(&mut self, port: &mut Port, queue: u32) -> (ParkedFrame, Meta) {
        let (frame, meta, was_last) = self.pool.pop(port.queue(queue));
        if was_last {
            port.backlog &= !1_u32.wrapping_shl(queue);
        }
        self.memory.give_again(meta.cells);
        (frame, meta)
    }

    /// Gives back what admission took for a frame that is not going to be queued after all.
    #[cold]
    pub(super) fn withdraw(&mut self, egress: PortId, queue: u32, meta: Meta) {
        self.memory.release(meta.origin.account(egress, queue), meta.cells);
    }
}

impl Switch {
    /// What happens to the tags of a frame that leaves by `egress`.
    #[inline(always)]
    pub(super) fn tag_change(
        &self,
        arrival: &Arrival,
        egress: PortId,
    ) -> Result<TagChange, DropReason> {
        // Where the frame leaves as it came: without tag, in the VLAN of the port's untagged frames,
        // or with the tag of its VLAN, which the port wants.
        let leaves_as_it_came = match arrival.tags.vlan() {
            None => {
                arrival.tags.is_none() && port_of(&self.ports, egress).untagged_vlan == arrival.vlan
            }
            Some(vlan) => self.vlans.get(vlan).tagged.contains(egress.index()),
        };
        if leaves_as_it_came {
            return Ok(TagChange::Keep);
        }
        self.vlans.tag_change(arrival.tags, arrival.vlan, arrival.class.priority(), egress)
    }

    /// One destination: its port's egress side takes the frame, with this change of its tags, or
    /// it is dropped there.
    #[inline(always)]
    pub(super) fn forward<S: FrameStore>(
        &mut self,
        store: &mut S,
        arrival: &Arrival,
        egress: PortId,
        tag: Result<TagChange, DropReason>,
        frame: ParkedFrame,
    ) {
        let tag = match tag {
            Ok(tag) => tag,
            Err(reason) => return self.discard(store, egress, reason, frame),
        };
        let (came_bytes, len_bytes) = (frame.len_bytes(), tag.len_after(frame.len_bytes()));
        let port = port_mut(&mut self.ports, egress);
        let meta = match self.egress.admit(port, egress, arrival, came_bytes, len_bytes) {
            Ok(meta) => meta,
            Err(reason) => return self.turn_away(store, arrival, egress, reason, frame),
        };
        let queue = arrival.class.queue();
        let mut frame = frame;
        if port.queue(queue).looks_at_arrivals()
            && !self.survives_arrival(store, egress, queue, &mut frame)
        {
            self.egress.withdraw(egress, queue, meta);
            return self.discard(store, egress, DropReason::Wred, frame);
        }
        let port = port_mut(&mut self.ports, egress);
        if tag != TagChange::Keep {
            return self.retag(store, egress, queue, tag, meta, frame);
        }
        let bytes = port.queue(queue).bytes_with(len_bytes);
        self.egress.enqueue(port, egress, queue, bytes, frame, meta);
    }

    /// The rest for an admitted frame whose tags change.
    #[inline(never)]
    pub(super) fn retag<S: FrameStore>(
        &mut self,
        store: &mut S,
        egress: PortId,
        queue: u32,
        tag: TagChange,
        meta: Meta,
        mut frame: ParkedFrame,
    ) {
        if !tag.apply(store, &mut frame) {
            self.egress.withdraw(egress, queue, meta);
            return self.discard(store, egress, DropReason::NoHeadroom, frame);
        }
        let port = port_mut(&mut self.ports, egress);
        let bytes = port.queue(queue).bytes_with(frame.len_bytes());
        self.egress.enqueue(port, egress, queue, bytes, frame, meta);
    }

    /// A frame that admission has refused: where its queue is trimmed, its headers go on in another
    /// one; else it is dropped.
    #[cold]
    #[inline(never)]
    fn turn_away<S: FrameStore>(
        &mut self,
        store: &mut S,
        arrival: &Arrival,
        egress: PortId,
        reason: DropReason,
        frame: ParkedFrame,
    ) {
        let trim = self.config.trim.filter(|trim| {
            trim.queues.wrapping_shr(arrival.class.queue()) & 1 == 1
                && matches!(
                    reason,
                    DropReason::QueueLimit | DropReason::IngressLimit | DropReason::BufferFull
                )
                && trim.applies_to(store.head(&frame), frame.len_bytes())
        });
        match trim {
            Some(trim) => self.trim(store, arrival, egress, trim, frame),
            None => self.discard(store, egress, reason, frame),
        }
    }

    /// Puts what is left of a trimmed frame into the queue of the trimmed.
    fn trim<S: FrameStore>(
        &mut self,
        store: &mut S,
        arrival: &Arrival,
        egress: PortId,
        trim: TrimConfig,
        mut frame: ParkedFrame,
    ) {
        let class = self.classifier.class(trim.priority);
        let origin = Origin::new(arrival.ingress, class.priority());
        let arrival = Arrival { class, origin, ..*arrival };
        let tag = match self.tag_change(&arrival, egress) {
            Ok(tag) => tag,
            Err(reason) => return self.discard(store, egress, reason, frame),
        };
        let left_bytes = trim.len_after(frame.len_bytes());
        let len_bytes = tag.len_after(left_bytes);
        let is_last_hop =
            self.config.ports.get(egress.index()).is_some_and(|port| port.is_last_hop);
        let port = port_mut(&mut self.ports, egress);
        let Ok(meta) = self.egress.admit(port, egress, &arrival, left_bytes, len_bytes) else {
            port.counters.trim_drop += 1;
            return self.discard(store, egress, DropReason::TrimDrop, frame);
        };
        port.counters.trim_tx += 1;
        trim.trim(store, &mut frame, is_last_hop);
        let queue = arrival.class.queue();
        if tag != TagChange::Keep {
            return self.retag(store, egress, queue, tag, meta, frame);
        }
        let bytes = port.queue(queue).bytes_with(len_bytes);
        self.egress.enqueue(port, egress, queue, bytes, frame, meta);
    }
}
