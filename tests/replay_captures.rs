//! `tailwater replay` over captures that no one here wrote, with Wireshark's tools as the second
//! opinion.

#![allow(missing_docs, reason = "a test")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tailwater::replay::{CaptureReader, Record};

/// The captures lie beside the crate.
fn captures() -> PathBuf {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/pcaps");
    assert!(dir.is_dir(), "{} is missing: these tests read the captures there", dir.display());
    dir
}

/// Every capture, by its name under the directory.
fn files(dir: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for kind in ["malformed", "ordinary", "rdma"] {
        for entry in std::fs::read_dir(dir.join(kind)).expect("a directory of captures") {
            let name = entry.expect("an entry").file_name().into_string().expect("a plain name");
            if name.contains(".pcap") {
                names.push(format!("{kind}/{name}"));
            }
        }
    }
    names.sort();
    assert!(names.len() > 200, "only {} captures", names.len());
    names
}

fn tool(name: &str, package: &str, args: &[&str]) -> String {
    let output = Command::new(name).args(args).output();
    let output = output.unwrap_or_else(|error| panic!("{name} (apt install {package}): {error}"));
    String::from_utf8(output.stdout).expect("text")
}

fn replay(capture: &Path, out: &Path, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tailwater"))
        .args(["replay", "--quiet", "--out"])
        .args([out, capture])
        .args(more)
        .output()
        .expect("the binary runs")
}

fn report(out: &Path) -> serde_json::Value {
    let text = std::fs::read_to_string(out.join("report.json")).expect("a report");
    serde_json::from_str(&text).expect("JSON")
}

/// Records that the reader yields, of any link type.
fn readable(path: &Path) -> u64 {
    let Ok(mut reader) = CaptureReader::new(File::open(path).expect("a file")) else {
        return 0;
    };
    let mut record = Record::default();
    while let Ok(true) = reader.read(&mut record) {}
    reader.records()
}

/// What capinfos counts, by path; a file that it refuses, or whose end it finds damaged, has what
/// it counted before, when it says so.
fn capinfos(dir: &Path, names: &[String]) -> BTreeMap<String, u64> {
    let paths: Vec<String> = names.iter().map(|n| dir.join(n).display().to_string()).collect();
    let mut args = vec!["-T", "-r", "-M", "-c"];
    args.extend(paths.iter().map(String::as_str));
    let text = tool("capinfos", "wireshark-common", &args);
    let prefix = format!("{}/", dir.display());
    text.lines()
        .filter_map(|line| {
            let (path, count) = line.split_once('\t')?;
            Some((path.strip_prefix(&prefix)?.to_owned(), count.trim().parse().ok()?))
        })
        .collect()
}

/// Why our count is not capinfos's.
fn explained(name: &str) -> Option<&'static str> {
    let _ = name;
    None
}

#[test]
fn every_capture_has_its_records_exit_code_and_reason() {
    let dir = captures();
    let names = files(&dir);
    let counted = capinfos(&dir, &names);
    let scratch = tempfile::tempdir().expect("a directory");
    let mut table = String::from("file | records | sent | lost | exit | reason\n");
    for name in &names {
        let path = dir.join(name);
        let records = readable(&path);
        let out = scratch.path().join("run");
        let _ = std::fs::remove_dir_all(&out);
        let output = replay(&path, &out, &[]);
        let errors =
            String::from_utf8_lossy(&output.stderr).replace(&*path.to_string_lossy(), "FILE");
        assert!(!errors.contains("panicked"), "{name}: {errors}");
        let code = output.status.code().expect("no signal");
        let (mut sent, mut lost) = (0, String::new());
        if out.join("report.json").exists() {
            let part = &report(&out)["replay"];
            let count = |value: &serde_json::Value| value.as_u64().expect("a count");
            sent = count(&part["frames_sent"]);
            let mut frames = sent;
            for (reason, n) in part["frames_lost"].as_object().expect("reasons") {
                let _ = write!(lost, "{reason} {n} ");
                frames += count(n);
            }
            assert_eq!(frames, count(&part["records"]), "{name}: one frame out for each in");
            if code == 0 {
                assert_eq!(records, count(&part["records"]), "{name}: all records went through");
            }
        }
        // Without an error there is no line; with one there is exactly one, which names the file.
        assert_eq!(errors.lines().count(), usize::from(code != 0), "{name}: {errors}");
        assert!(code == 0 || (code == 1 && errors.starts_with("FILE: ")), "{name}: {errors}");
        let mut line =
            format!("{name} | {records} | {sent} | {} | {code} | {}", lost.trim(), errors.trim());
        match counted.get(name) {
            Some(theirs) if *theirs != records => {
                let why = explained(name).unwrap_or("UNEXPLAINED");
                let _ = write!(line, " [capinfos {theirs}: {why}]");
            }
            Some(_) => {}
            None => line.push_str(" [capinfos does not read it]"),
        }
        table.push_str(&line);
        table.push('\n');
    }
    assert!(!table.contains("UNEXPLAINED"), "counts differ from capinfos's:\n{table}");
    insta::assert_snapshot!(table);
}

