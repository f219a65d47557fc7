//! A topology in virtual time: `tailwater sim`.

use crate::frame::SlabStore;
use crate::lab::captures::Captures;
use crate::lab::device::Device;
use crate::lab::outcome::Finished;
use crate::lab::pause_checks::{Looks, PauseChecks, witness_of};
use crate::lab::plan::Plan;
use crate::lab::series::{NodeSeries, interval_for};
use crate::lab::topology::Topology;
use crate::measure::LatencyHistogram;
use crate::measure::report::{Clock, Driver};
use crate::node::PortId;
use crate::sim::{Network, PortRef, QUIET_LIMIT};
use crate::time::Time;

/// Chunks of the simulator's store, at most: 8 GiB of frames.
const CHUNKS_MAX: u32 = 1 << 24;

/// Runs `plan` to the end that the topology sets. `progress` is told the node time now and then, and
/// answers whether to go on.
pub fn simulate(
    topology: &Topology,
    plan: Plan,
    captures: &mut Captures,
    mut progress: impl FnMut(Time) -> bool,
) -> (Finished, Vec<NodeSeries>) {
    let started = wall_now();
    let ids: Vec<_> = plan.nodes.iter().map(|node| node.id).collect();
    let mut network: Network<Device, SlabStore> = Network::new(SlabStore::new(CHUNKS_MAX));
    let wires = lay_out(topology, plan, captures, &mut network);
    let interval = interval_for(topology.run.duration);
    let mut series = vec![NodeSeries::new(interval); ids.len()];
    let end = topology.run.duration.map(|duration| Time::ZERO + duration);
    let limit = end.unwrap_or(Time::ZERO + QUIET_LIMIT);
    let mut interrupted = false;
    let mut violations = Vec::new();
    let mut pauses = PauseChecks::new(topology, &ids);
    let mut looks = Looks::default();
    loop {
        if network.now() >= limit
            || (end.is_none() && network.now() > Time::ZERO && network.is_quiet())
        {
            break;
        }
        if !progress(network.now()) {
            interrupted = true;
            break;
        }
        network.run_slice(interval, limit, |now, station, device| {
            series[station].sample(now, device);
        });
        if looks.is_due(network.now()) {
            pauses.look(&network);
        }
    }
    let reached = network.now();
    if end.is_none() && !interrupted && !network.is_quiet() {
        violations.push(given_up());
    }
    violations.extend(PauseChecks::violations(topology, &ids, &network));
    let mut extra =
        vec![("sim".to_owned(), serde_json::json!({ "link_hops": network.link_hops() }))];
    extra.extend(pauses.deadlocks(topology, &ids).map(|found| ("deadlocks".to_owned(), found)));
    for (index, series) in series.iter_mut().enumerate() {
        series.finish(reached, network.station(index).node());
    }
    let counters = |[there, back]: &[usize; 2]| {
        network.link(*there).counters().plus(network.link(*back).counters())
    };
    let links = wires.iter().map(counters).collect();
    let finished = Finished {
        driver: Driver::Sim,
        clock: Clock::Virtual,
        dilation: 1,
        nodes: ids.into_iter().zip(network.into_nodes()).collect(),
        links,
        reached,
        wall: started.elapsed(),
        lateness: LatencyHistogram::new(),
        interrupted,
        violations,
        extra,
    };
    (finished, series)
}

/// What a report says of a run that has reached [`QUIET_LIMIT`].
pub fn given_up() -> String {
    format!(
        "given up after {QUIET_LIMIT} of node time with frames still to come: give [run] a duration"
    )
}

#[allow(clippy::disallowed_methods, reason = "wall time of the run, which no node sees")]
fn wall_now() -> std::time::Instant {
    std::time::Instant::now()
}

