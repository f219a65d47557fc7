//! The frames that measure: an Ethernet or UDP header, the stream header, a payload that is known.

use std::net::Ipv4Addr;

use crate::frame::{Frame, FrameStore, Payload};
use crate::time::Time;
use crate::wire::ethernet::{self, EthernetFrame, EthernetHeader};
use crate::wire::ipv4::{self, Ipv4Header};
use crate::wire::stream::{self, StreamHeader};
use crate::wire::udp::{self, UdpHeader};
use crate::wire::{MacAddr, WireError, ethertype, protocol};

/// EtherType of probes without IP: local experimental 1 (IEEE 802 clause 9.2.4), which no stack
/// answers and every bridge forwards.
pub const PROBE_ETHERTYPE: u16 = 0x88b5;

/// UDP port of probes, both ways: discard (RFC 863).
pub const PROBE_UDP_PORT: u16 = 9;

/// How far 802.3's FCS makes a frame longer than what a port is handed.
pub const FCS_BYTES: u32 = 4;

/// What carries a probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Carrier {
    /// Ethernet alone: fits 64-byte frames, passes bridges.
    #[default]
    Ethernet,
    /// UDP over IPv4, to pass routers: at least 70 bytes with FCS.
    Udp {
        /// The source address.
        source: Ipv4Addr,
        /// The destination address.
        destination: Ipv4Addr,
    },
}

impl Carrier {
    /// Bytes before the stream header.
    pub const fn header_bytes(self) -> usize {
        match self {
            Self::Ethernet => ethernet::HEADER_BYTES,
            Self::Udp { .. } => ethernet::HEADER_BYTES + ipv4::HEADER_BYTES + udp::HEADER_BYTES,
        }
    }

    /// The least frame without FCS that holds the headers, and is not shorter than Ethernet's.
    pub fn frame_bytes_min(self) -> u32 {
        let headers = self.header_bytes() + stream::HEADER_BYTES;
        u32::try_from(headers).unwrap_or(u32::MAX).max(crate::line::FRAME_BYTES_MIN)
    }
}

/// The probes of one stream: the same bytes but for number and planned time.
#[derive(Clone, Debug)]
pub struct Probe {
    stream: u32,
    carrier: Carrier,
    bytes: Vec<u8>,
}

/// What a frame that came in is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A probe of this stream, with its payload as it was sent or not.
    Probe {
        /// Its header.
        header: StreamHeader,
        /// Whether every byte behind the header is what was sent.
        content_right: bool,
    },
    /// A probe of another stream: late from an earlier trial, or somebody else's.
    OtherStream,
    /// Something else.
    Foreign,
}

impl Probe {
    /// Probes of `frame_bytes` bytes without FCS.
    ///
    /// # Errors
    /// When the headers do not fit, or the frame is longer than IPv4 can say.
    pub fn new(
        stream: u32,
        carrier: Carrier,
        source: MacAddr,
        destination: MacAddr,
        frame_bytes: u32,
    ) -> Result<Self, WireError> {
        let length = usize::try_from(frame_bytes.max(carrier.frame_bytes_min())).unwrap_or(0);
        let mut bytes = vec![0; length];
        let ethertype = match carrier {
            Carrier::Ethernet => PROBE_ETHERTYPE,
            Carrier::Udp { .. } => ethertype::IPV4,
        };
        EthernetHeader { destination, source, ethertype }
            .emit(&mut EthernetFrame::new_checked(&mut bytes[..])?);
        if let Carrier::Udp { source, destination } = carrier {
            let packet = &mut bytes[ethernet::HEADER_BYTES..];
            let too_long =
                WireError::Malformed { header: "IPv4", what: "longer than 65,535 bytes" };
            let payload = u16::try_from(packet.len() - ipv4::HEADER_BYTES).map_err(|_| too_long)?;
            Ipv4Header {
                source,
                destination,
                protocol: protocol::UDP,
                ttl: 64,
                dscp: 0,
                ecn: 0,
                identification: 0,
                dont_fragment: true,
                payload_bytes: payload,
            }
            .emit(packet)?;
            // The UDP checksum stays 0, none: the payload is compared byte by byte.
            UdpHeader {
                source_port: PROBE_UDP_PORT,
                destination_port: PROBE_UDP_PORT,
                payload_bytes: payload - 8,
            }
            .emit(&mut packet[ipv4::HEADER_BYTES..])?;
        }
        let at = carrier.header_bytes();
        let (_, behind) = bytes.split_at_mut(at + stream::HEADER_BYTES);
        payload(stream, behind.len()).fill(behind);
        Ok(Self { stream, carrier, bytes })
    }

    /// The stream's number.
    pub const fn stream(&self) -> u32 {
        self.stream
    }

    /// Bytes of each frame, without FCS.
    pub fn frame_bytes(&self) -> u32 {
        u32::try_from(self.bytes.len()).unwrap_or(u32::MAX)
    }

    /// The frame of number `sequence`; None when the store is full.
    pub fn make<S: FrameStore>(
        &mut self,
        store: &mut S,
        sequence: u64,
        planned: Time,
    ) -> Option<Frame> {
        let at = self.carrier.header_bytes();
        let header = StreamHeader { stream: self.stream, sequence, planned };
        // `new` made room for the header.
        header.emit(&mut self.bytes[at..]).ok()?;
        store.allocate_from(&self.bytes)
    }

    /// What `frame` is to this stream.
    pub fn look<S: FrameStore>(&self, store: &S, frame: &Frame) -> Seen {
        let at = self.carrier.header_bytes();
        let Some(header) = read_probe(store.head(frame), self.carrier) else {
            return Seen::Foreign;
        };
        if header.stream != self.stream {
            return Seen::OtherStream;
        }
        let from = u32::try_from(at + stream::HEADER_BYTES).unwrap_or(u32::MAX);
        let content_right = frame.len_bytes() == self.frame_bytes()
            && store.payload_matches(
                frame,
                from,
                payload(self.stream, self.bytes.len() - at - stream::HEADER_BYTES),
            );
        Seen::Probe { header, content_right }
    }
}

