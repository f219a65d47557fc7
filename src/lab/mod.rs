//! Topology files, namespaces, veth links, and running nodes on them.

pub mod engine;
pub mod expect;
pub mod interrupt;
pub mod netns;
pub mod topology;
