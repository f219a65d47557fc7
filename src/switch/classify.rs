//! What the pipeline reads of a frame: addresses, VLAN tags and the field that gives the priority.

use super::config::{SwitchConfig, Trust};
use super::port::Port;
use super::vlan::VLAN_MASK;
use crate::ledger::DropReason;
use crate::wire::ethertype;

/// Bytes of an Ethernet header without tags.
pub(super) const ETHERNET_BYTES: u32 = 14;

/// Bytes of a VLAN tag.
pub(super) const TAG_BYTES: u32 = 4;

/// Deeper stacks than this are refused.
const TAGS_MAX: u32 = 4;

const TPID_CUSTOMER: u16 = 0x8100;
const TPID_SERVICE: u16 = 0x88a8;
/// In use for stacked tags before IEEE 802.1ad.
const TPID_STACKED: u16 = 0x9100;
/// What no plain frame has: a tag, or a message for the MAC itself.
const NOT_PLAIN: [u64; 4] =
    [TPID_CUSTOMER as u64, TPID_SERVICE as u64, TPID_STACKED as u64, ethertype::MAC_CONTROL as u64];
const ETHER_TYPE_IPV4: u16 = 0x0800;
const ETHER_TYPE_IPV6: u16 = 0x86dd;

/// Set in a group address.
const GROUP_BIT: u64 = 1 << 40;

/// The addresses of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Addresses {
    /// Destination address in the low 48 bits.
    pub(super) destination: u64,
    /// Source address in the low 48 bits.
    pub(super) source: u64,
}

/// The VLAN tags of a frame: their number in the upper half, in the lower the tag control
/// information of the outer one: PCP (3 bits), DEI (1), VLAN (12).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tags(u32);

impl Tags {
    pub(super) const NONE: Self = Self(0);

    pub(super) const fn new(outer: u16, count: u32) -> Self {
        Self(count << 16 | outer as u32)
    }

    #[inline]
    pub(super) const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Tag control information of the outer tag.
    #[inline]
    pub(super) const fn outer(self) -> Option<u16> {
        let [_, _, high, low] = self.0.to_be_bytes();
        if self.is_none() { None } else { Some(u16::from_be_bytes([high, low])) }
    }

    /// The VLAN of the outer tag; None without one, and when it carries a priority alone.
    #[inline]
    pub(super) const fn vlan(self) -> Option<u16> {
        let [_, _, high, low] = self.0.to_be_bytes();
        match u16::from_be_bytes([high, low]) & VLAN_MASK {
            0 => None,
            vlan => Some(vlan),
        }
    }

    /// The same tags with another PCP in the outer one, which is also written into the frame that
    /// begins with `head`.
    pub(super) fn with_pcp(self, head: &mut [u8], pcp: u8) -> Self {
        let Some(outer) = self.outer() else { return self };
        let outer = outer & 0x1fff | u16::from(pcp & 7) << 13;
        if let Some(tci) = head.get_mut(14..16) {
            tci.copy_from_slice(&outer.to_be_bytes());
        }
        Self::new(outer, self.count())
    }

    /// The number of tags.
    #[inline]
    pub(super) const fn count(self) -> u32 {
        self.0 >> 16
    }

    /// Bytes of all tags.
    #[inline]
    pub(super) const fn bytes(self) -> u32 {
        self.count() * TAG_BYTES
    }
}

const fn is_tag(ether_type: u16) -> bool {
    matches!(ether_type, TPID_CUSTOMER | TPID_SERVICE | TPID_STACKED)
}

/// Reads the addresses of a frame.
///
/// # Errors
/// [`DropReason::Runt`] below 14 bytes.
#[inline(always)]
pub(super) fn parse(head: &[u8]) -> Result<Addresses, DropReason> {
    // Overlapping reads of eight bytes: the addresses with two bytes of what follows each.
    let (Some(from_0), Some(from_6)) =
        (head.first_chunk::<8>(), head.get(6..14).and_then(|bytes| bytes.first_chunk::<8>()))
    else {
        return Err(DropReason::Runt);
    };
    Ok(Addresses {
        destination: u64::from_be_bytes(*from_0) >> 16,
        source: u64::from_be_bytes(*from_6) >> 16,
    })
}

