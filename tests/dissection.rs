//! tshark reads what the switches made: no malformed frame, no wrong checksum.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

/// Simulates a testbed with changes to its text; `code` is how it must end.
fn simulate(name: &str, changes: &[(&str, &str)], code: i32, directory: &Path) {
    let path = format!("netns-testbed/{name}.toml");
    let mut text = std::fs::read_to_string(path).expect("a testbed");
    for (from, to) in changes {
        assert!(text.contains(from), "{name} has no {from}");
        text = text.replace(from, to);
    }
    let file = directory.join("lab.toml");
    std::fs::write(&file, text).expect("writes");
    let output = Command::new(env!("CARGO_BIN_EXE_tailwater"))
        .args(["sim", "--quiet", "--capture", "all"])
        .arg(&file)
        .arg("--run-dir")
        .arg(directory.join("run"))
        .stdin(Stdio::null())
        .output()
        .expect("it runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{name}: {error}");
}

/// Frames of a capture by the protocols that tshark sees in them; fails on one that it complains of.
fn dissect(capture: &Path) -> BTreeMap<String, usize> {
    let tshark = |filter: &str, fields: &[&str]| {
        let output = Command::new("tshark")
            .args(["-r", &capture.display().to_string(), "-Y", filter, "-T", "fields"])
            .args(fields.iter().flat_map(|field| ["-e", *field]))
            .args(["-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"])
            .stdin(Stdio::null())
            .output()
            .expect("tshark is installed (apt-get install tshark)");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    // Severities are comment, chat, note, warning, error; 6291456 is a warning.
    let complaints = tshark(
        "_ws.malformed || _ws.expert.severity >= 6291456 || ip.checksum.status == \"Bad\" || \
         udp.checksum.status == \"Bad\" || icmpv6.checksum.status == \"Bad\" || \
         icmp.checksum.status == \"Bad\"",
        &["frame.protocols", "_ws.expert.message"],
    );
    assert_eq!(complaints, "", "{}", capture.display());
    let mut seen = BTreeMap::new();
    for line in tshark("frame", &["frame.protocols"]).lines() {
        *seen.entry(line.trim().to_owned()).or_default() += 1;
    }
    seen
}

#[test]
fn segments_and_icmpv6_errors_are_dissected_without_complaint() {
    let folder = tempfile::tempdir().expect("a folder");
    simulate("usid-chain", &[("frames = 1000", "frames = 50")], 3, folder.path());
    let captures = folder.path().join("run/captures");
    let seen = dissect(&captures.join("l1_1.pcapng"));
    let of = |protocols: &str| seen.get(protocols).copied().unwrap_or(0);
    assert_eq!(of("eth:ethertype:ipv6:ip:udp:data"), 50, "{seen:?}");
    assert_eq!(of("eth:ethertype:ipv6:ipv6.routing:ipv6:udp:data"), 50, "{seen:?}");
    assert_eq!(of("eth:ethertype:ip:udp:data"), 50, "taken out of the third stream: {seen:?}");
    dissect(&captures.join("p1_2.pcapng"));

    // Where the first leaf does not know its segment, the sender is told.
    let folder = tempfile::tempdir().expect("a folder");
    let changes = [("usid = \"1\"", "usid = \"101\""), ("frames = 1000", "frames = 20")];
    simulate("usid-chain", &changes, 3, folder.path());
    let captures = folder.path().join("run/captures");
    let seen = dissect(&captures.join("h1_eth0.pcapng"));
    let is_error = |protocols: &str| protocols.starts_with("eth:ethertype:ipv6:icmpv6:ipv6");
    let errors = seen.iter().filter(|(protocols, _)| is_error(protocols));
    assert_eq!(errors.map(|(_, frames)| frames).sum::<usize>(), 40, "{seen:?}");
}

#[test]
fn vxlan_with_marks_outside_and_inside_is_dissected_without_complaint() {
    let folder = tempfile::tempdir().expect("a folder");
    simulate("vxlan-ecn", &[], 0, folder.path());
    let captures = folder.path().join("run/captures");
    let seen = dissect(&captures.join("spine_2.pcapng"));
    let frames = "eth:ethertype:ip:udp:vxlan:eth:ethertype:ip:udp:data";
    assert_eq!(seen.get(frames), Some(&2_000), "{seen:?}");
    // The marked packets, taken out: their checksums hold.
    let seen = dissect(&captures.join("s2_1.pcapng"));
    assert_eq!(seen.get("eth:ethertype:ip:udp:data"), Some(&2_000), "{seen:?}");
}
