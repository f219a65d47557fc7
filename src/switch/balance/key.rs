//! What tells one flow from another: selectable fields of a frame, in one fixed order.

use std::net::IpAddr;

use crate::node::PortId;
use crate::wire::ethertype;

/// A frame that is to be given a path.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Its leading bytes, from the destination address: all of them, or as many as a
    /// [`FrameStore`](crate::frame::FrameStore) shows.
    pub head: &'a [u8],
    /// Bytes of VLAN tags between the addresses and the EtherType.
    pub tag_bytes: u32,
    /// Length of the whole frame.
    pub len_bytes: u32,
    /// The port that it came by.
    pub ingress: PortId,
}

/// A set of header fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fields(u16);

impl Fields {
    /// None.
    pub const NONE: Self = Self(0);
    /// Source address of IPv4 or IPv6.
    pub const SOURCE_IP: Self = Self(1 << 0);
    /// Destination address of IPv4 or IPv6.
    pub const DESTINATION_IP: Self = Self(1 << 1);
    /// Source port of TCP or UDP.
    pub const SOURCE_PORT: Self = Self(1 << 2);
    /// Destination port of TCP or UDP.
    pub const DESTINATION_PORT: Self = Self(1 << 3);
    /// Protocol of IPv4, or the first next header of IPv6 that is no extension.
    pub const PROTOCOL: Self = Self(1 << 4);
    /// Flow label of IPv6 (RFC 6437).
    pub const FLOW_LABEL: Self = Self(1 << 5);
    /// The user-defined field of RoCE: the destination queue pair of the BTH (UDP port 4791).
    pub const DESTINATION_QP: Self = Self(1 << 6);
    /// Source MAC address.
    pub const SOURCE_MAC: Self = Self(1 << 7);
    /// Destination MAC address.
    pub const DESTINATION_MAC: Self = Self(1 << 8);
    /// EtherType behind all tags.
    pub const ETHERTYPE: Self = Self(1 << 9);

    /// Both addresses, both ports, the protocol.
    pub const FIVE_TUPLE: Self = Self(0x1f);
    /// What frames that are not IP are told apart by, whatever is selected.
    pub const LAYER_2: Self = Self(0x380);

    /// Every field with its name in topology files.
    pub const NAMES: [(&'static str, Self); 10] = [
        ("source_ip", Self::SOURCE_IP),
        ("destination_ip", Self::DESTINATION_IP),
        ("source_port", Self::SOURCE_PORT),
        ("destination_port", Self::DESTINATION_PORT),
        ("protocol", Self::PROTOCOL),
        ("flow_label", Self::FLOW_LABEL),
        ("destination_qp", Self::DESTINATION_QP),
        ("source_mac", Self::SOURCE_MAC),
        ("destination_mac", Self::DESTINATION_MAC),
        ("ethertype", Self::ETHERTYPE),
    ];

    /// The fields of either set.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The fields of this set that are not in the other.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether all fields of `other` are in this set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether a field of `other` is in this set.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether the set has no field.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// A flow by the values of its fields. Those that are None are not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Source address.
    pub source_ip: IpAddr,
    /// Destination address, of the same version.
    pub destination_ip: IpAddr,
    /// Source port of TCP or UDP.
    pub source_port: Option<u16>,
    /// Destination port of TCP or UDP.
    pub destination_port: Option<u16>,
    /// Protocol, or next header.
    pub protocol: Option<u8>,
    /// Flow label, 20 bits, of IPv6.
    pub flow_label: Option<u32>,
    /// Destination queue pair of RoCEv2, 24 bits.
    pub destination_qp: Option<u32>,
}

impl Flow {
    /// All flows between two addresses.
    pub const fn between(source_ip: IpAddr, destination_ip: IpAddr) -> Self {
        Self {
            source_ip,
            destination_ip,
            source_port: None,
            destination_port: None,
            protocol: None,
            flow_label: None,
            destination_qp: None,
        }
    }
}

const fn to_ipv6(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// Room for all fields.
const KEY_BYTES_MAX: usize = 64;

/// The values of the selected fields that a frame has, in the order of the constants of [`Fields`],
/// which is that of receive side scaling: addresses, then ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowKey {
    bytes: [u8; KEY_BYTES_MAX],
    len: u8,
    present: Fields,
}

/// IPv6 extension headers that are stepped over to find the ports, at most.
const EXTENSIONS_MAX: usize = 8;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// UDP destination port of RoCEv2 (IANA), big-endian.
const ROCE_PORT: [u8; 2] = 4791_u16.to_be_bytes();

/// Where the destination queue pair is, from the start of the UDP header: 8 bytes of UDP, 5 of BTH.
const DESTINATION_QP_AT: usize = 13;

impl FlowKey {
    const EMPTY: Self = Self { bytes: [0; KEY_BYTES_MAX], len: 0, present: Fields::NONE };

