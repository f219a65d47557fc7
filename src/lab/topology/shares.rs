//! The shares of the switches' memories: lossless priorities, classes, queues, trimming.
//!
//! A class is a priority at an ingress port. What `[switch.S.port.P.class.N]` does not say, `[switch.S.class.N]`
//! says, and what that does not say, `[defaults.switch.class.N]`; queues likewise.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;

use super::error::Issue;
use super::file::{BufferProfileName, ClassTable, LengthsName, PortTable, SwitchTable, TrimTable};
use super::resolve::{Resolver, plain, value};
use super::value::{Q, S};
use super::{Attachment, Clock, HostKind, HostNode, Link, NodeId, SwitchNode};
use crate::switch::config::QUEUES;
use crate::switch::memory::dcqcn::DCQCN_PAPER;
use crate::switch::memory::headroom::{Headroom, HeadroomNeed, PeerResponse};
use crate::switch::memory::{Alpha, GroupConfig, Lossless, PortShares};
use crate::switch::trim::TrimConfig;
use crate::switch::{PortConfig, SwitchConfig, SwitchConfigError, SwitchConfigPlace, VlanMode};
use crate::time::Duration;
use crate::units::{Bytes, Rate};

/// Frames that a worker hands over at once.
const BURST_FRAMES: u32 = 64;

/// What a VLAN tag adds to a frame.
const TAG_BYTES: u32 = 4;

/// What frames have beyond the MTU: an Ethernet header and a tag.
const BEYOND_MTU_BYTES: u64 = 18;

/// `headroom = "auto"` or a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeadroomSize {
    Auto,
    Bytes(u64),
}

impl std::str::FromStr for HeadroomSize {
    type Err = crate::units::QuantityError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "auto" { Ok(Self::Auto) } else { text.parse().map(|Bytes(n)| Self::Bytes(n)) }
    }
}

/// `peer_response = "standard"` or a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ResponseTime(PeerResponse);

impl std::str::FromStr for ResponseTime {
    type Err = crate::units::QuantityError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "standard" {
            return Ok(Self(PeerResponse::Standard));
        }
        text.parse::<Duration>().map(|time| Self(PeerResponse::Within(time)))
    }
}

/// Up to three tables that say what one class or queue is, the nearest first.
struct Layers<'a, T>([Option<&'a T>; 3]);

impl<'a, T> Layers<'a, T> {
    fn new(
        number: usize,
        own: Option<&'a BTreeMap<S<String>, T>>,
        switch: &'a BTreeMap<S<String>, T>,
        defaults: &'a BTreeMap<S<String>, T>,
    ) -> Self {
        let name = number.to_string();
        let of = |tables: &'a BTreeMap<S<String>, T>| {
            tables.iter().find(|(key, _)| *key.get_ref() == name).map(|(_, table)| table)
        };
        Self([own.and_then(of), of(switch), of(defaults)])
    }

    fn get<V>(&self, field: impl Fn(&'a T) -> Option<&'a V>) -> Option<&'a V> {
        self.0.into_iter().flatten().find_map(field)
    }
}

/// A headroom, and what of.
struct Computed {
    priorities: u8,
    need: HeadroomNeed,
    headroom: Headroom,
}

/// A headroom that was computed, for those who want to know how.
#[derive(Clone, Debug)]
pub struct ExplainedHeadroom {
    /// The port, by its place in the switch's configuration.
    pub port: usize,
    /// Its priorities that have it, as bits.
    pub priorities: u8,
    /// The terms.
    pub headroom: Headroom,
    /// What SONiC's calculation gives for the same link, with all packets of the worst size.
    pub sonic_bytes: u64,
}

