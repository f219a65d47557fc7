//! The directory that a run writes: configuration, report, histograms, series, captures.
//!
//! ```text
//! config.toml       the effective configuration
//! report.json       the report
//! report.html       the same with charts, in one file without external resources
//! series.csv        queue depths and rates over time
//! histograms/       NAME.hgrm (microseconds) and NAME.v2 (base64) per histogram
//! captures/         pcapng, with --capture
//! ```

use std::cell::Cell;
use std::fs;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use super::histogram::{HgrmUnit, LatencyHistogram};
use super::html;
use super::report::Report;
use super::series::SeriesWriter;
use crate::lab::topology::natural;

/// A run directory that exists. Dropped before a result is in it, or before [`keep`](Self::keep) is
/// called, it takes with it what it has made: a run that never began leaves nothing.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    /// The directory itself was made for this run.
    is_new: bool,
    is_kept: Cell<bool>,
}

/// Why a run directory cannot be made, written or read.
#[derive(Debug, thiserror::Error)]
pub enum RunDirError {
    /// The file system refused.
    #[error("run directory: {}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// The chosen directory holds other things.
    #[error(
        "{} is not empty and holds no earlier run; choose another directory with --run-dir",
        .0.display()
    )]
    NotARun(PathBuf),
    /// There is no report to render.
    #[error("{} holds no report.json; is it a run directory?", .0.display())]
    NoReport(PathBuf),
    /// A file of the directory does not read.
    #[error("{}: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong in it.
        what: String,
    },
}

const CONFIG: &str = "config.toml";
const REPORT: &str = "report.json";
const HTML: &str = "report.html";
const SERIES: &str = "series.csv";
const HISTOGRAMS: &str = "histograms";
const CAPTURES: &str = "captures";

fn at(path: &Path) -> impl FnOnce(io::Error) -> RunDirError + '_ {
    |source| RunDirError::Io { path: path.to_owned(), source }
}

/// `name` as a part of a file name: letters, digits, `.`, `_` and `-` stay.
fn file_name(name: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
    let mut safe: String = name.chars().map(safe).collect();
    if safe.is_empty() || safe.starts_with('.') {
        safe.insert(0, '-');
    }
    safe
}

impl RunDir {
    /// Makes the directory of a run called `name`: `chosen` when the user chose one, else the first
    /// free `tailwater-run-NAME-N` in the working directory. What an earlier run left in a chosen
    /// directory is removed; a directory with other contents is refused.
    ///
    /// # Errors
    /// [`RunDirError::NotARun`], or what the file system says.
    pub fn create(name: &str, chosen: Option<&Path>) -> Result<Self, RunDirError> {
        let made = match chosen {
            Some(path) => Self::claim(path)?,
            None => Self::next_free(Path::new("."), name)?,
        };
        let histograms = made.path.join(HISTOGRAMS);
        fs::create_dir_all(&histograms).map_err(at(&histograms))?;
        Ok(made)
    }

