//! `tailwater report DIR`: renders a run directory again.

use std::io::IsTerminal as _;
use std::path::PathBuf;

use clap::Args;

use super::Failure;
use super::outcome::print;
use crate::measure::draw::draw;
use crate::measure::{RunDir, Style};

/// Arguments of `tailwater report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The run directory
    dir: PathBuf,
    /// Print report.json as it is
    #[arg(long)]
    json: bool,
    /// Do not name the files that were written
    #[arg(long)]
    quiet: bool,
}

impl ReportArgs {
    /// Prints the report of the run and writes `report.html` again.
    ///
    /// # Errors
    /// [`Failure::Usage`] when there is no report, [`Failure::Running`] when a file does not read.
    pub fn run(&self) -> Result<(), Failure> {
        let run = RunDir::open(&self.dir)?;
        let report = run.report()?;
        if self.json {
            print(&report.to_json())?;
        } else {
            let style = Style::detect(std::io::stdout().is_terminal());
            print(&report.render_text(style))?;
            for (name, histogram) in run.histograms()? {
                if !histogram.is_empty() {
                    print(&format!("\n{}", draw(&name, &histogram, style)))?;
                }
            }
        }
        run.write_html(&report)?;
        if !self.quiet {
            eprintln!("wrote {}", run.path().join("report.html").display());
        }
        Ok(())
    }
}
