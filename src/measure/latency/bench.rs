//! A measurement set up on real interfaces: ports opened once, then trial after trial.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crossbeam::channel::{self, Receiver as Results, Sender as Orders};
use nix::ifaddrs::getifaddrs;

use super::ends::{Receiver, Reflector, Sender, Sent, Stall};
use super::probe::{Carrier, FCS_BYTES, PROBE_ETHERTYPE, PROBE_UDP_PORT, Probe};
use super::rings::{OsWait, XdpRings};
use super::schedule::Schedule;
use super::trial::{
    TrialOutcome, TrialPlan, run_receiver, run_reflector, run_round_trip, run_sender,
};
use crate::time::{Duration, Time};
use crate::wire::{MacAddr, WireError};
use crate::xdp::{
    Attach, BusyPoll, ChunkSize, Clock, Match, NetNs, Port, PortConfig, PortError, RingSizes,
    Steering, UmemStore, ZeroCopy, privileges,
};

/// An interface and where it is: `IF` or `IF@NETNS`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// The interface.
    pub interface: String,
    /// Its namespace.
    pub netns: NetNs,
}

impl FromStr for End {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (interface, netns) = match text.split_once('@') {
            Some((interface, name)) if !name.is_empty() => {
                (interface, NetNs::Named(name.to_owned()))
            }
            Some(_) => return Err(format!("`{text}` names no namespace behind the @")),
            None => (text, NetNs::Current),
        };
        if interface.is_empty() {
            return Err(format!("`{text}` names no interface"));
        }
        Ok(Self { interface: interface.to_owned(), netns })
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.interface)?;
        match &self.netns {
            NetNs::Current => Ok(()),
            NetNs::Named(name) => write!(f, "@{name}"),
            NetNs::Path(path) => write!(f, "@{}", path.display()),
        }
    }
}

/// How to measure.
#[derive(Clone, Debug)]
pub struct BenchConfig {
    /// Where probes leave.
    pub tx: End,
    /// Where they arrive; None for a round trip, which ends where it began.
    pub rx: Option<End>,
    /// What carries them.
    pub carrier: Carrier,
    /// Bytes of each frame, FCS included.
    pub size_bytes: u32,
    /// Where they are addressed to; None for the receiving interface, or everybody in a round trip.
    pub destination: Option<MacAddr>,
    /// Never sleep.
    pub busy_poll: bool,
    /// Entries of the RX and TX rings.
    pub ring_entries: u32,
    /// Copies or not.
    pub zero_copy: ZeroCopy,
    /// In the driver or in the stack.
    pub attach: Attach,
    /// Take an interface even if it carries the default route.
    pub allow_default_route: bool,
}

impl BenchConfig {
    /// Probes of 64 bytes from `tx` to `rx`, or back to `tx`.
    pub const fn new(tx: End, rx: Option<End>) -> Self {
        Self {
            tx,
            rx,
            carrier: Carrier::Ethernet,
            size_bytes: 64,
            destination: None,
            busy_poll: false,
            ring_entries: 4_096,
            zero_copy: ZeroCopy::Auto,
            attach: Attach::Auto,
            allow_default_route: false,
        }
    }

    fn port(&self, end: &End) -> PortConfig {
        let mut config = PortConfig::new(end.netns.clone(), &end.interface);
        // The kernel keeps everything but the probes, so that a shared interface keeps its ssh.
        config.steering = Steering::Matches(vec![match self.carrier {
            Carrier::Ethernet => Match::EtherType(PROBE_ETHERTYPE),
            Carrier::Udp { .. } => Match::UdpPort(PROBE_UDP_PORT),
        }]);
        config.rings = RingSizes::of(self.ring_entries);
        config.zero_copy = self.zero_copy;
        config.attach = self.attach;
        config.busy_poll = self.busy_poll.then(BusyPoll::default);
        config.allow_default_route = self.allow_default_route;
        config
    }
}

/// Why a measurement could not be set up or went no further.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A port did not open.
    #[error(transparent)]
    Port(#[from] PortError),
    /// No memory, no thread, no address of an interface.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// The probe does not fit.
    #[error("a frame of {size_bytes} bytes cannot be a probe: {source}")]
    Frame {
        /// The size asked for.
        size_bytes: u32,
        /// Why.
        source: WireError,
    },
    /// The sending thread ended on its own.
    #[error("the sending thread has ended")]
    SenderGone,
    /// A signal came.
    #[error("interrupted")]
    Interrupted,
}

fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> BenchError {
    let what = what.into();
    |source| BenchError::System { what, source }
}

