//! Packet trimming: a frame for which a lossy queue has no room is cut to its headers and goes on
//! ahead of all others, so that the receiver learns at once what it has to ask for again.
//!
//! Only IP packets to one station are trimmed. A frame that is no longer than the cut passes
//! whole. Its DSCP becomes the trimmed one, of two that tell whether the fabric or the last hop had
//! no room. The IPv4 header checksum follows the DSCP, as behind every rewrite; lengths and the
//! checksums of upper layers stay as they are, as in switches in the field, so that the receiver
//! knows how long the packet was. `updates_lengths` makes IP and UDP say what is there instead.

use crate::frame::{Frame, FrameStore, HEAD_BYTES_MIN};
use crate::wire::checksum::{self, Sum};
use crate::wire::ipv4::Ipv4Packet;
use crate::wire::ipv6::Ipv6Packet;
use crate::wire::udp::UdpDatagram;
use crate::wire::{ethertype, ipv6, parse, udp};

/// The shortest cut: an Ethernet frame with FCS.
pub const TRIM_BYTES_MIN: u32 = 64;

/// The longest cut: what every store shows of a frame.
#[allow(clippy::cast_possible_truncation, reason = "256")]
pub const TRIM_BYTES_MAX: u32 = HEAD_BYTES_MIN as u32;

const PROTOCOL_UDP: u8 = 17;

/// How a switch trims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrimConfig {
    /// What is left of a frame, from its first byte: 64 to 256.
    pub size_bytes: u32,
    /// The DSCP of frames trimmed in the fabric: 0 to 63.
    pub dscp: u8,
    /// That of frames trimmed where the next node is their destination.
    pub last_hop_dscp: u8,
    /// The egress queues whose frames are trimmed, as bits.
    pub queues: u8,
    /// The priority that trimmed frames have from here on, which gives their queue.
    pub priority: u8,
    /// Whether IP and UDP lengths and checksums are set to what is left.
    pub updates_lengths: bool,
}

impl TrimConfig {
    /// Trimming of `queues` (bits) to 128 bytes with one DSCP for both places, into a priority.
    pub const fn new(queues: u8, dscp: u8, priority: u8) -> Self {
        Self {
            size_bytes: 128,
            dscp,
            last_hop_dscp: dscp,
            queues,
            priority,
            updates_lengths: false,
        }
    }

    /// The length of a frame of `len_bytes` after trimming.
    pub const fn len_after(&self, len_bytes: u32) -> u32 {
        if len_bytes < self.size_bytes { len_bytes } else { self.size_bytes }
    }

    /// Cuts a frame that this [`applies_to`](Self::applies_to) and gives it its code point.
    pub fn trim<S: FrameStore>(&self, store: &mut S, frame: &mut Frame, is_last_hop: bool) {
        let len_before = frame.len_bytes();
        let dscp = if is_last_hop { self.last_hop_dscp } else { self.dscp };
        let updates_lengths = self.updates_lengths && len_before > self.size_bytes;
        store.truncate(frame, self.len_after(len_before));
        let left = frame.len_bytes() as usize;
        let head = store.head_mut(frame);
        let end = left.min(head.len());
        let Some(head) = head.get_mut(..end) else { return };
        let Ok(parsed) = parse::parse(head) else { return };
        let Some(packet) = head.get_mut(usize::from(parsed.l3_offset)..) else { return };
        match parsed.ethertype {
            ethertype::IPV4 => trim_v4(packet, len_before as usize, dscp, updates_lengths),
            ethertype::IPV6 => trim_v6(packet, len_before as usize, dscp, updates_lengths),
            _ => {}
        }
    }

    /// Whether a frame of `len_bytes` that begins with `head` may be trimmed: an IP packet for one
    /// station, whose header is whole and within the cut.
    pub fn applies_to(&self, head: &[u8], len_bytes: u32) -> bool {
        let end = (self.len_after(len_bytes) as usize).min(head.len());
        let Some(head) = head.get(..end) else { return false };
        let Ok(parsed) = parse::parse(head) else { return false };
        let l3_offset = usize::from(parsed.l3_offset);
        let Some(packet) = head.get(l3_offset..) else { return false };
        let available = (len_bytes as usize).saturating_sub(l3_offset);
        !parsed.destination.is_group()
            && match parsed.ethertype {
                ethertype::IPV4 => Ipv4Packet::new_checked_prefix(packet, available).is_ok(),
                ethertype::IPV6 => Ipv6Packet::new_checked_prefix(packet, available).is_ok(),
                _ => false,
            }
    }
}

/// The word at `at`, which a view has checked to be there.
fn word(bytes: &[u8], at: usize) -> u16 {
    match bytes.get(at..at + 2) {
        Some([high, low]) => u16::from_be_bytes([*high, *low]),
        _ => 0,
    }
}

