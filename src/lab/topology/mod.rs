//! Topology files: read, checked, and resolved into what switches, hosts and links are built from.
//!
//! [`Topology`] holds no place in the file any more: every driver (simulator, lab) starts from it.
//! Nodes are in natural order of their names (`h2` before `h10`), so the same file always gives the
//! same addresses, ports and numbers.

mod announce;
mod balance;
mod error;
mod externals;
mod file;
mod flow_control;
mod groups;
mod hosts;
mod io_workers;
mod options;
mod order;
mod paths;
mod queues;
mod resolve;
mod router;
mod shares;
mod stations;
mod storms;
mod streams;
mod switches;
mod value;

#[cfg(test)]
mod every_key;
#[cfg(test)]
mod tests;

use std::path::Path;

pub use error::{Issue, TopologyError};
pub use order::natural;
pub use shares::{ExplainedHeadroom, explain_headrooms};
pub use value::{Ppb, PpbError};

use crate::cli::Failure;
use crate::host::{HostConfig, StreamConfig};
use crate::lab::expect::Expectation;
use crate::lab::memory;
use crate::node::PortId;
use crate::switch::SwitchConfig;
use crate::switch::balance::Method;
use crate::time::{Duration, Time};
use crate::units::Rate;
use crate::xdp::{Attach, Steering, ZeroCopy};

/// A whole lab, ready to be built.
#[derive(Clone, Debug)]
pub struct Topology {
    /// The lab's name: of its namespaces, its socket and its report.
    pub name: String,
    /// The run's seed; already in every config. See [`Topology::set_seed`].
    pub seed: u64,
    /// How long and by which clock.
    pub run: Run,
    /// How sockets and threads are made.
    pub lab: LabOptions,
    /// Switches, in natural order of their names.
    pub switches: Vec<SwitchNode>,
    /// Hosts of both kinds, in natural order of their names.
    pub hosts: Vec<HostNode>,
    /// Links, in the order of the file.
    pub links: Vec<Link>,
    /// Existing interfaces that are ports of the lab.
    pub externals: Vec<External>,
    /// Streams, in the order of the file; each is also in its source's config.
    pub streams: Vec<Stream>,
    /// Faults, by time.
    pub faults: Vec<Fault>,
    /// What the report is held against.
    pub expectations: Vec<Expectation>,
}

/// A node of the lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeId {
    /// An index into [`Topology::switches`].
    Switch(usize),
    /// An index into [`Topology::hosts`].
    Host(usize),
}

/// What hangs on a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attachment {
    /// An index into [`Topology::links`], and which end of it this port is (0 or 1).
    Link(usize, usize),
    /// An index into [`Topology::externals`].
    External(usize),
    /// Nothing: the port exists and its link is down.
    None,
}

/// How a switch finds its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Forwarding {
    /// By learning, on the spanning tree.
    #[default]
    Learning,
    /// By entries set along the shortest paths, spread over equal ones by destination.
    Static,
}

/// A switch of the lab.
#[derive(Clone, Debug)]
pub struct SwitchNode {
    /// What the state machine is built from; holds the name and the ports.
    pub config: SwitchConfig,
    /// What hangs on each port, by [`PortId`].
    pub attachments: Vec<Attachment>,
    /// How it finds its way; the static entries are in the config.
    pub forwarding: Forwarding,
    /// The core it must run on.
    pub core: Option<u32>,
    /// The headrooms that were computed: `headroom = "auto"`.
    pub headrooms: Vec<ExplainedHeadroom>,
    /// The I/O workers that serve its ports' rings, in turn: for each, the core it must run on.
    pub io_workers: Vec<Option<u32>>,
}

/// What a host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostKind {
    /// Run by tailwater on AF_XDP.
    Agent,
    /// The Linux stack, for any program.
    Kernel,
}

