//! Ports whose interface goes away, and processes that do.

#![allow(clippy::print_stdout, reason = "a child tells its parent by it")]

mod namespaces;
mod traffic;

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use namespaces::{Pair, run};
use tailwater::frame::FrameStore as _;
use tailwater::xdp::{LinkState, NetNs, Port, PortConfig, RingSizes, TxRefused, privileges};
use traffic::{ROUNDS_MAX, finish, frame, open, store, transfer};

#[test]
fn a_deleted_interface_gives_its_chunks_back_and_others_live_on() {
    if !namespaces::available() {
        return;
    }
    let pair = Pair::new(1, 1_500);
    let mut store = store();
    // The first to bind is the one that goes.
    let mut a = open(&mut store, pair.in_a(), "a0");
    let mut b = open(&mut store, pair.in_b(), "b0");
    transfer(&mut store, &mut a, &mut b, 100, 64);
    for number in 0..20 {
        let frame = frame(&mut store, number, 64);
        a.tx_push(&mut store, frame).expect("room");
    }
    a.kick();
    for number in 0..10 {
        // In the ring, and never shown to the kernel.
        let frame = frame(&mut store, number, 64);
        a.tx_push(&mut store, frame).expect("room");
    }
    run(&format!("ip -n {} link del a0", pair.a));
    for port in [&mut a, &mut b] {
        let state = port.poll_state(&mut store);
        assert!(state.changed && !state.can_reopen, "{state:?}");
        assert_eq!(state.interface.link, LinkState::Vanished);
        assert!(!port.is_open());
    }
    assert_eq!(store.census().free, store.census().total, "{:?}", store.census());
    assert_eq!((a.counters().tx_abandoned, b.counters().rx_abandoned), (10, 20));
    let frame = frame(&mut store, 0, 64);
    let (frame, refused) = a.tx_push(&mut store, frame).expect_err("it is down");
    assert_eq!(refused, TxRefused::LinkDown);
    store.release(frame);

    pair.link("a1", "b1", 1, 1_500);
    let mut a1 = open(&mut store, pair.in_a(), "a1");
    let mut b1 = open(&mut store, pair.in_b(), "b1");
    transfer(&mut store, &mut a1, &mut b1, 100, 64);

    pair.link("a0", "b0", 1, 1_500);
    for port in [&mut a, &mut b] {
        assert!(port.poll_state(&mut store).can_reopen);
        port.reopen(&mut store).expect("it is back");
        port.poll_state(&mut store);
    }
    transfer(&mut store, &mut a, &mut b, 100, 64);
    transfer(&mut store, &mut b, &mut a, 100, 64);
    assert_eq!(b.counters().rx_frames, 200, "counters outlive sockets");
    finish(&mut store, [a, b, a1, b1]);
}

#[test]
fn a_link_that_goes_down_refuses_and_comes_back() {
    if !namespaces::available() {
        return;
    }
    let pair = Pair::new(1, 1_500);
    let mut store = store();
    let mut a = open(&mut store, pair.in_a(), "a0");
    let mut b = open(&mut store, pair.in_b(), "b0");
    run(&format!("ip -n {} link set b0 down", pair.b));
    for number in 0..5 {
        let frame = frame(&mut store, number, 64);
        a.tx_push(&mut store, frame).expect("it has not looked yet");
    }
    for _ in 0..ROUNDS_MAX {
        a.kick();
        a.reap(&mut store);
        if a.counters().tx_completed == 5 {
            break;
        }
    }
    assert_eq!(a.counters().tx_kernel_dropped, 5, "{:?}", a.counters());
    assert_eq!(a.poll_state(&mut store).interface.link, LinkState::NoCarrier);
    assert_eq!(b.poll_state(&mut store).interface.link, LinkState::AdminDown);
    let last = frame(&mut store, 9, 64);
    let (last, refused) = a.tx_push(&mut store, last).expect_err("no carrier");
    assert_eq!(refused, TxRefused::LinkDown);
    store.release(last);
    run(&format!("ip -n {} link set b0 mtu 1400 up", pair.b));
    assert_eq!(a.poll_state(&mut store).interface.link, LinkState::Up);
    assert_eq!(b.poll_state(&mut store).interface.mtu_bytes, 1_400);
    transfer(&mut store, &mut a, &mut b, 100, 1_414);
    transfer(&mut store, &mut b, &mut a, 100, 1_414);
    let long = frame(&mut store, 0, 1_415);
    let (long, refused) = b.tx_push(&mut store, long).expect_err("above the new MTU");
    assert_eq!(refused, TxRefused::Oversize);
    store.release(long);
    finish(&mut store, [a, b]);
}

