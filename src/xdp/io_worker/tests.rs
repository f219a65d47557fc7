use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

/// The kernel's ends of a socket's rings, which a test plays.
struct Kernel {
    rx: Producer<sys::xdp_desc>,
    tx: Consumer<sys::xdp_desc>,
    fill: Consumer<u64>,
    completion: Producer<u64>,
}

fn heap_socket(rx_tx: u32) -> (Socket, Kernel) {
    let (kernel_rx, rx) = ring::pair(rx_tx);
    let (tx, kernel_tx) = ring::pair(rx_tx);
    let (fill, kernel_fill) = ring::pair(2 * rx_tx);
    let (kernel_completion, completion) = ring::pair(2 * rx_tx);
    let fd = Arc::new(sys::eventfd().expect("a descriptor"));
    let socket = Socket { rx, tx, fill, completion, zero_copy: false, far_end: FarEnd::Kernel, fd };
    let (rx, tx, fill, completion) = (kernel_rx, kernel_tx, kernel_fill, kernel_completion);
    (socket, Kernel { rx, tx, fill, completion })
}

fn descriptor(number: u64) -> sys::xdp_desc {
    sys::xdp_desc { addr: number, len: 60, options: 0 }
}

/// A worker that a test turns by hand, with one queue: the port's side, and the kernel's.
fn by_hand(rx_tx: u32) -> (IoWorker, IoHandle, Socket, Kernel, Arc<Doorbell>) {
    let (mut worker, handle) = IoWorker::new().expect("a descriptor");
    let (socket, kernel) = heap_socket(rx_tx);
    let bell = Arc::new(Doorbell::new().expect("a descriptor"));
    let port = handle.serve(socket, &bell);
    obey_all(&mut worker);
    (worker, handle, port, kernel, bell)
}

fn obey_all(worker: &mut IoWorker) {
    while let Ok(command) = worker.commands.try_recv() {
        worker.obey(command);
    }
}

fn push<T: Entry>(to: &mut Producer<T>, entry: T) -> bool {
    let room = to.has_room(1);
    if room {
        to.write(entry);
        to.publish();
    }
    room
}

fn pull<T: Entry>(from: &mut Consumer<T>) -> Option<T> {
    let entry = from.take()?;
    from.release();
    Some(entry)
}

/// One of the four ways as a queue: what went in comes out in the same order.
#[derive(Default)]
struct Way {
    under_way: VecDeque<u64>,
    next: u64,
}

