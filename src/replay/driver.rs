//! Driving a node with a capture: node time is the capture's, every record is accounted for.

use std::collections::{BTreeMap, VecDeque};
use std::io;

use super::clock::CaptureClock;
use super::ingress::Ingress;
use super::tagged::{Event, OF_NO_RECORD, TaggedStore};
use super::{Loss, Record, Verdict};
use crate::frame::FrameStore as _;
use crate::ledger::{DropReason, Ledger};
use crate::node::{Node, PortId, Transmission};
use crate::time::{Duration, Time};

/// A frame that left the node.
#[derive(Clone, Copy, Debug)]
pub struct Sent<'a> {
    /// Of this record; None when the node made it itself.
    pub record: Option<u64>,
    /// The port that the record came by.
    pub ingress: Option<PortId>,
    /// The port that the frame left by.
    pub port: PortId,
    /// When its first bit left, as a stamp.
    pub timestamp_ns: u64,
    /// How long after its record came that was.
    pub waited: Duration,
    /// Whether the node copied the record's frame.
    pub flooded: bool,
    /// The frame.
    pub bytes: &'a [u8],
    /// Bytes of the record that were not captured.
    pub missing_bytes: u32,
}

/// A frame that did not leave.
#[derive(Clone, Copy, Debug)]
pub struct Lost<'a> {
    /// Of this record; None when the node made it itself.
    pub record: Option<u64>,
    /// The port that the record came by.
    pub ingress: Option<PortId>,
    /// When it was lost, as a stamp.
    pub timestamp_ns: u64,
    /// Why.
    pub loss: Loss,
    /// The frame; None when it is a copy that could not be made.
    pub bytes: Option<&'a [u8]>,
    /// Bytes of the record that were not captured.
    pub missing_bytes: u32,
}

/// Where a replay's results go.
pub trait Outcome {
    /// A frame left the node.
    ///
    /// # Errors
    /// When it cannot be kept; the replay ends.
    fn sent(&mut self, frame: &Sent<'_>) -> io::Result<()>;

    /// A frame did not leave, and why.
    ///
    /// # Errors
    /// As [`sent`](Self::sent).
    fn lost(&mut self, frame: &Lost<'_>) -> io::Result<()>;

    /// A record is settled: nothing of it is in the node any more. In the order in which records
    /// are settled.
    ///
    /// # Errors
    /// As [`sent`](Self::sent).
    fn settled(&mut self, verdict: &Verdict) -> io::Result<()>;
}

/// What a replay counted, in records and frames.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records fed.
    pub records: u64,
    /// Of those, handed to the node.
    pub entered: u64,
    /// Frames that left, copies included.
    pub sent: u64,
    /// Frames that did not, by name.
    pub lost: BTreeMap<&'static str, u64>,
}

struct Open {
    verdict: Verdict,
    /// Frames of the record that the node holds.
    held: u32,
}

/// A node fed with a capture.
pub struct Replay<N> {
    node: N,
    ports: u16,
    ingress: Ingress,
    clock: CaptureClock,
    store: TaggedStore,
    now: Time,
    /// Frames were handed in at `now`, and the node has not been served since.
    unserved: bool,
    books: Ledger,
    open: BTreeMap<u64, Open>,
    counts: Counts,
    events: Vec<Event>,
    bytes: Vec<u8>,
}

impl<N: std::fmt::Debug> std::fmt::Debug for Replay<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replay")
            .field("node", &self.node)
            .field("now", &self.now)
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}

impl<N: Node<TaggedStore>> Replay<N> {
    /// A replay into `node`, which has `ports` ports, of records no more than `gap_max` apart, with
    /// a store of at most `chunks_max` chunks of
    /// [`SLAB_CHUNK_BYTES`](crate::frame::slab::SLAB_CHUNK_BYTES).
    pub fn new(node: N, ports: u16, ingress: Ingress, gap_max: Duration, chunks_max: u32) -> Self {
        let books = node.ledger();
        Self {
            node,
            ports,
            ingress,
            clock: CaptureClock::new(gap_max),
            store: TaggedStore::new(chunks_max),
            now: Time::ZERO,
            unserved: false,
            books,
            open: BTreeMap::new(),
            counts: Counts::default(),
            events: Vec::new(),
            bytes: Vec::new(),
        }
    }

