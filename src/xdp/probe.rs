//! A real try of AF_XDP: two ports on a veth pair in a namespace without a name, which is gone when
//! the probe ends.

use std::io;
use std::process::{Command, Stdio};

use super::clock::monotonic_ns;
use super::netns::{self, NetNs};
use super::plan::PortConfig;
use super::port::Port;
use super::program::XdpMode;
use super::socket::RingSizes;
use super::store::{ChunkSize, UmemStore};
use crate::frame::{Frame, FrameStore as _};

/// What AF_XDP does on this machine's veth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Where the program was attached.
    pub mode: XdpMode,
    /// Whether the UMEM lay in reserved huge pages.
    pub huge_pages: bool,
    /// Whether a frame of 8,042 bytes crossed as a chain of descriptors.
    pub jumbo: bool,
    /// Frames that crossed, all of them intact.
    pub frames: u32,
}

/// Which step of the probe failed.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {source}")]
pub struct ProbeError {
    /// What was being done.
    pub step: &'static str,
    /// What came of it.
    pub source: io::Error,
}

const SMALL_FRAMES: u32 = 100;
const JUMBO_BYTES: u32 = 8_042;
const PATIENCE_NS: u64 = 2_000_000_000;

/// Sends frames over a throw-away veth pair. Needs the `ip` command and the capabilities of
/// [`TO_OPEN_PORTS`](super::privileges::TO_OPEN_PORTS).
///
/// # Errors
/// [`ProbeError`] with the step that failed.
pub fn probe() -> Result<Probe, ProbeError> {
    // Everything lives in a namespace that has no name: nothing can be left behind.
    netns::run_in_new(|| Ok(probe_here()))
        .map_err(|source| ProbeError { step: "making a network namespace", source })?
}

fn at<T>(step: &'static str, result: io::Result<T>) -> Result<T, ProbeError> {
    result.map_err(|source| ProbeError { step, source })
}

fn probe_here() -> Result<Probe, ProbeError> {
    let step = "making a veth pair";
    at(
        step,
        ip(&["link", "add", "tw-p0", "mtu", "9000", "type", "veth", "peer", "name", "tw-p1"]),
    )?;
    at(step, ip(&["link", "set", "tw-p1", "mtu", "9000"]))?;
    for end in ["tw-p0", "tw-p1"] {
        at(step, ip(&["link", "set", end, "up"]))?;
    }
    let mut store = at("getting memory for a UMEM", UmemStore::new(ChunkSize::Bytes4096, 1_024))?;
    let mut open = |end: &str| {
        let mut config = PortConfig::new(NetNs::Current, end);
        config.rings = RingSizes::of(128);
        at("opening AF_XDP", Port::open(&mut store, config).map_err(io::Error::other))
    };
    let (mut from, mut to) = (open("tw-p0")?, open("tw-p1")?);
    let crossed =
        at("sending and receiving", cross(&mut store, &mut from, &mut to, SMALL_FRAMES, 64))
            .map(|()| cross(&mut store, &mut from, &mut to, 1, JUMBO_BYTES).is_ok());
    let mode = from.xdp_mode().unwrap_or(XdpMode::Generic);
    from.close(&mut store);
    to.close(&mut store);
    let jumbo = crossed?;
    let huge_pages = store.has_huge_pages();
    Ok(Probe { mode, huge_pages, jumbo, frames: SMALL_FRAMES + u32::from(jumbo) })
}

/// Sends `count` frames of `len` bytes and waits until all have come, intact and in order.
fn cross(
    store: &mut UmemStore,
    from: &mut Port,
    to: &mut Port,
    count: u32,
    len: u32,
) -> io::Result<()> {
    let full = || io::Error::other("the UMEM or the TX ring is too small");
    for number in 0..count {
        let frame = store.allocate_from(&content(number, len)).ok_or_else(full)?;
        if let Err((frame, refused)) = from.tx_push(store, frame) {
            store.release(frame);
            return Err(io::Error::other(refused.name()));
        }
    }
    let deadline = monotonic_ns() + PATIENCE_NS;
    let mut got: Vec<Frame> = Vec::new();
    while got.len() < count as usize && monotonic_ns() < deadline {
        from.kick();
        to.rx_burst(store, &mut got, 64);
        from.reap(store);
    }
    let mut intact = 0;
    for (number, frame) in (0..).zip(got) {
        let mut bytes = Vec::new();
        store.copy_out(&frame, &mut bytes);
        store.release(frame);
        intact += u32::from(bytes == content(number, len));
    }
    if intact == count {
        return Ok(());
    }
    Err(io::Error::other(format!("{intact} of {count} frames of {len} bytes arrived intact")))
}

/// Locally administered addresses, the EtherType for experiments, and bytes that differ.
fn content(number: u32, len: u32) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];
    bytes.extend((14..len).map(|i| (i.wrapping_mul(7) ^ number).to_le_bytes()[0]));
    bytes
}

fn ip(arguments: &[&str]) -> io::Result<()> {
    let output = Command::new("ip").args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| {
        io::Error::new(error.kind(), format!("cannot run `ip` (apt-get install iproute2): {error}"))
    })?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("`ip {}`: {}", arguments.join(" "), text.trim())))
}
