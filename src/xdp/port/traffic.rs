//! Moving frames between a port's rings and the store.

use super::{ETHERNET_BYTES, Port, Queue};
use crate::frame::{Frame, FrameStore as _};
use crate::xdp::counters::{PortCounters, TxRefused};
use crate::xdp::interface::LinkState;
use crate::xdp::socket::Socket;
use crate::xdp::store::{PortSlot, RegionId, UmemStore};
use crate::xdp::{sys, tx_queue};

const VLAN_TAG_BYTES: u32 = 4;

impl Port {
    /// Receives at most `frames_max` frames into `out`, which should have that much room, from the
    /// port's queues in turn, and fills the fill rings up again. Gives how many came.
    pub fn rx_burst(
        &mut self,
        store: &mut UmemStore,
        out: &mut Vec<Frame>,
        frames_max: usize,
    ) -> usize {
        let before = out.len();
        let count = self.queues.len();
        for step in 0..count {
            let index = (self.next_rx_queue + step) % count;
            let left = frames_max - (out.len() - before);
            self.rx_queue(index, store, out, left);
        }
        self.next_rx_queue = if count > 1 { (self.next_rx_queue + 1) % count } else { 0 };
        out.len() - before
    }

    /// Receives from one of the port's queues, by its index among them.
    pub fn rx_burst_on(
        &mut self,
        queue: usize,
        store: &mut UmemStore,
        out: &mut Vec<Frame>,
        frames_max: usize,
    ) -> usize {
        let before = out.len();
        self.rx_queue(queue, store, out, frames_max);
        out.len() - before
    }

    fn rx_queue(
        &mut self,
        index: usize,
        store: &mut UmemStore,
        out: &mut Vec<Frame>,
        frames_max: usize,
    ) {
        let Some(queue) = self.queues.get_mut(index) else {
            return;
        };
        let (mut left, mut taken, mut bytes) = (frames_max, 0, 0);
        while left > 0 {
            let Some(descriptor) = queue.socket.rx.take() else {
                break;
            };
            taken += 1;
            let (address, len) = (descriptor.addr, descriptor.len);
            let Some(chunk) = store.receive(self.region, self.slot, address, len) else {
                self.counters.rx_foreign += 1;
                continue;
            };
            let (head, total) = match queue.partial.take() {
                None => (chunk, len),
                Some((head, last, total)) => {
                    store.chain_behind(last, chunk);
                    (head, total + len)
                }
            };
            if descriptor.options & sys::XDP_PKT_CONTD != 0 {
                queue.partial = Some((head, chunk, total));
                continue;
            }
            out.push(store.adopt(head, total));
            bytes += u64::from(total);
            left -= 1;
        }
        if taken > 0 {
            queue.socket.rx.release();
            queue.fill_wanted += taken;
            self.counters.rx_frames += (frames_max - left) as u64;
            self.counters.rx_bytes += bytes;
        }
        if queue.fill_wanted > 0 {
            Self::refill_queue(queue, store, self.region, self.slot, &mut self.counters);
        }
    }

    fn refill_queue(
        queue: &mut Queue,
        store: &mut UmemStore,
        region: RegionId,
        slot: PortSlot,
        counters: &mut PortCounters,
    ) {
        let fill = &mut queue.socket.fill;
        while queue.fill_wanted > 0 && fill.has_room(1) {
            let Some(address) = store.lend(region, slot) else {
                counters.rx_refill_short += 1;
                break;
            };
            if queue.stamped {
                store.erase_stamp(region, address);
            }
            fill.write(address);
            queue.fill_wanted -= 1;
        }
        fill.publish();
        queue.socket.wake_fill();
    }

    /// Fills the fill rings up, when the store had too few chunks before.
    pub fn refill(&mut self, store: &mut UmemStore) {
        for queue in &mut self.queues {
            if queue.fill_wanted > 0 {
                Self::refill_queue(queue, store, self.region, self.slot, &mut self.counters);
            }
        }
    }

    /// Puts a frame into the TX ring of the queue of its flow; it leaves at the next
    /// [`kick`](Self::kick).
    ///
    /// # Errors
    /// The frame and why it was refused, which is counted.
    pub fn tx_push(
        &mut self,
        store: &mut UmemStore,
        frame: Frame,
    ) -> Result<(), (Frame, TxRefused)> {
        let queue = match self.queues.len() {
            0 | 1 => 0,
            _ if self.config.tx_in_order => 0,
            queues => tx_queue::of_flow(store.head(&frame), queues),
        };
        self.tx_push_on(queue, store, frame)
    }

