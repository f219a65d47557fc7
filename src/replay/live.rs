//! Sending a capture on an interface at planned times, from memory.
//!
//! When the machine has kept the sender from its core, the capture runs at twice its speed until
//! it is on its plan again, see [`CatchUp`]: lateness counts from the plan all the same. What the
//! interface cannot take as fast as it is planned falls behind, and is sent as fast as it can.

use std::collections::BTreeMap;

use super::preload::Preloaded;
use super::{Pacer, Speed};
use crate::catch_up::CatchUp;
use crate::frame::{Frame, FrameStore as _};
use crate::line::{ETHERNET_OVERHEAD_BYTES, FRAME_BYTES_MIN};
use crate::measure::LatencyHistogram;
use crate::time::{Duration, Time};
use crate::xdp::{Clock, LinkState, Port, TxRefused, UmemStore};

/// Frames pushed between two kicks when sending is behind its plan.
const BATCH: u32 = 32;
/// How long a frame waits for room in the TX ring or the UMEM before it is counted as failed.
const STUCK: Duration = Duration::from_secs(1);
/// The first record is sent this long after the run starts.
const LEAD: Duration = Duration::from_ms(1);
/// How often the interface and the signal are looked at.
const LOOK_EVERY: Duration = Duration::from_ms(5);
/// Waits longer than this sleep; shorter ones spin, since a sleep ends late.
const SPIN: Duration = Duration::from_us(200);

/// What was sent.
#[derive(Debug, Default)]
pub struct Sending {
    /// Records to send, over all loops; those without a byte included. Each was sent or is in `failed`.
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
    /// The run was ended by a signal; what was left is in `failed` as `interrupted`.
    pub interrupted: bool,
    /// The interface went away; what was left is in `failed` as `interface_vanished`.
    pub vanished: bool,
}

/// Looks at what goes on beside the sending: the interface, a signal, the progress bar.
struct Lookout<'a> {
    /// Told how many records are done; answers whether to go on.
    watch: &'a mut dyn FnMut(u64) -> bool,
    next_look: Time,
    vanished: bool,
}

impl Lookout<'_> {
    /// False when the run is to end. Looks only now and then, unless a wait is ahead.
    fn look(&mut self, now: Time, done: u64, port: &mut Port, store: &mut UmemStore) -> bool {
        if now < self.next_look {
            return true;
        }
        self.next_look = now + LOOK_EVERY;
        self.vanished |= port.poll_state(store).interface.link == LinkState::Vanished;
        !self.vanished && (self.watch)(done)
    }
}

/// Sends `capture` on `port` `loops` times. `watch` is told every some milliseconds how many records
/// are done, and answers whether to go on.
pub fn send(
    capture: &Preloaded,
    port: &mut Port,
    store: &mut UmemStore,
    speed: Speed,
    loops: u64,
    watch: &mut dyn FnMut(u64) -> bool,
) -> Sending {
    let each = capture.len() as u64 + capture.zero_length();
    let mut sending = Sending { records: each.saturating_mul(loops), ..Sending::default() };
    let mut lookout = Lookout { watch, next_look: Time::ZERO, vanished: false };
    let mut done = 0;
    let mut pacer = Pacer::new(speed);
    let clock = Clock::start(1);
    let start = clock.now() + LEAD;
    let mut last: Option<(Time, Time)> = None;
    let mut catch_up = CatchUp::default();
    let mut unkicked = 0;
    'run: for round in 0..loops {
        if round > 0 {
            pacer.next_loop();
        }
        if capture.zero_length() > 0 {
            done += capture.zero_length();
            *sending.failed.entry("zero_length").or_default() += capture.zero_length();
        }
        for (at, bytes) in capture.records() {
            let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            let wire = u64::from(len.max(FRAME_BYTES_MIN)) + u64::from(ETHERNET_OVERHEAD_BYTES);
            let planned = start + pacer.plan(at, wire).since(Time::ZERO);
            let due = planned.max(catch_up.not_before(planned));
            if clock.now() < due || unkicked >= BATCH {
                port.kick();
                unkicked = 0;
            }
            if !wait(&clock, due, done, port, store, &mut lookout) {
                sending.vanished = lookout.vanished;
                sending.interrupted = !lookout.vanished;
                break 'run;
            }
            done += 1;
            match push(&clock, bytes, port, store) {
                Ok(()) => {
                    unkicked += 1;
                    let now = clock.now();
                    sending.sent += 1;
                    catch_up.sent(now, planned, Time::ZERO, planned);
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
    let left = sending.records - done;
    if left > 0 {
        let why = if sending.vanished { "interface_vanished" } else { "interrupted" };
        *sending.failed.entry(why).or_default() += left;
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
    done: u64,
    port: &mut Port,
    store: &mut UmemStore,
    lookout: &mut Lookout<'_>,
) -> bool {
    loop {
        let now = clock.now();
        if !lookout.look(now, done, port, store) {
            return false;
        }
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
