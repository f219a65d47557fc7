//! Random frames, VLANs, links and holds through a switch with a tiny store and a tiny memory:
//! what must hold whatever comes.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tailwater::frame::{FrameStore, SlabStore};
use tailwater::node::{Node, PortId};
use tailwater::switch::{
    PortConfig, StaticMac, Switch, SwitchConfig, SwitchSetting, Trust, VlanMode,
};
use tailwater::time::{Duration, Time};
use tailwater::units::Rate;
use tailwater::wire::MacAddr;

const PORTS: u16 = 5;
const BUFFER_BYTES: u64 = 6_000;

#[derive(Clone, Debug)]
enum Step {
    /// A frame: port, destination, source, the VLAN of its tag, PCP, length.
    Frame {
        port: u16,
        to: u8,
        from: u8,
        vlan: Option<u16>,
        pcp: u16,
        len: u32,
    },
    /// Arbitrary bytes.
    Noise {
        port: u16,
        bytes: Vec<u8>,
    },
    Link {
        port: u16,
        up: bool,
    },
    Hold {
        port: u16,
        held: bool,
    },
    /// An operator's change.
    Set(SwitchSetting),
    /// Time passes, and what is ready is sent.
    Serve {
        ns: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let port = 0..PORTS;
    let vlan = prop_oneof![
        Just(None),
        prop::sample::select(vec![0_u16, 10, 20, 30, 99, 4_095]).prop_map(Some)
    ];
    let len = prop_oneof![0_u32..70, 60_u32..400, 1_400_u32..1_530];
    prop_oneof![
        20 => (port.clone(), 0_u8..8, 0_u8..8, vlan, 0_u16..8, len).prop_map(
            |(port, to, from, vlan, pcp, len)| Step::Frame { port, to, from, vlan, pcp, len }
        ),
        2 => (port.clone(), prop::collection::vec(any::<u8>(), 0..80))
            .prop_map(|(port, bytes)| Step::Noise { port, bytes }),
        1 => (port.clone(), any::<bool>()).prop_map(|(port, up)| Step::Link { port, up }),
        1 => (port, any::<bool>()).prop_map(|(port, held)| Step::Hold { port, held }),
        2 => setting().prop_map(Step::Set),
        10 => (0_u64..3_000).prop_map(|ns| Step::Serve { ns }),
    ]
}

/// Settings, some of which a switch must refuse.
fn setting() -> impl Strategy<Value = SwitchSetting> {
    let port = (0..=PORTS).prop_map(PortId);
    prop_oneof![
        4 => (port.clone(), prop::option::of(0_u8..9), 1_000_u64..6_000).prop_map(
            |(port, queue, limit_bytes)| SwitchSetting::QueueLimit { port, queue, limit_bytes }
        ),
        1 => (0_u64..60).prop_map(|us| SwitchSetting::MacAgeing(Duration::from_us(us))),
        1 => prop::option::of(port).prop_map(SwitchSetting::ForgetStations),
    ]
}

fn mac(number: u8) -> [u8; 6] {
    match number {
        6 => [0x01, 0x80, 0xc2, 0, 0, 2],
        7 => [0xff; 6],
        _ => [2, 0, 0, 0, 0, number],
    }
}

fn config() -> SwitchConfig {
    let rates = [1, 10, 10, 25, 100];
    let ports = (0_u8..).zip(rates).map(|(n, gbps)| {
        let mut port =
            PortConfig::new(&n.to_string(), MacAddr([2, 0, 0, 0, 1, n]), Rate::from_gbps(gbps));
        port.queue_limit_bytes = [3_000; 8];
        port
    });
    let mut config = SwitchConfig::new("s1", ports.collect());
    let trunk = |allowed: &[u16], native| VlanMode::Trunk { allowed: allowed.to_vec(), native };
    config.ports[0].vlan = VlanMode::Access(10);
    config.ports[1].vlan = VlanMode::Access(20);
    config.ports[2].vlan = trunk(&[10, 20], Some(30));
    config.ports[3].vlan = trunk(&[10, 20, 30], None);
    config.ports[4].vlan = trunk(&[10, 20], Some(10));
    config.ports[4].flood = false;
    config.ports[3].trust = Trust::Port;
    config.ports[3].mtu_bytes = 1_400;
    config.static_macs = vec![StaticMac { mac: MacAddr(mac(5)), vlan: 10, port: PortId(4) }];
    config.buffer_bytes = BUFFER_BYTES;
    config.cell_bytes = 100;
    config.mac_table_entries = 5;
    config.mac_ageing = Duration::from_us(20);
    config
}

/// The VLANs of a port, and the one without tag.
fn vlans(port: u16) -> (&'static [u16], Option<u16>) {
    match port {
        0 => (&[10], Some(10)),
        1 => (&[20], Some(20)),
        2 => (&[10, 20, 30], Some(30)),
        3 => (&[10, 20, 30], None),
        _ => (&[10, 20], Some(10)),
    }
}

struct Run {
    switch: Switch,
    store: SlabStore,
    now: Time,
    /// Frames that arrived as numbered frames: by number, port and VLAN.
    arrived: BTreeMap<u32, (u16, u16)>,
    /// By egress port, ingress port and priority: the last number that left.
    last: BTreeMap<(u16, u16, u8), u32>,
    wire_free: [Time; PORTS as usize],
    up: [bool; PORTS as usize],
    held: [bool; PORTS as usize],
    /// Bytes in each queue when it was last looked at.
    queued: [[u64; 8]; PORTS as usize],
}

impl Run {
    /// A setting takes effect and is in the configuration, or is refused and changes nothing.
    fn set(&mut self, setting: SwitchSetting) -> Result<(), TestCaseError> {
        let before = format!("{:?}", self.switch.config());
        let refused = self.switch.set(self.now, setting).is_err();
        let after = format!("{:?}", self.switch.config());
        let sound = match setting {
            SwitchSetting::QueueLimit { port, queue, limit_bytes } => {
                // A frame of the MTU with its tag must fit.
                let least = if port.0 == 3 { 1_418 } else { 1_518 };
                port.0 < PORTS && queue.is_none_or(|queue| queue < 8) && limit_bytes >= least
            }
            SwitchSetting::MacAgeing(ageing) => !ageing.is_zero(),
            SwitchSetting::ForgetStations(port) => port.is_none_or(|port| port.0 < PORTS),
            SwitchSetting::RearmWatchdog { .. } => false,
        };
        prop_assert_eq!(refused, !sound, "{:?}", setting);
        prop_assert!(!refused || before == after);
        if let (false, SwitchSetting::QueueLimit { port, queue, limit_bytes }) = (refused, setting)
        {
            let limits = self.switch.config().ports[port.index()].queue_limit_bytes;
            prop_assert_eq!(limits[usize::from(queue.unwrap_or(7))], limit_bytes);
        }
        if (refused, setting) == (false, SwitchSetting::ForgetStations(None)) {
            prop_assert_eq!(self.switch.stations(), 1, "the static one stays");
        }
        Ok(())
    }

