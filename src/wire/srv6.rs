//! The segment routing header (RFC 8754), an IPv6 routing header of type 4.

use std::net::Ipv6Addr;

use super::{WireError, need, read_array, read_u16, write_array};

const NAME: &str = "SRH";

/// Bytes before the segment list.
pub const FIXED_BYTES: usize = 8;

/// Bytes of one segment.
pub const SEGMENT_BYTES: usize = 16;

/// The routing type.
pub const ROUTING_TYPE: u8 = 4;

/// Where Segments Left lies in the header.
pub const SEGMENTS_LEFT_AT: usize = 3;

/// A view of a segment routing header, from its next header field on.
#[derive(Clone, Copy, Debug)]
pub struct Srh<T>(T);

impl<T: AsRef<[u8]>> Srh<T> {
    /// A view of `buffer`, which begins with the header and may go on behind it. Whether segments
    /// left and last entry fit the list is another question:
    /// [`is_consistent`](Self::is_consistent).
    ///
    /// # Errors
    /// Another routing type, or a length past the buffer's end.
    pub fn new_checked(buffer: T) -> Result<Self, WireError> {
        let bytes = buffer.as_ref();
        need(NAME, FIXED_BYTES, bytes.len())?;
        if bytes[2] != ROUTING_TYPE {
            return Err(WireError::Malformed { header: NAME, what: "the routing type is not 4" });
        }
        need(NAME, (usize::from(bytes[1]) + 1) * 8, bytes.len())?;
        Ok(Self(buffer))
    }

    /// What follows the header.
    pub fn next_header(&self) -> u8 {
        self.0.as_ref()[0]
    }

    /// Bytes of the whole header.
    pub fn len_bytes(&self) -> usize {
        (usize::from(self.0.as_ref()[1]) + 1) * 8
    }

    /// The index of the segment that is active, in a full list.
    pub fn segments_left(&self) -> u8 {
        self.0.as_ref()[SEGMENTS_LEFT_AT]
    }

    /// The index of the list's last element: the path's first segment, or its second in a reduced
    /// header.
    pub fn last_entry(&self) -> u8 {
        self.0.as_ref()[4]
    }

    /// Groups packets of a class.
    pub fn tag(&self) -> u16 {
        read_u16(self.0.as_ref(), 6)
    }

    /// Whether last entry lies in the header and segments left at most one beyond it (RFC 8986
    /// section 4.1, line S10).
    pub fn is_consistent(&self) -> bool {
        let bytes = self.0.as_ref();
        // Counted in units of 8 bytes, of which a segment has two.
        let segments = bytes[1] / 2;
        self.last_entry() < segments && self.segments_left() <= self.last_entry() + 1
    }

