//! One stream of numbered, time-stamped UDP frames.
//!
//! A frame is made when it is its turn on the line, however late that is, and carries its planned
//! send time: delays counted from it omit nothing that a stalled sender held back.

use std::net::IpAddr;

use super::config::{HostConfig, HostConfigError, SEGMENTS_MAX, StreamConfig};
use super::schedule::Schedule;
use crate::frame::{Frame, FrameStore, Payload};
use crate::rng::Rng;
use crate::time::Time;
use crate::wire::checksum::Sum;
use crate::wire::ethernet::{self, EthernetFrame, EthernetHeader};
use crate::wire::ipv4::{self, Ipv4Header};
use crate::wire::ipv6::{self, Ipv6Header, extension};
use crate::wire::srv6;
use crate::wire::stream::{self, StreamHeader};
use crate::wire::udp::{self, UdpHeader};
use crate::wire::vlan::{TAG_BYTES, Tci, VlanTag};
use crate::wire::{WireError, ethertype, protocol};

/// All headers of a tagged IPv6 frame with a path.
const HEADERS_BYTES_MAX: usize = ethernet::HEADER_BYTES
    + TAG_BYTES
    + ipv6::HEADER_BYTES
    + srv6::len_bytes(SEGMENTS_MAX - 1)
    + ipv6::HEADER_BYTES
    + udp::HEADER_BYTES
    + stream::HEADER_BYTES;

/// Hops that a frame may take.
const HOP_LIMIT: u8 = 64;

/// What frame `sequence` of stream `id` carries behind its headers, `len_bytes` long.
pub fn stream_payload(id: u32, sequence: u64, len_bytes: u32) -> Payload {
    let offset = sequence.wrapping_mul(u64::from(len_bytes));
    Payload { seed: u64::from(id), offset, len_bytes }
}

/// What a host has sent of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamSent {
    /// The stream's number.
    pub id: u32,
    /// Frames whose planned send time has come.
    pub planned: u64,
    /// Frames that were put on the line.
    pub sent: u64,
    /// Frames that were dropped before it: the queue was full, the link down, or the store empty.
    pub dropped: u64,
    /// Bytes of the frames that were sent, without FCS.
    pub bytes: u64,
    /// When the first bit of the first frame left.
    pub first_start: Option<Time>,
    /// When the last bit of the last frame left.
    pub last_end: Option<Time>,
}

/// The sender of one stream.
#[derive(Clone, Debug)]
pub(super) struct Source {
    /// All headers; sequence, planned time and UDP checksum differ from frame to frame.
    headers: [u8; HEADERS_BYTES_MAX],
    headers_bytes: usize,
    /// The UDP checksum's sum over everything that all frames have in common.
    sum: Sum,
    payload_bytes: u32,
    frame_bytes: u32,
    /// Its class, when that is lossless.
    lossless: Option<u8>,
    schedule: Schedule,
    sent: StreamSent,
}

impl Source {
    /// The sender of `stream` at `host`.
    pub(super) fn new(host: &HostConfig, stream: &StreamConfig) -> Result<Self, HostConfigError> {
        let rng = Rng::for_node(host.seed, &format!("{}/stream {}", host.name, stream.id));
        let mut headers = [0; HEADERS_BYTES_MAX];
        let (headers_bytes, sum) = write_headers(host, stream, &mut headers)
            .map_err(|error| HostConfigError::Headers { id: stream.id, error })?;
        let headers_len = u32::try_from(headers_bytes).unwrap_or(u32::MAX);
        Ok(Self {
            headers,
            headers_bytes,
            sum,
            payload_bytes: stream.frame_bytes.saturating_sub(headers_len),
            frame_bytes: stream.frame_bytes,
            lossless: Some(stream.priority & 7).filter(|class| host.lossless & 1 << class != 0),
            schedule: Schedule::new(&stream.into(), host.overhead_bytes, rng),
            sent: StreamSent {
                id: stream.id,
                planned: 0,
                sent: 0,
                dropped: 0,
                bytes: 0,
                first_start: None,
                last_end: None,
            },
        })
    }

    /// When the next frame is planned.
    pub(super) fn next_planned(&self) -> Time {
        self.schedule.next()
    }

    /// Its class, when that is lossless.
    pub(super) const fn lossless(&self) -> Option<u8> {
        self.lossless
    }

    pub(super) const fn frame_bytes(&self) -> u32 {
        self.frame_bytes
    }

    /// Counts the next frame as dropped.
    pub(super) fn drop_next(&mut self) {
        self.sent.dropped += 1;
        self.schedule.advance();
    }

    /// Makes the next frame; None, and a drop counted, when the store has no room.
    pub(super) fn make_next<S: FrameStore>(&mut self, store: &mut S) -> Option<Frame> {
        let id = self.sent.id;
        let header = StreamHeader {
            stream: id,
            sequence: self.sent.sent + self.sent.dropped,
            planned: self.schedule.next(),
        };
        let payload = stream_payload(id, header.sequence, self.payload_bytes);
        let headers = &mut self.headers[..self.headers_bytes];
        let (front, stream_header) =
            headers.split_at_mut(self.headers_bytes - stream::HEADER_BYTES);
        let mut sum = self.sum;
        if header.emit(stream_header).is_ok() {
            sum.add_bytes(stream_header);
        }
        sum.add_u16(payload.ones_complement_sum());
        if let Some(checksum) = front.last_chunk_mut() {
            *checksum = sum.udp_checksum().to_be_bytes();
        }
        let frame = store.allocate_with_payload(headers, payload);
        if frame.is_none() {
            self.sent.dropped += 1;
        }
        self.schedule.advance();
        frame
    }

