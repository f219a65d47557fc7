//! The OS clock as the pace of free time.

use std::os::fd::BorrowedFd;

use super::free::Pace;
use crate::time::Time;
use crate::xdp::idle::Idle;
use crate::xdp::{Clock, ClockReader};

/// A worker never sleeps longer than this, so that it is soon there when it is asked something.
const SLEEP_MAX: std::time::Duration = std::time::Duration::from_millis(5);

/// The OS clock, with adaptive idling.
#[derive(Debug)]
pub struct XdpPace {
    clock: ClockReader,
    idle: Idle,
}

impl XdpPace {
    /// All workers of a lab share `clock`; with `busy_poll` a worker never sleeps.
    pub fn new(clock: Clock, busy_poll: bool) -> Self {
        Self {
            clock: ClockReader::new(clock),
            idle: Idle::new(std::time::Duration::ZERO, busy_poll),
        }
    }
}

impl Pace for XdpPace {
    #[inline]
    fn now(&self) -> Time {
        self.clock.now()
    }

    fn idle<'a>(&mut self, fds: impl IntoIterator<Item = BorrowedFd<'a>>, until: Time) {
        self.idle.wait(self.clock.clock(), until, SLEEP_MAX, fds);
    }

    fn worked(&mut self) {
        self.idle.worked();
    }
}