/// The stream header of a probe on `carrier`; None when the frame is something else.
pub fn read_probe(head: &[u8], carrier: Carrier) -> Option<StreamHeader> {
    let expected = match carrier {
        Carrier::Ethernet => PROBE_ETHERTYPE,
        Carrier::Udp { .. } => ethertype::IPV4,
    };
    let frame = EthernetFrame::new_checked(head).ok()?;
    if frame.ethertype() != expected {
        return None;
    }
    StreamHeader::read(head.get(carrier.header_bytes()..)?).ok()
}

fn payload(stream: u32, len: usize) -> Payload {
    Payload {
        seed: u64::from(stream),
        offset: 0,
        len_bytes: u32::try_from(len).unwrap_or(u32::MAX),
    }
}

/// Turns a probe around: exchanges its addresses, whatever carries it. False when it is none.
pub fn turn_around(head: &mut [u8]) -> bool {
    let udp = Carrier::Udp { source: Ipv4Addr::UNSPECIFIED, destination: Ipv4Addr::UNSPECIFIED };
    let is_udp = read_probe(head, udp).is_some();
    if !is_udp && read_probe(head, Carrier::Ethernet).is_none() {
        return false;
    }
    let (destination, rest) = head.split_at_mut(6);
    destination.swap_with_slice(&mut rest[..6]);
    if is_udp {
        // Exchanging source and destination leaves every checksum as it is.
        let (source, rest) = head[26..].split_at_mut(4);
        source.swap_with_slice(&mut rest[..4]);
        let (source, rest) = head[34..].split_at_mut(2);
        source.swap_with_slice(&mut rest[..2]);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::SlabStore;

    const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x0a]);
    const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x0b]);
    const UDP: Carrier = Carrier::Udp {
        source: Ipv4Addr::new(198, 18, 0, 1),
        destination: Ipv4Addr::new(198, 19, 0, 1),
    };

    fn bytes_of(store: &SlabStore, frame: &Frame) -> Vec<u8> {
        let mut bytes = Vec::new();
        store.copy_out(frame, &mut bytes);
        bytes
    }

    #[test]
    fn a_probe_of_64_bytes_with_fcs_holds_its_headers() {
        let mut store = SlabStore::new(64);
        let mut probe = Probe::new(9, Carrier::Ethernet, A, B, 60).expect("fits");
        let frame = probe.make(&mut store, 256, Time::from_ns(1)).expect("room");
        let bytes = bytes_of(&store, &frame);
        assert_eq!(bytes.len(), 60);
        assert_eq!(bytes[..14], [2, 0, 0, 0, 0, 0x0b, 2, 0, 0, 0, 0, 0x0a, 0x88, 0xb5]);
        assert_eq!(bytes[14..18], stream::MAGIC);
        let header = StreamHeader { stream: 9, sequence: 256, planned: Time::from_ns(1) };
        assert_eq!(probe.look(&store, &frame), Seen::Probe { header, content_right: true });
        let other = Probe::new(8, Carrier::Ethernet, A, B, 60).expect("fits");
        assert_eq!(other.look(&store, &frame), Seen::OtherStream);
        store.release(frame);
    }

    #[test]
    fn a_changed_or_cut_payload_is_seen() {
        let mut store = SlabStore::new(64);
        let mut probe = Probe::new(1, UDP, A, B, 900).expect("fits");
        let mut frame = probe.make(&mut store, 0, Time::ZERO).expect("room");
        let changed = bytes_of(&store, &frame)[899] ^ 1;
        store.write(&mut frame, 899, &[changed]);
        let seen = probe.look(&store, &frame);
        assert!(matches!(seen, Seen::Probe { content_right: false, .. }), "{seen:?}");
        store.release(frame);
        let mut frame = probe.make(&mut store, 0, Time::ZERO).expect("room");
        store.truncate(&mut frame, 400);
        let seen = probe.look(&store, &frame);
        assert!(matches!(seen, Seen::Probe { content_right: false, .. }), "{seen:?}");
        store.release(frame);
        let arp = store.allocate_from(&[0xff; 60]).expect("room");
        assert_eq!(probe.look(&store, &arp), Seen::Foreign);
        store.release(arp);
    }

    #[test]
    fn turned_around_udp_still_checks_for_an_independent_reader() {
        let mut store = SlabStore::new(64);
        let mut probe = Probe::new(3, UDP, A, B, 200).expect("fits");
        let mut frame = probe.make(&mut store, 7, Time::ZERO).expect("room");
        assert!(turn_around(store.head_mut(&mut frame)));
        let bytes = bytes_of(&store, &frame);
        let parsed = etherparse::SlicedPacket::from_ethernet(&bytes).expect("parses");
        let Some(etherparse::NetSlice::Ipv4(ip)) = &parsed.net else { panic!("IPv4") };
        assert_eq!(ip.header().source_addr(), Ipv4Addr::new(198, 19, 0, 1));
        assert_eq!(ip.header().destination_addr(), Ipv4Addr::new(198, 18, 0, 1));
        assert_eq!(ip.header().header_checksum(), ip.header().to_header().calc_header_checksum());
        assert_eq!(bytes[..12], [A.0, B.0].concat());
        assert!(matches!(probe.look(&store, &frame), Seen::Probe { content_right: true, .. }));
        store.release(frame);
        assert!(!turn_around(&mut [0; 60]));
        assert!(!turn_around(&mut [0; 5]));
    }
}
