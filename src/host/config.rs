//! What an agent host is built from.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::storm::StormConfig;
use crate::line::ETHERNET_OVERHEAD_BYTES;
use crate::time::Time;
use crate::units::{AnyRate, Rate};
use crate::wire::{MacAddr, WireError, ethernet, ipv4, ipv6, srv6, stream, udp, vlan};

/// Segments of a stream's path, at most.
pub const SEGMENTS_MAX: usize = 5;

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
    /// The priority under which the host sends it: what a pause stops.
    pub priority: u8,
    /// ECN of the IP header: 1 or 2 for a transport that is ECN-capable, 0 for one that is not.
    pub ecn: u8,
    /// A path of SRv6 segments, first segment first: the packet travels in an outer IPv6 header that
    /// has the first as destination, and the others in an SRH (RFC 8986, H.Encaps.Red). DSCP and ECN
    /// are copied out, the flow label is the source port. Empty: no outer header.
    pub segments: Vec<Ipv6Addr>,
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
    /// When it announces its addresses.
    pub announce_at: Time,
    /// The priorities that are lossless, as bits: their pauses are obeyed, and their frames wait
    /// as long as they must.
    pub lossless: u8,
    /// Whether 802.3x PAUSE is obeyed, which stops everything.
    pub obeys_pause: bool,
    /// Sources to send from this host.
    pub streams: Vec<StreamConfig>,
    /// Storms of pause frames to send from this host.
    pub storms: Vec<StormConfig>,
    /// The run's seed.
    pub seed: u64,
}

/// The most frames that may wait for a line.
pub const QUEUE_FRAMES_MAX: u32 = 65_536;

/// Why no host can be built from a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostConfigError {
    /// A line without a rate.
    #[error("the line's rate is zero")]
    LineRate,
    /// `queue_frames_max` is out of range.
    #[error("queue_frames_max is {0}; it is 1 to {QUEUE_FRAMES_MAX}")]
    QueueFrames(u32),
    /// Two streams have one number.
    #[error("two streams have the number {0}")]
    SameStream(u32),
    /// A stream's rate is zero.
    #[error("stream {0}: the rate is zero")]
    StreamRate(u32),
    /// A storm's rate is zero.
    #[error("storm {0}: the rate is zero")]
    StormRate(usize),
    /// A stream goes to an address of a family that the host has none of.
    #[error("stream {0}: the host has no address of its target's family")]
    NoSource(u32),
    /// A stream's frames are too short for their headers or too long for the MTU.
    #[error("stream {id}: frames of {frame_bytes} bytes; {min_bytes} to {max_bytes} fit")]
    FrameBytes {
        /// The stream.
        id: u32,
        /// What is asked for.
        frame_bytes: u32,
        /// All headers.
        min_bytes: u32,
        /// The MTU with the Ethernet header and tag.
        max_bytes: u32,
    },
    /// A field that does not fit its header.
    #[error("stream {id}: {what}")]
    Field {
        /// The stream.
        id: u32,
        /// The field and its range.
        what: &'static str,
    },
    /// A header that cannot be written.
    #[error("stream {id}: {error}")]
    Headers {
        /// The stream.
        id: u32,
        /// The header's own error.
        error: WireError,
    },
}

const fn is_zero(rate: AnyRate) -> bool {
    match rate {
        AnyRate::Bits(rate) => rate.as_bps() == 0,
        AnyRate::Frames(rate) => rate.as_milli_pps() == 0,
    }
}

impl StreamConfig {
    /// Stream number `id` to `target` at `rate`, with the defaults: constant gaps from the start of
    /// the run, without an end, in frames of 1,514 bytes from UDP port 49,152 to 7,701.
    pub const fn new(id: u32, target: StreamTarget, rate: AnyRate) -> Self {
        Self {
            id,
            target,
            source_port: 49_152,
            destination_port: 7_701,
            dscp: 0,
            priority: 0,
            ecn: 0,
            segments: Vec::new(),
            frame_bytes: 1_514,
            rate,
            arrivals: Arrivals::Constant,
            start: Time::ZERO,
            stop: Time::NEVER,
            frames_max: u64::MAX,
        }
    }

