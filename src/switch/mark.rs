//! ECN marking and WRED: a queue whose length passes a curve marks frames whose ends react to marks,
//! and, where that is configured, drops the others early.
//!
//! The curve is that of random early detection on the instantaneous length in bytes, as DCQCN
//! uses it (Y. Zhu and others, SIGCOMM 2015, section 3.1): never up to `kmin`, with a probability that
//! rises to `pmax` at `kmax`, always from there on. With `kmin = kmax` it is DCTCP's step: always above.
//! Everything is integers, and a draw is exact to the byte and the billionth.
//!
//! Marking looks at the queue when a frame leaves, without that frame, so that the mark says how
//! things are now and not how they were a queue ago (fast ECN); or, as an option, when it arrives.
//! Early drops are decided on arrival. Colours (RFC 2597) have curves of their own.

use crate::rng::Rng;
use crate::wire::ecn::{Differentiated, Ecn};

/// A probability of one, in billionths.
pub const PPB: u32 = 1_000_000_000;

/// The longest `kmax`, which keeps the sums within 64 bits.
pub const KMAX_BYTES_MAX: u64 = 16_000_000_000;

/// How likely a frame is marked at a length of its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Curve {
    /// Up to this length, never.
    pub kmin_bytes: u64,
    /// From this length on, always; when it equals `kmin_bytes`, above it.
    pub kmax_bytes: u64,
    /// The probability just below `kmax_bytes`, in billionths.
    pub pmax_ppb: u32,
}

/// A curve that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CurveError {
    /// kmin above kmax.
    #[error("kmin is {kmin_bytes} bytes, above kmax, {kmax_bytes}")]
    KminAboveKmax {
        /// kmin.
        kmin_bytes: u64,
        /// kmax.
        kmax_bytes: u64,
    },
    /// A probability above one.
    #[error("pmax is {pmax_ppb} billionths, above 1")]
    PmaxAboveOne {
        /// pmax.
        pmax_ppb: u32,
    },
    /// kmax is out of any memory.
    #[error("kmax is {kmax_bytes} bytes, above {KMAX_BYTES_MAX}")]
    KmaxTooLarge {
        /// kmax.
        kmax_bytes: u64,
    },
}

impl Curve {
    /// Whether the curve can be.
    ///
    /// # Errors
    /// [`CurveError`] when its parts contradict each other.
    pub const fn check(&self) -> Result<(), CurveError> {
        let Self { kmin_bytes, kmax_bytes, pmax_ppb } = *self;
        if kmin_bytes > kmax_bytes {
            return Err(CurveError::KminAboveKmax { kmin_bytes, kmax_bytes });
        }
        if kmax_bytes > KMAX_BYTES_MAX {
            return Err(CurveError::KmaxTooLarge { kmax_bytes });
        }
        if pmax_ppb > PPB {
            return Err(CurveError::PmaxAboveOne { pmax_ppb });
        }
        Ok(())
    }

    /// Whether a frame is hit at a length of `queue_bytes`; draws only between the thresholds.
    #[inline]
    pub fn hits(&self, queue_bytes: u64, rng: &mut Rng) -> bool {
        if queue_bytes <= self.kmin_bytes {
            return false;
        }
        if queue_bytes >= self.kmax_bytes {
            return true;
        }
        // pmax * (q - kmin) / (kmax - kmin), both sides times the denominators.
        let span = (self.kmax_bytes - self.kmin_bytes) * u64::from(PPB);
        rng.below(span) < (queue_bytes - self.kmin_bytes) * u64::from(self.pmax_ppb)
    }
}

/// How readily a frame is to be dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Colour {
    /// Low drop precedence.
    #[default]
    Green,
    /// Medium.
    Yellow,
    /// High.
    Red,
}

impl Colour {
    /// The drop precedence of an assured forwarding code point (RFC 2597 section 6): AFx1 is green,
    /// AFx2 yellow, AFx3 red, and so is everything else green.
    pub const fn of_dscp(dscp: u8) -> Self {
        // AFxy is 8x + 2y, x and y from 1: 1 to 4, and 1 to 3.
        match (dscp >> 3, dscp & 7) {
            (1..=4, 4) => Self::Yellow,
            (1..=4, 6) => Self::Red,
            _ => Self::Green,
        }
    }
}

/// When the length of the queue is looked at for marking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MarkAt {
    /// When the frame leaves; its own bytes do not count.
    #[default]
    Dequeue,
    /// When the frame arrives; its own bytes do not count.
    Enqueue,
}

