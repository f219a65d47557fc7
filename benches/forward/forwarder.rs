//! The two forwarders: bare, and our switch as a worker of a lab in free time.

use std::cell::Cell;
use std::error::Error;
use std::os::fd::BorrowedFd;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam::channel::{Receiver, Sender, unbounded};
use tailwater::frame::Frame;
use tailwater::lab::device::Device;
use tailwater::lab::engine::{
    FreePort, FreeStation, FreeWorker, LabPort, OpenRequest, Pace, Visit, XdpPace, XdpPort,
};
use tailwater::node::PortId;
use tailwater::sim::{LinkModel, Station};
use tailwater::switch::{PortConfig, StaticMac, Switch, SwitchConfig};
use tailwater::time::{Duration, Time};
use tailwater::units::Rate;
use tailwater::wire::MacAddr;
use tailwater::xdp::clock::monotonic_ns;
use tailwater::xdp::{Clock, Port, UmemStore};

use crate::testbed::{BURST, Ends, STATIONS, SWITCH_ENDS};

/// Entries of the RX and TX rings of a forwarder under load: the default of a lab.
const RING_ENTRIES: u32 = 1_024;

#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Bare,
    Switch,
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "bare" => Ok(Self::Bare),
            "switch" => Ok(Self::Switch),
            _ => Err(format!("`{text}` is neither bare nor switch")),
        }
    }
}

/// Moves frames from each port to the other until `stop` says so, which is asked when there is
/// nothing to do and now and then.
#[inline(never)]
pub(crate) fn forward_bare(
    store: &mut UmemStore,
    [left, right]: &mut [Port; 2],
    scratch: &mut Vec<Frame>,
    mut stop: impl FnMut(bool) -> bool,
) {
    let mut round = 0_u32;
    loop {
        let moved = pass(store, left, right, scratch) + pass(store, right, left, scratch);
        round = round.wrapping_add(1);
        if (moved == 0 || round.is_multiple_of(1_024)) && stop(moved == 0) {
            return;
        }
    }
}

fn pass(store: &mut UmemStore, from: &mut Port, to: &mut Port, scratch: &mut Vec<Frame>) -> usize {
    let count = from.rx_burst(store, scratch, BURST);
    for frame in scratch.drain(..) {
        if let Err((frame, _)) = to.tx_push(store, frame) {
            tailwater::frame::FrameStore::release(store, frame);
        }
    }
    if to.has_tx_pending() {
        to.kick();
        to.reap(store);
    }
    count
}

/// The pace of a lab's worker, which also sets `stop` when the worker has nothing to do or its time
/// is over.
struct StoppingPace<'a> {
    inner: XdpPace,
    stop: &'a AtomicBool,
    stops_when_idle: bool,
    idle_at_ns: Cell<u64>,
}

impl Pace for StoppingPace<'_> {
    fn now(&self) -> Time {
        self.inner.now()
    }

    fn idle<'a>(&mut self, fds: impl IntoIterator<Item = BorrowedFd<'a>>, until: Time) {
        if self.stops_when_idle {
            self.idle_at_ns.set(monotonic_ns());
            self.stop.store(true, Ordering::Relaxed);
        } else {
            self.inner.idle(fds, until);
        }
    }

    fn worked(&mut self) {
        self.inner.worked();
    }
}

/// A worker's parts while it does not run.
pub(crate) struct SwitchForwarder {
    station: Option<Station<Device>>,
    clock: Clock,
    opener: Sender<OpenRequest>,
    visits: Receiver<Visit<Device>>,
    /// Held so that the channels stay open.
    _far_ends: (Receiver<OpenRequest>, Sender<Visit<Device>>),
}

impl SwitchForwarder {
    pub(crate) fn new() -> Result<Self, Box<dyn Error>> {
        let ports = (0..2).map(|n| {
            let mac = MacAddr::from_u64(0x0600_0000_0000 | n);
            PortConfig::new(&n.to_string(), mac, Rate::from_gbps(100))
        });
        let mut config = SwitchConfig::new("bench", ports.collect());
        config.static_macs = (0..)
            .zip(STATIONS)
            .map(|(port, mac)| StaticMac { mac, vlan: 1, port: PortId(port) })
            .collect();
        let device = Device::Switch(Box::new(Switch::new(config)?));
        let (opener, requests) = unbounded();
        let (visitor, visits) = unbounded();
        Ok(Self {
            station: Some(Station::new(device, 2)),
            clock: Clock::start(1),
            opener,
            visits,
            _far_ends: (requests, visitor),
        })
    }