impl<'a> Resolver<'a> {
    /// Fills in the shares of every switch: known once all nodes and links are.
    pub(super) fn shares(
        &mut self,
        switches: &mut [SwitchNode],
        hosts: &[HostNode],
        links: &[Link],
        clock: Clock,
        ring_entries: u32,
    ) {
        let tables = self.switch_names.clone();
        self.class_names(&self.file.defaults.switch);
        let rates: Vec<Vec<_>> = switches
            .iter()
            .map(|switch| switch.config.ports.iter().map(|port| port.rate).collect())
            .collect();
        for ((_, table), switch) in tables.into_iter().zip(switches) {
            self.class_names(table);
            for own in table.port.values() {
                self.numbers(own.class.keys(), "priority");
                self.numbers(own.queue.keys(), "queue");
            }
            let may_tag =
                switch.config.ports.iter().any(|port| matches!(port.vlan, VlanMode::Trunk { .. }));
            for index in 0..switch.config.ports.len() {
                let port = &switch.config.ports[index];
                let own = table.port.iter().find(|(key, _)| *key.get_ref() == port.name);
                let own = own.map(|(_, own)| own);
                let attachment = switch.attachments.get(index).copied();
                let mut need = HeadroomNeed {
                    rate: port.rate,
                    peer_rate: port.rate,
                    delay: Duration::ZERO,
                    mtu_bytes: port.mtu_bytes,
                    overhead_bytes: switch.config.overhead_bytes,
                    gain_bytes: if may_tag { TAG_BYTES } else { 0 },
                    peer_response: PeerResponse::Standard,
                    ring_frames: if clock == Clock::Free {
                        2 * ring_entries + BURST_FRAMES
                    } else {
                        0
                    },
                    cell_bytes: switch.config.cell_bytes,
                };
                if let Some(Attachment::Link(at, end)) = attachment {
                    let link = &links[at];
                    let peer = &link.ends[1 - end];
                    need.delay = link.impairment.delay + link.impairment.jitter;
                    let (rate, is_ours) = match peer.node {
                        NodeId::Switch(at) => (rates[at][peer.port.index()], true),
                        NodeId::Host(at) => {
                            (hosts[at].config.rate, hosts[at].kind == HostKind::Agent)
                        }
                    };
                    need.peer_rate = rate;
                    if is_ours {
                        need.peer_response = PeerResponse::Within(Duration::ZERO);
                    }
                }
                let (shares, explained) = self.port_shares(table, own, port, need);
                let port = &mut switch.config.ports[index];
                port.shares = shares;
                port.is_last_hop = match attachment {
                    Some(Attachment::Link(at, end)) => {
                        matches!(links[at].ends[1 - end].node, NodeId::Host(_))
                    }
                    Some(Attachment::External(_)) => true,
                    Some(Attachment::None) | None => false,
                };
                switch.headrooms.extend(explained.map(|computed| ExplainedHeadroom {
                    port: index,
                    priorities: computed.priorities,
                    sonic_bytes: computed.need.sonic_bytes(),
                    headroom: computed.headroom,
                }));
            }
            self.queue_limits(table, &mut switch.config);
            self.only_lossless_classes_pause(table, &switch.config);
            let trim = table.trim.as_ref().or(self.file.defaults.switch.trim.as_ref());
            switch.config.trim = trim.map(|trim| self.trim(trim));
        }
    }

    fn class_names(&mut self, table: &'a SwitchTable) {
        self.numbers(table.class.keys(), "priority");
        self.numbers(table.queue.keys(), "queue");
    }

    fn numbers(&mut self, names: impl Iterator<Item = &'a S<String>>, what: &str) {
        for name in names {
            if !name.get_ref().parse().is_ok_and(|number: usize| number < QUEUES) {
                let message = format!("a {what} is 0 to 7, not `{}`", name.get_ref());
                self.issue(Issue::new(name.span(), message));
            }
        }
    }

    /// The priorities that are lossless at a port, as bits.
    fn lossless_mask(&mut self, table: &'a SwitchTable, own: Option<&'a PortTable>) -> u8 {
        let defaults = &self.file.defaults.switch;
        let listed = own
            .and_then(|own| own.lossless.as_ref())
            .or(table.lossless.as_ref())
            .or(defaults.lossless.as_ref());
        let Some(listed) = listed else {
            return if self.profile(table).is_some() { u8::MAX } else { 0 };
        };
        if let Some(bad) = listed.get_ref().iter().find(|priority| **priority > 7) {
            self.issue(Issue::new(listed.span(), format!("a priority is 0 to 7, not {bad}")));
        }
        listed.get_ref().iter().filter(|priority| **priority < 8).fold(0, |mask, p| mask | 1 << p)
    }

