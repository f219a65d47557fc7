//! A host that does nothing but send a capture: a node of a lab, in any clock.

use crate::catch_up::CatchUp;
use crate::frame::{Frame, FrameStore};
use crate::host::HostConfig;
use crate::ledger::{DropReason, Ledger};
use crate::line::Line;
use crate::node::{Node, PortId, Transmission};
use crate::time::Time;

use super::preload::Preloaded;
use super::{Pacer, Speed};

const PORT: PortId = PortId(0);
const ETHERNET_BYTES: u32 = 14;
const VLAN_TAG_BYTES: u32 = 4;

/// What a source has done with the records of its capture, over all loops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct SourceCounts {
    /// Records to send; those without a byte included.
    pub records: u64,
    /// Put on the line.
    pub sent: u64,
    /// Not sent, under the names in the host's drops.
    pub dropped: u64,
    /// Not yet due, or waiting for the line, when the run ended.
    pub unsent: u64,
}

/// Sends a capture's frames at planned times through a host's line. Frames that come are taken and
/// not answered. After a late driver the capture runs at twice its speed until it is on its plan
/// again, see [`CatchUp`].
#[derive(Debug)]
pub struct ReplaySource {
    name: String,
    capture: Preloaded,
    pacer: Pacer,
    loops: u64,
    loops_begun: u64,
    /// The record that is next, and when it is to be sent.
    next: Option<(Time, usize)>,
    line: Line,
    /// The line as it would be if the driver had never been late.
    ideal: Line,
    catch_up: CatchUp,
    mtu_bytes: u32,
    link_up: bool,
    held: bool,
    ledger: Ledger,
}

impl ReplaySource {
    /// Sends `capture` `loops` times at `speed`, on the line of the host that `config` describes.
    ///
    /// # Panics
    /// When the line's rate is zero, which no topology has.
    pub fn new(config: &HostConfig, capture: Preloaded, speed: Speed, loops: u64) -> Self {
        let line = Line::new(config.rate, config.overhead_bytes);
        let mut source = Self {
            name: config.name.clone(),
            capture,
            pacer: Pacer::new(speed),
            loops,
            loops_begun: 0,
            next: None,
            ideal: line.clone(),
            line,
            catch_up: CatchUp::default(),
            mtu_bytes: config.mtu_bytes,
            link_up: true,
            held: false,
            ledger: Ledger::default(),
        };
        source.begin_loop();
        source
    }

    /// The host's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What has become of the records.
    pub fn counts(&self) -> SourceCounts {
        let each = self.capture.len() as u64 + self.capture.zero_length();
        let records = each.saturating_mul(self.loops);
        let in_loop = self.next.map_or(0, |(_, index)| (self.capture.len() - index) as u64);
        let unsent = each.saturating_mul(self.loops - self.loops_begun).saturating_add(in_loop);
        let (sent, dropped) = (self.ledger.transmitted, self.ledger.drops.total());
        SourceCounts { records, sent, dropped, unsent }
    }

    fn begin_loop(&mut self) {
        self.next = None;
        while self.next.is_none() && self.loops_begun < self.loops {
            if self.loops_begun > 0 {
                self.pacer.next_loop();
            }
            self.loops_begun += 1;
            // A record without a byte is the shortest runt of all.
            for _ in 0..self.capture.zero_length() {
                self.drop_record(DropReason::Runt);
            }
            self.plan(0);
        }
    }

