//! Streams that begin and end at a host.

use super::*;

fn pair(mut a: Host, mut b: Host, store: &mut SlabStore) -> (Host, Host, Time) {
    let mut now = Time::ZERO;
    let mut flying: Vec<(Time, bool, Frame)> = Vec::new();
    loop {
        let arrival = flying.iter().map(|(at, ..)| *at).min().unwrap_or(Time::NEVER);
        let next = arrival.min(deadline(&a)).min(deadline(&b));
        if next == Time::NEVER {
            return (a, b, now);
        }
        assert!(next >= now, "time does not run backwards");
        now = next;
        while let Some(place) = flying.iter().position(|(at, ..)| *at <= now) {
            let (at, to_a, frame) = flying.remove(place);
            assert_eq!(at, now);
            if to_a { &mut a } else { &mut b }.on_frame(now, store, PORT, frame);
        }
        for (host, to_a) in [(&mut a, false), (&mut b, true)] {
            let mut sent = Vec::new();
            drive(host, store, now, &mut sent);
            flying.extend(sent.into_iter().map(|sent| (sent.ends, to_a, sent.frame)));
            ledger(host);
        }
    }
}

#[test]
fn a_stream_arrives_whole_and_on_time() {
    let mut a = config_a();
    let mut v6 = stream(9, 1_400, 50_000);
    v6.target.ip = B6.into();
    v6.target.vlan = Some((5, 3));
    v6.arrivals = Arrivals::Poisson;
    a.streams = vec![stream(7, 9_014, 100_000), v6, stream(3, 66, 30_000)];
    let b = config("b", MAC_B, B4, B6);
    let mut store = SlabStore::new(10_000);
    let (a, b, now) = pair(host(&a, &[]), host(&b, &[3, 7, 9]), &mut store);
    assert!(a.has_finished() && store.outstanding() == 0);
    let sent: Vec<_> = a.streams_sent(now).collect();
    assert_eq!(sent.iter().map(|s| s.id).collect::<Vec<_>>(), [7, 9, 3]);
    assert_eq!((sent[0].planned, sent[0].sent, sent[0].dropped), (100, 100, 0));
    assert_eq!(sent[2].sent, 30);
    assert_eq!(sent[0].first_start, Some(Time::from_ns(10_000)));
    for received in b.streams_received() {
        let sent = sent.iter().find(|s| s.id == received.id).expect("sent");
        assert_eq!((received.received, received.bytes), (sent.sent, sent.bytes));
        assert_eq!(received.sequence, SequenceErrors::default());
        assert_eq!(received.content_errors, 0);
        assert_eq!(received.delay.count(), sent.sent);
        assert_eq!(received.last_arrival, sent.last_end);
    }
    // 9,038 bytes of wire at 10 Gb/s, alone on the line at least once.
    let jumbo = b.streams_received().find(|s| s.id == 7).expect("it ends here");
    assert_eq!(jumbo.delay.percentiles().min, 7_230);
    let ledger = ledger(&b);
    assert_eq!(ledger.consumed, ledger.received, "two announcements were heard");
    assert_eq!(ledger.drops.total(), 0);
}

