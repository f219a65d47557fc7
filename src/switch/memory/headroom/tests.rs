//! The headroom against two ports and a link, played out frame by frame.

use super::*;
use crate::ledger::DropReason;
use crate::line::Line;
use crate::node::PortId;
use crate::rng::Rng;
use crate::switch::memory::{
    Account, GroupConfig, GroupId, Lossless, Memory, PortShares, Signal, Threshold,
};
use crate::time::Time;

/// Plenty of room before time begins to count.
const EPOCH: Time = Time::from_ns(1_000_000_000);

/// Frames of `lengths` come from a peer that always has more of them, into a group whose threshold
/// is zero, and none leaves. The first frame brings XOFF, just after the longest frame has begun to
/// leave by the port. Gives the memory when the peer has stopped, and how many frames came.
fn play(
    need: &HeadroomNeed,
    headroom_cells: u64,
    lengths: &mut dyn Iterator<Item = u32>,
) -> (u64, u64) {
    let cells = Cells::new(need.cell_bytes);
    let mut port = PortShares::default();
    port.groups[3] = GroupConfig {
        min_bytes: 0,
        threshold: Threshold { static_bytes: Some(0), dt_alpha: None },
        lossless: Some(Lossless {
            headroom_bytes: headroom_cells * u64::from(need.cell_bytes),
            xon_bytes: 0,
            xon_offset_bytes: 0,
        }),
    };
    let buffer_bytes = 2 * headroom_cells * u64::from(need.cell_bytes);
    let mut memory = Memory::new(buffer_bytes, need.cell_bytes, &[port]);
    let account = Account::new(GroupId::new(PortId(0), 3), PortId(0), 3);
    let mut peer = Line::new(need.peer_rate, need.overhead_bytes);
    let mut own = Line::new(need.rate, need.overhead_bytes);
    let response = need.peer_response.at(need.peer_rate);
    let (mut stops_at, mut starts) = (Time::NEVER, EPOCH);
    let (mut lost, mut came) = (0, 0);
    while starts < stops_at {
        let len = lengths.next().expect("the peer always has a frame");
        let (_, ends) = peer.occupy(starts, starts, len);
        starts = ends;
        let arrives = ends + need.delay;
        came += 1;
        match memory.admit(account, cells.of_frame(len + need.gain_bytes)) {
            Ok(()) => {}
            Err(reason) => {
                assert_eq!(reason, DropReason::HeadroomFull);
                lost += 1;
            }
        }
        if let Some(Signal { xoff, .. }) = memory.next_signal() {
            assert_eq!(xoff, 1 << 3);
            let began = arrives.before(Duration::from_ps(1));
            let (_, free) = own.occupy(began, began, need.longest_bytes());
            let (_, told) = own.occupy(free, free, FRAME_BYTES_MIN);
            stops_at = told + need.delay + response;
        }
    }
    (lost, came)
}

/// The worst that the peer can send: its longest frame, the worst packing as long as more than one
/// frame fits, its longest again.
fn worst(need: HeadroomNeed) -> impl Iterator<Item = u32> {
    let packing = need.worst_packing(Cells::new(need.cell_bytes));
    let window = need.rate.time_of(need.wire_bytes(need.longest_bytes()))
        + need.rate.time_of(need.wire_bytes(FRAME_BYTES_MIN))
        + need.delay * 2
        + need.peer_response.at(need.peer_rate);
    let each = Line::new(need.peer_rate, need.overhead_bytes).wire_time(packing.len_bytes);
    let between = (window.as_ps() - 1) / each.as_ps();
    let between = usize::try_from(between).expect("few");
    let longest = need.longest_bytes();
    std::iter::once(longest)
        .chain(std::iter::repeat_n(packing.len_bytes, between))
        .chain(std::iter::repeat(longest))
}

fn need(rng: &mut Rng) -> HeadroomNeed {
    let mut pick = |of: &[u64]| of[usize::try_from(rng.below(of.len() as u64)).expect("few")];
    let small = |value: u64| u32::try_from(value).expect("small");
    let rate = Rate::from_gbps(pick(&[10, 25, 40, 100, 400]));
    let peer_rate = if pick(&[0, 0, 0, 1]) == 0 { rate } else { Rate::from_gbps(pick(&[10, 100])) };
    HeadroomNeed {
        rate,
        peer_rate,
        delay: Duration::from_ns(pick(&[100, 500, 1_000, 2_345, 10_000])),
        mtu_bytes: small(pick(&[68, 1_500, 4_096, 9_000])),
        overhead_bytes: small(pick(&[24, 24, 0, 38])),
        gain_bytes: small(pick(&[0, 4])),
        peer_response: match pick(&[0, 0, 1]) {
            0 => PeerResponse::Within(Duration::from_ns(pick(&[0, 0, 700]))),
            _ => PeerResponse::Standard,
        },
        ring_frames: 0,
        cell_bytes: small(pick(&[1, 64, 80, 96, 208, 254, 512])),
    }
}

