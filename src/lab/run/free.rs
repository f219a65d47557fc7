//! A lab in free time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam::channel::{Receiver, unbounded};

use super::handle::LabHandle;
use super::ports::{open_ports, open_store, port_figures, unaccounted};
use super::{Ended, Setting, cores, give_up_privileges, settle, supervise, wall_now};
use crate::cli::Failure;
use crate::lab::device::Device;
use crate::lab::engine::{
    FreePort, FreeStation, FreeWorker, LabPort, PortIo, Visit, XdpPace, place,
};
use crate::lab::links::{EndBooks, link_counters};
use crate::lab::outcome::Finished;
use crate::lab::plan::{Plan, PlannedNode, PlannedPort};
use crate::lab::series::{NodeSeries, interval_for};
use crate::lab::topology::{Attachment, NodeId, Topology};
use crate::measure::LatencyHistogram;
use crate::measure::report::{Clock as ReportClock, Driver};
use crate::sim::{LinkCounters, LinkModel};
use crate::time::{Duration, Time};
use crate::xdp::{Clock as WallClock, UmemStore};

/// A lab without an end of its own ends when its workers have had nothing to do for this long.
const QUIET_LOOKS: u32 = 40;

type Worker = FreeWorker<Device, UmemStore, LabPort>;

struct Crew {
    index: usize,
    core: Option<usize>,
    worker: Worker,
    nodes: Vec<(usize, NodeId, Vec<PlannedPort>)>,
    series: Vec<NodeSeries>,
    visits: Receiver<Visit<Device>>,
}

/// What a worker thread gives back.
struct Served {
    reached: Time,
    nodes: Vec<(usize, NodeId, Device)>,
    series: Vec<(usize, NodeSeries)>,
    /// Per (link, end), what that end has counted.
    ends: Vec<((usize, usize), EndBooks)>,
    lateness: LatencyHistogram,
    figures: Vec<(String, serde_json::Value)>,
    violations: Vec<String>,
}

/// Runs the lab by the OS clock.
pub(super) fn run(
    topology: &Topology,
    mut setting: Setting<'_>,
    started: &mut dyn FnMut(Arc<LabHandle>) -> Result<(), Failure>,
) -> Result<Ended, Failure> {
    let wall = wall_now();
    let cores = cores();
    let workers = topology.lab.workers.map_or(cores.len(), |n| usize::try_from(n).unwrap_or(1));
    let placements = place(&setting.plan, workers, &cores);
    let (handle, visits) = LabHandle::new(topology.run.clock, &setting.plan, &placements);
    let (opener, requests) = unbounded();

    let Plan { nodes, links } = std::mem::take(&mut setting.plan);
    let ours: Vec<NodeId> = nodes.iter().map(|node| node.id).collect();
    let mut nodes: Vec<Option<PlannedNode>> = nodes.into_iter().map(Some).collect();
    let mut crews = Vec::new();
    for (index, (placement, visits)) in placements.iter().zip(visits).enumerate() {
        let mine: Vec<(usize, PlannedNode)> = placement
            .nodes
            .iter()
            .filter_map(|number| Some((*number, nodes[*number].take()?)))
            .collect();
        let mut store = open_store(topology, mine.iter().map(|(_, node)| node))?;
        let mut stations = Vec::new();
        let mut crew_nodes = Vec::new();
        for (number, node) in mine {
            let ios = open_ports(topology, setting.network, &node, &mut store, &opener)?;
            let ports = ios
                .into_iter()
                .zip(&node.ports)
                .map(|(io, port)| {
                    let (towards, away) = models(topology, &links, &ours, port.attachment);
                    FreePort::new(io, towards, away)
                })
                .collect();
            crew_nodes.push((number, node.id, node.ports.clone()));
            let mut station = node.into_station(topology);
            for (port, tap) in setting.captures.take(number) {
                station.set_tap(port, Box::new(tap));
            }
            stations.push(FreeStation::new(station, ports));
        }
        let series = vec![NodeSeries::new(interval_for(topology.run.duration)); crew_nodes.len()];
        let core = placement.core.filter(|_| placements.len() <= cores.len());
        let worker = Worker::new(store, stations);
        crews.push(Crew { index, core, worker, nodes: crew_nodes, series, visits });
    }
    drop(opener);
    started(Arc::new(handle))?;
    give_up_privileges()?;

    let end = topology.run.duration.filter(|_| !setting.stay);
    let end = end.map_or(Time::NEVER, |duration| Time::ZERO + duration);
    let stop = AtomicBool::new(false);
    let quiet: Vec<AtomicBool> = crews.iter().map(|_| AtomicBool::new(false)).collect();
    let clock = WallClock::start(topology.run.dilation.max(1));
    let ends_when_quiet = end == Time::NEVER && !setting.stay;
    let mut interrupted = false;
    let served = std::thread::scope(|scope| {
        let threads: Vec<_> = crews
            .into_iter()
            .zip(&quiet)
            .map(|(crew, quiet)| {
                let (stop, busy_poll) = (&stop, topology.lab.busy_poll);
                let pace = XdpPace::new(clock, busy_poll);
                std::thread::Builder::new()
                    .name(format!("tw-worker-{}", crew.index))
                    .spawn_scoped(scope, move || crew.run(pace, end, stop, quiet))
            })
            .collect();
        let mut quiet_looks = 0;
        interrupted = supervise(&requests, setting.stop, || {
            let all_quiet = quiet.iter().all(|quiet| quiet.load(Ordering::Relaxed));
            quiet_looks = if all_quiet { quiet_looks + 1 } else { 0 };
            (ends_when_quiet && quiet_looks > QUIET_LOOKS)
                || threads.iter().flatten().all(std::thread::ScopedJoinHandle::is_finished)
        });
        stop.store(true, Ordering::Relaxed);
        threads
            .into_iter()
            .map(|thread| match thread.map(std::thread::ScopedJoinHandle::join) {
                Ok(Ok(served)) => served.map_err(Failure::Running),
                Ok(Err(_)) => Err(Failure::Running("a worker panicked; see above".to_owned())),
                Err(error) => Err(Failure::Running(format!("cannot start a worker: {error}"))),
            })
            .collect::<Vec<_>>()
    });
    let served = served.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(finish(topology, served, wall.elapsed(), interrupted && !setting.stay))
}

