//! Histograms, the run directory and the report.
