//! The tables of switches and their ports.

use toml::Spanned;

use super::error::Issue;
use super::file::{ForwardingName, PortTable, SwitchTable, TrustName, VlanTable};
use super::resolve::{Kind, LINK_RATE, Resolver, Uses, address, plain, value};
use super::router;
use super::shares;
use super::value::{OneOrMany, S};
use super::{Attachment, External, Forwarding, Link, NodeId, SwitchNode, natural};
use crate::node::PortId;
use crate::switch::config::QUEUES;
use crate::switch::{
    PortConfig, SwitchConfig, SwitchConfigError, SwitchConfigPlace, Trust, VlanMode,
};
use crate::units::{Bytes, Rate};
use crate::wire::MacAddr;

/// Ports of a switch, at most.
const PORTS_MAX: usize = 256;

impl<'a> Resolver<'a> {
    pub(super) fn below(&mut self, value: Option<&S<u8>>, bound: u8, what: &str) {
        if let Some(value) = value.filter(|value| *value.get_ref() >= bound) {
            let message = format!("a {what} is 0 to {}, not {}", bound - 1, value.get_ref());
            self.issue(Issue::new(value.span(), message));
        }
    }

    pub(super) fn switches(
        &mut self,
        uses: &Uses,
        links: &mut [Link],
        externals: &mut [External],
    ) -> Vec<SwitchNode> {
        let tables = self.switch_names.clone();
        let mut switches = Vec::new();
        for (index, (name, table)) in tables.into_iter().enumerate() {
            let node = NodeId::Switch(index);
            let mut names: Vec<String> = uses
                .range((node, String::new())..)
                .take_while(|((at, _), _)| *at == node)
                .map(|((_, port), _)| port.clone())
                .collect();
            if names.is_empty() && self.links_are_whole {
                self.issue(
                    Issue::new(name.span(), format!("switch `{}` has no link", name.get_ref()))
                        .help("add a [[link]] or an [[external]] for it"),
                );
            }
            let count = table.ports.as_ref();
            if let Some(count) = count.filter(|count| !(1..=256).contains(count.get_ref())) {
                self.issue(Issue::new(count.span(), "a switch has 1 to 256 ports"));
            }
            names.extend((1..=plain(count).unwrap_or(0).min(256)).map(|port| port.to_string()));
            names.sort_by(|a, b| natural(a, b));
            names.dedup();
            for port in table.port.keys().filter(|port| !names.contains(port.get_ref())) {
                if !self.links_are_whole {
                    break;
                }
                let message =
                    format!("port `{}` of `{}` has no link", port.get_ref(), name.get_ref());
                self.issue(Issue::new(port.span(), message).help("is its name as in the link?"));
            }
            if names.len() > PORTS_MAX {
                self.issue(Issue::new(name.span(), format!("more than {PORTS_MAX} ports")));
                names.truncate(PORTS_MAX);
            }
            let both = names.iter().find(|port| names.contains(&format!("swp{port}")));
            if let Some(port) = both.filter(|port| port.bytes().all(|b| b.is_ascii_digit())) {
                let message = format!("the interfaces of its ports `{port}` and `swp{port}` clash");
                self.issue(Issue::new(name.span(), message));
            }
            let mut ports = Vec::new();
            let mut attachments = Vec::new();
            for (number, port_name) in (0_u16..).zip(&names) {
                let used = uses.get(&(node, port_name.clone()));
                let attachment = used.map_or(Attachment::None, |used| used.attachment);
                match attachment {
                    Attachment::Link(link, end) => links[link].ends[end].port = PortId(number),
                    Attachment::External(external) => externals[external].port = PortId(number),
                    Attachment::None => {}
                }
                let rate = used.map_or(LINK_RATE, |used| used.rate);
                let mac = address(Kind::Switch, index, number);
                let own = table.port.iter().find(|(key, _)| key.get_ref() == port_name);
                let own = own.map(|(_, own)| own);
                ports.push(self.port(port_name, mac, rate, table, own));
                attachments.push(attachment);
            }
            let config = self.switch_config(name.get_ref(), ports, table);
            let io_workers = self.io_workers(table, names.len());
            let forwarding = match self.forwarding_of(table).map(Spanned::get_ref) {
                Some(ForwardingName::Static) => Forwarding::Static,
                Some(ForwardingName::Learning) | None => Forwarding::Learning,
            };
            switches.push(SwitchNode {
                config,
                attachments,
                forwarding,
                core: plain(table.core.as_ref()),
                headrooms: Vec::new(),
                io_workers,
            });
        }
        let defaults = &self.file.defaults.switch;
        let mut own = Vec::new();
        own.extend(defaults.port.keys().next().map(Spanned::span));
        own.extend(defaults.ports.as_ref().map(Spanned::span));
        own.extend(defaults.stations.keys().next().map(Spanned::span));
        own.extend(defaults.core.as_ref().map(Spanned::span));
        own.extend(defaults.io_workers.as_ref().map(Spanned::span));
        own.extend(defaults.io_cores.as_ref().map(Spanned::span));
        for span in own {
            let message = "ports, port, stations, core and I/O workers are each switch's own";
            self.issue(Issue::new(span, message).help("put them into [switch.NAME]"));
        }
        switches
    }