/// The models of the link at a port: towards it, and away from it when the far end is not ours.
fn models(
    topology: &Topology,
    links: &[[LinkModel; 2]],
    ours: &[NodeId],
    attachment: Attachment,
) -> (LinkModel, Option<LinkModel>) {
    let Attachment::Link(link, end) = attachment else {
        return (LinkModel::new("", Duration::ZERO, 0), None);
    };
    let far = &topology.links[link].ends[1 - end];
    // Direction 0 leads from end 0 to end 1.
    let (away, towards) = (&links[link][end], &links[link][1 - end]);
    (towards.clone(), (!ours.contains(&far.node)).then(|| away.clone()))
}

impl Crew {
    /// The worker's thread, from its first to its last act.
    fn run(
        mut self,
        mut pace: XdpPace,
        end: Time,
        stop: &AtomicBool,
        quiet: &AtomicBool,
    ) -> Result<Served, String> {
        settle(self.core)?;
        let series = &mut self.series;
        let reached =
            self.worker.run(&mut pace, end, stop, quiet, &self.visits, |now, station, device| {
                series[station].sample(now, device);
            });
        let (mut store, stations, lateness) = self.worker.into_parts();
        let mut served = Served {
            reached,
            nodes: Vec::new(),
            series: Vec::new(),
            ends: Vec::new(),
            lateness,
            figures: Vec::new(),
            violations: Vec::new(),
        };
        for (((number, id, planned), FreeStation { mut station, ports, .. }), series) in
            self.nodes.into_iter().zip(stations).zip(self.series)
        {
            station.drain(&mut store);
            for (planned, mut port) in planned.iter().zip(ports) {
                port.drain(&mut store);
                served.figures.extend(port_figures(&planned.name, port.io_mut(), &mut store));
                if let Attachment::Link(link, end) = planned.attachment {
                    served.ends.push(((link, end), books(&port)));
                }
            }
            served.nodes.push((number, id, station.into_node()));
            served.series.push((number, series));
        }
        served.violations.extend(unaccounted(&store, self.index));
        Ok(served)
    }
}

/// What one end has counted, once its port is closed.
fn books(port: &FreePort<LabPort>) -> EndBooks {
    let (abandoned, kernel) = match port.io() {
        LabPort::Xdp(xdp) => {
            let counters = xdp.counters();
            (counters.rx_abandoned + counters.tx_abandoned, counters.tx_kernel_dropped)
        }
        LabPort::Unconnected { .. } => (0, 0),
    };
    let refused = PortIo::<UmemStore>::refused(port.io()) + port.tx_ring_full();
    let sent = port.sent() + port.tx_ring_full();
    let away = port.away().map(LinkModel::counters);
    EndBooks {
        // A delayed frame was sent by the node and has not reached the ring.
        sent: away.map_or(sent, |away| away.sent),
        abandoned,
        towards: port.towards().counters(),
        away,
        refused: refused + kernel,
    }
}

fn finish(
    topology: &Topology,
    served: Vec<Served>,
    wall: std::time::Duration,
    interrupted: bool,
) -> Ended {
    let mut ends = vec![[None; 2]; topology.links.len()];
    let mut nodes = Vec::new();
    let mut series = Vec::new();
    let mut violations = Vec::new();
    let mut figures = serde_json::Map::new();
    let mut lateness = LatencyHistogram::new();
    let mut reached = Time::ZERO;
    for worker in served {
        for ((link, end), books) in worker.ends {
            ends[link][end] = Some(books);
        }
        nodes.extend(worker.nodes);
        series.extend(worker.series);
        violations.extend(worker.violations);
        figures.extend(worker.figures);
        lateness.merge(&worker.lateness);
        reached = reached.max(worker.reached);
    }
    let links: Vec<LinkCounters> = ends.into_iter().map(link_counters).collect();
    nodes.sort_by_key(|(number, ..)| *number);
    series.sort_by_key(|(number, _)| *number);
    let finished = Finished {
        driver: Driver::Xdp,
        clock: ReportClock::Free,
        dilation: topology.run.dilation.max(1),
        nodes: nodes.into_iter().map(|(_, id, device)| (id, device)).collect(),
        links,
        reached,
        wall,
        lateness,
        interrupted,
        violations,
        extra: vec![("xdp".to_owned(), serde_json::Value::Object(figures))],
    };
    let switches = topology.switches.len();
    (finished, series.into_iter().map(|(_, series)| series).take(switches).collect())
}
