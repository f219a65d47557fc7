//! Histograms, the run directory and the report.

pub mod draw;
pub mod histogram;
pub mod report;

pub use draw::Style;
pub use histogram::{HgrmUnit, LatencyHistogram, Percentiles};
pub use report::Report;
