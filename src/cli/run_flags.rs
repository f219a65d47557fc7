//! Flags that mean the same for every command that runs a topology.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;

use super::Failure;
use super::outcome::{OutputFlags, finish};
use crate::lab::captures::Captures;
use crate::lab::describe;
use crate::lab::outcome::Finished;
use crate::lab::plan::Plan;
use crate::lab::series::NodeSeries;
use crate::lab::simulate::simulate;
use crate::lab::topology::{NodeId, Topology};
use crate::measure::report::Driver;
use crate::measure::{Progress, RunDir};
use crate::time::Duration;

/// What to run, for how long, and where the results go.
#[derive(Args, Clone, Debug, Default)]
pub struct RunFlags {
    /// Print one JSON document, the report, on stdout and nothing else
    #[arg(long)]
    pub json: bool,
    /// Write the run directory here [default: a new tailwater-run-NAME-N]
    #[arg(long, value_name = "DIR")]
    pub run_dir: Option<PathBuf>,
    /// Replace the seed of the file
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Replace the duration of the file: node time, with its unit, like 20ms
    #[arg(long, value_name = "TIME")]
    pub duration: Option<Duration>,
    /// Capture these ports as pcapng, NODE:PORT, or all
    #[arg(long, value_name = "PORT", value_delimiter = ',')]
    pub capture: Vec<String>,
    /// No messages but errors
    #[arg(long)]
    pub quiet: bool,
    /// Say how the nodes, links and threads are made, before the run
    #[arg(short, long, conflicts_with = "quiet")]
    pub verbose: bool,
    /// What the run directory's configuration says above the file
    #[arg(skip)]
    pub note: Option<String>,
}

/// A run that broke an invariant is run once more for its captures if it took no longer than this.
const WITNESS_WALL_MAX: std::time::Duration = std::time::Duration::from_secs(60);

/// A run that is about to begin: its directory and its captures.
#[derive(Debug)]
pub struct PreparedRun {
    /// The nodes and links.
    pub plan: Plan,
    /// The ports to capture.
    pub captures: Captures,
    dir: RunDir,
    capture_failed: Arc<AtomicBool>,
    output: OutputFlags,
    /// The command that repeats the run; set where there is one.
    pub repeat: Option<String>,
}

impl RunFlags {
    /// The same flags for a process that does the work.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = Vec::new();
        if let Some(dir) = &self.run_dir {
            arguments.push(format!("--run-dir={}", dir.display()));
        }
        arguments.extend(self.seed.map(|seed| format!("--seed={seed}")));
        arguments.extend(self.duration.map(|duration| format!("--duration={duration}")));
        if !self.capture.is_empty() {
            arguments.push(format!("--capture={}", self.capture.join(",")));
        }
        arguments.extend(self.quiet.then(|| "--quiet".to_owned()));
        arguments.extend(self.verbose.then(|| "--verbose".to_owned()));
        arguments
    }

    /// Reads a topology file and applies the flags to it.
    ///
    /// # Errors
    /// What [`Topology::load`] says.
    pub fn load(&self, file: &Path) -> Result<Topology, Failure> {
        let mut topology = Topology::load(file)?;
        if let Some(seed) = self.seed {
            topology.set_seed(seed);
        }
        if let Some(duration) = self.duration {
            topology.run.duration = Some(duration);
        }
        if !self.capture.is_empty() {
            topology.run.capture.clone_from(&self.capture);
        }
        Ok(topology)
    }

    /// Builds the nodes and makes the run directory, with the configuration in it.
    ///
    /// # Errors
    /// A node that cannot be built, a directory or capture that cannot be made.
    pub fn prepare(&self, file: &Path, topology: &Topology) -> Result<PreparedRun, Failure> {
        let plan = Plan::of(topology)?;
        if self.verbose {
            eprint!("{}", describe::lab(topology, &plan));
        }
        let dir = RunDir::create(&topology.name, self.run_dir.as_deref())?;
        dir.write_config(&self.effective_config(file)?)?;
        let wanted = &topology.run.capture;
        let captures = if wanted.is_empty() {
            Captures::none(plan.nodes.len())
        } else {
            Captures::open(&plan, wanted, &dir.captures()?)?
        };
        let capture_failed = captures.watch();
        let output = OutputFlags { json: self.json, quiet: self.quiet };
        Ok(PreparedRun { plan, captures, dir, capture_failed, output, repeat: None })
    }

    /// The file as it was read, under the flags that changed it.
    fn effective_config(&self, file: &Path) -> Result<String, Failure> {
        let text = std::fs::read_to_string(file).map_err(|error| {
            Failure::Running(format!("cannot read {} again: {error}", file.display()))
        })?;
        let seed = self.seed.map(|seed| format!("# --seed {seed}\n"));
        let duration = self.duration.map(|duration| format!("# --duration {duration}\n"));
        let note = self.note.as_ref().map(|note| format!("# {note}\n"));
        let heads: String = [note, seed, duration].into_iter().flatten().collect();
        Ok(heads + &text)
    }

    /// The command that repeats a run of `file`, frame for frame where time is node time, and keeps
    /// every frame.
    pub fn repeat_command(&self, verb: &str, file: &Path, topology: &Topology) -> String {
        let repeated = Self {
            run_dir: None,
            seed: Some(topology.seed),
            capture: vec!["all".to_owned()],
            quiet: false,
            verbose: false,
            ..self.clone()
        };
        format!("tailwater {verb} {} {}", file.display(), repeated.arguments().join(" "))
    }

    /// A bar over the run's node time, on a terminal.
    pub fn progress(&self, topology: &Topology) -> Progress {
        Progress::over_time(
            &topology.name,
            topology.run.duration.unwrap_or(Duration::ZERO),
            self.quiet || self.json,
        )
    }
}

