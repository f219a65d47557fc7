//! Hashes of flow keys.
//!
//! CRC-32, XOR and, with equal keys, Toeplitz are linear: another seed of CRC-32 or XOR changes the
//! hash of every key of one length by the same constant. Two tiers of switches that hash the same
//! fields by them therefore polarise whatever their seeds are, where group sizes are powers of two:
//! the second tier sees only flows that agree in the bits it would spread them by. Murmur3, Toeplitz with
//! another key, or further fields do not.

use super::key::{Fields, FlowKey, Packet};
use crate::rng::Rng;

/// How a flow key becomes a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HashAlgorithm {
    /// CRC-32 of IEEE 802.3, begun with the seed in place of a CRC of earlier bytes.
    Crc32,
    /// Murmur3, 32 bits (A. Appleby, x86 form).
    #[default]
    Murmur3,
    /// Toeplitz, as in receive side scaling; seed 0 is the published verification key, repeated.
    Toeplitz,
    /// All 16-bit words of the key XORed with each other and with the seed.
    Xor,
}

/// Positions of half bytes in the longest key, and values of a half byte.
type ToeplitzTable = [[u32; 16]; 128];

#[derive(Clone, Debug)]
enum State {
    Crc32(u32),
    Murmur3(u32),
    Toeplitz(Box<ToeplitzTable>),
    Xor(u32),
}

/// A hash of selected fields of a frame.
#[derive(Clone, Debug)]
pub struct FlowHash {
    fields: Fields,
    state: State,
}

impl FlowHash {
    /// The hash of `fields` by `algorithm` with `seed`.
    pub fn new(fields: Fields, algorithm: HashAlgorithm, seed: u32) -> Self {
        let state = match algorithm {
            HashAlgorithm::Crc32 => State::Crc32(seed),
            HashAlgorithm::Murmur3 => State::Murmur3(seed),
            HashAlgorithm::Toeplitz => State::Toeplitz(toeplitz_table(seed)),
            HashAlgorithm::Xor => State::Xor(seed),
        };
        Self { fields, state }
    }

    /// The fields.
    pub const fn fields(&self) -> Fields {
        self.fields
    }

    /// The hash of a frame.
    #[inline]
    pub fn of(&self, packet: &Packet<'_>) -> u32 {
        self.of_key(&FlowKey::of(packet, self.fields))
    }

    /// The hash of a key.
    #[inline]
    pub fn of_key(&self, key: &FlowKey) -> u32 {
        self.of_bytes(key.as_bytes())
    }

    #[inline]
    fn of_bytes(&self, bytes: &[u8]) -> u32 {
        match &self.state {
            State::Crc32(seed) => {
                let mut crc = crc32fast::Hasher::new_with_initial(*seed);
                crc.update(bytes);
                crc.finalize()
            }
            State::Murmur3(seed) => murmur3(bytes, *seed),
            State::Toeplitz(table) => toeplitz(bytes, table),
            State::Xor(seed) => xor(bytes, *seed),
        }
    }
}

