//! Stations that a file places at ports itself, on a shortest path or not.

use super::error::Issue;
use super::resolve::Resolver;
use super::{HostNode, NodeId, SwitchNode};
use crate::node::PortId;
use crate::switch::{StaticMac, VlanMode};

impl Resolver<'_> {
    /// Enters what `[switch.S] stations` says, instead of the entries along shortest paths.
    pub(super) fn stations(&mut self, switches: &mut [SwitchNode], hosts: &[HostNode]) {
        let tables = self.switch_names.clone();
        for ((_, table), switch) in tables.into_iter().zip(switches) {
            for (host, port) in &table.stations {
                let found = match self.node(host.get_ref(), host.span()) {
                    Some(NodeId::Host(index)) => hosts[index].config.mac,
                    Some(NodeId::Switch(_)) => {
                        let message = format!("`{}` is a switch, no station", host.get_ref());
                        self.issue(Issue::new(host.span(), message));
                        continue;
                    }
                    None => continue,
                };
                let ports = &switch.config.ports;
                let at = ports.iter().position(|known| known.name == *port.get_ref());
                let Some((at, id)) = at.and_then(|at| Some((at, u16::try_from(at).ok()?))) else {
                    let message = format!("there is no port `{}`", port.get_ref());
                    let known: Vec<&str> = ports.iter().map(|port| port.name.as_str()).collect();
                    let issue = Issue::new(port.span(), message);
                    self.issue(issue.help(format!("ports here: {}", known.join(", "))));
                    continue;
                };
                let vlans = match &ports[at].vlan {
                    VlanMode::Access(vlan) => vec![*vlan],
                    VlanMode::Trunk { allowed, native } => {
                        let mut vlans = allowed.clone();
                        vlans.extend(native.filter(|native| !allowed.contains(native)));
                        vlans
                    }
                };
                let entries = &mut switch.config.static_macs;
                entries.retain(|entry| entry.mac != found || !vlans.contains(&entry.vlan));
                entries.extend(vlans.into_iter().map(|vlan| StaticMac {
                    mac: found,
                    vlan,
                    port: PortId(id),
                }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::lab::topology::Topology;
    use crate::node::PortId;

    const LAB: &str = r#"
name = "stations"
[defaults.switch]
forwarding = "static"
[switch.s1]
[switch.s2]
[host.h1]
[host.h2]
[[link]]
ends = ["h1:eth0", "s1:1"]
[[link]]
ends = ["s1:2", "s2:2"]
[[link]]
ends = ["h2:eth0", "s2:1"]
"#;

    fn parse(stations: &str) -> Result<Topology, String> {
        let text = LAB.replace("[switch.s1]", &format!("[switch.s1]\nstations = {stations}"));
        Topology::parse("test.toml", &text).map_err(|error| {
            let issue = error.issues.first().expect("an issue");
            format!("{}: {}", &text[issue.span.clone()], issue.message)
        })
    }

    #[test]
    fn a_station_is_where_the_file_says() {
        let ports = |stations: &str| {
            let topology = parse(stations).expect("a lab");
            let mac = topology.hosts[1].config.mac;
            let entries = topology.switches[0].config.static_macs.clone();
            let of = entries.into_iter().filter(|entry| entry.mac == mac);
            of.map(|entry| entry.port).collect::<Vec<_>>()
        };
        assert_eq!(ports("{}"), [PortId(1)], "along the shortest path");
        assert_eq!(ports("{ h2 = \"1\" }"), [PortId(0)], "and once where it is placed");
        assert_eq!(parse("{ h2 = \"7\" }").expect_err("no port"), "\"7\": there is no port `7`");
        assert_eq!(
            parse("{ s2 = \"1\" }").expect_err("a switch"),
            "s2: `s2` is a switch, no station"
        );
        assert_eq!(parse("{ h9 = \"1\" }").expect_err("no host"), "h9: there is no node `h9`");
    }
}
