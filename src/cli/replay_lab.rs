//! `tailwater replay CAPTURE --lab FILE NODE`: a capture sent from a host of a lab.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Failure;
use super::driver_flags::DriverFlags;
use super::lab_run::{Stay, drive_on};
use super::run_flags::{PreparedRun, RunFlags};
use crate::lab::interrupt;
use crate::lab::netns;
use crate::lab::simulate::simulate;
use crate::lab::topology::{HostKind, NodeId, Topology};
use crate::replay::{CaptureReader, Preloaded, ReplaySource, Speed, Stopped};
use crate::time::Duration;

/// What to send, from where, and how.
#[derive(Debug)]
pub(super) struct FromLab<'a> {
    pub(super) name: &'a str,
    pub(super) file: &'a Path,
    pub(super) node: &'a str,
    pub(super) speed: Speed,
    pub(super) loops: u64,
    pub(super) gap_max: Duration,
    pub(super) sim: bool,
    pub(super) driver: DriverFlags,
    pub(super) flags: RunFlags,
}

impl FromLab<'_> {
    /// Preloads the capture and runs the lab.
    ///
    /// # Errors
    /// [`Failure::Usage`] for a node that cannot send it, [`Failure::Running`] for a damaged
    /// capture, after everything before the damage went out; those of the run.
    pub(super) fn run<R: std::io::Read>(
        mut self,
        reader: &mut CaptureReader<R>,
    ) -> Result<(), Failure> {
        let name = self.name;
        let stop = interrupt::install()?;
        let mut topology = self.flags.load(self.file)?;
        self.driver.apply(&mut topology);
        let host = self.host(&topology)?;
        let (capture, stopped) =
            Preloaded::read(reader, self.gap_max, || stop.load(Ordering::Relaxed))
                .map_err(|error| Failure::Running(format!("{name}: {error}")))?;
        if matches!(stopped, Some(Stopped::Interrupted(_))) {
            return Err(Failure::Interrupted);
        }
        let source =
            ReplaySource::new(&topology.hosts[host].config, capture, self.speed, self.loops);
        let (node, speed, loops) = (self.node, self.speed, self.loops);
        self.flags.note = Some(format!("replay {name} from {node} at {speed}, {loops} times"));
        if !self.sim {
            netns::check_can_build(&topology.name)?;
        }
        let mut prepared = self.flags.prepare(self.file, &topology)?;
        prepared.plan.replay_from(host, source);
        if self.sim {
            self.simulate(prepared, &topology, stop)?;
        } else {
            let stay = Stay { stay: false, says_ready: false, stop };
            drive_on(prepared, &topology, &self.flags, stay, netns::build)?;
        }
        match stopped {
            None => Ok(()),
            Some(stopped) => Err(Failure::Running(format!("{name}: {stopped}"))),
        }
    }

    fn simulate(
        &self,
        mut prepared: PreparedRun,
        topology: &Topology,
        stop: &AtomicBool,
    ) -> Result<(), Failure> {
        if !topology.is_ours() {
            return Err(Failure::Usage(format!(
                "{}: a kernel host or an external interface cannot be simulated; leave --sim out",
                self.file.display()
            )));
        }
        let plan = std::mem::take(&mut prepared.plan);
        let progress = self.flags.progress(topology);
        let (finished, series) = simulate(topology, plan, &mut prepared.captures, |now| {
            progress.set(now.as_ns());
            !stop.load(Ordering::Relaxed)
        });
        progress.finish();
        prepared.conclude(topology, finished, &series)
    }

    /// The host that is to send: an agent, with nothing else to do.
    fn host(&self, topology: &Topology) -> Result<usize, Failure> {
        let (file, name) = (self.file.display(), self.node);
        let agents = || {
            let agents = topology.hosts.iter().filter(|host| host.kind == HostKind::Agent);
            agents.map(|host| host.config.name.as_str()).collect::<Vec<_>>().join(", ")
        };
        let host = match topology.node(name) {
            Some(NodeId::Host(host)) if topology.hosts[host].kind == HostKind::Agent => host,
            Some(NodeId::Host(_)) => {
                return Err(Failure::Usage(format!(
                    "{name} of {file} is a kernel host, which sends what its own programs send: \
                     replay from an agent ({}), or run `tailwater lab exec {file} {name} -- \
                     tcpreplay ...`",
                    agents()
                )));
            }
            Some(NodeId::Switch(_)) | None => {
                return Err(Failure::Usage(format!(
                    "{file} has no host {name}; its agents: {}",
                    agents()
                )));
            }
        };
        if topology.streams.iter().any(|stream| stream.from == host || stream.to == host) {
            return Err(Failure::Usage(format!(
                "a stream of {file} begins or ends at {name}, which does nothing but replay: take \
                 the [[stream]] out, or replay from another host"
            )));
        }
        Ok(host)
    }
}
