//! From a port's queues onto its wire.

use super::{Switch, port_mut, port_of};
use crate::frame::FrameStore;
use crate::node::{PortId, Transmission};
use crate::switch::port::CONTROL;
use crate::switch::schedule::{self, Turn};
use crate::time::Time;

impl Switch {
    /// The next frame of a port that was ready and has been taken out of those that are. None when
    /// all its queues with frames are at their limits; it is ready again when one is not.
    // Inlined, the transmission stays in registers: written to memory in halves and read back whole
    // it stalls the loads.
    #[inline(always)]
    pub(super) fn transmit_any<S: FrameStore>(
        &mut self,
        now: Time,
        store: &mut S,
        port: PortId,
    ) -> Option<Transmission> {
        if port_of(&self.ports, port).sends_plainly {
            return Some(self.transmit_plainly(now, port));
        }
        // Taken apart, so that what comes in memory does not keep the other there too.
        let Transmission { frame, starts, ends } = self.transmit(now, store, port)?;
        Some(Transmission { frame, starts, ends })
    }

    /// That of a port that does nothing but send.
    #[inline(always)]
    fn transmit_plainly(&mut self, now: Time, port: PortId) -> Transmission {
        let state = port_mut(&mut self.ports, port);
        let queue = schedule::strict(state.queues_to_serve());
        let (frame, meta) = self.egress.dequeue_plainly(state, queue);
        state.counters.transmitted(frame.len_bytes());
        let (starts, ends) = state.line.occupy(now, meta.enqueued_at, frame.len_bytes());
        if state.has_work() {
            self.egress.ready.arm(now, port, ends);
        }
        Transmission { frame: frame.into_frame(), starts, ends }
    }

    /// That of any other.
    #[inline(never)]
    fn transmit<S: FrameStore>(
        &mut self,
        now: Time,
        store: &mut S,
        port: PortId,
    ) -> Option<Transmission> {
        let state = port_mut(&mut self.ports, port);
        let eligible = state.queues_to_serve();
        if eligible & CONTROL != 0 {
            return Some(self.transmit_control(now, store, port));
        }
        let is_scheduled = state.schedule.is_some();
        let (queue, allowed_at) = if is_scheduled {
            self.whose_turn(now, port)?
        } else {
            (schedule::strict(eligible), Time::ZERO)
        };
        let state = port_mut(&mut self.ports, port);
        state.note_served(queue);
        let (mut frame, meta) = self.egress.dequeue(state, port, queue);
        let left_bytes = state.queue(queue).bytes();
        state.counters.transmitted(frame.len_bytes());
        let ready_at = meta.enqueued_at.max(allowed_at);
        let (starts, ends) = state.line.occupy(now, ready_at, frame.len_bytes());
        if is_scheduled {
            state.has_had_its_turn(starts, queue, frame.len_bytes());
        }
        if state.has_work() {
            self.egress.ready.arm(now, port, ends);
        }
        if state.queue(queue).looks_at_departures(left_bytes) {
            frame = self.mark_departure(store, port, queue, left_bytes, frame);
        }
        if self.egress.memory.has_signals() {
            self.take_signals(now, store);
        }
        Some(Transmission { frame: frame.into_frame(), starts, ends })
    }

    /// The queue that a port with a schedule serves, and since when its limits allow it.
    #[inline(never)]
    fn whose_turn(&mut self, now: Time, port: PortId) -> Option<(u32, Time)> {
        let state = port_mut(&mut self.ports, port);
        match state.whose_turn(now, &self.egress.pool) {
            Turn::Queue { queue, allowed_at } => Some((queue, allowed_at)),
            Turn::Wait(at) => {
                self.egress.ready.arm(now, port, at);
                None
            }
            Turn::None => None,
        }
    }

    /// Something of flow control or the MAC table may have become due earlier.
    pub(super) fn note_timers(&mut self) {
        let due = self.macs.next_deadline().min(self.flow.deadline());
        self.timer_due = self.timer_due.min(due);
    }

    /// Lets a port go on, or stops it, after some of its queues may send that might not, or may not
    /// that might.
    pub(super) fn restart(&mut self, now: Time, port: PortId) {
        let state = port_mut(&mut self.ports, port);
        self.egress.ready.stop(port);
        if state.has_work() {
            self.egress.ready.arm(now, port, state.line.busy_until());
        }
    }
}
