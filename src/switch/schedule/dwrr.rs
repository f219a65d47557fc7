//! Deficit weighted round robin (M. Shreedhar, G. Varghese, SIGCOMM 1995): in its turn a queue may
//! send its quantum, and what its next frame did not fit into is kept for the next turn.
//!
//! A queue that runs empty loses what it had left. One that is paused keeps it, as it keeps the rest
//! of the turn in which it was paused: it goes on with that, before it is given a quantum again.

use super::super::config::QUEUES;

/// The queues that share by weight.
#[derive(Debug)]
pub struct Dwrr {
    quantum_bytes: [u64; QUEUES],
    deficit_bytes: [u64; QUEUES],
    /// Whose turn it is, and whether it has been given its quantum.
    current: u32,
    is_granted: bool,
}

/// Bits of a queue's number.
const QUEUE_MASK: u32 = 7;

const _: () = assert!(QUEUES == 8, "the mask is that of eight queues");

impl Dwrr {
    /// Queues with the quantum of each; a queue without one must never be eligible.
    pub(super) const fn new(quantum_bytes: [u64; QUEUES]) -> Self {
        Self { quantum_bytes, deficit_bytes: [0; QUEUES], current: 0, is_granted: false }
    }

    /// Whose turn it is; None when nobody is eligible.
    pub(super) fn turn(
        &mut self,
        eligible: u32,
        head_wire_bytes: &impl Fn(u32) -> u64,
    ) -> Option<u32> {
        if eligible == 0 {
            return None;
        }
        loop {
            let at = self.current as usize & (QUEUES - 1);
            if eligible & 1 << self.current != 0 {
                let need = head_wire_bytes(self.current);
                if need <= self.deficit_bytes[at] {
                    self.is_granted = true;
                    return Some(self.current);
                }
                if !self.is_granted {
                    self.deficit_bytes[at] += self.quantum_bytes[at];
                    self.is_granted = true;
                    continue;
                }
            }
            self.pass_on(eligible);
        }
    }

    /// All queues are empty.
    pub(super) const fn forget(&mut self) {
        self.deficit_bytes = [0; QUEUES];
        self.is_granted = false;
    }

    /// The turn goes to the next eligible queue.
    const fn pass_on(&mut self, eligible: u32) {
        // Queues behind the current one, then from the first.
        let behind = eligible >> (self.current + 1) << (self.current + 1);
        let next = if behind == 0 { eligible } else { behind };
        self.current = next.trailing_zeros() & QUEUE_MASK;
        self.is_granted = false;
    }

    /// The queue whose turn it is has sent; `is_empty` when it has nothing left.
    pub(super) const fn sent(&mut self, queue: u32, wire_bytes: u64, is_empty: bool) {
        let deficit = &mut self.deficit_bytes[queue as usize & (QUEUES - 1)];
        *deficit = deficit.saturating_sub(wire_bytes);
        if is_empty {
            *deficit = 0;
            if queue == self.current {
                // When it has frames again it is behind the others.
                self.current = (self.current + 1) & QUEUE_MASK;
                self.is_granted = false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns of queues that always have a frame, until one has had `turns`.
    fn turns(dwrr: &mut Dwrr, eligible: u32, heads: [u64; QUEUES], turns: usize) -> Vec<u32> {
        (0..turns)
            .map(|_| {
                let queue = dwrr.turn(eligible, &|queue| heads[queue as usize]).expect("eligible");
                dwrr.sent(queue, heads[queue as usize], false);
                queue
            })
            .collect()
    }

    #[test]
    fn the_paper_s_example_of_carried_deficits() {
        // Quantum 500 each; frames of 200 and of 750: two of the first, then in the second round
        // three of the first and one of the second.
        let mut dwrr = Dwrr::new([500, 500, 0, 0, 0, 0, 0, 0]);
        let heads = [200, 750, 0, 0, 0, 0, 0, 0];
        assert_eq!(turns(&mut dwrr, 0b11, heads, 6), [0, 0, 0, 0, 0, 1]);
        assert_eq!(dwrr.deficit_bytes[..2], [0, 250]);
    }

    #[test]
    fn a_small_quantum_takes_rounds() {
        let mut dwrr = Dwrr::new([64, 128, 0, 0, 0, 0, 0, 0]);
        let heads = [9_000; QUEUES];
        let order = turns(&mut dwrr, 0b11, heads, 300);
        let first = order.iter().filter(|queue| **queue == 0).count();
        assert!((99..=101).contains(&first), "{first}");
    }

    #[test]
    fn a_queue_that_runs_empty_loses_its_deficit() {
        let mut dwrr = Dwrr::new([1_000, 1_000, 0, 0, 0, 0, 0, 0]);
        let heads = [300; QUEUES];
        assert_eq!(dwrr.turn(0b11, &|queue| heads[queue as usize]), Some(0));
        dwrr.sent(0, 300, true);
        assert_eq!(dwrr.deficit_bytes[0], 0);
        assert_eq!(dwrr.turn(0b11, &|queue| heads[queue as usize]), Some(1), "its turn is over");
    }

    #[test]
    fn a_paused_queue_goes_on_with_what_it_had() {
        let mut dwrr = Dwrr::new([1_000, 1_000, 0, 0, 0, 0, 0, 0]);
        let heads = [300; QUEUES];
        assert_eq!(turns(&mut dwrr, 0b11, heads, 1), [0]);
        assert_eq!(dwrr.deficit_bytes[0], 700);
        // Paused, while the other has several turns.
        assert_eq!(turns(&mut dwrr, 0b10, heads, 7), [1; 7]);
        assert_eq!(dwrr.deficit_bytes[0], 700, "kept, and none added");
        let order = turns(&mut dwrr, 0b11, heads, 8);
        let behind = order.iter().skip_while(|queue| **queue == 1);
        assert_eq!(behind.copied().take(3).collect::<Vec<_>>(), [0, 0, 1]);
    }
}
