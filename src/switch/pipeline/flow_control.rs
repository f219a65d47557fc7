//! Pauses, heard and asked for, and what the watchdog does about them.
//!
//! A pause closes its queues. What the memory wants paused opens an eighth queue of the port, before
//! all others: [`CONTROL`], which has no frames but the one that is made when the wire is free.

use super::{Switch, port_mut};
use crate::frame::{FrameStore, ParkedFrame};
use crate::ledger::DropReason;
use crate::node::{PortId, Transmission};
use crate::switch::flow::FlowCounters;
use crate::switch::port::CONTROL;
use crate::switch::watchdog::Treatment;
use crate::time::{Duration, Time};
use crate::wire::pfc::{FRAME_BYTES, MacControl};

/// When no frame of the store was free for a pause, another try is made after this.
const RETRY: Duration = Duration::from_us(1);

/// A queue that has frames and that a pause stops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoppedQueue {
    /// The queue.
    pub queue: u8,
    /// Since when its first frame waits.
    pub first_since: Time,
    /// The port by which frames of it came and their priority there, each pair once.
    pub origins: Vec<(PortId, u8)>,
}

impl Switch {
    /// What the pauses and the watchdog of a port have come to until `now`.
    ///
    /// # Panics
    /// When there is no such port.
    pub fn flow_counters(&self, now: Time, port: PortId) -> FlowCounters {
        self.flow.counters(now, port.index())
    }

    /// A frame for the MAC itself, which ends here: a pause, or something that it does not know.
    #[cold]
    #[inline(never)]
    pub(super) fn take_mac_control<S: FrameStore>(
        &mut self,
        now: Time,
        store: &mut S,
        port: PortId,
        frame: ParkedFrame,
    ) {
        port_mut(&mut self.ports, port).counters.received(frame.len_bytes());
        let pauses = &mut self.flow.port(port.index()).pauses;
        match MacControl::read(store.head(&frame)) {
            Ok(MacControl::Pfc(pfc)) => pauses.on_pfc(now, pfc),
            Ok(MacControl::Pause(quanta)) => pauses.on_pause(now, quanta),
            Ok(MacControl::Other(_)) => {
                return self.discard(store, port, DropReason::Unhandled, frame);
            }
            Err(_) => return self.discard(store, port, DropReason::Malformed, frame),
        }
        self.consumed += 1;
        store.release(frame.into_frame());
        self.follow_pauses(now, port);
    }

    /// Closes and opens a port's queues as its pauses have it.
    fn follow_pauses(&mut self, now: Time, port: PortId) {
        let stopped = self.flow.stopped_queues(port.index());
        let resumed_at = self.flow.port(port.index()).pauses.resumed_at();
        self.flow.note_deadline(port.index());
        self.note_timers();
        let state = port_mut(&mut self.ports, port);
        // What waited could not have left before.
        state.line.not_before(resumed_at);
        if state.set_paused(stopped) {
            self.restart(now, port);
        }
    }

    /// Tells the ports what the memory wants paused.
    #[cold]
    #[inline(never)]
    pub(super) fn take_signals<S: FrameStore>(&mut self, now: Time, store: &mut S) {
        while let Some(signal) = self.egress.memory.next_signal() {
            self.flow.port(signal.port.index()).want(signal.xoff);
            self.follow_news(now, store, signal.port);
        }
    }

    /// Opens or closes a port's control queue as it has something to tell or not.
    fn follow_news<S: FrameStore>(&mut self, now: Time, store: &mut S, port: PortId) {
        let flow = self.flow.port(port.index());
        let state = port_mut(&mut self.ports, port);
        flow.retry_at = Time::NEVER;
        let has_news = flow.sender.has_news() && state.is_up();
        if has_news && flow.spare.is_none() {
            flow.spare = store.allocate_from(&[0; FRAME_BYTES]).map(ParkedFrame::new);
            if flow.spare.is_none() {
                flow.no_frame += 1;
                flow.retry_at = now + RETRY;
            }
        }
        if !has_news && let Some(spare) = flow.spare.take() {
            store.release(spare.into_frame());
        }
        let has_news = flow.spare.is_some();
        let backlog = if has_news { state.backlog | CONTROL } else { state.backlog & !CONTROL };
        let changed = backlog != state.backlog;
        state.backlog = backlog;
        self.flow.note_deadline(port.index());
        self.note_timers();
        if changed {
            self.restart(now, port);
        }
    }

    /// Puts the news of a port that has some on its wire.
    #[cold]
    #[inline(never)]
    pub(super) fn transmit_control<S: FrameStore>(
        &mut self,
        now: Time,
        store: &mut S,
        port: PortId,
    ) -> Transmission {
        let flow = self.flow.port(port.index());
        let state = port_mut(&mut self.ports, port);
        let Some(spare) = flow.spare.take() else { no_spare(port) };
        let (starts, ends) = state.line.occupy(now, now, spare.len_bytes());
        let mut frame = spare.into_frame();
        let pfc = flow.sender.take(ends).unwrap_or_default();
        store.write(&mut frame, 0, &MacControl::Pfc(pfc).frame(flow.mac));
        state.backlog &= !CONTROL;
        state.counters.transmitted(frame.len_bytes());
        self.generated += 1;
        if state.has_work() {
            self.egress.ready.arm(now, port, ends);
        }
        self.flow.note_deadline(port.index());
        self.note_timers();
        Transmission { frame, starts, ends }
    }

