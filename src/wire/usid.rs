//! SRv6 micro-segments (RFC 9800, NEXT-C-SID): arithmetic on addresses.
//!
//! A destination address is a container: the locator block, then uSIDs, the active one first, then
//! zeros. A node that finds its own uSID active moves what follows it (the argument) to its place.

use std::net::Ipv6Addr;

use super::WireError;

const NAME: &str = "uSID container";

/// How an address is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsidLayout {
    block_bits: u8,
    usid_bits: u8,
}

impl UsidLayout {
    /// 32 bits of block and uSIDs of 16.
    pub const F3216: Self = Self { block_bits: 32, usid_bits: 16 };

    /// A block of `block_bits` and uSIDs of `usid_bits`.
    ///
    /// # Errors
    /// Lengths that are zero, not whole bytes, or more than 128 bits in sum.
    pub const fn new(block_bits: u8, usid_bits: u8) -> Result<Self, WireError> {
        let what = if block_bits == 0 || usid_bits == 0 {
            "block and uSID have at least 8 bits each"
        } else if !block_bits.is_multiple_of(8) || !usid_bits.is_multiple_of(8) {
            "block and uSID are whole bytes"
        } else if block_bits as u32 + usid_bits as u32 > 128 {
            "block and uSID have at most 128 bits in sum"
        } else {
            return Ok(Self { block_bits, usid_bits });
        };
        Err(WireError::Malformed { header: NAME, what })
    }

    /// Bits of the locator block.
    pub const fn block_bits(self) -> u8 {
        self.block_bits
    }

    /// Bits of a uSID.
    pub const fn usid_bits(self) -> u8 {
        self.usid_bits
    }

    /// Bits of block and active uSID: the length of the prefix by which a node knows its own.
    pub const fn prefix_bits(self) -> u8 {
        self.block_bits + self.usid_bits
    }

    /// uSIDs that one container holds.
    pub const fn usids_max(self) -> usize {
        ((128 - self.block_bits) / self.usid_bits) as usize
    }

    /// The bits of the block, set.
    const fn block_mask(self) -> u128 {
        // At least 8 and at most 120 bits.
        u128::MAX << (128 - self.block_bits)
    }

    /// What follows the active uSID, at the upper end; 0 at the end of the container.
    #[inline]
    pub const fn argument(self, address: u128) -> u128 {
        match address.checked_shl(self.prefix_bits() as u32) {
            Some(argument) => argument,
            None => 0,
        }
    }

    /// The container without its active uSID: the argument moves up, zeros fill the end.
    #[inline]
    pub const fn shift(self, address: u128) -> u128 {
        let mask = self.block_mask();
        address & mask | address << self.usid_bits & !mask
    }

    /// Containers for a path of `usids`, in order: as many in each as fit, in addresses of `block`.
    ///
    /// # Errors
    /// A uSID of 0, which ends a container, or of more bits than the layout's.
    pub fn pack(self, block: Ipv6Addr, usids: &[u32]) -> Result<Vec<Ipv6Addr>, WireError> {
        let block = block.to_bits() & self.block_mask();
        let too_long = |usid: &u32| u32::BITS - usid.leading_zeros() > u32::from(self.usid_bits);
        if usids.contains(&0) {
            return Err(WireError::Malformed { header: NAME, what: "uSID 0 ends a container" });
        }
        if usids.iter().any(too_long) {
            return Err(WireError::Malformed { header: NAME, what: "a uSID has too many bits" });
        }
        let container = |usids: &[u32]| {
            let mut free_bits = 128 - u32::from(self.block_bits);
            let mut address = block;
            for usid in usids {
                free_bits -= u32::from(self.usid_bits);
                address |= u128::from(*usid) << free_bits;
            }
            Ipv6Addr::from_bits(address)
        };
        Ok(usids.chunks(self.usids_max()).map(container).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bits(text: &str) -> u128 {
        text.parse::<Ipv6Addr>().expect("an address").to_bits()
    }

    #[test]
    fn a_shift_moves_the_argument_to_the_block() {
        let layout = UsidLayout::F3216;
        let address = bits("fcbb:bb00:1:2:3:d6::");
        assert_eq!(layout.argument(address), 0x0002_0003_00d6 << 80);
        assert_eq!(layout.shift(address), bits("fcbb:bb00:2:3:d6::"));
        assert_eq!(layout.argument(bits("fcbb:bb00:d6::")), 0);
        assert_eq!(layout.shift(bits("fcbb:bb00:1:2:3:4:5:6")), bits("fcbb:bb00:2:3:4:5:6:0"));
        let long = UsidLayout::new(32, 32).expect("a layout");
        assert_eq!(long.shift(bits("fcbb:bb00:1:e001:2:3::")), bits("fcbb:bb00:2:3::"));
        let bytes = UsidLayout::new(40, 8).expect("a layout");
        assert_eq!(bytes.shift(bits("fcbb:bb00:aa01:0203::")), bits("fcbb:bb00:aa02:0300::"));
        let whole = UsidLayout::new(64, 64).expect("a layout");
        assert_eq!(whole.argument(u128::MAX), 0);
        assert_eq!(whole.shift(u128::MAX), u128::MAX << 64);
    }

    #[test]
    fn paths_fill_containers_in_order() {
        let layout = UsidLayout::F3216;
        let block = "fcbb:bb00::".parse().expect("an address");
        let path = layout.pack(block, &[1, 2, 3, 4, 5, 6, 7]).expect("a path");
        let path: Vec<String> = path.iter().map(ToString::to_string).collect();
        assert_eq!(path, ["fcbb:bb00:1:2:3:4:5:6", "fcbb:bb00:7::"]);
        assert!(layout.pack(block, &[1, 0, 2]).is_err());
        assert!(layout.pack(block, &[0x1_0000]).is_err());
        assert_eq!(layout.pack(block, &[]), Ok(Vec::new()));
    }

    #[test]
    fn lengths_that_make_no_layout() {
        for (block, usid) in [(0, 16), (32, 0), (17, 16), (32, 12), (120, 16)] {
            assert!(UsidLayout::new(block, usid).is_err(), "{block} {usid}");
        }
        assert!(UsidLayout::new(120, 8).is_ok());
    }

    proptest! {
        #[test]
        fn a_path_is_walked_segment_by_segment(
            block_bytes in 1_u8..=15, usid_bytes in 1_u8..=4, block: u128,
            usids in proptest::collection::vec(1_u32..256, 1..20),
        ) {
            prop_assume!(block_bytes + usid_bytes <= 16);
            let layout = UsidLayout::new(block_bytes * 8, usid_bytes * 8).expect("a layout");
            let mut walked = Vec::new();
            for container in layout.pack(block.into(), &usids).expect("a path") {
                let mut address = container.to_bits();
                loop {
                    prop_assert_eq!(address >> (128 - layout.block_bits()), block >> (128 - layout.block_bits()));
                    let active = (address & !layout.block_mask()) >> (128 - u32::from(layout.prefix_bits()));
                    walked.push(u32::try_from(active).expect("small"));
                    if layout.argument(address) == 0 {
                        break;
                    }
                    address = layout.shift(address);
                }
            }
            prop_assert_eq!(walked, usids);
        }
    }
}
