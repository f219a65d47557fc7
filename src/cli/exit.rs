//! The contract's exit codes, each with what the user is told.

use std::fmt;
use std::process::ExitCode;

/// Why a command did not end with 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// 1: failed while running.
    Running(String),
    /// 2: usage: a flag or a file that cannot be understood, with the place in it.
    Usage(String),
    /// 3: an expectation or a built-in invariant did not hold.
    NotHeld(String),
    /// 4: this host lacks something; says what and the command that mends it.
    HostLacks(String),
    /// 130: interrupted, everything cleaned up.
    Interrupted,
}

impl Failure {
    /// The process's exit code.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Running(_) => 1,
            Self::Usage(_) => 2,
            Self::NotHeld(_) => 3,
            Self::HostLacks(_) => 4,
            Self::Interrupted => 130,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running(text)
            | Self::Usage(text)
            | Self::NotHeld(text)
            | Self::HostLacks(text) => f.write_str(text),
            Self::Interrupted => f.write_str("interrupted; everything is cleaned up"),
        }
    }
}

impl std::error::Error for Failure {}
