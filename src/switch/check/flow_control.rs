//! Flow control that could not keep what it promises: pauses that run out, lossless priorities that
//! share a queue, a watchdog that cannot tell storms, a prevention that prevents nothing.

use super::super::config::{PortConfig, SwitchConfig};
use super::{ETHERNET_BYTES, SwitchConfigError, SwitchConfigPlace, TAG_BYTES};
use crate::line::Line;
use crate::wire::pfc::{FRAME_BYTES, pause_time};

type Problem = (&'static str, String);

impl SwitchConfig {
    pub(super) fn check_flow_control(&self) -> Result<(), SwitchConfigError> {
        let whole = |(field, problem): Problem| SwitchConfigError {
            place: SwitchConfigPlace::Switch,
            label: format!("switch {}", self.name),
            field,
            problem,
        };
        self.check_lossless_queues().map_err(whole)?;
        let lossless = self.lossless_mask();
        if self.watchdog.is_some() && lossless == 0 {
            let problem = "no priority is lossless: there is nothing to watch".to_owned();
            return Err(whole(("watchdog.mode", problem)));
        }
        for (index, port) in self.ports.iter().enumerate() {
            if port.shares.lossless_mask() == 0 {
                continue;
            }
            let at_port = |(field, problem): Problem| SwitchConfigError {
                place: SwitchConfigPlace::Port(index),
                label: format!("port {}:{}", self.name, port.name),
                field,
                problem,
            };
            self.check_quanta(port).map_err(at_port)?;
            if let Some(watchdog) = &self.watchdog {
                watchdog.check(port.rate).map_err(at_port)?;
            }
        }
        match &self.prevention {
            Some(prevention) => prevention.check(self.ports.len(), lossless).map_err(whole),
            None => Ok(()),
        }
    }

    /// A pause stops a queue, so that a queue which a lossless priority shares would stop for others.
    fn check_lossless_queues(&self) -> Result<(), Problem> {
        let lossless = self.lossless_mask();
        let queues = self.priority_to_queue;
        for (priority, queue) in queues.iter().enumerate() {
            let shares = |other: &usize| *other != priority && queues[*other] == *queue;
            let other = (0..queues.len()).find(shares);
            if let Some(other) = other.filter(|_| lossless & 1 << priority != 0) {
                return Err((
                    "priority_to_queue",
                    format!(
                        "priorities {priority} and {other} share queue {queue}, which a pause of \
                         {priority} stops: a lossless priority has a queue of its own"
                    ),
                ));
            }
        }
        Ok(())
    }

    /// A pause is prolonged at its half, behind the longest frame that may be on the wire then.
    fn check_quanta(&self, port: &PortConfig) -> Result<(), Problem> {
        let line = Line::new(port.rate, self.overhead_bytes);
        let longest = line.wire_time(port.mtu_bytes + ETHERNET_BYTES + TAG_BYTES);
        let frame = line.wire_time(u32::try_from(FRAME_BYTES).unwrap_or(u32::MAX));
        let half = pause_time(self.pfc_quanta, port.rate) / 2;
        if half <= longest + frame {
            return Err((
                "pfc_quanta",
                format!(
                    "half of {} quanta at {} is {half}, and the frame that prolongs the pause may wait \
                     {longest} and takes {frame}: the pause would run out",
                    self.pfc_quanta, port.rate
                ),
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::switch::memory::{GroupConfig, Lossless};
    use crate::switch::prevention::{ChainStep, PreventionConfig};
    use crate::switch::watchdog::{WatchdogAction, WatchdogConfig, WatchdogMode};
    use crate::time::Duration;
    use crate::units::Rate;
    use crate::wire::MacAddr;

    fn config(lossless: &[usize]) -> SwitchConfig {
        let port = |n: u8| {
            let mac = MacAddr([2, 0, 0, 0, 1, n]);
            let mut port = PortConfig::new(&n.to_string(), mac, Rate::from_gbps(100));
            let lossless_group =
                Lossless { headroom_bytes: 100_000, xon_bytes: 10_000, xon_offset_bytes: 0 };
            for priority in lossless {
                port.shares.groups[*priority] =
                    GroupConfig { lossless: Some(lossless_group), ..GroupConfig::default() };
            }
            port
        };
        SwitchConfig::new("s1", (1..=2).map(port).collect())
    }

    fn refused(lossless: &[usize], spoil: impl FnOnce(&mut SwitchConfig)) -> String {
        let mut config = config(lossless);
        spoil(&mut config);
        config.check().expect_err("nonsense is refused").to_string()
    }

    #[test]
    fn what_would_break_its_promise_is_refused() {
        let watchdog = WatchdogConfig {
            mode: WatchdogMode::Sonic { restoration: Duration::from_ms(2) },
            poll: Duration::from_ms(1),
            detection: Duration::from_ms(1),
            action: WatchdogAction::Drop,
        };
        let mut sound = config(&[3]);
        sound.watchdog = Some(watchdog);
        assert_eq!(sound.check(), Ok(()));
        assert_eq!(
            refused(&[3], |c| c.priority_to_queue[2] = 3),
            "switch s1: priority_to_queue: priorities 3 and 2 share queue 3, which a pause of 3 \
             stops: a lossless priority has a queue of its own"
        );
        assert_eq!(
            refused(&[3], |c| c.pfc_quanta = 50),
            "port s1:1: pfc_quanta: half of 50 quanta at 100Gbps is 128ns, and the frame that \
             prolongs the pause may wait 123.36ns and takes 6.72ns: the pause would run out"
        );
        assert_eq!(
            refused(&[], |c| c.watchdog = Some(watchdog)),
            "switch s1: watchdog.mode: no priority is lossless: there is nothing to watch"
        );
        let hasty = WatchdogConfig { poll: Duration::from_us(1), ..watchdog };
        let message = refused(&[3], |c| c.watchdog = Some(hasty));
        assert!(
            message.starts_with("port s1:1: watchdog.poll: 1us: one frame can pause"),
            "{message}"
        );
        let step = |priority| ChainStep { priority, dscp: priority << 3 };
        let prevention =
            PreventionConfig { groups: vec![Some(0), Some(0)], chain: vec![step(3), step(4)] };
        let message = refused(&[3, 4], |c| c.prevention = Some(prevention.clone()));
        assert!(
            message.starts_with("switch s1: prevention.chain: the last priority, 4"),
            "{message}"
        );
        let mut sound = config(&[3]);
        sound.prevention = Some(prevention);
        assert_eq!(sound.check(), Ok(()));
    }
}
