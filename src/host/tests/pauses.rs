//! What a host does about pauses, and the storms that it sends.

use super::*;
use crate::wire::pfc::{self, MacControl, Pfc};

/// Drives a host alone from `from` until `until`, `late` after each deadline, and gives what it sent.
fn run_from(
    host: &mut Host,
    store: &mut SlabStore,
    from: Time,
    until: Time,
    late: Duration,
) -> Vec<Transmission> {
    let (mut sent, mut now) = (Vec::new(), from);
    while deadline(host) <= until {
        now = now.max(deadline(host) + late);
        drive(host, store, now, &mut sent);
        ledger(host);
    }
    sent
}

/// Hands a MAC control frame to the host.
fn hear(host: &mut Host, store: &mut SlabStore, now: Time, control: MacControl) {
    let frame = store.allocate_from(&control.frame(MAC_B)).expect("room");
    host.on_frame(now, store, PORT, frame);
    ledger(host);
}

/// A host that sends streams of 1,000-byte frames under these priorities, one each microsecond from
/// 10 us to 1,010 us, at 10 Gb/s.
fn sender(priorities: &[u8], lossless: u8) -> Host {
    let mut config = config_a();
    config.lossless = lossless;
    for (id, priority) in (1..).zip(priorities) {
        config.streams.push(StreamConfig { priority: *priority, ..stream(id, 1_000, 1_000_000) });
    }
    host(&config, &[])
}

fn us(us: u64) -> Time {
    Time::from_ns(us * 1_000)
}

/// The stream and the start of each of its frames.
fn starts(store: &SlabStore, sent: &[Transmission]) -> Vec<(u32, Time)> {
    let read = |sent: &Transmission| {
        let bytes = bytes_of(store, &sent.frame);
        let header = crate::wire::stream::StreamHeader::read(bytes.get(42..)?).ok()?;
        Some((header.stream, sent.starts))
    };
    sent.iter().filter_map(read).collect()
}

#[test]
fn a_pause_stops_its_class_to_the_picosecond_and_no_frame_is_lost() {
    // 51.2 ns at 10 Gb/s: 1,000 quanta are 51.2 us.
    for late in [Duration::ZERO, Duration::from_ns(150)] {
        let mut store = SlabStore::new(100_000);
        let mut host = sender(&[3, 0], 0b1000);
        let mut sent = run_from(&mut host, &mut store, us(0), us(100), late);
        hear(&mut host, &mut store, us(101), MacControl::Pfc(Pfc::uniform(0b1001, 1_000)));
        sent.extend(run_from(&mut host, &mut store, us(101), us(5_000), late));
        let starts = starts(&store, &sent);
        let resumes = us(101) + Duration::from_ns(51_200);
        let of = |id: u32| starts.iter().filter(move |(stream, _)| *stream == id);
        assert_eq!((of(1).count(), of(2).count()), (1_000, 1_000));
        // What the late driver started before it saw the pause was in flight.
        assert!(of(1).all(|(_, at)| *at <= us(101) || *at >= resumes), "{late}");
        assert!(of(1).any(|(_, at)| at.since(resumes) <= Duration::from_ns(1_000) + late));
        let paused: Vec<_> = of(2).filter(|(_, at)| us(101) < *at && *at < resumes).collect();
        assert!(paused.len() >= 50, "the other class goes on: {}", paused.len());
        let counters = host.pause_counters(us(5_000));
        assert_eq!((counters.rx_xoff[3], counters.rx_pause[3]), (1, Duration::from_ns(51_200)));
        assert_eq!((counters.rx_xoff[0], counters.rx_pause[0]), (1, Duration::ZERO));
        let sums = ledger(&host);
        assert_eq!((sums.drops.total(), sums.consumed, host.has_finished()), (0, 1, true));
        release_all(&mut store, sent);
    }
}

#[test]
fn after_a_pause_a_class_takes_turns_with_the_others_at_the_rate_of_the_line() {
    let mut store = SlabStore::new(100_000);
    let mut host = sender(&[3, 4], 0b1_1000);
    hear(&mut host, &mut store, us(1), MacControl::Pfc(Pfc::uniform(0b1000, 2_000)));
    let sent = run_from(&mut host, &mut store, us(1), us(5_000), Duration::ZERO);
    let starts = starts(&store, &sent);
    // Paused until 103.4 us, with 93 frames behind. A frame takes 819.2 ns, so that both classes
    // together are more than the line: it has no gap, and each class gets half of it.
    let behind: Vec<_> = starts.iter().filter(|(_, at)| *at >= us(104)).take(200).collect();
    for pair in behind.windows(2) {
        assert_ne!(pair[0].0, pair[1].0, "in turn");
        assert_eq!(pair[1].1.since(pair[0].1), Duration::from_ps(819_200), "no gap");
    }
    assert_eq!(starts.len(), 2_000);
    release_all(&mut store, sent);
}

