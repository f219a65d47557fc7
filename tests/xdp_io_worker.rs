//! Ports whose rings are served by I/O workers: the same frames, the same books.

mod namespaces;
mod traffic;

use std::thread::ScopedJoinHandle;

use namespaces::{Pair, run};
use tailwater::frame::FrameStore as _;
use tailwater::xdp::{IoWorker, LinkState, PortCounters, privileges};
use traffic::{ROUNDS_MAX, finish, frame, open, store, transfer};

/// Starts I/O workers, lends `work` the way to them, and joins them when it has ended.
fn with_io_workers<const N: usize>(work: impl FnOnce([&tailwater::xdp::IoHandle; N])) {
    let (workers, handles): (Vec<_>, Vec<_>) =
        (0..N).map(|_| IoWorker::new().expect("a descriptor")).unzip();
    std::thread::scope(|scope| {
        let threads: Vec<ScopedJoinHandle<'_, ()>> = workers
            .into_iter()
            .map(|worker| {
                scope.spawn(move || {
                    privileges::drop_all().expect("always allowed");
                    worker.run(false);
                })
            })
            .collect();
        work(std::array::from_fn(|index| &handles[index]));
        drop(handles);
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    });
}

#[test]
fn frames_of_all_lengths_cross_between_two_workers() {
    if !namespaces::available() {
        return;
    }
    let pair = Pair::new(1, 9_000);
    with_io_workers(|[first, second]| {
        let mut store = store();
        let mut a = open(&mut store, pair.in_a(), "a0");
        let mut b = open(&mut store, pair.in_b(), "b0");
        a.run_rings_on(first).expect("a descriptor");
        b.run_rings_on(second).expect("a descriptor");
        assert!(a.has_io_worker() && b.has_io_worker());
        for len in [60, 64, 1_514, 3_840, 3_841, 9_014] {
            transfer(&mut store, &mut a, &mut b, 50, len);
            transfer(&mut store, &mut b, &mut a, 50, len);
        }
        let counted: PortCounters = a.counters();
        assert_eq!((counted.tx_frames, counted.rx_frames, counted.kernel_lost()), (300, 300, 0));
        assert!(counted.tx_wakeups > 0, "the I/O worker's count is shown: {counted:?}");
        finish(&mut store, [a, b]);
    });
}

#[test]
fn a_deleted_interface_gives_back_what_all_rings_held_and_comes_back() {
    if !namespaces::available() {
        return;
    }
    let pair = Pair::new(2, 1_500);
    with_io_workers(|[worker]| {
        let mut store = store();
        let mut a = open(&mut store, pair.in_a(), "a0");
        let mut b = open(&mut store, pair.in_b(), "b0");
        a.run_rings_on(worker).expect("a descriptor");
        b.run_rings_on(worker).expect("a descriptor");
        transfer(&mut store, &mut a, &mut b, 100, 64);
        for number in 0..20 {
            let frame = frame(&mut store, number, 64);
            a.tx_push(&mut store, frame).expect("room");
        }
        a.kick();
        for number in 0..10 {
            let frame = frame(&mut store, number, 64);
            a.tx_push(&mut store, frame).expect("room");
        }
        // The I/O worker sends the first twenty; the ten are never shown to it.
        for _ in 0..ROUNDS_MAX {
            a.reap(&mut store);
            if a.counters().tx_completed == 120 {
                break;
            }
            std::thread::yield_now();
        }
        assert_eq!(a.counters().tx_completed, 120);
        run(&format!("ip -n {} link del a0", pair.a));
        for port in [&mut a, &mut b] {
            let state = port.poll_state(&mut store);
            assert_eq!(state.interface.link, LinkState::Vanished);
            assert!(!port.is_open());
        }
        assert_eq!(store.census().free, store.census().total, "{:?}", store.census());
        assert_eq!((a.counters().tx_abandoned, b.counters().rx_abandoned), (10, 20));

        pair.link("a0", "b0", 2, 1_500);
        for port in [&mut a, &mut b] {
            assert!(port.poll_state(&mut store).can_reopen);
            port.reopen(&mut store).expect("it is back");
            assert!(port.has_io_worker(), "again by the I/O worker");
            port.poll_state(&mut store);
        }
        transfer(&mut store, &mut a, &mut b, 100, 64);
        transfer(&mut store, &mut b, &mut a, 100, 64);
        finish(&mut store, [a, b]);
    });
}

#[test]
fn a_sleeping_port_is_woken_for_a_frame() {
    if !namespaces::available() {
        return;
    }
    let pair = Pair::new(1, 1_500);
    with_io_workers(|[worker]| {
        let mut store = store();
        let mut a = open(&mut store, pair.in_a(), "a0");
        let mut b = open(&mut store, pair.in_b(), "b0");
        b.run_rings_on(worker).expect("a descriptor");
        let mut got = Vec::new();
        for number in 0..200 {
            let frame = frame(&mut store, number, 64);
            a.tx_push(&mut store, frame).expect("room");
            a.kick();
            while b.rx_burst(&mut store, &mut got, 8) == 0 {
                b.listen();
                let mut fds: Vec<_> = b
                    .fds()
                    .map(|fd| nix::poll::PollFd::new(fd, nix::poll::PollFlags::POLLIN))
                    .collect();
                // A minute: only a lost wake-up takes that long.
                let timeout = nix::poll::PollTimeout::from(60_000_u16);
                let ready = nix::poll::poll(&mut fds, timeout).expect("descriptors");
                assert!(ready > 0, "frame {number} came and nobody was woken");
            }
            got.drain(..).for_each(|frame| store.release(frame));
            a.reap(&mut store);
        }
        finish(&mut store, [a, b]);
    });
}
