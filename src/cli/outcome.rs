//! How every command that makes a run ends: its result on stdout, and the exit code that says
//! whether it held.

use std::io::{self, IsTerminal as _, Write as _};

use super::Failure;
use crate::measure::draw::draw;
use crate::measure::{LatencyHistogram, Report, RunDir, RunDirError, Style};

/// What a command's flags say about its result.
#[derive(Clone, Copy, Debug, Default)]
pub struct OutputFlags {
    /// One JSON document on stdout, nothing else there.
    pub json: bool,
    /// No messages but errors.
    pub quiet: bool,
}

/// Prints a run's result: the report as JSON, or tables and the latency histogram as text. Then
/// says on stderr where the run directory lies.
///
/// # Errors
/// [`Failure::Interrupted`] when the run was, [`Failure::NotHeld`] when an invariant or an
/// expectation did not hold.
pub fn finish(
    report: &Report,
    latency: Option<&LatencyHistogram>,
    run_dir: Option<&RunDir>,
    flags: OutputFlags,
) -> Result<(), Failure> {
    if flags.json {
        print(&report.to_json())?;
    } else {
        let style = Style::detect(io::stdout().is_terminal());
        if let Some(histogram) = latency.filter(|histogram| !histogram.is_empty()) {
            print(&draw("latency", histogram, style))?;
            print("\n")?;
        }
        print(&report.render_text(style))?;
    }
    if let Some(dir) = run_dir.filter(|_| !flags.quiet) {
        eprintln!("report: {}", dir.path().join("report.html").display());
    }
    if report.interrupted {
        return Err(Failure::Interrupted);
    }
    if report.all_held() {
        return Ok(());
    }
    let failed = report
        .invariants
        .iter()
        .filter(|(_, held)| !**held)
        .map(|(name, _)| name.as_str())
        .chain(report.expectations.iter().filter(|e| !e.held).map(|e| e.expr.as_str()));
    Err(Failure::NotHeld(format!("did not hold: {}", failed.collect::<Vec<_>>().join(", "))))
}

/// Writes data to stdout. A reader that has seen enough (`| head`) is no failure.
///
/// # Errors
/// [`Failure::Running`] with what stdout said.
pub fn print(text: &str) -> Result<(), Failure> {
    print_while_read(text).map(|_| ())
}

/// The same for what goes on and on: gives false when nobody reads any more.
///
/// # Errors
/// As [`print()`].
pub fn print_while_read(text: &str) -> Result<bool, Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::Running(format!("cannot write to stdout: {error}"))),
    }
}

impl From<RunDirError> for Failure {
    fn from(error: RunDirError) -> Self {
        match error {
            RunDirError::NotARun(_) | RunDirError::NoReport(_) => Self::Usage(error.to_string()),
            RunDirError::Io { .. } | RunDirError::Damaged { .. } => {
                Self::Running(error.to_string())
            }
        }
    }
}