impl Way {
    fn step(
        &mut self,
        n: u32,
        mut push: impl FnMut(u64) -> bool,
        mut pull: impl FnMut() -> Option<u64>,
    ) -> Result<(), TestCaseError> {
        for _ in 0..n / 2 {
            if push(self.next) {
                self.under_way.push_back(self.next);
                self.next += 1;
            }
        }
        for _ in 0..n % 7 {
            if let Some(got) = pull() {
                prop_assert_eq!(Some(got), self.under_way.pop_front());
            }
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn what_goes_in_comes_out_in_order_on_all_four_ways(
        steps in proptest::collection::vec((0_u8..6, 0_u32..40), 1..300),
    ) {
        let (mut worker, _handle, mut port, mut kernel, _bell) = by_hand(8);
        let mut ways: [Way; 4] = Default::default();
        for (what, n) in steps {
            match what {
                0 => ways[0].step(
                    n,
                    |number| push(&mut kernel.rx, descriptor(number)),
                    || pull(&mut port.rx).map(|got| got.addr),
                )?,
                1 => ways[1].step(
                    n,
                    |number| push(&mut port.tx, descriptor(number)),
                    || pull(&mut kernel.tx).map(|got| got.addr),
                )?,
                2 => ways[2].step(
                    n,
                    |number| push(&mut port.fill, number),
                    || pull(&mut kernel.fill),
                )?,
                3 => ways[3].step(
                    n,
                    |number| push(&mut kernel.completion, number),
                    || pull(&mut port.completion),
                )?,
                _ => drop(worker.turn()),
            }
        }
        // In the end everything comes out.
        for _ in 0..10 {
            worker.turn();
            while let Some(got) = pull(&mut port.rx) {
                prop_assert_eq!(Some(got.addr), ways[0].under_way.pop_front());
            }
            while let Some(got) = pull(&mut kernel.tx) {
                prop_assert_eq!(Some(got.addr), ways[1].under_way.pop_front());
            }
            while let Some(got) = pull(&mut kernel.fill) {
                prop_assert_eq!(Some(got), ways[2].under_way.pop_front());
            }
            while let Some(got) = pull(&mut port.completion) {
                prop_assert_eq!(Some(got), ways[3].under_way.pop_front());
            }
        }
        prop_assert!(ways.iter().all(|way| way.under_way.is_empty()));
        prop_assert!(!worker.turn(), "nothing is left to move");
    }
}

#[test]
fn a_socket_comes_back_with_what_was_not_moved() {
    let (mut worker, handle, mut port, mut kernel, bell) = by_hand(4);
    for number in 0..3 {
        assert!(push(&mut kernel.rx, descriptor(number)));
        assert!(push(&mut port.tx, descriptor(10 + number)));
    }
    assert!(worker.turn());
    for number in 3..5 {
        assert!(push(&mut kernel.rx, descriptor(number)));
    }
    let (other, _other_kernel) = heap_socket(4);
    let other_bell = Arc::new(Doorbell::new().expect("a descriptor"));
    let _other_port = handle.serve(other, &other_bell);
    let mut returned = std::thread::scope(|scope| {
        let waits = scope.spawn(|| handle.take_back(&bell));
        while !waits.is_finished() {
            obey_all(&mut worker);
            std::thread::yield_now();
        }
        waits.join().expect("no panic")
    });
    assert_eq!(worker.pumps.len(), 1, "another port's queue stays");
    let mut socket = returned.pop().expect("one queue");
    assert!(returned.is_empty());
    let near: Vec<u64> = std::iter::from_fn(|| port.rx.take()).map(|d| d.addr).collect();
    let far: Vec<u64> = std::iter::from_fn(|| socket.rx.take()).map(|d| d.addr).collect();
    assert_eq!((near, far), (vec![0, 1, 2], vec![3, 4]));
    let mut unsent = Vec::new();
    port.tx.for_each_pending(|_| unsent.push(0));
    socket.tx.for_each_pending(|descriptor| unsent.push(descriptor.addr));
    assert_eq!(unsent, [10, 11, 12], "each is in one ring alone");
}

#[test]
fn a_worker_that_is_gone_serves_nobody_and_keeps_nobody_waiting() {
    let (worker, handle, _port, _kernel, bell) = by_hand(4);
    drop(worker);
    assert!(handle.take_back(&bell).is_empty());
    let (socket, _kernel) = heap_socket(4);
    assert!(!handle.serve(socket, &bell).is_served(), "the port does it itself");
}

#[test]
fn frames_echo_through_a_thread_that_sleeps_in_between() {
    const FRAMES: u64 = 20_000;
    let (worker, handle) = IoWorker::new().expect("a descriptor");
    let (socket, mut kernel) = heap_socket(64);
    let bell = Arc::new(Doorbell::new().expect("a descriptor"));
    std::thread::scope(|scope| {
        scope.spawn(move || worker.run(false));
        let mut port = handle.serve(socket, &bell);
        let mut counters = PortCounters::default();
        let (mut sent, mut back, mut tx_pending) = (0, 0, false);
        while back < FRAMES {
            while sent < FRAMES && sent - back < 48 && port.tx.has_room(1) {
                port.tx.write(descriptor(sent));
                sent += 1;
                tx_pending = true;
            }
            if tx_pending {
                tx_pending = port.kick(&mut counters);
            }
            // The kernel: each frame comes back, and is completed.
            while kernel.rx.has_room(1) {
                let Some(frame) = pull(&mut kernel.tx) else { break };
                assert!(push(&mut kernel.rx, frame) && push(&mut kernel.completion, frame.addr));
            }
            while let Some(frame) = pull(&mut port.rx) {
                assert_eq!(frame.addr, back);
                back += 1;
            }
            while pull(&mut port.completion).is_some() {}
            std::thread::yield_now();
        }
        assert_eq!(handle.take_back(&bell).len(), 1);
        // The thread ends with the last handle.
        drop((handle, port));
    });
}
