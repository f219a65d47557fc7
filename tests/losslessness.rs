//! Nothing of a lossless class is dropped, whatever the frame size, the rates and the links: incasts
//! of senders at line rate, in virtual time, over many random topologies; and with less headroom
//! than a link needs, something is.

use std::fmt::Write as _;

use tailwater::lab::captures::Captures;
use tailwater::lab::plan::Plan;
use tailwater::lab::simulate::simulate;
use tailwater::lab::topology::Topology;
use tailwater::measure::report::Report;
use tailwater::rng::Rng;
use tailwater::switch::SwitchConfig;
use tailwater::switch::memory::Cells;

/// DSCP 24 has priority 3.
const PRIORITY: usize = 3;

/// The shortest frame of a stream, without FCS: its headers. Shorter ones are played against the
/// memory alone, where the headroom is computed.
const FRAME_BYTES_MIN: u64 = 66;

fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[usize::try_from(rng.below(of.len() as u64)).expect("few")]
}

/// From `low` to below twice as many, each power of two as likely.
fn spread(rng: &mut Rng, low: u64, high: u64) -> u64 {
    let octaves = u64::from((high / low).ilog2()) + 1;
    let base = low << rng.below(octaves);
    (base + rng.below(base)).min(high)
}

/// An incast that nobody has tuned.
#[derive(Debug)]
struct Incast {
    text: String,
    senders: u64,
    /// Shared memory of each switch.
    shared_bytes: u64,
}

/// Senders and one receiver `r`, on one switch or with half of the senders behind another one.
fn incast(seed: u64) -> Incast {
    let rng = &mut Rng::for_node(seed, "losslessness");
    let senders = 16;
    let two_switches = rng.below(3) == 0;
    let gbps = pick(rng, &[10, 25, 40, 100]);
    let mtu = pick(rng, &[1_500, 4_096, 9_000]);
    let frame_bytes = match rng.below(4) {
        0 => pick(rng, &[FRAME_BYTES_MIN, 208 + 1, 256 + 1, 2 * 208 + 1, mtu]),
        _ => FRAME_BYTES_MIN + rng.below(mtu - FRAME_BYTES_MIN + 1),
    };
    let shared_bytes = 17 * (mtu + 500) + rng.below(200_000);
    let cell = pick(rng, &[64, 208, 256]);
    let alpha = pick(rng, &["1/8", "1", "8"]);
    let mut text = format!(
        r#"
name = "incast"
seed = {seed}
[defaults]
mtu = {mtu}
[defaults.link]
rate = "{gbps}Gbps"
[defaults.host]
lossless = [3]
[defaults.switch]
buffer = "1GB"
cell = "{cell}B"
trust = "dscp"
lossless = [3]
class = {{ 3 = {{ dt_alpha = "{alpha}", headroom = "auto" }} }}
[switch.s1]
[host.r]
[[link]]
ends = ["r:eth0", "s1:r"]
delay = "100ns"
"#
    );
    if two_switches {
        let delay = spread(rng, 100, 10_000);
        writeln!(
            text,
            "[switch.s2]\n[[link]]\nends = [\"s1:up\", \"s2:up\"]\ndelay = \"{delay}ns\""
        )
        .expect("a string takes it");
    }
    // Long links hold many short frames: as many as are under way, and some more.
    let mut delay_max = 0;
    for sender in 1..=senders {
        let switch = if two_switches && sender % 2 == 0 { "s2" } else { "s1" };
        let delay = spread(rng, 100, if frame_bytes < 300 { 2_000 } else { 10_000 });
        delay_max = delay_max.max(delay);
        writeln!(
            text,
            "[host.h{sender}]\n[[link]]\nends = [\"h{sender}:eth0\", \"{switch}:h{sender}\"]\ndelay = \"{delay}ns\""
        )
        .expect("a string takes it");
    }
    let under_way = 3 * delay_max * gbps / 8;
    let frames = (2 * shared_bytes / senders + under_way) / (frame_bytes + 24) + 20;
    let ends: Vec<_> = (1..=senders).map(|sender| format!("\"h{sender}\"")).collect();
    write!(
        text,
        r#"
[[stream]]
from = [{}]
to = "r"
rate = "{gbps}Gbps"
frame_bytes = {frame_bytes}
frames = {frames}
dscp = 24
start = "20us"
[run]
duration = "{}us"
"#,
        ends.join(", "),
        // Twice the time that the receiver's link needs, and some for announcements.
        1_500 + 2 * senders * frames * (frame_bytes + 24) * 8 / (gbps * 1_000)
    )
    .expect("a string takes it");
    Incast { text, senders, shared_bytes }
}

