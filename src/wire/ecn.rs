//! Explicit congestion notification of a frame's outer IP header (RFC 3168), in place: read, and
//! set to congestion experienced, through VLAN tags, with the checksum of IPv4 kept.

use super::vlan::{TAG_BYTES, TAGS_MAX, is_tag};
use super::{checksum, ethernet, ethertype};

/// The two bits of the field (RFC 3168 section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ecn {
    /// 00: the ends do not react to marks.
    NotEct,
    /// 01: they do; also what L4S senders set (RFC 9331).
    Ect1,
    /// 10: they do.
    Ect0,
    /// 11: congestion was experienced on the way.
    Ce,
}

impl Ecn {
    /// The field of the lower two bits.
    pub const fn of_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }

    /// Whether a mark reaches somebody who reacts to it, or has been made.
    pub const fn is_capable(self) -> bool {
        !matches!(self, Self::NotEct)
    }
}

/// The first two bytes of a frame's outer IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Differentiated {
    /// Where the IP header begins, in bytes from the destination address.
    at: usize,
    is_v6: bool,
    /// The differentiated services byte: the code point and the two ECN bits.
    field: u8,
}

impl Differentiated {
    /// Finds the IP header behind up to four VLAN tags; None when the frame is not IPv4 or IPv6, or
    /// ends before the header does.
    #[inline]
    pub fn find(head: &[u8]) -> Option<Self> {
        let mut at = ethernet::HEADER_BYTES;
        for _ in 0..=TAGS_MAX {
            let [t0, t1, first, second] = *head.get(at - 2..)?.first_chunk::<4>()?;
            let ethertype = u16::from_be_bytes([t0, t1]);
            if is_tag(ethertype) {
                at += TAG_BYTES;
                continue;
            }
            let rest = head.len() - at;
            return match (ethertype, first >> 4) {
                (ethertype::IPV4, 4) if rest >= 20 => {
                    Some(Self { at, is_v6: false, field: second })
                }
                // The traffic class spans the low half of the first byte and the high half of the
                // second.
                (ethertype::IPV6, 6) if rest >= 40 => {
                    Some(Self { at, is_v6: true, field: first << 4 | second >> 4 })
                }
                _ => None,
            };
        }
        None
    }

    /// The ECN field.
    #[inline]
    pub const fn ecn(self) -> Ecn {
        Ecn::of_bits(self.field)
    }

    /// The differentiated services code point (RFC 2474), 0 to 63.
    #[inline]
    pub const fn dscp(self) -> u8 {
        self.field >> 2
    }

