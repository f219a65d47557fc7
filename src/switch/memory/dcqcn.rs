//! The buffer rule of the DCQCN paper (Zhu et al., SIGCOMM 2015, section 4): how a switch with
//! `n` ports and eight priorities shares a memory of `B` so that nothing is lost, and how low ECN
//! must mark to come before PFC.

use super::config::{Alpha, GroupConfig, Lossless, PRIORITIES, PortShares, Threshold};

/// The paper's switch: 12 MB, 32 ports of 40 Gb/s.
pub const DCQCN_PAPER: DcqcnBuffer = DcqcnBuffer {
    buffer_bytes: 12_000_000,
    ports: 32,
    flight_bytes: 22_400,
    beta: 8,
    mtu_bytes: 1_500,
};

/// A memory shared by the paper's rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DcqcnBuffer {
    /// B.
    pub buffer_bytes: u64,
    /// n.
    pub ports: u64,
    /// t_flight: the headroom of each port and priority.
    pub flight_bytes: u64,
    /// What the dynamic threshold takes of the free memory: a power of two here.
    pub beta: u64,
    /// A pause ends two of these below the threshold.
    pub mtu_bytes: u64,
}

impl DcqcnBuffer {
    /// Priorities with headroom.
    const PRIORITIES: u64 = PRIORITIES as u64;

    /// What is left beside all headrooms.
    pub const fn shared_bytes(&self) -> u64 {
        let headroom = Self::PRIORITIES * self.ports * self.flight_bytes;
        self.buffer_bytes.saturating_sub(headroom)
    }

    /// The largest static threshold with which every port and priority fits.
    pub const fn pfc_static_bytes(&self) -> u64 {
        self.shared_bytes() / (Self::PRIORITIES * self.ports)
    }

    /// The dynamic threshold t_PFC while `used_bytes` of the shared memory are in use.
    pub const fn pfc_bytes(&self, used_bytes: u64) -> u64 {
        self.beta * self.shared_bytes().saturating_sub(used_bytes) / Self::PRIORITIES
    }

    /// Up to this mark ECN comes before PFC, whichever ingress the frames in the queues came by.
    pub const fn ecn_bytes(&self) -> u64 {
        let parts = Self::PRIORITIES * self.ports * (self.beta + 1);
        self.beta * self.shared_bytes() / parts
    }

    /// The same with the static threshold.
    pub const fn ecn_static_bytes(&self) -> u64 {
        self.pfc_static_bytes() / self.ports
    }

    /// The shares of each port: every priority lossless. None when beta is no power of two from 1/16
    /// to 1,024.
    pub fn shares(&self) -> Option<PortShares> {
        let exponent = self.beta.is_power_of_two().then(|| self.beta.trailing_zeros())?;
        // Beta is a share of an eighth of the free memory.
        let exponent = i8::try_from(exponent).ok()?.checked_sub(3)?;
        let group = GroupConfig {
            min_bytes: 0,
            threshold: Threshold {
                static_bytes: None,
                dt_alpha: Some(Alpha::from_exponent(exponent)?),
            },
            lossless: Some(Lossless {
                headroom_bytes: self.flight_bytes,
                xon_bytes: 0,
                xon_offset_bytes: 2 * self.mtu_bytes,
            }),
        };
        Some(PortShares { groups: [group; PRIORITIES], ..PortShares::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::PortId;
    use crate::switch::memory::{Account, GroupId, Memory};

    #[test]
    fn the_papers_numbers_come_out() {
        let paper = DCQCN_PAPER;
        assert_eq!(paper.flight_bytes, 22_400);
        assert_eq!(paper.pfc_static_bytes(), 24_475);
        assert_eq!(paper.ecn_bytes(), 21_755);
        assert!(paper.ecn_static_bytes() < paper.mtu_bytes, "why the threshold has to be dynamic");
        assert_eq!(paper.pfc_bytes(0), 6_265_600);
        assert_eq!(DcqcnBuffer { beta: 3, ..paper }.shares(), None);
    }

    /// One ingress fills `queue_bytes` into every queue of every port.
    fn fill(queue_bytes: u64) -> Memory {
        let shares = vec![DCQCN_PAPER.shares().expect("beta 8"); 32];
        let mut memory = Memory::new(DCQCN_PAPER.buffer_bytes, 1, &shares);
        for priority in 0..8 {
            for egress in (0..32).map(PortId) {
                let account =
                    Account::new(GroupId::new(PortId(0), priority), egress, u32::from(priority));
                let mut left = u32::try_from(queue_bytes).expect("small");
                while left > 0 {
                    let cells = if left > 1_000 { 1_000 } else { 1 };
                    assert_eq!(memory.admit(account, cells), Ok(()));
                    left -= cells;
                }
            }
        }
        memory
    }

    #[test]
    fn the_memory_follows_the_rule_to_the_byte() {
        let mark = DCQCN_PAPER.ecn_bytes();
        let calm = fill(mark);
        assert_eq!(calm.xoff(PortId(0)), 0, "every queue is at its mark, and nothing is paused");
        assert_eq!(calm.shared_bytes(), DCQCN_PAPER.shared_bytes());
        assert_ne!(fill(mark + 1).xoff(PortId(0)), 0, "one byte more in each, and PFC came first");
    }

    #[test]
    fn a_pause_ends_two_mtu_below_the_threshold() {
        let shares = vec![DCQCN_PAPER.shares().expect("beta 8"); 32];
        let mut memory = Memory::new(DCQCN_PAPER.buffer_bytes, 1, &shares);
        let at = Account::new(GroupId::new(PortId(5), 3), PortId(0), 3);
        let mut used = 0;
        while memory.xoff(PortId(5)) == 0 {
            assert_eq!(memory.admit(at, 100), Ok(()));
            used += 100;
        }
        let paused_at = used - 100;
        assert_eq!(paused_at, DCQCN_PAPER.pfc_bytes(paused_at) / 100 * 100);
        while memory.xoff(PortId(5)) != 0 {
            memory.release(at, 100);
            used -= 100;
        }
        assert!(used + 3_000 <= DCQCN_PAPER.pfc_bytes(used));
        assert!(used + 100 + 3_000 > DCQCN_PAPER.pfc_bytes(used + 100));
    }
}
