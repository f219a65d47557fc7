//! `tailwater replay --lab`: a capture sent from a host of a lab, the same in virtual and in gated
//! time.

mod namespaces;

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// A pcap of frames to h2, 100 us apart, each of these lengths.
fn capture(folder: &Path, lengths: &[usize]) {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    for (n, len) in (0_u32..).zip(lengths) {
        let len32 = u32::try_from(*len).expect("short");
        for word in [1_700_000_000, n * 100, len32, len32] {
            file.extend_from_slice(&word.to_le_bytes());
        }
        let mut frame = vec![0x02, 0x77, 0x48, 0, 2, 0, 0x02, 0x77, 0x48, 0, 1, 0, 0x88, 0xb5];
        frame.resize((*len).max(14), n.to_le_bytes()[0]);
        file.extend_from_slice(&frame[..*len]);
    }
    std::fs::write(folder.join("frames.pcap"), file).expect("a file");
}

fn lab(folder: &Path, name: &str, more: &str) {
    let text = format!(
        "name = \"{name}\"\n[switch.s1]\n[host.h1]\n[host.h2]\n[host.h3]\n\
         [[link]]\nends = [\"h1:eth0\", \"s1:1\"]\nrate = \"1Gbps\"\n\
         [[link]]\nends = [\"h2:eth0\", \"s1:2\"]\n[[link]]\nends = [\"h3:eth0\", \"s1:3\"]\n{more}"
    );
    std::fs::write(folder.join("lab.toml"), text).expect("a file");
}

fn replay(folder: &Path, more: &[&str]) -> Output {
    let run = format!("run-{}", more.join("").replace(|c: char| !c.is_alphanumeric(), ""));
    Command::new(env!("CARGO_BIN_EXE_tailwater"))
        .arg("replay")
        .arg(folder.join("frames.pcap"))
        .arg("--lab")
        .arg(folder.join("lab.toml"))
        .args(["h1", "--json", "--out"])
        .arg(folder.join(run))
        .args(more)
        .output()
        .expect("it starts")
}

fn report(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn every_record_is_sent_or_counted_under_a_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    capture(folder, &[60, 1_514, 0, 1_515, 13, 64, 64]);
    lab(folder, "x", "");
    let got = report(&replay(folder, &["--sim", "--loop", "2", "--capture", "s1:2"]));
    let counts = &got["replay"]["counts"];
    assert_eq!(*counts, serde_json::json!({"records": 14, "sent": 8, "dropped": 6, "unsent": 0}));
    let drops = &got["hosts"]["h1"]["drops"];
    assert_eq!((&drops["oversize"], &drops["runt"]), (&2.into(), &4.into()), "{drops}");
    let said = |host: &str| got["hosts"][host]["transmitted"].as_u64().expect("a count");
    assert_eq!(got["switches"]["s1"]["received"], 8 + said("h2") + said("h3"));
    assert_eq!(got["invariants"]["records_accounted_for"], true);
    // Two loops of 600 us with the mean gap of 120 us between them, to the end of a slice.
    let ns = got["duration_ns"].as_u64().expect("a time");
    assert!((1_320_000..1_450_000).contains(&ns), "{ns}");
    let config = std::fs::read_to_string(folder.join("run-simloop2captures12/config.toml"));
    assert!(config.expect("a configuration").contains("frames.pcap from h1 at original, 2 times"));

    // What is due while the link is down is lost under that name, and what is not reached is said.
    lab(folder, "x", "[[fault]]\nat = \"350us\"\nlink = \"h1:eth0\"\ndown = true\n");
    let got = report(&replay(folder, &["--sim", "--duration", "550us"]));
    let counts = &got["replay"]["counts"];
    assert_eq!(*counts, serde_json::json!({"records": 7, "sent": 2, "dropped": 4, "unsent": 1}));
    assert_eq!(got["hosts"]["h1"]["drops"]["link_down"], 2, "{}", got["hosts"]["h1"]);
    assert_eq!(got["hosts"]["h1"]["replay_unsent"], 1);
}

#[test]
fn what_cannot_replay_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    capture(folder, &[60]);
    let fails = |more: &str| {
        lab(folder, "x", more);
        let output = replay(folder, &["--sim"]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let stream = "[[stream]]\nfrom = \"h1\"\nto = \"h2\"\nrate = \"1Kpps\"\nframes = 1\n";
    assert!(fails(stream).contains("does nothing but replay"));
    let text = std::fs::read_to_string(folder.join("lab.toml")).expect("a file");
    let kernel = text.replace("[host.h1]", "[host.h1]\nkind = \"kernel\"").replace(stream, "");
    std::fs::write(folder.join("lab.toml"), kernel).expect("a file");
    let output = replay(folder, &["--sim"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("its own programs"), "{output:?}");
}

#[test]
fn gated_time_equals_virtual_time() {
    if !namespaces::available() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let lengths: Vec<usize> = (0..500).map(|n| 60 + (n * 37) % 1_455).collect();
    capture(folder, &lengths);
    let stream = "[[stream]]\nfrom = \"h3\"\nto = \"h2\"\nrate = \"9Gbps\"\nframes = 300\n";
    lab(folder, &format!("t{}-replay", std::process::id()), stream);
    let node_time = |how: &[&str]| {
        let mut got = report(&replay(folder, how));
        let fields = ["duration_ns", "hosts", "switches", "flows", "links", "latency_ns", "replay"];
        Value::from_iter(fields.map(|field| (field, got[field].take())))
    };
    let gated = node_time(&["--clock", "gated", "--speed", "x20"]);
    let sim = node_time(&["--sim", "--speed", "x20"]);
    assert_eq!(sim["replay"]["counts"]["sent"], 500);
    assert_eq!(gated, sim);
    let free = report(&replay(folder, &["--clock", "free", "--speed", "100Kpps"]));
    assert_eq!(free["replay"]["counts"]["sent"], 500, "{free}");
}
