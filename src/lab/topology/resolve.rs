//! From the file's tables to a [`Topology`], with every rule that no type can state.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use toml::Spanned;

use super::error::Issue;
use super::file::{
    ClockName, File, ForwardingName, HostKindName, HostTable, Network, PortTable, SwitchTable,
    TrustName, VlanTable,
};
use super::value::{ByteCount, OneOrMany, Q, S};
use super::{
    Attachment, Clock, External, Forwarding, HostKind, HostNode, Impairment, LabOptions, Link,
    LinkEnd, NodeId, Run, SwitchNode, Topology, natural, paths, streams,
};
use crate::host::HostConfig;
use crate::host::config::QUEUE_FRAMES_MAX;
use crate::line::ETHERNET_OVERHEAD_BYTES;
use crate::node::PortId;
use crate::switch::config::QUEUES;
use crate::switch::{PortConfig, SwitchConfig, Trust, VlanMode};
use crate::time::Duration;
use crate::units::{Bytes, Rate};
use crate::wire::MacAddr;

/// The rate of a link that does not say.
const LINK_RATE: Rate = Rate::from_gbps(10);
/// The delay of a link that does not say: 200 m of fibre.
const LINK_DELAY: Duration = Duration::from_us(1);
/// The MTU where nothing says otherwise.
const MTU_BYTES: u32 = 1_500;
/// The smallest and largest MTU: RFC 791's least, and what multi-buffer AF_XDP carries on veth.
const MTU_RANGE: std::ops::RangeInclusive<u32> = 68..=9_000;
/// Ports of a switch, at most.
const PORTS_MAX: usize = 256;
/// Frames of a host that wait for its line, unless it says otherwise.
const HOST_QUEUE_FRAMES: u32 = 1_024;

/// What has been found while resolving.
pub(super) struct Resolver<'a> {
    pub(super) file: &'a File,
    pub(super) issues: Vec<Issue>,
    seed: u64,
    links_are_whole: bool,
    switch_names: Vec<(&'a Spanned<String>, &'a SwitchTable)>,
    host_names: Vec<(&'a Spanned<String>, &'a HostTable)>,
}

/// One end as written, resolved to its node.
struct End<'a> {
    node: NodeId,
    port: &'a str,
    span: Range<usize>,
}

/// What the links and externals say about one port, before ports have numbers.
#[derive(Clone)]
struct Use {
    attachment: Attachment,
    rate: Rate,
    span: Range<usize>,
}

type Uses = BTreeMap<(NodeId, String), Use>;

pub(super) fn value<T: Copy>(quantity: Option<&Q<T>>) -> Option<T> {
    quantity.map(|spanned| spanned.get_ref().0)
}

fn plain<T: Copy>(spanned: Option<&S<T>>) -> Option<T> {
    spanned.map(|spanned| *spanned.get_ref())
}

/// Checks the file and builds the topology, or says everything that is wrong.
pub(super) fn resolve(file: &File) -> Result<Topology, Vec<Issue>> {
    let mut resolver = Resolver {
        file,
        issues: Vec::new(),
        seed: 1,
        links_are_whole: true,
        switch_names: file.switch.iter().collect(),
        host_names: file.host.iter().collect(),
    };
    resolver.switch_names.sort_by(|a, b| natural(a.0.get_ref(), b.0.get_ref()));
    resolver.host_names.sort_by(|a, b| natural(a.0.get_ref(), b.0.get_ref()));
    let topology = resolver.topology();
    let mut issues = resolver.issues;
    if issues.is_empty() {
        return Ok(topology);
    }
    issues.sort_by_key(|issue| issue.span.start);
    issues.dedup();
    Err(issues)
}

impl<'a> Resolver<'a> {
    fn topology(&mut self) -> Topology {
        self.names();
        self.seed = self.seed();
        let mut uses = Uses::new();
        let before = self.issues.len();
        let mut links = self.links(&mut uses);
        let mut externals = self.externals(&mut uses);
        // A link with a mistake of its own would make its ends look unlinked too.
        self.links_are_whole = self.issues.len() == before;
        let mut switches = self.switches(&uses, &mut links, &mut externals);
        let mut hosts = self.hosts(&uses);
        let cyclic = paths::spanning_tree(&mut switches, &links);
        self.forwarding_is_uniform(&switches, cyclic);
        paths::static_entries(&mut switches, &hosts, &links);
        let ours = externals.is_empty() && hosts.iter().all(|h| h.kind == HostKind::Agent);
        let run = self.run(ours, &links, &switches, &hosts);
        let streams = streams::streams(self, &mut hosts, &switches, &links, run.duration);
        let faults = streams::faults(self, &links);
        let expectations = streams::expectations(self);
        Topology {
            name: self.file.name.get_ref().clone(),
            seed: self.seed,
            run,
            lab: self.lab_options(),
            switches,
            hosts,
            links,
            externals,
            streams,
            faults,
            expectations,
        }
    }

