//! Stations and links under one virtual clock.

use crate::frame::FrameStore;
use crate::ledger::{Imbalance, Ledger};
use crate::node::{Node, PortId};
use crate::sim::{Agenda, Fate, LinkChange, LinkModel, Station};
use crate::time::{Duration, Time};

/// A port of a station of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortRef {
    /// The station, as counted by [`Network::add`].
    pub station: usize,
    /// Its port.
    pub port: PortId,
}

#[derive(Debug)]
struct Wire {
    model: LinkModel,
    to: PortRef,
}

/// A network in virtual time: the event loop of the simulator.
#[derive(Debug)]
pub struct Network<N, S> {
    store: S,
    stations: Vec<Station<N>>,
    /// Per station and port, the wire that leads away from it.
    away: Vec<Vec<Option<usize>>>,
    /// Per station and port, the wire that leads to it, whose books an arrival is entered in.
    into: Vec<Vec<Option<usize>>>,
    wires: Vec<Wire>,
    agenda: Agenda,
    now: Time,
    started: bool,
    /// When a frame last moved.
    link_hops: u64,
}

/// A run without an end of its own is given up after this much node time.
pub const QUIET_LIMIT: Duration = Duration::from_secs(3_600);

/// A run without a set end is asked at each multiple of this whether all nodes are quiet.
pub const QUIET_SLICE: Duration = Duration::from_us(100);

/// The end of a run in which a node was last not quiet at `last_busy`: the next multiple of
/// [`QUIET_SLICE`].
pub const fn quiet_end(last_busy: Time) -> Time {
    let slice = QUIET_SLICE.as_ps();
    Time::from_ps((last_busy.as_ps() / slice + 1).saturating_mul(slice))
}

impl<S: FrameStore, N: Node<S>> Network<N, S> {
    /// A network with no station, over `store`.
    pub fn new(store: S) -> Self {
        Self {
            store,
            stations: Vec::new(),
            away: Vec::new(),
            into: Vec::new(),
            wires: Vec::new(),
            agenda: Agenda::new(0),
            now: Time::ZERO,
            started: false,
            link_hops: 0,
        }
    }

    /// Adds a node with `ports` ports and gives its number.
    pub fn add(&mut self, node: N, ports: u16) -> usize {
        self.add_station(Station::new(node, ports))
    }

    /// Adds a station and gives its number.
    pub fn add_station(&mut self, station: Station<N>) -> usize {
        let ports = usize::from(station.ports());
        self.stations.push(station);
        self.away.push(vec![None; ports]);
        self.into.push(vec![None; ports]);
        self.stations.len() - 1
    }

    /// Lays a link between two ports: `there` is the direction from `a` to `b`. Gives the numbers of
    /// the two directions.
    pub fn connect(
        &mut self,
        a: PortRef,
        b: PortRef,
        there: LinkModel,
        back: LinkModel,
    ) -> (usize, usize) {
        (self.lay(a, b, there), self.lay(b, a, back))
    }

    fn lay(&mut self, from: PortRef, to: PortRef, model: LinkModel) -> usize {
        self.wires.push(Wire { model, to });
        let number = self.wires.len() - 1;
        self.away[from.station][from.port.index()] = Some(number);
        self.into[to.station][to.port.index()] = Some(number);
        number
    }

    /// Plans a change of the link at `port`: both directions, and both ends are told.
    pub fn plan(&mut self, at: Time, end: PortRef, change: LinkChange) {
        let Some(there) = self.away[end.station][end.port.index()] else { return };
        let far = self.wires[there].to;
        let back = self.away[far.station][far.port.index()];
        for wire in [Some(there), back].into_iter().flatten() {
            self.wires[wire].model.plan(at, change);
        }
        let up = match change {
            LinkChange::Down => false,
            LinkChange::Up => true,
            _ => return,
        };
        for end in [end, far] {
            self.stations[end.station].plan_link(at, end.port, up);
        }
    }

    /// The station: its node and what flies towards it.
    pub fn station(&self, station: usize) -> &Station<N> {
        &self.stations[station]
    }

    /// The station's node.
    pub fn node(&self, station: usize) -> &N {
        self.stations[station].node()
    }

    /// The books of a station's node at this moment.
    pub fn ledger(&self, station: usize) -> Ledger {
        self.node(station).ledger()
    }

