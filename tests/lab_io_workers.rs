//! A switch whose ports' rings are served by threads of their own. Needs root.
#![allow(clippy::print_stdout, reason = "a skipped test says why")]
#![allow(clippy::disallowed_methods, reason = "how long a test waits for a child")]
#![allow(clippy::disallowed_types, reason = "how long a test waits for a child")]

mod namespaces;
mod ping;

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ping::{DEADLINE, replies};
use serde_json::Value;

/// Whatever is waited for is there long before this.
const PATIENCE: Duration = Duration::from_secs(60);

fn tailwater(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tailwater"));
    command.args(args).stdin(Stdio::null()).output().expect("it runs")
}

fn json(args: &[&str]) -> Value {
    serde_json::from_slice(&tailwater(args).stdout).unwrap_or_default()
}

/// A lab that is up; interrupted when a test fails.
struct Lab {
    name: String,
    child: Child,
    _stderr: BufReader<ChildStderr>,
    folder: tempfile::TempDir,
}

impl Lab {
    fn up(name: &str, text: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("lab.toml");
        std::fs::write(&file, text).expect("a file");
        let mut child = Command::new(env!("CARGO_BIN_EXE_tailwater"))
            .args(["lab", "up", "--json", "--run-dir"])
            .arg(folder.path().join("run"))
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it runs");
        let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
        let mut said = String::new();
        let is_ready = loop {
            let mut line = String::new();
            if stderr.read_line(&mut line).expect("text") == 0 {
                break false;
            }
            if line == "ready\n" {
                break true;
            }
            said.push_str(&line);
        };
        let lab = Self { name: name.to_owned(), child, _stderr: stderr, folder };
        assert!(is_ready, "it does not get ready: {said}");
        lab
    }

    /// Replies to 100 pings.
    fn pings(&self, from: &str, to: &str) -> u64 {
        let command = ["lab", "exec", &self.name, from, "--", "ping"].into_iter();
        let deadline = DEADLINE.split(' ');
        let rest = ["-c", "100", "-i", "0.002", "-q", to];
        let output = tailwater(&command.chain(deadline).chain(rest).collect::<Vec<_>>());
        replies(&output, 100)
    }

    fn wait_for(&self, what: &str, mut is_there: impl FnMut() -> bool) {
        let began = Instant::now();
        while !is_there() {
            assert!(began.elapsed() < PATIENCE, "no {what}");
            std::thread::yield_now();
        }
    }

    /// Interrupts it; gives its exit code and its report.
    fn interrupt(mut self) -> (Option<i32>, Value) {
        self.signal();
        let mut text = String::new();
        self.child.stdout.take().expect("piped").read_to_string(&mut text).expect("text");
        let status = self.child.wait().expect("it ends");
        let report = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        (status.code(), report)
    }

