//! Topology files, namespaces, veth links, and running nodes on them.

pub mod control;
pub mod engine;
pub mod expect;
pub mod graph;
pub mod interrupt;
pub mod netns;
pub mod sizing;
pub mod topology;
