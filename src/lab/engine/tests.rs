//! Gated time equals virtual time, over wires in memory: the engine without a kernel.

use std::path::Path;

use crossbeam::channel::{Sender, bounded, unbounded};

use crate::frame::SlabStore;
use crate::lab::captures::Captures;
use crate::lab::device::Device;
use crate::lab::engine::memory_port::{MemoryPort, memory_wire};
use crate::lab::engine::{
    Gate, GatedPort, GatedWorker, LinkEnd, Visit, WorkerBooks, note_pair, place,
};
use crate::lab::outcome::{Finished, Outcome};
use crate::lab::plan::Plan;
use crate::lab::simulate::tests::SLOW;
use crate::lab::simulate::{self, simulate};
use crate::lab::topology::{Attachment, Topology};
use crate::measure::LatencyHistogram;
use crate::measure::report::{Clock, Driver, Report};
use crate::node::{Node, PortId};
use crate::sim::{LinkCounters, QUIET_LIMIT};
use crate::switch::SwitchSetting;
use crate::time::Time;

mod random;

const FABRIC: &str = r#"
name = "fabric"
[defaults]
link = { rate = "10Gbps", delay = "700ns" }
[switch.l1]
buffer = "100KB"
[switch.l2]
buffer = "100KB"
[switch.s1]
[host.h1]
[host.h2]
[host.h3]
[[link]]
ends = ["h1:eth0", "l1:1"]
[[link]]
ends = ["h2:eth0", "l1:2"]
loss = "2%"
[[link]]
ends = ["h3:eth0", "l2:1"]
rate = "1Gbps"
jitter = "3us"
[[link]]
ends = ["l1:9", "s1:1"]
delay = "5us"
[[link]]
ends = ["l2:9", "s1:2"]
[[stream]]
from = "h1"
to = "h3"
rate = "900Mbps"
frame_bytes = 700
arrivals = "poisson"
frames = 800
[[stream]]
from = "h2"
to = "h3"
rate = "900Mbps"
frame_bytes = 1514
frames = 500
[[stream]]
from = "h3"
to = "h1"
rate = "100Kpps"
frame_bytes = 90
frames = 300
[[fault]]
at = "2ms"
link = "l1:9"
down = true
[[fault]]
at = "2500us"
link = "l1:9"
up = true
"#;

/// Who visits a worker.
type Visitor = Sender<Visit<Device>>;

/// Runs the plan in gated time over memory wires with `workers` threads; each of the wires loses
/// every `lose_every`-th frame, when that is above 0. Ports are captured into `directory`.
fn gated(
    topology: &Topology,
    workers: usize,
    lose_every: u64,
    directory: Option<&Path>,
) -> (Outcome, Option<String>) {
    gated_visited(topology, workers, lose_every, directory, &|_, _| {}, |_, _| {})
}

