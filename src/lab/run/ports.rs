//! Opening the ports of a worker's nodes over its UMEM, and closing them with every chunk accounted
//! for.

use crossbeam::channel::Sender;

use crate::cli::Failure;
use crate::lab::captures::Captures;
use crate::lab::device::Device;
use crate::lab::engine::{LabPort, OpenRequest, Placement, XdpPort};
use crate::lab::memory::worker_chunks;
use crate::lab::netns::{Interface, Network};
use crate::lab::plan::{PlannedNode, PlannedPort};
use crate::lab::run::PortMode;
use crate::lab::run::io::{IoCrew, IoDeal};
use crate::lab::topology::{Clock, External, NodeId, Topology};
use crate::node::PortId;
use crate::sim::Station;
use crate::xdp::plan::queue_count;
use crate::xdp::{
    BusyPoll, ChunkSize, NetNs, Port, PortConfig, PortError, RingSizes, UmemStore, XdpMode,
};

/// The UMEM of a worker that runs `nodes`.
fn open_store<'a>(
    topology: &Topology,
    network: &Network,
    nodes: impl IntoIterator<Item = &'a PlannedNode> + Clone,
) -> Result<UmemStore, Failure> {
    let chunk_size =
        if topology.lab.chunk_bytes <= 2_048 { ChunkSize::Bytes2048 } else { ChunkSize::Bytes4096 };
    let mut chunks = worker_chunks(topology, nodes.clone());
    for node in nodes {
        chunks += chunks_of_more_queues(topology, network, node)?;
    }
    let lacks = |why: String| {
        Failure::HostLacks(format!(
            "no memory for a UMEM of {chunks} chunks of {} bytes: {why}. Make `buffer` smaller, or \
             see `tailwater lab check -v`",
            chunk_size.bytes()
        ))
    };
    let count = u32::try_from(chunks).map_err(|_| lacks("more than 2^32 chunks".to_owned()))?;
    UmemStore::new(chunk_size, count).map_err(|error| lacks(error.to_string()))
}

/// How the port on `interface` is opened.
fn port_config(
    topology: &Topology,
    interface: &Interface,
    external: Option<&External>,
) -> PortConfig {
    let netns = match &interface.netns {
        None => NetNs::Current,
        Some(path) if path.contains('/') => NetNs::Path(path.into()),
        Some(name) => NetNs::Named(name.clone()),
    };
    let mut config = PortConfig::new(netns, &interface.name);
    config.rings = RingSizes::of(topology.ring_entries());
    // By the gated clock a frame is paired with the note of its departure, in their order.
    config.tx_in_order = topology.run.clock == Clock::Gated;
    config.busy_poll = topology.lab.busy_poll.then(BusyPoll::default);
    if let Some(external) = external {
        config.queues.clone_from(&external.queues);
        config.steering = external.steering.clone();
        config.attach = external.attach;
        config.zero_copy = external.zero_copy;
        config.allow_default_route = topology.lab.allow_default_route;
        config.promiscuous = true;
    }
    config
}

/// What a port that did not open means: what the user wrote is wrong, or the machine lacks it.
fn port_failure(name: &str, error: &PortError) -> Failure {
    let text = format!("port {name}: {error}");
    match error {
        PortError::NoInterface { .. }
        | PortError::DefaultRoute { .. }
        | PortError::NoQueue { .. }
        | PortError::Rings { .. } => Failure::Usage(text),
        _ => Failure::HostLacks(text),
    }
}

/// Chunks for the rings of external interfaces beyond their first queue, which only the machine
/// knows the number of.
fn chunks_of_more_queues(
    topology: &Topology,
    network: &Network,
    node: &PlannedNode,
) -> Result<u64, Failure> {
    let mut chunks = 0;
    for (number, planned) in (0..).map(PortId).zip(&node.ports) {
        let Some(external) = topology.external(planned.attachment) else { continue };
        let Some(interface) = network.interface(node.id, number) else { continue };
        let config = port_config(topology, interface, Some(external));
        let queues = queue_count(&config).map_err(|error| port_failure(&planned.name, &error))?;
        let entries = u64::from(config.rings.fill) + u64::from(config.rings.tx);
        chunks += entries * u64::from(queues.saturating_sub(1));
    }
    Ok(chunks)
}

/// Opens every port of `node` that has an interface.
fn open_ports(
    topology: &Topology,
    network: &Network,
    node: &PlannedNode,
    store: &mut UmemStore,
    opener: &Sender<OpenRequest>,
) -> Result<(Vec<LabPort>, Vec<IoCrew>), Failure> {
    let mut ports = Vec::with_capacity(node.ports.len());
    let mut deal = IoDeal::new(&node.io_workers);
    for (number, planned) in (0..).map(PortId).zip(&node.ports) {
        let Some(interface) = network.interface(node.id, number) else {
            ports.push(LabPort::Unconnected { refused: 0 });
            continue;
        };
        let config = port_config(topology, interface, topology.external(planned.attachment));
        let mut port =
            Port::open(store, config).map_err(|error| port_failure(&planned.name, &error))?;
        deal.hand_over(&planned.name, &mut port)?;
        ports.push(LabPort::Xdp(Box::new(XdpPort::new(port, opener.clone()))));
    }
    Ok((ports, deal.into_crews()))
}

