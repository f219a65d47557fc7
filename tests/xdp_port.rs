//! Ports on veth pairs between namespaces: what the kernel really does with our rings.

mod namespaces;
mod traffic;

use namespaces::Pair;
use tailwater::frame::FrameStore as _;
use tailwater::xdp::{ChunkSize, Port, PortConfig, PortError, RingSizes, TxRefused, UmemStore};
use traffic::{ROUNDS_MAX, check, finish, frame, open, store, transfer};

#[test]
fn frames_cross_both_ways() {
    if !namespaces::available() {
        return;
    }
    let pair = Pair::new(1, 1_500);
    let mut store = store();
    let mut a = open(&mut store, pair.in_a(), "a0");
    let mut b = open(&mut store, pair.in_b(), "b0");
    for len in [60, 18, 1_514] {
        transfer(&mut store, &mut a, &mut b, 200, len);
        transfer(&mut store, &mut b, &mut a, 200, len);
    }
    finish(&mut store, [a, b]);
}

#[test]
fn what_the_kernel_would_lose_is_refused() {
    if !namespaces::available() {
        return;
    }
    let pair = Pair::new(1, 1_500);
    let mut store = store();
    let mut a = open(&mut store, pair.in_a(), "a0");
    let mut b = open(&mut store, pair.in_b(), "b0");
    let tags: [&[u8]; 3] = [&[0x88, 0xb5], &[0x81, 0x00], &[0x88, 0xa8, 0, 1, 0x81, 0x00]];
    let mut delivered = 0;
    for (tag, longest) in tags.into_iter().zip([1_514, 1_518, 1_518]) {
        for (len, want) in [
            (13, Some(TxRefused::Runt)),
            (14, None),
            (longest, None),
            (longest + 1, Some(TxRefused::Oversize)),
        ] {
            let mut frame = store.allocate(len).expect("room");
            store.write(&mut frame, 0, &[2; 12]);
            if len >= 18 {
                store.write(&mut frame, 12, tag);
            }
            match a.tx_push(&mut store, frame) {
                Ok(()) => {
                    assert_eq!(want, None, "{len} bytes of {tag:x?}");
                    delivered += 1;
                }
                Err((frame, refused)) => {
                    store.release(frame);
                    assert_eq!(Some(refused), want, "{len} bytes of {tag:x?}");
                }
            }
        }
    }
    a.kick();
    let mut got = Vec::new();
    for _ in 0..ROUNDS_MAX {
        b.rx_burst(&mut store, &mut got, 64);
        a.reap(&mut store);
        if got.len() == delivered && a.counters().tx_completed == delivered as u64 {
            break;
        }
    }
    assert_eq!(got.len(), delivered, "{:?}", a.counters());
    let counters = a.counters();
    assert_eq!((counters.tx_refused_runt, counters.tx_refused_oversize), (3, 3));
    assert_eq!((counters.tx_kernel_dropped, counters.xsk_tx_invalid_descs), (0, 0));
    got.into_iter().for_each(|frame| store.release(frame));
    finish(&mut store, [a, b]);
}

#[test]
fn jumbo_frames_cross_in_chains() {
    if !namespaces::available() {
        return;
    }
    let pair = Pair::new(1, 9_000);
    for size in [ChunkSize::Bytes4096, ChunkSize::Bytes2048] {
        let mut store = UmemStore::new(size, 4_096).expect("memory");
        let mut a = open(&mut store, pair.in_a(), "a0");
        let mut b = open(&mut store, pair.in_b(), "b0");
        for len in [1_793, 3_841, 8_042, 9_014] {
            transfer(&mut store, &mut a, &mut b, 40, len);
            transfer(&mut store, &mut b, &mut a, 40, len);
        }
        finish(&mut store, [a, b]);
    }
}

#[test]
fn equal_indices_in_two_namespaces_are_two_interfaces() {
    if !namespaces::available() {
        return;
    }
    let pair = Pair::new(1, 1_500);
    pair.link("a1", "b1", 1, 1_500);
    let index = |ns: &str, end: &str| {
        let line = namespaces::run(&format!("ip -n {ns} -o link show {end}"));
        line.split(':').next().expect("an index").to_owned()
    };
    assert_eq!(index(&pair.a, "a0"), index(&pair.b, "b0"));
    let mut store = store();
    let mut ports =
        [("a0", pair.in_a()), ("b0", pair.in_b()), ("a1", pair.in_a()), ("b1", pair.in_b())]
            .map(|(name, netns)| open(&mut store, netns, name));
    let [a0, b0, a1, b1] = &mut ports;
    transfer(&mut store, a0, b0, 50, 100);
    transfer(&mut store, a1, b1, 60, 100);
    transfer(&mut store, b1, a1, 70, 100);
    assert_eq!(ports.each_ref().map(|port| port.counters().rx_frames), [0, 50, 70, 60]);
    finish(&mut store, ports);
}

