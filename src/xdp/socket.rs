//! AF_XDP sockets: registering a UMEM, making rings, binding to (interface, queue).

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::counters::PortCounters;
use super::doorbell::Doorbell;
use super::io_worker::Tally;
use super::netns;
use super::ring::{Consumer, Producer};
use super::store::UmemArea;
use super::sys::{self, Mapping};

/// Entries of the rings of each queue: powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSizes {
    /// RX ring.
    pub rx: u32,
    /// TX ring.
    pub tx: u32,
    /// Fill ring: at least twice the RX ring, or frames are lost between refills.
    pub fill: u32,
    /// Completion ring: at least the TX ring.
    pub completion: u32,
}

impl Default for RingSizes {
    /// 1,024 for RX and TX, twice that for the others.
    fn default() -> Self {
        Self { rx: 1_024, tx: 1_024, fill: 2_048, completion: 2_048 }
    }
}

impl RingSizes {
    /// Rings of which RX and TX have `entries`, and the others twice as many.
    pub const fn of(entries: u32) -> Self {
        Self { rx: entries, tx: entries, fill: 2 * entries, completion: 2 * entries }
    }

    /// Whether all sizes are such that the kernel takes them and no frame is lost for their sake.
    pub const fn are_valid(&self) -> bool {
        self.rx.is_power_of_two()
            && self.tx.is_power_of_two()
            && self.fill.is_power_of_two()
            && self.completion.is_power_of_two()
            && self.fill / 2 >= self.rx
            && self.completion >= self.tx
    }
}

/// Busy polling by the kernel on the socket's behalf (`SO_PREFER_BUSY_POLL`); needs an interface
/// with a NAPI context and `napi_defer_hard_irqs` and `gro_flush_timeout` set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyPoll {
    /// How long a system call may poll, in microseconds.
    pub micros: u32,
    /// Packets that one poll may take.
    pub budget: u32,
}

impl Default for BusyPoll {
    /// 20 us and 64 packets, which is what one NAPI poll takes.
    fn default() -> Self {
        Self { micros: 20, budget: 64 }
    }
}

/// How a socket binds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SocketOptions {
    pub(crate) sizes: RingSizes,
    pub(crate) busy_poll: Option<BusyPoll>,
}

/// System calls of one [`Socket::kick`] that move nothing before it gives up until the next.
const IDLE_WAKEUPS_MAX: u32 = 64;

/// Who has the other ends of a socket's rings.
#[derive(Debug)]
pub(crate) enum FarEnd {
    Kernel,
    /// An I/O worker, which has the kernel's rings.
    IoWorker {
        bell: Arc<Doorbell>,
        tally: Arc<Tally>,
    },
}

/// One bound socket with its rings.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) rx: Consumer<sys::xdp_desc>,
    pub(crate) tx: Producer<sys::xdp_desc>,
    pub(crate) fill: Producer<u64>,
    pub(crate) completion: Consumer<u64>,
    pub(crate) zero_copy: bool,
    pub(crate) far_end: FarEnd,
    /// Shared with the I/O worker: both sleep on it, so that a frame wakes both at once.
    pub(crate) fd: Arc<OwnedFd>,
}

impl Socket {
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Whether an I/O worker has the kernel's rings.
    pub(crate) const fn is_served(&self) -> bool {
        matches!(self.far_end, FarEnd::IoWorker { .. })
    }

    /// The fill ring was filled: wakes its other end if that waits for it.
    pub(crate) fn wake_fill(&self) {
        match &self.far_end {
            FarEnd::Kernel => {
                if self.fill.wants_wakeup() {
                    // A driver that found the ring empty sleeps until it is called.
                    let _ = sys::wake_rx(self.fd());
                }
            }
            FarEnd::IoWorker { bell, .. } => bell.ring(),
        }
    }

    /// Whether something came from an I/O worker that was not looked at: a frame, or room for what
    /// waited to be sent.
    pub(crate) fn has_news(&self, tx_pending: bool) -> bool {
        self.rx.has_more() || (tx_pending && self.tx.has_moved())
    }

