//! A switch's state as its part of a report.

use std::collections::BTreeMap;

use super::node::{BooksReport, DropsReport, GroupReport, PortReport, SwitchReport};
use crate::frame::SlabStore;
use crate::node::{Node, PortId};
use crate::switch::Switch;
use crate::switch::balance::Group;
use crate::time::{Duration, Time};

impl SwitchReport {
    /// What a switch shows at `now`.
    pub fn of(switch: &Switch, now: Time) -> Self {
        // The books are the same over every store; one must be named to ask for them.
        let ledger = Node::<SlabStore>::ledger(switch);
        let ports = (0_u16..).zip(&switch.config().ports).map(|(index, config)| {
            let port = PortId(index);
            let counters = switch.port_counters(port);
            let groups =
                [0, 1, 2, 3, 4, 5, 6, 7].map(|priority| switch.memory().group(port, priority));
            let flow = switch.flow_counters(now, port);
            let report = PortReport {
                rx_frames: counters.rx_frames,
                rx_bytes: counters.rx_bytes,
                tx_frames: counters.tx_frames,
                tx_bytes: counters.tx_bytes,
                ecn_marked: counters.ecn_marked,
                tx_xoff: flow.pfc.tx_xoff,
                tx_xon: flow.pfc.tx_xon,
                rx_xoff: flow.pauses.rx_xoff,
                rx_xon: flow.pauses.rx_xon,
                rx_pause_ns: flow.pauses.rx_pause.map(Duration::as_ns),
                rx_global_xoff: flow.pauses.rx_global_xoff,
                rx_global_xon: flow.pauses.rx_global_xon,
                storms_detected: flow.storms_detected,
                storms_restored: flow.storms_restored,
                pfc_no_frame: flow.pfc_no_frame,
                drops: DropsReport::from(&counters.drops),
                queue_bytes_max: counters.queue_bytes_max,
                trimmed: counters.trim_tx + counters.trim_drop,
                trim_tx: counters.trim_tx,
                trim_drop: counters.trim_drop,
                ingress_bytes_max: groups.map(|group| group.bytes_max),
                headroom_bytes_max: groups.map(|group| group.headroom_bytes_max),
                credit_expired_ns: switch.credit_expired(port).as_ns(),
            };
            (config.name.clone(), report)
        });
        let groups = switch.config().groups.iter().enumerate().filter_map(|(index, config)| {
            Some((config.name.clone(), group_report(switch, switch.group(index)?)))
        });
        let routes = (1..).zip(switch.route_groups());
        let routes = routes.map(|(n, group)| (format!("routes{n}"), group_report(switch, group)));
        Self {
            books: BooksReport::from(&ledger),
            buffer_bytes_max: switch.buffer_bytes_max(),
            shared_bytes: switch.memory().shared_bytes(),
            headroom_bytes_max: switch.memory().headroom_bytes_max(),
            ports: ports.collect(),
            groups: groups.chain(routes).collect(),
        }
    }
}

fn group_report(switch: &Switch, group: &Group) -> GroupReport {
    let members = group.members();
    let mut bytes = BTreeMap::new();
    for member in members.ids() {
        let port = &switch.config().ports[members.port(member).index()];
        // Next hops may share a port.
        *bytes.entry(port.name.clone()).or_default() += members.bytes(member);
    }
    GroupReport { bytes, imbalance_permille: group.imbalance().max_over_mean_permille() }
}