/// The same; `before` and `during` the run visits are sent to the workers and posted at the gate.
fn gated_visited(
    topology: &Topology,
    workers: usize,
    lose_every: u64,
    directory: Option<&Path>,
    before: &dyn Fn(&Gate, &[Visitor]),
    during: impl FnOnce(&Gate, &[Visitor]) + Send,
) -> (Outcome, Option<String>) {
    let plan = Plan::of(topology).expect("a plan");
    let mut captures = captures(&plan, directory);
    let end = topology.run.duration.map(|duration| Time::ZERO + duration);
    let lookahead = plan.lookahead(topology);
    let placements = place(&plan, workers, &[]);
    assert_eq!(placements.len(), workers.min(plan.nodes.len()));
    let mut ends: Vec<[Option<(LinkEnd, MemoryPort)>; 2]> = plan
        .links
        .into_iter()
        .map(|[there, back]| {
            let ((there_out, there_in), (back_out, back_in)) = (note_pair(), note_pair());
            let (mut a, mut b) = memory_wire();
            (a.lose_every, b.lose_every) = (lose_every, lose_every);
            [
                Some((LinkEnd { model: there, notes_out: there_out, notes_in: back_in }, a)),
                Some((LinkEnd { model: back, notes_out: back_out, notes_in: there_in }, b)),
            ]
        })
        .collect();
    let mut nodes: Vec<_> = plan.nodes.into_iter().map(Some).collect();
    let gate = Gate::new(placements.len());
    let (visitors, mut visits): (Vec<_>, Vec<_>) =
        placements.iter().map(|_| unbounded()).map(|(to, from)| (to, Some(from))).unzip();
    before(&gate, &visitors);
    let served: Vec<_> = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        scope.spawn(|| during(&gate, &visitors));
        for (index, placement) in placements.iter().enumerate() {
            let store = crate::frame::SlabStore::new(1 << 20);
            let mut worker: GatedWorker<Device, _, MemoryPort> =
                GatedWorker::new(index, store, lookahead);
            let mut about = Vec::new();
            for number in &placement.nodes {
                let node = nodes[*number].take().expect("placed once");
                about.push((*number, node.id, node.ports.clone()));
                let ports = node
                    .ports
                    .iter()
                    .map(|port| {
                        let Attachment::Link(link, end) = port.attachment else {
                            panic!("all ports are linked")
                        };
                        let (end, io) = ends[link][end].take().expect("linked once");
                        GatedPort::new(io, end)
                    })
                    .collect();
                let mut station = node.into_station(topology);
                for (port, tap) in captures.take(*number) {
                    station.set_tap(port, Box::new(tap));
                }
                worker.add(station, ports);
            }
            let (gate, visits) = (&gate, visits[index].take().expect("one a worker"));
            threads.push(scope.spawn(move || {
                let reached = worker.run(gate, end, &visits, |_, _, _| {});
                let (mut store, stations) = worker.into_parts();
                let mut links = Vec::new();
                let mut devices = Vec::new();
                for ((number, id, ports), (mut station, gated)) in about.into_iter().zip(stations) {
                    station.drain(&mut store);
                    for (planned, port) in ports.iter().zip(&gated) {
                        let Attachment::Link(link, _) = planned.attachment else { continue };
                        links.push((link, port.books()));
                    }
                    devices.push((number, id, station.into_node()));
                }
                (reached, links, devices)
            }));
        }
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let mut links = vec![LinkCounters::default(); topology.links.len()];
    let mut devices = Vec::new();
    let mut reached = Time::ZERO;
    for (at, counters, nodes) in served {
        for (link, counters) in counters {
            links[link] = links[link].plus(counters);
        }
        devices.extend(nodes);
        reached = reached.max(at);
    }
    let given_up = topology.run.duration.is_none() && reached >= Time::ZERO + QUIET_LIMIT;
    devices.sort_by_key(|(number, ..)| *number);
    let finished = Finished {
        driver: Driver::Xdp,
        clock: Clock::Gated,
        dilation: 1,
        nodes: devices.into_iter().map(|(_, id, device)| (id, device)).collect(),
        links,
        reached,
        wall: std::time::Duration::ZERO,
        lateness: LatencyHistogram::new(),
        interrupted: false,
        violations: given_up.then(simulate::given_up).into_iter().collect(),
        extra: Vec::new(),
    };
    (finished.into_outcome(topology), gate.failure().map(ToOwned::to_owned))
}

/// Captures of every port in `directory`, or of none.
fn captures(plan: &Plan, directory: Option<&Path>) -> Captures {
    match directory {
        Some(directory) => Captures::open(plan, &["all".to_owned()], directory).expect("captures"),
        None => Captures::none(plan.nodes.len()),
    }
}

fn simulated(topology: &Topology, directory: Option<&Path>) -> Outcome {
    let plan = Plan::of(topology).expect("a plan");
    let mut captures = captures(&plan, directory);
    let (mut finished, _) = simulate(topology, plan, &mut captures, |_| true);
    finished.extra.clear();
    finished.into_outcome(topology)
}

#[test]
fn gated_time_equals_virtual_time_on_any_number_of_workers() {
    let topology = Topology::parse("fabric.toml", FABRIC).expect("a topology");
    let want = simulated(&topology, None);
    let report = &want.report;
    assert!(report.invariants.values().all(|held| *held), "{:?}", report.violations);
    assert!(report.switches["l2"].books.drops.total > 0, "the 1 Gb/s port overflows");
    let l1 = &report.links["l1:9-s1:1"];
    assert!(l1.lost > 0 && report.links["h2:eth0-l1:2"].lost > 0, "loss and a cut do bite");
    assert!(report.flows.iter().all(|flow| flow.bytes > 0));
    for workers in 1..=3 {
        let (got, failure) = gated(&topology, workers, 0, None);
        assert_eq!(failure, None, "{workers} workers");
        assert_eq!(
            got.report.in_node_time().to_json(),
            want.report.in_node_time().to_json(),
            "{workers} workers"
        );
        for ((name, got), (_, want)) in got.histograms.iter().zip(&want.histograms) {
            assert!(got == want, "histogram {name} with {workers} workers");
        }
    }
}

