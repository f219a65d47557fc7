//! From the file's tables to a [`Topology`], with every rule that no type can state.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;

use super::error::Issue;
use super::file::{File, HostTable, SwitchTable};
use super::value::{ByteCount, Q, S};
use super::{
    Attachment, External, FREE_RING_ENTRIES, HostKind, Impairment, Link, LinkEnd, NodeId, Topology,
    announce, natural, paths, storms, streams,
};
use crate::lab::memory;
use crate::node::PortId;
use crate::sim::DELAY_MAX;
use crate::time::Duration;
use crate::units::Rate;
use crate::wire::MacAddr;
use crate::xdp::DESCRIPTORS_MAX;

/// The rate of a link that does not say.
pub(super) const LINK_RATE: Rate = Rate::from_gbps(10);
/// The delay of a link that does not say: 200 m of fibre.
const LINK_DELAY: Duration = Duration::from_us(1);
/// The MTU where nothing says otherwise.
const MTU_BYTES: u32 = 1_500;
/// The smallest MTU (RFC 791).
const MTU_BYTES_MIN: u32 = 68;

/// What has been found while resolving.
pub(super) struct Resolver<'a> {
    pub(super) file: &'a File,
    pub(super) issues: Vec<Issue>,
    pub(super) seed: u64,
    pub(super) links_are_whole: bool,
    pub(super) switch_names: Vec<(&'a Spanned<String>, &'a SwitchTable)>,
    pub(super) host_names: Vec<(&'a Spanned<String>, &'a HostTable)>,
}

/// One end as written, resolved to its node.
struct End<'a> {
    node: NodeId,
    port: &'a str,
    span: Range<usize>,
}

/// What the links and externals say about one port, before ports have numbers.
#[derive(Clone)]
pub(super) struct Use {
    pub(super) attachment: Attachment,
    pub(super) rate: Rate,
    span: Range<usize>,
}

pub(super) type Uses = BTreeMap<(NodeId, String), Use>;

pub(super) fn value<T: Copy>(quantity: Option<&Q<T>>) -> Option<T> {
    quantity.map(|spanned| spanned.get_ref().0)
}