/// What one queue does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkConfig {
    /// The curves of green, yellow and red frames.
    pub curves: [Curve; 3],
    /// When marks are made.
    pub at: MarkAt,
    /// Whether frames that cannot be marked are dropped on arrival by the same curve.
    pub wred: bool,
}

impl MarkConfig {
    /// One curve for all colours, marks at dequeue, no early drops.
    pub const fn new(curve: Curve) -> Self {
        Self { curves: [curve; 3], at: MarkAt::Dequeue, wred: false }
    }

    /// Whether the queue can do so.
    ///
    /// # Errors
    /// [`CurveError`] of the first curve that cannot be.
    pub fn check(&self) -> Result<(), CurveError> {
        self.curves.iter().try_for_each(Curve::check)
    }
}

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It stays as it is.
    Pass,
    /// It was ECT and carries CE now.
    Marked,
    /// It is to be dropped.
    Drop,
}

/// One queue's marking.
#[derive(Clone, Copy, Debug)]
pub struct Marker {
    /// Up to this length nothing happens to frames that leave, or that arrive.
    dequeue_floor_bytes: u64,
    enqueue_floor_bytes: u64,
    config: MarkConfig,
}

impl Marker {
    /// A queue that never marks nor drops early.
    pub const OFF: Self = Self {
        dequeue_floor_bytes: u64::MAX,
        enqueue_floor_bytes: u64::MAX,
        config: MarkConfig::new(Curve { kmin_bytes: 0, kmax_bytes: 0, pmax_ppb: 0 }),
    };

    /// A queue that does as configured.
    pub fn new(config: &MarkConfig) -> Self {
        let floor = config.curves.iter().map(|curve| curve.kmin_bytes).min().unwrap_or(u64::MAX);
        let when = |on: bool| if on { floor } else { u64::MAX };
        Self {
            dequeue_floor_bytes: when(config.at == MarkAt::Dequeue),
            enqueue_floor_bytes: when(config.at == MarkAt::Enqueue || config.wred),
            config: *config,
        }
    }

    /// Up to this length of the queue, without the frame that leaves, [`on_dequeue`](Self::on_dequeue)
    /// does nothing.
    pub const fn dequeue_floor_bytes(&self) -> u64 {
        self.dequeue_floor_bytes
    }

    /// Up to this length of the queue, without the frame that arrives,
    /// [`on_enqueue`](Self::on_enqueue) does nothing.
    pub const fn enqueue_floor_bytes(&self) -> u64 {
        self.enqueue_floor_bytes
    }

    /// What becomes of a frame that leaves a queue of `queue_bytes` without it.
    pub fn on_dequeue(&self, queue_bytes: u64, rng: &mut Rng, head: &mut [u8]) -> Verdict {
        let marks = self.config.at == MarkAt::Dequeue;
        self.decide(marks, false, queue_bytes, rng, head)
    }

    /// What becomes of a frame that arrives at a queue of `queue_bytes`.
    pub fn on_enqueue(&self, queue_bytes: u64, rng: &mut Rng, head: &mut [u8]) -> Verdict {
        let marks = self.config.at == MarkAt::Enqueue;
        self.decide(marks, self.config.wred, queue_bytes, rng, head)
    }

