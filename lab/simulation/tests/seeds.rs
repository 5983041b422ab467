//! Seeds that must pass, always the same ones, and as many others as there is time for.

use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{env, thread};

use leasehold_conformance::Rule;
use leasehold_simulation::{Report, Simulation, shrink};

/// The time for seeds that no run has had before. `SIMULATION_SECONDS` sets another.
const NEW_SEEDS: Duration = Duration::from_secs(30);

/// The seeds that every run has: about seven seconds of a processor.
const KNOWN_SEEDS: u64 = 1_500;

/// Seeds for which earlier checkers reported a violation by mistake. A client requests the revocation of a grant whose reply is lost. The same request is
/// then granted again: after an operator has force-released the first grant, while the first grant is in force, or after another client's grant. The
/// revocation request does not apply to the second grant.
const SEEDS_OF_WRONG_VERDICTS: [u64; 3] =
    [117_670_493_615_033_428, 117_678_695_140_163_791, 117_681_098_798_859_761];

/// A seed takes milliseconds. One that takes so long, on however busy a machine, goes in a circle in which its own time stands still.
const HANGS: Duration = Duration::from_secs(60);

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// Runs a seed in a separate thread, so that a seed that hangs fails the test, too.
fn run(seed: u64) -> Report {
    let (sender, receiver) = mpsc::channel();
    // After the time limit, the test no longer receives the report.
    thread::spawn(move || drop(sender.send(shrink(Simulation::new(seed)))));
    let report = receiver.recv_timeout(HANGS);
    let report = report.unwrap_or_else(|error| panic!("seed {seed} hangs or panics: {error}"));

    assert!(!report.is_violated(), "{report}");
    report
}

#[test]
fn known_seeds_break_no_promise() {
    for seed in (0..KNOWN_SEEDS).chain(SEEDS_OF_WRONG_VERDICTS) {
        run(seed);
    }
}

#[test]
fn new_seeds_break_no_promise() {
    let time = number("SIMULATION_SECONDS").map_or(NEW_SEEDS, Duration::from_secs);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is set");
    let first = u64::try_from(now.as_millis()).expect("it is not that late") << 16;
    let started = Instant::now();
    let (mut seeds, mut guards, mut handed_off, mut messages) = (0, 0, 0, 0);
    let (mut overlaps, mut longest, mut simulated) = (0, Duration::ZERO, Duration::ZERO);
    while started.elapsed() < time {
        let report = run(first + seeds);
        seeds += 1;
        guards += report.guards();
        handed_off += report.handed_off();
        messages += report.messages();
        overlaps += report.excused_overlaps();
        longest = longest.max(report.longest_overlap());
        simulated += report.time();
    }

    assert!(guards > 0, "no caller ever got a lock");
    let took = started.elapsed().as_secs_f64();
    println!(
        "{seeds} seeds from {first}: {:.0} a second, {:.0} simulated seconds a second; {guards} guards, {handed_off} of them handed \
         over, {messages} messages; {overlaps} overlaps that the promises grant, of up to {longest:.1?}",
        seeds as f64 / took,
        simulated.as_secs_f64() / took,
    );
}

#[test]
fn a_seed_decides_everything() {
    for seed in 0..200 {
        let traces = [0, 1].map(|_| Simulation::new(seed).run().trace());
        assert_eq!(traces[0], traces[1], "seed {seed}");
    }
}

/// Runs the seed that `SIMULATION_SEED` names, without the incidents that `SIMULATION_WITHOUT` lists.
#[test]
fn replay() {
    let without = env::var("SIMULATION_WITHOUT").unwrap_or_default();
    let without = without.split(',').filter_map(|number| number.parse().ok());
    let simulation = Simulation::new(number("SIMULATION_SEED").unwrap_or_default());
    let report = without.fold(simulation, Simulation::without).run();

    println!("{report}");
    assert!(!report.is_violated(), "{report}");
}

#[test]
fn a_drift_beyond_the_promised_one_is_found() {
    let broken = (0..2_000)
        .find(|seed| Simulation::new(*seed).drift(300_000).run().violates(Rule::Exclusion));

    assert!(broken.is_some(), "clocks that are off by 30 % each broke nothing");
}
