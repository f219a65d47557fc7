//! Removing what a lab made, on every way out.

use std::path::Path;

use super::ip;
use super::state::{LabState, Liveness};
use crate::cli::Failure;

/// Holds a lab's network; dropping it (at the end, on an error, while a panic unwinds) removes the
/// network and the state file. A process that is killed leaves the state file for
/// [`clear_leftover`].
#[derive(Debug)]
pub struct LabGuard {
    state: LabState,
    cleared: bool,
}

impl LabGuard {
    pub(super) fn begin(state: LabState) -> Result<Self, Failure> {
        state.create()?;
        Ok(Self { state, cleared: false })
    }

    /// What it holds.
    pub const fn state(&self) -> &LabState {
        &self.state
    }

    /// Removes everything and says what could not be removed.
    ///
    /// # Errors
    /// When something stays; the state file then stays too, for `tailwater lab down`.
    pub fn clear(mut self) -> Result<(), Failure> {
        self.cleared = true;
        clear(&self.state)
    }

    /// Removes what this process holds, whoever holds the guards: for a second interrupt.
    pub fn clear_own() {
        let pid = std::process::id();
        for name in LabState::all() {
            if let Ok(Liveness::Running(state)) = LabState::look_up(&name)
                && state.pid == pid
            {
                let _ = clear(&state);
            }
        }
    }
}

impl Drop for LabGuard {
    fn drop(&mut self) {
        if !self.cleared {
            // Nobody is left to be told; what stays, stays in the state file.
            let _ = clear(&self.state);
        }
    }
}

/// Removes what a run of `name` that no longer lives left. Gives a message when there was anything.
///
/// # Errors
/// When a lab of that name runs, or something cannot be removed.
pub fn clear_leftover(name: &str) -> Result<Option<String>, Failure> {
    match LabState::look_up(name)? {
        Liveness::Absent => Ok(None),
        Liveness::Running(state) => Err(runs_already(&state)),
        Liveness::Stale(state) => {
            clear(&state)?;
            Ok(Some(format!(
                "removed what an earlier run of {name} (pid {}) left: {} namespaces, {} interfaces",
                state.pid,
                state.namespaces.len(),
                state.links.len()
            )))
        }
    }
}

/// That no second lab of the name can be made.
pub(super) fn runs_already(LabState { name, pid, .. }: &LabState) -> Failure {
    Failure::Running(format!(
        "a lab called {name} runs (pid {pid}): end it with `tailwater lab down {name}`, or give \
         this one another name"
    ))
}

fn exists(namespace: &str) -> bool {
    Path::new("/run/netns").join(namespace).exists()
}

/// Interfaces first: a namespace that a program still runs in outlives its name.
fn clear(state: &LabState) -> Result<(), Failure> {
    let cannot = |error| Failure::Running(format!("cannot run `ip` to remove the lab: {error}"));
    for namespace in state.namespaces.iter().filter(|name| exists(name)) {
        let links = state.links.iter().filter(|(at, _)| at == namespace);
        let lines: String = links.map(|(_, link)| format!("link del {link}\n")).collect();
        if !lines.is_empty() {
            ip::batch_all(Some(namespace), &lines).map_err(cannot)?;
        }
    }
    let present = state.namespaces.iter().filter(|name| exists(name));
    let lines: String = present.map(|name| format!("netns del {name}\n")).collect();
    if !lines.is_empty() {
        ip::batch_all(None, &lines).map_err(cannot)?;
    }
    let left: Vec<&str> =
        state.namespaces.iter().filter(|name| exists(name)).map(String::as_str).collect();
    if !left.is_empty() {
        return Err(Failure::Running(format!(
            "cannot remove the namespaces {}; try `ip netns del` on each",
            left.join(", ")
        )));
    }
    let socket = Path::new(super::RUN_DIR).join(format!("{}.sock", state.name));
    for path in [socket, LabState::path_of(&state.name)] {
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Failure::Running(format!("cannot remove {}: {error}", path.display())));
            }
            _ => {}
        }
    }
    Ok(())
}
