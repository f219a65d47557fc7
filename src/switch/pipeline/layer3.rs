//! Frames for the router's own MAC address: routing in place, outer headers on and off, ICMP errors.
//!
//! The router's addresses are stations of the MAC table, behind a port that is none: the look-up that
//! every frame has finds them, and a switch without router pays nothing. What the router decides is
//! carried out here: the frame's start and end move, a member of the group is chosen, its addresses
//! are written, and the frame goes on as any other to its egress port.

use super::ingress::Arrival;
use super::{Switch, port_of};
use crate::frame::{FrameStore, ParkedFrame};
use crate::ledger::DropReason;
use crate::node::PortId;
use crate::rng::Rng;
use crate::switch::balance::{self, FlowHash, Group, HashAlgorithm, Loads};
use crate::switch::check::SwitchConfigError;
use crate::switch::classify::Tags;
use crate::switch::config::SwitchConfig;
use crate::switch::mac_table::{MacTable, key_of};
use crate::switch::port::Port;
use crate::switch::queue::Origin;
use crate::switch::route::{Adjacency, ERROR_BYTES_MAX, InnerPacket, Packet, Router, Verdict, Way};
use crate::switch::vlan::{TagChange, Vlans};
use crate::switch::vtep::Vtep;
use crate::wire::icmp_error::IcmpError;

/// Where the router's own stations live in the MAC table: behind no port.
const ROUTER: PortId = PortId(0x7fff);

/// Where the stations behind the first remote tunnel endpoint live; the next is behind the next.
const REMOTES_FROM: u16 = 0x4000;

/// Bytes of an Ethernet header without tags.
const ETHERNET_BYTES: usize = 14;

/// The part of a switch that routes.
#[derive(Debug)]
pub(super) struct Layer3 {
    pub(super) paths: Paths,
    pub(super) vtep: Option<Vtep>,
    /// The hash of flows that becomes a flow label or a source port in the underlay.
    pub(super) flow_hash: FlowHash,
    /// Where the bytes of a packet are put together that an error quotes.
    quoted: Vec<u8>,
    /// Where an error is written.
    error: Box<[u8; ETHERNET_BYTES + ERROR_BYTES_MAX]>,
    pub(super) generated: u64,
}

/// The router, and the choice among the next hops that it leaves.
#[derive(Debug)]
pub(super) struct Paths {
    pub(super) router: Router,
    /// How each group of next hops chooses; None where there is one.
    groups: Vec<Option<Group>>,
    rng: Rng,
}

/// What is behind a port that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beyond {
    /// The router.
    Router,
    /// A remote tunnel endpoint, by its number.
    Remote(u16),
}

impl Beyond {
    /// What a port of the MAC table stands for that the switch does not have.
    pub(super) const fn of(port: PortId) -> Self {
        if port.0 == ROUTER.0 { Self::Router } else { Self::Remote(port.0 - REMOTES_FROM) }
    }
}

/// The port of the MAC table for stations behind a remote endpoint.
pub(super) const fn port_of_remote(remote: u16) -> PortId {
    PortId(REMOTES_FROM + remote)
}

/// What ports are loaded with.
struct PortLoads<'a>(&'a [Port]);

impl Loads for PortLoads<'_> {
    fn queue_bytes(&self, port: PortId) -> u64 {
        port_of(self.0, port).queues.iter().map(|queue| queue.bytes()).sum()
    }

    fn tx_bytes(&self, port: PortId) -> u64 {
        port_of(self.0, port).counters.tx_bytes
    }
}

