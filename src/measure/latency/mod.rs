//! Latency over real interfaces: an open loop whose every frame is timed from its planned send
//! time, so that a stall delays samples and never hides them (no coordinated omission).

pub mod bench;
pub mod ends;
pub mod probe;
pub mod rings;
pub mod schedule;
pub mod search;
pub mod sweep;
pub mod trial;

pub use bench::{Bench, BenchConfig, BenchError, End, give_up_privileges, reflect};
pub use ends::{Received, Receiver, Reflector, Sender, Sent, Stall};
pub use probe::{Carrier, Probe};
pub use schedule::Schedule;
pub use search::{Goal, NDR, PDR, RateSearch, SearchLimits, TrialResult};
pub use sweep::{SweepConfig, SweepReport, sweep};
pub use trial::{TrialOutcome, TrialPlan};
