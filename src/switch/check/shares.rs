//! Shares of the memory that do not fit together, or do not keep what a lossless class promises.

use super::super::config::{PortConfig, QUEUES, SwitchConfig};
use super::super::memory::{Cells, GroupConfig, Lossless};
use super::super::trim::{TRIM_BYTES_MAX, TRIM_BYTES_MIN};
use super::{ETHERNET_BYTES, SwitchConfigError, SwitchConfigPlace, TAG_BYTES};

type Problem = (&'static str, String);

/// The longest frame that the MTU lets in, with one tag.
const fn frame_bytes(port: &PortConfig) -> u64 {
    (port.mtu_bytes + ETHERNET_BYTES + TAG_BYTES) as u64
}

impl SwitchConfig {
    /// The priorities that are lossless at any port, as bits.
    pub fn lossless_mask(&self) -> u8 {
        self.ports.iter().fold(0, |mask, port| mask | port.shares.lossless_mask())
    }

    /// The queues that some lossless priority takes, as bits.
    pub fn lossless_queues(&self) -> u8 {
        let lossless = self.lossless_mask();
        let queues = (0_u8..).zip(&self.priority_to_queue);
        let taken = queues.filter(|(priority, _)| lossless >> priority & 1 == 1);
        taken.fold(0, |mask, (_, queue)| mask | 1_u8.wrapping_shl(u32::from(*queue)))
    }

    /// Memory beside all minima and headrooms, in bytes of whole cells; zero when they do not fit.
    pub fn shared_bytes(&self) -> u64 {
        self.common_cells().map_or(0, |cells| cells * u64::from(self.cell_bytes))
    }

    pub(super) fn check_shares(&self) -> Result<(), SwitchConfigError> {
        let error = |place, label: String, (field, problem): Problem| SwitchConfigError {
            place,
            label,
            field,
            problem,
        };
        let name = &self.name;
        let common = self
            .common_cells()
            .map_err(|p| error(SwitchConfigPlace::Switch, format!("switch {name}"), p))?;
        for (index, port) in self.ports.iter().enumerate() {
            let at = format!("port {name}:{}", port.name);
            for (priority, group) in port.shares.groups.iter().enumerate() {
                self.check_group(port, group, common).map_err(|problem| {
                    let label = format!("{at}, priority {priority}");
                    error(SwitchConfigPlace::Group(index, priority), label, problem)
                })?;
            }
            for queue in 0..QUEUES {
                self.check_queue(port, queue, common).map_err(|problem| {
                    let label = format!("{at}, queue {queue}");
                    error(SwitchConfigPlace::Queue(index, queue), label, problem)
                })?;
            }
        }
        self.check_trim().map_err(|p| error(SwitchConfigPlace::Switch, format!("switch {name}"), p))
    }

    /// Cells beside all minima and headrooms.
    fn common_cells(&self) -> Result<u64, Problem> {
        let cells = Cells::new(self.cell_bytes);
        let sum = |of: &dyn Fn(&PortConfig) -> u64| -> u64 { self.ports.iter().map(of).sum() };
        let in_cells = |bytes: u64| u64::from(cells.holding(bytes));
        let headrooms = sum(&|port| {
            let lossless = port.shares.groups.iter().filter_map(|group| group.lossless);
            lossless.map(|lossless| in_cells(lossless.headroom_bytes)).sum()
        });
        let groups = sum(&|port| port.shares.groups.iter().map(|g| in_cells(g.min_bytes)).sum());
        let queues = sum(&|port| port.shares.queues.iter().map(|q| in_cells(q.min_bytes)).sum());
        let own = headrooms + groups + queues;
        let total = u64::from(cells.within(self.buffer_bytes));
        let longest = self.ports.iter().map(frame_bytes).max().unwrap_or(0);
        if own == 0 || own + in_cells(longest) <= total {
            return Ok(total.saturating_sub(own));
        }
        let count = self.ports.iter().map(|port| port.shares.lossless_mask().count_ones());
        let cell = u64::from(self.cell_bytes);
        Err((
            "buffer_bytes",
            format!(
                "{} bytes are too few for {} headrooms with {} bytes in all, minima of groups with {} and of queues with {}, and a frame of {longest}: {} bytes in whole cells of {cell}",
                self.buffer_bytes,
                count.sum::<u32>(),
                headrooms * cell,
                groups * cell,
                queues * cell,
                (own + in_cells(longest)) * cell,
            ),
        ))
    }

    /// What a threshold gives at most must hold a frame.
    fn check_group(
        &self,
        port: &PortConfig,
        group: &GroupConfig,
        common: u64,
    ) -> Result<(), Problem> {
        let cells = Cells::new(self.cell_bytes);
        let frame_bytes = frame_bytes(port);
        let frame = u64::from(cells.holding(frame_bytes));
        let limit = group.threshold.static_bytes;
        if let Some(limit) = limit.filter(|limit| u64::from(cells.within(*limit)) < frame) {
            return Err((
                "static_bytes",
                format!(
                    "a threshold of {limit} bytes holds no frame of this port's MTU: {frame_bytes} bytes, {} in whole cells",
                    frame * u64::from(self.cell_bytes)
                ),
            ));
        }
        self.check_alpha(group.threshold.dt_alpha, group.min_bytes, frame, common)?;
        let Some(Lossless { xon_bytes, .. }) = group.lossless else { return Ok(()) };
        match limit {
            Some(limit) if xon_bytes >= limit => {
                Err(("xon_bytes", format!("XON at {xon_bytes} bytes is not below XOFF at {limit}")))
            }
            _ => Ok(()),
        }
    }

    fn check_alpha(
        &self,
        alpha: Option<super::super::memory::Alpha>,
        min_bytes: u64,
        frame: u64,
        common: u64,
    ) -> Result<(), Problem> {
        let Some(alpha) = alpha else { return Ok(()) };
        let factor = 1_u64 << alpha.exponent().unsigned_abs();
        let most = if alpha.exponent() < 0 { common / factor } else { common * factor };
        let min = u64::from(Cells::new(self.cell_bytes).holding(min_bytes));
        if min + most >= frame {
            return Ok(());
        }
        let cell = u64::from(self.cell_bytes);
        Err((
            "dt_alpha",
            format!(
                "{alpha} of the {} bytes that are shared is {} bytes at most, less than a frame of this port's MTU: {} in whole cells",
                common * cell,
                (min + most) * cell,
                frame * cell
            ),
        ))
    }

    fn check_queue(&self, port: &PortConfig, queue: usize, common: u64) -> Result<(), Problem> {
        let Some(shares) = port.shares.queues.get(queue) else { return Ok(()) };
        let frame = u64::from(Cells::new(self.cell_bytes).holding(frame_bytes(port)));
        self.check_alpha(shares.threshold.dt_alpha, shares.min_bytes, frame, common)?;
        let limit = port.queue_limit_bytes.get(queue).copied().filter(|limit| *limit < u64::MAX);
        let is_limited = shares.threshold.static_bytes.is_some() || limit.is_some();
        let is_lossless = self.lossless_queues() >> queue & 1 == 1;
        if is_lossless && (is_limited || shares.threshold.dt_alpha.is_some()) {
            let field = if is_limited { "queue_limit_bytes" } else { "dt_alpha" };
            return Err((
                field,
                "it takes frames of a lossless priority, and would drop them at its limit: none is needed where the ingress side has thresholds".to_owned(),
            ));
        }
        Ok(())
    }

    fn check_trim(&self) -> Result<(), Problem> {
        let Some(trim) = self.trim else { return Ok(()) };
        let problem = |text: String| Err(("trim", text));
        let n = trim.size_bytes;
        if !(TRIM_BYTES_MIN..=TRIM_BYTES_MAX).contains(&n) {
            return problem(format!(
                "size {n}: {TRIM_BYTES_MIN} to {TRIM_BYTES_MAX} bytes are left"
            ));
        }
        if let Some(dscp) = [trim.dscp, trim.last_hop_dscp].into_iter().find(|dscp| *dscp > 63) {
            return problem(format!("DSCP {dscp}: 0 to 63"));
        }
        if trim.priority > 7 {
            return problem(format!("priority {}: 0 to 7", trim.priority));
        }
        if self.lossless_mask() >> trim.priority & 1 == 1 {
            return problem(format!(
                "priority {} is lossless: trimmed frames need a lossy one",
                trim.priority
            ));
        }
        let lossless = self.lossless_queues();
        let trimmed = (0..8).find(|queue| trim.queues >> queue & lossless >> queue & 1 == 1);
        if let Some(queue) = trimmed {
            return problem(format!("queue {queue} takes frames of a lossless priority"));
        }
        let own = self.priority_to_queue[usize::from(trim.priority)];
        if trim.queues >> own & 1 == 1 {
            return problem(format!("queue {own} takes the trimmed frames, and is trimmed itself"));
        }
        Ok(())
    }
}
