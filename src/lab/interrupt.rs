//! SIGINT, SIGTERM and SIGHUP as a flag that run loops look at.
//!
//! The first signal sets the flag, so that the run ends, reports and removes what it made. A second
//! one removes the network at once and ends the process with 130.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::netns::LabGuard;
use crate::cli::Failure;

static STOP: AtomicBool = AtomicBool::new(false);
static INSTALLED: OnceLock<Result<(), String>> = OnceLock::new();

/// Installs the handler, once for the process, and gives the flag.
///
/// # Errors
/// When the kernel refuses the handler.
pub fn install() -> Result<&'static AtomicBool, Failure> {
    let installed = INSTALLED.get_or_init(|| {
        ctrlc::set_handler(|| {
            if STOP.swap(true, Ordering::SeqCst) {
                LabGuard::clear_own();
                std::process::exit(130);
            }
        })
        .map_err(|error| error.to_string())
    });
    match installed {
        Ok(()) => Ok(&STOP),
        Err(error) => Err(Failure::Running(format!("cannot catch signals: {error}"))),
    }
}

/// Whether a signal has asked the process to end.
pub fn requested() -> bool {
    STOP.load(Ordering::SeqCst)
}

/// Asks the process to end, as a signal does: for `lab down` by the control socket.
pub fn request() {
    STOP.store(true, Ordering::SeqCst);
}