    /// A segment of the list, which lies in reverse order of the path; None behind the header.
    pub fn segment(&self, index: u8) -> Option<Ipv6Addr> {
        let at = FIXED_BYTES + usize::from(index) * SEGMENT_BYTES;
        let in_header = at + SEGMENT_BYTES <= self.len_bytes();
        in_header.then(|| Ipv6Addr::from(read_array::<SEGMENT_BYTES>(self.0.as_ref(), at)))
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Srh<T> {
    /// Sets segments left.
    pub fn set_segments_left(&mut self, segments_left: u8) {
        self.0.as_mut()[SEGMENTS_LEFT_AT] = segments_left;
    }
}

/// Bytes of a header with `segments` of them.
pub const fn len_bytes(segments: usize) -> usize {
    FIXED_BYTES + segments * SEGMENT_BYTES
}

/// Writes a header at the start of `buffer`, for a path whose first segment is in the destination
/// address alone (a reduced header, RFC 8754 section 4.1.1): `segments` are the others, in the order of
/// the path. Gives its length.
///
/// # Errors
/// No segments or more than 127, or a buffer too short.
pub fn emit_reduced(
    segments: &[Ipv6Addr],
    next_header: u8,
    buffer: &mut [u8],
) -> Result<usize, WireError> {
    let count = u8::try_from(segments.len()).ok().filter(|count| (1..=127).contains(count));
    let Some(count) = count else {
        return Err(WireError::Malformed { header: NAME, what: "a list has 1 to 127 segments" });
    };
    let len = len_bytes(segments.len());
    need(NAME, len, buffer.len())?;
    write_array(buffer, 0, [next_header, count * 2, ROUTING_TYPE, count, count - 1, 0, 0, 0]);
    for (at, segment) in (FIXED_BYTES..len).step_by(SEGMENT_BYTES).zip(segments.iter().rev()) {
        write_array(buffer, at, segment.octets());
    }
    Ok(len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // IPv6 follows; three segments, two left, tag 0x1234.
    const HEADER: [u8; 56] = {
        let mut bytes = [0; 56];
        bytes[0] = 41;
        bytes[1] = 6;
        bytes[2] = 4;
        bytes[3] = 2;
        bytes[4] = 2;
        bytes[6] = 0x12;
        bytes[7] = 0x34;
        bytes[23] = 0xa;
        bytes[39] = 0xb;
        bytes[55] = 0xc;
        bytes
    };

    #[test]
    fn reads_literal_bytes() {
        let srh = Srh::new_checked(&HEADER[..]).expect("a header");
        assert_eq!((srh.next_header(), srh.len_bytes(), srh.tag()), (41, 56, 0x1234));
        assert_eq!((srh.segments_left(), srh.last_entry()), (2, 2));
        assert!(srh.is_consistent());
        let segments = [0, 1, 2].map(|index| srh.segment(index).map(Ipv6Addr::to_bits));
        assert_eq!(segments, [Some(0xa), Some(0xb), Some(0xc)]);
        assert_eq!(srh.segment(3), None);
        assert!(Srh::new_checked(&HEADER[..55]).is_err());
        assert!(Srh::new_checked(&[41, 0, 3, 0, 0, 0, 0, 0][..]).is_err());
    }

    #[test]
    fn lies_about_the_list_are_found() {
        let consistent = |left, last| {
            let mut bytes = HEADER;
            (bytes[3], bytes[4]) = (left, last);
            Srh::new_checked(&bytes[..]).expect("a header").is_consistent()
        };
        assert!(consistent(0, 0) && consistent(3, 2) && consistent(1, 0));
        assert!(
            !consistent(4, 2) && !consistent(0, 3) && !consistent(2, 0) && !consistent(255, 255)
        );
        let empty = [41, 0, 4, 0, 0, 0, 0, 0];
        assert!(!Srh::new_checked(&empty[..]).expect("a header").is_consistent());
    }

    proptest! {
        #[test]
        fn what_is_built_reads_back_over_dirt(
            segments in proptest::collection::vec(any::<u128>(), 0..6), next_header: u8,
        ) {
            let path: Vec<Ipv6Addr> = segments.iter().map(|bits| Ipv6Addr::from_bits(*bits)).collect();
            let mut buffer = [0xa5; 120];
            let built = emit_reduced(&path, next_header, &mut buffer);
            if segments.is_empty() {
                prop_assert!(built.is_err());
                return Ok(());
            }
            let len = built.expect("room");
            let mut srh = Srh::new_checked(&mut buffer[..len]).expect("our own");
            prop_assert!(srh.is_consistent() && srh.len_bytes() == len);
            prop_assert_eq!(srh.next_header(), next_header);
            for segment in path {
                let left = srh.segments_left() - 1;
                srh.set_segments_left(left);
                prop_assert_eq!(srh.segment(left), Some(segment));
            }
            prop_assert_eq!(srh.segments_left(), 0);
            prop_assert!(buffer[len..].iter().all(|byte| *byte == 0xa5));
            prop_assert!(emit_reduced(&[Ipv6Addr::LOCALHOST], 0, &mut [0; 23]).is_err());
        }

        #[test]
        fn no_byte_string_panics(mut bytes in proptest::collection::vec(any::<u8>(), 0..80), index: u8) {
            if let [_, len, kind, ..] = &mut bytes[..] {
                *len %= 12;
                *kind = 4;
            }
            if let Ok(srh) = Srh::new_checked(&bytes[..]) {
                let _ = (srh.tag(), srh.next_header(), srh.segment(index));
                if srh.is_consistent() && srh.segments_left() > 0 {
                    prop_assert!(srh.segment(srh.segments_left() - 1).is_some());
                }
            }
        }
    }
}
