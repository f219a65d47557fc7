//! What a long queue does to frames that leave it or arrive.

use super::{Switch, port_mut};
use crate::frame::{FrameStore, ParkedFrame};
use crate::node::PortId;
use crate::switch::mark::Verdict;

impl Switch {
    /// Marks a frame that has left its queue, in which `left_bytes` are left, or not.
    #[cold]
    #[inline(never)]
    pub(super) fn mark_departure<S: FrameStore>(
        &mut self,
        store: &mut S,
        port: PortId,
        queue: u32,
        left_bytes: u64,
        mut frame: ParkedFrame,
    ) -> ParkedFrame {
        let state = port_mut(&mut self.ports, port);
        let head = store.head_mut(&mut frame);
        if state.marker(queue).on_dequeue(left_bytes, &mut self.rng, head) == Verdict::Marked {
            state.counters.ecn_marked += 1;
        }
        frame
    }

    /// Marks a frame that is admitted to a queue, or not; false where it is to be dropped.
    #[cold]
    #[inline(never)]
    pub(super) fn survives_arrival<S: FrameStore>(
        &mut self,
        store: &mut S,
        port: PortId,
        queue: u32,
        frame: &mut ParkedFrame,
    ) -> bool {
        let state = port_mut(&mut self.ports, port);
        let queue_bytes = state.queue(queue).bytes();
        let head = store.head_mut(frame);
        match state.marker(queue).on_enqueue(queue_bytes, &mut self.rng, head) {
            Verdict::Pass => true,
            Verdict::Marked => {
                state.counters.ecn_marked += 1;
                true
            }
            Verdict::Drop => false,
        }
    }
}
