//! Which ports can send: a set of those that can now, and a line of those whose wire is busy, by
//! when it is free. A port without backlog is in neither, so work is proportional to ready ports.

use super::port_set::{PORTS_MAX, PortSet};
use crate::node::PortId;
use crate::time::Time;

/// Places in the line: a power of two above the number of ports, so that it is never full.
const PLACES: usize = 2 * PORTS_MAX;

/// Ports with something to send that may: each in `ready` or in `waiting`.
#[derive(Clone, Debug)]
#[repr(C)]
pub(super) struct Ready {
    /// Those that can send, as bits, of the first 64 ports, which most switches have at most.
    near: u64,
    /// Those of the others, and their number.
    far: PortSet,
    far_len: u32,
    /// The place of the first in `waiting` and the one behind the last; they wrap.
    head: u16,
    tail: u16,
    /// By when their wire is free, as a ring. Ports of one rate that send frames of one length
    /// join at the end; one that joins in the middle moves the shorter part by a place.
    waiting: Box<[(Time, PortId); PLACES]>,
    /// The last time in `waiting`, or one that has passed.
    last_free: Time,
    /// When a port last became ready, and the first time in `waiting`: side by side, for
    /// [`next_deadline`](Self::next_deadline) takes one of them.
    since: Time,
    next_free: Time,
}

/// Ports whose bits are in the first word.
const NEAR: u16 = 64;

/// A place as an index.
const fn place(at: u16) -> usize {
    at as usize % PLACES
}

impl Ready {
    pub(super) fn new() -> Self {
        Self {
            near: 0,
            far: PortSet::default(),
            far_len: 0,
            head: 0,
            tail: 0,
            waiting: Box::new([(Time::NEVER, PortId(0)); PLACES]),
            next_free: Time::NEVER,
            last_free: Time::ZERO,
            since: Time::ZERO,
        }
    }

    /// The port, which is in neither part, has a backlog, and its wire is free at `free_at`.
    #[inline(always)]
    pub(super) fn arm(&mut self, now: Time, port: PortId, free_at: Time) {
        if free_at <= now {
            self.since = now;
            self.insert(port);
        } else {
            self.wait(free_at, port);
        }
    }

    #[inline(always)]
    fn insert(&mut self, port: PortId) {
        if port.0 < NEAR {
            self.near |= 1_u64.wrapping_shl(u32::from(port.0));
        } else {
            self.insert_far(port);
        }
    }

    #[inline(never)]
    const fn insert_far(&mut self, port: PortId) {
        self.far_len += 1;
        self.far.insert(port.index());
    }

    #[inline(always)]
    fn wait(&mut self, free_at: Time, port: PortId) {
        if free_at < self.last_free {
            return self.wait_before(free_at, port);
        }
        self.last_free = free_at;
        if free_at < self.next_free {
            self.next_free = free_at;
        }
        self.waiting[place(self.tail)] = (free_at, port);
        self.tail = self.tail.wrapping_add(1);
    }

    /// One that does not join at the end.
    #[cold]
    #[inline(never)]
    fn wait_before(&mut self, free_at: Time, port: PortId) {
        let mut at = self.tail;
        while at != self.head && self.waiting[place(at.wrapping_sub(1))].0 > free_at {
            at = at.wrapping_sub(1);
        }
        if at.wrapping_sub(self.head) < self.tail.wrapping_sub(at) {
            self.head = self.head.wrapping_sub(1);
            at = at.wrapping_sub(1);
            let mut to = self.head;
            while to != at {
                self.waiting[place(to)] = self.waiting[place(to.wrapping_add(1))];
                to = to.wrapping_add(1);
            }
        } else {
            let mut to = self.tail;
            self.tail = self.tail.wrapping_add(1);
            while to != at {
                self.waiting[place(to)] = self.waiting[place(to.wrapping_sub(1))];
                to = to.wrapping_sub(1);
            }
        }
        self.waiting[place(at)] = (free_at, port);
        self.next_free = self.next_free.min(free_at);
    }

    /// The port, which is ready, has no backlog any more, or its wire has become busy.
    pub(super) fn disarm(&mut self, port: PortId) {
        if port.0 < NEAR {
            self.near &= !1_u64.wrapping_shl(u32::from(port.0));
        } else {
            self.far_len -= 1;
            self.far.remove(port.index());
        }
    }

    /// The port may not send, whatever it has, until it is armed again.
    pub(super) fn stop(&mut self, port: PortId) {
        if self.is_ready(port) {
            self.disarm(port);
        }
        let mut kept = self.head;
        let mut at = self.head;
        self.last_free = Time::ZERO;
        while at != self.tail {
            let waiting = self.waiting[place(at)];
            if waiting.1 != port {
                self.waiting[place(kept)] = waiting;
                self.last_free = waiting.0;
                kept = kept.wrapping_add(1);
            }
            at = at.wrapping_add(1);
        }
        self.tail = kept;
        self.find_next_free();
    }

    fn find_next_free(&mut self) {
        let first = self.waiting[place(self.head)].0;
        self.next_free = if self.head == self.tail { Time::NEVER } else { first };
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
        let mut at = self.head;
        self.next_free = loop {
            if at == self.tail {
                break Time::NEVER;
            }
            let (time, port) = self.waiting[place(at)];
            if time > now {
                break time;
            }
            self.insert(port);
            at = at.wrapping_add(1);
        };
        self.head = at;
    }

    #[inline]
    pub(super) fn is_ready(&self, port: PortId) -> bool {
        if port.0 < NEAR {
            self.near.wrapping_shr(u32::from(port.0)) & 1 != 0
        } else {
            self.far.contains(port.index())
        }
    }

    /// The lowest port that can send, after [`advance`](Self::advance).
    #[inline]
    pub(super) const fn first(&self) -> Option<PortId> {
        if self.near != 0 {
            Some(lowest(self.near))
        } else if self.far_len != 0 {
            Some(self.far.lowest())
        } else {
            None
        }
    }

    /// Takes out the lowest port that can send, after [`advance`](Self::advance).
    #[inline]
    pub(super) fn pop(&mut self) -> Option<PortId> {
        if self.near != 0 {
            let port = lowest(self.near);
            self.near &= self.near.wrapping_sub(1);
            Some(port)
        } else if self.far_len != 0 {
            Some(self.pop_far())
        } else {
            None
        }
    }

    #[inline(never)]
    const fn pop_far(&mut self) -> PortId {
        self.far_len -= 1;
        self.far.pop_lowest()
    }

    /// When the next port becomes ready, or became so.
    #[inline]
    pub(super) const fn next_deadline(&self) -> Time {
        if self.near == 0 && self.far_len == 0 { self.next_free } else { self.since }
    }
}

/// The lowest of some of the first 64 ports.
#[inline]
const fn lowest(near: u64) -> PortId {
    // Fewer than 64 trailing zeros fit any integer.
    #[allow(clippy::cast_possible_truncation, reason = "at most 64")]
    let port = near.trailing_zeros() as u16;
    PortId(port)
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
