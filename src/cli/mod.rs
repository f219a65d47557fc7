//! The command line: one thin file per subcommand.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the command line is what prints")]

pub mod doctor;
pub mod driver_flags;
pub mod exit;
pub mod lab;
pub mod lab_run;
pub mod latency;
mod man;
pub mod outcome;
pub mod replay;
mod replay_lab;
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
#[command(
    name = "tailwater",
    version,
    propagate_version = true,
    after_help = "Exit codes: 0 done, everything held; 1 failed while running; 2 usage; 3 an expectation or an \
                  invariant did not hold; 4 this host lacks something (see `tailwater doctor`); 130 interrupted, \
                  everything cleaned up.\n\n\
                  Start with:\n  \
                  tailwater doctor\n  \
                  tailwater sim netns-testbed/stream.toml\n  \
                  sudo tailwater lab run netns-testbed/stream.toml"
)]
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
    #[command(
        after_help = "Example:\n  tailwater completions bash > /etc/bash_completion.d/tailwater"
    )]
    Completions {
        /// The shell that they are for
        shell: clap_complete::Shell,
    },
    /// Print the manual page of all commands
    #[command(after_help = "Example:\n  tailwater man > /usr/local/share/man/man1/tailwater.1")]
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
                let mut script = Vec::new();
                clap_complete::generate(shell, &mut Cli::command(), "tailwater", &mut script);
                outcome::print(&String::from_utf8_lossy(&script))
            }
            Self::Man => outcome::print(&man::page(Cli::command())?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    fn check(command: &clap::Command) {
        let name = command.get_name();
        assert!(command.get_about().is_some(), "{name} does not say what it does");
        for argument in command.get_arguments() {
            let id = argument.get_id();
            let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
            assert!(!help.is_empty(), "{name}: {id} has no help");
            assert!(!help.ends_with('.'), "{name}: the help of {id} ends with a full stop");
        }
        command.get_subcommands().for_each(check);
    }

    #[test]
    fn every_command_and_argument_says_what_it_does() {
        let mut command = Cli::command();
        command.build();
        check(&command);
        command.debug_assert();
    }

    #[test]
    fn the_manual_page_has_every_command() {
        let page = man::page(Cli::command()).expect("renders");
        for section in [".SH \"TAILWATER DOCTOR\"", ".SH \"TAILWATER LAB RUN\"", ".SS SYNOPSIS"] {
            assert!(page.contains(section), "{section} in {page}");
        }
    }
}
