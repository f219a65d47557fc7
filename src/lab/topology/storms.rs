//! Storms of pause frames, and lists of priorities.

use super::error::Issue;
use super::file::{StormKindName, StormTable};
use super::resolve::{Resolver, value};
use super::value::S;
use super::{HostKind, HostNode, NodeId};
use crate::host::{StormConfig, StormKind};
use crate::time::{Duration, Time};
use crate::units::AnyRate;
use crate::wire::pfc::QUANTA_MAX;

impl Resolver<'_> {
    /// A list of priorities as bits.
    pub(super) fn priorities(&mut self, list: Option<&S<Vec<u8>>>) -> u8 {
        let Some(list) = list else { return 0 };
        let mut bits = 0_u8;
        for priority in list.get_ref() {
            if *priority > 7 {
                let message = format!("a priority is 0 to 7, not {priority}");
                self.issue(Issue::new(list.span(), message));
            } else if bits & 1 << priority != 0 {
                self.issue(Issue::new(list.span(), format!("priority {priority} is listed twice")));
            } else {
                bits |= 1 << priority;
            }
        }
        bits
    }
}

/// Resolves every storm table, and gives each sender its own.
pub(super) fn storms(resolver: &mut Resolver<'_>, hosts: &mut [HostNode], run: Option<Duration>) {
    let file = resolver.file;
    for table in &file.storm {
        let host = match resolver.node(table.from.get_ref(), table.from.span()) {
            Some(NodeId::Host(host)) => host,
            Some(NodeId::Switch(_)) => {
                let message =
                    format!("`{}` is a switch; storms come from hosts", table.from.get_ref());
                resolver.issue(Issue::new(table.from.span(), message));
                continue;
            }
            None => continue,
        };
        if hosts[host].kind == HostKind::Kernel {
            let message = format!("`{}` is a kernel host and sends no storm", table.from.get_ref());
            let issue = Issue::new(table.from.span(), message);
            resolver.issue(issue.help("set kind = \"agent\""));
        }
        if let Some(config) = storm(resolver, table, run) {
            hosts[host].config.storms.push(config);
        }
    }
}