    /// The key of a frame. Frames that are not IP, or whose IP header is cut, are told apart by
    /// [`Fields::LAYER_2`]; fragments have no ports and no queue pair, so that all fragments of a
    /// packet have one key.
    #[inline]
    pub fn of(packet: &Packet<'_>, fields: Fields) -> Self {
        let type_at = 12 + packet.tag_bytes as usize;
        let l3 = packet.head.get(type_at..).and_then(<[u8]>::split_first_chunk::<2>);
        if let Some((ethertype, network)) = l3
            && fields == Fields::FIVE_TUPLE
            && u16::from_be_bytes(*ethertype) == ethertype::IPV4
            && let Some(key) = Self::five_tuple_of_plain_ipv4(network)
        {
            return key;
        }
        Self::of_any(packet, l3, fields)
    }

    /// The short way to the commonest key: no options, no fragment, TCP or UDP.
    #[inline(always)]
    fn five_tuple_of_plain_ipv4(network: &[u8]) -> Option<Self> {
        let header = network.first_chunk::<24>()?;
        let is_plain = header[0] == 0x45
            && (header[6] & 0x3f) | header[7] == 0
            && matches!(header[9], UDP | TCP);
        let tuple = header.last_chunk::<12>().filter(|_| is_plain)?;
        let mut bytes = [0; KEY_BYTES_MAX];
        *bytes.first_chunk_mut()? = *tuple;
        bytes[12] = header[9];
        Some(Self { bytes, len: 13, present: Fields::FIVE_TUPLE })
    }

    #[inline(never)]
    fn of_any(packet: &Packet<'_>, l3: Option<(&[u8; 2], &[u8])>, fields: Fields) -> Self {
        let mut key = Self::EMPTY;
        let Some((ethertype, network)) = l3 else {
            key.layer_2(packet.head, Fields::LAYER_2);
            return key;
        };
        let is_ip = match u16::from_be_bytes(*ethertype) {
            ethertype::IPV4 => key.ipv4(network, fields),
            ethertype::IPV6 => key.ipv6(network, fields),
            _ => false,
        };
        let layer_2 = if is_ip { fields } else { Fields::LAYER_2 };
        if layer_2.intersects(Fields::LAYER_2) {
            key.layer_2(packet.head, layer_2);
            key.push_if(layer_2, Fields::ETHERTYPE, *ethertype);
        }
        key
    }