/// The address of an interface, asked for inside its namespace.
fn mac_of(end: &End) -> Result<MacAddr, BenchError> {
    let find = || {
        let found = getifaddrs()?
            .filter(|entry| entry.interface_name == end.interface)
            .find_map(|entry| Some(MacAddr(entry.address?.as_link_addr()?.addr()?)));
        found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    };
    end.netns.run(find).and_then(|found| found).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => BenchError::Port(PortError::NoInterface {
            netns: end.netns.clone(),
            interface: end.interface.clone(),
        }),
        _ => system(format!("cannot read the address of interface {end}"))(error),
    })
}

fn open(config: &BenchConfig, end: &End) -> Result<(UmemStore, XdpRings), BenchError> {
    // Room for full rings, and as much again for what the loops hold.
    let chunks = config.ring_entries.saturating_mul(6);
    let size = if config.size_bytes > 1_700 { ChunkSize::Bytes4096 } else { ChunkSize::Bytes2048 };
    let mut store = UmemStore::new(size, chunks).map_err(system("no memory for the UMEM"))?;
    let port = Port::open(&mut store, config.port(end))?;
    Ok((store, XdpRings::new(port)))
}

/// What the sending thread is asked to do.
struct Order {
    sender: Sender,
}

/// The far thread of a one-way measurement.
struct Far {
    orders: Orders<Order>,
    sent: Results<Sent>,
    thread: JoinHandle<()>,
}

/// A measurement with its ports open.
pub struct Bench {
    config: BenchConfig,
    interrupted: &'static AtomicBool,
    clock: Clock,
    wait: OsWait,
    store: UmemStore,
    rings: XdpRings,
    far: Option<Far>,
    source: MacAddr,
    destination: MacAddr,
    streams: u32,
}

impl fmt::Debug for Bench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bench").field("config", &self.config).finish_non_exhaustive()
    }
}

/// From the order to the first planned frame: time enough for both loops to be at it.
const LEAD: Duration = Duration::from_ms(5);

impl Bench {
    /// Opens the ports. Trials end early once `interrupted` is set.
    ///
    /// # Errors
    /// [`BenchError`], with what mends it.
    pub fn open(config: BenchConfig, interrupted: &'static AtomicBool) -> Result<Self, BenchError> {
        let source = mac_of(&config.tx)?;
        let destination = match (&config.destination, &config.rx) {
            (Some(mac), _) => *mac,
            (None, Some(rx)) => mac_of(rx)?,
            (None, None) => MacAddr::BROADCAST,
        };
        let clock = Clock::start(1);
        let near = config.rx.as_ref().unwrap_or(&config.tx);
        let (store, rings) = open(&config, near)?;
        let far = match &config.rx {
            Some(_) => Some(Far::start(&config, clock, interrupted)?),
            None => None,
        };
        let wait = OsWait::new(clock, config.busy_poll);
        // Late frames of another measurement on the same wire have another number.
        let streams = std::process::id() << 12;
        Ok(Self {
            config,
            interrupted,
            clock,
            wait,
            store,
            rings,
            far,
            source,
            destination,
            streams,
        })
    }

    /// Runs one trial. A stall, given from the first planned frame on, is for tests.
    ///
    /// # Errors
    /// [`BenchError::Interrupted`], or a probe that does not fit.
    pub fn run(
        &mut self,
        plan: TrialPlan,
        stall: Option<Stall>,
    ) -> Result<TrialOutcome, BenchError> {
        self.streams = self.streams.wrapping_add(1);
        let size_bytes = self.config.size_bytes;
        let probe = Probe::new(
            self.streams,
            self.config.carrier,
            self.source,
            self.destination,
            size_bytes.saturating_sub(FCS_BYTES),
        )
        .map_err(|source| BenchError::Frame { size_bytes, source })?;
        let start = self.clock.now() + LEAD;
        let schedule = Schedule::new(start, plan.rate, plan.burst, plan.frames);
        let stall = stall.map(|stall| Stall { at: start + stall.at.since(Time::ZERO), ..stall });
        let sender = Sender::new(probe.clone(), schedule);
        let receiver = Receiver::new(probe, stall);
        let (store, rings, wait) = (&mut self.store, &mut self.rings, &mut self.wait);
        let (sent, received) = match &self.far {
            None => run_round_trip(sender, receiver, store, rings, wait, self.interrupted),
            Some(far) => {
                far.orders.send(Order { sender }).map_err(|_| BenchError::SenderGone)?;
                let mut sent = None;
                let mut gone = false;
                let received =
                    run_receiver(receiver, store, rings, wait, || match far.sent.try_recv() {
                        Ok(done) => {
                            let count = done.sent;
                            sent = Some(done);
                            Some(count)
                        }
                        Err(channel::TryRecvError::Empty) => None,
                        Err(channel::TryRecvError::Disconnected) => {
                            gone = true;
                            Some(0)
                        }
                    });
                (sent.filter(|_| !gone).ok_or(BenchError::SenderGone)?, received)
            }
        };
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(BenchError::Interrupted);
        }
        Ok(TrialOutcome { plan, start, sent, received })
    }

    /// How it is measured.
    pub const fn config(&self) -> &BenchConfig {
        &self.config
    }

    /// The mode that the receiving port obtained: `native` or `generic`, and whether without copy.
    pub fn mode(&self) -> (&'static str, bool) {
        let port = self.rings.port();
        (port.xdp_mode().map_or("closed", crate::xdp::XdpMode::name), port.is_zero_copy())
    }

    /// What the receiving port counted.
    pub fn counters(&self) -> crate::xdp::PortCounters {
        self.rings.port().counters()
    }

    /// Ends the sending thread and closes the ports.
    pub fn close(mut self) {
        if let Some(Far { orders, sent, thread }) = self.far.take() {
            drop((orders, sent));
            // A panic of that thread has been printed; there is nothing to add.
            let _ = thread.join();
        }
        self.rings.port_mut().close(&mut self.store);
    }
}

