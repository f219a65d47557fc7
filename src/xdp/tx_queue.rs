//! Which of a port's queues a frame leaves by: all frames of a flow by the same, so that they stay
//! in order, and different flows by different ones.

use std::hash::Hasher as _;

use rustc_hash::FxHasher;

use crate::wire::parse::parse;
use crate::wire::{ethertype, ipv4::Ipv4Packet, ipv6, ipv6::Ipv6Packet, protocol};

/// IP protocol number (RFC 9293).
const TCP: u8 = 6;

/// An index below `queues` for the frame that begins with `head`.
pub(super) fn of_flow(head: &[u8], queues: usize) -> usize {
    if queues < 2 {
        return 0;
    }
    let mut hasher = FxHasher::default();
    let Ok(frame) = parse(head) else { return 0 };
    hasher.write(&frame.destination.0);
    hasher.write(&frame.source.0);
    let packet = &head[usize::from(frame.l3_offset)..];
    match frame.ethertype {
        ethertype::IPV4 => hash_ipv4(&mut hasher, packet),
        ethertype::IPV6 => hash_ipv6(&mut hasher, packet),
        _ => {}
    }
    // The upper bits of the product depend on all bits of what was hashed.
    let spread = u128::from(hasher.finish()) * queues as u128;
    usize::try_from(spread >> 64).unwrap_or(0)
}

fn hash_ipv4(hasher: &mut FxHasher, packet: &[u8]) {
    let Ok(ip) = Ipv4Packet::new_checked_prefix(packet, packet.len()) else { return };
    hasher.write(&ip.source().octets());
    hasher.write(&ip.destination().octets());
    // The fragments of a datagram stay together: only the first has ports.
    if !ip.is_fragment() {
        hash_ports(hasher, ip.protocol(), packet.get(ip.header_bytes()..));
    }
}

fn hash_ipv6(hasher: &mut FxHasher, packet: &[u8]) {
    let Ok(ip) = Ipv6Packet::new_checked_prefix(packet, packet.len()) else { return };
    hasher.write(&ip.source().octets());
    hasher.write(&ip.destination().octets());
    hash_ports(hasher, ip.next_header(), packet.get(ipv6::HEADER_BYTES..));
}

fn hash_ports(hasher: &mut FxHasher, next: u8, segment: Option<&[u8]>) {
    let ports = segment.and_then(<[u8]>::first_chunk::<4>);
    if let (TCP | protocol::UDP, Some(ports)) = (next, ports) {
        hasher.write(ports);
    }
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;
    use proptest::prelude::*;

    use super::*;

    fn udp(addresses: (u8, u8), ports: (u16, u16), ttl: u8, len: usize, vlan: bool) -> Vec<u8> {
        let ethernet = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let (from, to) = ([10, 0, 0, addresses.0], [10, 0, 0, addresses.1]);
        let ip = if vlan {
            ethernet.single_vlan(7.try_into().expect("a VLAN")).ipv4(from, to, ttl)
        } else {
            ethernet.ipv4(from, to, ttl)
        };
        let mut bytes = Vec::new();
        ip.udp(ports.0, ports.1).write(&mut bytes, &vec![ttl; len]).expect("a packet");
        bytes
    }

    fn udp6(address: u8, port: u16, hops: u8) -> Vec<u8> {
        let ethernet = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let mut bytes = Vec::new();
        let ip = ethernet.ipv6([address; 16], [9; 16], hops);
        ip.udp(port, 4_791).write(&mut bytes, &[hops; 30]).expect("a packet");
        bytes
    }

    proptest! {
        /// Nothing but the flow decides, and every head is an index that exists.
        #[test]
        fn a_flow_keeps_its_queue(
            addresses: (u8, u8),
            ports: (u16, u16),
            ttls: (u8, u8),
            lens in (0_usize..1_000, 0_usize..1_000),
            vlan: bool,
            queues in 1_usize..=64,
            cut in 0_usize..80,
        ) {
            let first = udp(addresses, ports, ttls.0, lens.0, vlan);
            let second = udp(addresses, ports, ttls.1, lens.1, vlan);
            prop_assert_eq!(of_flow(&first, queues), of_flow(&second, queues));
            prop_assert!(of_flow(&first, queues) < queues);
            prop_assert!(of_flow(&first[..cut.min(first.len())], queues) < queues);
            let (first, second) = (udp6(addresses.0, ports.0, ttls.0), udp6(addresses.0, ports.0, ttls.1));
            prop_assert_eq!(of_flow(&first, queues), of_flow(&second, queues));
        }

        #[test]
        fn fragments_of_a_datagram_stay_together(ports: (u16, u16), id: u16, offset in 1_u16..0x2000) {
            let with = |flags_and_offset: u16| {
                let mut bytes = udp((1, 2), ports, 64, 20, false);
                bytes[18..20].copy_from_slice(&id.to_be_bytes());
                bytes[20..22].copy_from_slice(&flags_and_offset.to_be_bytes());
                of_flow(&bytes, 8)
            };
            let mut later = udp((1, 2), (7, 7), 64, 20, false);
            later[20..22].copy_from_slice(&offset.to_be_bytes());
            prop_assert_eq!(with(0x2000), of_flow(&later, 8));
        }
    }

    #[test]
    fn flows_spread_over_the_queues() {
        for queues in [2, 3, 4, 8, 16] {
            let by_port: Vec<usize> = (0..1_024)
                .map(|n| of_flow(&udp((1, 2), (49_152 + n, 4_791), 64, 20, false), queues))
                .collect();
            let by_address: Vec<usize> =
                (0..=255).map(|n| of_flow(&udp6(n, 4_791, 64), queues)).collect();
            let by_mac: Vec<usize> = (0..=255)
                .map(|n| of_flow(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, n, 0x88, 0xb5], queues))
                .collect();
            for (what, flows) in [("ports", by_port), ("addresses", by_address), ("macs", by_mac)] {
                let fair = flows.len() / queues;
                for queue in 0..queues {
                    let n = flows.iter().filter(|one| **one == queue).count();
                    assert!(
                        n > fair / 4 && n < fair * 3,
                        "{what}: {n} of {} in {queue}",
                        flows.len()
                    );
                }
            }
        }
    }
}
