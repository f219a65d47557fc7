//! The memory against one that is recomputed from the queued frames after every step.

use super::*;
use crate::ledger::Drops;
use crate::rng::Rng;

const PORTS: u16 = 3;

/// A frame that the memory holds.
#[derive(Clone, Copy, Debug)]
struct Held {
    account: Account,
    cells: u32,
}

/// What the memory's documentation says, without anything kept ready.
#[derive(Debug)]
struct Model<'a> {
    total: u64,
    cell_bytes: u64,
    ports: &'a [PortShares],
    held: Vec<Held>,
    /// Cells in headroom and whether it is paused, by group.
    groups: Vec<(u64, bool)>,
}

impl<'a> Model<'a> {
    fn new(total: u64, cell_bytes: u64, ports: &'a [PortShares]) -> Self {
        let groups = vec![(0, false); ports.len() * PRIORITIES];
        Self { total, cell_bytes, ports, held: Vec::new(), groups }
    }

    fn config(&self, group: usize) -> GroupConfig {
        self.ports[group / 8].groups[group % 8]
    }

    fn queue_config(&self, queue: usize) -> QueueConfig {
        self.ports[queue / 8].queues[queue % 8]
    }

    fn holding(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.cell_bytes)
    }

    fn used(&self, group: usize) -> u64 {
        let held = self.held.iter().filter(|held| held.account.group_index() == group);
        held.map(|held| u64::from(held.cells)).sum()
    }

    fn queued(&self, queue: usize) -> u64 {
        let held = self.held.iter().filter(|held| held.account.queue_index() == queue);
        held.map(|held| u64::from(held.cells)).sum()
    }

    fn min(&self, group: usize) -> u64 {
        self.holding(self.config(group).min_bytes)
    }

    fn headroom(&self, group: usize) -> u64 {
        self.config(group).lossless.map_or(0, |lossless| self.holding(lossless.headroom_bytes))
    }

    /// Shared cells: all of them, those kept for queues, those in use.
    fn shared(&self) -> (u64, u64, u64) {
        let groups = 0..self.groups.len();
        let own: u64 = groups.clone().map(|g| self.min(g) + self.headroom(g)).sum();
        let kept = groups.clone().map(|q| self.holding(self.queue_config(q).min_bytes)).sum();
        let taken =
            groups.map(|g| (self.used(g) - self.groups[g].0).saturating_sub(self.min(g))).sum();
        (self.total - own, kept, taken)
    }

    fn limit(&self, min: u64, threshold: Threshold, free: u64) -> u64 {
        let scaled = threshold.dt_alpha.map_or(u64::MAX, |alpha| {
            let factor = 1 << alpha.exponent().unsigned_abs();
            min + if alpha.exponent() < 0 { free / factor } else { free * factor }
        });
        scaled.min(threshold.static_bytes.map_or(u64::MAX, |bytes| bytes / self.cell_bytes))
    }

    fn admit(&mut self, account: Account, cells: u32) -> Result<(), DropReason> {
        let (group, queue, n) = (account.group_index(), account.queue_index(), u64::from(cells));
        let (shared, kept, taken) = self.shared();
        let free = (shared - kept).saturating_sub(taken);
        let (config, queue_config) = (self.config(group), self.queue_config(queue));
        let queue_min = self.holding(queue_config.min_bytes);
        let in_queue = self.queued(queue) + n;
        let in_use: u64 = self.held.iter().map(|held| u64::from(held.cells)).sum();
        if in_use + n > self.total {
            return Err(DropReason::BufferFull);
        }
        if in_queue > queue_min && in_queue > self.limit(queue_min, queue_config.threshold, free) {
            return Err(DropReason::QueueLimit);
        }
        let min = self.min(group);
        let plain = self.used(group) - self.groups[group].0;
        let of_shared = (plain + n).saturating_sub(min) - plain.saturating_sub(min);
        let is_kept = in_queue <= queue_min && config.lossless.is_none();
        let is_within =
            of_shared == 0 || is_kept || plain + n <= self.limit(min, config.threshold, free);
        let there = if is_kept { shared - taken } else { free };
        if !is_within || of_shared > there {
            if config.lossless.is_none() {
                let full =
                    if is_within { DropReason::BufferFull } else { DropReason::IngressLimit };
                return Err(full);
            }
            self.groups[group].1 = true;
            if self.groups[group].0 + n > self.headroom(group) {
                return Err(DropReason::HeadroomFull);
            }
            self.groups[group].0 += n;
        }
        self.held.push(Held { account, cells });
        Ok(())
    }

    fn release(&mut self, at: usize) -> Held {
        let held = self.held.remove(at);
        let in_headroom = &mut self.groups[held.account.group_index()].0;
        *in_headroom = in_headroom.saturating_sub(u64::from(held.cells));
        let (shared, kept, taken) = self.shared();
        let free = (shared - kept).saturating_sub(taken);
        for group in 0..self.groups.len() {
            let (in_headroom, is_paused) = self.groups[group];
            let Some(lossless) = self.config(group).lossless.filter(|_| is_paused) else {
                continue;
            };
            let limit = self.limit(self.min(group), self.config(group).threshold, free);
            let offset = self.holding(lossless.xon_offset_bytes);
            let level = (lossless.xon_bytes / self.cell_bytes).max(limit.saturating_sub(offset));
            if in_headroom == 0 && self.used(group) <= level {
                self.groups[group].1 = false;
            }
        }
        held
    }

    fn xoff(&self, port: u16) -> u8 {
        let of_port = &self.groups[usize::from(port) * 8..][..8];
        (0..8).fold(0, |mask, p| mask | u8::from(of_port[p].1) << p)
    }
}