    pub(super) fn issue(&mut self, issue: Issue) {
        self.issues.push(issue);
    }

    fn names(&mut self) {
        let lab = &self.file.name;
        let fits = |name: &str, extra: &str| {
            name.starts_with(|c: char| c.is_ascii_alphanumeric())
                && name.chars().all(|c| c.is_ascii_alphanumeric() || extra.contains(c))
        };
        if !fits(lab.get_ref(), "-_") || lab.get_ref().len() > 32 {
            self.issues.push(
                Issue::new(lab.span(), format!("`{}` cannot name a lab", lab.get_ref()))
                    .help("letters, digits, - and _, at most 32, a letter or digit first"),
            );
        }
        let nodes = self.switch_names.iter().map(|(name, _)| *name);
        for name in nodes.chain(self.host_names.iter().map(|(name, _)| *name)) {
            if !fits(name.get_ref(), "_") || name.get_ref().len() > 15 {
                self.issues.push(
                    Issue::new(name.span(), format!("`{}` cannot name a node", name.get_ref()))
                        .help("letters, digits and _, at most 15, a letter or digit first"),
                );
            }
        }
        for (host, _) in &self.host_names {
            let same = self.switch_names.iter().find(|(name, _)| name.get_ref() == host.get_ref());
            if let Some((switch, _)) = same {
                self.issues.push(
                    Issue::new(host.span(), format!("two nodes are called `{}`", host.get_ref()))
                        .label("a host here")
                        .other(switch.span(), "a switch here"),
                );
            }
        }
        if self.switch_names.is_empty() && self.host_names.is_empty() {
            self.issues.push(
                Issue::new(lab.span(), "the lab has no nodes")
                    .help("add [switch.NAME] or [host.NAME] tables"),
            );
        }
    }

    fn seed(&mut self) -> u64 {
        if let (Some(top), Some(run)) = (&self.file.seed, &self.file.run.seed) {
            let issue = Issue::new(run.span(), "the seed is given twice")
                .label("again here")
                .other(top.span(), "first here");
            self.issues.push(issue);
        }
        plain(self.file.seed.as_ref()).or_else(|| plain(self.file.run.seed.as_ref())).unwrap_or(1)
    }

    /// The node called `name`, or an issue at `span`.
    pub(super) fn node(&mut self, name: &str, span: Range<usize>) -> Option<NodeId> {
        let switch = self.switch_names.iter().position(|(n, _)| n.get_ref() == name);
        let host = self.host_names.iter().position(|(n, _)| n.get_ref() == name);
        let found = switch.map(NodeId::Switch).or_else(|| host.map(NodeId::Host));
        if found.is_none() {
            let mut known: Vec<&str> =
                self.switch_names.iter().map(|(n, _)| n.get_ref().as_str()).collect();
            known.extend(self.host_names.iter().map(|(n, _)| n.get_ref().as_str()));
            let help = format!("nodes here: {}", known.join(", "));
            self.issue(Issue::new(span, format!("there is no node `{name}`")).help(help));
        }
        found
    }

