//! Every case of `tests/vectors/usid.json`, hop by hop: what Linux's seg6local endpoints do, and
//! where they depart from the RFC, what that asks for.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use serde_json::Value;

use super::config::{
    Flavours, Neighbour, NextHop, Route, RouterAddress, RouterConfig, SidBehaviour, SidConfig,
};
use super::error::ERROR_BYTES_MAX;
use super::{Packet, Router, Verdict, Way};
use crate::frame::{FrameStore, SlabStore};
use crate::ledger::DropReason;
use crate::node::{Node as _, PortId};
use crate::switch::{PortConfig, Switch, SwitchConfig, VlanMode};
use crate::time::Time;
use crate::units::Rate;
use crate::wire::MacAddr;
use crate::wire::ecn_tunnel::EcnDecap;
use crate::wire::icmp_error::IcmpError;
use crate::wire::icmpv6::Icmpv6Message;
use crate::wire::usid::UsidLayout;

const VECTORS: &str = include_str!("../../../tests/vectors/usid.json");

/// The links: router and its interface, the interface at the other end, and an address there.
const LINKS: [(&str, &str, &str, &str); 9] = [
    ("r1", "r1a", "a0", "2001:db8:a::2"),
    ("r1", "r1b", "r2a", "2001:db8:12::2"),
    ("r1", "r1c", "r2c", "2001:db8:112::2"),
    ("r2", "r2a", "r1b", "2001:db8:12::1"),
    ("r2", "r2c", "r1c", "2001:db8:112::1"),
    ("r2", "r2b", "r3a", "2001:db8:23::3"),
    ("r3", "r3a", "r2b", "2001:db8:23::2"),
    ("r3", "r3b", "b0", "2001:db8:b::2"),
    ("r3", "r3b", "b0", "10.99.0.2"),
];

/// A router of the vectors, as this project would configure it.
struct Place {
    config: RouterConfig,
    ports: Vec<PortConfig>,
}

impl Place {
    fn new(name: &str, meta: &Value) -> Self {
        let mac = |interface: &str| -> MacAddr {
            meta["macs"][interface].as_str().expect("a MAC").parse().expect("a MAC")
        };
        let mut node = Self {
            config: RouterConfig {
                ecn_decap: EcnDecap::Kernel,
                icmp_errors_per_second: 1_000_000,
                ..RouterConfig::default()
            },
            ports: Vec::new(),
        };
        for (_, interface, peer, address) in LINKS.iter().filter(|link| link.0 == name) {
            if node.ports.iter().all(|port| port.name != *interface) {
                let mut port = PortConfig::new(interface, mac(interface), Rate::from_gbps(10));
                port.mtu_bytes = if *interface == "r1a" { 1_600 } else { 1_500 };
                node.ports.push(port);
                let own = meta["addrs"][interface].as_str().expect("an address");
                let own = own.parse().expect("an address");
                let port = node.port(interface);
                node.config.addresses.push(RouterAddress { port, address: own });
            }
            node.neighbour(interface, address, mac(peer));
        }
        for route in meta["routes"].as_array().expect("routes") {
            if route["ns"].as_str() == Some(&format!("us-{name}")) {
                node.route(route);
            }
        }
        node
    }

    fn port(&self, interface: &str) -> PortId {
        let at = self.ports.iter().position(|port| port.name == interface);
        PortId(u16::try_from(at.expect("a port")).expect("few"))
    }

    fn neighbour(&mut self, interface: &str, address: &str, mac: MacAddr) {
        let address = address.parse().expect("an address");
        let port = self.port(interface);
        self.config.neighbours.push(Neighbour { address, mac, port, vlan: None });
    }

    fn route(&mut self, route: &Value) {
        let prefix = route["prefix"].as_str().expect("a prefix");
        let hop = |address: &str| {
            vec![NextHop { address: address.parse().expect("an address"), weight: 1 }]
        };
        let Some(sid) = route["sid"].as_array() else {
            let via = hop(route["via"].as_str().expect("a next hop"));
            let prefix = prefix.parse().expect("a prefix");
            self.config.routes.push(Route { prefix, via, balance: None });
            return;
        };
        let peer = |at: usize| {
            let peer = sid[at].as_str().expect("an interface");
            LINKS.iter().find(|link| link.2 == peer).expect("a link").3
        };
        let (address, _) = prefix.split_once('/').expect("a prefix");
        let shift = sid.get(3).map_or(16, |bytes| 8 * bytes.as_u64().expect("bytes"));
        let shift = u8::try_from(shift).expect("few");
        self.config.sids.push(SidConfig {
            address: address.parse().expect("an address"),
            layout: UsidLayout::new(32, shift).expect("a layout"),
            behaviour: match sid[0].as_str().expect("a name") {
                "End" => SidBehaviour::Un(Flavours::default()),
                "End.PSP" => SidBehaviour::Un(Flavours { psp: true, usd: false }),
                "End.X" => SidBehaviour::Ua(hop(peer(2)), Flavours::default()),
                "End.DT6" => SidBehaviour::Udt6,
                "End.DX6" => SidBehaviour::Udx6(hop(peer(2))),
                "End.DX4" => SidBehaviour::Udx4(hop("10.99.0.2")),
                other => panic!("an unknown segment {other}"),
            },
        });
    }

