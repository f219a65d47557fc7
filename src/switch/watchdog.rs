//! The PFC watchdog: a lossless class that is stopped for so long that the pauses cannot be honest
//! is freed, so that a storm or a deadlock does not spread.
//!
//! A class is looked at once in a poll. What was seen since the last look is evidence of a storm or
//! ends the evidence:
//!
//! | mode | evidence |
//! |---|---|
//! | `h3c` | stopped for the whole poll, and pauses were received in it |
//! | `sonic` | frames waited, none was sent, pauses were received; or none waited, none was sent, and the class was stopped for more than 80 % of the poll |
//!
//! Polls in a row with evidence add the time for which the class was stopped in them; when that has
//! reached the detection time, it is a storm. So one that lasts for less than the detection time is
//! never found, and one that lasts for the detection time and a poll always is, in between by where
//! it lies on the polls. In a storm with gaps in which frames leave (a choppy one) there is no
//! evidence: the frames flow, slowly. Where none waits, gaps below a fifth of each poll do not end the
//! evidence, and it takes as much longer. Classes are found each for itself: in a storm of all eight
//! priorities those that are configured lossless are all found at one poll, and the others never
//! stopped.
//!
//! A class that was found is treated as its action says. In mode `h3c` it is so for a fixed recovery
//! time whatever the storm does, and after so many detections until an operator says
//! [`rearm`](ClassWatch::rearm); in mode `sonic` until no pause was received for the restoration time.

use crate::time::{Duration, Time};
use crate::units::Rate;
use crate::wire::pfc::{QUANTA_MAX, pause_time};

/// What is done with a class that was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WatchdogAction {
    /// Pauses are ignored, and frames of the class are dropped: those that wait for the port, those
    /// that come for it, and those that come in by it.
    #[default]
    Drop,
    /// Pauses are ignored, and frames are sent.
    Forward,
    /// Nothing but a count: pauses go on being obeyed.
    Alert,
}

/// How a storm is known, and when the class is normal again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchdogMode {
    /// H3C: stopped for all of the detection time; back after a fixed time.
    H3c {
        /// For how long PFC and detection are off behind a detection.
        recovery: Duration,
        /// After so many detections they stay off until an operator rearms the class.
        detections_max: Option<u32>,
    },
    /// SONiC: nothing sent for all of the detection time; back when the storm is over.
    Sonic {
        /// For how long no pause must have been received.
        restoration: Duration,
    },
}

/// The watchdog of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchdogConfig {
    /// How a storm is known.
    pub mode: WatchdogMode,
    /// The time between two looks.
    pub poll: Duration,
    /// For how long there must be evidence; a whole number of polls.
    pub detection: Duration,
    /// What is done then.
    pub action: WatchdogAction,
}

impl WatchdogConfig {
    /// Whether storms at a port of `rate` can be told with this.
    ///
    /// # Errors
    /// The field, and what is wrong with it.
    pub fn check(&self, rate: Rate) -> Result<(), (&'static str, String)> {
        let longest = pause_time(QUANTA_MAX, rate);
        if self.poll < longest {
            return Err((
                "watchdog.poll",
                format!(
                    "{}: one frame can pause a port of {rate} for {longest}, so that polls shorter \
                     than that see none come in the middle of a storm",
                    self.poll
                ),
            ));
        }
        let (behind, name) = match self.mode {
            WatchdogMode::H3c { recovery, .. } => (recovery, "watchdog.recovery"),
            WatchdogMode::Sonic { restoration } => (restoration, "watchdog.restoration"),
        };
        for (field, span) in [("watchdog.detection", self.detection), (name, behind)] {
            if span.is_zero() || !span.as_ps().is_multiple_of(self.poll.as_ps()) {
                let poll = self.poll;
                return Err((field, format!("{span} is not a whole number of polls of {poll}")));
            }
        }
        if matches!(self.mode, WatchdogMode::H3c { detections_max: Some(0), .. }) {
            let problem = "0: a class that is off from the start is not lossless".to_owned();
            return Err(("watchdog.detections_max", problem));
        }
        if matches!((self.mode, self.action), (WatchdogMode::H3c { .. }, WatchdogAction::Alert)) {
            let problem = "alert leaves PFC on, which mode h3c turns off: drop or forward";
            return Err(("watchdog.action", problem.to_owned()));
        }
        Ok(())
    }
}

