//! From a destination that is a group to one of its ports.

use super::Switch;
use super::ingress::Arrival;
use crate::frame::{FrameStore, ParkedFrame};
use crate::ledger::DropReason;
use crate::node::PortId;
use crate::rng::Rng;
use crate::switch::balance::{Group, GroupConfigError, Loads, MemberId, Packet};
use crate::switch::config::{PortGroupKind, SwitchConfig, group_of, group_port};
use crate::switch::port::Port;
use crate::switch::port_set::PortSet;
use crate::time::Time;

/// A switch's groups.
#[derive(Debug)]
pub(super) struct Groups {
    all: Vec<Group>,
    /// The aggregations among them, with their ports.
    aggregations: Vec<(usize, PortSet)>,
}

impl Groups {
    pub(super) fn new(config: &SwitchConfig, rng: &mut Rng) -> Result<Self, GroupConfigError> {
        let build = |group: &crate::switch::config::PortGroup| Group::new(&group.group, &mut *rng);
        let all = config.groups.iter().map(build).collect::<Result<Vec<_>, _>>()?;
        let mut aggregations = Vec::new();
        for (index, group) in config.groups.iter().enumerate() {
            if group.kind == PortGroupKind::Aggregation {
                let mut ports = PortSet::default();
                for member in &group.group.members {
                    ports.insert(member.port.index());
                }
                aggregations.push((index, ports));
            }
        }
        Ok(Self { all, aggregations })
    }

    /// The destination under which stations behind a port are learned: its aggregation, or itself.
    pub(super) fn station_port(&self, port: PortId) -> PortId {
        let mut aggregations = self.aggregations.iter();
        let of_port = aggregations.find(|(_, ports)| ports.contains(port.index()));
        of_port.map_or(port, |(index, _)| group_port(*index))
    }

    /// The link of a port went down or up.
    pub(super) fn set_up(&mut self, port: PortId, up: bool) {
        for group in &mut self.all {
            group.set_up(port, up);
        }
    }

    /// Whether no port of a destination is up, which is a port that has gone down or its aggregation.
    pub(super) fn is_down(&self, destination: PortId) -> bool {
        group_of(destination)
            .and_then(|index| self.all.get(index))
            .is_none_or(|group| group.members().live().is_empty())
    }

    pub(super) fn get(&self, index: usize) -> Option<&Group> {
        self.all.get(index)
    }
}

/// What the ports are loaded with.
struct PortLoads<'a>(&'a [Port]);

impl Loads for PortLoads<'_> {
    #[inline]
    fn queue_bytes(&self, port: PortId) -> u64 {
        self.0.get(port.index()).map_or(0, Port::queue_bytes)
    }

    #[inline]
    fn tx_bytes(&self, port: PortId) -> u64 {
        self.0.get(port.index()).map_or(0, |port| port.counters.tx_bytes)
    }
}

impl Switch {
    /// A group of ports, by its place in the configuration.
    pub fn group(&self, index: usize) -> Option<&Group> {
        self.groups.get(index)
    }

    /// The groups of next hops that routes have, where there is more than one.
    pub fn route_groups(&self) -> impl Iterator<Item = &Group> {
        self.layer3.iter().flat_map(|layer3| layer3.groups())
    }

    /// The port by which a frame leaves that goes to the group `destination`.
    ///
    /// # Errors
    /// The port at which it counts as dropped for a link that is down, since no member is up.
    #[inline(always)]
    pub(super) fn member_for(
        &mut self,
        now: Time,
        destination: PortId,
        packet: &Packet<'_>,
    ) -> Result<PortId, PortId> {
        let group = group_of(destination).and_then(|index| self.groups.all.get_mut(index));
        let Some(group) = group else { return Err(packet.ingress) };
        match group.choose_port(packet, &PortLoads(&self.ports), now, &mut self.rng) {
            Some(port) => Ok(port),
            None => Err(group.port(MemberId(0))),
        }
    }

    /// The port by which a frame leaves that goes to `destination`, a port or a group; None when it
    /// was dropped, because no port of the group is up.
    #[inline(always)]
    pub(super) fn leave_by<S: FrameStore>(
        &mut self,
        store: &mut S,
        arrival: &Arrival,
        destination: PortId,
        frame: ParkedFrame,
    ) -> Option<(PortId, ParkedFrame)> {
        if group_of(destination).is_none() {
            return Some((destination, frame));
        }
        let packet = arrival.packet(store.head(&frame), frame.len_bytes());
        match self.member_for(arrival.now, destination, &packet) {
            Ok(egress) => Some((egress, frame)),
            Err(port) => {
                self.discard(store, port, DropReason::LinkDown, frame);
                None
            }
        }
    }

    /// Leaves one port of each aggregation among the targets of a flood, and none of that which the
    /// frame came by.
    pub(super) fn flood_aggregations_once(
        &mut self,
        arrival: &Arrival,
        head: &[u8],
        len_bytes: u32,
        targets: &mut PortSet,
    ) {
        for at in 0..self.groups.aggregations.len() {
            let (index, ports) = self.groups.aggregations[at];
            let floods = !targets.and(ports).is_empty();
            targets.subtract(ports);
            if !floods || ports.contains(arrival.ingress.index()) {
                continue;
            }
            let packet = arrival.packet(head, len_bytes);
            if let Ok(port) = self.member_for(arrival.now, group_port(index), &packet) {
                targets.insert(port.index());
            }
        }
    }
}

impl Arrival {
    /// The frame as a path choice sees it.
    #[inline]
    fn packet<'a>(&self, head: &'a [u8], len_bytes: u32) -> Packet<'a> {
        Packet { head, tag_bytes: self.tags.bytes(), len_bytes, ingress: self.ingress }
    }
}
