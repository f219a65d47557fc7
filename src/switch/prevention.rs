//! Deadlock prevention by port groups (H3C): a frame that comes in and leaves by ports of one group
//! turns back towards where it came from, as in a fabric a detour or a loop does. Such hooks are what
//! closes a cycle of ports that wait for each other, so the frame goes on in the next of a chain of
//! queues, and its DSCP and PCP say so to the next switch. A cycle would need every queue of the
//! chain, and the last one is lossy, where nobody waits: with one lossless queue as the only target, a
//! standing loop would deadlock there as well.

use crate::wire::checksum;
use crate::wire::ethertype;

/// One queue of the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainStep {
    /// The priority, and so the queue, of frames that are there.
    pub priority: u8,
    /// Their DSCP.
    pub dscp: u8,
}

/// What is rewritten, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PreventionConfig {
    /// The group of each port, by its number, or none.
    pub groups: Vec<Option<u8>>,
    /// The queues, in the order in which a frame goes through them.
    pub chain: Vec<ChainStep>,
}

impl PreventionConfig {
    /// Whether this prevents anything, at a switch of `ports` ports with the classes `lossless`, as
    /// bits.
    ///
    /// # Errors
    /// The field, and what is wrong with it.
    pub fn check(&self, ports: usize, lossless: u8) -> Result<(), (&'static str, String)> {
        let fail = |problem: String| Err(("prevention.chain", problem));
        if self.groups.len() != ports {
            let problem = format!("{} ports have a group or none, of {ports}", self.groups.len());
            return Err(("prevention.groups", problem));
        }
        let Some((last, before)) = self.chain.split_last().filter(|(_, before)| !before.is_empty())
        else {
            return fail("a chain has two queues at least".to_owned());
        };
        for (place, step) in self.chain.iter().enumerate() {
            if step.priority > 7 || step.dscp > 63 {
                let ChainStep { priority, dscp } = step;
                return fail(format!("priority {priority}, DSCP {dscp}: 0 to 7 and 0 to 63"));
            }
            if self.chain[..place].iter().any(|other| other.priority == step.priority) {
                return fail(format!("priority {} twice: the chain closes", step.priority));
            }
        }
        if lossless & 1 << last.priority != 0 {
            return fail(format!(
                "the last priority, {}, is lossless: a standing loop deadlocks there too",
                last.priority
            ));
        }
        if let Some(step) = before.iter().find(|step| lossless & 1 << step.priority == 0) {
            let priority = step.priority;
            return fail(format!("priority {priority} is lossy: the chain ends there"));
        }
        Ok(())
    }
}

/// The chain, as a frame is looked up in it.
#[derive(Clone, Debug)]
pub struct Prevention {
    /// The group of each port; 0 for none.
    groups: Box<[u16]>,
    /// The step behind each priority.
    next: [Option<ChainStep>; 8],
}

impl Prevention {
    /// The chain of a configuration that was checked.
    pub fn new(config: &PreventionConfig) -> Self {
        let mut next = [None; 8];
        for pair in config.chain.windows(2) {
            next[usize::from(pair[0].priority & 7)] = Some(pair[1]);
        }
        let group = |group: &Option<u8>| group.map_or(0, |group| u16::from(group) + 1);
        Self { groups: config.groups.iter().map(group).collect(), next }
    }

    /// Where a frame of `priority` that came by port `ingress` and leaves by `egress` goes on: None
    /// leaves it as it is.
    #[inline]
    pub fn step(&self, ingress: usize, egress: usize, priority: u8) -> Option<ChainStep> {
        let group = *self.groups.get(ingress)?;
        if group == 0 || self.groups.get(egress) != Some(&group) {
            return None;
        }
        self.next[usize::from(priority & 7)]
    }
}

