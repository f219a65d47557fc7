//! SONiC's acceptance tests of its watchdog, in virtual time: a port, a class with a frame to send
//! every microsecond, and a storm.

use super::*;
use crate::pause::Pauses;
use crate::rng::Rng;
use crate::wire::pfc::Pfc;

const RATE: Rate = Rate::from_gbps(100);
const POLL: Duration = Duration::from_ms(1);
const DETECTION: Duration = Duration::from_ms(4);
const RESTORATION: Duration = Duration::from_ms(8);
const STEP: Duration = Duration::from_us(1);
const CLASS: u8 = 3;

const fn sonic(action: WatchdogAction) -> WatchdogConfig {
    let mode = WatchdogMode::Sonic { restoration: RESTORATION };
    WatchdogConfig { mode, poll: POLL, detection: DETECTION, action }
}

const fn h3c(detections_max: Option<u32>) -> WatchdogConfig {
    let mode = WatchdogMode::H3c { recovery: RESTORATION, detections_max };
    WatchdogConfig { mode, poll: POLL, detection: DETECTION, action: WatchdogAction::Forward }
}

const fn us(us: u64) -> Time {
    Time::from_ns(us * 1_000)
}

/// A storm: frames of `quanta` each `gap`, from `start` to `end`, and then a resume.
#[derive(Clone, Copy, Debug)]
struct Storm {
    start: Time,
    end: Time,
    gap: Duration,
    quanta: u16,
    classes: u8,
}

impl Storm {
    /// One that pauses class 3 without a gap.
    const fn of(start: Time, lasts: Duration) -> Self {
        let end = Time::from_ps(start.as_ps() + lasts.as_ps());
        Self { start, end, gap: Duration::from_us(100), quanta: QUANTA_MAX, classes: 1 << CLASS }
    }
}

/// What became of the frames and of the class.
#[derive(Debug, Default, PartialEq)]
struct Outcome {
    detected: Vec<Time>,
    restored: Vec<Time>,
    sent: u64,
    dropped: u64,
    waiting: u64,
}

/// The port for `lasts`, with a frame each microsecond if `traffic`.
fn run(config: &WatchdogConfig, storms: &[Storm], traffic: bool, lasts: Duration) -> Outcome {
    run_class(config, storms, CLASS, 0xff, traffic, lasts)
}

fn run_class(
    config: &WatchdogConfig,
    storms: &[Storm],
    class: u8,
    lossless: u8,
    traffic: bool,
    lasts: Duration,
) -> Outcome {
    let index = usize::from(class);
    let mut pauses = Pauses::new(RATE, lossless, false);
    let mut watch = ClassWatch::new(Time::ZERO);
    let mut outcome = Outcome::default();
    let (mut sent, mut xoff, mut paused) = (0, 0, Duration::ZERO);
    let mut next_poll = Time::ZERO + POLL;
    let mut now = Time::ZERO;
    let mut next: Vec<Time> = storms.iter().map(|storm| storm.start).collect();
    while now < Time::ZERO + lasts {
        for (storm, next) in storms.iter().zip(&mut next) {
            if *next == now && now < storm.end {
                pauses.on_pfc(now, Pfc::uniform(storm.classes, storm.quanta));
                *next = (now + storm.gap).min(storm.end);
            } else if *next == now && now == storm.end {
                pauses.on_pfc(now, Pfc::uniform(storm.classes, 0));
                *next = Time::NEVER;
            }
        }
        pauses.expire(now);
        if next_poll <= now {
            next_poll = now + POLL;
            let seen = Observation {
                occupied: outcome.waiting > 0,
                sent: outcome.sent - sent,
                xoff_received: pauses.xoff_received(index) - xoff,
                paused: pauses.paused_for(now, index) - paused,
            };
            (sent, xoff) = (outcome.sent, pauses.xoff_received(index));
            paused = pauses.paused_for(now, index);
            match watch.look(config, now, seen) {
                Verdict::Same => {}
                Verdict::Detected => outcome.detected.push(now),
                Verdict::Restored => outcome.restored.push(now),
            }
            let obeyed = match watch.treatment(config.action) {
                Treatment::Lossless => lossless,
                Treatment::Forward | Treatment::Drop => lossless & !(1 << class),
            };
            pauses.set_obeyed(now, obeyed);
        }
        outcome.waiting += u64::from(traffic);
        match watch.treatment(config.action) {
            Treatment::Drop => outcome.dropped += std::mem::take(&mut outcome.waiting),
            _ if pauses.stopped() & 1 << class != 0 => {}
            _ => outcome.sent += std::mem::take(&mut outcome.waiting),
        }
        now += STEP;
    }
    outcome
}

/// The middle one.
fn median(mut spans: Vec<Duration>) -> Duration {
    spans.sort_unstable();
    spans[spans.len() / 2]
}

