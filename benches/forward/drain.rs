//! The drain: the forwarder's RX ring is filled while it stands still, and the time counts that it
//! takes to forward everything. One thread does it all, so that nothing else is in the time.

use std::error::Error;

use tailwater::frame::Frame;
use tailwater::xdp::clock::monotonic_ns;

use crate::forwarder::{SwitchForwarder, forward_bare};
use crate::testbed::{BURST, Ends, HOST_ENDS, SWITCH_ENDS};

const FRAMES: u64 = 8_000;

/// Descriptors of the RX and TX rings, more than the frames.
const RING_ENTRIES: u32 = 8_192;

/// Tries until the kernel must have moved everything.
const ROUNDS_MAX: u32 = 1_000_000;

/// The same forwarder twice, and ours.
const NAMES: [&str; 3] = ["bare", "bare again", "switch"];

pub(crate) fn run(host: &str, switch: &str, repeats: usize) -> Result<(), Box<dyn Error>> {
    let mut ends = Ends::open(switch, SWITCH_ENDS, RING_ENTRIES)?;
    let mut outside = Ends::open(host, HOST_ENDS, RING_ENTRIES)?;
    let mut forwarder = SwitchForwarder::new()?;
    let mut scratch: Vec<Frame> = Vec::with_capacity(2 * BURST);
    let mut took: [Vec<u64>; 3] = Default::default();
    // The first round warms up. The order turns, so that none always comes after the same.
    for round in 0..=repeats {
        for step in 0..NAMES.len() {
            let which = (round + step) % NAMES.len();
            fill(&mut outside)?;
            let start = monotonic_ns();
            let end = if which == 2 {
                let (back, end) = forwarder.drain(ends)?;
                ends = back;
                end
            } else {
                let mut end = 0;
                forward_bare(&mut ends.store, &mut ends.ports, &mut scratch, |idle| {
                    end = monotonic_ns();
                    idle
                });
                end
            };
            empty(&mut outside, &mut scratch, NAMES[which])?;
            if round > 0 {
                took[which].push(end - start);
            }
        }
    }
    ends.close();
    outside.close();
    report(took);
    Ok(())
}

/// Fills the forwarder's ring.
fn fill(outside: &mut Ends) -> Result<(), Box<dyn Error>> {
    let mut sent = 0;
    for _ in 0..ROUNDS_MAX {
        while sent < FRAMES && outside.send(sent) {
            sent += 1;
            if sent % 32 == 0 {
                break;
            }
        }
        outside.flush();
        if sent == FRAMES && !outside.ports[0].has_tx_pending() {
            return Ok(());
        }
    }
    Err(format!("{sent} of {FRAMES} frames went out: {:?}", outside.ports[0].counters()).into())
}

/// Takes what was forwarded; every frame must be there.
fn empty(outside: &mut Ends, scratch: &mut Vec<Frame>, by: &str) -> Result<(), Box<dyn Error>> {
    let (mut got, mut next, mut in_order) = (0, 0, true);
    for _ in 0..ROUNDS_MAX {
        let count = outside.receive(scratch, |number| {
            in_order &= number == next;
            next += 1;
        });
        got += count;
        if count == 0 {
            break;
        }
    }
    if got == FRAMES && in_order {
        return Ok(());
    }
    Err(format!("{by} forwarded {got} of {FRAMES} frames, in order: {in_order}").into())
}

/// Prints, per forwarder: lower quartile and median in nanoseconds per frame, and the quartile over
/// that of bare.
#[allow(clippy::cast_precision_loss, reason = "figures to read")]
fn report(took: [Vec<u64>; 3]) {
    let sorted = took.map(|mut all| {
        all.sort_unstable();
        all
    });
    let at = |which: usize, quarter: usize| {
        let all = &sorted[which];
        all.get(all.len() * quarter / 4).map_or(0.0, |ns| *ns as f64 / FRAMES as f64)
    };
    for (which, name) in NAMES.iter().enumerate() {
        let quartile = at(which, 1);
        println!("{name}\t{quartile:.2}\t{:.2}\t{:.4}", at(which, 2), quartile / at(0, 1));
    }
}
