//! What a switch refuses to be built from, and why.

mod flow_control;
mod layer3;
mod shares;

use std::collections::BTreeMap;
use std::fmt;

use super::classify::{ETHERNET_BYTES, TAG_BYTES};
use super::config::{
    GROUPS_MAX, PortConfig, PortGroupKind, StaticMac, SwitchConfig, VlanMode, group_of,
};
use super::mark::MarkConfig;
use super::memory::CELL_BYTES_MAX;
use super::port_set::PORTS_MAX;
use super::route::RouterPlace;
use super::vlan::VLAN_MAX;
use crate::time::Duration;

/// The smallest MTU: what every IPv4 node must take whole (RFC 791).
const MTU_BYTES_MIN: u32 = 68;

/// The largest MTU: the longest IPv4 packet.
const MTU_BYTES_MAX: u32 = 65_535;

/// Faster than this, a byte would last less than the picosecond in which time is counted.
const RATE_BPS_MAX: u64 = 8_000_000_000_000;

/// Bytes around a frame; Ethernet has 24.
const OVERHEAD_BYTES_MAX: u32 = 1_024;

/// Stations that a table may be made for.
const MAC_TABLE_ENTRIES_MAX: u32 = 1 << 22;

/// Part of a configuration, by its place in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SwitchConfigPlace {
    /// The switch as a whole.
    Switch,
    /// The port of that index.
    Port(usize),
    /// The priority group of a port, by the indices of both.
    Group(usize, usize),
    /// The queue of a port, by the indices of both.
    Queue(usize, usize),
    /// The static MAC entry of that index.
    StaticMac(usize),
    /// A part of the router.
    Router(RouterPlace),
    /// The tunnel endpoint: the element of that index in the field.
    Vtep(usize),
    /// The ports that are used together, by the index of their group.
    PortGroup(usize),
}

/// A configuration that makes no switch: where, which field, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{label}: {field}: {problem}")]
pub struct SwitchConfigError {
    /// The part of the configuration.
    pub place: SwitchConfigPlace,
    /// That part, for people: the name of the port, the address of the entry.
    pub label: String,
    /// The field, as the configuration type names it.
    pub field: &'static str,
    /// What is wrong with it, and what would be right.
    pub problem: String,
}

impl SwitchConfigError {
    pub(super) fn no_such(config: &SwitchConfig, field: &'static str, problem: String) -> Self {
        Self {
            place: SwitchConfigPlace::Switch,
            label: format!("switch {}", config.name),
            field,
            problem,
        }
    }

    pub(super) fn static_mac_without_place(index: usize, entry: &StaticMac) -> Self {
        static_error(
            index,
            entry,
            "mac",
            "too many entries share its place in the table: raise mac_table_entries",
        )
    }
}

fn static_error(
    index: usize,
    entry: &StaticMac,
    field: &'static str,
    problem: impl fmt::Display,
) -> SwitchConfigError {
    SwitchConfigError {
        place: SwitchConfigPlace::StaticMac(index),
        label: format!("static MAC {} in VLAN {}", entry.mac, entry.vlan),
        field,
        problem: problem.to_string(),
    }
}

fn vlan_problem(vlan: u16) -> Option<String> {
    (vlan == 0 || vlan > VLAN_MAX).then(|| format!("VLAN {vlan} does not exist: 1 to {VLAN_MAX}"))
}

impl SwitchConfig {
    /// Whether a switch can be built from this.
    ///
    /// # Errors
    /// [`SwitchConfigError`] for the first thing that is wrong.
    pub fn check(&self) -> Result<(), SwitchConfigError> {
        self.check_switch().map_err(|(field, problem)| SwitchConfigError {
            place: SwitchConfigPlace::Switch,
            label: format!("switch {}", self.name),
            field,
            problem,
        })?;
        let mut names = BTreeMap::new();
        for (index, port) in self.ports.iter().enumerate() {
            let taken = names.insert(port.name.as_str(), index).map(|other| {
                ("name", format!("`{}` is the name of port {other} already", port.name))
            });
            taken.map_or_else(|| self.check_port(port), Err).map_err(|(field, problem)| {
                SwitchConfigError {
                    place: SwitchConfigPlace::Port(index),
                    label: format!("port {}:{}", self.name, port.name),
                    field,
                    problem,
                }
            })?;
        }
        self.check_shares()?;
        self.check_groups()?;
        self.check_flow_control()?;
        self.check_static_macs()?;
        self.check_layer3()
    }