fn set_word(bytes: &mut [u8], at: usize, word: u16) {
    if let Some(place) = bytes.get_mut(at..at + 2) {
        place.copy_from_slice(&word.to_be_bytes());
    }
}

fn len_of(bytes: &[u8]) -> u16 {
    u16::try_from(bytes.len()).unwrap_or(u16::MAX)
}

/// `packet` is what is left of one that was within `before_bytes` bytes.
fn trim_v4(packet: &mut [u8], before_bytes: usize, dscp: u8, updates_lengths: bool) {
    let first = word(packet, 0);
    let Ok(mut view) = Ipv4Packet::new_checked_prefix(&mut *packet, before_bytes) else { return };
    view.set_dscp_ecn(dscp, view.ecn());
    let (source, destination) = (view.source(), view.destination());
    let (header_bytes, mut header_checksum) = (view.header_bytes(), view.header_checksum());
    let has_udp = view.protocol() == PROTOCOL_UDP && !view.is_fragment();
    header_checksum = checksum::update(header_checksum, first, word(packet, 0));
    if updates_lengths {
        let (old, new) = (word(packet, 2), len_of(packet));
        set_word(packet, 2, new);
        header_checksum = checksum::update(header_checksum, old, new);
    }
    set_word(packet, 10, header_checksum);
    if let Some(datagram) = packet.get_mut(header_bytes..).filter(|_| updates_lengths && has_udp) {
        let len = u32::from(len_of(datagram));
        trim_udp(datagram, Sum::pseudo_v4(source, destination, PROTOCOL_UDP, len));
    }
}

fn trim_v6(packet: &mut [u8], before_bytes: usize, dscp: u8, updates_lengths: bool) {
    let payload_bytes = len_of(packet.get(ipv6::HEADER_BYTES..).unwrap_or_default());
    let Ok(mut view) = Ipv6Packet::new_checked_prefix(&mut *packet, before_bytes) else { return };
    view.set_dscp_ecn(dscp, view.ecn());
    if !updates_lengths {
        return;
    }
    let (source, destination) = (view.source(), view.destination());
    let upper = view.upper_layer().ok();
    set_word(packet, 4, payload_bytes);
    let Some(upper) = upper else { return };
    if upper.protocol == PROTOCOL_UDP && upper.fragment.is_none() {
        let Some(datagram) = packet.get_mut(upper.offset..) else { return };
        let len = u32::from(len_of(datagram));
        trim_udp(datagram, Sum::pseudo_v6(source, destination, PROTOCOL_UDP, len));
    }
}

