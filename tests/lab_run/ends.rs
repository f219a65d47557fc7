//! Every way in which a run can end, and that none leaves anything.

use nix::sys::signal::Signal;

use crate::lab::{Lab, stderr, stdout, tailwater, tool};
use crate::namespaces::{self, try_run};

/// Traffic both ways that would last for hours.
pub(crate) const ENDLESS: &str = r#"
[defaults]
link = { rate = "1Gbps", delay = "10us" }
[switch.s1]
[host.h1]
[host.h2]
[[link]]
ends = ["h1:eth0", "s1:1"]
[[link]]
ends = ["h2:eth0", "s1:2"]
[[stream]]
from = "h1"
to = "h2"
rate = "4Kpps"
frame_bytes = 200
frames = 100000000
[[stream]]
from = "h2"
to = "h1"
rate = "2Kpps"
frame_bytes = 1400
frames = 100000000
"#;

/// The BPF links that a process holds, by its file descriptors.
fn bpf_links(pid: u32) -> Vec<String> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fdinfo")).expect("a process");
    let texts = entries.flatten().filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
    texts
        .filter_map(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix("link_id:"))?;
            Some(line.trim().to_owned())
        })
        .collect()
}

#[test]
fn a_killed_run_leaves_what_lab_down_or_the_next_run_clears() {
    if !namespaces::available() {
        return;
    }
    let lab = Lab::new(ENDLESS);
    let own = tool("ip -o link");
    for round in 0..3 {
        let mut running = lab.start(&format!("killed-{round}"), &["--clock", "free"]);
        let links = bpf_links(running.child.id());
        assert_eq!(links.len(), 4, "a program on each port");
        running.child.kill().expect("SIGKILL");
        running.wait();
        for link in links {
            let (ok, out, _) = try_run(&format!("bpftool link show id {link}"));
            assert!(!ok, "link {link} went with the process: {out}");
        }
        let status = tailwater(&["lab", "status", &lab.name]).output().expect("it runs");
        assert!(stdout(&status).contains("killed"), "{}", stdout(&status));
        let show = tailwater(&["show", &lab.name]).output().expect("it runs");
        assert_eq!(show.status.code(), Some(1));
        assert!(stderr(&show).contains("lab down"), "{}", stderr(&show));
        if round == 1 {
            // The next run of the name clears it, and says so.
            let output = lab.run(&["lab", "run"], "next", &["--duration", "1ms"], 0);
            assert!(stderr(&output).contains("removed what an earlier run"), "{}", stderr(&output));
        } else {
            let down = lab.down();
            assert!(stderr(&down).contains("3 namespaces"), "{}", stderr(&down));
        }
        lab.assert_gone();
    }
    assert_eq!(tool("ip -o link"), own);
}

#[test]
fn signals_and_lab_down_end_a_run_with_130_its_report_and_nothing_left() {
    if !namespaces::available() {
        return;
    }
    let lab = Lab::new(ENDLESS);
    let ends = [Some(Signal::SIGINT), Some(Signal::SIGTERM), None];
    for (number, (end, clock)) in
        ends.into_iter().flat_map(|end| [(end, "gated"), (end, "free")]).enumerate()
    {
        let dir = format!("run-{number}");
        let mut running = lab.start(&dir, &["--clock", clock]);
        lab.wait_for_more("/switches/s1/received", 100);
        match end {
            Some(signal) => running.signal(signal),
            None => {
                let down = lab.down();
                assert!(down.status.success(), "{}", stderr(&down));
                lab.assert_gone();
            }
        }
        assert_eq!(running.wait(), Some(130), "{end:?} {clock}");
        lab.assert_gone();
        let report = lab.assert_sound(&dir);
        assert_eq!((&report["interrupted"], &report["clock"]), (&true.into(), &clock.into()));
        assert!(report["switches"]["s1"]["received"].as_u64() >= Some(100));
        // By the free clock a machine that is busy elsewhere may overflow the kernel's queues.
        for link in report["links"].as_object().expect("links").values() {
            assert!(clock == "free" || link["kernel_dropped"] == 0, "{link}");
        }
    }
}
