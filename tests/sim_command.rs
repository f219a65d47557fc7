//! `tailwater sim` as a user runs it: what a run that fails leaves behind, and counters held against
//! what crossed the ports.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use pcap_parser::pcapng::{Block, EnhancedPacketBlock};
use pcap_parser::{PcapBlockOwned, PcapError, PcapNGReader, traits::PcapReaderIterator};
use serde_json::Value;

fn sim(arguments: &[&str], directory: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tailwater"));
    command.arg("sim").args(arguments).arg("--run-dir").arg(directory);
    command.env("NO_COLOR", "1").stdin(Stdio::null()).output().expect("it runs")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Frames and bytes without FCS that a capture has, inbound and outbound.
fn crossed(capture: &Path) -> [(u64, u64); 2] {
    const FLAGS: u16 = 2;
    let file = std::fs::File::open(capture).expect("a capture");
    let mut reader = PcapNGReader::new(1 << 20, file).expect("pcapng");
    let mut counts = [(0, 0); 2];
    loop {
        match reader.next() {
            Ok((used, block)) => {
                if let PcapBlockOwned::NG(Block::EnhancedPacket(packet)) = &block {
                    let direction = direction_of(packet, FLAGS);
                    counts[direction].0 += 1;
                    counts[direction].1 += u64::from(packet.origlen);
                }
                reader.consume(used);
            }
            Err(PcapError::Eof) => return counts,
            Err(PcapError::Incomplete(_)) => reader.refill().expect("more of it"),
            Err(error) => panic!("{}: {error:?}", capture.display()),
        }
    }
}

/// 0 for a frame that came in, 1 for one that went out: the two low bits of epb_flags.
fn direction_of(packet: &EnhancedPacketBlock<'_>, flags: u16) -> usize {
    let option = packet.options.iter().find(|option| option.code.0 == flags).expect("epb_flags");
    match option.value()[0] & 3 {
        1 => 0,
        2 => 1,
        other => panic!("direction {other}"),
    }
}

#[test]
fn counters_are_what_the_captures_show() {
    let folder = tempfile::tempdir().expect("a folder");
    let directory = folder.path().join("run");
    let file = "netns-testbed/leaf-spine.toml";
    let output = sim(&[file, "--duration", "300us", "--capture", "all", "--quiet"], &directory);
    // The file's own expectations are about the whole run.
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let report = std::fs::read_to_string(directory.join("report.json")).expect("a report");
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert!(report["invariants"].as_object().expect("a table").values().all(|held| *held == true));
    let mut ports = BTreeMap::new();
    for (switch, about) in report["switches"].as_object().expect("switches") {
        for (port, counters) in about["ports"].as_object().expect("ports") {
            let counts = crossed(&directory.join(format!("captures/{switch}_{port}.pcapng")));
            let number = |name: &str| counters[name].as_u64().expect("a number");
            let want = [
                (number("rx_frames"), number("rx_bytes")),
                (number("tx_frames"), number("tx_bytes")),
            ];
            assert_eq!(counts, want, "{switch}:{port}");
            ports.insert(format!("{switch}:{port}"), counts[0].0 + counts[1].0);
        }
    }
    assert_eq!(ports.len(), 12);
    assert!(ports.values().all(|frames| *frames > 100), "{ports:?}");
}

#[test]
fn what_the_trimming_lab_expects_holds_with_trimming_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = "netns-testbed/trimming.toml";
    let output = sim(&[file, "--quiet"], &folder.path().join("with"));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = std::fs::read_to_string(file).expect("the file");
    let (before, rest) = text.split_once("[switch.s1.trim]").expect("trimming is set");
    let (_, after) = rest.split_once("[host.h1]").expect("a host");
    let without = folder.path().join("without.toml");
    std::fs::write(&without, format!("{before}[host.h1]{after}")).expect("room");
    let without = without.to_str().expect("a path");
    let output = sim(&[without, "--quiet"], &folder.path().join("without"));
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
}

/// A lab whose expectations hold, and one that differs in this text and must end with 3.
fn holds_only_as_it_is(file: &str, text: &str, instead: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let output = sim(&[file, "--quiet"], &folder.path().join("with"));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let whole = std::fs::read_to_string(file).expect("the file");
    assert_eq!(whole.matches(text).count(), 1, "{text} in {file}");
    let without = folder.path().join("without.toml");
    std::fs::write(&without, whole.replace(text, instead)).expect("room");
    let without = without.to_str().expect("a path");
    let output = sim(&[without, "--quiet"], &folder.path().join("without"));
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
}

#[test]
fn marks_follow_the_curve_only_where_they_are_made() {
    let on = "[switch.s1.ecn]\n";
    holds_only_as_it_is("netns-testbed/ecn-curve.toml", on, &format!("{on}enabled = false\n"));
}

#[test]
fn uplinks_are_even_only_where_frames_are_sprayed() {
    let file = "netns-testbed/spray-leaf-spine.toml";
    holds_only_as_it_is(file, "method = \"spray\"", "method = \"ecmp\"");
}

#[test]
fn what_does_not_hold_comes_with_the_command_that_repeats_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let directory = folder.path().join("run");
    let file = "netns-testbed/stream.toml";
    let output = sim(&[file, "--duration", "30us", "--seed", "7"], &directory);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let repeat = format!("tailwater sim {file} --seed=7 --duration=30us --capture=all\n");
    assert!(stderr(&output).contains(&repeat), "{}", stderr(&output));
    assert!(!directory.join("captures").exists(), "an expectation alone leaves no capture");
}

#[test]
fn a_broken_invariant_leaves_what_crossed_each_port() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("endless.toml");
    // At a bit per second the streams have not ended when the run is given up.
    let text = "name = \"endless\"\n[host.h1]\n[host.h2]\n[[link]]\nends = [\"h1:eth0\", \"h2:eth0\"]\n\
                rate = \"1bps\"\n[[stream]]\nfrom = \"h1\"\nto = \"h2\"\nrate = \"1Gbps\"\nframes = 10\n";
    std::fs::write(&file, text).expect("writes");
    let directory = folder.path().join("run");
    let output = sim(&[file.to_str().expect("UTF-8")], &directory);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("repeat it with: "), "{}", stderr(&output));
    for port in ["h1_eth0", "h2_eth0"] {
        let frames = crossed(&directory.join(format!("captures/{port}.pcapng")));
        assert!(frames[0].0 + frames[1].0 > 0, "{port}: {frames:?}");
    }
}
