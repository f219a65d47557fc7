//! The Ethernet header (IEEE 802.3 clause 3.2): destination, source, EtherType.

use super::{MacAddr, WireError, need, read_array, read_u16, write_array};

/// Bytes of the header.
pub const HEADER_BYTES: usize = 14;

/// A view of a frame from its destination address on, without FCS.
#[derive(Clone, Copy, Debug)]
pub struct EthernetFrame<T>(T);

impl<T: AsRef<[u8]>> EthernetFrame<T> {
    /// A view of `buffer`.
    ///
    /// # Errors
    /// Fewer than 14 bytes.
    pub fn new_checked(buffer: T) -> Result<Self, WireError> {
        need("Ethernet", HEADER_BYTES, buffer.as_ref().len())?;
        Ok(Self(buffer))
    }

    /// The destination address.
    pub fn destination(&self) -> MacAddr {
        MacAddr(read_array(self.0.as_ref(), 0))
    }

    /// The source address.
    pub fn source(&self) -> MacAddr {
        MacAddr(read_array(self.0.as_ref(), 6))
    }

    /// The EtherType, or the length field of an 802.3 frame when below 1536.
    pub fn ethertype(&self) -> u16 {
        read_u16(self.0.as_ref(), 12)
    }

    /// Everything behind the header.
    pub fn payload(&self) -> &[u8] {
        &self.0.as_ref()[HEADER_BYTES..]
    }

    /// The buffer.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> EthernetFrame<T> {
    /// Sets the destination address.
    pub fn set_destination(&mut self, mac: MacAddr) {
        write_array(self.0.as_mut(), 0, mac.0);
    }

    /// Sets the source address.
    pub fn set_source(&mut self, mac: MacAddr) {
        write_array(self.0.as_mut(), 6, mac.0);
    }

    /// Sets the EtherType.
    pub fn set_ethertype(&mut self, ethertype: u16) {
        write_array(self.0.as_mut(), 12, ethertype.to_be_bytes());
    }

    /// Everything behind the header, to write.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        &mut self.0.as_mut()[HEADER_BYTES..]
    }
}

/// What the header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EthernetHeader {
    /// The destination address.
    pub destination: MacAddr,
    /// The source address.
    pub source: MacAddr,
    /// The EtherType.
    pub ethertype: u16,
}

impl EthernetHeader {
    /// Reads the header.
    pub fn read<T: AsRef<[u8]>>(frame: &EthernetFrame<T>) -> Self {
        Self {
            destination: frame.destination(),
            source: frame.source(),
            ethertype: frame.ethertype(),
        }
    }

    /// Writes the whole header.
    pub fn emit<T: AsRef<[u8]> + AsMut<[u8]>>(&self, frame: &mut EthernetFrame<T>) {
        frame.set_destination(self.destination);
        frame.set_source(self.source);
        frame.set_ethertype(self.ethertype);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FRAME: [u8; 18] =
        [0x02, 0, 0, 0, 0, 0x0b, 0x02, 0, 0, 0, 0, 0x0a, 0x08, 0x06, 0xca, 0xfe, 0xba, 0xbe];

    #[test]
    fn reads_literal_bytes() {
        let frame = EthernetFrame::new_checked(&FRAME[..]).expect("18 bytes");
        assert_eq!(frame.destination(), MacAddr([2, 0, 0, 0, 0, 0x0b]));
        assert_eq!(frame.source(), MacAddr([2, 0, 0, 0, 0, 0x0a]));
        assert_eq!(frame.ethertype(), 0x0806);
        assert_eq!(frame.payload(), [0xca, 0xfe, 0xba, 0xbe]);
        assert!(matches!(
            EthernetFrame::new_checked(&FRAME[..13]),
            Err(WireError::Truncated { need_bytes: 14, have_bytes: 13, .. })
        ));
    }

    #[test]
    fn builds_over_dirt() {
        let mut frame = EthernetFrame::new_checked([0xa5; 18]).expect("18 bytes");
        let header = EthernetHeader {
            destination: MacAddr([2, 0, 0, 0, 0, 0x0b]),
            source: MacAddr([2, 0, 0, 0, 0, 0x0a]),
            ethertype: 0x0806,
        };
        header.emit(&mut frame);
        frame.payload_mut().copy_from_slice(&FRAME[14..]);
        assert_eq!(EthernetHeader::read(&frame), header);
        assert_eq!(frame.into_inner(), FRAME);
    }

    proptest! {
        #[test]
        fn agrees_with_etherparse(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let ours = EthernetFrame::new_checked(&bytes[..]);
            match etherparse::Ethernet2HeaderSlice::from_slice(&bytes) {
                Ok(theirs) => {
                    let ours = ours.expect("etherparse reads it");
                    prop_assert_eq!(ours.destination().0, theirs.destination());
                    prop_assert_eq!(ours.source().0, theirs.source());
                    prop_assert_eq!(ours.ethertype(), theirs.ether_type().0);
                }
                Err(_) => prop_assert!(ours.is_err()),
            }
        }
    }
}
