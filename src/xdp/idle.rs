//! What a worker does when there is nothing to do: spins a while, then sleeps until a frame comes
//! or the next deadline is due.

use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::time::Duration;

use super::clock::{self, Clock};
use crate::time::Time;

/// How long a worker spins before it sleeps: longer than the gaps within a burst, and than what
/// waking up costs.
pub const SPIN_MIN: Duration = Duration::from_micros(100);

/// Sleeping less than this is not worth the wake-up.
const SLEEP_MIN: Duration = Duration::from_micros(50);

/// The idling of one worker.
#[derive(Debug)]
pub struct Idle {
    spin_ns: u64,
    busy_poll: bool,
    /// When the present row of rounds without work began; the OS clock.
    idle_since_ns: Option<u64>,
    slack_is_set: bool,
    waits: Vec<libc::pollfd>,
    sleeps: u64,
}

impl Idle {
    /// Spins for `spin` (at least [`SPIN_MIN`]) before sleeping; never sleeps when `busy_poll`.
    pub fn new(spin: Duration, busy_poll: bool) -> Self {
        let spin_ns = u64::try_from(spin.max(SPIN_MIN).as_nanos()).unwrap_or(u64::MAX);
        Self {
            spin_ns,
            busy_poll,
            idle_since_ns: None,
            slack_is_set: false,
            waits: Vec::with_capacity(64),
            sleeps: 0,
        }
    }

    /// How often the worker slept.
    pub const fn sleeps(&self) -> u64 {
        self.sleeps
    }

    /// A round did something.
    pub const fn worked(&mut self) {
        self.idle_since_ns = None;
    }

    /// A round did nothing. Returns when there may be something to do: a descriptor of `fds` became
    /// readable, `deadline` is due, or `at_most` (real time) has passed.
    pub fn wait<'a>(
        &mut self,
        clock: &Clock,
        deadline: Time,
        at_most: Duration,
        fds: impl IntoIterator<Item = BorrowedFd<'a>>,
    ) {
        std::hint::spin_loop();
        if self.busy_poll {
            return;
        }
        let now = clock::monotonic_ns();
        let since = *self.idle_since_ns.get_or_insert(now);
        if now.saturating_sub(since) < self.spin_ns {
            return;
        }
        let left = clock.real_until(deadline).min(at_most);
        if left < SLEEP_MIN {
            return;
        }
        self.waits.clear();
        self.waits.extend(fds.into_iter().map(|fd| libc::pollfd {
            fd: fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        }));
        self.sleep(left);
    }

    fn sleep(&mut self, left: Duration) {
        if !self.slack_is_set {
            // The kernel rounds timeouts up by 50 us unless told otherwise, per thread.
            let _ = nix::sys::prctl::set_timerslack(1);
            self.slack_is_set = true;
        }
        let timeout = libc::timespec {
            tv_sec: libc::time_t::try_from(left.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let count = self.waits.len() as libc::nfds_t;
        let at = self.waits.as_mut_ptr();
        // SAFETY: the entries and the timeout live through the call; no signal mask is given.
        let ready = unsafe { libc::ppoll(at, count, &raw const timeout, std::ptr::null()) };
        self.sleeps += 1;
        // Something came: spin again before the next sleep.
        if ready > 0 {
            self.idle_since_ns = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn it_spins_first_and_wakes_for_a_descriptor() {
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        let clock = Clock::start(1);
        let mut idle = Idle::new(SPIN_MIN, false);
        let began = clock::monotonic_ns();
        let second = Duration::from_secs(1);
        writer.write_all(&[1]).expect("room");
        while idle.sleeps() == 0 {
            idle.wait(&clock, Time::NEVER, second, [reader.as_fd()]);
        }
        assert!(clock::monotonic_ns() - began >= 100_000, "it spun");
        idle.wait(&clock, Time::NEVER, second, [reader.as_fd()]);
        assert_eq!(idle.sleeps(), 1, "it spins again after something came");
    }

    #[test]
    fn it_never_sleeps_past_a_deadline_or_when_told_to_poll() {
        let clock = Clock::start(1);
        let mut idle = Idle::new(SPIN_MIN, false);
        for _ in 0..100_000 {
            idle.wait(&clock, Time::ZERO, Duration::MAX, []);
        }
        assert_eq!(idle.sleeps(), 0);
        let mut idle = Idle::new(SPIN_MIN, true);
        for _ in 0..100_000 {
            idle.wait(&clock, Time::NEVER, Duration::MAX, []);
        }
        assert_eq!(idle.sleeps(), 0);
    }
}