/// A host of the lab.
#[derive(Clone, Debug)]
pub struct HostNode {
    /// Addresses, line and streams; what an agent's state machine is built from.
    pub config: HostConfig,
    /// Agent or kernel.
    pub kind: HostKind,
    /// What hangs on its one port.
    pub attachment: Attachment,
    /// The core it must run on.
    pub core: Option<u32>,
    /// Queues of its interface.
    pub queues: u32,
    /// Where packets for other networks go: a router address of a switch, one of each IP version.
    pub gateways: Vec<std::net::IpAddr>,
    /// What a kernel host runs, one after the other, when its namespace stands.
    pub commands: Vec<String>,
}

/// One end of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkEnd {
    /// The node.
    pub node: NodeId,
    /// Its port.
    pub port: PortId,
    /// `NODE:PORT` as in the file.
    pub name: String,
}

/// What a link does to frames besides carrying them; also what faults change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Impairment {
    /// From the last bit sent to the last bit received.
    pub delay: Duration,
    /// Added to the delay, uniform from zero to this, order kept.
    pub jitter: Duration,
    /// Share of frames that are lost.
    pub loss: Ppb,
    /// Share of frames with one bit flipped.
    pub corrupt: Ppb,
    /// Share of frames that are held back, so that those behind them pass.
    pub reorder: Ppb,
    /// How much longer a frame takes that is held back.
    pub reorder_by: Duration,
}

/// A full-duplex link between two ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// `h1:eth0-s1:1`, as reports name it.
    pub name: String,
    /// Its ends, in the order of the file.
    pub ends: [LinkEnd; 2],
    /// The rate; the ports at its ends are shaped to it unless the port says otherwise.
    pub rate: Rate,
    /// Delay and what it does to frames, in both directions.
    pub impairment: Impairment,
}

/// An existing interface that is a port of a switch. Never created, moved or deleted by the lab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct External {
    /// The switch, an index into [`Topology::switches`].
    pub switch: usize,
    /// Its port.
    pub port: PortId,
    /// The interface's name.
    pub interface: String,
    /// Its namespace: a name under `/run/netns`, a path, or the one of tailwater when None.
    pub netns: Option<String>,
    /// Which of its frames come to the switch; the kernel keeps the rest.
    pub steering: Steering,
    /// In the driver or in the stack.
    pub attach: Attach,
    /// Copies or not.
    pub zero_copy: ZeroCopy,
    /// Its queues, or none for all of them.
    pub queues: Vec<u32>,
}

/// One stream, from an agent to another host.
#[derive(Clone, Debug)]
pub struct Stream {
    /// The sender, an index into [`Topology::hosts`].
    pub from: usize,
    /// The receiver, an index into [`Topology::hosts`].
    pub to: usize,
    /// What the sender is told.
    pub config: StreamConfig,
}

/// What a fault does to its link, in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultAction {
    /// The link goes down.
    Down,
    /// The link comes up.
    Up,
    /// From now on, this share of frames is lost.
    Loss(Ppb),
    /// From now on, this share of frames has a bit flipped.
    Corrupt(Ppb),
    /// From now on, this delay.
    Delay(Duration),
    /// From now on, this jitter.
    Jitter(Duration),
    /// From now on, this share of frames is held back.
    Reorder(Ppb),
    /// From now on, frames are held back by this much.
    ReorderBy(Duration),
}

/// A change to one link at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// When.
    pub at: Time,
    /// An index into [`Topology::links`].
    pub link: usize,
    /// What.
    pub action: FaultAction,
}

/// The clock that a lab runs by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Node time waits for every worker: results do not depend on the machine.
    Gated,
    /// The OS clock.
    Free,
}

/// How long and by which clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// When the run ends; None ends it when every stream has, and the network is empty.
    pub duration: Option<Duration>,
    /// The clock: gated when every node is ours, unless the file says otherwise.
    pub clock: Clock,
    /// Real nanoseconds for one of node time, by the free clock.
    pub dilation: u32,
    /// Ports that are captured, as `NODE:PORT`.
    pub capture: Vec<String>,
}

