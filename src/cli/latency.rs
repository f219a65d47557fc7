//! `tailwater latency`: an open-loop latency measurement over real interfaces.

use std::io::IsTerminal as _;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use clap::{ArgGroup, Args};

use super::Failure;
use super::outcome::{OutputFlags, finish, print};
use crate::lab::interrupt;
use crate::measure::draw::{draw, show_count, show_ns};
use crate::measure::latency::schedule::{frame_rate, wire_bps};
use crate::measure::latency::{
    Bench, BenchConfig, BenchError, Carrier, End, Losses, Schedule, SearchLimits, SweepConfig,
    Timestamps, TrialOutcome, TrialPlan, give_up_privileges, probe, reflect, sweep,
};
use crate::measure::report::{Clock, Driver};
use crate::measure::{LatencyHistogram, Progress, Report, RunDir, Style};
use crate::time::Duration;
use crate::units::{AnyRate, Bytes, FrameRate};
use crate::wire::MacAddr;
use crate::xdp::{Attach, PortError, RxStamps, ZeroCopy};

/// Arguments of `tailwater latency`.
#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("where").required(true).args(["tx", "reflect"])),
    after_help = "One way: --tx IF --rx IF, on one machine. Round trip: --tx IF here, and \
                  --reflect IF on the far side. Latency counts from the planned send time of each \
                  frame, so a stall delays samples and never hides them.\n\n\
                  Examples:\n  \
                  tailwater latency --tx eth1 --rx eth2 --rate 100Kpps --duration 10s\n  \
                  tailwater latency --tx a0@ns1 --rx b0@ns2 --sweep\n  \
                  tailwater latency --reflect eth1"
)]
pub struct LatencyArgs {
    /// Send from this interface
    #[arg(long, value_name = "IF[@NETNS]")]
    tx: Option<End>,
    /// Receive on this interface; without it, on that of --tx, from a reflector
    #[arg(long, value_name = "IF[@NETNS]", requires = "tx")]
    rx: Option<End>,
    /// Send every probe that comes to this interface back, until interrupted
    #[arg(long, value_name = "IF[@NETNS]", conflicts_with_all = ["tx", "rx"])]
    reflect: Option<End>,
    /// Frames per second, or bits per second of the wire; with --sweep the highest rate to try
    /// [default: 10Kpps; with --sweep 10Gbps]
    #[arg(long, value_name = "RATE")]
    rate: Option<AnyRate>,
    /// Frame size with FCS, as in RFC 2544
    #[arg(long, value_name = "BYTES", default_value = "64B")]
    size: Bytes,
    /// Frames sent back to back, at the same mean rate
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    burst: u32,
    /// How long to send [default: 10s; with --sweep 2s at each share of the NDR]
    #[arg(long, value_name = "TIME")]
    duration: Option<Duration>,
    /// How many frames to send, instead of --duration
    #[arg(long, value_name = "N", conflicts_with_all = ["duration", "sweep"], value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Search the highest rate without loss (NDR) and with 0.5 % (PDR), then measure latency at
    /// 10, 50 and 90 % of the NDR
    #[arg(long)]
    sweep: bool,
    /// How long each trial of the search sends
    #[arg(long, value_name = "TIME", default_value = "1s", requires = "sweep")]
    trial: Duration,
    /// Trials that must fail before a rate counts as failed
    #[arg(long, value_name = "N", default_value_t = 2, requires = "sweep", value_parser = clap::value_parser!(u32).range(1..))]
    attempts: u32,
    /// Carry probes in UDP over IPv4 from SOURCE to DESTINATION, to pass routers (70B at least)
    #[arg(long, value_name = "SOURCE,DESTINATION", value_parser = parse_udp)]
    udp: Option<Carrier>,
    /// Destination address of the frames [default: that of --rx, or broadcast]
    #[arg(long, value_name = "MAC")]
    dst_mac: Option<MacAddr>,
    /// Spin always, and have the kernel poll the sockets where it allows that: the lowest latency, a
    /// whole core per loop
    #[arg(long)]
    busy_poll: bool,
    /// Entries of the RX and TX rings, a power of two
    #[arg(long, value_name = "N", default_value_t = 4_096)]
    ring: u32,
    /// What arrivals go by: hardware (stamps of the NIC, through XDP metadata), xdp (the XDP program,
    /// when the frame has arrived and waits for its reader), software (the reader's clock) or auto
    /// (hardware where there are stamps of it, or else software)
    #[arg(long, value_name = "WHICH", default_value = "auto", conflicts_with = "reflect")]
    timestamps: Timestamps,
    /// Attach in the stack instead of the driver
    #[arg(long)]
    generic: bool,
    /// Copy frames even where the driver could do without
    #[arg(long)]
    no_zero_copy: bool,
    /// Take an interface even if it carries the default route
    #[arg(long)]
    allow_default_route: bool,
    /// Where to write the run
    #[arg(long, value_name = "DIR")]
    run_dir: Option<PathBuf>,
    /// One JSON document on stdout
    #[arg(long)]
    json: bool,
    /// No progress and no messages
    #[arg(long)]
    quiet: bool,
}