    /// The first free `tailwater-run-NAME-N` in `parent`. Making it and finding it free are one
    /// step, so that two runs never share one.
    fn next_free(parent: &Path, name: &str) -> Result<Self, RunDirError> {
        let mut n = 1_u32;
        loop {
            let path = parent.join(format!("tailwater-run-{}-{n}", file_name(name)));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Self::new(path, true)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && n < u32::MAX => {
                    n += 1;
                }
                Err(error) => return Err(at(&path)(error)),
            }
        }
    }

    const fn new(path: PathBuf, is_new: bool) -> Self {
        Self { path, is_new, is_kept: Cell::new(false) }
    }

    fn claim(path: &Path) -> Result<Self, RunDirError> {
        let is_new = !path.exists();
        fs::create_dir_all(path).map_err(at(path))?;
        let empty = fs::read_dir(path).map_err(at(path))?.next().is_none();
        if !empty {
            if !path.join(REPORT).exists() && !path.join(CONFIG).exists() {
                return Err(RunDirError::NotARun(path.to_owned()));
            }
            for name in [CONFIG, REPORT, HTML, SERIES] {
                remove(&path.join(name), |path| fs::remove_file(path))?;
            }
            for name in [HISTOGRAMS, CAPTURES] {
                remove(&path.join(name), |path| fs::remove_dir_all(path))?;
            }
        }
        Ok(Self::new(path.to_owned(), is_new))
    }

    /// The run has begun: the directory stays, whatever comes of it.
    pub fn keep(&self) {
        self.is_kept.set(true);
    }

    /// The directory of an earlier run.
    ///
    /// # Errors
    /// [`RunDirError::NoReport`] when it holds none.
    pub fn open(path: &Path) -> Result<Self, RunDirError> {
        if path.join(REPORT).is_file() {
            let found = Self::new(path.to_owned(), false);
            found.keep();
            Ok(found)
        } else {
            Err(RunDirError::NoReport(path.to_owned()))
        }
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the effective configuration, TOML.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write_config(&self, toml: &str) -> Result<(), RunDirError> {
        self.write(CONFIG, toml.as_bytes())
    }

    /// Writes one histogram as `histograms/NAME.hgrm`, in microseconds, and `histograms/NAME.v2`.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write_histogram(
        &self,
        name: &str,
        histogram: &LatencyHistogram,
    ) -> Result<(), RunDirError> {
        self.keep();
        let stem = self.path.join(HISTOGRAMS).join(file_name(name));
        let hgrm = stem.with_added_extension("hgrm");
        let mut out = BufWriter::new(fs::File::create(&hgrm).map_err(at(&hgrm))?);
        histogram
            .write_hgrm(&mut out, HgrmUnit::Microseconds)
            .and_then(|()| out.flush())
            .map_err(at(&hgrm))?;
        let v2 = stem.with_added_extension("v2");
        fs::write(&v2, histogram.to_v2_base64() + "\n").map_err(at(&v2))
    }

    /// Starts `series.csv`.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn series(&self) -> Result<SeriesWriter<BufWriter<fs::File>>, RunDirError> {
        self.keep();
        let path = self.path.join(SERIES);
        let file = fs::File::create(&path).map_err(at(&path))?;
        SeriesWriter::new(BufWriter::new(file)).map_err(at(&path))
    }

    /// The place of captures, made when it is first asked for.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn captures(&self) -> Result<PathBuf, RunDirError> {
        let path = self.path.join(CAPTURES);
        fs::create_dir_all(&path).map_err(at(&path))?;
        Ok(path)
    }

    /// Writes `report.json`, then `report.html` from everything the directory holds; histograms
    /// and series come before it.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write_report(&self, report: &Report) -> Result<(), RunDirError> {
        self.keep();
        self.write(REPORT, report.to_json().as_bytes())?;
        self.write_html(report)
    }

    /// Writes `report.html` again.
    ///
    /// # Errors
    /// Those of the file system, or a file of the directory that does not read.
    pub fn write_html(&self, report: &Report) -> Result<(), RunDirError> {
        let histograms = self.histograms()?;
        let series = self.path.join(SERIES);
        let charts = if series.is_file() {
            super::series::read_charts(&series).map_err(at(&series))?
        } else {
            Vec::new()
        };
        self.write(HTML, html::page(report, &histograms, &charts).as_bytes())
    }

    /// Reads `report.json`.
    ///
    /// # Errors
    /// When it does not read, with line and column.
    pub fn report(&self) -> Result<Report, RunDirError> {
        let path = self.path.join(REPORT);
        let text = fs::read_to_string(&path).map_err(at(&path))?;
        Report::from_json(&text)
            .map_err(|error| RunDirError::Damaged { path, what: error.to_string() })
    }

    /// Every histogram of the directory with its name, by name.
    ///
    /// # Errors
    /// A file that does not read.
    pub fn histograms(&self) -> Result<Vec<(String, LatencyHistogram)>, RunDirError> {
        let dir = self.path.join(HISTOGRAMS);
        if !dir.is_dir() {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        for entry in fs::read_dir(&dir).map_err(at(&dir))? {
            let path = entry.map_err(at(&dir))?.path();
            let Some(name) = path.file_stem().and_then(|stem| stem.to_str()) else { continue };
            if path.extension().is_none_or(|extension| extension != "v2") {
                continue;
            }
            let text = fs::read_to_string(&path).map_err(at(&path))?;
            let histogram = LatencyHistogram::from_v2_base64(&text).map_err(|error| {
                RunDirError::Damaged { path: path.clone(), what: error.to_string() }
            })?;
            found.push((name.to_owned(), histogram));
        }
        found.sort_by(|a, b| natural(&a.0, &b.0));
        Ok(found)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), RunDirError> {
        let path = self.path.join(name);
        fs::write(&path, bytes).map_err(at(&path))
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        if self.is_kept.get() || std::thread::panicking() {
            return;
        }
        // Nobody is told: why the run did not begin is said already, and what stays is what was
        // there before.
        let _ = fs::remove_dir_all(self.path.join(CAPTURES));
        let _ = fs::remove_dir(self.path.join(HISTOGRAMS));
        // Beside the user's own files the configuration stays: by it the next run knows that the
        // directory is for runs.
        let others = fs::read_dir(&self.path).map_or(0, Iterator::count);
        if others <= 1 {
            let _ = fs::remove_file(self.path.join(CONFIG));
        }
        if self.is_new {
            let _ = fs::remove_dir(&self.path);
        }
    }
}

