//! The short way of a frame between two known stations that nothing stops. It is the other stages
//! in one go, to the same effect; a frame that something stops goes the long way, from the first
//! stage that has not taken effect.
//!
//! There are two of it. The first is for untagged frames of ports where these have one class
//! whatever they carry, in a memory without accounts. The second looks into the frame for its tag
//! and its code point, and has an account for its cells.

use super::ingress::Arrival;
use super::{Switch, port_mut};
use crate::frame::{FrameStore, ParkedFrame};
use crate::ledger::DropReason;
use crate::node::PortId;
use crate::switch::classify::{self, TAG_BYTES, Tags};
use crate::switch::mac_table::{self, MacTable};
use crate::switch::port::Port;
use crate::switch::queue::{Meta, Origin};
use crate::time::Time;

impl Switch {
    /// Takes a frame that has arrived.
    // On its own it has all registers.
    #[inline(never)]
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
            return self.look_into(now, store, ingress, frame);
        }
        let Some(addresses) = classify::parse_plain(store.head(&frame)) else {
            return self.look_into(now, store, ingress, frame);
        };
        let vlan_key = from.untagged_key;
        let destination = vlan_key ^ addresses.destination;
        let value = match self.macs.value_at_home(destination) {
            Some(value) => value,
            None => self.macs.value_elsewhere(destination),
        };
        let Some(place) = mac_table::place_unless_expired(value, now) else {
            return self.handle(now, store, ingress, frame);
        };
        let (queue, station_port) = (from.default_queue, from.station_port);
        from.counters.received(len_bytes);
        let source = vlan_key ^ addresses.source;
        if !self.macs.refresh(now, source, station_port) {
            self.learn(now, source, station_port);
        }
        let Some(to) = self.ports.get_mut(place) else {
            return self.handle_known(now, store, ingress, frame);
        };
        let bytes = to.queue(queue).bytes_with(len_bytes);
        let cells = self.egress.memory.cells().of_frame(len_bytes);
        // Within what the queue and the memory have held before, there is no limit to look at and
        // no record to keep.
        if place == ingress.index()
            || to.untagged_key != vlan_key
            || !to.up_and_carries(len_bytes)
            || !to.queue(queue).has_held(bytes)
            || !self.egress.memory.take_again(cells)
        {
            return self.handle_known(now, store, ingress, frame);
        }
        let meta = Meta { enqueued_at: now, cells, origin: Origin::UNKNOWN };
        self.egress.enqueue(to, PortId::at(place), queue, bytes, frame, meta);
    }

    /// Takes a frame that has to be looked into.
    #[inline(never)]
    pub(super) fn look_into<S: FrameStore>(
        &mut self,
        now: Time,
        store: &mut S,
        ingress: PortId,
        frame: ParkedFrame,
    ) {
        self.pass_looking(now, store, ingress, frame);
        // Where memory has accounts, every frame comes by here.
        if self.egress.memory.has_signals() {
            self.take_signals(now, store);
        }
    }

    /// Takes a frame with at most one tag, which it keeps.
    #[inline(always)]
    fn pass_looking<S: FrameStore>(
        &mut self,
        now: Time,
        store: &mut S,
        ingress: PortId,
        frame: ParkedFrame,
    ) {
        let len_bytes = frame.len_bytes();
        let head = store.head(&frame);
        let Some(stations) = classify::parse_stations(head) else {
            return self.handle(now, store, ingress, frame);
        };
        let addresses = stations.addresses();
        let from = port_mut(&mut self.ports, ingress);
        let station_port = from.station_port;
        if stations.are_untagged() {
            if len_bytes > from.known_bytes_max {
                return self.handle(now, store, ingress, frame);
            }
            let class = self.classifier.class_untagged(from, &stations, head);
            let origin = Origin::new(ingress, class.priority());
            let (vlan, vlan_key, tags) = (from.untagged_vlan, from.untagged_key, Tags::NONE);
            let source = vlan_key ^ addresses.source;
            let Some((place, is_known)) = hear(
                now,
                from,
                &mut self.macs,
                vlan_key ^ addresses.destination,
                source,
                len_bytes,
            ) else {
                return self.handle(now, store, ingress, frame);
            };
            if !is_known {
                self.learn(now, source, station_port);
            }
            let arrival = Arrival { now, ingress, vlan, vlan_key, tags, class, origin, addresses };
            return self.pass_known::<false, S>(store, arrival, place, false, frame);
        }
        let Some(tag) = classify::parse_tag(&stations, head) else {
            return self.handle(now, store, ingress, frame);
        };
        let ports = self.vlans.get(tag.vlan());
        if !ports.members.contains(ingress.index())
            || len_bytes - TAG_BYTES > from.known_tagged_bytes_max
        {
            return self.handle(now, store, ingress, frame);
        }
        let class = self.classifier.class_tagged(from, tag, head);
        let origin = Origin::new(ingress, class.priority());
        let (vlan, vlan_key, tags) = (tag.vlan(), ports.key, tag.tags());
        let source = vlan_key ^ addresses.source;
        let Some((place, is_known)) =
            hear(now, from, &mut self.macs, vlan_key ^ addresses.destination, source, len_bytes)
        else {
            return self.handle(now, store, ingress, frame);
        };
        let keeps_tag = ports.tagged.contains(place);
        if !is_known {
            self.learn(now, source, station_port);
        }
        let arrival = Arrival { now, ingress, vlan, vlan_key, tags, class, origin, addresses };
        self.pass_known::<true, S>(store, arrival, place, keeps_tag, frame);
    }

    /// The rest of the way of a frame that has been counted and learned from.
    #[inline(always)]
    fn pass_known<const TAGGED: bool, S: FrameStore>(
        &mut self,
        store: &mut S,
        arrival: Arrival,
        place: usize,
        keeps_tag: bool,
        frame: ParkedFrame,
    ) {
        let Arrival { now, ingress, vlan, vlan_key, tags, class, origin, addresses } = arrival;
        // Put together where it is needed, so that on the way it is in no memory.
        let arrival = || Arrival { now, ingress, vlan, vlan_key, tags, class, origin, addresses };
        let len_bytes = frame.len_bytes();
        let egress = PortId::at(place);
        let Some(to) = self.ports.get_mut(place) else {
            return self.go_on_from_known(store, arrival(), egress, frame);
        };
        let queue = class.queue();
        let bytes = to.queue(queue).bytes_with(len_bytes);
        let cells = self.egress.memory.cells().of_frame(len_bytes);
        let leaves_as_it_came = if TAGGED { keeps_tag } else { to.untagged_key == vlan_key };
        let untagged_bytes = if TAGGED { len_bytes - TAG_BYTES } else { len_bytes };
        if place == ingress.index()
            || !leaves_as_it_came
            || !to.up_and_carries(untagged_bytes)
            || !to.queue(queue).has_held(bytes)
            || !self.egress.memory.admit_again(origin.account(egress, queue), cells)
        {
            return self.go_on_from_known(store, arrival(), egress, frame);
        }
        let meta = Meta { enqueued_at: now, cells, origin };
        self.egress.enqueue(to, egress, queue, bytes, frame, meta);
    }

    /// The long way of a plain frame that has been counted and learned from.
    #[inline(never)]
    fn handle_known<S: FrameStore>(
        &mut self,
        now: Time,
        store: &mut S,
        ingress: PortId,
        frame: ParkedFrame,
    ) {
        let head = store.head(&frame);
        let known = self.inspect(now, ingress, frame.len_bytes(), head).map(|arrival| {
            let destination = self.look_up(&arrival);
            (arrival, destination)
        });
        match known {
            Ok((arrival, Some(destination))) => self.go_on(store, arrival, destination, frame),
            // Which the short way has excluded.
            Ok((_, None)) => self.discard(store, ingress, DropReason::NoDestination, frame),
            Err(reason) => self.discard(store, ingress, reason, frame),
        }
    }

    /// The same for a frame that has been looked into.
    #[inline(never)]
    fn go_on_from_known<S: FrameStore>(
        &mut self,
        store: &mut S,
        arrival: Arrival,
        destination: PortId,
        frame: ParkedFrame,
    ) {
        self.go_on(store, arrival, destination, frame);
    }
}

/// Counts a frame of `len_bytes` from one station to another that has come by a port, unless the
/// destination is unknown: then None. Gives the place where that is, and whether the source was known
/// to be here.
#[inline(always)]
fn hear(
    now: Time,
    from: &mut Port,
    macs: &mut MacTable,
    destination: u64,
    source: u64,
    len_bytes: u32,
) -> Option<(usize, bool)> {
    let value = match macs.value_at_home(destination) {
        Some(value) => value,
        None => macs.value_elsewhere(destination),
    };
    let place = mac_table::place_unless_expired(value, now)?;
    from.counters.received(len_bytes);
    Some((place, macs.refresh(now, source, from.station_port)))
}