/// Reads the addresses of a frame without tags between two stations; None for every other frame.
#[inline(always)]
pub(super) fn parse_plain(head: &[u8]) -> Option<Addresses> {
    let (from_0, from_6) = (head.first_chunk::<8>()?, head.get(6..14)?.first_chunk::<8>()?);
    let destination = u64::from_be_bytes(*from_0);
    let source = u64::from_be_bytes(*from_6);
    if (destination | source) & GROUP_BIT << 16 != 0 {
        return None;
    }
    // IPv4 and ARP are below 0x8000, these are not.
    if source & 0x8000 != 0 && NOT_PLAIN.contains(&(source & 0xffff)) {
        return None;
    }
    Some(Addresses { destination: destination >> 16, source: source >> 16 })
}

/// The addresses of a frame between two stations, and the type behind them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stations {
    /// Destination address in the low 48 bits.
    destination: u64,
    /// Source address in the upper 48 bits, the type in the lower 16.
    source_and_type: u64,
}

impl Stations {
    #[inline(always)]
    pub(super) const fn addresses(&self) -> Addresses {
        Addresses { destination: self.destination, source: self.source_and_type >> 16 }
    }

    #[inline(always)]
    const fn ether_type(&self) -> u16 {
        let [.., high, low] = self.source_and_type.to_be_bytes();
        u16::from_be_bytes([high, low])
    }

    /// Whether the frame has no tag and is not for the MAC itself.
    #[inline(always)]
    pub(super) fn are_untagged(&self) -> bool {
        // IPv4 and ARP are below 0x8000, these are not.
        self.source_and_type & 0x8000 == 0 || !NOT_PLAIN.contains(&(self.source_and_type & 0xffff))
    }
}

/// Reads the addresses of a frame between two stations; None for every other frame.
#[inline(always)]
pub(super) fn parse_stations(head: &[u8]) -> Option<Stations> {
    let (from_0, from_6) = (head.first_chunk::<8>()?, head.get(6..14)?.first_chunk::<8>()?);
    let destination = u64::from_be_bytes(*from_0);
    let source_and_type = u64::from_be_bytes(*from_6);
    if (destination | source_and_type) & GROUP_BIT << 16 != 0 {
        return None;
    }
    Some(Stations { destination: destination >> 16, source_and_type })
}

/// The only tag of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct SingleTag {
    tag: u16,
    /// The type behind it.
    ether_type: u16,
}

impl SingleTag {
    /// Its VLAN, which is not 0.
    #[inline(always)]
    pub(super) const fn vlan(self) -> u16 {
        self.tag & VLAN_MASK
    }

    #[inline(always)]
    pub(super) const fn tags(self) -> Tags {
        Tags::new(self.tag, 1)
    }
}

/// Reads the tag of a frame that has one, with a VLAN; None for every other frame.
#[inline(always)]
pub(super) fn parse_tag(stations: &Stations, head: &[u8]) -> Option<SingleTag> {
    if !is_tag(stations.ether_type()) {
        return None;
    }
    let [tag_0, tag_1, type_0, type_1] = *head.get(14..18)?.first_chunk()?;
    let tag = u16::from_be_bytes([tag_0, tag_1]);
    let ether_type = u16::from_be_bytes([type_0, type_1]);
    if tag & VLAN_MASK == 0 || ether_type & 0x8000 != 0 && is_tag(ether_type) {
        return None;
    }
    Some(SingleTag { tag, ether_type })
}

