//! Headers as checked views over byte slices and builders, one file per header.
//!
//! `new_checked` looks at every length once; after it no accessor can fail, for any byte string. A
//! view over the leading bytes of a longer frame is made with `new_checked_prefix`, where a header
//! has a length field of its own. [`parse()`] reads what a switch classifies by in one pass.

pub mod arp;
pub mod checksum;
pub mod ecn;
pub mod ecn_tunnel;
pub mod ethernet;
pub mod icmp_error;
pub mod icmpv4;
pub mod icmpv6;
pub mod ipv4;
pub mod ipv6;
pub mod mac;
pub mod parse;
pub mod pfc;
pub mod srv6;
pub mod stream;
pub mod udp;
pub mod usid;
pub mod vlan;
pub mod vxlan;

pub use mac::MacAddr;
pub use parse::{ParseError, ParsedFrame, parse};

/// Values of the EtherType field (IEEE 802 numbers, IANA).
pub mod ethertype {
    /// Internet Protocol version 4 (RFC 894).
    pub const IPV4: u16 = 0x0800;
    /// Address Resolution Protocol (RFC 826).
    pub const ARP: u16 = 0x0806;
    /// Customer VLAN tag (IEEE 802.1Q clause 9.6, C-TAG).
    pub const VLAN: u16 = 0x8100;
    /// Service VLAN tag (IEEE 802.1ad, S-TAG).
    pub const VLAN_SERVICE: u16 = 0x88a8;
    /// The outer tag of equipment from before 802.1ad.
    pub const VLAN_9100: u16 = 0x9100;
    /// Internet Protocol version 6 (RFC 2464).
    pub const IPV6: u16 = 0x86dd;
    /// MAC control (IEEE 802.3 clause 31.4): pause frames of both kinds.
    pub const MAC_CONTROL: u16 = 0x8808;
}

/// Values of the IPv4 protocol and IPv6 next header fields (IANA).
pub mod protocol {
    /// ICMP for IPv4 (RFC 792).
    pub const ICMPV4: u8 = 1;
    /// IPv4 in a tunnel (RFC 2003).
    pub const IPV4: u8 = 4;
    /// UDP (RFC 768).
    pub const UDP: u8 = 17;
    /// IPv6 in a tunnel (RFC 2473).
    pub const IPV6: u8 = 41;
    /// ICMP for IPv6 (RFC 4443).
    pub const ICMPV6: u8 = 58;
}

/// Why bytes are not the header that they were taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Fewer bytes than the header or one of its length fields asks for.
    #[error("{header} needs {need_bytes} bytes and has {have_bytes}")]
    Truncated {
        /// The header's name.
        header: &'static str,
        /// Bytes that it needs.
        need_bytes: usize,
        /// Bytes that are there.
        have_bytes: usize,
    },
    /// A field contradicts the header's definition.
    #[error("{header}: {what}")]
    Malformed {
        /// The header's name.
        header: &'static str,
        /// What is wrong.
        what: &'static str,
    },
}

/// `Ok` when `have_bytes` suffice.
const fn need(header: &'static str, need_bytes: usize, have_bytes: usize) -> Result<(), WireError> {
    if have_bytes < need_bytes {
        return Err(WireError::Truncated { header, need_bytes, have_bytes });
    }
    Ok(())
}

/// The two bytes at `at`, which a view has checked to be there.
fn read_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// The `N` bytes at `at`, which a view has checked to be there.
fn read_array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

/// Overwrites the bytes at `at`, which a view has checked to be there.
fn write_array<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&value);
}
