//! Histograms, the run directory and the report.

pub mod draw;
pub mod histogram;
mod html;
pub mod latency;
pub mod plot;
pub mod progress;
pub mod report;
pub mod run_dir;
pub mod series;

pub use draw::Style;
pub use histogram::{HgrmUnit, LatencyHistogram, Percentiles};
pub use progress::Progress;
pub use report::Report;
pub use run_dir::{RunDir, RunDirError};
pub use series::{PortSample, SeriesWriter};
