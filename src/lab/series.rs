//! Queue depths and rates over node time: what series.csv is made of, by any driver.

use crate::lab::device::Device;
use crate::measure::PortSample;
use crate::node::PortId;
use crate::sim::QUIET_SLICE;
use crate::time::{Duration, Time};

/// Samples that are kept: when a run outlasts them every second one goes and the interval doubles,
/// so that a long run takes no more memory than a short one.
const SAMPLES_MAX: usize = 2_048;

/// Samples that a run of known length is cut into.
const SAMPLES_PLANNED: u64 = 500;

/// One node's samples.
#[derive(Clone, Debug)]
pub struct NodeSeries {
    interval: Duration,
    next: Time,
    /// The instant, then one sample per port.
    rows: Vec<(Time, Vec<PortSample>)>,
}

/// How far apart samples are at first: a run of known length is cut into 500.
pub fn interval_for(duration: Option<Duration>) -> Duration {
    duration.map_or(QUIET_SLICE, |d| (d / SAMPLES_PLANNED).max(Duration::from_us(1)))
}

impl NodeSeries {
    /// No sample yet; the first is due at the start of the run.
    pub const fn new(interval: Duration) -> Self {
        Self { interval, next: Time::ZERO, rows: Vec::new() }
    }

    /// Takes the sample that is due, when it is due at `now`: asked before an event is served, it
    /// shows what the events before have left.
    #[inline]
    pub fn sample(&mut self, now: Time, device: &Device) {
        if now >= self.next {
            self.take(now, device);
        }
    }

    /// Takes the last sample, at the end of the run: what the events behind the last sample left.
    pub fn finish(&mut self, reached: Time, device: &Device) {
        let last = self.rows.last().map(|(_, samples)| samples);
        if reached >= self.next && last.is_none_or(|last| *last != samples_of(self.next, device)) {
            self.take(reached, device);
        }
    }

    fn take(&mut self, now: Time, device: &Device) {
        if self.rows.len() >= SAMPLES_MAX {
            let mut keep = false;
            self.rows.retain(|_| {
                keep = !keep;
                keep
            });
            self.interval = self.interval * 2;
        }
        self.rows.push((self.next, samples_of(self.next, device)));
        // Instants in which nothing happened are left out.
        let interval = self.interval.as_ps();
        self.next = Time::from_ps((now.as_ps() / interval + 1).saturating_mul(interval));
    }

    /// The samples: the instant, then one per port.
    pub fn rows(&self) -> &[(Time, Vec<PortSample>)] {
        &self.rows
    }
}

/// What each port of a device shows at `now`.
fn samples_of(now: Time, device: &Device) -> Vec<PortSample> {
    match device {
        Device::Switch(switch) => (0..)
            .map(PortId)
            .take(switch.config().ports.len())
            .map(|port| {
                let counters = switch.port_counters(port);
                PortSample {
                    queue_bytes: switch.queue_bytes(port).iter().sum(),
                    rx_bytes: counters.rx_bytes,
                    tx_bytes: counters.tx_bytes,
                }
            })
            .collect(),
        Device::Host(host) => {
            let stats = host.stats();
            vec![PortSample {
                queue_bytes: host.queue_bytes(now),
                rx_bytes: stats.rx_bytes,
                tx_bytes: stats.tx_bytes,
            }]
        }
        // Its books are in the report.
        Device::Source(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use crate::lab::captures::Captures;
    use crate::lab::plan::Plan;
    use crate::lab::simulate::simulate;
    use crate::lab::topology::Topology;

    /// Hosts are in the series with what waits for their lines, which is bounded by their queues.
    #[test]
    fn a_host_shows_its_rates_and_what_waits_for_its_line() {
        const TOO_FAST: &str = r#"
name = "fast"
[host.h1]
queue_frames = 16
[host.h2]
[[link]]
ends = ["h1:eth0", "h2:eth0"]
rate = "1Gbps"
[[stream]]
from = "h1"
to = "h2"
rate = "2Gbps"
frame_bytes = 1000
duration = "1ms"
start = "1ms"
[run]
duration = "4ms"
"#;
        let topology = Topology::parse("fast.toml", TOO_FAST).expect("a topology");
        let plan = Plan::of(&topology).expect("a plan");
        let mut captures = Captures::none(plan.nodes.len());
        let (_, series) = simulate(&topology, plan, &mut captures, |_| true);
        let rows: Vec<Vec<_>> = series
            .iter()
            .map(|node| node.rows().iter().map(|(_, ports)| ports[0]).collect())
            .collect();
        let most = rows[0].iter().map(|sample| sample.queue_bytes).max();
        assert!((15_000..=16_000).contains(&most.expect("rows")), "{most:?}");
        let (sent, received) = (rows[0].last().expect("rows"), rows[1].last().expect("rows"));
        assert_eq!(sent.queue_bytes, 0, "all is sent or dropped");
        assert!(sent.tx_bytes > 120_000, "{sent:?}");
        assert_eq!(sent.tx_bytes, received.rx_bytes);
    }
}
