//! A capture read into memory before it is sent, so that no disk delays a frame.

use std::io::{self, Read};

use super::run::{Stopped, each_record};
use super::{CaptureClock, CaptureReader};
use crate::time::{Duration, Time};

/// A capture in memory, with the times of its records.
#[derive(Debug, Default)]
pub struct Preloaded {
    /// The time of each record, and where its bytes end.
    records: Vec<(Time, usize)>,
    bytes: Vec<u8>,
    zero_length: u64,
}

impl Preloaded {
    /// Reads all records of a capture; gives also why it was not read to its end.
    ///
    /// # Errors
    /// None of its own; those of the capture are in the result.
    pub fn read<R: Read>(
        reader: &mut CaptureReader<R>,
        gap_max: Duration,
        interrupted: impl FnMut() -> bool,
    ) -> io::Result<(Self, Option<Stopped>)> {
        let mut clock = CaptureClock::new(gap_max);
        let mut loaded = Self::default();
        let stopped = each_record(reader, interrupted, |record| {
            let at = clock.place(record.timestamp_ns);
            if record.bytes.is_empty() {
                loaded.zero_length += 1;
            } else {
                loaded.bytes.extend_from_slice(&record.bytes);
                loaded.records.push((at, loaded.bytes.len()));
            }
            Ok(())
        })?;
        Ok((loaded, stopped))
    }

    /// Records without a byte, which are no frames.
    pub const fn zero_length(&self) -> u64 {
        self.zero_length
    }

    /// Records that are frames.
    pub const fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether no record is a frame.
    pub const fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The time of record `index` of those that are frames, and its bytes.
    pub fn get(&self, index: usize) -> Option<(Time, &[u8])> {
        let (at, end) = *self.records.get(index)?;
        let from = index.checked_sub(1).map_or(0, |before| self.records[before].1);
        Some((at, &self.bytes[from..end]))
    }

    /// Every record that is a frame, with its time.
    pub fn records(&self) -> impl Iterator<Item = (Time, &[u8])> {
        (0..self.records.len()).filter_map(|index| self.get(index))
    }
}
