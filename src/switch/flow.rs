//! Flow control of a switch's ports: the pauses that each obeys, those that it asks for, and the
//! watchdog over both.

use super::config::{PortConfig, QUEUES, SwitchConfig};
use super::pfc::{PfcCounters, PfcSender};
use super::watchdog::{
    ClassWatch, Observation, Treatment, Verdict, WatchdogAction, WatchdogConfig,
};
use crate::frame::ParkedFrame;
use crate::pause::{PauseCounters, Pauses};
use crate::time::{Duration, Time};
use crate::wire::MacAddr;
use crate::wire::pfc::CLASSES;

/// What a port's pauses and its watchdog have come to, by priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounters {
    /// What was received, and what it stopped.
    pub pauses: PauseCounters,
    /// What was sent.
    pub pfc: PfcCounters,
    /// Storms that the watchdog found.
    pub storms_detected: [u64; CLASSES],
    /// Times that it gave a class back.
    pub storms_restored: [u64; CLASSES],
    /// Pause frames that had to wait for a free frame of the store.
    pub pfc_no_frame: u64,
}

/// Flow control of all ports.
#[derive(Debug)]
pub(super) struct FlowControl {
    ports: Vec<PortFlow>,
    /// The queue of each priority, as a bit.
    queue_of: [u32; CLASSES],
    watchdog: Option<WatchdogConfig>,
    next_poll: Time,
    /// When there is something to do: the earliest of all, or earlier.
    deadline: Time,
}

/// Flow control of one port.
#[derive(Debug)]
pub(super) struct PortFlow {
    pub(super) mac: MacAddr,
    pub(super) pauses: Pauses,
    pub(super) sender: PfcSender,
    /// The frame for what is to be told, while there is something.
    pub(super) spare: Option<ParkedFrame>,
    /// When another try is made to get one.
    pub(super) retry_at: Time,
    pub(super) no_frame: u64,
    /// The classes that are configured lossless, as bits.
    lossless: u8,
    /// Those of them for which the watchdog has turned PFC off.
    off: u8,
    watches: [ClassWatch; CLASSES],
    /// What the last look saw, to count from.
    seen: [Seen; CLASSES],
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    xoff_received: u64,
    paused: Duration,
}

impl PortFlow {
    fn new(config: &PortConfig, quanta: u16) -> Self {
        let lossless = config.shares.lossless_mask();
        Self {
            mac: config.mac,
            pauses: Pauses::new(config.rate, lossless, config.obeys_pause),
            sender: PfcSender::new(config.rate, quanta),
            spare: None,
            retry_at: Time::NEVER,
            no_frame: 0,
            lossless,
            off: 0,
            watches: [ClassWatch::new(Time::ZERO); CLASSES],
            seen: [Seen::default(); CLASSES],
        }
    }

    /// The classes for which PFC is on, as bits.
    const fn on(&self) -> u8 {
        self.lossless & !self.off
    }

    /// The memory wants these classes stopped, as bits.
    pub(super) fn want(&mut self, xoff: u8) {
        self.sender.want(xoff & self.on());
    }

    fn next_deadline(&self) -> Time {
        self.pauses.next_expiry().min(self.sender.next_refresh()).min(self.retry_at)
    }

    fn counters(&self, now: Time) -> FlowCounters {
        FlowCounters {
            pauses: self.pauses.counters(now),
            pfc: *self.sender.counters(),
            storms_detected: self.watches.map(|watch| watch.detected()),
            storms_restored: self.watches.map(|watch| watch.restored()),
            pfc_no_frame: self.no_frame,
        }
    }

    /// Looks at one class; what was sent and what waits is seen by its queue.
    fn look(
        &mut self,
        config: &WatchdogConfig,
        now: Time,
        class: usize,
        occupied: bool,
        sent: bool,
    ) -> Verdict {
        let before = self.seen[class];
        let after = Seen {
            xoff_received: self.pauses.xoff_received(class),
            paused: self.pauses.paused_for(now, class),
        };
        self.seen[class] = after;
        let seen = Observation {
            occupied,
            sent: u64::from(sent),
            xoff_received: after.xoff_received - before.xoff_received,
            paused: after.paused - before.paused,
        };
        self.watches[class].look(config, now, seen)
    }