/// Sets the DSCP of the IP packet in a frame with `tags` VLAN tags, of which `head` is the beginning,
/// and updates the IPv4 checksum (RFC 1624). False, and nothing changes, when there is none.
pub fn set_dscp(head: &mut [u8], tags: usize, dscp: u8) -> bool {
    let type_at = 12 + 4 * tags;
    let Some([t0, t1, rest @ ..]) = head.get_mut(type_at..) else { return false };
    match (u16::from_be_bytes([*t0, *t1]), rest) {
        (ethertype::IPV4, [first, second, _, _, _, _, _, _, _, _, sum0, sum1, ..]) => {
            let before = u16::from_be_bytes([*first, *second]);
            *second = dscp << 2 | *second & 3;
            let after = u16::from_be_bytes([*first, *second]);
            let sum = checksum::update(u16::from_be_bytes([*sum0, *sum1]), before, after);
            [*sum0, *sum1] = sum.to_be_bytes();
            true
        }
        // The traffic class spans the low half of the first octet and the high half of the second.
        (ethertype::IPV6, [first, second, ..]) => {
            *first = *first & 0xf0 | dscp >> 2;
            *second = dscp << 6 | *second & 0x3f;
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::ipv4::{self, Ipv4Header, Ipv4Packet};
    use crate::wire::ipv6::{self, Ipv6Header, Ipv6Packet};
    use std::net::{Ipv4Addr, Ipv6Addr};

    const LOSSLESS: u8 = 0b1_1000;

    fn config() -> PreventionConfig {
        let step = |priority, dscp| ChainStep { priority, dscp };
        PreventionConfig {
            groups: vec![Some(0), Some(0), Some(1), None, None],
            chain: vec![step(3, 24), step(4, 32), step(1, 8)],
        }
    }

    #[test]
    fn a_hook_goes_on_in_the_next_queue_and_nothing_else_does() {
        let config = config();
        assert_eq!(config.check(5, LOSSLESS), Ok(()));
        let prevention = Prevention::new(&config);
        assert_eq!(prevention.step(0, 1, 3), Some(config.chain[1]));
        assert_eq!(prevention.step(1, 0, 4), Some(config.chain[2]));
        assert_eq!(prevention.step(0, 1, 1), None, "the last queue keeps it");
        assert_eq!(prevention.step(0, 1, 0), None, "not in the chain");
        assert_eq!(prevention.step(0, 2, 3), None, "another group");
        assert_eq!(prevention.step(3, 4, 3), None, "no group is not a group");
        assert_eq!(prevention.step(0, 3, 3), None);
        assert_eq!(prevention.step(9, 9, 3), None, "no such port");
    }

    #[test]
    fn a_chain_that_prevents_nothing_is_refused() {
        let refused = |spoil: fn(&mut PreventionConfig)| {
            let mut config = config();
            spoil(&mut config);
            let (field, problem) = config.check(5, LOSSLESS).expect_err("refused");
            format!("{field}: {problem}")
        };
        let step = |priority, dscp| ChainStep { priority, dscp };
        assert_eq!(
            refused(|c| c.chain.truncate(2)),
            "prevention.chain: the last priority, 4, is lossless: a standing loop deadlocks there too"
        );
        assert_eq!(
            refused(|c| c.chain.truncate(1)),
            "prevention.chain: a chain has two queues at least"
        );
        assert_eq!(
            refused(|c| c.chain[1].priority = 3),
            "prevention.chain: priority 3 twice: the chain closes"
        );
        assert_eq!(
            refused(|c| c.chain[0].priority = 5),
            "prevention.chain: priority 5 is lossy: the chain ends there"
        );
        assert_eq!(
            refused(|c| c.chain[2].dscp = 64),
            "prevention.chain: priority 1, DSCP 64: 0 to 7 and 0 to 63"
        );
        assert_eq!(
            refused(|c| c.groups.truncate(3)),
            "prevention.groups: 3 ports have a group or none, of 5"
        );
        assert_eq!(Prevention::new(&config()).step(0, 1, 3), Some(step(4, 32)));
    }

    #[test]
    fn a_dscp_is_set_through_tags_and_keeps_ecn_and_checksum() {
        for tags in 0..=4 {
            for (dscp, ecn) in [(0, 3), (46, 1), (63, 0)] {
                let l3 = 14 + 4 * tags;
                let mut frame = vec![0x81; l3 + ipv6::HEADER_BYTES];
                frame[l3 - 2..l3].copy_from_slice(&ethertype::IPV4.to_be_bytes());
                let header = Ipv4Header {
                    source: Ipv4Addr::new(10, 0, 0, 1),
                    destination: Ipv4Addr::new(10, 0, 0, 2),
                    protocol: 17,
                    ttl: 9,
                    dscp: 24,
                    ecn,
                    identification: 7,
                    dont_fragment: true,
                    payload_bytes: 20,
                };
                header.emit(&mut frame[l3..]).expect("room");
                assert!(set_dscp(&mut frame, tags, dscp));
                let packet = Ipv4Packet::new_checked(&frame[l3..]).expect("a packet");
                assert!(packet.is_checksum_valid());
                assert_eq!(Ipv4Header::read(&packet), Ipv4Header { dscp, ..header });
                assert!(!set_dscp(&mut frame[..l3 + ipv4::HEADER_BYTES - 9], tags, dscp));

                frame[l3 - 2..l3].copy_from_slice(&ethertype::IPV6.to_be_bytes());
                let header = Ipv6Header {
                    source: Ipv6Addr::LOCALHOST,
                    destination: Ipv6Addr::LOCALHOST,
                    next_header: 17,
                    hop_limit: 9,
                    dscp: 24,
                    ecn,
                    flow_label: 0xfedcb,
                    payload_bytes: 0,
                };
                header.emit(&mut frame[l3..]).expect("room");
                assert!(set_dscp(&mut frame, tags, dscp));
                let packet = Ipv6Packet::new_checked(&frame[l3..]).expect("a packet");
                assert_eq!(Ipv6Header::read(&packet), Ipv6Header { dscp, ..header });
            }
        }
        let mut arp = [0; 42];
        arp[12..14].copy_from_slice(&ethertype::ARP.to_be_bytes());
        assert!(!set_dscp(&mut arp, 0, 1) && arp[14..] == [0; 28]);
        assert!(!set_dscp(&mut arp[..13], 0, 1) && !set_dscp(&mut arp, 9, 1));
    }
}
