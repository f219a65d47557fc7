//! What the control socket of a running lab answers.

mod show;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::cli::Failure;
use crate::lab::control::Controlled;
use crate::lab::describe;
use crate::lab::device::Device;
use crate::lab::run::LabHandle;
use crate::lab::settings::Setting;
use crate::lab::topology::{Attachment, Clock, FaultAction, NodeId, Topology};
use crate::node::PortId;
use crate::sim::LinkChange;
use crate::switch::SwitchSetting;
use crate::time::{Duration, Time};

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

    /// Node time, as the first worker that answers has it.
    fn now(&self) -> Option<Time> {
        self.handle.nodes().find_map(|node| self.handle.ask(node, |now, _| now))
    }

    /// Changes a link in both directions.
    fn change_link(&self, link: usize, change: LinkChange) -> Result<Time, Failure> {
        let name = &self.topology.links[link].name;
        if let (Clock::Gated, LinkChange::Delay(delay)) = (self.topology.run.clock, change) {
            let least = self.delay_min(link);
            if delay < least {
                return Err(Failure::Usage(format!(
                    "{name}: by the gated clock the workers run ahead of each other by the delay \
                     that the file gives, so it can be {least} or more, not {delay}"
                )));
            }
        }
        let ends = self.topology.links[link].ends.each_ref().map(|end| (end.node, end.port));
        self.handle.change_link(&ends, change).ok_or_else(ended)
    }

    /// The shortest delay that the file gives a link at any time.
    fn delay_min(&self, link: usize) -> Duration {
        let planned = self.topology.faults.iter().filter(|fault| fault.link == link);
        let planned = planned.filter_map(|fault| match fault.action {
            FaultAction::Delay(delay) => Some(delay),
            _ => None,
        });
        let first = self.topology.links[link].impairment.delay;
        planned.fold(first, Duration::min)
    }

    /// Takes what hangs on a port down or up.
    fn change_port(&self, switch: usize, port: PortId, up: bool) -> Result<Time, Failure> {
        let change = if up { LinkChange::Up } else { LinkChange::Down };
        let node = &self.topology.switches[switch];
        match node.attachments[port.index()] {
            Attachment::Link(link, _) => self.change_link(link, change),
            Attachment::External(_) => {
                let ends = [(NodeId::Switch(switch), port)];
                self.handle.change_link(&ends, change).ok_or_else(ended)
            }
            Attachment::None => Err(Failure::Usage(format!(
                "nothing hangs on port {}:{}",
                node.config.name,
                node.config.ports[port.index()].name
            ))),
        }
    }

    fn change_switch(&self, switch: usize, setting: SwitchSetting) -> Result<Time, Failure> {
        let set = self.handle.ask(NodeId::Switch(switch), move |now, device| match device {
            Device::Switch(switch) => Some(switch.set(now, setting).map(|()| now)),
            Device::Host(_) | Device::Source(_) => None,
        });
        let set = set.flatten().ok_or_else(ended)?;
        set.map_err(|error| Failure::Usage(error.to_string()))
    }
}

/// The worker that had to do it does not answer any more.
fn ended() -> Failure {
    Failure::Running("the run has ended".to_owned())
}

impl Controlled for RunControl {
    fn status(&self) -> Value {
        json!({
            "name": self.topology.name,
            "driver": "xdp",
            "clock": describe::clock(&self.topology),
            "node_time_ns": self.now().map(Time::as_ns),
            "switches": self.topology.switches.len(),
            "hosts": self.topology.hosts.len(),
            "links": self.topology.links.len(),
            "workers": self.handle.workers(),
            "ports": self.handle.ports(),
        })
    }

    fn show(&self) -> Value {
        show::show(&self.topology, &self.handle)
    }

    fn set(&self, path: &str, value: &str) -> Result<Value, Failure> {
        let at = match Setting::read(&self.topology, path, value)? {
            Setting::Link { link, change } => self.change_link(link, change)?,
            Setting::Port { switch, port, up } => self.change_port(switch, port, up)?,
            Setting::Switch { switch, setting } => self.change_switch(switch, setting)?,
        };
        Ok(json!({ "path": path, "value": value, "node_time_ns": at.as_ns() }))
    }

    fn down(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}
