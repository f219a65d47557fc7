use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::frame::{Frame, FrameStore};
use crate::line::{ETHERNET_OVERHEAD_BYTES, Line};
use crate::node::Transmission;
use crate::units::Rate;

const PORTS: u16 = 3;
const QUEUE_MAX: usize = 4;

/// A node that reads what to do from a frame's first byte: 0xff floods, 0xdd is malformed, 0xcc is
/// for the node, 0xee is cut to 20 bytes, anything else goes to that port.
#[derive(Debug)]
struct Hub {
    queues: Vec<VecDeque<(Time, Frame)>>,
    lines: Vec<Line>,
    held: bool,
    books: Ledger,
}

impl Hub {
    fn new() -> Self {
        Self {
            queues: (0..PORTS).map(|_| VecDeque::new()).collect(),
            lines: vec![Line::new(Rate::from_gbps(1), ETHERNET_OVERHEAD_BYTES); PORTS.into()],
            held: false,
            books: Ledger::default(),
        }
    }

    fn drop(&mut self, store: &mut TaggedStore, frame: Frame, reason: DropReason) {
        self.books.drops.count(reason);
        store.release(frame);
    }

    fn enqueue(&mut self, now: Time, store: &mut TaggedStore, port: usize, frame: Frame) {
        if self.queues[port].len() == QUEUE_MAX {
            self.drop(store, frame, DropReason::QueueLimit);
        } else {
            self.queues[port].push_back((now, frame));
        }
    }
}

impl Node<TaggedStore> for Hub {
    fn on_frame(&mut self, now: Time, store: &mut TaggedStore, port: PortId, mut frame: Frame) {
        self.books.received += 1;
        match store.head(&frame)[0] {
            0xff => {
                let out: Vec<usize> =
                    (0..PORTS.into()).filter(|out| *out != port.index()).collect();
                let (last, others) = out.split_last().expect("more than one port");
                for out in others {
                    self.books.replicated += 1;
                    match store.duplicate(&frame) {
                        Some(copy) => self.enqueue(now, store, *out, copy),
                        None => self.books.drops.count(DropReason::NoFrameForCopy),
                    }
                }
                self.enqueue(now, store, *last, frame);
            }
            0xdd => self.drop(store, frame, DropReason::Malformed),
            0xcc => {
                self.books.consumed += 1;
                store.release(frame);
            }
            0xee => {
                let len = frame.len_bytes().min(20);
                store.truncate(&mut frame, len);
                self.enqueue(now, store, 0, frame);
            }
            out => self.enqueue(now, store, usize::from(out % 3), frame),
        }
    }

    fn on_timer(&mut self, _now: Time, _store: &mut TaggedStore) {}

    fn next_ready_port(&mut self, now: Time) -> Option<PortId> {
        (0..PORTS).map(PortId).find(|port| {
            let i = port.index();
            !self.held && !self.queues[i].is_empty() && self.lines[i].busy_until() <= now
        })
    }

    fn poll_transmit(
        &mut self,
        now: Time,
        _store: &mut TaggedStore,
        port: PortId,
    ) -> Option<Transmission> {
        let (since, frame) = self.queues[port.index()].pop_front()?;
        self.books.transmitted += 1;
        let (starts, ends) = self.lines[port.index()].occupy(now, since, frame.len_bytes());
        Some(Transmission { frame, starts, ends })
    }

    fn next_deadline(&self) -> Time {
        if self.held {
            return Time::NEVER;
        }
        let waiting = self.queues.iter().zip(&self.lines).filter(|(queue, _)| !queue.is_empty());
        waiting.map(|(_, line)| line.busy_until()).min().unwrap_or(Time::NEVER)
    }

    fn on_link(&mut self, _: Time, _: &mut TaggedStore, _: PortId, _: bool) {}

    fn hold(&mut self, _: Time, _: PortId, held: bool) {
        self.held = held;
    }

    fn ledger(&self) -> Ledger {
        let waiting: u64 = self.queues.iter().map(|queue| queue.len() as u64).sum();
        Ledger { queued: self.books.queued + waiting, ..self.books }
    }