/// Nothing moves for a millisecond before the stream ends: the run ends when it has.
#[test]
fn a_stream_over_a_cut_link_ends_gated_and_virtual_time_alike() {
    const CUT: &str = r#"
name = "cut"
[host.h1]
[host.h2]
[[link]]
ends = ["h1:eth0", "h2:eth0"]
rate = "1Gbps"
delay = "1us"
[[stream]]
from = "h1"
to = "h2"
rate = "100Kpps"
frames = 125
[[fault]]
at = "20us"
link = "h1:eth0"
down = true
"#;
    for at in ["0us", "20us"] {
        let text = CUT.replace("20us", at);
        let topology = Topology::parse("cut.toml", &text).expect("a topology");
        let want = simulated(&topology, None).report;
        assert_eq!(want.duration_ns, 1_300_000, "125 frames of 10 us each, and whole 100 us");
        let came = want.flows[0].stream.expect("a stream").received > 0;
        assert_eq!(came, at == "20us");
        assert_eq!(want.flows[0].verified, came, "what nobody saw is not verified");
        assert!(want.invariants["content_verified"], "and not wrong");
        for workers in 1..=2 {
            let (got, failure) = gated(&topology, workers, 0, None);
            assert_eq!(failure, None, "{workers} workers");
            assert_eq!(got.report.in_node_time().to_json(), want.in_node_time().to_json());
        }
    }
}

/// What all workers have counted when they let one set of visits in; None when the run had ended.
fn survey(gate: &Gate, visitors: &[Visitor]) -> Option<Vec<(WorkerBooks, u64)>> {
    let answers: Option<Vec<_>> = visitors
        .iter()
        .map(|visitor| {
            let (reply, answer) = bounded(1);
            let work = Box::new(move |books, nodes: Vec<&mut Device>| {
                let received = |node: &mut Device| Node::<SlabStore>::ledger(node).received;
                let _ = reply.send((books, nodes.into_iter().map(received).sum()));
            });
            visitor.send(Visit::Survey(work)).ok().map(|()| answer)
        })
        .collect();
    gate.post_visits();
    answers?.into_iter().map(|answer| answer.recv().ok()).collect()
}

#[test]
fn visits_come_to_all_workers_at_one_node_time_and_change_nothing() {
    let topology = Topology::parse("fabric.toml", FABRIC).expect("a topology");
    let want = simulated(&topology, None).report;
    for workers in 1..=3 {
        let mut looks = 0;
        let look = |gate: &Gate, visitors: &[Visitor]| {
            let mut last = Time::ZERO;
            while let Some(surveys) = survey(gate, visitors) {
                looks += 1;
                let (first, _) = &surveys[0];
                assert!(surveys.iter().all(|(books, _)| books.now == first.now));
                assert!(first.now >= last, "time runs backwards");
                last = first.now;
                let mut all = LinkCounters::default();
                for (books, received) in surveys {
                    let ports = books.ports.iter().flatten();
                    let here = ports.map(|port| port.counters);
                    let here = here.fold(LinkCounters::default(), LinkCounters::plus);
                    assert_eq!(here.delivered, received, "links and nodes disagree");
                    all = all.plus(here);
                }
                // A frame that has arrived was sent: of one moment no link has less than nothing.
                assert!(all.in_flight() < 1_000, "{all:?}");
            }
        };
        let (got, failure) = gated_visited(&topology, workers, 0, None, &|_, _| {}, look);
        assert_eq!(failure, None, "{workers} workers");
        assert_eq!(got.report.in_node_time().to_json(), want.in_node_time().to_json());
        assert!(looks > 0, "the run was over before a look");
    }
}

