//! What a group is built from, and what is refused.

use std::collections::BTreeSet;

use super::MemberId;
use super::hash::{FlowHash, HashAlgorithm};
use super::key::{Fields, Flow, FlowKey};
use crate::node::PortId;
use crate::rng::Rng;
use crate::time::Duration;
use crate::units::Rate;

/// Members of a group, at most.
pub const MEMBERS_MAX: usize = 256;

/// Places of the table that weights fill, at most: the sum of the weights over their greatest
/// common divisor.
pub const SLOTS_MAX: u64 = 4_096;

/// Entries of a table of flows or of buckets, at most.
pub const TABLE_MAX: u32 = 65_536;

/// Ports that DRILL compares for a frame, at most.
pub const DRILL_MAX: u8 = 16;

/// One member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberConfig {
    /// The port that its frames leave by.
    pub port: PortId,
    /// The port's line rate.
    pub rate: Rate,
    /// Its share: twice the weight, twice the frames. None in all members of a group makes them
    /// equal.
    pub weight: Option<u32>,
}

impl MemberConfig {
    /// A member without a weight.
    pub const fn new(port: PortId, rate: Rate) -> Self {
        Self { port, rate, weight: None }
    }
}

/// Which fields are hashed, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashConfig {
    /// The fields.
    pub fields: Fields,
    /// The algorithm.
    pub algorithm: HashAlgorithm,
    /// Its seed; None draws one from the switch's generator, so that no two switches have the same.
    pub seed: Option<u32>,
}

impl HashConfig {
    /// Murmur3 over the five-tuple.
    pub const fn new(seed: u32) -> Self {
        Self { fields: Fields::FIVE_TUPLE, algorithm: HashAlgorithm::Murmur3, seed: Some(seed) }
    }

    pub(super) fn build(&self, rng: &mut Rng) -> FlowHash {
        let seed = self.seed.unwrap_or_else(|| {
            let [a, b, c, d, ..] = rng.next_u64().to_le_bytes();
            u32::from_le_bytes([a, b, c, d])
        });
        FlowHash::new(self.fields, self.algorithm, seed)
    }
}

/// What LBN does when a member goes down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LbnForm {
    /// The index modulo the number of members that are left: ports of other members move as well.
    #[default]
    Base,
    /// Only the ports of the member that is down move, over those that are left.
    Enhanced,
}

/// When DLB gives a flow another member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DlbMode {
    /// When it has paused for the idle time.
    #[default]
    Eligible,
    /// For every frame.
    Spray,
    /// When its member goes down.
    Fixed,
}

/// How the quality of a member is measured. The defaults are those of SAI's profile of adaptive
/// routing and switching, except the bands, which SAI leaves to the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QualityConfig {
    /// How often ports are looked at.
    pub sampling_interval: Duration,
    /// An average moves towards a sample by 1/2^n of the difference.
    pub ewma_exponent: u8,
    /// Weight of the past load: bytes sent in an interval.
    pub load_past_weight: u8,
    /// Weight of the future load: bytes queued.
    pub load_future_weight: u8,
    /// Whether a sample below the average becomes the average.
    pub load_current: bool,
}

impl Default for QualityConfig {
    fn default() -> Self {
        Self {
            sampling_interval: Duration::from_us(16),
            ewma_exponent: 2,
            load_past_weight: 16,
            load_future_weight: 16,
            load_current: false,
        }
    }
}

/// A table of flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowletConfig {
    /// Its entries, a power of two; flows whose hashes agree share one.
    pub flows: u32,
    /// A flow that has paused for so long may take another member. About half of a round trip.
    pub idle: Duration,
}

impl Default for FlowletConfig {
    /// Those of SAI: 512 flows, 256 us.
    fn default() -> Self {
        Self { flows: 512, idle: Duration::from_us(256) }
    }
}