/// Record number, hash of the bytes and length of each frame, as tshark reads the file. The record
/// is the frame's own number, or what its comment says.
fn frames(path: &Path) -> Vec<(u64, String)> {
    let path = path.to_string_lossy();
    let args = ["-r", &*path, "-o", "frame.generate_md5_hash:TRUE", "-T", "fields"];
    let fields =
        ["-e", "frame.number", "-e", "frame.md5_hash", "-e", "frame.len", "-e", "frame.comment"];
    let text = tool("tshark", "tshark", &[&args[..], &fields].concat());
    text.lines()
        .map(|line| {
            let columns: Vec<&str> = line.split('\t').collect();
            let [number, hash, len, comment] = columns.as_slice() else {
                panic!("{path}: {line}");
            };
            let record = match comment.strip_prefix("record ") {
                Some(rest) => rest.split(' ').next().expect("a number"),
                None => number,
            };
            (record.parse().expect("a number"), format!("{hash} {len}"))
        })
        .collect()
}

#[test]
fn output_and_lost_frames_are_the_input_frame_for_frame() {
    let dir = captures();
    let scratch = tempfile::tempdir().expect("a directory");
    for (name, lost) in [
        ("ordinary/LLDP_and_CDP.pcap", 8),
        ("ordinary/802.1ad_QinQ.pcap", 0),
        ("ordinary/OSPFv2_Capture_FINAL.pcapng", 0),
        ("malformed/babel_update_oobr.pcap", 102),
        ("ordinary/bigtcp-ipv6-hbh.pcap", 1),
        ("rdma/vlan_write_v4.pcap", 0),
    ] {
        let out = scratch.path().join("run");
        let _ = std::fs::remove_dir_all(&out);
        assert!(replay(&dir.join(name), &out, &[]).status.success(), "{name}");
        let input = frames(&dir.join(name));
        let dropped = frames(&out.join("captures/lost.pcapng"));
        assert_eq!(dropped.len(), lost, "{name}");
        assert_eq!(frames(&out.join("captures/port-1.pcapng")), [], "{name}");
        let mut output = frames(&out.join("captures/port-2.pcapng"));
        assert!(output.is_sorted_by_key(|(record, _)| record), "{name}: order is kept");
        output.extend(dropped);
        output.sort();
        assert_eq!(output, input, "{name}");
    }
}

/// The same bytes for the same run, and the same from a pipe as from a file.
#[test]
fn a_replay_repeats_byte_for_byte_also_from_stdin() {
    let capture = captures().join("rdma/rc_write_v4.pcap");
    let scratch = tempfile::tempdir().expect("a directory");
    let (a, b) = (scratch.path().join("a"), scratch.path().join("b"));
    assert!(replay(&capture, &a, &["--ingress", "round-robin", "--ports", "3"]).status.success());
    let piped = Command::new(env!("CARGO_BIN_EXE_tailwater"))
        .args(["replay", "-", "--quiet", "--ingress", "round-robin", "--ports", "3", "--out"])
        .arg(&b)
        .stdin(File::open(&capture).expect("a file"))
        .output()
        .expect("the binary runs");
    assert!(piped.status.success(), "{piped:?}");
    for file in ["port-1.pcapng", "port-2.pcapng", "port-3.pcapng", "lost.pcapng", "verdicts.csv"] {
        let read = |dir: &Path| std::fs::read(dir.join("captures").join(file)).expect(file);
        assert_eq!(read(&a), read(&b), "{file}");
    }
    let verdicts = std::fs::read_to_string(a.join("captures/verdicts.csv")).expect("verdicts");
    assert!(verdicts.contains(",flooded to 2 3\n"), "{verdicts}");
    assert!(verdicts.contains(",forwarded to "), "{verdicts}");
}

#[test]
fn damage_ends_in_one_line_after_every_good_record() {
    let whole = std::fs::read(captures().join("rdma/rc_write_v4.pcap")).expect("a capture");
    let scratch = tempfile::tempdir().expect("a directory");
    let capture = scratch.path().join("cut.pcap");
    std::fs::write(&capture, &whole[..whole.len() - 1]).expect("a file");
    let out = scratch.path().join("run");
    let output = replay(&capture, &out, &[]);
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.contains("cut.pcap: record 69 (byte "), "{errors}");
    assert!(errors.contains("the file ends inside its frame"), "{errors}");
    assert_eq!(report(&out)["replay"]["records"], 68);

    std::fs::write(&capture, b"\x1f\x8b\x08\x00").expect("a file");
    let output = replay(&capture, &out, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("gunzip"));
}

/// SIGINT while a pipe has not given its first byte: interrupted, not a damaged capture.
#[test]
fn a_signal_ends_a_replay_that_waits_for_stdin() {
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;

    let out = tempfile::tempdir().expect("a directory");
    let mut child = Command::new(env!("CARGO_BIN_EXE_tailwater"))
        .args(["replay", "-", "--out"])
        .arg(out.path().join("run"))
        .stdin(std::process::Stdio::piped())
        .spawn()
        .expect("it starts");
    let caught = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()));
        let status = status.expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let set = u64::from_str_radix(line.expect("a set").trim(), 16).expect("hexadecimal");
        set & 1 << 1 != 0
    };
    while !caught() {
        std::thread::yield_now();
    }
    let pid = Pid::from_raw(child.id().try_into().expect("a pid"));
    kill(pid, Signal::SIGINT).expect("it is ours");
    let _stdin = child.stdin.take();
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
}
