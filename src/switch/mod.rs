//! The switch: one pure state machine, a pipeline with one file a stage.

pub mod config;

pub use config::{PortConfig, StaticMac, SwitchConfig, Trust, VlanMode};