#[test]
fn nothing_is_lost_with_it_whatever_comes() {
    let mut rng = Rng::for_node(1, "headroom");
    for round in 0..150 {
        let need = need(&mut rng);
        let Headroom { cells, bytes, .. } = need.headroom();
        assert_eq!(bytes, cells * u64::from(need.cell_bytes));
        let longest = need.longest_bytes();
        let one = u32::try_from(14 + rng.below(u64::from(longest) - 13)).expect("small");
        let steps = (longest / need.cell_bytes).max(1);
        let step = u32::try_from(rng.below(u64::from(steps))).expect("small");
        let cell_and_one = (step * need.cell_bytes + 1).clamp(14, longest);
        let mut other = rng.clone();
        let mixed = std::iter::from_fn(|| {
            let len =
                if other.below(2) == 0 { 60 } else { 14 + other.below(u64::from(longest) - 13) };
            u32::try_from(len).ok()
        });
        let sequences: [&mut dyn Iterator<Item = u32>; 5] = [
            &mut worst(need),
            &mut std::iter::repeat(one),
            &mut std::iter::repeat(cell_and_one),
            &mut std::iter::repeat(longest),
            &mut { mixed },
        ];
        for (kind, lengths) in sequences.into_iter().enumerate() {
            let (lost, came) = play(&need, cells, lengths);
            assert_eq!(lost, 0, "round {round} kind {kind}: of {came} frames, {need:?}");
            assert!(came > 1);
        }
    }
}

#[test]
fn a_little_less_loses_a_frame() {
    let mut rng = Rng::for_node(2, "headroom");
    let mut to_the_cell = 0;
    for round in 0..150 {
        let need = need(&mut rng);
        let Headroom { cells, .. } = need.headroom();
        let packing = need.worst_packing(Cells::new(need.cell_bytes));
        to_the_cell += u32::from(packing.cells == 1);
        let (lost, _) = play(&need, cells - packing.cells, &mut worst(need));
        assert!(lost > 0, "round {round}: {} cells less lose nothing, {need:?}", packing.cells);
    }
    assert!(to_the_cell > 50, "where short frames waste the most, it is exact");
}

#[test]
fn every_term_is_explained() {
    let need = HeadroomNeed {
        rate: Rate::from_gbps(100),
        peer_rate: Rate::from_gbps(100),
        delay: Duration::from_us(1),
        mtu_bytes: 1_500,
        overhead_bytes: 24,
        gain_bytes: 0,
        peer_response: PeerResponse::Within(Duration::ZERO),
        ring_frames: 0,
        cell_bytes: 208,
    };
    // 1,554 and 84 bytes of wire at 80 ps, and 2 us: 26,637 whole bytes before the window ends, in
    // frames of 84: 317; and twice 8 cells for 1,530 bytes.
    let text = "\
the frame that crosses xoff             8  1530 bytes at an MTU of 1500
a frame before the pause frame             1554 bytes of wire at 100Gbps: 124.32ns
the pause frame                            84 bytes of wire at 100Gbps: 6.72ns
the link, both ways                        2 x 1us
the peer's response                        0s
frames within that time               317  2.13104us at 100Gbps: 26637 bytes of wire, in frames of 60 bytes (1 cell for 84 of wire)
a frame that the peer had begun         8  1530 bytes at an MTU of 1500
headroom                              333  cells: 69.264KB";
    assert_eq!(need.headroom().to_string(), text);
    let standard = HeadroomNeed { peer_response: PeerResponse::Standard, ..need };
    let more = standard.headroom().cells - need.headroom().cells;
    assert_eq!(more, 394 * 64 / 84, "394 quanta of 64 bytes in frames of 84");
    let rings = HeadroomNeed { ring_frames: 100, ..need };
    assert_eq!(rings.headroom().cells, need.headroom().cells + 800);
}

#[test]
fn a_cable_delays_by_its_length() {
    assert_eq!(cable_delay(198), Duration::from_us(1));
    assert_eq!(cable_delay(40).as_ps(), 202_021);
}

#[test]
fn the_response_is_that_of_the_next_speed_in_the_table() {
    for (gbps, quanta) in
        [(10, 67), (25, 80), (40, 118), (50, 147), (100, 394), (200, 453), (400, 905)]
    {
        assert_eq!(response_quanta(Rate::from_gbps(gbps)), quanta);
    }
    assert_eq!(response_quanta(Rate::from_bps(10_000_000_001)), 80);
    assert_eq!(response_quanta(Rate::from_gbps(1_600)), 905);
}

#[test]
fn sonic_computes_the_same() {
    let spectrum = SonicPattern {
        speed_mbps: 100_000,
        cable_metres: 40,
        port_mtu_bytes: 9_100,
        lossless_mtu_bytes: 1_024,
        small_packets_percent: 100,
        cell_bytes: 96,
        mac_phy_bytes: 819,
    };
    // (9100 + 819 + 25216 + 4932.13) x 192/97 + 1024 = 80332.1, in whole kibibytes.
    assert_eq!(sonic_xoff_bytes(&spectrum), 79 * 1_024);
    // With cells of more than 128 bytes: x 208/64.
    let large = SonicPattern { cell_bytes: 208, ..spectrum };
    assert_eq!(sonic_xoff_bytes(&large), 129 * 1_024);
    // Half of the packets small: x (1 + 192/97) / 2.
    let half = SonicPattern { small_packets_percent: 50, ..spectrum };
    assert_eq!(sonic_xoff_bytes(&half), 60 * 1_024);
}
