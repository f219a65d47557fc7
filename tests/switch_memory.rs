//! The switch's memory seen from outside: whose frames are dropped when it is full, and what is
//! trimmed instead.

mod bench;

use etherparse::PacketBuilder;
use tailwater::frame::{FrameStore, SlabStore};
use tailwater::ledger::DropReason;
use tailwater::node::{Node, PortId};
use tailwater::switch::memory::{Alpha, Lossless, QueueConfig, Threshold};
use tailwater::switch::trim::TrimConfig;
use tailwater::switch::{PortConfig, StaticMac, SwitchConfig, Trust};
use tailwater::units::Rate;
use tailwater::wire::MacAddr;

use bench::Bench;

/// Station n is behind port n.
fn station(n: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, n])
}

/// Three ports that trust the DSCP, of a switch that knows their stations.
fn config(buffer_bytes: u64) -> SwitchConfig {
    let port = |n: u8| {
        let mut port =
            PortConfig::new(&n.to_string(), MacAddr([2, 0, 0, 0, 1, n]), Rate::from_gbps(10));
        port.trust = Trust::Dscp;
        port
    };
    let mut config = SwitchConfig::new("s1", (0..3).map(port).collect());
    config.buffer_bytes = buffer_bytes;
    config.cell_bytes = 100;
    config.static_macs = (0..3)
        .map(|n| StaticMac { mac: station(n), vlan: 1, port: PortId(u16::from(n)) })
        .collect();
    config
}

/// A UDP packet of `len` bytes of priority `priority` for the station behind port 2.
fn packet(from: u8, priority: u8, len: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    PacketBuilder::ethernet2(station(from).0, station(2).0)
        .ipv4([10, 0, 0, from], [10, 0, 0, 2], 9)
        .udp(50_000, 4_791)
        .write(&mut bytes, &vec![7; len - 42])
        .expect("memory");
    bytes[15] = priority << 5 | 2;
    let checksum = etherparse::Ipv4HeaderSlice::from_slice(&bytes[14..])
        .map(|header| header.to_header().calc_header_checksum());
    bytes[24..26].copy_from_slice(&checksum.expect("a header").to_be_bytes());
    bytes
}

impl Bench {
    fn new(config: SwitchConfig) -> Self {
        Self::of(config, 4_096)
    }

    /// Everything queued, each frame when its time comes.
    fn sends(&mut self) -> Vec<Vec<u8>> {
        let mut sent = Vec::new();
        while Node::<SlabStore>::ledger(&self.switch).queued > 0 {
            match Node::<SlabStore>::next_ready_port(&mut self.switch, self.now) {
                Some(port) => {
                    let out =
                        self.switch.poll_transmit(self.now, &mut self.store, port).expect("ready");
                    let mut bytes = Vec::new();
                    self.store.copy_out(&out.frame, &mut bytes);
                    self.store.release(out.frame);
                    sent.push(bytes);
                }
                None => self.now = Node::<SlabStore>::next_deadline(&self.switch),
            }
        }
        sent
    }

    fn drops(&self, port: u16, reason: DropReason) -> u64 {
        self.switch.port_counters(PortId(port)).drops.of(reason)
    }
}

#[test]
fn a_lossy_flood_leaves_a_lossless_class_its_headroom() {
    let mut config = config(100_000);
    for port in &mut config.ports {
        port.shares.groups[3].threshold =
            Threshold { static_bytes: None, dt_alpha: Some(Alpha::ONE) };
        port.shares.groups[3].lossless =
            Some(Lossless { headroom_bytes: 10_000, xon_bytes: 0, xon_offset_bytes: 3_000 });
    }
    let mut bench = Bench::new(config);
    for _ in 0..200 {
        bench.arrives(0, &packet(0, 0, 1_000));
    }
    assert_eq!(bench.drops(2, DropReason::BufferFull), 130, "70 KB are shared");
    assert_eq!(bench.switch.memory().xoff(PortId(1)), 0);
    for _ in 0..10 {
        bench.arrives(1, &packet(1, 3, 1_000));
    }
    assert_eq!(bench.switch.memory().xoff(PortId(1)), 1 << 3, "the first one goes to headroom");
    assert_eq!(bench.drops(2, DropReason::HeadroomFull), 0);
    bench.arrives(1, &packet(1, 3, 1_000));
    assert_eq!(bench.drops(2, DropReason::HeadroomFull), 1, "more than the headroom is lost");
    let group = bench.switch.memory().group(PortId(1), 3);
    assert_eq!((group.bytes, group.headroom_bytes), (10_000, 10_000));
    let sent = bench.sends();
    let (control, data): (Vec<_>, Vec<_>) =
        sent.iter().partition(|bytes| bytes[12..14] == [0x88, 0x08]);
    assert_eq!((control.len(), data.len()), (2, 80), "a pause and its end, and all frames");
    assert_eq!(bench.switch.memory().xoff(PortId(1)), 0);
    assert_eq!(bench.switch.buffer_bytes(), 0);
}

