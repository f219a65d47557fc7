//! What an agent host is built from.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::time::Time;
use crate::units::{AnyRate, Rate};
use crate::wire::MacAddr;

/// How the planned send times of a stream are spaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrivals {
    /// One frame each mean gap.
    #[default]
    Constant,
    /// Exponential gaps with that mean.
    Poisson,
}

/// Where a stream goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamTarget {
    /// Destination address of the Ethernet header.
    pub mac: MacAddr,
    /// Destination of the IP header; the source is the host's address of the same family.
    pub ip: std::net::IpAddr,
    /// VLAN and PCP of an 802.1Q tag, when there is one.
    pub vlan: Option<(u16, u8)>,
}

/// One stream of numbered, time-stamped UDP frames.
#[derive(Clone, Debug)]
pub struct StreamConfig {
    /// The number in reports; unique in a run, carried in each frame.
    pub id: u32,
    /// Where it goes.
    pub target: StreamTarget,
    /// UDP source port.
    pub source_port: u16,
    /// UDP destination port.
    pub destination_port: u16,
    /// DSCP of the IP header.
    pub dscp: u8,
    /// Length of each frame without FCS, all headers included.
    pub frame_bytes: u32,
    /// Mean rate: frames per second, or bits per second of wire time including the overhead.
    pub rate: AnyRate,
    /// How send times are spaced.
    pub arrivals: Arrivals,
    /// The first planned send time is here (constant), or one gap after (Poisson).
    pub start: Time,
    /// No frame is planned at or after this instant.
    pub stop: Time,
    /// At most this many frames; `u64::MAX` for no limit.
    pub frames_max: u64,
}

/// A whole agent host with one port.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// The name in topology files and reports; also names its random stream.
    pub name: String,
    /// The name of its port.
    pub port_name: String,
    /// Its address.
    pub mac: MacAddr,
    /// IPv4 address and prefix length.
    pub ipv4: Option<(Ipv4Addr, u8)>,
    /// IPv6 address and prefix length.
    pub ipv6: Option<(Ipv6Addr, u8)>,
    /// Line rate.
    pub rate: Rate,
    /// Largest layer-3 packet.
    pub mtu_bytes: u32,
    /// Bytes around each frame on the wire.
    pub overhead_bytes: u32,
    /// Frames that wait for the line, at most; a stream's frame that finds no place is dropped.
    pub queue_frames_max: u32,
    /// Sources to send from this host.
    pub streams: Vec<StreamConfig>,
    /// The run's seed.
    pub seed: u64,
}
