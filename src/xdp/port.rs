//! A port on AF_XDP: one interface with one or more of its queues, on the worker that owns it.

mod traffic;

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use self::traffic::reap_socket;
use super::counters::PortCounters;
use super::doorbell::Doorbell;
use super::interface::{Interface, InterfaceState, LinkState};
use super::io_worker::IoHandle;
use super::plan::{self, OpenedPort, PlannedUmem, PortConfig, PortError, PortPlan};
use super::program::{Attachment, XdpMode};
use super::socket::Socket;
use super::stamp::RxStamps;
use super::store::{PortSlot, Recovered, RegionId, UmemStore};
use super::sys;

/// Ethernet's own header: two addresses and the EtherType.
const ETHERNET_BYTES: u32 = 14;

/// Descriptors of one frame: what the kernel's skb takes in copy mode (`MAX_SKB_FRAGS` is at
/// least 17).
pub const DESCRIPTORS_MAX: u32 = 17;

/// A port that moves frames between a store and an interface.
///
/// A loop around it: [`rx_burst`](Self::rx_burst), then [`tx_push`](Self::tx_push) for each frame
/// to send, then [`kick`](Self::kick), then [`reap`](Self::reap); and
/// [`poll_state`](Self::poll_state) now and then. When it ends: [`close`](Self::close), which gives
/// the chunks of its rings back to the store.
#[derive(Debug)]
pub struct Port {
    config: PortConfig,
    slot: PortSlot,
    region: RegionId,
    umem: PlannedUmem,
    /// Before the sockets, so that the program is detached before they close.
    attachment: Option<Arc<Attachment>>,
    queues: Vec<Queue>,
    /// Held for what closing it does.
    promiscuous: Option<OwnedFd>,
    /// Where the kernel's rings are served when not here, and the bell that wakes us for it.
    io: Option<(IoHandle, Arc<Doorbell>)>,
    queue_numbers: Vec<u32>,
    next_rx_queue: usize,
    interface: Interface,
    ifindex: u32,
    state: InterfaceState,
    /// Frames up to this length need no look at their EtherType.
    untagged_bytes_max: u32,
    descriptors_max: u32,
    counters: PortCounters,
}

#[derive(Debug)]
struct Queue {
    socket: Socket,
    /// Chunks that the fill ring lacks.
    fill_wanted: u32,
    /// A chain whose end has not come yet: head, last chunk, bytes.
    partial: Option<(u32, u32, u32)>,
    /// Descriptors in the TX ring that the kernel had not taken when it was last asked.
    tx_pending: bool,
    /// The program writes stamps into the chunks.
    stamped: bool,
}

/// What [`Port::poll_state`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortState {
    /// The interface now.
    pub interface: InterfaceState,
    /// Whether it differs from what was found before.
    pub changed: bool,
    /// The port's sockets are gone and its interface is there again: time for
    /// [`Port::plan_again`].
    pub can_reopen: bool,
}

impl Port {
    /// Opens a port in one go, on a thread with the capabilities for it.
    ///
    /// # Errors
    /// [`PortError`], with what mends it; the store is as before.
    pub fn open(store: &mut UmemStore, config: PortConfig) -> Result<Self, PortError> {
        let plan = Self::plan(store, config)?;
        let slot = plan.slot;
        match plan.open() {
            Ok(opened) => Ok(Self::start(opened)),
            Err(error) => {
                store.recover(slot);
                Err(error)
            }
        }
    }

    /// First step of opening, by the owner of the store: lends the chunks of the fill rings.
    ///
    /// # Errors
    /// [`PortError`] when the interface or the store cannot do it.
    pub fn plan(store: &mut UmemStore, config: PortConfig) -> Result<PortPlan, PortError> {
        let survey = plan::survey(&config)?;
        let numbers: Vec<u32> = if config.queues.is_empty() {
            (0..survey.queues).collect()
        } else {
            config.queues.clone()
        };
        let (region, umem) = if survey.zero_copy {
            let queues = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
            let chunks = queues.saturating_mul(2 * (config.rings.fill + config.rings.tx));
            let region = store.add_region(chunks).map_err(|source| PortError::Memory {
                interface: config.interface.clone(),
                source,
            })?;
            (region, PlannedUmem::Own(store.area(region)))
        } else {
            (RegionId::SHARED, PlannedUmem::Shared(store.shared_umem()))
        };
        let slot = store.new_port();
        lend(store, config, slot, region, umem, &numbers)
    }

