//! Frames that can be told apart, and ports that carry them.
#![allow(dead_code, reason = "each test file uses a part of it")]

use tailwater::frame::{Frame, FrameStore as _, Payload};
use tailwater::xdp::{ChunkSize, NetNs, Port, PortConfig, RingSizes, UmemStore};

/// Rounds of a loop that waits for the kernel, before it is taken to wait in vain.
pub(crate) const ROUNDS_MAX: u32 = 2_000_000;

pub(crate) fn open(store: &mut UmemStore, netns: NetNs, interface: &str) -> Port {
    let mut config = PortConfig::new(netns, interface);
    config.rings = RingSizes::of(256);
    Port::open(store, config).expect("the port opens")
}

pub(crate) fn store() -> UmemStore {
    UmemStore::new(ChunkSize::Bytes4096, 4_096).expect("16 MiB")
}

/// A frame of `len` bytes that says its number, of an EtherType for experiments.
pub(crate) fn frame(store: &mut UmemStore, number: u32, len: u32) -> Frame {
    let mut header = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5, 0, 0, 0, 0];
    header[14..].copy_from_slice(&number.to_be_bytes());
    let payload = Payload { seed: u64::from(number), offset: 0, len_bytes: len - 18 };
    store.allocate_with_payload(&header, payload).expect("room")
}

/// Checks that the frame is the one that `frame` made, and gives its number.
pub(crate) fn check(store: &UmemStore, frame: &Frame) -> u32 {
    let head = store.head(frame);
    let number = u32::from_be_bytes(head[14..18].try_into().expect("four bytes"));
    let len_bytes = frame.len_bytes() - 18;
    let payload = Payload { seed: u64::from(number), offset: 0, len_bytes };
    assert!(store.payload_matches(frame, 18, payload), "frame {number} has other bytes");
    number
}

/// Sends `count` frames of `len` bytes from one port to the other in one burst; all must arrive in
/// order and complete.
pub(crate) fn transfer(
    store: &mut UmemStore,
    from: &mut Port,
    to: &mut Port,
    count: u32,
    len: u32,
) {
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
pub(crate) fn finish(store: &mut UmemStore, ports: impl IntoIterator<Item = Port>) {
    for mut port in ports {
        port.close(store);
    }
    let census = store.census();
    assert_eq!((census.free, store.outstanding()), (census.total, 0), "{census:?}");
}
