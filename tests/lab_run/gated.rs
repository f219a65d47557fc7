//! A gated lab equals the simulation of the same file: counters, histograms, series and captures.

use std::path::Path;

use tailwater::measure::report::Report;

use crate::lab::Lab;
use crate::namespaces;

fn report_in_node_time(dir: &Path) -> String {
    let text = std::fs::read_to_string(dir.join("report.json")).expect("a report");
    let mut report = Report::from_json(&text).expect("it reads").in_node_time();
    // What one driver alone has: link hops, rings.
    report.extra.clear();
    report.to_json()
}

/// That two run directories say the same of everything that happened in node time.
fn assert_equal(sim: &Path, lab: &Path) {
    assert_eq!(report_in_node_time(sim), report_in_node_time(lab));
    let mut compared = 0;
    for folder in ["histograms", "captures", ""] {
        for entry in std::fs::read_dir(sim.join(folder)).expect("a folder") {
            let name = entry.expect("an entry").file_name();
            let path = Path::new(folder).join(&name);
            let is_file = sim.join(&path).is_file();
            if !is_file || folder.is_empty() && name != "series.csv" {
                continue;
            }
            let read = |dir: &Path| std::fs::read(dir.join(&path)).expect("a file of both");
            assert!(read(sim) == read(lab), "{} differs", path.display());
            compared += 1;
        }
    }
    assert!(compared >= 6, "captures, histograms and the series are there");
}

/// Runs the lab both ways. `code` is how both end.
fn both_ways(lab: &Lab, code: i32) {
    lab.run(&["sim"], "sim", &["--capture", "all", "--quiet"], code);
    lab.run(&["lab", "run"], "lab", &["--capture", "all", "--quiet"], code);
    assert_equal(&lab.dir("sim"), &lab.dir("lab"));
    lab.assert_gone();
}

#[test]
fn stream_is_the_same_as_simulated() {
    if !namespaces::available() {
        return;
    }
    both_ways(&Lab::testbed("stream", &[("20000", "3000")]), 0);
}

#[test]
fn the_longest_frames_that_a_file_may_ask_for_are_the_same_as_simulated() {
    if !namespaces::available() {
        return;
    }
    let changes = [
        ("[defaults]", "[defaults]\nmtu = 65258"),
        ("frames = 20000", "frames = 300"),
        ("== 20000", "== 300"),
        ("frame_bytes = 1514", "frame_bytes = 65272"),
    ];
    both_ways(&Lab::testbed("stream", &changes), 0);
}

#[test]
fn leaf_spine_is_the_same_as_simulated() {
    if !namespaces::available() {
        return;
    }
    let changes =
        [("frames = 10000", "frames = 500"), ("== 120000", "== 6000"), (">= 25000", ">= 1250")];
    both_ways(&Lab::testbed("leaf-spine", &changes), 0);
}

/// Packets that Linux never sees change their headers on the way: addresses that move, headers that
/// come off.
/// Cut short, so that what they expect does not hold: by the same figures in both.
#[test]
fn pauses_are_the_same_as_simulated() {
    if !namespaces::available() {
        return;
    }
    for (name, change) in [
        ("pfc-incast", ("frames = 1000 ", "frames = 150 ")),
        ("pfc-unfairness", ("duration = \"3ms\"", "duration = \"400us\"")),
        ("pfc-victim", ("duration = \"3ms\"", "duration = \"400us\"")),
        ("pfc-deadlock-ring", ("duration = \"8ms\"", "duration = \"1700us\"")),
    ] {
        both_ways(&Lab::testbed(name, &[change]), 3);
    }
}

#[test]
fn usid_chain_is_the_same_as_simulated() {
    if !namespaces::available() {
        return;
    }
    let changes = [("frames = 1000", "frames = 200"), ("== 3000", "== 600"), ("== 2000", "== 400")];
    both_ways(&Lab::testbed("usid-chain", &changes), 0);
}

#[test]
fn vxlan_ecn_is_the_same_as_simulated() {
    if !namespaces::available() {
        return;
    }
    both_ways(&Lab::testbed("vxlan-ecn", &[]), 0);
    // Where the outer mark is lost, the receiver hears of no congestion.
    let kernel = [("ecn_decap = \"rfc6040\"", "ecn_decap = \"kernel\"")];
    let lab = Lab::testbed("vxlan-ecn", &kernel);
    lab.run(&["sim"], "sim", &["--quiet"], 3);
    assert_eq!(lab.report("sim")["flows"][0]["ce_received"], 0);
}