fn parse_udp(text: &str) -> Result<Carrier, String> {
    let addresses = text.split_once(',').and_then(|(source, destination)| {
        let source: Ipv4Addr = source.trim().parse().ok()?;
        Some(Carrier::Udp { source, destination: destination.trim().parse().ok()? })
    });
    addresses.ok_or_else(|| format!("`{text}` is not two IPv4 addresses, as 198.18.0.1,198.19.0.1"))
}

/// The least rate of interest: what FD.io's MLRsearch starts from.
const SEARCH_LOW: FrameRate = FrameRate::from_milli_pps(9_001_000);

impl LatencyArgs {
    /// Measures, or reflects.
    ///
    /// # Errors
    /// The contract's failures.
    pub fn run(&self) -> Result<(), Failure> {
        match (&self.reflect, &self.tx) {
            (Some(end), _) => self.run_reflector(end),
            (None, Some(tx)) => self.measure(tx),
            (None, None) => Err(Failure::Usage("give --tx IF or --reflect IF".to_owned())),
        }
    }

    fn bench_config(&self, tx: &End) -> Result<BenchConfig, Failure> {
        let carrier = self.udp.unwrap_or_default();
        let least = carrier.frame_bytes_min() + probe::FCS_BYTES;
        let size_bytes = u32::try_from(self.size.0)
            .ok()
            .filter(|size| (least..=9_018).contains(size))
            .ok_or_else(|| {
                Failure::Usage(format!(
                    "--size {}: probes of this kind have {least}B to 9018B, FCS included",
                    self.size
                ))
            })?;
        Ok(BenchConfig {
            carrier,
            size_bytes,
            destination: self.dst_mac,
            busy_poll: self.busy_poll,
            ring_entries: self.ring,
            zero_copy: if self.no_zero_copy { ZeroCopy::Off } else { ZeroCopy::Auto },
            attach: if self.generic { Attach::Generic } else { Attach::Auto },
            timestamps: self.timestamps,
            allow_default_route: self.allow_default_route,
            ..BenchConfig::new(tx.clone(), self.rx.clone())
        })
    }

    fn run_reflector(&self, end: &End) -> Result<(), Failure> {
        let stop = interrupt::install()?;
        let done = reflect(&self.bench_config(end)?, stop, |port| {
            give_up_privileges()?;
            if !self.quiet {
                eprintln!("ready: reflecting on {} until interrupted", port.name());
            }
            Ok(())
        })?;
        if self.json {
            let document = serde_json::json!({
                "reflected": done.reflected,
                "dropped": done.dropped,
                "foreign": done.foreign,
            });
            print(&format!("{document}\n"))
        } else {
            print(&format!(
                "reflected {} frames, dropped {}, passed over {}\n",
                done.reflected, done.dropped, done.foreign
            ))
        }
    }

    fn measure(&self, tx: &End) -> Result<(), Failure> {
        let config = self.bench_config(tx)?;
        let frame_bytes = config.size_bytes - probe::FCS_BYTES;
        let stop = interrupt::install()?;
        let wall = crate::xdp::clock::monotonic_ns();
        let mut bench = Bench::open(config, stop)?;
        // Made while root may still write in somebody else's directory.
        let run_dir = match RunDir::create("latency", self.run_dir.as_deref()) {
            Ok(run_dir) => run_dir,
            Err(error) => {
                bench.close();
                return Err(error.into());
            }
        };
        give_up_privileges()?;
        let mut report = Report::new("latency", Driver::Xdp, Clock::Free, 0);
        let result = if self.sweep {
            self.run_sweep(&mut bench, &mut report, frame_bytes)
        } else {
            self.run_once(&mut bench, &mut report, frame_bytes)
        };
        let setup = self.setup(&bench);
        if let Some(note) = timestamps_note(&bench) {
            report.notes.insert(0, note);
        }
        let counters = bench.counters();
        bench.close();
        let histograms = result?;
        report.extra.insert("latency".to_owned(), setup);
        let counted = counters.iter().map(|(name, n)| (name.to_owned(), n.into())).collect();
        report.extra.insert("rx_port".to_owned(), serde_json::Value::Object(counted));
        report.wall_ns = crate::xdp::clock::monotonic_ns() - wall;
        report.duration_ns = report.wall_ns;

        run_dir.write_config(&self.effective(tx))?;
        for (name, histogram) in &histograms {
            run_dir.write_histogram(name, histogram)?;
        }
        run_dir.write_report(&report)?;
        if self.sweep && !self.json {
            self.print_sweep(&report)?;
            // The level between idle and the edge says most; the others are in the run directory.
            let middle = histograms.iter().find(|(name, _)| name == "ndr-50-percent");
            if let Some((name, histogram)) = middle {
                let style = Style::detect(std::io::stdout().is_terminal());
                print(&format!("{}\n", draw(name, histogram, style)))?;
            }
        }
        let flags = OutputFlags { json: self.json, quiet: self.quiet };
        let shown = histograms.first().filter(|_| !self.sweep).map(|(_, histogram)| histogram);
        finish(&report, shown, Some(&run_dir), flags)
    }

