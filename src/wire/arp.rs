//! ARP for IPv4 over Ethernet (RFC 826).

use std::net::Ipv4Addr;

use super::{MacAddr, WireError, ethertype, need, read_array, read_u16, write_array};

const NAME: &str = "ARP";

/// Bytes of a packet for IPv4 over Ethernet.
pub const PACKET_BYTES: usize = 28;

/// What a packet asks or says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Who has the target address? (1)
    Request,
    /// The sender has the sender address. (2)
    Reply,
    /// Any other code.
    Other(u16),
}

impl Operation {
    const fn from_code(code: u16) -> Self {
        match code {
            1 => Self::Request,
            2 => Self::Reply,
            other => Self::Other(other),
        }
    }

    const fn code(self) -> u16 {
        match self {
            Self::Request => 1,
            Self::Reply => 2,
            Self::Other(code) => code,
        }
    }
}

/// A view of an ARP packet for IPv4 over Ethernet.
#[derive(Clone, Copy, Debug)]
pub struct ArpPacket<T>(T);

impl<T: AsRef<[u8]>> ArpPacket<T> {
    /// A view of `buffer`, which may go on behind the packet (padding).
    ///
    /// # Errors
    /// Fewer than 28 bytes, or hardware and protocol other than Ethernet and IPv4.
    pub fn new_checked(buffer: T) -> Result<Self, WireError> {
        let bytes = buffer.as_ref();
        need(NAME, PACKET_BYTES, bytes.len())?;
        if read_u16(bytes, 0) != 1
            || read_u16(bytes, 2) != ethertype::IPV4
            || bytes[4] != 6
            || bytes[5] != 4
        {
            return Err(WireError::Malformed { header: NAME, what: "not IPv4 over Ethernet" });
        }
        Ok(Self(buffer))
    }

    /// Request, reply or another code.
    pub fn operation(&self) -> Operation {
        Operation::from_code(read_u16(self.0.as_ref(), 6))
    }

    /// The sender's hardware address.
    pub fn sender_mac(&self) -> MacAddr {
        MacAddr(read_array(self.0.as_ref(), 8))
    }

    /// The sender's protocol address.
    pub fn sender_ip(&self) -> Ipv4Addr {
        read_array(self.0.as_ref(), 14).into()
    }

    /// The target's hardware address, unknown in a request.
    pub fn target_mac(&self) -> MacAddr {
        MacAddr(read_array(self.0.as_ref(), 18))
    }

    /// The target's protocol address.
    pub fn target_ip(&self) -> Ipv4Addr {
        read_array(self.0.as_ref(), 24).into()
    }

    /// The buffer.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> ArpPacket<T> {
    /// Sets the operation.
    pub fn set_operation(&mut self, operation: Operation) {
        write_array(self.0.as_mut(), 6, operation.code().to_be_bytes());
    }

    /// Sets the sender's hardware and protocol address.
    pub fn set_sender(&mut self, mac: MacAddr, ip: Ipv4Addr) {
        write_array(self.0.as_mut(), 8, mac.0);
        write_array(self.0.as_mut(), 14, ip.octets());
    }

    /// Sets the target's hardware and protocol address.
    pub fn set_target(&mut self, mac: MacAddr, ip: Ipv4Addr) {
        write_array(self.0.as_mut(), 18, mac.0);
        write_array(self.0.as_mut(), 24, ip.octets());
    }
}

/// What a packet says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArpHeader {
    /// Request, reply or another code.
    pub operation: Operation,
    /// The sender's hardware address.
    pub sender_mac: MacAddr,
    /// The sender's protocol address.
    pub sender_ip: Ipv4Addr,
    /// The target's hardware address.
    pub target_mac: MacAddr,
    /// The target's protocol address.
    pub target_ip: Ipv4Addr,
}

impl ArpHeader {
    /// Reads the packet.
    pub fn read<T: AsRef<[u8]>>(packet: &ArpPacket<T>) -> Self {
        Self {
            operation: packet.operation(),
            sender_mac: packet.sender_mac(),
            sender_ip: packet.sender_ip(),
            target_mac: packet.target_mac(),
            target_ip: packet.target_ip(),
        }
    }

    /// Writes the whole packet at the start of `buffer`.
    ///
    /// # Errors
    /// Fewer than 28 bytes.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<(), WireError> {
        need(NAME, PACKET_BYTES, buffer.len())?;
        write_array(buffer, 0, [0, 1, 0x08, 0x00, 6, 4]);
        let mut packet = ArpPacket(buffer);
        packet.set_operation(self.operation);
        packet.set_sender(self.sender_mac, self.sender_ip);
        packet.set_target(self.target_mac, self.target_ip);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // 10.0.0.1 at 02:00:00:00:00:0a asks for 10.0.0.2.
    const REQUEST: [u8; 28] =
        [0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 0x0a, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2];

    fn header() -> ArpHeader {
        ArpHeader {
            operation: Operation::Request,
            sender_mac: MacAddr([2, 0, 0, 0, 0, 0x0a]),
            sender_ip: Ipv4Addr::new(10, 0, 0, 1),
            target_mac: MacAddr::default(),
            target_ip: Ipv4Addr::new(10, 0, 0, 2),
        }
    }

    #[test]
    fn reads_literal_bytes() {
        let packet = ArpPacket::new_checked(&REQUEST[..]).expect("a request");
        assert_eq!(ArpHeader::read(&packet), header());
        assert!(ArpPacket::new_checked(&REQUEST[..27]).is_err());
        for at in [1, 3, 4, 5] {
            let mut other = REQUEST;
            other[at] ^= 2;
            assert!(matches!(ArpPacket::new_checked(&other), Err(WireError::Malformed { .. })));
        }
    }

    #[test]
    fn builds_over_dirt() {
        let mut buffer = [0xa5; 30];
        header().emit(&mut buffer).expect("30 bytes");
        assert_eq!(buffer[..28], REQUEST);
        assert_eq!(buffer[28..], [0xa5; 2]);
        assert!(header().emit(&mut buffer[..27]).is_err());
    }

    proptest! {
        #[test]
        fn no_byte_string_panics(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut bytes = bytes;
            if bytes.len() >= 6 && bytes[0] < 128 {
                bytes[..6].copy_from_slice(&REQUEST[..6]);
            }
            if let Ok(packet) = ArpPacket::new_checked(&bytes[..]) {
                let header = ArpHeader::read(&packet);
                let mut again = vec![0xa5; bytes.len()];
                header.emit(&mut again).expect("same length");
                prop_assert_eq!(&again[..28], &bytes[..28]);
            }
        }
    }
}
