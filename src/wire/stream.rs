//! The header of a stream's frames, behind UDP: which stream, which frame, planned for when.
//!
//! | bytes | field |
//! |---|---|
//! | 0 to 3 | magic, `54 57 53 01` ("TWS", version 1) |
//! | 4 to 7 | stream |
//! | 8 to 15 | sequence number, from 0 |
//! | 16 to 23 | planned send time, in picoseconds since the start of the run |
//!
//! Integers are in network order. The pattern payload follows.

use super::{WireError, need, read_array, write_array};
use crate::time::Time;

const NAME: &str = "stream header";

/// Bytes of the header.
pub const HEADER_BYTES: usize = 24;

/// What the header starts with.
pub const MAGIC: [u8; 4] = [0x54, 0x57, 0x53, 0x01];

/// What the header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamHeader {
    /// The stream's number.
    pub stream: u32,
    /// The frame's number in it, from 0.
    pub sequence: u64,
    /// When the frame was planned to be sent, whenever it was.
    pub planned: Time,
}

impl StreamHeader {
    /// Reads the header at the start of `bytes`.
    ///
    /// # Errors
    /// Fewer than 24 bytes, or another magic number.
    pub fn read(bytes: &[u8]) -> Result<Self, WireError> {
        need(NAME, HEADER_BYTES, bytes.len())?;
        if read_array(bytes, 0) != MAGIC {
            return Err(WireError::Malformed { header: NAME, what: "another magic number" });
        }
        Ok(Self {
            stream: u32::from_be_bytes(read_array(bytes, 4)),
            sequence: u64::from_be_bytes(read_array(bytes, 8)),
            planned: Time::from_ps(u64::from_be_bytes(read_array(bytes, 16))),
        })
    }

    /// Writes the header at the start of `buffer`.
    ///
    /// # Errors
    /// Fewer than 24 bytes.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<(), WireError> {
        need(NAME, HEADER_BYTES, buffer.len())?;
        write_array(buffer, 0, MAGIC);
        write_array(buffer, 4, self.stream.to_be_bytes());
        write_array(buffer, 8, self.sequence.to_be_bytes());
        write_array(buffer, 16, self.planned.as_ps().to_be_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: [u8; 24] =
        [0x54, 0x57, 0x53, 1, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0x03, 0xe8];
    const HEADER: StreamHeader =
        StreamHeader { stream: 9, sequence: 256, planned: Time::from_ns(1) };

    #[test]
    fn literal_bytes_both_ways() {
        assert_eq!(StreamHeader::read(&BYTES), Ok(HEADER));
        let mut buffer = [0xa5; 25];
        HEADER.emit(&mut buffer).expect("room");
        assert_eq!(buffer[..24], BYTES);
        assert_eq!(buffer[24], 0xa5);
        assert!(StreamHeader::read(&BYTES[..23]).is_err());
        assert!(StreamHeader::read(&[0; 24]).is_err());
        assert!(HEADER.emit(&mut [0; 23]).is_err());
    }
}
