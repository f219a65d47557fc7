//! The watchdog and the deadlock prevention of switches, and who must obey pauses.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;

use super::error::Issue;
use super::file::{
    PreventionTable, SwitchTable, WatchdogActionName, WatchdogModeName, WatchdogTable,
};
use super::resolve::{Resolver, value};
use super::value::S;
use super::{Attachment, HostKind, HostNode, Link, NodeId, SwitchNode};
use crate::switch::prevention::{ChainStep, PreventionConfig};
use crate::switch::watchdog::{WatchdogAction, WatchdogConfig, WatchdogMode};
use crate::switch::{PortConfig, SwitchConfig};
use crate::time::Duration;

/// SONiC's defaults.
const POLL: Duration = Duration::from_ms(100);
const DETECTION: Duration = Duration::from_ms(200);

impl<'a> Resolver<'a> {
    fn watchdog_of(&self, table: &'a SwitchTable) -> Option<&'a S<WatchdogTable>> {
        table.watchdog.as_ref().or(self.file.defaults.switch.watchdog.as_ref())
    }

    /// Fills in what a switch's table says of flow control.
    pub(super) fn flow_control(&mut self, table: &'a SwitchTable, config: &mut SwitchConfig) {
        let defaults = &self.file.defaults.switch;
        if let Some(quanta) = table.pfc_quanta.as_ref().or(defaults.pfc_quanta.as_ref()) {
            config.pfc_quanta = *quanta.get_ref();
        }
        config.watchdog = self.watchdog_of(table).map(|table| self.watchdog(table.get_ref()));
        let prevention =
            table.prevention.as_ref().map(|table| self.prevention(table, &config.ports));
        config.prevention = prevention;
        if let Some(prevention) = &defaults.prevention {
            let issue = Issue::new(prevention.span(), "port groups are each switch's own");
            self.issue(issue.help("put it into [switch.NAME]"));
        }
    }

    fn watchdog(&mut self, table: &WatchdogTable) -> WatchdogConfig {
        let detection = value(table.detection.as_ref()).unwrap_or(DETECTION);
        let behind = |own| value(own).unwrap_or(detection * 2);
        let mode = match table.mode.get_ref() {
            WatchdogModeName::Sonic => {
                self.only_in_mode("h3c", table.recovery.as_ref().map(Spanned::span));
                self.only_in_mode("h3c", table.detections_max.as_ref().map(Spanned::span));
                WatchdogMode::Sonic { restoration: behind(table.restoration.as_ref()) }
            }
            WatchdogModeName::H3c => {
                self.only_in_mode("sonic", table.restoration.as_ref().map(Spanned::span));
                WatchdogMode::H3c {
                    recovery: behind(table.recovery.as_ref()),
                    detections_max: table.detections_max.as_ref().map(|max| *max.get_ref()),
                }
            }
        };
        let action = table.action.as_ref().map(Spanned::get_ref);
        WatchdogConfig {
            mode,
            poll: value(table.poll.as_ref()).unwrap_or(POLL),
            detection,
            action: match action {
                Some(WatchdogActionName::Drop) | None => WatchdogAction::Drop,
                Some(WatchdogActionName::Forward) => WatchdogAction::Forward,
                Some(WatchdogActionName::Alert) => WatchdogAction::Alert,
            },
        }
    }

    fn only_in_mode(&mut self, mode: &str, span: Option<Range<usize>>) {
        if let Some(span) = span {
            self.issue(Issue::new(span, format!("this is for mode = \"{mode}\" alone")));
        }
    }

    fn prevention(&mut self, table: &S<PreventionTable>, ports: &[PortConfig]) -> PreventionConfig {
        let table = table.get_ref();
        let mut groups = vec![None; ports.len()];
        let mut named = BTreeMap::new();
        for (group, members) in (0_u8..=u8::MAX).zip(&table.groups) {
            for member in members {
                let name = member.get_ref();
                let Some(port) = ports.iter().position(|port| port.name == *name) else {
                    let known: Vec<&str> = ports.iter().map(|port| port.name.as_str()).collect();
                    let issue = Issue::new(member.span(), format!("there is no port `{name}`"));
                    self.issue(issue.help(format!("ports here: {}", known.join(", "))));
                    continue;
                };
                if let Some(first) = named.insert(port, member.span()) {
                    let issue = Issue::new(member.span(), "a port is in one group");
                    self.issue(issue.label("again here").other(first, "first here"));
                }
                groups[port] = Some(group);
            }
        }
        let chain = table.chain.iter().map(|step| {
            let step = step.get_ref();
            ChainStep { priority: step.priority, dscp: step.dscp }
        });
        PreventionConfig { groups, chain: chain.collect() }
    }

    /// Where the file sets what a switch refuses of its flow control.
    pub(super) fn span_of_flow_control(
        &self,
        table: &'a SwitchTable,
        field: &str,
    ) -> Option<Range<usize>> {
        if let Some(key) = field.strip_prefix("watchdog.") {
            let whole = self.watchdog_of(table)?;
            let watchdog = whole.get_ref();
            let own = match key {
                "poll" => watchdog.poll.as_ref().map(Spanned::span),
                "detection" => watchdog.detection.as_ref().map(Spanned::span),
                "restoration" => watchdog.restoration.as_ref().map(Spanned::span),
                "recovery" => watchdog.recovery.as_ref().map(Spanned::span),
                "detections_max" => watchdog.detections_max.as_ref().map(Spanned::span),
                "action" => watchdog.action.as_ref().map(Spanned::span),
                _ => None,
            };
            return own.or_else(|| Some(whole.span()));
        }
        if field.starts_with("prevention.") {
            return table.prevention.as_ref().map(Spanned::span);
        }
        let defaults = &self.file.defaults.switch;
        (field == "pfc_quanta")
            .then(|| table.pfc_quanta.as_ref().or(defaults.pfc_quanta.as_ref()))
            .flatten()
            .map(Spanned::span)
    }

    /// A kernel host counts pauses and ignores them, so that the lossless classes of its switch's
    /// port lose frames: refused unless the file says that it is meant so. An agent obeys what its
    /// switch's port has lossless, unless it says otherwise.
    pub(super) fn pauses_are_obeyed(
        &mut self,
        hosts: &mut [HostNode],
        switches: &[SwitchNode],
        links: &[Link],
    ) {
        let tables = self.host_names.clone();
        for (host, (name, table)) in hosts.iter_mut().zip(tables) {
            let Attachment::Link(link, end) = host.attachment else { continue };
            let far = &links[link].ends[1 - end];
            let NodeId::Switch(switch) = far.node else { continue };
            let Some(port) = switches[switch].config.ports.get(far.port.index()) else { continue };
            let lossless = port.shares.lossless_mask();
            match host.kind {
                HostKind::Agent => {
                    let says =
                        table.lossless.is_some() || self.file.defaults.host.lossless.is_some();
                    if !says {
                        host.config.lossless = lossless;
                    }
                }
                HostKind::Kernel if lossless != 0 && table.ignores_pause != Some(true) => {
                    let message = format!(
                        "`{}` has lossless priorities, and the Linux stack of `{}` obeys no pause",
                        far.name,
                        name.get_ref()
                    );
                    let issue = Issue::new(name.span(), message);
                    self.issue(issue.help("ignores_pause = true says that this is meant so"));
                }
                HostKind::Kernel => {}
            }
        }
    }
}
