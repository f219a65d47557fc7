//! ICMP for IPv6 (RFC 4443): echo, and neighbour discovery's solicitation and advertisement (RFC
//! 4861 sections 4.3 and 4.4).

use std::net::Ipv6Addr;

use super::checksum::Sum;
use super::{MacAddr, WireError, need, protocol, read_array, read_u16, write_array};

const NAME: &str = "ICMPv6";

/// Bytes of the header of the messages here.
pub const HEADER_BYTES: usize = 8;

/// Bytes of a neighbour solicitation or advertisement without options.
pub const NEIGHBOR_BYTES: usize = 24;

/// Bytes of a link-layer address option for Ethernet.
pub const LINK_LAYER_OPTION_BYTES: usize = 8;

/// Type of an echo request.
pub const ECHO_REQUEST: u8 = 128;

/// Type of an echo reply.
pub const ECHO_REPLY: u8 = 129;

/// Type of a neighbour solicitation.
pub const NEIGHBOR_SOLICITATION: u8 = 135;

/// Type of a neighbour advertisement.
pub const NEIGHBOR_ADVERTISEMENT: u8 = 136;

/// Option with the sender's link-layer address.
pub const OPTION_SOURCE_LINK_LAYER: u8 = 1;

/// Option with the target's link-layer address.
pub const OPTION_TARGET_LINK_LAYER: u8 = 2;

/// The multicast address that solicitations for `address` go to (RFC 4291 section 2.7.1).
pub const fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    Ipv6Addr::from_octets([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c])
}

/// The group MAC address of an IPv6 multicast address (RFC 2464 section 7).
pub const fn multicast_mac(address: Ipv6Addr) -> MacAddr {
    let [.., a, b, c, d] = address.octets();
    MacAddr([0x33, 0x33, a, b, c, d])
}

/// A view of a message from its ICMPv6 header on.
#[derive(Clone, Copy, Debug)]
pub struct Icmpv6Message<T>(T);

impl<T: AsRef<[u8]>> Icmpv6Message<T> {
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

    /// The checksum as it stands, over pseudo-header and message.
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
    pub fn is_checksum_valid(&self, source: Ipv6Addr, destination: Ipv6Addr) -> bool {
        self.sum(source, destination).is_valid()
    }

    fn sum(&self, source: Ipv6Addr, destination: Ipv6Addr) -> Sum {
        let bytes = self.0.as_ref();
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let mut sum = Sum::pseudo_v6(source, destination, protocol::ICMPV6, len);
        sum.add_bytes(bytes);
        sum
    }

    /// The buffer.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Icmpv6Message<T> {
    /// Sets the type.
    pub fn set_kind(&mut self, kind: u8) {
        self.0.as_mut()[0] = kind;
    }

    /// Sets the checksum to `checksum`.
    pub fn set_checksum(&mut self, checksum: u16) {
        write_array(self.0.as_mut(), 2, checksum.to_be_bytes());
    }

    /// Computes the checksum over a message that the buffer shows whole and alone, and sets it.
    pub fn fill_checksum(&mut self, source: Ipv6Addr, destination: Ipv6Addr) {
        self.set_checksum(0);
        let checksum = self.sum(source, destination).checksum();
        self.set_checksum(checksum);
    }

    /// The data of an echo, to write.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        &mut self.0.as_mut()[HEADER_BYTES..]
    }
}

/// A view of a neighbour solicitation or advertisement.
#[derive(Clone, Copy, Debug)]
pub struct NeighborMessage<T>(T);

impl<T: AsRef<[u8]>> NeighborMessage<T> {
    /// A view of `buffer`, which holds the message and nothing behind it.
    ///
    /// # Errors
    /// Another type or a code, fewer than 24 bytes, or an option whose length is zero or passes
    /// the end, for which RFC 4861 section 7.1 discards the message.
    pub fn new_checked(buffer: T) -> Result<Self, WireError> {
        let bytes = buffer.as_ref();
        need(NAME, NEIGHBOR_BYTES, bytes.len())?;
        if !matches!(bytes[0], NEIGHBOR_SOLICITATION | NEIGHBOR_ADVERTISEMENT) || bytes[1] != 0 {
            let what = "not a neighbour solicitation or advertisement";
            return Err(WireError::Malformed { header: NAME, what });
        }
        let mut rest = &bytes[NEIGHBOR_BYTES..];
        while !rest.is_empty() {
            need(NAME, 2, rest.len())?;
            let len = usize::from(rest[1]) * 8;
            if len == 0 {
                return Err(WireError::Malformed { header: NAME, what: "an option of length 0" });
            }
            need(NAME, len, rest.len())?;
            rest = &rest[len..];
        }
        Ok(Self(buffer))
    }

    /// [`NEIGHBOR_SOLICITATION`] or [`NEIGHBOR_ADVERTISEMENT`].
    pub fn kind(&self) -> u8 {
        self.0.as_ref()[0]
    }

