//! Random topologies: every run keeps the books, two runs of one seed are the same, and gated time
//! equals virtual time on one to three workers, report, histograms and captures.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use proptest::prelude::*;

use super::{gated, simulated};
use crate::lab::outcome::Outcome;
use crate::lab::topology::Topology;
use crate::rng::Rng;

/// Draws a small topology file: switches in a chain (with a second path between the first and the
/// last, at times), hosts anywhere, and on every link, queue and stream one of a few odd values.
struct Draw(Rng);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.below(from.len() as u64)).expect("an index")]
    }

    fn file(&mut self) -> String {
        let (switches, hosts) = (1 + self.below(4), 2 + self.below(4));
        let in_vlans = self.one_in(3);
        let mut text = "name = \"random\"\n".to_owned();
        if self.one_in(3) {
            let duration = self.pick(&["100us", "1234567ps", "3ms", "5ms", "20ms"]);
            writeln!(text, "[run]\nduration = \"{duration}\"").expect("text");
        }
        if self.one_in(3) {
            text.push_str("[defaults.switch]\nforwarding = \"static\"\n");
        }
        for switch in 0..switches {
            self.switch(&mut text, switch);
        }
        let mut links = Vec::new();
        for next in 1..switches {
            links.push((format!("s{}:up", next - 1), format!("s{next}:down")));
        }
        if switches > 2 && self.one_in(2) {
            links.push(("s0:ring".to_owned(), format!("s{}:ring", switches - 1)));
        }
        let mut vlans = BTreeMap::new();
        for host in 0..hosts {
            let mtu = self.pick(&["1500", "1500", "9000", "600"]);
            let queue = self.pick(&["1", "2", "64", "1024"]);
            writeln!(text, "[host.h{host}]\nqueue_frames = {queue}\nmtu = {mtu}").expect("text");
            let switch = self.below(switches);
            links.push((format!("h{host}:eth0"), format!("s{switch}:h{host}")));
            let access = 10 * (1 + self.below(2));
            vlans.insert(host, access);
            if in_vlans {
                writeln!(text, "[switch.s{switch}.port.h{host}]\nvlan = {{ access = {access} }}")
                    .expect("text");
            }
        }
        if in_vlans {
            for (a, b) in links.iter().filter(|(a, _)| a.starts_with('s')) {
                for end in [a, b] {
                    let (node, port) = end.split_once(':').expect("an end");
                    let native = self.pick(&["", ", native = 10"]);
                    writeln!(
                        text,
                        "[switch.{node}.port.{port}]\nvlan = {{ trunk = [10, 20]{native} }}"
                    )
                    .expect("text");
                }
            }
        }
        // In most of them nothing is held back, so that streams promise their order.
        let reorders = self.one_in(3);
        for (a, b) in &links {
            self.link(&mut text, a, b, reorders);
        }
        for _ in 0..1 + self.below(5) {
            let (from, to) = (self.below(hosts), self.below(hosts));
            let apart = in_vlans && vlans[&from] != vlans[&to];
            if from != to && !apart {
                self.stream(&mut text, from, to);
                if !in_vlans && self.one_in(4) {
                    let pcp = self.below(8);
                    writeln!(text, "vlan = 1\npcp = {pcp}").expect("text");
                }
            }
        }
        for _ in 0..self.below(4) {
            let ends: Vec<&str> = links.iter().map(|(end, _)| end.as_str()).collect();
            let link = self.pick(&ends);
            self.fault(&mut text, link);
        }
        text
    }

    fn switch(&mut self, text: &mut String, switch: u64) {
        let buffer = self.pick(&["20KB", "64KB", "1MB", "12MB"]);
        let limit = self.pick(&["2KB", "10KB", "4MB"]);
        let cell = self.pick(&["80B", "208B", "256B", "1024B"]);
        let overhead = self.pick(&["0", "20", "24"]);
        // A queue holds at least one frame.
        let mtu = self.pick(if limit == "2KB" { &["1500"] } else { &["1500", "9000"] });
        let entries = self.pick(&["16", "64", "1024"]);
        let ageing = self.pick(&["100us", "300s"]);
        let trust = self.pick(&["pcp", "dscp", "port"]);
        writeln!(
            text,
            "[switch.s{switch}]\nbuffer = \"{buffer}\"\nqueue_limit = \"{limit}\"\n\
             cell = \"{cell}\"\noverhead = {overhead}\nmtu = {mtu}\n\
             mac_table_entries = {entries}\nmac_ageing = \"{ageing}\"\ntrust = \"{trust}\""
        )
        .expect("text");
    }

    fn link(&mut self, text: &mut String, a: &str, b: &str, reorders: bool) {
        let rate = self.pick(&["10Mbps", "333Mbps", "1Gbps", "7Gbps", "40Gbps", "400Gbps"]);
        let delay = self.pick(&["1ps", "1ns", "700ns", "1us", "90us"]);
        writeln!(text, "[[link]]\nends = [\"{a}\", \"{b}\"]\nrate = \"{rate}\"").expect("text");
        writeln!(text, "delay = \"{delay}\"").expect("text");
        if self.one_in(3) {
            let jitter = self.pick(&["1ps", "50ns", "20us"]);
            writeln!(text, "jitter = \"{jitter}\"").expect("text");
        }
        if self.one_in(3) {
            let share = self.pick(&["1%", "20%", "50%", "1%", "3ppm", "100%"]);
            let what = self.pick(&["loss", "corrupt"]);
            writeln!(text, "{what} = \"{share}\"").expect("text");
        }
        if reorders && self.one_in(2) {
            let share = self.pick(&["1%", "50%", "100%"]);
            let by = self.pick(&["1ps", "3us", "70us"]);
            writeln!(text, "reorder = \"{share}\"\nreorder_by = \"{by}\"").expect("text");
        }
    }

    fn stream(&mut self, text: &mut String, from: u64, to: u64) {
        let rate = self.pick(&["1Mbps", "100Kpps", "1Gbps", "9.9Gbps", "2Mpps"]);
        let bytes = self.pick(&["96", "128", "333", "614"]);
        let frames = self.pick(&[0, 1, 50, 120, 200, 200]);
        let start = self.pick(&["0us", "1ps", "13us", "2ms"]);
        let arrivals = self.pick(&["constant", "poisson"]);
        let ip = self.pick(&["4", "6"]);
        let dscp = self.below(64);
        writeln!(
            text,
            "[[stream]]\nfrom = \"h{from}\"\nto = \"h{to}\"\nrate = \"{rate}\"\n\
             frame_bytes = {bytes}\nframes = {frames}\nstart = \"{start}\"\n\
             arrivals = \"{arrivals}\"\nip = {ip}\ndscp = {dscp}"
        )
        .expect("text");
    }

    fn fault(&mut self, text: &mut String, link: &str) {
        let at = self.pick(&["0us", "1ps", "20us", "50us", "300us", "2ms"]);
        let what = self.pick(&[
            "down = true",
            "up = true",
            "loss = \"10%\"",
            "corrupt = \"0%\"",
            "delay = \"3ns\"",
            "delay = \"30us\"",
            "jitter = \"9us\"",
            "reorder = \"20%\"\nreorder_by = \"11us\"",
            "reorder = \"0%\"",
        ]);
        writeln!(text, "[[fault]]\nat = \"{at}\"\nlink = \"{link}\"\n{what}").expect("text");
    }
}

