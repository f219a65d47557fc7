//! The lab's commands as a user runs them.
#![allow(clippy::print_stdout, reason = "a skipped test says why")]

use std::process::{Command, Output, Stdio};

use tailwater::lab::netns::{self, LabState, Liveness};
use tailwater::lab::topology::Topology;

fn tailwater(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tailwater"));
    command.args(args).env("NO_COLOR", "1").stdin(Stdio::null()).output().expect("it runs")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn check_accepts_the_testbeds_and_shows_the_memory() {
    for file in ["two-hosts", "stream", "leaf-spine", "every-key"] {
        let output = tailwater(&["lab", "check", &format!("netns-testbed/{file}.toml"), "-v"]);
        assert_eq!(output.status.code(), Some(0), "{file}: {}", stderr(&output));
        assert!(stdout(&output).contains(" TX rings x "), "{}", stdout(&output));
    }
}

#[test]
fn a_mistake_is_exit_code_2_with_file_line_and_column() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("bad.toml");
    std::fs::write(&file, "name = \"bad\"\n[switch.s1]\nbufer = \"1MB\"\n").expect("writes");
    let path = file.to_str().expect("UTF-8");
    for command in [["lab", "check", path], ["lab", "run", path], ["lab", "graph", path]] {
        let output = tailwater(&command);
        assert_eq!(output.status.code(), Some(2));
        let text = stderr(&output);
        assert!(
            text.contains("bad.toml:3:1]") && text.contains("did you mean `buffer`?"),
            "{text}"
        );
        assert!(text.is_ascii(), "drawn in ASCII where stderr is no terminal: {text}");
        assert_eq!(stdout(&output), "");
    }
}

#[test]
fn graph_draws_in_three_ways() {
    for (format, starts) in [("ascii", "leaf-spine\n"), ("dot", "graph "), ("svg", "<svg ")] {
        let file = "netns-testbed/leaf-spine.toml";
        let output = tailwater(&["lab", "graph", file, "--format", format]);
        assert!(stdout(&output).starts_with(starts), "{}", stdout(&output));
    }
}

#[test]
fn what_does_not_run_cannot_be_asked() {
    for args in [
        &["show", "no-such-lab"][..],
        &["set", "no-such-lab", "a=b"],
        &["top", "no-such-lab"],
        &["lab", "exec", "no-such-lab", "h1", "--", "true"],
    ] {
        let output = tailwater(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(stderr(&output).contains("tailwater lab up FILE"), "{}", stderr(&output));
    }
    assert_eq!(tailwater(&["lab", "down", "no-such-lab"]).status.code(), Some(0));
    assert_eq!(tailwater(&["set", "no-such-lab", "nonsense"]).status.code(), Some(2));
}

#[test]
fn exec_runs_in_the_node_and_passes_the_exit_code_on() {
    if !nix::unistd::geteuid().is_root() {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "under CI: not root");
        println!("skipped: not root");
        return;
    }
    let name = format!("t{}-exec", std::process::id());
    let text = format!(
        "name = \"{name}\"\n[switch.s1]\n[host.h1]\nkind = \"kernel\"\n[host.h2]\n\
         [[link]]\nends = [\"h1:eth0\", \"s1:1\"]\n[[link]]\nends = [\"h2:eth0\", \"s1:2\"]\n"
    );
    let topology = Topology::parse("test.toml", &text).unwrap_or_else(|e| panic!("{e}"));
    let network = netns::build(&topology).expect("a network");
    let output = tailwater(&["lab", "exec", &name, "h1", "--", "ip", "-o", "addr", "show", "eth0"]);
    assert!(stdout(&output).contains("10.77.0.1/16"), "{}", stdout(&output));
    let output = tailwater(&["lab", "exec", &name, "h1", "--", "sh", "-c", "exit 42"]);
    assert_eq!(output.status.code(), Some(42));
    // The node has a /sys of its own: only its interfaces are there.
    let output = tailwater(&["lab", "exec", &name, "s1", "--", "ls", "/sys/class/net"]);
    let mut interfaces = stdout(&output);
    interfaces.retain(|c| c != '\r');
    let seen: Vec<&str> =
        interfaces.split_ascii_whitespace().filter(|i| !i.contains("bond")).collect();
    assert_eq!(seen, ["lo", "swp1", "swp2"]);
    let output = tailwater(&["lab", "exec", &name, "h9", "--", "true"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("it has s1, h1, h2"), "{}", stderr(&output));
    let output = tailwater(&["lab", "status", &name]);
    assert!(stdout(&output).contains(&format!("{name}: running")), "{}", stdout(&output));
    network.guard.clear().expect("cleared");
    assert_eq!(LabState::look_up(&name), Ok(Liveness::Absent));
}
