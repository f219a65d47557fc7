//! The load: one core that sends and counts what comes back.

use std::error::Error;

use tailwater::frame::Frame;
use tailwater::measure::LatencyHistogram;
use tailwater::xdp::clock::monotonic_ns;

use crate::testbed::{BURST, Ends, HOST_ENDS};

const RING_ENTRIES: u32 = 4_096;
const SECOND_NS: u64 = 1_000_000_000;

/// After the last frame was sent, how long others may still be under way.
const SETTLE_NS: u64 = 20_000_000;

/// Sends as fast as it goes and prints what was delivered.
pub(crate) fn rate(host: &str, seconds: u64) -> Result<(), Box<dyn Error>> {
    let mut ends = Ends::open(host, HOST_ENDS, RING_ENTRIES)?;
    let mut scratch: Vec<Frame> = Vec::with_capacity(2 * BURST);
    let (mut sent, mut delivered) = (0, 0);
    let start = monotonic_ns();
    let end = start + seconds * SECOND_NS;
    loop {
        let now = monotonic_ns();
        if now >= end {
            break;
        }
        for _ in 0..BURST {
            sent += u64::from(ends.send(now));
        }
        ends.flush();
        while ends.receive(&mut scratch, |_| delivered += 1) > 0 {}
    }
    let took = monotonic_ns() - start;
    // What was sent in time and is still under way is not part of the rate.
    #[allow(clippy::cast_precision_loss, reason = "figures to read")]
    let mpps = |count: u64| count as f64 * 1e3 / took as f64;
    println!("sent {:.3} delivered {:.3}", mpps(sent), mpps(delivered));
    ends.close();
    Ok(())
}

/// Sends `pps` frames per second, each at its planned time, and prints how long after that it came
/// back.
pub(crate) fn latency(host: &str, seconds: u64, pps: u64) -> Result<(), Box<dyn Error>> {
    let mut ends = Ends::open(host, HOST_ENDS, RING_ENTRIES)?;
    let mut scratch: Vec<Frame> = Vec::with_capacity(2 * BURST);
    let mut latencies = LatencyHistogram::new();
    let gap_ns = SECOND_NS / pps.clamp(1, SECOND_NS);
    let total = seconds * SECOND_NS / gap_ns;
    let start = monotonic_ns();
    let (mut sent, mut received, mut refused) = (0, 0, 0);
    loop {
        let now = monotonic_ns();
        let planned = start + sent * gap_ns;
        if sent < total && now >= planned {
            sent += 1;
            if !ends.send(planned) {
                refused += 1;
            }
            ends.flush();
        }
        received += ends.receive(&mut scratch, |planned| {
            latencies.record_ns(monotonic_ns().saturating_sub(planned));
        });
        if sent == total && (received + refused == total || now > planned + SETTLE_NS) {
            break;
        }
    }
    let p = latencies.percentiles();
    println!("p50 {} p90 {} p99.9 {} sent {total} lost {}", p.p50, p.p90, p.p999, total - received);
    ends.close();
    Ok(())
}
