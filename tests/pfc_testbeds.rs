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
