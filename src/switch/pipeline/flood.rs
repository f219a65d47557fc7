//! Frames for a group or an unknown station.

use super::ingress::Arrival;
use super::{Switch, port_mut};
use crate::frame::{Frame, FrameStore, ParkedFrame};
use crate::ledger::DropReason;
use crate::node::PortId;
use crate::switch::port_set::PortSet;
use crate::switch::vlan::TagChange;

impl Switch {
    /// A frame for a group or an unknown station, which has passed inspection: learning, and then
    /// every port of the VLAN that floods and is up, but the one the frame came by. The frame itself
    /// goes to the last of them, copies to the others, which are counted as replicated whether or
    /// not there was a frame for the copy.
    #[inline(never)]
    pub(super) fn flood<S: FrameStore>(
        &mut self,
        store: &mut S,
        arrival: Arrival,
        frame: ParkedFrame,
    ) {
        let ingress = arrival.ingress;
        if arrival.addresses.is_to_link_local() {
            return self.discard(store, ingress, DropReason::LinkLocal, frame);
        }
        let floods = self.ports[ingress.index()].flood;
        if floods {
            let station_port = self.ports[ingress.index()].station_port;
            self.learn(arrival.now, arrival.vlan_key ^ arrival.addresses.source, station_port);
        }
        // A port outside the spanning tree is no source of floods either.
        let mut targets = PortSet::default();
        let mut remotes = 0;
        if floods {
            targets = self.vlans.get(arrival.vlan).flood.and(self.up);
            targets.remove(ingress.index());
            let (head, len_bytes) = (store.head(&frame), frame.len_bytes());
            self.flood_aggregations_once(&arrival, head, len_bytes, &mut targets);
            remotes = self.remotes_of(arrival.vlan).len();
        }
        self.flood_to(store, &arrival, targets, remotes, frame);
    }

    /// Sends a frame to these ports and to the first `remotes` tunnel endpoints of its VLAN's network.
    pub(super) fn flood_to<S: FrameStore>(
        &mut self,
        store: &mut S,
        arrival: &Arrival,
        mut targets: PortSet,
        remotes: usize,
        frame: ParkedFrame,
    ) {
        let first = targets.pop();
        for index in 0..remotes {
            let remote = self.remotes_of(arrival.vlan)[index];
            if first.is_none() && index + 1 == remotes {
                return self.send_to_remote(store, arrival, remote, frame);
            }
            self.replicated += 1;
            match store.duplicate(&frame) {
                Some(copy) => {
                    self.send_to_remote(store, arrival, remote, ParkedFrame::new(copy));
                }
                None => {
                    let counters = &mut self.ports[arrival.ingress.index()].counters;
                    counters.dropped(DropReason::NoFrameForCopy);
                }
            }
        }
        let Some(mut egress) = first else {
            return self.discard(store, arrival.ingress, DropReason::NoDestination, frame);
        };
        while let Some(next) = targets.pop() {
            self.replicated += 1;
            if let Err(reason) = self.copy_to(store, arrival, egress, &frame) {
                self.ports[egress.index()].counters.dropped(reason);
            }
            egress = next;
        }
        let tag = self.tag_change(arrival, egress);
        self.forward(store, arrival, egress, tag, frame);
    }

    /// A copy of the frame for one of several destinations, made once it is let in.
    fn copy_to<S: FrameStore>(
        &mut self,
        store: &mut S,
        arrival: &Arrival,
        egress: PortId,
        frame: &Frame,
    ) -> Result<(), DropReason> {
        let tag = self.tag_change(arrival, egress)?;
        let (came_bytes, len_bytes) = (frame.len_bytes(), tag.len_after(frame.len_bytes()));
        let port = port_mut(&mut self.ports, egress);
        let meta = self.egress.admit(port, egress, arrival, came_bytes, len_bytes)?;
        let queue = arrival.class.queue();
        let Some(copy) = store.duplicate(frame) else {
            self.egress.withdraw(egress, queue, meta);
            return Err(DropReason::NoFrameForCopy);
        };
        let mut copy = ParkedFrame::new(copy);
        if port.queue(queue).looks_at_arrivals()
            && !self.survives_arrival(store, egress, queue, &mut copy)
        {
            self.egress.withdraw(egress, queue, meta);
            store.release(copy.into_frame());
            return Err(DropReason::Wred);
        }
        let port = port_mut(&mut self.ports, egress);
        if tag == TagChange::Keep {
            let bytes = port.queue(queue).bytes_with(len_bytes);
            self.egress.enqueue(port, egress, queue, bytes, copy, meta);
        } else {
            self.retag(store, egress, queue, tag, meta, copy);
        }
        Ok(())
    }
}