    /// What a case changes before its packet is sent.
    fn prepare(&mut self, name: &str, command: &str) {
        match (name, command) {
            ("r1", "ip -n us-r1 link set r1b mtu 1400") => {
                let port = self.port("r1b");
                self.ports[port.index()].mtu_bytes = 1_400;
            }
            ("r1", "ip -n us-r1 addr add fe80::a/64 dev r1a nodad") => {
                let address = "fe80::a".parse().expect("an address");
                let port = self.port("r1a");
                self.config.addresses.push(RouterAddress { port, address });
            }
            (
                "r1",
                "ip -n us-r1 neigh replace fe80::1 lladdr 02:55:00:00:0a:00 dev r1a nud permanent",
            ) => self.neighbour("r1a", "fe80::1", "02:55:00:00:0a:00".parse().expect("a MAC")),
            // Settings of Linux that this router has no counterpart of: the RFC says what is due.
            (_, command)
                if command.contains("forwarding=0")
                    || command.contains("table 254 count dev lo") => {}
            ("r1", other) => panic!("an unknown command {other}"),
            _ => {}
        }
    }

    /// What comes out for a frame that came in: the interface and the frame.
    fn pass(&self, interface: &str, frame: &[u8]) -> Option<(String, Vec<u8>)> {
        self.config.check(&self.ports).expect("a router");
        let mut router = Router::new(&self.config, &self.ports);
        let ingress = self.port(interface);
        if frame[..6] != self.ports[ingress.index()].mac.0 {
            return None;
        }
        let mut frame = frame.to_vec();
        let len = frame.len();
        let mut packet = Packet::new(&mut frame, 14, len);
        let mut verdict = router.route(&mut packet);
        if let Verdict::Forward(group) = verdict {
            let adjacency = router.members(group)[0];
            let out = &self.ports[adjacency.port.index()];
            if packet.end - packet.start <= usize::try_from(out.mtu_bytes).expect("small") {
                return Some(self.framed(&adjacency.addresses, adjacency.port, packet.bytes()));
            }
            let mtu_bytes = u16::try_from(out.mtu_bytes).expect("small");
            verdict = Verdict::Refuse(DropReason::EgressMtu, IcmpError::TooBig { mtu_bytes });
        }
        let Verdict::Refuse(_, error) = verdict else { return None };
        packet.restore_hop_limit();
        let mut buffer = [0xa5; ERROR_BYTES_MAX];
        let (way, len) = router.error(Time::ZERO, ingress, error, packet.bytes(), &mut buffer)?;
        let adjacency = match way {
            Way::Group(group) => router.members(group)[0],
            Way::Direct(adjacency) => adjacency,
        };
        Some(self.framed(&adjacency.addresses, adjacency.port, &buffer[..len]))
    }

    /// The same by the whole switch, its ports in VLANs of their own.
    fn pass_switch(&self, interface: &str, frame: &[u8]) -> Option<(String, Vec<u8>)> {
        let mut ports = self.ports.clone();
        for (vlan, port) in (10..).zip(&mut ports) {
            port.vlan = VlanMode::Access(vlan);
        }
        let router = Some(self.config.clone());
        let config = SwitchConfig { router, ..SwitchConfig::new("r", ports) };
        let mut switch = Switch::new(config).expect("a switch");
        let mut store = SlabStore::new(64);
        let frame = store.allocate_from(frame).expect("room");
        switch.on_frame(Time::ZERO, &mut store, self.port(interface), frame);
        let sent = switch.poll_next(Time::ZERO, &mut store).map(|(port, transmission)| {
            let mut bytes = Vec::new();
            store.copy_out(&transmission.frame, &mut bytes);
            store.release(transmission.frame);
            (self.ports[port.index()].name.clone(), bytes)
        });
        assert!(switch.poll_next(Time::ZERO, &mut store).is_none(), "one frame at most");
        let books = <Switch as crate::node::Node<SlabStore>>::ledger(&switch);
        books.check().expect("balanced books");
        assert_eq!((store.outstanding(), books.queued), (0, 0));
        sent
    }

