//! What a simulation checks of pauses: a witness at each port, and a watch for ports that wait for
//! each other.

use serde_json::{Value, json};

use crate::frame::SlabStore;
use crate::lab::device::Device;
use crate::lab::topology::{Attachment, HostKind, NodeId, SwitchNode, Topology};
use crate::node::PortId;
use crate::sim::pause_witness::{ClassRule, PauseWitness};
use crate::sim::wait_cycle::{DeadlockWatch, QueueRef, Wait};
use crate::sim::{Network, PortRef};
use crate::switch::{StoppedQueue, Trust};
use crate::time::{Duration, Time};

/// A cycle of waiting ports that has stood for so long is a deadlock.
const STANDS: Duration = Duration::from_us(500);

/// The checks of one run.
#[derive(Debug)]
pub struct PauseChecks {
    watch: DeadlockWatch,
    /// Whether there is anything to watch.
    is_lossless: bool,
    /// The switches' stations, and for each port the one at the other end of its link.
    peers: Vec<(usize, Vec<Option<PortRef>>)>,
}

/// How a switch gives frames a class, where all its ports do it alike.
fn rule_of(switch: &SwitchNode) -> Option<ClassRule> {
    let config = &switch.config;
    let first = config.ports.first()?;
    let same = config
        .ports
        .iter()
        .all(|port| port.trust == first.trust && port.default_priority == first.default_priority);
    // Prevention gives frames another class than they came with, and behind a detection the watchdog
    // means pauses to be ignored.
    if !same || config.prevention.is_some() || config.watchdog.is_some() {
        return None;
    }
    match first.trust {
        Trust::Pcp => Some(ClassRule::Pcp(config.pcp_to_priority, first.default_priority)),
        Trust::Dscp => {
            Some(ClassRule::Dscp(Box::new(config.dscp_to_priority), first.default_priority))
        }
        Trust::Port => None,
    }
}

/// The witness for a port of a node, where its frames tell their class.
pub fn witness_of(topology: &Topology, node: NodeId, port: PortId) -> Option<PauseWitness> {
    match node {
        NodeId::Switch(index) => {
            let switch = &topology.switches[index];
            let config = switch.config.ports.get(port.index())?;
            let lossless = config.shares.lossless_mask();
            (lossless != 0)
                .then(|| Some(PauseWitness::new(config.rate, lossless, rule_of(switch)?)))?
        }
        NodeId::Host(index) => {
            let host = &topology.hosts[index];
            let Attachment::Link(link, end) = host.attachment else { return None };
            let NodeId::Switch(far) = topology.links[link].ends[1 - end].node else { return None };
            let far = &topology.switches[far];
            let lossless = host.config.lossless;
            // What a host answers without a class of its own waits for no pause.
            let default = far.config.ports.first()?.default_priority;
            if host.kind == HostKind::Kernel || lossless == 0 || lossless & 1 << default != 0 {
                return None;
            }
            Some(PauseWitness::new(host.config.rate, lossless, rule_of(far)?))
        }
    }
}

impl PauseChecks {
    /// The checks of a run of these nodes, each with its place in the network.
    pub fn new(topology: &Topology, stations: &[NodeId]) -> Self {
        let station = |node: NodeId| stations.iter().position(|at| *at == node);
        let far = |attachment: &Attachment| {
            let Attachment::Link(link, end) = *attachment else { return None };
            let far = &topology.links[link].ends[1 - end];
            Some(PortRef { station: station(far.node)?, port: far.port })
        };
        let peers = topology.switches.iter().enumerate().filter_map(|(index, switch)| {
            let at = station(NodeId::Switch(index))?;
            Some((at, switch.attachments.iter().map(far).collect()))
        });
        let is_lossless = topology.switches.iter().any(|switch| switch.config.lossless_mask() != 0);
        Self { watch: DeadlockWatch::new(STANDS), is_lossless, peers: peers.collect() }
    }

