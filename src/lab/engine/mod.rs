//! The engine of a lab: worker threads that drive nodes over rings, in gated or free time.

pub mod free;
pub mod gate;
pub mod gated;
pub mod notes;
pub mod port_io;

pub use free::{FreePort, FreeStation, FreeWorker, Pace, Visit};
pub use gate::{Gate, Opening, Proposal};
pub use gated::{GatedPort, GatedWorker, LinkEnd};
pub use notes::{NoteReceiver, NoteSender, note_pair};
pub use port_io::{PortIo, SendFull};