    fn plan(&mut self, index: usize) {
        let record = self.capture.get(index);
        self.next = record.map(|(at, bytes)| {
            let wire_bytes = self.line.wire_bytes(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
            (self.pacer.plan(at, wire_bytes), index)
        });
    }

    /// The record that was next is dealt with.
    fn advance(&mut self) {
        if let Some((_, index)) = self.next {
            self.plan(index + 1);
            if self.next.is_none() {
                self.begin_loop();
            }
        }
    }

    fn drop_record(&mut self, reason: DropReason) {
        self.ledger.generated += 1;
        self.ledger.drops.count(reason);
    }

    /// What was due while the link was down was lost with it.
    fn drop_due(&mut self, now: Time) {
        while self.next.is_some_and(|(planned, _)| planned <= now) {
            self.drop_record(DropReason::LinkDown);
            self.advance();
        }
    }

    /// When a record that is planned for `planned` may leave, for all that the line says.
    fn due_at(&self, planned: Time) -> Time {
        planned.max(self.catch_up.not_before(self.ideal.busy_until().max(planned)))
    }

    /// When the next record can start; [`Time::NEVER`] after the last.
    fn ready_at(&self) -> Time {
        let due = self.next.map_or(Time::NEVER, |(planned, _)| self.due_at(planned));
        due.max(self.line.busy_until())
    }

    /// Why no interface would take these bytes.
    fn refusal(&self, bytes: &[u8]) -> Option<DropReason> {
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let tag = match bytes.get(12..14) {
            Some([0x81, 0x00] | [0x88, 0xa8]) => VLAN_TAG_BYTES,
            Some(_) => 0,
            None => return Some(DropReason::Runt),
        };
        (len > self.mtu_bytes + ETHERNET_BYTES + tag).then_some(DropReason::Oversize)
    }
}

impl<S: FrameStore> Node<S> for ReplaySource {
    fn on_frame(&mut self, _now: Time, store: &mut S, _port: PortId, frame: Frame) {
        self.ledger.received += 1;
        self.ledger.consumed += 1;
        store.release(frame);
    }

    fn on_timer(&mut self, now: Time, _store: &mut S) {
        if !self.link_up {
            self.drop_due(now);
        }
    }

    fn next_ready_port(&mut self, now: Time) -> Option<PortId> {
        (self.link_up && !self.held && self.ready_at() <= now).then_some(PORT)
    }

    fn poll_transmit(&mut self, now: Time, store: &mut S, _port: PortId) -> Option<Transmission> {
        if !self.link_up || self.held {
            return None;
        }
        while self.ready_at() <= now {
            let (planned, index) = self.next?;
            let (_, bytes) = self.capture.get(index)?;
            let refused = self.refusal(bytes);
            let frame = if refused.is_none() { store.allocate_from(bytes) } else { None };
            let Some(frame) = frame else {
                self.drop_record(refused.unwrap_or(DropReason::NoFrameToSend));
                self.advance();
                continue;
            };
            let due = self.due_at(planned);
            let ideal = self.ideal.busy_until().max(planned);
            self.ideal.occupy(ideal, planned, frame.len_bytes());
            self.catch_up.sent(now, planned, self.line.busy_until(), ideal);
            let (starts, ends) = self.line.occupy(now, due, frame.len_bytes());
            self.ledger.generated += 1;
            self.ledger.transmitted += 1;
            self.advance();
            return Some(Transmission { frame, starts, ends });
        }
        None
    }

    fn next_deadline(&self) -> Time {
        match (self.link_up, self.held) {
            (false, _) => self.next.map_or(Time::NEVER, |(planned, _)| planned),
            (true, true) => Time::NEVER,
            (true, false) => self.ready_at(),
        }
    }

    fn on_link(&mut self, now: Time, _store: &mut S, _port: PortId, up: bool) {
        if up == self.link_up {
            return;
        }
        // What is due was for the time before: waiting on the way down, lost on the way up.
        self.drop_due(now);
        self.ideal = self.line.clone();
        self.catch_up.reset();
        self.link_up = up;
    }

    fn hold(&mut self, _now: Time, _port: PortId, held: bool) {
        self.held = held;
    }

    fn ledger(&self) -> Ledger {
        self.ledger
    }

    fn is_quiet(&self) -> bool {
        self.next.is_none()
    }

    fn drain(&mut self, _store: &mut S) {
        // Records become frames as they leave: none is queued.
    }
}