    fn serve(&mut self) -> Result<(), TestCaseError> {
        self.switch.on_timer(self.now, &mut self.store);
        while let Some(port) = Node::<SlabStore>::next_ready_port(&mut self.switch, self.now) {
            prop_assert!(self.up[port.index()] && !self.held[port.index()]);
            let out = self.switch.poll_transmit(self.now, &mut self.store, port);
            let Some(out) = out else { return Err(TestCaseError::fail("ready, but silent")) };
            prop_assert!(out.starts >= self.wire_free[port.index()], "wire times overlap");
            prop_assert!(out.starts <= self.now && out.ends > out.starts);
            self.wire_free[port.index()] = out.ends;
            let mut bytes = Vec::new();
            self.store.copy_out(&out.frame, &mut bytes);
            prop_assert_eq!(bytes.len(), out.frame.len_bytes() as usize);
            self.store.release(out.frame);
            self.check_sent(port.0, &bytes)?;
        }
        Ok(())
    }

    /// A numbered frame ends in a mark and its number.
    fn check_sent(&mut self, port: u16, bytes: &[u8]) -> Result<(), TestCaseError> {
        let Some((rest, &[a, b, c, d])) = bytes.split_last_chunk::<4>() else { return Ok(()) };
        if !rest.ends_with(b"MARK") {
            return Ok(());
        }
        let number = u32::from_be_bytes([a, b, c, d]);
        let Some(&(ingress, vlan)) = self.arrived.get(&number) else {
            return Err(TestCaseError::fail("a frame that never arrived"));
        };
        prop_assert!(port != ingress, "sent where it came from");
        let (members, untagged) = vlans(port);
        prop_assert!(members.contains(&vlan), "VLAN {} left by port {}", vlan, port);
        if untagged == Some(vlan) {
            prop_assert_eq!(&bytes[12..14], &[0x08, 0x00], "leaves without tag");
        } else {
            prop_assert_eq!(&bytes[12..14], &[0x81, 0x00], "leaves with a tag");
            let tag = u16::from_be_bytes([bytes[14], bytes[15]]);
            prop_assert_eq!(tag & 0xfff, vlan);
        }
        // The frame carries the priority it was queued under in its payload.
        let queued = rest[rest.len() - 5];
        let last = self.last.insert((port, ingress, queued), number);
        prop_assert!(last.is_none_or(|last| last < number), "{:?} before {}", last, number);
        Ok(())
    }

