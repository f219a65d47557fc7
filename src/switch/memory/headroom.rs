//! Headroom: how much may arrive after XOFF, counted in the cells that it takes.
//!
//! The worst case, with `w` for wire time and XOFF due when the frame that crosses the threshold
//! has arrived:
//!
//! 1. that frame, as long as the port takes them;
//! 2. a frame of the longest kind has just begun to leave by the same port, and the pause frame waits for it,
//! 3. then leaves itself, travels for the link's delay, and is obeyed after the peer's response time;
//! 4. what had left before travels for the delay as well: the peer's frames that begin within `w` of
//!    both frames, two delays and the response arrive, in the sizes that waste the most of their cells;
//! 5. the last of them, begun just before the pause counts, may be of the longest kind again.
//!
//! The same terms as in SONiC's dynamic headroom calculation (`sonic_xoff_bytes`), which counts one
//! longest frame less, rates by 1,024, and no preamble and gap.

use std::fmt;

use super::cells::Cells;
use crate::line::FRAME_BYTES_MIN;
use crate::time::Duration;
use crate::units::{Bytes, Rate};

/// A frame may have as much beyond the MTU: an Ethernet header and four VLAN tags.
const BEYOND_MTU_BYTES: u32 = 14 + 4 * 4;

/// A pause quantum, in bit times (IEEE 802.3 annex 31B).
const QUANTUM_BITS: u64 = 512;

const PS_PER_SECOND: u128 = 1_000_000_000_000;

/// Speeds in Mb/s, and the pause quanta within which a station of that speed has stopped (IEEE
/// 802.3 clause 31B.3.7, as SONiC has them).
const RESPONSE_QUANTA: [(u64, u64); 10] = [
    (100, 1),
    (1_000, 2),
    (10_000, 67),
    (25_000, 80),
    (40_000, 118),
    (50_000, 147),
    (100_000, 394),
    (200_000, 453),
    (400_000, 905),
    (800_000, 905),
];

/// Quanta within which a station of `rate` has stopped: those of the next speed in the table.
pub fn response_quanta(rate: Rate) -> u64 {
    let mbps = rate.as_bps().div_ceil(1_000_000);
    let known = RESPONSE_QUANTA.iter().find(|(speed, _)| mbps <= *speed);
    known.or(RESPONSE_QUANTA.last()).map_or(0, |(_, quanta)| *quanta)
}

/// How long the far end takes from the last bit of a pause frame to the last frame that it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerResponse {
    /// So long; zero for this project's own nodes, which look at a pause before they send again.
    Within(Duration),
    /// What IEEE 802.3 allows at the peer's speed.
    Standard,
}

impl PeerResponse {
    /// At the peer's rate.
    pub fn at(self, rate: Rate) -> Duration {
        match self {
            Self::Within(time) => time,
            Self::Standard => rate.time_of(response_quanta(rate) * QUANTUM_BITS / 8),
        }
    }
}

/// The delay of a cable: light makes 198,000 km a second in it.
pub fn cable_delay(metres: u64) -> Duration {
    let ps = (u128::from(metres) * PS_PER_SECOND).div_ceil(198_000_000);
    Duration::from_ps(u64::try_from(ps).unwrap_or(u64::MAX))
}

/// What the headroom of one (ingress port, priority) depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadroomNeed {
    /// The rate of the port itself, at which the pause frame leaves.
    pub rate: Rate,
    /// That of the far end, at which frames come.
    pub peer_rate: Rate,
    /// From last bit sent to last bit received, the most that it takes.
    pub delay: Duration,
    /// The port's MTU.
    pub mtu_bytes: u32,
    /// Bytes around each frame on the wire.
    pub overhead_bytes: u32,
    /// What frames may have gained when they are queued: 4 for a VLAN tag.
    pub gain_bytes: u32,
    /// The far end's.
    pub peer_response: PeerResponse,
    /// Frames that may wait in rings between the two nodes, where no pause reaches them: by the
    /// free clock of AF_XDP, the two rings and the burst that is handed over at once.
    pub ring_frames: u32,
    /// The size of a cell.
    pub cell_bytes: u32,
}

/// Part of a headroom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadroomTerm {
    /// What it is for.
    pub what: &'static str,
    /// How it comes about.
    pub how: String,
    /// Its cells; none for a part that is counted in a later one.
    pub cells: Option<u64>,
}