    fn profile(&self, table: &'a SwitchTable) -> Option<PortShares> {
        let defaults = &self.file.defaults.switch;
        match table.buffer_profile.or(defaults.buffer_profile) {
            Some(BufferProfileName::Dcqcn) => DCQCN_PAPER.shares(),
            None => None,
        }
    }

    /// A port's shares, and the headroom that was computed for some of its priorities.
    fn port_shares(
        &mut self,
        table: &'a SwitchTable,
        own: Option<&'a PortTable>,
        port: &PortConfig,
        mut need: HeadroomNeed,
    ) -> (PortShares, Option<Computed>) {
        let defaults = &self.file.defaults.switch;
        let mask = self.lossless_mask(table, own);
        let response = own
            .and_then(|own| own.peer_response.as_ref())
            .or(table.peer_response.as_ref())
            .or(defaults.peer_response.as_ref());
        if let Some(ResponseTime(response)) = value(response) {
            need.peer_response = response;
        }
        // A rate of zero has been refused already.
        for rate in [&mut need.rate, &mut need.peer_rate] {
            *rate = (*rate).max(Rate::from_bps(1));
        }
        let headroom = need.headroom();
        let mut computed = 0;
        let mut shares = PortShares::default();
        let profile = self.profile(table);
        for (priority, group) in shares.groups.iter_mut().enumerate() {
            let layers =
                Layers::new(priority, own.map(|own| &own.class), &table.class, &defaults.class);
            let is_lossless = mask >> priority & 1 == 1;
            let base = profile.as_ref().map(|profile| profile.groups[priority]);
            let base = base.filter(|_| is_lossless).unwrap_or_default();
            *group = class(&layers, is_lossless, base, port.mtu_bytes, headroom.bytes);
            let size = value(layers.get(|table| table.headroom.as_ref()));
            let is_auto = size == Some(HeadroomSize::Auto) || size.is_none() && profile.is_none();
            computed |= u8::from(is_lossless && is_auto) << priority;
        }
        for (queue, config) in shares.queues.iter_mut().enumerate() {
            let layers =
                Layers::new(queue, own.map(|own| &own.queue), &table.queue, &defaults.queue);
            let Bytes(min_bytes) =
                value(layers.get(|table| table.min.as_ref())).unwrap_or_default();
            config.min_bytes = min_bytes;
            config.threshold.dt_alpha = alpha(layers.get(|table| table.dt_alpha.as_ref()));
        }
        let computed = Computed { priorities: computed, need, headroom };
        (shares, (computed.priorities != 0).then_some(computed))
    }

    /// The byte limits of queues that have one of their own. A limit for all queues is not for those
    /// of lossless priorities.
    fn queue_limits(&self, table: &'a SwitchTable, config: &mut SwitchConfig) {
        let defaults = &self.file.defaults.switch;
        let lossless = config.lossless_queues();
        for port in &mut config.ports {
            let own = table.port.iter().find(|(key, _)| *key.get_ref() == port.name);
            for (queue, limit) in port.queue_limit_bytes.iter_mut().enumerate() {
                let own = own.map(|(_, own)| &own.queue);
                let layers = Layers::new(queue, own, &table.queue, &defaults.queue);
                match value(layers.get(|table| table.limit.as_ref())) {
                    Some(Bytes(bytes)) => *limit = bytes,
                    None if lossless >> queue & 1 == 1 => *limit = u64::MAX,
                    None => {}
                }
            }
        }
    }