/// Makes the length and, where there is one, the checksum those of what is left.
fn trim_udp(datagram: &mut [u8], pseudo: Sum) {
    if datagram.len() < udp::HEADER_BYTES {
        return;
    }
    set_word(datagram, 4, len_of(datagram));
    let has_checksum = word(datagram, 6) != 0;
    if let Some(mut view) = UdpDatagram::new_checked(datagram).ok().filter(|_| has_checksum) {
        view.fill_checksum(pseudo);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::SlabStore;
    use etherparse::{PacketBuilder, SlicedPacket};

    fn udp_v4(payload_bytes: usize) -> Vec<u8> {
        let mut frame = Vec::new();
        PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
            .single_vlan(7.try_into().expect("a VLAN"))
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 9)
            .udp(50_000, 4_791)
            .write(&mut frame, &vec![0xa5; payload_bytes])
            .expect("memory");
        set_ds(&mut frame, 18);
        frame
    }

    fn udp_v6(payload_bytes: usize) -> Vec<u8> {
        let mut frame = Vec::new();
        PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
            .ipv6([1; 16], [2; 16], 9)
            .udp(50_000, 4_791)
            .write(&mut frame, &vec![0xa5; payload_bytes])
            .expect("memory");
        let mut view = Ipv6Packet::new_checked(&mut frame[14..]).expect("a packet");
        view.set_dscp_ecn(8, 2);
        frame
    }

    /// DSCP 8 of ECT(0) in the tagged IPv4 frame.
    fn set_ds(frame: &mut [u8], l3: usize) {
        let mut view = Ipv4Packet::new_checked(&mut frame[l3..]).expect("a packet");
        view.set_dscp_ecn(8, 2);
        view.fill_checksum();
    }

    /// What is left of a frame.
    fn trimmed(config: &TrimConfig, bytes: &[u8], is_last_hop: bool) -> Vec<u8> {
        let mut store = SlabStore::new(1_000);
        let mut frame = store.allocate_from(bytes).expect("room");
        assert!(config.applies_to(store.head(&frame), frame.len_bytes()));
        config.trim(&mut store, &mut frame, is_last_hop);
        let mut out = Vec::new();
        store.copy_out(&frame, &mut out);
        store.release(frame);
        out
    }

    #[test]
    fn what_is_left_is_the_start_with_another_code_point() {
        let config = TrimConfig { last_hop_dscp: 20, ..TrimConfig::new(1, 16, 6) };
        let whole = udp_v4(1_000);
        for (is_last_hop, dscp) in [(false, 16), (true, 20)] {
            let cut = trimmed(&config, &whole, is_last_hop);
            assert_eq!(cut.len(), 128);
            assert_eq!(cut[19], dscp << 2 | 2, "ECN stays");
            let mut view = Ipv4Packet::new_checked_prefix(&cut[18..], 1_100).expect("a packet");
            assert!(view.is_checksum_valid(), "the header's checksum follows the DSCP");
            assert_eq!(view.total_bytes(), 1_028, "the length is that of the whole packet");
            view = Ipv4Packet::new_checked_prefix(&whole[18..], 1_100).expect("a packet");
            assert_eq!(view.ecn(), 2);
            let same = |at: &usize| cut[*at] == whole[*at];
            let changed: Vec<_> = (0..128).filter(|at| !same(at)).collect();
            assert!(changed.iter().all(|at| [19, 28, 29].contains(at)), "{changed:?}");
        }
        let cut = trimmed(&config, &udp_v6(1_000), false);
        assert_eq!((cut.len(), cut[14] & 0x0f, cut[15] >> 4), (128, 16 >> 2, 2), "DSCP 16, ECT(0)");
        let view = Ipv6Packet::new_checked_prefix(&cut[14..], 1_100).expect("a packet");
        assert_eq!((view.dscp(), view.ecn(), view.payload_bytes()), (16, 2, 1_008));
    }

    #[test]
    fn with_lengths_updated_another_parser_finds_nothing_wrong() {
        let config = TrimConfig { updates_lengths: true, ..TrimConfig::new(1, 16, 6) };
        for whole in [udp_v4(1_000), udp_v6(1_000)] {
            let cut = trimmed(&config, &whole, false);
            let sliced = SlicedPacket::from_ethernet(&cut).expect("whole headers");
            let Some(etherparse::TransportSlice::Udp(udp)) = &sliced.transport else {
                panic!("no UDP")
            };
            assert_eq!(usize::from(udp.length()), udp.slice().len());
            let want = match &sliced.net {
                Some(etherparse::NetSlice::Ipv4(ip)) => {
                    let header = ip.header().to_header();
                    assert_eq!(header.calc_header_checksum(), header.header_checksum);
                    assert_eq!(usize::from(header.total_len), 128 - 18);
                    udp.to_header().calc_checksum_ipv4(&header, udp.payload())
                }
                Some(etherparse::NetSlice::Ipv6(ip)) => {
                    let header = ip.header().to_header();
                    assert_eq!(usize::from(header.payload_length), 128 - 14 - 40);
                    udp.to_header().calc_checksum_ipv6(&header, udp.payload())
                }
                other => panic!("{other:?}"),
            };
            assert_eq!(udp.checksum(), want.expect("a short payload"));
        }
    }

    #[test]
    fn a_checksum_of_zero_stays_zero() {
        let config = TrimConfig { updates_lengths: true, ..TrimConfig::new(1, 16, 6) };
        let mut whole = udp_v4(1_000);
        whole[18 + 20 + 6..18 + 20 + 8].fill(0);
        let cut = trimmed(&config, &whole, false);
        assert_eq!(cut[18 + 20 + 6..18 + 20 + 8], [0, 0]);
    }

    #[test]
    fn a_short_frame_passes_whole() {
        for updates_lengths in [false, true] {
            let config = TrimConfig { updates_lengths, ..TrimConfig::new(1, 16, 6) };
            for payload_bytes in [18, 60, 82] {
                let whole = udp_v4(payload_bytes);
                let cut = trimmed(&config, &whole, false);
                assert_eq!(cut.len(), whole.len());
                assert_eq!(cut[30..], whole[30..]);
                assert_eq!(cut[20..28], whole[20..28], "lengths are right as they are");
                let view = Ipv4Packet::new_checked(&cut[18..]).expect("a packet");
                assert!(view.is_checksum_valid() && view.dscp() == 16);
            }
        }
    }

    #[test]
    fn only_ip_packets_for_one_station_are_trimmed() {
        let config = TrimConfig::new(1, 16, 6);
        let applies =
            |bytes: &[u8]| config.applies_to(bytes, u32::try_from(bytes.len()).expect("small"));
        let frame = udp_v4(500);
        assert!(applies(&frame) && applies(&udp_v6(500)));
        let spoilt = |at: usize, byte: u8| {
            let mut frame = frame.clone();
            frame[at] = byte;
            applies(&frame)
        };
        assert!(!spoilt(0, 3), "a group");
        assert!(!spoilt(17, 6), "ARP behind the tag");
        assert!(!spoilt(18, 0x65), "a version that is not the type's");
        assert!(!spoilt(20, 0x7f), "a packet that ends behind the frame");
        assert!(!applies(&frame[..30]), "half a header");
    }
}
