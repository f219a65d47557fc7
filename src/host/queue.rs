//! The queue in front of a host's line, as the planned frames alone would fill it.
//!
//! Which frame finds no place is decided by planned times and frame sizes, not by when the driver
//! came: a driver that is late drops nothing that a punctual one would have sent.

use std::collections::VecDeque;

use crate::line::Line;
use crate::time::Time;

/// A first-in first-out queue of at most so many frames before a line.
#[derive(Clone, Debug)]
pub struct PlannedQueue {
    line: Line,
    /// When each frame that was admitted starts, ascending; those in the past have left.
    starts: VecDeque<Time>,
    frames_max: usize,
}

impl PlannedQueue {
    /// A queue of at most `frames_max` waiting frames before a line like `line`.
    pub fn new(line: Line, frames_max: u32) -> Self {
        let frames_max = usize::try_from(frames_max).unwrap_or(usize::MAX);
        Self { line, starts: VecDeque::with_capacity(frames_max), frames_max }
    }

    /// Forgets all frames: `line` is what they would have waited for.
    pub fn restart(&mut self, line: Line) {
        self.line = line;
        self.starts.clear();
    }

    /// When a frame that is planned for `planned` starts, if it finds a place.
    pub fn start_of(&self, planned: Time) -> Time {
        self.line.busy_until().max(planned)
    }

    /// Whether a frame of `len_bytes` that is planned for `planned`, not before those asked about
    /// earlier, finds a place. One that does takes it, and starts at the time that is given.
    pub fn admit(&mut self, planned: Time, len_bytes: u32) -> Option<Time> {
        while self.starts.front().is_some_and(|start| *start <= planned) {
            self.starts.pop_front();
        }
        let at = self.start_of(planned);
        if at > planned && self.starts.len() >= self.frames_max {
            return None;
        }
        let (start, _) = self.line.occupy(at, planned, len_bytes);
        if start > planned {
            self.starts.push_back(start);
        }
        Some(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Rate;

    #[test]
    fn tail_drop_leaves_the_lines_own_rate() {
        // 84 bytes at 10 Gb/s last 67.2 ns; planned each 33.6 ns, every second one finds a place.
        let mut queue = PlannedQueue::new(Line::new(Rate::from_gbps(10), 24), 4);
        let planned = |n: u64| Time::from_ps(n * 33_600);
        let admitted: Vec<bool> =
            (0..1_000).map(|n| queue.admit(planned(n), 60).is_some()).collect();
        assert_eq!(admitted[..10].iter().filter(|yes| **yes).count(), 9, "the queue fills");
        assert_eq!(admitted[500..].iter().filter(|yes| **yes).count(), 250);
        // Room again after a pause.
        assert_eq!(queue.admit(Time::from_ns(1_000_000), 60), Some(Time::from_ns(1_000_000)));
    }

    #[test]
    fn a_line_that_keeps_up_drops_nothing_even_without_a_place_to_wait() {
        let mut queue = PlannedQueue::new(Line::new(Rate::from_gbps(10), 24), 0);
        let planned = |n: u64| Time::from_ps(n * 67_200);
        assert!((0..1_000).all(|n| queue.admit(planned(n), 60) == Some(planned(n))));
        assert_eq!(queue.start_of(planned(999)), planned(1_000));
        assert_eq!(queue.admit(planned(999), 60), None);
    }
}
