//! Threads that do the ring I/O of a switch's ports.

use super::error::Issue;
use super::file::SwitchTable;
use super::resolve::Resolver;
use super::{Clock, Topology};

impl Resolver<'_> {
    /// The I/O workers of a switch with `ports` ports: for each, the core it must run on.
    pub(super) fn io_workers(&mut self, table: &SwitchTable, ports: usize) -> Vec<Option<u32>> {
        let Some(written) = &table.io_workers else {
            if let Some(cores) = &table.io_cores {
                let issue = Issue::new(cores.span(), "cores for no I/O worker")
                    .help("say how many there are: io_workers = 2");
                self.issue(issue);
            }
            return Vec::new();
        };
        let wanted = usize::try_from(*written.get_ref()).unwrap_or(usize::MAX);
        if wanted > ports {
            let message = format!("{wanted} I/O workers for {ports} ports");
            let help = "a port's rings are served by one of them: at most one per port";
            self.issue(Issue::new(written.span(), message).help(help));
            return Vec::new();
        }
        let Some(cores) = &table.io_cores else { return vec![None; wanted] };
        if cores.get_ref().len() != wanted {
            let issue = Issue::new(cores.span(), "one core for each I/O worker")
                .other(written.span(), "so many")
                .help("leave `io_cores` out to let the kernel choose");
            self.issue(issue);
        }
        cores.get_ref().iter().copied().map(Some).collect()
    }

    /// Refuses I/O workers by the gated clock, which has a worker wait for what it sees in its own
    /// rings.
    pub(super) fn io_workers_are_free(&mut self, clock: Clock) {
        if clock == Clock::Free {
            return;
        }
        let file = self.file;
        for table in file.switch.values() {
            let Some(written) = table.io_workers.as_ref().filter(|n| *n.get_ref() > 0) else {
                continue;
            };
            let mut issue = Issue::new(written.span(), "I/O workers need the free clock")
                .help("write clock = \"free\" into [run], or leave `io_workers` out");
            if let Some(clock) = &file.run.clock {
                issue = issue.other(clock.span(), "gated here");
            }
            self.issue(issue);
        }
    }
}

impl Topology {
    /// The first switch that has I/O workers, by name.
    pub fn switch_with_io_workers(&self) -> Option<&str> {
        let mut switches = self.switches.iter();
        let switch = switches.find(|switch| !switch.io_workers.is_empty())?;
        Some(&switch.config.name)
    }
}
