//! What a host answers, and how it announces itself.

use super::*;

#[test]
fn announces_itself_at_time_zero() {
    let mut store = SlabStore::new(100);
    let mut host = host(&config_a(), &[]);
    assert_eq!(deadline(&host), Time::ZERO);
    let sent = run(&mut host, &mut store, Time::from_ns(1_000), Duration::ZERO);
    let gratuitous = [
        &[0xff; 6][..],
        &MAC_A.0,
        &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1],
        &MAC_A.0,
        &[10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 1],
    ]
    .concat();
    assert_eq!(bytes_of(&store, &sent[0].frame), gratuitous);
    assert_eq!(sent[0].starts, Time::ZERO);
    let advertisement = bytes_of(&store, &sent[1].frame);
    assert_eq!(advertisement[..12], [&[0x33, 0x33, 0, 0, 0, 1][..], &MAC_A.0].concat());
    let packet = etherparse::SlicedPacket::from_ethernet(&advertisement).expect("a packet");
    let Some(etherparse::TransportSlice::Icmpv6(message)) = packet.transport else {
        panic!("an ICMPv6 message: {packet:?}");
    };
    assert!(message.is_checksum_valid(A6.octets(), classify::ALL_NODES.octets()));
    assert_eq!(message.slice()[..8][4], 0x20, "override, neither router nor solicited");
    assert_eq!(host.stats().announcements_sent, 2);
    assert_eq!((ledger(&host).generated, ledger(&host).transmitted), (2, 2));
    assert_eq!(deadline(&host), Time::NEVER);
    release_all(&mut store, sent);
}

/// What is due before goes first, and the link's coming up does not wait for the time.
#[test]
fn announces_itself_at_the_time_that_is_set() {
    let at = Time::from_ns(25_000);
    let config =
        HostConfig { announce_at: at, streams: vec![stream(1, 100, 100_000)], ..config_a() };
    let mut store = SlabStore::new(100);
    let mut a = host(&config, &[]);
    let sent = run(&mut a, &mut store, Time::from_ns(29_000), Duration::ZERO);
    let starts: Vec<_> = sent.iter().map(|sent| sent.starts.as_ns()).collect();
    assert_eq!(starts[..3], [10_000, 20_000, 25_000]);
    assert_eq!((starts.len(), a.stats().announcements_sent), (4, 2));
    release_all(&mut store, sent);

    let mut a = host(&config, &[]);
    a.on_link(Time::ZERO, &mut store, PORT, false);
    a.on_link(Time::from_ns(1_000), &mut store, PORT, true);
    assert_eq!(ledger(&a).queued, 2, "at once");
    let sent = run(&mut a, &mut store, Time::from_ns(29_000), Duration::ZERO);
    assert_eq!((sent.len(), a.stats().announcements_sent), (4, 2), "and once");
    release_all(&mut store, sent);
}

#[test]
fn answers_arp_for_its_own_address_alone() {
    let (mut host, mut store) = settled();
    let reply = [
        &MAC_B.0[..],
        &MAC_A.0,
        &[8, 6, 0, 1, 8, 0, 6, 4, 0, 2],
        &MAC_A.0,
        &[10, 0, 0, 1],
        &MAC_B.0,
        &[10, 0, 0, 2],
    ]
    .concat();
    for destination in [MacAddr::BROADCAST, MAC_A] {
        let request = ethernet(destination, 0x0806, &arp(1, B4, A4));
        assert_eq!(answers(&mut host, &mut store, &request), std::slice::from_ref(&reply));
    }
    // Padded as a NIC pads it, and behind a VLAN tag, which the reply carries too.
    let mut tagged = ethernet(MacAddr::BROADCAST, 0x8100, &[0x60, 5, 8, 6]);
    tagged.extend(arp(1, B4, A4));
    tagged.resize(64, 0);
    let want = [&reply[..12], &[0x81, 0, 0x60, 5], &reply[12..]].concat();
    assert_eq!(answers(&mut host, &mut store, &tagged), [want]);
    assert_eq!(host.stats().arp_answered, 3);
    // A station that announces itself is heard.
    let announcement = ethernet(MacAddr::BROADCAST, 0x0806, &arp(1, B4, B4));
    assert!(answers(&mut host, &mut store, &announcement).is_empty());
    assert_eq!((host.stats().announcements_heard, ledger(&host).drops.total()), (1, 0));
    let other = Ipv4Addr::new(10, 0, 0, 9);
    dropped(&ethernet(MacAddr::BROADCAST, 0x0806, &arp(1, B4, other)), DropReason::NotForUs);
    dropped(&ethernet(MAC_A, 0x0806, &arp(2, B4, A4)), DropReason::Unhandled);
    dropped(&ethernet(MAC_A, 0x0806, &arp(1, B4, A4)[..27]), DropReason::Malformed);
}