/// A headroom, with its reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headroom {
    /// Line by line.
    pub terms: Vec<HeadroomTerm>,
    /// In all.
    pub cells: u64,
    /// The same in bytes.
    pub bytes: u64,
}

/// The frames that waste the most: cells and wire bytes of one.
#[derive(Clone, Copy, Debug)]
struct Packing {
    len_bytes: u32,
    cells: u64,
    wire_bytes: u64,
}

impl HeadroomNeed {
    /// The longest frame, without what it may gain.
    const fn longest_bytes(&self) -> u32 {
        self.mtu_bytes + BEYOND_MTU_BYTES
    }

    const fn wire_bytes(&self, len_bytes: u32) -> u64 {
        let len = if len_bytes < FRAME_BYTES_MIN { FRAME_BYTES_MIN } else { len_bytes };
        len as u64 + self.overhead_bytes as u64
    }

    fn packing(&self, cells: Cells, len_bytes: u32) -> Packing {
        Packing {
            len_bytes,
            cells: u64::from(cells.of_frame(len_bytes + self.gain_bytes)),
            wire_bytes: self.wire_bytes(len_bytes),
        }
    }

    /// The shortest frame, or one that is a byte longer than whole cells.
    fn worst_packing(&self, cells: Cells) -> Packing {
        let longest = self.longest_bytes();
        let steps = (1..=longest / cells.cell_bytes()).map(|n| n * cells.cell_bytes() + 1);
        let lengths = steps
            .filter_map(|len| len.checked_sub(self.gain_bytes))
            .filter(|len| (FRAME_BYTES_MIN..=longest).contains(len))
            .chain([longest]);
        lengths.fold(self.packing(cells, FRAME_BYTES_MIN), |worst, len_bytes| {
            let packing = self.packing(cells, len_bytes);
            let is_worse = packing.cells * worst.wire_bytes > worst.cells * packing.wire_bytes;
            if is_worse { packing } else { worst }
        })
    }

    /// What SONiC's calculation gives for the same link, with all packets of the worst size.
    pub fn sonic_bytes(&self) -> u64 {
        let metres = u128::from(self.delay.as_ps()) * 198_000_000 / PS_PER_SECOND;
        sonic_xoff_bytes(&SonicPattern {
            speed_mbps: self.peer_rate.as_bps() / 1_000_000,
            cable_metres: u64::try_from(metres).unwrap_or(u64::MAX),
            port_mtu_bytes: u64::from(self.mtu_bytes),
            lossless_mtu_bytes: u64::from(self.mtu_bytes),
            small_packets_percent: 100,
            cell_bytes: u64::from(self.cell_bytes),
            mac_phy_bytes: 0,
        })
    }

