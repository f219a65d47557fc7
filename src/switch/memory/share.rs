//! The accounts that the memory keeps: priority groups and queues.

use super::cells::Cells;
use super::config::{GroupConfig, QueueConfig, Threshold};

/// The free memory is scaled by 2^32 and shifted back, which multiplies it by alpha.
const SHIFT_OF_ONE: i16 = 32;

/// What leaves nothing of the scaled free memory.
const SHIFT_OF_NONE: u32 = 63;

/// How far a share may grow, in cells.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    /// What the dynamic part begins at: the share's minimum, or more than any memory has where
    /// there is no dynamic part.
    base: u64,
    shift: u32,
    /// The static part.
    cells: u32,
}

impl Limit {
    pub(super) fn new(min: u32, threshold: Threshold, cells: Cells) -> Self {
        let (base, shift) = match threshold.dt_alpha {
            Some(alpha) => {
                let shift = (SHIFT_OF_ONE - i16::from(alpha.exponent())).unsigned_abs();
                (u64::from(min), u32::from(shift))
            }
            None => (u64::from(u32::MAX), SHIFT_OF_NONE),
        };
        let cells = threshold.static_bytes.map_or(u32::MAX, |bytes| cells.within(bytes));
        Self { base, shift, cells }
    }

    /// The most cells that the share may have while `free` shared ones are free.
    #[inline]
    pub(super) fn at(self, free: u32) -> u32 {
        let dynamic = self.base + ((u64::from(free) << SHIFT_OF_ONE) >> self.shift);
        u32::try_from(dynamic).unwrap_or(u32::MAX).min(self.cells)
    }

    /// The least number of free cells at which the share may have `cells`; None when that is never.
    fn least_free(self, cells: u32) -> Option<u32> {
        if cells > self.cells {
            return None;
        }
        let dynamic = u64::from(cells).saturating_sub(self.base);
        let free = match self.shift.checked_sub(32) {
            Some(shift) => dynamic << shift,
            None => dynamic.div_ceil(1 << (32 - self.shift)),
        };
        u32::try_from(free).ok()
    }
}

/// One (ingress port, priority). What every frame needs stands together, at an address that a shift
/// finds.
#[derive(Clone, Debug)]
#[repr(C, align(128))]
pub(super) struct Group {
    /// All its cells.
    pub(super) used: u32,
    /// Up to here nothing has to be looked at while the memory as a whole is calm: the group is
    /// within its threshold and has had as much before. None while it is paused.
    pub(super) calm: u32,
    pub(super) min: u32,
    /// Of `used`, what lies in headroom: only while paused.
    pub(super) in_headroom: u32,
    pub(super) headroom: u32,
    pub(super) limit: Limit,
    /// What the limit is while half of the shared memory is free.
    pub(super) limit_when_calm: u32,
    xon: u32,
    xon_offset: u32,
    pub(super) used_max: u32,
    pub(super) in_headroom_max: u32,
    pub(super) is_lossless: bool,
    pub(super) is_paused: bool,
}

impl Group {
    pub(super) fn new(config: &GroupConfig, cells: Cells) -> Self {
        let min = cells.holding(config.min_bytes);
        let lossless = config.lossless;
        Self {
            used: 0,
            calm: 0,
            min,
            in_headroom: 0,
            headroom: lossless.map_or(0, |lossless| cells.holding(lossless.headroom_bytes)),
            limit: Limit::new(min, config.threshold, cells),
            limit_when_calm: 0,
            xon: lossless.map_or(0, |lossless| cells.within(lossless.xon_bytes)),
            xon_offset: lossless.map_or(0, |lossless| cells.holding(lossless.xon_offset_bytes)),
            used_max: 0,
            in_headroom_max: 0,
            is_lossless: lossless.is_some(),
            is_paused: false,
        }
    }

    /// Cells outside headroom: the minimum is filled first.
    #[inline]
    pub(super) const fn plain(&self) -> u32 {
        self.used - self.in_headroom
    }

    /// Of `plain` cells, those that the minimum holds.
    #[inline]
    pub(super) fn within_min(&self, plain: u32) -> u32 {
        plain.min(self.min)
    }

    /// The least number of free shared cells at which XON is due.
    pub(super) fn resumes_at(&self) -> u32 {
        if self.in_headroom > 0 {
            return u32::MAX;
        }
        if self.used <= self.xon {
            return 0;
        }
        self.limit.least_free(self.used.saturating_add(self.xon_offset)).unwrap_or(u32::MAX)
    }

    /// To be called when `used_max` or `is_paused` has changed.
    #[inline]
    pub(super) fn set_calm(&mut self) {
        self.calm = if self.is_paused { 0 } else { self.used_max.min(self.limit_when_calm) };
    }
}

/// One (egress port, queue).
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct Queue {
    /// All its cells.
    pub(super) used: u32,
    /// As in [`Group`].
    pub(super) calm: u32,
    pub(super) min: u32,
    pub(super) limit: Limit,
    pub(super) limit_when_calm: u32,
    pub(super) used_max: u32,
}

impl Queue {
    pub(super) fn new(config: &QueueConfig, cells: Cells) -> Self {
        let min = cells.holding(config.min_bytes);
        Self {
            used: 0,
            calm: 0,
            min,
            limit: Limit::new(min, config.threshold, cells),
            limit_when_calm: 0,
            used_max: 0,
        }
    }

    #[inline]
    pub(super) fn set_calm(&mut self) {
        self.calm = self.used_max.min(self.limit_when_calm);
    }
}
