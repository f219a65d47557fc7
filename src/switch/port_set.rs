//! A set of ports as 256 bits.

use std::hint::cold_path;

use crate::node::PortId;

/// Ports that a switch may have.
pub(super) const PORTS_MAX: usize = 256;

const WORDS: usize = PORTS_MAX / 64;

/// A set of ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PortSet([u64; WORDS]);

const fn place(port: usize) -> (usize, u64) {
    // Ports are below PORTS_MAX; the mask says so to the compiler.
    ((port >> 6) & (WORDS - 1), 1 << (port & 63))
}

impl PortSet {
    #[inline]
    pub(super) const fn contains(&self, port: usize) -> bool {
        let (word, bit) = place(port);
        self.0[word] & bit != 0
    }

    #[inline]
    pub(super) const fn insert(&mut self, port: usize) {
        let (word, bit) = place(port);
        self.0[word] |= bit;
    }

    #[inline]
    pub(super) const fn remove(&mut self, port: usize) {
        let (word, bit) = place(port);
        self.0[word] &= !bit;
    }

    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        let [a, b, c, d] = self.0;
        a | b | c | d == 0
    }

    /// The lowest port of a set that is not empty.
    #[inline]
    pub(super) const fn lowest(&self) -> PortId {
        debug_assert!(!self.is_empty(), "a set without ports");
        let [a, b, c, d] = self.0;
        if a != 0 {
            return port_at(0, a);
        }
        cold_path();
        if b != 0 {
            port_at(1, b)
        } else if c != 0 {
            port_at(2, c)
        } else {
            port_at(3, d)
        }
    }

    #[must_use]
    pub(super) const fn and(self, other: Self) -> Self {
        let ([a, b, c, d], [e, f, g, h]) = (self.0, other.0);
        Self([a & e, b & f, c & g, d & h])
    }

    /// Takes the ports of another set out.
    pub(super) const fn subtract(&mut self, other: Self) {
        let [a, b, c, d] = &mut self.0;
        let [e, f, g, h] = other.0;
        (*a, *b, *c, *d) = (*a & !e, *b & !f, *c & !g, *d & !h);
    }

    /// Takes the lowest port out.
    pub(super) const fn pop(&mut self) -> Option<PortId> {
        if self.is_empty() { None } else { Some(self.pop_lowest()) }
    }

    /// Takes out the lowest port of a set that is not empty.
    #[inline]
    pub(super) const fn pop_lowest(&mut self) -> PortId {
        debug_assert!(!self.is_empty(), "a set without ports");
        let [a, b, c, d] = &mut self.0;
        if *a != 0 {
            return pop_bit(0, a);
        }
        cold_path();
        if *b != 0 {
            pop_bit(1, b)
        } else if *c != 0 {
            pop_bit(2, c)
        } else {
            pop_bit(3, d)
        }
    }
}

/// The lowest port of the word `at`, which is not zero.
const fn port_at(at: u16, word: u64) -> PortId {
    // Fewer than 64 trailing zeros fit any integer.
    #[allow(clippy::cast_possible_truncation, reason = "at most 63")]
    let bit = word.trailing_zeros() as u16;
    PortId(at * 64 + bit)
}

/// Takes the lowest port out of the word `at`, which is not zero.
#[inline]
const fn pop_bit(at: u16, word: &mut u64) -> PortId {
    let port = port_at(at, *word);
    *word &= word.wrapping_sub(1);
    port
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_come_out_ascending() {
        let mut set = PortSet::default();
        for port in [255, 0, 64, 63, 128] {
            set.insert(port);
        }
        set.insert(5);
        set.remove(5);
        assert!(set.contains(63) && !set.contains(5));
        assert_eq!(set.lowest(), PortId(0));
        let out: Vec<u16> = std::iter::from_fn(|| set.pop()).map(|port| port.0).collect();
        assert_eq!(out, [0, 63, 64, 128, 255]);
        assert!(set.is_empty());
    }
}
