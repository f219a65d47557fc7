//! When a host has something to send and may.

use std::cmp::Reverse;

use super::Host;
use crate::time::Time;

impl Host {
    pub(super) fn next_planned(&self) -> Time {
        self.turns.peek().map_or(Time::NEVER, |Reverse((at, _))| *at)
    }

    /// When the next frame of the streams may leave, for all that the line says: planned then, or
    /// later while the host catches up.
    fn next_stream_at(&self) -> Time {
        let planned = self.next_planned();
        if planned == Time::NEVER { planned } else { self.due_at(planned) }
    }

    pub(super) fn due_at(&self, planned: Time) -> Time {
        planned.max(self.catch_up.not_before(self.planned.start_of(planned)))
    }

    /// When an answer or a frame that is not lossless may leave, for all that the line says.
    pub(super) fn others_at(&self) -> Time {
        let answer = self.answers.front().map_or(Time::NEVER, |(since, _)| *since);
        let first = answer.min(self.next_stream_at());
        // A pause of the whole port stops these too.
        if first == Time::NEVER { first } else { first.max(self.lossless.pauses().end_of_all()) }
    }

    /// When the line is free and something waits for it, worked out anew.
    pub(super) fn find_ready_at(&self) -> Time {
        let first = self.others_at().min(self.lossless.next_at()).min(self.next_storm_at());
        if first == Time::NEVER { first } else { first.max(self.line.busy_until()) }
    }
}
