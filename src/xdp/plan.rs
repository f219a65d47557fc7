//! Opening a port, in three steps that may run on two threads.
//!
//! The worker that owns the store lends the chunks for the fill rings ([`Port::plan`]); a thread
//! that still has the capabilities opens the sockets ([`PortPlan::open`]); the worker takes them
//! over ([`Port::start`]). [`Port::open`] does all three.
//!
//! [`Port::plan`]: super::Port::plan
//! [`Port::start`]: super::Port::start
//! [`Port::open`]: super::Port::open

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::interface::{Interface, InterfaceState, LinkState, carries_default_route};
use super::netns::NetNs;
use super::program::{Attach, Attachment, Steering, XdpMode};
use super::socket::{self, BusyPoll, RingSizes, SharedUmem, Socket, SocketOptions, UmemOf};
use super::stamp::RxStamps;
use super::store::{PortSlot, RegionId, UmemArea};
use super::sys;

/// Whether frames go between the NIC and the UMEM without a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZeroCopy {
    /// When the driver can.
    #[default]
    Auto,
    /// Or the port does not open.
    Require,
    /// Never.
    Off,
}

/// What a port is opened with.
#[derive(Clone, Debug)]
pub struct PortConfig {
    /// The interface.
    pub interface: String,
    /// Where it is.
    pub netns: NetNs,
    /// Its queues, or none for all of them.
    pub queues: Vec<u32>,
    /// All frames leave by the first queue, so that they arrive in the order in which they were sent,
    /// and not only those of one flow.
    pub tx_in_order: bool,
    /// Rings of each queue.
    pub rings: RingSizes,
    /// Copies or not.
    pub zero_copy: ZeroCopy,
    /// In the driver or in the stack.
    pub attach: Attach,
    /// Which frames come to us.
    pub steering: Steering,
    /// Whether the program stamps received frames, and by which clock. A port that takes the
    /// attachment of another takes its stamps too.
    pub rx_stamps: RxStamps,
    /// Busy polling by the kernel.
    pub busy_poll: Option<BusyPoll>,
    /// Take an interface even if it carries the default route.
    pub allow_default_route: bool,
    /// Receive frames to any address, as a port of a switch does; ends with the port.
    pub promiscuous: bool,
    /// An attachment that another port on the same interface made: the ports share the program and
    /// differ in their queues.
    pub attachment: Option<Arc<Attachment>>,
}

impl PortConfig {
    /// All queues of `interface`, all frames, everything chosen automatically.
    pub fn new(netns: NetNs, interface: &str) -> Self {
        Self {
            interface: interface.to_owned(),
            netns,
            queues: Vec::new(),
            tx_in_order: false,
            rings: RingSizes::default(),
            zero_copy: ZeroCopy::Auto,
            attach: Attach::Auto,
            steering: Steering::All,
            rx_stamps: RxStamps::Off,
            busy_poll: None,
            allow_default_route: false,
            promiscuous: false,
            attachment: None,
        }
    }
}

/// Why a port did not open.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// The namespace cannot be entered.
    #[error("cannot enter {netns} for interface {interface}: {source}")]
    Namespace {
        /// The namespace.
        netns: NetNs,
        /// The interface.
        interface: String,
        /// Why.
        source: io::Error,
    },
    /// There is no such interface.
    #[error("there is no interface {interface} in {netns} (see `ip link`)")]
    NoInterface {
        /// The namespace.
        netns: NetNs,
        /// The interface.
        interface: String,
    },
    /// The interface is how this machine is reached.
    #[error(
        "interface {interface} carries the default route: taking its frames may cut this machine \
         off. Give --allow-default-route to take it all the same"
    )]
    DefaultRoute {
        /// The interface.
        interface: String,
    },
    /// The interface is how this machine's programs reach each other.
    #[error(
        "interface {interface} is the loopback: taking its frames cuts this machine's programs off \
         from each other. Give --allow-default-route to take it all the same"
    )]
    Loopback {
        /// The interface.
        interface: String,
    },
    /// A queue that the interface has not.
    #[error(
        "interface {interface} has no queue {queue}: it has {queues} \
         (`ethtool -L {interface}` sets how many)"
    )]
    NoQueue {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
        /// How many there are.
        queues: u32,
    },
    /// Ring sizes that cannot work.
    #[error(
        "rings of {sizes:?}: each is a power of two, fill at least twice rx, completion at least tx"
    )]
    Rings {
        /// The sizes asked for.
        sizes: RingSizes,
    },
    /// The store has too few chunks for the fill rings.
    #[error(
        "interface {interface} needs {wanted} chunks for its fill rings and the UMEM has {free} \
         free: give it more, or make the rings smaller"
    )]
    NoChunks {
        /// The interface.
        interface: String,
        /// Chunks that its fill rings need.
        wanted: u64,
        /// Chunks that are free.
        free: u32,
    },
    /// The memory for a zero-copy UMEM could not be had.
    #[error("no memory for the UMEM of interface {interface}: {source}")]
    Memory {
        /// The interface.
        interface: String,
        /// Why.
        source: io::Error,
    },
    /// Zero-copy was required.
    #[error(
        "the driver of interface {interface} has no zero-copy AF_XDP (zero_copy = \"require\")"
    )]
    NoZeroCopy {
        /// The interface.
        interface: String,
    },
    /// The program did not load or attach.
    #[error(
        "cannot attach the XDP program to interface {interface}: {source}{}",
        hint_attach(source)
    )]
    Attach {
        /// The interface.
        interface: String,
        /// Why.
        source: io::Error,
    },
    /// A socket did not open or bind.
    #[error(
        "cannot open AF_XDP on queue {queue} of interface {interface}: {source}{}",
        hint_bind(source)
    )]
    Bind {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
        /// Why.
        source: io::Error,
    },
}