/// Removes what may be absent.
fn remove(path: &Path, how: impl Fn(&Path) -> io::Result<()>) -> Result<(), RunDirError> {
    match how(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(path)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::report::{Clock, Driver};
    use crate::measure::series::PortSample;
    use crate::time::Time;

    fn report() -> Report {
        Report::new("t", Driver::Sim, Clock::Virtual, 1)
    }

    #[test]
    fn the_default_directory_overwrites_nothing() {
        let parent = tempfile::tempdir().expect("a directory");
        let names: Vec<String> = (0..3)
            .map(|_| {
                let made = RunDir::next_free(parent.path(), "leaf spine").expect("made");
                made.keep();
                made.path().file_name().expect("a name").to_string_lossy().into_owned()
            })
            .collect();
        let expected = ["1", "2", "3"].map(|n| format!("tailwater-run-leaf-spine-{n}"));
        assert_eq!(names, expected);
    }

    #[test]
    fn a_chosen_directory_loses_an_earlier_run_but_nothing_else() {
        let parent = tempfile::tempdir().expect("a directory");
        let path = parent.path().join("out");
        let first = RunDir::create("t", Some(&path)).expect("made");
        first.write_histogram("old", &LatencyHistogram::new()).expect("written");
        first.write_report(&report()).expect("written");
        fs::write(path.join("notes.txt"), "mine").expect("written");
        let second = RunDir::create("t", Some(&path)).expect("claimed");
        assert!(second.histograms().expect("read").is_empty());
        assert!(!path.join(REPORT).exists() && path.join("notes.txt").exists());

        let other = parent.path().join("other");
        fs::create_dir(&other).expect("made");
        fs::write(other.join("thesis.tex"), "mine").expect("written");
        assert!(matches!(RunDir::create("t", Some(&other)), Err(RunDirError::NotARun(_))));
        assert!(matches!(RunDir::open(&other), Err(RunDirError::NoReport(_))));
    }

    #[test]
    fn a_run_that_never_began_leaves_nothing_of_its_own() {
        let parent = tempfile::tempdir().expect("a directory");
        let names = || {
            let entries = fs::read_dir(parent.path()).expect("read").flatten();
            let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
            names.sort();
            names
        };
        let path = parent.path().join("out");
        let begin = |path: &Path| {
            let run = RunDir::create("t", Some(path)).expect("made");
            run.write_config("name = \"t\"\n").expect("written");
            fs::write(run.captures().expect("made").join("x.pcapng"), "").expect("written");
            run
        };
        drop(begin(&path));
        assert!(names().is_empty());
        // A directory that was there stays, with what is not the run's.
        fs::create_dir(&path).expect("made");
        drop(begin(&path));
        assert_eq!(names(), ["out"]);
        begin(&path).keep();
        fs::write(path.join("notes.txt"), "mine").expect("written");
        drop(begin(&path));
        let left = fs::read_dir(&path).expect("read").flatten();
        let mut left: Vec<_> = left.map(|entry| entry.file_name()).collect();
        left.sort();
        assert_eq!(left, ["config.toml", "notes.txt"], "what is the user's own stays");
        // One that began stays, and so does one with a result.
        begin(&path).keep();
        assert!(path.join(CONFIG).exists());
        begin(&path).write_report(&report()).expect("written");
        assert!(path.join(REPORT).exists());
    }

    #[test]
    fn a_whole_run_reads_back_and_renders_alone() {
        let parent = tempfile::tempdir().expect("a directory");
        let run = RunDir::create("t", Some(&parent.path().join("run"))).expect("made");
        let mut histogram = LatencyHistogram::new();
        (1..=1_000).for_each(|us| histogram.record_ns(us * 1_000));
        run.write_config("name = \"t\"\n").expect("written");
        run.write_histogram("latency", &histogram).expect("written");
        run.write_histogram("stream/1", &histogram).expect("written");
        let mut series = run.series().expect("started");
        for ms in 0..50 {
            let sample = PortSample { queue_bytes: ms * 100, rx_bytes: 0, tx_bytes: ms * 1_000 };
            series.sample(Time::from_ns(ms * 1_000_000), "s1", "1", sample).expect("written");
        }
        series.finish().expect("flushed");
        let mut written = report();
        written.latency_ns = histogram.percentiles();
        run.write_report(&written).expect("written");

        let again = RunDir::open(run.path()).expect("a run");
        assert_eq!(again.report().expect("read"), written);
        let names: Vec<String> =
            again.histograms().expect("read").into_iter().map(|h| h.0).collect();
        assert_eq!(names, ["latency", "stream-1"]);
        let html = fs::read_to_string(run.path().join(HTML)).expect("read");
        assert_eq!(html.matches("<svg").count(), html.matches("</svg>").count());
        assert!(html.matches("<svg").count() >= 3, "latency, queue depth and rate");
        for external in ["src=", "href=", "@import", "url(", "<script"] {
            assert!(!html.contains(external), "{external} in a page that stands alone");
        }
        fs::write(run.path().join(HISTOGRAMS).join("latency.v2"), "rubbish").expect("written");
        let error = run.write_html(&written).expect_err("damaged").to_string();
        assert!(error.contains("latency.v2: not a base64 V2 histogram"), "{error}");
    }
}
