//! Flags of every command that drives nodes over AF_XDP.

use clap::{Args, ValueEnum};

use crate::lab::topology::{Clock, Topology};

/// How time passes, and what the driver may do.
#[derive(Args, Clone, Copy, Debug)]
pub struct DriverFlags {
    /// gated: as far as every worker has served, independent of the machine; free: with the OS clock
    #[arg(long, value_enum, value_name = "CLOCK")]
    clock: Option<ClockName>,
    /// Real nanoseconds for one of node time, by the free clock
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    dilation: Option<u32>,
    /// Never sleep when idle, and have the kernel poll the sockets where it allows that
    #[arg(long)]
    busy_poll: bool,
    /// Take an external interface even if it carries the default route
    #[arg(long)]
    allow_default_route: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ClockName {
    Gated,
    Free,
}

impl DriverFlags {
    /// Puts the flags over what the file says.
    pub(super) fn apply(self, topology: &mut Topology) {
        if let Some(clock) = self.clock {
            topology.run.clock = match clock {
                ClockName::Gated => Clock::Gated,
                ClockName::Free => Clock::Free,
            };
        }
        if let Some(dilation) = self.dilation {
            topology.run.clock = Clock::Free;
            topology.run.dilation = dilation;
        }
        topology.lab.busy_poll |= self.busy_poll;
        topology.lab.allow_default_route = self.allow_default_route;
    }

    /// Whether an external interface that carries the default route may be taken.
    pub(super) const fn allows_default_route(self) -> bool {
        self.allow_default_route
    }

    /// Whether a flag says how time passes or nodes wait.
    pub(super) const fn names_pace(self) -> bool {
        self.clock.is_some() || self.dilation.is_some() || self.busy_poll
    }

    /// Whether neither flag that names a clock was given.
    pub(super) const fn names_no_clock(self) -> bool {
        self.clock.is_none()
    }

    /// The same flags for a process that does the work.
    pub(super) fn arguments(self) -> Vec<String> {
        let clock = self.clock.map(|clock| match clock {
            ClockName::Gated => "--clock=gated".to_owned(),
            ClockName::Free => "--clock=free".to_owned(),
        });
        let dilation = self.dilation.map(|n| format!("--dilation={n}"));
        let busy_poll = self.busy_poll.then(|| "--busy-poll".to_owned());
        let route = self.allow_default_route.then(|| "--allow-default-route".to_owned());
        [clock, dilation, busy_poll, route].into_iter().flatten().collect()
    }
}
