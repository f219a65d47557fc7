//! What a lab has made, on disk, so that a run that was killed can be cleared.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cli::Failure;

/// Where state files and control sockets of running instances live.
pub const RUN_DIR: &str = "/run/tailwater";

/// The state file `/run/tailwater/NAME.json` of one lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabState {
    /// The lab's name.
    pub name: String,
    /// The process that runs it.
    pub pid: u32,
    /// When that process started, in clock ticks since boot: with the pid, unique until reboot.
    pub start_ticks: u64,
    /// The namespaces it makes.
    pub namespaces: Vec<String>,
    /// The interfaces it makes, each as namespace and name.
    pub links: Vec<(String, String)>,
}

/// Whether the process of a state file still runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// There is no state file.
    Absent,
    /// The process runs.
    Running(LabState),
    /// It does not: pid and start time do not match.
    Stale(LabState),
}

impl LabState {
    /// The state of a lab that this process is about to make.
    ///
    /// # Errors
    /// When `/proc` does not say when this process started.
    pub fn of_this_process(
        name: &str,
        namespaces: Vec<String>,
        links: Vec<(String, String)>,
    ) -> Result<Self, Failure> {
        let pid = std::process::id();
        let start_ticks = start_ticks(pid).ok_or_else(|| {
            Failure::HostLacks("cannot read /proc/self/stat: is /proc mounted?".to_owned())
        })?;
        Ok(Self { name: name.to_owned(), pid, start_ticks, namespaces, links })
    }

    /// The state file of the lab called `name`.
    pub fn path_of(name: &str) -> PathBuf {
        Path::new(RUN_DIR).join(format!("{name}.json"))
    }

    /// Reads the state of the lab called `name` and looks whether its process runs.
    ///
    /// # Errors
    /// When the file cannot be read, or is not a state file.
    pub fn look_up(name: &str) -> Result<Liveness, Failure> {
        let path = Self::path_of(name);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Liveness::Absent),
            Err(error) => {
                return Err(Failure::Running(format!("cannot read {}: {error}", path.display())));
            }
        };
        let state: Self = serde_json::from_str(&text).map_err(|error| {
            Failure::Running(format!(
                "{} is damaged ({error}); remove the namespaces tw-{name}-* with `ip netns del`, \
                 and then this file",
                path.display()
            ))
        })?;
        let runs = start_ticks(state.pid) == Some(state.start_ticks);
        Ok(if runs { Liveness::Running(state) } else { Liveness::Stale(state) })
    }

    /// Every lab that has a state file, by name.
    pub fn all() -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(RUN_DIR) else { return Vec::new() };
        let mut names: Vec<String> = entries
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                name.strip_suffix(".json").map(str::to_owned)
            })
            .collect();
        names.sort();
        names
    }

    /// Writes the state file; there must be none.
    pub(super) fn create(&self) -> Result<(), Failure> {
        let path = Self::path_of(&self.name);
        let written = std::fs::create_dir_all(RUN_DIR).and_then(|()| {
            let file = std::fs::File::create_new(&path)?;
            serde_json::to_writer(&file, self).map_err(io::Error::from)?;
            file.sync_all()
        });
        written
            .map_err(|error| Failure::Running(format!("cannot write {}: {error}", path.display())))
    }
}

/// When a process started, in clock ticks since boot (field 22 of `/proc/PID/stat`); None when it
/// does not run, which a process that has ended and was not yet waited for does not either.
pub fn start_ticks(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold spaces and parentheses itself.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next()?;
    // The state is field 3, so the start time is the 19th behind it.
    if matches!(state, "Z" | "X") { None } else { fields.nth(18)?.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_runs_and_has_a_start_time() {
        let ticks = start_ticks(std::process::id()).expect("this process runs");
        assert!(ticks > 0);
        assert_eq!(start_ticks(u32::MAX), None);
    }

    #[test]
    fn no_file_is_no_lab() {
        assert_eq!(LabState::look_up("no-such-lab"), Ok(Liveness::Absent));
    }
}