    /// Runs a worker around the ports until there is nothing to do; gives when that was.
    pub(crate) fn drain(&mut self, ends: Ends) -> Result<(Ends, u64), Box<dyn Error>> {
        let stop = AtomicBool::new(false);
        let pace = StoppingPace {
            inner: XdpPace::new(self.clock, true),
            stop: &stop,
            stops_when_idle: true,
            idle_at_ns: Cell::new(0),
        };
        self.run_worker(ends, pace, Time::NEVER)
    }

    fn run_until(
        &mut self,
        ends: Ends,
        stop: &AtomicBool,
        seconds: u64,
    ) -> Result<Ends, Box<dyn Error>> {
        let pace = StoppingPace {
            inner: XdpPace::new(self.clock, true),
            stop,
            stops_when_idle: false,
            idle_at_ns: Cell::new(0),
        };
        let end = self.clock.now() + Duration::from_secs(seconds);
        Ok(self.run_worker(ends, pace, end)?.0)
    }

    fn run_worker(
        &mut self,
        ends: Ends,
        mut pace: StoppingPace<'_>,
        end: Time,
    ) -> Result<(Ends, u64), Box<dyn Error>> {
        let station = self.station.take().ok_or("the worker's last run failed")?;
        let ports = ends.ports.into_iter().map(|port| {
            let io = LabPort::Xdp(Box::new(XdpPort::new(port, self.opener.clone())));
            FreePort::new(io, LinkModel::new("", Duration::ZERO, 0), None)
        });
        let stations = vec![FreeStation::new(station, ports.collect())];
        let mut worker = FreeWorker::new(ends.store, stations);
        let quiet = AtomicBool::new(false);
        let stop = pace.stop;
        worker.run(&mut pace, end, stop, &quiet, &self.visits, |_, _, _| {});
        let (store, mut stations, _) = worker.into_parts();
        let FreeStation { station, ports, .. } =
            stations.pop().ok_or("the worker had a station")?;
        self.station = Some(station);
        let mut ports = ports.into_iter().filter_map(|port| match port.into_io() {
            LabPort::Xdp(xdp) => Some(xdp.into_port()),
            LabPort::Unconnected { .. } => None,
        });
        let mut next = || ports.next().ok_or("the worker had two ports");
        let ports = [next()?, next()?];
        Ok((Ends { store, ports }, pace.idle_at_ns.get()))
    }
}

/// Forwards between the switch's ends, and prints `ready` first and what it did last.
pub(crate) fn run(kind: Kind, netns: &str, seconds: u64) -> Result<(), Box<dyn Error>> {
    let mut ends = Ends::open(netns, SWITCH_ENDS, RING_ENTRIES)?;
    let stop = Arc::new(AtomicBool::new(false));
    let handler = Arc::clone(&stop);
    ctrlc::set_handler(move || handler.store(true, Ordering::Relaxed))?;
    println!("ready");
    match kind {
        Kind::Bare => {
            let end = monotonic_ns() + seconds * 1_000_000_000;
            let mut scratch = Vec::with_capacity(2 * BURST);
            forward_bare(&mut ends.store, &mut ends.ports, &mut scratch, |_| {
                stop.load(Ordering::Relaxed) || monotonic_ns() >= end
            });
        }
        Kind::Switch => ends = SwitchForwarder::new()?.run_until(ends, &stop, seconds)?,
    }
    let counters = ends.ports.each_ref().map(Port::counters);
    let sum = |of: fn(&tailwater::xdp::PortCounters) -> u64| counters.iter().map(of).sum::<u64>();
    println!(
        "received {} sent {} wakeups {} ring_full {}",
        sum(|port| port.rx_frames),
        sum(|port| port.tx_frames),
        sum(|port| port.tx_wakeups),
        sum(|port| port.xsk_rx_ring_full)
    );
    ends.close();
    Ok(())
}