#[test]
fn answers_neighbour_solicitations() {
    let group = icmpv6::solicited_node(A6);
    let group_mac = icmpv6::multicast_mac(group);
    let unicast = (MAC_B, B6, true);
    let all_nodes = (MacAddr([0x33, 0x33, 0, 0, 0, 1]), classify::ALL_NODES, false);
    for (mac, request, (to_mac, to, solicited)) in [
        (group_mac, solicitation(B6, group, Some(MAC_B)), unicast),
        (MAC_A, solicitation(B6, A6, Some(MAC_B)), unicast),
        (MAC_A, solicitation(B6, A6, None), unicast),
        // Someone checks whether our address is free: it is not.
        (group_mac, solicitation(Ipv6Addr::UNSPECIFIED, group, None), all_nodes),
    ] {
        let (mut host, mut store) = settled();
        let got = answers(&mut host, &mut store, &ethernet(mac, 0x86dd, &request));
        let header = NeighborHeader::Advertisement {
            target: A6,
            target_mac: Some(MAC_A),
            router: false,
            solicited,
            overrides: true,
        };
        let mut message = [0; 32];
        header.emit(A6, to, &mut message).expect("room");
        let packet = ipv6_packet(A6, to, protocol::ICMPV6, &message);
        let want = [&to_mac.0[..], &MAC_A.0, &[0x86, 0xdd], &packet].concat();
        assert_eq!(got, [want]);
        assert_eq!(host.stats().solicitations_answered, 1);
    }
}

#[test]
fn solicitations_that_rfc_4861_forbids_are_dropped() {
    let group = icmpv6::solicited_node(A6);
    let good = ethernet(MAC_A, 0x86dd, &solicitation(B6, group, Some(MAC_B)));
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        bytes
    };
    dropped(&with(21, 64), DropReason::Malformed); // through a router
    dropped(&with(56, 0xff), DropReason::BadChecksum);
    dropped(&with(6, 0x03), DropReason::SourceMulticast);
    let none = Ipv6Addr::UNSPECIFIED;
    let bad = solicitation(none, group, Some(MAC_B));
    dropped(&ethernet(MAC_A, 0x86dd, &bad), DropReason::Malformed);
    dropped(&ethernet(MAC_A, 0x86dd, &solicitation(none, A6, None)), DropReason::Malformed);
    let header = NeighborHeader::Solicitation { target: B6, source_mac: None };
    let mut message = [0; 24];
    header.emit(none, group, &mut message).expect("room");
    let other = ipv6_packet(none, group, protocol::ICMPV6, &message);
    dropped(&ethernet(MAC_A, 0x86dd, &other), DropReason::NotForUs);
}

