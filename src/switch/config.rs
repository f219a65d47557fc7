//! What a switch is built from.

use super::balance::GroupConfig;
use super::mark::MarkConfig;
use super::memory::PortShares;
use super::prevention::PreventionConfig;
use super::route::config::RouterConfig;
use super::schedule::ScheduleConfig;
use super::trim::TrimConfig;
use super::vtep::VtepConfig;
use super::watchdog::WatchdogConfig;
use crate::line::ETHERNET_OVERHEAD_BYTES;
use crate::node::PortId;
use crate::time::Duration;
use crate::units::Rate;
use crate::wire::MacAddr;
use crate::wire::pfc::QUANTA_MAX;

/// Egress queues per port, one per priority of IEEE 802.1Q.
pub const QUEUES: usize = 8;

/// VLAN membership of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VlanMode {
    /// Untagged frames belong to this VLAN and leave untagged; frames tagged with another one are refused.
    Access(u16),
    /// Tagged frames of the listed VLANs pass with their tag; untagged ones belong to `native`
    /// (refused when None), and frames of the native VLAN leave untagged.
    Trunk {
        /// The VLANs that pass, ascending.
        allowed: Vec<u16>,
        /// The VLAN of untagged frames.
        native: Option<u16>,
    },
}

impl VlanMode {
    /// Whether frames of a VLAN pass.
    pub fn has(&self, vlan: u16) -> bool {
        match self {
            Self::Access(access) => *access == vlan,
            Self::Trunk { allowed, native } => *native == Some(vlan) || allowed.contains(&vlan),
        }
    }
}

/// Which field of a frame gives its priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// The priority code point of the outer VLAN tag; the port's default without one.
    #[default]
    Pcp,
    /// The differentiated services code point of IPv4 or IPv6; the port's default for other frames.
    Dscp,
    /// The port's default, whatever the frame says.
    Port,
}

/// One port of a switch.
#[derive(Clone, Debug)]
pub struct PortConfig {
    /// The name in topology files and reports.
    pub name: String,
    /// The port's own address.
    pub mac: MacAddr,
    /// Line rate: egress is shaped to it.
    pub rate: Rate,
    /// Largest layer-3 packet: frames may have this plus 14 bytes of Ethernet and 4 per VLAN tag.
    pub mtu_bytes: u32,
    /// VLAN membership.
    pub vlan: VlanMode,
    /// Whether unknown and broadcast frames are flooded to this port and sources learned from it:
    /// false on ports outside the spanning tree that the lab computed.
    pub flood: bool,
    /// Which field gives the priority.
    pub trust: Trust,
    /// Priority of frames that do not say theirs.
    pub default_priority: u8,
    /// Whether 802.3x PAUSE is obeyed, which stops all queues.
    pub obeys_pause: bool,
    /// Byte limit of each egress queue: a frame that would pass it is dropped.
    pub queue_limit_bytes: [u64; QUEUES],
    /// Its shares of the memory: as an ingress by priority, as an egress by queue.
    pub shares: PortShares,
    /// Whether the node behind it is where frames are going, for the code point of trimmed ones.
    pub is_last_hop: bool,
    /// What each queue does to frames while it is long: marks, early drops. None does nothing.
    pub marks: [Option<MarkConfig>; QUEUES],
    /// How the queues are served.
    pub schedule: ScheduleConfig,
}

/// Port numbers from this one on name the groups of a switch.
pub const GROUP_PORT_BASE: u16 = 256;

/// Groups of a switch, at most.
pub const GROUPS_MAX: usize = 1_024;

/// What several ports are together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortGroupKind {
    /// A link aggregation group (IEEE 802.1AX): to one neighbour. Stations behind it are learned as
    /// the group's, and a flooded frame goes to one of its ports.
    Aggregation,
    /// Equal paths by several neighbours, for frames to one station.
    Multipath,
}

/// Several ports that are used as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortGroup {
    /// The name in reports.
    pub name: String,
    /// What they are together.
    pub kind: PortGroupKind,
    /// Which of them a frame leaves by.
    pub group: GroupConfig,
}

/// The number under which a group is a destination.
pub const fn group_port(index: usize) -> PortId {
    // There are at most GROUPS_MAX groups.
    #[allow(clippy::cast_possible_truncation, reason = "a switch has at most 1,024 groups")]
    let number = index as u16;
    PortId(GROUP_PORT_BASE + number)
}