    fn run_once(
        &self,
        bench: &mut Bench,
        report: &mut Report,
        frame_bytes: u32,
    ) -> Result<Vec<(String, LatencyHistogram)>, Failure> {
        let rate = self.rate.unwrap_or(AnyRate::Frames(FrameRate::from_pps(10_000)));
        let rate = frame_rate(rate, frame_bytes);
        if rate.as_milli_pps() == 0 {
            return Err(Failure::Usage("--rate must be above zero".to_owned()));
        }
        let span = self.duration.unwrap_or(Duration::from_secs(10));
        let frames = self.count.unwrap_or_else(|| Schedule::frames_in(rate, span));
        let plan = TrialPlan { rate, burst: self.burst, frames };
        if !self.quiet {
            let bits = crate::units::Rate::from_bps(wire_bps(rate, frame_bytes));
            eprintln!("sending {frames} frames at {rate} ({bits} on the wire)");
        }
        let outcome = bench.run(plan, None)?;
        report.flows.push(outcome.flow(1, &name_of(&self.tx), &self.far_name()));
        report.lateness_ns = outcome.sent.lateness.percentiles();
        report.set_latency([outcome.latency()]);
        let away = &outcome.received.away;
        let longest = away.iter().max().map_or(0, |longest| longest.as_ns());
        // Times of 5 ms or more in which this machine kept the receiver from its ring.
        let value = serde_json::json!({ "count": away.len(), "max": longest });
        report.extra.insert("receiver_away_ns".to_owned(), value);
        if longest > 0 && !self.quiet {
            eprintln!(
                "the receiver was kept from its ring {} times, for up to {}: the tail is this \
                 machine's",
                away.len(),
                show_ns(longest)
            );
        }
        note_losses(report, &outcome.losses)?;
        check(report, &outcome);
        let mut histograms = vec![
            ("latency".to_owned(), outcome.latency().clone()),
            ("send-lateness".to_owned(), outcome.sent.lateness),
        ];
        if let Some(stamped) = outcome.received.stamped {
            let value = to_json(&stamped.report())?;
            report.extra.insert("stamps".to_owned(), value);
            report.notes.push(format!(
                "{} frames bore a stamp, {} did not; from the stamp to its reader: p50 {}  p99 {}",
                show_count(stamped.counts.frames_with),
                show_count(stamped.counts.frames_without + stamped.counts.frames_clock_set),
                show_ns(stamped.to_reader.percentiles().p50),
                show_ns(stamped.to_reader.percentiles().p99),
            ));
            histograms.push(("stamp-to-reader".to_owned(), stamped.to_reader));
        }
        Ok(histograms)
    }

    fn far_name(&self) -> String {
        name_of(if self.rx.is_some() { &self.rx } else { &self.tx })
    }

    /// How it was measured, for the report.
    fn setup(&self, bench: &Bench) -> serde_json::Value {
        let (mode, zero_copy) = bench.mode();
        let (stamps, reason) = bench.stamps();
        let config = bench.config();
        serde_json::json!({
            "path": if config.rx.is_some() { "one-way" } else { "round-trip" },
            "timestamps": stamps.name(),
            "timestamps_asked": config.timestamps.name(),
            "timestamps_reason": reason,
            "timestamps_clock": match stamps {
                RxStamps::Hardware => bench.device_clock(),
                RxStamps::Off | RxStamps::Xdp => None,
            },
            "measured_from": "planned send time",
            "size_bytes_with_fcs": config.size_bytes,
            "burst": self.burst,
            "busy_poll": config.busy_poll,
            "xdp_mode": mode,
            "zero_copy": zero_copy,
        })
    }

