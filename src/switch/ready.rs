//! Which ports can send: a set of those that can now, and a heap of those whose wire is busy, by
//! when it is free. A port without backlog is in neither, so work is proportional to ready ports.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::port_set::{PORTS_MAX, PortSet};
use crate::node::PortId;
use crate::time::Time;

/// Ports with something to send.
#[derive(Clone, Debug)]
pub(super) struct Ready {
    ready: PortSet,
    /// When the wire is free in the upper bits, the port in the lower 16.
    waiting: BinaryHeap<Reverse<u128>>,
    /// The ports in `waiting`, each once.
    in_waiting: PortSet,
    /// When a port last became ready.
    since: Time,
    /// Ports that the driver holds or whose link is down.
    stopped: PortSet,
}

const fn wait(until: Time, port: usize) -> Reverse<u128> {
    Reverse((until.as_ps() as u128) << 16 | port as u128)
}

const fn parts(waiting: Reverse<u128>) -> (Time, usize) {
    // The upper part was 64 bits, the lower 16.
    #[allow(clippy::cast_possible_truncation, reason = "put together from parts of these widths")]
    let parts = ((waiting.0 >> 16) as u64, (waiting.0 & 0xffff) as usize);
    (Time::from_ps(parts.0), parts.1)
}

impl Ready {
    pub(super) fn new() -> Self {
        Self {
            ready: PortSet::default(),
            waiting: BinaryHeap::with_capacity(PORTS_MAX),
            in_waiting: PortSet::default(),
            since: Time::ZERO,
            stopped: PortSet::default(),
        }
    }

    /// The port has a backlog, and its wire is free at `free_at`.
    #[inline]
    pub(super) fn arm(&mut self, now: Time, port: usize, free_at: Time) {
        if self.stopped.contains(port) {
            return;
        }
        if free_at <= now {
            self.since = now;
            self.ready.insert(port);
        } else if !self.in_waiting.contains(port) {
            self.in_waiting.insert(port);
            self.waiting.push(wait(free_at, port));
        }
    }

    /// The port has no backlog any more, or its wire has become busy.
    #[inline]
    pub(super) const fn disarm(&mut self, port: usize) {
        self.ready.remove(port);
    }

    /// The port may not send until it is started, whatever it has.
    pub(super) const fn stop(&mut self, port: usize) {
        self.stopped.insert(port);
        self.ready.remove(port);
    }

    /// The port may send again; the caller arms it when it has a backlog.
    pub(super) const fn start(&mut self, port: usize) {
        self.stopped.remove(port);
    }

    /// Moves the ports whose wire is free at `now` to the set. `backlog` says whether a port still
    /// has something to send.
    #[inline]
    pub(super) fn advance(&mut self, now: Time, backlog: impl Fn(usize) -> bool) {
        while let Some(first) = self.waiting.peek() {
            let (free_at, port) = parts(*first);
            if free_at > now {
                break;
            }
            self.waiting.pop();
            self.in_waiting.remove(port);
            if !self.stopped.contains(port) && backlog(port) {
                self.since = now;
                self.ready.insert(port);
            }
        }
    }

    #[inline]
    pub(super) const fn is_ready(&self, port: usize) -> bool {
        self.ready.contains(port)
    }

    /// The lowest port that can send, after [`advance`](Self::advance).
    #[inline]
    pub(super) fn first(&self) -> Option<PortId> {
        self.ready.first()
    }

    /// When the next port becomes ready, or became so.
    #[inline]
    pub(super) fn next_deadline(&self) -> Time {
        if !self.ready.is_empty() {
            return self.since;
        }
        self.waiting.peek().map_or(Time::NEVER, |first| parts(*first).0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_come_ready_when_their_wire_is_free_and_not_while_stopped() {
        let mut ready = Ready::new();
        let now = Time::from_ns(10);
        ready.arm(now, 9, Time::from_ns(10));
        ready.arm(now, 200, Time::from_ns(30));
        ready.arm(now, 3, Time::from_ns(20));
        assert_eq!((ready.first(), ready.next_deadline()), (Some(PortId(9)), now));
        ready.disarm(9);
        assert_eq!(ready.next_deadline(), Time::from_ns(20));
        ready.stop(3);
        ready.advance(Time::from_ns(30), |_| true);
        assert_eq!(ready.first(), Some(PortId(200)));
        assert!(!ready.is_ready(3));
        ready.start(3);
        ready.arm(Time::from_ns(30), 3, Time::from_ns(20));
        assert_eq!(ready.first(), Some(PortId(3)));
    }

    #[test]
    fn a_port_whose_backlog_went_away_is_not_ready() {
        let mut ready = Ready::new();
        ready.arm(Time::ZERO, 1, Time::from_ns(5));
        ready.advance(Time::from_ns(5), |_| false);
        assert_eq!(ready.first(), None);
        assert_eq!(ready.next_deadline(), Time::NEVER);
    }
}