    /// Keys that only lossless classes have, at classes that no port has lossless; and the key that
    /// only lossy ones have.
    fn only_lossless_classes_pause(&mut self, table: &'a SwitchTable, config: &SwitchConfig) {
        let of_ports = table.port.iter().map(|(name, own)| {
            let port = config.ports.iter().find(|port| port.name == *name.get_ref());
            (&own.class, port.map_or(0, |port| port.shares.lossless_mask()))
        });
        let switch = (&table.class, config.lossless_mask());
        for (classes, mask) in of_ports.chain([switch]) {
            for (name, class) in classes {
                let Ok(priority @ 0..8) = name.get_ref().parse::<u8>() else { continue };
                let pauses = [class.xoff.as_ref(), class.xon.as_ref(), class.xon_offset.as_ref()];
                let pauses = pauses.into_iter().flatten().map(Spanned::span);
                let span = pauses.chain(class.headroom.as_ref().map(Spanned::span)).next();
                let is_lossless = mask >> priority & 1 == 1;
                if let Some(span) = span.filter(|_| !is_lossless) {
                    let message =
                        format!("priority {priority} is not lossless here, and never paused");
                    let help =
                        format!("lossless = [{priority}] makes it so; a lossy class has `limit`");
                    self.issue(Issue::new(span, message).help(help));
                }
                if let Some(limit) = class.limit.as_ref().filter(|_| is_lossless) {
                    let message =
                        format!("priority {priority} is lossless: it is paused, not limited");
                    self.issue(Issue::new(limit.span(), message).help("`xoff` says from where on"));
                }
            }
        }
    }

    /// Where the file sets the part of a share that a switch refuses.
    pub(super) fn span_of_share(
        &self,
        table: &'a SwitchTable,
        own: Option<&'a PortTable>,
        error: &SwitchConfigError,
    ) -> Option<Range<usize>> {
        let defaults = &self.file.defaults.switch;
        match error.place {
            SwitchConfigPlace::Group(_, priority) => {
                let layers =
                    Layers::new(priority, own.map(|own| &own.class), &table.class, &defaults.class);
                let limit = || layers.get(|table| table.xoff.as_ref().or(table.limit.as_ref()));
                match error.field {
                    "static_bytes" => limit().map(Spanned::span),
                    "xon_bytes" => layers.get(|table| table.xon.as_ref()).map(Spanned::span),
                    "dt_alpha" => layers.get(|table| table.dt_alpha.as_ref()).map(Spanned::span),
                    _ => None,
                }
            }
            SwitchConfigPlace::Queue(_, queue) => {
                let layers =
                    Layers::new(queue, own.map(|own| &own.queue), &table.queue, &defaults.queue);
                match error.field {
                    "dt_alpha" => layers.get(|table| table.dt_alpha.as_ref()).map(Spanned::span),
                    "queue_limit_bytes" => {
                        layers.get(|table| table.limit.as_ref()).map(Spanned::span)
                    }
                    _ => None,
                }
            }
            SwitchConfigPlace::Switch if error.field == "trim" => {
                table.trim.as_ref().or(defaults.trim.as_ref()).map(Spanned::span)
            }
            _ => None,
        }
    }

    fn trim(&mut self, table: &'a S<TrimTable>) -> TrimConfig {
        let table = table.get_ref();
        for queue in table.queues.get_ref().iter().filter(|queue| **queue > 7) {
            let message = format!("a queue is 0 to 7, not {queue}");
            self.issue(Issue::new(table.queues.span(), message));
        }
        let queues = table.queues.get_ref().iter().filter(|queue| **queue < 8);
        let dscp = plain(Some(&table.dscp)).unwrap_or_default();
        let size = value(table.size.as_ref()).map(|Bytes(bytes)| bytes);
        TrimConfig {
            size_bytes: size.map_or(128, |bytes| u32::try_from(bytes).unwrap_or(u32::MAX)),
            dscp,
            last_hop_dscp: plain(table.last_hop_dscp.as_ref()).unwrap_or(dscp),
            priority: plain(table.priority.as_ref()).unwrap_or(6),
            queues: queues.fold(0, |mask, queue| mask | 1 << queue),
            updates_lengths: table.lengths == Some(LengthsName::Updated),
        }
    }
}

