//! When the frames of a stream are planned: exact in picoseconds, from integers, whoever asks and
//! when.

use super::config::{Arrivals, StreamConfig};
use crate::line::FRAME_BYTES_MIN;
use crate::rng::Rng;
use crate::time::{Duration, Time};
use crate::units::AnyRate;

const PS_PER_SECOND: u64 = 1_000_000_000_000;

/// What planned send times follow from.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Mean rate: frames per second, or bits per second of wire time including the overhead.
    pub rate: AnyRate,
    /// Length of each frame without FCS, where the rate counts bits.
    pub frame_bytes: u32,
    /// How send times are spaced.
    pub arrivals: Arrivals,
    /// The first planned send time is here (constant), or one gap after (Poisson).
    pub start: Time,
    /// No frame is planned at or after this instant.
    pub stop: Time,
    /// At most this many frames.
    pub frames_max: u64,
}

impl From<&StreamConfig> for Plan {
    fn from(config: &StreamConfig) -> Self {
        let StreamConfig { rate, frame_bytes, arrivals, start, stop, frames_max, .. } = *config;
        Self { rate, frame_bytes, arrivals, start, stop, frames_max }
    }
}

/// The planned send times of one stream, in order.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// The mean gap in picoseconds is `gap / den`, in lowest terms as far as it matters.
    gap: u64,
    den: u64,
    arrivals: Arrivals,
    rng: Rng,
    /// What `gap * n` leaves over, in picoseconds times `den`.
    remainder: u64,
    next: Time,
    stop: Time,
    frames_left: u64,
}

impl Schedule {
    /// The send times of `plan` at a host that draws from `rng` and counts `overhead_bytes`
    /// around each frame. A rate of zero plans nothing.
    pub fn new(plan: &Plan, overhead_bytes: u32, rng: Rng) -> Self {
        let (gap, den) = match plan.rate {
            AnyRate::Bits(rate) => {
                let wire =
                    u64::from(plan.frame_bytes.max(FRAME_BYTES_MIN)) + u64::from(overhead_bytes);
                ((wire * 8).saturating_mul(PS_PER_SECOND), rate.as_bps())
            }
            AnyRate::Frames(rate) => (PS_PER_SECOND * 1_000, rate.as_milli_pps()),
        };
        let frames_left = if den == 0 { 0 } else { plan.frames_max };
        let mut schedule = Self {
            gap,
            den: den.max(1),
            arrivals: plan.arrivals,
            rng,
            remainder: 0,
            next: plan.start,
            stop: plan.stop,
            frames_left,
        };
        if schedule.arrivals == Arrivals::Poisson {
            let gap = schedule.draw_gap();
            schedule.next += gap;
        }
        schedule
    }

    /// The planned send time of the next frame, or [`Time::NEVER`] when there is none.
    pub fn next(&self) -> Time {
        if self.frames_left > 0 && self.next < self.stop { self.next } else { Time::NEVER }
    }

    /// Goes on to the frame behind the next one.
    pub fn advance(&mut self) {
        self.frames_left = self.frames_left.saturating_sub(1);
        let gap = self.draw_gap();
        self.next += gap;
    }

    /// Frames that are planned at or before `now`, or `frames_max` when they are more: at constant
    /// gaps without walking through them.
    pub fn planned_until(&self, now: Time, frames_max: u64) -> u64 {
        if self.next() > now || self.next() == Time::NEVER {
            return 0;
        }
        match self.arrivals {
            Arrivals::Constant => {
                // Frame n from here on is at `next + floor((remainder + n * gap) / den)`.
                let last = now.min(self.stop.before(Duration::from_ps(1))).since(self.next);
                let room = (u128::from(last.as_ps()) + 1) * u128::from(self.den)
                    - 1
                    - u128::from(self.remainder);
                let more = room / u128::from(self.gap.max(1));
                let planned = u64::try_from(more).unwrap_or(u64::MAX).saturating_add(1);
                planned.min(self.frames_left).min(frames_max)
            }
            Arrivals::Poisson => {
                let mut ahead = self.clone();
                let mut planned = 0;
                while planned < frames_max && ahead.next() <= now && ahead.next() != Time::NEVER {
                    planned += 1;
                    ahead.advance();
                }
                planned
            }
        }
    }

