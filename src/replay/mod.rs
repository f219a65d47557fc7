//! Captures: reading and writing pcap and pcapng, and driving a switch in capture time.

pub mod capture;
pub mod clock;
pub mod driver;
pub mod ingress;
pub mod link_type;
pub mod live;
pub mod output;
pub mod pacing;
mod pcap;
mod pcapng;
pub mod preload;
pub mod run;
pub mod source;
pub mod tagged;
pub mod verdict;
pub mod writer;

pub use capture::{CaptureError, CaptureReader, Damage, Interface, Record, Tolerated};
pub use clock::CaptureClock;
pub use driver::{Counts, Lost, Outcome, Replay, Sent};
pub use ingress::Ingress;
pub use link_type::LinkType;
pub use output::OutputFiles;
pub use pacing::{Pacer, Speed};
pub use preload::Preloaded;
pub use run::{Finished, Stopped};
pub use source::{ReplaySource, SourceCounts};
pub use tagged::TaggedStore;
pub use verdict::{Loss, Verdict};
pub use writer::{CaptureWriter, Direction, Packet};