/// How a group chooses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Method {
    /// By the hash of the flow, modulo the live members.
    Ecmp(HashConfig),
    /// By the hash of the flow, through buckets that keep their members.
    Resilient {
        /// Names the bucket.
        hash: HashConfig,
        /// How many there are: a power of two.
        buckets: u32,
    },
    /// By the ingress port.
    Lbn {
        /// The index of each port of the LBN group.
        indices: Vec<(PortId, u16)>,
        /// What happens on failure.
        form: LbnForm,
        /// For frames that come by other ports: ECMP.
        hash: HashConfig,
    },
    /// Frame by frame, in turn.
    SprayRoundRobin,
    /// Frame by frame, at random.
    SprayRandom,
    /// By quality.
    Dlb {
        /// When.
        mode: DlbMode,
        /// Names the flow.
        hash: HashConfig,
        /// Where flows are remembered.
        flowlets: FlowletConfig,
        /// What quality is.
        quality: QualityConfig,
    },
    /// By flowlet, at random.
    LetFlow {
        /// Names the flow.
        hash: HashConfig,
        /// Where flows are remembered.
        flowlets: FlowletConfig,
    },
    /// By the shortest of a few queues.
    Drill {
        /// Random members that are compared: d.
        samples: u8,
        /// The best of before that are compared with them: m.
        memory: u8,
    },
    /// By a static table, then by hash.
    PathNavigation {
        /// Flows with their members; each flow has values for exactly the fields of the hash.
        flows: Vec<(Flow, MemberId)>,
        /// Its fields are those of the table; ECMP for flows that are not there.
        hash: HashConfig,
    },
}

impl Method {
    /// Whether frames are spread one by one, so that a slow member would fill up.
    pub const fn is_per_packet(&self) -> bool {
        matches!(
            self,
            Self::SprayRoundRobin
                | Self::SprayRandom
                | Self::Drill { .. }
                | Self::Dlb { mode: DlbMode::Spray, .. }
        )
    }

    /// Whether frames of one flow may take turns with each other although no member fails.
    pub const fn reorders(&self) -> bool {
        self.is_per_packet()
            || matches!(self, Self::LetFlow { .. } | Self::Dlb { mode: DlbMode::Eligible, .. })
    }

    /// What it hashes by, if it does.
    pub const fn hash(&self) -> Option<&HashConfig> {
        match self {
            Self::Ecmp(hash)
            | Self::Resilient { hash, .. }
            | Self::Lbn { hash, .. }
            | Self::Dlb { hash, .. }
            | Self::LetFlow { hash, .. }
            | Self::PathNavigation { hash, .. } => Some(hash),
            Self::SprayRoundRobin | Self::SprayRandom | Self::Drill { .. } => None,
        }
    }
}

/// A whole group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupConfig {
    /// Members; for LBN in ascending order of their peers' addresses.
    pub members: Vec<MemberConfig>,
    /// How they are chosen.
    pub method: Method,
}

/// A group that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct GroupConfigError {
    /// The field that is wrong.
    pub field: &'static str,
    /// Why.
    pub message: String,
}

fn refuse<T>(field: &'static str, message: impl Into<String>) -> Result<T, GroupConfigError> {
    Err(GroupConfigError { field, message: message.into() })
}

impl GroupConfig {
    /// A group.
    pub const fn new(members: Vec<MemberConfig>, method: Method) -> Self {
        Self { members, method }
    }

    /// The weights, 1 each where none is given, over their greatest common divisor.
    pub(super) fn weights(&self) -> Vec<u32> {
        let weight = |member: &MemberConfig| member.weight.unwrap_or(1);
        let divisor = self.members.iter().map(weight).fold(0, greatest_common_divisor).max(1);
        self.members.iter().map(|member| weight(member) / divisor).collect()
    }