    /// Looks at the network between two events.
    pub fn look(&mut self, network: &Network<Device, SlabStore>) {
        if !self.is_lossless {
            return;
        }
        let mut all = Vec::new();
        for (station, peers) in &self.peers {
            let Some(switch) = network.node(*station).as_switch() else { continue };
            for (port, peer) in (0_u16..).zip(peers) {
                let stopped = switch.stopped_queues(PortId(port)).into_iter();
                all.extend(stopped.map(|stopped| Stopped {
                    station: *station,
                    port,
                    peer,
                    stopped,
                }));
            }
        }
        let wait = |at: &Stopped<'_>| Wait {
            queue: at.queue(),
            first_since: at.stopped.first_since,
            behind: at
                .peer
                .map_or_else(Vec::new, |peer| behind(network, &all, peer, at.stopped.queue)),
        };
        let waits: Vec<Wait> = all.iter().map(wait).collect();
        self.watch.look(network.now(), &waits);
    }

    /// The deadlocks there were, as the report has them: None when there were none.
    pub fn deadlocks(&self, topology: &Topology, stations: &[NodeId]) -> Option<Value> {
        let name = |queue: &QueueRef| {
            let node = stations[queue.station];
            let NodeId::Switch(index) = node else { return String::new() };
            let config = &topology.switches[index].config;
            let port = &config.ports[usize::from(queue.port)].name;
            format!("{}:{port} queue {}", config.name, queue.queue)
        };
        let found = self.watch.found().iter().map(|deadlock| {
            json!({
                "since_ns": deadlock.since.as_ns(),
                "found_ns": deadlock.found.as_ns(),
                "cycle": deadlock.cycle.iter().map(name).collect::<Vec<_>>(),
            })
        });
        let found: Vec<Value> = found.collect();
        (!found.is_empty()).then(|| found.into())
    }

    /// What the witnesses saw, and what is outstanding where nothing moves any more, a sentence each.
    pub fn violations(
        topology: &Topology,
        stations: &[NodeId],
        network: &Network<Device, SlabStore>,
    ) -> Vec<String> {
        let mut violations = Vec::new();
        let now = network.now();
        for (index, node) in stations.iter().enumerate() {
            for (port, witness) in network.station(index).witnesses() {
                let name = port_name(topology, *node, port);
                if let Some(first) = witness.first() {
                    violations.push(format!(
                        "{name}: {} frames left in a pause of their class, the first at {} in one of \
                         priority {} from {} to {}",
                        witness.breaches(),
                        first.at,
                        first.class,
                        first.since,
                        first.until
                    ));
                }
                let silent = witness.silent_for(now);
                let counted = match network.node(index) {
                    Device::Switch(switch) => switch.flow_counters(now, port).pauses.rx_pause,
                    Device::Host(host) => host.pause_counters(now).rx_pause,
                    Device::Source(_) => silent,
                };
                if silent != counted {
                    violations.push(format!(
                        "{name}: paused for {counted:?} by its own count, told to be for {silent:?}"
                    ));
                }
            }
            if let (true, Some(switch)) = (network.is_quiet(), network.node(index).as_switch()) {
                for port in 0..switch.config().ports.len() {
                    let Ok(port) = u16::try_from(port) else { break };
                    let told = switch.xoff_told(PortId(port));
                    if told != 0 {
                        violations.push(format!(
                            "{}: XOFF of priorities {told:#010b} is outstanding on an idle network",
                            port_name(topology, *node, PortId(port))
                        ));
                    }
                }
            }
        }
        violations
    }
}

/// A queue that has frames and may not send, with what is at the other end of its port's link.
struct Stopped<'a> {
    station: usize,
    port: u16,
    peer: &'a Option<PortRef>,
    stopped: StoppedQueue,
}

impl Stopped<'_> {
    fn queue(&self) -> QueueRef {
        QueueRef { station: self.station, port: self.port, queue: self.stopped.queue }
    }
}

/// The queues of the station at `peer` that are stopped and hold frames which came by that port, of
/// the class that is stopped.
fn behind(
    network: &Network<Device, SlabStore>,
    all: &[Stopped<'_>],
    peer: PortRef,
    queue: u8,
) -> Vec<QueueRef> {
    let Some(switch) = network.node(peer.station).as_switch() else { return Vec::new() };
    let map = switch.config().priority_to_queue;
    let holds = |at: &&Stopped<'_>| {
        at.station == peer.station
            && at.stopped.origins.iter().any(|(ingress, priority)| {
                *ingress == peer.port && map[usize::from(priority & 7)] == queue
            })
    };
    all.iter().filter(holds).map(Stopped::queue).collect()
}

fn port_name(topology: &Topology, node: NodeId, port: PortId) -> String {
    let port = match node {
        NodeId::Switch(index) => &topology.switches[index].config.ports[port.index()].name,
        NodeId::Host(index) => &topology.hosts[index].config.port_name,
    };
    format!("{}:{port}", topology.node_name(node))
}

/// When the network was last looked at, or is to be again: at most so often.
#[derive(Clone, Copy, Debug, Default)]
pub struct Looks(Time);

impl Looks {
    /// Whether a look is due at `now`.
    pub fn is_due(&mut self, now: Time) -> bool {
        let is_due = self.0 <= now;
        if is_due {
            self.0 = now + STANDS / 5;
        }
        is_due
    }
}
