//! `tailwater lab run` and `tailwater lab up`.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;

use clap::Args;

use super::Failure;
use super::driver_flags::DriverFlags;
use super::outcome::print;
use super::run_flags::{PreparedRun, RunFlags};
use crate::lab::control::{ControlServer, Request, ask};
use crate::lab::describe;
use crate::lab::interrupt;
use crate::lab::netns::{self, Network};
use crate::lab::run::{Setting, run as run_lab};
use crate::lab::run_control::RunControl;
use crate::lab::topology::{Clock, Topology};

/// Arguments of `tailwater lab run`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                        tailwater lab run netns-testbed/leaf-spine.toml\n  \
                        tailwater lab run netns-testbed/stream.toml --clock free --capture h2:eth0")]
pub struct RunArgs {
    /// The topology file
    file: PathBuf,
    #[command(flatten)]
    flags: RunFlags,
    #[command(flatten)]
    driver: DriverFlags,
}

/// Arguments of `tailwater lab up`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
                        tailwater lab up netns-testbed/two-hosts.toml --detach\n  \
                        tailwater lab exec two-hosts h1 -- ping -c 3 10.0.0.2\n  \
                        tailwater lab down two-hosts")]
pub struct UpArgs {
    /// The topology file
    file: PathBuf,
    /// Return as soon as the lab stands
    #[arg(long)]
    detach: bool,
    #[command(flatten)]
    flags: RunFlags,
    #[command(flatten)]
    driver: DriverFlags,
}

/// Builds the lab, runs its workload, prints the result and removes the lab.
pub(super) fn run(args: &RunArgs) -> Result<(), Failure> {
    let mut topology = args.flags.load(&args.file)?;
    args.driver.apply(&mut topology);
    let mut repeat = vec![args.flags.repeat_command("lab run", &args.file, &topology)];
    repeat.extend(args.driver.arguments());
    drive(&args.file, &topology, &args.flags, Some(repeat.join(" ")))
}

/// Builds the lab and keeps it.
pub(super) fn up(args: &UpArgs) -> Result<(), Failure> {
    if args.detach {
        return detach(args);
    }
    let mut topology = args.flags.load(&args.file)?;
    args.driver.apply(&mut topology);
    if args.driver.names_no_clock() {
        // A lab that stays up is for programs, which live by the OS clock.
        topology.run.clock = Clock::Free;
    }
    drive(&args.file, &topology, &args.flags, None)
}

/// Runs a topology on a network of its own: to its end, which `repeat` would run again, or without
/// that until it is told to end.
fn drive(
    file: &Path,
    topology: &Topology,
    flags: &RunFlags,
    repeat: Option<String>,
) -> Result<(), Failure> {
    let says_ready = repeat.is_none();
    // A lab that is up stays, whatever its file says; who gives --duration wants it to end.
    let stay = says_ready && flags.duration.is_none();
    let stop = interrupt::install()?;
    netns::check_can_build(&topology.name)?;
    let mut prepared = flags.prepare(file, topology)?;
    prepared.repeat = repeat;
    drive_on(prepared, topology, flags, Stay { stay, says_ready, stop }, netns::build)
}

/// How long a run stays, and whom it tells.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stay {
    /// Until it is told to end.
    pub(super) stay: bool,
    /// Says `ready` once every port is open.
    pub(super) says_ready: bool,
    /// Ends it when set.
    pub(super) stop: &'static AtomicBool,
}

/// Runs a topology on the network that `build` gives, with a control socket.
pub(super) fn drive_on(
    mut prepared: PreparedRun,
    topology: &Topology,
    flags: &RunFlags,
    Stay { stay, says_ready, stop }: Stay,
    build: impl FnOnce(&Topology) -> Result<Network, Failure>,
) -> Result<(), Failure> {
    let plan = std::mem::take(&mut prepared.plan);
    let network = build(topology)?;
    if !flags.quiet {
        network.messages.iter().for_each(|message| eprintln!("{message}"));
    }
    let mut server = None;
    let mut is_begun = false;
    let setting = Setting { plan, captures: &mut prepared.captures, network: &network, stop, stay };
    let ended = run_lab(topology, setting, &mut |handle| {
        if flags.verbose {
            eprint!("{}", describe::ports(handle.ports()));
        }
        let control = RunControl::new(topology.clone(), handle, stop);
        server = Some(ControlServer::start(&topology.name, std::sync::Arc::new(control))?);
        is_begun = true;
        match (says_ready, flags.json) {
            (false, _) => Ok(()),
            (true, false) => print("ready\n"),
            // Stdout is for the report alone.
            (true, true) => {
                eprintln!("ready");
                Ok(())
            }
        }
    });
    if is_begun {
        prepared.begin();
    }
    // The network goes before the result is shown, whatever the result is.
    let cleared = network.guard.clear();
    let (finished, series) = ended?;
    drop(server);
    cleared?;
    prepared.conclude(topology, finished, &series)
}

/// Starts the same command without `--detach` and returns when it says that it is ready.
fn detach(args: &UpArgs) -> Result<(), Failure> {
    let cannot = |error: std::io::Error| Failure::Running(format!("cannot detach: {error}"));
    let mut command = Command::new(std::env::current_exe().map_err(cannot)?);
    command.args(["lab", "up"]).arg(&args.file).args(args.driver.arguments());
    command.args(args.flags.arguments());
    // What the process says on stderr outlives this one, and nobody else needs the file.
    let path = std::env::temp_dir().join(format!("tailwater-{}.log", std::process::id()));
    let open = || File::options().read(true).write(true).create_new(true).open(&path);
    let mut log = open().map_err(cannot)?;
    std::fs::remove_file(&path).map_err(cannot)?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log.try_clone().map_err(cannot)?);
    let mut child = command.process_group(0).spawn().map_err(cannot)?;
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut line).map_err(cannot)?;
    }
    let mut why = String::new();
    if line.trim() == "ready" {
        if !args.flags.json {
            return print(&line);
        }
        let name = args.flags.load(&args.file)?.name;
        return print(&format!("{:#}\n", ask(&name, &Request::Status)?));
    }
    let status = child.wait().map_err(cannot)?;
    log.rewind().and_then(|()| log.read_to_string(&mut why)).map_err(cannot)?;
    let why = why.trim_end().to_owned();
    Err(match status.code() {
        Some(2) => Failure::Usage(why),
        Some(4) => Failure::HostLacks(why),
        _ => Failure::Running(why),
    })
}