    fn drain(&mut self, store: &mut TaggedStore) {
        let left = self.ledger();
        for (_, frame) in self.queues.iter_mut().flat_map(|queue| queue.drain(..)) {
            store.release(frame);
        }
        self.books = left;
    }
}

#[derive(Debug, Default)]
struct Kept {
    sent: Vec<(Option<u64>, u16, u64, Vec<u8>)>,
    lost: Vec<(Option<u64>, Loss, Option<Vec<u8>>)>,
    verdicts: Vec<Verdict>,
}

impl Outcome for Kept {
    fn sent(&mut self, frame: &Sent<'_>) -> io::Result<()> {
        let bytes = frame.bytes.to_vec();
        self.sent.push((frame.record, frame.port.0, frame.timestamp_ns, bytes));
        Ok(())
    }

    fn lost(&mut self, frame: &Lost<'_>) -> io::Result<()> {
        self.lost.push((frame.record, frame.loss, frame.bytes.map(<[u8]>::to_vec)));
        Ok(())
    }

    fn settled(&mut self, verdict: &Verdict) -> io::Result<()> {
        self.verdicts.push(verdict.clone());
        Ok(())
    }
}

fn record(index: u64, ns: i128, bytes: Vec<u8>) -> Record {
    let len_original = u32::try_from(bytes.len()).expect("short");
    Record { index, timestamp_ns: ns, len_original, bytes, ..Record::default() }
}

fn run(
    hub: Hub,
    records: &[Record],
    ingress: Ingress,
    chunks_max: u32,
) -> (Ledger, Counts, CaptureClock, Kept) {
    let mut kept = Kept::default();
    let mut replay = Replay::new(hub, PORTS, ingress, Duration::MAX, chunks_max);
    for record in records {
        replay.record(record, &mut kept).expect("kept in memory");
    }
    let (hub, counts, clock, _) = replay.finish(&mut kept).expect("kept in memory");
    let books = Node::<TaggedStore>::ledger(&hub);
    books.check().expect("the hub's books");
    (books, counts, clock, kept)
}

fn texts(kept: &Kept) -> Vec<(u64, String)> {
    let names: Vec<String> = (0..PORTS).map(|n| n.to_string()).collect();
    let mut texts: Vec<(u64, String)> =
        kept.verdicts.iter().map(|v| (v.record, v.text(&names).to_string())).collect();
    texts.sort();
    texts
}

#[test]
fn each_record_has_its_verdict() {
    let frames = [
        vec![1; 60],
        vec![0xff; 60],
        vec![0xdd; 60],
        vec![0xcc; 60],
        vec![0xee; 60],
        vec![],
        vec![2; 9_000],
    ];
    let records: Vec<Record> = (1..)
        .zip(frames)
        .map(|(n, bytes)| record(n, 1_000_000_000 + i128::from(n) * 100_000, bytes))
        .collect();
    let (_, counts, _, kept) = run(Hub::new(), &records, Ingress::Port(PortId(0)), 100);
    let want = [
        "forwarded to 1",
        "flooded to 1 2",
        "dropped: malformed",
        "consumed",
        "forwarded to 0",
        "dropped: zero_length",
        "forwarded to 2",
    ];
    assert_eq!(texts(&kept).iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>(), want);
    assert_eq!((counts.records, counts.entered, counts.sent), (7, 6, 5));
    // Stamps are the capture's: the first frame left an idle port as it came.
    assert_eq!(kept.sent[0], (Some(1), 1, 1_000_100_000, vec![1; 60]));
    assert_eq!(kept.sent[3].3, vec![0xee; 20]);
}

#[test]
fn records_of_one_time_queue_and_the_fifth_is_dropped() {
    let records: Vec<Record> = (1..=6).map(|n| record(n, 5, vec![1; 60])).collect();
    let (_, _, _, kept) = run(Hub::new(), &records, Ingress::Port(PortId(0)), 100);
    let wire = 84 * 8;
    let stamps: Vec<u64> = kept.sent.iter().map(|(_, _, at, _)| *at).collect();
    assert_eq!(stamps, [5, 5 + wire, 5 + 2 * wire, 5 + 3 * wire]);
    assert_eq!(texts(&kept)[4].1, "dropped: queue_limit");
    assert_eq!(texts(&kept)[5].1, "dropped: queue_limit");
}