impl Layer3 {
    /// The routing part of a switch that is configured for it. Its stations enter the MAC table.
    pub(super) fn new(
        config: &SwitchConfig,
        vlans: &Vlans,
        macs: &mut MacTable,
    ) -> Result<Option<Box<Self>>, SwitchConfigError> {
        let Some(router_config) = &config.router else { return Ok(None) };
        let router = Router::new(router_config, &config.ports);
        let mut rng = Rng::for_node(config.seed, &format!("{}/router", config.name));
        let mut groups = Vec::new();
        for balance in router.balances(&config.ports) {
            let group = balance.map(|balance| Group::new(&balance, &mut rng)).transpose();
            groups.push(group.map_err(|error| {
                SwitchConfigError::no_such(config, "router", error.to_string())
            })?);
        }
        for (port, port_config) in config.ports.iter().enumerate() {
            let mac = router_config.mac.unwrap_or(port_config.mac).as_u64();
            for vlan in vlans.numbers_of(port) {
                if !macs.insert_static(key_of(vlan, mac), ROUTER) {
                    let problem = "the router's addresses do not fit: raise it";
                    return Err(SwitchConfigError::no_such(
                        config,
                        "mac_table_entries",
                        problem.to_owned(),
                    ));
                }
            }
        }
        let mtu_bytes = config.ports.iter().map(|port| port.mtu_bytes).max().unwrap_or(0);
        Ok(Some(Box::new(Self {
            paths: Paths { router, groups, rng },
            vtep: config.vtep.as_ref().map(Vtep::new),
            flow_hash: FlowHash::new(balance::Fields::FIVE_TUPLE, HashAlgorithm::Murmur3, 0),
            quoted: Vec::with_capacity(mtu_bytes as usize + 64),
            error: Box::new([0; ETHERNET_BYTES + ERROR_BYTES_MAX]),
            generated: 0,
        })))
    }

    /// The groups of more than one next hop.
    pub(super) fn groups(&self) -> impl Iterator<Item = &Group> {
        self.paths.groups.iter().flatten()
    }

    /// The link of a port went down or up.
    pub(super) fn set_up(&mut self, port: PortId, up: bool) {
        for group in self.paths.groups.iter_mut().flatten() {
            group.set_up(port, up);
        }
    }

    /// The hash of the flow of a frame.
    pub(super) fn flow_of(&self, head: &[u8], arrival: &Arrival, len_bytes: u32) -> u32 {
        let tag_bytes = arrival.tags.bytes();
        let seen = balance::Packet { head, tag_bytes, len_bytes, ingress: arrival.ingress };
        self.flow_hash.of(&seen)
    }
}

impl Paths {
    /// Chooses the next hop of a packet in a group, None when no link to one is up, and writes its
    /// Ethernet header.
    #[inline(always)]
    fn send(
        &mut self,
        group: u32,
        packet: &mut Packet<'_>,
        arrival: &Arrival,
        ports: &[Port],
    ) -> Option<Adjacency> {
        let next = match self.groups.get_mut(group as usize) {
            Some(Some(balance)) => {
                let head = packet.head.get(packet.start - ETHERNET_BYTES..).unwrap_or_default();
                let len_bytes = packet.end - packet.start + ETHERNET_BYTES;
                let len_bytes = u32::try_from(len_bytes).unwrap_or(u32::MAX);
                let seen =
                    balance::Packet { head, tag_bytes: 0, len_bytes, ingress: arrival.ingress };
                let member =
                    balance.choose(&seen, &PortLoads(ports), arrival.now, &mut self.rng)?;
                self.router.members(group).get(member.index())?
            }
            _ => self.router.members(group).first()?,
        };
        write_ethernet(packet, next);
        Some(*next)
    }
}

/// Writes the Ethernet header for a next hop right before the packet.
#[inline(always)]
fn write_ethernet(packet: &mut Packet<'_>, next: &Adjacency) {
    let from = packet.start - ETHERNET_BYTES;
    if let Some([addresses @ .., t0, t1, version]) =
        packet.head.get_mut(from..).and_then(|head| head.first_chunk_mut::<15>())
    {
        *addresses = next.addresses;
        [*t0, *t1] = if *version >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xdd] };
    }
}

/// Where a packet lies in its frame once it has been routed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) start: usize,
    pub(super) end: usize,
    /// That it came with.
    hop_limit: u8,
}

impl Place {
    #[inline(always)]
    const fn of(packet: &Packet<'_>) -> Self {
        Self { start: packet.start, end: packet.end, hop_limit: packet.received_hop_limit }
    }
}

impl Switch {
    /// A frame that was counted and learned from, for a station behind no port.
    #[inline(never)]
    pub(super) fn go_beyond<S: FrameStore>(
        &mut self,
        store: &mut S,
        arrival: &Arrival,
        port: PortId,
        frame: ParkedFrame,
    ) {
        match Beyond::of(port) {
            Beyond::Router => self.route(store, arrival, frame),
            Beyond::Remote(remote) => self.send_to_remote(store, arrival, remote, frame),
        }
    }

