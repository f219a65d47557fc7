//! MAC addresses (IEEE 802-2014 clause 8.2).

use std::fmt;
use std::str::FromStr;

/// A 48-bit MAC address, first octet on the wire first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// All ones.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// True for group addresses: the lowest bit of the first octet is set.
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 == 1
    }

    /// True for 01:80:C2:00:00:00 to 0F, which bridges never forward (IEEE 802.1Q clause 8.6.3).
    pub const fn is_link_local(self) -> bool {
        matches!(self.0, [0x01, 0x80, 0xc2, 0, 0, 0..=0x0f])
    }

    /// The address as the low 48 bits of an integer, first octet highest.
    pub const fn as_u64(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }

    /// The address in the low 48 bits of `bits`.
    pub const fn from_u64(bits: u64) -> Self {
        let [_, _, a, b, c, d, e, f] = bits.to_be_bytes();
        Self([a, b, c, d, e, f])
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// Not six octets in hexadecimal with colons.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a MAC address like 02:00:00:00:00:01")]
pub struct MacAddrError(String);

impl FromStr for MacAddr {
    type Err = MacAddrError;
    fn from_str(text: &str) -> Result<Self, MacAddrError> {
        let mut octets = [0; 6];
        let mut parts = text.split(':');
        for octet in &mut octets {
            *octet = parts
                .next()
                .filter(|part| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit()))
                .and_then(|part| u8::from_str_radix(part, 16).ok())
                .ok_or_else(|| MacAddrError(text.to_owned()))?;
        }
        if parts.next().is_some() {
            return Err(MacAddrError(text.to_owned()));
        }
        Ok(Self(octets))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_shows_and_classifies() {
        let mac: MacAddr = "01:80:c2:00:00:0e".parse().expect("a MAC");
        assert_eq!(mac.to_string(), "01:80:c2:00:00:0e");
        assert!(mac.is_group() && mac.is_link_local());
        assert!(!MacAddr([1, 0x80, 0xc2, 0, 0, 0x10]).is_link_local());
        assert_eq!(MacAddr::from_u64(mac.as_u64()), mac);
        for bad in
            ["", "01:80:c2:00:00", "01:80:c2:00:00:0e:00", "1:80:c2:00:00:0e", "0g:80:c2:00:00:0e"]
        {
            assert!(bad.parse::<MacAddr>().is_err(), "{bad}");
        }
    }
}
