//! The engine of a lab: worker threads that drive nodes over rings, in gated or free time.

pub mod gate;
pub mod gated;
pub mod notes;
pub mod port_io;

pub use gate::Gate;
pub use gated::{GatedPort, GatedWorker, LinkEnd};
pub use notes::{NoteReceiver, NoteSender, note_pair};
pub use port_io::{PortIo, SendFull};