    /// Frames that are not IP count as green frames that cannot be marked.
    fn decide(
        &self,
        marks: bool,
        drops: bool,
        queue_bytes: u64,
        rng: &mut Rng,
        head: &mut [u8],
    ) -> Verdict {
        let ip = Differentiated::find(head);
        let colour = ip.map_or(Colour::Green, |ip| Colour::of_dscp(ip.dscp()));
        let curve = &self.config.curves[colour as usize];
        match ip.map(|ip| (ip, ip.ecn())) {
            // It carries the mark already.
            Some((_, Ecn::Ce)) => Verdict::Pass,
            Some((ip, Ecn::Ect0 | Ecn::Ect1)) => {
                if !marks || !curve.hits(queue_bytes, rng) {
                    return Verdict::Pass;
                }
                ip.set_ce(head);
                Verdict::Marked
            }
            Some((_, Ecn::NotEct)) | None => {
                if drops && curve.hits(queue_bytes, rng) {
                    Verdict::Drop
                } else {
                    Verdict::Pass
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CURVE: Curve = Curve { kmin_bytes: 500_000, kmax_bytes: 2_000_000, pmax_ppb: PPB / 20 };

    fn rng() -> crate::rng::Rng {
        crate::rng::Rng::for_node(1, "s1")
    }

    fn frame(dscp: u8, ecn: u8) -> Vec<u8> {
        let mut bytes = vec![2; 12];
        bytes.extend([0x08, 0x00, 0x45, dscp << 2 | ecn]);
        bytes.resize(60, 0);
        bytes
    }

    /// How many of `frames` frames are hit at this length.
    fn hits(curve: &Curve, queue_bytes: u64, frames: u32) -> u32 {
        let mut rng = rng();
        (0..frames).map(|_| u32::from(curve.hits(queue_bytes, &mut rng))).sum()
    }

    #[test]
    fn thresholds_are_exact() {
        assert_eq!(hits(&CURVE, 0, 100), 0);
        assert_eq!(hits(&CURVE, 500_000, 10_000), 0);
        assert_eq!(hits(&CURVE, 2_000_000, 100), 100);
        assert_eq!(hits(&CURVE, u64::MAX, 100), 100);
        let step = Curve { kmin_bytes: 30_000, kmax_bytes: 30_000, pmax_ppb: PPB };
        assert_eq!(hits(&step, 30_000, 100), 0);
        assert_eq!(hits(&step, 30_001, 100), 100);
        // One byte before the end it is pmax and not one; there is no draw outside.
        assert!(hits(&CURVE, 1_999_999, 10_000) < 700);
        let mut drawn = rng();
        CURVE.hits(500_000, &mut drawn);
        CURVE.hits(2_000_000, &mut drawn);
        assert_eq!(drawn.next_u64(), rng().next_u64());
    }

    /// A curve, a length between its thresholds, and the mean and spread of hits of `n` draws.
    fn assert_probability(curve: &Curve, queue_bytes: u64) {
        const DRAWS: u32 = 40_000;
        let as_f64 = |n: u64| f64::from(u32::try_from(n).expect("a small number"));
        let p = f64::from(curve.pmax_ppb) / 1e9 * as_f64(queue_bytes - curve.kmin_bytes)
            / as_f64(curve.kmax_bytes - curve.kmin_bytes);
        let mean = f64::from(DRAWS) * p;
        let deviation = (mean * (1.0 - p)).sqrt();
        let got = f64::from(hits(curve, queue_bytes, DRAWS));
        // Five deviations: once in two million.
        assert!(
            (got - mean).abs() < 5.0 * deviation + 1.0,
            "{curve:?} {queue_bytes}: {got}, {mean}"
        );
    }

    #[test]
    fn probabilities_follow_the_curve() {
        for queue_bytes in (500_001..2_000_000).step_by(150_000) {
            assert_probability(&CURVE, queue_bytes);
        }
        let full = Curve { kmin_bytes: 0, kmax_bytes: 1_000, pmax_ppb: PPB };
        for queue_bytes in [1, 250, 500, 999] {
            assert_probability(&full, queue_bytes);
        }
        let never = Curve { pmax_ppb: 0, ..full };
        assert_eq!(hits(&never, 999, 1_000), 0);
    }

    #[test]
    fn curves_that_cannot_be_are_refused() {
        let check = |kmin_bytes, kmax_bytes, pmax_ppb| {
            let curve = Curve { kmin_bytes, kmax_bytes, pmax_ppb };
            MarkConfig::new(curve).check().map_err(|error| error.to_string())
        };
        assert_eq!(check(5, 4, 0), Err("kmin is 5 bytes, above kmax, 4".to_owned()));
        assert_eq!(check(4, 5, PPB + 1), Err("pmax is 1000000001 billionths, above 1".to_owned()));
        assert_eq!(
            check(0, KMAX_BYTES_MAX + 1, 0),
            Err("kmax is 16000000001 bytes, above 16000000000".to_owned())
        );
        assert_eq!(check(0, KMAX_BYTES_MAX, PPB), Ok(()));
        let mut config = MarkConfig::new(CURVE);
        config.curves[2].kmin_bytes = 3_000_000;
        assert!(config.check().is_err(), "the red one");
    }

    #[test]
    fn the_largest_curve_does_not_overflow() {
        let curve = Curve { kmin_bytes: 0, kmax_bytes: KMAX_BYTES_MAX, pmax_ppb: PPB };
        assert_eq!(hits(&curve, KMAX_BYTES_MAX - 1, 1_000), 1_000);
        assert_probability(
            &Curve { pmax_ppb: PPB / 2, kmax_bytes: 4_000_000_000, ..curve },
            2_000_000_000,
        );
    }

    #[test]
    fn only_frames_that_can_be_marked_are() {
        let marker = Marker::new(&MarkConfig::new(CURVE));
        for ecn in 0..4 {
            let mut bytes = frame(26, ecn);
            let before = bytes.clone();
            let verdict = marker.on_dequeue(3_000_000, &mut rng(), &mut bytes);
            if ecn == 1 || ecn == 2 {
                assert_eq!(verdict, Verdict::Marked);
                assert_eq!(bytes[15], 26 << 2 | 3);
            } else {
                assert_eq!(verdict, Verdict::Pass);
                assert_eq!(bytes, before);
            }
        }
    }

    #[test]
    fn marks_are_made_at_one_end_of_the_queue() {
        let enqueue = MarkConfig { at: MarkAt::Enqueue, ..MarkConfig::new(CURVE) };
        for (config, at_dequeue) in [(MarkConfig::new(CURVE), true), (enqueue, false)] {
            let marker = Marker::new(&config);
            assert_eq!(marker.dequeue_floor_bytes() == 500_000, at_dequeue);
            assert_eq!(marker.enqueue_floor_bytes() == 500_000, !at_dequeue);
            let leaves = marker.on_dequeue(3_000_000, &mut rng(), &mut frame(0, 2));
            let arrives = marker.on_enqueue(3_000_000, &mut rng(), &mut frame(0, 2));
            assert_eq!(leaves == Verdict::Marked, at_dequeue);
            assert_eq!(arrives == Verdict::Marked, !at_dequeue);
        }
        assert_eq!(Marker::OFF.dequeue_floor_bytes(), u64::MAX);
        assert_eq!(Marker::OFF.enqueue_floor_bytes(), u64::MAX);
    }

    #[test]
    fn wred_drops_what_cannot_be_marked_and_nothing_else() {
        let marker = Marker::new(&MarkConfig { wred: true, ..MarkConfig::new(CURVE) });
        assert_eq!(marker.enqueue_floor_bytes(), 500_000);
        let verdict = |mut bytes: Vec<u8>| marker.on_enqueue(3_000_000, &mut rng(), &mut bytes);
        assert_eq!(verdict(frame(0, 0)), Verdict::Drop);
        assert_eq!(verdict(vec![0; 60]), Verdict::Drop, "not IP");
        for ecn in 1..4 {
            assert_eq!(verdict(frame(0, ecn)), Verdict::Pass, "ECN {ecn}");
        }
        let mut rng = rng();
        let drops = (0..40_000)
            .filter(|_| marker.on_enqueue(1_250_000, &mut rng, &mut frame(0, 0)) == Verdict::Drop)
            .count();
        // 2.5 % of 40,000, five deviations.
        assert!((844..1_156).contains(&drops), "{drops}");
    }

    #[test]
    fn colours_have_their_own_curves() {
        let at = |bytes| Curve { kmin_bytes: bytes, kmax_bytes: bytes, pmax_ppb: PPB };
        let curves = [at(3_000), at(2_000), at(1_000)];
        let marker = Marker::new(&MarkConfig { curves, wred: true, ..MarkConfig::new(CURVE) });
        assert_eq!(marker.enqueue_floor_bytes(), 1_000);
        for (dscp, threshold) in [
            (10, 3_000),
            (12, 2_000),
            (14, 1_000),
            (36, 2_000),
            (38, 1_000),
            (0, 3_000),
            (46, 3_000),
        ] {
            for (queue_bytes, is_above) in [(threshold, false), (threshold + 1, true)] {
                let dropped = marker.on_enqueue(queue_bytes, &mut rng(), &mut frame(dscp, 0));
                assert_eq!(dropped == Verdict::Drop, is_above, "DSCP {dscp}");
                let marked = marker.on_dequeue(queue_bytes, &mut rng(), &mut frame(dscp, 2));
                assert_eq!(marked == Verdict::Marked, is_above, "DSCP {dscp}");
            }
        }
    }

    proptest! {
        /// A longer queue hits whatever a shorter one hits with the same draw.
        #[test]
        fn longer_queues_hit_no_less(
            kmin in 0_u64..10_000, span in 0_u64..10_000, pmax in 0..=PPB,
            a in 0_u64..30_000, b in 0_u64..30_000, seed: u64,
        ) {
            let curve = Curve { kmin_bytes: kmin, kmax_bytes: kmin + span, pmax_ppb: pmax };
            let hit = |bytes| curve.hits(bytes, &mut crate::rng::Rng::for_node(seed, "x"));
            prop_assert!(hit(a.max(b)) || !hit(a.min(b)));
        }
    }
}