fn hint_attach(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EBUSY) => {
            " (another program is attached: `ip link` shows it, `ip link set dev IF xdp off` \
             removes one that is not a bpf_link)"
        }
        Some(libc::EPERM) => " (needs root, or CAP_BPF and CAP_NET_ADMIN)",
        Some(libc::ENOSPC) => {
            " (a veth needs at least as many rx queues as its peer has tx queues)"
        }
        _ => "",
    }
}

fn hint_bind(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EBUSY) => " (another socket holds this queue)",
        Some(libc::EPERM) => " (needs root, or CAP_NET_RAW)",
        Some(libc::ENOBUFS | libc::ENOMEM) => {
            " (locked memory is too small: `ulimit -l unlimited`)"
        }
        Some(libc::EAFNOSUPPORT) => " (this kernel has no AF_XDP: CONFIG_XDP_SOCKETS)",
        _ => "",
    }
}

/// A port that has been given its chunks and not yet its sockets.
#[derive(Debug)]
pub struct PortPlan {
    pub(crate) config: PortConfig,
    pub(crate) slot: PortSlot,
    pub(crate) region: RegionId,
    pub(crate) umem: PlannedUmem,
    /// Each queue with the chunks of its fill ring.
    pub(crate) queues: Vec<(u32, Vec<u64>)>,
}

/// Which UMEM the sockets will use.
#[derive(Clone, Debug)]
pub(crate) enum PlannedUmem {
    /// The one that all ports in copy mode share.
    Shared(Arc<SharedUmem>),
    /// One of the port's own, for zero-copy.
    Own(UmemArea),
}

/// A port's sockets, open and bound.
#[derive(Debug)]
pub struct OpenedPort {
    pub(crate) plan: PortPlan,
    /// Before the sockets, so that the program is detached before they close.
    pub(crate) attachment: Arc<Attachment>,
    pub(crate) sockets: Vec<Socket>,
    /// Holds the interface in promiscuous mode.
    pub(crate) promiscuous: Option<OwnedFd>,
    pub(crate) interface: Interface,
    pub(crate) ifindex: u32,
    pub(crate) state: InterfaceState,
}

impl OpenedPort {
    /// Where the program is attached.
    pub fn xdp_mode(&self) -> XdpMode {
        self.attachment.mode()
    }
}

/// What must be known of an interface before chunks are lent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Survey {
    pub(crate) queues: u32,
    pub(crate) zero_copy: bool,
}

/// Looks at the interface that `config` names.
pub(crate) fn survey(config: &PortConfig) -> Result<Survey, PortError> {
    let sizes = config.rings;
    if !sizes.are_valid() {
        return Err(PortError::Rings { sizes });
    }
    in_namespace(config, || {
        let interface = open_interface(config)?;
        let ifindex = interface.index().map_err(|_| no_interface(config))?;
        let features = super::program::driver_features(ifindex);
        let zero_copy = match config.zero_copy {
            ZeroCopy::Off => false,
            ZeroCopy::Auto => {
                config.attach != Attach::Generic && features.is_ok_and(|have| have.zero_copy)
            }
            // A kernel that does not know (before 6.3) is asked by binding.
            ZeroCopy::Require => features.is_ok_and(|have| have.zero_copy) || features_unknown(),
        };
        if config.zero_copy == ZeroCopy::Require && !zero_copy {
            return Err(PortError::NoZeroCopy { interface: config.interface.clone() });
        }
        let queues = interface.queues();
        if let Some(queue) = config.queues.iter().find(|queue| **queue >= queues) {
            let interface = config.interface.clone();
            return Err(PortError::NoQueue { interface, queue: *queue, queues });
        }
        Ok(Survey { queues, zero_copy })
    })
}

/// How many queues a port of `config` will have: those that it names, or all of the interface's.
///
/// # Errors
/// [`PortError`] when the interface is not there or has not what `config` wants.
pub fn queue_count(config: &PortConfig) -> Result<u32, PortError> {
    let survey = survey(config)?;
    let named = u32::try_from(config.queues.len()).unwrap_or(u32::MAX);
    Ok(if named == 0 { survey.queues } else { named })
}

/// Whether the kernel cannot say what drivers do; the loopback interface is one that can be asked.
fn features_unknown() -> bool {
    super::program::driver_features(1).is_err()
}

