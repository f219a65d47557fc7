//! What a switch classifies a frame by, read in one pass over its leading bytes.

use super::vlan::{TAG_BYTES, TAGS_MAX, Tci, is_tag};
use super::{MacAddr, ethernet, ethertype};

/// One VLAN tag of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag {
    /// The EtherType that announced it: 8100, 88A8 or 9100.
    pub tpid: u16,
    /// Priority, drop eligibility and VLAN.
    pub tci: Tci,
}

/// The leading headers of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParsedFrame {
    /// The destination address.
    pub destination: MacAddr,
    /// The source address.
    pub source: MacAddr,
    /// All tags, outermost first; those from `tag_count` on are zero.
    tags: [Tag; TAGS_MAX],
    /// How many there are.
    tag_count: u8,
    /// The differentiated services byte of IPv4 or IPv6 (DSCP and ECN).
    ds_field: Option<u8>,
    /// The EtherType behind all tags; below 1536 it is the length field of an 802.3 frame.
    pub ethertype: u16,
    /// Where what the EtherType names begins, in bytes from the destination address.
    pub l3_offset: u8,
}

/// Why a frame cannot be classified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Shorter than an Ethernet header.
    #[error("shorter than an Ethernet header (14 bytes)")]
    Runt,
    /// The frame ends inside a VLAN tag.
    #[error("ends inside a VLAN tag")]
    TruncatedTag,
    /// A fifth VLAN tag.
    #[error("more than four VLAN tags")]
    TooManyTags,
}

impl ParsedFrame {
    /// The VLAN tags, outermost first.
    #[inline]
    pub fn tags(&self) -> &[Tag] {
        // `min` lets the compiler see that the slice is in bounds.
        &self.tags[..usize::from(self.tag_count).min(TAGS_MAX)]
    }

    /// The outermost tag.
    #[inline]
    pub fn outer_tag(&self) -> Option<Tag> {
        (self.tag_count > 0).then_some(self.tags[0])
    }

    /// The differentiated services code point (RFC 2474), 0 to 63, of IPv4 or IPv6.
    #[inline]
    pub fn dscp(&self) -> Option<u8> {
        self.ds_field.map(|field| field >> 2)
    }

    /// The explicit congestion notification bits (RFC 3168), 0 to 3, of IPv4 or IPv6.
    #[inline]
    pub fn ecn(&self) -> Option<u8> {
        self.ds_field.map(|field| field & 3)
    }
}

/// Reads the leading headers of a frame. `head` is the frame's start: at least 36 bytes of it (two
/// addresses, four tags, the type and two bytes), or all of it when it is shorter.
///
/// # Errors
/// The frame ends before its EtherType is known, or has more than four tags.
#[inline]
pub fn parse(head: &[u8]) -> Result<ParsedFrame, ParseError> {
    let Some((header, rest)) = head.split_first_chunk::<{ ethernet::HEADER_BYTES }>() else {
        return Err(ParseError::Runt);
    };
    let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1] = *header;
    let mut frame = ParsedFrame {
        destination: MacAddr([d0, d1, d2, d3, d4, d5]),
        source: MacAddr([s0, s1, s2, s3, s4, s5]),
        tags: [Tag::default(); TAGS_MAX],
        tag_count: 0,
        ds_field: None,
        ethertype: u16::from_be_bytes([t0, t1]),
        l3_offset: 14,
    };
    let l3 = if is_tag(frame.ethertype) { parse_tags(&mut frame, rest)? } else { rest };
    if let [first, second, ..] = l3 {
        frame.ds_field = match (frame.ethertype, first >> 4) {
            (ethertype::IPV4, 4) => Some(*second),
            (ethertype::IPV6, 6) => Some((first << 4) | (second >> 4)),
            _ => None,
        };
    }
    Ok(frame)
}

