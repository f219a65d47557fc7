//! The tables that say how several ports are used as one: `balance` and `lag`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;

use super::error::Issue;
use super::resolve::{Resolver, plain, value};
use super::value::{Q, S};
use crate::node::PortId;
use crate::switch::balance::config::{DlbMode, FlowletConfig, HashConfig, LbnForm, QualityConfig};
use crate::switch::balance::key::Flow;
use crate::switch::balance::{Fields, GroupConfig, HashAlgorithm, MemberConfig, MemberId, Method};
use crate::time::Duration;
use crate::units::Rate;

/// `balance = { method = "spray" }`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BalanceTable {
    pub(super) method: S<MethodName>,
    fields: Option<S<Vec<S<String>>>>,
    algorithm: Option<S<AlgorithmName>>,
    seed: Option<S<u32>>,
    buckets: Option<S<u32>>,
    indices: Option<S<BTreeMap<S<String>, S<u16>>>>,
    enhanced: Option<S<bool>>,
    flows: Option<S<u32>>,
    idle: Option<Q<Duration>>,
    sampling: Option<Q<Duration>>,
    ewma_exponent: Option<S<u8>>,
    load_past_weight: Option<S<u8>>,
    load_future_weight: Option<S<u8>>,
    load_current: Option<S<bool>>,
    samples: Option<S<u8>>,
    memory: Option<S<u8>>,
    weights: Option<S<BTreeMap<S<String>, S<u32>>>>,
    paths: Option<S<Vec<PathTable>>>,
}

/// One flow of `paths`: the fields that are set are looked at, and are the same in all.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PathTable {
    source_ip: Q<IpAddr>,
    destination_ip: Q<IpAddr>,
    source_port: Option<S<u16>>,
    destination_port: Option<S<u16>>,
    protocol: Option<S<u8>>,
    flow_label: Option<S<u32>>,
    destination_qp: Option<S<u32>>,
    port: S<String>,
}

