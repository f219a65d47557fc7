//! The testbeds of priority flow control in virtual time: what their files expect holds, and does not
//! hold without the feature that each of them shows.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

fn testbed(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("netns-testbed").join(name);
    std::fs::read_to_string(path).expect("a testbed")
}

/// Runs a topology; the exit code and the report.
fn sim(text: &str) -> (Option<i32>, Value) {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, dir) = (folder.path().join("lab.toml"), folder.path().join("run"));
    std::fs::write(&file, text).expect("a file");
    let run = Command::new(env!("CARGO_BIN_EXE_tailwater"))
        .args(["sim", "--quiet", "--run-dir"])
        .args([&dir, &file])
        .output()
        .expect("it runs");
    let report = std::fs::read_to_string(dir.join("report.json"));
    let report = report.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&run.stderr)));
    (run.status.code(), serde_json::from_str(&report).expect("a report"))
}

/// The text without the tables whose header begins so.
fn without(text: &str, header: &str) -> String {
    let mut skips = false;
    let keeps = |line: &&str| {
        if line.starts_with('[') {
            skips = line.starts_with(header);
        }
        !skips
    };
    let kept: Vec<&str> = text.lines().filter(keeps).collect();
    assert!(kept.len() < text.lines().count(), "there is no {header}");
    kept.join("\n")
}

/// The text without lossless priorities.
fn lossy(text: &str) -> String {
    without_classes(text).replace("lossless = [3]", "lossless = []")
}

fn without_classes(text: &str) -> String {
    let classes = ["[switch.s1.class.3]", "[defaults.switch.class.3]", "[defaults.switch.class.4]"];
    classes
        .iter()
        .filter(|class| text.contains(**class))
        .fold(text.to_owned(), |text, class| without(&text, class))
}

fn not_held(report: &Value) -> Vec<&str> {
    let expectations = report["expectations"].as_array().expect("expectations").iter();
    let failed = expectations.filter(|expectation| expectation["held"] == false);
    failed.filter_map(|expectation| expectation["expr"].as_str()).collect()
}

#[test]
fn incast_unfairness_and_victim_are_as_published_and_only_with_pfc() {
    for name in ["pfc-incast.toml", "pfc-unfairness.toml", "pfc-victim.toml"] {
        let text = testbed(name);
        let (code, report) = sim(&text);
        assert_eq!((code, not_held(&report)), (Some(0), vec![]), "{name}");
        assert_eq!(report.get("deadlocks"), None, "{name}");
        let (code, report) = sim(&lossy(&text));
        assert_eq!(code, Some(3), "{name}");
        let failed = not_held(&report);
        assert!(failed.iter().any(|expr| expr.contains("drops.total")), "{name}: {failed:?}");
    }
}

/// The first letters of the rings that deadlocked.
fn rings(report: &Value) -> String {
    let deadlocks = report.get("deadlocks").and_then(Value::as_array);
    let mut rings: Vec<char> = deadlocks
        .into_iter()
        .flatten()
        .map(|deadlock| {
            let cycle = deadlock["cycle"].as_array().expect("a cycle");
            assert_eq!(cycle.len(), 3, "{deadlock}");
            let since = deadlock["since_ns"].as_u64().expect("a time");
            assert!((100_000..500_000).contains(&since), "while frames come to loop: {deadlock}");
            cycle[0].as_str().and_then(|port| port.chars().next()).expect("a port")
        })
        .collect();
    rings.sort_unstable();
    rings.dedup();
    rings.into_iter().collect()
}

#[test]
fn a_ring_deadlocks_without_watchdog_and_prevention_and_the_wait_cycle_is_found() {
    let text = testbed("pfc-deadlock-ring.toml");
    let (code, report) = sim(&text);
    assert_eq!((code, not_held(&report)), (Some(0), vec![]));
    assert_eq!(rings(&report), "nw", "prevention leaves no cycle, the watchdog ends one");

    let unwatched = ["w1", "w2", "w3"]
        .iter()
        .fold(text.clone(), |text, switch| without(&text, &format!("[switch.{switch}.watchdog]")));
    let (code, report) = sim(&unwatched);
    assert_eq!(code, Some(3));
    assert!(not_held(&report).iter().any(|expr| expr.contains("hosts.wb")));

    let unprevented = ["p1", "p2", "p3"]
        .iter()
        .fold(text, |text, switch| without(&text, &format!("[switch.{switch}.prevention]")));
    let (code, report) = sim(&unprevented);
    assert_eq!(code, Some(3));
    assert!(not_held(&report).iter().any(|expr| expr.contains("hosts.pb")));
    assert_eq!(rings(&report), "npw");
}

