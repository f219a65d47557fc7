//! Which queue of a port is served next.

/// Strict priority: the highest queue of those that have frames and may send, of which there is
/// one. `eligible` has bit n set for queue n.
#[inline]
pub(super) const fn strict(eligible: u32) -> u32 {
    debug_assert!(eligible != 0, "a port without anything to send");
    // There always is one, and it is below 8: that the compiler knows.
    (eligible & 0xff | 1).ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_seven_goes_first() {
        assert_eq!(strict(0b1000_0001), 7);
        assert_eq!(strict(0b0000_0101), 2);
        assert_eq!(strict(1), 0);
    }
}
