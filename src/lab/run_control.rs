//! What the control socket of a running lab answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Map, Value, json};

use crate::lab::control::Controlled;
use crate::lab::device::Device;
use crate::lab::outcome::{host_report, source_report};
use crate::lab::run::LabHandle;
use crate::lab::topology::{Clock, Ppb, Topology};
use crate::measure::report::SwitchReport;
use crate::sim::LinkChange;
use crate::time::{Duration, Time};

/// What can be set on a running lab, for the error that names it.
const SETTABLE: &str = "links.NAME.down = true|false, links.NAME.loss = 1%, links.NAME.corrupt = \
                        1%, links.NAME.delay = 5us, links.NAME.jitter = 1us (by the free clock)";

/// A running lab, as its control socket shows it.
#[derive(Debug)]
pub struct RunControl {
    topology: Topology,
    handle: Arc<LabHandle>,
    stop: &'static AtomicBool,
}

impl RunControl {
    /// The control of a lab that `handle` reaches and `stop` ends.
    pub const fn new(
        topology: Topology,
        handle: Arc<LabHandle>,
        stop: &'static AtomicBool,
    ) -> Self {
        Self { topology, handle, stop }
    }

    const fn clock(&self) -> &'static str {
        match self.topology.run.clock {
            Clock::Gated => "gated",
            Clock::Free => "free",
        }
    }

    /// Node time, as the first worker that answers has it.
    fn now(&self) -> Option<Time> {
        self.handle.nodes().find_map(|node| self.handle.ask(node, |now, _| now))
    }
}

impl Controlled for RunControl {
    fn status(&self) -> Value {
        json!({
            "name": self.topology.name,
            "driver": "xdp",
            "clock": self.clock(),
            "node_time_ns": self.now().map(Time::as_ns),
            "switches": self.topology.switches.len(),
            "hosts": self.topology.hosts.len(),
            "links": self.topology.links.len(),
            "workers": self.handle.workers(),
            "ports": self.handle.ports(),
        })
    }

    fn show(&self) -> Value {
        let (mut switches, mut hosts) = (Map::new(), Map::new());
        let mut reached = Time::ZERO;
        for node in self.handle.nodes() {
            let name = self.topology.node_name(node).to_owned();
            let shown = self.handle.ask(node, |now, device| match device {
                Device::Switch(switch) => {
                    (now, true, serde_json::to_value(SwitchReport::from(&**switch)))
                }
                Device::Host(host) => (now, false, serde_json::to_value(host_report(host))),
                Device::Source(source) => (now, false, serde_json::to_value(source_report(source))),
            });
            // A worker that has just ended answers no more; what it had is in the report.
            let Some((now, is_switch, Ok(value))) = shown else { continue };
            reached = reached.max(now);
            let to = if is_switch { &mut switches } else { &mut hosts };
            to.insert(name, value);
        }
        json!({
            "name": self.topology.name,
            "driver": "xdp",
            "clock": self.clock(),
            "duration_ns": reached.as_ns(),
            "switches": switches,
            "hosts": hosts,
        })
    }

    fn set(&self, path: &str, value: &str) -> Result<Value, String> {
        let unknown = || format!("`{path}` cannot be set; what can: {SETTABLE}");
        let (link, what) = path
            .strip_prefix("links.")
            .and_then(|rest| rest.rsplit_once('.'))
            .ok_or_else(unknown)?;
        let number =
            self.topology.link(link).ok_or_else(|| format!("there is no link `{link}`"))?;
        let share = |text: &str| text.parse::<Ppb>().map_err(|error| error.to_string());
        let span = |text: &str| text.parse::<Duration>().map_err(|error| error.to_string());
        let change = match (what, value) {
            ("down", "true") | ("up", "false") => LinkChange::Down,
            ("down", "false") | ("up", "true") => LinkChange::Up,
            ("down" | "up", _) => return Err(format!("`{value}` is neither true nor false")),
            ("loss", text) => LinkChange::LossPpb(share(text)?.0.into()),
            ("corrupt", text) => LinkChange::CorruptPpb(share(text)?.0.into()),
            ("delay", text) => LinkChange::Delay(span(text)?),
            ("jitter", text) => LinkChange::Jitter(span(text)?),
            _ => return Err(unknown()),
        };
        if self.topology.run.clock == Clock::Gated {
            return Err(
                "this lab is gated: when its links change is in its file ([[fault]])".into()
            );
        }
        if !self.handle.change_link(&self.topology, number, change) {
            return Err(format!("neither end of {link} is run by this lab"));
        }
        Ok(Value::String(value.to_owned()))
    }

    fn down(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}
