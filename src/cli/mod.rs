//! The command line: one thin file per subcommand.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the command line is what prints")]

pub mod doctor;
pub mod driver_flags;
pub mod exit;
pub mod lab;
pub mod lab_run;
pub mod latency;
pub mod outcome;
pub mod replay;
mod replay_live;
pub mod report;
pub mod run_flags;
pub mod set;
pub mod show;
pub mod sim;
pub mod switch;
pub mod top;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub use exit::Failure;

/// A userspace lossless-Ethernet dataplane on AF_XDP.
#[derive(Debug, Parser)]
#[command(name = "tailwater", version, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check that this machine has what tailwater needs
    Doctor(doctor::DoctorArgs),
    /// Send a capture through a switch, in capture time
    Replay(replay::ReplayArgs),
    /// Run switches on interfaces that are there
    Switch(Box<switch::SwitchArgs>),
    /// Labs from topology files: namespaces, links, switches, hosts
    Lab(lab::LabArgs),
    /// Change a running instance
    Set(set::SetArgs),
    /// Show the counters of a running instance
    Show(show::ShowArgs),
    /// Watch a running instance
    Top(top::TopArgs),
    /// Run a topology file in virtual time, with no root
    Sim(sim::SimArgs),
    /// Measure latency over real interfaces, or reflect for a measurement
    Latency(Box<latency::LatencyArgs>),
    /// Render a run directory again
    Report(report::ReportArgs),
    /// Print shell completions
    Completions {
        /// The shell to print them for
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    Man,
}

/// Runs the command that the process's arguments name and gives its exit code.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            failure.exit_code()
        }
    }
}

impl Command {
    fn run(self) -> Result<(), Failure> {
        use clap::CommandFactory as _;
        match self {
            Self::Doctor(args) => args.run(),
            Self::Replay(args) => args.run(),
            Self::Switch(args) => args.run(),
            Self::Lab(args) => args.run(),
            Self::Set(args) => args.run(),
            Self::Show(args) => args.run(),
            Self::Top(args) => args.run(),
            Self::Sim(args) => args.run(),
            Self::Latency(args) => args.run(),
            Self::Report(args) => args.run(),
            Self::Completions { shell } => {
                clap_complete::generate(
                    shell,
                    &mut Cli::command(),
                    "tailwater",
                    &mut std::io::stdout(),
                );
                Ok(())
            }
            Self::Man => {
                clap_mangen::Man::new(Cli::command()).render(&mut std::io::stdout()).map_err(
                    |error| Failure::Running(format!("cannot write the manual page: {error}")),
                )
            }
        }
    }
}
