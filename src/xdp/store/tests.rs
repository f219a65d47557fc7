use super::*;
use crate::frame::{FrameStore as _, Payload, conformance};

fn store() -> UmemStore {
    UmemStore::new(ChunkSize::Bytes2048, 1_024).expect("2 MiB")
}

#[test]
fn it_is_a_frame_store() {
    conformance::check(&mut store());
    let mut large = UmemStore::new(ChunkSize::Bytes4096, 512).expect("2 MiB");
    conformance::check(&mut large);
    assert_eq!(large.census().free, large.census().total);
}

#[test]
fn chunks_go_round_and_are_always_accounted_for() {
    let mut store = store();
    let (shared, port) = (RegionId::SHARED, store.new_port());
    let address = store.lend(shared, port).expect("room");
    let second = store.lend(shared, port).expect("room");
    assert_eq!(store.census().fill, 2);
    let head = store.receive(shared, port, address + 256, 1_000).expect("it was lent");
    let tail = store.receive(shared, port, second + 256, 500).expect("it was lent");
    store.chain_behind(head, tail);
    let frame = store.adopt(head, 1_500);
    assert_eq!((store.census().user, store.descriptors(&frame)), (2, 2));
    let mut sent = Vec::new();
    store.send(shared, port, frame, |address, len, more| sent.push((address, len, more)));
    assert_eq!(sent, [(address + 256, 1_000, true), (second + 256, 500, false)]);
    assert_eq!((store.census().tx, store.outstanding()), (2, 0));
    assert!(store.complete(shared, port, second + 256));
    assert!(!store.complete(shared, port, second + 256), "a completion comes once");
    assert!(store.census().is_whole());
    assert_eq!(store.recover(port), Recovered { fill_chunks: 0, tx_chunks: 1 });
    assert_eq!(store.census().free, store.census().total);
}

#[test]
fn what_the_kernel_names_wrongly_is_refused() {
    let mut store = store();
    let (shared, port, other) = (RegionId::SHARED, store.new_port(), store.new_port());
    let address = store.lend(shared, port).expect("room");
    assert_eq!(store.receive(shared, other, address, 60), None, "another port's");
    assert_eq!(store.receive(shared, port, address + 2_000, 60), None, "past the chunk");
    assert_eq!(store.receive(shared, port, 1 << 40, 60), None, "past the region");
    assert_eq!(store.receive(shared, port, address ^ 4_096, 60), None, "not lent");
    assert!(store.receive(shared, port, address, 60).is_some());
    assert_eq!(store.receive(shared, port, address, 60), None, "twice");
}

#[test]
fn a_frame_that_crosses_regions_is_copied_and_counted() {
    let mut store = store();
    let other = store.add_region(1).expect("2 MiB");
    let payload = Payload { seed: 1, offset: 0, len_bytes: 9_000 };
    let frame = store.allocate_with_payload(&[7; 14], payload).expect("room");
    let frame = store.bring_into(other, frame).expect("room");
    assert!(store.payload_matches(&frame, 14, payload));
    assert_eq!((store.region_of(&frame), store.copies_across()), (other, 1));
    let mut odd = store.duplicate(&frame).expect("room");
    store.pull_head(&mut odd, 100);
    let odd = store.bring_into(RegionId::SHARED, odd).expect("room");
    assert!(store.payload_matches(&odd, 0, payload.part(86, 8_914)));
    store.release(odd);
    store.release(frame);
    assert_eq!(store.census().free, store.census().total);
}
