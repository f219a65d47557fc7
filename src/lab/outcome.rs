//! How a run came out: from nodes and links, whichever driver ran them, to the report.

use crate::frame::SlabStore;
use crate::host::Host;
use crate::lab::device::Device;
use crate::lab::topology::{NodeId, Stream, Topology};
use crate::measure::LatencyHistogram;
use crate::measure::report::{
    Clock, Driver, Expectation, FlowReport, HostReport, LinkReport, Report, SequenceCounts,
    SwitchReport, bits_per_second,
};
use crate::node::Node;
use crate::replay::{ReplaySource, SourceCounts};
use crate::sim::LinkCounters;
use crate::time::{Duration, Time};

/// What a driver gives back when a run has ended. Nodes are drained: their books still say what
/// they held.
#[derive(Debug)]
pub struct Finished {
    /// What drove the nodes.
    pub driver: Driver,
    /// Which way time passed.
    pub clock: Clock,
    /// Wall nanoseconds of one of node time.
    pub dilation: u32,
    /// The nodes, in the order of the plan.
    pub nodes: Vec<(NodeId, Device)>,
    /// Per link of the topology, both directions together.
    pub links: Vec<LinkCounters>,
    /// Node time that was reached.
    pub reached: Time,
    /// Wall time that the run took.
    pub wall: std::time::Duration,
    /// Scheduled against served.
    pub lateness: LatencyHistogram,
    /// Stopped by a signal or an operator.
    pub interrupted: bool,
    /// What a driver found wrong, a sentence each: a run with one ends with 3.
    pub violations: Vec<String>,
    /// Figures of one driver alone, by name.
    pub extra: Vec<(String, serde_json::Value)>,
}

/// A run's report with the histograms behind it.
#[derive(Debug)]
pub struct Outcome {
    /// report.json.
    pub report: Report,
    /// One-way latency of each stream by name, then of all together under `latency`.
    pub histograms: Vec<(String, LatencyHistogram)>,
}

impl Finished {
    /// Makes the report, checks the invariants, and holds it against the file's expectations.
    pub fn into_outcome(self, topology: &Topology) -> Outcome {
        let mut report = Report::new(&topology.name, self.driver, self.clock, topology.seed);
        report.dilation = u64::from(self.dilation);
        report.duration_ns = self.reached.as_ns();
        report.wall_ns = u64::try_from(self.wall.as_nanos()).unwrap_or(u64::MAX);
        report.interrupted = self.interrupted;
        report.lateness_ns = self.lateness.percentiles();
        report.violations = self.violations;
        report.set_invariant("driver_found_nothing_wrong", report.violations.is_empty());
        for (_, device) in &self.nodes {
            match device {
                Device::Switch(switch) => {
                    let name = switch.config().name.clone();
                    report.switches.insert(name, SwitchReport::of(switch, self.reached));
                }
                Device::Host(host) => {
                    report.hosts.insert(host.name().to_owned(), host_report(host, self.reached));
                }
                Device::Source(source) => {
                    report.hosts.insert(source.name().to_owned(), source_report(source));
                    let counts = source.counts();
                    let value = serde_json::json!({ "host": source.name(), "counts": counts });
                    report.extra.insert("replay".to_owned(), value);
                    let SourceCounts { records, sent, dropped, unsent } = counts;
                    report
                        .set_invariant("records_accounted_for", sent + dropped + unsent == records);
                }
            }
        }
        for (link, counters) in topology.links.iter().zip(&self.links) {
            report.links.insert(link.name.clone(), link_report(counters));
        }
        let held = report.links.values().map(|link| link.in_flight).sum::<u64>()
            + report.switches.values().map(|switch| switch.books.queued).sum::<u64>();
        let mut histograms = Vec::new();
        for stream in &topology.streams {
            let (flow, delay) = flow_report(topology, stream, &self.nodes, self.reached, held);
            histograms.push((format!("stream-{}", flow.id), delay));
            report.flows.push(flow);
        }
        let all = report.set_latency(histograms.iter().map(|(_, histogram)| histogram));
        histograms.push(("latency".to_owned(), all));
        report.extra.extend(self.extra);
        report.check_conservation();
        // A flow of which nothing came is not verified, and yet no content was wrong.
        let is_right = |flow: &FlowReport| flow.stream.is_none_or(|s| s.content_errors == 0);
        let verified = report.flows.iter().all(is_right);
        report.set_invariant("content_verified", verified);
        // An operator may have had a link hold frames back, whatever the file says.
        let held_back = self.links.iter().any(|link| link.held_back > 0);
        if topology.promises_order() && !held_back {
            let late = |flow: &FlowReport| flow.stream.as_ref().map_or(0, |s| s.out_of_order);
            let out_of_order: Vec<_> = report.flows.iter().filter(|flow| late(flow) > 0).collect();
            let held = out_of_order.is_empty();
            let violations: Vec<String> = out_of_order
                .iter()
                .map(|flow| {
                    let (id, from, to) = (flow.id, &flow.from, &flow.to);
                    format!("stream {id}, {from} to {to}: {} frames out of order", late(flow))
                })
                .collect();
            report.violations.extend(violations);
            report.set_invariant("in_order_where_promised", held);
        }
        let value = serde_json::to_value(&report).unwrap_or(serde_json::Value::Null);
        report.expectations = topology
            .expectations
            .iter()
            .map(|expectation| {
                let outcome = expectation.evaluate(&value);
                Expectation { expr: outcome.expr, value: outcome.value, held: outcome.held }
            })
            .collect();
        Outcome { report, histograms }
    }
}