/// A worker's store, and its nodes with their ports open.
pub(super) struct Berth {
    /// The UMEM of all of them.
    pub(super) store: UmemStore,
    /// The core it is pinned to.
    pub(super) core: Option<usize>,
    /// In the order in which the worker has them.
    pub(super) nodes: Vec<BerthedNode>,
}

/// A node with its ports open.
pub(super) struct BerthedNode {
    /// As counted by the plan.
    pub(super) number: usize,
    /// Which of the topology.
    pub(super) id: NodeId,
    /// What the plan says of its ports.
    pub(super) planned: Vec<PlannedPort>,
    /// The node, with its taps.
    pub(super) station: Station<Device>,
    /// By port.
    pub(super) ports: Vec<LabPort>,
    /// The threads to be that serve their rings.
    pub(super) io: Vec<IoCrew>,
}

/// Opens the stores and ports of all workers.
pub(super) fn open_all(
    topology: &Topology,
    nodes: Vec<PlannedNode>,
    placements: &[Placement],
    network: &Network,
    captures: &mut Captures,
    opener: &Sender<OpenRequest>,
) -> Result<Vec<Berth>, Failure> {
    let pinned = super::is_pinned(placements);
    let mut nodes: Vec<Option<PlannedNode>> = nodes.into_iter().map(Some).collect();
    let mut berths = Vec::with_capacity(placements.len());
    for placement in placements {
        let mine: Vec<(usize, PlannedNode)> = placement
            .nodes
            .iter()
            .filter_map(|number| Some((*number, nodes[*number].take()?)))
            .collect();
        let mut store = open_store(topology, network, mine.iter().map(|(_, node)| node))?;
        let mut berthed = Vec::with_capacity(mine.len());
        for (number, node) in mine {
            let (ports, io) = open_ports(topology, network, &node, &mut store, opener)?;
            let (id, planned) = (node.id, node.ports.clone());
            let mut station = node.into_station(topology);
            for (port, tap) in captures.take(number) {
                station.set_tap(port, Box::new(tap));
            }
            berthed.push(BerthedNode { number, id, planned, station, ports, io });
        }
        berths.push(Berth { store, core: placement.core.filter(|_| pinned), nodes: berthed });
    }
    Ok(berths)
}

/// Refuses a gated run of nodes that are not all ours, since the kernel's stack waits for nobody,
/// and one whose frames lie in rings that their worker does not see.
pub(super) fn check_can_be_gated(topology: &Topology) -> Result<(), Failure> {
    if let Some(switch) = topology.switch_with_io_workers() {
        return Err(Failure::Usage(format!(
            "{}: switch {switch} has I/O workers, so this lab cannot be gated: give --clock free, \
             or leave `io_workers` out of [switch.{switch}]",
            topology.name
        )));
    }
    if topology.is_ours() {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "{}: kernel hosts and external interfaces live by the OS clock, so this lab cannot be \
         gated: give --clock free",
        topology.name
    )))
}

/// How every open port works, as `status` shows it.
pub(super) fn port_modes(berths: &[Berth]) -> Vec<PortMode> {
    let nodes = berths.iter().flat_map(|berth| &berth.nodes);
    let ports = nodes.flat_map(|node| node.planned.iter().zip(&node.ports));
    ports
        .filter_map(|(planned, port)| {
            let LabPort::Xdp(xdp) = port else { return None };
            let port = xdp.port();
            Some(PortMode {
                port: planned.name.clone(),
                interface: port.name().to_owned(),
                mode: port.xdp_mode()?.name().to_owned(),
                zero_copy: port.is_zero_copy(),
                queues: port.queue_numbers().to_vec(),
            })
        })
        .collect()
}

/// Closes a port, and gives what its rings and the kernel counted, under its name.
pub(super) fn port_figures(
    name: &str,
    port: &mut LabPort,
    store: &mut UmemStore,
) -> Option<(String, serde_json::Value)> {
    let LabPort::Xdp(xdp) = port else { return None };
    let (mode, zero_copy) = xdp.mode();
    let mode = mode.map(XdpMode::name);
    let queues = xdp.port().queue_numbers().to_vec();
    xdp.close(store);
    let counted = xdp.counters();
    let mut figures = serde_json::Map::new();
    figures.insert("mode".to_owned(), mode.into());
    figures.insert("zero_copy".to_owned(), zero_copy.into());
    figures.insert("queues".to_owned(), queues.into());
    figures.extend(
        counted.iter().filter(|(_, n)| *n > 0).map(|(name, n)| (name.to_owned(), n.into())),
    );
    Some((name.to_owned(), serde_json::Value::Object(figures)))
}

/// What is wrong with a store at the end of a run, when every frame and ring has been given back.
pub(super) fn unaccounted(store: &UmemStore, worker: usize) -> Option<String> {
    let census = store.census();
    (census.free != census.total).then(|| {
        format!(
            "worker {worker}: of {} UMEM chunks {} are not free at the end ({} with nodes, {} in \
             fill rings, {} in TX rings)",
            census.total,
            census.total - census.free,
            census.user,
            census.fill,
            census.tx
        )
    })
}
