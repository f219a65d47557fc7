//! What another thread has workers do between two rounds, since only a worker may touch its nodes,
//! links and books.
//!
//! Each visit is one of a set, one for every worker. By the gated clock all workers let a set in at
//! one node time, the beginning of one window; so a change by an operator is an event of the run
//! like any other, and what several workers have counted is of one moment.

use std::fmt;

use crate::measure::LatencyHistogram;
use crate::node::PortId;
use crate::sim::{LinkChange, LinkCounters, LinkState};
use crate::time::Time;

/// Work on all nodes of a worker, in the order in which they were added, at its node time.
pub type NodeWork<N> = Box<dyn FnOnce(Time, Vec<&mut N>) + Send>;

/// A look at everything that a worker has.
pub type SurveyWork<N> = Box<dyn FnOnce(WorkerBooks, Vec<&mut N>) + Send>;

/// A visit to a worker.
pub enum Visit<N> {
    /// Nothing to do here: the set is for others.
    Pass,
    /// Looks at nodes, or sets what may be set.
    Nodes(NodeWork<N>),
    /// Changes links that end at ports of the worker's stations. A node at their end is told when
    /// its link goes down or up.
    Links(Vec<LinkVisit>),
    /// Looks at the nodes and the worker's books, at one moment.
    Survey(SurveyWork<N>),
}

/// A change to the link at one port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkVisit {
    /// The station, in the order in which they were added.
    pub station: usize,
    /// Its port.
    pub port: PortId,
    /// What changes.
    pub change: LinkChange,
}

/// What a worker has counted beside its nodes.
#[derive(Clone, Debug)]
pub struct WorkerBooks {
    /// The worker's node time.
    pub now: Time,
    /// Scheduled against served.
    pub lateness: LatencyHistogram,
    /// By station and port.
    pub ports: Vec<Vec<PortBooks>>,
}

/// What one end of a link has counted, and what the link is as seen from there.
#[derive(Clone, Copy, Debug)]
pub struct PortBooks {
    /// This end's part of the link's books: what both ends have together is the link's.
    pub counters: LinkCounters,
    /// What the link does to frames now.
    pub link: LinkState,
}

impl<N> fmt::Debug for Visit<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pass => f.write_str("Pass"),
            Self::Nodes(_) => f.write_str("Nodes"),
            Self::Links(links) => f.debug_tuple("Links").field(links).finish(),
            Self::Survey(_) => f.write_str("Survey"),
        }
    }
}