/// What was seen of one class of one port since the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Frames of the class wait for the port.
    pub occupied: bool,
    /// Frames of the class that left by it.
    pub sent: u64,
    /// Frames received that asked the class to stop.
    pub xoff_received: u64,
    /// For how long it was stopped.
    pub paused: Duration,
}

/// What a look has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing new.
    Same,
    /// A storm: from now on [`ClassWatch::treatment`] is another one.
    Detected,
    /// It is over, or has lasted long enough: the class is normal again.
    Restored,
}

/// How a class of a port is treated now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// Pauses are obeyed and asked for.
    Lossless,
    /// They are neither: frames are sent.
    Forward,
    /// They are neither: frames are dropped.
    Drop,
}

/// What one class of one port is found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// There is evidence for so long, maybe none.
    Armed { evidence: Duration },
    /// Found; so much of the time behind it has passed.
    Found { passed: Duration },
    /// Found too often.
    Off,
}

/// The watchdog of one class of one port.
#[derive(Clone, Copy, Debug)]
pub struct ClassWatch {
    state: State,
    looked_at: Time,
    /// Since the start, or since the operator rearmed it.
    detections: u32,
    detected: u64,
    restored: u64,
}

impl ClassWatch {
    /// A class that is watched from `now` on.
    pub const fn new(now: Time) -> Self {
        Self {
            state: State::Armed { evidence: Duration::ZERO },
            looked_at: now,
            detections: 0,
            detected: 0,
            restored: 0,
        }
    }

    /// Looks at the class at `now`.
    pub fn look(&mut self, config: &WatchdogConfig, now: Time, seen: Observation) -> Verdict {
        let passed_now = now.since(self.looked_at);
        self.looked_at = now;
        match &mut self.state {
            State::Off => Verdict::Same,
            State::Armed { evidence } => {
                if !is_evidence(config.mode, passed_now, seen) {
                    *evidence = Duration::ZERO;
                    return Verdict::Same;
                }
                *evidence += seen.paused.min(passed_now);
                if *evidence < config.detection {
                    return Verdict::Same;
                }
                self.detections += 1;
                self.detected += 1;
                self.state = match config.mode {
                    WatchdogMode::H3c { detections_max: Some(max), .. }
                        if self.detections >= max =>
                    {
                        State::Off
                    }
                    _ => State::Found { passed: Duration::ZERO },
                };
                Verdict::Detected
            }
            State::Found { passed } => {
                *passed += passed_now;
                let behind = match config.mode {
                    WatchdogMode::H3c { recovery, .. } => recovery,
                    WatchdogMode::Sonic { restoration } => {
                        if seen.xoff_received > 0 {
                            *passed = Duration::ZERO;
                        }
                        restoration
                    }
                };
                if *passed < behind {
                    return Verdict::Same;
                }
                self.restored += 1;
                self.state = State::Armed { evidence: Duration::ZERO };
                Verdict::Restored
            }
        }
    }

    /// An operator makes the class normal again, whatever it was, with no detection behind it. True
    /// when it was another.
    pub fn rearm(&mut self) -> bool {
        let was_found = !matches!(self.state, State::Armed { .. });
        self.state = State::Armed { evidence: Duration::ZERO };
        self.detections = 0;
        self.restored += u64::from(was_found);
        was_found
    }

    /// How the class is to be treated.
    pub const fn treatment(&self, action: WatchdogAction) -> Treatment {
        match (self.state, action) {
            (State::Armed { .. }, _) | (_, WatchdogAction::Alert) => Treatment::Lossless,
            (_, WatchdogAction::Forward) => Treatment::Forward,
            (_, WatchdogAction::Drop) => Treatment::Drop,
        }
    }

    /// Whether it stays as it is until an operator rearms it.
    pub const fn is_off(&self) -> bool {
        matches!(self.state, State::Off)
    }

    /// Storms that were found.
    pub const fn detected(&self) -> u64 {
        self.detected
    }

    /// Times that the class became normal again.
    pub const fn restored(&self) -> u64 {
        self.restored
    }
}

fn is_evidence(mode: WatchdogMode, passed: Duration, seen: Observation) -> bool {
    match mode {
        WatchdogMode::H3c { .. } => seen.paused >= passed && seen.xoff_received > 0,
        WatchdogMode::Sonic { .. } if seen.sent > 0 => false,
        WatchdogMode::Sonic { .. } if seen.occupied => seen.xoff_received > 0,
        // More than four fifths.
        WatchdogMode::Sonic { .. } => seen.paused * 5 > passed * 4,
    }
}

#[cfg(test)]
mod tests;
