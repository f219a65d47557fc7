//! `tailwater lab run` and `tailwater lab up`: where the engine is called.

use std::path::PathBuf;

use clap::Args;

use super::Failure;
use crate::lab::topology::Topology;

/// Arguments of `tailwater lab run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The topology file
    file: PathBuf,
}

/// Arguments of `tailwater lab up`.
#[derive(Debug, Args)]
pub struct UpArgs {
    /// The topology file
    file: PathBuf,
    /// Return as soon as the lab stands
    #[arg(long)]
    detach: bool,
}

/// Builds the lab, runs its workload, prints the result and removes the lab.
pub(super) fn run(args: &RunArgs) -> Result<(), Failure> {
    let topology = Topology::load(&args.file)?;
    Err(not_yet(&topology.name))
}

/// Builds the lab and keeps it.
pub(super) fn up(args: &UpArgs) -> Result<(), Failure> {
    let topology = Topology::load(&args.file)?;
    let _ = args.detach;
    Err(not_yet(&topology.name))
}

// The engine that drives nodes over the network of `lab::netns::build` comes in with its own room;
// until then the command says so.
fn not_yet(name: &str) -> Failure {
    Failure::Running(format!("cannot run {name}: this build has no lab engine"))
}
