//! Captures: reading and writing pcap and pcapng, and driving a switch in capture time.

pub mod capture;
pub mod link_type;
mod pcap;
mod pcapng;
pub mod writer;

pub use capture::{CaptureError, CaptureReader, Damage, Interface, Record, Tolerated};
pub use link_type::LinkType;
pub use writer::{CaptureWriter, Direction, Packet};
