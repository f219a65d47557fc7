//! What each fuzz target does with its bytes. The fuzzer and `tests/fuzz_corpus.rs` share it.

use std::net::{Ipv4Addr, Ipv6Addr};

use tailwater::frame::{FrameStore, SlabStore};
use tailwater::host::{ExpectedStream, Host, HostConfig};
use tailwater::node::{Node, PortId};
use tailwater::pause::Pauses;
use tailwater::replay::{CaptureReader, Record};
use tailwater::time::Time;
use tailwater::units::Rate;
use tailwater::wire::arp::{ArpHeader, ArpPacket};
use tailwater::wire::checksum::Sum;
use tailwater::wire::ethernet::{EthernetFrame, EthernetHeader};
use tailwater::wire::icmpv4::{EchoHeader, Icmpv4Message};
use tailwater::wire::icmpv6::{Icmpv6Message, NeighborHeader, NeighborMessage};
use tailwater::wire::ipv4::{Ipv4Header, Ipv4Packet};
use tailwater::wire::ipv6::{Ipv6Header, Ipv6Packet};
use tailwater::wire::pfc::{MacControl, is_mac_control};
use tailwater::wire::stream::StreamHeader;
use tailwater::wire::udp::{UdpDatagram, UdpHeader};
use tailwater::wire::vlan::VlanTag;
use tailwater::wire::{MacAddr, parse};

const A6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xa);
const B6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xb);

/// Runs the target called `target` on `data`; panics on a finding.
pub(crate) fn run(target: &str, data: &[u8]) {
    match target {
        "parse" => classify(data),
        "ethernet" => ethernet(data),
        "arp" => arp(data),
        "mac_control" => mac_control(data),
        "ipv4" => ipv4(data),
        "ipv6" => ipv6(data),
        "udp" => udp(data),
        "icmpv4" => icmpv4(data),
        "icmpv6" => icmpv6(data),
        "host" => host(data),
        "capture" => capture(data),
        other => panic!("no fuzz target is called {other}"),
    }
}

fn mac_control(data: &[u8]) {
    let source = MacAddr([2, 0, 0, 0, 0, 1]);
    if let Ok(control) = MacControl::read(data) {
        assert!(is_mac_control(data));
        let read = MacControl::read(&control.frame(source)).expect("what is built reads");
        match (control, read) {
            (MacControl::Pfc(came), MacControl::Pfc(built)) => {
                assert_eq!(came.enabled, built.enabled);
                assert!(came.classes().eq(built.classes()));
                let mut pauses = Pauses::new(Rate::from_gbps(100), 0b1_1000, false);
                pauses.on_pfc(Time::from_ns(1), came);
                assert_eq!(pauses.stopped() & !0b1_1000, 0, "not lossless");
                pauses.expire(Time::NEVER);
                assert_eq!((pauses.stopped(), pauses.next_expiry()), (0, Time::NEVER));
            }
            (came, built) => assert_eq!(came, built),
        }
    }
}

fn classify(data: &[u8]) {
    if let Ok(frame) = parse(data) {
        assert!(usize::from(frame.l3_offset) <= data.len());
        assert_eq!(usize::from(frame.l3_offset), 14 + 4 * frame.tags().len());
        assert!(frame.dscp().is_none_or(|dscp| dscp < 64) && frame.ecn().is_none_or(|ecn| ecn < 4));
        assert_eq!(frame.outer_tag(), frame.tags().first().copied());
    }
}

fn ethernet(data: &[u8]) {
    let mut bytes = data.to_vec();
    if let Ok(mut frame) = EthernetFrame::new_checked(&mut bytes[..]) {
        EthernetHeader::read(&frame).emit(&mut frame);
        if let Ok(mut tag) = VlanTag::new_checked(frame.payload_mut()) {
            let (tci, ethertype) = (tag.tci(), tag.ethertype());
            tag.set_tci(tci);
            tag.set_ethertype(ethertype);
        }
        assert_eq!(bytes, data);
    }
}

fn arp(data: &[u8]) {
    if let Ok(packet) = ArpPacket::new_checked(data) {
        let mut again = [0xa5; 28];
        ArpHeader::read(&packet).emit(&mut again).expect("room");
        assert_eq!(again, data[..28]);
    }
}

fn ipv4(data: &[u8]) {
    let mut bytes = data.to_vec();
    let Ok(mut packet) = Ipv4Packet::new_checked(&mut bytes[..]) else { return };
    assert_eq!(packet.payload().len(), packet.payload_bytes());
    assert!(packet.options().count() <= 20);
    let _ = (packet.is_fragment(), packet.fragment_offset_bytes(), packet.is_checksum_valid());
    packet.fill_checksum();
    assert!(packet.is_checksum_valid());
    packet.payload_mut().fill(0);
    let header = Ipv4Header::read(&packet);
    let mut again = vec![0xa5; bytes.len()];
    header.emit(&mut again).expect("room");
    let again = Ipv4Packet::new_checked(&again[..]).expect("what we build we read");
    assert_eq!(Ipv4Header::read(&again), header);
}

