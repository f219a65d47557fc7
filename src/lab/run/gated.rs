//! A lab in gated time.

use std::sync::Arc;

use crossbeam::channel::{Receiver, unbounded};

use super::handle::LabHandle;
use super::io;
use super::ports::{
    BerthedNode, check_can_be_gated, open_all, port_figures, port_modes, unaccounted,
};
use super::{
    Ended, Setting, all_ended, cores, give_up_privileges, join, settle, start, supervise, wall_now,
    workers_wanted,
};
use crate::cli::Failure;
use crate::lab::device::Device;
use crate::lab::engine::{Gate, GatedPort, GatedWorker, LabPort, LinkEnd, Visit, note_pair, place};
use crate::lab::outcome::Finished;
use crate::lab::plan::PlannedPort;
use crate::lab::series::{NodeSeries, interval_for};
use crate::lab::simulate::given_up;
use crate::lab::topology::{Attachment, NodeId, Topology};
use crate::measure::LatencyHistogram;
use crate::measure::report::{Clock as ReportClock, Driver};
use crate::sim::{LinkCounters, LinkModel, QUIET_LIMIT};
use crate::time::{Duration, Time};
use crate::xdp::UmemStore;

type Worker = GatedWorker<Device, UmemStore, LabPort>;

/// What a worker needs beside its stations, to run and to report.
struct Crew {
    index: usize,
    core: Option<usize>,
    worker: Worker,
    /// The plan's number of each station, and its ports.
    nodes: Vec<(usize, NodeId, Vec<PlannedPort>)>,
    series: Vec<NodeSeries>,
    visits: Receiver<Visit<Device>>,
}

/// What a worker thread gives back.
#[derive(Default)]
struct Served {
    reached: Time,
    windows: u64,
    nodes: Vec<(usize, NodeId, Device)>,
    series: Vec<(usize, NodeSeries)>,
    /// Per link, what its ends on this worker have counted.
    links: Vec<(usize, LinkCounters)>,
    figures: Vec<(String, serde_json::Value)>,
    violations: Vec<String>,
}

/// Runs the lab with node time that advances only as far as every worker has served.
pub(super) fn run(
    topology: &Topology,
    mut setting: Setting<'_>,
    started: &mut dyn FnMut(Arc<LabHandle>) -> Result<(), Failure>,
) -> Result<Ended, Failure> {
    check_can_be_gated(topology)?;
    let wall = wall_now();
    let plan = std::mem::take(&mut setting.plan);
    let placements = place(&plan, workers_wanted(topology), &cores());
    let lookahead = plan.lookahead(topology);
    let threads = io::threads(&plan, &placements);
    let gate = Arc::new(Gate::new(placements.len()));
    let (mut handle, visits) = LabHandle::new(Some(Arc::clone(&gate)), &plan, &placements);
    let (opener, requests) = unbounded();
    let mut ends = link_ends(plan.links);
    let berths =
        open_all(topology, plan.nodes, &placements, setting.network, setting.captures, &opener)?;
    handle.note_ports(port_modes(&berths));
    handle.note_workers(threads);
    let interval = interval_for(topology.run.duration);
    let mut crews = Vec::new();
    for ((index, berth), visits) in berths.into_iter().enumerate().zip(visits) {
        let mut worker = Worker::new(index, berth.store, lookahead);
        let mut nodes = Vec::new();
        for BerthedNode { number, id, planned, station, ports, .. } in berth.nodes {
            let ends = planned.iter().map(|port| take_end(&mut ends, port.attachment));
            let ports = ports.into_iter().zip(ends).map(|(io, end)| GatedPort::new(io, end));
            worker.add(station, ports.collect());
            nodes.push((number, id, planned));
        }
        let series = vec![NodeSeries::new(interval); nodes.len()];
        crews.push(Crew { index, core: berth.core, worker, nodes, series, visits });
    }
    drop(opener);
    started(Arc::new(handle))?;
    give_up_privileges()?;

    let end = topology.run.duration.map(|duration| Time::ZERO + duration);
    let mut interrupted = false;
    let served = std::thread::scope(|scope| {
        let gate = &*gate;
        let threads = start(scope, crews.into_iter().map(|crew| move || crew.run(gate, end)));
        interrupted = supervise(&requests, setting.stop, || all_ended(&threads));
        if interrupted {
            gate.stop();
        }
        join(threads)
    });
    let served = served.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(finish(topology, served, gate.failure(), wall.elapsed(), interrupted))
}