    fn check_switch(&self) -> Result<(), (&'static str, String)> {
        if self.ports.is_empty() || self.ports.len() > PORTS_MAX {
            let n = self.ports.len();
            return Err(("ports", format!("{n} ports: a switch has 1 to {PORTS_MAX}")));
        }
        if self.cell_bytes == 0 || self.cell_bytes > CELL_BYTES_MAX {
            let n = self.cell_bytes;
            return Err(("cell_bytes", format!("{n} bytes: a cell has 1 to {CELL_BYTES_MAX}")));
        }
        let cells = self.buffer_bytes / u64::from(self.cell_bytes);
        if cells >= u64::from(u32::MAX) {
            return Err(("buffer_bytes", format!("{cells} cells are more than can be counted")));
        }
        if self.mac_table_entries == 0 || self.mac_table_entries > MAC_TABLE_ENTRIES_MAX {
            let n = self.mac_table_entries;
            return Err((
                "mac_table_entries",
                format!("{n} stations: a table holds 1 to {MAC_TABLE_ENTRIES_MAX}"),
            ));
        }
        if self.static_macs.len() > self.mac_table_entries as usize {
            let (n, max) = (self.static_macs.len(), self.mac_table_entries);
            return Err((
                "mac_table_entries",
                format!("{n} static entries do not fit a table of {max}"),
            ));
        }
        if self.mac_ageing < Duration::from_us(1) {
            let ageing = self.mac_ageing;
            return Err((
                "mac_ageing",
                format!("{ageing}: stations must be kept for 1us at least (300s is usual)"),
            ));
        }
        if self.overhead_bytes > OVERHEAD_BYTES_MAX {
            let n = self.overhead_bytes;
            return Err((
                "overhead_bytes",
                format!(
                    "{n} bytes around each frame: at most {OVERHEAD_BYTES_MAX} (Ethernet has 24)"
                ),
            ));
        }
        for (field, map) in [
            ("pcp_to_priority", self.pcp_to_priority.as_slice()),
            ("dscp_to_priority", &self.dscp_to_priority),
            ("priority_to_queue", &self.priority_to_queue),
        ] {
            if let Some((at, to)) = map.iter().enumerate().find(|(_, to)| **to > 7) {
                return Err((field, format!("{at} maps to {to}: 0 to 7")));
            }
        }
        Ok(())
    }

    fn check_port(&self, port: &PortConfig) -> Result<(), (&'static str, String)> {
        if port.name.is_empty() {
            return Err(("name", "a port needs a name".to_owned()));
        }
        if port.mac.is_group() {
            return Err(("mac", format!("{} is a group address", port.mac)));
        }
        if port.rate.as_bps() == 0 || port.rate.as_bps() > RATE_BPS_MAX {
            return Err((
                "rate",
                format!("{}: a port has more than 0 and at most 8Tbps", port.rate),
            ));
        }
        if !(MTU_BYTES_MIN..=MTU_BYTES_MAX).contains(&port.mtu_bytes) {
            let mtu = port.mtu_bytes;
            return Err((
                "mtu_bytes",
                format!("{mtu} bytes: an MTU is {MTU_BYTES_MIN} to {MTU_BYTES_MAX}"),
            ));
        }
        match &port.vlan {
            VlanMode::Access(vlan) => {
                if let Some(problem) = vlan_problem(*vlan) {
                    return Err(("vlan", problem));
                }
            }
            VlanMode::Trunk { allowed, native } => {
                if let Some(problem) =
                    allowed.iter().chain(native).find_map(|vlan| vlan_problem(*vlan))
                {
                    return Err(("vlan", problem));
                }
                if let Some(pair) = allowed.windows(2).find(|pair| pair[0] >= pair[1]) {
                    return Err((
                        "vlan",
                        format!("VLAN {} after {}: list each once, ascending", pair[1], pair[0]),
                    ));
                }
                if allowed.is_empty() && native.is_none() {
                    return Err(("vlan", "a trunk without any VLAN passes nothing".to_owned()));
                }
            }
        }
        if port.default_priority > 7 {
            let n = port.default_priority;
            return Err(("default_priority", format!("{n}: priorities are 0 to 7")));
        }
        let frame_bytes = u64::from(port.mtu_bytes + ETHERNET_BYTES + TAG_BYTES);
        if let Some((queue, limit)) =
            port.queue_limit_bytes.iter().enumerate().find(|(_, limit)| **limit < frame_bytes)
        {
            return Err((
                "queue_limit_bytes",
                format!(
                    "queue {queue} holds {limit} bytes, a frame of this port's MTU {frame_bytes}"
                ),
            ));
        }
        for (queue, marks) in port.marks.iter().enumerate() {
            if let Some(Err(error)) = marks.as_ref().map(MarkConfig::check) {
                return Err(("marks", format!("queue {queue}: {error}")));
            }
        }
        port.schedule.check(port.rate).map_err(|error| ("schedule", error.to_string()))?;
        let cell_bytes = u64::from(self.cell_bytes);
        if frame_bytes.div_ceil(cell_bytes) > self.buffer_bytes / cell_bytes {
            let memory = self.buffer_bytes;
            return Err((
                "mtu_bytes",
                format!(
                    "a frame of {frame_bytes} bytes does not fit the memory of {memory} bytes in cells of {cell_bytes}"
                ),
            ));
        }
        Ok(())
    }

