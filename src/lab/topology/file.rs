//! The topology file as it is written: one struct a table, every value with its place.
//!
//! What the keys mean is documented in `netns-testbed/README.md`; `every-key.toml` beside it uses
//! each of them.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Deserialize;

use super::balance::{BalanceTable, LagTable};
use super::queues::{EcnTable, ScheduleTable};
use super::router::{NeighbourTable, RouteTable, Srv6Table, VxlanTable};
use super::shares::{HeadroomSize, ResponseTime};
use super::value::{ByteCount, OneOrMany, Ppb, Q, S};
use crate::switch::memory::Alpha;
use crate::time::Duration;
use crate::units::{AnyRate, Bytes, Rate};
use crate::wire::MacAddr;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) name: S<String>,
    pub(super) seed: Option<S<u64>>,
    #[serde(default)]
    pub(super) defaults: Defaults,
    #[serde(default)]
    pub(super) switch: BTreeMap<S<String>, SwitchTable>,
    #[serde(default)]
    pub(super) host: BTreeMap<S<String>, HostTable>,
    #[serde(default)]
    pub(super) link: Vec<LinkTable>,
    #[serde(default)]
    pub(super) external: Vec<ExternalTable>,
    #[serde(default)]
    pub(super) stream: Vec<StreamTable>,
    #[serde(default)]
    pub(super) storm: Vec<StormTable>,
    #[serde(default)]
    pub(super) fault: Vec<S<FaultTable>>,
    #[serde(default)]
    pub(super) expect: Vec<ExpectTable>,
    #[serde(default)]
    pub(super) run: RunTable,
    #[serde(default)]
    pub(super) lab: LabTable,
}

