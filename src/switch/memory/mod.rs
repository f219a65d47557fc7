//! Packet memory: whose each cell is, and who may have another.
//!
//! A frame takes whole cells of one memory, on two accounts at once: that of its **priority group**
//! (ingress port, priority), which protects lossless traffic, and that of its **queue** (egress
//! port, queue), which keeps lossy queues from each other's memory.
//!
//! | part of a group | filled | who may have it |
//! |---|---|---|
//! | minimum | first | this group alone |
//! | share | then | every group and queue, up to its threshold: static, or alpha times what is free |
//! | headroom | after XOFF alone | this lossless group, for what is under way when XOFF is said |
//!
//! Cells are given back in the reverse order, headroom first, so that three counters per group say
//! it all and a queued frame has to know its cells and its two accounts alone. A frame that does not
//! fit minimum and share goes to headroom whole. What a queue's own minimum covers passes the
//! thresholds of lossy traffic; other frames leave as many cells free as all queues' minima together
//! have, so that what a minimum promises is there.
//!
//! # For the stages around it
//!
//! [`Memory::admit`] takes a frame's cells or says why not, [`Memory::release`] gives them back
//! when the frame has left. Either may change which groups ought to be paused. PFC asks
//! [`Memory::has_signals`] after a call of the node and then takes [`Memory::next_signal`] until
//! there is none; [`Memory::xoff`] is the state at any time, for refreshing. A group is paused from
//! the frame on that did not fit under its threshold, until nothing of it is in headroom and it is
//! at most at the higher of `xon` and the threshold less `xon_offset`; since the threshold follows the
//! free memory, frames of others may bring that about. A group without cells is never paused for long:
//! the next release of any frame ends it.
//!
//! A memory with no minimum, threshold or lossless group keeps no accounts and costs a comparison.

mod cells;
mod config;
pub mod dcqcn;
pub mod headroom;
mod share;
#[cfg(test)]
mod tests;

use self::share::{Group, Queue};
use crate::ledger::DropReason;
use crate::node::PortId;

pub use cells::{CELL_BYTES_MAX, CELLS_MAX, Cells};
pub use config::{
    Alpha, AlphaError, GroupConfig, Lossless, PRIORITIES, PortShares, QueueConfig, Threshold,
};

/// A priority group: (ingress port, priority).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupId(u32);

impl GroupId {
    /// The group of a priority, 0 to 7, at a port.
    #[inline(always)]
    pub const fn new(port: PortId, priority: u8) -> Self {
        Self((port.0 as u32) << 3 | (priority & 7) as u32)
    }

    /// The port, and the priority there.
    pub const fn parts(self) -> (PortId, u8) {
        let [_, high, low, last] = (self.0 << 5).to_be_bytes();
        (PortId(u16::from_be_bytes([high, low])), last >> 5)
    }

    const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where a frame's cells are accounted: its priority group and its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    group: GroupId,
    queue: u32,
}

impl Account {
    /// That of a frame of `group` in a queue, 0 to 7, of the port that it leaves by.
    #[inline(always)]
    pub const fn new(group: GroupId, egress: PortId, queue: u32) -> Self {
        Self { group, queue: (egress.0 as u32) << 3 | queue & 7 }
    }

    const fn group_index(self) -> usize {
        self.group.index()
    }

    const fn queue_index(self) -> usize {
        self.queue as usize
    }
}

/// Which priorities of a port ought to be paused, where that has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal {
    /// The ingress port.
    pub port: PortId,
    /// Bit n is set while priority n ought to be paused.
    pub xoff: u8,
    /// Bit n is set where `xoff` differs from what the last signal of this port said.
    pub changed: u8,
}

/// What an account has and has had, in bytes of whole cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Now.
    pub bytes: u64,
    /// At most, ever.
    pub bytes_max: u64,
    /// Of them in headroom, now.
    pub headroom_bytes: u64,
    /// At most, ever, in headroom.
    pub headroom_bytes_max: u64,
}

/// What the pauses of one port are about.
#[derive(Clone, Copy, Debug, Default)]
struct PortState {
    xoff: u8,
    /// What the last signal said.
    told: u8,
    /// Listed among those that have something to say.
    is_listed: bool,
}

