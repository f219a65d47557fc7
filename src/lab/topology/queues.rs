//! The tables of a port's queues: `ecn` and `schedule`.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;

use super::error::Issue;
use super::resolve::{Resolver, plain, value};
use super::value::{ByteCount, Ppb, Q, S};
use crate::switch::config::QUEUES;
use crate::switch::mark::{Curve, CurveError, MarkAt, MarkConfig};
use crate::switch::schedule::{ScheduleConfig, ShaperConfig};
use crate::units::{Bytes, Rate};

/// `ecn = { kmin = "100KB", kmax = "400KB", pmax = "20%" }`, for all queues or for some.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EcnTable {
    enabled: Option<S<bool>>,
    kmin: Option<Q<Bytes>>,
    kmax: Option<Q<Bytes>>,
    pmax: Option<Q<Ppb>>,
    at: Option<MarkAtName>,
    wred: Option<S<bool>>,
    queues: Option<S<Vec<S<u8>>>>,
    yellow: Option<S<CurveTable>>,
    red: Option<S<CurveTable>>,
    #[serde(default)]
    queue: BTreeMap<S<String>, S<CurveTable>>,
}

/// The curve of a colour, or of one queue.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CurveTable {
    kmin: Q<Bytes>,
    kmax: Q<Bytes>,
    pmax: Q<Ppb>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum MarkAtName {
    Dequeue,
    Enqueue,
}

/// `schedule = { weights = { "0" = 1, "1" = 3 }, rate = "25Gbps" }`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScheduleTable {
    weights: Option<S<BTreeMap<S<String>, S<u32>>>>,
    quantum: Option<S<ByteCount>>,
    queue_rate: Option<S<BTreeMap<S<String>, Q<Rate>>>>,
    queue_burst: Option<Q<Bytes>>,
    rate: Option<Q<Rate>>,
    burst: Option<Q<Bytes>>,
}

/// Bytes that a shaped queue or port may send at once where the file does not say.
const BURST_BYTES: u64 = 16_000;

impl Resolver<'_> {
    /// What each queue does with marks.
    pub(super) fn marks(&mut self, table: Option<&S<EcnTable>>) -> [Option<MarkConfig>; QUEUES] {
        let none = [None; QUEUES];
        let Some(table) = table else { return none };
        let (span, table) = (table.span(), table.get_ref());
        if plain(table.enabled.as_ref()) == Some(false) {
            return none;
        }
        let (Some(kmin), Some(kmax), Some(pmax)) = (&table.kmin, &table.kmax, &table.pmax) else {
            self.issue(
                Issue::new(span, "a curve has kmin, kmax and pmax")
                    .help("such as { kmin = \"100KB\", kmax = \"400KB\", pmax = \"20%\" }"),
            );
            return none;
        };
        let green = self.curve(kmin, kmax, pmax);
        let yellow = table.yellow.as_ref().map_or(green, |own| self.own_curve(own));
        let red = table.red.as_ref().map_or(yellow, |own| self.own_curve(own));
        let config = MarkConfig {
            curves: [green, yellow, red],
            at: match table.at {
                Some(MarkAtName::Enqueue) => MarkAt::Enqueue,
                Some(MarkAtName::Dequeue) | None => MarkAt::Dequeue,
            },
            wred: plain(table.wred.as_ref()).unwrap_or(false),
        };
        let mut marks = [Some(config); QUEUES];
        if let Some(queues) = &table.queues {
            marks = none;
            for queue in queues.get_ref() {
                match marks.get_mut(usize::from(*queue.get_ref())) {
                    Some(mark) => *mark = Some(config),
                    None => self.no_such_queue(queue.span(), queue.get_ref()),
                }
            }
        }
        for (name, own) in &table.queue {
            let curves = [self.own_curve(own); 3];
            if let Some(queue) = self.queue_called(name) {
                marks[queue] = Some(MarkConfig { curves, ..config });
            }
        }
        marks
    }

    fn own_curve(&mut self, own: &S<CurveTable>) -> Curve {
        let own = own.get_ref();
        self.curve(&own.kmin, &own.kmax, &own.pmax)
    }

    fn curve(&mut self, kmin: &Q<Bytes>, kmax: &Q<Bytes>, pmax: &Q<Ppb>) -> Curve {
        let [kmin_bytes, kmax_bytes] = [kmin, kmax].map(|bytes| bytes.get_ref().0.0);
        let curve = Curve { kmin_bytes, kmax_bytes, pmax_ppb: pmax.get_ref().0.0 };
        match curve.check() {
            Ok(()) => {}
            Err(error @ CurveError::KminAboveKmax { .. }) => {
                self.issue(
                    Issue::new(kmin.span(), error.to_string()).other(kmax.span(), "kmax is here"),
                );
            }
            Err(error @ CurveError::KmaxTooLarge { .. }) => {
                self.issue(Issue::new(kmax.span(), error.to_string()));
            }
            Err(error @ CurveError::PmaxAboveOne { .. }) => {
                self.issue(Issue::new(pmax.span(), error.to_string()));
            }
        }
        curve
    }

    /// How a port of `rate` serves its queues.
    pub(super) fn schedule(
        &mut self,
        table: Option<&S<ScheduleTable>>,
        rate: Rate,
    ) -> ScheduleConfig {
        let mut config = ScheduleConfig::default();
        let Some(table) = table else { return config };
        let (span, table) = (table.span(), table.get_ref());
        for (name, weight) in table.weights.iter().flat_map(|weights| weights.get_ref()) {
            if let Some(queue) = self.queue_called(name) {
                config.weights[queue] = Some(*weight.get_ref());
            }
        }
        if let Some(quantum) = &table.quantum {
            config.quantum_bytes = quantum.get_ref().0;
        }
        let burst_bytes = value(table.queue_burst.as_ref()).map_or(BURST_BYTES, |bytes| bytes.0);
        for (name, limit) in table.queue_rate.iter().flat_map(|rates| rates.get_ref()) {
            if let Some(queue) = self.queue_called(name) {
                let rate = limit.get_ref().0;
                config.queue_shapers[queue] = Some(ShaperConfig { rate, burst_bytes });
            }
        }
        if let Some(rate) = value(table.rate.as_ref()) {
            let burst_bytes = value(table.burst.as_ref()).map_or(BURST_BYTES, |bytes| bytes.0);
            config.port_shaper = Some(ShaperConfig { rate, burst_bytes });
        }
        if let Err(error) = config.check(rate) {
            let place = match error.field {
                "weights" => table.weights.as_ref().map(Spanned::span),
                "quantum_bytes" => table.quantum.as_ref().map(Spanned::span),
                "queue_shapers" => table.queue_rate.as_ref().map(Spanned::span),
                "port_shaper" => table.rate.as_ref().map(Spanned::span),
                _ => None,
            };
            self.issue(Issue::new(place.unwrap_or(span), error.message));
            return ScheduleConfig::default();
        }
        config
    }

    fn queue_called(&mut self, name: &S<String>) -> Option<usize> {
        let queue = name.get_ref().parse().ok().filter(|queue: &usize| *queue < QUEUES);
        if queue.is_none() {
            self.no_such_queue(name.span(), name.get_ref());
        }
        queue
    }

    fn no_such_queue(&mut self, span: Range<usize>, name: impl std::fmt::Display) {
        let message = format!("there is no queue {name}");
        self.issue(Issue::new(span, message).help("queues are 0 to 7"));
    }
}
