//! `tailwater replay CAPTURE`: a capture through a switch, in capture time, without root.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use nix::poll::{PollFd, PollFlags, poll};

use super::Failure;
use super::driver_flags::DriverFlags;
use super::outcome::{self, OutputFlags};
use super::replay_lab::FromLab;
use super::replay_live::Live;
use super::run_flags::RunFlags;
use crate::lab::interrupt;
use crate::lab::topology::Topology;
use crate::measure::RunDir;
use crate::measure::report::SwitchReport;
use crate::node::PortId;
use crate::replay::run::{self, Finished};
use crate::replay::{CaptureReader, Ingress, OutputFiles, Replay, Speed, Stopped};
use crate::switch::{Switch, SwitchConfig};
use crate::time::Duration;

/// Arguments of `tailwater replay`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                        tailwater replay trace.pcapng --out run\n  \
                        zcat trace.pcap.gz | tailwater replay - --ingress round-robin\n  \
                        tailwater replay trace.pcap --switch netns-testbed/stream.toml --ingress port:1\n  \
                        sudo tailwater replay trace.pcap --live eth1 --speed x2")]
pub struct ReplayArgs {
    /// A pcap or pcapng file; `-` for stdin
    capture: PathBuf,
    /// The topology file that holds the switch. Without it: ports 1 to N of 100Gbps that learn, or,
    /// when all records come by one port, that pass every frame to the others
    #[arg(long, value_name = "CONFIG")]
    switch: Option<PathBuf>,
    /// The switch's name, when the file has several
    #[arg(long, value_name = "NAME", requires = "switch")]
    node: Option<String>,
    /// Ports of the switch that stands in without --switch
    #[arg(long, value_name = "N", default_value_t = 2, conflicts_with = "switch",
          value_parser = clap::value_parser!(u16).range(1..=256))]
    ports: u16,
    /// The port that records come by: port:PORT, interface (n of the capture by the nth port),
    /// round-robin, or mac:MAC=PORT,...,*=PORT by source address. Default: port: and the first
    #[arg(long, value_name = "WAY")]
    ingress: Option<String>,
    /// No gap between two records is longer than this: 1s, 20ms
    #[arg(long, value_name = "TIME")]
    gap_max: Option<Duration>,
    /// The run directory: captures/port-NAME.pcapng, captures/lost.pcapng, captures/verdicts.csv,
    /// report.json
    #[arg(long, visible_alias = "run-dir", value_name = "DIR")]
    out: Option<PathBuf>,
    /// Send the capture on this interface instead, from memory, by AF_XDP
    #[arg(long, value_name = "IF", group = "sender", conflicts_with_all = ["switch", "ingress"])]
    live: Option<String>,
    /// Send the capture from the agent host NODE of the lab in FILE, in whose place it is
    #[arg(long, num_args = 2, value_names = ["FILE", "NODE"], group = "sender",
          conflicts_with_all = ["live", "switch", "ingress"])]
    lab: Vec<PathBuf>,
    /// Run the lab in virtual time, with no root
    #[arg(long, requires = "lab", conflicts_with_all = ["clock", "dilation", "busy_poll"])]
    sim: bool,
    /// End the lab then: node time, with its unit; otherwise when everything has arrived
    #[arg(long, requires = "lab", value_name = "TIME")]
    duration: Option<Duration>,
    /// Capture these ports of the lab as pcapng, NODE:PORT, or all
    #[arg(long = "capture", requires = "lab", value_name = "PORT", value_delimiter = ',')]
    ports_captured: Vec<String>,
    /// How fast: original, topspeed, xN, or a rate such as 2.5Mpps or 10Gbps
    #[arg(long, value_name = "SPEED", requires = "sender", default_value = "original")]
    speed: Speed,
    /// How often
    #[arg(long = "loop", value_name = "N", requires = "sender", default_value_t = 1)]
    loops: u64,
    #[command(flatten)]
    driver: DriverFlags,
    /// The run's seed
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Print the report as one JSON document
    #[arg(long)]
    json: bool,
    /// No messages but errors
    #[arg(long)]
    quiet: bool,
    /// Say how the lab is made, before it runs
    #[arg(short, long, requires = "lab", conflicts_with = "quiet")]
    verbose: bool,
}