    /// What only the switch itself finds wrong, such as a queue that is shorter than a frame. Said
    /// when nothing else is: a value that was refused above is not refused twice.
    pub(super) fn holds_together(&mut self, switches: &[SwitchNode]) {
        let tables = self.switch_names.clone();
        for ((name, table), switch) in tables.into_iter().zip(switches) {
            if !self.issues.is_empty() {
                return;
            }
            if let Err(error) = switch.config.check() {
                let span = self.span_of(table, &switch.config, &error);
                let span = span.unwrap_or_else(|| name.span());
                let mut issue = Issue::new(span, error.to_string());
                if error.field == "buffer_bytes" {
                    issue.help = shares::largest_headroom(switch);
                }
                self.issue(issue);
            }
        }
    }

    /// Where the file sets the field that a switch refuses, if it does.
    fn span_of(
        &self,
        table: &SwitchTable,
        config: &SwitchConfig,
        error: &SwitchConfigError,
    ) -> Option<std::ops::Range<usize>> {
        let own = match error.place {
            SwitchConfigPlace::Port(index)
            | SwitchConfigPlace::Group(index, _)
            | SwitchConfigPlace::Queue(index, _) => {
                let port = config.ports.get(index).map(|port| port.name.as_str());
                table.port.iter().find(|(key, _)| port == Some(key.get_ref())).map(|(_, own)| own)
            }
            SwitchConfigPlace::Switch
            | SwitchConfigPlace::StaticMac(_)
            | SwitchConfigPlace::PortGroup(_) => None,
            SwitchConfigPlace::Router(_) | SwitchConfigPlace::Vtep(_) => {
                return router::span_of(table, config, error);
            }
        };
        let defaults = &self.file.defaults.switch;
        let shares = self.span_of_share(table, own, error);
        let found = shares.or_else(|| self.span_of_flow_control(table, error.field));
        if found.is_some() {
            return found;
        }
        match error.field {
            "queue_limit_bytes" => own
                .and_then(|own| own.queue_limit.as_ref())
                .or(table.queue_limit.as_ref())
                .or(defaults.queue_limit.as_ref())
                .map(Spanned::span),
            "rate" => own.and_then(|own| own.rate.as_ref()).map(Spanned::span),
            // The least that a frame of the MTU needs.
            "buffer_bytes" | "mtu_bytes" => {
                table.buffer.as_ref().or(defaults.buffer.as_ref()).map(Spanned::span)
            }
            "mac_ageing" => {
                table.mac_ageing.as_ref().or(defaults.mac_ageing.as_ref()).map(Spanned::span)
            }
            "mac_table_entries" => table
                .mac_table_entries
                .as_ref()
                .or(defaults.mac_table_entries.as_ref())
                .map(Spanned::span),
            _ => None,
        }
    }