/// Takes the tags off `rest`, which begins behind the first tag's EtherType.
#[inline]
fn parse_tags<'a>(frame: &mut ParsedFrame, mut rest: &'a [u8]) -> Result<&'a [u8], ParseError> {
    for tag in &mut frame.tags {
        let Some(([c0, c1, t0, t1], behind)) = rest.split_first_chunk::<TAG_BYTES>() else {
            return Err(ParseError::TruncatedTag);
        };
        *tag = Tag { tpid: frame.ethertype, tci: Tci(u16::from_be_bytes([*c0, *c1])) };
        frame.tag_count += 1;
        frame.ethertype = u16::from_be_bytes([*t0, *t1]);
        frame.l3_offset += 4;
        rest = behind;
        if !is_tag(frame.ethertype) {
            return Ok(rest);
        }
    }
    Err(ParseError::TooManyTags)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MACS: [u8; 12] = [0x02, 0, 0, 0, 0, 0x0b, 0x02, 0, 0, 0, 0, 0x0a];

    fn frame(rest: &[u8]) -> Vec<u8> {
        [&MACS[..], rest].concat()
    }

    #[test]
    fn untagged_ipv4_with_dscp_46_and_ecn_1() {
        let parsed = parse(&frame(&[0x08, 0x00, 0x45, 0xb9, 0x00, 0x14])).expect("a frame");
        assert_eq!(parsed.destination, MacAddr([2, 0, 0, 0, 0, 0x0b]));
        assert_eq!(parsed.source, MacAddr([2, 0, 0, 0, 0, 0x0a]));
        assert_eq!((parsed.ethertype, parsed.l3_offset), (ethertype::IPV4, 14));
        assert_eq!((parsed.dscp(), parsed.ecn()), (Some(46), Some(1)));
        assert_eq!(parsed.tags(), []);
        assert_eq!(parsed.outer_tag(), None);
    }

    #[test]
    fn a_tagged_ipv6_frame_with_dscp_46_and_ecn_1() {
        let bytes =
            frame(&[0x88, 0xa8, 0xe0, 0x64, 0x81, 0x00, 0x00, 0x07, 0x86, 0xdd, 0x6b, 0x90]);
        let parsed = parse(&bytes).expect("a frame");
        let (outer, inner) = (Tci::new(7, false, 100), Tci::new(0, false, 7));
        assert_eq!(
            parsed.tags(),
            [Tag { tpid: 0x88a8, tci: outer }, Tag { tpid: 0x8100, tci: inner }]
        );
        assert_eq!(parsed.outer_tag().map(|tag| tag.tci), Some(outer));
        assert_eq!((parsed.ethertype, parsed.l3_offset), (ethertype::IPV6, 22));
        assert_eq!((parsed.dscp(), parsed.ecn()), (Some(46), Some(1)));
    }

    #[test]
    fn four_tags_pass_and_five_do_not() {
        let mut bytes = frame(&[0x91, 0x00]);
        for _ in 0..3 {
            bytes.extend([0x20, 0x01, 0x81, 0x00]);
        }
        let five = [&bytes[..], &[0x20, 0x01, 0x81, 0x00, 0, 1, 0x08, 0x00]].concat();
        bytes.extend([0x20, 0x01, 0x88, 0xb5]);
        let parsed = parse(&bytes).expect("four tags");
        assert_eq!((parsed.tags().len(), parsed.ethertype, parsed.l3_offset), (4, 0x88b5, 30));
        assert_eq!(parsed.dscp(), None);
        assert_eq!(parse(&five), Err(ParseError::TooManyTags));
    }

    #[test]
    fn short_frames_are_named() {
        assert_eq!(parse(&MACS), Err(ParseError::Runt));
        assert_eq!(parse(&frame(&[0x81, 0x00, 0, 1, 8])), Err(ParseError::TruncatedTag));
        // An IP header that is cut before its DSCP, or whose version is another, has none.
        assert_eq!(parse(&frame(&[8, 0, 0x45])).map(|f| f.dscp()), Ok(None));
        assert_eq!(parse(&frame(&[8, 0, 0x65, 0xb8])).map(|f| f.dscp()), Ok(None));
    }

    proptest! {
        #[test]
        fn no_byte_string_panics_and_etherparse_agrees(
            tags in proptest::collection::vec((0_usize..3, any::<u16>()), 0..6),
            rest in proptest::collection::vec(any::<u8>(), 0..24),
            cut in 0_usize..64,
        ) {
            let mut bytes = MACS.to_vec();
            for (kind, tci) in &tags {
                bytes.extend([0x8100_u16, 0x88a8, 0x9100][*kind].to_be_bytes());
                bytes.extend(tci.to_be_bytes());
            }
            bytes.extend(rest);
            bytes.truncate(cut);
            let ours = parse(&bytes);
            if let Ok(ours) = ours
                && ours.tags().len() <= 3
            {
                // etherparse reads at most three tags.
                let theirs = etherparse::LaxSlicedPacket::from_ethernet(&bytes).expect("14 bytes");
                prop_assert_eq!(theirs.vlan_ids().len(), ours.tags().len());
                for (a, b) in theirs.vlan_ids().iter().zip(ours.tags()) {
                    prop_assert_eq!(a.value(), b.tci.vid());
                }
                prop_assert_eq!(
                    theirs.ether_payload().map(|p| p.ether_type.0),
                    Some(ours.ethertype)
                );
            }
        }
    }
}