    fn check(&mut self) -> Result<(), TestCaseError> {
        let ledger = Node::<SlabStore>::ledger(&self.switch);
        prop_assert_eq!(ledger.check(), Ok(()));
        prop_assert_eq!(self.store.outstanding(), ledger.queued);
        prop_assert!(self.switch.buffer_bytes() <= BUFFER_BYTES);
        prop_assert!(self.switch.stations() <= 5);
        let mut queued = 0;
        for port in 0..PORTS {
            let bytes = self.switch.queue_bytes(PortId(port));
            let limits = self.switch.config().ports[usize::from(port)].queue_limit_bytes;
            let before = std::mem::replace(&mut self.queued[usize::from(port)], bytes);
            for ((bytes, limit), before) in bytes.iter().zip(limits).zip(before) {
                prop_assert!(*bytes <= limit || *bytes <= before, "grew beyond its limit");
            }
            queued += bytes.iter().sum::<u64>();
        }
        prop_assert!(queued <= self.switch.buffer_bytes());
        prop_assert_eq!(queued == 0, ledger.queued == 0);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn whatever_comes(steps in prop::collection::vec(step(), 1..250)) {
        let mut run = Run {
            switch: Switch::new(config()).expect("a sound configuration"),
            store: SlabStore::new(40),
            now: Time::ZERO,
            arrived: BTreeMap::new(),
            last: BTreeMap::new(),
            wire_free: [Time::ZERO; PORTS as usize],
            up: [true; PORTS as usize],
            held: [false; PORTS as usize],
            queued: [[0; 8]; PORTS as usize],
        };
        for (number, step) in (0_u32..).zip(steps) {
            match step {
                Step::Frame { port, to, from, vlan, pcp, len } => {
                    let mut bytes = [mac(to), mac(from)].concat();
                    if let Some(vlan) = vlan {
                        bytes.extend_from_slice(&[0x81, 0x00]);
                        bytes.extend_from_slice(&(pcp << 13 | vlan).to_be_bytes());
                    }
                    bytes.extend_from_slice(&[0x08, 0x00, 0x45, 0x00]);
                    // Port 3 trusts no tag.
                    let priority = if vlan.is_some() && port != 3 { pcp } else { 0 };
                    bytes.resize(bytes.len().max((len as usize).saturating_sub(9)), 0);
                    bytes.push(u8::try_from(priority).unwrap_or(0));
                    bytes.extend_from_slice(b"MARK");
                    bytes.extend_from_slice(&number.to_be_bytes());
                    let in_vlan = match vlan {
                        Some(vlan) if vlan != 0 => vlan,
                        _ => vlans(port).1.unwrap_or(0),
                    };
                    if let Some(frame) = run.store.allocate_from(&bytes) {
                        run.arrived.insert(number, (port, in_vlan));
                        run.switch.on_frame(run.now, &mut run.store, PortId(port), frame);
                    }
                }
                Step::Noise { port, bytes } => {
                    if let Some(frame) = run.store.allocate_from(&bytes) {
                        run.switch.on_frame(run.now, &mut run.store, PortId(port), frame);
                    }
                }
                Step::Link { port, up } => {
                    run.up[usize::from(port)] = up;
                    run.switch.on_link(run.now, &mut run.store, PortId(port), up);
                }
                Step::Hold { port, held } => {
                    run.held[usize::from(port)] = held;
                    Node::<SlabStore>::hold(&mut run.switch, run.now, PortId(port), held);
                }
                Step::Set(setting) => run.set(setting)?,
                Step::Serve { ns } => {
                    run.now += Duration::from_ns(ns);
                    run.serve()?;
                }
            }
            run.check()?;
        }
        // Everything up and let go: all that is queued leaves, each port in its own time.
        for port in 0..PORTS {
            run.up[usize::from(port)] = true;
            run.held[usize::from(port)] = false;
            run.switch.on_link(run.now, &mut run.store, PortId(port), true);
            Node::<SlabStore>::hold(&mut run.switch, run.now, PortId(port), false);
        }
        let mut rounds = 0;
        run.serve()?;
        while Node::<SlabStore>::ledger(&run.switch).queued > 0 {
            let deadline = Node::<SlabStore>::next_deadline(&run.switch);
            prop_assert!(deadline > run.now && deadline != Time::NEVER);
            run.now = deadline;
            run.serve()?;
            rounds += 1;
            prop_assert!(rounds < 1_000, "it does not empty");
        }
        run.check()?;
        prop_assert_eq!(run.store.outstanding(), 0);
        prop_assert_eq!(run.switch.buffer_bytes(), 0);
    }
}