    /// Puts a frame into the TX ring of one of the port's queues, by its index among them. On veth
    /// it arrives at the other end's queue of the same number.
    ///
    /// # Errors
    /// The frame and why it was refused, which is counted.
    pub fn tx_push_on(
        &mut self,
        queue: usize,
        store: &mut UmemStore,
        frame: Frame,
    ) -> Result<(), (Frame, TxRefused)> {
        let refused = match self.try_push(queue, store, frame) {
            Ok(()) => return Ok(()),
            Err(refused) => refused,
        };
        self.counters.refuse(refused.1);
        Err(refused)
    }

    fn try_push(
        &mut self,
        index: usize,
        store: &mut UmemStore,
        frame: Frame,
    ) -> Result<(), (Frame, TxRefused)> {
        let len = frame.len_bytes();
        let Some(queue) = self.queues.get_mut(index).filter(|_| self.state.link == LinkState::Up)
        else {
            return Err((frame, TxRefused::LinkDown));
        };
        if len < ETHERNET_BYTES {
            return Err((frame, TxRefused::Runt));
        }
        if len > self.untagged_bytes_max
            && len > self.untagged_bytes_max + tag_allowance(store.head(&frame))
        {
            return Err((frame, TxRefused::Oversize));
        }
        let descriptors = store.descriptors(&frame);
        if descriptors > self.descriptors_max {
            return Err((frame, TxRefused::TooManyDescriptors));
        }
        if !queue.socket.tx.has_room(descriptors) {
            return Err((frame, TxRefused::RingFull));
        }
        let frame = if store.region_of(&frame) == self.region {
            frame
        } else {
            // A copy has its chunks full, so it never needs more of them.
            match store.bring_into(self.region, frame) {
                Ok(frame) => frame,
                Err(frame) => return Err((frame, TxRefused::NoFrameForCopy)),
            }
        };
        let tx = &mut queue.socket.tx;
        store.send(self.region, self.slot, frame, |addr, len, more| {
            let options = if more { sys::XDP_PKT_CONTD } else { 0 };
            tx.write(sys::xdp_desc { addr, len, options });
        });
        queue.tx_pending = true;
        self.counters.tx_frames += 1;
        self.counters.tx_bytes += u64::from(len);
        Ok(())
    }

    /// Shows the kernel what was pushed and wakes it when it asks for that: in copy mode until it
    /// has taken everything, or stops taking. What is left waits for the next call. With an I/O
    /// worker that worker does it.
    pub fn kick(&mut self) {
        for queue in &mut self.queues {
            if queue.tx_pending {
                queue.tx_pending = queue.socket.kick(&mut self.counters);
            }
        }
    }

    /// Takes back what the kernel has finished sending. Gives the number of descriptors.
    pub fn reap(&mut self, store: &mut UmemStore) -> usize {
        let mut reaped = 0;
        for queue in &mut self.queues {
            reaped +=
                reap_socket(&mut queue.socket, store, (self.region, self.slot), &mut self.counters);
        }
        reaped
    }

    /// Whether the TX rings of all queues take a frame of any length now; true for a port that is
    /// closed, which refuses frames instead of keeping them waiting.
    pub fn has_tx_room(&mut self) -> bool {
        let descriptors_max = self.descriptors_max;
        self.queues.iter_mut().all(|queue| queue.socket.tx.has_room(descriptors_max))
    }

    /// Whether the kernel has not yet taken everything that was pushed: [`kick`](Self::kick) again.
    pub fn has_tx_pending(&self) -> bool {
        self.queues.iter().any(|queue| queue.tx_pending)
    }
}

/// Takes completions out of a socket's ring. Gives the number of descriptors.
pub(super) fn reap_socket(
    socket: &mut Socket,
    store: &mut UmemStore,
    (region, slot): (RegionId, PortSlot),
    counters: &mut PortCounters,
) -> usize {
    let mut reaped = 0;
    while let Some(address) = socket.completion.take() {
        reaped += 1;
        if !store.complete(region, slot, address) {
            counters.tx_foreign += 1;
        }
    }
    if reaped > 0 {
        socket.completion.release();
    }
    counters.tx_completed += reaped as u64;
    reaped
}

/// What a frame may be longer for its VLAN tag. A second tag counts as payload to the kernel.
fn tag_allowance(head: &[u8]) -> u32 {
    match head {
        [_, _, _, _, _, _, _, _, _, _, _, _, 0x81, 0x00, ..]
        | [_, _, _, _, _, _, _, _, _, _, _, _, 0x88, 0xa8, ..] => VLAN_TAG_BYTES,
        _ => 0,
    }
}
