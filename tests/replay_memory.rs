//! A capture of any length from a pipe is replayed in constant memory.

use std::io::Write as _;
use std::process::{Command, Stdio};

/// Writes a capture of `records` frames into `tailwater replay -`, and gives the most memory that
/// it had used in KiB when the pipe had taken all of it.
fn peak_kib(records: u32) -> u64 {
    let folder = tempfile::tempdir().expect("a folder");
    let mut child = Command::new(env!("CARGO_BIN_EXE_tailwater"))
        .args(["replay", "-", "--quiet", "--json", "--out"])
        .arg(folder.path().join("run"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut pipe = std::io::BufWriter::new(child.stdin.take().expect("piped"));
    let mut put = |words: &[u32]| {
        for word in words {
            pipe.write_all(&word.to_le_bytes()).expect("it reads");
        }
    };
    put(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1]);
    for n in 0..records {
        put(&[n / 100_000, n % 100_000 * 10, 60, 60]);
        // A destination for each of many sources: broadcast from 02:00:n.
        put(&[0xffff_ffff, 0x0002_ffff, n, 0xb588_0000]);
        put(&[0; 11]);
    }
    pipe.flush().expect("it reads");
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line");
    let kib = line.trim().trim_end_matches("kB").trim().parse().expect("a number");
    drop(pipe);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["invariants"]["frames_conserved"], true);
    assert_eq!(report["switches"]["replay"]["received"], records);
    kib
}

/// `TAILWATER_TEST_RECORDS=2000000` for a longer one.
#[test]
fn memory_does_not_grow_with_the_capture() {
    let many = std::env::var("TAILWATER_TEST_RECORDS").ok().and_then(|n| n.parse().ok());
    let (few, many) = (peak_kib(20_000), peak_kib(many.unwrap_or(200_000)));
    assert!(many < few + 4_096, "{few} KiB for 20000 records, {many} KiB for many");
}
