//! Which queue of a port is served next.

/// Strict priority: the highest queue of those that have frames and may send. `eligible` has bit n
/// set for queue n.
#[inline]
pub(super) const fn strict(eligible: u8) -> Option<u8> {
    match eligible.checked_ilog2() {
        // The place of a bit of eight.
        #[allow(clippy::cast_possible_truncation, reason = "at most 7")]
        Some(queue) => Some(queue as u8),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_seven_goes_first() {
        assert_eq!(strict(0), None);
        assert_eq!(strict(0b1000_0001), Some(7));
        assert_eq!(strict(0b0000_0101), Some(2));
        assert_eq!(strict(1), Some(0));
    }
}