    /// Ends the pauses that are over, prolongs those that are wanted, and looks for storms.
    #[cold]
    #[inline(never)]
    pub(super) fn on_flow_timer<S: FrameStore>(&mut self, now: Time, store: &mut S) {
        let looks = self.flow.takes_a_look(now);
        for index in 0..self.config.ports.len() {
            let Ok(id) = u16::try_from(index) else { break };
            let flow = self.flow.port(index);
            if flow.pauses.next_expiry() <= now {
                flow.pauses.expire(now);
                self.follow_pauses(now, PortId(id));
            }
            let flow = self.flow.port(index);
            if flow.sender.next_refresh() <= now || flow.retry_at <= now {
                flow.sender.on_timer(now);
                self.follow_news(now, store, PortId(id));
            }
            if looks {
                self.look_for_storms(now, store, PortId(id));
            }
        }
        self.flow.find_deadline();
    }

    fn look_for_storms<S: FrameStore>(&mut self, now: Time, store: &mut S, port: PortId) {
        let state = port_mut(&mut self.ports, port);
        let (backlog, sent) = (state.backlog, state.take_served());
        let mut from = 0;
        while let Some((class, treatment)) = self.flow.look(now, port.index(), from, backlog, sent)
        {
            self.treat(now, store, port, class, treatment);
            from = class + 1;
        }
    }

    /// Treats a class of a port as the watchdog has it from now on.
    fn treat<S: FrameStore>(
        &mut self,
        now: Time,
        store: &mut S,
        port: PortId,
        class: usize,
        treatment: Treatment,
    ) {
        let queue = u32::from(self.config.priority_to_queue[class]);
        let drops = treatment == Treatment::Drop;
        port_mut(&mut self.ports, port).set_dropping(class, queue, drops);
        if drops {
            self.drop_queue(store, port, queue, DropReason::Watchdog);
        }
        let xoff = self.egress.memory.xoff(port);
        self.flow.port(port.index()).want(xoff);
        self.follow_news(now, store, port);
        self.follow_pauses(now, port);
        self.restart(now, port);
        self.take_signals(now, store);
    }

    /// An operator makes a class of a port lossless again. What is then to be told is told by the
    /// next timer, which is due at once.
    pub(super) fn rearm(&mut self, now: Time, port: PortId, class: usize) {
        if self.flow.rearm(now, port.index(), class).is_none() {
            return;
        }
        let queue = u32::from(self.config.priority_to_queue[class]);
        port_mut(&mut self.ports, port).set_dropping(class, queue, false);
        let xoff = self.egress.memory.xoff(port);
        let flow = self.flow.port(port.index());
        flow.want(xoff);
        flow.retry_at = now;
        self.follow_pauses(now, port);
    }

    /// Drops what a queue holds.
    pub(super) fn drop_queue<S: FrameStore>(
        &mut self,
        store: &mut S,
        port: PortId,
        queue: u32,
        reason: DropReason,
    ) {
        let state = port_mut(&mut self.ports, port);
        while state.backlog & 1_u32.wrapping_shl(queue) != 0 {
            let (frame, _) = self.egress.dequeue(state, port, queue);
            state.counters.dropped(reason);
            store.release(frame.into_frame());
        }
    }

    /// The link of a port has gone up or down: the other end knows of no pause, and asks for none.
    pub(super) fn forget_pauses<S: FrameStore>(&mut self, now: Time, store: &mut S, port: PortId) {
        let flow = self.flow.port(port.index());
        flow.pauses.clear(now);
        flow.sender.forget();
        self.follow_pauses(now, port);
        self.follow_news(now, store, port);
    }

    /// The queues of a port that have frames and that a pause stops: each with since when its first
    /// frame waits, and the (ingress port, priority) of all that do.
    ///
    /// # Panics
    /// When there is no such port.
    pub fn stopped_queues(&self, port: PortId) -> Vec<StoppedQueue> {
        let state = &self.ports[port.index()];
        let stopped = state.stopped_backlog();
        let queues = (0_u8..).zip(&state.queues).filter(|(queue, _)| stopped >> queue & 1 != 0);
        let of_queue = |(number, queue)| {
            let metas = || self.egress.pool.metas(queue);
            let mut origins: Vec<_> = metas().map(|meta| meta.origin.parts()).collect();
            origins.sort_unstable();
            origins.dedup();
            let first_since = metas().next().map_or(Time::ZERO, |meta| meta.enqueued_at);
            StoppedQueue { queue: number, first_since, origins }
        };
        queues.map(of_queue).collect()
    }

    /// Pause frames that wait for their wire.
    pub(super) fn waiting_news(&self) -> u64 {
        self.ports.iter().filter(|port| port.backlog & CONTROL != 0).count() as u64
    }

    /// The priorities that a port has last told the other end of its link to stop, as bits.
    ///
    /// # Panics
    /// When there is no such port.
    pub fn xoff_told(&self, port: PortId) -> u8 {
        self.flow.told(port.index())
    }

    /// Gives the frames back that wait for something to be told.
    pub(super) fn drain_control<S: FrameStore>(&mut self, store: &mut S) {
        for index in 0..self.config.ports.len() {
            self.ports[index].backlog &= !CONTROL;
            if let Some(spare) = self.flow.port(index).spare.take() {
                store.release(spare.into_frame());
                self.generated += 1;
                self.drained += 1;
            }
        }
    }
}

#[cold]
#[inline(never)]
fn no_spare(port: PortId) -> ! {
    panic!("port {} has something to tell and no frame for it", port.0)
}