/// `[defaults]`: what every link, host and switch has unless it says otherwise.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Defaults {
    #[serde(default)]
    pub(super) link: LinkDefaults,
    pub(super) mtu: Option<S<ByteCount>>,
    #[serde(default)]
    pub(super) switch: SwitchTable,
    #[serde(default)]
    pub(super) host: HostDefaults,
    #[serde(default)]
    pub(super) stream: StreamDefaults,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LinkDefaults {
    pub(super) rate: Option<Q<Rate>>,
    pub(super) delay: Option<Q<Duration>>,
    pub(super) jitter: Option<Q<Duration>>,
    pub(super) loss: Option<Q<Ppb>>,
    pub(super) corrupt: Option<Q<Ppb>>,
    pub(super) reorder: Option<Q<Ppb>>,
    pub(super) reorder_by: Option<Q<Duration>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HostDefaults {
    pub(super) kind: Option<HostKindName>,
    pub(super) queues: Option<S<u32>>,
    pub(super) queue_frames: Option<S<u32>>,
    pub(super) lossless: Option<S<Vec<u8>>>,
    pub(super) obeys_pause: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StreamDefaults {
    pub(super) rate: Option<Q<AnyRate>>,
    pub(super) frame_bytes: Option<S<ByteCount>>,
    pub(super) arrivals: Option<ArrivalsName>,
    pub(super) frames: Option<S<u64>>,
    pub(super) start: Option<Q<Duration>>,
    pub(super) duration: Option<Q<Duration>>,
}

/// `[switch.NAME]`, and `[defaults.switch]` for all of them.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SwitchTable {
    pub(super) ports: Option<S<u32>>,
    pub(super) buffer: Option<Q<Bytes>>,
    pub(super) cell: Option<Q<Bytes>>,
    pub(super) mac_table_entries: Option<S<u32>>,
    pub(super) mac_ageing: Option<Q<Duration>>,
    pub(super) overhead: Option<S<ByteCount>>,
    pub(super) forwarding: Option<S<ForwardingName>>,
    pub(super) trust: Option<TrustName>,
    pub(super) default_priority: Option<S<u8>>,
    pub(super) queue_limit: Option<S<OneOrMany<Bytes>>>,
    pub(super) pcp_to_priority: Option<S<Vec<u8>>>,
    pub(super) dscp_to_priority: Option<BTreeMap<S<String>, S<u8>>>,
    pub(super) priority_to_queue: Option<S<Vec<u8>>>,
    pub(super) mtu: Option<S<ByteCount>>,
    pub(super) core: Option<S<u32>>,
    pub(super) io_workers: Option<S<u32>>,
    pub(super) io_cores: Option<S<Vec<u32>>>,
    pub(super) buffer_profile: Option<BufferProfileName>,
    pub(super) lossless: Option<S<Vec<u8>>>,
    pub(super) peer_response: Option<Q<ResponseTime>>,
    pub(super) obeys_pause: Option<bool>,
    pub(super) pfc_quanta: Option<S<u16>>,
    pub(super) watchdog: Option<S<WatchdogTable>>,
    pub(super) prevention: Option<S<PreventionTable>>,
    pub(super) trim: Option<S<TrimTable>>,
    pub(super) router_mac: Option<Q<MacAddr>>,
    pub(super) icmp_errors_per_second: Option<S<u32>>,
    pub(super) icmp_errors_burst: Option<S<u32>>,
    #[serde(default)]
    pub(super) neighbour: Vec<NeighbourTable>,
    #[serde(default)]
    pub(super) route: Vec<RouteTable>,
    pub(super) srv6: Option<Srv6Table>,
    pub(super) vxlan: Option<VxlanTable>,
    #[serde(default)]
    pub(super) class: BTreeMap<S<String>, ClassTable>,
    #[serde(default)]
    pub(super) queue: BTreeMap<S<String>, QueueTable>,
    pub(super) ecn: Option<S<EcnTable>>,
    pub(super) schedule: Option<S<ScheduleTable>>,
    pub(super) balance: Option<S<BalanceTable>>,
    #[serde(default)]
    pub(super) lag: BTreeMap<S<String>, LagTable>,
    #[serde(default)]
    pub(super) stations: BTreeMap<S<String>, S<String>>,
    #[serde(default)]
    pub(super) port: BTreeMap<S<String>, PortTable>,
}

/// `[switch.NAME.port.P]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PortTable {
    pub(super) vlan: Option<VlanTable>,
    pub(super) addresses: Option<S<OneOrMany<IpAddr>>>,
    pub(super) trust: Option<TrustName>,
    pub(super) default_priority: Option<S<u8>>,
    pub(super) mtu: Option<S<ByteCount>>,
    pub(super) rate: Option<Q<Rate>>,
    pub(super) queue_limit: Option<S<OneOrMany<Bytes>>>,
    pub(super) lossless: Option<S<Vec<u8>>>,
    pub(super) peer_response: Option<Q<ResponseTime>>,
    pub(super) obeys_pause: Option<bool>,
    #[serde(default)]
    pub(super) class: BTreeMap<S<String>, ClassTable>,
    #[serde(default)]
    pub(super) queue: BTreeMap<S<String>, QueueTable>,
    pub(super) ecn: Option<S<EcnTable>>,
    pub(super) schedule: Option<S<ScheduleTable>>,
}

/// `[switch.NAME.class.N]`: a priority at ingress ports.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClassTable {
    pub(super) min: Option<Q<Bytes>>,
    pub(super) dt_alpha: Option<Q<Alpha>>,
    pub(super) limit: Option<Q<Bytes>>,
    pub(super) xoff: Option<Q<Bytes>>,
    pub(super) xon: Option<Q<Bytes>>,
    pub(super) xon_offset: Option<Q<Bytes>>,
    pub(super) headroom: Option<Q<HeadroomSize>>,
}

/// `[switch.NAME.queue.N]`: a queue of egress ports.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct QueueTable {
    pub(super) min: Option<Q<Bytes>>,
    pub(super) dt_alpha: Option<Q<Alpha>>,
    pub(super) limit: Option<Q<Bytes>>,
}

