//! AF_XDP as the engine's port.

use std::os::fd::BorrowedFd;

use crossbeam::channel::{Receiver, Sender, bounded};

use super::port_io::{PortIo, SendFull};
use crate::frame::{Frame, FrameStore as _};
use crate::xdp::{
    LinkState, OpenedPort, Port, PortCounters, PortError, PortPlan, TxRefused, UmemStore, XdpMode,
};

/// Frames taken from a ring at once.
const BURST_FRAMES: usize = 64;

/// Looks at a vanished interface between two tries to open it again.
const POLLS_BETWEEN_TRIES: u32 = 20;

/// A request to the control thread, which still has the capabilities, to open sockets.
#[derive(Debug)]
pub struct OpenRequest {
    /// What to open.
    pub plan: PortPlan,
    /// Where the sockets go.
    pub reply: Sender<Result<OpenedPort, PortError>>,
}

/// A port of a node on AF_XDP, or one with nothing on it.
#[derive(Debug)]
pub enum LabPort {
    /// An interface.
    Xdp(Box<XdpPort>),
    /// No interface: what is sent is refused.
    Unconnected {
        /// Frames that were refused.
        refused: u64,
    },
}

/// An interface that is opened again when it comes back.
#[derive(Debug)]
pub struct XdpPort {
    port: Port,
    /// As last opened: a port that has vanished knows it no more.
    mode: Option<XdpMode>,
    zero_copy: bool,
    up: bool,
    refused: u64,
    opener: Sender<OpenRequest>,
    opening: Option<Receiver<Result<OpenedPort, PortError>>>,
    polls_to_wait: u32,
}

impl XdpPort {
    /// An open port; `opener` leads to the thread that opens it again.
    pub fn new(port: Port, opener: Sender<OpenRequest>) -> Self {
        let (mode, zero_copy) = (port.xdp_mode(), port.is_zero_copy());
        Self {
            port,
            mode,
            zero_copy,
            up: true,
            refused: 0,
            opener,
            opening: None,
            polls_to_wait: 0,
        }
    }

    /// The rings' counters, with the kernel's.
    pub fn counters(&self) -> PortCounters {
        self.port.counters()
    }

    /// Where its program is or was last attached, and whether frames went without copies.
    pub const fn mode(&self) -> (Option<XdpMode>, bool) {
        (self.mode, self.zero_copy)
    }

    /// The port itself.
    pub const fn port(&self) -> &Port {
        &self.port
    }

    /// The port itself, still open.
    pub fn into_port(self) -> Port {
        self.port
    }

    /// Closes the sockets; the chunks of their rings are back in the store.
    pub fn close(&mut self, store: &mut UmemStore) {
        if let Some(Ok(Ok(opened))) = self.opening.take().map(|opening| opening.recv()) {
            self.port.restart(opened);
        }
        self.port.close(store);
    }

    fn reopen(&mut self, store: &mut UmemStore) {
        match self.opening.as_ref().map(Receiver::try_recv) {
            Some(Ok(Ok(opened))) => {
                self.opening = None;
                self.port.restart(opened);
                (self.mode, self.zero_copy) = (self.port.xdp_mode(), self.port.is_zero_copy());
            }
            Some(Ok(Err(_))) => {
                self.opening = None;
                self.polls_to_wait = POLLS_BETWEEN_TRIES;
                self.port.cancel(store);
            }
            Some(Err(_)) => {}
            None if self.polls_to_wait > 0 => self.polls_to_wait -= 1,
            None => {
                let Ok(plan) = self.port.plan_again(store) else { return };
                let (reply, opening) = bounded(1);
                if self.opener.send(OpenRequest { plan, reply }).is_ok() {
                    self.opening = Some(opening);
                } else {
                    self.port.cancel(store);
                }
            }
        }
    }
}

impl PortIo<UmemStore> for LabPort {
    fn receive(&mut self, store: &mut UmemStore, received: &mut Vec<Frame>) -> usize {
        match self {
            Self::Xdp(xdp) => xdp.port.rx_burst(store, received, BURST_FRAMES),
            Self::Unconnected { .. } => 0,
        }
    }

    fn send(&mut self, store: &mut UmemStore, frame: Frame) -> Result<(), SendFull> {
        match self {
            Self::Xdp(xdp) => match xdp.port.tx_push(store, frame) {
                Ok(()) => Ok(()),
                Err((frame, TxRefused::RingFull)) => Err(SendFull(frame)),
                Err((frame, _)) => {
                    xdp.refused += 1;
                    store.release(frame);
                    Ok(())
                }
            },
            Self::Unconnected { refused } => {
                *refused += 1;
                store.release(frame);
                Ok(())
            }
        }
    }

    fn flush(&mut self, store: &mut UmemStore) {
        if let Self::Xdp(xdp) = self {
            xdp.port.kick();
            xdp.port.reap(store);
            xdp.port.refill(store);
        }
    }

    fn has_room(&mut self) -> bool {
        match self {
            Self::Xdp(xdp) => xdp.port.has_tx_room(),
            Self::Unconnected { .. } => true,
        }
    }

    fn is_pending(&self) -> bool {
        match self {
            Self::Xdp(xdp) => xdp.port.has_tx_pending(),
            Self::Unconnected { .. } => false,
        }
    }

    fn poll_link(&mut self, store: &mut UmemStore) -> Option<bool> {
        let Self::Xdp(xdp) = self else { return None };
        let state = xdp.port.poll_state(store);
        if state.can_reopen {
            xdp.reopen(store);
        }
        let up = xdp.port.is_open() && state.interface.link == LinkState::Up;
        let changed = up != xdp.up;
        xdp.up = up;
        changed.then_some(up)
    }

    fn wake_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let port = match self {
            Self::Xdp(xdp) => Some(xdp.port()),
            Self::Unconnected { .. } => None,
        };
        port.into_iter().flat_map(|port| {
            port.listen();
            port.fds()
        })
    }

    fn refused(&self) -> u64 {
        match self {
            Self::Xdp(xdp) => xdp.refused,
            Self::Unconnected { refused } => *refused,
        }
    }

    fn kernel_lost(&self) -> u64 {
        match self {
            Self::Xdp(xdp) => xdp.counters().kernel_lost(),
            Self::Unconnected { .. } => 0,
        }
    }
}