#[test]
fn resume_ends_a_pause_and_a_link_that_comes_back_knows_of_none() {
    let mut store = SlabStore::new(100_000);
    let mut host = sender(&[3], 0b1000);
    hear(&mut host, &mut store, us(1), MacControl::Pfc(Pfc::uniform(0b1000, 65_535)));
    let mut sent = run_from(&mut host, &mut store, us(1), us(50), Duration::ZERO);
    assert_eq!(starts(&store, &sent), []);
    hear(&mut host, &mut store, us(50), MacControl::Pfc(Pfc::uniform(0b1000, 0)));
    sent.extend(run_from(&mut host, &mut store, us(50), us(60), Duration::ZERO));
    assert_eq!(starts(&store, &sent).first(), Some(&(1, us(50))));
    hear(&mut host, &mut store, us(61), MacControl::Pfc(Pfc::uniform(0b1000, 65_535)));
    host.on_link(us(70), &mut store, PORT, false);
    let planned_while_down = run_from(&mut host, &mut store, us(70), us(80), Duration::ZERO);
    assert!(planned_while_down.is_empty());
    host.on_link(us(90), &mut store, PORT, true);
    let after = run_from(&mut host, &mut store, us(90), us(100), Duration::ZERO);
    assert!(starts(&store, &after).len() >= 9, "not paused any more");
    let books = ledger(&host);
    assert!(books.drops.of(DropReason::LinkDown) > 20, "{books:?}");
    assert_eq!(host.pause_counters(us(100)).rx_xon[3], 1);
    release_all(&mut store, sent);
    release_all(&mut store, after);
}

#[test]
fn pause_of_the_whole_port_is_obeyed_where_it_is_asked_for() {
    for obeys_pause in [false, true] {
        let mut config = config_a();
        config.obeys_pause = obeys_pause;
        config.streams.push(stream(1, 1_000, 1_000_000));
        let mut store = SlabStore::new(100_000);
        let mut host = host(&config, &[]);
        // 51.2 us, and an echo request in it.
        hear(&mut host, &mut store, us(20), MacControl::Pause(1_000));
        let request = store.allocate_from(&echo_v4(b"hello")).expect("room");
        host.on_frame(us(21), &mut store, PORT, request);
        let sent = run_from(&mut host, &mut store, us(21), us(80), Duration::ZERO);
        let resumes = us(20) + Duration::from_ns(51_200);
        let stopped = sent.iter().all(|sent| sent.starts <= us(20) || sent.starts >= resumes);
        assert_eq!(stopped, obeys_pause);
        let counters = host.pause_counters(us(80));
        assert_eq!(counters.rx_global_xoff, 1);
        assert_eq!(counters.rx_pause[0], Duration::from_ns(if obeys_pause { 51_200 } else { 0 }));
        host.drain(&mut store);
        release_all(&mut store, sent);
    }
}

#[test]
fn frames_for_the_mac_are_consumed_or_dropped_by_name() {
    let good = MacControl::Pfc(Pfc::uniform(0xff, 9)).frame(MAC_B);
    let (mut host, mut store) = settled();
    for (bytes, reason) in [
        (&good[..], None),
        (&good[..34], None),
        (&good[..33], Some(DropReason::Malformed)),
        (&MacControl::Other(9).frame(MAC_B)[..], Some(DropReason::Unhandled)),
    ] {
        let before = ledger(&host);
        let frame = store.allocate_from(bytes).expect("room");
        host.on_frame(us(10), &mut store, PORT, frame);
        let after = ledger(&host);
        assert_eq!(after.consumed - before.consumed, u64::from(reason.is_none()));
        let dropped = |reason| after.drops.of(reason) - before.drops.of(reason);
        assert!(reason.is_none_or(|reason| dropped(reason) == 1));
    }
    assert_eq!(store.outstanding(), 0);
}

#[test]
fn a_storm_goes_before_everything_and_heeds_no_pause() {
    let mut config = config_a();
    config.lossless = 0xff;
    config.obeys_pause = true;
    config.streams.push(stream(1, 1_000, 1_000_000));
    config.storms.push(StormConfig {
        kind: StormKind::Pfc { classes: 0b1000, quanta: 7 },
        rate: AnyRate::Frames(FrameRate::from_pps(100_000)),
        start: us(100),
        stop: us(200),
        frames_max: u64::MAX,
    });
    let mut store = SlabStore::new(100_000);
    let mut host = host(&config, &[]);
    hear(&mut host, &mut store, us(20), MacControl::Pause(2_000));
    hear(&mut host, &mut store, us(20), MacControl::Pfc(Pfc::uniform(0xff, 2_000)));
    let sent = run_from(&mut host, &mut store, us(20), us(5_000), Duration::ZERO);
    let storm: Vec<Time> = sent
        .iter()
        .filter(|sent| pfc::is_mac_control(store.head(&sent.frame)))
        .map(|sent| sent.starts)
        .collect();
    assert_eq!(storm.len(), 10);
    for (n, at) in (0..).zip(&storm) {
        // At most the frame in flight.
        let waited = at.since(us(100 + 10 * n));
        assert!(*at >= us(100 + 10 * n) && waited <= Duration::from_ps(819_200), "{n}: {at}");
    }
    assert_eq!(host.stats().storm_frames_sent, 10);
    assert!(host.has_finished());
    let want = MacControl::Pfc(Pfc::uniform(0b1000, 7)).frame(MAC_A);
    let frame = sent.iter().find(|sent| sent.starts == us(100)).expect("the first");
    assert_eq!(bytes_of(&store, &frame.frame), want);
    release_all(&mut store, sent);
}
