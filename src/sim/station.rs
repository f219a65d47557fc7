//! A node with the frames that fly towards it: the part of a driver that virtual, gated and free
//! time share.

use std::collections::VecDeque;
use std::fmt;

use crate::frame::{Frame, FrameStore};
use crate::node::{Node, PortId, Transmission};
use crate::sim::Agenda;
use crate::sim::pause_witness::PauseWitness;
use crate::time::Time;

/// Which way a frame crosses a port, seen from the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Towards the node.
    Inbound,
    /// Away from it.
    Outbound,
}

/// Sees every frame that crosses a port, at the node time at which it does: a capture.
pub trait Tap: fmt::Debug + Send {
    /// A frame of these bytes: its last bit has come in at `at`, or its first goes out.
    fn on_wire(&mut self, at: Time, direction: Direction, bytes: &[u8]);

    /// The run is over.
    fn finish(&mut self);
}

#[derive(Debug, Default)]
struct StationPort {
    arrivals: VecDeque<(Time, Frame)>,
    /// Who sees the frames that cross it.
    watch: Option<Box<Watch>>,
}

/// Those who see what crosses a port.
#[derive(Debug, Default)]
struct Watch {
    tap: Option<Box<dyn Tap>>,
    witness: Option<PauseWitness>,
}

impl Watch {
    #[inline(never)]
    fn see<S: FrameStore>(
        &mut self,
        bytes: &mut Vec<u8>,
        at: Time,
        store: &S,
        direction: Direction,
        frame: &Frame,
    ) {
        if let Some(witness) = &mut self.witness {
            match direction {
                Direction::Inbound => witness.on_inbound(at, store.head(frame)),
                Direction::Outbound => witness.on_outbound(at, store.head(frame)),
            }
        }
        if let Some(tap) = &mut self.tap {
            bytes.clear();
            store.copy_out(frame, bytes);
            tap.on_wire(at, direction, bytes);
        }
    }
}

/// A node and its ports' arrivals.
#[derive(Debug)]
pub struct Station<N> {
    node: N,
    ports: Vec<StationPort>,
    /// When the first arrival of each port is due.
    due: Agenda,
    /// Planned changes of links, in order of time.
    link_events: VecDeque<(Time, PortId, bool)>,
    tap_bytes: Vec<u8>,
}

impl<N> Station<N> {
    /// A station around `node`, which has `ports` ports.
    pub fn new(node: N, ports: u16) -> Self {
        Self {
            node,
            ports: (0..ports).map(|_| StationPort::default()).collect(),
            due: Agenda::new(ports.into()),
            link_events: VecDeque::new(),
            tap_bytes: Vec::new(),
        }
    }

    /// Ports of the node.
    pub fn ports(&self) -> u16 {
        u16::try_from(self.ports.len()).unwrap_or(u16::MAX)
    }

    /// The node.
    pub const fn node(&self) -> &N {
        &self.node
    }

    /// The node, to set what a driver may set.
    pub const fn node_mut(&mut self) -> &mut N {
        &mut self.node
    }

    /// The node, at the end of a run.
    pub fn into_node(self) -> N {
        self.node
    }

    /// Puts a tap on a port.
    pub fn set_tap(&mut self, port: PortId, tap: Box<dyn Tap>) {
        self.ports[port.index()].watch.get_or_insert_default().tap = Some(tap);
    }

    /// Has a witness see whether the node obeys the pauses that come by a port.
    pub fn set_witness(&mut self, port: PortId, witness: PauseWitness) {
        self.ports[port.index()].watch.get_or_insert_default().witness = Some(witness);
    }

    /// Each port's witness, where there is one.
    pub fn witnesses(&self) -> impl Iterator<Item = (PortId, &PauseWitness)> {
        (0..).map(PortId).zip(&self.ports).filter_map(|(port, state)| {
            state.watch.as_ref().and_then(|watch| Some((port, watch.witness.as_ref()?)))
        })
    }

    /// Plans that the link of `port` goes up or down at `at`.
    pub fn plan_link(&mut self, at: Time, port: PortId, up: bool) {
        let place = self.link_events.partition_point(|(time, ..)| *time <= at);
        self.link_events.insert(place, (at, port, up));
    }

