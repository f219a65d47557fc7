//! `tailwater replay --live IF`: a capture sent on an interface.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use super::Failure;
use super::outcome::print;
use crate::measure::draw::show_ns;
use crate::measure::report::{Clock, Driver};
use crate::measure::{Progress, Report, RunDir};
use crate::replay::live::{self, Sending};
use crate::replay::{CaptureReader, Preloaded, Speed, Stopped};
use crate::time::Duration;
use crate::xdp::{ChunkSize, NetNs, Port, PortConfig, PortError, Steering, UmemStore, privileges};

/// UMEM of the sender: 64 MiB.
const CHUNKS: u32 = 16_384;

/// What to send, and how.
#[derive(Debug)]
pub(super) struct Live<'a> {
    pub(super) name: &'a str,
    pub(super) interface: &'a str,
    pub(super) speed: Speed,
    pub(super) loops: u64,
    pub(super) gap_max: Duration,
    pub(super) allow_default_route: bool,
    pub(super) out: Option<&'a Path>,
    pub(super) json: bool,
    pub(super) quiet: bool,
}

impl Live<'_> {
    /// Preloads the capture and sends it.
    ///
    /// # Errors
    /// [`Failure::HostLacks`] when the port does not open, [`Failure::Running`] when a frame was
    /// not sent or the capture is damaged, after all that was.
    pub(super) fn run<R: std::io::Read>(
        &self,
        reader: &mut CaptureReader<R>,
        interrupted: &AtomicBool,
    ) -> Result<(), Failure> {
        let name = self.name;
        let stop = || interrupted.load(Ordering::Relaxed);
        let (capture, stopped) = Preloaded::read(reader, self.gap_max, stop)
            .map_err(|error| Failure::Running(format!("{name}: {error}")))?;
        if matches!(stopped, Some(Stopped::Interrupted(_))) {
            return Err(Failure::Interrupted);
        }
        let mut store = UmemStore::new(ChunkSize::Bytes4096, CHUNKS).map_err(|error| {
            Failure::HostLacks(format!("no memory for the UMEM: {error} (`tailwater doctor`)"))
        })?;
        let mut config = PortConfig::new(NetNs::Current, self.interface);
        config.queues = vec![0];
        // We only send: what comes in is the kernel's.
        config.steering = Steering::Matches(Vec::new());
        config.allow_default_route = self.allow_default_route;
        let mut port = Port::open(&mut store, config).map_err(|error| match error {
            PortError::NoInterface { .. } | PortError::DefaultRoute { .. } => {
                Failure::Usage(error.to_string())
            }
            _ => Failure::HostLacks(error.to_string()),
        })?;
        let dir = RunDir::create("replay", self.out)?;
        dir.write_config(&format!(
            "# tailwater replay {name} --live {} --speed {} --loop {}\n",
            self.interface, self.speed, self.loops
        ))?;
        dir.keep();
        // The socket is open and the directory made: nothing more needs a capability.
        privileges::forbid_new_privileges()
            .and_then(|()| privileges::drop_all())
            .map_err(|error| Failure::Running(format!("cannot drop capabilities: {error}")))?;
        let total = (capture.len() as u64).saturating_mul(self.loops);
        let progress = Progress::over_items(name, total, self.quiet || self.json);
        let mut watch = |done| {
            progress.set(done);
            !stop()
        };
        let sending =
            live::send(&capture, &mut port, &mut store, self.speed, self.loops, &mut watch);
        progress.finish();
        let dropped = port.counters().tx_kernel_dropped;
        port.close(&mut store);
        let report = self.report(&sending, dropped);
        dir.write_histogram("lateness", &sending.lateness)?;
        dir.write_histogram("gap-error", &sending.gap_error)?;
        dir.write_report(&report)?;
        self.print(&report, &sending, dropped)?;
        if !self.quiet {
            eprintln!("report: {}", dir.path().join("report.html").display());
        }
        if sending.interrupted {
            return Err(Failure::Interrupted);
        }
        if let Some(stopped) = stopped {
            return Err(Failure::Running(format!("{name}: {stopped}")));
        }
        if sending.vanished {
            return Err(Failure::Running(format!(
                "{name}: interface {} vanished after {} of {} records were sent",
                self.interface, sending.sent, sending.records
            )));
        }
        // A record without a byte is no frame: discarded and counted, and no failure.
        let frames = sending.failed.iter().filter(|(reason, _)| **reason != "zero_length");
        let failed: u64 = frames.map(|(_, count)| count).sum::<u64>() + dropped;
        if failed > 0 {
            return Err(Failure::Running(format!(
                "{name}: {failed} of {} records were not sent on {}",
                sending.records, self.interface
            )));
        }
        Ok(())
    }

    fn report(&self, sending: &Sending, dropped: u64) -> Report {
        let mut report = Report::new("replay", Driver::Xdp, Clock::Free, 0);
        report.interrupted = sending.interrupted;
        report.duration_ns = sending.took.as_ns();
        report.wall_ns = sending.took.as_ns();
        report.lateness_ns = sending.lateness.percentiles();
        let failed: u64 = sending.failed.values().sum();
        report.set_invariant("records_accounted_for", sending.sent + failed == sending.records);
        let figures = [
            ("capture", json!(self.name)),
            ("interface", json!(self.interface)),
            ("speed", json!(self.speed.to_string())),
            ("records", json!(sending.records)),
            ("sent", json!(sending.sent)),
            ("failed", json!(sending.failed)),
            ("kernel_dropped", json!(dropped)),
            ("took_ns", json!(sending.took.as_ns())),
            ("gap_error_ns", json!(sending.gap_error.percentiles())),
        ];
        report.extra.extend(figures.map(|(name, value)| (name.to_owned(), value)));
        report
    }

    fn print(&self, report: &Report, sending: &Sending, dropped: u64) -> Result<(), Failure> {
        if self.json {
            return print(&report.to_json());
        }
        let (lateness, gaps) = (sending.lateness.percentiles(), sending.gap_error.percentiles());
        let mut text = format!(
            "{} records of {} on {} at {}: {} sent in {}\n",
            sending.records, self.name, self.interface, self.speed, sending.sent, sending.took
        );
        for (reason, count) in &sending.failed {
            text.push_str(&format!("failed: {reason} {count}\n"));
        }
        if dropped > 0 {
            text.push_str(&format!("dropped by the kernel: {dropped}\n"));
        }
        text.push_str(&format!(
            "lateness: p50 {}  p99 {}  max {}\ngap error: p50 {}  p99 {}  max {}\n",
            show_ns(lateness.p50),
            show_ns(lateness.p99),
            show_ns(lateness.max),
            show_ns(gaps.p50),
            show_ns(gaps.p99),
            show_ns(gaps.max)
        ));
        print(&text)
    }
}
