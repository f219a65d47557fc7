//! What pauses stop and storms make of them: the MAC control frames that a host obeys, the frames of
//! lossless classes that wait, and the pause frames that it is told to send.

use super::Host;
use crate::frame::{Frame, FrameStore};
use crate::host::storm::Storm;
use crate::ledger::DropReason;
use crate::pause::PauseCounters;
use crate::time::Time;
use crate::wire::pfc::MacControl;

impl Host {
    /// What was received of pauses until `now`.
    pub fn pause_counters(&self, now: Time) -> PauseCounters {
        self.lossless.pauses().counters(now)
    }

    pub(super) fn next_storm_at(&self) -> Time {
        self.storms.iter().map(Storm::next_planned).min().unwrap_or(Time::NEVER)
    }

    /// Ends the pauses that are over at `now`. What waited for that could not have left before.
    pub(super) fn end_pauses(&mut self, now: Time) {
        let pauses = self.lossless.pauses_mut();
        pauses.expire(now);
        self.line.not_before(pauses.resumed_at());
    }

    /// What has come for the MAC itself: a pause, or something that it does not know.
    pub(super) fn take_mac_control<S: FrameStore>(
        &mut self,
        now: Time,
        store: &mut S,
        frame: Frame,
    ) {
        let pauses = self.lossless.pauses_mut();
        match MacControl::read(store.head(&frame)) {
            Ok(MacControl::Pfc(pfc)) => pauses.on_pfc(now, pfc),
            Ok(MacControl::Pause(quanta)) => pauses.on_pause(now, quanta),
            Ok(MacControl::Other(_)) => {
                return self.drop_frame(store, frame, DropReason::Unhandled);
            }
            Err(_) => return self.drop_frame(store, frame, DropReason::Malformed),
        }
        self.end_pauses(now);
        self.ready_at = self.find_ready_at();
        self.ledger.consumed += 1;
        store.release(frame);
    }

    /// The next frame of a storm, which waits for no pause, and the time for which it was planned.
    pub(super) fn next_storm_frame<S: FrameStore>(
        &mut self,
        now: Time,
        store: &mut S,
    ) -> Option<(Time, Frame)> {
        let first = self.storms.iter_mut().min_by_key(|storm| storm.next_planned())?;
        let planned = first.next_planned();
        if planned > now {
            return None;
        }
        self.ledger.generated += 1;
        let frame = store.allocate_from(first.make_next().bytes());
        if frame.is_none() {
            self.ledger.drops.count(DropReason::NoFrameToSend);
        }
        frame.map(|frame| (planned, frame))
    }

    /// The next frame of a lossless class that may send, and when it was planned.
    pub(super) fn next_lossless_frame<S: FrameStore>(
        &mut self,
        class: u8,
        store: &mut S,
    ) -> Option<(Time, usize, Frame)> {
        let (planned, index) = self.lossless.pop(class)?;
        self.ledger.generated += 1;
        let source = &mut self.sources[index];
        let frame = source.make_next(store);
        self.lossless.push(class, source.next_planned(), index);
        if frame.is_none() {
            self.ledger.drops.count(DropReason::NoFrameToSend);
        }
        frame.map(|frame| (planned, index, frame))
    }

    /// Drops every frame of a lossless class and of a storm that is due, for the link is down.
    pub(super) fn drop_planned_lossless(&mut self, now: Time) {
        for class in 0..8 {
            while let Some((at, index)) = self.lossless.pop(class) {
                if at > now {
                    self.lossless.push(class, at, index);
                    break;
                }
                self.ledger.generated += 1;
                self.ledger.drops.count(DropReason::LinkDown);
                self.sources[index].drop_next();
                self.lossless.push(class, self.sources[index].next_planned(), index);
            }
        }
        for storm in &mut self.storms {
            while storm.next_planned() <= now && storm.next_planned() != Time::NEVER {
                self.ledger.generated += 1;
                self.ledger.drops.count(DropReason::LinkDown);
                storm.skip();
            }
        }
    }
}