/// `[switch.NAME.lag.L]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LagTable {
    pub(super) ports: S<Vec<S<String>>>,
    pub(super) balance: Option<S<BalanceTable>>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum MethodName {
    Ecmp,
    Resilient,
    Lbn,
    Spray,
    SprayRandom,
    DlbSpray,
    DlbEligible,
    DlbFixed,
    Letflow,
    Drill,
    PathNavigation,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum AlgorithmName {
    #[serde(rename = "crc32")]
    Crc32,
    Murmur3,
    Toeplitz,
    Xor,
}

/// How a switch uses several ports as one, before it is known which.
#[derive(Clone, Debug)]
pub(super) struct Balance {
    method: Method,
    weights: BTreeMap<PortId, u32>,
    paths: Vec<(Flow, PortId)>,
    /// Where it stands in the file.
    pub(super) span: Range<usize>,
}

impl Balance {
    /// ECMP over the five-tuple, with a seed of the switch's own.
    pub(super) const fn ecmp(span: Range<usize>) -> Self {
        let hash = HashConfig {
            fields: Fields::FIVE_TUPLE,
            algorithm: HashAlgorithm::Murmur3,
            seed: None,
        };
        Self { method: Method::Ecmp(hash), weights: BTreeMap::new(), paths: Vec::new(), span }
    }

    /// The method alone, for members that are next hops: these have weights of their own, and no paths.
    pub(super) fn into_method(self) -> Method {
        self.method
    }

    /// A group of these ports, in the order of their peers.
    pub(super) fn group(&self, ports: &[(PortId, Rate)]) -> GroupConfig {
        let member = |(port, rate): &(PortId, Rate)| MemberConfig {
            weight: self.weights.get(port).copied(),
            ..MemberConfig::new(*port, *rate)
        };
        let mut method = self.method.clone();
        if let Method::PathNavigation { flows, .. } = &mut method {
            // A path by a port that is not in this group plans nothing here.
            flows.extend(self.paths.iter().filter_map(|(flow, port)| {
                let at = ports.iter().position(|(member, _)| member == port)?;
                Some((*flow, MemberId(u16::try_from(at).ok()?)))
            }));
        }
        GroupConfig::new(ports.iter().map(member).collect(), method)
    }
}

impl BalanceTable {
    /// Keys that are set, with what they are, and whether this method reads them.
    fn keys(&self) -> [(&'static str, Option<Range<usize>>, bool); 15] {
        use MethodName as M;
        let method = *self.method.get_ref();
        let hashes = !matches!(method, M::Spray | M::SprayRandom | M::DlbSpray | M::Drill);
        let has_flows = matches!(method, M::DlbEligible | M::DlbFixed | M::Letflow);
        let has_quality = matches!(method, M::DlbSpray | M::DlbEligible | M::DlbFixed);
        let has_idle = matches!(method, M::DlbEligible | M::Letflow);
        [
            ("fields", self.fields.as_ref().map(Spanned::span), hashes),
            ("algorithm", self.algorithm.as_ref().map(Spanned::span), hashes),
            ("seed", self.seed.as_ref().map(Spanned::span), hashes),
            ("buckets", self.buckets.as_ref().map(Spanned::span), method == M::Resilient),
            ("indices", self.indices.as_ref().map(Spanned::span), method == M::Lbn),
            ("enhanced", self.enhanced.as_ref().map(Spanned::span), method == M::Lbn),
            ("flows", self.flows.as_ref().map(Spanned::span), has_flows),
            ("idle", self.idle.as_ref().map(Spanned::span), has_idle),
            ("sampling", self.sampling.as_ref().map(Spanned::span), has_quality),
            ("ewma_exponent", self.ewma_exponent.as_ref().map(Spanned::span), has_quality),
            ("load_past_weight", self.load_past_weight.as_ref().map(Spanned::span), has_quality),
            (
                "load_future_weight",
                self.load_future_weight.as_ref().map(Spanned::span),
                has_quality,
            ),
            ("load_current", self.load_current.as_ref().map(Spanned::span), has_quality),
            ("samples", self.samples.as_ref().map(Spanned::span), method == M::Drill),
            ("memory", self.memory.as_ref().map(Spanned::span), method == M::Drill),
        ]
    }
}

impl Resolver<'_> {
    /// What a `balance` table says; `port` finds a port of the switch by its name.
    pub(super) fn balance(
        &mut self,
        table: &S<BalanceTable>,
        port: &dyn Fn(&str) -> Option<PortId>,
    ) -> Balance {
        let span = table.span();
        let table = table.get_ref();
        for (key, span, is_read) in table.keys() {
            if let Some(span) = span.filter(|_| !is_read) {
                let message = format!("`{key}` means nothing to this method");
                self.issue(
                    Issue::new(span, message).other(table.method.span(), "the method is set here"),
                );
            }
        }
        let paths = self.paths(table, port);
        let mut weights = BTreeMap::new();
        for (name, weight) in table.weights.iter().flat_map(|weights| weights.get_ref()) {
            if let Some(port) = self.port_called(name, port) {
                weights.insert(port, *weight.get_ref());
            }
        }
        Balance { method: self.method(table, port), weights, paths, span }
    }

    fn port_called(
        &mut self,
        name: &S<String>,
        port: &dyn Fn(&str) -> Option<PortId>,
    ) -> Option<PortId> {
        let found = port(name.get_ref());
        if found.is_none() && self.links_are_whole {
            let message = format!("the switch has no port `{}`", name.get_ref());
            self.issue(Issue::new(name.span(), message).help("is its name as in the link?"));
        }
        found
    }

    fn method(&mut self, table: &BalanceTable, port: &dyn Fn(&str) -> Option<PortId>) -> Method {
        let hash = self.hash(table);
        let defaults = FlowletConfig::default();
        let flowlets = FlowletConfig {
            flows: plain(table.flows.as_ref()).unwrap_or(defaults.flows),
            idle: value(table.idle.as_ref()).unwrap_or(defaults.idle),
        };
        let quality = QualityConfig::default();
        let quality = QualityConfig {
            sampling_interval: value(table.sampling.as_ref()).unwrap_or(quality.sampling_interval),
            ewma_exponent: plain(table.ewma_exponent.as_ref()).unwrap_or(quality.ewma_exponent),
            load_past_weight: plain(table.load_past_weight.as_ref())
                .unwrap_or(quality.load_past_weight),
            load_future_weight: plain(table.load_future_weight.as_ref())
                .unwrap_or(quality.load_future_weight),
            load_current: plain(table.load_current.as_ref()).unwrap_or(quality.load_current),
        };
        let dlb = |mode| Method::Dlb { mode, hash, flowlets, quality };
        match table.method.get_ref() {
            MethodName::Ecmp => Method::Ecmp(hash),
            MethodName::Resilient => {
                Method::Resilient { hash, buckets: plain(table.buckets.as_ref()).unwrap_or(256) }
            }
            MethodName::Lbn => {
                let mut indices = Vec::new();
                for (name, index) in table.indices.iter().flat_map(|all| all.get_ref()) {
                    if let Some(port) = self.port_called(name, port) {
                        indices.push((port, *index.get_ref()));
                    }
                }
                let form = match plain(table.enhanced.as_ref()) {
                    Some(true) => LbnForm::Enhanced,
                    Some(false) | None => LbnForm::Base,
                };
                Method::Lbn { indices, form, hash }
            }
            MethodName::Spray => Method::SprayRoundRobin,
            MethodName::SprayRandom => Method::SprayRandom,
            MethodName::DlbSpray => dlb(DlbMode::Spray),
            MethodName::DlbEligible => dlb(DlbMode::Eligible),
            MethodName::DlbFixed => dlb(DlbMode::Fixed),
            MethodName::Letflow => Method::LetFlow { hash, flowlets },
            MethodName::Drill => Method::Drill {
                samples: plain(table.samples.as_ref()).unwrap_or(2),
                memory: plain(table.memory.as_ref()).unwrap_or(1),
            },
            MethodName::PathNavigation => Method::PathNavigation { flows: Vec::new(), hash },
        }
    }

    fn hash(&mut self, table: &BalanceTable) -> HashConfig {
        let mut fields = Fields::FIVE_TUPLE;
        if let Some(names) = &table.fields {
            fields = Fields::NONE;
            for name in names.get_ref() {
                match Fields::NAMES.iter().find(|(known, _)| known == name.get_ref()) {
                    Some((_, field)) => fields = fields.and(*field),
                    None => {
                        let known: Vec<&str> =
                            Fields::NAMES.iter().map(|(name, _)| *name).collect();
                        let message = format!("`{}` is no field of a frame", name.get_ref());
                        let help = format!("fields: {}", known.join(", "));
                        self.issue(Issue::new(name.span(), message).help(help));
                    }
                }
            }
        } else if let Some(path) = table.paths.as_ref().and_then(|paths| paths.get_ref().first()) {
            // The table's own fields, unless others are named.
            fields = path.fields();
        }
        let algorithm = match plain(table.algorithm.as_ref()) {
            Some(AlgorithmName::Crc32) => HashAlgorithm::Crc32,
            Some(AlgorithmName::Murmur3) | None => HashAlgorithm::Murmur3,
            Some(AlgorithmName::Toeplitz) => HashAlgorithm::Toeplitz,
            Some(AlgorithmName::Xor) => HashAlgorithm::Xor,
        };
        HashConfig { fields, algorithm, seed: plain(table.seed.as_ref()) }
    }

    fn paths(
        &mut self,
        table: &BalanceTable,
        port: &dyn Fn(&str) -> Option<PortId>,
    ) -> Vec<(Flow, PortId)> {
        let is_navigation = *table.method.get_ref() == MethodName::PathNavigation;
        match &table.paths {
            Some(paths) if !is_navigation => {
                let message = "`paths` means nothing to this method";
                let issue = Issue::new(paths.span(), message);
                self.issue(issue.other(table.method.span(), "the method is set here"));
            }
            None if is_navigation => {
                let message = "path navigation needs `paths`";
                self.issue(Issue::new(table.method.span(), message));
            }
            _ => {}
        }
        let mut paths = Vec::new();
        for path in table.paths.iter().flat_map(|paths| paths.get_ref()) {
            let limits = [
                (&path.flow_label, 1 << 20, "flow label"),
                (&path.destination_qp, 1 << 24, "queue pair"),
            ];
            for (field, bound, what) in limits {
                if let Some(field) = field.as_ref().filter(|field| *field.get_ref() >= bound) {
                    let message = format!("a {what} is below {bound}");
                    self.issue(Issue::new(field.span(), message));
                }
            }
            if let Some(port) = self.port_called(&path.port, port) {
                paths.push((path.flow(), port));
            }
        }
        paths
    }
}

impl PathTable {
    fn flow(&self) -> Flow {
        Flow {
            source_port: plain(self.source_port.as_ref()),
            destination_port: plain(self.destination_port.as_ref()),
            protocol: plain(self.protocol.as_ref()),
            flow_label: plain(self.flow_label.as_ref()),
            destination_qp: plain(self.destination_qp.as_ref()),
            ..Flow::between(self.source_ip.get_ref().0, self.destination_ip.get_ref().0)
        }
    }

    fn fields(&self) -> Fields {
        let given = [
            (self.source_port.is_some(), Fields::SOURCE_PORT),
            (self.destination_port.is_some(), Fields::DESTINATION_PORT),
            (self.protocol.is_some(), Fields::PROTOCOL),
            (self.flow_label.is_some(), Fields::FLOW_LABEL),
            (self.destination_qp.is_some(), Fields::DESTINATION_QP),
        ];
        let addresses = Fields::SOURCE_IP.and(Fields::DESTINATION_IP);
        let given = given.into_iter().filter(|(is_given, _)| *is_given);
        given.fold(addresses, |fields, (_, field)| fields.and(field))
    }
}
