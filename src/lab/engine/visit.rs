//! What another thread has a worker do between two rounds, since only the worker may touch its
//! nodes.

use std::fmt;

use crate::node::PortId;
use crate::sim::LinkChange;
use crate::time::Time;

/// Work on all nodes of a worker, in the order in which they were added, at its node time.
pub type NodeWork<N> = Box<dyn FnOnce(Time, Vec<&mut N>) + Send>;

/// A visit to a worker.
pub enum Visit<N> {
    /// Looks at nodes, or sets what may be set.
    Nodes(NodeWork<N>),
    /// Changes the link that ends at a port of one of the worker's stations. By the free clock only:
    /// in gated time what happens when is in the file.
    Link {
        /// The station, in the order in which they were added.
        station: usize,
        /// Its port.
        port: PortId,
        /// What changes.
        change: LinkChange,
    },
}

impl<N> fmt::Debug for Visit<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nodes(_) => f.write_str("Nodes"),
            Self::Link { station, port, change } => f
                .debug_struct("Link")
                .field("station", station)
                .field("port", port)
                .field("change", change)
                .finish(),
        }
    }
}