    /// Shows the far end what was written to the TX ring and wakes it when it asks for that: the
    /// kernel in copy mode until it has taken everything, or stops taking. True when something is
    /// left.
    pub(crate) fn kick(&mut self, counters: &mut PortCounters) -> bool {
        self.tx.publish();
        if let FarEnd::IoWorker { bell, .. } = &self.far_end {
            bell.ring();
            return self.tx.pending() > 0;
        }
        let mut pending = self.tx.pending();
        let mut idle = 0;
        while pending > 0 && self.tx.wants_wakeup() {
            counters.tx_wakeups += 1;
            let result = sys::wake_tx(self.fd());
            let before = std::mem::replace(&mut pending, self.tx.pending());
            match result.as_ref().err().and_then(io::Error::raw_os_error) {
                // Took as many as it takes in one call, or has no room for completions.
                None | Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR) => {}
                // One frame was completed and not delivered; the kernel shows that it took it
                // together with the next that it does deliver.
                Some(libc::EBUSY) if !self.zero_copy => counters.tx_kernel_dropped += 1,
                Some(libc::EBUSY) => {}
                // The interface is down or gone: `poll_state` finds that.
                Some(libc::ENETDOWN | libc::ENXIO) => break,
                Some(_) => {
                    counters.tx_wakeup_errors += 1;
                    break;
                }
            }
            // Zero-copy drivers send on their own once woken.
            if self.zero_copy {
                break;
            }
            let full = result.is_err_and(|error| error.raw_os_error() != Some(libc::EBUSY));
            idle = if pending < before { 0 } else { idle + if full { 8 } else { 1 } };
            if idle > IDLE_WAKEUPS_MAX {
                break;
            }
        }
        pending > 0
    }

    /// Adds what was counted elsewhere than in the port: by the kernel, and by an I/O worker.
    pub(crate) fn add_counters_to(&self, counters: &mut PortCounters) {
        if let Ok(statistics) = self.statistics() {
            counters.add_statistics(&statistics);
        }
        if let FarEnd::IoWorker { tally, .. } = &self.far_end {
            tally.add_to(counters);
        }
    }

    /// The kernel's counters of this socket.
    fn statistics(&self) -> io::Result<sys::xdp_statistics> {
        let mut statistics = sys::xdp_statistics {
            rx_dropped: 0,
            rx_invalid_descs: 0,
            tx_invalid_descs: 0,
            rx_ring_full: 0,
            rx_fill_ring_empty_descs: 0,
            tx_ring_empty_descs: 0,
        };
        // Kernels before 5.9 write less; the rest stays zero.
        let level = libc::SOL_XDP;
        sys::getsockopt(self.fd.as_fd(), level, sys::XDP_STATISTICS, &mut statistics)?;
        Ok(statistics)
    }
}

/// A UMEM that many sockets share: all of them in copy mode, in any namespace.
///
/// The kernel ties a UMEM to the socket that registered it, and refuses later sharers (EBADF) once
/// that socket's interface is gone. So the first socket is bound to the loopback interface of a
/// namespace of its own, which nobody else can delete.
#[derive(Debug)]
pub(crate) struct SharedUmem {
    pub(crate) area: UmemArea,
    anchor: OnceLock<OwnedFd>,
}

impl SharedUmem {
    pub(crate) const fn new(area: UmemArea) -> Self {
        Self { area, anchor: OnceLock::new() }
    }

