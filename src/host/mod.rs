//! The end host: one pure state machine that answers ARP, ND and echo, sends streams and checks
//! those it receives.

mod agent;
mod answer;
mod classify;
pub mod config;
mod lossless;
pub mod queue;
pub mod schedule;
mod sink;
mod source;
mod stats;
mod storm;

#[cfg(test)]
mod tests;

pub use agent::Host;
pub use config::{Arrivals, HostConfig, HostConfigError, StreamConfig, StreamTarget};
pub(crate) use sink::Sink;
pub use sink::{ExpectedStream, SequenceErrors, StreamReceived, WINDOW_FRAMES};
pub use source::{StreamSent, stream_payload};
pub use stats::HostStats;
pub use storm::{StormConfig, StormKind};