/// A ring of routers that send packets round until their hop limit ends, at 40 Gb/s.
fn routing_loop(rate: &str) -> String {
    let mut text = format!(
        r#"
name = "routing-loop"
[defaults.link]
rate = "40Gbps"
delay = "1us"
[defaults.switch]
buffer = "2MB"
trust = "dscp"
lossless = [3]
[defaults.switch.class.3]
xoff = "40KB"
[host.h]
ipv4 = "10.1.0.2/24"
gateway = ["10.1.0.1"]
[host.d]
ipv4 = "10.9.0.2/24"
[[link]]
ends = ["h:eth0", "s1:3"]
[[link]]
ends = ["d:eth0", "s3:3"]
[switch.s1.port.3]
addresses = ["10.1.0.1"]
[[stream]]
from = "h"
to = "d"
rate = "{rate}"
dscp = 24
start = "100us"
[run]
duration = "20ms"
"#
    );
    for (from, to) in [(1, 2), (2, 3), (3, 1)] {
        text += &format!(
            r#"
[[link]]
ends = ["s{from}:2", "s{to}:1"]
[switch.s{from}]
icmp_errors_per_second = 0
[switch.s{from}.port.1]
addresses = ["10.{to}{from}.0.1"]
[switch.s{from}.port.2]
addresses = ["10.{from}{to}.0.2"]
[[switch.s{from}.neighbour]]
address = "10.{from}{to}.0.9"
port = "2"
[[switch.s{from}.route]]
prefix = "10.9.0.0/16"
via = ["10.{from}{to}.0.9"]
"#
        );
    }
    text
}

/// A packet crosses the ring's three links 63 times in all, for its hop limit is 64 at the first router:
/// what is sent at rate r takes 63 r of the 3 B that the links have. So the loop deadlocks beyond
/// r = n B / TTL (S. Hu et al., Deadlocks in Datacenter Networks, HotNets 2016): 1.905 Gb/s here.
#[test]
fn a_routing_loop_deadlocks_beyond_n_b_by_ttl() {
    for (rate, deadlocks) in [("1.88Gbps", false), ("1.97Gbps", true)] {
        let (code, report) = sim(&routing_loop(rate));
        assert_eq!(code, Some(0), "{rate}");
        assert_eq!(report.get("deadlocks").is_some(), deadlocks, "{rate}");
        // Until then every packet comes to the end of its hop limit.
        let ends = report["switches"]["s1"]["drops"]["hop_limit"].as_u64().unwrap_or(0);
        assert!(ends > 500, "{rate}: {ends}");
    }
}

/// Storms of every kind against a switch with a watchdog: its books balance, no frame for the MAC goes
/// on, and the class that nobody storms loses nothing.
#[test]
fn storms_of_every_kind_leave_the_others_alone() {
    const LAB: &str = r#"
name = "storms"
[defaults.link]
rate = "100Gbps"
delay = "1us"
[switch.s1]
trust = "dscp"
lossless = [3, 4]
[switch.s1.watchdog]
mode = "sonic"
poll = "400us"
detection = "800us"
restoration = "800us"
[host.h1]
[host.h2]
[host.h3]
[[link]]
ends = ["h1:eth0", "s1:1"]
[[link]]
ends = ["h2:eth0", "s1:2"]
[[link]]
ends = ["h3:eth0", "s1:3"]
[[stream]]
from = "h1"
to = ["h2", "h3"]
rate = "5Gbps"
dscp = 24
start = "10us"
frames = 2000
[[stream]]
from = "h1"
to = ["h2", "h3"]
rate = "5Gbps"
dscp = 32
start = "10us"
frames = 2000
[[storm]]
from = "h2"
priorities = [3]
rate = "20Kpps"
start = "200us"
duration = "2ms"
[[storm]]
from = "h3"
priorities = [0, 1, 2, 3, 4, 5, 6, 7]
quanta = 0
rate = "200Kpps"
start = "200us"
duration = "2ms"
[[storm]]
from = "h3"
kind = "pause"
rate = "100Kpps"
start = "300us"
duration = "2ms"
[[storm]]
from = "h1"
kind = "hostile"
rate = "1Mpps"
start = "300us"
duration = "500us"
[[expect]]
value = "switches.s1.ports.2.storms_detected[] | sum"
is = "== 1"
[[expect]]
value = "switches.s1.ports.2.storms_restored[] | sum"
is = "== 1"
[[expect]]
value = "switches.s1.drops.watchdog"
is = "> 100"
[[expect]]
value = "switches.s1.drops.malformed"
is = "> 100"
[[expect]]
value = "hosts.h3.stream_frames_received"
is = "== 4000"
"#;
    let (code, report) = sim(LAB);
    assert_eq!((code, not_held(&report)), (Some(0), vec![]), "{:?}", report["violations"]);
    let received = |flow: usize| report["flows"][flow]["received"].as_u64().expect("a number");
    assert!(received(0) < 2_000, "priority 3 to the storm's port");
    assert_eq!([received(1), received(2), received(3)], [2_000; 3]);
}