    /// The router flag of an advertisement.
    pub fn router(&self) -> bool {
        self.0.as_ref()[4] & 0x80 != 0
    }

    /// The solicited flag of an advertisement.
    pub fn solicited(&self) -> bool {
        self.0.as_ref()[4] & 0x40 != 0
    }

    /// The override flag of an advertisement.
    pub fn overrides(&self) -> bool {
        self.0.as_ref()[4] & 0x20 != 0
    }

    /// The address asked for or advertised.
    pub fn target(&self) -> Ipv6Addr {
        read_array::<16>(self.0.as_ref(), 8).into()
    }

    /// The first link-layer address option of type `kind`, for Ethernet.
    pub fn link_layer(&self, kind: u8) -> Option<MacAddr> {
        let mut rest = &self.0.as_ref()[NEIGHBOR_BYTES..];
        while let [option, len, ..] = *rest {
            let len = usize::from(len) * 8;
            if option == kind && len == LINK_LAYER_OPTION_BYTES && rest.len() >= len {
                return Some(MacAddr(read_array(rest, 2)));
            }
            rest = rest.get(len.max(8)..)?;
        }
        None
    }

    /// The buffer.
    pub fn into_inner(self) -> T {
        self.0
    }
}

/// A neighbour solicitation or advertisement with at most one option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighborHeader {
    /// Who has `target`?
    Solicitation {
        /// The address asked for.
        target: Ipv6Addr,
        /// The sender's MAC address, absent when its IP address is unspecified.
        source_mac: Option<MacAddr>,
    },
    /// The sender has `target`.
    Advertisement {
        /// The address advertised.
        target: Ipv6Addr,
        /// The MAC address to send to.
        target_mac: Option<MacAddr>,
        /// The sender routes.
        router: bool,
        /// An answer to a solicitation.
        solicited: bool,
        /// Replaces an address that is known already.
        overrides: bool,
    },
}

impl NeighborHeader {
    /// Reads a message.
    pub fn read<T: AsRef<[u8]>>(message: &NeighborMessage<T>) -> Self {
        let target = message.target();
        if message.kind() == NEIGHBOR_SOLICITATION {
            let source_mac = message.link_layer(OPTION_SOURCE_LINK_LAYER);
            return Self::Solicitation { target, source_mac };
        }
        Self::Advertisement {
            target,
            target_mac: message.link_layer(OPTION_TARGET_LINK_LAYER),
            router: message.router(),
            solicited: message.solicited(),
            overrides: message.overrides(),
        }
    }

    /// Bytes of the message.
    pub const fn len_bytes(&self) -> usize {
        match self {
            Self::Solicitation { source_mac: None, .. }
            | Self::Advertisement { target_mac: None, .. } => NEIGHBOR_BYTES,
            _ => NEIGHBOR_BYTES + LINK_LAYER_OPTION_BYTES,
        }
    }