#[test]
fn frames_of_a_stream_are_what_etherparse_reads() {
    let mut config = config_a();
    let mut v6 = stream(9, 200, 50_000);
    v6.target.ip = B6.into();
    v6.target.vlan = Some((5, 3));
    config.streams = vec![stream(7, 9_014, 100_000), v6, stream(3, 66, 30_000)];
    let mut store = SlabStore::new(10_000);
    let mut host = host(&config, &[]);
    let sent = run(&mut host, &mut store, Time::from_ns(400_000), Duration::ZERO);
    assert!(sent.len() > 60);
    for sent in &sent[2..] {
        let bytes = bytes_of(&store, &sent.frame);
        let packet = etherparse::SlicedPacket::from_ethernet(&bytes).expect("a packet");
        let Some(etherparse::TransportSlice::Udp(udp)) = &packet.transport else { panic!("UDP") };
        assert_eq!((udp.source_port(), udp.destination_port()), (4_660, 4_791));
        let header = udp.to_header();
        let checksum = match &packet.net {
            Some(etherparse::NetSlice::Ipv4(ip)) => {
                let ip = ip.header().to_header();
                assert_eq!(ip.header_checksum, ip.calc_header_checksum());
                assert_eq!(ip.dscp.value(), 46);
                header.calc_checksum_ipv4(&ip, udp.payload())
            }
            Some(etherparse::NetSlice::Ipv6(ip)) => {
                assert_eq!(packet.vlan_ids()[0].value(), 5);
                header.calc_checksum_ipv6(&ip.header().to_header(), udp.payload())
            }
            _ => panic!("IP"),
        };
        assert_eq!(Ok(header.checksum), checksum.map_err(|_| ()));
    }
    release_all(&mut store, sent);
}

#[test]
fn pacing_is_exact_and_a_line_too_slow_drops_by_name() {
    let mut config = config_a();
    // 1,514 and 24 bytes last 1,230.4 ns at 10 Gb/s; 1 Mpps is 1.23 times too much.
    config.streams = vec![stream(1, 1_514, 1_000_000)];
    config.queue_frames_max = 8;
    let mut store = SlabStore::new(10_000);
    let mut host = host(&config, &[]);
    let sent = run(&mut host, &mut store, Time::from_ns(5_000_000), Duration::ZERO);
    let report = host.streams_sent(Time::from_ns(5_000_000)).next().expect("one stream");
    assert_eq!(report.planned, 1_000);
    assert_eq!(report.sent + report.dropped, 1_000);
    // The line's share of one millisecond, and what waited at the end.
    assert!((812..=822).contains(&report.sent), "{report:?}");
    assert_eq!(ledger(&host).drops.of(DropReason::NicQueueFull), report.dropped);
    for pair in sent[2..].windows(2) {
        assert_eq!(pair[0].ends, pair[1].starts, "the line is never idle");
    }
    // No frame waits longer than the queue lasts.
    for sent in &sent[2..] {
        let planned = crate::wire::stream::StreamHeader::read(&store.head(&sent.frame)[42..])
            .expect("a stream's frame")
            .planned;
        assert!(sent.starts.since(planned) <= Duration::from_ps(1_230_400 * 9));
    }
    release_all(&mut store, sent);
}

#[test]
fn a_late_driver_changes_no_plan_and_loses_no_frame() {
    let mut config = config_a();
    config.streams = vec![stream(1, 1_514, 500_000)];
    config.queue_frames_max = 8;
    let run_late = |late: u64| {
        let mut store = SlabStore::new(10_000);
        let mut host = host(&config, &[]);
        let sent = run(&mut host, &mut store, Time::from_ns(30_000_000), Duration::from_ns(late));
        // Announcements are made when the driver comes; the stream's frames are planned before.
        let planned: Vec<Vec<u8>> = sent
            .iter()
            .filter(|sent| sent.frame.len_bytes() == 1_514)
            .map(|sent| bytes_of(&store, &sent.frame))
            .collect();
        let mut at_once = 0_usize;
        for pair in sent.windows(2) {
            assert!(pair[1].starts >= pair[0].ends, "one frame at a time");
            let gap = pair[1].starts.since(pair[0].ends);
            at_once += usize::from(gap.is_zero());
        }
        release_all(&mut store, sent);
        (planned, at_once)
    };
    let (punctual, none) = run_late(0);
    assert_eq!((punctual.len(), none), (500, 1), "announcements alone are back to back");
    // 50 us late: 25 frames of the stream are due at once, more than may wait in the queue.
    let (late, _) = run_late(50_000);
    assert!(late == punctual, "the same frames with the same plan");
}

