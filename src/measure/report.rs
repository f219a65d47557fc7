//! `report.json`: what a run says of itself, in node time and in integers.
//!
//! The order of fields is the order of the structures, nodes are ordered by name, so that two equal
//! runs write equal bytes.

mod flow;
mod node;
mod switch;
pub(crate) mod text;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use flow::{FlowReport, LinkReport, SequenceCounts, bits_per_second};
pub use node::{BooksReport, DropsReport, HostReport, PortReport, SwitchReport};

use super::histogram::{LatencyHistogram, Percentiles};

/// The version of this layout. It grows when a field changes its meaning or goes; new fields do not
/// change it.
pub const SCHEMA: u32 = 1;

/// What drove the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Driver {
    /// AF_XDP.
    Xdp,
    /// The simulator.
    Sim,
    /// A capture.
    Replay,
}

/// Which way time passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// From event to event.
    Virtual,
    /// As far as the slowest worker has served.
    Gated,
    /// With the OS clock.
    Free,
}

/// One `[[expect]]` of the topology file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expectation {
    /// The expectation as it was written: `switches.s1.drops.total == 0`.
    pub expr: String,
    /// What the run gave; null when the path names nothing.
    pub value: serde_json::Value,
    /// Whether it held.
    pub held: bool,
}

/// The report of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The name of the topology, or of the command.
    pub name: String,
    /// What drove the nodes.
    pub driver: Driver,
    /// The run's seed.
    pub seed: u64,
    /// Which way time passed.
    pub clock: Clock,
    /// Nanoseconds of the OS clock per nanosecond of node time.
    pub dilation: u64,
    /// Node time that passed, in nanoseconds.
    pub duration_ns: u64,
    /// Wall time that passed, in nanoseconds.
    pub wall_ns: u64,
    /// True when the run was interrupted: its figures are those of a part.
    #[serde(default, skip_serializing_if = "is_false")]
    pub interrupted: bool,
    /// Built-in invariants by name, and whether they held.
    pub invariants: BTreeMap<String, bool>,
    /// What did not hold, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub violations: Vec<String>,
    /// What a reader of the figures must know, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The file's expectations.
    pub expectations: Vec<Expectation>,
    /// Scheduled against served time.
    pub lateness_ns: Percentiles,
    /// Switches by name.
    pub switches: BTreeMap<String, SwitchReport>,
    /// Links by their two ends.
    pub links: BTreeMap<String, LinkReport>,
    /// Agent hosts by name.
    pub hosts: BTreeMap<String, HostReport>,
    /// Streams and flows, by number.
    pub flows: Vec<FlowReport>,
    /// One-way latency of all streams together.
    pub latency_ns: Percentiles,
    /// What one driver or command reports beyond this, by name (`replay`, `sweep`).
    #[serde(flatten)]
    pub extra: serde_json::Map<String, serde_json::Value>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// The name of the invariant that every frame is accounted for.
pub const FRAMES_CONSERVED: &str = "frames_conserved";

impl Report {
    /// An empty report of a run called `name`.
    pub fn new(name: &str, driver: Driver, clock: Clock, seed: u64) -> Self {
        Self {
            schema: SCHEMA,
            name: name.to_owned(),
            driver,
            seed,
            clock,
            dilation: 1,
            duration_ns: 0,
            wall_ns: 0,
            interrupted: false,
            invariants: BTreeMap::new(),
            violations: Vec::new(),
            notes: Vec::new(),
            expectations: Vec::new(),
            lateness_ns: Percentiles::default(),
            switches: BTreeMap::new(),
            links: BTreeMap::new(),
            hosts: BTreeMap::new(),
            flows: Vec::new(),
            latency_ns: Percentiles::default(),
            extra: serde_json::Map::new(),
        }
    }

