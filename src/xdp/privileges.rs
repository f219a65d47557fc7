//! Giving up what is no longer needed.
//!
//! Capabilities belong to threads: the workers drop all of them once their ports are open, and the
//! control thread keeps those that opening a port again takes.

use std::io;

use caps::{CapSet, Capability, CapsHashSet};

/// What opening a port takes: entering its namespace, binding, attaching the program.
pub const TO_OPEN_PORTS: [Capability; 4] = [
    Capability::CAP_SYS_ADMIN,
    Capability::CAP_NET_ADMIN,
    Capability::CAP_NET_RAW,
    Capability::CAP_BPF,
];

/// From here on no program that this thread or a thread made by it executes gains a privilege by
/// its file's mode or capabilities. Called before the workers are made.
///
/// # Errors
/// Never on Linux 3.5 or later.
pub fn forbid_new_privileges() -> io::Result<()> {
    nix::sys::prctl::set_no_new_privs().map_err(io::Error::from)
}

/// Drops every capability of the calling thread, for good.
///
/// # Errors
/// When the kernel refuses.
pub fn drop_all() -> io::Result<()> {
    keep(&[])
}

/// Keeps of the calling thread's capabilities those in `wanted`, and drops the others for good.
///
/// # Errors
/// When the kernel refuses.
pub fn keep(wanted: &[Capability]) -> io::Result<()> {
    let have = caps::read(None, CapSet::Permitted).map_err(io::Error::other)?;
    let kept: CapsHashSet = wanted.iter().copied().filter(|one| have.contains(one)).collect();
    for set in [CapSet::Ambient, CapSet::Inheritable] {
        caps::clear(None, set).map_err(io::Error::other)?;
    }
    // A capability must be out of the effective set before it leaves the permitted one.
    for set in [CapSet::Effective, CapSet::Permitted] {
        caps::set(None, set, &kept).map_err(io::Error::other)?;
    }
    Ok(())
}

/// Which of [`TO_OPEN_PORTS`] the calling thread lacks.
pub fn missing() -> Vec<Capability> {
    let have = caps::read(None, CapSet::Effective).unwrap_or_default();
    TO_OPEN_PORTS.into_iter().filter(|one| !have.contains(one)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_drops_its_own_capabilities_and_nobody_elses() {
        let before = missing();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                keep(&[Capability::CAP_BPF]).expect("always allowed");
                let lost = missing();
                assert!(lost.len() >= 3);
                drop_all().expect("always allowed");
                assert_eq!(missing(), TO_OPEN_PORTS);
                assert!(keep(&TO_OPEN_PORTS).is_ok());
                assert_eq!(missing(), TO_OPEN_PORTS, "none comes back");
            });
        });
        assert_eq!(missing(), before);
    }
}