fn alpha(written: Option<&Q<Alpha>>) -> Option<Alpha> {
    value(written)
}

/// One class at one port.
fn class(
    layers: &Layers<'_, ClassTable>,
    is_lossless: bool,
    base: GroupConfig,
    mtu_bytes: u32,
    auto_bytes: u64,
) -> GroupConfig {
    let bytes = |written: Option<&Q<Bytes>>| value(written).map(|Bytes(bytes)| bytes);
    let mut group = base;
    group.min_bytes = bytes(layers.get(|table| table.min.as_ref())).unwrap_or(base.min_bytes);
    let written = layers.get(|table| table.dt_alpha.as_ref());
    group.threshold.dt_alpha = alpha(written).or(base.threshold.dt_alpha);
    if !is_lossless {
        group.threshold.static_bytes = bytes(layers.get(|table| table.limit.as_ref()));
        return group;
    }
    group.threshold.static_bytes = bytes(layers.get(|table| table.xoff.as_ref()));
    if group.threshold.static_bytes.is_none() && group.threshold.dt_alpha.is_none() {
        group.threshold.dt_alpha = Some(Alpha::ONE);
    }
    let base = base.lossless.unwrap_or_else(|| Lossless {
        headroom_bytes: auto_bytes,
        xon_bytes: 0,
        xon_offset_bytes: 2 * (u64::from(mtu_bytes) + BEYOND_MTU_BYTES),
    });
    group.lossless = Some(Lossless {
        headroom_bytes: match value(layers.get(|table| table.headroom.as_ref())) {
            Some(HeadroomSize::Bytes(bytes)) => bytes,
            Some(HeadroomSize::Auto) => auto_bytes,
            None => base.headroom_bytes,
        },
        xon_bytes: bytes(layers.get(|table| table.xon.as_ref())).unwrap_or(base.xon_bytes),
        xon_offset_bytes: bytes(layers.get(|table| table.xon_offset.as_ref()))
            .unwrap_or(base.xon_offset_bytes),
    });
    group
}

/// How the largest computed headroom of a switch comes about.
pub(super) fn largest_headroom(switch: &SwitchNode) -> Option<String> {
    let largest = switch.headrooms.iter().max_by_key(|explained| explained.headroom.cells)?;
    let port = &switch.config.ports.get(largest.port)?.name;
    let headroom = &largest.headroom;
    Some(format!(
        "the largest headroom is that of each lossless priority of port {port}:\n{headroom}"
    ))
}

/// The computed headrooms of a switch, line by line; ports with the same one together.
pub fn explain_headrooms(switch: &SwitchNode) -> String {
    let mut out = String::new();
    let mut told: Vec<(&ExplainedHeadroom, Vec<&str>)> = Vec::new();
    for explained in &switch.headrooms {
        let Some(port) = switch.config.ports.get(explained.port) else { continue };
        let same = told.iter_mut().find(|(other, _)| {
            other.headroom == explained.headroom && other.priorities == explained.priorities
        });
        match same {
            Some((_, ports)) => ports.push(&port.name),
            None => told.push((explained, vec![&port.name])),
        }
    }
    for (explained, ports) in told {
        let priorities: Vec<_> = (0..8)
            .filter(|p| explained.priorities >> p & 1 == 1)
            .map(|p: u8| p.to_string())
            .collect();
        let (ports, priorities) = (ports.join(", "), priorities.join(", "));
        let name = &switch.config.name;
        out.push_str(&format!(
            "headroom of {name}, ports {ports}, priorities {priorities}, in cells:\n"
        ));
        for line in explained.headroom.to_string().lines() {
            out.push_str(&format!("  {line}\n"));
        }
        let sonic = Bytes(explained.sonic_bytes);
        out.push_str(&format!(
            "  (SONiC's calculation, with the response that IEEE 802.3 allows: {sonic})\n"
        ));
    }
    out
}