    /// A station, to put taps on it before the run.
    pub fn station_mut(&mut self, station: usize) -> &mut Station<N> {
        &mut self.stations[station]
    }

    /// One direction of a link.
    pub fn link(&self, wire: usize) -> &LinkModel {
        &self.wires[wire].model
    }

    /// The time that has been reached.
    pub const fn now(&self) -> Time {
        self.now
    }

    /// Frames that have crossed a link.
    pub const fn link_hops(&self) -> u64 {
        self.link_hops
    }

    /// The store.
    pub const fn store(&self) -> &S {
        &self.store
    }

    /// Runs every event before `end`, and leaves the clock there. Called again, it goes on.
    pub fn run_until(&mut self, end: Time) {
        self.run_until_observed(end, &mut |_, _, _| {});
    }

    /// [`run_until`](Self::run_until); `observe` sees each station before it is served.
    fn run_until_observed(&mut self, end: Time, observe: &mut impl FnMut(Time, usize, &N)) {
        self.start();
        loop {
            let (at, station) = self.agenda.first();
            if at >= end {
                break;
            }
            self.now = at;
            observe(at, station, self.stations[station].node());
            self.step(at, station);
        }
        self.now = end;
    }

    /// Runs every event of the next `slice`, or of the first slice that has one, at most until
    /// `limit`. `observe` sees each station, by its number, before it is served.
    pub fn run_slice(
        &mut self,
        slice: Duration,
        limit: Time,
        mut observe: impl FnMut(Time, usize, &N),
    ) {
        self.start();
        let idle = self.agenda.first().0.since(self.now).as_ps() / slice.as_ps();
        self.run_until_observed((self.now + slice * idle + slice).min(limit), &mut observe);
    }

    /// True when every node is quiet and no frame is on a link.
    pub fn is_quiet(&self) -> bool {
        self.stations.iter().all(Station::is_quiet)
    }

    fn start(&mut self) {
        if self.started {
            return;
        }
        self.started = true;
        self.agenda = Agenda::new(u32::try_from(self.stations.len()).unwrap_or(u32::MAX));
        for (index, station) in self.stations.iter().enumerate() {
            self.agenda.set(index, station.next_event());
        }
    }

    fn step(&mut self, now: Time, index: usize) {
        let (wires, hops) = (&mut self.wires, &mut self.link_hops);
        let (away, into) = (&self.away[index], &self.into[index]);
        self.stations[index].take_in(now, &mut self.store, |port, _| {
            *hops += 1;
            if let Some(wire) = into[port.index()] {
                wires[wire].model.delivered();
            }
        });
        while let Some((port, sent)) = self.stations[index].take_out(now, &mut self.store) {
            let Some(number) = away[port.index()] else {
                self.store.release(sent.frame);
                continue;
            };
            let wire = &mut wires[number];
            match wire.model.send(sent.ends) {
                Fate::Arrives(at) => {
                    let to = wire.to;
                    if self.stations[to.station].arrive(at, to.port, sent.frame) {
                        self.agenda.advance(to.station, at);
                    }
                }
                Fate::Lost(_) => self.store.release(sent.frame),
            }
        }
        let next = self.stations[index].next_event();
        debug_assert!(next > now, "station {index} has the same event twice at {now}");
        self.agenda.set(index, next);
    }

    /// Checks every node's books.
    ///
    /// # Errors
    /// The first station whose books do not balance.
    pub fn check(&self) -> Result<(), (usize, Imbalance)> {
        for (index, station) in self.stations.iter().enumerate() {
            station.node().ledger().check().map_err(|imbalance| (index, imbalance))?;
        }
        Ok(())
    }

    /// Ends the run: gives every frame back to the store, which must then have none outstanding, and
    /// the nodes with their books to the caller.
    pub fn into_nodes(mut self) -> impl Iterator<Item = N> {
        self.drain();
        self.stations.into_iter().map(Station::into_node)
    }

    /// Gives every frame back to the store, which must then have none outstanding.
    pub fn drain(&mut self) {
        for station in &mut self.stations {
            station.drain(&mut self.store);
        }
        assert_eq!(
            self.store.outstanding(),
            0,
            "frames of the store were neither held nor returned"
        );
    }
}