    fn draw_gap(&mut self) -> Duration {
        match self.arrivals {
            Arrivals::Constant => {
                // Frame n is at `start + floor(n * gap / den)`: the fractions add up, so that the
                // rate never drifts.
                let (whole, part) = (self.gap / self.den, self.gap % self.den);
                let remainder = u128::from(self.remainder) + u128::from(part);
                let carry = remainder >= u128::from(self.den);
                let left = if carry { remainder - u128::from(self.den) } else { remainder };
                self.remainder = u64::try_from(left).unwrap_or(0);
                Duration::from_ps(whole.saturating_add(u64::from(carry)))
            }
            Arrivals::Poisson => {
                let mean = to_f64(self.gap) / to_f64(self.den);
                Duration::from_ps(to_u64(minus_ln(self.rng.unit_f64()) * mean))
            }
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "a mean gap needs no more than 53 bits")]
const fn to_f64(value: u64) -> f64 {
    value as f64
}

/// Rounds to nearest; what does not fit saturates.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a gap is not negative, and the cast saturates"
)]
const fn to_u64(value: f64) -> u64 {
    (value + 0.5) as u64
}

/// `-ln(x)` for `x` in (0, 1], from additions, multiplications and divisions alone, which IEEE 754
/// fixes to the bit: the C library's logarithm differs between machines, and a run must not.
fn minus_ln(x: f64) -> f64 {
    let bits = x.to_bits();
    // The mantissa in [1, 2), then in [0.75, 1.5), so that the series below converges fast.
    let mut mantissa = f64::from_bits((bits & 0x000f_ffff_ffff_ffff) | 0x3ff0_0000_0000_0000);
    let mut exponent = 1_023.0 - to_f64(bits >> 52);
    if mantissa >= 1.5 {
        mantissa *= 0.5;
        exponent -= 1.0;
    }
    // ln(m) = 2 artanh(z) with z = (m - 1) / (m + 1), |z| at most 0.2.
    let z = (mantissa - 1.0) / (mantissa + 1.0);
    let square = z * z;
    let mut series = 0.0;
    let mut k = 23_u32;
    loop {
        series = series * square + 1.0 / f64::from(k);
        if k == 1 {
            break;
        }
        k -= 2;
    }
    exponent * std::f64::consts::LN_2 - 2.0 * z * series
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::config::StreamTarget;
    use crate::units::{FrameRate, Rate};
    use crate::wire::MacAddr;

    fn stream(rate: AnyRate, arrivals: Arrivals) -> StreamConfig {
        StreamConfig {
            id: 1,
            target: StreamTarget {
                mac: MacAddr([2, 0, 0, 0, 0, 2]),
                ip: [10, 0, 0, 2].into(),
                vlan: None,
            },
            source_port: 1,
            destination_port: 2,
            dscp: 0,
            priority: 0,
            ecn: 0,
            segments: Vec::new(),
            frame_bytes: 1_000,
            rate,
            arrivals,
            start: Time::from_ns(5),
            stop: Time::NEVER,
            frames_max: u64::MAX,
        }
    }

    fn times(config: &StreamConfig, count: usize) -> Vec<Time> {
        let mut schedule = Schedule::new(&config.into(), 24, Rng::for_node(1, "h1"));
        std::iter::from_fn(|| {
            let at = schedule.next();
            schedule.advance();
            (at != Time::NEVER).then_some(at)
        })
        .take(count)
        .collect()
    }

    #[test]
    fn constant_times_never_drift() {
        // 3 frames per second: a third of a second is not a whole number of picoseconds.
        let config = stream(AnyRate::Frames(FrameRate::from_pps(3)), Arrivals::Constant);
        let times = times(&config, 3_001);
        assert_eq!(times[0], Time::from_ns(5));
        assert_eq!(times[1].as_ps(), 5_000 + 333_333_333_333);
        assert_eq!(times[2].as_ps(), 5_000 + 666_666_666_666);
        assert_eq!(times[3_000].as_ps(), 5_000 + 1_000 * PS_PER_SECOND);
    }

    #[test]
    fn a_bit_rate_counts_wire_bytes() {
        // 1,024 bytes of wire at 10 Gb/s last 819.2 ns.
        let config = stream(AnyRate::Bits(Rate::from_gbps(10)), Arrivals::Constant);
        assert_eq!(times(&config, 11)[10], Time::from_ns(5 + 8_192));
        let short = StreamConfig { frame_bytes: 10, ..config };
        assert_eq!(times(&short, 11)[10], Time::from_ns(5 + 672), "60 and 24 bytes");
    }

    #[test]
    fn stop_and_count_end_a_stream() {
        let mut config =
            stream(AnyRate::Frames(FrameRate::from_pps(1_000_000)), Arrivals::Constant);
        config.stop = Time::from_ns(3_005);
        assert_eq!(times(&config, 10).len(), 3, "no frame at the stop itself");
        config.frames_max = 2;
        assert_eq!(times(&config, 10).len(), 2);
        config.rate = AnyRate::Frames(FrameRate::from_pps(0));
        assert_eq!(times(&config, 10), []);
    }

    #[test]
    fn counting_ahead_is_walking_ahead() {
        let mut rng = Rng::for_node(8, "ahead");
        for round in 0..2_000 {
            let rate = if round % 2 == 0 {
                AnyRate::Frames(FrameRate::from_pps(rng.below(1_000_000_000) + 1))
            } else {
                AnyRate::Bits(Rate::from_gbps(rng.below(400) + 1))
            };
            let arrivals = if round % 3 == 0 { Arrivals::Poisson } else { Arrivals::Constant };
            let mut config = stream(rate, arrivals);
            config.frames_max = [0, 1, 50, u64::MAX][round % 4];
            if round % 5 == 0 {
                config.stop = Time::from_ps(5_000 + rng.below(400_000));
            }
            let mut schedule = Schedule::new(&(&config).into(), 24, Rng::for_node(1, "h1"));
            for _ in 0..rng.below(20) {
                schedule.advance();
            }
            let now = Time::from_ps(schedule.next.as_ps() + rng.below(40_000_000))
                .before(Duration::from_ps(rng.below(1_000)));
            let mut walked = 0;
            let mut ahead = schedule.clone();
            while ahead.next() <= now && ahead.next() != Time::NEVER {
                walked += 1;
                ahead.advance();
            }
            assert_eq!(schedule.planned_until(now, u64::MAX), walked, "{schedule:?} at {now:?}");
            assert_eq!(schedule.planned_until(now, 7), walked.min(7));
        }
        let config = stream(AnyRate::Frames(FrameRate::from_pps(0)), Arrivals::Constant);
        let nothing = Schedule::new(&(&config).into(), 24, Rng::for_node(1, "h1"));
        assert_eq!(nothing.planned_until(Time::NEVER, u64::MAX), 0);
    }

    #[test]
    fn poisson_gaps_are_exponential() {
        let config = stream(AnyRate::Frames(FrameRate::from_pps(1_000_000)), Arrivals::Poisson);
        let times = times(&config, 100_001);
        assert_eq!(times[..5], self::times(&config, 5)[..], "the same seed, the same times");
        let mean = times[100_000].since(times[0]).as_ns() / 100_000;
        assert!((990..1_010).contains(&mean), "{mean}");
        // A share of exp(-1) is longer than the mean, and exp(-3) than three times it.
        for (gaps, share) in [(1, 36_788), (3, 4_979)] {
            let limit = Duration::from_us(gaps);
            let longer = times.windows(2).filter(|pair| pair[1].since(pair[0]) > limit).count();
            assert!(longer.abs_diff(share) < 700, "{gaps}: {longer}");
        }
    }

    #[test]
    fn the_logarithm_is_right() {
        let mut rng = Rng::for_node(3, "ln");
        for _ in 0..100_000 {
            let x = rng.unit_f64();
            assert!((minus_ln(x) + x.ln()).abs() <= 1e-14 * (1.0 - x.ln()), "{x}");
        }
        assert_eq!(minus_ln(1.0), 0.0);
        assert!((minus_ln(1.0 / 9_007_199_254_740_992.0) - 36.736_800_569_677_1).abs() < 1e-12);
    }
}
