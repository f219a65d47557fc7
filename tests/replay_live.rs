//! `tailwater replay --live` on a veth pair, counted by the kernel at the other end.
#![allow(clippy::print_stdout, reason = "a measured figure is shown")]

mod namespaces;

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use namespaces::{Pair, run};

fn command(pair: &Pair, out: &Path, capture: &str, more: &[&str]) -> Command {
    let capture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/pcaps").join(capture);
    assert!(capture.is_file(), "{} is missing", capture.display());
    let mut command = Command::new("ip");
    command
        .args(["netns", "exec", &pair.a, env!("CARGO_BIN_EXE_tailwater"), "replay", "--json"])
        .args(["--live", "a0", "--out"])
        .arg(out)
        .arg(capture)
        .args(more);
    command
}

fn live(pair: &Pair, capture: &str, more: &[&str]) -> (Output, serde_json::Value) {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("run");
    let output = command(pair, &out, capture, more).output().expect("ip runs");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let written = std::fs::read_to_string(out.join("report.json")).expect("a report");
    assert_eq!(serde_json::from_str::<serde_json::Value>(&written).expect("JSON"), report);
    assert_eq!(report["invariants"]["records_accounted_for"], true, "{report}");
    for name in ["lateness", "gap-error"] {
        assert!(out.join(format!("histograms/{name}.hgrm")).is_file(), "{name}");
    }
    (output, report)
}

fn received(pair: &Pair) -> u64 {
    let text = run(&format!("ip -n {} -s -j link show b0", pair.b));
    let link: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    link[0]["stats64"]["rx"]["packets"].as_u64().expect("a count")
}

#[test]
fn every_record_is_sent_or_counted_as_failed() {
    if !namespaces::available() {
        return;
    }
    let pair = Pair::new(1, 1_500);
    let before = received(&pair);
    let (output, report) =
        live(&pair, "rdma/rc_write_v4.pcap", &["--speed", "topspeed", "--loop", "3"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!((&report["records"], &report["sent"]), (&207.into(), &207.into()));
    assert_eq!(received(&pair) - before, 207, "{report}");

    // 2.1 s of capture at a hundredth of that, and the gaps are the capture's.
    let before = received(&pair);
    let (output, report) = live(&pair, "rdma/rc_write_v4.pcap", &["--speed", "x100"]);
    assert!(output.status.success(), "{output:?}");
    assert!(report["took_ns"].as_u64().expect("a time") >= 21_192_330, "{report}");
    assert_eq!(report["lateness_ns"]["count"], 69);
    assert_eq!(report["gap_error_ns"]["count"], 68);
    println!("gap error on veth, median: {} ns", report["gap_error_ns"]["p50"]);
    assert_eq!(received(&pair) - before, 69);

    // A frame that the MTU does not let through is not silently gone.
    let (output, report) = live(&pair, "ordinary/gso-ipv4.pcap", &[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(report["failed"]["tx_refused_oversize"], 1, "{report}");
    assert_eq!(report["sent"], 0);

    // A record without a byte is discarded and counted.
    let (output, report) = live(&pair, "malformed/pim_header_asan-2.pcap", &["--speed", "1Kpps"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!((&report["failed"]["zero_length"], &report["sent"]), (&2.into(), &1.into()));
}

/// A run at ten frames a second, of which the far end has got some.
fn begun(pair: &Pair, out: PathBuf) -> Child {
    let mut command = command(pair, &out, "rdma/rc_write_v4.pcap", &["--speed", "10pps"]);
    let before = received(pair);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("ip runs");
    while received(pair) < before + 2 {}
    child
}

fn ended(mut child: Child) -> (Option<i32>, serde_json::Value) {
    let mut text = String::new();
    child.stdout.take().expect("piped").read_to_string(&mut text).expect("it reads");
    let status = child.wait().expect("it ends");
    (status.code(), serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")))
}

#[test]
fn a_run_that_is_cut_short_says_what_was_sent() {
    if !namespaces::available() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let pair = Pair::new(1, 1_500);
    let count = |report: &serde_json::Value, name: &str| report[name].as_u64().expect("a count");
    let child = begun(&pair, folder.path().join("interrupted"));
    run(&format!("kill -INT {}", child.id()));
    let (code, report) = ended(child);
    assert_eq!((code, &report["interrupted"]), (Some(130), &true.into()), "{report}");
    let left = count(&report["failed"], "interrupted");
    assert_eq!((count(&report, "sent") + left, count(&report, "records")), (69, 69));
    assert!(count(&report, "sent") >= 2);

    let child = begun(&pair, folder.path().join("vanished"));
    run(&format!("ip -n {} link del a0", pair.a));
    let (code, report) = ended(child);
    assert_eq!(code, Some(1), "{report}");
    let left = count(&report["failed"], "interface_vanished");
    assert!(left > 0 && count(&report, "sent") >= 2, "{report}");
    assert_eq!(report["invariants"]["records_accounted_for"], true, "{report}");
}
