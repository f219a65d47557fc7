//! The end host: one pure state machine that answers ARP, ND and echo, sends streams and checks
//! those it receives.

pub mod config;

pub use config::{Arrivals, HostConfig, StreamConfig, StreamTarget};