    fn signal(&self) {
        let pid = i32::try_from(self.child.id()).expect("a process id");
        // It may have ended already.
        let _ = kill(Pid::from_raw(pid), Signal::SIGINT);
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal();
            let _ = self.child.wait();
        }
        let _ = self.folder.path();
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

#[test]
fn two_io_workers_carry_four_ports_of_which_one_vanishes() {
    if !namespaces::available() {
        return;
    }
    let name = format!("t{}-io", std::process::id());
    let lab = Lab::up(
        &name,
        &format!(
            "name = \"{name}\"\n[defaults]\nlink = {{ rate = \"10Gbps\", delay = \"10us\" }}\n\
             [run]\nclock = \"free\"\n[lab]\nring = 256\n\
             [switch.s1]\nbuffer = \"1MB\"\nio_workers = 2\n[host.a1]\n[host.a2]\n\
             [host.k1]\nkind = \"kernel\"\nipv4 = \"10.0.0.1/24\"\n\
             [host.k2]\nkind = \"kernel\"\nipv4 = \"10.0.0.2/24\"\n\
             [[link]]\nends = [\"a1:eth0\", \"s1:1\"]\n[[link]]\nends = [\"a2:eth0\", \"s1:2\"]\n\
             [[link]]\nends = [\"k1:eth0\", \"s1:3\"]\n[[link]]\nends = [\"k2:eth0\", \"s1:4\"]\n\
             [[stream]]\nfrom = [\"a1\", \"a2\"]\nto = [\"a1\", \"a2\"]\nrate = \"5Mbps\"\n\
             frame_bytes = 512\nduration = \"600s\"\n"
        ),
    );
    let workers = json(&["lab", "status", &name, "--json"])[0]["status"]["workers"].clone();
    // What `check` says beforehand is what comes.
    let file = lab.folder.path().join("lab.toml").display().to_string();
    assert_eq!(json(&["lab", "check", &file, "--json"])["workers"], workers);
    let serves = |thread: &str| {
        let all = workers.as_array().into_iter().flatten();
        all.filter(|worker| worker["thread"] == thread).map(|w| w["serves"].clone()).next()
    };
    assert_eq!(serves("tw-io-0"), Some(serde_json::json!(["s1:1", "s1:3"])), "{workers}");
    assert_eq!(serves("tw-io-1"), Some(serde_json::json!(["s1:2", "s1:4"])), "{workers}");
    let tasks = std::fs::read_dir(format!("/proc/{}/task", lab.child.id())).expect("it runs");
    let mut io_threads = 0;
    for task in tasks.flatten() {
        let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
        if status.starts_with("Name:\ttw-io-") {
            io_threads += 1;
            assert!(status.contains("CapPrm:\t0000000000000000\n"), "{status}");
        }
    }
    assert_eq!(io_threads, 2);

    assert_eq!(lab.pings("k1", "10.0.0.2"), 100);
    let received = |host: &str| {
        number(&json(&["show", &name, "--json"])["hosts"][host]["stream_frames_received"])
    };
    lab.wait_for("stream both ways", || received("a1") > 500 && received("a2") > 500);

    // Port 1 goes with frames on their way in both directions; the others live on.
    namespaces::run(&format!("ip -n tw-{name}-s1 link del swp1"));
    assert_eq!(lab.pings("k2", "10.0.0.1"), 100);

    let (code, report) = lab.interrupt();
    assert_eq!(code, Some(0), "{report:#}");
    for (invariant, holds) in report["invariants"].as_object().expect("some") {
        assert_eq!(*holds, Value::Bool(true), "{invariant}: {}", report["violations"]);
    }
    assert_eq!(report["workers"], workers);
    let ports = &report["xdp"];
    for port in ["s1:3", "s1:4"] {
        assert!(number(&ports[port]["rx_frames"]) >= 200, "{port}: {ports}");
        assert_eq!(ports[port]["tx_frames"], ports[port]["tx_completed"], "{port}: {ports}");
        assert!(number(&ports[port]["tx_wakeups"]) > 0, "{port}: {ports}");
    }
    let (_, left, _) = namespaces::try_run("ip netns list");
    assert!(!left.contains(&format!("tw-{name}-")), "{left}");
}

#[test]
fn the_gated_clock_refuses_io_workers_whoever_asks_for_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("lab.toml");
    let text = "name = \"refused\"\n[run]\nclock = \"free\"\nduration = \"1ms\"\n\
                [switch.s1]\nio_workers = 1\n[host.a1]\n[[link]]\nends = [\"a1:eth0\", \"s1:1\"]\n";
    std::fs::write(&file, text).expect("a file");
    let path = file.to_str().expect("UTF-8");
    // In virtual time there are no rings.
    let run_dir = folder.path().join("run");
    let run_dir = run_dir.to_str().expect("UTF-8");
    let output = tailwater(&["sim", path, "--run-dir", run_dir]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    if !namespaces::available() {
        return;
    }
    let output = tailwater(&["lab", "run", path, "--clock", "gated", "--run-dir", run_dir]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("switch s1 has I/O workers") && said.contains("--clock free"), "{said}");
}

#[test]
fn a_core_that_is_not_there_ends_the_run_and_is_named() {
    if !namespaces::available() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("lab.toml");
    let text = format!(
        "name = \"t{}-core\"\n[run]\nclock = \"free\"\nduration = \"600s\"\n[lab]\nring = 256\n\
         [switch.s1]\nbuffer = \"1MB\"\nio_workers = 1\nio_cores = [4000]\n[host.a1]\n\
         [[link]]\nends = [\"a1:eth0\", \"s1:1\"]\n",
        std::process::id()
    );
    std::fs::write(&file, text).expect("a file");
    let (file, run_dir) = (file.to_str(), folder.path().join("run"));
    let (file, run_dir) = (file.expect("UTF-8"), run_dir.to_str().expect("UTF-8"));
    let output = tailwater(&["lab", "run", file, "--run-dir", run_dir]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot run on core 4000"), "{said}");
}