    /// Hands the node an Ethernet record at its time, after everything that is due before it.
    /// Records of one time enter in the order of the capture, before the node is served.
    ///
    /// # Errors
    /// Those of `outcome`.
    pub fn record(&mut self, record: &Record, outcome: &mut impl Outcome) -> io::Result<()> {
        let at = self.clock.place(record.timestamp_ns);
        if at > self.now {
            self.advance(at, outcome)?;
        }
        self.counts.records += 1;
        let ingress = self.ingress.choose(record, self.ports);
        let captured = u32::try_from(record.bytes.len()).unwrap_or(u32::MAX);
        let mut verdict = Verdict {
            record: record.index,
            at,
            ingress,
            captured_bytes: captured,
            missing_bytes: record.len_original.saturating_sub(captured),
            copies: 0,
            sent: Vec::new(),
            lost: Vec::new(),
        };
        let entered = if record.bytes.is_empty() {
            Err(Loss::ZeroLength)
        } else {
            ingress.ok_or(Loss::NoIngressPort).and_then(|port| {
                let frame = self.store.insert(&record.bytes, record.index);
                frame.map(|frame| (port, frame)).ok_or(Loss::StoreFull)
            })
        };
        match entered {
            Ok((port, frame)) => {
                self.counts.entered += 1;
                self.open.insert(record.index, Open { verdict, held: 1 });
                self.node.on_frame(at, &mut self.store, port, frame);
                self.unserved = true;
                self.settle(record.index, outcome)
            }
            Err(loss) => {
                *self.counts.lost.entry(loss.name()).or_default() += 1;
                outcome.lost(&Lost {
                    record: Some(record.index),
                    ingress,
                    timestamp_ns: self.clock.stamp_ns(at),
                    loss,
                    bytes: Some(&record.bytes),
                    missing_bytes: verdict.missing_bytes,
                })?;
                verdict.lost.push(loss);
                outcome.settled(&verdict)
            }
        }
    }

    /// Serves the node until its queues are empty, and takes back what it cannot send. Gives the
    /// node, what was counted and the clock.
    ///
    /// # Errors
    /// Those of `outcome`.
    pub fn finish(
        mut self,
        outcome: &mut impl Outcome,
    ) -> io::Result<(N, Counts, CaptureClock, Time)> {
        self.serve_now(outcome)?;
        while !self.node.is_quiet() {
            let at = self.node.next_deadline();
            if at == Time::NEVER {
                break;
            }
            self.now = self.now.max(at);
            self.serve(outcome)?;
        }
        self.node.drain(&mut self.store);
        self.settle_as(OF_NO_RECORD, Some(Loss::Queued), outcome)?;
        debug_assert_eq!(self.store.outstanding(), 0, "the node has given every frame back");
        debug_assert!(self.open.is_empty(), "every record is settled");
        Ok((self.node, self.counts, self.clock, self.now))
    }

    /// The node.
    pub const fn node(&self) -> &N {
        &self.node
    }

    fn advance(&mut self, until: Time, outcome: &mut impl Outcome) -> io::Result<()> {
        self.serve_now(outcome)?;
        loop {
            let at = self.node.next_deadline();
            if at >= until {
                break;
            }
            self.now = self.now.max(at);
            self.serve(outcome)?;
        }
        self.now = until;
        Ok(())
    }

    fn serve_now(&mut self, outcome: &mut impl Outcome) -> io::Result<()> {
        if self.unserved { self.serve(outcome) } else { Ok(()) }
    }

    /// Runs the node's timer and takes its transmissions at `now`.
    fn serve(&mut self, outcome: &mut impl Outcome) -> io::Result<()> {
        self.unserved = false;
        if self.node.next_deadline() <= self.now {
            self.node.on_timer(self.now, &mut self.store);
            self.settle(OF_NO_RECORD, outcome)?;
        }
        while let Some(port) = self.node.next_ready_port(self.now) {
            let sent = self.node.poll_transmit(self.now, &mut self.store, port);
            self.settle(OF_NO_RECORD, outcome)?;
            if let Some(sent) = sent {
                self.take_out(port, sent, outcome)?;
            }
        }
        Ok(())
    }