pub(super) fn plain<T: Copy>(spanned: Option<&S<T>>) -> Option<T> {
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
        self.routers(&mut switches, &hosts, &links);
        self.gateways(&switches, &hosts);
        let sharing = self.sharing(&switches);
        self.aggregate(&mut switches, &links, &sharing);
        let cyclic = paths::spanning_tree(&mut switches, &links);
        self.forwarding_is_uniform(&switches, cyclic);
        paths::static_entries(&mut switches, &hosts, &links, &sharing);
        self.stations(&mut switches, &hosts);
        self.check_paths(&switches, &sharing);
        let ours = externals.is_empty() && hosts.iter().all(|h| h.kind == HostKind::Agent);
        let run = self.run(ours, &links, &switches, &hosts);
        let lab = self.lab_options();
        let ring_entries = lab.ring_entries.unwrap_or(FREE_RING_ENTRIES);
        self.shares(&mut switches, &hosts, &links, run.clock, ring_entries);
        announce::spread(&mut hosts, &switches);
        self.pauses_are_obeyed(&mut hosts, &switches, &links);
        let streams = streams::streams(self, &mut hosts, &switches, &links, run.duration);
        storms::storms(self, &mut hosts, run.duration);
        let faults = streams::faults(self, &links);
        let expectations = streams::expectations(self);
        self.holds_together(&switches);
        Topology {
            name: self.file.name.get_ref().clone(),
            seed: self.seed,
            run,
            lab,
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

    pub(super) fn host_port(&self, host: usize) -> &'a str {
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
                // Its interface is called so, or `swp3` for port `3`.
                let digits = port.bytes().all(|b| b.is_ascii_digit());
                let named = !port.is_empty()
                    && port.len() <= if digits { 12 } else { 15 }
                    && port != "lo"
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

    /// A span that a link adds, in `[defaults]`, a `[[link]]` or a `[[fault]]`.
    pub(super) fn delay_fits(&mut self, span: Option<&Q<Duration>>) {
        if let Some(span) = span.filter(|span| span.get_ref().0 > DELAY_MAX) {
            let message = format!("a link holds a frame for at most {DELAY_MAX}");
            self.issue(Issue::new(span.span(), message));
        }
    }

    fn links(&mut self, uses: &mut Uses) -> Vec<Link> {
        let mut links = Vec::new();
        let file = self.file;
        let defaults = &file.defaults.link;
        for span in [&defaults.delay, &defaults.jitter, &defaults.reorder_by] {
            self.delay_fits(span.as_ref());
        }
        for table in &file.link {
            let rate_q = table.rate.as_ref().or(defaults.rate.as_ref());
            let rate = value(rate_q).unwrap_or(LINK_RATE);
            self.rate_above_zero(rate_q);
            for span in [&table.delay, &table.jitter, &table.reorder_by] {
                self.delay_fits(span.as_ref());
            }
            let both = |own, default| value(own).or_else(|| value(default));
            let impairment = Impairment {
                delay: both(table.delay.as_ref(), defaults.delay.as_ref()).unwrap_or(LINK_DELAY),
                jitter: both(table.jitter.as_ref(), defaults.jitter.as_ref()).unwrap_or_default(),
                loss: value(table.loss.as_ref().or(defaults.loss.as_ref())).unwrap_or_default(),
                corrupt: value(table.corrupt.as_ref().or(defaults.corrupt.as_ref()))
                    .unwrap_or_default(),
                reorder: value(table.reorder.as_ref().or(defaults.reorder.as_ref()))
                    .unwrap_or_default(),
                reorder_by: both(table.reorder_by.as_ref(), defaults.reorder_by.as_ref())
                    .unwrap_or_default(),
            };
            if let Some(reorder) = &table.reorder
                && impairment.reorder.0 > 0
                && impairment.reorder_by.is_zero()
            {
                self.issue(
                    Issue::new(reorder.span(), "frames are held back by no time")
                        .help("add reorder_by, such as reorder_by = \"20us\""),
                );
            }
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

    pub(super) fn rate_above_zero(&mut self, rate: Option<&Q<Rate>>) {
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

    /// Bytes of a chunk, and where the file says so.
    fn chunk_bytes(&self) -> (u32, Option<Range<usize>>) {
        let chunk = self.file.lab.chunk.as_ref();
        let bytes =
            if chunk.is_some_and(|chunk| chunk.get_ref().0.0 == 2_048) { 2_048 } else { 4_096 };
        (bytes, chunk.map(Spanned::span))
    }

    pub(super) fn mtu(&mut self, own: Option<&S<ByteCount>>) -> u32 {
        let Some(mtu) = own.or(self.file.defaults.mtu.as_ref()) else { return MTU_BYTES };
        let bytes = mtu.get_ref().0;
        let (chunk_bytes, chunk_span) = self.chunk_bytes();
        let high = memory::mtu_bytes_max(chunk_bytes);
        if !(MTU_BYTES_MIN..=high).contains(&bytes) {
            let message = format!("an MTU of {bytes} is outside {MTU_BYTES_MIN} to {high}");
            let mut issue = Issue::new(mtu.span(), message);
            if bytes > high {
                issue = issue.help(format!(
                    "the kernel takes a frame in at most {DESCRIPTORS_MAX} chunks, and one of \
                     {chunk_bytes} bytes holds {} of it",
                    chunk_bytes - memory::CHUNK_OVERHEAD_BYTES
                ));
                if let Some(span) = chunk_span {
                    issue = issue.other(span, "the chunks");
                }
            }
            self.issue(issue);
        }
        bytes
    }
}

#[derive(Clone, Copy)]
pub(super) enum Kind {
    Host = 0x48,
    Switch = 0x53,
}

/// A locally administered address that the node's kind, index and port determine.
pub(super) fn address(kind: Kind, index: usize, port: u16) -> MacAddr {
    let [_, high, low] = (index + 1).to_be_bytes()[5..] else { return MacAddr::default() };
    let [page, port] = port.to_be_bytes();
    MacAddr([0x02, 0x77, kind as u8 + page, high, low, port])
}