fn threshold(rng: &mut Rng, bytes: u64) -> Threshold {
    let exponent = i8::try_from(rng.below(15)).expect("small") - 7;
    let kind = rng.below(4);
    Threshold {
        static_bytes: (kind & 1 == 1).then(|| rng.below(bytes)),
        dt_alpha: Alpha::from_exponent(exponent).filter(|_| kind & 2 == 2),
    }
}

fn shares(rng: &mut Rng, bytes: u64) -> PortShares {
    let mut port = PortShares::default();
    for group in &mut port.groups {
        if rng.below(2) == 0 {
            continue;
        }
        group.min_bytes = rng.below(3) * rng.below(bytes / 100);
        group.threshold = threshold(rng, bytes);
        group.lossless = (rng.below(2) == 0).then(|| Lossless {
            headroom_bytes: rng.below(bytes / 60),
            xon_bytes: rng.below(2) * rng.below(bytes / 50),
            xon_offset_bytes: rng.below(2) * rng.below(bytes / 50),
        });
    }
    for queue in &mut port.queues {
        if rng.below(2) == 0 {
            queue.min_bytes = rng.below(2) * rng.below(bytes / 100);
            queue.threshold = threshold(rng, bytes);
        }
    }
    port
}

fn account(rng: &mut Rng) -> Account {
    let below = |rng: &mut Rng, bound| u8::try_from(rng.below(bound)).expect("small");
    let port = |rng: &mut Rng| PortId(u16::from(below(rng, PORTS.into())));
    let group = GroupId::new(port(rng), below(rng, 4));
    Account::new(group, port(rng), u32::from(below(rng, 4)))
}

/// What a run came across.
#[derive(Debug, Default)]
struct Seen {
    again: u64,
    reasons: Drops,
    xoff: u64,
    xon: u64,
}