impl Far {
    fn start(
        config: &BenchConfig,
        clock: Clock,
        interrupted: &'static AtomicBool,
    ) -> Result<Self, BenchError> {
        let (orders, inbox) = channel::bounded::<Order>(1);
        let (outbox, sent) = channel::bounded(1);
        let (ready, opened) = channel::bounded(1);
        let config = config.clone();
        let work = move || {
            let (mut store, mut rings) = match open(&config, &config.tx) {
                Ok(both) => both,
                Err(error) => {
                    let _ = ready.send(Err(error));
                    return;
                }
            };
            // The sockets are open: this thread needs no capability any more.
            let given_up = give_up_privileges();
            let failed = given_up.is_err();
            let _ = ready.send(given_up);
            if failed {
                rings.port_mut().close(&mut store);
                return;
            }
            let mut wait = OsWait::new(clock, config.busy_poll);
            for Order { sender } in inbox {
                let done = run_sender(sender, &mut store, &mut rings, &mut wait, interrupted);
                if outbox.send(done).is_err() {
                    break;
                }
            }
            rings.port_mut().close(&mut store);
        };
        let thread = std::thread::Builder::new()
            .name("sender".to_owned())
            .spawn(work)
            .map_err(system("cannot start a thread"))?;
        opened.recv().map_err(|_| BenchError::SenderGone)??;
        Ok(Self { orders, sent, thread })
    }
}

/// What a reflector did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reflected {
    /// Probes sent back.
    pub reflected: u64,
    /// Probes dropped because the TX ring stayed full.
    pub dropped: u64,
    /// Frames that were no probes.
    pub foreign: u64,
}

/// Drops every capability of the calling thread, for good, once its ports are open.
///
/// # Errors
/// When the kernel refuses.
pub fn give_up_privileges() -> Result<(), BenchError> {
    privileges::forbid_new_privileges()
        .and_then(|()| privileges::drop_all())
        .map_err(system("cannot drop capabilities"))
}

/// Sends probes of either carrier back from the interface `config.tx` until `stop`. `ready` is
/// called once the port is open, and may end it there.
///
/// # Errors
/// [`BenchError`], with what mends it.
pub fn reflect(
    config: &BenchConfig,
    stop: &AtomicBool,
    ready: impl FnOnce(&Port) -> Result<(), BenchError>,
) -> Result<Reflected, BenchError> {
    let mut port = config.port(&config.tx);
    port.steering =
        Steering::Matches(vec![Match::EtherType(PROBE_ETHERTYPE), Match::UdpPort(PROBE_UDP_PORT)]);
    let mut store = UmemStore::new(ChunkSize::Bytes4096, config.ring_entries.saturating_mul(6))
        .map_err(system("no memory for the UMEM"))?;
    let mut rings = XdpRings::new(Port::open(&mut store, port)?);
    if let Err(error) = ready(rings.port()) {
        rings.port_mut().close(&mut store);
        return Err(error);
    }
    let mut wait = OsWait::new(Clock::start(1), config.busy_poll);
    let mut reflector = Reflector::new();
    run_reflector(&mut reflector, &mut store, &mut rings, &mut wait, stop);
    rings.port_mut().close(&mut store);
    Ok(Reflected {
        reflected: reflector.reflected(),
        dropped: reflector.dropped(),
        foreign: reflector.foreign(),
    })
}

/// A stop flag that lives as long as the process, for a library user without signals.
pub fn never_interrupted() -> &'static AtomicBool {
    static NEVER: AtomicBool = AtomicBool::new(false);
    &NEVER
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_read_as_they_are_shown() {
        for text in ["eth1", "a0@tw-x"] {
            assert_eq!(text.parse::<End>().expect("an end").to_string(), text);
        }
        assert!("@ns".parse::<End>().is_err() && "a@".parse::<End>().is_err());
    }
}
