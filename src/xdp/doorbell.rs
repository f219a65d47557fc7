//! How a thread that sleeps is told that another has put something into one of its rings.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};

use crossbeam::utils::CachePadded;

use super::sys;

/// A descriptor that becomes readable when somebody rings while its thread sleeps. Ringing at a
/// thread that is awake costs a fence and a load, and no system call.
#[derive(Debug)]
pub(crate) struct Doorbell {
    asleep: CachePadded<AtomicBool>,
    event: File,
}

impl Doorbell {
    pub(crate) fn new() -> io::Result<Self> {
        let event = File::from(sys::eventfd()?);
        Ok(Self { asleep: CachePadded::new(AtomicBool::new(false)), event })
    }

    /// What the thread sleeps on.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// The thread is about to sleep. `has_work` looks into its rings once more, after which nothing
    /// comes without the bell being rung; when it finds something the thread does not sleep.
    pub(crate) fn listen(&self, has_work: impl FnOnce() -> bool) {
        // Takes earlier rings away; there may be none.
        let _ = (&self.event).read(&mut [0; 8]);
        self.asleep.store(true, Ordering::Relaxed);
        // Between saying so and looking, as `ring` has one between publishing and looking: one of
        // the two sees what the other has done.
        fence(Ordering::SeqCst);
        if has_work() {
            self.ring();
        }
    }

    /// Something has been published for the thread.
    pub(crate) fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed) {
            // It can only fail by being full of rings, and then the thread wakes as well.
            let _ = (&self.event).write(&1_u64.to_ne_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    fn rings(bell: &Doorbell) -> bool {
        let mut fds = [PollFd::new(bell.fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).expect("a descriptor") == 1
    }

    #[test]
    fn it_rings_for_a_sleeper_alone_and_once() {
        let bell = Doorbell::new().expect("a descriptor");
        bell.ring();
        assert!(!rings(&bell), "nobody sleeps");
        bell.listen(|| false);
        assert!(!rings(&bell));
        bell.ring();
        assert!(rings(&bell));
        bell.listen(|| false);
        assert!(!rings(&bell), "the next sleep begins afresh");
        bell.listen(|| true);
        assert!(rings(&bell), "what came meanwhile is not slept over");
    }
}