    /// The key of the frames of a flow that is known by its values.
    pub fn of_flow(flow: &Flow) -> Self {
        let mut key = Self::EMPTY;
        match (flow.source_ip, flow.destination_ip) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                key.push(Fields::SOURCE_IP, source.octets());
                key.push(Fields::DESTINATION_IP, destination.octets());
            }
            (source, destination) => {
                key.push(Fields::SOURCE_IP, to_ipv6(source));
                key.push(Fields::DESTINATION_IP, to_ipv6(destination));
            }
        }
        if let Some(port) = flow.source_port {
            key.push(Fields::SOURCE_PORT, port.to_be_bytes());
        }
        if let Some(port) = flow.destination_port {
            key.push(Fields::DESTINATION_PORT, port.to_be_bytes());
        }
        if let Some(protocol) = flow.protocol {
            key.push(Fields::PROTOCOL, [protocol]);
        }
        if let Some(label) = flow.flow_label {
            let [_, a, b, c] = label.to_be_bytes();
            key.push(Fields::FLOW_LABEL, [a, b, c]);
        }
        if let Some(qp) = flow.destination_qp {
            let [_, a, b, c] = qp.to_be_bytes();
            key.push(Fields::DESTINATION_QP, [a, b, c]);
        }
        key
    }

    /// The bytes that are hashed.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        // `min` lets the compiler see that the slice is in bounds.
        &self.bytes[..usize::from(self.len).min(KEY_BYTES_MAX)]
    }

    /// The fields that the frame had.
    pub const fn present(&self) -> Fields {
        self.present
    }

    #[inline(always)]
    fn push<const N: usize>(&mut self, field: Fields, value: [u8; N]) {
        let at = usize::from(self.len);
        if let Some(room) = self.bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<N>) {
            *room = value;
            // N is at most 32.
            self.len += N.to_le_bytes()[0];
            self.present = self.present.and(field);
        }
    }

    #[inline(always)]
    fn push_if<const N: usize>(&mut self, fields: Fields, field: Fields, value: [u8; N]) {
        if fields.contains(field) {
            self.push(field, value);
        }
    }

    /// Two neighbouring fields, both or one of them.
    #[inline(always)]
    fn push_pair<const N: usize, const PAIR: usize>(
        &mut self,
        fields: Fields,
        [first, second]: [Fields; 2],
        pair: [u8; PAIR],
    ) {
        let both = first.and(second);
        if fields.contains(both) {
            return self.push(both, pair);
        }
        if let (Some(a), Some(b)) = (pair.first_chunk::<N>(), pair.last_chunk::<N>()) {
            self.push_if(fields, first, *a);
            self.push_if(fields, second, *b);
        }
    }

    /// False where it is not an IPv4 header.
    #[inline(always)]
    fn ipv4(&mut self, network: &[u8], fields: Fields) -> bool {
        let Some(header) = network.first_chunk::<20>() else { return false };
        let header_bytes = usize::from(header[0] & 0x0f) * 4;
        if header[0] >> 4 != 4 || header_bytes < 20 {
            return false;
        }
        let [.., a0, a1, a2, a3, b0, b1, b2, b3] = *header;
        let addresses = [a0, a1, a2, a3, b0, b1, b2, b3];
        self.push_pair::<4, 8>(fields, [Fields::SOURCE_IP, Fields::DESTINATION_IP], addresses);
        // More fragments, or not the first one.
        let is_fragment = header[6] & 0x3f != 0 || header[7] != 0;
        let transport = if is_fragment { None } else { network.get(header_bytes..) };
        self.transport(header[9], None, transport.unwrap_or_default(), fields);
        true
    }

    /// False where it is not an IPv6 header.
    #[inline(always)]
    fn ipv6(&mut self, network: &[u8], fields: Fields) -> bool {
        let Some((header, rest)) = network.split_first_chunk::<40>() else { return false };
        if header[0] >> 4 != 6 {
            return false;
        }
        if let Some(addresses) = header.last_chunk::<32>() {
            let pair = [Fields::SOURCE_IP, Fields::DESTINATION_IP];
            self.push_pair::<16, 32>(fields, pair, *addresses);
        }
        let (protocol, transport) = behind_extensions(header[6], rest);
        let flow_label = [header[1] & 0x0f, header[2], header[3]];
        self.transport(protocol, Some(flow_label), transport, fields);
        true
    }

    /// What follows the addresses.
    #[inline(always)]
    fn transport(
        &mut self,
        protocol: u8,
        flow_label: Option<[u8; 3]>,
        transport: &[u8],
        fields: Fields,
    ) {
        let has_ports = matches!(protocol, UDP | TCP);
        if let Some(ports) = transport.first_chunk::<4>().filter(|_| has_ports) {
            let pair = [Fields::SOURCE_PORT, Fields::DESTINATION_PORT];
            self.push_pair::<2, 4>(fields, pair, *ports);
        }
        self.push_if(fields, Fields::PROTOCOL, [protocol]);
        if let Some(flow_label) = flow_label {
            self.push_if(fields, Fields::FLOW_LABEL, flow_label);
        }
        if fields.contains(Fields::DESTINATION_QP)
            && protocol == UDP
            && transport.get(2..4) == Some(&ROCE_PORT)
            && let Some(qp) = transport.get(DESTINATION_QP_AT..).and_then(<[u8]>::first_chunk::<3>)
        {
            self.push(Fields::DESTINATION_QP, *qp);
        }
    }

    fn layer_2(&mut self, head: &[u8], fields: Fields) {
        if let Some([d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5]) = head.first_chunk::<12>() {
            self.push_if(fields, Fields::SOURCE_MAC, [*s0, *s1, *s2, *s3, *s4, *s5]);
            self.push_if(fields, Fields::DESTINATION_MAC, [*d0, *d1, *d2, *d3, *d4, *d5]);
        }
    }
}

