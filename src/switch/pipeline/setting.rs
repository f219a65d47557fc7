//! What may be changed on a switch that runs, between two frames.
//!
//! A setting is a change of the configuration: it is entered there, checked as a configuration from
//! a file is, and then takes effect. So [`Switch::config`] always says what is in force, and what a
//! file may not say cannot be set either.

use super::Switch;
use crate::node::PortId;
use crate::switch::check::SwitchConfigError;
use crate::switch::config::{QUEUES, SwitchConfig};
use crate::time::{Duration, Time};

/// A change to a switch that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchSetting {
    /// The byte limit of one egress queue of a port, or of all of them. What a queue holds beyond a
    /// lower limit stays queued, and nothing is let in until it has left.
    QueueLimit {
        /// The port.
        port: PortId,
        /// The queue, 0 to 7; None for all.
        queue: Option<u8>,
        /// The limit.
        limit_bytes: u64,
    },
    /// How long a silent station is kept, from when it was last heard: known ones included.
    MacAgeing(Duration),
    /// Forgets the learned stations of a port, or of all ports; frames for them are flooded until
    /// they are heard again.
    ForgetStations(Option<PortId>),
    /// Gives a priority of a port back that the watchdog has taken, or all of them, and counts its
    /// detections anew.
    RearmWatchdog {
        /// The port.
        port: PortId,
        /// The priority, 0 to 7; None for all.
        priority: Option<u8>,
    },
}

impl SwitchSetting {
    /// Enters the change into a configuration; an action changes none.
    fn enter(self, config: &mut SwitchConfig) -> Result<(), SwitchConfigError> {
        match self {
            Self::QueueLimit { port, queue, limit_bytes } => {
                let limits = &mut port_of(config, port)?.queue_limit_bytes;
                match queue {
                    None => *limits = [limit_bytes; QUEUES],
                    Some(queue) if usize::from(queue) < QUEUES => {
                        limits[usize::from(queue)] = limit_bytes;
                    }
                    Some(queue) => {
                        let problem = format!("there is no queue {queue}: 0 to {}", QUEUES - 1);
                        return Err(SwitchConfigError::no_such(config, "queue", problem));
                    }
                }
            }
            Self::MacAgeing(ageing) => config.mac_ageing = ageing,
            Self::ForgetStations(Some(port)) => {
                port_of(config, port)?;
            }
            Self::ForgetStations(None) => {}
            Self::RearmWatchdog { port, .. } => {
                port_of(config, port)?;
                if config.watchdog.is_none() {
                    let problem = "the switch has none".to_owned();
                    return Err(SwitchConfigError::no_such(config, "watchdog", problem));
                }
            }
        }
        Ok(())
    }
}

fn port_of(
    config: &mut SwitchConfig,
    port: PortId,
) -> Result<&mut crate::switch::PortConfig, SwitchConfigError> {
    if port.index() >= config.ports.len() {
        let problem = format!("there is no port of index {}", port.0);
        return Err(SwitchConfigError::no_such(config, "port", problem));
    }
    Ok(&mut config.ports[port.index()])
}

impl Switch {
    /// Changes a setting at `now`, between two frames.
    ///
    /// # Errors
    /// [`SwitchConfigError`] when the switch could not be built with it; nothing has changed then.
    pub fn set(&mut self, now: Time, setting: SwitchSetting) -> Result<(), SwitchConfigError> {
        let mut config = self.config.clone();
        setting.enter(&mut config)?;
        config.check()?;
        self.config = config;
        match setting {
            SwitchSetting::QueueLimit { port, .. } => {
                let limits = self.config.ports[port.index()].queue_limit_bytes;
                for (queue, limit) in self.ports[port.index()].queues.iter_mut().zip(limits) {
                    queue.set_limit(limit);
                }
            }
            SwitchSetting::MacAgeing(ageing) => self.macs.set_ageing(now, ageing),
            SwitchSetting::ForgetStations(port) => self.macs.flush(port),
            SwitchSetting::RearmWatchdog { port, priority } => {
                for class in (0..8).filter(|class| priority.is_none_or(|one| one == *class)) {
                    self.rearm(now, port, usize::from(class));
                }
            }
        }
        self.note_timers();
        Ok(())
    }
}