#[test]
fn closing_and_opening_at_once_succeeds() {
    if !namespaces::available() {
        return;
    }
    let pair = Pair::new(1, 1_500);
    let mut store = store();
    let mut b = open(&mut store, pair.in_b(), "b0");
    for _ in 0..10 {
        let mut a = open(&mut store, pair.in_a(), "a0");
        transfer(&mut store, &mut a, &mut b, 40, 64);
        a.close(&mut store);
        a.reopen(&mut store).expect("it opens again");
        transfer(&mut store, &mut b, &mut a, 40, 64);
        a.close(&mut store);
    }
    finish(&mut store, [b]);
}

#[test]
fn a_worker_without_capabilities_works_and_the_control_thread_opens_for_it() {
    if !namespaces::available() {
        return;
    }
    let pair = &Pair::new(1, 1_500);
    let (to_control, plans) = std::sync::mpsc::channel::<tailwater::xdp::PortPlan>();
    let (to_worker, opened) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut store = store();
            let mut a = open(&mut store, pair.in_a(), "a0");
            let mut b = open(&mut store, pair.in_b(), "b0");
            privileges::drop_all().expect("always allowed");
            assert_eq!(privileges::missing(), privileges::TO_OPEN_PORTS);
            transfer(&mut store, &mut a, &mut b, 100, 64);
            a.close(&mut store);
            to_control.send(a.plan_again(&mut store).expect("chunks")).expect("it listens");
            drop(to_control);
            a.restart(opened.recv().expect("it opened"));
            a.poll_state(&mut store);
            transfer(&mut store, &mut b, &mut a, 100, 64);
            finish(&mut store, [a, b]);
        });
        for plan in plans {
            to_worker.send(plan.open().expect("this thread may")).expect("it waits");
        }
    });
}

/// Not a test: what `after_sigkill_nothing_is_left` kills.
#[test]
#[ignore = "a child of another test"]
fn child_that_holds_a_port() {
    let Some(name) = std::env::var("TAILWATER_TEST_NETNS").ok() else {
        return;
    };
    let mut store = store();
    let mut config = PortConfig::new(NetNs::Named(name), "a0");
    config.rings = RingSizes::of(64);
    let port = Port::open(&mut store, config).expect("it opens");
    assert_eq!(port.xdp_mode(), Some(tailwater::xdp::XdpMode::Native));
    println!("holding");
    std::io::stdin().lines().for_each(drop);
}

#[test]
fn after_sigkill_nothing_is_left() {
    if !namespaces::available() {
        return;
    }
    let pair = Pair::new(1, 1_500);
    let attached = || run(&format!("ip -n {} -d link show a0", pair.a)).contains("prog/xdp");
    for _ in 0..3 {
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--ignored", "--exact", "child_that_holds_a_port", "--nocapture"])
            .env("TAILWATER_TEST_NETNS", &pair.a)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        assert!(lines.any(|line| line.is_ok_and(|line| line.contains("holding"))), "it opened");
        assert!(attached());
        // std's kill is SIGKILL.
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        assert!((0..1_000).any(|_| !attached()), "the program is still attached");
        let mut store = store();
        let port = open(&mut store, pair.in_a(), "a0");
        finish(&mut store, [port]);
    }
}