/// The first header that is no extension, and what is behind it: nothing in a fragment, whose
/// fellows do not have it.
#[inline]
fn behind_extensions(mut next: u8, mut rest: &[u8]) -> (u8, &[u8]) {
    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const FRAGMENT: u8 = 44;
    const AUTHENTICATION: u8 = 51;
    const DESTINATION_OPTIONS: u8 = 60;
    for _ in 0..EXTENSIONS_MAX {
        let is_fragment = next == FRAGMENT;
        let unit_bytes = match next {
            HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS | FRAGMENT => 8,
            AUTHENTICATION => 4,
            _ => return (next, rest),
        };
        let Some([following, length]) = rest.first_chunk::<2>() else { return (next, &[]) };
        next = *following;
        if is_fragment {
            return (next, &[]);
        }
        // RFC 8200 counts units of 8 bytes behind the first; RFC 4302 units of 4 behind the second.
        let first_units = if unit_bytes == 4 { 2 } else { 1 };
        rest = rest.get((usize::from(*length) + first_units) * unit_bytes..).unwrap_or_default();
    }
    (next, &[])
}

#[cfg(test)]
mod tests {
    use super::super::trial::{frame_v4, frame_v6, packet, tagged};
    use super::*;

    fn key(bytes: &[u8], fields: Fields) -> FlowKey {
        FlowKey::of(&packet(bytes), fields)
    }

    const ALL: Fields = Fields::FIVE_TUPLE.and(Fields::FLOW_LABEL).and(Fields::DESTINATION_QP);

    #[test]
    fn a_roce_frame_gives_its_fields_in_order() {
        let v4 = frame_v4([10, 0, 0, 1], [10, 0, 0, 2], 49_152, 4_791, 0x01_02_03);
        let want = [10, 0, 0, 1, 10, 0, 0, 2, 0xc0, 0, 0x12, 0xb7, 17, 1, 2, 3];
        assert_eq!(key(&v4, ALL).as_bytes(), want);
        assert_eq!(key(&v4, Fields::FIVE_TUPLE).as_bytes(), &want[..13]);
        assert_eq!(key(&v4, Fields::DESTINATION_QP).as_bytes(), [1, 2, 3]);
        assert_eq!(key(&v4, Fields::DESTINATION_IP).as_bytes(), [10, 0, 0, 2]);
        let ports = Fields::SOURCE_PORT.and(Fields::PROTOCOL);
        assert_eq!(key(&v4, ports).as_bytes(), [0xc0, 0, 17]);
        assert!(key(&v4, Fields::NONE).as_bytes().is_empty());

        let v6 = frame_v6(7, 9, 0xabcde, 49_152, 4_791, 0x01_02_03);
        let got = key(&v6, ALL);
        assert_eq!(got.as_bytes()[32..], [0xc0, 0, 0x12, 0xb7, 17, 0x0a, 0xbc, 0xde, 1, 2, 3]);
        assert_eq!((got.as_bytes()[15], got.as_bytes()[31]), (7, 9));
        assert_eq!(key(&v6, Fields::FLOW_LABEL).as_bytes(), [0x0a, 0xbc, 0xde]);
    }

