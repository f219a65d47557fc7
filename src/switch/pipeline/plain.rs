//! The short way of a plain frame: untagged, of its port's class, between two known stations, with
//! nothing in its way. It is the other stages in one go, to the same effect.

use super::ingress::Arrival;
use super::{Switch, port_mut};
use crate::frame::{FrameStore, ParkedFrame};
use crate::ledger::DropReason;
use crate::node::PortId;
use crate::switch::balance::Packet;
use crate::switch::classify::{self, Addresses, Tags};
use crate::switch::config::group_of;
use crate::switch::mac_table;
use crate::switch::queue::{Meta, Origin};
use crate::time::Time;

impl Switch {
    /// Takes a frame that has arrived. One that something stops goes the long way, from the first
    /// stage that has not taken effect.
    #[inline(always)]
    pub(super) fn pass<S: FrameStore>(
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
        let Some(destination) = mac_table::port_unless_expired(value, now) else {
            return self.handle(now, store, ingress, frame);
        };
        let queue = from.default_queue;
        from.counters.received(len_bytes);
        let source = vlan_key ^ addresses.source;
        let station_port = from.station_port;
        if !self.macs.refresh(now, source, station_port) {
            self.learn(now, source, station_port);
        }
        let mut egress = destination;
        if group_of(destination).is_some() {
            let packet = Packet { head: store.head(&frame), tag_bytes: 0, len_bytes, ingress };
            egress = match self.member_for(now, destination, &packet) {
                // Back by the aggregation that it came by, if it comes to that.
                Ok(_) if destination == station_port => ingress,
                Ok(port) => port,
                Err(port) => return self.discard(store, port, DropReason::LinkDown, frame),
            };
        }
        let Some(to) = self.ports.get_mut(egress.index()) else {
            return self.handle_beyond(now, store, ingress, egress, addresses, frame);
        };
        let bytes = to.queue(queue).bytes_with(len_bytes);
        let cells = self.egress.memory.cells().of_frame(len_bytes);
        // Within what the queue and the memory have held before, there is no limit to look at and
        // no record to keep.
        if egress.index() == ingress.index()
            || to.untagged_key != vlan_key
            || !to.up_and_carries(len_bytes)
            || !to.queue(queue).has_held(bytes)
            || !self.egress.memory.take_again(cells)
        {
            return self.handle_known(now, store, ingress, egress, frame);
        }
        let meta = Meta { enqueued_at: now, cells, origin: Origin::UNKNOWN };
        self.egress.enqueue(to, egress, queue, bytes, frame, meta);
    }

    /// The long way of a frame that has been counted and learned from, and leaves by `egress`.
    #[inline(never)]
    fn handle_known<S: FrameStore>(
        &mut self,
        now: Time,
        store: &mut S,
        ingress: PortId,
        egress: PortId,
        frame: ParkedFrame,
    ) {
        let head = store.head(&frame);
        let arrival = match self.inspect(now, ingress, frame.len_bytes(), head) {
            Ok(arrival) => arrival,
            Err(reason) => return self.discard(store, ingress, reason, frame),
        };
        if egress.index() == ingress.index() {
            return self.discard(store, ingress, DropReason::SamePort, frame);
        }
        let tag = self.tag_change(&arrival, egress);
        self.forward(store, &arrival, egress, tag, frame);
    }

    /// The rest for a frame that has been counted and learned from, to a station behind no port.
    #[inline(never)]
    fn handle_beyond<S: FrameStore>(
        &mut self,
        now: Time,
        store: &mut S,
        ingress: PortId,
        egress: PortId,
        addresses: Addresses,
        frame: ParkedFrame,
    ) {
        let port = port_mut(&mut self.ports, ingress);
        let arrival = Arrival {
            now,
            ingress,
            vlan: port.untagged_vlan,
            vlan_key: port.untagged_key,
            tags: Tags::NONE,
            class: port.default_class,
            origin: Origin::new(ingress, port.default_class.priority()),
            addresses,
        };
        self.go_beyond(store, &arrival, egress, frame);
    }
}
