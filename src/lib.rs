//! tailwater: one switch and one host, written as pure state machines, driven by AF_XDP, by a
//! capture, or by virtual time.
//!
//! The core ([`switch`], [`host`], [`wire`]) knows no socket, thread or clock: a driver hands it
//! frames and the time. See [`node::Node`] for that contract and [`frame::FrameStore`] for what a
//! frame is.

pub mod cli;
pub mod frame;
pub mod host;
pub mod lab;
pub mod ledger;
pub mod line;
pub mod measure;
pub mod node;
pub mod replay;
pub mod rng;
pub mod sim;
pub mod switch;
pub mod time;
pub mod units;
pub mod wire;
pub mod xdp;
