//! A prefix of IPv4 or IPv6 addresses, written `10.1.0.0/16` or `fcbb:bb00:1::/48`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Addresses that begin with the same bits; no bit behind them is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IpPrefix {
    address: IpAddr,
    len: u8,
}

/// Why a text or a pair is no prefix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IpPrefixError {
    /// Not an address, a slash and a number.
    #[error("`{0}` is not a prefix like 10.1.0.0/16 or fcbb:bb00:1::/48")]
    Syntax(String),
    /// More bits than an address has.
    #[error("/{len}: an address has {bits} bits")]
    Length {
        /// The length asked for.
        len: u8,
        /// The bits of an address.
        bits: u8,
    },
    /// Bits behind the prefix.
    #[error("{address}/{len} has bits set behind the prefix: write {network}/{len}")]
    HostBits {
        /// The address given.
        address: IpAddr,
        /// The length given.
        len: u8,
        /// The address without those bits.
        network: IpAddr,
    },
}

impl IpPrefix {
    /// The prefix of `len` bits of `address`.
    ///
    /// # Errors
    /// More bits than the address has, or bits set behind the prefix.
    pub fn new(address: IpAddr, len: u8) -> Result<Self, IpPrefixError> {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        if len > bits {
            return Err(IpPrefixError::Length { len, bits });
        }
        let prefix = Self::of(address, len);
        if prefix.address != address {
            return Err(IpPrefixError::HostBits { address, len, network: prefix.address });
        }
        Ok(prefix)
    }

    /// The prefix of `len` bits that `address` is in; None when it has fewer bits.
    pub fn around(address: IpAddr, len: u8) -> Option<Self> {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        (len <= bits).then(|| Self::of(address, len))
    }

    /// The prefix of one address.
    pub fn host(address: IpAddr) -> Self {
        Self { address, len: if address.is_ipv4() { 32 } else { 128 } }
    }

    /// The prefix that `address` begins with; `len` is at most its bits.
    fn of(address: IpAddr, len: u8) -> Self {
        let host = |bits: u8| u32::from(bits - len);
        let address = match address {
            IpAddr::V4(v4) => {
                IpAddr::V4((v4.to_bits() & u32::MAX.checked_shl(host(32)).unwrap_or(0)).into())
            }
            IpAddr::V6(v6) => {
                IpAddr::V6((v6.to_bits() & u128::MAX.checked_shl(host(128)).unwrap_or(0)).into())
            }
        };
        Self { address, len }
    }

    /// The first address.
    pub const fn address(self) -> IpAddr {
        self.address
    }

    /// Bits of the prefix.
    pub const fn len(self) -> u8 {
        self.len
    }

    /// Whether every address is in it.
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Whether `address` is in it.
    pub fn contains(self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4() && Self::of(address, self.len) == self
    }

    /// Whether all of `other` is in it.
    pub fn covers(self, other: Self) -> bool {
        self.len <= other.len && self.contains(other.address)
    }
}

impl fmt::Display for IpPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

impl FromStr for IpPrefix {
    type Err = IpPrefixError;

    fn from_str(text: &str) -> Result<Self, IpPrefixError> {
        let syntax = || IpPrefixError::Syntax(text.to_owned());
        let (address, len) = text.split_once('/').ok_or_else(syntax)?;
        let address = address.parse().map_err(|_| syntax())?;
        Self::new(address, len.parse().map_err(|_| syntax())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> IpPrefix {
        text.parse().expect("a prefix")
    }

    #[test]
    fn what_is_written_reads_back() {
        for text in ["10.1.0.0/16", "0.0.0.0/0", "10.0.0.1/32", "fcbb:bb00:1::/48", "::/0"] {
            assert_eq!(prefix(text).to_string(), text);
        }
        assert_eq!(IpPrefix::host("10.0.0.1".parse().expect("an address")), prefix("10.0.0.1/32"));
    }

    #[test]
    fn refusals_say_what_would_be_right() {
        for (text, want) in [
            ("10.1.0.0", "`10.1.0.0` is not a prefix like 10.1.0.0/16 or fcbb:bb00:1::/48"),
            ("10.1/16", "`10.1/16` is not a prefix like 10.1.0.0/16 or fcbb:bb00:1::/48"),
            ("10.1.0.0/33", "/33: an address has 32 bits"),
            ("::/129", "/129: an address has 128 bits"),
            ("10.1.2.0/16", "10.1.2.0/16 has bits set behind the prefix: write 10.1.0.0/16"),
            ("fcbb::1/48", "fcbb::1/48 has bits set behind the prefix: write fcbb::/48"),
        ] {
            assert_eq!(text.parse::<IpPrefix>().expect_err(text).to_string(), want);
        }
    }

    #[test]
    fn prefixes_hold_addresses_and_prefixes_of_their_family() {
        let block = prefix("fcbb:bb00::/32");
        assert!(block.contains("fcbb:bb00:ffff::9".parse().expect("an address")));
        assert!(!block.contains("fcbb:bb01::".parse().expect("an address")));
        assert!(block.covers(prefix("fcbb:bb00:1::/48")) && block.covers(block));
        assert!(!prefix("fcbb:bb00:1::/48").covers(block));
        assert!(!prefix("::/0").covers(prefix("0.0.0.0/0")));
        assert!(prefix("0.0.0.0/0").is_empty() && prefix("10.0.0.0/8").len() == 8);
    }
}