/// Each capture of a directory by its name.
fn captured(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = std::fs::read_dir(directory).expect("a directory");
    files
        .map(|entry| entry.expect("an entry"))
        .map(|entry| {
            let name = entry.file_name().into_string().expect("a name");
            (name, std::fs::read(entry.path()).expect("a capture"))
        })
        .collect()
}

type Seen = (String, Vec<(String, String)>, BTreeMap<String, Vec<u8>>);

fn seen(outcome: &Outcome, directory: &Path) -> Seen {
    let histograms = outcome.histograms.iter();
    (
        outcome.report.in_node_time().to_json(),
        histograms.map(|(name, values)| (name.clone(), format!("{values:?}"))).collect(),
        captured(directory),
    )
}

fn check(seed: u64) {
    let text = Draw(Rng::for_node(seed, "topology")).file();
    let topology = match Topology::parse("random.toml", &text) {
        Ok(topology) => topology,
        Err(error) => panic!("seed {seed}\n{text}\n{}", error.render(false, false)),
    };
    let run = |what: &str, run: &dyn Fn(&Path) -> Outcome| {
        let directory = tempfile::tempdir().expect("a directory");
        let outcome = run(directory.path());
        let report = &outcome.report;
        let held = report.invariants.values().all(|held| *held);
        assert!(
            held,
            "{what}, seed {seed}\n{text}\n{:?}\n{:?}",
            report.invariants, report.violations
        );
        seen(&outcome, directory.path())
    };
    let want = run("sim", &|directory| simulated(&topology, Some(directory)));
    let same = |what: &str, got: &Seen| {
        assert!(got.0 == want.0, "{what}, seed {seed}\n{text}\n{}\n{}", got.0, want.0);
        assert!(got.1 == want.1, "histograms of {what}, seed {seed}\n{text}");
        let differ = got.2.iter().find(|(name, bytes)| want.2.get(*name) != Some(*bytes));
        assert!(
            differ.is_none(),
            "capture {:?} of {what}, seed {seed}\n{text}",
            differ.map(|d| d.0)
        );
    };
    same("sim again", &run("sim", &|directory| simulated(&topology, Some(directory))));
    for workers in 1..=3 {
        let what = format!("{workers} workers");
        let got = run(&what, &|directory| {
            let (outcome, failure) = gated(&topology, workers, 0, Some(directory));
            assert_eq!(failure, None, "{what}, seed {seed}\n{text}");
            outcome
        });
        same(&what, &got);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 24,
        // A smaller seed is no smaller topology.
        max_shrink_iters: 0,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_topology_keeps_its_books_and_gated_equals_virtual_time(seed in any::<u64>()) {
        check(seed);
    }
}
