//! A measurement set up on real interfaces: ports opened once, then trial after trial.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crossbeam::channel::{self, Receiver as Results, Sender as Orders};
use nix::ifaddrs::getifaddrs;

use super::ends::{Receiver, Reflector, Sender, Sent, Stall};
use super::losses::{EndCounts, Losses};
use super::probe::{Carrier, FCS_BYTES, PROBE_ETHERTYPE, PROBE_UDP_PORT, Probe};
use super::rings::{OsWait, XdpRings};
use super::schedule::Schedule;
use super::stamps::StampClock;
use super::trial::{
    TrialOutcome, TrialPlan, run_receiver, run_reflector, run_round_trip, run_sender,
};
use crate::time::{Duration, Time};
use crate::wire::{MacAddr, WireError};
use crate::xdp::{
    Attach, BusyPoll, ChunkSize, Clock, DropsReader, Match, NetNs, Phc, Port, PortConfig,
    PortError, RingSizes, RxStamps, Steering, UmemStore, ZeroCopy, hardware_stamps, privileges,
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

/// What the arrival of a frame goes by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Timestamps {
    /// The hardware's stamps where there are any, or else the receiver's clock.
    #[default]
    Auto,
    /// The hardware's stamps, or no measurement.
    Hardware,
    /// Stamps of the XDP program: the frame has arrived, and waits for its reader.
    Xdp,
    /// The clock of the receiver that reads the frame.
    Software,
}

impl Timestamps {
    /// The name in flags and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Hardware => "hardware",
            Self::Xdp => "xdp",
            Self::Software => "software",
        }
    }
}