    fn host_port(&self, host: usize) -> &'a str {
        self.host_names[host].1.port.as_ref().map_or("eth0", |port| port.get_ref().as_str())
    }

    fn end(&mut self, written: &'a S<String>) -> Option<End<'a>> {
        let span = written.span();
        let Some((node, port)) = written.get_ref().split_once(':') else {
            let message = format!("`{}` is not NODE:PORT", written.get_ref());
            self.issue(Issue::new(span, message).help("such as \"h1:eth0\" or \"s1:1\""));
            return None;
        };
        let found = self.node(node, span.clone())?;
        match found {
            NodeId::Host(host) if self.host_port(host) != port => {
                let help = format!("its one port is `{node}:{}`", self.host_port(host));
                let message = format!("host `{node}` has no port `{port}`");
                self.issue(Issue::new(span, message).help(help));
                None
            }
            NodeId::Switch(switch) => {
                let count = self.switch_names[switch].1.ports.as_ref();
                let inside = |count: u32| {
                    port.parse()
                        .is_ok_and(|n: u32| (1..=count).contains(&n) && n.to_string() == port)
                };
                if let Some(count) = count.filter(|count| !inside(*count.get_ref())) {
                    let issue = Issue::new(span, format!("switch `{node}` has no port `{port}`"))
                        .other(count.span(), format!("its ports are 1 to {}", count.get_ref()));
                    self.issue(issue);
                    return None;
                }
                let named = !port.is_empty()
                    && port.len() <= 15
                    && port.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
                if !named {
                    self.issue(
                        Issue::new(span, format!("`{port}` cannot name a port"))
                            .help("letters, digits and _, at most 15"),
                    );
                    return None;
                }
                Some(End { node: found, port, span })
            }
            NodeId::Host(_) => Some(End { node: found, port, span }),
        }
    }

    fn use_port(&mut self, uses: &mut Uses, end: &End<'_>, attachment: Attachment, rate: Rate) {
        let used = Use { attachment, rate, span: end.span.clone() };
        if let Some(first) = uses.get(&(end.node, end.port.to_owned())) {
            let issue = Issue::new(end.span.clone(), "this port is used twice")
                .label("again here")
                .other(first.span.clone(), "first here");
            self.issue(issue);
        } else {
            uses.insert((end.node, end.port.to_owned()), used);
        }
    }

    fn links(&mut self, uses: &mut Uses) -> Vec<Link> {
        let mut links = Vec::new();
        let file = self.file;
        let defaults = &file.defaults.link;
        for table in &file.link {
            let rate_q = table.rate.as_ref().or(defaults.rate.as_ref());
            let rate = value(rate_q).unwrap_or(LINK_RATE);
            self.rate_above_zero(rate_q);
            let both = |own, default| value(own).or_else(|| value(default));
            let impairment = Impairment {
                delay: both(table.delay.as_ref(), defaults.delay.as_ref()).unwrap_or(LINK_DELAY),
                jitter: both(table.jitter.as_ref(), defaults.jitter.as_ref()).unwrap_or_default(),
                loss: value(table.loss.as_ref().or(defaults.loss.as_ref())).unwrap_or_default(),
                corrupt: value(table.corrupt.as_ref().or(defaults.corrupt.as_ref()))
                    .unwrap_or_default(),
            };
            let [first, second] = table.ends.get_ref().as_slice() else {
                let message = format!("a link has two ends, not {}", table.ends.get_ref().len());
                self.issue(Issue::new(table.ends.span(), message));
                continue;
            };
            let (Some(a), Some(b)) = (self.end(first), self.end(second)) else { continue };
            if a.node == b.node {
                self.issue(Issue::new(b.span, "both ends of the link are on one node"));
                continue;
            }
            let index = links.len();
            self.use_port(uses, &a, Attachment::Link(index, 0), rate);
            self.use_port(uses, &b, Attachment::Link(index, 1), rate);
            let end = |end: &End<'_>, name: &S<String>| LinkEnd {
                node: end.node,
                port: PortId(0),
                name: name.get_ref().clone(),
            };
            links.push(Link {
                name: format!("{}-{}", first.get_ref(), second.get_ref()),
                ends: [end(&a, first), end(&b, second)],
                rate,
                impairment,
            });
        }
        links
    }

    fn rate_above_zero(&mut self, rate: Option<&Q<Rate>>) {
        if let Some(rate) = rate.filter(|rate| rate.get_ref().0.as_bps() == 0) {
            self.issue(Issue::new(rate.span(), "a rate is above zero"));
        }
    }

    fn externals(&mut self, uses: &mut Uses) -> Vec<External> {
        let file = self.file;
        let mut externals = Vec::new();
        for table in &file.external {
            let Some(end) = self.end(&table.port) else { continue };
            let NodeId::Switch(switch) = end.node else {
                self.issue(Issue::new(end.span, "an external interface is a port of a switch"));
                continue;
            };
            self.external_once(table);
            self.rate_above_zero(table.rate.as_ref());
            let rate = value(table.rate.as_ref().or(file.defaults.link.rate.as_ref()));
            let attachment = Attachment::External(externals.len());
            self.use_port(uses, &end, attachment, rate.unwrap_or(LINK_RATE));
            externals.push(self.external(table, switch));
        }
        externals
    }

    fn mtu(&mut self, own: Option<&S<ByteCount>>) -> u32 {
        let Some(mtu) = own.or(self.file.defaults.mtu.as_ref()) else { return MTU_BYTES };
        let bytes = mtu.get_ref().0;
        if !MTU_RANGE.contains(&bytes) {
            let (low, high) = (MTU_RANGE.start(), MTU_RANGE.end());
            let message = format!("an MTU of {bytes} is outside {low} to {high}");
            self.issue(Issue::new(mtu.span(), message));
        }
        bytes
    }

    fn below(&mut self, value: Option<&S<u8>>, bound: u8, what: &str) {
        if let Some(value) = value.filter(|value| *value.get_ref() >= bound) {
            let message = format!("a {what} is 0 to {}, not {}", bound - 1, value.get_ref());
            self.issue(Issue::new(value.span(), message));
        }
    }

    fn switches(
        &mut self,
        uses: &Uses,
        links: &mut [Link],
        externals: &mut [External],
    ) -> Vec<SwitchNode> {
        let tables = self.switch_names.clone();
        let mut switches = Vec::new();
        for (index, (name, table)) in tables.into_iter().enumerate() {
            let node = NodeId::Switch(index);
            let mut names: Vec<String> = uses
                .range((node, String::new())..)
                .take_while(|((at, _), _)| *at == node)
                .map(|((_, port), _)| port.clone())
                .collect();
            if names.is_empty() && self.links_are_whole {
                self.issue(
                    Issue::new(name.span(), format!("switch `{}` has no link", name.get_ref()))
                        .help("add a [[link]] or an [[external]] for it"),
                );
            }
            let count = table.ports.as_ref();
            if let Some(count) = count.filter(|count| !(1..=256).contains(count.get_ref())) {
                self.issue(Issue::new(count.span(), "a switch has 1 to 256 ports"));
            }
            names.extend((1..=plain(count).unwrap_or(0).min(256)).map(|port| port.to_string()));
            names.sort_by(|a, b| natural(a, b));
            names.dedup();
            for port in table.port.keys().filter(|port| !names.contains(port.get_ref())) {
                if !self.links_are_whole {
                    break;
                }
                let message =
                    format!("port `{}` of `{}` has no link", port.get_ref(), name.get_ref());
                self.issue(Issue::new(port.span(), message).help("is its name as in the link?"));
            }
            if names.len() > PORTS_MAX {
                self.issue(Issue::new(name.span(), format!("more than {PORTS_MAX} ports")));
                names.truncate(PORTS_MAX);
            }
            let mut ports = Vec::new();
            let mut attachments = Vec::new();
            for (number, port_name) in (0_u16..).zip(&names) {
                let used = uses.get(&(node, port_name.clone()));
                let attachment = used.map_or(Attachment::None, |used| used.attachment);
                match attachment {
                    Attachment::Link(link, end) => links[link].ends[end].port = PortId(number),
                    Attachment::External(external) => externals[external].port = PortId(number),
                    Attachment::None => {}
                }
                let rate = used.map_or(LINK_RATE, |used| used.rate);
                let mac = address(Kind::Switch, index, number);
                let own = table.port.iter().find(|(key, _)| key.get_ref() == port_name);
                let own = own.map(|(_, own)| own);
                ports.push(self.port(port_name, mac, rate, table, own));
                attachments.push(attachment);
            }
            let config = self.switch_config(name.get_ref(), ports, table);
            let io_workers = self.io_workers(table, names.len());
            let forwarding = match self.forwarding_of(table).map(Spanned::get_ref) {
                Some(ForwardingName::Static) => Forwarding::Static,
                Some(ForwardingName::Learning) | None => Forwarding::Learning,
            };
            switches.push(SwitchNode {
                config,
                attachments,
                forwarding,
                core: plain(table.core.as_ref()),
                io_workers,
            });
        }
        let defaults = &self.file.defaults.switch;
        let mut own = Vec::new();
        own.extend(defaults.port.keys().next().map(Spanned::span));
        own.extend(defaults.ports.as_ref().map(Spanned::span));
        own.extend(defaults.core.as_ref().map(Spanned::span));
        own.extend(defaults.io_workers.as_ref().map(Spanned::span));
        own.extend(defaults.io_cores.as_ref().map(Spanned::span));
        for span in own {
            let message = "ports, port, core and I/O workers are each switch's own";
            self.issue(Issue::new(span, message).help("put them into [switch.NAME]"));
        }
        switches
    }

    fn forwarding_of(&self, table: &'a SwitchTable) -> Option<&'a S<ForwardingName>> {
        table.forwarding.as_ref().or(self.file.defaults.switch.forwarding.as_ref())
    }

    /// In a network with a cycle a switch that learns beside one with set paths would see frames
    /// come by ports that its tree does not know.
    fn forwarding_is_uniform(&mut self, switches: &[SwitchNode], cyclic: bool) {
        let Some(first) = switches.first().map(|s| s.forwarding).filter(|_| cyclic) else { return };
        let Some(other) = switches.iter().position(|s| s.forwarding != first) else { return };
        let (name, table) = self.switch_names[other];
        let span = self.forwarding_of(table).map_or_else(|| name.span(), Spanned::span);
        self.issue(
            Issue::new(span, "the switches form a cycle, so all forward alike")
                .help("set forwarding once, in [defaults.switch]"),
        );
    }

    fn queue_limit(&mut self, limit: Option<&S<OneOrMany<Bytes>>>) -> [u64; QUEUES] {
        let Some(limit) = limit else { return [u64::MAX; QUEUES] };
        match limit.get_ref().0.as_slice() {
            [one] => [one.0; QUEUES],
            many => match <[Bytes; QUEUES]>::try_from(many) {
                Ok(all) => all.map(|bytes| bytes.0),
                Err(_) => {
                    let message = format!("one limit, or {QUEUES}, not {}", many.len());
                    self.issue(Issue::new(limit.span(), message));
                    [u64::MAX; QUEUES]
                }
            },
        }
    }

    fn port(
        &mut self,
        name: &str,
        mac: MacAddr,
        rate: Rate,
        switch: &SwitchTable,
        own: Option<&PortTable>,
    ) -> PortConfig {
        let empty = PortTable::default();
        let own = own.unwrap_or(&empty);
        let defaults = &self.file.defaults.switch;
        let trust = own.trust.or(switch.trust).or(defaults.trust);
        let priority = own.default_priority.as_ref();
        let priority = priority.or(switch.default_priority.as_ref());
        let priority = priority.or(defaults.default_priority.as_ref());
        self.below(priority, 8, "priority");
        let limit = own.queue_limit.as_ref().or(switch.queue_limit.as_ref());
        let limit = limit.or(defaults.queue_limit.as_ref());
        self.rate_above_zero(own.rate.as_ref());
        let mtu = own.mtu.as_ref().or(switch.mtu.as_ref()).or(defaults.mtu.as_ref());
        PortConfig {
            mtu_bytes: self.mtu(mtu),
            vlan: own.vlan.as_ref().map_or(VlanMode::Access(1), |vlan| self.vlan(vlan)),
            trust: match trust {
                Some(TrustName::Pcp) | None => Trust::Pcp,
                Some(TrustName::Dscp) => Trust::Dscp,
                Some(TrustName::Port) => Trust::Port,
            },
            default_priority: plain(priority).unwrap_or(0),
            queue_limit_bytes: self.queue_limit(limit),
            ..PortConfig::new(name, mac, value(own.rate.as_ref()).unwrap_or(rate))
        }
    }

    pub(super) fn vlan_id(&mut self, vlan: &S<u16>) -> u16 {
        if !(1..=4_094).contains(vlan.get_ref()) {
            let message = format!("a VLAN is 1 to 4094, not {}", vlan.get_ref());
            self.issue(Issue::new(vlan.span(), message));
        }
        *vlan.get_ref()
    }

    fn vlan(&mut self, table: &VlanTable) -> VlanMode {
        const SHAPE: &str = "{ access = 10 } or { trunk = [10, 20], native = 1 }";
        match (&table.access, &table.trunk) {
            (Some(access), None) => {
                if let Some(native) = &table.native {
                    let message = "an access port has no native VLAN";
                    self.issue(Issue::new(native.span(), message).help(SHAPE));
                }
                VlanMode::Access(self.vlan_id(access))
            }
            (None, Some(trunk)) => {
                let mut allowed: Vec<u16> =
                    trunk.get_ref().iter().map(|vlan| self.vlan_id(vlan)).collect();
                allowed.sort_unstable();
                allowed.dedup();
                let native = table.native.as_ref().map(|vlan| self.vlan_id(vlan));
                VlanMode::Trunk { allowed, native }
            }
            (Some(access), Some(trunk)) => {
                let message = "a port is an access port or a trunk";
                let issue =
                    Issue::new(trunk.span(), message).other(access.span(), "and access here");
                self.issue(issue.help(SHAPE));
                VlanMode::Access(1)
            }
            (None, None) => {
                let span = table.native.as_ref().map_or(0..0, Spanned::span);
                self.issue(Issue::new(span, "a VLAN needs `access` or `trunk`").help(SHAPE));
                VlanMode::Access(1)
            }
        }
    }

    fn switch_config(
        &mut self,
        name: &str,
        ports: Vec<PortConfig>,
        table: &SwitchTable,
    ) -> SwitchConfig {
        let defaults = &self.file.defaults.switch;
        let mut config = SwitchConfig::new(name, ports);
        config.seed = self.seed;
        if let Some(Bytes(bytes)) = value(table.buffer.as_ref().or(defaults.buffer.as_ref())) {
            config.buffer_bytes = bytes;
        }
        if let Some(cell) = table.cell.as_ref().or(defaults.cell.as_ref()) {
            match u32::try_from(cell.get_ref().0.0).ok().filter(|cell| (1..=4_096).contains(cell)) {
                Some(bytes) => config.cell_bytes = bytes,
                None => self.issue(Issue::new(cell.span(), "a cell has 1B to 4096B")),
            }
        }
        let buffer = table.buffer.as_ref().or(defaults.buffer.as_ref());
        if let Some(buffer) = buffer.filter(|_| config.buffer_bytes < u64::from(config.cell_bytes))
        {
            self.issue(Issue::new(buffer.span(), "the buffer holds no cell"));
        }
        let entries = table.mac_table_entries.as_ref().or(defaults.mac_table_entries.as_ref());
        if let Some(entries) = entries {
            if !(1..=1_048_576).contains(entries.get_ref()) {
                self.issue(Issue::new(entries.span(), "a MAC table has 1 to 1048576 entries"));
            }
            config.mac_table_entries = *entries.get_ref();
        }
        if let Some(ageing) = value(table.mac_ageing.as_ref().or(defaults.mac_ageing.as_ref())) {
            config.mac_ageing = ageing;
        }
        if let Some(overhead) = table.overhead.as_ref().or(defaults.overhead.as_ref()) {
            if overhead.get_ref().0 > 256 {
                self.issue(Issue::new(
                    overhead.span(),
                    "the overhead of a frame is at most 256 bytes",
                ));
            }
            config.overhead_bytes = overhead.get_ref().0;
        }
        let pcp = table.pcp_to_priority.as_ref().or(defaults.pcp_to_priority.as_ref());
        self.eight(pcp, "priority of each PCP", &mut config.pcp_to_priority);
        let queue = table.priority_to_queue.as_ref().or(defaults.priority_to_queue.as_ref());
        self.eight(queue, "queue of each priority", &mut config.priority_to_queue);
        for dscps in [&defaults.dscp_to_priority, &table.dscp_to_priority].into_iter().flatten() {
            for (dscp, priority) in dscps {
                self.below(Some(priority), 8, "priority");
                match dscp.get_ref().parse().ok().filter(|dscp: &usize| *dscp < 64) {
                    Some(index) => config.dscp_to_priority[index] = *priority.get_ref(),
                    None => self.issue(Issue::new(dscp.span(), "a DSCP is 0 to 63")),
                }
            }
        }
        config
    }

    fn eight(&mut self, map: Option<&S<Vec<u8>>>, what: &str, into: &mut [u8; 8]) {
        let Some(map) = map else { return };
        match <[u8; 8]>::try_from(map.get_ref().as_slice()) {
            Ok(all) if all.iter().all(|value| *value < 8) => *into = all,
            _ => self.issue(Issue::new(map.span(), format!("the {what}: eight numbers, 0 to 7"))),
        }
    }

    fn hosts(&mut self, uses: &Uses) -> Vec<HostNode> {
        let tables = self.host_names.clone();
        let defaults = &self.file.defaults.host;
        let addresses = self.addresses(&tables);
        let mut hosts = Vec::new();
        for (index, (name, table)) in tables.into_iter().enumerate() {
            let port = self.host_port(index);
            let fits = !port.is_empty()
                && port.len() <= 15
                && port != "lo"
                && port.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            if let Some(written) = table.port.as_ref().filter(|_| !fits) {
                let message = format!("`{port}` cannot name a port");
                self.issue(
                    Issue::new(written.span(), message).help("letters, digits and _, at most 15"),
                );
            }
            let used = uses.get(&(NodeId::Host(index), port.to_owned()));
            if used.is_none() && self.links_are_whole {
                let message = format!("host `{}` has no link", name.get_ref());
                self.issue(Issue::new(name.span(), message).help("add a [[link]] for it"));
            }
            let queues = table.queues.as_ref().or(defaults.queues.as_ref());
            if let Some(queues) = queues.filter(|queues| !(1..=64).contains(queues.get_ref())) {
                self.issue(Issue::new(queues.span(), "a host has 1 to 64 queues"));
            }
            let frames = table.queue_frames.as_ref().or(defaults.queue_frames.as_ref());
            let holds = 1..=QUEUE_FRAMES_MAX;
            if let Some(frames) = frames.filter(|frames| !holds.contains(frames.get_ref())) {
                let message = format!("a host's queue holds 1 to {QUEUE_FRAMES_MAX} frames");
                self.issue(Issue::new(frames.span(), message));
            }
            let (mac, ipv4, ipv6) = addresses[index];
            let config = HostConfig {
                name: name.get_ref().clone(),
                port_name: port.to_owned(),
                mac,
                ipv4: Some((ipv4.address, ipv4.prefix)),
                ipv6: Some((ipv6.address, ipv6.prefix)),
                rate: used.map_or(LINK_RATE, |used| used.rate),
                mtu_bytes: self.mtu(table.mtu.as_ref()),
                overhead_bytes: ETHERNET_OVERHEAD_BYTES,
                queue_frames_max: plain(frames).unwrap_or(HOST_QUEUE_FRAMES),
                streams: Vec::new(),
                seed: self.seed,
            };
            hosts.push(HostNode {
                config,
                kind: match table.kind.or(defaults.kind) {
                    Some(HostKindName::Kernel) => HostKind::Kernel,
                    Some(HostKindName::Agent) | None => HostKind::Agent,
                },
                attachment: used.map_or(Attachment::None, |used| used.attachment),
                core: plain(table.core.as_ref()),
                queues: plain(queues).unwrap_or(1),
            });
        }
        hosts
    }

    /// The addresses of each host: as written, or the next that nothing else has.
    fn addresses(
        &mut self,
        tables: &[(&'a Spanned<String>, &'a HostTable)],
    ) -> Vec<(MacAddr, Network<Ipv4Addr>, Network<Ipv6Addr>)> {
        let mut macs = BTreeMap::new();
        let mut v4 = BTreeMap::new();
        let mut v6 = BTreeMap::new();
        for (_, table) in tables {
            if let Some(mac) = &table.mac {
                if mac.get_ref().0.is_group() || mac.get_ref().0 == MacAddr::default() {
                    self.issue(Issue::new(mac.span(), "a host's address names one station"));
                }
                self.once(&mut macs, mac.get_ref().0, mac.span());
            }
            if let Some(net) = &table.ipv4 {
                let address = net.get_ref().0.address;
                if address.is_unspecified() || address.is_multicast() || address.is_broadcast() {
                    self.issue(Issue::new(net.span(), "a host's address names one station"));
                }
                self.once(&mut v4, address, net.span());
            }
            if let Some(net) = &table.ipv6 {
                let address = net.get_ref().0.address;
                if address.is_unspecified() || address.is_multicast() {
                    self.issue(Issue::new(net.span(), "a host's address names one station"));
                }
                self.once(&mut v6, address, net.span());
            }
        }
        let mut free_v4 = (1_u32..).map(|n| Ipv4Addr::from_bits(0x0a4d_0000 + n));
        let mut free_v6 = (1_u128..).map(|n| Ipv6Addr::from_bits((0xfd77_u128 << 112) + n));
        let mut assigned = Vec::new();
        for (index, (_, table)) in tables.iter().enumerate() {
            // A switch's index and the port fit an address of this shape; hosts use port 0.
            let mac = value(table.mac.as_ref()).unwrap_or_else(|| {
                let mut port = 0;
                loop {
                    let mac = address(Kind::Host, index, port);
                    if !macs.contains_key(&mac) {
                        break mac;
                    }
                    port += 1;
                }
            });
            let ipv4 = value(table.ipv4.as_ref()).unwrap_or_else(|| Network {
                address: free_v4.find(|a| !v4.contains_key(a)).unwrap_or(Ipv4Addr::LOCALHOST),
                prefix: 16,
            });
            let ipv6 = value(table.ipv6.as_ref()).unwrap_or_else(|| Network {
                address: free_v6.find(|a| !v6.contains_key(a)).unwrap_or(Ipv6Addr::LOCALHOST),
                prefix: 64,
            });
            assigned.push((mac, ipv4, ipv6));
        }
        assigned
    }

    fn once<A: Ord + std::fmt::Display>(
        &mut self,
        taken: &mut BTreeMap<A, Range<usize>>,
        address: A,
        span: Range<usize>,
    ) {
        if let Some(first) = taken.get(&address) {
            let issue = Issue::new(span, format!("two hosts have the address {address}"))
                .label("again here")
                .other(first.clone(), "first here");
            self.issue(issue);
        } else {
            taken.insert(address, span);
        }
    }

    fn run(
        &mut self,
        ours: bool,
        links: &[Link],
        switches: &[SwitchNode],
        hosts: &[HostNode],
    ) -> Run {
        let file = self.file;
        let table = &file.run;
        let fallback = if ours { Clock::Gated } else { Clock::Free };
        let clock = table.clock.as_ref().map_or(fallback, |clock| match clock.get_ref() {
            ClockName::Gated => Clock::Gated,
            ClockName::Free => Clock::Free,
        });
        if let Some(written) = table.clock.as_ref().filter(|_| clock == Clock::Gated && !ours) {
            let kernel = self.host_names.iter().zip(hosts);
            let kernel = kernel.filter(|(_, host)| host.kind == HostKind::Kernel);
            let mut issue = Issue::new(written.span(), "a gated clock needs every node to be ours")
                .help(
                    "use clock = \"free\": a kernel host and an external port keep their own time",
                );
            if let Some(((name, _), _)) = kernel.into_iter().next() {
                issue = issue.other(name.span(), "a kernel host");
            } else if let Some(external) = file.external.first() {
                issue = issue.other(external.port.span(), "an external port");
            }
            self.issue(issue);
        }
        self.io_workers_are_free(clock);
        let zero = links.iter().position(|link| link.impairment.delay.is_zero());
        if let Some(link) = zero.filter(|_| clock == Clock::Gated) {
            let table = &file.link[link.min(file.link.len() - 1)];
            let delay = table.delay.as_ref().or(file.defaults.link.delay.as_ref());
            let span = delay.map_or_else(|| table.ends.span(), Spanned::span);
            self.issue(
                Issue::new(span, "a gated clock needs links with a delay")
                    .help("give it one, such as \"10ns\", or use [run] clock = \"free\""),
            );
        }
        if let Some(dilation) = &table.dilation {
            if *dilation.get_ref() == 0 {
                self.issue(Issue::new(dilation.span(), "a dilation is at least 1"));
            } else if *dilation.get_ref() > 1 && clock == Clock::Gated {
                self.issue(
                    Issue::new(dilation.span(), "a gated clock does not dilate")
                        .help("node time waits for the machine already; remove this line"),
                );
            }
        }
        if let Some(zero) = table.duration.as_ref().filter(|d| d.get_ref().0.is_zero()) {
            self.issue(Issue::new(zero.span(), "a run lasts longer than no time"));
        }
        Run {
            duration: value(table.duration.as_ref()),
            clock,
            dilation: plain(table.dilation.as_ref()).unwrap_or(1).max(1),
            capture: self.capture(switches, hosts),
        }
    }

    fn capture(&mut self, switches: &[SwitchNode], hosts: &[HostNode]) -> Vec<String> {
        let mut known: Vec<String> = Vec::new();
        for switch in switches {
            let ports = switch.config.ports.iter();
            known.extend(ports.map(|port| format!("{}:{}", switch.config.name, port.name)));
        }
        known.extend(hosts.iter().map(|h| format!("{}:{}", h.config.name, h.config.port_name)));
        let Some(capture) = &self.file.run.capture else { return Vec::new() };
        let wanted = &capture.get_ref().0;
        if wanted.iter().any(|name| name == "all") {
            return known;
        }
        for name in wanted.iter().filter(|name| !known.contains(name)) {
            let message = format!("there is no port `{name}` to capture");
            self.issues.push(Issue::new(capture.span(), message).help("NODE:PORT, or \"all\""));
        }
        wanted.clone()
    }

    fn lab_options(&mut self) -> LabOptions {
        let table = &self.file.lab;
        let mut options = LabOptions::default();
        if let Some(chunk) = &table.chunk {
            match chunk.get_ref().0.0 {
                2_048 => options.chunk_bytes = 2_048,
                4_096 => options.chunk_bytes = 4_096,
                _ => self.issues.push(Issue::new(chunk.span(), "a chunk has 2048B or 4096B")),
            }
        }
        if let Some(ring) = &table.ring {
            let entries = *ring.get_ref();
            if !entries.is_power_of_two() || !(64..=32_768).contains(&entries) {
                let message = "a ring has a power of two of entries, 64 to 32768";
                self.issues.push(Issue::new(ring.span(), message));
            }
            options.ring_entries = Some(entries);
        }
        if let Some(queues) = &table.queues {
            if !(1..=64).contains(queues.get_ref()) {
                self.issues.push(Issue::new(queues.span(), "an interface has 1 to 64 queues"));
            }
            options.queues = *queues.get_ref();
        }
        if let Some(workers) = &table.workers {
            if !(1..=256).contains(workers.get_ref()) {
                self.issues.push(Issue::new(workers.span(), "a lab has 1 to 256 workers"));
            }
            options.workers = Some(*workers.get_ref());
        }
        options.busy_poll = table.busy_poll.unwrap_or(options.busy_poll);
        options.huge_pages = table.huge_pages.unwrap_or(options.huge_pages);
        options
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Host = 0x48,
    Switch = 0x53,
}

/// A locally administered address that the node's kind, index and port determine.
fn address(kind: Kind, index: usize, port: u16) -> MacAddr {
    let [_, high, low] = (index + 1).to_be_bytes()[5..] else { return MacAddr::default() };
    let [page, port] = port.to_be_bytes();
    MacAddr([0x02, 0x77, kind as u8 + page, high, low, port])
}