impl ReplayArgs {
    /// Replays the capture.
    ///
    /// # Errors
    /// [`Failure::Usage`] for what does not read, [`Failure::Running`] for a damaged capture or one
    /// that is not Ethernet, after all records before that, [`Failure::NotHeld`] when the books do
    /// not balance.
    pub fn run(&self) -> Result<(), Failure> {
        let started = wall();
        let name = self.capture.display().to_string();
        let fails = |what: &dyn std::fmt::Display| Failure::Running(format!("{name}: {what}"));
        let interrupted = interrupt::install()?;
        let source = self.open(interrupted)?;
        let mut reader = CaptureReader::new(source).map_err(|error| {
            // A pipe may end there before it has given anything.
            let stopped = interrupted.load(Ordering::Relaxed);
            if stopped { Failure::Interrupted } else { fails(&error) }
        })?;
        let gap_max = self.gap_max.unwrap_or(Duration::MAX);
        if let [file, node] = self.lab.as_slice() {
            let lab = FromLab {
                name: &name,
                file,
                node: &node.to_string_lossy(),
                speed: self.speed,
                loops: self.loops,
                gap_max,
                sim: self.sim,
                driver: self.driver,
                flags: RunFlags {
                    json: self.json,
                    run_dir: self.out.clone(),
                    seed: self.seed,
                    duration: self.duration,
                    capture: self.ports_captured.clone(),
                    quiet: self.quiet,
                    verbose: self.verbose,
                    note: None,
                },
            };
            return lab.run(&mut reader);
        }
        if self.driver.names_pace() {
            return Err(Failure::Usage("--clock, --dilation and --busy-poll go with --lab".into()));
        }
        if let Some(interface) = &self.live {
            let live = Live {
                name: &name,
                interface,
                speed: self.speed,
                loops: self.loops,
                gap_max,
                allow_default_route: self.driver.allows_default_route(),
                out: self.out.as_deref(),
                json: self.json,
                quiet: self.quiet,
            };
            return live.run(&mut reader, interrupted);
        }
        let (config, ingress) = self.switch()?;
        let seed = config.seed;
        let dir = RunDir::create("replay", self.out.as_deref())?;
        dir.write_config(&self.effective_config(&config)?)?;
        let names = config.ports.iter().map(|port| port.name.clone()).collect();
        let mut files =
            OutputFiles::create(&dir.captures()?, names).map_err(|error| fails(&error))?;
        let ports = u16::try_from(config.ports.len()).unwrap_or(u16::MAX);
        let chunks = run::chunks_for(&config);
        let switch = Switch::new(config).map_err(|error| Failure::Usage(error.to_string()))?;
        let replay = Replay::new(switch, ports, ingress, gap_max, chunks);
        dir.keep();
        let finished =
            run::run(replay, &mut reader, || interrupted.load(Ordering::Relaxed), &mut files)
                .and_then(|finished| files.finish().map(|()| finished))
                .map_err(|error| fails(&error))?;
        let mut report = finished.report("replay", &name, seed);
        report.wall_ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let switch = &finished.node;
        report
            .switches
            .insert(switch.config().name.clone(), SwitchReport::of(switch, finished.ended));
        report.check_conservation();
        dir.write_report(&report)?;
        if !self.quiet {
            warn(&name, &finished);
        }
        let flags = OutputFlags { json: self.json, quiet: self.quiet };
        outcome::finish(&report, None, Some(&dir), flags)?;
        match finished.stopped {
            None => Ok(()),
            Some(stopped) => Err(fails(&stopped)),
        }
    }