fn in_namespace<T: Send>(
    config: &PortConfig,
    work: impl FnOnce() -> Result<T, PortError> + Send,
) -> Result<T, PortError> {
    config.netns.run(work).unwrap_or_else(|source| Err(namespace_error(config, source)))
}

fn namespace_error(config: &PortConfig, source: io::Error) -> PortError {
    let (netns, interface) = (config.netns.clone(), config.interface.clone());
    PortError::Namespace { netns, interface, source }
}

fn open_interface(config: &PortConfig) -> Result<Interface, PortError> {
    Interface::open(&config.interface).map_err(|source| namespace_error(config, source))
}

fn no_interface(config: &PortConfig) -> PortError {
    PortError::NoInterface { netns: config.netns.clone(), interface: config.interface.clone() }
}

impl PortPlan {
    /// Uses the program that another port on the same interface attached, instead of attaching one.
    #[must_use]
    pub fn share(mut self, attachment: Arc<Attachment>) -> Self {
        self.config.attachment = Some(attachment);
        self
    }

    /// Opens the sockets, in the interface's namespace, and attaches the program. Needs
    /// `CAP_SYS_ADMIN` (for another namespace), `CAP_NET_ADMIN`, `CAP_NET_RAW` and `CAP_BPF`.
    ///
    /// After an error the worker calls [`Port::cancel`](super::Port::cancel), which takes the
    /// chunks back.
    ///
    /// # Errors
    /// [`PortError`], with what mends it.
    pub fn open(self) -> Result<OpenedPort, PortError> {
        let config = self.config.clone();
        in_namespace(&config, move || self.open_here())
    }

    fn open_here(self) -> Result<OpenedPort, PortError> {
        let config = &self.config;
        let name = || config.interface.clone();
        let interface = open_interface(config)?;
        let ifindex = interface.index().map_err(|_| no_interface(config))?;
        let state = interface.state(ifindex);
        if state.link == LinkState::Vanished {
            return Err(no_interface(config));
        }
        if !config.allow_default_route {
            if carries_default_route(&config.interface) {
                return Err(PortError::DefaultRoute { interface: name() });
            }
            if interface.is_loopback() {
                return Err(PortError::Loopback { interface: name() });
            }
        }
        let attachment = match &config.attachment {
            Some(attachment) => Arc::clone(attachment),
            None => Arc::new(
                Attachment::new(ifindex, &config.steering, config.attach, config.rx_stamps)
                    .map_err(|source| PortError::Attach { interface: name(), source })?,
            ),
        };
        let mut sockets: Vec<Socket> = Vec::with_capacity(self.queues.len());
        for (queue, fill) in &self.queues {
            let bound = self
                .open_queue(ifindex, state.mtu_bytes, *queue, fill, sockets.first())
                .and_then(|socket| {
                    attachment.insert(*queue, socket.fd())?;
                    Ok(socket)
                });
            match bound {
                Ok(socket) => sockets.push(socket),
                Err(source) => {
                    let interface = name();
                    // Detached first, then closed.
                    drop(attachment);
                    return Err(PortError::Bind { interface, queue: *queue, source });
                }
            }
        }
        // An interface that refuses this still gives what is addressed to it.
        let promiscuous = config.promiscuous.then(|| socket::promiscuous(ifindex).ok()).flatten();
        Ok(OpenedPort { plan: self, attachment, sockets, promiscuous, interface, ifindex, state })
    }

    fn open_queue(
        &self,
        ifindex: u32,
        mtu_bytes: u32,
        queue: u32,
        fill: &[u64],
        first: Option<&Socket>,
    ) -> io::Result<Socket> {
        let config = &self.config;
        let options = SocketOptions { sizes: config.rings, busy_poll: config.busy_poll };
        let open = |umem| socket::open(umem, ifindex, queue, &options, fill);
        let area = match (&self.umem, first) {
            (PlannedUmem::Shared(umem), _) => return open(UmemOf::Shared(umem.anchor()?)),
            (PlannedUmem::Own(_), Some(first)) => return open(UmemOf::Shared(first.fd())),
            (PlannedUmem::Own(area), None) => area,
        };
        // A driver may do zero-copy and not chains of descriptors, so that is asked for only when
        // the MTU needs it.
        let room = area.chunk_bytes - u32::from(super::store::HEADROOM_BYTES);
        let chains = if mtu_bytes + HEADER_BYTES_MAX > room { sys::XDP_USE_SG } else { 0 };
        let flags = sys::XDP_USE_NEED_WAKEUP | chains;
        match open(UmemOf::Own(area, flags | sys::XDP_ZEROCOPY)) {
            Err(_) if config.zero_copy == ZeroCopy::Auto => {
                let flags = sys::XDP_USE_NEED_WAKEUP | sys::XDP_USE_SG | sys::XDP_COPY;
                open(UmemOf::Own(area, flags))
            }
            other => other,
        }
    }
}

/// Ethernet and one VLAN tag.
pub(crate) const HEADER_BYTES_MAX: u32 = 18;