    /// Whether a group can be built from this.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub fn check(&self) -> Result<(), GroupConfigError> {
        self.check_members()?;
        if let Some(hash) = self.method.hash()
            && hash.fields.is_empty()
        {
            return refuse("hash.fields", "a hash of no field sends every flow to one member");
        }
        match &self.method {
            Method::Ecmp(_) | Method::SprayRoundRobin | Method::SprayRandom => Ok(()),
            Method::Resilient { buckets, .. } => {
                check_table("buckets", *buckets)?;
                let slots: u64 = self.weights().into_iter().map(u64::from).sum();
                if u64::from(*buckets) < slots {
                    return refuse(
                        "buckets",
                        format!("{buckets} buckets cannot divide into {slots} shares"),
                    );
                }
                Ok(())
            }
            Method::Lbn { indices, .. } => self.check_lbn(indices),
            Method::Dlb { flowlets, quality, .. } => {
                check_flowlets(flowlets)?;
                check_quality(quality)
            }
            Method::LetFlow { flowlets, .. } => check_flowlets(flowlets),
            Method::Drill { samples, memory } => {
                if *samples == 0 || samples.saturating_add(*memory) > DRILL_MAX {
                    return refuse(
                        "samples",
                        format!(
                            "DRILL({samples}, {memory}) compares no port, or more than {DRILL_MAX}"
                        ),
                    );
                }
                Ok(())
            }
            Method::PathNavigation { flows, hash } => self.check_flows(flows, hash),
        }
    }

    fn check_members(&self) -> Result<(), GroupConfigError> {
        let Some(first) = self.members.first() else {
            return refuse("members", "a group has at least one member");
        };
        if self.members.len() > MEMBERS_MAX {
            return refuse(
                "members",
                format!("{} members: at most {MEMBERS_MAX}", self.members.len()),
            );
        }
        if let Some(member) = self.members.iter().find(|m| m.rate.as_bps() == 0) {
            return refuse("rate", format!("port {} has no rate", member.port.0));
        }
        let weighted = self.members.iter().filter(|m| m.weight.is_some()).count();
        if weighted != 0 && weighted != self.members.len() {
            return refuse("weight", "either every member of a group has a weight, or none");
        }
        if self.members.iter().any(|m| m.weight == Some(0)) {
            return refuse("weight", "a member of weight 0 never gets a frame: leave it out");
        }
        let slots: u64 = self.weights().into_iter().map(u64::from).sum();
        if slots > SLOTS_MAX {
            return refuse(
                "weight",
                format!(
                    "the weights sum to {slots} over their common divisor: at most {SLOTS_MAX}"
                ),
            );
        }
        let other = self.members.iter().find(|m| m.rate != first.rate);
        if let Some(other) = other.filter(|_| weighted == 0 && self.method.is_per_packet()) {
            return refuse(
                "weight",
                format!(
                    "ports {} and {} run at {} and {}: frames are spread one by one over members \
                     of different speed by their weights, and these have none",
                    first.port.0, other.port.0, first.rate, other.rate
                ),
            );
        }
        Ok(())
    }

    fn check_lbn(&self, indices: &[(PortId, u16)]) -> Result<(), GroupConfigError> {
        if self.members.iter().any(|member| member.weight.is_some()) {
            return refuse("weight", "LBN gives every member the same share of the indices");
        }
        if indices.is_empty() {
            return refuse("indices", "no ingress port has an index");
        }
        let ports: BTreeSet<PortId> = indices.iter().map(|(port, _)| *port).collect();
        if ports.len() != indices.len() {
            return refuse("indices", "an ingress port has one index");
        }
        Ok(())
    }

    fn check_flows(
        &self,
        flows: &[(Flow, MemberId)],
        hash: &HashConfig,
    ) -> Result<(), GroupConfigError> {
        let mut keys = BTreeSet::new();
        for (number, (flow, member)) in flows.iter().enumerate() {
            if usize::from(member.0) >= self.members.len() {
                return refuse("flows", format!("flow {number}: there is no member {}", member.0));
            }
            if flow.source_ip.is_ipv4() != flow.destination_ip.is_ipv4() {
                return refuse("flows", format!("flow {number}: addresses of two IP versions"));
            }
            let key = FlowKey::of_flow(flow);
            if key.present() != hash.fields {
                return refuse(
                    "flows",
                    format!(
                        "flow {number}: a flow has a value for each field of the hash, and no other"
                    ),
                );
            }
            if !keys.insert(key.as_bytes().to_vec()) {
                return refuse("flows", format!("flow {number} is there twice"));
            }
        }
        Ok(())
    }
}