/// How the lab is made of sockets and threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabOptions {
    /// Bytes of one UMEM chunk: 2,048 or 4,096.
    pub chunk_bytes: u32,
    /// Descriptors of each RX and TX ring; fill and completion rings have twice as many. None takes
    /// what the clock needs: see [`Topology::ring_entries`].
    pub ring_entries: Option<u32>,
    /// Queues of each switch port's interface.
    pub queues: u32,
    /// Worker threads; None places nodes by the cores there are.
    pub workers: Option<u32>,
    /// Spin always instead of sleeping when idle.
    pub busy_poll: bool,
    /// UMEM in huge pages when the kernel has them.
    pub huge_pages: bool,
    /// Take an external interface even if it carries the default route. No file can say so: who
    /// starts the lab does, with `--allow-default-route`.
    pub allow_default_route: bool,
}

/// Descriptors of a ring by the free clock, unless the file says otherwise.
const FREE_RING_ENTRIES: u32 = 2_048;

impl Default for LabOptions {
    fn default() -> Self {
        Self {
            chunk_bytes: 4_096,
            ring_entries: None,
            queues: 1,
            workers: None,
            busy_poll: false,
            huge_pages: true,
            allow_default_route: false,
        }
    }
}

impl Topology {
    /// The MAC address of the router that has an IP address, if a switch of the lab is it.
    pub fn router_mac(&self, address: std::net::IpAddr) -> Option<crate::wire::MacAddr> {
        router::router_mac(&self.switches, address)
    }