    /// Last step of opening, by the owner of the store.
    pub fn start(opened: OpenedPort) -> Self {
        let OpenedPort { mut plan, attachment, sockets, promiscuous, interface, ifindex, state } =
            opened;
        // A program that the port keeps beyond its sockets would stay attached.
        plan.config.attachment = None;
        let mut port = Self {
            config: plan.config,
            slot: plan.slot,
            region: plan.region,
            umem: plan.umem,
            attachment: Some(attachment),
            queues: Vec::with_capacity(sockets.len()),
            promiscuous,
            io: None,
            queue_numbers: plan.queues.iter().map(|(number, _)| *number).collect(),
            next_rx_queue: 0,
            interface,
            ifindex,
            state,
            untagged_bytes_max: 0,
            descriptors_max: DESCRIPTORS_MAX,
            counters: PortCounters::default(),
        };
        port.take_sockets(sockets);
        port.set_state(state);
        port
    }

    fn take_sockets(&mut self, sockets: Vec<Socket>) {
        let io = self.io.as_ref();
        let stamped = self.rx_stamps() != RxStamps::Off;
        self.queues.extend(sockets.into_iter().map(|socket| Queue {
            socket: match io {
                Some((worker, bell)) => worker.serve(socket, bell),
                None => socket,
            },
            fill_wanted: 0,
            partial: None,
            tx_pending: false,
            stamped,
        }));
    }

    /// Has the kernel's rings served by an I/O worker from now on, and whenever the port is opened
    /// again. For a port that was just started; [`close`](Self::close) waits for that worker, which
    /// must be running or gone by then.
    ///
    /// # Errors
    /// When the process has no descriptor left; the port is as before.
    pub fn run_rings_on(&mut self, worker: &IoHandle) -> io::Result<()> {
        self.io = Some((worker.clone(), Arc::new(Doorbell::new()?)));
        let sockets = self.queues.drain(..).map(|queue| queue.socket).collect();
        self.take_sockets(sockets);
        Ok(())
    }

    /// Plans to open the port again after it closed or its interface vanished; the plan is opened
    /// by a thread with the capabilities, and the result taken by [`restart`](Self::restart). A port
    /// that shared the program of another needs [`PortPlan::share`] again.
    ///
    /// # Errors
    /// [`PortError::NoChunks`] when the store has too few free chunks.
    pub fn plan_again(&mut self, store: &mut UmemStore) -> Result<PortPlan, PortError> {
        self.close(store);
        let (config, umem) = (self.config.clone(), self.umem.clone());
        lend(store, config, self.slot, self.region, umem, &self.queue_numbers)
    }

    /// Takes the sockets of a plan that [`plan_again`](Self::plan_again) made.
    pub fn restart(&mut self, opened: OpenedPort) {
        let OpenedPort { attachment, sockets, promiscuous, interface, ifindex, state, .. } = opened;
        self.promiscuous = promiscuous;
        self.attachment = Some(attachment);
        (self.interface, self.ifindex) = (interface, ifindex);
        self.take_sockets(sockets);
        self.set_state(state);
    }

    /// Takes the chunks of a plan back that did not open.
    pub fn cancel(&mut self, store: &mut UmemStore) {
        store.recover(self.slot);
    }

    /// Opens the port again in one go, on a thread with the capabilities for it.
    ///
    /// # Errors
    /// [`PortError`]; the port stays closed and can be tried again.
    pub fn reopen(&mut self, store: &mut UmemStore) -> Result<(), PortError> {
        match self.plan_again(store)?.open() {
            Ok(opened) => {
                self.restart(opened);
                Ok(())
            }
            Err(error) => {
                self.cancel(store);
                Err(error)
            }
        }
    }

    /// Closes the sockets and gives every chunk of their rings back to the store. Frames that were
    /// waiting in them are counted as abandoned.
    pub fn close(&mut self, store: &mut UmemStore) -> Recovered {
        let returned =
            self.io.as_ref().map_or_else(Vec::new, |(worker, bell)| worker.take_back(bell));
        self.reap(store);
        self.attachment = None;
        self.promiscuous = None;
        for queue in std::mem::take(&mut self.queues) {
            queue.socket.add_counters_to(&mut self.counters);
            if let Some((head, ..)) = queue.partial {
                store.discard(head);
            }
            self.abandon(queue.socket);
        }
        for mut socket in returned {
            reap_socket(&mut socket, store, (self.region, self.slot), &mut self.counters);
            self.abandon(socket);
        }
        store.recover(self.slot)
    }

