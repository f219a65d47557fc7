//! `tailwater replay --live` on a veth pair, counted by the kernel at the other end.

mod namespaces;

use std::path::Path;
use std::process::{Command, Output};

use namespaces::{Pair, run};

fn live(pair: &Pair, capture: &str, more: &[&str]) -> (Output, serde_json::Value) {
    let capture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/pcaps").join(capture);
    assert!(capture.is_file(), "{} is missing", capture.display());
    let output = Command::new("ip")
        .args(["netns", "exec", &pair.a, env!("CARGO_BIN_EXE_tailwater"), "replay", "--json"])
        .args(["--live", "a0"])
        .arg(capture)
        .args(more)
        .output()
        .expect("ip runs");
    let report = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
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
