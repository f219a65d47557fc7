//! Ports on veth pairs between namespaces: what the kernel really does with our rings.

mod namespaces;

use namespaces::Pair;
use tailwater::frame::{Frame, FrameStore as _, Payload};
use tailwater::xdp::{ChunkSize, NetNs, Port, PortConfig, RingSizes, TxRefused, UmemStore};

const ROUNDS_MAX: u32 = 2_000_000;

fn open(store: &mut UmemStore, netns: NetNs, interface: &str) -> Port {
    let mut config = PortConfig::new(netns, interface);
    config.rings = RingSizes::of(256);
    Port::open(store, config).expect("the port opens")
}

fn store() -> UmemStore {
    UmemStore::new(ChunkSize::Bytes4096, 4_096).expect("16 MiB")
}

/// A frame of `len` bytes that says its number, of an EtherType for experiments.
fn frame(store: &mut UmemStore, number: u32, len: u32) -> Frame {
    let mut header = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5, 0, 0, 0, 0];
    header[14..].copy_from_slice(&number.to_be_bytes());
    let payload = Payload { seed: u64::from(number), offset: 0, len_bytes: len - 18 };
    store.allocate_with_payload(&header, payload).expect("room")
}

/// Checks that the frame is the one that `frame` made, and gives its number.
fn check(store: &UmemStore, frame: &Frame) -> u32 {
    let head = store.head(frame);
    let number = u32::from_be_bytes(head[14..18].try_into().expect("four bytes"));
    let len_bytes = frame.len_bytes() - 18;
    let payload = Payload { seed: u64::from(number), offset: 0, len_bytes };
    assert!(store.payload_matches(frame, 18, payload), "frame {number} has other bytes");
    number
}

/// Sends `count` frames of `len` bytes from one port to the other in one burst; all must arrive in
/// order and complete.
fn transfer(store: &mut UmemStore, from: &mut Port, to: &mut Port, count: u32, len: u32) {
    let completed = from.counters().tx_completed;
    let mut descriptors = 0;
    for number in 0..count {
        let frame = frame(store, number, len);
        descriptors += u64::from(len.div_ceil(u32::from(store.chunk_size().frame_bytes())));
        from.tx_push(store, frame).expect("room in the ring");
    }
    from.kick();
    let (mut got, mut want, mut rounds) = (Vec::with_capacity(64), 0, 0);
    while want < count || from.counters().tx_completed - completed < descriptors {
        to.rx_burst(store, &mut got, 64);
        for frame in got.drain(..) {
            assert_eq!(check(store, &frame), want);
            want += 1;
            store.release(frame);
        }
        from.kick();
        from.reap(store);
        rounds += 1;
        assert!(
            rounds < ROUNDS_MAX,
            "{want} of {count}: {:?} {:?}",
            from.counters(),
            to.counters()
        );
    }
    assert!(!from.has_tx_pending());
}

/// Closes the ports; every chunk must be free again.
fn finish(store: &mut UmemStore, ports: impl IntoIterator<Item = Port>) {
    for mut port in ports {
        port.close(store);
    }
    let census = store.census();
    assert_eq!((census.free, store.outstanding()), (census.total, 0), "{census:?}");
}

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
