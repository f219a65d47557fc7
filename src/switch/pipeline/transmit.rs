//! From a port's queues onto its wire.

use super::{Switch, port_mut};
use crate::node::{PortId, Transmission};
use crate::switch::schedule;
use crate::time::Time;

impl Switch {
    /// The next frame of a port that was ready and has been taken out of those that are.
    // Inlined, the transmission stays in registers: written to memory in halves and read back whole
    // it stalls the loads.
    #[inline(always)]
    pub(super) fn transmit(&mut self, now: Time, port: PortId) -> Transmission {
        let state = port_mut(&mut self.ports, port);
        let queue = schedule::strict(state.queues_to_serve());
        let (frame, meta) = self.egress.dequeue(state, port, queue);
        state.counters.transmitted(frame.len_bytes());
        let (starts, ends) = state.line.occupy(now, meta.enqueued_at, frame.len_bytes());
        if state.has_work() {
            self.egress.ready.arm(now, port, ends);
        }
        Transmission { frame: frame.into_frame(), starts, ends }
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
