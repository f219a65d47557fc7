//! The switch: one pure state machine, a pipeline with one file a stage.

pub mod balance;
mod check;
mod classify;
pub mod config;
mod counters;
mod flow;
mod mac_table;
pub mod mark;
pub mod memory;
pub mod pfc;
mod pipeline;
mod port;
mod port_set;
pub mod prevention;
mod queue;
mod ready;
pub mod route;
pub mod schedule;
pub mod trim;
mod vlan;
pub mod vtep;
pub mod watchdog;

pub use check::{SwitchConfigError, SwitchConfigPlace};
pub use config::{PortConfig, StaticMac, SwitchConfig, Trust, VlanMode};
pub use counters::PortCounters;
pub use flow::FlowCounters;
pub use mac_table::MacTableCounters;
pub use pipeline::{StoppedQueue, Switch, SwitchSetting};
