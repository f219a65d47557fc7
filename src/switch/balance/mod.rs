//! Path choice: which member of a group a frame leaves by. One file for each way of choosing.
//!
//! A group is a link aggregation group, whose members are ports, or a routed group, whose members
//! are next hops, each reached through one port. A [`Group`] holds its [`Members`] and one
//! [`Method`]. Every method answers one question, [`PathChoice::choose`], from the
//! same things: the packet, the members, what their ports are loaded with, the time, and the
//! switch's generator.
//!
//! | method | file | a frame goes to |
//! |---|---|---|
//! | ECMP | [`ecmp`] | the member that the hash of its flow names, modulo the live members |
//! | resilient ECMP | [`resilient`] | the member of its flow's bucket; a failure moves only the buckets that must move |
//! | LBN | [`lbn`] | the member that the index of its ingress port names |
//! | spray | [`spray`] | the next member in turn, or a random one |
//! | least loaded | [`dlb`] | DLB's spray: one of the members of the best quality, in turn |
//! | flowlet | [`dlb`], [`letflow`] | that of its flow, until the flow pauses: then the best (DLB eligible) or a random one (LetFlow) |
//! | fixed | [`dlb`] | that which was best when its flow began |
//! | DRILL | [`drill`] | the shortest queue of d random members and the m best of before |
//! | path navigation | [`path_navigation`] | that of a static table; ECMP for other flows, and when it is down |
//!
//! A member that goes down gets no further frame. Members of different speed need weights where
//! frames are spread one by one ([`config::GroupConfig::check`]).

pub mod config;
pub mod dlb;
pub mod drill;
pub mod ecmp;
mod flowlet;
pub mod group;
pub mod hash;
pub mod imbalance;
pub mod key;
pub mod lbn;
pub mod letflow;
pub mod members;
pub mod path_navigation;
pub mod quality;
pub mod resilient;
pub mod spray;

#[cfg(test)]
mod trial;

pub use config::{GroupConfig, GroupConfigError, MemberConfig, Method};
pub use group::Group;
pub use hash::{FlowHash, HashAlgorithm};
pub use imbalance::Imbalance;
pub use key::{Fields, FlowKey, Packet};
pub use members::{MemberId, Members};

use crate::node::PortId;
use crate::rng::Rng;
use crate::time::Time;

/// What the ports of a switch are loaded with, as far as choices depend on it.
pub trait Loads {
    /// Bytes that wait for the port, in all its queues.
    fn queue_bytes(&self, port: PortId) -> u64;

    /// Bytes that left by the port since the start of the run.
    fn tx_bytes(&self, port: PortId) -> u64;
}

/// A way of choosing.
pub trait PathChoice {
    /// The member that `packet` leaves by: one that is up, of which there is at least one.
    fn choose<L: Loads>(
        &mut self,
        packet: &Packet<'_>,
        members: &Members,
        loads: &L,
        now: Time,
        rng: &mut Rng,
    ) -> MemberId;

    /// A member went down or came up, and at least one is up.
    fn refit(&mut self, members: &Members);
}
