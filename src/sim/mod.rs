//! Virtual time: the event queue, links and node scheduling. No root, no clock, no thread; the
//! same nodes as on AF_XDP.

pub mod agenda;
pub mod link;
pub mod network;
pub mod pause_witness;
pub mod station;
pub mod wait_cycle;

pub use agenda::Agenda;
pub use link::{DELAY_MAX, Fate, LinkChange, LinkCounters, LinkModel, LinkState, LossCause};
pub use network::{Network, PortRef, QUIET_LIMIT, QUIET_SLICE, quiet_end};
pub use station::{Direction, Station, Tap};