    /// Turns PFC for a class on or off as the watchdog has it. True when that is a change.
    fn follow_watch(&mut self, now: Time, class: usize, action: WatchdogAction) -> Treatment {
        let treatment = self.watches[class].treatment(action);
        let bit = 1 << class;
        self.off = match treatment {
            Treatment::Lossless => self.off & !bit,
            Treatment::Forward | Treatment::Drop => self.off | bit,
        };
        let on = self.on();
        self.pauses.set_obeyed(now, on);
        self.sender.want(self.sender.wanted() & on);
        treatment
    }
}

impl FlowControl {
    pub(super) fn new(config: &SwitchConfig) -> Self {
        let ports: Vec<PortFlow> =
            config.ports.iter().map(|port| PortFlow::new(port, config.pfc_quanta)).collect();
        let watchdog = config.watchdog.filter(|_| ports.iter().any(|port| port.lossless != 0));
        let next_poll = watchdog.map_or(Time::NEVER, |watchdog| Time::ZERO + watchdog.poll);
        Self {
            ports,
            queue_of: config.priority_to_queue.map(|queue| 1 << (u32::from(queue) & 7)),
            watchdog,
            next_poll,
            deadline: next_poll,
        }
    }

    pub(super) fn port(&mut self, port: usize) -> &mut PortFlow {
        &mut self.ports[port]
    }

    pub(super) fn told(&self, port: usize) -> u8 {
        self.ports[port].sender.told()
    }

    pub(super) fn counters(&self, now: Time, port: usize) -> FlowCounters {
        self.ports[port].counters(now)
    }

    /// When there is something to do, or earlier.
    #[inline]
    pub(super) const fn deadline(&self) -> Time {
        self.deadline
    }

    /// Something of a port may have become due earlier.
    pub(super) fn note_deadline(&mut self, port: usize) {
        self.deadline = self.deadline.min(self.ports[port].next_deadline());
    }

    /// Finds the deadline anew.
    pub(super) fn find_deadline(&mut self) {
        let ports = self.ports.iter().map(PortFlow::next_deadline);
        self.deadline = ports.min().unwrap_or(Time::NEVER).min(self.next_poll);
    }

    /// The queues of a port that pauses stop, as bits.
    pub(super) fn stopped_queues(&self, port: usize) -> u32 {
        let stopped = self.ports[port].pauses.stopped();
        let of = |class: usize| if stopped & 1 << class == 0 { 0 } else { self.queue_of[class] };
        if stopped == u8::MAX && self.ports[port].pauses.is_whole_port() {
            return (1 << QUEUES) - 1;
        }
        (0..CLASSES).fold(0, |queues, class| queues | of(class))
    }

    /// Whether the watchdog looks at `now`; the next look is planned then.
    pub(super) fn takes_a_look(&mut self, now: Time) -> bool {
        let Some(watchdog) = self.watchdog.filter(|_| self.next_poll <= now) else { return false };
        while self.next_poll <= now {
            self.next_poll += watchdog.poll;
        }
        true
    }

    /// The next class of a port, from `from` on, that the watchdog finds changed, with what it is now.
    /// `backlog` and `sent` have the bits of the queues that have frames, and that sent some since the
    /// last look.
    pub(super) fn look(
        &mut self,
        now: Time,
        port: usize,
        from: usize,
        backlog: u32,
        sent: u32,
    ) -> Option<(usize, Treatment)> {
        let watchdog = self.watchdog?;
        let flow = &mut self.ports[port];
        for class in from..CLASSES {
            if flow.lossless & 1 << class == 0 {
                continue;
            }
            let queue = self.queue_of[class];
            let (occupied, sent) = (backlog & queue != 0, sent & queue != 0);
            match flow.look(&watchdog, now, class, occupied, sent) {
                Verdict::Same => {}
                Verdict::Detected | Verdict::Restored => {
                    return Some((class, flow.follow_watch(now, class, watchdog.action)));
                }
            }
        }
        None
    }

    /// An operator gives a class of a port back. None when the watchdog had not taken it.
    pub(super) fn rearm(&mut self, now: Time, port: usize, class: usize) -> Option<Treatment> {
        let watchdog = self.watchdog?;
        let flow = &mut self.ports[port];
        flow.watches[class].rearm().then(|| flow.follow_watch(now, class, watchdog.action))
    }
}
