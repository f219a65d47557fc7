//! The VXLAN tunnel endpoint in the switch (RFC 7348): which VLAN is which network, which endpoints
//! are at the other ends, what goes before a frame and what comes off it.
//!
//! The underlay is IPv4. A remote endpoint is a place where stations live, like a port: the MAC table
//! learns them there, a flood goes to each of the network's endpoints in a copy of its own, and never
//! from one to another. The congestion mark is copied out and combined by RFC 6040 on the way in;
//! without it every mark of the fabric would be lost.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use crate::ledger::DropReason;
use crate::wire::ecn_tunnel::{self, DscpMode, EcnDecap};
use crate::wire::ipv4::Ipv4Packet;
use crate::wire::udp::{self, UdpDatagram};
use crate::wire::vlan::is_tag;
use crate::wire::vxlan::{self, VNI_MAX, VxlanOuter, VxlanPacket};
use crate::wire::{ethernet, ethertype, protocol};

/// VLANs are 1 to this.
const VLAN_MAX: u16 = 4_094;

/// Endpoints at the other ends.
const REMOTES_MAX: usize = 4_096;

/// A tunnel endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VtepConfig {
    /// Its address in the underlay: one of the router's.
    pub address: Ipv4Addr,
    /// The networks, each a VLAN of this switch.
    pub vnis: Vec<VniConfig>,
    /// The endpoints at the other ends.
    pub remotes: Vec<RemoteVtep>,
    /// What becomes of the congestion mark where a tunnel ends here.
    pub ecn_decap: EcnDecap,
    /// What becomes of the DSCP where a tunnel begins or ends here.
    pub dscp_mode: DscpMode,
}

/// A network and the VLAN that it is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VniConfig {
    /// The network identifier, 24 bits.
    pub vni: u32,
    /// The VLAN.
    pub vlan: u16,
}

/// An endpoint at the other end of tunnels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteVtep {
    /// Its address in the underlay.
    pub address: Ipv4Addr,
    /// The networks that floods are sent to it in; empty: all.
    pub vnis: Vec<u32>,
}

/// Why a configuration makes no endpoint: which field, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("vtep: {field}: {problem}")]
pub struct VtepConfigError {
    /// The field, as the configuration type names it.
    pub field: &'static str,
    /// The index in that field, where it is a list.
    pub index: usize,
    /// What is wrong with it, and what would be right.
    pub problem: String,
}

impl VtepConfig {
    /// An endpoint without networks that combines marks by RFC 6040 and leaves the inner DSCP alone.
    pub const fn new(address: Ipv4Addr) -> Self {
        Self {
            address,
            vnis: Vec::new(),
            remotes: Vec::new(),
            ecn_decap: EcnDecap::Rfc6040,
            dscp_mode: DscpMode::Pipe,
        }
    }

    /// Whether an endpoint can be built from this.
    ///
    /// # Errors
    /// [`VtepConfigError`] for the first thing that is wrong.
    pub fn check(&self) -> Result<(), VtepConfigError> {
        let error = |field, index, problem| Err(VtepConfigError { field, index, problem });
        if !is_station(self.address) {
            return error("address", 0, format!("{} is no station's address", self.address));
        }
        for (index, VniConfig { vni, vlan }) in self.vnis.iter().enumerate() {
            if *vni > VNI_MAX {
                return error("vnis", index, format!("{vni}: a VNI is 0 to {VNI_MAX}"));
            }
            if *vlan == 0 || *vlan > VLAN_MAX {
                return error(
                    "vnis",
                    index,
                    format!("VLAN {vlan} does not exist: 1 to {VLAN_MAX}"),
                );
            }
            if self.vnis[..index].iter().any(|other| other.vni == *vni || other.vlan == *vlan) {
                let problem = format!("VNI {vni} or VLAN {vlan} is there already");
                return error("vnis", index, problem);
            }
        }
        if self.remotes.len() > REMOTES_MAX {
            let n = self.remotes.len();
            return error("remotes", 0, format!("{n} endpoints: at most {REMOTES_MAX}"));
        }
        for (index, remote) in self.remotes.iter().enumerate() {
            let address = remote.address;
            if !is_station(address) || address == self.address {
                return error("remotes", index, format!("{address} is no other station's address"));
            }
            if self.remotes[..index].iter().any(|other| other.address == address) {
                return error("remotes", index, format!("{address} is there already"));
            }
            let unknown = |vni: &&u32| self.vnis.iter().all(|known| known.vni != **vni);
            if let Some(vni) = remote.vnis.iter().find(unknown) {
                let problem = format!("{address}: VNI {vni} is no VLAN of this switch");
                return error("remotes", index, problem);
            }
        }
        Ok(())
    }
}