/// Makes the memory as small as its headrooms and `shared_bytes` allow.
fn fit(config: &mut SwitchConfig, shared_bytes: u64) {
    let cells = Cells::new(config.cell_bytes);
    let lossless = config.ports.iter().filter_map(|port| port.shares.groups[PRIORITY].lossless);
    let headrooms: u32 = lossless.map(|lossless| cells.holding(lossless.headroom_bytes)).sum();
    config.buffer_bytes = cells.bytes(headrooms + cells.holding(shared_bytes));
}

fn run(incast: &Incast, adjust: impl FnOnce(&mut Topology)) -> Report {
    let mut topology = Topology::parse("incast.toml", &incast.text)
        .unwrap_or_else(|error| panic!("{}\n{}", error.render(false, false), incast.text));
    adjust(&mut topology);
    for switch in &mut topology.switches {
        fit(&mut switch.config, incast.shared_bytes);
    }
    let plan = Plan::of(&topology).unwrap_or_else(|error| panic!("{error}\n{}", incast.text));
    let mut captures = Captures::none(plan.nodes.len());
    let (finished, _) = simulate(&topology, plan, &mut captures, |_| true);
    finished.into_outcome(&topology).report
}

fn drops(report: &Report) -> u64 {
    report.switches.values().map(|switch| switch.books.drops.total).sum()
}

fn pauses(report: &Report) -> u64 {
    let ports = report.switches.values().flat_map(|switch| switch.ports.values());
    ports.map(|port| port.tx_xoff.iter().sum::<u64>()).sum()
}

#[test]
fn no_frame_of_a_lossless_class_is_dropped() {
    let mut paused = 0;
    let runs = 200;
    for seed in 0..runs {
        let incast = incast(seed);
        let report = run(&incast, |_| {});
        assert_eq!(drops(&report), 0, "{}\n{:?}", incast.text, report.switches);
        assert!(report.invariants.values().all(|held| *held), "{}", incast.text);
        let streams: Vec<_> = report.flows.iter().filter_map(|flow| flow.stream).collect();
        let missing: Vec<_> =
            streams.iter().filter(|stream| stream.received != stream.planned).collect();
        assert!(missing.is_empty(), "everything arrives in time\n{}\n{missing:?}", incast.text);
        assert_eq!(streams.len() as u64, incast.senders);
        paused += u64::from(pauses(&report) > 0);
    }
    assert!(paused > runs * 9 / 10, "pauses were needed in {paused} of {runs} runs");
}

/// Two senders of the shortest frames over long links, while the receiver pauses its own link so
/// that nothing leaves: a tenth less than the headroom loses some.
/// To the cell this is shown where the headroom is computed, with the worst frames that there are.
#[test]
fn with_a_tenth_less_headroom_frames_are_lost() {
    let text = format!(
        r#"
name = "tight"
[defaults.link]
rate = "100Gbps"
delay = "10us"
[defaults.switch]
buffer = "1GB"
trust = "dscp"
lossless = [3]
[switch.s1]
[host.h1]
[host.h2]
[host.r]
[[link]]
ends = ["h1:eth0", "s1:1"]
[[link]]
ends = ["h2:eth0", "s1:2"]
[[link]]
ends = ["r:eth0", "s1:3"]
[[storm]]
from = "r"
priorities = [3]
rate = "100Kpps"
start = "40us"
stop = "200us"
[[stream]]
from = ["h1", "h2"]
to = "r"
rate = "100Gbps"
frame_bytes = {FRAME_BYTES_MIN}
frames = 6000
dscp = 24
start = "60us"
[run]
duration = "2ms"
"#
    );
    let incast = Incast { text, senders: 2, shared_bytes: 100_000 };
    let with = |percent: u64| {
        run(&incast, |topology| {
            for port in &mut topology.switches[0].config.ports {
                let lossless = port.shares.groups[PRIORITY].lossless.as_mut().expect("lossless");
                lossless.headroom_bytes = lossless.headroom_bytes * percent / 100;
            }
        })
    };
    let full = with(100);
    assert_eq!(drops(&full), 0, "{:?}", full.switches);
    assert!(pauses(&full) > 2);
    let less = with(90);
    let of_headroom = &less.switches["s1"].books.drops;
    assert!(drops(&less) > 0, "{of_headroom:?}");
    assert_eq!(of_headroom.reasons.get("headroom_full"), Some(&drops(&less)), "{of_headroom:?}");
}
