//! What every [`FrameStore`] must do, checked the same way on each.

use super::{FrameStore, HEAD_BYTES_MIN, HEADROOM_BYTES_MIN, Payload};

fn bytes_of<S: FrameStore>(store: &S, frame: &super::Frame) -> Vec<u8> {
    let mut out = Vec::new();
    store.copy_out(frame, &mut out);
    out
}

/// Runs the checks on an empty store with room for at least 300,000 bytes and at most 4 MiB.
pub(crate) fn check<S: FrameStore>(store: &mut S) {
    writing_reading_and_cutting(store);
    moving_the_head(store);
    payloads(store);
    filling_up(store);
    assert_eq!(store.outstanding(), 0);
}

fn writing_reading_and_cutting<S: FrameStore>(store: &mut S) {
    for len in [1_u32, 14, 60, 255, 256, 257, 1_514, 1_792, 1_793, 3_840, 3_841, 9_018] {
        let want: Vec<u8> = (0..len).map(|i| (i % 251).to_le_bytes()[0]).collect();
        let mut frame = store.allocate_from(&want).expect("room");
        assert_eq!((frame.len_bytes(), bytes_of(store, &frame)), (len, want.clone()));
        let shown = store.head(&frame);
        assert!(shown.len() >= want.len().min(HEAD_BYTES_MIN));
        assert_eq!(*shown, want[..shown.len()]);
        store.head_mut(&mut frame)[0] = 99;
        assert_eq!(bytes_of(store, &frame)[0], 99);
        let mut copy = store.duplicate(&frame).expect("room");
        store.write(&mut copy, len - 1, &[77]);
        assert_ne!(bytes_of(store, &frame).last(), Some(&77), "a copy has bytes of its own");
        let cut = len.div_ceil(2);
        store.truncate(&mut copy, cut);
        assert_eq!(copy.len_bytes(), cut);
        assert_eq!(bytes_of(store, &copy)[1..], want[1..cut as usize]);
        assert_eq!(store.outstanding(), 2);
        store.release(copy);
        store.release(frame);
    }
    let mut frame = store.allocate_from(&[1, 2, 3]).expect("room");
    store.truncate(&mut frame, 0);
    assert_eq!(bytes_of(store, &frame), Vec::<u8>::new());
    store.release(frame);
}

fn moving_the_head<S: FrameStore>(store: &mut S) {
    for len in [200_u32, 1_514, 9_000] {
        let want: Vec<u8> = (0..len).map(|i| (i % 241).to_le_bytes()[0]).collect();
        let mut frame = store.allocate_from(&want).expect("room");
        assert!(store.push_head(&mut frame, HEADROOM_BYTES_MIN), "the promised room");
        assert_eq!(bytes_of(store, &frame)[HEADROOM_BYTES_MIN as usize..], want);
        store.pull_head(&mut frame, HEADROOM_BYTES_MIN);
        store.pull_head(&mut frame, HEADROOM_BYTES_MIN);
        let rest = &want[HEADROOM_BYTES_MIN as usize..];
        assert_eq!(bytes_of(store, &frame), rest);
        assert!(store.head(&frame).len() >= rest.len().min(HEAD_BYTES_MIN));
        let copy = store.duplicate(&frame).expect("room");
        assert_eq!(bytes_of(store, &copy), rest);
        assert!(store.push_head(&mut frame, 14));
        store.write(&mut frame, 0, &[5; 14]);
        assert_eq!(bytes_of(store, &frame)[..14], [5; 14]);
        assert_eq!(bytes_of(store, &frame)[14..], *rest);
        assert_eq!(bytes_of(store, &copy), rest);
        assert!(!store.push_head(&mut frame, 100_000), "more than any headroom");
        assert_eq!(frame.len_bytes() as usize, rest.len() + 14);
        store.release(frame);
        store.release(copy);
    }
}

fn payloads<S: FrameStore>(store: &mut S) {
    let header: Vec<u8> = (100..142).collect();
    for len in [0_u32, 18, 470, 1_750, 1_751, 3_798, 3_799, 8_958] {
        let payload = Payload { seed: 5, offset: 123, len_bytes: len };
        let frame = store.allocate_with_payload(&header, payload).expect("room");
        let mut want = header.clone();
        want.resize(42 + len as usize, 0);
        payload.fill(&mut want[42..]);
        assert_eq!((frame.len_bytes(), bytes_of(store, &frame)), (42 + len, want));
        assert!(store.payload_matches(&frame, 42, payload));
        assert!(!store.payload_matches(&frame, 41, payload), "another length");
        if len > 0 {
            assert!(!store.payload_matches(&frame, 42, Payload { offset: 124, ..payload }));
            assert!(store.payload_matches(&frame, 43, payload.part(1, len - 1)));
        }
        store.release(frame);
    }
}

fn filling_up<S: FrameStore>(store: &mut S) {
    let mut count = 0;
    for _ in 0..2 {
        let mut frames: Vec<_> = std::iter::from_fn(|| store.allocate(9_000)).collect();
        assert!(count == 0 || count == frames.len(), "a full store leaks nothing");
        count = frames.len();
        assert!(count > 0 && store.outstanding() == count as u64);
        let last = frames.pop().expect("there is one");
        assert!(store.duplicate(&last).is_none());
        store.release(last);
        for frame in frames {
            store.release(frame);
        }
    }
    let frame = store.allocate(9_000).expect("room again");
    store.release(frame);
}