fn storm(
    resolver: &mut Resolver<'_>,
    table: &StormTable,
    run: Option<Duration>,
) -> Option<StormConfig> {
    let rate = value(Some(&table.rate))?;
    let is_zero = match rate {
        AnyRate::Bits(rate) => rate.as_bps() == 0,
        AnyRate::Frames(rate) => rate.as_milli_pps() == 0,
    };
    if is_zero {
        resolver.issue(Issue::new(table.rate.span(), "a rate is above zero"));
    }
    let start = value(table.start.as_ref()).unwrap_or_default();
    let stop = match (&table.stop, &table.duration) {
        (Some(stop), Some(_)) => {
            resolver.issue(Issue::new(stop.span(), "give `stop` or `duration`, not both"));
            Some(stop.get_ref().0)
        }
        (Some(stop), None) if stop.get_ref().0 <= start => {
            let message = format!("it stops at {} but starts at {start}", stop.get_ref().0);
            resolver.issue(Issue::new(stop.span(), message));
            Some(stop.get_ref().0)
        }
        (Some(stop), None) => Some(stop.get_ref().0),
        (None, Some(lasts)) => Some(start + lasts.get_ref().0),
        (None, None) => run,
    };
    if stop.is_none() && table.frames.is_none() {
        resolver.issue(
            Issue::new(table.from.span(), "this storm never ends")
                .help("give it frames, duration or stop, or give [run] a duration"),
        );
    }
    let classes = resolver.priorities(table.priorities.as_ref());
    let quanta = table.quanta.as_ref().map_or(QUANTA_MAX, |quanta| *quanta.get_ref());
    let kind = match table.kind {
        StormKindName::Pfc => {
            let is_listed =
                table.priorities.as_ref().is_some_and(|list| !list.get_ref().is_empty());
            if !is_listed {
                let issue = Issue::new(table.from.span(), "this storm is for no priority");
                resolver.issue(issue.help("add priorities = [3]"));
            }
            StormKind::Pfc { classes, quanta }
        }
        StormKindName::Pause => StormKind::Pause { quanta },
        StormKindName::Hostile => StormKind::Hostile,
    };
    let unused = [
        table
            .priorities
            .as_ref()
            .map(toml::Spanned::span)
            .filter(|_| !matches!(kind, StormKind::Pfc { .. })),
        table.quanta.as_ref().map(toml::Spanned::span).filter(|_| kind == StormKind::Hostile),
    ];
    for span in unused.into_iter().flatten() {
        resolver.issue(Issue::new(span, "a storm of this kind has none"));
    }
    Some(StormConfig {
        kind,
        rate,
        start: Time::from_ps(start.as_ps()),
        stop: stop.map_or(Time::NEVER, |stop| Time::from_ps(stop.as_ps())),
        frames_max: table.frames.as_ref().map_or(u64::MAX, |frames| *frames.get_ref()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::topology::Topology;

    const LAB: &str = r#"
name = "storms"
[switch.s1]
[host.h1]
[host.h2]
kind = "kernel"
[[link]]
ends = ["h1:eth0", "s1:1"]
[[link]]
ends = ["h2:eth0", "s1:2"]
"#;

    fn parse(text: &str) -> Result<Topology, String> {
        let text = format!("{LAB}{text}");
        Topology::parse("test.toml", &text).map_err(|error| {
            let issue = error.issues.first().expect("an issue");
            format!("{}: {}", &text[issue.span.clone()], issue.message)
        })
    }

    #[test]
    fn a_storm_is_its_senders_own() {
        let topology = parse(
            "[[storm]]\nfrom = \"h1\"\npriorities = [3, 0]\nquanta = 0\nrate = \"2Kpps\"\nstart = \"1ms\"\n\
             duration = \"2ms\"\n[[storm]]\nfrom = \"h1\"\nkind = \"hostile\"\nrate = \"1Mbps\"\nframes = 7",
        )
        .expect("storms");
        let storms = &topology.hosts[0].config.storms;
        assert_eq!(storms[0].kind, StormKind::Pfc { classes: 0b1001, quanta: 0 });
        assert_eq!(
            (storms[0].start, storms[0].stop),
            (Time::from_ns(1_000_000), Time::from_ns(3_000_000))
        );
        assert_eq!((storms[1].kind, storms[1].frames_max), (StormKind::Hostile, 7));
        let topology =
            parse("[[storm]]\nfrom = \"h1\"\nkind = \"pause\"\nrate = \"1pps\"\nframes = 1");
        let storms = topology.expect("a storm").hosts[0].config.storms.clone();
        assert_eq!(storms[0].kind, StormKind::Pause { quanta: QUANTA_MAX });
    }

    #[test]
    fn storms_that_say_nothing_are_refused_where_they_stand() {
        let refused = |keys: &str| parse(&format!("[[storm]]\n{keys}")).expect_err(keys);
        for (keys, want) in [
            (
                "from = \"s1\"\nrate = \"1pps\"\nframes = 1",
                "\"s1\": `s1` is a switch; storms come from hosts",
            ),
            (
                "from = \"h2\"\nkind = \"pause\"\nrate = \"1pps\"\nframes = 1",
                "\"h2\": `h2` is a kernel host and sends no storm",
            ),
            ("from = \"h1\"\nrate = \"1pps\"\nframes = 1", "\"h1\": this storm is for no priority"),
            ("from = \"h1\"\nrate = \"1pps\"\npriorities = [3]", "\"h1\": this storm never ends"),
            (
                "from = \"h1\"\nrate = \"1pps\"\npriorities = [8]\nframes = 1",
                "[8]: a priority is 0 to 7, not 8",
            ),
            (
                "from = \"h1\"\nrate = \"1pps\"\npriorities = [1, 1]\nframes = 1",
                "[1, 1]: priority 1 is listed twice",
            ),
            (
                "from = \"h1\"\nkind = \"hostile\"\nrate = \"1pps\"\nquanta = 1\nframes = 1",
                "1: a storm of this kind has none",
            ),
            (
                "from = \"h1\"\npriorities = [1]\nrate = \"0pps\"\nframes = 1",
                "\"0pps\": a rate is above zero",
            ),
            (
                "from = \"h1\"\npriorities = [1]\nrate = \"1pps\"\nstart = \"2s\"\nstop = \"1s\"",
                "\"1s\": it stops at 1s but starts at 2s",
            ),
            ("from = \"h9\"\nrate = \"1pps\"\nframes = 1", "\"h9\": there is no node `h9`"),
        ] {
            assert_eq!(refused(keys), want);
        }
    }

    /// A stream has the priority that the switch at the end of its host's link gives it.
    #[test]
    fn streams_have_the_switches_priority() {
        let stream = "[[stream]]\nfrom = \"h1\"\nto = \"h2\"\nrate = \"1Gbps\"\nframes = 1\n";
        let priority = |switch: &str, keys: &str| {
            let lab = LAB.replace("[switch.s1]", &format!("[switch.s1]\n{switch}"));
            let text = format!("{lab}{stream}{keys}");
            let topology = Topology::parse("test.toml", &text).expect("a lab");
            topology.hosts[0].config.streams[0].priority
        };
        assert_eq!(priority("", "vlan = 1\npcp = 5"), 5);
        assert_eq!(priority("default_priority = 2", "dscp = 46"), 2, "no tag to trust");
        assert_eq!(priority("trust = \"dscp\"", "dscp = 46"), 5);
        assert_eq!(priority("trust = \"dscp\"\ndscp_to_priority = { \"46\" = 3 }", "dscp = 46"), 3);
        assert_eq!(priority("trust = \"port\"\ndefault_priority = 6", "vlan = 1\npcp = 5"), 6);
    }
}
