//! Latency over real interfaces: an open loop whose every frame is timed from its planned send
//! time, so that a stall delays samples and never hides them (no coordinated omission).

pub mod bench;
pub mod ends;
pub mod losses;
pub mod probe;
pub mod rings;
pub mod schedule;
pub mod search;
pub mod stamps;
pub mod sweep;
pub mod trial;

pub use bench::{Bench, BenchConfig, BenchError, End, Timestamps, give_up_privileges, reflect};
pub use ends::{Received, Receiver, Reflector, Sender, Sent, Stall};
pub use losses::{EndCounts, Losses};
pub use probe::{Carrier, Probe};
pub use schedule::Schedule;
pub use search::{Goal, NDR, PDR, RateSearch, SearchLimits, TrialResult};
pub use stamps::{StampClock, StampCounts, Stamped};
pub use sweep::{SweepConfig, SweepReport, sweep};
pub use trial::{TrialOutcome, TrialPlan};
