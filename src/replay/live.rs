//! Sending a capture on an interface at planned times, from memory.

use std::collections::BTreeMap;

use super::preload::Preloaded;
use super::{Pacer, Speed};
use crate::frame::{Frame, FrameStore as _};
use crate::line::{ETHERNET_OVERHEAD_BYTES, FRAME_BYTES_MIN};
use crate::measure::LatencyHistogram;
use crate::time::{Duration, Time};
use crate::xdp::{Clock, Port, TxRefused, UmemStore};

/// Frames pushed between two kicks when sending is behind its plan.
const BATCH: u32 = 32;
/// How long a frame waits for room in the TX ring or the UMEM before it is counted as failed.
const STUCK: Duration = Duration::from_secs(1);
/// The first record is sent this long after the run starts.
const LEAD: Duration = Duration::from_ms(1);
/// Waits longer than this sleep; shorter ones spin, since a sleep ends late.
const SPIN: Duration = Duration::from_us(200);

/// What was sent.
#[derive(Debug, Default)]
pub struct Sending {
    /// Records to send, over all loops; those without a byte included.
    pub records: u64,
    /// Handed to the kernel.
    pub sent: u64,
    /// Not sent, by reason.
    pub failed: BTreeMap<&'static str, u64>,
    /// How much later than planned each was handed over.
    pub lateness: LatencyHistogram,
    /// By how much each gap between two frames differed from the planned one.
    pub gap_error: LatencyHistogram,
    /// From the first to the last.
    pub took: Duration,
    /// The run was ended by a signal.
    pub interrupted: bool,
}

/// Sends `capture` on `port` `loops` times.
pub fn send(
    capture: &Preloaded,
    port: &mut Port,
    store: &mut UmemStore,
    speed: Speed,
    loops: u64,
    mut interrupted: impl FnMut() -> bool,
) -> Sending {
    let mut sending = Sending::default();
    let mut pacer = Pacer::new(speed);
    let clock = Clock::start(1);
    let start = clock.now() + LEAD;
    let mut last: Option<(Time, Time)> = None;
    let mut unkicked = 0;
    'run: for round in 0..loops {
        if round > 0 {
            pacer.next_loop();
        }
        if capture.zero_length() > 0 {
            sending.records += capture.zero_length();
            *sending.failed.entry("zero_length").or_default() += capture.zero_length();
        }
        for (at, bytes) in capture.records() {
            let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            let wire = u64::from(len.max(FRAME_BYTES_MIN)) + u64::from(ETHERNET_OVERHEAD_BYTES);
            let planned = start + pacer.plan(at, wire).since(Time::ZERO);
            if clock.now() < planned || unkicked >= BATCH {
                port.kick();
                unkicked = 0;
            }
            if !wait(&clock, planned, port, store, &mut interrupted) {
                sending.interrupted = true;
                break 'run;
            }
            sending.records += 1;
            match push(&clock, bytes, port, store) {
                Ok(()) => {
                    unkicked += 1;
                    let now = clock.now();
                    sending.sent += 1;
                    sending.lateness.record(now.since(planned));
                    if let Some((then, planned_then)) = last {
                        let (gap, want) = (now.since(then), planned.since(planned_then));
                        sending.gap_error.record((gap - want) + (want - gap));
                    }
                    last = Some((now, planned));
                    sending.took = now.since(start);
                }
                Err(reason) => *sending.failed.entry(reason).or_default() += 1,
            }
        }
    }
    let deadline = clock.now() + STUCK;
    loop {
        port.kick();
        port.reap(store);
        if !port.has_tx_pending() || clock.now() >= deadline {
            break;
        }
    }
    sending
}

/// Waits for `until`; false when the run is to end.
fn wait(
    clock: &Clock,
    until: Time,
    port: &mut Port,
    store: &mut UmemStore,
    interrupted: &mut impl FnMut() -> bool,
) -> bool {
    loop {
        if interrupted() {
            return false;
        }
        let now = clock.now();
        if now >= until {
            return true;
        }
        if port.has_tx_pending() {
            port.kick();
        }
        port.reap(store);
        let left = until.since(now);
        if left > SPIN {
            // At most 20 ms, so that a signal is seen soon.
            sleep((left - SPIN).min(Duration::from_ms(20)));
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "a live sender waits for the OS clock")]
fn sleep(span: Duration) {
    std::thread::sleep(span.to_std());
}

/// Hands one frame over, waiting for room as long as the kernel makes some.
fn push(
    clock: &Clock,
    bytes: &[u8],
    port: &mut Port,
    store: &mut UmemStore,
) -> Result<(), &'static str> {
    let deadline = clock.now() + STUCK;
    let make_room = |port: &mut Port, store: &mut UmemStore| {
        port.kick();
        port.reap(store);
        clock.now() < deadline
    };
    let mut frame: Frame = loop {
        if let Some(frame) = store.allocate_from(bytes) {
            break frame;
        }
        if !make_room(port, store) {
            return Err("store_full");
        }
    };
    loop {
        match port.tx_push(store, frame) {
            Ok(()) => return Ok(()),
            Err((back, TxRefused::RingFull)) => {
                frame = back;
                if !make_room(port, store) {
                    store.release(frame);
                    return Err(TxRefused::RingFull.name());
                }
            }
            Err((back, refused)) => {
                store.release(back);
                return Err(refused.name());
            }
        }
    }
}
