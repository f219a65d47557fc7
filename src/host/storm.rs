//! An application that sends pause frames as no honest port does, for testing switches: storms of
//! XOFF or XON, 802.3x PAUSE, and frames that lie about what they are.

use super::config::Arrivals;
use super::schedule::{Plan, Schedule};
use crate::rng::Rng;
use crate::time::Time;
use crate::units::AnyRate;
use crate::wire::MacAddr;
use crate::wire::ethertype;
use crate::wire::pfc::{self, FRAME_BYTES, MacControl, Pfc};
use crate::wire::vlan::{TAG_BYTES, Tci};

/// What a storm is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StormKind {
    /// PFC frames for these classes, as bits, with so many quanta: XOFF, or XON with 0.
    Pfc {
        /// The classes, as bits.
        classes: u8,
        /// For how long each frame stops them.
        quanta: u16,
    },
    /// 802.3x PAUSE frames, which stop a whole port.
    Pause {
        /// For how long each frame stops it.
        quanta: u16,
    },
    /// MAC control frames that lie, another with each frame, drawn from the host's generator:
    /// ended early, for another destination, behind a VLAN tag, of another opcode, with the reserved
    /// byte of the class enable vector set, with random classes and quanta.
    Hostile,
}

/// One storm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StormConfig {
    /// What it is made of.
    pub kind: StormKind,
    /// Frames per second, or bits of wire time per second.
    pub rate: AnyRate,
    /// The first frame.
    pub start: Time,
    /// No frame is planned at or after this instant.
    pub stop: Time,
    /// At most this many frames.
    pub frames_max: u64,
}

/// The longest frame of a storm.
const STORM_BYTES_MAX: usize = FRAME_BYTES + TAG_BYTES;

/// A frame of a storm, on the stack.
#[derive(Clone, Copy, Debug)]
pub(super) struct StormFrame {
    bytes: [u8; STORM_BYTES_MAX],
    len_bytes: usize,
}

impl StormFrame {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len_bytes]
    }
}

impl From<[u8; FRAME_BYTES]> for StormFrame {
    fn from(frame: [u8; FRAME_BYTES]) -> Self {
        let mut bytes = [0; STORM_BYTES_MAX];
        bytes[..FRAME_BYTES].copy_from_slice(&frame);
        Self { bytes, len_bytes: FRAME_BYTES }
    }
}

/// The sender of one storm.
#[derive(Clone, Debug)]
pub(super) struct Storm {
    kind: StormKind,
    source: MacAddr,
    schedule: Schedule,
    rng: Rng,
}

impl Storm {
    /// The sender of a storm from the port with the address `source`, which counts `overhead_bytes`
    /// around each frame and draws from `rng`.
    pub(super) fn new(
        config: &StormConfig,
        source: MacAddr,
        overhead_bytes: u32,
        rng: Rng,
    ) -> Self {
        let plan = Plan {
            rate: config.rate,
            frame_bytes: crate::line::FRAME_BYTES_MIN,
            arrivals: Arrivals::Constant,
            start: config.start,
            stop: config.stop,
            frames_max: config.frames_max,
        };
        let schedule = Schedule::new(&plan, overhead_bytes, rng.clone());
        Self { kind: config.kind, source, schedule, rng }
    }

    /// When the next frame is planned, or [`Time::NEVER`].
    pub(super) fn next_planned(&self) -> Time {
        self.schedule.next()
    }

    /// Goes on to the frame behind the next one.
    pub(super) fn skip(&mut self) {
        self.schedule.advance();
    }

    /// Makes the next frame.
    pub(super) fn make_next(&mut self) -> StormFrame {
        self.schedule.advance();
        match self.kind {
            StormKind::Pfc { classes, quanta } => {
                MacControl::Pfc(Pfc::uniform(classes, quanta)).frame(self.source).into()
            }
            StormKind::Pause { quanta } => MacControl::Pause(quanta).frame(self.source).into(),
            StormKind::Hostile => self.lie(),
        }
    }

    fn draw(&mut self) -> [u8; 8] {
        self.rng.next_u64().to_be_bytes()
    }

