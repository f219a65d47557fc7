//! What every driver drives: a switch or a host as a state machine that is handed frames and time.
//!
//! Things due at one instant run in the order frames (by port), [`Node::on_timer`], transmissions
//! (by port). A node that is called early does nothing; one that is called late is correct, only
//! late.

use crate::frame::{Frame, FrameStore};
use crate::ledger::Ledger;
use crate::time::Time;

/// A port of a node, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u16);

impl PortId {
    /// The port of an index into per-port arrays, of which there are fewer than 65,536.
    #[inline]
    pub(crate) const fn at(index: usize) -> Self {
        #[allow(clippy::cast_possible_truncation, reason = "an index of a port")]
        let port = index as u16;
        Self(port)
    }

    /// As an index into per-port arrays.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A frame on its way out of a port, with the time it occupies the wire.
#[derive(Debug)]
#[must_use = "the frame in a transmission must reach the link or its store"]
pub struct Transmission {
    /// The frame.
    pub frame: Frame,
    /// When its first bit leaves.
    pub starts: Time,
    /// When its last bit has left: a link of zero delay delivers it then.
    pub ends: Time,
}

/// A pure state machine with ports.
///
/// The driver's loop at an instant `now`: [`on_frame`](Self::on_frame) for everything that has
/// arrived, [`on_timer`](Self::on_timer) when [`next_deadline`](Self::next_deadline) has come, then
/// [`poll_next`](Self::poll_next) until there is nothing; then it reads `next_deadline` again.
pub trait Node<S: FrameStore> {
    /// The last bit of `frame` has arrived by `port`.
    fn on_frame(&mut self, now: Time, store: &mut S, port: PortId, frame: Frame);

    /// Time has reached `now`; does whatever is due.
    fn on_timer(&mut self, now: Time, store: &mut S);

    /// The lowest port that can start a transmission at `now`, or None.
    fn next_ready_port(&mut self, now: Time) -> Option<PortId>;

    /// The next frame of `port`, or None when it has nothing to send at `now`. The port is busy
    /// until the transmission ends.
    fn poll_transmit(&mut self, now: Time, store: &mut S, port: PortId) -> Option<Transmission>;

    /// The next frame of the lowest port that can start a transmission at `now`, or None:
    /// [`next_ready_port`](Self::next_ready_port) and [`poll_transmit`](Self::poll_transmit) in one.
    #[inline]
    fn poll_next(&mut self, now: Time, store: &mut S) -> Option<(PortId, Transmission)> {
        while let Some(port) = self.next_ready_port(now) {
            if let Some(sent) = self.poll_transmit(now, store, port) {
                return Some((port, sent));
            }
        }
        None
    }

    /// The earliest instant at which `on_timer` has something to do or a port becomes ready;
    /// [`Time::NEVER`] when the node waits for frames alone. Read again after every call.
    fn next_deadline(&self) -> Time;

    /// The link of `port` went up or down. Frames queued for a link that is down are dropped under
    /// [`LinkDown`](crate::ledger::DropReason::LinkDown), as are those that come for it later.
    fn on_link(&mut self, now: Time, store: &mut S, port: PortId, up: bool);

    /// The driver cannot take frames of `port` now (its TX ring is full), or can again: a held
    /// port is not ready, and what it has stays queued.
    fn hold(&mut self, now: Time, port: PortId, held: bool);

    /// The node's books at this moment.
    fn ledger(&self) -> Ledger;

    /// True when the node holds no frame and plans to make none: a run without an end of its own ends
    /// when all nodes are quiet.
    fn is_quiet(&self) -> bool {
        self.ledger().queued == 0
    }

    /// Gives every queued frame back to the store, counted as still queued in the ledger; the node
    /// is not used after it.
    fn drain(&mut self, store: &mut S);
}