#[test]
fn a_store_without_room_and_a_link_that_is_down_are_counted() {
    let mut config = config_a();
    config.streams = vec![stream(1, 100, 1_000_000)];
    let mut store = SlabStore::new(2);
    let mut host = host(&config, &[]);
    let mut kept = Vec::new();
    drive(&mut host, &mut store, Time::ZERO, &mut kept);
    let line_free = deadline(&host);
    drive(&mut host, &mut store, line_free, &mut kept);
    drive(&mut host, &mut store, Time::from_ns(10_000), &mut kept);
    assert_eq!(kept.len(), 2, "both chunks are out");
    assert_eq!(ledger(&host).drops.of(DropReason::NoFrameToSend), 1);
    release_all(&mut store, kept);
    host.on_link(Time::from_ns(12_500), &mut store, PORT, false);
    assert_eq!(ledger(&host).drops.of(DropReason::LinkDown), 2, "planned and not sent");
    let sent = run(&mut host, &mut store, Time::from_ns(20_000), Duration::ZERO);
    assert!(sent.is_empty());
    assert_eq!(ledger(&host).drops.of(DropReason::LinkDown), 10);
    host.on_link(Time::from_ns(20_500), &mut store, PORT, true);
    assert_eq!(ledger(&host).queued, 2, "it announces itself again");
    Node::<SlabStore>::hold(&mut host, Time::from_ns(20_500), PORT, true);
    assert_eq!(deadline(&host), Time::NEVER);
    assert_eq!(Node::<SlabStore>::next_ready_port(&mut host, Time::from_ns(20_500)), None);
    Node::<SlabStore>::hold(&mut host, Time::from_ns(20_600), PORT, false);
    assert!(deadline(&host) <= Time::from_ns(20_600));
    host.drain(&mut store);
    assert_eq!(ledger(&host).queued, 2);
    assert_eq!(store.outstanding(), 0);
}

#[test]
fn no_flipped_bit_of_a_stream_goes_unnoticed() {
    for frame_bytes in [66_u32, 700] {
        let good = stream_frame(false, frame_bytes);
        let mut store = SlabStore::new(1_000);
        let mut host = host(&config_a(), &[1]);
        let mut take = |bytes: &[u8]| {
            let frame = store.allocate_from(bytes).expect("room");
            host.on_frame(Time::from_ns(20_000), &mut store, PORT, frame);
            (ledger(&host).consumed, ledger(&host).drops.of(DropReason::BadChecksum))
        };
        let mut bad = 0;
        for bit in 14 * 8..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let (consumed, _) = take(&bytes);
            assert_eq!(consumed, 0, "bit {bit}");
            bad += 1;
        }
        let mut padded = good.clone();
        padded.extend([0; 10]);
        assert_eq!(take(&padded).0, 1, "padding is no error");
        // UDP without a checksum, which IPv4 allows: the content alone is judged.
        let mut unchecked = good;
        unchecked[40..42].copy_from_slice(&[0, 0]);
        assert_eq!(take(&unchecked).0, 2);
        let last = unchecked.len() - 1;
        unchecked[last] ^= 1;
        assert_eq!(take(&unchecked).0, 3);
        assert_eq!(ledger(&host).drops.total(), bad);
        let report = host.streams_received().next().expect("one stream");
        let wrong = u64::from(frame_bytes > 66);
        assert_eq!((report.received, report.sequence.duplicate), (1, 2));
        assert_eq!(report.content_errors, wrong, "of 66 bytes none is payload");
    }
    // Over IPv6 the checksum is not optional.
    let mut v6 = stream_frame(true, 100);
    v6[60..62].copy_from_slice(&[0, 0]);
    dropped(&v6, DropReason::BadChecksum);
}

#[test]
fn a_stream_that_does_not_end_here_is_counted() {
    let (mut host, mut store) = settled();
    let frame = stream_frame(true, 300);
    assert!(answers(&mut host, &mut store, &frame).is_empty());
    assert_eq!(host.stats().unknown_stream_frames, 1);
    assert_eq!(ledger(&host).drops.of(DropReason::Unhandled), 1);
}