    /// Sets the ECN field of the frame that this was found in to congestion experienced. The
    /// checksum of IPv4 is brought up to date (RFC 1624), right or wrong as it was.
    pub fn set_ce(self, head: &mut [u8]) {
        let Some(header) = head.get_mut(self.at..) else { return };
        if self.is_v6 {
            if let Some(second) = header.get_mut(1) {
                *second |= 3 << 4;
            }
            return;
        }
        if let Some([v0, v1, _, _, _, _, _, _, _, _, c0, c1]) = header.first_chunk_mut::<12>() {
            let old = u16::from_be_bytes([*v0, *v1]);
            *v1 |= 3;
            let new = u16::from_be_bytes([*v0, *v1]);
            let sum = checksum::update(u16::from_be_bytes([*c0, *c1]), old, new);
            [*c0, *c1] = sum.to_be_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const VECTORS: &str = include_str!("../../tests/vectors/ecn.json");

    fn bytes_of(hex: &str) -> Vec<u8> {
        let digits = |at: usize| hex.get(at..at + 2).expect("an even number of digits");
        let octets = (0..hex.len()).step_by(2).map(digits);
        octets.map(|octet| u8::from_str_radix(octet, 16).expect("hexadecimal")).collect()
    }

    /// What a switch does to a frame that is to be marked.
    fn mark(bytes: &mut [u8]) -> bool {
        match Differentiated::find(bytes) {
            Some(ip) if ip.ecn().is_capable() => {
                ip.set_ce(bytes);
                true
            }
            _ => false,
        }
    }

    #[test]
    fn every_vector_is_marked_bit_for_bit() {
        let cases: serde_json::Value = serde_json::from_str(VECTORS).expect("JSON");
        let cases = cases.as_array().expect("a list");
        assert_eq!(cases.len(), 80);
        for case in cases {
            let mut frame = bytes_of(case["in"].as_str().expect("a frame"));
            let name = &case["name"];
            assert_eq!(Some(mark(&mut frame)), case["markable"].as_bool(), "{name}");
            assert_eq!(frame, bytes_of(case["marked"].as_str().expect("a frame")), "{name}");
            if case["markable"] == true {
                let marked = Differentiated::find(&frame).expect("IP");
                assert_eq!(marked.ecn(), Ecn::Ce, "{name}");
            }
        }
    }

    #[test]
    fn the_code_point_is_read_beside_it() {
        let cases: serde_json::Value = serde_json::from_str(VECTORS).expect("JSON");
        for case in cases.as_array().expect("a list") {
            let name = case["name"].as_str().expect("a name");
            let number = |key: &str| {
                let behind = name.split(key).nth(1).expect("the key is in the name");
                behind.split(',').next().and_then(|n| n.parse::<u8>().ok()).expect("a number")
            };
            let frame = bytes_of(case["in"].as_str().expect("a frame"));
            let ip = Differentiated::find(&frame).expect("IP");
            assert_eq!(ip.dscp(), number("dscp "), "{name}");
            assert_eq!(ip.ecn(), Ecn::of_bits(number("ecn ")), "{name}");
        }
    }

    #[test]
    fn the_outer_header_of_a_tunnel_is_marked_and_the_inner_kept() {
        // IPv6 with ECT(0) that carries IPv6 with ECT(1), as a uSID carrier does.
        let mut bytes = vec![2; 12];
        bytes.extend([0x86, 0xdd]);
        for (class, next_header) in [(2_u8, 41), (1, 59)] {
            bytes.extend([0x60 | class >> 4, class << 4, 0, 0, 0, 40, next_header, 64]);
            bytes.extend([0; 32]);
        }
        let inner = bytes[54..].to_vec();
        assert!(mark(&mut bytes));
        assert_eq!(Differentiated::find(&bytes).map(Differentiated::ecn), Some(Ecn::Ce));
        assert_eq!(bytes[54..], inner);
    }

    #[test]
    fn what_is_not_ip_is_left_alone() {
        let tagged = |tags: usize, rest: &[u8]| {
            let mut bytes = vec![2; 12];
            bytes.extend([0x81, 0x00, 0, 1].repeat(tags));
            bytes.extend(rest);
            bytes.resize(100, 0);
            bytes
        };
        let frames = [
            tagged(0, &[0x08, 0x06, 0x45, 0x02]),
            tagged(5, &[0x08, 0x00, 0x45, 0x02]),
            tagged(0, &[0x08, 0x00, 0x65, 0x02]),
            tagged(0, &[0x86, 0xdd, 0x45, 0x22]),
        ];
        for mut frame in frames {
            let before = frame.clone();
            assert!(!mark(&mut frame));
            assert_eq!(frame, before);
        }
        let mut four = tagged(4, &[0x08, 0x00, 0x45, 0x02]);
        assert!(mark(&mut four));
        assert_eq!(four[31], 0x03);
    }

    proptest! {
        /// Of a right checksum comes a right one, of a wrong one a wrong one; every cut of a frame
        /// is survived.
        #[test]
        fn checksums_stay_what_they_were(
            mut header in proptest::collection::vec(any::<u8>(), 20),
            ecn in 1_u8..4,
            wrong in 0_u16..3,
            cut in 0_usize..34,
        ) {
            header[0] = 0x45;
            header[1] = header[1] & !3 | ecn;
            header[10..12].fill(0);
            let sum = checksum::checksum(&header).wrapping_add(wrong);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            let valid = |header: &[u8]| {
                let mut sum = checksum::Sum::new();
                sum.add_bytes(header);
                sum.is_valid()
            };
            let mut bytes = vec![2; 12];
            bytes.extend([0x08, 0x00]);
            bytes.extend(&header);
            let mut short = bytes[..cut].to_vec();
            prop_assert!(!mark(&mut short));
            prop_assert!(mark(&mut bytes));
            prop_assert_eq!(valid(&bytes[14..]), valid(&header));
            prop_assert_eq!(wrong == 0, valid(&header));
        }
    }
}