/// `[switch.NAME.watchdog]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WatchdogTable {
    pub(super) mode: S<WatchdogModeName>,
    pub(super) poll: Option<Q<Duration>>,
    pub(super) detection: Option<Q<Duration>>,
    pub(super) restoration: Option<Q<Duration>>,
    pub(super) recovery: Option<Q<Duration>>,
    pub(super) detections_max: Option<S<u32>>,
    pub(super) action: Option<S<WatchdogActionName>>,
}

/// `[switch.NAME.prevention]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PreventionTable {
    pub(super) groups: Vec<Vec<S<String>>>,
    pub(super) chain: Vec<S<ChainTable>>,
}

/// One queue of a prevention's chain.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChainTable {
    pub(super) priority: u8,
    pub(super) dscp: u8,
}

/// `[switch.NAME.trim]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TrimTable {
    pub(super) queues: S<Vec<u8>>,
    pub(super) size: Option<Q<Bytes>>,
    pub(super) dscp: S<u8>,
    pub(super) last_hop_dscp: Option<S<u8>>,
    pub(super) priority: Option<S<u8>>,
    pub(super) lengths: Option<LengthsName>,
}

/// `vlan = { access = 10 }` or `vlan = { trunk = [10, 20], native = 1 }`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VlanTable {
    pub(super) access: Option<S<u16>>,
    pub(super) trunk: Option<S<Vec<S<u16>>>>,
    pub(super) native: Option<S<u16>>,
}

/// `[host.NAME]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HostTable {
    pub(super) kind: Option<HostKindName>,
    pub(super) port: Option<S<String>>,
    pub(super) ipv4: Option<Q<Network<Ipv4Addr>>>,
    pub(super) ipv6: Option<Q<Network<Ipv6Addr>>>,
    pub(super) mac: Option<Q<MacAddr>>,
    pub(super) mtu: Option<S<ByteCount>>,
    pub(super) gateway: Option<S<OneOrMany<IpAddr>>>,
    pub(super) commands: Option<S<Vec<String>>>,
    pub(super) core: Option<S<u32>>,
    pub(super) queues: Option<S<u32>>,
    pub(super) queue_frames: Option<S<u32>>,
    pub(super) lossless: Option<S<Vec<u8>>>,
    pub(super) obeys_pause: Option<bool>,
    pub(super) ignores_pause: Option<bool>,
}

/// `[[link]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LinkTable {
    pub(super) ends: S<Vec<S<String>>>,
    pub(super) rate: Option<Q<Rate>>,
    pub(super) delay: Option<Q<Duration>>,
    pub(super) jitter: Option<Q<Duration>>,
    pub(super) loss: Option<Q<Ppb>>,
    pub(super) corrupt: Option<Q<Ppb>>,
    pub(super) reorder: Option<Q<Ppb>>,
    pub(super) reorder_by: Option<Q<Duration>>,
}

/// `[[external]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExternalTable {
    pub(super) port: S<String>,
    pub(super) interface: S<String>,
    pub(super) netns: Option<S<String>>,
    pub(super) rate: Option<Q<Rate>>,
    pub(super) steering: Option<S<OneOrMany<String>>>,
    pub(super) xdp: Option<XdpName>,
    pub(super) zero_copy: Option<ZeroCopyName>,
    pub(super) queues: Option<S<Vec<u32>>>,
}

/// `[[stream]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StreamTable {
    pub(super) from: S<OneOrMany<String>>,
    pub(super) to: S<OneOrMany<String>>,
    pub(super) rate: Option<Q<AnyRate>>,
    pub(super) frame_bytes: Option<S<ByteCount>>,
    pub(super) arrivals: Option<ArrivalsName>,
    pub(super) start: Option<Q<Duration>>,
    pub(super) stop: Option<Q<Duration>>,
    pub(super) duration: Option<Q<Duration>>,
    pub(super) frames: Option<S<u64>>,
    pub(super) ip: Option<S<u8>>,
    pub(super) dscp: Option<S<u8>>,
    pub(super) vlan: Option<S<u16>>,
    pub(super) pcp: Option<S<u8>>,
    pub(super) source_port: Option<S<u16>>,
    pub(super) destination_port: Option<S<u16>>,
    pub(super) ecn: Option<S<u8>>,
    pub(super) segments: Option<S<OneOrMany<Ipv6Addr>>>,
}

