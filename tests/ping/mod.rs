//! What `ping -q` says of its replies.

use std::process::Output;

/// Without a deadline ping waits for two round trips behind its last request, which a busy machine
/// outlasts.
pub(crate) const DEADLINE: &str = "-w 30";

/// How many of `asked` requests were answered. With a deadline ping asks until enough replies have
/// come, and late ones may come with the last.
pub(crate) fn replies(output: &Output, asked: u64) -> u64 {
    let text = String::from_utf8_lossy(&output.stdout);
    let received = text.lines().find_map(|line| line.split(", ").nth(1)?.strip_suffix(" received"));
    let received: u64 = received
        .and_then(|n| n.parse().ok())
        .unwrap_or_else(|| panic!("no ping: {text}{}", String::from_utf8_lossy(&output.stderr)));
    received.min(asked)
}
