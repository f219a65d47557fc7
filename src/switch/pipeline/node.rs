//! What drivers call.

use super::{Switch, port_mut};
use crate::frame::{Frame, FrameStore, ParkedFrame};
use crate::ledger::{DropReason, Ledger};
use crate::node::{Node, PortId, Transmission};
use crate::time::Time;

impl<S: FrameStore> Node<S> for Switch {
    #[inline(always)]
    fn on_frame(&mut self, now: Time, store: &mut S, port: PortId, frame: Frame) {
        let frame = ParkedFrame::new(frame);
        if self.looks_into_all {
            return self.look_into(now, store, port, frame);
        }
        self.pass(now, store, port, frame);
    }

    fn on_timer(&mut self, now: Time, store: &mut S) {
        self.macs.sweep(now);
        if self.flow.deadline() <= now {
            self.on_flow_timer(now, store);
        }
        self.timer_due = Time::NEVER;
        self.note_timers();
    }

    #[inline]
    fn next_ready_port(&mut self, now: Time) -> Option<PortId> {
        self.egress.ready.advance(now);
        self.egress.ready.first()
    }

    #[inline]
    fn poll_transmit(&mut self, now: Time, store: &mut S, port: PortId) -> Option<Transmission> {
        self.egress.ready.advance(now);
        if !self.egress.ready.is_ready(port) {
            return None;
        }
        self.egress.ready.disarm(port);
        self.transmit_any(now, store, port)
    }

    #[inline(always)]
    fn poll_next(&mut self, now: Time, store: &mut S) -> Option<(PortId, Transmission)> {
        self.egress.ready.advance(now);
        loop {
            let port = self.egress.ready.pop()?;
            if let Some(sent) = self.transmit_any(now, store, port) {
                return Some((port, sent));
            }
        }
    }

    #[inline]
    fn next_deadline(&self) -> Time {
        debug_assert!(
            self.timer_due <= self.macs.next_deadline().min(self.flow.deadline()),
            "a deadline that nobody noted"
        );
        self.egress.ready.next_deadline().min(self.timer_due)
    }

    fn on_link(&mut self, now: Time, store: &mut S, port: PortId, up: bool) {
        let state = port_mut(&mut self.ports, port);
        if state.is_up() == up {
            return;
        }
        state.set_up(up);
        let station_port = state.station_port;
        self.groups.set_up(port, up);
        if let Some(layer3) = &mut self.layer3 {
            layer3.set_up(port, up);
        }
        if up {
            self.up.insert(port.index());
        } else {
            self.up.remove(port.index());
            for queue in 0..8 {
                self.drop_queue(store, port, queue, DropReason::LinkDown);
            }
            port_mut(&mut self.ports, port).forget_turns();
            // Its stations may come back by another way; until they do, frames for them are flooded.
            // Those of an aggregation are still there while another of its links is up.
            if self.groups.is_down(station_port) {
                self.macs.flush(Some(station_port));
            }
        }
        self.note_timers();
        self.restart(now, port);
        self.forget_pauses(now, store, port);
        self.take_signals(now, store);
    }

    fn hold(&mut self, now: Time, port: PortId, held: bool) {
        port_mut(&mut self.ports, port).set_held(held);
        self.restart(now, port);
    }

    fn ledger(&self) -> Ledger {
        let waiting = self.waiting_news();
        let routed = self.layer3.as_ref().map_or(0, |layer3| layer3.generated);
        let queued = self.drained + self.egress.pool.len() as u64 + waiting;
        let mut ledger = Ledger {
            generated: self.generated + waiting + routed,
            replicated: self.replicated,
            consumed: self.consumed,
            queued,
            ..Ledger::default()
        };
        for port in &self.ports {
            ledger.received += port.counters.rx_frames;
            ledger.transmitted += port.counters.tx_frames;
            ledger.drops.add(&port.counters.drops);
        }
        ledger
    }

    fn is_quiet(&self) -> bool {
        self.drained == 0 && self.egress.memory.bytes() == 0 && self.waiting_news() == 0
    }

    fn drain(&mut self, store: &mut S) {
        self.drain_control(store);
        for (id, state) in (0..).zip(&mut self.ports) {
            while let Some(queue) = state.backlog.checked_ilog2() {
                let (frame, _) = self.egress.dequeue(state, PortId(id), queue);
                store.release(frame.into_frame());
                self.drained += 1;
            }
        }
    }
}
