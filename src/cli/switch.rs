//! `tailwater switch CONFIG`: switches on interfaces that are there, and nothing made.

use std::path::PathBuf;

use clap::Args;

use super::Failure;
use super::driver_flags::DriverFlags;
use super::lab_run::{Stay, drive_on};
use super::run_flags::RunFlags;
use crate::lab::interrupt;
use crate::lab::netns::{check_can_build, take};
use crate::lab::topology::{Clock, Topology};

/// Arguments of `tailwater switch`.
#[derive(Debug, Args)]
#[command(
    after_help = "Runs the switches of CONFIG on the interfaces that its [[external]] tables name, \
                  until Ctrl-C or --duration. Prints `ready` once every port is open; `tailwater \
                  show NAME` and `top NAME` look into it while it runs."
)]
pub struct SwitchArgs {
    /// A topology file with switches and [[external]] interfaces
    config: PathBuf,
    #[command(flatten)]
    flags: RunFlags,
    #[command(flatten)]
    driver: DriverFlags,
}

impl SwitchArgs {
    /// Runs the switches.
    ///
    /// # Errors
    /// [`Failure::Usage`] for a file with more than switches on interfaces, and for an interface
    /// that is not there; [`Failure::HostLacks`] when a port does not open.
    pub fn run(&self) -> Result<(), Failure> {
        let mut topology = self.flags.load(&self.config)?;
        self.driver.apply(&mut topology);
        self.check(&topology)?;
        topology.run.clock = Clock::Free;
        let stay = self.flags.duration.is_none();
        let stop = interrupt::install()?;
        check_can_build(&topology.name)?;
        let prepared = self.flags.prepare(&self.config, &topology)?;
        drive_on(prepared, &topology, &self.flags, Stay { stay, says_ready: true, stop }, take)
    }

    fn check(&self, topology: &Topology) -> Result<(), Failure> {
        let file = self.config.display();
        if let Some(what) = topology.beside_switches() {
            return Err(Failure::Usage(format!(
                "{file} has {what}, and `tailwater switch` makes none: run it with `tailwater lab \
                 up {file}`, or leave switches and [[external]] interfaces alone in the file"
            )));
        }
        if topology.externals.is_empty() {
            return Err(Failure::Usage(format!(
                "{file} names no interface: add an [[external]] table with `port` and `interface`"
            )));
        }
        Ok(())
    }
}