fn is_station(address: Ipv4Addr) -> bool {
    !(address.is_multicast()
        || address.is_unspecified()
        || address.is_loopback()
        || address.is_broadcast())
}

/// The tables of an endpoint.
#[derive(Clone, Debug)]
pub struct Vtep {
    config: VtepConfig,
    vlan_of: BTreeMap<u32, u16>,
    vni_of: BTreeMap<u16, u32>,
    remote_of: BTreeMap<Ipv4Addr, u16>,
    /// The endpoints that a flood of a VLAN goes to.
    floods: BTreeMap<u16, Vec<u16>>,
}

/// What was found in a packet from another endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inside {
    /// The VLAN that the frame belongs to here.
    pub vlan: u16,
    /// The endpoint that it came from, by its place in the configuration.
    pub remote: u16,
    /// Where the frame begins, in bytes from the outer IP header.
    pub frame_at: usize,
}

/// How a frame is sent to another endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flight {
    /// The endpoint, by its place in the configuration.
    pub remote: u16,
    /// The VLAN that the frame is in.
    pub vlan: u16,
    /// The inner flow's hash, which becomes the outer source port.
    pub flow_hash: u16,
    /// Bytes of the frame, without VLAN tags.
    pub frame_bytes: u32,
}

impl Vtep {
    /// An endpoint. The configuration has been [checked](VtepConfig::check).
    pub fn new(config: &VtepConfig) -> Self {
        let numbered = || (0..).zip(&config.remotes);
        let floods_of = |vni: &VniConfig| {
            let takes =
                |remote: &RemoteVtep| remote.vnis.is_empty() || remote.vnis.contains(&vni.vni);
            let to: Vec<u16> =
                numbered().filter(|(_, r)| takes(r)).map(|(index, _)| index).collect();
            (vni.vlan, to)
        };
        Self {
            vlan_of: config.vnis.iter().map(|vni| (vni.vni, vni.vlan)).collect(),
            vni_of: config.vnis.iter().map(|vni| (vni.vlan, vni.vni)).collect(),
            remote_of: numbered().map(|(index, remote)| (remote.address, index)).collect(),
            floods: config.vnis.iter().map(floods_of).collect(),
            config: config.clone(),
        }
    }

    /// The number of endpoints at the other ends.
    pub const fn remotes(&self) -> usize {
        self.config.remotes.len()
    }

    /// The endpoints that a flood of a VLAN goes to.
    pub fn floods(&self, vlan: u16) -> &[u16] {
        self.floods.get(&vlan).map_or(&[], Vec::as_slice)
    }