    #[test]
    fn a_flow_by_values_has_the_key_of_its_frames() {
        let ips = |a: &str, b: &str| (a.parse().expect("address"), b.parse().expect("address"));
        let (a, b) = ips("10.0.0.1", "10.0.0.2");
        let mut flow = Flow {
            source_port: Some(49_152),
            destination_port: Some(4_791),
            protocol: Some(17),
            destination_qp: Some(77),
            ..Flow::between(a, b)
        };
        let v4 = frame_v4([10, 0, 0, 1], [10, 0, 0, 2], 49_152, 4_791, 77);
        assert_eq!(FlowKey::of_flow(&flow), key(&v4, ALL));
        flow.destination_qp = Some(78);
        assert_ne!(FlowKey::of_flow(&flow), key(&v4, ALL));

        let (a, b) = ips("fd00::7", "fd00::9");
        let flow = Flow { flow_label: Some(0xabcde), ..Flow::between(a, b) };
        let fields = Fields::SOURCE_IP.and(Fields::DESTINATION_IP).and(Fields::FLOW_LABEL);
        let v6 = frame_v6(7, 9, 0xabcde, 1, 2, 3);
        assert_eq!(FlowKey::of_flow(&flow), key(&v6, fields));
    }

    #[test]
    fn tags_are_stepped_over() {
        let v4 = frame_v4([10, 0, 0, 1], [10, 0, 0, 2], 1, 4_791, 77);
        for tags in 1..=4 {
            let bytes = tagged(&v4, tags);
            let packet = Packet { tag_bytes: tags * 4, ..packet(&bytes) };
            assert_eq!(FlowKey::of(&packet, ALL), key(&v4, ALL));
        }
    }

    #[test]
    fn fragments_of_a_packet_have_one_key() {
        let mut first = frame_v4([10, 0, 0, 1], [10, 0, 0, 2], 1, 4_791, 77);
        // More fragments.
        first[20] = 0x20;
        let mut last = first.clone();
        // Offset 185, other bytes where the ports of the first one are.
        (last[20], last[21]) = (0, 185);
        last[34..].fill(0x5a);
        assert_eq!(key(&first, ALL), key(&last, ALL));
        assert_eq!(key(&first, ALL).as_bytes(), [10, 0, 0, 1, 10, 0, 0, 2, 17]);
    }

    #[test]
    fn extension_headers_are_stepped_over() {
        let plain = frame_v6(7, 9, 5, 1_000, 4_791, 77);
        let (header, rest) = plain.split_at(54);
        // Hop-by-hop of 8 bytes, routing of 24, destination options of 16.
        let mut chain = header.to_vec();
        chain[20] = 0;
        chain.extend([43, 0, 0, 0, 0, 0, 0, 0]);
        chain.extend([60, 2].into_iter().chain([0; 22]));
        chain.extend([17, 1].into_iter().chain([0; 14]));
        chain.extend(rest);
        assert_eq!(key(&chain, ALL), key(&plain, ALL));
        // A fragment header, of the first fragment as well, hides the ports.
        let mut fragment = header.to_vec();
        fragment[20] = 44;
        fragment.extend([17, 0, 0, 1, 0, 0, 0, 9]);
        fragment.extend(rest);
        assert_eq!(key(&fragment, Fields::SOURCE_PORT.and(Fields::PROTOCOL)).as_bytes(), [17]);
        // More extensions than are looked at: no ports either.
        let mut long = header.to_vec();
        long[20] = 60;
        for _ in 0..9 {
            long.extend([60, 0, 0, 0, 0, 0, 0, 0]);
        }
        assert!(key(&long, Fields::SOURCE_PORT).as_bytes().is_empty());
    }

    #[test]
    fn frames_that_are_not_ip_go_by_their_addresses() {
        let mut arp = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x06];
        arp.extend([0; 46]);
        let want = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x06];
        assert_eq!(key(&arp, Fields::FIVE_TUPLE).as_bytes(), want);
        assert_eq!(key(&arp, Fields::NONE).as_bytes(), want);
        let v4 = frame_v4([10, 0, 0, 1], [10, 0, 0, 2], 1, 2, 3);
        assert_eq!(key(&v4, Fields::SOURCE_MAC).as_bytes(), &v4[6..12]);
    }

    #[test]
    fn every_cut_of_a_frame_has_a_key() {
        let frames =
            [frame_v4([1, 2, 3, 4], [5, 6, 7, 8], 9, 4_791, 11), frame_v6(1, 2, 3, 4, 4_791, 6)];
        for frame in frames {
            for cut in 0..=frame.len() {
                let all = ALL.and(Fields::LAYER_2);
                let len = key(&frame[..cut], all).as_bytes().len();
                assert!(len <= key(&frame, all).as_bytes().len(), "cut at {cut}");
            }
        }
    }
}
