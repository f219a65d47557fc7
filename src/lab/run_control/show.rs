//! A running lab as `tailwater show` has it: the parts of `report.json` that there are before the
//! end, and beside the counters what is set, under the names and with the units that
//! `tailwater set` takes.

use serde_json::{Map, Value, json};

use crate::lab::describe;
use crate::lab::device::Device;
use crate::lab::engine::{PortBooks, WorkerBooks};
use crate::lab::outcome::{host_report, link_report, source_report};
use crate::lab::run::LabHandle;
use crate::lab::topology::{HostKind, HostNode, LinkEnd, Ppb, Topology};
use crate::measure::LatencyHistogram;
use crate::measure::report::{HostReport, SwitchReport};
use crate::node::PortId;
use crate::sim::{LinkCounters, LinkState};
use crate::switch::Switch;
use crate::time::Time;
use crate::units::Bytes;

/// A node's part, made by its worker.
enum Part {
    Switch(Value),
    Host(Value),
}

fn look(now: Time, device: &mut Device) -> Part {
    let host = |report: HostReport| serde_json::to_value(report).unwrap_or(Value::Null);
    match device {
        Device::Switch(switch) => Part::Switch(about_switch(switch, now)),
        Device::Host(device) => Part::Host(host(host_report(device, now))),
        Device::Source(source) => Part::Host(host(source_report(source))),
    }
}

/// What every node that tailwater runs, every link and every worker has counted.
pub(super) fn show(topology: &Topology, handle: &LabHandle) -> Value {
    let (mut switches, mut hosts) = (Map::new(), Map::new());
    for host in &topology.hosts {
        hosts.insert(host.config.name.clone(), about_host(host));
    }
    let mut reached = Time::ZERO;
    let mut lateness = LatencyHistogram::new();
    // A worker that has just ended answers no more; what it had is in the report.
    let surveys = handle.survey(look);
    let mut books = Vec::with_capacity(surveys.len());
    for survey in surveys {
        let Some((of_worker, parts)) = survey else {
            books.push(None);
            continue;
        };
        reached = reached.max(of_worker.now);
        lateness.merge(&of_worker.lateness);
        books.push(Some(of_worker));
        for (node, part) in parts {
            let name = topology.node_name(node).to_owned();
            match part {
                Part::Switch(about) => {
                    switches.insert(name, about);
                }
                Part::Host(counters) => merge(&mut hosts[&name], counters),
            }
        }
    }
    json!({
        "name": topology.name,
        "driver": "xdp",
        "clock": describe::clock(topology),
        "duration_ns": reached.as_ns(),
        "lateness_ns": lateness.percentiles(),
        "switches": switches,
        "links": links(topology, handle, &books),
        "hosts": hosts,
    })
}

fn merge(into: &mut Value, from: Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        into.extend(from);
    }
}

fn about_switch(switch: &Switch, now: Time) -> Value {
    let mut about = serde_json::to_value(SwitchReport::of(switch, now)).unwrap_or(Value::Null);
    about["buffer_bytes"] = switch.buffer_bytes().into();
    about["mac_ageing"] = switch.config().mac_ageing.to_string().into();
    let macs = switch.mac_table_counters();
    about["mac_table"] = json!({
        "stations": switch.stations(), "learned": macs.learned, "moved": macs.moved,
        "aged": macs.aged, "flushed": macs.flushed, "not_learned": macs.not_learned,
    });
    for (number, config) in (0_u16..).map(PortId).zip(&switch.config().ports) {
        let port = &mut about["ports"][&config.name];
        port["down"] = (!switch.is_up(number)).into();
        port["queue_bytes"] = switch.queue_bytes(number).to_vec().into();
        let limit = |limit: &u64| match *limit {
            u64::MAX => "none".to_owned(),
            bytes => Bytes(bytes).to_string(),
        };
        port["queue_limit"] = config.queue_limit_bytes.iter().map(limit).collect();
    }
    about
}

fn about_host(host: &HostNode) -> Value {
    let address = |ip: String, len: u8| Value::String(format!("{ip}/{len}"));
    json!({
        "kind": match host.kind { HostKind::Agent => "agent", HostKind::Kernel => "kernel" },
        "mac": host.config.mac.to_string(),
        "ipv4": host.config.ipv4.map(|(ip, len)| address(ip.to_string(), len)),
        "ipv6": host.config.ipv6.map(|(ip, len)| address(ip.to_string(), len)),
    })
}

/// Every link with an end that tailwater runs: what both ends have counted, and what it does now.
fn links(topology: &Topology, handle: &LabHandle, books: &[Option<WorkerBooks>]) -> Value {
    let of_end = |end: &LinkEnd| -> Option<PortBooks> {
        let (worker, station) = handle.place(end.node)?;
        books.get(worker)?.as_ref()?.ports.get(station)?.get(end.port.index()).copied()
    };
    let mut all = Map::new();
    for link in &topology.links {
        let ends: Vec<PortBooks> = link.ends.iter().filter_map(of_end).collect();
        let Some(first) = ends.first() else { continue };
        let counters = ends.iter().fold(LinkCounters::default(), |sum, end| sum.plus(end.counters));
        let mut about =
            serde_json::to_value(link_report(&settled(counters))).unwrap_or(Value::Null);
        merge(&mut about, about_link(first.link));
        all.insert(link.name.clone(), about);
    }
    Value::Object(all)
}

/// The books of a link whose ends were asked one after the other: frames that arrived in between
/// were sent before that.
fn settled(counters: LinkCounters) -> LinkCounters {
    let LinkCounters { delivered, lost, lost_down, corrupted, kernel_dropped, .. } = counters;
    let went = delivered + lost + lost_down + corrupted + kernel_dropped;
    LinkCounters { sent: counters.sent.max(went), ..counters }
}

fn about_link(state: LinkState) -> Value {
    let share = |ppb: u64| Ppb(u32::try_from(ppb).unwrap_or(u32::MAX)).to_string();
    json!({
        "down": !state.up,
        "delay": state.delay.to_string(),
        "jitter": state.jitter.to_string(),
        "loss": share(state.loss_ppb),
        "corrupt": share(state.corrupt_ppb),
        "reorder": share(state.reorder_ppb),
        "reorder_by": state.reorder_by.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_that_arrived_between_two_looks_was_sent() {
        let seen = LinkCounters { sent: 9, delivered: 8, lost: 2, ..LinkCounters::default() };
        assert_eq!((settled(seen).sent, settled(seen).in_flight()), (10, 0));
        let seen = LinkCounters { sent: 12, delivered: 8, lost: 2, ..LinkCounters::default() };
        assert_eq!((settled(seen).sent, settled(seen).in_flight()), (12, 2));
    }
}