/// A host as the report shows it at `now`.
pub fn host_report(host: &Host, now: Time) -> HostReport {
    let ledger = Node::<SlabStore>::ledger(host);
    let pauses = host.pause_counters(now);
    let out_of_order = host.streams_received().map(|stream| stream.sequence.out_of_order).sum();
    HostReport {
        out_of_order,
        rx_xoff: pauses.rx_xoff,
        rx_xon: pauses.rx_xon,
        rx_pause_ns: pauses.rx_pause.map(Duration::as_ns),
        rx_global_xoff: pauses.rx_global_xoff,
        rx_global_xon: pauses.rx_global_xon,
        counters: host.stats().iter().map(|(name, n)| (name.to_owned(), n)).collect(),
        ..HostReport::from(&ledger)
    }
}

/// What sends a capture in a host's place, as the report shows it.
pub fn source_report(source: &ReplaySource) -> HostReport {
    let counts = source.counts();
    let names = [("replay_records", counts.records), ("replay_unsent", counts.unsent)];
    HostReport {
        counters: names.into_iter().map(|(name, n)| (name.to_owned(), n)).collect(),
        ..HostReport::from(&Node::<SlabStore>::ledger(source))
    }
}

/// One stream, from what its two ends say, with its latency histogram. A kernel host at the far end
/// says nothing: what it received is then not known, and reported as absent. `held` is what links and switches
/// had when the run ended.
fn flow_report(
    topology: &Topology,
    stream: &Stream,
    nodes: &[(NodeId, Device)],
    reached: Time,
    held: u64,
) -> (FlowReport, LatencyHistogram) {
    let host = |index| {
        nodes.iter().find_map(|(id, device)| match device {
            Device::Host(host) if *id == NodeId::Host(index) => Some(host),
            _ => None,
        })
    };
    let id = stream.config.id;
    let sent = host(stream.from).and_then(|host| host.streams_sent(reached).find(|s| s.id == id));
    let received = host(stream.to).and_then(|host| host.streams_received().find(|s| s.id == id));
    let name = |index: usize| topology.hosts[index].config.name.clone();
    let mut flow = FlowReport {
        id,
        from: name(stream.from),
        to: name(stream.to),
        transport: "udp-stream".to_owned(),
        ..FlowReport::default()
    };
    let mut counts = SequenceCounts::default();
    if let Some(sent) = &sent {
        counts.planned = sent.planned;
        counts.sent = sent.sent;
        flow.start_ns = sent.first_start.map_or(0, Time::as_ns);
    }
    let Some(received) = received else {
        flow.stream = Some(counts);
        return (flow, LatencyHistogram::new());
    };
    counts = SequenceCounts::of(counts.planned, counts.sent, received);
    counts.spare_in_flight(received.received + received.sequence.dropped, held);
    flow.bytes = received.bytes;
    flow.finish_ns = received.last_arrival.map(Time::as_ns);
    let span = flow.finish_ns.map_or(0, |finish| finish.saturating_sub(flow.start_ns));
    flow.goodput_bps = bits_per_second(received.bytes, span);
    flow.verified = counts.all_verified();
    flow.latency_ns = Some(received.delay.percentiles());
    flow.stream = Some(counts);
    (flow, received.delay.clone())
}

/// A link as the report shows it.
pub const fn link_report(counters: &LinkCounters) -> LinkReport {
    LinkReport {
        sent: counters.sent,
        delivered: counters.delivered,
        lost: counters.lost + counters.lost_down + counters.corrupted,
        in_flight: counters.in_flight(),
        kernel_dropped: counters.kernel_dropped,
        duplicated: 0,
        lost_down: counters.lost_down,
        corrupted: counters.corrupted,
        held_back: counters.held_back,
    }
}