#[test]
fn a_full_store_and_a_record_without_a_port_are_named() {
    let records = [
        record(1, 0, vec![0xff; 60]),
        record(2, 0, vec![1; 60]),
        Record { interface: 7, ..record(3, 0, vec![1; 60]) },
    ];
    let (_, _, _, kept) = run(Hub::new(), &records, Ingress::Interface, 1);
    assert_eq!(
        texts(&kept).into_iter().map(|(_, text)| text).collect::<Vec<_>>(),
        [
            "flooded to 2; dropped: no_frame_for_copy",
            "dropped: store_full",
            "dropped: no_ingress_port"
        ]
    );
}

#[test]
fn what_a_held_node_keeps_is_queued_at_the_end() {
    let mut hub = Hub::new();
    Node::<TaggedStore>::hold(&mut hub, Time::ZERO, PortId(0), true);
    let records = [record(1, 0, vec![0xff; 60])];
    let (books, _, _, kept) = run(hub, &records, Ingress::Port(PortId(0)), 100);
    assert_eq!(books.queued, 2);
    assert_eq!(texts(&kept)[0].1, "queued; queued");
}

fn any_records() -> impl Strategy<Value = Vec<Record>> {
    let bytes = (
        prop::sample::select(vec![0_u8, 1, 2, 0xff, 0xff, 0xdd, 0xcc, 0xee]),
        prop::collection::vec(any::<u8>(), 0..1_600),
    )
        .prop_map(|(first, mut bytes)| {
            if let Some(byte) = bytes.first_mut() {
                *byte = first;
            }
            bytes
        });
    prop::collection::vec((-200..2_000_i128, bytes, 0..4_u32), 0..60).prop_map(|list| {
        let mut at = 0;
        (1..)
            .zip(list)
            .map(|(n, (gap, bytes, interface))| {
                at += gap;
                Record { interface, ..record(n, at, bytes) }
            })
            .collect()
    })
}

proptest! {
    /// Output plus what is listed as lost is the input, copies counted; each record is settled
    /// once; no stamp runs backwards on a port.
    #[test]
    fn every_frame_is_accounted_for(records in any_records(), chunks in 1..40_u32) {
        let (books, counts, clock, kept) =
            run(Hub::new(), &records, Ingress::Interface, chunks);
        prop_assert_eq!(counts.records, records.len() as u64);
        prop_assert_eq!(counts.entered, books.received);
        prop_assert_eq!(counts.sent, books.transmitted);
        prop_assert_eq!(kept.sent.len() as u64, books.transmitted);
        prop_assert_eq!(
            counts.lost.values().sum::<u64>(),
            books.drops.total() + books.consumed + (counts.records - counts.entered)
        );
        prop_assert_eq!(kept.verdicts.len(), records.len());
        for verdict in &kept.verdicts {
            let frames = verdict.sent.len() + verdict.lost.len();
            prop_assert_eq!(frames, 1 + verdict.copies as usize, "record {}", verdict.record);
            let of = |tag: Option<u64>| tag == Some(verdict.record);
            prop_assert_eq!(
                kept.sent.iter().filter(|(tag, ..)| of(*tag)).count(),
                verdict.sent.len()
            );
            let original = &records[usize::try_from(verdict.record).expect("few") - 1].bytes;
            for (.., bytes) in kept.sent.iter().filter(|(tag, ..)| of(*tag)) {
                prop_assert!(original.starts_with(bytes));
            }
            for (_, _, bytes) in kept.lost.iter().filter(|(tag, ..)| of(*tag)) {
                prop_assert!(bytes.as_ref().is_none_or(|bytes| original.starts_with(bytes)));
            }
        }
        let mut latest = records.first().map_or(0, |first| first.timestamp_ns);
        let mut backwards = 0;
        for record in &records {
            backwards += u64::from(record.timestamp_ns < latest);
            latest = latest.max(record.timestamp_ns);
        }
        prop_assert_eq!(clock.backwards(), backwards);
        for port in 0..PORTS {
            let stamps = kept.sent.iter().filter(|(_, out, ..)| *out == port).map(|(_, _, at, _)| at);
            prop_assert!(stamps.is_sorted());
        }
    }
}
