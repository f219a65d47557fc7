//! A lab in free time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam::channel::{Receiver, unbounded};

use super::handle::LabHandle;
use super::io;
use super::ports::{BerthedNode, open_all, port_figures, port_modes, unaccounted};
use super::{
    Ended, Setting, all_ended, any_ended, cores, give_up_privileges, join, settle, start,
    supervise, wall_now, workers_wanted,
};
use crate::cli::Failure;
use crate::lab::device::Device;
use crate::lab::engine::{
    FreePort, FreeStation, FreeWorker, LabPort, PortIo, Visit, XdpPace, place,
};
use crate::lab::links::{EndBooks, link_counters};
use crate::lab::outcome::Finished;
use crate::lab::plan::PlannedPort;
use crate::lab::series::{NodeSeries, interval_for};
use crate::lab::topology::{Attachment, NodeId, Topology};
use crate::measure::LatencyHistogram;
use crate::measure::report::{Clock as ReportClock, Driver};
use crate::sim::{LinkCounters, LinkModel};
use crate::time::{Duration, Time};
use crate::xdp::{Clock as WallClock, PortCounters, UmemStore};

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
    let plan = std::mem::take(&mut setting.plan);
    let placements = place(&plan, workers_wanted(topology), &cores());
    let (mut handle, visits) = LabHandle::new(None, &plan, &placements);
    let (opener, requests) = unbounded();
    let workers = io::threads(&plan, &placements);
    let ours: Vec<NodeId> = plan.nodes.iter().map(|node| node.id).collect();
    let links = plan.links;
    let mut berths =
        open_all(topology, plan.nodes, &placements, setting.network, setting.captures, &opener)?;
    handle.note_ports(port_modes(&berths));
    handle.note_workers(workers.clone());
    let io_crews = io::take_crews(&mut berths);
    let interval = interval_for(topology.run.duration);
    let mut crews = Vec::new();
    for ((index, berth), visits) in berths.into_iter().enumerate().zip(visits) {
        let mut stations = Vec::new();
        let mut nodes = Vec::new();
        for BerthedNode { number, id, planned, station, ports, .. } in berth.nodes {
            let models =
                planned.iter().map(|port| models(topology, &links, &ours, port.attachment));
            let ports = ports.into_iter().zip(models);
            let ports = ports.map(|(io, (towards, away))| FreePort::new(io, towards, away));
            stations.push(FreeStation::new(station, ports.collect()));
            nodes.push((number, id, planned));
        }
        let series = vec![NodeSeries::new(interval); nodes.len()];
        let worker = Worker::new(berth.store, stations);
        crews.push(Crew { index, core: berth.core, worker, nodes, series, visits });
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
    let (served, io_ended) = std::thread::scope(|scope| {
        let (stop, busy_poll) = (&stop, topology.lab.busy_poll);
        let io_threads = io::start(scope, io_crews, busy_poll);
        let works = crews.into_iter().zip(&quiet).map(|(crew, quiet)| {
            move || crew.run(XdpPace::new(clock, busy_poll), end, stop, quiet)
        });
        let threads = start(scope, works);
        let mut quiet_looks = 0;
        interrupted = supervise(&requests, setting.stop, || {
            let all_quiet = quiet.iter().all(|quiet| quiet.load(Ordering::Relaxed));
            quiet_looks = if all_quiet { quiet_looks + 1 } else { 0 };
            let io_lost = any_ended(&io_threads) && !any_ended(&threads);
            (ends_when_quiet && quiet_looks > QUIET_LOOKS) || all_ended(&threads) || io_lost
        });
        stop.store(true, Ordering::Relaxed);
        // The I/O workers end when the workers have closed their ports.
        (join(threads), join(io_threads))
    });
    for ended in io_ended {
        ended?.map_err(Failure::Running)?;
    }
    let served = served
        .into_iter()
        .map(|worker| worker.and_then(|served| served.map_err(Failure::Running)))
        .collect::<Result<Vec<_>, _>>()?;
    let workers = serde_json::to_value(workers).unwrap_or_default();
    let mut ended = finish(topology, served, wall.elapsed(), interrupted && !setting.stay);
    ended.0.extra.push(("workers".to_owned(), workers));
    Ok(ended)
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
        for (((number, id, planned), FreeStation { mut station, ports, .. }), mut series) in
            self.nodes.into_iter().zip(stations).zip(self.series)
        {
            series.finish(reached, station.node());
            station.drain(&mut store);
            for (planned, mut port) in planned.iter().zip(ports) {
                let delayed = port.drain(&mut store);
                let figures = port_figures(&planned.name, port.io_mut(), &mut store);
                served.figures.extend(figures.map(|figures| with_drops(figures, planned, &port)));
                if let Attachment::Link(link, end) = planned.attachment {
                    served.ends.push(((link, end), books(&port, delayed)));
                }
            }
            served.nodes.push((number, id, station.into_node()));
            served.series.push((number, series));
        }
        served.violations.extend(unaccounted(&store, self.index));
        Ok(served)
    }
}

/// Adds what found its TX ring full where no link of the lab has it in its books.
fn with_drops(
    (name, mut figures): (String, serde_json::Value),
    planned: &PlannedPort,
    port: &FreePort<LabPort>,
) -> (String, serde_json::Value) {
    if port.tx_ring_full() > 0 && matches!(planned.attachment, Attachment::External(_)) {
        figures["tx_ring_full"] = port.tx_ring_full().into();
    }
    (name, figures)
}

/// What one end has counted, once its port is closed with `delayed` frames before its ring.
fn books(port: &FreePort<LabPort>, delayed: u64) -> EndBooks {
    let counters = match port.io() {
        LabPort::Xdp(xdp) => xdp.counters(),
        LabPort::Unconnected { .. } => PortCounters::default(),
    };
    let refused = PortIo::<UmemStore>::refused(port.io()) + port.tx_ring_full();
    let sent = port.sent() + port.tx_ring_full();
    let away = port.away().map(LinkModel::counters);
    EndBooks {
        // A delayed frame was sent by the node and has not reached the ring.
        sent: away.map_or(sent, |away| away.sent),
        rx_abandoned: counters.rx_abandoned,
        rx_kernel_lost: counters.xsk_rx_dropped + counters.xsk_rx_ring_full,
        tx_abandoned: counters.tx_abandoned + delayed,
        towards: port.towards().counters(),
        away,
        refused: refused + counters.tx_kernel_dropped,
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
    (finished, series.into_iter().map(|(_, series)| series).collect())
}
