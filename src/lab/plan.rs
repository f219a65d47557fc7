//! From a topology to what a driver runs: nodes as state machines, links as models, both numbered.

use crate::cli::Failure;
use crate::host::{ExpectedStream, Host};
use crate::lab::device::Device;
use crate::lab::topology::{Attachment, FaultAction, HostKind, NodeId, Topology};
use crate::line::FRAME_BYTES_MIN;
use crate::node::PortId;
use crate::replay::ReplaySource;
use crate::sim::{LinkChange, LinkModel, Station};
use crate::switch::Switch;
use crate::time::{Duration, Time};

/// One node that tailwater runs.
#[derive(Debug)]
pub struct PlannedNode {
    /// Which of the topology.
    pub id: NodeId,
    /// Its name.
    pub name: String,
    /// The state machine.
    pub device: Device,
    /// Its ports, by [`PortId`].
    pub ports: Vec<PlannedPort>,
    /// The core it must run on.
    pub core: Option<u32>,
    /// The I/O workers that serve its ports' rings: for each, the core it must run on.
    pub io_workers: Vec<Option<u32>>,
}

/// One port of a planned node.
#[derive(Clone, Debug)]
pub struct PlannedPort {
    /// `NODE:PORT`.
    pub name: String,
    /// What hangs on it.
    pub attachment: Attachment,
    /// Largest layer-3 packet.
    pub mtu_bytes: u32,
}

impl PlannedNode {
    /// The node as a station, with the changes that are planned for its links.
    pub fn into_station(self, topology: &Topology) -> Station<Device> {
        let ports = u16::try_from(self.ports.len()).unwrap_or(u16::MAX);
        let mut station = Station::new(self.device, ports);
        for (number, port) in (0..).map(PortId).zip(&self.ports) {
            match port.attachment {
                Attachment::None => station.plan_link(Time::ZERO, number, false),
                Attachment::External(_) => {}
                Attachment::Link(link, _) => {
                    for (_, at, up) in Plan::link_events(topology).filter(|(l, ..)| *l == link) {
                        station.plan_link(at, number, up);
                    }
                }
            }
        }
        station
    }
}

/// Everything that a driver needs of a topology.
#[derive(Debug, Default)]
pub struct Plan {
    /// The nodes that tailwater runs, switches first.
    pub nodes: Vec<PlannedNode>,
    /// Per link of the topology, its two directions: from end 0 to end 1, and back.
    pub links: Vec<[LinkModel; 2]>,
}

impl Plan {
    /// Builds every node and link of `topology`.
    ///
    /// # Errors
    /// A switch or host whose configuration contradicts itself.
    pub fn of(topology: &Topology) -> Result<Self, Failure> {
        let mut nodes = Vec::new();
        for (index, switch) in topology.switches.iter().enumerate() {
            let name = switch.config.name.clone();
            let device = Switch::new(switch.config.clone())
                .map_err(|error| Failure::Usage(format!("switch {name}: {error}")))?;
            let ports = switch.config.ports.iter().zip(&switch.attachments);
            nodes.push(PlannedNode {
                id: NodeId::Switch(index),
                ports: ports
                    .map(|(port, attachment)| PlannedPort {
                        name: format!("{name}:{}", port.name),
                        attachment: *attachment,
                        mtu_bytes: port.mtu_bytes,
                    })
                    .collect(),
                name,
                device: Device::Switch(Box::new(device)),
                core: switch.core,
                io_workers: switch.io_workers.clone(),
            });
        }
        for (index, host) in topology.hosts.iter().enumerate() {
            if host.kind != HostKind::Agent {
                continue;
            }
            let name = host.config.name.clone();
            let expected = topology.streams.iter().filter(|stream| stream.to == index);
            let expected: Vec<_> =
                expected.map(|stream| ExpectedStream { id: stream.config.id }).collect();
            let device = Host::new(&host.config, &expected)
                .map_err(|error| Failure::Usage(format!("host {name}: {error}")))?;
            nodes.push(PlannedNode {
                id: NodeId::Host(index),
                ports: vec![PlannedPort {
                    name: format!("{name}:{}", host.config.port_name),
                    attachment: host.attachment,
                    mtu_bytes: host.config.mtu_bytes,
                }],
                name,
                device: Device::Host(Box::new(device)),
                core: host.core,
                io_workers: Vec::new(),
            });
        }
        Ok(Self { nodes, links: link_models(topology) })
    }