/// Frames come and go; rising and falling, so that the memory is full and empty in turn.
fn run(seed: u64, seen: &mut Seen) {
    let mut rng = Rng::for_node(seed, "memory");
    let cell_bytes = [1, 64, 208, 256][usize::try_from(rng.below(4)).expect("small")];
    let total = 2_000 + rng.below(2_000);
    let bytes = total * cell_bytes;
    let ports: Vec<_> = (0..PORTS).map(|_| shares(&mut rng, bytes)).collect();
    let mut memory = Memory::new(bytes, u32::try_from(cell_bytes).expect("small"), &ports);
    let mut model = Model::new(total, cell_bytes, &ports);
    let mut told = [0_u8; PORTS as usize];
    let mut rising = true;
    for step in 0..600_u64 {
        if step % 150 == 0 {
            rising = !rising || step == 0;
        }
        if rng.below(10) < if rising { 8 } else { 2 } || model.held.is_empty() {
            let account = account(&mut rng);
            let most = 1 + rng.below(total / 20);
            let cells = u32::try_from(1 + rng.below(most)).expect("small");
            let occupancy = |memory: &Memory| {
                let (group, queue) = (account.group_index(), account.queue_index());
                let port = |index: usize| PortId(u16::try_from(index / 8).expect("a port"));
                let number = |index: usize| u8::try_from(index % 8).expect("below 8");
                (
                    memory.group(port(group), number(group)),
                    memory.queue(port(queue), number(queue)).bytes,
                    memory.bytes(),
                )
            };
            let before = occupancy(&memory);
            let queue = account.queue_index();
            let is_kept =
                before.1 + memory.cells().bytes(cells) <= model.queue_config(queue).min_bytes;
            let want = model.admit(account, cells);
            if memory.admit_again(account, cells) {
                seen.again += 1;
                assert_eq!(want, Ok(()), "seed {seed} step {step}: the short way is too short");
            } else {
                assert_eq!(
                    occupancy(&memory),
                    before,
                    "seed {seed} step {step}: the short way left something"
                );
                assert_eq!(memory.admit(account, cells), want, "seed {seed} step {step}");
            }
            if let Err(reason) = want {
                seen.reasons.count(reason);
                let group = model.config(account.group_index());
                assert!(
                    !is_kept || group.lossless.is_some(),
                    "seed {seed} step {step}: a queue's minimum is not there"
                );
            }
        } else {
            let at = rng.below(model.held.len() as u64);
            let held = model.release(usize::try_from(at).expect("small"));
            memory.release(held.account, held.cells);
        }
        let in_use: u64 = model.held.iter().map(|held| u64::from(held.cells)).sum();
        assert_eq!(memory.bytes(), in_use * cell_bytes, "seed {seed} step {step}");
        while let Some(signal) = memory.next_signal() {
            let said = &mut told[signal.port.index()];
            assert_ne!(signal.changed, 0);
            assert_eq!(signal.xoff ^ *said, signal.changed);
            seen.xoff += u64::from((signal.xoff & signal.changed).count_ones());
            seen.xon += u64::from((!signal.xoff & signal.changed).count_ones());
            *said = signal.xoff;
        }
        for port in 0..PORTS {
            let xoff = memory.xoff(PortId(port));
            assert_eq!(xoff, model.xoff(port), "seed {seed} step {step} port {port}");
            assert_eq!(xoff, told[usize::from(port)], "every change is signalled");
            for priority in 0..8 {
                let of = usize::from(port) * 8 + usize::from(priority);
                let group = memory.group(PortId(port), priority);
                assert_eq!(group.bytes, model.used(of) * cell_bytes, "seed {seed} step {step}");
                assert_eq!(group.headroom_bytes, model.groups[of].0 * cell_bytes);
                assert!(group.headroom_bytes == 0 || xoff >> priority & 1 == 1);
                let queue = memory.queue(PortId(port), priority);
                assert_eq!(queue.bytes, model.queued(of) * cell_bytes, "seed {seed} step {step}");
            }
        }
    }
    while !model.held.is_empty() {
        let held = model.release(0);
        memory.release(held.account, held.cells);
    }
    assert_eq!(memory.bytes(), 0);
    assert_eq!(memory.sheltered, 0, "seed {seed}");
    for port in 0..PORTS {
        assert_eq!(memory.xoff(PortId(port)), 0, "seed {seed}: a pause outlives its frames");
    }
}

#[test]
fn every_decision_is_that_of_the_rules_written_out() {
    let mut seen = Seen::default();
    for seed in 0..50 {
        run(seed, &mut seen);
    }
    let of = |reason: DropReason| seen.reasons.of(reason);
    assert!(seen.again > 1_000, "the short way was taken: {seen:?}");
    assert!(seen.xoff > 100 && seen.xon > 100, "groups were paused and resumed: {seen:?}");
    for reason in [
        DropReason::QueueLimit,
        DropReason::IngressLimit,
        DropReason::BufferFull,
        DropReason::HeadroomFull,
    ] {
        assert!(of(reason) > 20, "{}: {seen:?}", reason.name());
    }
}

fn at(port: u16) -> Account {
    Account::new(GroupId::new(PortId(port), 3), PortId(0), 3)
}

/// Ports whose priority 3 is as `group` says.
fn ports(n: usize, group: GroupConfig) -> Vec<PortShares> {
    let mut port = PortShares::default();
    port.groups[3] = group;
    vec![port; n]
}

