//! `tailwater lab`: topology files and the labs that stand.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;

use super::Failure;
use super::lab_run::{self, RunArgs, UpArgs};
use super::outcome::print;
use crate::lab::control::{Request, ask};
use crate::lab::netns::{self, LabState, Liveness};
use crate::lab::plan::Plan;
use crate::lab::run::threads;
use crate::lab::topology::Topology;
use crate::lab::{describe, graph, memory};

/// Arguments of `tailwater lab`.
#[derive(Debug, Args)]
pub struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// Build the lab, run its workload, print the result, remove the lab
    Run(RunArgs),
    /// Build the lab and keep it until Ctrl-C or `lab down`
    Up(UpArgs),
    /// Run a program in a node of a lab that stands
    Exec(ExecArgs),
    /// Show what runs
    Status(StatusArgs),
    /// End a lab, or remove what a killed one left
    Down(TargetArgs),
    /// Draw the lab
    Graph(GraphArgs),
    /// Check a topology file and the memory it needs
    Check(CheckArgs),
}

#[derive(Debug, Args)]
struct TargetArgs {
    /// The lab's name, or its topology file
    target: String,
}

#[derive(Debug, Args)]
struct StatusArgs {
    /// The lab's name, or its topology file; every lab without one
    target: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                        tailwater lab exec two-hosts h1 -- iperf3 -c 10.0.0.2\n  \
                        tailwater lab exec two-hosts h2 -- tcpdump -ni eth0")]
struct ExecArgs {
    /// The lab's topology file, or its name
    target: String,
    /// The node to run in
    node: String,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

#[derive(Debug, Args)]
struct GraphArgs {
    /// The topology file
    file: PathBuf,
    /// How to draw it
    #[arg(long, value_enum, default_value_t = GraphFormat::Ascii)]
    format: GraphFormat,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum GraphFormat {
    Ascii,
    Dot,
    Svg,
}

#[derive(Debug, Args)]
struct CheckArgs {
    /// The topology file
    file: PathBuf,
    /// Show addresses, paths and the arithmetic of the memory
    #[arg(short, long)]
    verbose: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl LabArgs {
    /// Runs the command.
    ///
    /// # Errors
    /// As the contract's exit codes say.
    pub fn run(&self) -> Result<(), Failure> {
        match &self.command {
            LabCommand::Run(args) => lab_run::run(args),
            LabCommand::Up(args) => lab_run::up(args),
            LabCommand::Exec(args) => exec(args),
            LabCommand::Status(args) => status(args),
            LabCommand::Down(args) => down(&name_of(&args.target)?),
            LabCommand::Graph(args) => {
                let topology = Topology::load(&args.file)?;
                print(&match args.format {
                    GraphFormat::Ascii => graph::ascii(&topology),
                    GraphFormat::Dot => graph::dot(&topology),
                    GraphFormat::Svg => graph::svg(&topology),
                })
            }
            LabCommand::Check(args) => check(args),
        }
    }
}

/// The name of the instance that a user means: by its file, or by the name itself.
///
/// # Errors
/// Those of the topology file.
pub fn name_of(target: &str) -> Result<String, Failure> {
    let path = Path::new(target);
    if target.contains('/') || target.ends_with(".toml") {
        return Ok(Topology::load(path)?.name);
    }
    Ok(target.to_owned())
}

fn exec(args: &ExecArgs) -> Result<(), Failure> {
    let name = name_of(&args.target)?;
    let netns = netns::namespace(&name, &args.node);
    match LabState::look_up(&name)? {
        Liveness::Absent => {
            return Err(Failure::Running(format!(
                "no lab called {name} stands: start it with `tailwater lab up FILE`"
            )));
        }
        Liveness::Stale(_) => {
            return Err(Failure::Running(format!(
                "the lab {name} was killed: clear what it left with `tailwater lab down {name}`"
            )));
        }
        Liveness::Running(state) if !state.namespaces.contains(&netns) => {
            let prefix = netns::namespace(&name, "");
            let nodes: Vec<&str> =
                state.namespaces.iter().filter_map(|netns| netns.strip_prefix(&prefix)).collect();
            let message =
                format!("the lab {name} has no node `{}`: it has {}", args.node, nodes.join(", "));
            return Err(Failure::Usage(message));
        }
        Liveness::Running(_) => {}
    }
    // `ip` brings the node's own /sys and the files of /etc/netns, and then becomes the program, so
    // that its exit code and signals are the program's.
    let error =
        std::process::Command::new("ip").args(["netns", "exec", &netns]).args(&args.command).exec();
    Err(Failure::HostLacks(format!("cannot run `ip netns exec {netns}`: {error}")))
}

fn status(args: &StatusArgs) -> Result<(), Failure> {
    let names = match &args.target {
        Some(target) => vec![name_of(target)?],
        None => LabState::all(),
    };
    let mut found = Vec::new();
    for name in &names {
        found.push(match LabState::look_up(name)? {
            Liveness::Absent => json!({ "name": name, "state": "down" }),
            Liveness::Stale(state) => json!({ "name": name, "state": "killed", "pid": state.pid,
                "mend": format!("tailwater lab down {name}") }),
            Liveness::Running(state) => {
                let about = ask(name, &Request::Status).unwrap_or(serde_json::Value::Null);
                json!({ "name": name, "state": "running", "pid": state.pid, "status": about })
            }
        });
    }
    if args.json {
        return print(&format!("{:#}\n", serde_json::Value::Array(found)));
    }
    if found.is_empty() {
        return print("no lab runs\n");
    }
    for lab in &found {
        let text = |key: &str| lab[key].as_str().unwrap_or_default().to_owned();
        let mut line = format!("{}: {}", text("name"), text("state"));
        if let Some(pid) = lab["pid"].as_u64() {
            line.push_str(&format!(", pid {pid}"));
        }
        if lab["mend"].is_string() {
            line.push_str(&format!("; clear it with `{}`", text("mend")));
        }
        line.push('\n');
        for (key, value) in lab["status"].as_object().into_iter().flatten() {
            line.push_str(&match key.as_str() {
                "ports" => list(value, describe::ports),
                "workers" => list(value, describe::threads),
                _ => format!("  {key}: {}\n", super::show::plain(value)),
            });
        }
        print(&line)?;
    }
    Ok(())
}

/// What an instance says of its ports or threads, as `show` does; nothing when it is of another
/// version and says it otherwise.
fn list<T: serde::de::DeserializeOwned>(
    value: &serde_json::Value,
    show: fn(&[T]) -> String,
) -> String {
    serde_json::from_value(value.clone()).map(|all: Vec<T>| show(&all)).unwrap_or_default()
}

/// Ends a lab that runs and waits until it has, or removes what a killed one left.
fn down(name: &str) -> Result<(), Failure> {
    match LabState::look_up(name)? {
        Liveness::Absent => {
            eprintln!("no lab called {name} stands");
            Ok(())
        }
        Liveness::Stale(_) => {
            if let Some(message) = netns::clear_leftover(name)? {
                eprintln!("{message}");
            }
            Ok(())
        }
        Liveness::Running(state) => {
            ask(name, &Request::Down).map_err(|error| {
                Failure::Running(format!("{error}; end it with `kill {}`", state.pid))
            })?;
            // The connection ended with the process; what it could not remove is cleared here.
            match LabState::look_up(name)? {
                Liveness::Stale(_) => netns::clear_leftover(name).map(|_| ()),
                Liveness::Absent => Ok(()),
                Liveness::Running(state) => Err(Failure::Running(format!(
                    "the lab {name} (pid {}) was asked to end and still runs",
                    state.pid
                ))),
            }
        }
    }
}

fn check(args: &CheckArgs) -> Result<(), Failure> {
    let topology = Topology::load(&args.file)?;
    let plan = Plan::of(&topology)?;
    let sizes = memory::of_lab(&topology, &plan);
    let needed: u64 = sizes.iter().map(memory::NodeChunks::umem_bytes).sum();
    let available = memory::memory_available_bytes();
    if args.json {
        let of = |sizes: &[memory::NodeChunks]| -> Vec<_> {
            let size = |s: &memory::NodeChunks| json!({ "name": s.node, "chunks": s.total(), "umem_bytes": s.umem_bytes() });
            sizes.iter().map(size).collect()
        };
        // The plan has the switches first.
        let (switches, agents) = sizes.split_at(topology.switches.len());
        print(&format!(
            "{:#}\n",
            json!({ "name": topology.name, "switches": of(switches), "agents": of(agents),
                "umem_bytes": needed, "available_bytes": available,
                "clock": describe::clock(&topology), "workers": threads(&topology, &plan),
                "hosts": topology.hosts.len(), "links": topology.links.len(),
                "streams": topology.streams.len() })
        ))?;
    } else {
        print(&describe::summary(&topology))?;
        if args.verbose {
            print(&describe::lab(&topology, &plan))?;
            for size in &sizes {
                print(&format!("  umem {size}\n"))?;
            }
        }
        let beside = available
            .map(|bytes| format!(" of {} available", memory::mebibytes(bytes)))
            .unwrap_or_default();
        print(&format!("  umem in sum: {}{beside}\n", memory::mebibytes(needed)))?;
    }
    if let Some(available) = available.filter(|available| needed > *available) {
        return Err(Failure::HostLacks(format!(
            "the nodes' frames need {} and this host has {}: lower `buffer`, [lab] `ring` or \
             `queues`",
            memory::mebibytes(needed),
            memory::mebibytes(available)
        )));
    }
    Ok(())
}