    /// Counts the frames that wait in a socket's rings, and closes it.
    fn abandon(&mut self, mut socket: Socket) {
        let ends = |descriptor: &sys::xdp_desc| descriptor.options & sys::XDP_PKT_CONTD == 0;
        while let Some(descriptor) = socket.rx.take() {
            self.counters.rx_abandoned += u64::from(ends(&descriptor));
        }
        socket.tx.for_each_pending(|descriptor| {
            self.counters.tx_abandoned += u64::from(ends(&descriptor));
        });
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.config.interface
    }

    /// Whether the port has its sockets.
    pub fn is_open(&self) -> bool {
        !self.queues.is_empty()
    }

    /// Whether frames go without copies, as the kernel says.
    pub fn is_zero_copy(&self) -> bool {
        self.queues.first().is_some_and(|queue| queue.socket.zero_copy)
    }

    /// Where the program is attached; None while the port is closed.
    pub fn xdp_mode(&self) -> Option<XdpMode> {
        self.attachment.as_ref().map(|attachment| attachment.mode())
    }

    /// How received frames are stamped, for [`UmemStore::rx_stamp_ns`]; off while the port is closed.
    pub fn rx_stamps(&self) -> RxStamps {
        self.attachment.as_ref().map_or(RxStamps::Off, |attachment| attachment.stamps())
    }

    /// The program, for a port on other queues of the same interface.
    pub fn attachment(&self) -> Option<Arc<Attachment>> {
        self.attachment.clone()
    }

    /// The interface's queues that the port has, in the order of its own queue indices.
    pub fn queue_numbers(&self) -> &[u32] {
        &self.queue_numbers
    }

    /// The interface as last found.
    pub const fn state(&self) -> InterfaceState {
        self.state
    }

    /// Looks at the interface anew: some microseconds, no capability. When it has vanished the port
    /// closes, and its chunks are back in the store.
    pub fn poll_state(&mut self, store: &mut UmemStore) -> PortState {
        let mut now = self.interface.state(self.ifindex);
        if now.link == LinkState::Vanished && self.is_open() {
            self.close(store);
        }
        if !self.is_open() {
            now = InterfaceState { link: LinkState::Vanished, mtu_bytes: 0 };
        }
        let changed = now != self.state;
        self.set_state(now);
        let can_reopen = !self.is_open() && self.interface.index().is_ok();
        PortState { interface: now, changed, can_reopen }
    }

    const fn set_state(&mut self, state: InterfaceState) {
        self.state = state;
        self.untagged_bytes_max = state.mtu_bytes + ETHERNET_BYTES;
    }

    /// The descriptors to wait on for frames to receive: one per queue, and one more with an I/O
    /// worker, which is silent unless [`listen`](Self::listen) was called before.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let bell = self.io.as_ref().map(|(_, bell)| bell.fd());
        self.queues.iter().map(|queue| queue.socket.fd()).chain(bell)
    }

    /// Says that the worker is about to sleep on [`fds`](Self::fds), so that an I/O worker wakes it.
    pub fn listen(&self) {
        if let Some((_, bell)) = &self.io {
            bell.listen(|| self.queues.iter().any(|queue| queue.socket.has_news(queue.tx_pending)));
        }
    }

    /// Whether an I/O worker serves the kernel's rings.
    pub fn has_io_worker(&self) -> bool {
        self.queues.iter().any(|queue| queue.socket.is_served())
    }

    /// The first of them; None while the port is closed.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fds().next()
    }

    /// The counters, with the kernel's: a system call per queue.
    pub fn counters(&self) -> PortCounters {
        let mut counters = self.counters;
        for queue in &self.queues {
            queue.socket.add_counters_to(&mut counters);
        }
        counters
    }
}

fn lend(
    store: &mut UmemStore,
    config: PortConfig,
    slot: PortSlot,
    region: RegionId,
    umem: PlannedUmem,
    numbers: &[u32],
) -> Result<PortPlan, PortError> {
    let wanted = u64::from(config.rings.fill) * numbers.len() as u64;
    let mut queues = Vec::with_capacity(numbers.len());
    for number in numbers {
        let mut lend = |_| {
            let address = store.lend(region, slot)?;
            store.erase_stamp(region, address);
            Some(address)
        };
        let fill: Vec<u64> = (0..config.rings.fill).map_while(&mut lend).collect();
        if fill.len() < config.rings.fill as usize {
            store.recover(slot);
            let (interface, free) = (config.interface, store.free_chunks());
            return Err(PortError::NoChunks { interface, wanted, free });
        }
        queues.push((*number, fill));
    }
    Ok(PortPlan { config, slot, region, umem, queues })
}