    /// Routes a frame for the router's MAC address.
    #[inline(always)]
    fn route<S: FrameStore>(&mut self, store: &mut S, arrival: &Arrival, mut frame: ParkedFrame) {
        let start = ETHERNET_BYTES + arrival.tags.bytes() as usize;
        let len_bytes = frame.len_bytes() as usize;
        let Some(layer3) = &mut self.layer3 else { return self.stray(store, arrival, frame) };
        let head = store.head_mut(&mut frame);
        if !matches!(head.get(start - 2..start), Some([0x08, 0x00] | [0x86, 0xdd])) {
            return self.stray(store, arrival, frame);
        }
        let mut packet = Packet::new(head, start, len_bytes);
        if let Some(policy) = layer3.paths.router.encapsulation(arrival.ingress, &packet) {
            return self.encapsulate(store, arrival, policy, frame);
        }
        match layer3.paths.router.route(&mut packet) {
            Verdict::Forward(group) => {
                let next = layer3.paths.send(group, &mut packet, arrival, &self.ports);
                let place = Place::of(&packet);
                self.leave(store, arrival, place, next, frame);
            }
            verdict => {
                let place = Place::of(&packet);
                self.settle(store, arrival, verdict, place, frame);
            }
        }
    }

    /// Routes a packet of this switch's own making, or under its own outer header, which begins behind
    /// an Ethernet header without tags.
    pub(super) fn route_own<S: FrameStore>(
        &mut self,
        store: &mut S,
        arrival: &Arrival,
        mut frame: ParkedFrame,
    ) {
        let len_bytes = frame.len_bytes() as usize;
        let Some(layer3) = &mut self.layer3 else { return self.stray(store, arrival, frame) };
        let mut packet = Packet::new(store.head_mut(&mut frame), ETHERNET_BYTES, len_bytes);
        match layer3.paths.router.route_own(&mut packet) {
            Verdict::Forward(group) => {
                let next = layer3.paths.send(group, &mut packet, arrival, &self.ports);
                let place = Place::of(&packet);
                self.leave(store, arrival, place, next, frame);
            }
            verdict => {
                let place = Place::of(&packet);
                self.settle(store, arrival, verdict, place, frame);
            }
        }
    }

    /// A packet whose next hop was chosen and whose Ethernet header is written leaves by it, or is too
    /// long for it.
    #[inline(always)]
    fn leave<S: FrameStore>(
        &mut self,
        store: &mut S,
        arrival: &Arrival,
        place: Place,
        next: Option<Adjacency>,
        mut frame: ParkedFrame,
    ) {
        let Some(next) = next else {
            return self.discard(store, arrival.ingress, DropReason::NoNextHop, frame);
        };
        let Place { start, end, .. } = place;
        let pulled = start - ETHERNET_BYTES;
        let out_bytes = u32::try_from(end - pulled).unwrap_or(u32::MAX);
        let port = port_of(&self.ports, next.port);
        if !port.up_and_carries(out_bytes) && port.is_up() {
            let mtu_bytes = self.config.ports[next.port.index()].mtu_bytes;
            let mtu_bytes = u16::try_from(mtu_bytes).unwrap_or(u16::MAX);
            let error = IcmpError::TooBig { mtu_bytes };
            let verdict = Verdict::Refuse(DropReason::EgressMtu, error);
            return self.settle(store, arrival, verdict, place, frame);
        }
        let vlan = if next.vlan == 0 { port.untagged_vlan } else { next.vlan };
        let is_untagged = port.untagged_vlan == vlan;
        // Most frames leave as long as they came, and as bare.
        if frame.len_bytes() == out_bytes && pulled == 0 && is_untagged {
            return self.forward(store, arrival, next.port, Ok(TagChange::Keep), frame);
        }
        if pulled > 0 {
            store.pull_head(&mut frame, u32::try_from(pulled).unwrap_or(0));
        }
        if frame.len_bytes() > out_bytes {
            store.truncate(&mut frame, out_bytes);
        }
        let mut arrival = Arrival { tags: Tags::NONE, vlan, ..*arrival };
        if self.prevention.is_some() {
            self.unhook(store, &mut arrival, next.port, &mut frame);
        }
        let tag =
            if is_untagged { Ok(TagChange::Keep) } else { self.tag_change(&arrival, next.port) };
        self.forward(store, &arrival, next.port, tag, frame);
    }

    /// What becomes of a packet that is not forwarded.
    #[cold]
    #[inline(never)]
    fn settle<S: FrameStore>(
        &mut self,
        store: &mut S,
        arrival: &Arrival,
        verdict: Verdict,
        place: Place,
        frame: ParkedFrame,
    ) {
        match verdict {
            Verdict::Refuse(reason, error) => {
                self.tell_source(store, arrival, error, place, &frame);
                self.discard(store, arrival.ingress, reason, frame);
            }
            Verdict::Drop(reason) => self.discard(store, arrival.ingress, reason, frame),
            Verdict::Local => self.take_local(store, arrival, place, frame),
            // No path leads here with it.
            Verdict::Forward(_) => self.stray(store, arrival, frame),
        }
    }

