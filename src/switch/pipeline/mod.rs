//! The switch as a node: the stages that a frame passes, in their order.
//!
//! | file | stages |
//! |---|---|
//! | [`ingress`] | length, addresses and tags; group source; VLAN; class; destination; learning |
//! | [`flood`] | group and unknown destinations: copies for all ports but one |
//! | [`groups`] | a group as destination: which of its ports |
//! | [`layer3`] | frames for the router: routing, SRv6, outer headers, ICMP errors |
//! | [`tunnel`] | frames to and from stations behind VXLAN endpoints |
//! | [`egress`] | VLAN of the egress port; link and MTU; admission by queue and memory; tag; queue |
//! | [`mark`] | what a long queue does to frames: early drops and marks on arrival, marks on leaving |
//! | [`transmit`] | which queue is served; out of the queue; the wire |
//! | [`flow_control`] | MAC control frames that came; pauses of queues, and pauses asked for; the watchdog |
//! | [`plain`] | the first three in one go, for the frame that nothing stops |
//! | [`node`] | what drivers call; links, ledger |
//! | [`setting`] | changes of a switch that runs |
//!
//! # Where a stage has its place
//!
//! - **A frame for the switch itself** (a MAC control frame) is known in [`Switch::handle`] once
//!   [`Switch::inspect`] has passed it: it goes to a group address, so the plain way never has it.
//!   What is consumed there counts as received and consumed, and neither learns nor queues.
//! - **A frame for a router or a tunnel's end** has the switch's own station as destination: the
//!   look-up finds it, as it finds every other station, and `handle` branches on what it found. What
//!   such a stage rewrites it rewrites before [`Switch::forward`], which takes any port.
//! - **Admission** is [`Egress::admit`] alone, and takes effect there: a frame that it has let in is
//!   queued, after its tag at most. What is to be remembered for the time when the frame leaves is
//!   its [`Meta`].
//! - **What admission refuses** is cut to its headers where its queue is trimmed, and asks once
//!   more, for the queue of the trimmed.
//! - **Leaving a queue**, to the wire or dropped, is [`Egress::dequeue`] alone: it gives back what
//!   admission took.
//! - **What stops a queue** clears its bit in the port's open queues and then calls
//!   [`Switch::restart`]. A port is among the ready or the waiting exactly while it has an open queue
//!   with frames.
//! - **Changes of a frame on its way out** are made in [`Switch::transmit`], which has the store.
//! - **Time**: what waits has one earliest instant, for all stages but the wires. A stage whose
//!   deadline may have come nearer calls [`Switch::note_timers`].
//!
//! What a stage that is not configured costs is nothing: a port's flags choose the way when it is
//! built ([`Port::new`]). The longest plain frame is 0 bytes where a stage looks into every frame, and
//! a port sends plainly unless a stage has to do with frames that leave. A stage that needs either
//! says so there, and works on the long way: [`Switch::handle`], [`Switch::transmit`].
//!
//! [`Meta`]: super::queue::Meta
//! [`Node::next_deadline`]: crate::node::Node::next_deadline

mod egress;
mod flood;
mod flow_control;
mod groups;
mod ingress;
mod layer3;
mod mark;
mod node;
mod plain;
mod setting;
mod transmit;
mod tunnel;

pub use flow_control::StoppedQueue;
pub use setting::SwitchSetting;

use self::egress::Egress;
use self::groups::Groups;
use self::layer3::Layer3;
use super::check::SwitchConfigError;
use super::classify::Classifier;
use super::config::{PortConfig, QUEUES, SwitchConfig};
use super::counters::PortCounters;
use super::flow::FlowControl;
use super::mac_table::{MacTable, MacTableCounters, key_of};
use super::memory::Memory;
use super::port::Port;
use super::port_set::PortSet;
use super::prevention::Prevention;
use super::vlan::Vlans;
use crate::frame::{FrameStore, ParkedFrame};
use crate::ledger::DropReason;
use crate::node::PortId;
use crate::rng::Rng;
use crate::time::{Duration, Time};

/// A switch.
#[derive(Debug)]
pub struct Switch {
    config: SwitchConfig,
    ports: Vec<Port>,
    vlans: Vlans,
    macs: MacTable,
    classifier: Classifier,
    egress: Egress,
    /// No port takes frames as they come.
    looks_into_all: bool,
    layer3: Option<Box<Layer3>>,
    groups: Groups,
    rng: Rng,
    /// Ports whose link is up.
    up: PortSet,
    flow: FlowControl,
    prevention: Option<Prevention>,
    /// When flow control or the MAC table has something to do: the earliest, or earlier.
    timer_due: Time,
    replicated: u64,
    /// Pause frames that were made, and those that came and were read.
    generated: u64,
    consumed: u64,
    /// Frames that [`Node::drain`](crate::node::Node::drain) gave back.
    drained: u64,
}

