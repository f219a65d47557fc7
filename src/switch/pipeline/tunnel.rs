//! VXLAN in the pipeline: frames to stations behind remote tunnel endpoints, and frames from them.
//!
//! A remote endpoint is a port that is none: the MAC table learns stations behind it, the look-up
//! leads to it, a flood goes to it in a copy.

use super::Switch;
use super::ingress::Arrival;
use super::layer3::{Beyond, Place, port_of_remote};
use crate::frame::{FrameStore, HEADROOM_BYTES_MIN, ParkedFrame};
use crate::ledger::DropReason;
use crate::switch::classify::{self, Tags};
use crate::switch::config::group_of;
use crate::switch::vlan::TagChange;
use crate::switch::vtep::{Flight, Inside};
use crate::wire::{ethernet, vxlan};

/// Bytes that go before a frame for another endpoint.
const PUSHED_BYTES: usize = ethernet::HEADER_BYTES + vxlan::OUTER_BYTES;

impl Switch {
    /// The endpoints that a flood of a VLAN goes to.
    pub(super) fn remotes_of(&self, vlan: u16) -> &[u16] {
        let vtep = self.layer3.as_ref().and_then(|layer3| layer3.vtep.as_ref());
        vtep.map_or(&[], |vtep| vtep.floods(vlan))
    }

    /// Sends a frame to a remote endpoint in an outer header.
    pub(super) fn send_to_remote<S: FrameStore>(
        &mut self,
        store: &mut S,
        arrival: &Arrival,
        remote: u16,
        mut frame: ParkedFrame,
    ) {
        // The network stands for the VLAN: no tag travels (RFC 7348 section 6.1).
        if !arrival.tags.is_none() && !TagChange::Pop.apply(store, &mut frame) {
            return self.discard(store, arrival.ingress, DropReason::NoHeadroom, frame);
        }
        let arrival = Arrival { tags: Tags::NONE, ..*arrival };
        let frame_bytes = frame.len_bytes();
        let pushed = u32::try_from(PUSHED_BYTES).unwrap_or(0);
        let Some(layer3) = &mut self.layer3 else { return };
        let flow = layer3.flow_of(store.head(&frame), &arrival, frame_bytes);
        let [.., high, low] = flow.to_be_bytes();
        let flow_hash = u16::from_be_bytes([high, low]);
        let flight = Flight { remote, vlan: arrival.vlan, flow_hash, frame_bytes };
        let written = if store.push_head(&mut frame, pushed) {
            let head = store.head_mut(&mut frame);
            let (outer, inner) = head.split_at_mut(PUSHED_BYTES.min(head.len()));
            let outer = outer.get_mut(ethernet::HEADER_BYTES..).unwrap_or_default();
            let vtep = layer3.vtep.as_ref().ok_or(DropReason::UnknownVtep);
            vtep.and_then(|vtep| vtep.write_outer(flight, inner, outer))
        } else {
            Err(DropReason::NoHeadroom)
        };
        match written {
            Ok(()) => self.route_own(store, &arrival, frame),
            Err(reason) => self.discard(store, arrival.ingress, reason, frame),
        }
    }

    /// A packet for one of the router's own addresses.
    pub(super) fn take_local<S: FrameStore>(
        &mut self,
        store: &mut S,
        arrival: &Arrival,
        place: Place,
        mut frame: ParkedFrame,
    ) {
        let Place { start, end, .. } = place;
        let vtep = self.layer3.as_ref().and_then(|layer3| layer3.vtep.as_ref());
        let head = store.head_mut(&mut frame);
        let shown = end.min(head.len());
        let packet = head.get_mut(start..shown).unwrap_or_default();
        let inside = match vtep.map_or(Ok(None), |vtep| vtep.look_inside(packet)) {
            Ok(Some(inside)) => inside,
            Ok(None) => return self.stray(store, arrival, frame),
            Err(reason) => return self.discard(store, arrival.ingress, reason, frame),
        };
        let frame_at = u32::try_from(start + inside.frame_at).unwrap_or(u32::MAX);
        if frame_at > HEADROOM_BYTES_MIN {
            return self.discard(store, arrival.ingress, DropReason::HeadersTooLong, frame);
        }
        store.truncate(&mut frame, u32::try_from(end).unwrap_or(u32::MAX));
        store.pull_head(&mut frame, frame_at);
        self.take_from_remote(store, arrival, inside, frame);
    }

    /// A frame of a network that came from a remote endpoint: learned there, and then forwarded like
    /// any other, but never to another endpoint.
    fn take_from_remote<S: FrameStore>(
        &mut self,
        store: &mut S,
        arrival: &Arrival,
        inside: Inside,
        frame: ParkedFrame,
    ) {
        let addresses = match classify::parse(store.head(&frame)) {
            Ok(addresses) if !addresses.is_from_group() => addresses,
            Ok(_) => {
                let reason = DropReason::SourceMulticast;
                return self.discard(store, arrival.ingress, reason, frame);
            }
            Err(reason) => return self.discard(store, arrival.ingress, reason, frame),
        };
        let vlan = inside.vlan;
        let vlan_key = self.vlans.get(vlan).key;
        let arrival = Arrival { vlan, vlan_key, tags: Tags::NONE, addresses, ..*arrival };
        let (now, station) = (arrival.now, vlan_key ^ addresses.source);
        let remote = port_of_remote(inside.remote);
        if !self.macs.refresh(now, station, remote) {
            self.learn(now, station, remote);
        }
        match self.look_up(&arrival) {
            None if addresses.is_to_link_local() => {
                self.discard(store, arrival.ingress, DropReason::LinkLocal, frame);
            }
            None => {
                let mut targets = self.vlans.get(vlan).flood.and(self.up);
                let (head, len_bytes) = (store.head(&frame), frame.len_bytes());
                self.flood_aggregations_once(&arrival, head, len_bytes, &mut targets);
                self.flood_to(store, &arrival, targets, 0, frame);
            }
            Some(destination) if group_of(destination).is_some() => {
                let leaves = self.leave_by(store, &arrival, destination, frame);
                let Some((egress, frame)) = leaves else { return };
                let tag = self.tag_change(&arrival, egress);
                self.forward(store, &arrival, egress, tag, frame);
            }
            Some(egress) if egress.index() < self.ports.len() => {
                let tag = self.tag_change(&arrival, egress);
                self.forward(store, &arrival, egress, tag, frame);
            }
            Some(egress) if Beyond::of(egress) == Beyond::Router => {
                self.go_beyond(store, &arrival, egress, frame);
            }
            Some(_) => self.discard(store, arrival.ingress, DropReason::SamePort, frame),
        }
    }
}