    /// Counts the frame that was made last as on the line.
    pub(super) fn count_sent(&mut self, starts: Time, ends: Time) {
        self.sent.sent += 1;
        self.sent.bytes += u64::from(self.frame_bytes);
        self.sent.first_start.get_or_insert(starts);
        self.sent.last_end = Some(ends);
    }

    /// What was sent until `now`.
    pub(super) fn report(&self, now: Time) -> StreamSent {
        let begun = self.sent.sent + self.sent.dropped;
        StreamSent { planned: begun + self.schedule.planned_until(now, u64::MAX), ..self.sent }
    }

    /// Frames that were planned at or before `now` and are not sent, `frames_max` at most.
    pub(super) fn waiting(&self, now: Time, frames_max: u64) -> u64 {
        self.schedule.planned_until(now, frames_max)
    }
}

/// Writes all headers of a stream's frames, the stream header and UDP checksum left zero. Gives
/// their length and the UDP checksum's sum up to the stream header.
fn write_headers(
    host: &HostConfig,
    stream: &StreamConfig,
    headers: &mut [u8],
) -> Result<(usize, Sum), WireError> {
    let too_long = WireError::Malformed { header: "UDP", what: "longer than 65,535 bytes" };
    let total = stream.headers_bytes();
    let ip_bytes = if stream.target.ip.is_ipv6() { ipv6::HEADER_BYTES } else { ipv4::HEADER_BYTES };
    let udp_at = total - stream::HEADER_BYTES - udp::HEADER_BYTES;
    let ip_at = udp_at - ip_bytes;
    let before_udp = u32::try_from(udp_at).unwrap_or(u32::MAX);
    let datagram = u16::try_from(stream.frame_bytes.saturating_sub(before_udp));
    let datagram_bytes = datagram.map_err(|_| too_long)?;

    let is_ipv6 = stream.target.ip.is_ipv6() || !stream.segments.is_empty();
    let ip_type = if is_ipv6 { ethertype::IPV6 } else { ethertype::IPV4 };
    let mut frame = EthernetFrame::new_checked(&mut headers[..])?;
    EthernetHeader {
        destination: stream.target.mac,
        source: host.mac,
        ethertype: if stream.target.vlan.is_some() { ethertype::VLAN } else { ip_type },
    }
    .emit(&mut frame);
    if let Some((vid, pcp)) = stream.target.vlan {
        let mut tag = VlanTag::new_checked(frame.payload_mut())?;
        tag.set_tci(Tci::new(pcp, false, vid));
        tag.set_ethertype(ip_type);
    }
    if !stream.segments.is_empty() {
        let outer = &mut headers[ip_at - stream.outer_bytes()..ip_at];
        let inner_bytes = usize::from(datagram_bytes) + ip_bytes;
        write_outer(host, stream, u16::try_from(inner_bytes).map_err(|_| too_long)?, outer)?;
    }
    let udp_len = u32::from(datagram_bytes);
    let (ip, behind) = headers[ip_at..total].split_at_mut(ip_bytes);
    let mut sum = match (stream.target.ip, host.ipv4, host.ipv6) {
        (IpAddr::V4(destination), Some((source, _)), _) => {
            let header = Ipv4Header {
                source,
                destination,
                protocol: protocol::UDP,
                ttl: HOP_LIMIT,
                dscp: stream.dscp,
                ecn: stream.ecn,
                // Of a packet that is never fragmented the number says nothing (RFC 6864).
                identification: 0,
                dont_fragment: true,
                payload_bytes: datagram_bytes,
            };
            header.emit(ip)?;
            Sum::pseudo_v4(source, destination, protocol::UDP, udp_len)
        }
        (IpAddr::V6(destination), _, Some((source, _))) => {
            let header = Ipv6Header {
                source,
                destination,
                next_header: protocol::UDP,
                hop_limit: HOP_LIMIT,
                dscp: stream.dscp,
                ecn: stream.ecn,
                flow_label: 0,
                payload_bytes: datagram_bytes,
            };
            header.emit(ip)?;
            Sum::pseudo_v6(source, destination, protocol::UDP, udp_len)
        }
        _ => {
            let what = "the host has no address of the target's family";
            return Err(WireError::Malformed { header: "IP", what });
        }
    };
    let udp = UdpHeader {
        source_port: stream.source_port,
        destination_port: stream.destination_port,
        payload_bytes: datagram_bytes.saturating_sub(8),
    };
    udp.emit(behind)?;
    sum.add_bytes(&behind[..udp::HEADER_BYTES]);
    Ok((total, sum))
}

/// Writes the outer header and the SRH of a stream that has a path, before a packet of
/// `inner_bytes` bytes.
fn write_outer(
    host: &HostConfig,
    stream: &StreamConfig,
    inner_bytes: u16,
    outer: &mut [u8],
) -> Result<(), WireError> {
    let what = "an outer header needs a path and an IPv6 address";
    let ([first, others @ ..], Some((source, _))) = (stream.segments.as_slice(), host.ipv6) else {
        return Err(WireError::Malformed { header: "IPv6", what });
    };
    let inner = if stream.target.ip.is_ipv6() { protocol::IPV6 } else { protocol::IPV4 };
    let srh_bytes = outer.len() - ipv6::HEADER_BYTES;
    let header = Ipv6Header {
        source,
        destination: *first,
        next_header: if others.is_empty() { inner } else { extension::ROUTING },
        hop_limit: HOP_LIMIT,
        dscp: stream.dscp,
        ecn: stream.ecn,
        flow_label: u32::from(stream.source_port),
        payload_bytes: inner_bytes.saturating_add(u16::try_from(srh_bytes).unwrap_or(u16::MAX)),
    };
    header.emit(outer)?;
    if !others.is_empty() {
        srv6::emit_reduced(others, inner, &mut outer[ipv6::HEADER_BYTES..])?;
    }
    Ok(())
}
