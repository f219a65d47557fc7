//! The `ip` command, many lines at a time, and the sysctls of one interface.

use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use caps::{CapSet, Capability};

use crate::cli::Failure;

/// Checks that namespaces can be made here.
pub(super) fn require_tools() -> Result<(), Failure> {
    for capability in [Capability::CAP_SYS_ADMIN, Capability::CAP_NET_ADMIN] {
        if !caps::has_cap(None, CapSet::Effective, capability).unwrap_or(false) {
            return Err(Failure::HostLacks(format!(
                "a lab makes network namespaces and needs root ({capability} is missing): run it \
                 with sudo, or use `tailwater sim` for the same file without root"
            )));
        }
    }
    for (tool, package) in [("ip", "iproute2"), ("ethtool", "ethtool")] {
        let mut command = Command::new(tool);
        command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        if let Err(error) = command.status() {
            return Err(Failure::HostLacks(format!(
                "cannot run `{tool}` ({error}): install it with `apt-get install {package}`"
            )));
        }
    }
    Ok(())
}

/// Runs lines of `ip` commands in one process, inside a namespace when one is named. Stops at the
/// first that fails.
pub(super) fn batch(netns: Option<&str>, lines: &str) -> Result<(), Failure> {
    let output = run(netns, false, lines)
        .map_err(|error| Failure::Running(format!("cannot run `ip`: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    // ip names the line of its input as "Command failed -:LINE".
    let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let number = text.rsplit_once("-:").and_then(|(_, n)| n.trim().parse::<usize>().ok());
    let line = number.and_then(|n| lines.lines().nth(n.saturating_sub(1))).unwrap_or_default();
    let place = netns.map(|name| format!(" -n {name}")).unwrap_or_default();
    let why = text.lines().next().unwrap_or("it gave no reason");
    Err(Failure::Running(format!("`ip{place} {line}` failed: {why}")))
}

/// Runs a command of a topology file by the shell, inside a namespace, and waits for its end.
pub(super) fn shell(netns: &str, line: &str) -> Result<(), Failure> {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", netns, "sh", "-c", line]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let output = command
        .output()
        .map_err(|error| Failure::Running(format!("cannot run `{line}` in {netns}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let why = if text.is_empty() { output.status.to_string() } else { text };
    Err(Failure::Running(format!("`{line}` failed in {netns}: {why}")))
}

/// Runs lines of `ip` commands and goes on behind those that fail: for removing what may be gone.
pub(super) fn batch_all(netns: Option<&str>, lines: &str) -> io::Result<()> {
    run(netns, true, lines).map(|_| ())
}

fn run(netns: Option<&str>, force: bool, lines: &str) -> io::Result<std::process::Output> {
    let mut command = Command::new("ip");
    if let Some(name) = netns {
        command.args(["-n", name]);
    }
    if force {
        command.arg("-force");
    }
    command.args(["-batch", "-"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // A line that fails ends ip early; its own error says more than a closed pipe.
        let _ = stdin.write_all(lines.as_bytes());
    }
    child.wait_with_output()
}

/// Keeps the kernel from sending frames of its own on an interface of the caller's namespace: no
/// IPv6 at all on driven ends, no autoconfiguration and no duplicate address detection elsewhere.
pub(super) fn quieten(interface: &str, driven: bool) -> io::Result<()> {
    let settings: &[(&str, &str)] = if driven {
        &[("disable_ipv6", "1"), ("accept_ra", "0"), ("autoconf", "0")]
    } else {
        &[
            ("accept_ra", "0"),
            ("autoconf", "0"),
            ("accept_dad", "0"),
            ("dad_transmits", "0"),
            ("router_solicitations", "0"),
        ]
    };
    // The default too: an interface that is made again gets it, and so does one whose MTU was below
    // what IPv6 needs.
    for scope in ["default", interface] {
        let folder = Path::new("/proc/sys/net/ipv6/conf").join(scope);
        if !folder.exists() {
            // A kernel without IPv6 sends none.
            continue;
        }
        settings.iter().try_for_each(|(key, value)| std::fs::write(folder.join(key), value))?;
    }
    Ok(())
}