    fn forwarding_of(&self, table: &'a SwitchTable) -> Option<&'a S<ForwardingName>> {
        table.forwarding.as_ref().or(self.file.defaults.switch.forwarding.as_ref())
    }

    /// In a network with a cycle a switch that learns beside one with set paths would see frames
    /// come by ports that its tree does not know.
    pub(super) fn forwarding_is_uniform(&mut self, switches: &[SwitchNode], cyclic: bool) {
        let Some(first) = switches.first().map(|s| s.forwarding).filter(|_| cyclic) else { return };
        let Some(other) = switches.iter().position(|s| s.forwarding != first) else { return };
        let (name, table) = self.switch_names[other];
        let span = self.forwarding_of(table).map_or_else(|| name.span(), Spanned::span);
        self.issue(
            Issue::new(span, "the switches form a cycle, so all forward alike")
                .help("set forwarding once, in [defaults.switch]"),
        );
    }

    fn queue_limit(&mut self, limit: Option<&S<OneOrMany<Bytes>>>) -> [u64; QUEUES] {
        let Some(limit) = limit else { return [u64::MAX; QUEUES] };
        match limit.get_ref().0.as_slice() {
            [one] => [one.0; QUEUES],
            many => match <[Bytes; QUEUES]>::try_from(many) {
                Ok(all) => all.map(|bytes| bytes.0),
                Err(_) => {
                    let message = format!("one limit, or {QUEUES}, not {}", many.len());
                    self.issue(Issue::new(limit.span(), message));
                    [u64::MAX; QUEUES]
                }
            },
        }
    }

    fn port(
        &mut self,
        name: &str,
        mac: MacAddr,
        rate: Rate,
        switch: &SwitchTable,
        own: Option<&PortTable>,
    ) -> PortConfig {
        let empty = PortTable::default();
        let own = own.unwrap_or(&empty);
        let defaults = &self.file.defaults.switch;
        let trust = own.trust.or(switch.trust).or(defaults.trust);
        let priority = own.default_priority.as_ref();
        let priority = priority.or(switch.default_priority.as_ref());
        let priority = priority.or(defaults.default_priority.as_ref());
        self.below(priority, 8, "priority");
        let limit = own.queue_limit.as_ref().or(switch.queue_limit.as_ref());
        let limit = limit.or(defaults.queue_limit.as_ref());
        self.rate_above_zero(own.rate.as_ref());
        let rate = value(own.rate.as_ref()).unwrap_or(rate);
        let ecn = own.ecn.as_ref().or(switch.ecn.as_ref()).or(defaults.ecn.as_ref());
        let schedule = own.schedule.as_ref().or(switch.schedule.as_ref());
        let schedule = schedule.or(defaults.schedule.as_ref());
        let mtu = own.mtu.as_ref().or(switch.mtu.as_ref()).or(defaults.mtu.as_ref());
        PortConfig {
            mtu_bytes: self.mtu(mtu),
            vlan: own.vlan.as_ref().map_or(VlanMode::Access(1), |vlan| self.vlan(vlan)),
            trust: match trust {
                Some(TrustName::Pcp) | None => Trust::Pcp,
                Some(TrustName::Dscp) => Trust::Dscp,
                Some(TrustName::Port) => Trust::Port,
            },
            default_priority: plain(priority).unwrap_or(0),
            obeys_pause: own
                .obeys_pause
                .or(switch.obeys_pause)
                .or(defaults.obeys_pause)
                .unwrap_or(false),
            queue_limit_bytes: self.queue_limit(limit),
            marks: self.marks(ecn),
            schedule: self.schedule(schedule, rate),
            ..PortConfig::new(name, mac, rate)
        }
    }

    pub(super) fn vlan_id(&mut self, vlan: &S<u16>) -> u16 {
        if !(1..=4_094).contains(vlan.get_ref()) {
            let message = format!("a VLAN is 1 to 4094, not {}", vlan.get_ref());
            self.issue(Issue::new(vlan.span(), message));
        }
        *vlan.get_ref()
    }

    fn vlan(&mut self, table: &VlanTable) -> VlanMode {
        const SHAPE: &str = "{ access = 10 } or { trunk = [10, 20], native = 1 }";
        match (&table.access, &table.trunk) {
            (Some(access), None) => {
                if let Some(native) = &table.native {
                    let message = "an access port has no native VLAN";
                    self.issue(Issue::new(native.span(), message).help(SHAPE));
                }
                VlanMode::Access(self.vlan_id(access))
            }
            (None, Some(trunk)) => {
                let mut allowed: Vec<u16> =
                    trunk.get_ref().iter().map(|vlan| self.vlan_id(vlan)).collect();
                allowed.sort_unstable();
                allowed.dedup();
                let native = table.native.as_ref().map(|vlan| self.vlan_id(vlan));
                VlanMode::Trunk { allowed, native }
            }
            (Some(access), Some(trunk)) => {
                let message = "a port is an access port or a trunk";
                let issue =
                    Issue::new(trunk.span(), message).other(access.span(), "and access here");
                self.issue(issue.help(SHAPE));
                VlanMode::Access(1)
            }
            (None, None) => {
                let span = table.native.as_ref().map_or(0..0, Spanned::span);
                self.issue(Issue::new(span, "a VLAN needs `access` or `trunk`").help(SHAPE));
                VlanMode::Access(1)
            }
        }
    }

    fn switch_config(
        &mut self,
        name: &str,
        ports: Vec<PortConfig>,
        table: &'a SwitchTable,
    ) -> SwitchConfig {
        let defaults = &self.file.defaults.switch;
        let mut config = SwitchConfig::new(name, ports);
        config.seed = self.seed;
        self.flow_control(table, &mut config);
        if let Some(Bytes(bytes)) = value(table.buffer.as_ref().or(defaults.buffer.as_ref())) {
            config.buffer_bytes = bytes;
        }
        if let Some(cell) = table.cell.as_ref().or(defaults.cell.as_ref()) {
            match u32::try_from(cell.get_ref().0.0).ok().filter(|cell| (1..=4_096).contains(cell)) {
                Some(bytes) => config.cell_bytes = bytes,
                None => self.issue(Issue::new(cell.span(), "a cell has 1B to 4096B")),
            }
        }
        let buffer = table.buffer.as_ref().or(defaults.buffer.as_ref());
        if let Some(buffer) = buffer.filter(|_| config.buffer_bytes < u64::from(config.cell_bytes))
        {
            self.issue(Issue::new(buffer.span(), "the buffer holds no cell"));
        }
        let entries = table.mac_table_entries.as_ref().or(defaults.mac_table_entries.as_ref());
        if let Some(entries) = entries {
            if !(1..=1_048_576).contains(entries.get_ref()) {
                self.issue(Issue::new(entries.span(), "a MAC table has 1 to 1048576 entries"));
            }
            config.mac_table_entries = *entries.get_ref();
        }
        if let Some(ageing) = value(table.mac_ageing.as_ref().or(defaults.mac_ageing.as_ref())) {
            config.mac_ageing = ageing;
        }
        if let Some(overhead) = table.overhead.as_ref().or(defaults.overhead.as_ref()) {
            if overhead.get_ref().0 > 256 {
                self.issue(Issue::new(
                    overhead.span(),
                    "the overhead of a frame is at most 256 bytes",
                ));
            }
            config.overhead_bytes = overhead.get_ref().0;
        }
        let pcp = table.pcp_to_priority.as_ref().or(defaults.pcp_to_priority.as_ref());
        self.eight(pcp, "priority of each PCP", &mut config.pcp_to_priority);
        let queue = table.priority_to_queue.as_ref().or(defaults.priority_to_queue.as_ref());
        self.eight(queue, "queue of each priority", &mut config.priority_to_queue);
        for dscps in [&defaults.dscp_to_priority, &table.dscp_to_priority].into_iter().flatten() {
            for (dscp, priority) in dscps {
                self.below(Some(priority), 8, "priority");
                match dscp.get_ref().parse().ok().filter(|dscp: &usize| *dscp < 64) {
                    Some(index) => config.dscp_to_priority[index] = *priority.get_ref(),
                    None => self.issue(Issue::new(dscp.span(), "a DSCP is 0 to 63")),
                }
            }
        }
        config
    }

    fn eight(&mut self, map: Option<&S<Vec<u8>>>, what: &str, into: &mut [u8; 8]) {
        let Some(map) = map else { return };
        match <[u8; 8]>::try_from(map.get_ref().as_slice()) {
            Ok(all) if all.iter().all(|value| *value < 8) => *into = all,
            _ => self.issue(Issue::new(map.span(), format!("the {what}: eight numbers, 0 to 7"))),
        }
    }
}