#[test]
fn echoes_every_size_with_payload_intact_and_checksums_right() {
    let (mut host, mut store) = settled();
    for size in [0_usize, 1, 2, 56, 213, 214, 470, 471, 1_472, 1_473, 8_951, 8_952, 8_972] {
        let data: Vec<u8> = (0_u8..=250).cycle().take(size).collect();
        let request = ethernet(MAC_A, 0x0800, &echo_v4(&data));
        let got = answers(&mut host, &mut store, &request);
        let packet = etherparse::SlicedPacket::from_ethernet(&got[0]).expect("a packet");
        let Some(etherparse::NetSlice::Ipv4(ip)) = &packet.net else { panic!("IPv4") };
        let header = ip.header().to_header();
        assert_eq!((header.source, header.destination), (A4.octets(), B4.octets()));
        assert_eq!(header.header_checksum, header.calc_header_checksum());
        assert_eq!(header.time_to_live, 64);
        let Some(etherparse::TransportSlice::Icmpv4(icmp)) = &packet.transport else {
            panic!("ICMP")
        };
        let icmp_header = icmp.header();
        assert_eq!(icmp.payload(), data, "{size}");
        assert_eq!(icmp_header.checksum, icmp_header.icmp_type.calc_checksum(&data));
        let echo = etherparse::IcmpEchoHeader { id: 0x1234, seq: 7 };
        assert_eq!(icmp_header.icmp_type, etherparse::Icmpv4Type::EchoReply(echo));
        assert_eq!((&got[0][..6], &got[0][6..12]), (&MAC_B.0[..], &MAC_A.0[..]));
        if size > 8_952 {
            continue;
        }
        // Behind an empty destination options header and two tags.
        let message = echo_v6_message(&data);
        let behind = [&[58_u8, 0, 1, 4, 0, 0, 0, 0][..], &message].concat();
        let plain = ipv6_packet(B6, A6, protocol::ICMPV6, &message);
        let mut frames = vec![(ethernet(MAC_A, 0x86dd, &plain), 14)];
        if size <= 8_944 {
            let extended = ipv6_packet(B6, A6, 60, &behind);
            let tags = [0, 5, 0x81, 0, 0, 6, 0x86, 0xdd];
            frames.push((ethernet(MAC_A, 0x88a8, &[&tags[..], &extended].concat()), 30));
        }
        for (frame, to_icmp_less_40) in frames {
            let got = answers(&mut host, &mut store, &frame);
            assert_eq!(got[0].len(), frame.len());
            let packet = etherparse::SlicedPacket::from_ethernet(&got[0]).expect("a packet");
            let Some(etherparse::TransportSlice::Icmpv6(icmp)) = &packet.transport else {
                panic!("ICMPv6")
            };
            assert!(icmp.is_checksum_valid(A6.octets(), B6.octets()), "{size}");
            assert_eq!(icmp.type_u8(), icmpv6::ECHO_REPLY);
            assert_eq!(got[0][to_icmp_less_40 + 40 + 8..], data);
        }
    }
    assert_eq!(host.stats().echo_v4_answered, 13);
    assert_eq!(ledger(&host).drops.total(), 0);
}

#[test]
fn what_is_not_ours_is_dropped_by_name() {
    let echo = ethernet(MAC_A, 0x0800, &echo_v4(b"data"));
    let with = |at: usize, value: u8| {
        let mut bytes = echo.clone();
        bytes[at] ^= value;
        bytes
    };
    dropped(&echo[..13], DropReason::Runt);
    dropped(&echo[..33], DropReason::Malformed);
    dropped(&echo[..45], DropReason::Malformed);
    dropped(&with(5, 1), DropReason::NotForUs);
    dropped(&with(24, 1), DropReason::BadChecksum);
    dropped(&with(36, 1), DropReason::BadChecksum);
    dropped(&with(45, 1), DropReason::BadChecksum);
    dropped(&ethernet(MAC_A, 0x88cc, &[0; 46]), DropReason::Unhandled);
    dropped(&ethernet(MAC_A, 0x0800, &echo_v4(&[0; 8_973])), DropReason::Oversize);
    let mut fragment = echo_v4(b"data");
    fragment[6] |= 0x20;
    fragment[10..12].copy_from_slice(&[0, 0]);
    let checksum = crate::wire::checksum::checksum(&fragment[..20]).to_be_bytes();
    fragment[10..12].copy_from_slice(&checksum);
    dropped(&ethernet(MAC_A, 0x0800, &fragment), DropReason::Unhandled);
}

/// Two hosts on a link without delay; gives both when nothing is left to do.
#[test]
fn answers_beyond_the_queue_are_dropped_by_name() {
    let (mut host, mut store) = settled();
    let request = ethernet(MAC_A, 0x0800, &echo_v4(b"data"));
    for _ in 0..70 {
        let frame = store.allocate_from(&request).expect("room");
        host.on_frame(Time::from_ns(1_000_000), &mut store, PORT, frame);
    }
    assert_eq!(ledger(&host).drops.of(DropReason::NicQueueFull), 6);
    assert_eq!(host.stats().echo_v4_answered, 64);
    let sent = run(&mut host, &mut store, Time::from_ns(2_000_000), Duration::ZERO);
    assert_eq!(sent.len(), 64);
    release_all(&mut store, sent);
}