    /// Puts `source` in the place of the agent host `host`, an index into [`Topology::hosts`]. False
    /// when tailwater does not run that host.
    pub fn replay_from(&mut self, host: usize, source: ReplaySource) -> bool {
        let node = self.nodes.iter_mut().find(|node| node.id == NodeId::Host(host));
        let Some(node) = node else { return false };
        node.device = Device::Source(Box::new(source));
        true
    }

    /// The node and port at an end of a link, when tailwater runs it.
    pub fn end(&self, topology: &Topology, link: usize, end: usize) -> Option<(usize, PortId)> {
        let end = &topology.links[link].ends[end];
        let node = self.nodes.iter().position(|node| node.id == end.node)?;
        Some((node, end.port))
    }

    /// When each link of the topology goes up or down, for the nodes at its ends.
    pub fn link_events(topology: &Topology) -> impl Iterator<Item = (usize, Time, bool)> + '_ {
        topology.faults.iter().filter_map(|fault| match fault.action {
            FaultAction::Down => Some((fault.link, fault.at, false)),
            FaultAction::Up => Some((fault.link, fault.at, true)),
            _ => None,
        })
    }

    /// How far node time may run ahead of the slowest worker: nothing that is sent now can arrive
    /// sooner. [`Duration::MAX`] without links.
    pub fn lookahead(&self, topology: &Topology) -> Duration {
        let mut least = Duration::MAX;
        for (link, models) in topology.links.iter().zip(&self.links) {
            for (end, model) in link.ends.iter().zip(models) {
                let (rate, overhead_bytes) = match end.node {
                    NodeId::Switch(index) => {
                        let config = &topology.switches[index].config;
                        (config.ports[end.port.index()].rate, config.overhead_bytes)
                    }
                    NodeId::Host(index) => {
                        let config = &topology.hosts[index].config;
                        (config.rate, config.overhead_bytes)
                    }
                };
                // A port on a rate of odd length rounds a frame's time down by carrying fractions.
                let wire_time = rate.time_of(u64::from(FRAME_BYTES_MIN + overhead_bytes));
                let crossing = model.delay_min() + wire_time - Duration::from_ps(1);
                least = least.min(crossing);
            }
        }
        least
    }
}

/// The models of all links with the topology's faults planned on them.
fn link_models(topology: &Topology) -> Vec<[LinkModel; 2]> {
    let mut models: Vec<[LinkModel; 2]> = topology
        .links
        .iter()
        .map(|link| {
            let [a, b] = &link.ends;
            [(a, b), (b, a)].map(|(from, to)| {
                let name = format!("{}>{}", from.name, to.name);
                let impairment = &link.impairment;
                let mut model = LinkModel::new(&name, impairment.delay, topology.seed);
                model.begin_with(LinkChange::Jitter(impairment.jitter));
                model.begin_with(LinkChange::LossPpb(impairment.loss.0.into()));
                model.begin_with(LinkChange::CorruptPpb(impairment.corrupt.0.into()));
                model.begin_with(LinkChange::ReorderPpb(impairment.reorder.0.into()));
                model.begin_with(LinkChange::ReorderBy(impairment.reorder_by));
                model
            })
        })
        .collect();
    for fault in &topology.faults {
        let change = match fault.action {
            FaultAction::Down => LinkChange::Down,
            FaultAction::Up => LinkChange::Up,
            FaultAction::Loss(ppb) => LinkChange::LossPpb(ppb.0.into()),
            FaultAction::Corrupt(ppb) => LinkChange::CorruptPpb(ppb.0.into()),
            FaultAction::Delay(delay) => LinkChange::Delay(delay),
            FaultAction::Jitter(jitter) => LinkChange::Jitter(jitter),
            FaultAction::Reorder(ppb) => LinkChange::ReorderPpb(ppb.0.into()),
            FaultAction::ReorderBy(by) => LinkChange::ReorderBy(by),
        };
        for model in &mut models[fault.link] {
            model.plan(fault.at, change);
        }
    }
    models
}