    fn framed(&self, addresses: &[u8; 12], port: PortId, packet: &[u8]) -> (String, Vec<u8>) {
        let ethertype = if packet[0] >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xdd] };
        let frame = [&addresses[..], &ethertype, packet].concat();
        (self.ports[port.index()].name.clone(), frame)
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2);
    digits
        .map(|pair| {
            let pair = std::str::from_utf8(pair).expect("hexadecimal");
            u8::from_str_radix(pair, 16).expect("hexadecimal")
        })
        .collect()
}

/// The flow label of Linux's errors is a hash with a seed of its own.
fn without_flow_label(mut frame: Vec<u8>) -> Vec<u8> {
    frame[15] &= 0xf0;
    frame[16..18].fill(0);
    frame
}

#[test]
fn every_hop_of_every_case_is_as_linux_or_the_rfc_has_it() {
    let vectors: Value = serde_json::from_str(VECTORS).expect("JSON");
    let cases = vectors["cases"].as_array().expect("cases");
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for case in cases {
        let id = case["id"].as_str().expect("an id");
        for name in ["r1", "r2", "r3"] {
            let mut node = Place::new(name, &vectors["meta"]);
            for command in case["pre"].as_array().expect("commands") {
                node.prepare(name, command.as_str().expect("a command"));
            }
            for pass in case[name]["passes"].as_array().into_iter().flatten() {
                let interface = pass["in_if"].as_str().expect("an interface");
                let ours = node.pass(interface, &bytes(pass["in"].as_str().expect("a frame")));
                let frame = bytes(pass["in"].as_str().expect("a frame"));
                assert_eq!(node.pass_switch(interface, &frame), ours, "{id} at {name}");
                let linux = pass["out_if"].as_str().map(|interface| {
                    let frame = bytes(pass["out"].as_str().expect("a frame"));
                    (interface.to_owned(), frame)
                });
                let expected = &pass["rfc"]["expected"];
                let agrees = pass["rfc"]["agrees"] == true;
                let label = format!("{id} at {name}: {}", pass["rfc"]["note"]);
                let kind = expected["kind"].as_str().expect("a kind");
                *seen.entry(if agrees { "as Linux" } else { kind }).or_default() += 1;
                match (agrees, pass["kind"].as_str().expect("a kind"), kind) {
                    (true, "icmp6_error", _) => {
                        let masked = |(i, frame)| (i, without_flow_label(frame));
                        assert_eq!(ours, linux.map(masked), "{label}");
                    }
                    (true, _, _) => assert_eq!(ours, linux, "{label}"),
                    (false, _, "frame") => {
                        let interface = expected["out_if"].as_str().expect("an interface");
                        let frame = bytes(expected["hex"].as_str().expect("a frame"));
                        assert_eq!(ours, Some((interface.to_owned(), frame)), "{label}");
                    }
                    (false, _, "icmp6_error") => {
                        let (_, frame) = ours.expect(&label);
                        let address = |at: usize| {
                            let octets: [u8; 16] = frame[at..at + 16].try_into().expect("an IPv6");
                            Ipv6Addr::from(octets)
                        };
                        let message = Icmpv6Message::new_checked(&frame[54..]).expect("ICMPv6");
                        assert!(message.is_checksum_valid(address(22), address(38)), "{label}");
                        assert_eq!(expected["type"], message.kind(), "{label}");
                        assert_eq!(expected["code"], message.code(), "{label}");
                        let pointer: [u8; 4] = frame[58..62].try_into().expect("four bytes");
                        let want = expected["ptr"].as_u64().unwrap_or(0);
                        assert_eq!(u64::from(u32::from_be_bytes(pointer)), want, "{label}");
                    }
                    (false, _, "dropped") => assert_eq!(ours, None, "{label}"),
                    other => panic!("{label}: {other:?}"),
                }
            }
        }
    }
    // No case is skipped: the file has 81, of which these are all passes.
    assert_eq!(cases.len(), 81);
    assert_eq!(
        seen.into_iter().collect::<Vec<_>>(),
        [("as Linux", 166), ("dropped", 2), ("frame", 7), ("icmp6_error", 18)]
    );
}