/// Every link's two ends: the model of each direction with its sender, and the notes of both.
fn link_ends(models: Vec<[LinkModel; 2]>) -> Vec<[Option<LinkEnd>; 2]> {
    models
        .into_iter()
        .map(|[there, back]| {
            let ((there_out, there_in), (back_out, back_in)) = (note_pair(), note_pair());
            [
                Some(LinkEnd { model: there, notes_out: there_out, notes_in: back_in }),
                Some(LinkEnd { model: back, notes_out: back_out, notes_in: there_in }),
            ]
        })
        .collect()
}

fn take_end(ends: &mut [[Option<LinkEnd>; 2]], attachment: Attachment) -> LinkEnd {
    let taken = match attachment {
        Attachment::Link(link, end) => ends[link][end].take(),
        Attachment::External(_) | Attachment::None => None,
    };
    taken.unwrap_or_else(|| {
        // Nothing hangs there: the node finds its link down and sends nothing.
        let (notes_out, notes_in) = note_pair();
        LinkEnd { model: LinkModel::new("", Duration::ZERO, 0), notes_out, notes_in }
    })
}

impl Crew {
    /// The worker's thread, from its first to its last act.
    fn run(mut self, gate: &Gate, end: Option<Time>) -> Served {
        if let Err(why) = settle(self.core) {
            gate.fail(why);
        }
        let series = &mut self.series;
        let reached = self.worker.run(gate, end, &self.visits, |now, station, device| {
            series[station].sample(now, device);
        });
        let mut served = Served { reached, windows: self.worker.windows(), ..Served::default() };
        let (mut store, stations) = self.worker.into_parts();
        let series = self.series.into_iter();
        for (((number, id, planned), (mut station, ports)), mut series) in
            self.nodes.into_iter().zip(stations).zip(series)
        {
            series.finish(reached, station.node());
            station.drain(&mut store);
            for (planned, mut port) in planned.iter().zip(ports) {
                if let Attachment::Link(link, _) = planned.attachment {
                    served.links.push((link, port.books()));
                }
                if port.foreign() > 0 {
                    served.violations.push(format!(
                        "port {}: {} frames came that no node of the lab sent",
                        planned.name,
                        port.foreign()
                    ));
                }
                served.figures.extend(port_figures(&planned.name, port.io_mut(), &mut store));
            }
            served.nodes.push((number, id, station.into_node()));
            served.series.push((number, series));
        }
        served.violations.extend(unaccounted(&store, self.index));
        served
    }
}

fn finish(
    topology: &Topology,
    served: Vec<Served>,
    failure: Option<&str>,
    wall: std::time::Duration,
    interrupted: bool,
) -> Ended {
    let mut links = vec![LinkCounters::default(); topology.links.len()];
    let mut nodes = Vec::new();
    let mut series = Vec::new();
    let mut violations: Vec<String> = failure.map(ToOwned::to_owned).into_iter().collect();
    let mut figures = serde_json::Map::new();
    let (mut reached, mut windows) = (Time::ZERO, 0);
    for worker in served {
        for (link, counters) in worker.links {
            links[link] = links[link].plus(counters);
        }
        nodes.extend(worker.nodes);
        series.extend(worker.series);
        violations.extend(worker.violations);
        figures.extend(worker.figures);
        (reached, windows) = (reached.max(worker.reached), windows.max(worker.windows));
    }
    let lost: u64 = links.iter().map(|link| link.kernel_dropped).sum();
    if lost > 0 {
        violations.push(format!("the kernel lost {lost} frames between rings"));
    }
    if topology.run.duration.is_none() && reached >= Time::ZERO + QUIET_LIMIT {
        violations.push(given_up());
    }
    nodes.sort_by_key(|(number, ..)| *number);
    series.sort_by_key(|(number, _)| *number);
    let finished = Finished {
        driver: Driver::Xdp,
        clock: ReportClock::Gated,
        dilation: 1,
        nodes: nodes.into_iter().map(|(_, id, device)| (id, device)).collect(),
        links,
        reached,
        wall,
        lateness: LatencyHistogram::new(),
        interrupted,
        violations,
        extra: vec![
            ("gated".to_owned(), serde_json::json!({ "windows": windows })),
            ("xdp".to_owned(), serde_json::Value::Object(figures)),
        ],
    };
    (finished, series.into_iter().map(|(_, series)| series).collect())
}