fn check_table(field: &'static str, entries: u32) -> Result<(), GroupConfigError> {
    if !entries.is_power_of_two() || entries > TABLE_MAX {
        return refuse(field, format!("{entries}: a power of two, at most {TABLE_MAX}"));
    }
    Ok(())
}

fn check_flowlets(config: &FlowletConfig) -> Result<(), GroupConfigError> {
    check_table("flows", config.flows)?;
    if config.idle.is_zero() {
        return refuse("idle", "without an idle time every frame is a flowlet: spray instead");
    }
    Ok(())
}

fn check_quality(config: &QualityConfig) -> Result<(), GroupConfigError> {
    if config.sampling_interval < Duration::from_us(1) {
        return refuse("sampling_interval", "at least 1us");
    }
    if config.ewma_exponent > 15 {
        return refuse("ewma_exponent", format!("{}: 0 to 15", config.ewma_exponent));
    }
    if config.load_past_weight == 0 && config.load_future_weight == 0 {
        return refuse("load_past_weight", "neither past nor future load has a weight");
    }
    Ok(())
}

const fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(port: u16, gbps: u64, weight: Option<u32>) -> MemberConfig {
        MemberConfig { weight, ..MemberConfig::new(PortId(port), Rate::from_gbps(gbps)) }
    }

    fn two(method: Method) -> GroupConfig {
        GroupConfig::new(vec![member(0, 100, None), member(1, 100, None)], method)
    }

    fn refused(config: &GroupConfig) -> String {
        config.check().expect_err("a bad group").to_string()
    }

    #[test]
    fn members_of_different_speed_are_sprayed_by_weight_alone() {
        let hash = HashConfig::new(1);
        let (flowlets, quality) = (FlowletConfig::default(), QualityConfig::default());
        let dlb = |mode| Method::Dlb { mode, hash, flowlets, quality };
        let methods = [
            (Method::SprayRoundRobin, true),
            (Method::SprayRandom, true),
            (Method::Drill { samples: 2, memory: 1 }, true),
            (dlb(DlbMode::Spray), true),
            (dlb(DlbMode::Eligible), false),
            (dlb(DlbMode::Fixed), false),
            (Method::Ecmp(hash), false),
            (Method::LetFlow { hash, flowlets }, false),
        ];
        for (method, needs_weights) in methods {
            let mut config = GroupConfig::new(
                vec![member(0, 100, None), member(1, 100, None), member(2, 400, None)],
                method,
            );
            if needs_weights {
                assert_eq!(
                    refused(&config),
                    "weight: ports 0 and 2 run at 100Gbps and 400Gbps: frames are spread one by one \
                     over members of different speed by their weights, and these have none"
                );
            } else {
                assert_eq!(config.check(), Ok(()));
            }
            for (member, weight) in config.members.iter_mut().zip([1, 1, 4]) {
                member.weight = Some(weight);
            }
            assert_eq!(config.check(), Ok(()));
        }
    }

    #[test]
    fn what_cannot_be_is_refused_by_field() {
        let hash = HashConfig::new(1);
        let flowlets = FlowletConfig::default();
        let quality = QualityConfig::default();
        let dlb = |quality| Method::Dlb { mode: DlbMode::Spray, hash, flowlets, quality };
        let weights = |a, b| {
            GroupConfig::new(vec![member(0, 100, a), member(1, 100, b)], Method::SprayRandom)
        };
        let flow = |a: &str, b: &str| {
            Flow::between(a.parse().expect("address"), b.parse().expect("address"))
        };
        let addresses = Fields::SOURCE_IP.and(Fields::DESTINATION_IP);
        let navigation = |flows| {
            two(Method::PathNavigation { flows, hash: HashConfig { fields: addresses, ..hash } })
        };
        let v4 = flow("10.0.0.1", "10.0.0.2");
        let lbn = |indices| Method::Lbn { indices, form: LbnForm::Base, hash };
        let cases = [
            (
                GroupConfig::new(Vec::new(), Method::SprayRandom),
                "members: a group has at least one member",
            ),
            (
                GroupConfig::new(vec![member(0, 1, None); 257], Method::SprayRandom),
                "members: 257 members: at most 256",
            ),
            (
                GroupConfig::new(vec![member(3, 0, None)], Method::SprayRandom),
                "rate: port 3 has no rate",
            ),
            (
                weights(Some(1), None),
                "weight: either every member of a group has a weight, or none",
            ),
            (
                weights(Some(1), Some(0)),
                "weight: a member of weight 0 never gets a frame: leave it out",
            ),
            (
                weights(Some(4_096), Some(1)),
                "weight: the weights sum to 4097 over their common divisor: at most 4096",
            ),
            (
                two(Method::Ecmp(HashConfig { fields: Fields::NONE, ..hash })),
                "hash.fields: a hash of no field sends every flow to one member",
            ),
            (
                two(Method::Resilient { hash, buckets: 100 }),
                "buckets: 100: a power of two, at most 65536",
            ),
            (
                two(Method::Resilient { hash, buckets: 1 }),
                "buckets: 1 buckets cannot divide into 2 shares",
            ),
            (
                two(Method::LetFlow { hash, flowlets: FlowletConfig { flows: 0, ..flowlets } }),
                "flows: 0: a power of two, at most 65536",
            ),
            (
                two(Method::LetFlow {
                    hash,
                    flowlets: FlowletConfig { idle: Duration::ZERO, ..flowlets },
                }),
                "idle: without an idle time every frame is a flowlet: spray instead",
            ),
            (
                two(dlb(QualityConfig { sampling_interval: Duration::from_ns(999), ..quality })),
                "sampling_interval: at least 1us",
            ),
            (
                two(dlb(QualityConfig { ewma_exponent: 16, ..quality })),
                "ewma_exponent: 16: 0 to 15",
            ),
            (
                two(dlb(QualityConfig { load_past_weight: 0, load_future_weight: 0, ..quality })),
                "load_past_weight: neither past nor future load has a weight",
            ),
            (
                two(Method::Drill { samples: 0, memory: 1 }),
                "samples: DRILL(0, 1) compares no port, or more than 16",
            ),
            (
                two(Method::Drill { samples: 255, memory: 255 }),
                "samples: DRILL(255, 255) compares no port, or more than 16",
            ),
            (two(lbn(Vec::new())), "indices: no ingress port has an index"),
            (
                two(lbn(vec![(PortId(5), 0), (PortId(5), 1)])),
                "indices: an ingress port has one index",
            ),
            (
                GroupConfig { method: lbn(vec![(PortId(5), 0)]), ..weights(Some(1), Some(2)) },
                "weight: LBN gives every member the same share of the indices",
            ),
            (navigation(vec![(v4, MemberId(2))]), "flows: flow 0: there is no member 2"),
            (
                navigation(vec![(flow("10.0.0.1", "fd00::1"), MemberId(1))]),
                "flows: flow 0: addresses of two IP versions",
            ),
            (
                navigation(vec![(Flow { protocol: Some(17), ..v4 }, MemberId(1))]),
                "flows: flow 0: a flow has a value for each field of the hash, and no other",
            ),
            (
                navigation(vec![(v4, MemberId(1)), (v4, MemberId(0))]),
                "flows: flow 1 is there twice",
            ),
        ];
        for (config, want) in cases {
            assert_eq!(refused(&config), want);
        }
        assert_eq!(weights(Some(400), Some(100)).check(), Ok(()));
        assert_eq!(weights(Some(400), Some(100)).weights(), [4, 1]);
        assert_eq!(weights(Some(8_192), Some(4_096)).check(), Ok(()));
    }
}