#[test]
fn a_plain_memory_is_given_out_whole_and_not_beyond() {
    let mut memory = Memory::new(1_000, 300, &[PortShares::default(), PortShares::default()]);
    assert!(!memory.is_shared());
    assert!(!memory.admit_again(at(1), 1), "more than ever before asks for the longer way");
    assert_eq!(memory.admit(at(1), 2), Ok(()));
    assert_eq!(memory.admit(at(1), 2), Err(DropReason::BufferFull));
    memory.release(at(1), 2);
    assert!(memory.admit_again(at(1), 2));
    assert!(!memory.admit_again(at(1), 1));
    assert_eq!((memory.bytes(), memory.bytes_max()), (600, 600));
}

#[test]
fn xoff_comes_with_the_frame_beyond_the_threshold_and_xon_below_the_offset() {
    let group = GroupConfig {
        min_bytes: 0,
        threshold: Threshold { static_bytes: Some(10), dt_alpha: None },
        lossless: Some(Lossless { headroom_bytes: 4, xon_bytes: 0, xon_offset_bytes: 3 }),
    };
    let mut memory = Memory::new(100, 1, &ports(2, group));
    assert_eq!(memory.admit(at(1), 10), Ok(()));
    assert!(!memory.has_signals(), "at the threshold is not beyond it");
    assert_eq!(memory.admit(at(1), 2), Ok(()));
    let xoff = Signal { port: PortId(1), xoff: 1 << 3, changed: 1 << 3 };
    assert_eq!((memory.next_signal(), memory.next_signal()), (Some(xoff), None));
    assert_eq!(memory.admit(at(1), 3), Err(DropReason::HeadroomFull));
    assert_eq!(memory.admit(at(1), 2), Ok(()), "headroom to its last cell");
    assert_eq!(memory.group(PortId(1), 3).headroom_bytes, 4);
    memory.release(at(1), 4);
    memory.release(at(1), 2);
    assert!(!memory.has_signals(), "8 of 10 is less than 3 below");
    memory.release(at(1), 1);
    let xon = Signal { port: PortId(1), xoff: 0, changed: 1 << 3 };
    assert_eq!((memory.next_signal(), memory.next_signal()), (Some(xon), None));
}

#[test]
fn frames_of_others_end_a_pause_when_the_threshold_rises() {
    let group = GroupConfig {
        min_bytes: 0,
        threshold: Threshold { static_bytes: None, dt_alpha: Some(Alpha::ONE) },
        lossless: Some(Lossless { headroom_bytes: 10, xon_bytes: 0, xon_offset_bytes: 0 }),
    };
    // 100 cells, 20 of them headroom of port 1 and 2.
    let mut memory = Memory::new(130, 1, &ports(3, group));
    assert_eq!(memory.admit(at(1), 45), Ok(()));
    assert_eq!(memory.admit(at(2), 30), Ok(()));
    assert!(!memory.has_signals());
    assert_eq!(memory.admit(at(2), 1), Ok(()), "25 are free, and it would have 31");
    assert_eq!(memory.xoff(PortId(2)), 1 << 3);
    memory.release(at(2), 1);
    assert_eq!(memory.xoff(PortId(2)), 1 << 3, "still 30 against 25");
    memory.release(at(1), 4);
    assert_eq!(memory.xoff(PortId(2)), 1 << 3, "30 against 29");
    memory.release(at(1), 1);
    assert_eq!(memory.xoff(PortId(2)), 0, "30 against 30");
}

#[test]
fn nothing_pends_when_xoff_and_xon_fall_between_two_looks() {
    let group = GroupConfig {
        threshold: Threshold { static_bytes: Some(1), dt_alpha: None },
        lossless: Some(Lossless { headroom_bytes: 8, xon_bytes: 0, xon_offset_bytes: 0 }),
        min_bytes: 0,
    };
    let mut memory = Memory::new(100, 1, &ports(2, group));
    assert_eq!(memory.admit(at(0), 2), Ok(()));
    memory.release(at(0), 2);
    assert!(memory.has_signals());
    assert_eq!(memory.next_signal(), None);
    assert!(!memory.has_signals());
}

#[test]
fn a_group_knows_its_port_and_priority() {
    for port in [0, 1, 255, 256, 8_191, u16::MAX] {
        for priority in 0..8 {
            let parts = GroupId::new(PortId(port), priority).parts();
            assert_eq!(parts, (PortId(port), priority));
        }
    }
}
