//! Offloads of veth ends that show AF_XDP something else than what is on a wire: checksums not yet
//! computed, segments larger than the MTU, VLAN tags beside the frame.

use std::process::{Command, Stdio};

/// What is turned off, with the line under which `ethtool -k` shows it.
const OFFLOADS: [(&str, &str); 5] = [
    ("tx", "tx-checksumming"),
    ("tso", "tcp-segmentation-offload"),
    ("gso", "generic-segmentation-offload"),
    ("rxvlan", "rx-vlan-offload"),
    ("txvlan", "tx-vlan-offload"),
];

/// Turns them off on interfaces of the caller's namespace, and looks whether they are.
///
/// `ethtool -K` may end with an error although it did what was asked, so only its effect counts.
pub(super) fn turn_off(interfaces: &[&str]) -> Result<(), String> {
    for interface in interfaces {
        let off = OFFLOADS.iter().flat_map(|(name, _)| [*name, "off"]);
        let set = Command::new("ethtool")
            .args(["-K", interface])
            .args(off)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        set.map_err(|error| format!("cannot run `ethtool -K {interface}`: {error}"))?;
        let shown = Command::new("ethtool")
            .args(["-k", interface])
            .stderr(Stdio::null())
            .output()
            .map_err(|error| format!("cannot run `ethtool -k {interface}`: {error}"))?;
        if let Some(name) = still_on(&String::from_utf8_lossy(&shown.stdout)) {
            return Err(format!(
                "{name} of {interface} stays on, which corrupts frames for AF_XDP; try \
                 `ethtool -K {interface} tx off tso off gso off rxvlan off txvlan off`"
            ));
        }
    }
    Ok(())
}

/// The first of the offloads that `ethtool -k` shows as on.
fn still_on(shown: &str) -> Option<&'static str> {
    OFFLOADS.iter().map(|(_, line)| *line).find(|line| {
        shown.lines().any(|shown| {
            let value = shown.strip_prefix(line).and_then(|rest| rest.strip_prefix(": "));
            value.is_some_and(|value| value.starts_with("on"))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offload_that_stays_on_is_seen() {
        let shown = "Features for eth0:\nrx-checksumming: on\ntx-checksumming: off\n\
                     \ttx-checksum-ip-generic: off\ntcp-segmentation-offload: off\n\
                     rx-vlan-offload: on [fixed]\n";
        assert_eq!(still_on(shown), Some("rx-vlan-offload"));
        assert_eq!(still_on(&shown.replace("on [fixed]", "off")), None);
    }
}