    fn take_out(
        &mut self,
        port: PortId,
        sent: Transmission,
        outcome: &mut impl Outcome,
    ) -> io::Result<()> {
        let tag = self.store.take(sent.frame, &mut self.bytes);
        self.counts.sent += 1;
        let open = self.open.get_mut(&tag);
        let verdict = open.as_ref().map(|open| &open.verdict);
        outcome.sent(&Sent {
            record: verdict.map(|verdict| verdict.record),
            ingress: verdict.and_then(|verdict| verdict.ingress),
            port,
            timestamp_ns: self.clock.stamp_ns(sent.starts),
            waited: verdict.map_or(Duration::ZERO, |verdict| sent.starts.since(verdict.at)),
            flooded: verdict.is_some_and(|verdict| verdict.copies > 0),
            bytes: &self.bytes,
            missing_bytes: verdict.map_or(0, |verdict| verdict.missing_bytes),
        })?;
        if let Some(open) = open {
            open.held -= 1;
            open.verdict.sent.push(port);
        }
        self.close(tag, outcome)
    }

    fn settle(&mut self, current: u64, outcome: &mut impl Outcome) -> io::Result<()> {
        self.settle_as(current, None, outcome)
    }

    /// Matches what the node did to frames in its last call with what moved in its books. A frame
    /// that it gave back was dropped for a reason whose counter moved, or else consumed; a counter
    /// that moved without a frame is a copy of `current` that could not be made. In a call in which
    /// frames of several records were dropped for several reasons, reasons are given to them in
    /// the order of [`DropReason`].
    fn settle_as(
        &mut self,
        current: u64,
        rest: Option<Loss>,
        outcome: &mut impl Outcome,
    ) -> io::Result<()> {
        let books = self.node.ledger();
        let mut reasons: VecDeque<Loss> = VecDeque::new();
        if books.drops != self.books.drops {
            for reason in DropReason::ALL {
                let moved = books.drops.of(reason) - self.books.drops.of(reason);
                reasons.extend((0..moved).map(|_| Loss::Dropped(reason)));
            }
            // Copies that were never made come last: no frame is given back for them.
            reasons
                .make_contiguous()
                .sort_by_key(|loss| matches!(loss, Loss::Dropped(DropReason::NoFrameForCopy)));
        }
        self.books = books;
        let mut events = std::mem::take(&mut self.events);
        let mut bytes = std::mem::take(&mut self.bytes);
        self.store.take_events(&mut events, &mut bytes);
        let mut at = 0;
        for event in &events {
            match *event {
                Event::Copied { tag } => {
                    if let Some(open) = self.open.get_mut(&tag) {
                        open.held += 1;
                        open.verdict.copies += 1;
                    }
                }
                Event::Released { tag, len } => {
                    let loss = rest.or_else(|| reasons.pop_front()).unwrap_or(Loss::Consumed);
                    let frame = Some(&bytes[at..at + len]);
                    at += len;
                    if let Some(open) = self.open.get_mut(&tag) {
                        open.held -= 1;
                    }
                    self.lose(tag, loss, frame, outcome)?;
                }
            }
        }
        for loss in reasons {
            if let Some(open) = self.open.get_mut(&current) {
                open.verdict.copies += 1;
            }
            self.lose(current, loss, None, outcome)?;
        }
        // A record is settled when the node holds nothing of it, once all that was done is known.
        for event in &events {
            if let Event::Released { tag, .. } = *event {
                self.close(tag, outcome)?;
            }
        }
        self.events = events;
        self.bytes = bytes;
        Ok(())
    }

    fn lose(
        &mut self,
        tag: u64,
        loss: Loss,
        bytes: Option<&[u8]>,
        outcome: &mut impl Outcome,
    ) -> io::Result<()> {
        *self.counts.lost.entry(loss.name()).or_default() += 1;
        let open = self.open.get_mut(&tag);
        outcome.lost(&Lost {
            record: open.is_some().then_some(tag),
            ingress: open.as_ref().and_then(|open| open.verdict.ingress),
            timestamp_ns: self.clock.stamp_ns(self.now),
            loss,
            bytes,
            missing_bytes: open.as_ref().map_or(0, |open| open.verdict.missing_bytes),
        })?;
        if let Some(open) = open {
            open.verdict.lost.push(loss);
        }
        Ok(())
    }

    fn close(&mut self, tag: u64, outcome: &mut impl Outcome) -> io::Result<()> {
        if self.open.get(&tag).is_some_and(|open| open.held == 0)
            && let Some(open) = self.open.remove(&tag)
        {
            outcome.settled(&open.verdict)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
