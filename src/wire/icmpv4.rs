//! ICMP for IPv4 (RFC 792), as far as echo.

use super::{WireError, need, read_u16, write_array};

const NAME: &str = "ICMPv4";

/// Bytes of the header that every message has.
pub const HEADER_BYTES: usize = 8;

/// Type of an echo reply.
pub const ECHO_REPLY: u8 = 0;

/// Type of an echo request.
pub const ECHO_REQUEST: u8 = 8;

/// A view of a message from its ICMP header on.
#[derive(Clone, Copy, Debug)]
pub struct Icmpv4Message<T>(T);

impl<T: AsRef<[u8]>> Icmpv4Message<T> {
    /// A view of `buffer`, the message or its leading part.
    ///
    /// # Errors
    /// Fewer than 8 bytes.
    pub fn new_checked(buffer: T) -> Result<Self, WireError> {
        need(NAME, HEADER_BYTES, buffer.as_ref().len())?;
        Ok(Self(buffer))
    }

    /// The message's type.
    pub fn kind(&self) -> u8 {
        self.0.as_ref()[0]
    }

    /// The code within the type.
    pub fn code(&self) -> u8 {
        self.0.as_ref()[1]
    }

    /// The checksum as it stands, over the whole message.
    pub fn checksum(&self) -> u16 {
        read_u16(self.0.as_ref(), 2)
    }

    /// The identifier of an echo.
    pub fn identifier(&self) -> u16 {
        read_u16(self.0.as_ref(), 4)
    }

    /// The sequence number of an echo.
    pub fn sequence(&self) -> u16 {
        read_u16(self.0.as_ref(), 6)
    }

    /// The data of an echo.
    pub fn payload(&self) -> &[u8] {
        &self.0.as_ref()[HEADER_BYTES..]
    }

    /// True when the checksum is right over a message that the buffer shows whole and alone.
    pub fn is_checksum_valid(&self) -> bool {
        super::checksum::checksum(self.0.as_ref()) == 0
    }

    /// The buffer.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Icmpv4Message<T> {
    /// Sets the type.
    pub fn set_kind(&mut self, kind: u8) {
        self.0.as_mut()[0] = kind;
    }

    /// Sets the checksum to `checksum`.
    pub fn set_checksum(&mut self, checksum: u16) {
        write_array(self.0.as_mut(), 2, checksum.to_be_bytes());
    }

    /// Computes the checksum over a message that the buffer shows whole and alone, and sets it.
    pub fn fill_checksum(&mut self) {
        self.set_checksum(0);
        let checksum = super::checksum::checksum(self.0.as_ref());
        self.set_checksum(checksum);
    }

    /// The data of an echo, to write.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        &mut self.0.as_mut()[HEADER_BYTES..]
    }
}

/// What the header of an echo says, but for the checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EchoHeader {
    /// [`ECHO_REQUEST`] or [`ECHO_REPLY`] (or their ICMPv6 counterparts).
    pub kind: u8,
    /// The identifier.
    pub identifier: u16,
    /// The sequence number.
    pub sequence: u16,
}

impl EchoHeader {
    /// Reads the header.
    pub fn read<T: AsRef<[u8]>>(message: &Icmpv4Message<T>) -> Self {
        Self {
            kind: message.kind(),
            identifier: message.identifier(),
            sequence: message.sequence(),
        }
    }

    /// Writes the header, with a checksum of 0, at the start of `buffer`.
    ///
    /// # Errors
    /// Fewer than 8 bytes.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<(), WireError> {
        need(NAME, HEADER_BYTES, buffer.len())?;
        write_array(buffer, 0, [self.kind, 0, 0, 0]);
        write_array(buffer, 4, self.identifier.to_be_bytes());
        write_array(buffer, 6, self.sequence.to_be_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // An echo request, identifier 0x1234, sequence 7, three bytes of data.
    const REQUEST: [u8; 11] = [8, 0, 0x60, 0xc5, 0x12, 0x34, 0, 7, 0xca, 0xfe, 0xba];
    const HEADER: EchoHeader = EchoHeader { kind: ECHO_REQUEST, identifier: 0x1234, sequence: 7 };

    #[test]
    fn reads_literal_bytes() {
        let message = Icmpv4Message::new_checked(&REQUEST[..]).expect("a message");
        assert_eq!(EchoHeader::read(&message), HEADER);
        assert_eq!((message.code(), message.checksum()), (0, 0x60c5));
        assert!(message.is_checksum_valid());
        assert_eq!(message.payload(), [0xca, 0xfe, 0xba]);
        assert!(Icmpv4Message::new_checked(&REQUEST[..7]).is_err());
    }

    #[test]
    fn builds_over_dirt() {
        let mut buffer = [0xa5; 11];
        HEADER.emit(&mut buffer).expect("room");
        let mut message = Icmpv4Message::new_checked(&mut buffer[..]).expect("our own");
        message.payload_mut().copy_from_slice(&REQUEST[8..]);
        message.fill_checksum();
        assert_eq!(buffer, REQUEST);
    }

    proptest! {
        #[test]
        fn no_byte_string_panics_and_etherparse_agrees(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            if bytes.len() > 4 && bytes[4] < 128 {
                bytes[..2].copy_from_slice(&[8, 0]);
            }
            let Ok(mut message) = Icmpv4Message::new_checked(&mut bytes[..]) else { return Ok(()) };
            message.fill_checksum();
            prop_assert!(message.is_checksum_valid());
            let (header, checksum) = (EchoHeader::read(&message), message.checksum());
            if header.kind == ECHO_REQUEST {
                let theirs = etherparse::Icmpv4Slice::from_slice(&bytes).expect("a message");
                prop_assert_eq!(theirs.header().checksum, checksum);
                prop_assert_eq!(
                    theirs.header().icmp_type.calc_checksum(theirs.payload()), checksum);
            }
        }
    }
}