/// The group that a destination is, if it is not a port.
pub const fn group_of(port: PortId) -> Option<usize> {
    // Places beyond those of groups are not ports either.
    match port.0.checked_sub(GROUP_PORT_BASE) {
        Some(number) if (number as usize) < GROUPS_MAX => Some(number as usize),
        _ => None,
    }
}

/// A MAC table entry that is never learned over and never ages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticMac {
    /// The station.
    pub mac: MacAddr,
    /// Its VLAN.
    pub vlan: u16,
    /// Where it lives: a port, or a group by its [`group_port`].
    pub port: PortId,
}

/// A whole switch.
#[derive(Clone, Debug)]
pub struct SwitchConfig {
    /// The name in topology files and reports; also names its random stream.
    pub name: String,
    /// Ports, in the order of their [`PortId`]; at most 256.
    pub ports: Vec<PortConfig>,
    /// Packet memory.
    pub buffer_bytes: u64,
    /// Admission counts whole cells of this size.
    pub cell_bytes: u32,
    /// Stations that the MAC table holds.
    pub mac_table_entries: u32,
    /// A learned station is forgotten when it has been silent for this long.
    pub mac_ageing: Duration,
    /// Entries that are set from the start.
    pub static_macs: Vec<StaticMac>,
    /// Ports that are used together.
    pub groups: Vec<PortGroup>,
    /// Bytes around each frame on the wire.
    pub overhead_bytes: u32,
    /// Priority of each PCP.
    pub pcp_to_priority: [u8; 8],
    /// Priority of each DSCP.
    pub dscp_to_priority: [u8; 64],
    /// Egress queue of each priority; queue 7 is served first.
    pub priority_to_queue: [u8; 8],
    /// How frames are trimmed for which a queue has no room; None drops them.
    pub trim: Option<TrimConfig>,
    /// What routes frames for the switch's own MAC addresses; None: they are stations like others.
    pub router: Option<RouterConfig>,
    /// The VXLAN tunnel endpoint, which needs a router.
    pub vtep: Option<VtepConfig>,
    /// What each pause frame asks for, in quanta of 512 bit times.
    pub pfc_quanta: u16,
    /// What frees lossless classes that are stopped for too long.
    pub watchdog: Option<WatchdogConfig>,
    /// What keeps pauses from closing a cycle.
    pub prevention: Option<PreventionConfig>,
    /// The run's seed.
    pub seed: u64,
}

impl PortConfig {
    /// A port in VLAN 1 with the defaults: MTU 1500, PCP trusted, no queue limit below the memory.
    pub fn new(name: &str, mac: MacAddr, rate: Rate) -> Self {
        Self {
            name: name.to_owned(),
            mac,
            rate,
            mtu_bytes: 1_500,
            vlan: VlanMode::Access(1),
            flood: true,
            trust: Trust::Pcp,
            default_priority: 0,
            obeys_pause: false,
            queue_limit_bytes: [u64::MAX; QUEUES],
            shares: PortShares::default(),
            is_last_hop: false,
            marks: [None; QUEUES],
            schedule: ScheduleConfig::default(),
        }
    }
}

impl SwitchConfig {
    /// A switch with the defaults: 12 MB of memory in 208-byte cells, 8,192 stations that age in
    /// 300 s (IEEE 802.1Q table 8-6), priorities as the frame has them (DSCP by its upper three
    /// bits), queue n for priority n.
    pub fn new(name: &str, ports: Vec<PortConfig>) -> Self {
        let mut dscp_to_priority = [0; 64];
        for (dscp, priority) in (0_u8..).zip(&mut dscp_to_priority) {
            *priority = dscp >> 3;
        }
        Self {
            name: name.to_owned(),
            ports,
            buffer_bytes: 12_000_000,
            cell_bytes: 208,
            mac_table_entries: 8_192,
            mac_ageing: Duration::from_secs(300),
            static_macs: Vec::new(),
            groups: Vec::new(),
            overhead_bytes: ETHERNET_OVERHEAD_BYTES,
            pcp_to_priority: [0, 1, 2, 3, 4, 5, 6, 7],
            dscp_to_priority,
            priority_to_queue: [0, 1, 2, 3, 4, 5, 6, 7],
            trim: None,
            router: None,
            vtep: None,
            pfc_quanta: QUANTA_MAX,
            watchdog: None,
            prevention: None,
            seed: 1,
        }
    }
}