    /// The socket that holds the UMEM, made at the first call.
    pub(crate) fn anchor(&self) -> io::Result<BorrowedFd<'_>> {
        if let Some(anchor) = self.anchor.get() {
            return Ok(anchor.as_fd());
        }
        let anchor = netns::run_in_new(|| {
            let fd = unbound()?;
            register(fd.as_fd(), &self.area)?;
            let smallest = RingSizes { rx: 2, tx: 2, fill: 2, completion: 2 };
            set_ring_sizes(fd.as_fd(), &smallest)?;
            // In a new namespace the loopback interface has index 1. Later sockets inherit these.
            let flags = sys::XDP_COPY | sys::XDP_USE_NEED_WAKEUP;
            match sys::bind_xdp(fd.as_fd(), 1, 0, flags | sys::XDP_USE_SG, None) {
                // Before Linux 6.6 there are no chains of descriptors.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    sys::bind_xdp(fd.as_fd(), 1, 0, flags, None)?;
                }
                other => other?,
            }
            Ok(fd)
        })?;
        // Another thread may have been faster; then ours is closed again.
        Ok(self.anchor.get_or_init(|| anchor).as_fd())
    }
}

/// Where a socket's chunks come from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum UmemOf<'a> {
    /// From a UMEM that the socket registers itself, bound with these flags.
    Own(&'a UmemArea, u16),
    /// From that of another socket, whose flags it inherits.
    Shared(BorrowedFd<'a>),
}

/// Opens a socket in the calling thread's namespace and binds it; `fill` goes into the fill ring
/// first, since a driver that starts with an empty one may never look again.
pub(crate) fn open(
    umem: UmemOf<'_>,
    ifindex: u32,
    queue: u32,
    options: &SocketOptions,
    fill: &[u64],
) -> io::Result<Socket> {
    let fd = unbound()?;
    if let UmemOf::Own(area, _) = umem {
        register(fd.as_fd(), area)?;
    }
    set_ring_sizes(fd.as_fd(), &options.sizes)?;
    let mut offsets = NO_OFFSETS;
    sys::getsockopt(fd.as_fd(), libc::SOL_XDP, sys::XDP_MMAP_OFFSETS, &mut offsets)?;
    let sizes = &options.sizes;
    let map = |offset: &sys::xdp_ring_offset, entries: u32, entry_bytes: usize, page| {
        let start = usize::try_from(offset.desc).unwrap_or(0);
        Mapping::of(fd.as_fd(), start + entries as usize * entry_bytes, page)
    };
    let descriptor = size_of::<sys::xdp_desc>();
    let rx = map(&offsets.rx, sizes.rx, descriptor, sys::XDP_PGOFF_RX_RING)?;
    let tx = map(&offsets.tx, sizes.tx, descriptor, sys::XDP_PGOFF_TX_RING)?;
    let fr = map(&offsets.fr, sizes.fill, 8, sys::XDP_UMEM_PGOFF_FILL_RING)?;
    let cr = map(&offsets.cr, sizes.completion, 8, sys::XDP_UMEM_PGOFF_COMPLETION_RING)?;
    let mut fill_ring = Producer::of_kernel(fr, &offsets.fr, sizes.fill);
    for address in fill {
        if !fill_ring.has_room(1) {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        fill_ring.write(*address);
    }
    fill_ring.publish();
    prepare(fd.as_fd(), options);
    let (flags, share) = match umem {
        UmemOf::Own(_, flags) => (flags, None),
        UmemOf::Shared(of) => (0, Some(of)),
    };
    bind_when_free(fd.as_fd(), ifindex, queue, flags, share)?;
    let mut bound = sys::xdp_options { flags: 0 };
    sys::getsockopt(fd.as_fd(), libc::SOL_XDP, sys::XDP_OPTIONS, &mut bound)?;
    Ok(Socket {
        rx: Consumer::of_kernel(rx, &offsets.rx, sizes.rx),
        tx: Producer::of_kernel(tx, &offsets.tx, sizes.tx),
        fill: fill_ring,
        completion: Consumer::of_kernel(cr, &offsets.cr, sizes.completion),
        zero_copy: bound.flags & sys::XDP_OPTIONS_ZEROCOPY != 0,
        far_end: FarEnd::Kernel,
        fd: Arc::new(fd),
    })
}

const NO_OFFSET: sys::xdp_ring_offset =
    sys::xdp_ring_offset { producer: 0, consumer: 0, desc: 0, flags: 0 };
const NO_OFFSETS: sys::xdp_mmap_offsets =
    sys::xdp_mmap_offsets { rx: NO_OFFSET, tx: NO_OFFSET, fr: NO_OFFSET, cr: NO_OFFSET };

fn unbound() -> io::Result<OwnedFd> {
    sys::socket(libc::AF_XDP, libc::SOCK_RAW)
}

/// Sets an interface promiscuous for as long as the descriptor is open, whatever ends it. Needs
/// `CAP_NET_RAW`.
pub(crate) fn promiscuous(ifindex: u32) -> io::Result<OwnedFd> {
    // Protocol 0: no frame is copied to it.
    let fd = sys::socket(libc::AF_PACKET, libc::SOCK_RAW)?;
    let membership = sys::packet_mreq {
        mr_ifindex: i32::try_from(ifindex).map_err(|_| io::Error::other("interface index"))?,
        mr_type: u16::try_from(libc::PACKET_MR_PROMISC).unwrap_or(1),
        mr_alen: 0,
        mr_address: [0; 8],
    };
    sys::setsockopt(fd.as_fd(), libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership)?;
    Ok(fd)
}

fn register(fd: BorrowedFd<'_>, area: &UmemArea) -> io::Result<()> {
    // The kernel counts a UMEM as locked memory for those without CAP_IPC_LOCK.
    let _ = nix::sys::resource::setrlimit(
        nix::sys::resource::Resource::RLIMIT_MEMLOCK,
        nix::sys::resource::RLIM_INFINITY,
        nix::sys::resource::RLIM_INFINITY,
    );
    let registration = sys::xdp_umem_reg {
        addr: area.address,
        len: area.len,
        chunk_size: area.chunk_bytes,
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    sys::setsockopt(fd, libc::SOL_XDP, sys::XDP_UMEM_REG, &registration)
}

fn set_ring_sizes(fd: BorrowedFd<'_>, sizes: &RingSizes) -> io::Result<()> {
    let set = |name, entries: u32| sys::setsockopt(fd, libc::SOL_XDP, name, &entries);
    set(sys::XDP_UMEM_FILL_RING, sizes.fill)?;
    set(sys::XDP_UMEM_COMPLETION_RING, sizes.completion)?;
    set(sys::XDP_RX_RING, sizes.rx)?;
    set(sys::XDP_TX_RING, sizes.tx)
}

/// Sets what a kernel may lack: nothing of it is needed.
fn prepare(fd: BorrowedFd<'_>, options: &SocketOptions) {
    let budget = options.sizes.tx.max(32);
    let _ = sys::setsockopt(fd, libc::SOL_XDP, sys::XDP_MAX_TX_SKB_BUDGET, &budget);
    if let Some(poll) = options.busy_poll {
        let level = libc::SOL_SOCKET;
        let _ = sys::setsockopt(fd, level, libc::SO_PREFER_BUSY_POLL, &1_u32);
        let _ = sys::setsockopt(fd, level, libc::SO_BUSY_POLL, &poll.micros);
        let _ = sys::setsockopt(fd, level, libc::SO_BUSY_POLL_BUDGET, &poll.budget);
    }
}

/// Binds; a queue that another socket has just left is busy for some milliseconds.
fn bind_when_free(
    fd: BorrowedFd<'_>,
    ifindex: u32,
    queue: u32,
    flags: u16,
    share: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    const ATTEMPTS: u32 = 400;
    const PAUSE: Duration = Duration::from_millis(5);
    for _ in 1..ATTEMPTS {
        match sys::bind_xdp(fd, ifindex, queue, flags, share) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                #[allow(
                    clippy::disallowed_methods,
                    reason = "the kernel frees a queue some time after close and tells nobody"
                )]
                std::thread::sleep(PAUSE);
            }
            other => return other,
        }
    }
    sys::bind_xdp(fd, ifindex, queue, flags, share)
}