/// Long frames in three descriptors, two queues, a port that overflows, loss, jitter, a cut, and a
/// delay that changes.
const HARD: &str = r#"
[defaults]
link = { rate = "10Gbps", delay = "2us" }
mtu = 9000
[defaults.switch]
buffer = "300KB"
[switch.s1]
[switch.s2]
[host.h1]
[host.h2]
[host.h3]
[[link]]
ends = ["h1:eth0", "s1:1"]
[[link]]
ends = ["h2:eth0", "s1:2"]
loss = "1%"
corrupt = "0.2%"
[[link]]
ends = ["h3:eth0", "s2:1"]
rate = "2Gbps"
jitter = "3us"
[[link]]
ends = ["s1:9", "s2:9"]
[[stream]]
from = ["h1", "h2"]
to = "h3"
rate = "1.5Gbps"
frame_bytes = 8000
frames = 250
[[stream]]
from = "h3"
to = ["h1", "h2"]
rate = "200Mbps"
arrivals = "poisson"
frame_bytes = 300
frames = 500
[[stream]]
from = "h1"
to = "h2"
rate = "500Kpps"
frame_bytes = 90
frames = 1000
ip = 6
[[fault]]
at = "2ms"
link = "s1:9"
down = true
[[fault]]
at = "2200us"
link = "s1:9"
up = true
[[fault]]
at = "4ms"
link = "s1:9"
delay = "20us"
[[fault]]
at = "6ms"
link = "s1:9"
delay = "1us"
[lab]
queues = 2
"#;

#[test]
fn faults_overload_and_long_frames_are_the_same_as_simulated_on_any_number_of_workers() {
    if !namespaces::available() {
        return;
    }
    for workers in 1..=3 {
        let lab = Lab::new(&format!("{HARD}workers = {workers}\n"));
        both_ways(&lab, 0);
        let report = lab.assert_sound("lab");
        let drops = report["switches"]["s2"]["drops"]["buffer_full"].as_u64();
        assert!(drops > Some(0), "the 2 Gb/s port overflows");
        let cut = &report["links"]["s1:9-s2:9"]["lost_down"];
        assert!(cut.as_u64() > Some(0) || report["links"]["s1:9-s2:9"]["lost"].as_u64() > Some(0));
    }
}

/// VLANs: an access port at each host, a trunk between the switches, tagged streams with
/// priorities; and a run that ends by its duration with frames still queued and on links.
const VLANS: &str = r#"
[run]
duration = "1500us"
[defaults]
link = { rate = "1Gbps", delay = "30us" }
[switch.s1.port.1]
vlan = { access = 10 }
[switch.s1.port.2]
vlan = { trunk = [20], native = 10 }
[switch.s1.port.9]
vlan = { trunk = [10, 20] }
[switch.s2.port.1]
vlan = { access = 10 }
[switch.s2.port.2]
vlan = { trunk = [20], native = 10 }
[switch.s2.port.9]
vlan = { trunk = [10, 20] }
[host.h1]
[host.h2]
[host.h3]
[host.h4]
[[link]]
ends = ["h1:eth0", "s1:1"]
[[link]]
ends = ["h2:eth0", "s1:2"]
[[link]]
ends = ["h3:eth0", "s2:1"]
[[link]]
ends = ["h4:eth0", "s2:2"]
[[link]]
ends = ["s1:9", "s2:9"]
[[stream]]
from = "h1"
to = "h3"
rate = "700Mbps"
frame_bytes = 1514
[[stream]]
from = "h2"
to = "h4"
rate = "600Mbps"
frame_bytes = 500
vlan = 20
pcp = 5
dscp = 46
[[stream]]
from = "h4"
to = "h2"
rate = "100Mbps"
arrivals = "poisson"
frame_bytes = 128
vlan = 20
ip = 6
"#;

#[test]
fn vlans_priorities_and_an_end_in_the_middle_are_the_same_as_simulated() {
    if !namespaces::available() {
        return;
    }
    let lab = Lab::new(VLANS);
    both_ways(&lab, 0);
    let report = lab.assert_sound("lab");
    let queued = report["switches"]["s1"]["queued"].as_u64();
    assert!(queued > Some(0), "the trunk is overloaded when the run ends");
    assert!(
        report["flows"].as_array().expect("flows").iter().all(|f| f["bytes"].as_u64() > Some(0))
    );
}

#[test]
fn a_seed_given_by_hand_is_the_same_in_both_and_another_is_not() {
    if !namespaces::available() {
        return;
    }
    let lab = Lab::new(HARD);
    lab.run(&["sim"], "sim", &["--capture", "h3:eth0", "--seed", "9", "--quiet"], 0);
    lab.run(&["lab", "run"], "lab", &["--capture", "h3:eth0", "--seed", "9", "--quiet"], 0);
    assert_equal(&lab.dir("sim"), &lab.dir("lab"));
    lab.run(&["sim"], "other", &["--capture", "h3:eth0", "--seed", "8", "--quiet"], 0);
    let read = |dir| std::fs::read(lab.dir(dir).join("captures/h3_eth0.pcapng")).expect("it");
    assert!(read("sim") != read("other"));
}