/// `[[storm]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StormTable {
    pub(super) from: S<String>,
    #[serde(default)]
    pub(super) kind: StormKindName,
    pub(super) priorities: Option<S<Vec<u8>>>,
    pub(super) quanta: Option<S<u16>>,
    pub(super) rate: Q<AnyRate>,
    pub(super) start: Option<Q<Duration>>,
    pub(super) stop: Option<Q<Duration>>,
    pub(super) duration: Option<Q<Duration>>,
    pub(super) frames: Option<S<u64>>,
}

/// `[[fault]]`: at an instant, one change to one link.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FaultTable {
    pub(super) at: Q<Duration>,
    pub(super) link: S<String>,
    pub(super) down: Option<S<bool>>,
    pub(super) up: Option<S<bool>>,
    pub(super) loss: Option<Q<Ppb>>,
    pub(super) corrupt: Option<Q<Ppb>>,
    pub(super) delay: Option<Q<Duration>>,
    pub(super) jitter: Option<Q<Duration>>,
    pub(super) reorder: Option<Q<Ppb>>,
    pub(super) reorder_by: Option<Q<Duration>>,
}

/// `[[expect]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectTable {
    pub(super) value: S<String>,
    pub(super) is: S<String>,
}

/// `[run]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RunTable {
    pub(super) duration: Option<Q<Duration>>,
    pub(super) seed: Option<S<u64>>,
    pub(super) clock: Option<S<ClockName>>,
    pub(super) dilation: Option<S<u32>>,
    pub(super) capture: Option<S<OneOrMany<String>>>,
}

/// `[lab]`: how the lab is made of AF_XDP sockets and threads.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LabTable {
    pub(super) chunk: Option<Q<Bytes>>,
    pub(super) ring: Option<S<u32>>,
    pub(super) queues: Option<S<u32>>,
    pub(super) workers: Option<S<u32>>,
    pub(super) busy_poll: Option<bool>,
    pub(super) huge_pages: Option<bool>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum HostKindName {
    Agent,
    Kernel,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum ForwardingName {
    Learning,
    Static,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum BufferProfileName {
    Dcqcn,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum WatchdogModeName {
    H3c,
    Sonic,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum WatchdogActionName {
    Drop,
    Forward,
    Alert,
}

/// What trimmed packets say of their length.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum LengthsName {
    Kept,
    Updated,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum TrustName {
    Pcp,
    Dscp,
    Port,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ArrivalsName {
    Constant,
    Poisson,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum StormKindName {
    #[default]
    Pfc,
    Pause,
    Hostile,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum ClockName {
    Gated,
    Free,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum XdpName {
    Auto,
    Native,
    Generic,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ZeroCopyName {
    Auto,
    Require,
    Off,
}

/// An address with the length of its network's prefix: `10.0.0.1/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Network<A> {
    pub(super) address: A,
    pub(super) prefix: u8,
}

/// Not an address with a prefix length.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not an address with a prefix length, like 10.0.0.1/24 or fd00::1/64")]
pub(super) struct NetworkError(String);

impl<A: std::str::FromStr> std::str::FromStr for Network<A> {
    type Err = NetworkError;
    fn from_str(text: &str) -> Result<Self, NetworkError> {
        // An address type knows its width only through its size: 4 or 16 bytes.
        let bits = u8::try_from(std::mem::size_of::<A>() * 8).unwrap_or(u8::MAX);
        text.split_once('/')
            .and_then(|(address, prefix)| {
                let prefix = prefix.parse().ok().filter(|prefix| (1..=bits).contains(prefix))?;
                Some(Self { address: address.parse().ok()?, prefix })
            })
            .ok_or_else(|| NetworkError(text.to_owned()))
    }
}
