//! A node of a lab, of either kind: drivers hold these, so that a station is one type.

use crate::frame::{Frame, FrameStore};
use crate::host::Host;
use crate::ledger::Ledger;
use crate::node::{Node, PortId, Transmission};
use crate::replay::ReplaySource;
use crate::switch::Switch;
use crate::time::Time;

/// A switch, an agent host, or what sends a capture in a host's place.
#[derive(Debug)]
pub enum Device {
    /// A switch.
    Switch(Box<Switch>),
    /// An agent host.
    Host(Box<Host>),
    /// A source of a capture's frames.
    Source(Box<ReplaySource>),
}

impl Device {
    /// The switch, if it is one.
    pub fn as_switch(&self) -> Option<&Switch> {
        match self {
            Self::Switch(switch) => Some(switch),
            Self::Host(_) | Self::Source(_) => None,
        }
    }

    /// The host, if it is one.
    pub fn as_host(&self) -> Option<&Host> {
        match self {
            Self::Host(host) => Some(host),
            Self::Switch(_) | Self::Source(_) => None,
        }
    }
}

impl From<Switch> for Device {
    fn from(switch: Switch) -> Self {
        Self::Switch(Box::new(switch))
    }
}

impl From<Host> for Device {
    fn from(host: Host) -> Self {
        Self::Host(Box::new(host))
    }
}

macro_rules! either {
    ($device:expr, $node:ident => $call:expr) => {
        match $device {
            Device::Switch($node) => $call,
            Device::Host($node) => $call,
            Device::Source($node) => $call,
        }
    };
}

impl<S: FrameStore> Node<S> for Device {
    #[inline]
    fn on_frame(&mut self, now: Time, store: &mut S, port: PortId, frame: Frame) {
        either!(self, node => node.on_frame(now, store, port, frame));
    }

    fn on_timer(&mut self, now: Time, store: &mut S) {
        either!(self, node => node.on_timer(now, store));
    }

    #[inline]
    fn next_ready_port(&mut self, now: Time) -> Option<PortId> {
        either!(self, node => Node::<S>::next_ready_port(&mut **node, now))
    }

    #[inline]
    fn poll_transmit(&mut self, now: Time, store: &mut S, port: PortId) -> Option<Transmission> {
        either!(self, node => node.poll_transmit(now, store, port))
    }

    #[inline(always)]
    fn poll_next(&mut self, now: Time, store: &mut S) -> Option<(PortId, Transmission)> {
        let sent = match self {
            Self::Switch(switch) => return switch.poll_next(now, store),
            Self::Host(host) => host.poll_next(now, store),
            Self::Source(source) => source.poll_next(now, store),
        };
        // Taken apart, so that what those calls leave in memory does not keep the switch's
        // transmission, which needs no memory, there too.
        let (port, Transmission { frame, starts, ends }) = sent?;
        Some((port, Transmission { frame, starts, ends }))
    }

    fn next_deadline(&self) -> Time {
        either!(self, node => Node::<S>::next_deadline(&**node))
    }

    fn on_link(&mut self, now: Time, store: &mut S, port: PortId, up: bool) {
        either!(self, node => node.on_link(now, store, port, up));
    }

    fn hold(&mut self, now: Time, port: PortId, held: bool) {
        either!(self, node => Node::<S>::hold(&mut **node, now, port, held));
    }

    fn ledger(&self) -> Ledger {
        either!(self, node => Node::<S>::ledger(&**node))
    }

    fn is_quiet(&self) -> bool {
        either!(self, node => Node::<S>::is_quiet(&**node))
    }

    fn drain(&mut self, store: &mut S) {
        either!(self, node => node.drain(store));
    }
}
