//! What the tests of path choices share: frames, loads, groups, and a chi-square bound.

use super::config::{GroupConfig, MemberConfig, Method};
use super::key::Packet;
use super::{Group, Loads, MemberId};
use crate::node::PortId;
use crate::rng::Rng;
use crate::time::Time;
use crate::units::Rate;

const MACS: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];

/// UDP and the BTH of a RoCE write.
fn transport(source_port: u16, destination_port: u16, qp: u32) -> Vec<u8> {
    let mut bytes = source_port.to_be_bytes().to_vec();
    bytes.extend(destination_port.to_be_bytes());
    bytes.extend([0, 20, 0, 0]);
    bytes.extend([0x0a, 0x40, 0xff, 0xff]);
    bytes.extend(qp.to_be_bytes());
    bytes.extend([0; 4]);
    bytes
}

pub(super) fn frame_v4(
    source: [u8; 4],
    destination: [u8; 4],
    source_port: u16,
    destination_port: u16,
    qp: u32,
) -> Vec<u8> {
    let mut bytes = MACS.to_vec();
    bytes.extend([0x08, 0x00, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 17, 0, 0]);
    bytes.extend(source);
    bytes.extend(destination);
    bytes.extend(transport(source_port, destination_port, qp));
    bytes
}

/// From fd00::`source` to fd00::`destination`.
pub(super) fn frame_v6(
    source: u8,
    destination: u8,
    flow_label: u32,
    source_port: u16,
    destination_port: u16,
    qp: u32,
) -> Vec<u8> {
    let address = |last| [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
    let mut bytes = MACS.to_vec();
    bytes.extend([0x86, 0xdd]);
    bytes.extend((0x6000_0000 | flow_label).to_be_bytes());
    bytes.extend([0, 20, 17, 64]);
    bytes.extend(address(source));
    bytes.extend(address(destination));
    bytes.extend(transport(source_port, destination_port, qp));
    bytes
}

/// The frame with `count` VLAN tags.
pub(super) fn tagged(bytes: &[u8], count: u32) -> Vec<u8> {
    let mut tagged = bytes[..12].to_vec();
    for vlan in 0..count {
        tagged.extend([0x81, 0x00, 0, vlan.to_le_bytes()[0]]);
    }
    tagged.extend(&bytes[12..]);
    tagged
}

/// An untagged frame that came by port 0.
pub(super) fn packet(bytes: &[u8]) -> Packet<'_> {
    let len_bytes = u32::try_from(bytes.len()).expect("a frame");
    Packet { head: bytes, tag_bytes: 0, len_bytes, ingress: PortId(0) }
}

/// A frame of flow number `flow`: sources of 10.0/16, one destination, one source port for all, as
/// with drivers that do not vary it, and the flow's number as its queue pair.
pub(super) fn flow_frame(flow: u32) -> Vec<u8> {
    let [_, _, c, d] = flow.to_be_bytes();
    frame_v4([10, 0, c, d], [10, 1, 0, 1], 49_152, 4_791, flow)
}

/// Loads that a test sets.
#[derive(Debug, Default)]
pub(super) struct SetLoads {
    pub(super) queue_bytes: [u64; 32],
    pub(super) tx_bytes: [u64; 32],
}

impl Loads for SetLoads {
    fn queue_bytes(&self, port: PortId) -> u64 {
        self.queue_bytes[port.index()]
    }

    fn tx_bytes(&self, port: PortId) -> u64 {
        self.tx_bytes[port.index()]
    }
}

/// A group with its generator and loads.
#[derive(Debug)]
pub(super) struct Trial {
    pub(super) group: Group,
    pub(super) loads: SetLoads,
    pub(super) rng: Rng,
    pub(super) now: Time,
}

impl Trial {
    /// Members on ports 0 to `members - 1`, of 100 Gb/s.
    pub(super) fn new(members: u16, method: Method) -> Self {
        let member = |port| MemberConfig::new(PortId(port), Rate::from_gbps(100));
        Self::of(GroupConfig::new((0..members).map(member).collect(), method), 1)
    }

    pub(super) fn of(config: GroupConfig, seed: u64) -> Self {
        let mut rng = Rng::for_node(seed, "s1");
        let group = Group::new(&config, &mut rng).expect("a good group");
        Self { group, loads: SetLoads::default(), rng, now: Time::ZERO }
    }

    pub(super) fn choose(&mut self, packet: &Packet<'_>) -> Option<MemberId> {
        self.group.choose(packet, &self.loads, self.now, &mut self.rng)
    }

    /// The member of a frame of flow number `flow`.
    pub(super) fn member_of(&mut self, flow: u32) -> u16 {
        self.choose(&packet(&flow_frame(flow))).expect("a member is up").0
    }

    /// How many of `frames` frames, each of another flow, each member gets.
    pub(super) fn counts(&mut self, frames: u32) -> Vec<u64> {
        let mut counts = vec![0; self.group.members().len()];
        for flow in 0..frames {
            counts[usize::from(self.member_of(flow))] += 1;
        }
        counts
    }
}

/// Fails when `counts` would come from the `weights` less than once in ten thousand runs: chi-square
/// against its quantile by Wilson and Hilferty (1931).
pub(super) fn assert_spread(counts: &[u64], weights: &[u64]) {
    assert_eq!(counts.len(), weights.len());
    let as_f64 = |n: u64| f64::from(u32::try_from(n).expect("a small count"));
    let total = as_f64(counts.iter().sum());
    let weight_sum = as_f64(weights.iter().sum());
    let chi_square: f64 = counts
        .iter()
        .zip(weights)
        .map(|(count, weight)| {
            let want = total * as_f64(*weight) / weight_sum;
            (as_f64(*count) - want).powi(2) / want
        })
        .sum();
    let freedom = as_f64(u64::try_from(counts.len() - 1).expect("small"));
    let spread = 2.0 / (9.0 * freedom);
    let quantile = freedom * (1.0 - spread + 3.719 * spread.sqrt()).powi(3);
    assert!(chi_square < quantile, "{counts:?}: chi-square {chi_square:.1} above {quantile:.1}");
}
