//! The tables `[run]` and `[lab]`.

use toml::Spanned;

use super::error::Issue;
use super::file::ClockName;
use super::resolve::{Resolver, plain, value};
use super::{Clock, HostKind, HostNode, LabOptions, Link, Run, SwitchNode};

impl<'a> Resolver<'a> {
    pub(super) fn run(
        &mut self,
        ours: bool,
        links: &[Link],
        switches: &[SwitchNode],
        hosts: &[HostNode],
    ) -> Run {
        let file = self.file;
        let table = &file.run;
        let fallback = if ours { Clock::Gated } else { Clock::Free };
        let clock = table.clock.as_ref().map_or(fallback, |clock| match clock.get_ref() {
            ClockName::Gated => Clock::Gated,
            ClockName::Free => Clock::Free,
        });
        if let Some(written) = table.clock.as_ref().filter(|_| clock == Clock::Gated && !ours) {
            let kernel = self.host_names.iter().zip(hosts);
            let kernel = kernel.filter(|(_, host)| host.kind == HostKind::Kernel);
            let mut issue = Issue::new(written.span(), "a gated clock needs every node to be ours")
                .help(
                    "use clock = \"free\": a kernel host and an external port keep their own time",
                );
            if let Some(((name, _), _)) = kernel.into_iter().next() {
                issue = issue.other(name.span(), "a kernel host");
            } else if let Some(external) = file.external.first() {
                issue = issue.other(external.port.span(), "an external port");
            }
            self.issue(issue);
        }
        self.io_workers_are_free(clock);
        let zero = links.iter().position(|link| link.impairment.delay.is_zero());
        if let Some(link) = zero.filter(|_| clock == Clock::Gated) {
            let table = &file.link[link.min(file.link.len() - 1)];
            let delay = table.delay.as_ref().or(file.defaults.link.delay.as_ref());
            let span = delay.map_or_else(|| table.ends.span(), Spanned::span);
            self.issue(
                Issue::new(span, "a gated clock needs links with a delay")
                    .help("give it one, such as \"10ns\", or use [run] clock = \"free\""),
            );
        }
        if let Some(dilation) = &table.dilation {
            if *dilation.get_ref() == 0 {
                self.issue(Issue::new(dilation.span(), "a dilation is at least 1"));
            } else if *dilation.get_ref() > 1 && clock == Clock::Gated {
                self.issue(
                    Issue::new(dilation.span(), "a gated clock does not dilate")
                        .help("node time waits for the machine already; remove this line"),
                );
            }
        }
        if let Some(zero) = table.duration.as_ref().filter(|d| d.get_ref().0.is_zero()) {
            self.issue(Issue::new(zero.span(), "a run lasts longer than no time"));
        }
        Run {
            duration: value(table.duration.as_ref()),
            clock,
            dilation: plain(table.dilation.as_ref()).unwrap_or(1).max(1),
            capture: self.capture(switches, hosts),
        }
    }

    fn capture(&mut self, switches: &[SwitchNode], hosts: &[HostNode]) -> Vec<String> {
        let mut known: Vec<String> = Vec::new();
        for switch in switches {
            let ports = switch.config.ports.iter();
            known.extend(ports.map(|port| format!("{}:{}", switch.config.name, port.name)));
        }
        known.extend(hosts.iter().map(|h| format!("{}:{}", h.config.name, h.config.port_name)));
        let Some(capture) = &self.file.run.capture else { return Vec::new() };
        let wanted = &capture.get_ref().0;
        if wanted.iter().any(|name| name == "all") {
            return known;
        }
        for name in wanted.iter().filter(|name| !known.contains(name)) {
            let message = format!("there is no port `{name}` to capture");
            self.issues.push(Issue::new(capture.span(), message).help("NODE:PORT, or \"all\""));
        }
        wanted.clone()
    }

    pub(super) fn lab_options(&mut self) -> LabOptions {
        let table = &self.file.lab;
        let mut options = LabOptions::default();
        if let Some(chunk) = &table.chunk {
            match chunk.get_ref().0.0 {
                2_048 => options.chunk_bytes = 2_048,
                4_096 => options.chunk_bytes = 4_096,
                _ => self.issues.push(Issue::new(chunk.span(), "a chunk has 2048B or 4096B")),
            }
        }
        if let Some(ring) = &table.ring {
            let entries = *ring.get_ref();
            if !entries.is_power_of_two() || !(64..=32_768).contains(&entries) {
                let message = "a ring has a power of two of entries, 64 to 32768";
                self.issues.push(Issue::new(ring.span(), message));
            }
            options.ring_entries = Some(entries);
        }
        if let Some(queues) = &table.queues {
            if !(1..=64).contains(queues.get_ref()) {
                self.issues.push(Issue::new(queues.span(), "an interface has 1 to 64 queues"));
            }
            options.queues = *queues.get_ref();
        }
        if let Some(workers) = &table.workers {
            if !(1..=256).contains(workers.get_ref()) {
                self.issues.push(Issue::new(workers.span(), "a lab has 1 to 256 workers"));
            }
            options.workers = Some(*workers.get_ref());
        }
        options.busy_poll = table.busy_poll.unwrap_or(options.busy_poll);
        options.huge_pages = table.huge_pages.unwrap_or(options.huge_pages);
        options
    }
}
