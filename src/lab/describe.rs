//! A lab in words: what it has, how it is laid out on this machine, and how its ports were opened.

use std::fmt::Write as _;

use crate::lab::plan::Plan;
use crate::lab::run::{self, PortMode, WorkerThread};
use crate::lab::topology::{Clock, HostKind, NodeId, Topology, explain_headrooms};
use crate::units::AnyRate;

/// The clock's name, as reports have it.
pub const fn clock(topology: &Topology) -> &'static str {
    match topology.run.clock {
        Clock::Gated => "gated",
        Clock::Free => "free",
    }
}

/// What the file describes, in one line.
pub fn summary(topology: &Topology) -> String {
    let kernel = topology.hosts.iter().filter(|host| host.kind == HostKind::Kernel).count();
    let io: usize = topology.switches.iter().map(|switch| switch.io_workers.len()).sum();
    let io = if io == 0 { String::new() } else { format!(", {io} I/O workers") };
    format!(
        "{}: {} switches, {} agent hosts, {kernel} kernel hosts, {} links, {} externals, {} streams, \
         {} faults, {} expectations{io}; clock {}\n",
        topology.name,
        topology.switches.len(),
        topology.hosts.len() - kernel,
        topology.links.len(),
        topology.externals.len(),
        topology.streams.len(),
        topology.faults.len(),
        topology.expectations.len(),
        clock(topology),
    )
}

/// How it is laid out, a line each: threads as they would run here, hosts, links, what the switches
/// know of the paths, streams.
pub fn lab(topology: &Topology, plan: &Plan) -> String {
    let mut out = threads(&run::threads(topology, plan));
    // Nothing goes wrong when a string is written to.
    let _ = nodes(topology, &mut out).and_then(|()| traffic(topology, &mut out));
    out
}

fn nodes(topology: &Topology, out: &mut String) -> std::fmt::Result {
    for host in &topology.hosts {
        let config = &host.config;
        write!(out, "  host {} {}", config.name, config.mac)?;
        if let Some((address, bits)) = config.ipv4 {
            write!(out, " {address}/{bits}")?;
        }
        if let Some((address, bits)) = config.ipv6 {
            write!(out, " {address}/{bits}")?;
        }
        out.push('\n');
    }
    for link in &topology.links {
        let does = &link.impairment;
        write!(out, "  link {} {}, delay {}", link.name, link.rate, does.delay)?;
        if !does.jitter.is_zero() {
            write!(out, ", jitter {}", does.jitter)?;
        }
        for (what, share) in
            [("loss", does.loss), ("corrupt", does.corrupt), ("reorder", does.reorder)]
        {
            if share.0 > 0 {
                write!(out, ", {what} {share}")?;
            }
        }
        out.push('\n');
    }
    for external in &topology.externals {
        let config = &topology.switches[external.switch].config;
        let port = &config.ports[external.port.index()].name;
        write!(out, "  external {} at {}:{port}", external.interface, config.name)?;
        if let Some(netns) = &external.netns {
            write!(out, " in {netns}")?;
        }
        out.push('\n');
    }
    for switch in &topology.switches {
        let name = &switch.config.name;
        for port in switch.config.ports.iter().filter(|port| !port.flood) {
            writeln!(out, "  {name}:{} is outside the flood tree", port.name)?;
        }
        for entry in &switch.config.static_macs {
            let port = &switch.config.ports[entry.port.index()].name;
            writeln!(out, "  {name}: {} VLAN {} by {port}", entry.mac, entry.vlan)?;
        }
        for line in explain_headrooms(switch).lines() {
            writeln!(out, "  {line}")?;
        }
    }
    Ok(())
}

fn traffic(topology: &Topology, out: &mut String) -> std::fmt::Result {
    for stream in &topology.streams {
        let name = |host| topology.node_name(NodeId::Host(host));
        let config = &stream.config;
        let rate = match config.rate {
            AnyRate::Bits(rate) => rate.to_string(),
            AnyRate::Frames(rate) => rate.to_string(),
        };
        writeln!(
            out,
            "  stream {} {} > {}: {rate} in frames of {}B",
            config.id,
            name(stream.from),
            name(stream.to),
            config.frame_bytes
        )?;
    }
    Ok(())
}

/// What each thread serves, a line each.
pub fn threads(threads: &[WorkerThread]) -> String {
    let line = |thread: &WorkerThread| {
        let core = thread.core.map(|core| format!(" on core {core}")).unwrap_or_default();
        format!("  worker {}{core}: {}\n", thread.thread, thread.serves.join(", "))
    };
    threads.iter().map(line).collect()
}

/// How each port was opened, a line each.
pub fn ports(ports: &[PortMode]) -> String {
    let line = |port: &PortMode| {
        let copies = if port.zero_copy { "zero-copy" } else { "copy" };
        let queues: Vec<String> = port.queues.iter().map(u32::to_string).collect();
        format!(
            "  port {} on {}: {}, {copies}, queues {}\n",
            port.port,
            port.interface,
            port.mode,
            queues.join(", ")
        )
    };
    ports.iter().map(line).collect()
}