    /// Reads and checks the file at `path`.
    ///
    /// # Errors
    /// `Failure::Usage` when it cannot be read, is not UTF-8, or says something that does not hold,
    /// with each place in the file.
    pub fn load(path: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            Failure::Usage(format!("cannot read the topology file {}: {error}", path.display()))
        })?;
        Ok(Self::parse(&path.display().to_string(), &text)?)
    }

    /// Checks the text of a file that errors call `file`.
    ///
    /// # Errors
    /// Everything that is wrong; when the text is not TOML or has an unknown key or a value of a
    /// wrong kind, the first such place.
    pub fn parse(file: &str, text: &str) -> Result<Self, TopologyError> {
        let fail = |issues| TopologyError { file: file.to_owned(), text: text.to_owned(), issues };
        let parsed: file::File =
            toml::from_str(text).map_err(|error| fail(vec![error::from_toml(&error, text)]))?;
        resolve::resolve(&parsed).map_err(fail)
    }

    /// Replaces the run's seed, as `--seed` does.
    pub fn set_seed(&mut self, seed: u64) {
        self.seed = seed;
        for switch in &mut self.switches {
            switch.config.seed = seed;
        }
        for host in &mut self.hosts {
            host.config.seed = seed;
        }
    }

    /// What each switch is built from, in the order of [`Topology::switches`].
    pub fn switch_configs(&self) -> Vec<SwitchConfig> {
        self.switches.iter().map(|switch| switch.config.clone()).collect()
    }

    /// What each agent host is built from, with its index into [`Topology::hosts`].
    pub fn host_configs(&self) -> Vec<(usize, HostConfig)> {
        let agents = self.hosts.iter().enumerate().filter(|(_, h)| h.kind == HostKind::Agent);
        agents.map(|(index, host)| (index, host.config.clone())).collect()
    }

    /// A node's name.
    pub fn node_name(&self, node: NodeId) -> &str {
        match node {
            NodeId::Switch(index) => &self.switches[index].config.name,
            NodeId::Host(index) => &self.hosts[index].config.name,
        }
    }

    /// The node called `name`.
    pub fn node(&self, name: &str) -> Option<NodeId> {
        let switch = self.switches.iter().position(|s| s.config.name == name);
        let host = self.hosts.iter().position(|h| h.config.name == name);
        switch.map(NodeId::Switch).or_else(|| host.map(NodeId::Host))
    }

    /// Every node, switches first.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        (0..self.switches.len()).map(NodeId::Switch).chain((0..self.hosts.len()).map(NodeId::Host))
    }

    /// The link with an end called `NODE:PORT`, or with that whole name.
    pub fn link(&self, name: &str) -> Option<usize> {
        self.links
            .iter()
            .position(|link| link.name == name || link.ends.iter().any(|end| end.name == name))
    }

    /// The longest that a frame may be on a link, its faults included: from its last bit sent to its
    /// last bit received.
    pub fn longest_delay(&self, link: usize) -> Duration {
        let impairment = &self.links[link].impairment;
        let [mut delay, mut jitter, mut reorder_by] =
            [impairment.delay, impairment.jitter, impairment.reorder_by];
        for fault in self.faults.iter().filter(|fault| fault.link == link) {
            match fault.action {
                FaultAction::Delay(by) => delay = delay.max(by),
                FaultAction::Jitter(by) => jitter = jitter.max(by),
                FaultAction::ReorderBy(by) => reorder_by = reorder_by.max(by),
                FaultAction::Down
                | FaultAction::Up
                | FaultAction::Loss(_)
                | FaultAction::Corrupt(_)
                | FaultAction::Reorder(_) => {}
            }
        }
        delay + jitter + reorder_by
    }

    /// True when a stream's frames arrive in the order in which they were sent: nothing on their way
    /// holds one back or takes another path for it, and none is trimmed, which lets it go ahead.
    pub fn promises_order(&self) -> bool {
        let configs = || self.switches.iter().map(|switch| &switch.config);
        let routers = || configs().filter_map(|config| config.router.as_ref());
        let routes = || routers().flat_map(|router| &router.routes);
        // A member that goes or comes back takes its flows along, past frames on their way.
        let moves = configs().any(|config| !config.groups.is_empty())
            || routes().any(|route| route.via.len() > 1);
        let mut methods = configs()
            .flat_map(|config| config.groups.iter().map(|group| &group.group.method))
            .chain(routers().map(|router| &router.balance))
            .chain(routes().filter_map(|route| route.balance.as_ref()));
        let reorders = |action: &FaultAction| match action {
            FaultAction::Reorder(share) => share.0 > 0,
            FaultAction::Down | FaultAction::Up => moves,
            _ => false,
        };
        self.links.iter().all(|link| link.impairment.reorder.0 == 0)
            && self.switches.iter().all(|switch| switch.config.trim.is_none())
            && !self.faults.iter().any(|fault| reorders(&fault.action))
            && !methods.any(Method::reorders)
    }

    /// True when tailwater runs the node.
    pub fn is_run_here(&self, node: NodeId) -> bool {
        match node {
            NodeId::Switch(_) => true,
            NodeId::Host(index) => self.hosts[index].kind == HostKind::Agent,
        }
    }

    /// Queues of the pair of interfaces that a link is: a native XDP program needs as many RX queues
    /// as the peer has TX queues.
    pub fn link_queues(&self, link: usize) -> u32 {
        let queues = |end: &LinkEnd| match end.node {
            NodeId::Switch(_) => self.lab.queues,
            NodeId::Host(host) => self.hosts[host].queues,
        };
        self.links[link].ends.iter().map(queues).max().unwrap_or(1)
    }

    /// Descriptors of each RX and TX ring. The gated clock lets few frames of a link be in the kernel
    /// at once, so that rings for those do; the free one has to take bursts.
    pub fn ring_entries(&self) -> u32 {
        self.lab.ring_entries.unwrap_or_else(|| match self.run.clock {
            Clock::Gated => memory::gated_ring_entries(self),
            Clock::Free => FREE_RING_ENTRIES,
        })
    }

    /// The shortest delay of a link, by which gated time may run ahead. None without links.
    pub fn delay_min(&self) -> Option<Duration> {
        self.links.iter().map(|link| link.impairment.delay).min()
    }

    /// True when tailwater runs every node: no kernel host and no external port.
    pub fn is_ours(&self) -> bool {
        self.externals.is_empty() && self.hosts.iter().all(|h| h.kind == HostKind::Agent)
    }
}