    /// Sends an ICMP error about a packet, if there is to be one.
    fn tell_source<S: FrameStore>(
        &mut self,
        store: &mut S,
        arrival: &Arrival,
        error: IcmpError,
        place: Place,
        frame: &ParkedFrame,
    ) {
        let Some(layer3) = &mut self.layer3 else { return };
        layer3.quoted.clear();
        store.copy_out(frame, &mut layer3.quoted);
        let end = place.end.min(layer3.quoted.len());
        let mut quoted = Packet::new(&mut layer3.quoted, place.start.min(end), end);
        quoted.received_hop_limit = place.hop_limit;
        quoted.restore_hop_limit();
        let buffer = &mut layer3.error[ETHERNET_BYTES..];
        let (now, ingress) = (arrival.now, arrival.ingress);
        let written = layer3.paths.router.error(now, ingress, error, quoted.bytes(), buffer);
        let Some((way, len)) = written else { return };
        let len_bytes = ETHERNET_BYTES + len;
        let mut packet = Packet::new(&mut layer3.error[..len_bytes], ETHERNET_BYTES, len_bytes);
        let next = match way {
            Way::Group(group) => layer3.paths.send(group, &mut packet, arrival, &self.ports),
            Way::Direct(next) => {
                write_ethernet(&mut packet, &next);
                Some(next)
            }
        };
        let place = Place::of(&packet);
        layer3.generated += 1;
        match store.allocate_from(&layer3.error[..len_bytes]) {
            None => self.ports[ingress.index()].counters.dropped(DropReason::NoFrameForCopy),
            Some(frame) => {
                let class = port_of(&self.ports, ingress).default_class;
                let origin = Origin::new(ingress, class.priority());
                let arrival = Arrival { class, origin, tags: Tags::NONE, ..*arrival };
                self.leave(store, &arrival, place, next, ParkedFrame::new(frame));
            }
        }
    }

    /// A packet of a policy gets its outer header and is routed by that.
    #[inline(never)]
    fn encapsulate<S: FrameStore>(
        &mut self,
        store: &mut S,
        arrival: &Arrival,
        policy: usize,
        mut frame: ParkedFrame,
    ) {
        let start = ETHERNET_BYTES + arrival.tags.bytes() as usize;
        let len_bytes = frame.len_bytes();
        let Some(layer3) = &mut self.layer3 else { return self.stray(store, arrival, frame) };
        let flow = layer3.flow_of(store.head(&frame), arrival, len_bytes);
        let mut packet = Packet::new(store.head_mut(&mut frame), start, len_bytes as usize);
        if let Some(verdict) = layer3.paths.router.hop(&mut packet) {
            let place = Place::of(&packet);
            return self.settle(store, arrival, verdict, place, frame);
        }
        let inner = InnerPacket::read(&packet);
        let end_bytes = u32::try_from(packet.end).unwrap_or(len_bytes);
        store.truncate(&mut frame, end_bytes);
        store.pull_head(&mut frame, arrival.tags.bytes());
        let policy = layer3.paths.router.policy(policy);
        let outer_bytes = u32::try_from(policy.outer_bytes()).unwrap_or(u32::MAX);
        if !store.push_head(&mut frame, outer_bytes) {
            return self.discard(store, arrival.ingress, DropReason::NoHeadroom, frame);
        }
        let outer = store.head_mut(&mut frame).get_mut(ETHERNET_BYTES..).unwrap_or_default();
        if policy.write(outer, inner, flow, &layer3.paths.router).is_err() {
            return self.discard(store, arrival.ingress, DropReason::NoHeadroom, frame);
        }
        let arrival = Arrival { tags: Tags::NONE, ..*arrival };
        self.route_own(store, &arrival, frame);
    }

    /// A frame for the router's MAC address, or a packet for one of its IP addresses, that it has no
    /// use for.
    #[cold]
    pub(super) fn stray<S: FrameStore>(
        &mut self,
        store: &mut S,
        arrival: &Arrival,
        frame: ParkedFrame,
    ) {
        self.discard(store, arrival.ingress, DropReason::Unhandled, frame);
    }
}
