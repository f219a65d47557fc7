//! `tailwater sim FILE`: a topology in virtual time, with no root.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use clap::Args;

use super::Failure;
use super::run_flags::RunFlags;
use crate::lab::interrupt;
use crate::lab::simulate::simulate;

/// Arguments of `tailwater sim`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
                        tailwater sim netns-testbed/leaf-spine.toml\n  \
                        tailwater sim netns-testbed/stream.toml --duration 1ms --capture h2:eth0 --json")]
pub struct SimArgs {
    /// The topology file
    file: PathBuf,
    #[command(flatten)]
    flags: RunFlags,
}

impl SimArgs {
    /// Runs the file and prints the result.
    ///
    /// # Errors
    /// A file that is wrong, a lab that is not all ours, what did not hold.
    pub fn run(&self) -> Result<(), Failure> {
        let topology = self.flags.load(&self.file)?;
        if !topology.is_ours() {
            return Err(Failure::Usage(format!(
                "{}: a kernel host or an external interface cannot be simulated: its stack is not \
                 ours. Run it with `tailwater lab run {0}`",
                self.file.display()
            )));
        }
        let stop = interrupt::install()?;
        let mut run = self.flags.prepare(&self.file, &topology)?;
        run.repeat = Some(self.flags.repeat_command("sim", &self.file, &topology));
        let plan = std::mem::take(&mut run.plan);
        let progress = self.flags.progress(&topology);
        let (finished, series) = simulate(&topology, plan, &mut run.captures, |now| {
            progress.set(now.as_ns());
            !stop.load(Ordering::Relaxed)
        });
        progress.finish();
        run.conclude(&topology, finished, &series)
    }
}
