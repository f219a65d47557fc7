//! A table of flows: which member each has, and when it was seen last.

use super::config::FlowletConfig;
use super::{MemberId, Members};
use crate::time::{Duration, Time};

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Of the last frame; [`Time::NEVER`] before the first.
    seen_at: Time,
    member: MemberId,
}

/// The table: a flow has the entry that its hash names, together with others.
#[derive(Debug)]
pub(super) struct Flowlets {
    /// A power of two of them.
    entries: Vec<Entry>,
    idle: Duration,
}

impl Flowlets {
    /// A table whose flows take another member after `idle`.
    pub(super) fn new(config: &FlowletConfig) -> Self {
        let empty = Entry { seen_at: Time::NEVER, member: MemberId(0) };
        Self { entries: vec![empty; config.flows as usize], idle: config.idle }
    }

    /// The member of a flow, which has a frame now: that of before, unless it has paused or its
    /// member is down, else a new one.
    #[inline]
    pub(super) fn member(
        &mut self,
        hash: u32,
        now: Time,
        members: &Members,
        choose: impl FnOnce() -> MemberId,
    ) -> MemberId {
        let at = hash as usize & (self.entries.len() - 1);
        let entry = &mut self.entries[at];
        let is_fresh = entry.seen_at != Time::NEVER && now.since(entry.seen_at) < self.idle;
        if !is_fresh || !members.is_up(entry.member) {
            entry.member = choose();
        }
        entry.seen_at = now;
        entry.member
    }
}
