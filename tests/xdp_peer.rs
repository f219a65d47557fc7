//! An independent AF_XDP implementation at the other end: its frames arrive at ours, and back.
#![allow(clippy::disallowed_types, reason = "nothing of the core is here")]

mod namespaces;
mod traffic;

use std::num::NonZeroU32;

use namespaces::Pair;
use tailwater::frame::FrameStore as _;
use traffic::{ROUNDS_MAX, check, finish, frame, open, store};
use xsk_rs::config::{SocketConfig, UmemConfig};
use xsk_rs::{Socket, Umem};

#[test]
fn frames_of_xsk_rs_arrive_at_ours_and_back() {
    if !namespaces::available() {
        return;
    }
    let pair = Pair::new(1, 1_500);
    let mut store = store();
    let mut ours = open(&mut store, pair.in_a(), "a0");
    pair.in_b()
        .run(|| {
            let count = NonZeroU32::new(64).expect("not zero");
            let (umem, mut frames) =
                Umem::new(UmemConfig::default(), count, false).expect("their UMEM");
            let name = "b0".parse().expect("a name");
            // SAFETY: their one socket on this queue of this UMEM.
            let opened = unsafe { Socket::new(SocketConfig::default(), &umem, &name, 0) };
            let (mut tx, mut rx, queues) = opened.expect("their socket");
            let (mut fill, mut completion) = queues.expect("the first socket has them");

            // SAFETY: these frames are in no ring.
            unsafe { fill.produce(&frames[..32]) };
            for number in 0..16 {
                let frame = frame(&mut store, number, 200);
                ours.tx_push(&mut store, frame).expect("room");
            }
            ours.kick();
            let mut got = vec![frames[0]; 16];
            let mut echoed = 0;
            for _ in 0..ROUNDS_MAX {
                // SAFETY: the descriptors are of this UMEM.
                let n = unsafe { rx.consume(&mut got[..16]) };
                if n > 0 {
                    // SAFETY: they were just received, and are in no ring.
                    let sent = unsafe { tx.produce_and_wakeup(&got[..n]) };
                    assert_eq!(sent.expect("it wakes"), n);
                    echoed += n;
                }
                ours.reap(&mut store);
                if echoed == 16 {
                    break;
                }
            }
            assert_eq!(echoed, 16, "{:?}", ours.counters());
            let mut back = Vec::new();
            let mut done = 0;
            for _ in 0..ROUNDS_MAX {
                ours.rx_burst(&mut store, &mut back, 64);
                // SAFETY: the descriptors are of this UMEM.
                done += unsafe { completion.consume(&mut frames[32..]) };
                if back.len() == 16 && done == 16 {
                    break;
                }
            }
            let numbers: Vec<u32> = back.iter().map(|frame| check(&store, frame)).collect();
            assert_eq!((numbers, done), ((0..16).collect(), 16));
            back.into_iter().for_each(|frame| store.release(frame));
        })
        .expect("the namespace is there");
    for _ in 0..ROUNDS_MAX {
        ours.reap(&mut store);
        if ours.counters().tx_completed == 16 {
            break;
        }
    }
    finish(&mut store, [ours]);
}