fn ipv6(data: &[u8]) {
    let Ok(packet) = Ipv6Packet::new_checked(data) else { return };
    assert_eq!(packet.payload().len(), usize::from(packet.payload_bytes()));
    if let Ok(upper) = packet.upper_layer() {
        assert!(upper.offset <= 40 + packet.payload().len());
    }
    assert!(packet.extensions().count() <= packet.payload().len() / 8 + 1);
    let mut again = [0xa5; 40];
    Ipv6Header::read(&packet).emit(&mut again).expect("room");
    assert_eq!(again, data[..40]);
}

fn udp(data: &[u8]) {
    let mut bytes = data.to_vec();
    let Ok(mut datagram) = UdpDatagram::new_checked(&mut bytes[..]) else { return };
    let _ = StreamHeader::read(datagram.payload());
    let header = UdpHeader::read(&datagram);
    assert_eq!(datagram.payload().len(), usize::from(header.payload_bytes));
    let pseudo = Sum::pseudo_v6(A6, B6, 17, u32::from(datagram.len_bytes()));
    datagram.fill_checksum(pseudo);
    assert!(datagram.checksum() != 0 && datagram.is_checksum_valid(pseudo));
}

fn icmpv4(data: &[u8]) {
    let mut bytes = data.to_vec();
    let Ok(mut message) = Icmpv4Message::new_checked(&mut bytes[..]) else { return };
    let _ = (EchoHeader::read(&message), message.payload().len(), message.is_checksum_valid());
    message.fill_checksum();
    assert!(message.is_checksum_valid());
}

fn icmpv6(data: &[u8]) {
    if let Ok(message) = NeighborMessage::new_checked(data) {
        let header = NeighborHeader::read(&message);
        let mut again = [0xa5; 32];
        header.emit(A6, B6, &mut again).expect("room");
        let again = NeighborMessage::new_checked(&again[..header.len_bytes()]);
        assert_eq!(NeighborHeader::read(&again.expect("what we build we read")), header);
    }
    let mut bytes = data.to_vec();
    if let Ok(mut message) = Icmpv6Message::new_checked(&mut bytes[..]) {
        message.fill_checksum(A6, B6);
        assert!(message.is_checksum_valid(A6, B6));
    }
}

/// Frames, each behind a length of two bytes, to a host; what it answers goes back to it.
fn host(data: &[u8]) {
    let config = HostConfig {
        name: "a".to_owned(),
        port_name: "eth0".to_owned(),
        mac: MacAddr([2, 0, 0, 0, 0, 0x0a]),
        ipv4: Some((Ipv4Addr::new(10, 0, 0, 1), 24)),
        ipv6: Some((A6, 64)),
        rate: Rate::from_gbps(10),
        mtu_bytes: 1_500,
        overhead_bytes: 24,
        queue_frames_max: 16,
        ..HostConfig::new("", MacAddr::default(), Rate::from_gbps(10))
    };
    // A sink's histogram is large; most frames are of no stream.
    let is_stream = data.windows(4).any(|window| window == tailwater::wire::stream::MAGIC);
    let expected: &[_] = if is_stream { &[ExpectedStream { id: 1 }] } else { &[] };
    let mut host = Host::new(&config, expected).expect("a good configuration");
    let mut store = SlabStore::new(256);
    let (mut now, mut rest, mut frames) = (Time::ZERO, data, 0);
    while let Some(([high, low], behind)) = rest.split_first_chunk()
        && frames < 32
    {
        let (bytes, behind) =
            behind.split_at(usize::from(u16::from_be_bytes([*high, *low])).min(behind.len()));
        rest = behind;
        frames += 1;
        if let Some(frame) = store.allocate_from(bytes) {
            host.on_frame(now, &mut store, PortId(0), frame);
        }
        while let Some(port) = Node::<SlabStore>::next_ready_port(&mut host, now) {
            if let Some(sent) = host.poll_transmit(now, &mut store, port) {
                now = sent.ends;
                // No host answers an answer, so this ends.
                host.on_frame(now, &mut store, PortId(0), sent.frame);
            }
        }
        Node::<SlabStore>::ledger(&host).check().expect("every frame is accounted for");
    }
    host.drain(&mut store);
    assert_eq!(store.outstanding(), 0);
}

fn capture(data: &[u8]) {
    let Ok(mut reader) = CaptureReader::new(data) else { return };
    let mut record = Record::default();
    let mut records = 0;
    while let Ok(true) = reader.read(&mut record) {
        records += 1;
        assert_eq!(reader.records(), records);
        assert!(record.bytes.len() <= data.len(), "no record is longer than its file");
    }
}
