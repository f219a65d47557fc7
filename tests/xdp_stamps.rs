//! Stamps of arrival: what the XDP program writes before a frame, and where there is none.

mod namespaces;
mod traffic;

use namespaces::Pair;
use tailwater::frame::FrameStore as _;
use tailwater::xdp::clock::monotonic_ns;
use tailwater::xdp::{
    Attach, Port, PortConfig, PortError, RingSizes, RxStamps, UmemStore, XdpMode,
};
use traffic::{ROUNDS_MAX, finish, store};

/// Opens both ends; `b` stamps what it receives.
fn pair_of_ports(
    store: &mut UmemStore,
    pair: &Pair,
    stamps: RxStamps,
    attach: Attach,
) -> Result<(Port, Port), PortError> {
    let config = |netns, end: &str| {
        let mut config = PortConfig::new(netns, end);
        config.rings = RingSizes::of(64);
        config
    };
    let mut receiving = config(pair.in_b(), "b0");
    (receiving.rx_stamps, receiving.attach) = (stamps, attach);
    let a = Port::open(store, config(pair.in_a(), "a0"))?;
    match Port::open(store, receiving) {
        Ok(b) => Ok((a, b)),
        Err(error) => {
            finish(store, [a]);
            Err(error)
        }
    }
}

/// Sends one frame of `len` bytes after another and gives the stamp of each that arrives, beside
/// the times before it was sent and after it was read. Each must arrive as it was sent.
fn stamps_of(
    store: &mut UmemStore,
    (a, b): (&mut Port, &mut Port),
    len: usize,
    frames: u8,
) -> Vec<(u64, Option<u64>, u64)> {
    let mut got = Vec::new();
    let mut stamps = Vec::new();
    for number in 0..frames {
        let mut sent = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];
        sent.resize(len, number);
        let before = monotonic_ns();
        let frame = store.allocate_from(&sent).expect("room");
        a.tx_push(store, frame).expect("room");
        a.kick();
        let mut rounds = 0;
        while got.is_empty() && rounds < ROUNDS_MAX {
            a.reap(store);
            b.rx_burst(store, &mut got, 8);
            rounds += 1;
        }
        let after = monotonic_ns();
        for frame in got.drain(..) {
            stamps.push((before, store.rx_stamp_ns(&frame), after));
            let mut bytes = Vec::new();
            store.copy_out(&frame, &mut bytes);
            assert!(bytes == sent, "frame {number} of {len} bytes arrived changed");
            store.release(frame);
        }
    }
    assert_eq!(stamps.len(), usize::from(frames));
    stamps
}

#[test]
fn the_program_s_stamp_lies_between_sending_and_reading() {
    if !namespaces::available() {
        return;
    }
    for attach in [Attach::Native, Attach::Generic] {
        let pair = Pair::new(1, 9_000);
        let mut store = store();
        let (mut a, mut b) =
            pair_of_ports(&mut store, &pair, RxStamps::Xdp, attach).expect("the ports open");
        assert_eq!(b.rx_stamps(), RxStamps::Xdp);
        // The longest takes three chunks; the stamp lies before the first. More frames than the
        // fill ring has chunks, so that every chunk comes round.
        for (len, frames) in [(60, 200), (1_514, 20), (8_042, 100)] {
            for (before, stamp, after) in stamps_of(&mut store, (&mut a, &mut b), len, frames) {
                let stamp = stamp.expect("every frame bears one");
                assert!(before <= stamp && stamp <= after, "{before} {stamp} {after} {attach:?}");
            }
        }
        finish(&mut store, [a, b]);
    }
}

#[test]
fn frames_bear_no_stamp_unless_asked() {
    if !namespaces::available() {
        return;
    }
    let pair = Pair::new(1, 1_500);
    let mut store = store();
    let (mut a, mut b) =
        pair_of_ports(&mut store, &pair, RxStamps::Off, Attach::Auto).expect("the ports open");
    let stamps = stamps_of(&mut store, (&mut a, &mut b), 60, 20);
    assert!(stamps.iter().all(|(_, stamp, _)| stamp.is_none()), "{stamps:?}");
    finish(&mut store, [a, b]);
}

/// A veth answers for its driver, and has a zero for a frame that no NIC has stamped.
#[test]
fn a_veth_stamps_nothing_by_hardware_and_the_frames_arrive() {
    if !namespaces::available() {
        return;
    }
    let pair = Pair::new(1, 9_000);
    let mut store = store();
    // Stamps of an earlier port are left in the store's chunks: none of them may be read again.
    let (mut a, mut b) =
        pair_of_ports(&mut store, &pair, RxStamps::Xdp, Attach::Auto).expect("the ports open");
    stamps_of(&mut store, (&mut a, &mut b), 60, 250);
    finish(&mut store, [a, b]);
    let (mut a, mut b) =
        pair_of_ports(&mut store, &pair, RxStamps::Hardware, Attach::Auto).expect("it loads");
    assert_eq!((b.rx_stamps(), b.xdp_mode()), (RxStamps::Hardware, Some(XdpMode::Native)));
    for len in [60, 8_042] {
        let stamps = stamps_of(&mut store, (&mut a, &mut b), len, 100);
        assert!(stamps.iter().all(|(_, stamp, _)| stamp.is_none()), "{stamps:?}");
    }
    finish(&mut store, [a, b]);
}