    /// Bytes of all headers: the shortest frame.
    pub const fn headers_bytes(&self) -> usize {
        let tag = if self.target.vlan.is_some() { vlan::TAG_BYTES } else { 0 };
        let ip = if self.target.ip.is_ipv6() { ipv6::HEADER_BYTES } else { ipv4::HEADER_BYTES };
        let front = ethernet::HEADER_BYTES + tag + self.outer_bytes();
        front + ip + udp::HEADER_BYTES + stream::HEADER_BYTES
    }

    /// Bytes of the outer header and the SRH.
    pub const fn outer_bytes(&self) -> usize {
        match self.segments.len() {
            0 => 0,
            1 => ipv6::HEADER_BYTES,
            n => ipv6::HEADER_BYTES + srv6::len_bytes(n - 1),
        }
    }

    fn check(&self, host: &HostConfig) -> Result<(), HostConfigError> {
        let id = self.id;
        if is_zero(self.rate) {
            return Err(HostConfigError::StreamRate(id));
        }
        let has_source =
            if self.target.ip.is_ipv6() { host.ipv6.is_some() } else { host.ipv4.is_some() };
        if !has_source {
            return Err(HostConfigError::NoSource(id));
        }
        if self.dscp > 63 {
            return Err(HostConfigError::Field { id, what: "a DSCP is 0 to 63" });
        }
        if self.priority > 7 {
            return Err(HostConfigError::Field { id, what: "a priority is 0 to 7" });
        }
        if self.ecn > 3 {
            return Err(HostConfigError::Field { id, what: "an ECN field is 0 to 3" });
        }
        if self.segments.len() > SEGMENTS_MAX {
            return Err(HostConfigError::Field { id, what: "a path has at most 5 segments" });
        }
        if !self.segments.is_empty() && host.ipv6.is_none() {
            return Err(HostConfigError::Field {
                id,
                what: "an outer header needs an IPv6 address",
            });
        }
        if self.target.vlan.is_some_and(|(vid, pcp)| vid > 4_094 || pcp > 7) {
            return Err(HostConfigError::Field { id, what: "a VLAN is 0 to 4094, a PCP 0 to 7" });
        }
        let min_bytes = u32::try_from(self.headers_bytes()).unwrap_or(u32::MAX);
        let tag = if self.target.vlan.is_some() { 4 } else { 0 };
        // Whatever the MTU, the length fields of IP hold 16 bits.
        let max_bytes = host.mtu_bytes.min(65_535) + 14 + tag;
        let frame_bytes = self.frame_bytes;
        if !(min_bytes..=max_bytes).contains(&frame_bytes) {
            return Err(HostConfigError::FrameBytes { id, frame_bytes, min_bytes, max_bytes });
        }
        Ok(())
    }
}

impl HostConfig {
    /// A host without addresses of IP and without streams, with the defaults: a port `eth0` of MTU
    /// 1500 whose line 1,024 frames may wait for, announced at once.
    pub fn new(name: &str, mac: MacAddr, rate: Rate) -> Self {
        Self {
            name: name.to_owned(),
            port_name: "eth0".to_owned(),
            mac,
            ipv4: None,
            ipv6: None,
            rate,
            mtu_bytes: 1_500,
            overhead_bytes: ETHERNET_OVERHEAD_BYTES,
            queue_frames_max: 1_024,
            announce_at: Time::ZERO,
            lossless: 0,
            obeys_pause: false,
            streams: Vec::new(),
            storms: Vec::new(),
            seed: 1,
        }
    }

    /// Checks what a host can be built from.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), HostConfigError> {
        if self.rate.as_bps() == 0 {
            return Err(HostConfigError::LineRate);
        }
        if !(1..=QUEUE_FRAMES_MAX).contains(&self.queue_frames_max) {
            return Err(HostConfigError::QueueFrames(self.queue_frames_max));
        }
        for (place, stream) in self.streams.iter().enumerate() {
            if self.streams[..place].iter().any(|other| other.id == stream.id) {
                return Err(HostConfigError::SameStream(stream.id));
            }
            stream.check(self)?;
        }
        if let Some(place) = self.storms.iter().position(|storm| is_zero(storm.rate)) {
            return Err(HostConfigError::StormRate(place));
        }
        Ok(())
    }
}
