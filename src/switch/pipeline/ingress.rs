//! From a frame's arrival to its destination.

use super::{Switch, port_mut, port_of};
use crate::frame::{FrameStore, ParkedFrame};
use crate::ledger::DropReason;
use crate::node::PortId;
use crate::switch::classify::{self, Addresses, Class, Tags};
use crate::switch::prevention;
use crate::switch::queue::Origin;
use crate::time::Time;
use crate::wire::pfc::is_mac_control;

/// What the ingress stages found out about a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) now: Time,
    pub(super) ingress: PortId,
    pub(super) vlan: u16,
    /// The VLAN at its place in the MAC table's keys.
    pub(super) vlan_key: u64,
    /// The tags that it came with.
    pub(super) tags: Tags,
    /// With which it goes on.
    pub(super) class: Class,
    /// Where its memory is accounted.
    pub(super) origin: Origin,
    pub(super) addresses: Addresses,
}

impl Switch {
    /// The first stages: checks, VLAN, class.
    ///
    /// # Errors
    /// Why the frame goes no further.
    #[inline(always)]
    pub(super) fn inspect(
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
        // A port is a member of the VLAN of its untagged frames, if it has one.
        let (vlan, vlan_key, is_member) = match tags.vlan() {
            None => (port.untagged_vlan, port.untagged_key, port.untagged_vlan != 0),
            Some(number) => {
                let vlan = self.vlans.get(number);
                (number, vlan.key, vlan.members.contains(ingress.index()))
            }
        };
        if !is_member {
            return Err(if addresses.is_to_link_local() {
                DropReason::LinkLocal
            } else {
                DropReason::VlanIngress
            });
        }
        let class = self.classifier.classify(port.trust, port.default_class, tags, head);
        if port.drops(class.priority()) {
            return Err(DropReason::Watchdog);
        }
        let origin = Origin::new(ingress, class.priority());
        Ok(Arrival { now, ingress, vlan, vlan_key, tags, class, origin, addresses })
    }

    /// What becomes of a frame that has arrived, whatever it is.
    #[inline(never)]
    pub(super) fn handle<S: FrameStore>(
        &mut self,
        now: Time,
        store: &mut S,
        ingress: PortId,
        frame: ParkedFrame,
    ) {
        let len_bytes = frame.len_bytes();
        let head = store.head(&frame);
        if is_mac_control(head) {
            return self.take_mac_control(now, store, ingress, frame);
        }
        let arrival = match self.inspect(now, ingress, len_bytes, head) {
            Ok(arrival) => arrival,
            Err(reason) => return self.refuse(store, ingress, reason, frame),
        };
        let Some(destination) = self.look_up(&arrival) else {
            port_mut(&mut self.ports, ingress).counters.received(len_bytes);
            return self.flood(store, arrival, frame);
        };
        let port = port_mut(&mut self.ports, ingress);
        port.counters.received(len_bytes);
        let station_port = port.station_port;
        if port.flood {
            let source = arrival.vlan_key ^ arrival.addresses.source;
            if !self.macs.refresh(now, source, station_port) {
                self.learn(now, source, station_port);
            }
        }
        self.go_on(store, arrival, destination, frame);
    }

    /// The way of a frame that has been counted and learned from, to a port, a group or beyond.
    #[inline(always)]
    pub(super) fn go_on<S: FrameStore>(
        &mut self,
        store: &mut S,
        mut arrival: Arrival,
        destination: PortId,
        frame: ParkedFrame,
    ) {
        let ingress = arrival.ingress;
        if destination == port_of(&self.ports, ingress).station_port {
            return self.discard(store, ingress, DropReason::SamePort, frame);
        }
        let Some((egress, mut frame)) = self.leave_by(store, &arrival, destination, frame) else {
            return;
        };
        if egress.index() >= self.ports.len() {
            return self.go_beyond(store, &arrival, egress, frame);
        }
        if egress.index() == ingress.index() {
            return self.discard(store, ingress, DropReason::SamePort, frame);
        }
        if self.prevention.is_some() {
            self.unhook(store, &mut arrival, egress, &mut frame);
        }
        let tag = self.tag_change(&arrival, egress);
        self.forward(store, &arrival, egress, tag, frame);
    }

    /// Moves a frame that turns back within a group of ports on to the next queue of the chain.
    #[inline(never)]
    pub(super) fn unhook<S: FrameStore>(
        &self,
        store: &mut S,
        arrival: &mut Arrival,
        egress: PortId,
        frame: &mut ParkedFrame,
    ) {
        let (ingress, priority) = (arrival.ingress.index(), arrival.class.priority());
        let step = self.prevention.as_ref();
        let step = step.and_then(|chain| chain.step(ingress, egress.index(), priority));
        let Some(step) = step else { return };
        let head = store.head_mut(frame);
        prevention::set_dscp(head, arrival.tags.count() as usize, step.dscp);
        if !arrival.tags.is_none() {
            arrival.tags = arrival.tags.with_pcp(head, step.priority);
        }
        arrival.class = self.classifier.class(step.priority);
    }

    /// The destination, a port or a group; None floods.
    #[inline(always)]
    pub(super) fn look_up(&self, arrival: &Arrival) -> Option<PortId> {
        if arrival.addresses.is_to_group() {
            return None;
        }
        self.macs.find(arrival.now, arrival.vlan_key ^ arrival.addresses.destination)
    }

    // It takes the whole switch, so that its address is all it needs to be given.
    #[cold]
    #[inline(never)]
    pub(super) fn learn(&mut self, now: Time, station: u64, port: PortId) {
        self.macs.learn(now, station, port);
        self.note_timers();
    }

    /// Drops a frame that has not passed inspection, which counts as received all the same.
    #[cold]
    #[inline(never)]
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
}
