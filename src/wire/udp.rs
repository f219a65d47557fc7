//! The UDP header (RFC 768).

use super::checksum::Sum;
use super::{WireError, need, read_u16, write_array};

const NAME: &str = "UDP";

/// Bytes of the header.
pub const HEADER_BYTES: usize = 8;

/// A view of a datagram from its UDP header on.
#[derive(Clone, Copy, Debug)]
pub struct UdpDatagram<T>(T);

impl<T: AsRef<[u8]>> UdpDatagram<T> {
    /// A view of `buffer`, which holds the whole datagram and may go on behind it.
    ///
    /// # Errors
    /// Fewer than 8 bytes, a length field below 8 or past the buffer's end.
    pub fn new_checked(buffer: T) -> Result<Self, WireError> {
        let have = buffer.as_ref().len();
        Self::new_checked_prefix(buffer, have)
    }

    /// A view of `buffer`, the leading part of `available_bytes` that hold the datagram.
    ///
    /// # Errors
    /// As [`new_checked`](Self::new_checked), with the length field checked against
    /// `available_bytes`.
    pub fn new_checked_prefix(buffer: T, available_bytes: usize) -> Result<Self, WireError> {
        let bytes = buffer.as_ref();
        need(NAME, HEADER_BYTES, bytes.len())?;
        let len_bytes = usize::from(read_u16(bytes, 4));
        if len_bytes < HEADER_BYTES {
            return Err(WireError::Malformed { header: NAME, what: "length below 8" });
        }
        need(NAME, len_bytes, available_bytes)?;
        Ok(Self(buffer))
    }

    /// The source port.
    pub fn source_port(&self) -> u16 {
        read_u16(self.0.as_ref(), 0)
    }

    /// The destination port.
    pub fn destination_port(&self) -> u16 {
        read_u16(self.0.as_ref(), 2)
    }

    /// Bytes of header and payload.
    pub fn len_bytes(&self) -> u16 {
        read_u16(self.0.as_ref(), 4)
    }

    /// The checksum as it stands; 0 means that there is none.
    pub fn checksum(&self) -> u16 {
        read_u16(self.0.as_ref(), 6)
    }

    /// The payload, or as much of it as the buffer shows.
    pub fn payload(&self) -> &[u8] {
        let bytes = self.0.as_ref();
        bytes.get(HEADER_BYTES..usize::from(self.len_bytes()).min(bytes.len())).unwrap_or_default()
    }

    /// True when the checksum is right over a datagram that the buffer shows whole. `pseudo` is the
    /// sum of the pseudo-header; a checksum of 0 is not judged here, since IPv6 forbids it.
    pub fn is_checksum_valid(&self, mut pseudo: Sum) -> bool {
        let bytes = self.0.as_ref();
        pseudo.add_bytes(&bytes[..usize::from(self.len_bytes()).min(bytes.len())]);
        pseudo.is_valid()
    }

    /// The buffer.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> UdpDatagram<T> {
    /// Sets the source port.
    pub fn set_source_port(&mut self, port: u16) {
        write_array(self.0.as_mut(), 0, port.to_be_bytes());
    }

    /// Sets the destination port.
    pub fn set_destination_port(&mut self, port: u16) {
        write_array(self.0.as_mut(), 2, port.to_be_bytes());
    }

    /// Sets the checksum to `checksum`.
    pub fn set_checksum(&mut self, checksum: u16) {
        write_array(self.0.as_mut(), 6, checksum.to_be_bytes());
    }

    /// Computes the checksum over a datagram that the buffer shows whole, and sets it.
    pub fn fill_checksum(&mut self, mut pseudo: Sum) {
        self.set_checksum(0);
        let bytes = self.0.as_ref();
        pseudo.add_bytes(&bytes[..usize::from(self.len_bytes()).min(bytes.len())]);
        self.set_checksum(pseudo.udp_checksum());
    }

    /// The payload, or as much of it as the buffer shows, to write.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let end = usize::from(self.len_bytes()).min(self.0.as_ref().len());
        self.0.as_mut().get_mut(HEADER_BYTES..end).unwrap_or_default()
    }
}

/// What the header says, but for the checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpHeader {
    /// The source port.
    pub source_port: u16,
    /// The destination port.
    pub destination_port: u16,
    /// Bytes of the payload, at most 65,527.
    pub payload_bytes: u16,
}

impl UdpHeader {
    /// Reads the header.
    pub fn read<T: AsRef<[u8]>>(datagram: &UdpDatagram<T>) -> Self {
        Self {
            source_port: datagram.source_port(),
            destination_port: datagram.destination_port(),
            payload_bytes: datagram.len_bytes() - 8,
        }
    }