#[test]
fn a_storm_longer_than_detection_and_a_poll_fires_and_loses_only_what_it_must() {
    for traffic in [true, false] {
        let storm = Storm::of(us(2_345), DETECTION + POLL + STEP);
        let config = sonic(WatchdogAction::Drop);
        let outcome = run(&config, &[storm], traffic, Duration::from_ms(40));
        assert_eq!((outcome.detected.len(), outcome.restored.len()), (1, 1));
        let (found, over) = (outcome.detected[0], outcome.restored[0]);
        assert!(storm.start + DETECTION < found && found < storm.end, "{found}");
        assert!(storm.end + RESTORATION < over && over < storm.end + RESTORATION + POLL, "{over}");
        // What waited when it fired, and what came until it was over.
        let lost = if traffic { over.since(storm.start).as_ps() / STEP.as_ps() } else { 0 };
        assert_eq!(outcome.dropped, lost);
        assert_eq!(outcome.sent, if traffic { 40_000 - lost } else { 0 });
    }
}

#[test]
fn a_shorter_storm_never_fires_and_loses_nothing() {
    for config in [sonic(WatchdogAction::Drop), h3c(None)] {
        for offset in 0..20 {
            for traffic in [true, false] {
                let storm = Storm::of(us(2_000 + 50 * offset), DETECTION - STEP);
                let outcome = run(&config, &[storm], traffic, Duration::from_ms(12));
                assert_eq!(outcome.detected, [], "{offset} {traffic}");
                assert_eq!((outcome.dropped, outcome.waiting), (0, 0));
            }
        }
    }
}

#[test]
fn twenty_detections_and_restorations_have_their_median_within_a_poll() {
    let mut rng = Rng::for_node(1, "storms");
    for (config, is_sonic) in [(sonic(WatchdogAction::Drop), true), (h3c(None), false)] {
        let (mut found, mut over) = (Vec::new(), Vec::new());
        for _ in 0..20 {
            let storm = Storm::of(us(2_001 + rng.below(998)), DETECTION + POLL * 2);
            let outcome = run(&config, &[storm], true, Duration::from_ms(30));
            assert_eq!((outcome.detected.len(), outcome.restored.len()), (1, 1));
            found.push(outcome.detected[0].since(storm.start));
            over.push(if is_sonic {
                outcome.restored[0].since(storm.end)
            } else {
                outcome.restored[0].since(outcome.detected[0])
            });
        }
        assert!(found.iter().all(|d| (DETECTION..=DETECTION + POLL).contains(d)), "{found:?}");
        let median_found = median(found);
        assert!(DETECTION < median_found && median_found < DETECTION + POLL, "{median_found}");
        if is_sonic {
            let over = median(over);
            assert!(RESTORATION < over && over < RESTORATION + POLL, "{over}");
        } else {
            assert!(over.iter().all(|d| *d == RESTORATION), "a fixed time: {over:?}");
        }
    }
}

#[test]
fn forward_sends_everything_and_alert_only_counts() {
    let storm = Storm::of(us(2_345), DETECTION * 3);
    let lasts = Duration::from_ms(40);
    let forward = run(&sonic(WatchdogAction::Forward), &[storm], true, lasts);
    assert_eq!((forward.detected.len(), forward.dropped, forward.sent), (1, 0, 40_000));
    let alert = run(&sonic(WatchdogAction::Alert), &[storm], true, lasts);
    assert_eq!((alert.detected.len(), alert.restored.len(), alert.dropped), (1, 1, 0));
    // A run that ends in the storm: alert has left the frames waiting, forward has not.
    let lasts = Duration::from_ms(10);
    assert_eq!(run(&sonic(WatchdogAction::Forward), &[storm], true, lasts).waiting, 0);
    assert!(run(&sonic(WatchdogAction::Alert), &[storm], true, lasts).waiting > 5_000);
}

#[test]
fn a_choppy_storm_fires_only_where_no_frame_gets_through() {
    // Stopped for 90 us of each 100: 90 us at 100 Gb/s are 17,578 quanta.
    let choppy = |part_us: u64| Storm {
        quanta: u16::try_from(part_us * 100_000 / 512).expect("16 bits"),
        ..Storm::of(us(2_000), Duration::from_ms(30))
    };
    let lasts = Duration::from_ms(32);
    let config = sonic(WatchdogAction::Drop);
    let flows = run(&config, &[choppy(90)], true, lasts);
    assert_eq!((flows.detected.len(), flows.dropped), (0, 0), "frames leave in the gaps");
    let idle = run(&config, &[choppy(90)], false, lasts);
    // 900 us in each poll: five polls for 4 ms.
    assert_eq!(idle.detected, [us(7_000)]);
    assert_eq!(run(&config, &[choppy(80)], false, lasts).detected, [], "at most 80 %");
    for traffic in [true, false] {
        assert_eq!(run(&h3c(None), &[choppy(99)], traffic, lasts).detected, [], "not whole polls");
    }
}

