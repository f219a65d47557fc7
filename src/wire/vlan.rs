//! VLAN tags (IEEE 802.1Q clause 9.6): priority, drop eligibility, VLAN, and the type of what
//! follows. C-TAG 8100, S-TAG 88A8 and the older 9100 have one layout.

use super::{WireError, ethertype, need, read_u16, write_array};

/// Bytes that a tag adds to a frame.
pub const TAG_BYTES: usize = 4;

/// Tags that one frame may have here.
pub const TAGS_MAX: usize = 4;

/// True for the EtherTypes that announce a tag: 8100, 88A8 and 9100.
#[inline]
pub const fn is_tag(ethertype: u16) -> bool {
    matches!(ethertype, ethertype::VLAN | ethertype::VLAN_SERVICE | ethertype::VLAN_9100)
}

/// The tag control information: PCP in bits 15 to 13, DEI in 12, VID in 11 to 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tci(pub u16);

impl Tci {
    /// Priority code point `pcp` (0 to 7), drop eligible indicator, VLAN identifier (0 to 4095);
    /// higher bits of either number are cut off.
    pub const fn new(pcp: u8, dei: bool, vid: u16) -> Self {
        Self(((pcp as u16 & 7) << 13) | ((dei as u16) << 12) | (vid & 0x0fff))
    }

    /// The priority code point, 0 to 7.
    #[inline]
    pub const fn pcp(self) -> u8 {
        self.0.to_be_bytes()[0] >> 5
    }

    /// The drop eligible indicator.
    #[inline]
    pub const fn dei(self) -> bool {
        self.0 & 0x1000 != 0
    }

    /// The VLAN identifier, 0 to 4095; 0 is a priority tag without VLAN, 4095 is reserved.
    #[inline]
    pub const fn vid(self) -> u16 {
        self.0 & 0x0fff
    }
}

/// A view of a tag behind its EtherType: the tag control information and the type that follows.
#[derive(Clone, Copy, Debug)]
pub struct VlanTag<T>(T);

impl<T: AsRef<[u8]>> VlanTag<T> {
    /// A view of `buffer`, which starts behind the EtherType that announced the tag.
    ///
    /// # Errors
    /// Fewer than 4 bytes.
    pub fn new_checked(buffer: T) -> Result<Self, WireError> {
        need("VLAN tag", TAG_BYTES, buffer.as_ref().len())?;
        Ok(Self(buffer))
    }

    /// The tag control information.
    pub fn tci(&self) -> Tci {
        Tci(read_u16(self.0.as_ref(), 0))
    }

    /// The EtherType of what follows, which may be another tag.
    pub fn ethertype(&self) -> u16 {
        read_u16(self.0.as_ref(), 2)
    }

    /// Everything behind the tag.
    pub fn payload(&self) -> &[u8] {
        &self.0.as_ref()[TAG_BYTES..]
    }

    /// The buffer.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> VlanTag<T> {
    /// Sets the tag control information.
    pub fn set_tci(&mut self, tci: Tci) {
        write_array(self.0.as_mut(), 0, tci.0.to_be_bytes());
    }

    /// Sets the EtherType of what follows.
    pub fn set_ethertype(&mut self, ethertype: u16) {
        write_array(self.0.as_mut(), 2, ethertype.to_be_bytes());
    }

    /// Everything behind the tag, to write.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        &mut self.0.as_mut()[TAG_BYTES..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // PCP 5, DEI set, VLAN 0x123, IPv4 behind it.
    const TAG: [u8; 6] = [0xb1, 0x23, 0x08, 0x00, 0xca, 0xfe];

    #[test]
    fn reads_literal_bytes() {
        let tag = VlanTag::new_checked(&TAG[..]).expect("6 bytes");
        assert_eq!((tag.tci().pcp(), tag.tci().dei(), tag.tci().vid()), (5, true, 0x123));
        assert_eq!(tag.ethertype(), 0x0800);
        assert_eq!(tag.payload(), [0xca, 0xfe]);
        assert!(VlanTag::new_checked(&TAG[..3]).is_err());
    }

    #[test]
    fn builds_over_dirt() {
        let mut tag = VlanTag::new_checked([0xa5; 6]).expect("6 bytes");
        tag.set_tci(Tci::new(5, true, 0x123));
        tag.set_ethertype(0x0800);
        tag.payload_mut().copy_from_slice(&TAG[4..]);
        assert_eq!(tag.into_inner(), TAG);
    }

    proptest! {
        #[test]
        fn agrees_with_etherparse(bytes in proptest::collection::vec(any::<u8>(), 0..16)) {
            let ours = VlanTag::new_checked(&bytes[..]);
            match etherparse::SingleVlanHeaderSlice::from_slice(&bytes) {
                Ok(theirs) => {
                    let ours = ours.expect("etherparse reads it");
                    prop_assert_eq!(ours.tci().pcp(), theirs.priority_code_point().value());
                    prop_assert_eq!(ours.tci().dei(), theirs.drop_eligible_indicator());
                    prop_assert_eq!(ours.tci().vid(), theirs.vlan_identifier().value());
                    prop_assert_eq!(ours.ethertype(), theirs.ether_type().0);
                }
                Err(_) => prop_assert!(ours.is_err()),
            }
        }

        #[test]
        fn tci_keeps_its_parts(pcp in 0_u8..8, dei: bool, vid in 0_u16..4_096) {
            let tci = Tci::new(pcp, dei, vid);
            prop_assert_eq!((tci.pcp(), tci.dei(), tci.vid()), (pcp, dei, vid));
        }
    }
}