    /// Writes the header, with a checksum of 0 (none), at the start of `buffer`.
    ///
    /// # Errors
    /// Fewer than 8 bytes, or a payload above 65,527.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<(), WireError> {
        need(NAME, HEADER_BYTES, buffer.len())?;
        let Some(len_bytes) = self.payload_bytes.checked_add(8) else {
            return Err(WireError::Malformed { header: NAME, what: "longer than 65,535 bytes" });
        };
        write_array(buffer, 4, len_bytes.to_be_bytes());
        let mut datagram = UdpDatagram(buffer);
        datagram.set_source_port(self.source_port);
        datagram.set_destination_port(self.destination_port);
        datagram.set_checksum(0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    // Port 4660 to 4791, four bytes, checksum under 10.0.0.1 to 10.0.0.2.
    const DATAGRAM: [u8; 12] =
        [0x12, 0x34, 0x12, 0xb7, 0x00, 0x0c, 0x41, 0x2b, 0xca, 0xfe, 0xba, 0xbe];

    fn pseudo() -> Sum {
        Sum::pseudo_v4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2), 17, 12)
    }

    #[test]
    fn reads_literal_bytes() {
        let datagram = UdpDatagram::new_checked(&DATAGRAM[..]).expect("a datagram");
        assert_eq!((datagram.source_port(), datagram.destination_port()), (4_660, 4_791));
        assert_eq!((datagram.len_bytes(), datagram.checksum()), (12, 0x412b));
        assert_eq!(datagram.payload(), [0xca, 0xfe, 0xba, 0xbe]);
        assert!(datagram.is_checksum_valid(pseudo()));
        for (at, value) in [(5, 7), (5, 13), (4, 1)] {
            let mut bytes = DATAGRAM;
            bytes[at] = value;
            assert!(UdpDatagram::new_checked(&bytes[..]).is_err(), "{at} {value}");
        }
        assert!(UdpDatagram::new_checked_prefix(&DATAGRAM[..9], 12).is_ok());
    }

    #[test]
    fn builds_over_dirt() {
        let mut buffer = [0xa5; 12];
        let header = UdpHeader { source_port: 4_660, destination_port: 4_791, payload_bytes: 4 };
        header.emit(&mut buffer).expect("room");
        let mut datagram = UdpDatagram::new_checked(&mut buffer[..]).expect("our own");
        datagram.payload_mut().copy_from_slice(&DATAGRAM[8..]);
        datagram.fill_checksum(pseudo());
        assert_eq!(buffer, DATAGRAM);
    }

    proptest! {
        #[test]
        fn no_byte_string_panics(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..64),
            plausible: bool,
        ) {
            if plausible && bytes.len() > 5 {
                bytes[4] = 0;
                bytes[5] &= 0x3f;
            }
            let Ok(datagram) = UdpDatagram::new_checked(&bytes[..]) else { return Ok(()) };
            let theirs = etherparse::UdpSlice::from_slice(&bytes).expect("ours is stricter");
            prop_assert_eq!(datagram.source_port(), theirs.source_port());
            prop_assert_eq!(datagram.destination_port(), theirs.destination_port());
            prop_assert_eq!(datagram.payload(), theirs.payload());
        }

        #[test]
        fn checksums_agree_with_etherparse(
            source: [u8; 4], destination: [u8; 4], source6: [u8; 16], destination6: [u8; 16],
            source_port: u16, destination_port: u16,
            payload in proptest::collection::vec(any::<u8>(), 0..65),
        ) {
            let payload_bytes = u16::try_from(payload.len()).expect("short");
            let header = UdpHeader { source_port, destination_port, payload_bytes };
            let mut buffer = vec![0xa5; 8 + payload.len()];
            header.emit(&mut buffer).expect("room");
            let mut datagram = UdpDatagram::new_checked(&mut buffer[..]).expect("our own");
            datagram.payload_mut().copy_from_slice(&payload);
            prop_assert_eq!(UdpHeader::read(&datagram), header);
            let len = u32::from(payload_bytes) + 8;
            datagram.fill_checksum(Sum::pseudo_v4(source.into(), destination.into(), 17, len));
            let theirs = etherparse::UdpHeader::without_ipv4_checksum(
                source_port, destination_port, payload.len()).expect("short");
            let v4 = theirs.calc_checksum_ipv4_raw(source, destination, &payload).expect("short");
            prop_assert_eq!(datagram.checksum(), v4);
            let (a, b) = (Ipv6Addr::from(source6), Ipv6Addr::from(destination6));
            datagram.fill_checksum(Sum::pseudo_v6(a, b, 17, len));
            let v6 = theirs.calc_checksum_ipv6_raw(source6, destination6, &payload).expect("short");
            prop_assert_eq!(datagram.checksum(), v6);
        }
    }
}
