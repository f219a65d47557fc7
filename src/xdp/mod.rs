//! AF_XDP: the UMEM as a frame store, rings, sockets, the BPF program and the poll loop. The only
//! room with `unsafe`.

pub mod clock;
pub mod clock_line;
pub mod counters;
mod doorbell;
pub mod hardware_stamps;
pub mod idle;
pub mod interface;
pub mod interface_drops;
pub mod io_worker;
mod memory;
pub mod netns;
pub mod nic;
pub mod phc;
pub mod plan;
pub mod port;
pub mod privileges;
pub mod probe;
pub mod program;
mod ring;
mod rx_metadata;
mod socket;
mod stamp;
pub mod store;
mod sys;
mod tsc;
mod tx_queue;

pub use clock::{Clock, ClockReader};
pub use clock_line::{ClockLine, ClockReading};
pub use counters::{PortCounters, TxRefused};
pub use hardware_stamps::NoHardwareStamps;
pub use idle::Idle;
pub use interface::{InterfaceState, LinkState};
pub use interface_drops::{DropsReader, InterfaceDrops};
pub use io_worker::{IoHandle, IoWorker};
pub use netns::NetNs;
pub use phc::Phc;
pub use plan::{OpenedPort, PortConfig, PortError, PortPlan, ZeroCopy};
pub use port::{DESCRIPTORS_MAX, Port, PortState};
pub use program::{Attach, Attachment, Match, Steering, XdpMode};
pub use socket::{BusyPoll, RingSizes};
pub use stamp::RxStamps;
pub use store::{Census, ChunkSize, Recovered, UmemStore};