#[test]
fn flows_leave_by_several_queues_each_in_order() {
    if !namespaces::available() {
        return;
    }
    let pair = Pair::new(4, 1_500);
    let mut store = UmemStore::new(ChunkSize::Bytes2048, 8_192).expect("16 MiB");
    let mut a = open(&mut store, pair.in_a(), "a0");
    let mut b = open(&mut store, pair.in_b(), "b0");
    const FLOWS: usize = 32;
    for number in 0..10 {
        for flow in 0..FLOWS {
            let mut frame = frame(&mut store, number, 64);
            store.write(&mut frame, 11, &[u8::try_from(flow).expect("small")]);
            a.tx_push(&mut store, frame).expect("room");
        }
        assert!(a.has_tx_room());
    }
    a.kick();
    let mut next = [0; FLOWS];
    let mut queue_of = [None; FLOWS];
    let mut got = Vec::new();
    for _ in 0..ROUNDS_MAX {
        a.reap(&mut store);
        for queue in 0..4 {
            b.rx_burst_on(queue, &mut store, &mut got, 64);
            for frame in got.drain(..) {
                let flow = usize::from(store.head(&frame)[11]);
                assert_eq!(check(&store, &frame), next[flow], "flow {flow}");
                assert_eq!(*queue_of[flow].get_or_insert(queue), queue, "flow {flow}");
                next[flow] += 1;
                store.release(frame);
            }
        }
        if next == [10; FLOWS] && a.counters().tx_completed == 10 * FLOWS as u64 {
            break;
        }
    }
    assert_eq!(next, [10; FLOWS]);
    for queue in 0..4 {
        assert!(queue_of.contains(&Some(queue)), "nothing left by queue {queue}: {queue_of:?}");
    }
    finish(&mut store, [a, b]);
}

#[test]
fn four_queues_share_one_umem_and_keep_apart() {
    if !namespaces::available() {
        return;
    }
    let pair = Pair::new(4, 1_500);
    let mut store = store();
    let mut a = open(&mut store, pair.in_a(), "a0");
    // The other end's queues are shared by two ports, as two workers would.
    let mut config = PortConfig::new(pair.in_b(), "b0");
    config.rings = RingSizes::of(128);
    config.queues = vec![0, 3];
    let mut b03 = Port::open(&mut store, config.clone()).expect("it opens");
    config.queues = vec![1, 2];
    config.attachment = b03.attachment();
    let mut b12 = Port::open(&mut store, config).expect("it opens");
    assert_eq!((a.queue_numbers(), b03.queue_numbers()), (&[0, 1, 2, 3][..], &[0, 3][..]));
    for queue in 0..4_u32 {
        for number in 0..10 {
            let frame = frame(&mut store, 100 * queue + number, 64);
            a.tx_push_on(queue as usize, &mut store, frame).expect("room");
        }
    }
    a.kick();
    for (port, index, queue) in [(0, 0, 0), (1, 0, 1), (1, 1, 2), (0, 1, 3)] {
        let port = if port == 0 { &mut b03 } else { &mut b12 };
        let mut got = Vec::new();
        for _ in 0..ROUNDS_MAX {
            port.rx_burst_on(index, &mut store, &mut got, 64);
            if got.len() >= 10 {
                break;
            }
        }
        let numbers: Vec<u32> = got.iter().map(|frame| check(&store, frame)).collect();
        assert_eq!(numbers, (100 * queue..100 * queue + 10).collect::<Vec<u32>>());
        got.into_iter().for_each(|frame| store.release(frame));
    }
    let plan = b12.plan_again(&mut store).expect("chunks");
    let program = b03.attachment().expect("it is open");
    b12.restart(plan.share(program).open().expect("it opens again"));
    let number = frame(&mut store, 7, 64);
    a.tx_push_on(2, &mut store, number).expect("room");
    a.kick();
    let mut got = Vec::new();
    assert!((0..ROUNDS_MAX).any(|_| b12.rx_burst_on(1, &mut store, &mut got, 1) == 1));
    got.into_iter().for_each(|frame| store.release(frame));
    finish(&mut store, [a, b03, b12]);
}

