//! Topology files, namespaces, veth links, and running nodes on them.

pub mod captures;
pub mod control;
pub mod describe;
pub mod device;
pub mod engine;
pub mod expect;
pub mod graph;
pub mod interrupt;
pub mod links;
pub mod memory;
pub mod netns;
pub mod outcome;
pub mod pause_checks;
pub mod plan;
pub mod run;
pub mod run_control;
pub mod series;
pub mod settings;
pub mod simulate;
pub mod topology;

pub use device::Device;