    /// The headroom with which nothing is lost.
    ///
    /// It is the least to within the cells of one frame: with as many fewer, the worst case loses a frame.
    pub fn headroom(&self) -> Headroom {
        let cells = Cells::new(self.cell_bytes);
        let longest = self.packing(cells, self.longest_bytes());
        let packing = self.worst_packing(cells);
        let wait = self.rate.time_of(longest.wire_bytes);
        let pause_bytes = self.wire_bytes(FRAME_BYTES_MIN);
        let pause = self.rate.time_of(pause_bytes);
        let response = self.peer_response.at(self.peer_rate);
        let window = wait + pause + self.delay * 2 + response;
        // Frames begin before the window ends, not when it does.
        let rate = u128::from(self.peer_rate.as_bps());
        let bits = u128::from(window.as_ps().saturating_sub(1)) * rate / PS_PER_SECOND;
        let window_bytes = u64::try_from(bits / 8).unwrap_or(u64::MAX);
        let in_window =
            u128::from(window_bytes) * u128::from(packing.cells) / u128::from(packing.wire_bytes);
        let in_window = u64::try_from(in_window).unwrap_or(u64::MAX);
        let in_rings = u64::from(self.ring_frames) * longest.cells;
        let (mtu, cell) = (self.mtu_bytes, self.cell_bytes);
        let term = |what, how, cells| HeadroomTerm { what, how, cells };
        let longest_how = format!("{} bytes at an MTU of {mtu}", longest.len_bytes);
        let mut terms = vec![
            term("the frame that crosses xoff", longest_how.clone(), Some(longest.cells)),
            term(
                "a frame before the pause frame",
                format!("{} bytes of wire at {}: {wait}", longest.wire_bytes, self.rate),
                None,
            ),
            term(
                "the pause frame",
                format!("{pause_bytes} bytes of wire at {}: {pause}", self.rate),
                None,
            ),
            term("the link, both ways", format!("2 x {}", self.delay), None),
            term(
                "the peer's response",
                match self.peer_response {
                    PeerResponse::Within(time) => time.to_string(),
                    PeerResponse::Standard => format!(
                        "{} quanta at {}: {response}",
                        response_quanta(self.peer_rate),
                        self.peer_rate
                    ),
                },
                None,
            ),
            term(
                "frames within that time",
                format!(
                    "{window} at {}: {window_bytes} bytes of wire, in frames of {} bytes ({} for {} of wire)",
                    self.peer_rate,
                    packing.len_bytes,
                    counted(packing.cells),
                    packing.wire_bytes
                ),
                Some(in_window),
            ),
            term("a frame that the peer had begun", longest_how, Some(longest.cells)),
        ];
        if self.ring_frames > 0 {
            let how = format!("{} frames of {} bytes", self.ring_frames, longest.len_bytes);
            terms.push(term("rings and bursts", how, Some(in_rings)));
        }
        let total = in_window.saturating_add(2 * longest.cells).saturating_add(in_rings);
        Headroom { terms, cells: total, bytes: total.saturating_mul(u64::from(cell)) }
    }
}

fn counted(cells: u64) -> String {
    if cells == 1 { "1 cell".to_owned() } else { format!("{cells} cells") }
}

impl fmt::Display for Headroom {
    /// One line a term, the sum last.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for HeadroomTerm { what, how, cells } in &self.terms {
            let cells = cells.map_or_else(String::new, |cells| cells.to_string());
            writeln!(f, "{what:<32} {cells:>8}  {how}")?;
        }
        write!(f, "{:<32} {:>8}  cells: {}", "headroom", self.cells, Bytes(self.bytes))
    }
}

/// What SONiC's calculation takes, in its own units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SonicPattern {
    /// Mb/s.
    pub speed_mbps: u64,
    /// The cable, in metres.
    pub cable_metres: u64,
    /// The MTU of the port, in bytes.
    pub port_mtu_bytes: u64,
    /// That of lossless traffic, in bytes.
    pub lossless_mtu_bytes: u64,
    /// The share of packets of the worst size, in percent.
    pub small_packets_percent: u64,
    /// The size of a cell.
    pub cell_bytes: u64,
    /// What MAC and PHY hold, in bytes.
    pub mac_phy_bytes: u64,
}

/// The headroom that SONiC's dynamic calculation gives (its xoff value; sonic-swss, headroom for
/// Mellanox), with its rounding to 1,024 bytes.
pub fn sonic_xoff_bytes(pattern: &SonicPattern) -> u64 {
    let n = |value: u64| u128::from(value);
    let p = pattern;
    let quanta = response_quanta(Rate::from_bps(p.speed_mbps.saturating_mul(1_000_000)));
    let response_bytes = quanta * QUANTUM_BITS / 8;
    // Cable bytes: 2 x metres x speed x 10^9 / (198 x 10^6 x 8 x 1024), as a fraction.
    let cable_over = 198_u128 * 8 * 1_024;
    let fixed = n(p.port_mtu_bytes) + n(p.mac_phy_bytes) + n(response_bytes);
    let propagation = fixed * cable_over + 2_000 * n(p.cable_metres) * n(p.speed_mbps);
    // Cells of a packet against its bytes, in the worst case.
    let (worst, of) = if p.cell_bytes > 128 {
        (n(p.cell_bytes), 64)
    } else {
        (2 * n(p.cell_bytes), 1 + n(p.cell_bytes))
    };
    let small = n(p.small_packets_percent.min(100));
    let occupancy = (100 - small) * of + small * worst;
    let over = cable_over * 100 * of;
    let bytes = (n(p.lossless_mtu_bytes) * over + propagation * occupancy).div_ceil(over * 1_024);
    u64::try_from(bytes * 1_024).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