    /// Writes the message, with its checksum between these addresses, at the start of `buffer`.
    ///
    /// # Errors
    /// Fewer than [`len_bytes`](Self::len_bytes) bytes.
    pub fn emit(
        &self,
        source: Ipv6Addr,
        destination: Ipv6Addr,
        buffer: &mut [u8],
    ) -> Result<(), WireError> {
        need(NAME, self.len_bytes(), buffer.len())?;
        let bytes = &mut buffer[..self.len_bytes()];
        let (kind, flags, target, option, mac) = match *self {
            Self::Solicitation { target, source_mac } => {
                (NEIGHBOR_SOLICITATION, 0, target, OPTION_SOURCE_LINK_LAYER, source_mac)
            }
            Self::Advertisement { target, target_mac, router, solicited, overrides } => {
                let flags =
                    u8::from(router) << 7 | u8::from(solicited) << 6 | u8::from(overrides) << 5;
                (NEIGHBOR_ADVERTISEMENT, flags, target, OPTION_TARGET_LINK_LAYER, target_mac)
            }
        };
        write_array(bytes, 0, [kind, 0, 0, 0, flags, 0, 0, 0]);
        write_array(bytes, 8, target.octets());
        if let Some(mac) = mac {
            write_array(bytes, NEIGHBOR_BYTES, [option, 1]);
            write_array(bytes, NEIGHBOR_BYTES + 2, mac.0);
        }
        Icmpv6Message(bytes).fill_checksum(source, destination);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const A: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xa);
    const B: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xb);
    const MAC_A: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x0a]);
    const MAC_B: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x0b]);

    // fe80::a to fe80::b, identifier 0x1234, sequence 7, three bytes of data.
    const ECHO: [u8; 11] = [128, 0, 0xeb, 0x68, 0x12, 0x34, 0, 7, 0xca, 0xfe, 0xba];

    // fe80::a asks ff02::1:ff00:b for fe80::b.
    const SOLICITATION: [u8; 32] = [
        135, 0, 0x7a, 0x73, 0, 0, 0, 0, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x0b, 1,
        1, 2, 0, 0, 0, 0, 0x0a,
    ];

    // fe80::b answers fe80::a: solicited, override.
    const ADVERTISEMENT: [u8; 32] = [
        136, 0, 0x17, 0xf6, 0x60, 0, 0, 0, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x0b,
        2, 1, 2, 0, 0, 0, 0, 0x0b,
    ];

    fn solicitation() -> NeighborHeader {
        NeighborHeader::Solicitation { target: B, source_mac: Some(MAC_A) }
    }

    fn advertisement() -> NeighborHeader {
        NeighborHeader::Advertisement {
            target: B,
            target_mac: Some(MAC_B),
            router: false,
            solicited: true,
            overrides: true,
        }
    }

    #[test]
    fn group_addresses() {
        let group = solicited_node(B);
        assert_eq!(group.to_string(), "ff02::1:ff00:b");
        assert_eq!(multicast_mac(group).to_string(), "33:33:ff:00:00:0b");
    }

    #[test]
    fn reads_literal_bytes() {
        let echo = Icmpv6Message::new_checked(&ECHO[..]).expect("a message");
        assert_eq!((echo.kind(), echo.code(), echo.checksum()), (ECHO_REQUEST, 0, 0xeb68));
        assert_eq!((echo.identifier(), echo.sequence()), (0x1234, 7));
        assert!(echo.is_checksum_valid(A, B) && !echo.is_checksum_valid(A, A));
        for (bytes, header) in [(SOLICITATION, solicitation()), (ADVERTISEMENT, advertisement())] {
            let message = NeighborMessage::new_checked(&bytes[..]).expect("a message");
            assert_eq!(NeighborHeader::read(&message), header);
        }
        let message = Icmpv6Message::new_checked(&SOLICITATION[..]).expect("a message");
        assert!(message.is_checksum_valid(A, solicited_node(B)));
    }

    #[test]
    fn builds_over_dirt() {
        let mut buffer = [0xa5; 33];
        solicitation().emit(A, solicited_node(B), &mut buffer).expect("room");
        assert_eq!(buffer[..32], SOLICITATION);
        let mut buffer = [0xa5; 32];
        advertisement().emit(B, A, &mut buffer).expect("room");
        assert_eq!(buffer, ADVERTISEMENT);
        let mut buffer = ECHO;
        let mut echo = Icmpv6Message::new_checked(&mut buffer[..]).expect("a message");
        echo.set_kind(0xa5);
        echo.set_checksum(0xa5a5);
        echo.payload_mut().fill(0);
        echo.payload_mut().copy_from_slice(&ECHO[8..]);
        echo.set_kind(ECHO_REQUEST);
        echo.fill_checksum(A, B);
        assert_eq!(buffer, ECHO);
    }

    #[test]
    fn options_that_lie_are_refused() {
        for (at, value) in [(25, 0), (25, 2), (0, 134), (1, 1)] {
            let mut bytes = SOLICITATION;
            bytes[at] = value;
            assert!(NeighborMessage::new_checked(&bytes[..]).is_err(), "{at} {value}");
        }
        assert!(NeighborMessage::new_checked(&SOLICITATION[..25]).is_err());
        assert!(NeighborMessage::new_checked(&SOLICITATION[..24]).is_ok());
    }

    proptest! {
        #[test]
        fn no_byte_string_panics(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..80),
            plausible: bool,
        ) {
            if plausible && bytes.len() >= 24 {
                bytes[0] = 135 + (bytes[0] & 1);
                bytes[1] = 0;
                for at in (24..bytes.len()).step_by(8) {
                    bytes[at] &= 3;
                    if let Some(len) = bytes.get_mut(at + 1) {
                        *len &= 1;
                    }
                }
            }
            if let Ok(message) = Icmpv6Message::new_checked(&bytes[..]) {
                let _ = (message.is_checksum_valid(A, B), message.identifier(), message.payload());
            }
            if let Ok(message) = NeighborMessage::new_checked(&bytes[..]) {
                let header = NeighborHeader::read(&message);
                let mut again = [0xa5; 32];
                header.emit(A, B, &mut again).expect("room");
                let again = NeighborMessage::new_checked(&again[..header.len_bytes()]);
                prop_assert_eq!(NeighborHeader::read(&again.expect("our own")), header);
            }
        }

        #[test]
        fn checksums_agree_with_etherparse(
            source: [u8; 16], destination: [u8; 16],
            mut bytes in proptest::collection::vec(any::<u8>(), 8..80),
        ) {
            bytes[..2].copy_from_slice(&[ECHO_REQUEST, 0]);
            let mut message = Icmpv6Message::new_checked(&mut bytes[..]).expect("8 bytes");
            message.fill_checksum(source.into(), destination.into());
            let theirs = etherparse::Icmpv6Slice::from_slice(&bytes).expect("a message");
            prop_assert!(theirs.is_checksum_valid(source, destination));
        }
    }
}