#[test]
fn a_queue_keeps_to_its_share_of_what_is_free() {
    let mut config = config(100_000);
    config.ports[2].shares.queues[0].threshold =
        Threshold { static_bytes: None, dt_alpha: Some(Alpha::ONE) };
    config.ports[2].shares.queues[5] = QueueConfig { min_bytes: 2_000, ..QueueConfig::default() };
    let mut bench = Bench::new(config);
    for _ in 0..100 {
        bench.arrives(0, &packet(0, 0, 1_000));
    }
    let queue = bench.switch.memory().queue(PortId(2), 0);
    assert_eq!(queue.bytes, 49_000, "half of the 98 KB that no minimum keeps");
    assert_eq!(bench.drops(2, DropReason::QueueLimit), 51);
    for _ in 0..100 {
        bench.arrives(0, &packet(0, 1, 1_000));
    }
    assert_eq!(bench.drops(2, DropReason::BufferFull), 51, "queue 1 has no threshold");
    for _ in 0..3 {
        bench.arrives(0, &packet(0, 5, 1_000));
    }
    assert_eq!(bench.drops(2, DropReason::BufferFull), 52, "two are what the minimum holds");
    assert_eq!(bench.sends().len(), 100);
}

#[test]
fn an_ingress_limit_keeps_one_port_from_the_memory_of_others() {
    let mut config = config(100_000);
    config.ports[0].shares.groups[0].threshold =
        Threshold { static_bytes: Some(20_000), dt_alpha: None };
    let mut bench = Bench::new(config);
    for _ in 0..50 {
        bench.arrives(0, &packet(0, 0, 1_000));
        bench.arrives(1, &packet(1, 0, 1_000));
    }
    assert_eq!(bench.drops(2, DropReason::IngressLimit), 30);
    assert_eq!(bench.drops(2, DropReason::BufferFull), 0);
    assert_eq!(bench.sends().len(), 70);
}

fn trimming() -> SwitchConfig {
    let mut config = config(100_000);
    config.ports[2].queue_limit_bytes[0] = 3_000;
    config.ports[2].queue_limit_bytes[6] = 1_550;
    config.trim = Some(TrimConfig { last_hop_dscp: 20, ..TrimConfig::new(1 << 0, 16, 6) });
    config
}

#[test]
fn what_finds_no_room_goes_ahead_without_its_payload() {
    for (is_last_hop, dscp) in [(false, 16), (true, 20)] {
        let mut config = trimming();
        config.ports[2].is_last_hop = is_last_hop;
        let mut bench = Bench::new(config);
        for _ in 0..5 {
            bench.arrives(0, &packet(0, 0, 1_000));
        }
        let sent = bench.sends();
        let lengths: Vec<_> = sent.iter().map(Vec::len).collect();
        assert_eq!(lengths, [128, 128, 1_000, 1_000, 1_000], "the trimmed go ahead");
        assert_eq!(sent[0][15] >> 2, dscp);
        let counters = bench.switch.port_counters(PortId(2));
        assert_eq!((counters.trim_tx, counters.trim_drop, counters.drops.total()), (2, 0, 0));
        assert_eq!(counters.tx_bytes, 3_256);
    }
}

#[test]
fn the_queue_of_the_trimmed_has_a_limit_of_its_own() {
    let mut bench = Bench::new(trimming());
    for _ in 0..20 {
        bench.arrives(0, &packet(0, 0, 1_000));
    }
    let counters = *bench.switch.port_counters(PortId(2));
    // Twelve times 128 bytes are within 1,550.
    assert_eq!((counters.trim_tx, counters.trim_drop), (12, 5));
    assert_eq!(bench.drops(2, DropReason::TrimDrop), 5);
    assert_eq!(bench.sends().len(), 15);
}

#[test]
fn other_queues_and_other_frames_are_not_trimmed() {
    let mut config = trimming();
    config.ports[2].queue_limit_bytes[1] = 3_000;
    let mut bench = Bench::new(config);
    let mut arp = packet(0, 0, 1_000);
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    for _ in 0..5 {
        bench.arrives(0, &packet(0, 1, 1_000));
        bench.arrives(0, &arp);
    }
    assert_eq!(bench.drops(2, DropReason::QueueLimit), 4);
    assert_eq!(bench.switch.port_counters(PortId(2)).trim_tx, 0);
    // Shorter than the cut: whole, but with the code point.
    for _ in 0..4 {
        bench.arrives(0, &packet(0, 0, 100));
    }
    assert_eq!(bench.switch.port_counters(PortId(2)).trim_tx, 4);
    let sent = bench.sends();
    assert_eq!(sent.iter().filter(|bytes| bytes.len() == 100 && bytes[15] >> 2 == 16).count(), 4);
}