#[test]
fn a_storm_of_all_priorities_is_found_for_each_lossless_one_alike_and_no_other_stops() {
    let storm = Storm { classes: 0xff, ..Storm::of(us(2_345), DETECTION * 4) };
    for config in [sonic(WatchdogAction::Drop), h3c(None)] {
        let of = |class| run_class(&config, &[storm], class, 0b1_1000, true, Duration::from_ms(60));
        let (three, four) = (of(3), of(4));
        assert_eq!(three, four);
        assert!(!three.detected.is_empty() && three.detected.len() == three.restored.len());
        for class in [0, 1, 2, 5, 6, 7] {
            let other = of(class);
            assert_eq!((other.detected.len(), other.dropped, other.sent), (0, 0, 60_000));
        }
    }
    // Restored by quiet alone: while the storm goes on it is found once and does not flap.
    let outcome = run(&sonic(WatchdogAction::Drop), &[storm], true, Duration::from_ms(60));
    assert_eq!((outcome.detected.len(), outcome.restored.len()), (1, 1));
}

#[test]
fn h3c_recovers_after_a_fixed_time_whatever_the_storm_does_and_then_finds_it_again() {
    let storm = Storm::of(us(2_000), Duration::from_ms(100));
    let outcome = run(&h3c(None), &[storm], true, Duration::from_ms(50));
    // Found at 6 ms, back at 14 ms; stopped by the next frame at most 100 us later, so that the
    // first whole poll is that from 15 ms on.
    assert_eq!(outcome.detected, [us(6_000), us(19_000), us(32_000), us(45_000)]);
    assert_eq!(outcome.restored, [us(14_000), us(27_000), us(40_000)]);
    assert_eq!(outcome.dropped, 0);
}

#[test]
fn h3c_stays_off_behind_its_last_detection_until_an_operator_rearms_it() {
    let config = h3c(Some(3));
    let storm = Storm::of(us(2_000), Duration::from_ms(200));
    let outcome = run(&config, &[storm], true, Duration::from_ms(200));
    assert_eq!((outcome.detected.len(), outcome.restored.len()), (3, 2));
    let mut watch = ClassWatch::new(Time::ZERO);
    let stormy =
        Observation { occupied: true, sent: 0, xoff_received: 1, paused: Duration::from_ms(1) };
    let mut now = Time::ZERO;
    let mut look = |watch: &mut ClassWatch, polls: u64| {
        let mut found = 0;
        for _ in 0..polls {
            now += POLL;
            found += u64::from(watch.look(&config, now, stormy) == Verdict::Detected);
        }
        found
    };
    assert_eq!(look(&mut watch, 1_000), 3);
    assert!(watch.is_off());
    assert_eq!(watch.treatment(config.action), Treatment::Forward);
    assert!(watch.rearm() && !watch.rearm());
    assert_eq!(watch.treatment(config.action), Treatment::Lossless);
    assert_eq!(look(&mut watch, 1_000), 3, "as many as at first");
    assert_eq!((watch.detected(), watch.restored()), (6, 5));
}

#[test]
fn what_cannot_tell_storms_is_refused() {
    let message = |spoil: fn(&mut WatchdogConfig)| {
        let mut config = sonic(WatchdogAction::Drop);
        spoil(&mut config);
        config.check(RATE).expect_err("refused")
    };
    assert_eq!(sonic(WatchdogAction::Drop).check(RATE), Ok(()));
    assert_eq!(h3c(Some(1)).check(RATE), Ok(()));
    let (field, problem) = message(|config| config.poll = Duration::from_us(300));
    assert_eq!(field, "watchdog.poll");
    assert!(problem.starts_with("300us: one frame can pause a port of 100Gbps for 335.5392us"));
    let (field, problem) = message(|config| config.detection = Duration::from_us(4_500));
    assert_eq!(
        (field, problem.as_str()),
        ("watchdog.detection", "4.5ms is not a whole number of polls of 1ms")
    );
    let shorter = message(|config| config.detection = Duration::ZERO);
    assert_eq!(shorter.0, "watchdog.detection");
    let field = message(|config| {
        config.mode = WatchdogMode::Sonic { restoration: Duration::from_us(1_500) };
    });
    assert_eq!(field.0, "watchdog.restoration");
    let (field, _) = message(|config| config.mode = h3c(Some(0)).mode);
    assert_eq!(field, "watchdog.detections_max");
    let (field, _) = message(|config| {
        config.mode = h3c(None).mode;
        config.action = WatchdogAction::Alert;
    });
    assert_eq!(field, "watchdog.action");
}