impl PreparedRun {
    /// The run begins: from here on its directory stays.
    pub fn begin(&self) {
        self.dir.keep();
    }

    /// Writes the results and prints them; the exit code says whether everything held. When something
    /// did not, says how to repeat the run; when that was an invariant of a run in virtual time, runs
    /// it once more with a capture of every port.
    ///
    /// # Errors
    /// As [`finish`]; a result that cannot be written.
    pub fn conclude(
        self,
        topology: &Topology,
        finished: Finished,
        series: &[NodeSeries],
    ) -> Result<(), Failure> {
        let is_short = finished.wall <= WITNESS_WALL_MAX && finished.driver == Driver::Sim;

        let ids = finished.nodes.iter().map(|(id, _)| *id);
        write_series(&self.dir, topology, ids.zip(series))?;
        let outcome = finished.into_outcome(topology);
        for (name, histogram) in &outcome.histograms {
            self.dir.write_histogram(name, histogram)?;
        }
        self.dir.write_report(&outcome.report)?;
        let latency = outcome.histograms.last().map(|(_, histogram)| histogram);
        let ended = finish(&outcome.report, latency, Some(&self.dir), self.output);
        if let (Err(Failure::NotHeld(_)), Some(repeat)) = (&ended, &self.repeat) {
            eprintln!("repeat it with: {repeat}");
            let broken = outcome.report.invariants.values().any(|held| !held);
            if broken && is_short && topology.run.capture.is_empty() {
                let directory = self.dir.captures()?;
                let plan = Plan::of(topology)?;
                let mut captures = Captures::open(&plan, &["all".to_owned()], &directory)?;
                simulate(topology, plan, &mut captures, |_| true);
                eprintln!("what crossed each port: {}", directory.display());
            }
        }
        ended?;
        if self.capture_failed.load(Ordering::Relaxed) {
            return Err(Failure::Running(format!(
                "a capture in {} is not whole: it could not be written (is the disk full?)",
                self.dir.path().display()
            )));
        }
        Ok(())
    }
}

fn write_series<'a>(
    dir: &RunDir,
    topology: &Topology,
    series: impl Iterator<Item = (NodeId, &'a NodeSeries)>,
) -> Result<(), Failure> {
    let failed =
        |error: std::io::Error| Failure::Running(format!("cannot write series.csv: {error}"));
    let mut writer = dir.series()?;
    for (id, series) in series {
        let node = topology.node_name(id);
        let ports: Vec<_> = match id {
            NodeId::Switch(index) => {
                topology.switches[index].config.ports.iter().map(|port| &port.name).collect()
            }
            NodeId::Host(index) => vec![&topology.hosts[index].config.port_name],
        };
        for (at, samples) in series.rows() {
            for (port, sample) in ports.iter().zip(samples) {
                writer.sample(*at, node, port, *sample).map_err(failed)?;
            }
        }
    }
    writer.finish().map_err(failed)?;
    Ok(())
}