#[test]
fn an_operator_changes_a_gated_run_alike_on_any_number_of_workers() {
    let topology = Topology::parse("fabric.toml", FABRIC).expect("a topology");
    let want = simulated(&topology, None).report;
    let limit = |gate: &Gate, visitors: &[Visitor]| {
        for visitor in visitors {
            let work = Box::new(|now, nodes: Vec<&mut Device>| {
                for node in nodes {
                    let Device::Switch(switch) = node else { continue };
                    for port in (0..2).map(PortId) {
                        let limit_bytes = 2_000;
                        let setting = SwitchSetting::QueueLimit { port, queue: None, limit_bytes };
                        switch.set(now, setting).expect("more than a frame");
                    }
                }
            });
            visitor.send(Visit::Nodes(work)).expect("the worker waits for it");
        }
        gate.post_visits();
    };
    let mut first: Option<Report> = None;
    for workers in 1..=3 {
        let (got, failure) = gated_visited(&topology, workers, 0, None, &limit, |_, _| {});
        assert_eq!(failure, None);
        let report = got.report.in_node_time();
        let limited =
            |report: &Report| report.switches["l2"].books.drops.reasons.get("queue_limit").copied();
        assert!(limited(&report) > limited(&want).max(Some(100)), "{:?}", limited(&report));
        assert!(report.invariants.values().all(|held| *held), "{:?}", report.violations);
        let first = first.get_or_insert_with(|| report.clone());
        assert_eq!(report.to_json(), first.to_json(), "{workers} workers");
    }
}

#[test]
fn what_is_on_its_way_at_the_end_is_in_flight_and_not_lost() {
    const CUT_SHORT: &str = r#"
name = "short"
[defaults.link]
rate = "1Gbps"
delay = "100us"
[switch.s1]
[host.h1]
[host.h2]
[[link]]
ends = ["h1:eth0", "s1:1"]
loss = "1%"
[[link]]
ends = ["h2:eth0", "s1:2"]
rate = "500Mbps"
[[stream]]
from = "h1"
to = "h2"
rate = "900Mbps"
frames = 1000
[run]
duration = "5ms"
"#;
    let topology = Topology::parse("short.toml", CUT_SHORT).expect("a topology");
    let want = simulated(&topology, None).report;
    let counts = want.flows[0].stream.expect("a stream");
    let lost_on_links = want.links.values().map(|link| link.lost).sum::<u64>();
    // 200 us of 500 Mb/s and 100 us of 900 are on the links; what the slower cannot take is queued.
    assert!(counts.in_flight > want.links.values().map(|link| link.in_flight).sum());
    assert!(counts.lost > 0 && counts.lost <= lost_on_links, "{counts:?}");
    assert!(lost_on_links - counts.lost <= 4, "{counts:?}: but for those behind the last arrival");
    assert_eq!(counts.sent, counts.received + counts.lost + counts.in_flight);
    let (got, failure) = gated(&topology, 2, 0, None);
    assert_eq!(failure, None);
    assert_eq!(got.report.in_node_time().to_json(), want.in_node_time().to_json());
}

/// Neither clock waits for the last frame of a line that takes minutes for each.
#[test]
fn a_run_that_does_not_end_is_given_up_gated_and_virtual_time_alike() {
    let topology = Topology::parse("slow.toml", SLOW).expect("a topology");
    let want = simulated(&topology, None).report;
    assert!(want.violations.iter().any(|why| why.contains("3600s")), "{:?}", want.violations);
    for workers in 1..=2 {
        let (got, failure) = gated(&topology, workers, 0, None);
        assert_eq!(failure, None, "{workers} workers");
        assert_eq!(got.report.in_node_time().to_json(), want.in_node_time().to_json());
    }
}

#[test]
fn what_the_kernel_loses_is_found_and_fails_the_run() {
    let topology = Topology::parse("fabric.toml", FABRIC).expect("a topology");
    let (got, failure) = gated(&topology, 2, 97, None);
    let lost: u64 = got.report.links.values().map(|link| link.kernel_dropped).sum();
    assert!(lost > 0);
    assert!(got.report.invariants["frames_conserved"], "{:?}", got.report.violations);
    // The last frame of a link has no follower that would show its loss: the run waits for it.
    assert!(failure.is_none_or(|why| why.contains("did not come out of the kernel")));
}