    fn open(&self, interrupted: &'static AtomicBool) -> Result<Box<dyn Read>, Failure> {
        if self.capture == Path::new("-") {
            if io::stdin().is_terminal() {
                return Err(Failure::Usage(
                    "stdin is a terminal; pipe a capture into `tailwater replay -`".to_owned(),
                ));
            }
            let stdin = io::stdin()
                .as_fd()
                .try_clone_to_owned()
                .map_err(|error| Failure::Running(format!("cannot read stdin: {error}")))?;
            return Ok(Box::new(Pipe { file: stdin.into(), interrupted }));
        }
        let file = File::open(&self.capture).map_err(|error| {
            Failure::Usage(format!("cannot open {}: {error}", self.capture.display()))
        })?;
        Ok(Box::new(file))
    }

    /// The switch and the way in.
    fn switch(&self) -> Result<(SwitchConfig, Ingress), Failure> {
        let mut config = match &self.switch {
            Some(path) => choose(path, self.node.as_deref(), self.seed)?,
            None => run::stand_in(self.ports, &Ingress::Interface),
        };
        let ingress = match &self.ingress {
            Some(text) => {
                let names: Vec<&str> = config.ports.iter().map(|p| p.name.as_str()).collect();
                Ingress::parse(text, &names).map_err(|error| Failure::Usage(error.to_string()))?
            }
            None => Ingress::Port(PortId(0)),
        };
        if self.switch.is_none() {
            config = run::stand_in(self.ports, &ingress);
        }
        if let Some(seed) = self.seed {
            config.seed = seed;
        }
        Ok((config, ingress))
    }

    fn effective_config(&self, config: &SwitchConfig) -> Result<String, Failure> {
        match &self.switch {
            Some(path) => std::fs::read_to_string(path).map_err(|error| {
                Failure::Usage(format!("cannot read {}: {error}", path.display()))
            }),
            None => Ok(format!(
                "# tailwater replay without --switch: {} ports of 100Gbps, MTU 9000, every VLAN.\n",
                config.ports.len()
            )),
        }
    }
}

fn choose(path: &Path, name: Option<&str>, seed: Option<u64>) -> Result<SwitchConfig, Failure> {
    let mut topology = Topology::load(path)?;
    if let Some(seed) = seed {
        topology.set_seed(seed);
    }
    let mut configs = topology.switch_configs();
    let names: Vec<String> = configs.iter().map(|config| config.name.clone()).collect();
    let file = path.display();
    let found = match (name, configs.len()) {
        (_, 0) => return Err(Failure::Usage(format!("{file} has no switch"))),
        (None, 1) => Some(0),
        (None, _) => None,
        (Some(name), _) => names.iter().position(|have| have == name),
    };
    match found {
        Some(index) => Ok(configs.swap_remove(index)),
        None => Err(Failure::Usage(format!(
            "{file} has the switches {}; name one with --node",
            names.join(", ")
        ))),
    }
}

/// What was tolerated, a line each.
fn warn(name: &str, finished: &Finished<Switch>) {
    for (what, oddity) in finished.tolerated.items() {
        if oddity.count > 0 {
            let (count, first) = (oddity.count, oddity.first_record);
            eprintln!("warning: {name}: {count} records {what} (the first is record {first})");
        }
    }
    let clock = &finished.clock;
    if clock.backwards() > 0 {
        let count = clock.backwards();
        eprintln!(
            "warning: {name}: {count} records with a time before an earlier one's; put at that"
        );
    }
    if clock.bounded() > 0 {
        eprintln!("{name}: {} gaps were cut to --gap-max or 200 days in all", clock.bounded());
    }
    if matches!(finished.stopped, Some(Stopped::LinkType { .. } | Stopped::Capture(_))) {
        eprintln!("{name}: {} records before that went through", finished.counts.records);
    }
}

/// Stdin that a signal ends, also while it waits for its writer.
struct Pipe {
    file: File,
    interrupted: &'static AtomicBool,
}

impl Read for Pipe {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.interrupted.load(Ordering::Relaxed) {
                return Err(io::Error::other("interrupted"));
            }
            let mut fds = [PollFd::new(self.file.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, 100_u8) {
                Ok(0) | Err(nix::errno::Errno::EINTR) => {}
                Ok(_) => return self.file.read(out),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "the report says how long the run took")]
fn wall() -> std::time::Instant {
    std::time::Instant::now()
}