/// Adds every node and link, taps and link changes. Gives the wires of each link of the topology.
fn lay_out(
    topology: &Topology,
    plan: Plan,
    captures: &mut Captures,
    network: &mut Network<Device, SlabStore>,
) -> Vec<[usize; 2]> {
    let ends: Vec<_> = (0..topology.links.len())
        .map(|link| [0, 1].map(|end| plan.end(topology, link, end)))
        .collect();
    for (index, node) in plan.nodes.into_iter().enumerate() {
        let (id, ports) = (node.id, node.ports.len());
        network.add_station(node.into_station(topology));
        for port in (0_u16..).map(PortId).take(ports) {
            if let Some(witness) = witness_of(topology, id, port) {
                network.station_mut(index).set_witness(port, witness);
            }
        }
        for (port, tap) in captures.take(index) {
            network.station_mut(index).set_tap(port, Box::new(tap));
        }
    }
    let mut wires = Vec::new();
    for (models, ends) in plan.links.into_iter().zip(&ends) {
        // A node that is not ours is a kernel host: `check_is_ours` has refused those.
        let [Some(a), Some(b)] =
            ends.map(|end| end.map(|(station, port)| PortRef { station, port }))
        else {
            continue;
        };
        let [there, back] = models;
        let (there, back) = network.connect(a, b, there, back);
        wires.push([there, back]);
    }
    wires
}

#[cfg(test)]
pub(in crate::lab) mod tests {
    use super::*;
    use crate::measure::report::Report;

    /// A frame on a line of a bit a second takes minutes, and ten are to come.
    pub(in crate::lab) const SLOW: &str = r#"
name = "slow"
[host.h1]
[host.h2]
[[link]]
ends = ["h1:eth0", "h2:eth0"]
rate = "1bps"
delay = "1us"
[[stream]]
from = "h1"
to = "h2"
rate = "1Gbps"
frames = 10
"#;

    #[test]
    fn a_run_that_is_given_up_says_so() {
        let run = |text: &str| {
            let topology = Topology::parse("slow.toml", text).expect("a topology");
            let plan = Plan::of(&topology).expect("a plan");
            let mut captures = Captures::none(plan.nodes.len());
            simulate(&topology, plan, &mut captures, |_| true).0.violations
        };
        let given_up = run(SLOW);
        assert!(given_up.iter().any(|why| why.contains("3600s")), "{given_up:?}");
        assert!(run(&format!("{SLOW}[run]\nduration = \"2s\"")).is_empty());
        assert!(run(&SLOW.replace("1bps", "1Gbps")).is_empty());
    }

    /// Jitter longer than many gaps: without an order kept, and kept among frames that arrive at one
    /// time, most frames would be late. A frame that is held back on purpose is late, and none is
    /// promised otherwise.
    #[test]
    fn jitter_keeps_the_order_and_holding_back_breaks_it() {
        const FAST: &str = r#"
name = "fast"
[host.h1]
[host.h2]
[[link]]
ends = ["h1:eth0", "h2:eth0"]
rate = "100Gbps"
delay = "1us"
jitter = "20us"
[[stream]]
from = "h1"
to = "h2"
rate = "5Mpps"
frame_bytes = 128
frames = 2000
"#;
        let run = |text: &str| {
            let topology = Topology::parse("fast.toml", text).expect("a topology");
            let plan = Plan::of(&topology).expect("a plan");
            let mut captures = Captures::none(plan.nodes.len());
            simulate(&topology, plan, &mut captures, |_| true).0.into_outcome(&topology).report
        };
        let promised = "in_order_where_promised";
        let counts = |report: &Report| report.flows[0].stream.expect("a stream");
        let report = run(FAST);
        assert_eq!((counts(&report).received, counts(&report).out_of_order), (2_000, 0));
        assert_eq!(report.invariants.get(promised), Some(&true));
        let held_back = "jitter = \"0ns\"\nreorder = \"10%\"\nreorder_by = \"5us\"";
        let report = run(&FAST.replace("jitter = \"20us\"", held_back));
        let counts = counts(&report);
        assert_eq!(counts.received, 2_000);
        assert!((140..260).contains(&counts.out_of_order), "{} at 10 %", counts.out_of_order);
        assert_eq!(report.invariants.get(promised), None);
    }
}