/// The memory of a switch.
#[derive(Clone, Debug)]
pub struct Memory {
    free: u32,
    /// While at least so many are free, the memory is calm: half of the shared cells are free, and
    /// as many have been in use before.
    free_calm: u32,
    /// Whether accounts are kept.
    is_shared: bool,
    cells: Cells,
    groups: Vec<Group>,
    queues: Vec<Queue>,
    /// Groups that are paused, in no order.
    paused: Vec<usize>,
    total: u32,
    free_min: u32,
    free_calm_min: u32,
    /// Cells outside the groups' minima and headrooms,
    shared: u32,
    /// of them those that the queues' minima keep.
    kept_for_queues: u32,
    /// Cells in use in minima and headrooms.
    sheltered: u32,
    in_headroom: u32,
    in_headroom_max: u32,
    /// No paused group resumes while fewer shared cells are free.
    resumes_at: u32,
    ports: Vec<PortState>,
    signals: Vec<PortId>,
}

impl Memory {
    /// A memory of `buffer_bytes` in cells of `cell_bytes`, shared as `ports` says. What
    /// [`check`](super::SwitchConfig::check) refuses is cut to fit.
    pub fn new<'a>(
        buffer_bytes: u64,
        cell_bytes: u32,
        ports: impl IntoIterator<Item = &'a PortShares>,
    ) -> Self {
        let cells = Cells::new(cell_bytes);
        let total = cells.within(buffer_bytes).min(CELLS_MAX);
        let mut memory = Self {
            free: total,
            free_calm: total,
            is_shared: false,
            cells,
            groups: Vec::new(),
            queues: Vec::new(),
            paused: Vec::new(),
            total,
            free_min: total,
            free_calm_min: 0,
            shared: total,
            kept_for_queues: 0,
            sheltered: 0,
            in_headroom: 0,
            in_headroom_max: 0,
            resumes_at: u32::MAX,
            ports: Vec::new(),
            signals: Vec::new(),
        };
        for port in ports {
            memory.is_shared |= !port.is_plain();
            memory.groups.extend(port.groups.iter().map(|group| Group::new(group, cells)));
            memory.queues.extend(port.queues.iter().map(|queue| Queue::new(queue, cells)));
            memory.ports.push(PortState::default());
        }
        if memory.is_shared {
            memory.share_out();
        }
        memory
    }

    fn share_out(&mut self) {
        let kept = |cells: &mut dyn Iterator<Item = u32>| {
            cells.fold(0_u32, u32::saturating_add).min(self.total)
        };
        let own = kept(&mut self.groups.iter().map(|g| g.min.saturating_add(g.headroom)));
        self.shared = self.total - own;
        self.kept_for_queues = kept(&mut self.queues.iter().map(|q| q.min)).min(self.shared);
        let common = self.shared - self.kept_for_queues;
        let calm = common / 2;
        self.free_calm_min = self.total - (common - calm);
        for group in &mut self.groups {
            group.limit_when_calm = group.limit.at(calm);
        }
        for queue in &mut self.queues {
            queue.limit_when_calm = queue.limit.at(calm);
        }
        self.paused.reserve_exact(self.groups.len());
        self.signals.reserve_exact(self.ports.len());
    }

    /// The size of a cell, ready to divide by.
    #[inline]
    pub const fn cells(&self) -> Cells {
        self.cells
    }

    /// All cells: also the most frames that can be queued.
    pub const fn cells_total(&self) -> u32 {
        self.total
    }

    /// Memory in use, in bytes of whole cells.
    pub const fn bytes(&self) -> u64 {
        self.cells.bytes(self.total - self.free)
    }

    /// The most memory that was ever in use.
    pub const fn bytes_max(&self) -> u64 {
        self.cells.bytes(self.total - self.free_min)
    }

    /// The most memory that all headrooms together ever had in use.
    pub const fn headroom_bytes_max(&self) -> u64 {
        self.cells.bytes(self.in_headroom_max)
    }

    /// Memory outside the minima and headrooms of the groups.
    pub const fn shared_bytes(&self) -> u64 {
        self.cells.bytes(self.shared)
    }

    /// Whether accounts are kept: some minimum, threshold or lossless group is set.
    pub const fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// A priority group's memory; zero where no accounts are kept.
    pub fn group(&self, port: PortId, priority: u8) -> Occupancy {
        self.groups.get(GroupId::new(port, priority).index()).map_or_else(
            Occupancy::default,
            |group| Occupancy {
                bytes: self.cells.bytes(group.used),
                bytes_max: self.cells.bytes(group.used_max),
                headroom_bytes: self.cells.bytes(group.in_headroom),
                headroom_bytes_max: self.cells.bytes(group.in_headroom_max),
            },
        )
    }

    /// A queue's memory; zero where no accounts are kept.
    pub fn queue(&self, port: PortId, queue: u8) -> Occupancy {
        let account = Account::new(GroupId::new(port, 0), port, u32::from(queue));
        self.queues.get(account.queue_index()).map_or_else(Occupancy::default, |queue| Occupancy {
            bytes: self.cells.bytes(queue.used),
            bytes_max: self.cells.bytes(queue.used_max),
            ..Occupancy::default()
        })
    }

    /// Whether some port has something to say about pauses.
    #[inline(always)]
    pub const fn has_signals(&self) -> bool {
        !self.signals.is_empty()
    }

    /// The next port whose pauses ought to change.
    pub fn next_signal(&mut self) -> Option<Signal> {
        while let Some(port) = self.signals.pop() {
            let Some(state) = self.ports.get_mut(port.index()) else { continue };
            state.is_listed = false;
            let changed = state.xoff ^ state.told;
            state.told = state.xoff;
            if changed != 0 {
                return Some(Signal { port, xoff: state.xoff, changed });
            }
        }
        None
    }

    /// The priorities of an ingress port that ought to be paused, as bits.
    pub fn xoff(&self, port: PortId) -> u8 {
        self.ports.get(port.index()).map_or(0, |state| state.xoff)
    }

    /// Takes `cells` for a frame if that needs no closer look: nothing is near a limit, and no
    /// account grows past what it has had before. False changes nothing and says nothing about
    /// whether [`admit`](Self::admit) would take it.
    #[inline(always)]
    pub fn admit_again(&mut self, account: Account, cells: u32) -> bool {
        if self.free < self.free_calm + cells {
            return false;
        }
        if self.is_shared {
            let Some(group) = self.groups.get_mut(account.group_index()) else { return false };
            let Some(queue) = self.queues.get_mut(account.queue_index()) else { return false };
            let (used, queued) = (group.used + cells, queue.used + cells);
            if used > group.calm || group.used < group.min || queued > queue.calm {
                return false;
            }
            group.used = used;
            queue.used = queued;
        }
        self.free -= cells;
        true
    }

    /// [`admit_again`](Self::admit_again) for a memory that keeps no accounts.
    #[inline(always)]
    pub(super) const fn take_again(&mut self, cells: u32) -> bool {
        debug_assert!(!self.is_shared, "cells without an account");
        let again = self.free >= self.free_calm + cells;
        if again {
            self.free -= cells;
        }
        again
    }

    /// Takes `cells` for a frame.
    ///
    /// # Errors
    /// [`DropReason::QueueLimit`] when the queue, [`DropReason::IngressLimit`] when the priority
    /// group is at its threshold, [`DropReason::BufferFull`] when no shared cells are free for it,
    /// [`DropReason::HeadroomFull`] when a lossless group has used up its headroom. A lossless group may be
    /// paused from now on either way.
    pub fn admit(&mut self, account: Account, cells: u32) -> Result<(), DropReason> {
        if !self.is_shared {
            if cells > self.free {
                return Err(DropReason::BufferFull);
            }
            self.take(cells);
            return Ok(());
        }
        let taken = self.total - self.free - self.sheltered;
        let free = self.shared.saturating_sub(self.kept_for_queues).saturating_sub(taken);
        let index = account.group_index();
        let (Some(group), Some(queue)) =
            (self.groups.get_mut(index), self.queues.get_mut(account.queue_index()))
        else {
            return Err(DropReason::NoDestination);
        };
        let queued = queue.used + cells;
        let is_kept = queued <= queue.min;
        if cells > self.free {
            return Err(DropReason::BufferFull);
        }
        if !is_kept && queued > queue.limit.at(free) {
            return Err(DropReason::QueueLimit);
        }
        let plain = group.plain();
        let after = plain + cells;
        let in_min = group.within_min(after) - group.within_min(plain);
        // What is kept for queues is for lossy groups: cells of a lossless one leave its headroom
        // first, and so might stay in what is kept.
        let is_kept = is_kept && !group.is_lossless;
        let available = if is_kept { self.shared - taken } else { free };
        let is_within = in_min == cells || is_kept || after <= group.limit.at(free);
        if is_within && cells - in_min <= available {
            self.sheltered += in_min;
        } else if !group.is_lossless {
            return Err(if is_within { DropReason::BufferFull } else { DropReason::IngressLimit });
        } else {
            let fits = group.in_headroom + cells <= group.headroom;
            if fits {
                group.in_headroom += cells;
                group.in_headroom_max = group.in_headroom_max.max(group.in_headroom);
                self.sheltered += cells;
                self.in_headroom += cells;
                self.in_headroom_max = self.in_headroom_max.max(self.in_headroom);
            }
            if !group.is_paused {
                group.is_paused = true;
                group.set_calm();
                self.resumes_at = self.resumes_at.min(group.resumes_at());
                self.paused.push(index);
                self.tell(index);
            }
            if !fits {
                return Err(DropReason::HeadroomFull);
            }
        }
        self.enter(account, cells);
        Ok(())
    }

    /// Puts admitted cells on their accounts.
    fn enter(&mut self, account: Account, cells: u32) {
        if let Some(group) = self.groups.get_mut(account.group_index()) {
            group.used += cells;
            if group.used > group.used_max {
                group.used_max = group.used;
                group.set_calm();
            }
        }
        if let Some(queue) = self.queues.get_mut(account.queue_index()) {
            queue.used += cells;
            if queue.used > queue.used_max {
                queue.used_max = queue.used;
                queue.set_calm();
            }
        }
        self.take(cells);
    }

    #[inline]
    fn take(&mut self, cells: u32) {
        self.free -= cells;
        if self.free < self.free_min {
            self.free_min = self.free;
            self.free_calm = self.free_min.max(self.free_calm_min);
        }
    }

    /// [`release`](Self::release) for a memory that keeps no accounts.
    #[inline(always)]
    pub(super) const fn give_again(&mut self, cells: u32) {
        debug_assert!(!self.is_shared, "cells without an account");
        self.free += cells;
    }

    /// Gives the cells of a frame back.
    #[inline(always)]
    pub fn release(&mut self, account: Account, cells: u32) {
        self.free += cells;
        if self.is_shared {
            self.leave(account, cells);
        }
    }

    #[inline(always)]
    fn leave(&mut self, account: Account, cells: u32) {
        let Some(queue) = self.queues.get_mut(account.queue_index()) else { return };
        queue.used -= cells;
        let Some(group) = self.groups.get_mut(account.group_index()) else { return };
        // Without a paused group nothing is in headroom.
        if self.paused.is_empty() && group.used >= group.min + cells {
            group.used -= cells;
            return;
        }
        self.leave_sheltered(account, cells);
    }

    /// A release that touches minimum or headroom, or may end a pause.
    #[inline(never)]
    fn leave_sheltered(&mut self, account: Account, cells: u32) {
        let Some(group) = self.groups.get_mut(account.group_index()) else { return };
        let before = group.plain();
        let from_headroom = cells.min(group.in_headroom);
        group.in_headroom -= from_headroom;
        group.used -= cells;
        let from_min = group.within_min(before) - group.within_min(group.plain());
        self.sheltered -= from_headroom + from_min;
        self.in_headroom -= from_headroom;
        if group.is_paused {
            self.resumes_at = self.resumes_at.min(group.resumes_at());
        }
        let free = self.free_shared();
        if free >= self.resumes_at && !self.paused.is_empty() {
            self.resume(free);
        }
    }

    /// Shared cells that are free, without those kept for queues.
    const fn free_shared(&self) -> u32 {
        let taken = self.total - self.free - self.sheltered;
        self.shared.saturating_sub(self.kept_for_queues).saturating_sub(taken)
    }

    /// Ends the pauses that `free` shared cells allow to end.
    fn resume(&mut self, free: u32) {
        self.resumes_at = u32::MAX;
        let mut at = 0;
        while let Some(index) = self.paused.get(at).copied() {
            let Some(group) = self.groups.get_mut(index) else { return };
            let resumes_at = group.resumes_at();
            if free < resumes_at {
                self.resumes_at = self.resumes_at.min(resumes_at);
                at += 1;
                continue;
            }
            group.is_paused = false;
            group.set_calm();
            self.paused.swap_remove(at);
            self.tell(index);
        }
    }

    /// Flips the pause of a group, and lists its port.
    fn tell(&mut self, index: usize) {
        let (port, priority) = (index / PRIORITIES, index % PRIORITIES);
        let (Some(state), Ok(id)) = (self.ports.get_mut(port), u16::try_from(port)) else { return };
        state.xoff ^= 1 << priority;
        if !state.is_listed {
            state.is_listed = true;
            self.signals.push(PortId(id));
        }
    }
}