impl FromStr for Timestamps {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Auto, Self::Hardware, Self::Xdp, Self::Software]
            .into_iter()
            .find(|one| one.name() == text)
            .ok_or_else(|| format!("`{text}` is not auto, hardware, xdp or software"))
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
    /// What arrivals go by.
    pub timestamps: Timestamps,
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
            timestamps: Timestamps::Auto,
            allow_default_route: false,
        }
    }

    fn port(&self, end: &End, stamps: RxStamps) -> PortConfig {
        let mut config = PortConfig::new(end.netns.clone(), &end.interface);
        // The kernel keeps everything but the probes, so that a shared interface keeps its ssh.
        config.steering = Steering::Matches(vec![match self.carrier {
            Carrier::Ethernet => Match::EtherType(PROBE_ETHERTYPE),
            Carrier::Udp { .. } => Match::UdpPort(PROBE_UDP_PORT),
        }]);
        config.rings = RingSizes::of(self.ring_entries);
        config.zero_copy = self.zero_copy;
        config.attach = self.attach;
        config.rx_stamps = stamps;
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
    /// There are no stamps of arrival of the kind that was asked for.
    #[error("no {} time stamps: {reason}", asked.name())]
    NoStamps {
        /// What was asked for.
        asked: Timestamps,
        /// Why there are none.
        reason: String,
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

/// What arrivals will go by, and why not by what was asked for.
#[derive(Debug)]
struct Stamping {
    stamps: RxStamps,
    device_clock: Option<Phc>,
    reason: Option<String>,
}

impl Stamping {
    const fn by(stamps: RxStamps) -> Self {
        Self { stamps, device_clock: None, reason: None }
    }

    const fn software(reason: String) -> Self {
        Self { stamps: RxStamps::Off, device_clock: None, reason: Some(reason) }
    }

    /// What the receiving end can do of what is asked.
    fn choose(config: &BenchConfig, end: &End) -> Result<Self, BenchError> {
        let asked = config.timestamps;
        let found = match asked {
            Timestamps::Software => return Ok(Self::by(RxStamps::Off)),
            Timestamps::Xdp => return Ok(Self::by(RxStamps::Xdp)),
            Timestamps::Auto | Timestamps::Hardware if config.attach == Attach::Generic => {
                Err("only a program in the driver gets them (no --generic)".to_owned())
            }
            Timestamps::Auto | Timestamps::Hardware => {
                hardware_stamps::find(&end.netns, &end.interface).map_err(|none| none.to_string())
            }
        };
        match found {
            Ok(clock) => {
                let (stamps, device_clock) = (RxStamps::Hardware, Some(clock));
                Ok(Self { stamps, device_clock, reason: None })
            }
            Err(reason) if asked == Timestamps::Auto => Ok(Self::software(reason)),
            Err(reason) => Err(BenchError::NoStamps { asked, reason }),
        }
    }
}

/// Opens the receiving end, with stamps as can be had.
fn open_receiving(
    config: &BenchConfig,
    end: &End,
) -> Result<(UmemStore, XdpRings, Stamping), BenchError> {
    let mut stamping = Stamping::choose(config, end)?;
    let clock = stamping.device_clock.take();
    match open(config, end, stamping.stamps, clock) {
        // The kernel or the driver takes no program that asks for stamps.
        Err(BenchError::Port(error @ PortError::Attach { .. }))
            if config.timestamps == Timestamps::Auto && stamping.stamps != RxStamps::Off =>
        {
            let (store, rings) = open(config, end, RxStamps::Off, None)?;
            Ok((store, rings, Stamping::software(error.to_string())))
        }
        opened => opened.map(|(store, rings)| (store, rings, stamping)),
    }
}

fn open(
    config: &BenchConfig,
    end: &End,
    stamps: RxStamps,
    device_clock: Option<Phc>,
) -> Result<(UmemStore, XdpRings), BenchError> {
    // Room for full rings, and as much again for what the loops hold.
    let chunks = config.ring_entries.saturating_mul(6);
    let size = if config.size_bytes > 1_700 { ChunkSize::Bytes4096 } else { ChunkSize::Bytes2048 };
    let mut store = UmemStore::new(size, chunks).map_err(system("no memory for the UMEM"))?;
    let port = Port::open(&mut store, config.port(end, stamps))?;
    // Without them a loss has one explanation less.
    let drops = DropsReader::open(&end.netns, &end.interface).ok();
    Ok((store, XdpRings::new(port, device_clock, drops)))
}

/// What the sending thread is asked to do.
struct Order {
    sender: Sender,
}

/// The far thread of a one-way measurement.
struct Far {
    orders: Orders<Order>,
    sent: Results<(Sent, EndCounts)>,
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
    stamps: RxStamps,
    /// Why arrivals do not go by the hardware's stamps.
    stamps_reason: Option<String>,
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
        let (store, rings, stamping) = open_receiving(&config, near)?;
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
            stamps: stamping.stamps,
            stamps_reason: stamping.reason,
        })
    }

    /// Runs one trial. A stall, given from the first planned frame on, is for tests.
    ///
    /// # Errors
    /// [`BenchError::Interrupted`], a probe that does not fit, or frames that bear none of the stamps
    /// that were asked for.
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
        let clock = match self.stamps {
            RxStamps::Off => None,
            RxStamps::Xdp => Some(StampClock::Os),
            RxStamps::Hardware => Some(StampClock::Device),
        };
        let receiver = Receiver::new(probe, stall, clock);
        let before = self.rings.counts();
        let mut sending_end = None;
        let (store, rings, wait) = (&mut self.store, &mut self.rings, &mut self.wait);
        let (sent, received) = match &self.far {
            None => run_round_trip(sender, receiver, store, rings, wait, self.interrupted),
            Some(far) => {
                far.orders.send(Order { sender }).map_err(|_| BenchError::SenderGone)?;
                let mut sent = None;
                let mut gone = false;
                let received =
                    run_receiver(receiver, store, rings, wait, || match far.sent.try_recv() {
                        Ok((done, counted)) => {
                            let count = done.sent;
                            sending_end = Some(counted);
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
        let receiving_end = self.rings.counts().since(&before);
        let losses = Losses::attribute(
            sent.sent.saturating_sub(received.stream.received),
            // A round trip ends at the port where it began.
            &sending_end.unwrap_or(receiving_end),
            &receiving_end,
        );
        let stamps = self.stamps;
        let outcome = TrialOutcome { plan, start, sent, received, stamps, losses };
        self.check_stamps(&outcome)?;
        Ok(outcome)
    }

    /// A driver may have stamps for some kinds of frames and not for these.
    fn check_stamps(&mut self, outcome: &TrialOutcome) -> Result<(), BenchError> {
        let received = outcome.received.stream.received;
        if self.stamps == RxStamps::Off || received == 0 || outcome.is_stamped() {
            return Ok(());
        }
        let reason = format!("none of {received} frames bore one");
        let asked = self.config.timestamps;
        if asked != Timestamps::Auto {
            return Err(BenchError::NoStamps { asked, reason });
        }
        self.stamps = RxStamps::Off;
        self.stamps_reason = Some(reason);
        Ok(())
    }

    /// By which clock arrivals are stamped, and why not by the hardware's when that was asked for.
    pub fn stamps(&self) -> (RxStamps, Option<&str>) {
        (self.stamps, self.stamps_reason.as_deref())
    }

    /// The file of the clock that the hardware stamps by.
    pub fn device_clock(&self) -> Option<String> {
        self.rings.device_clock().map(Phc::path)
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
            let opened = open(&config, &config.tx, RxStamps::Off, None);
            let (mut store, mut rings) = match opened {
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
                let before = rings.counts();
                let done = run_sender(sender, &mut store, &mut rings, &mut wait, interrupted);
                let counted = rings.counts().since(&before);
                if outbox.send((done, counted)).is_err() {
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
    let mut port = config.port(&config.tx, RxStamps::Off);
    port.steering =
        Steering::Matches(vec![Match::EtherType(PROBE_ETHERTYPE), Match::UdpPort(PROBE_UDP_PORT)]);
    let mut store = UmemStore::new(ChunkSize::Bytes4096, config.ring_entries.saturating_mul(6))
        .map_err(system("no memory for the UMEM"))?;
    let mut rings = XdpRings::new(Port::open(&mut store, port)?, None, None);
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
