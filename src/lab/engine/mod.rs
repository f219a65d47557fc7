//! The engine of a lab: worker threads that drive nodes over rings, in gated or free time.

pub mod free;
pub mod gate;
pub mod gated;
#[cfg(test)]
pub(crate) mod memory_port;
pub mod notes;
pub mod pace;
pub mod place;
pub mod port_io;
#[cfg(test)]
mod tests;
pub mod visit;
pub mod xdp_port;

pub use free::{FreePort, FreeStation, FreeWorker, Pace};
pub use gate::{Gate, Opening, Proposal};
pub use gated::{GatedPort, GatedWorker, LinkEnd};
pub use notes::{NoteReceiver, NoteSender, note_pair};
pub use pace::XdpPace;
pub use place::{Placement, place};
pub use port_io::{PortIo, SendFull};
pub use visit::{LinkVisit, NodeWork, PortBooks, SurveyWork, Visit, WorkerBooks};
pub use xdp_port::{LabPort, OpenRequest, XdpPort};