    fn check_groups(&self) -> Result<(), SwitchConfigError> {
        if self.groups.len() > GROUPS_MAX {
            let problem = format!("{} groups: at most {GROUPS_MAX}", self.groups.len());
            return Err(SwitchConfigError::no_such(self, "groups", problem));
        }
        let mut aggregated = BTreeMap::new();
        for (index, group) in self.groups.iter().enumerate() {
            let error = |field, problem| {
                Err(SwitchConfigError {
                    place: SwitchConfigPlace::PortGroup(index),
                    label: format!("group {}:{}", self.name, group.name),
                    field,
                    problem,
                })
            };
            if let Err(problem) = group.group.check() {
                return error(problem.field, problem.message);
            }
            for member in &group.group.members {
                if member.port.index() >= self.ports.len() {
                    return error("members", format!("there is no port {}", member.port.0));
                }
                if group.kind == PortGroupKind::Aggregation
                    && aggregated.insert(member.port, index).is_some()
                {
                    let problem = format!("port {} is in an aggregation already", member.port.0);
                    return error("members", problem);
                }
            }
        }
        Ok(())
    }

    fn check_static_macs(&self) -> Result<(), SwitchConfigError> {
        let mut seen = BTreeMap::new();
        for (index, entry) in self.static_macs.iter().enumerate() {
            let error = |field, problem| Err(static_error(index, entry, field, problem));
            if entry.mac.is_group() {
                return error("mac", "a group address is no station".to_owned());
            }
            if let Some(problem) = vlan_problem(entry.vlan) {
                return error("vlan", problem);
            }
            let ports = match group_of(entry.port) {
                None => vec![entry.port],
                Some(group) => match self.groups.get(group) {
                    Some(group) => group.group.members.iter().map(|member| member.port).collect(),
                    None => return error("port", format!("there is no group {group}")),
                },
            };
            for port in ports {
                let Some(port) = self.ports.get(port.index()) else {
                    let (port, n) = (port.0, self.ports.len());
                    return error("port", format!("there is no port {port}: the switch has {n}"));
                };
                let member = match &port.vlan {
                    VlanMode::Access(vlan) => *vlan == entry.vlan,
                    VlanMode::Trunk { allowed, native } => {
                        allowed.contains(&entry.vlan) || *native == Some(entry.vlan)
                    }
                };
                if !member {
                    let name = &port.name;
                    return error("port", format!("port {name} is not in VLAN {}", entry.vlan));
                }
            }
            if let Some(other) = seen.insert((entry.vlan, entry.mac), entry.port) {
                let (a, b) = (other.0, entry.port.0);
                return error("mac", format!("set twice, for ports {a} and {b}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::PortId;
    use crate::units::Rate;
    use crate::wire::MacAddr;

    fn config() -> SwitchConfig {
        let port = |n: u8| {
            PortConfig::new(&n.to_string(), MacAddr([2, 0, 0, 0, 1, n]), Rate::from_gbps(10))
        };
        SwitchConfig::new("s1", (1..=2).map(port).collect())
    }

    /// The message for a configuration spoilt by `spoil`.
    fn refused(spoil: impl FnOnce(&mut SwitchConfig)) -> String {
        let mut config = config();
        spoil(&mut config);
        config.check().expect_err("nonsense is refused").to_string()
    }

    #[test]
    fn the_defaults_are_sound() {
        assert_eq!(config().check(), Ok(()));
    }

    #[test]
    fn nonsense_is_refused_where_it_stands() {
        let mac = MacAddr([2, 0, 0, 0, 0, 9]);
        let entry = StaticMac { mac, vlan: 1, port: PortId(1) };
        let trunk = |allowed: &[u16], native| VlanMode::Trunk { allowed: allowed.to_vec(), native };
        let cases = [
            (refused(|c| c.ports.clear()), "switch s1: ports: 0 ports: a switch has 1 to 256"),
            (
                refused(|c| c.ports = vec![c.ports[0].clone(); 257]),
                "switch s1: ports: 257 ports: a switch has 1 to 256",
            ),
            (
                refused(|c| c.cell_bytes = 0),
                "switch s1: cell_bytes: 0 bytes: a cell has 1 to 65536",
            ),
            (
                refused(|c| c.buffer_bytes = 1_000),
                "port s1:1: mtu_bytes: a frame of 1518 bytes does not fit the memory of 1000 bytes in cells of 208",
            ),
            (
                refused(|c| c.mac_table_entries = 0),
                "switch s1: mac_table_entries: 0 stations: a table holds 1 to 4194304",
            ),
            (
                refused(|c| c.mac_ageing = Duration::ZERO),
                "switch s1: mac_ageing: 0s: stations must be kept for 1us at least (300s is usual)",
            ),
            (
                refused(|c| c.priority_to_queue[3] = 8),
                "switch s1: priority_to_queue: 3 maps to 8: 0 to 7",
            ),
            (
                refused(|c| c.ports[1].name = "1".to_owned()),
                "port s1:1: name: `1` is the name of port 0 already",
            ),
            (
                refused(|c| c.ports[1].mac = MacAddr::BROADCAST),
                "port s1:2: mac: ff:ff:ff:ff:ff:ff is a group address",
            ),
            (
                refused(|c| c.ports[0].rate = Rate::from_bps(0)),
                "port s1:1: rate: 0bps: a port has more than 0 and at most 8Tbps",
            ),
            (
                refused(|c| c.ports[0].mtu_bytes = 67),
                "port s1:1: mtu_bytes: 67 bytes: an MTU is 68 to 65535",
            ),
            (
                refused(|c| c.ports[0].vlan = VlanMode::Access(0)),
                "port s1:1: vlan: VLAN 0 does not exist: 1 to 4094",
            ),
            (
                refused(|c| c.ports[0].vlan = trunk(&[5, 4_095], None)),
                "port s1:1: vlan: VLAN 4095 does not exist: 1 to 4094",
            ),
            (
                refused(|c| c.ports[0].vlan = trunk(&[5, 5], None)),
                "port s1:1: vlan: VLAN 5 after 5: list each once, ascending",
            ),
            (
                refused(|c| c.ports[0].vlan = trunk(&[], None)),
                "port s1:1: vlan: a trunk without any VLAN passes nothing",
            ),
            (
                refused(|c| c.ports[0].default_priority = 8),
                "port s1:1: default_priority: 8: priorities are 0 to 7",
            ),
            (
                refused(|c| c.ports[1].queue_limit_bytes[4] = 1_500),
                "port s1:2: queue_limit_bytes: queue 4 holds 1500 bytes, a frame of this port's MTU 1518",
            ),
            (
                refused(|c| c.static_macs.push(StaticMac { port: PortId(2), ..entry })),
                "static MAC 02:00:00:00:00:09 in VLAN 1: port: there is no port 2: the switch has 2",
            ),
            (
                refused(|c| c.static_macs.push(StaticMac { mac: MacAddr::BROADCAST, ..entry })),
                "static MAC ff:ff:ff:ff:ff:ff in VLAN 1: mac: a group address is no station",
            ),
            (
                refused(|c| c.static_macs.push(StaticMac { vlan: 7, ..entry })),
                "static MAC 02:00:00:00:00:09 in VLAN 7: port: port 2 is not in VLAN 7",
            ),
            (
                refused(|c| c.static_macs.extend([entry, StaticMac { port: PortId(0), ..entry }])),
                "static MAC 02:00:00:00:00:09 in VLAN 1: mac: set twice, for ports 1 and 0",
            ),
        ];
        for (message, want) in cases {
            assert_eq!(message, want);
        }
    }
}