    /// Adds a frame whose last bit arrives by `port` at `at`: behind those that were added earlier
    /// for that port, but for those that a link holds back until after `at`. Gives true when it is
    /// the port's first.
    pub fn arrive(&mut self, at: Time, port: PortId, frame: Frame) -> bool {
        let arrivals = &mut self.ports[port.index()].arrivals;
        let mut place = arrivals.len();
        while place > 0 && arrivals[place - 1].0 > at {
            place -= 1;
        }
        if place == arrivals.len() {
            arrivals.push_back((at, frame));
        } else {
            arrivals.insert(place, (at, frame));
        }
        if place == 0 {
            self.due.set(port.index(), at);
        }
        place == 0
    }

    /// Frames that fly towards the node.
    pub fn arrivals(&self) -> u64 {
        self.ports.iter().map(|port| port.arrivals.len() as u64).sum()
    }

    /// True when the node is quiet and nothing flies towards it.
    pub fn is_quiet<S: FrameStore>(&self) -> bool
    where
        N: Node<S>,
    {
        self.due.first().0 == Time::NEVER && self.node.is_quiet()
    }

    /// The time of the next event: an arrival, a link change or the node's deadline.
    pub fn next_event<S: FrameStore>(&self) -> Time
    where
        N: Node<S>,
    {
        let link = self.link_events.front().map_or(Time::NEVER, |(at, ..)| *at);
        self.node.next_deadline().min(self.due.first().0).min(link)
    }

    /// Hands the node everything that is due at `now`: link changes, arrivals in the order of
    /// (time, port), its timer. `delivered` is told the port and due time of each arrival.
    pub fn take_in<S: FrameStore>(
        &mut self,
        now: Time,
        store: &mut S,
        mut delivered: impl FnMut(PortId, Time),
    ) where
        N: Node<S>,
    {
        while let Some((_, port, up)) = self.link_events.pop_front_if(|(at, ..)| *at <= now) {
            self.node.on_link(now, store, port, up);
        }
        while let Some((at, port, frame)) = self.next_arrival(now) {
            delivered(port, at);
            self.hand_in(now, store, port, frame);
        }
        if self.node.next_deadline() <= now {
            self.node.on_timer(now, store);
        }
    }

    /// The earliest arrival that is due at `now`, ties in the order of ports.
    #[inline]
    fn next_arrival(&mut self, now: Time) -> Option<(Time, PortId, Frame)> {
        let (at, port) = self.due.first();
        if at > now {
            return None;
        }
        let arrivals = &mut self.ports[port].arrivals;
        let (_, frame) = arrivals.pop_front()?;
        self.due.set(port, arrivals.front().map_or(Time::NEVER, |(next, _)| *next));
        // As many as `Station::new` was told, which is a u16.
        let port = PortId(u16::try_from(port).unwrap_or(u16::MAX));
        Some((at, port, frame))
    }

    /// Hands the node a frame that has just arrived by `port`, past the arrival queue.
    pub fn hand_in<S: FrameStore>(&mut self, now: Time, store: &mut S, port: PortId, frame: Frame)
    where
        N: Node<S>,
    {
        self.show_tap(now, store, port, Direction::Inbound, &frame);
        self.node.on_frame(now, store, port, frame);
    }

    /// The node's next transmission at `now`, or None when no port is ready.
    #[inline(always)]
    pub fn take_out<S: FrameStore>(
        &mut self,
        now: Time,
        store: &mut S,
    ) -> Option<(PortId, Transmission)>
    where
        N: Node<S>,
    {
        let (port, sent) = self.node.poll_next(now, store)?;
        self.show_tap(sent.starts, store, port, Direction::Outbound, &sent.frame);
        Some((port, sent))
    }

    #[inline]
    fn show_tap<S: FrameStore>(
        &mut self,
        at: Time,
        store: &S,
        port: PortId,
        direction: Direction,
        frame: &Frame,
    ) {
        if let Some(watch) = &mut self.ports[port.index()].watch {
            watch.see(&mut self.tap_bytes, at, store, direction, frame);
        }
    }

    /// Gives every frame that flies towards the node, and every frame that it holds, back to the
    /// store, and ends the station. The node's ledger still counts what it held as queued.
    pub fn drain<S: FrameStore>(&mut self, store: &mut S)
    where
        N: Node<S>,
    {
        for (number, port) in self.ports.iter_mut().enumerate() {
            self.due.set(number, Time::NEVER);
            for (_, frame) in port.arrivals.drain(..) {
                store.release(frame);
            }
            if let Some(mut tap) = port.watch.as_mut().and_then(|watch| watch.tap.take()) {
                tap.finish();
            }
        }
        self.node.drain(store);
    }
}
