//! Which ports can send: a set of those that can now, and a line of those whose wire is busy, by
//! when it is free. A port without backlog is in neither, so work is proportional to ready ports.

use std::collections::VecDeque;

use super::port_set::{PORTS_MAX, PortSet};
use crate::node::PortId;
use crate::time::Time;

/// Ports with something to send that may: each in `ready` or in `waiting`.
#[derive(Clone, Debug)]
pub(super) struct Ready {
    ready: PortSet,
    /// The number of ports in `ready`.
    ready_len: u32,
    /// By when their wire is free. Ports of one rate that send frames of one length join at the
    /// end; one that joins in the middle moves the shorter part by a place.
    waiting: VecDeque<(Time, PortId)>,
    /// The first time in `waiting`.
    next_free: Time,
    /// When a port last became ready.
    since: Time,
}

impl Ready {
    pub(super) fn new() -> Self {
        Self {
            ready: PortSet::default(),
            ready_len: 0,
            waiting: VecDeque::with_capacity(PORTS_MAX),
            next_free: Time::NEVER,
            since: Time::ZERO,
        }
    }

    /// The port, which is in neither part, has a backlog, and its wire is free at `free_at`.
    #[inline(always)]
    pub(super) fn arm(&mut self, now: Time, port: PortId, free_at: Time) {
        if free_at <= now {
            self.since = now;
            self.ready_len += 1;
            self.ready.insert(port.index());
        } else {
            self.wait(free_at, port);
        }
    }

    #[inline]
    fn wait(&mut self, free_at: Time, port: PortId) {
        match self.waiting.back() {
            Some((last, _)) if *last > free_at => return self.wait_before(free_at, port),
            Some(_) => {}
            None => self.next_free = free_at,
        }
        self.waiting.push_back((free_at, port));
    }

    #[inline(never)]
    fn wait_before(&mut self, free_at: Time, port: PortId) {
        let at = self.waiting.partition_point(|(time, _)| *time <= free_at);
        self.waiting.insert(at, (free_at, port));
        self.next_free = self.next_free.min(free_at);
    }

    /// The port, which is ready, has no backlog any more, or its wire has become busy.
    #[inline]
    pub(super) const fn disarm(&mut self, port: PortId) {
        self.ready_len -= 1;
        self.ready.remove(port.index());
    }

    /// The port may not send, whatever it has, until it is armed again.
    pub(super) fn stop(&mut self, port: PortId) {
        if self.is_ready(port) {
            self.disarm(port);
        }
        self.waiting.retain(|(_, waiting)| *waiting != port);
        self.next_free = self.waiting.front().map_or(Time::NEVER, |(time, _)| *time);
    }

    /// Moves the ports whose wire is free at `now` to the set.
    #[inline]
    pub(super) fn advance(&mut self, now: Time) {
        if self.next_free <= now {
            self.move_free(now);
        }
    }

    #[inline(never)]
    fn move_free(&mut self, now: Time) {
        self.since = now;
        while let Some((time, port)) = self.waiting.front().copied() {
            if time > now {
                self.next_free = time;
                return;
            }
            self.waiting.pop_front();
            self.ready_len += 1;
            self.ready.insert(port.index());
        }
        self.next_free = Time::NEVER;
    }

    #[inline]
    pub(super) const fn is_ready(&self, port: PortId) -> bool {
        self.ready.contains(port.index())
    }

    /// The lowest port that can send, after [`advance`](Self::advance).
    #[inline]
    pub(super) fn first(&self) -> Option<PortId> {
        if self.ready_len == 0 { None } else { self.ready.first() }
    }

    /// When the next port becomes ready, or became so.
    #[inline]
    pub(super) const fn next_deadline(&self) -> Time {
        if self.ready_len == 0 { self.next_free } else { self.since }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_come_ready_when_their_wire_is_free_and_not_while_stopped() {
        let mut ready = Ready::new();
        let now = Time::from_ns(10);
        ready.arm(now, PortId(9), Time::from_ns(10));
        ready.arm(now, PortId(200), Time::from_ns(30));
        ready.arm(now, PortId(3), Time::from_ns(20));
        assert_eq!((ready.first(), ready.next_deadline()), (Some(PortId(9)), now));
        ready.disarm(PortId(9));
        assert_eq!(ready.next_deadline(), Time::from_ns(20));
        ready.stop(PortId(3));
        assert_eq!(ready.next_deadline(), Time::from_ns(30));
        ready.advance(Time::from_ns(30));
        assert_eq!(ready.first(), Some(PortId(200)));
        assert!(!ready.is_ready(PortId(3)));
        ready.arm(Time::from_ns(30), PortId(3), Time::from_ns(20));
        assert_eq!(ready.first(), Some(PortId(3)));
        ready.stop(PortId(3));
        ready.stop(PortId(200));
        assert_eq!((ready.first(), ready.next_deadline()), (None, Time::NEVER));
    }

    #[test]
    fn whatever_the_order_in_which_ports_wait_they_come_by_time() {
        let mut ready = Ready::new();
        // 7 and 255 have no divisor in common: every port once, in no order.
        for step in 0..255_u16 {
            let port = step * 7 % 255;
            ready.arm(Time::ZERO, PortId(port), Time::from_ns(1 + u64::from(port) / 2));
        }
        for port in 0..255 {
            let due = Time::from_ns(1 + u64::from(port) / 2);
            if port % 2 == 0 {
                assert_eq!(ready.next_deadline(), due);
            }
            ready.advance(due);
            assert_eq!(ready.first(), Some(PortId(port)));
            ready.disarm(PortId(port));
        }
        assert_eq!((ready.first(), ready.next_deadline()), (None, Time::NEVER));
    }
}
