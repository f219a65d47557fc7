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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::report::SwitchReport;
    use crate::node::PortId;
    use crate::replay::{CaptureWriter, Direction, Lost, Sent, Verdict};
    use crate::switch::Switch;
    use crate::time::Duration;

    #[derive(Debug, Default)]
    struct Kept {
        sent: Vec<Vec<u8>>,
        verdicts: Vec<String>,
    }

    impl Outcome for Kept {
        fn sent(&mut self, frame: &Sent<'_>) -> io::Result<()> {
            self.sent.push(frame.bytes.to_vec());
            Ok(())
        }
        fn lost(&mut self, _: &Lost<'_>) -> io::Result<()> {
            Ok(())
        }
        fn settled(&mut self, verdict: &Verdict) -> io::Result<()> {
            let names: Vec<String> = (1..=3).map(|n| n.to_string()).collect();
            self.verdicts.push(verdict.text(&names).to_string());
            Ok(())
        }
    }

    fn through(capture: &[u8], ports: u16, ingress: Ingress) -> (Kept, Option<String>) {
        let config = stand_in(ports, &ingress);
        let chunks = chunks_for(&config);
        let switch = Switch::new(config).expect("the stand-in is valid");
        let replay = Replay::new(switch, ports, ingress, Duration::MAX, chunks);
        let mut reader = CaptureReader::new(capture).expect("a capture");
        let mut kept = Kept::default();
        let finished = run(replay, &mut reader, || false, &mut kept).expect("kept in memory");
        let mut report = finished.report("test", "memory", 1);
        let switch = SwitchReport::of(&finished.node, finished.ended);
        report.switches.insert("s".to_owned(), switch);
        assert!(report.check_conservation() && report.all_held(), "{report:?}");
        (kept, finished.stopped.map(|stopped| stopped.to_string()))
    }

    fn capture(frames: &[&[u8]]) -> Vec<u8> {
        let mut writer = CaptureWriter::new(Vec::new(), ["eth0"]).expect("memory");
        for (n, frame) in (1..).zip(frames) {
            let at = Time::from_ns(n * 1_000_000);
            writer.write(0, at, Direction::Inbound, frame, None).expect("memory");
        }
        writer.finish().expect("memory")
    }

    fn frame(destination: u8, source: u8, rest: &[u8]) -> Vec<u8> {
        let mut bytes = vec![2, 0, 0, 0, 9, destination, 2, 0, 0, 0, 9, source];
        bytes.extend_from_slice(rest);
        bytes.resize(bytes.len().max(60), 0);
        bytes
    }

    /// tcpreplay stopped at a record of 92,442 bytes.
    #[test]
    fn a_giant_record_is_counted_and_the_rest_goes_on() {
        let good = frame(1, 2, &[8, 0]);
        let giant = frame(1, 2, &vec![0; 92_430]);
        let (kept, stopped) =
            through(&capture(&[&good, &giant, &good]), 2, Ingress::Port(PortId(0)));
        assert_eq!(kept.verdicts, ["forwarded to 2", "dropped: oversize", "forwarded to 2"]);
        assert_eq!(stopped, None);
    }

    /// A generator lost one of two tags when the service and the customer VLAN had one number.
    #[test]
    fn two_tags_of_one_vlan_are_both_kept() {
        let tagged = frame(1, 2, &[0x88, 0xa8, 0, 100, 0x81, 0, 0, 100, 8, 0, 1, 2, 3]);
        let (kept, _) = through(&capture(&[&tagged]), 2, Ingress::Port(PortId(0)));
        assert_eq!(kept.sent, [tagged]);
    }

    #[test]
    fn by_one_port_both_ways_of_a_conversation_leave_by_the_other() {
        let (there, back) = (frame(1, 2, &[8, 0]), frame(2, 1, &[8, 0]));
        let frames = capture(&[&there, &back, &there]);
        let (kept, _) = through(&frames, 2, Ingress::Port(PortId(0)));
        assert_eq!(kept.verdicts, ["forwarded to 2"; 3]);
        let (kept, _) = through(&frames, 3, Ingress::RoundRobin { next: 0 });
        assert_eq!(kept.verdicts, ["flooded to 2 3", "forwarded to 1", "forwarded to 2"]);
    }

    /// Cooked captures are refused, not sent as if they were Ethernet.
    #[test]
    fn another_link_type_is_refused_with_its_record() {
        let good = frame(1, 2, &[8, 0]);
        let mut bytes = capture(&[&good]);
        // A second interface of link type 276, and a packet of it.
        bytes.extend([1, 0, 0, 0, 20, 0, 0, 0, 20, 1, 0, 0, 0, 0, 0, 0, 20, 0, 0, 0]);
        bytes.extend([6, 0, 0, 0, 36, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend([4, 0, 0, 0, 4, 0, 0, 0, 1, 2, 3, 4, 36, 0, 0, 0]);
        let (kept, stopped) = through(&bytes, 2, Ingress::Port(PortId(0)));
        assert_eq!(kept.verdicts, ["forwarded to 2"]);
        assert_eq!(
            stopped.as_deref(),
            Some(
                "record 2: its link type is 276 (LINUX_SLL2), and only 1 (ETHERNET) goes through a switch"
            )
        );
    }
}