#[test]
fn a_consumer_that_stalled_receives_again_and_every_loss_is_counted() {
    if !namespaces::available() {
        return;
    }
    let pair = Pair::new(1, 1_500);
    let mut store = store();
    let mut a = open(&mut store, pair.in_a(), "a0");
    let mut b = open(&mut store, pair.in_b(), "b0");
    let mut sent = 0_u64;
    while sent < 2_000 {
        let frame = frame(&mut store, 0, 64);
        match a.tx_push(&mut store, frame) {
            Ok(()) => sent += 1,
            Err((frame, refused)) => {
                assert_eq!(refused, TxRefused::RingFull);
                store.release(frame);
                a.kick();
                a.reap(&mut store);
            }
        }
    }
    for _ in 0..ROUNDS_MAX {
        a.kick();
        a.reap(&mut store);
        if a.counters().tx_completed == sent {
            break;
        }
    }
    let mut got = Vec::new();
    let accounted = |a: &Port, b: &Port, got: u64| {
        got + a.counters().tx_kernel_dropped + b.counters().kernel_lost()
    };
    for _ in 0..ROUNDS_MAX {
        b.rx_burst(&mut store, &mut got, 64);
        if accounted(&a, &b, got.len() as u64) == sent {
            break;
        }
    }
    assert!(got.len() >= 256, "a ring full of them");
    assert_eq!(accounted(&a, &b, got.len() as u64), sent, "{:?} {:?}", a.counters(), b.counters());
    got.into_iter().for_each(|frame| store.release(frame));
    transfer(&mut store, &mut a, &mut b, 200, 64);
    finish(&mut store, [a, b]);
}

#[test]
fn a_starved_fill_ring_is_filled_once_chunks_are_free() {
    if !namespaces::available() {
        return;
    }
    let pair = Pair::new(1, 1_500);
    let mut store = store();
    let mut a = open(&mut store, pair.in_a(), "a0");
    let mut b = open(&mut store, pair.in_b(), "b0");
    let mut hoard: Vec<_> = std::iter::from_fn(|| store.allocate(60)).collect();
    let mut got = Vec::new();
    for number in 0..200 {
        store.release(hoard.pop().expect("plenty"));
        let frame = frame(&mut store, number, 60);
        a.tx_push(&mut store, frame).expect("room");
        a.kick();
        // What is sent comes back before b could lend it.
        for _ in 0..ROUNDS_MAX {
            if a.reap(&mut store) > 0 {
                break;
            }
        }
        hoard.extend(store.allocate(60));
        b.rx_burst(&mut store, &mut got, 64);
    }
    assert!(got.len() >= 190 && b.counters().rx_refill_short > 0, "{:?}", b.counters());
    hoard.into_iter().chain(got).for_each(|frame| store.release(frame));
    b.refill(&mut store);
    transfer(&mut store, &mut a, &mut b, 200, 60);
    finish(&mut store, [a, b]);
}

#[test]
fn what_cannot_open_says_why_and_leaves_the_store_as_it_was() {
    if !namespaces::available() {
        return;
    }
    let pair = Pair::new(1, 1_500);
    let mut store = UmemStore::new(ChunkSize::Bytes2048, 1_024).expect("memory");
    let config = PortConfig::new(pair.in_a(), "a0");
    let mut with = |change: &dyn Fn(&mut PortConfig)| {
        let mut config = config.clone();
        change(&mut config);
        let error = Port::open(&mut store, config).expect_err("it cannot");
        assert_eq!(store.census().free, store.census().total, "{error}");
        error
    };
    assert!(matches!(with(&|_| {}), PortError::NoChunks { wanted: 2_048, free: 1_024, .. }));
    let small = |config: &mut PortConfig| config.rings = RingSizes::of(64);
    assert!(matches!(
        with(&|config| config.rings = RingSizes { fill: 64, ..RingSizes::of(64) }),
        PortError::Rings { .. }
    ));
    assert!(matches!(
        with(&|config| (small(config), config.queues = vec![1]).1),
        PortError::NoQueue { queue: 1, queues: 1, .. }
    ));
    assert!(matches!(
        with(&|config| config.interface = "none".to_owned()),
        PortError::NoInterface { .. }
    ));
    assert!(matches!(
        with(&|config| config.zero_copy = tailwater::xdp::ZeroCopy::Require),
        PortError::NoZeroCopy { .. }
    ));
    namespaces::run(&format!("ip -n {} addr add 192.0.2.1/24 dev a0", pair.a));
    namespaces::run(&format!("ip -n {} route add default via 192.0.2.2", pair.a));
    assert!(matches!(with(&small), PortError::DefaultRoute { .. }));
    let mut config = config;
    small(&mut config);
    config.allow_default_route = true;
    let port = Port::open(&mut store, config).expect("it may");
    finish(&mut store, [port]);
}