    /// Looks into an IPv4 packet for this node, whose leading bytes are `packet`, for a frame of a
    /// network, and gives it the mark of the outer header. None for a packet that is no VXLAN for
    /// this endpoint.
    ///
    /// # Errors
    /// Why a VXLAN packet is dropped: a network or an endpoint that is unknown, no frame inside or one
    /// with a VLAN tag (RFC 7348 section 6.1), congestion that cannot be told (RFC 6040).
    pub fn look_inside(&self, packet: &mut [u8]) -> Result<Option<Inside>, DropReason> {
        let Ok(view) = Ipv4Packet::new_checked_prefix(&packet[..], usize::MAX) else {
            return Ok(None);
        };
        let is_udp = view.protocol() == protocol::UDP && !view.is_fragment();
        if view.destination() != self.config.address || !is_udp {
            return Ok(None);
        }
        let (source, header_bytes) = (view.source(), view.header_bytes());
        let outer = ecn_tunnel::byte_of(packet).unwrap_or(0);
        let datagram = packet.get(header_bytes..).unwrap_or_default();
        let Ok(datagram) = UdpDatagram::new_checked_prefix(datagram, usize::MAX) else {
            return Ok(None);
        };
        if datagram.destination_port() != vxlan::UDP_PORT {
            return Ok(None);
        }
        let inside =
            VxlanPacket::new_checked(datagram.payload()).map_err(|_| DropReason::Malformed)?;
        let vlan = *self.vlan_of.get(&inside.vni()).ok_or(DropReason::UnknownVni)?;
        let remote = *self.remote_of.get(&source).ok_or(DropReason::UnknownVtep)?;
        let frame_at = header_bytes + udp::HEADER_BYTES + vxlan::HEADER_BYTES;
        let Some((header, inner)) = packet
            .get_mut(frame_at..)
            .and_then(|frame| frame.split_first_chunk_mut::<{ ethernet::HEADER_BYTES }>())
        else {
            return Err(DropReason::Malformed);
        };
        let [.., high, low] = *header;
        let kind = u16::from_be_bytes([high, low]);
        if is_tag(kind) {
            return Err(DropReason::VlanIngress);
        }
        self.mark(kind, inner, outer)?;
        Ok(Some(Inside { vlan, remote, frame_at }))
    }

    /// Gives the packet inside of a frame the outer mark. A frame that is not IP has no place for one:
    /// it counts as not-ECT.
    fn mark(&self, kind: u16, inner: &mut [u8], outer: u8) -> Result<(), DropReason> {
        let VtepConfig { ecn_decap, dscp_mode, .. } = self.config;
        let combine = |inner| {
            ecn_tunnel::inner_byte(inner, outer, ecn_decap, dscp_mode)
                .ok_or(DropReason::TunnelCongestion)
        };
        match ecn_tunnel::byte_of(inner).filter(|_| is_ip(kind)) {
            None => combine(0).map(|_| ()),
            Some(before) => {
                let byte = combine(before)?;
                if byte != before {
                    ecn_tunnel::set_byte_of(inner, byte);
                }
                Ok(())
            }
        }
    }

    /// Writes what goes before a frame, from the outer IPv4 header on
    /// ([`OUTER_BYTES`](vxlan::OUTER_BYTES)), at the start of `outer`. `frame` are the frame's
    /// leading bytes, without VLAN tags.
    ///
    /// # Errors
    /// [`DropReason::UnknownVni`] when the VLAN is no network, [`DropReason::Oversize`] when the frame
    /// is longer than an IPv4 packet.
    pub fn write_outer(
        &self,
        flight: Flight,
        frame: &[u8],
        outer: &mut [u8],
    ) -> Result<(), DropReason> {
        let vni = *self.vni_of.get(&flight.vlan).ok_or(DropReason::UnknownVni)?;
        let remote = self.config.remotes.get(usize::from(flight.remote));
        let destination = remote.ok_or(DropReason::UnknownVtep)?.address;
        let kind = match frame.get(12..14) {
            Some(&[high, low]) => u16::from_be_bytes([high, low]),
            _ => 0,
        };
        let inner = frame.get(ethernet::HEADER_BYTES..).filter(|_| is_ip(kind));
        let inner = inner.and_then(ecn_tunnel::byte_of).unwrap_or(0);
        let headers = VxlanOuter {
            source: self.config.address,
            destination,
            ttl: 64,
            ds_byte: ecn_tunnel::outer_byte(inner, self.config.dscp_mode),
            flow_hash: flight.flow_hash,
            vni,
            frame_bytes: u16::try_from(flight.frame_bytes).map_err(|_| DropReason::Oversize)?,
        };
        headers.emit(outer).map_err(|_| DropReason::Oversize)
    }
}