    fn run_sweep(
        &self,
        bench: &mut Bench,
        report: &mut Report,
        frame_bytes: u32,
    ) -> Result<Vec<(String, LatencyHistogram)>, Failure> {
        let high = self.rate.unwrap_or(AnyRate::Bits(crate::units::Rate::from_gbps(10)));
        let high = frame_rate(high, frame_bytes);
        let config = SweepConfig {
            limits: SearchLimits {
                low: SEARCH_LOW.min(high),
                high,
                precision_ppm: 5_000,
                attempts_max: self.attempts,
            },
            trial: self.trial,
            level: self.duration.unwrap_or(Duration::from_secs(2)),
            burst: self.burst,
            frame_bytes,
        };
        let progress = Progress::over_items("sweep", 24, self.quiet);
        let mut step = 0;
        let done = sweep(
            &config,
            |plan| bench.run(plan, None),
            |what| {
                progress.say(what);
                progress.set(step);
                step += 1;
            },
        );
        progress.finish();
        let (table, outcomes) = done?;
        report.extra.insert("sweep".to_owned(), to_json(&table)?);
        let mut losses = Losses::default();
        let mut histograms = Vec::new();
        let (from, to) = (name_of(&self.tx), self.far_name());
        // Each rate has a row of its own: latencies of several rates together say nothing.
        for (id, (percent, outcome)) in (1..).zip(outcomes) {
            report.flows.push(outcome.flow(id, &format!("{percent}% of NDR, {from}"), &to));
            losses.add(&outcome.losses);
            check(report, &outcome);
            histograms.push((format!("ndr-{percent}-percent"), outcome.latency().clone()));
            if let Some(stamped) = outcome.received.stamped {
                let name = format!("ndr-{percent}-percent-stamp-to-reader");
                histograms.push((name, stamped.to_reader));
            }
        }
        note_losses(report, &losses)?;
        Ok(histograms)
    }

    fn print_sweep(&self, report: &Report) -> Result<(), Failure> {
        let Some(value) = report.extra.get("sweep") else { return Ok(()) };
        let table: crate::measure::latency::SweepReport = serde_json::from_value(value.clone())
            .map_err(|error| Failure::Running(format!("cannot read the table: {error}")))?;
        let style = Style::detect(std::io::stdout().is_terminal());
        print(&format!("{}\n", table.render_text(style)))
    }

    /// The flags that were in force, as the run directory keeps them.
    fn effective(&self, tx: &End) -> String {
        let rx = self.rx.as_ref().map_or_else(String::new, |rx| format!("rx = \"{rx}\"\n"));
        format!(
            "[latency]\ntx = \"{tx}\"\n{rx}size = \"{}\"\nburst = {}\nbusy_poll = {}\nring = {}\n\
             sweep = {}\n",
            self.size, self.burst, self.busy_poll, self.ring, self.sweep
        )
    }
}

fn name_of(end: &Option<End>) -> String {
    end.as_ref().map(ToString::to_string).unwrap_or_default()
}

fn to_json(value: &impl serde::Serialize) -> Result<serde_json::Value, Failure> {
    serde_json::to_value(value)
        .map_err(|error| Failure::Running(format!("cannot write the report: {error}")))
}

/// What a trial must keep to, however many frames were lost.
fn check(report: &mut Report, outcome: &TrialOutcome) {
    let stream = &outcome.received.stream;
    report.set_invariant(
        crate::measure::report::FRAMES_CONSERVED,
        stream.received <= outcome.sent.sent,
    );
    report.set_invariant("content_verified", stream.content_errors == 0);
}

/// Says where the lost frames are.
fn note_losses(report: &mut Report, losses: &Losses) -> Result<(), Failure> {
    report.extra.insert("losses".to_owned(), to_json(losses)?);
    let lost = losses.iter().filter(|(.., frames)| *frames > 0);
    report.notes.extend(
        lost.map(|(name, says, frames)| format!("lost {}: {name}, {says}", show_count(frames))),
    );
    Ok(())
}

/// What the latency goes by.
fn timestamps_note(bench: &Bench) -> Option<String> {
    let (stamps, reason) = bench.stamps();
    let by = match stamps {
        RxStamps::Off => "software, when the receiver read the frame".to_owned(),
        RxStamps::Xdp => "xdp, when the frame had arrived in the kernel".to_owned(),
        RxStamps::Hardware => format!("hardware, by {}", bench.device_clock()?),
    };
    let reason = reason.map_or_else(String::new, |reason| format!(" (none of hardware: {reason})"));
    Some(format!("time stamps: {by}{reason}"))
}

impl From<BenchError> for Failure {
    fn from(error: BenchError) -> Self {
        let text = error.to_string();
        match error {
            BenchError::Port(PortError::NoInterface { .. } | PortError::NoQueue { .. })
            | BenchError::Port(PortError::DefaultRoute { .. } | PortError::Rings { .. })
            | BenchError::Frame { .. } => Self::Usage(text),
            BenchError::NoStamps { .. } => Self::HostLacks(text),
            BenchError::Port(_) => Self::HostLacks(format!("{text} (see `tailwater doctor`)")),
            BenchError::System { .. } | BenchError::SenderGone => Self::Running(text),
            BenchError::Interrupted => Self::Interrupted,
        }
    }
}
