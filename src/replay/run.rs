//! A whole capture through a switch: the switch that stands in when none is given, the loop over
//! the records, and what the report says of it.

use std::io::{self, Read};

use serde_json::{Value, json};

use super::TaggedStore;
use super::capture::Tolerated;
use super::driver::Counts;
use super::{
    CaptureClock, CaptureError, CaptureReader, Ingress, LinkType, Outcome, Record, Replay,
};
use crate::frame::slab::SLAB_CHUNK_BYTES;
use crate::measure::report::{Clock, Driver, Report};
use crate::node::{Node, PortId};
use crate::switch::{PortConfig, StaticMac, SwitchConfig, VlanMode};
use crate::time::Time;
use crate::units::Rate;
use crate::wire::MacAddr;

/// MTU of the stand-in switch: captures hold jumbo frames.
const MTU_BYTES: u32 = 9_000;
/// The VLAN of untagged frames in the stand-in switch: the last, so that tags of the usual ones
/// pass unchanged.
const NATIVE_VLAN: u16 = 4_094;

/// The switch for a capture that comes without one: ports `1` to `N` of 100 Gb/s with an MTU of
/// 9,000 that pass every VLAN with its tags as they are (VLAN 4094 and priority tags excepted,
/// which are those of untagged frames).
///
/// When all records come by one port it learns nothing, so that both ways of a conversation leave
/// by the other ports: every frame that a bridge forwards does. Otherwise it learns.
pub fn stand_in(ports: u16, ingress: &Ingress) -> SwitchConfig {
    let ports: Vec<PortConfig> = (0..ports).map(stand_in_port).collect();
    let last = ports.last().map(|port| port.mac);
    let mut config = SwitchConfig::new("replay", ports);
    if let (Ingress::Port(_), Some(mac), Some(port)) =
        (ingress, last, config.ports.len().checked_sub(1).and_then(|n| u16::try_from(n).ok()))
    {
        // A table that this one entry fills.
        config.mac_table_entries = 1;
        config.static_macs = vec![StaticMac { mac, vlan: NATIVE_VLAN, port: PortId(port) }];
    }
    config
}

fn stand_in_port(index: u16) -> PortConfig {
    let [high, low] = (index + 1).to_be_bytes();
    let mac = MacAddr([2, 0, 0, 0, high, low]);
    PortConfig {
        mtu_bytes: MTU_BYTES,
        vlan: VlanMode::Trunk { allowed: (1..NATIVE_VLAN).collect(), native: Some(NATIVE_VLAN) },
        ..PortConfig::new(&(index + 1).to_string(), mac, Rate::from_gbps(100))
    }
}

/// Chunks that a store needs to hold whatever `config` may queue, and one record more.
pub fn chunks_for(config: &SwitchConfig) -> u32 {
    let cells = config.buffer_bytes / u64::from(config.cell_bytes.max(1));
    let full = config.buffer_bytes / SLAB_CHUNK_BYTES as u64;
    u32::try_from(cells + full + 2_048).unwrap_or(u32::MAX)
}

/// Why a capture was not read to its end.
#[derive(Debug, thiserror::Error)]
pub enum Stopped {
    /// It is damaged, or the source failed.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// A record that is not Ethernet: it is not converted, and never sent as if it were.
    #[error(
        "record {record}: its link type is {link_type}, and only {} goes through a switch",
        LinkType::ETHERNET
    )]
    LinkType {
        /// The record.
        record: u64,
        /// Its kind.
        link_type: LinkType,
    },
    /// The user asked for it.
    #[error("interrupted after record {0}")]
    Interrupted(u64),
}

/// Reads records as long as they are good Ethernet, handing each to `take`.
///
/// # Errors
/// Those of `take`. What is wrong with the capture is in the result: None at its end.
pub fn each_record<R: Read>(
    reader: &mut CaptureReader<R>,
    mut interrupted: impl FnMut() -> bool,
    mut take: impl FnMut(&Record) -> io::Result<()>,
) -> io::Result<Option<Stopped>> {
    let mut record = Record::default();
    loop {
        if interrupted() {
            return Ok(Some(Stopped::Interrupted(reader.records())));
        }
        match reader.read(&mut record) {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            // A source that a signal ended fails.
            Err(CaptureError::Io { .. }) if interrupted() => {
                return Ok(Some(Stopped::Interrupted(reader.records())));
            }
            Err(error) => return Ok(Some(error.into())),
        }
        let link_type = reader.interface(record.interface).map(|interface| interface.link_type);
        if let Some(link_type) = link_type.filter(|kind| *kind != LinkType::ETHERNET) {
            return Ok(Some(Stopped::LinkType { record: record.index, link_type }));
        }
        take(&record)?;
    }
}

/// What a replay ended with.
#[derive(Debug)]
pub struct Finished<N> {
    /// The node, drained.
    pub node: N,
    /// Records and frames.
    pub counts: Counts,
    /// What the clock clamped and bounded.
    pub clock: CaptureClock,
    /// The node time of the last event.
    pub ended: Time,
    /// What the reader tolerated.
    pub tolerated: Tolerated,
    /// Why the capture was not read to its end.
    pub stopped: Option<Stopped>,
}

/// Drives `replay` with a whole capture.
///
/// # Errors
/// Those of `outcome`. What is wrong with the capture is in the result.
pub fn run<N: Node<TaggedStore>, R: Read>(
    mut replay: Replay<N>,
    reader: &mut CaptureReader<R>,
    interrupted: impl FnMut() -> bool,
    outcome: &mut impl Outcome,
) -> io::Result<Finished<N>> {
    let stopped = each_record(reader, interrupted, |record| replay.record(record, outcome))?;
    let (node, counts, clock, ended) = replay.finish(outcome)?;
    Ok(Finished { node, counts, clock, ended, tolerated: *reader.tolerated(), stopped })
}

impl<N: Node<TaggedStore>> Finished<N> {
    /// The report's frame: driver, clock, time, conservation of records, and the part `replay`.
    /// The caller adds the node and the wall time.
    pub fn report(&self, name: &str, capture: &str, seed: u64) -> Report {
        let mut report = Report::new(name, Driver::Replay, Clock::Virtual, seed);
        report.duration_ns = self.ended.as_ns();
        report.interrupted = matches!(self.stopped, Some(Stopped::Interrupted(_)));
        let books = self.node.ledger();
        let counts = &self.counts;
        let never_entered: u64 = ["zero_length", "no_ingress_port", "store_full"]
            .iter()
            .filter_map(|name| counts.lost.get(name))
            .sum();
        let lost: u64 = counts.lost.values().sum();
        report.set_invariant(
            "records_accounted_for",
            counts.records == counts.entered + never_entered
                && counts.entered == books.received
                && counts.sent == books.transmitted
                && lost - never_entered == books.drops.total() + books.consumed + books.queued,
        );
        let tolerated = self.tolerated.items().map(|(what, oddity)| (what, oddity.count));
        let tolerated: Value = tolerated
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(what, count)| (what.to_owned(), Value::from(count)))
            .collect::<serde_json::Map<_, _>>()
            .into();
        report.extra.insert(
            "replay".to_owned(),
            json!({
                "capture": capture,
                "records": counts.records,
                "entered": counts.entered,
                "frames_sent": counts.sent,
                "frames_lost": counts.lost,
                "time_backwards": self.clock.backwards(),
                "gaps_bounded": self.clock.bounded(),
                "tolerated": tolerated,
                "stopped": self.stopped.as_ref().map(ToString::to_string),
            }),
        );
        report
    }
}