    /// Fills [`Self::latency_ns`] from all histograms together, and gives their sum.
    pub fn set_latency<'a>(
        &mut self,
        histograms: impl IntoIterator<Item = &'a LatencyHistogram>,
    ) -> LatencyHistogram {
        let mut all = LatencyHistogram::new();
        for histogram in histograms {
            all.merge(histogram);
        }
        self.latency_ns = all.percentiles();
        all
    }

    /// Sums the books of every node and link, and sets [`FRAMES_CONSERVED`]; what does not add up
    /// becomes a violation that names the node or link with both sums.
    pub fn check_conservation(&mut self) -> bool {
        let mut violations = Vec::new();
        let nodes = self
            .switches
            .iter()
            .map(|(name, node)| ("switch", name, &node.books))
            .chain(self.hosts.iter().map(|(name, node)| ("host", name, &node.books)));
        for (kind, name, books) in nodes {
            let (came, went) = books.sums();
            if came != went {
                violations.push(format!(
                    "{kind} {name}: {came} frames came (received, generated, replicated) and \
                     {went} are accounted for"
                ));
            }
        }
        for (name, link) in &self.links {
            let (came, went) = link.sums();
            if came != went {
                violations.push(format!(
                    "link {name}: {came} frames came (sent, duplicated) and {went} are accounted for"
                ));
            }
        }
        let held = violations.is_empty();
        self.set_invariant(FRAMES_CONSERVED, held);
        self.violations.extend(violations);
        held
    }

    /// Sets an invariant; one that has failed stays failed.
    pub fn set_invariant(&mut self, name: &str, held: bool) {
        let entry = self.invariants.entry(name.to_owned()).or_insert(true);
        *entry &= held;
    }

    /// True when every invariant and every expectation held: the run may exit 0.
    pub fn all_held(&self) -> bool {
        self.invariants.values().all(|held| *held)
            && self.expectations.iter().all(|expectation| expectation.held)
    }

    /// The report without what depends on the driver and the machine: two runs of one file, gated
    /// and simulated, are equal in this form.
    #[must_use]
    pub fn in_node_time(&self) -> Self {
        Self {
            driver: Driver::Sim,
            clock: Clock::Virtual,
            dilation: 1,
            wall_ns: 0,
            lateness_ns: Percentiles::default(),
            ..self.clone()
        }
    }

    /// The JSON text, indented, with a newline at its end.
    pub fn to_json(&self) -> String {
        match serde_json::to_string_pretty(self) {
            Ok(text) => text + "\n",
            // Every key is a string and every value an integer, a string or a bool.
            Err(error) => unreachable!("a report is plain data: {error}"),
        }
    }

    /// Reads what [`to_json`](Self::to_json) wrote.
    ///
    /// # Errors
    /// Those of `serde_json`, with line and column.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{DropReason, Ledger};

    fn sample() -> Report {
        let mut report = Report::new("dumbbell", Driver::Sim, Clock::Virtual, 1);
        let mut ledger = Ledger { received: 10, transmitted: 9, ..Ledger::default() };
        ledger.drops.count(DropReason::QueueLimit);
        let mut switch = SwitchReport { books: BooksReport::from(&ledger), ..Default::default() };
        switch.ports.insert("1".to_owned(), PortReport { rx_frames: 10, ..Default::default() });
        report.switches.insert("s1".to_owned(), switch);
        report.links.insert(
            "h1:eth0-s1:1".to_owned(),
            LinkReport { sent: 10, delivered: 10, ..Default::default() },
        );
        let host = Ledger { generated: 10, transmitted: 10, ..Ledger::default() };
        report.hosts.insert("h1".to_owned(), HostReport::from(&host));
        let mut histogram = LatencyHistogram::new();
        histogram.record_ns(1_000);
        report.flows.push(FlowReport {
            id: 1,
            from: "h1".to_owned(),
            to: "h2".to_owned(),
            transport: "udp-stream".to_owned(),
            stream: Some(SequenceCounts {
                planned: 10,
                sent: 10,
                received: 9,
                lost: 1,
                ..Default::default()
            }),
            latency_ns: Some(histogram.percentiles()),
            ..FlowReport::default()
        });
        report
    }

    #[test]
    fn keys_are_the_contracts_in_its_order() {
        let json: serde_json::Value = serde_json::from_str(&sample().to_json()).expect("JSON");
        let keys = |value: &serde_json::Value| -> Vec<String> {
            value.as_object().expect("an object").keys().cloned().collect()
        };
        assert_eq!(
            keys(&json),
            [
                "schema",
                "name",
                "driver",
                "seed",
                "clock",
                "dilation",
                "duration_ns",
                "wall_ns",
                "invariants",
                "expectations",
                "lateness_ns",
                "switches",
                "links",
                "hosts",
                "flows",
                "latency_ns"
            ]
        );
        let switch = &json["switches"]["s1"];
        assert_eq!(
            keys(switch)[..8],
            [
                "received",
                "generated",
                "replicated",
                "transmitted",
                "consumed",
                "queued",
                "drops",
                "buffer_bytes_max"
            ]
        );
        assert_eq!(switch["drops"], serde_json::json!({ "total": 1, "queue_limit": 1 }));
        assert_eq!(switch["ports"]["1"]["rx_frames"], 10);
        assert_eq!(switch["ports"]["1"]["tx_xoff"].as_array().map(Vec::len), Some(8));
        for key in ["sent", "delivered", "lost", "in_flight", "kernel_dropped"] {
            assert!(json["links"]["h1:eth0-s1:1"][key].is_u64(), "{key}");
        }
        let flow = &json["flows"][0];
        assert_eq!(keys(flow)[..4], ["id", "from", "to", "transport"]);
        assert_eq!(flow["lost"], 1);
        for key in ["p50", "p90", "p99", "p999", "p9999", "max", "count"] {
            assert!(json["latency_ns"][key].is_u64() && flow["latency_ns"][key].is_u64(), "{key}");
        }
        assert_eq!((&json["driver"], &json["clock"]), (&"sim".into(), &"virtual".into()));
    }

    #[test]
    fn what_is_written_reads_back() {
        let mut report = sample();
        report.extra.insert("replay".to_owned(), serde_json::json!({ "records": 3 }));
        report.interrupted = true;
        let back = Report::from_json(&report.to_json()).expect("own text");
        assert_eq!(back, report);
        assert_eq!(back.to_json(), report.to_json());
    }

    #[test]
    fn an_uncounted_frame_fails_the_run_and_is_named() {
        let mut report = sample();
        assert!(report.check_conservation() && report.all_held());
        report.links.get_mut("h1:eth0-s1:1").expect("a link").delivered = 9;
        assert!(!report.check_conservation() && !report.all_held());
        assert!(report.violations[0].starts_with("link h1:eth0-s1:1: 10 frames"));
        report.links.get_mut("h1:eth0-s1:1").expect("a link").delivered = 10;
        report.check_conservation();
        assert!(!report.all_held(), "a failed invariant stays failed");
    }

    #[test]
    fn gated_and_simulated_reports_compare_in_node_time() {
        let sim = sample();
        let mut gated = sample();
        gated.driver = Driver::Xdp;
        gated.clock = Clock::Gated;
        gated.wall_ns = 77;
        gated.lateness_ns.max = 5;
        assert_ne!(sim, gated);
        assert_eq!(sim.in_node_time(), gated.in_node_time());
    }
}