    fn lie(&mut self) -> StormFrame {
        let mut quanta = [0; pfc::CLASSES];
        for of_class in &mut quanta {
            let [high, low, ..] = self.draw();
            *of_class = u16::from_be_bytes([high, low]);
        }
        let [which, enabled, a, b, c, ..] = self.draw();
        let mut frame =
            StormFrame::from(MacControl::Pfc(Pfc { enabled, quanta }).frame(self.source));
        match which % 7 {
            // From the EtherType on, it ends anywhere before the last class.
            0 => frame.len_bytes = 14 + usize::from(a) % 20,
            1 => frame.bytes[16] = a | 1,
            2 => frame.bytes[14..16].copy_from_slice(&[a, b]),
            3 => frame.bytes[..6].copy_from_slice(&[a & 0xfe, b, c, 0, 0, 1]),
            4 => {
                frame.bytes.copy_within(12..FRAME_BYTES, 12 + TAG_BYTES);
                frame.bytes[12..14].copy_from_slice(&ethertype::VLAN.to_be_bytes());
                let tag = Tci::new(a & 7, false, 1);
                frame.bytes[14..16].copy_from_slice(&tag.0.to_be_bytes());
                frame.len_bytes += TAG_BYTES;
            }
            5 => {
                frame =
                    MacControl::Pfc(Pfc::uniform(0xff, pfc::QUANTA_MAX)).frame(self.source).into()
            }
            _ => {}
        }
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::FrameRate;
    use crate::wire::WireError;
    use crate::wire::pfc::is_mac_control;

    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

    fn storm(kind: StormKind) -> Storm {
        let config = StormConfig {
            kind,
            rate: AnyRate::Frames(FrameRate::from_pps(1_000_000)),
            start: Time::from_ns(10_000),
            stop: Time::from_ns(1_010_000),
            frames_max: u64::MAX,
        };
        Storm::new(&config, MAC, 24, Rng::for_node(1, "h1/storm 1"))
    }

    fn frames(kind: StormKind) -> Vec<Vec<u8>> {
        let mut storm = storm(kind);
        let mut frames = Vec::new();
        while storm.next_planned() != Time::NEVER {
            frames.push(storm.make_next().bytes().to_vec());
        }
        frames
    }

    #[test]
    fn a_storm_is_what_was_asked_for_when_it_was() {
        let mut first = storm(StormKind::Pause { quanta: 7 });
        assert_eq!(first.next_planned(), Time::from_ns(10_000));
        first.skip();
        assert_eq!(first.next_planned(), Time::from_ns(11_000));
        for (kind, want) in [
            (
                StormKind::Pfc { classes: 0b1001, quanta: 65_535 },
                MacControl::Pfc(Pfc::uniform(0b1001, 65_535)),
            ),
            (StormKind::Pfc { classes: 0xff, quanta: 0 }, MacControl::Pfc(Pfc::uniform(0xff, 0))),
            (StormKind::Pause { quanta: 9 }, MacControl::Pause(9)),
        ] {
            let frames = frames(kind);
            assert_eq!(frames.len(), 1_000);
            assert!(frames.iter().all(|frame| MacControl::read(frame) == Ok(want)));
        }
    }

    #[test]
    fn hostile_frames_lie_in_every_way() {
        let frames = frames(StormKind::Hostile);
        assert_eq!(frames, self::frames(StormKind::Hostile), "the same seed, the same lies");
        let [mut truncated, mut other, mut elsewhere, mut tagged, mut reserved, mut all] = [0; 6];
        for frame in &frames {
            assert!(frame.len() >= 14, "an Ethernet header at least");
            match MacControl::read(frame) {
                Err(WireError::Truncated { .. }) => truncated += 1,
                Err(_) if !is_mac_control(frame) => tagged += 1,
                Err(_) => elsewhere += 1,
                Ok(MacControl::Other(_)) => other += 1,
                Ok(MacControl::Pfc(pfc)) if pfc == Pfc::uniform(0xff, 65_535) => all += 1,
                Ok(_) if frame[16] != 0 => reserved += 1,
                Ok(_) => {}
            }
        }
        for n in [truncated, other, elsewhere, tagged, reserved, all] {
            assert!(n > 50, "{truncated} {other} {elsewhere} {tagged} {reserved} {all}");
        }
    }
}