fn murmur3(bytes: &[u8], seed: u32) -> u32 {
    let mix =
        |block: u32| block.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    let (blocks, tail) = bytes.as_chunks::<4>();
    let mut hash = seed;
    for block in blocks {
        hash ^= mix(u32::from_le_bytes(*block));
        hash = hash.rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    let last = tail.iter().rev().fold(0, |block, byte| block << 8 | u32::from(*byte));
    hash ^= mix(last);
    // Keys have at most 64 bytes.
    hash ^= u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}

fn xor(bytes: &[u8], seed: u32) -> u32 {
    let (words, tail) = bytes.as_chunks::<2>();
    let mut folded = (seed ^ seed >> 16) & 0xffff;
    for word in words {
        folded ^= u32::from(u16::from_be_bytes(*word));
    }
    if let [last] = tail {
        folded ^= u32::from(*last) << 8;
    }
    folded
}

/// The verification key of receive side scaling.
const TOEPLITZ_KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
    0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
    0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

/// What each half byte at each position adds: for every bit that is set, the 32 bits of the key
/// that begin at the bit's position.
fn toeplitz_table(seed: u32) -> Box<ToeplitzTable> {
    // 64 bytes of input, and the 32 bits at the last of them.
    let mut key = [0_u8; 68];
    if seed == 0 {
        for (to, from) in key.iter_mut().zip(TOEPLITZ_KEY.iter().cycle()) {
            *to = *from;
        }
    } else {
        let mut rng = Rng::for_node(u64::from(seed), "toeplitz key");
        for chunk in key.chunks_mut(8) {
            let drawn = rng.next_u64().to_be_bytes();
            chunk.copy_from_slice(&drawn[..chunk.len()]);
        }
    }
    let window = |bit: usize| {
        let mut bytes = [0; 8];
        let from = &key[bit / 8..];
        let len = from.len().min(8);
        bytes[..len].copy_from_slice(&from[..len]);
        let [a, b, c, d, ..] = (u64::from_be_bytes(bytes) << (bit % 8)).to_be_bytes();
        u32::from_be_bytes([a, b, c, d])
    };
    let mut table = Box::new([[0; 16]; 128]);
    for (position, row) in table.iter_mut().enumerate() {
        for (value, sum) in row.iter_mut().enumerate() {
            for bit in (0..4).filter(|bit| value & 8 >> bit != 0) {
                *sum ^= window(position * 4 + bit);
            }
        }
    }
    table
}

fn toeplitz(bytes: &[u8], table: &ToeplitzTable) -> u32 {
    let (pairs, _) = table.as_chunks::<2>();
    bytes.iter().zip(pairs).fold(0, |hash, (byte, [high, low])| {
        hash ^ high[usize::from(byte >> 4)] ^ low[usize::from(byte & 15)]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(algorithm: HashAlgorithm, seed: u32, bytes: &[u8]) -> u32 {
        FlowHash::new(Fields::NONE, algorithm, seed).of_bytes(bytes)
    }

    #[test]
    fn crc_32_gives_its_check_value() {
        assert_eq!(hash(HashAlgorithm::Crc32, 0, b"123456789"), 0xcbf4_3926);
        // The seed stands for what came before.
        let before = hash(HashAlgorithm::Crc32, 0, b"1234");
        assert_eq!(hash(HashAlgorithm::Crc32, before, b"56789"), 0xcbf4_3926);
    }

    #[test]
    fn murmur3_gives_the_known_answers() {
        let cases: [(&[u8], u32, u32); 9] = [
            (b"", 0, 0),
            (b"", 1, 0x514e_28b7),
            (b"", 0xffff_ffff, 0x81f1_6f39),
            (&[0; 4], 0, 0x2362_f9de),
            (&[0xff; 4], 0, 0x7629_3b50),
            (&[0x21, 0x43, 0x65, 0x87], 0x5082_edee, 0x2362_f9de),
            (&[0x21, 0x43, 0x65], 0, 0x7e4a_8634),
            (&[0x21], 0, 0x7266_1cf4),
            (b"Hello, world!", 0x9747_b28c, 0x2488_4cba),
        ];
        for (bytes, seed, want) in cases {
            assert_eq!(hash(HashAlgorithm::Murmur3, seed, bytes), want, "{bytes:?} {seed:#x}");
        }
    }

    /// The verification suite of receive side scaling: destination and port, source and port, hash
    /// of addresses alone, hash with ports.
    #[test]
    fn toeplitz_gives_the_known_answers() {
        let v4 = [
            ([161, 142, 100, 80], 1766_u16, [66, 9, 149, 187], 2794_u16, 0x323e_8fc2, 0x51cc_c178),
            ([65, 69, 140, 83], 4739, [199, 92, 111, 2], 14230, 0xd718_262a, 0xc626_b0ea),
            ([12, 22, 207, 184], 38024, [24, 19, 198, 95], 12898, 0xd2d0_a5de, 0x5c2b_394a),
            ([209, 142, 163, 6], 2217, [38, 27, 205, 30], 48228, 0x8298_9176, 0xafc7_327f),
            ([202, 188, 127, 2], 1303, [153, 39, 163, 191], 44251, 0x5d18_09c5, 0x10e8_28a2),
        ];
        for (destination, to, source, from, addresses, all) in v4 {
            let mut bytes = [source, destination].concat();
            assert_eq!(hash(HashAlgorithm::Toeplitz, 0, &bytes), addresses);
            bytes.extend(from.to_be_bytes());
            bytes.extend(to.to_be_bytes());
            assert_eq!(hash(HashAlgorithm::Toeplitz, 0, &bytes), all);
        }
        let v6: [(&str, u16, &str, u16, u32, u32); 3] = [
            ("3ffe:2501:200:3::1", 1766, "3ffe:2501:200:1fff::7", 2794, 0x2cc1_8cd5, 0x4020_7d3d),
            ("ff02::1", 4739, "3ffe:501:8::260:97ff:fe40:efab", 14230, 0x0f0c_461c, 0xdde5_1bbf),
            (
                "fe80::200:f8ff:fe21:67cf",
                38024,
                "3ffe:1900:4545:3:200:f8ff:fe21:67cf",
                44251,
                0x4b61_e985,
                0x02d1_feef,
            ),
        ];
        for (destination, to, source, from, addresses, all) in v6 {
            let octets = |text: &str| text.parse::<std::net::Ipv6Addr>().expect("address").octets();
            let mut bytes = [octets(source), octets(destination)].concat();
            assert_eq!(hash(HashAlgorithm::Toeplitz, 0, &bytes), addresses);
            bytes.extend(from.to_be_bytes());
            bytes.extend(to.to_be_bytes());
            assert_eq!(hash(HashAlgorithm::Toeplitz, 0, &bytes), all);
        }
    }

    #[test]
    fn toeplitz_takes_keys_of_full_length() {
        let mut seen = std::collections::BTreeSet::new();
        for at in 0..64 {
            let mut bytes = [0; 64];
            bytes[at] = 0x11;
            assert!(seen.insert(hash(HashAlgorithm::Toeplitz, 9, &bytes)), "byte {at}");
        }
    }

    #[test]
    fn xor_folds_words() {
        assert_eq!(hash(HashAlgorithm::Xor, 0, &[0x12, 0x34, 0x01, 0x01, 0xff]), 0xec35);
        assert_eq!(hash(HashAlgorithm::Xor, 0x0001_0100, &[0, 2]), 0x0103);
    }
}