impl Switch {
    /// A switch whose links are all up and whose queues are empty.
    ///
    /// # Errors
    /// [`SwitchConfigError`] for a configuration that [`SwitchConfig::check`] refuses.
    pub fn new(config: SwitchConfig) -> Result<Self, SwitchConfigError> {
        config.check()?;
        let mut macs = MacTable::new(config.mac_table_entries, config.mac_ageing);
        for (index, entry) in config.static_macs.iter().enumerate() {
            if !macs.insert_static(key_of(entry.vlan, entry.mac.as_u64()), entry.port) {
                return Err(SwitchConfigError::static_mac_without_place(index, entry));
            }
        }
        let mut up = PortSet::default();
        for port in 0..config.ports.len() {
            up.insert(port);
        }
        let classifier = Classifier::new(&config);
        let mut rng = Rng::for_node(config.seed, &config.name);
        let groups = Groups::new(&config, &mut rng)
            .map_err(|error| SwitchConfigError::no_such(&config, error.field, error.message))?;
        let egress = Egress::new(&config);
        let may_be_plain = !egress.memory.is_shared() && config.watchdog.is_none();
        let port = |(id, port): (u16, &PortConfig)| {
            let class = classifier.class(port.default_priority);
            let station_port = groups.station_port(PortId(id));
            let mut port =
                Port::new(port, station_port, class, config.overhead_bytes, may_be_plain);
            if config.prevention.is_some() {
                port.go_long();
            }
            port
        };
        let vlans = Vlans::new(&config);
        let layer3 = Layer3::new(&config, &vlans, &mut macs)?;
        let ports: Vec<Port> = (0..).zip(&config.ports).map(port).collect();
        let mut switch = Self {
            looks_into_all: ports.iter().all(|port| port.plain_bytes_max == 0),
            ports,
            vlans,
            macs,
            egress,
            groups,
            rng,
            layer3,
            classifier,
            up,
            flow: FlowControl::new(&config),
            prevention: config.prevention.as_ref().map(Prevention::new),
            replicated: 0,
            generated: 0,
            consumed: 0,
            drained: 0,
            timer_due: Time::NEVER,
            config,
        };
        switch.note_timers();
        Ok(switch)
    }

    /// What the switch was built from, with the settings that were made since.
    pub const fn config(&self) -> &SwitchConfig {
        &self.config
    }

    /// The counters of a port.
    ///
    /// # Panics
    /// When there is no such port.
    pub fn port_counters(&self, port: PortId) -> &PortCounters {
        &self.ports[port.index()].counters
    }

    /// Bytes in each queue of a port.
    ///
    /// # Panics
    /// When there is no such port.
    pub fn queue_bytes(&self, port: PortId) -> [u64; QUEUES] {
        self.ports[port.index()].queues.each_ref().map(|queue| queue.bytes())
    }

    /// Sending time of a port that a late driver could not use, in sum.
    ///
    /// # Panics
    /// When there is no such port.
    pub fn credit_expired(&self, port: PortId) -> Duration {
        self.ports[port.index()].line.credit_expired()
    }

    /// Whether the link of a port is up.
    pub const fn is_up(&self, port: PortId) -> bool {
        self.up.contains(port.index())
    }

    /// Packet memory and its accounts.
    pub const fn memory(&self) -> &Memory {
        &self.egress.memory
    }

    /// Packet memory in use, in bytes of whole cells.
    pub const fn buffer_bytes(&self) -> u64 {
        self.egress.memory.bytes()
    }

    /// The most packet memory that was ever in use, in bytes of whole cells.
    pub const fn buffer_bytes_max(&self) -> u64 {
        self.egress.memory.bytes_max()
    }

    /// What the MAC table has learned and forgotten.
    pub const fn mac_table_counters(&self) -> MacTableCounters {
        self.macs.counters()
    }

    /// Stations in the MAC table, static ones included.
    pub const fn stations(&self) -> usize {
        self.macs.len()
    }

    /// Drops a frame that is in no queue, at the port where that counts.
    #[cold]
    #[inline(never)]
    fn discard<S: FrameStore>(
        &mut self,
        store: &mut S,
        port: PortId,
        reason: DropReason,
        frame: ParkedFrame,
    ) {
        self.ports[port.index()].counters.dropped(reason);
        store.release(frame.into_frame());
    }
}

/// The port, without what an index keeps ready for its message.
#[inline(always)]
fn port_of(ports: &[Port], port: PortId) -> &Port {
    match ports.get(port.index()) {
        Some(state) => state,
        None => no_such_port(port),
    }
}

#[inline(always)]
fn port_mut(ports: &mut [Port], port: PortId) -> &mut Port {
    match ports.get_mut(port.index()) {
        Some(state) => state,
        None => no_such_port(port),
    }
}

#[cold]
#[inline(never)]
fn no_such_port(port: PortId) -> ! {
    panic!("the switch has no port {}", port.0)
}
