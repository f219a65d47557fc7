//! Doing things inside a network namespace.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::PathBuf;

use nix::sched::{CloneFlags, setns, unshare};

/// A network namespace, by how to find it. Found anew each time, so that holding one of these keeps
/// no namespace alive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NetNs {
    /// That of the calling thread.
    #[default]
    Current,
    /// One that `ip netns` knows, under `/run/netns`.
    Named(String),
    /// A namespace file, such as `/proc/PID/ns/net` of a container.
    Path(PathBuf),
}

impl fmt::Display for NetNs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Current => f.write_str("the current namespace"),
            Self::Named(name) => write!(f, "namespace {name}"),
            Self::Path(path) => write!(f, "namespace {}", path.display()),
        }
    }
}

impl NetNs {
    /// Runs `work` on a thread inside the namespace, and waits for it.
    ///
    /// # Errors
    /// When there is no such namespace or the caller may not enter it (`CAP_SYS_ADMIN`).
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        let path = match self {
            Self::Current => return Ok(work()),
            Self::Named(name) => PathBuf::from("/run/netns").join(name),
            Self::Path(path) => path.clone(),
        };
        let file = File::open(&path).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot open {}: {error}", path.display()))
        })?;
        on_thread(move || {
            setns(&file, CloneFlags::CLONE_NEWNET)?;
            Ok(work())
        })
    }
}

/// Runs `work` on a thread inside a new network namespace, which lives as long as what `work` opens
/// there.
pub(crate) fn run_in_new<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    on_thread(move || {
        unshare(CloneFlags::CLONE_NEWNET)?;
        work()
    })
}

fn on_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread =
            std::thread::Builder::new().name("netns".to_owned()).spawn_scoped(scope, work)?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
