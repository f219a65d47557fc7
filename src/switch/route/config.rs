//! What a router is built from.

use std::net::{IpAddr, Ipv6Addr};

use super::prefix::IpPrefix;
use crate::node::PortId;
use crate::switch::balance::Method;
use crate::switch::balance::config::HashConfig;
use crate::wire::MacAddr;
use crate::wire::ecn_tunnel::{DscpMode, EcnDecap};
use crate::wire::usid::UsidLayout;

/// The layer-3 part of a switch: frames for one of its MAC addresses are routed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterConfig {
    /// The router's address on every port; None: each port has its own.
    pub mac: Option<MacAddr>,
    /// The router's IP addresses: what ICMP errors come from.
    pub addresses: Vec<RouterAddress>,
    /// Stations that packets can be sent to directly; each is a route of its own address.
    pub neighbours: Vec<Neighbour>,
    /// Static routes.
    pub routes: Vec<Route>,
    /// Segments that this node is the endpoint of.
    pub sids: Vec<SidConfig>,
    /// How a next hop is chosen where there are several, unless the route says how.
    pub balance: Method,
    /// Packets that get an outer header with a path of segments.
    pub encapsulations: Vec<EncapConfig>,
    /// What becomes of the congestion mark where an SRv6 tunnel ends here.
    pub ecn_decap: EcnDecap,
    /// What becomes of the DSCP where an SRv6 tunnel begins or ends here.
    pub dscp_mode: DscpMode,
    /// ICMP errors that may be sent a second; 0 sends none.
    pub icmp_errors_per_second: u32,
    /// ICMP errors that may be sent at once.
    pub icmp_errors_burst: u32,
}

impl Default for RouterConfig {
    /// Without addresses, neighbours, routes and segments; ECMP by the five-tuple; 1,000 ICMP errors
    /// a second, 50 at once.
    fn default() -> Self {
        Self {
            mac: None,
            addresses: Vec::new(),
            neighbours: Vec::new(),
            routes: Vec::new(),
            sids: Vec::new(),
            balance: Method::Ecmp(HashConfig::new(0)),
            encapsulations: Vec::new(),
            ecn_decap: EcnDecap::default(),
            dscp_mode: DscpMode::default(),
            icmp_errors_per_second: 1_000,
            icmp_errors_burst: 50,
        }
    }
}

/// An address of the router on a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouterAddress {
    /// The port.
    pub port: PortId,
    /// The address.
    pub address: IpAddr,
}

/// A station on a link of the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its IP address. One of link-local scope (fe80::/10) is for ICMP errors on its own port alone.
    pub address: IpAddr,
    /// Its MAC address.
    pub mac: MacAddr,
    /// The port it is behind.
    pub port: PortId,
    /// The VLAN that frames for it are sent in; None: that of the port's untagged frames.
    pub vlan: Option<u16>,
}

/// Where packets for a prefix go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The destinations.
    pub prefix: IpPrefix,
    /// The group of next hops; without any, the packets are dropped without a word.
    pub via: Vec<NextHop>,
    /// How one of them is chosen; None: as the router does.
    pub balance: Option<Method>,
}

/// One next hop of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// A neighbour's address.
    pub address: IpAddr,
    /// Its share of the packets, against the other next hops of the route.
    pub weight: u16,
}

/// A segment that ends here (RFC 8986), by the prefix of its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SidConfig {
    /// The locator block, followed by the uSID (32 and 16 bits of `fcbb:bb00:1::`, by
    /// [`UsidLayout::F3216`]).
    pub address: Ipv6Addr,
    /// Bits of the block and of what a shift takes away.
    pub layout: UsidLayout,
    /// What is done with packets for it.
    pub behaviour: SidBehaviour,
}

/// What an endpoint does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SidBehaviour {
    /// uN: `End` with NEXT-C-SID. The next uSID is looked up.
    Un(Flavours),
    /// uA: `End.X` with NEXT-C-SID. The packet goes to the neighbours, whatever is next.
    Ua(Vec<NextHop>, Flavours),
    /// uDT4: `End.DT4`. The IPv4 packet inside is looked up.
    Udt4,
    /// uDT6: `End.DT6`. The IPv6 packet inside is looked up.
    Udt6,
    /// uDT46: `End.DT46`. The packet inside is looked up.
    Udt46,
    /// uDX4: `End.DX4`. The IPv4 packet inside goes to the neighbours.
    Udx4(Vec<NextHop>),
    /// uDX6: `End.DX6`. The IPv6 packet inside goes to the neighbours.
    Udx6(Vec<NextHop>),
}

/// Flavours of uN and uA (RFC 8986 section 4.16).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flavours {
    /// PSP: the segment routing header is taken off with the step to its last segment.
    pub psp: bool,
    /// USD: where the path ends here, the packet inside is taken out and goes on.
    pub usd: bool,
}

/// A policy: packets get an outer header with a path (RFC 8986 section 5.2, H.Encaps.Red).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncapConfig {
    /// The port by which they come.
    pub port: PortId,
    /// Their destinations; of several policies of a port the longest prefix counts.
    pub prefix: IpPrefix,
    /// The outer source address.
    pub source: Ipv6Addr,
    /// The path, first segment first: containers of uSIDs, or addresses.
    pub segments: Vec<Ipv6Addr>,
    /// The outer hop limit.
    pub hop_limit: u8,
}