const fn is_ip(kind: u16) -> bool {
    matches!(kind, ethertype::IPV4 | ethertype::IPV6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const VECTORS: &str = include_str!("../../tests/vectors/vxlan.json");

    fn vtep(address: [u8; 4], remote: [u8; 4]) -> VtepConfig {
        VtepConfig {
            vnis: vec![VniConfig { vni: 77, vlan: 7 }, VniConfig { vni: 88, vlan: 8 }],
            remotes: vec![
                RemoteVtep { address: [192, 0, 2, 9].into(), vnis: vec![88] },
                RemoteVtep { address: remote.into(), vnis: Vec::new() },
            ],
            ..VtepConfig::new(address.into())
        }
    }

    fn end() -> Vtep {
        let config = vtep([10, 0, 0, 2], [10, 0, 0, 1]);
        config.check().expect("an endpoint");
        Vtep::new(&config)
    }

    fn start() -> Vtep {
        Vtep::new(&vtep([10, 0, 0, 1], [10, 0, 0, 2]))
    }

    fn bytes_of(hex: &str) -> Vec<u8> {
        let digits = |at: usize| hex.get(at..at + 2).expect("an even number of digits");
        let octets = (0..hex.len()).step_by(2).map(digits);
        octets.map(|octet| u8::from_str_radix(octet, 16).expect("hexadecimal")).collect()
    }

    #[test]
    fn every_vector_is_decapsulated_bit_for_bit() {
        let cases: serde_json::Value = serde_json::from_str(VECTORS).expect("JSON");
        let cases = cases.as_array().expect("a list");
        assert_eq!(cases.len(), 16);
        for case in cases {
            let mut frame = bytes_of(case["encapsulated"].as_str().expect("a frame"));
            let inside = end().look_inside(&mut frame[14..]);
            let label = format!("inner {} outer {}", case["inner_ecn"], case["outer_ecn"]);
            let Some(want) = case["decapsulated"].as_str() else {
                assert_eq!(inside, Err(DropReason::TunnelCongestion), "{label}");
                continue;
            };
            let inside = inside.expect("VXLAN").expect("VXLAN");
            assert_eq!((inside.vlan, inside.remote, inside.frame_at), (7, 1, 36), "{label}");
            assert_eq!(frame[14 + inside.frame_at..], bytes_of(want), "{label}");
        }
    }

    #[test]
    fn what_one_end_puts_on_the_other_takes_off() {
        let cases: serde_json::Value = serde_json::from_str(VECTORS).expect("JSON");
        for case in cases.as_array().expect("a list") {
            let vector = bytes_of(case["encapsulated"].as_str().expect("a frame"));
            let frame = &vector[50..];
            let flight = Flight {
                remote: 1,
                vlan: 7,
                flow_hash: 50_000 - 49_152,
                frame_bytes: u32::try_from(frame.len()).expect("short"),
            };
            let mut outer = [0xa5; vxlan::OUTER_BYTES];
            start().write_outer(flight, frame, &mut outer).expect("a flight");
            if case["inner_ecn"] == case["outer_ecn"] {
                // As the vector has it, but for identification, DF and checksum of the outer IPv4.
                assert_eq!(outer[..4], vector[14..18]);
                assert_eq!(outer[12..], vector[26..50]);
            }
            let mut packet = [&outer[..], frame].concat();
            let inside = end().look_inside(&mut packet).expect("VXLAN").expect("VXLAN");
            assert_eq!(&packet[inside.frame_at..], frame);
        }
    }

    #[test]
    fn packets_that_are_no_frame_of_a_network_are_told_apart() {
        let cases: serde_json::Value = serde_json::from_str(VECTORS).expect("JSON");
        let good = bytes_of(cases[0]["encapsulated"].as_str().expect("a frame"));
        let look = |change: fn(&mut Vec<u8>)| {
            let mut packet = good[14..].to_vec();
            change(&mut packet);
            end().look_inside(&mut packet).map(|inside| inside.is_some())
        };
        assert_eq!(look(|_| {}), Ok(true));
        assert_eq!(look(|p| p[9] = 6), Ok(false), "TCP");
        assert_eq!(look(|p| p[6] = 0x20), Ok(false), "a fragment");
        assert_eq!(look(|p| p[19] = 3), Ok(false), "another destination");
        assert_eq!(look(|p| p[23] = 0), Ok(false), "another port");
        assert_eq!(look(|p| p[15] = 3), Err(DropReason::UnknownVtep));
        assert_eq!(look(|p| p[34] = 78), Err(DropReason::UnknownVni));
        assert_eq!(look(|p| p[28] = 0), Err(DropReason::Malformed), "no identifier");
        assert_eq!(look(|p| p[48..50].copy_from_slice(&[0x81, 0])), Err(DropReason::VlanIngress));
        assert_eq!(look(|p| p.truncate(40)), Err(DropReason::Malformed));
        // ARP inside of congestion: nobody could be told.
        let arp = |p: &mut Vec<u8>| {
            p[48..50].copy_from_slice(&[0x08, 0x06]);
            p[1] = 3;
        };
        assert_eq!(look(arp), Err(DropReason::TunnelCongestion));
    }

    #[test]
    fn floods_go_to_the_endpoints_of_the_network() {
        let end = end();
        assert_eq!(end.floods(7), [1]);
        assert_eq!(end.floods(8), [0, 1]);
        assert!(end.floods(9).is_empty());
        assert_eq!(end.remotes(), 2);
        let flight = Flight { remote: 1, vlan: 9, flow_hash: 0, frame_bytes: 60 };
        let mut outer = [0; vxlan::OUTER_BYTES];
        assert_eq!(end.write_outer(flight, &[0; 60], &mut outer), Err(DropReason::UnknownVni));
        let flight = Flight { vlan: 7, frame_bytes: 65_530, ..flight };
        assert_eq!(end.write_outer(flight, &[0; 60], &mut outer), Err(DropReason::Oversize));
    }

    #[test]
    fn contradictions_are_refused_by_name() {
        let refused = |change: fn(&mut VtepConfig)| {
            let mut config = vtep([10, 0, 0, 2], [10, 0, 0, 1]);
            change(&mut config);
            config.check().expect_err("refused").to_string()
        };
        for (message, want) in [
            (
                refused(|c| c.address = [224, 0, 0, 1].into()),
                "address: 224.0.0.1 is no station's address",
            ),
            (refused(|c| c.vnis[0].vni = 1 << 24), "vnis: 16777216: a VNI is 0 to 16777215"),
            (refused(|c| c.vnis[0].vlan = 4_095), "vnis: VLAN 4095 does not exist: 1 to 4094"),
            (refused(|c| c.vnis[1].vlan = 7), "vnis: VNI 88 or VLAN 7 is there already"),
            (
                refused(|c| c.remotes[0].address = c.address),
                "remotes: 10.0.0.2 is no other station's address",
            ),
            (
                refused(|c| c.remotes[1].address = c.remotes[0].address),
                "remotes: 192.0.2.9 is there already",
            ),
            (
                refused(|c| c.remotes[1].vnis = vec![99]),
                "remotes: 10.0.0.1: VNI 99 is no VLAN of this switch",
            ),
        ] {
            assert_eq!(message, format!("vtep: {want}"));
        }
    }

    proptest! {
        #[test]
        fn no_byte_string_panics(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..120), cut in 0_usize..120,
            plausible: bool,
        ) {
            let cases: serde_json::Value = serde_json::from_str(VECTORS).expect("JSON");
            if plausible {
                let good = bytes_of(cases[0]["encapsulated"].as_str().expect("a frame"));
                for (at, byte) in bytes.iter_mut().enumerate() {
                    // One byte in sixteen is another one.
                    *byte = if *byte < 16 { *byte } else { good.get(14 + at).copied().unwrap_or(0) };
                }
                bytes.truncate(cut);
            }
            let _ = end().look_inside(&mut bytes);
            let flight = Flight { remote: 1, vlan: 7, flow_hash: 1, frame_bytes: 60 };
            let _ = end().write_outer(flight, &bytes, &mut [0; vxlan::OUTER_BYTES]);
        }
    }
}
