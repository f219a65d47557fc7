//! Which queue of a port is served next.

/// Strict priority: the highest queue of those that have frames and may send. `eligible` has bit n
/// set for queue n.
#[inline]
pub(super) const fn strict(eligible: u32) -> Option<u32> {
    eligible.checked_ilog2()
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