/// Whether the frame has VLAN tags; false where it ends before.
#[inline]
pub(super) fn is_tagged(head: &[u8]) -> bool {
    match head.get(12..14) {
        // IPv4 and ARP are below 0x8000, the tags are not.
        Some(&[high, _]) if high & 0x80 == 0 => false,
        Some(&[high, low]) => is_tag(u16::from_be_bytes([high, low])),
        _ => false,
    }
}

/// Reads the tags of a tagged frame.
///
/// # Errors
/// [`DropReason::Malformed`] when the tags do not end within the frame or are more than four.
pub(super) fn parse_tags(head: &[u8]) -> Result<Tags, DropReason> {
    let mut rest = head.get(14..).ok_or(DropReason::Malformed)?;
    let mut outer = None;
    let mut tags = 0;
    loop {
        let ([c0, c1, t0, t1], behind) =
            rest.split_first_chunk::<4>().ok_or(DropReason::Malformed)?;
        let outer = *outer.get_or_insert_with(|| u16::from_be_bytes([*c0, *c1]));
        tags += 1;
        if tags > TAGS_MAX {
            return Err(DropReason::Malformed);
        }
        let ether_type = u16::from_be_bytes([*t0, *t1]);
        if !is_tag(ether_type) {
            return Ok(Tags::new(outer, tags));
        }
        rest = behind;
    }
}

impl Addresses {
    /// Whether the destination is a group address.
    pub(super) const fn is_to_group(&self) -> bool {
        self.destination & GROUP_BIT != 0
    }

    /// Whether the source is a group address, which no station may have.
    pub(super) const fn is_from_group(&self) -> bool {
        self.source & GROUP_BIT != 0
    }

    /// Whether the destination is one of 01:80:C2:00:00:00 to 0F.
    pub(super) const fn is_to_link_local(&self) -> bool {
        self.destination >> 4 == 0x0180_c200_0000 >> 4
    }
}

/// A frame's priority and, in the lower half, the queue of that priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Class(u16);

impl Class {
    #[inline]
    pub(super) const fn priority(self) -> u8 {
        self.0.to_be_bytes()[0]
    }

    /// Below 8.
    #[inline]
    pub(super) const fn queue(self) -> u32 {
        self.0 as u32 & 7
    }
}

/// The classes of a frame's fields.
#[derive(Clone, Debug)]
pub(super) struct Classifier {
    of_pcp: [Class; 8],
    of_dscp: [Class; 64],
    of_priority: [Class; 8],
}

impl Classifier {
    pub(super) fn new(config: &SwitchConfig) -> Self {
        let class = |priority: u8| {
            let queue = config.priority_to_queue[usize::from(priority & 7)] & 7;
            Class(u16::from_be_bytes([priority, queue]))
        };
        Self {
            of_pcp: config.pcp_to_priority.map(class),
            of_dscp: config.dscp_to_priority.map(class),
            of_priority: [0, 1, 2, 3, 4, 5, 6, 7].map(class),
        }
    }

    /// The class of a frame that came by a port with this trust and default class.
    #[inline(always)]
    pub(super) fn classify(&self, trust: Trust, default: Class, tags: Tags, head: &[u8]) -> Class {
        match (trust, tags.outer()) {
            (Trust::Pcp, Some(tag)) => self.of_pcp[usize::from(tag >> 13)],
            (Trust::Dscp, _) => {
                dscp(tags, head).map_or(default, |dscp| self.of_dscp[usize::from(dscp & 63)])
            }
            _ => default,
        }
    }

    /// [`classify`](Self::classify) of a frame without tag.
    #[inline(always)]
    pub(super) fn class_untagged(&self, port: &Port, stations: &Stations, head: &[u8]) -> Class {
        if port.trust != Trust::Dscp {
            return port.default_class;
        }
        self.class_by_dscp(stations.ether_type(), head.get(14..16), port.default_class)
    }

    /// [`classify`](Self::classify) of a frame with one tag.
    #[inline(always)]
    pub(super) fn class_tagged(&self, port: &Port, tag: SingleTag, head: &[u8]) -> Class {
        match port.trust {
            Trust::Pcp => self.of_pcp[usize::from(tag.tag >> 13)],
            Trust::Dscp => self.class_by_dscp(tag.ether_type, head.get(18..20), port.default_class),
            Trust::Port => port.default_class,
        }
    }

    /// The class that the first two bytes of a packet name.
    #[inline(always)]
    fn class_by_dscp(&self, ether_type: u16, first: Option<&[u8]>, default: Class) -> Class {
        let Some(&[first, second]) = first else { return default };
        let dscp = match ether_type {
            ETHER_TYPE_IPV4 => second >> 2,
            ETHER_TYPE_IPV6 => (first & 0x0f) << 2 | second >> 6,
            _ => return default,
        };
        self.of_dscp[usize::from(dscp & 63)]
    }

    /// A priority with its queue.
    pub(super) fn class(&self, priority: u8) -> Class {
        self.of_priority[usize::from(priority & 7)]
    }
}

/// The differentiated services code point (RFC 2474) of an IP packet.
#[inline(always)]
fn dscp(tags: Tags, head: &[u8]) -> Option<u8> {
    let type_at = (ETHERNET_BYTES + tags.bytes()) as usize - 2;
    let [t0, t1, first, second] = *head.get(type_at..)?.first_chunk::<4>()?;
    match u16::from_be_bytes([t0, t1]) {
        ETHER_TYPE_IPV4 => Some(second >> 2),
        // Traffic class spans the low half of the first octet and the high half of the second.
        ETHER_TYPE_IPV6 => Some((first & 0x0f) << 2 | second >> 6),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::PortId;
    use crate::switch::config::PortConfig;
    use crate::units::Rate;
    use crate::wire::MacAddr;
    use crate::wire::pfc::is_mac_control;
    use proptest::prelude::*;

    const MACS: [u8; 12] = [0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2];

    fn frame(rest: &[u8]) -> Vec<u8> {
        let mut bytes = MACS.to_vec();
        bytes.extend_from_slice(rest);
        bytes
    }

    fn read_tags(bytes: &[u8]) -> Result<Tags, DropReason> {
        if is_tagged(bytes) { parse_tags(bytes) } else { Ok(Tags::NONE) }
    }

    #[test]
    fn literal_frames_read_as_written() {
        let headers = parse(&frame(&[0x08, 0x00, 0x45, 0xb8])).expect("untagged IPv4");
        assert_eq!(headers.destination, 0x0200_0000_0001);
        assert_eq!(headers.source, 0x0200_0000_0002);
        assert!(!is_tagged(&frame(&[0x08, 0x00, 0x45, 0xb8])));

        let stacked = frame(&[0x88, 0xa8, 0xa0, 0x64, 0x81, 0x00, 0x00, 0x07, 0x86, 0xdd]);
        let tags = read_tags(&stacked).expect("two tags");
        assert_eq!((tags.outer(), tags.count(), tags.bytes()), (Some(0xa064), 2, 8));
    }

    #[test]
    fn tags_that_do_not_end_are_malformed() {
        assert_eq!(parse(&MACS), Err(DropReason::Runt));
        assert_eq!(read_tags(&frame(&[0x81, 0x00])), Err(DropReason::Malformed));
        assert_eq!(read_tags(&frame(&[0x81, 0x00, 0, 1, 8])), Err(DropReason::Malformed));
        let four: Vec<u8> = [0x81, 0x00, 0x00, 0x01].repeat(4);
        let mut bytes = frame(&four);
        bytes.extend_from_slice(&[0x08, 0x00]);
        assert_eq!(read_tags(&bytes).map(Tags::count), Ok(4));
        let mut bytes = frame(&[0x81, 0x00, 0x00, 0x01].repeat(5));
        bytes.extend_from_slice(&[0x08, 0x00]);
        assert_eq!(read_tags(&bytes), Err(DropReason::Malformed));
    }

    #[test]
    fn priority_comes_from_the_trusted_field() {
        let mut config = SwitchConfig::new("s", Vec::new());
        config.pcp_to_priority[5] = 6;
        config.dscp_to_priority[46] = 3;
        let classifier = Classifier::new(&config);
        let read = |trust, rest: &[u8]| {
            let bytes = frame(rest);
            let tags = read_tags(&bytes).expect("a frame");
            classifier.classify(trust, classifier.class(1), tags, &bytes).priority()
        };
        // DSCP 46 with ECN bits set; PCP 5.
        let v4 = [0x81, 0x00, 0xa0, 0x01, 0x08, 0x00, 0x45, 46 << 2 | 3];
        let v6 = [0x86, 0xdd, 0x6b, 0x9f, 0, 0];
        assert_eq!(read(Trust::Pcp, &v4), 6);
        assert_eq!(read(Trust::Dscp, &v4), 3);
        assert_eq!(read(Trust::Port, &v4), 1);
        assert_eq!(read(Trust::Pcp, &v6), 1, "no tag: the port's default");
        assert_eq!(read(Trust::Dscp, &v6), 3);
        assert_eq!(read(Trust::Dscp, &[0x08, 0x06, 0, 1]), 1, "ARP has no DSCP");
        assert_eq!(read(Trust::Dscp, &[0x08, 0x00, 0x45]), 1, "cut before the field");
    }

    /// Types and bytes that the ways through the switch tell apart.
    fn byte() -> impl Strategy<Value = u8> {
        prop_oneof![
            Just(0x81),
            Just(0),
            Just(8),
            Just(0x88),
            Just(0xa8),
            Just(0x86),
            Just(0xdd),
            any::<u8>()
        ]
    }

    proptest! {
        #[test]
        fn the_short_way_reads_what_the_long_way_reads(
            bytes in proptest::collection::vec(byte(), 10..24),
            tag_first: bool,
            trust in prop_oneof![Just(Trust::Pcp), Just(Trust::Dscp), Just(Trust::Port)],
        ) {
            let mut config = SwitchConfig::new("s", Vec::new());
            for (n, priority) in (0..).zip(&mut config.dscp_to_priority) {
                *priority = n % 8 * 5 % 8;
            }
            config.pcp_to_priority = [3, 1, 4, 1, 5, 2, 6, 0];
            let classifier = Classifier::new(&config);
            let mut port = PortConfig::new("1", MacAddr([2, 0, 0, 0, 0, 9]), Rate::from_gbps(1));
            port.trust = trust;
            let port = Port::new(&port, PortId(0), classifier.class(7), 24, true);
            let mut head = MACS.to_vec();
            if tag_first {
                head.extend([0x81, 0x00]);
            }
            head.extend(bytes);
            let long = parse(&head).expect("long enough");
            let tags = read_tags(&head);
            let short = parse_stations(&head).expect("two stations");
            prop_assert_eq!(short.addresses(), long);
            prop_assert_eq!(short.are_untagged(), !is_tagged(&head) && !is_mac_control(&head));
            let class = |tags| classifier.classify(trust, port.default_class, tags, &head);
            if short.are_untagged() {
                prop_assert_eq!(classifier.class_untagged(&port, &short, &head), class(Tags::NONE));
            } else if let Some(tag) = parse_tag(&short, &head) {
                let tags = tags.expect("a tag");
                prop_assert_eq!((tag.tags(), Some(tag.vlan())), (tags, tags.vlan()));
                prop_assert_eq!(classifier.class_tagged(&port, tag, &head), class(tags));
            } else if let Ok(tags) = tags {
                prop_assert!(tags.count() != 1 || tags.vlan().is_none());
            }
        }
    }
}
