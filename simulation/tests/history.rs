//! The checker of histories finds each lie, and no fault in a true history.

use std::time::Duration;

use leasehold_simulation::{Event, EventKind, History, Verdict};

/// Longer than a key may take to be free.
const TTL: u64 = 100;

fn event(at: u64, process: u32, kind: EventKind) -> Event {
    Event { at: Duration::from_millis(at), process, hold: 1, kind }
}

fn enters_for(at: u64, process: u32, token: u64, deadline: u64, limit: u32) -> Event {
    let (key, deadline) = ("job".to_owned(), Duration::from_millis(deadline));
    event(at, process, EventKind::Entered { key, token, units: 1, limit, deadline })
}

fn enters(at: u64, process: u32, token: u64) -> Event {
    enters_for(at, process, token, at + TTL, 1)
}

fn held(at: u64, process: u32, deadline: u64) -> Event {
    event(at, process, EventKind::Held { deadline: Duration::from_millis(deadline) })
}

fn writes(at: u64, process: u32, accepted: bool) -> Event {
    event(at, process, EventKind::Wrote { accepted })
}

fn ends(at: u64, process: u32) -> Event {
    event(at, process, EventKind::Ends)
}

fn freed(after: u64) -> Event {
    let after = Duration::from_millis(after);
    event(1_000, 0, EventKind::Freed { key: "job".to_owned(), after })
}

fn judged(events: impl Into<Vec<Event>>) -> Verdict {
    History::new(events.into()).judge(Duration::from_millis(TTL))
}

#[track_caller]
fn assert_broken(rule: &str, events: impl Into<Vec<Event>>) {
    let verdict = judged(events);
    let [violation] = verdict.violations() else { panic!("one violation is expected: {verdict}") };
    assert!(violation.starts_with(rule), "{violation}");
}

#[test]
fn a_true_history_is_believed() {
    let verdict = judged([
        enters(0, 1, 7),
        writes(10, 1, true),
        held(80, 1, 150),
        ends(90, 1),
        enters(90, 2, 8),
        writes(95, 2, true),
        // Paused before its release was sent, and late.
        writes(96, 1, false),
        event(200, 2, EventKind::Lost),
        freed(30),
    ]);

    assert!(verdict.violations().is_empty(), "{verdict}");
    let counts = (verdict.events(), verdict.holds(), verdict.losses());
    assert_eq!(counts, (9, 2, 1));
    assert_eq!((verdict.writes(), verdict.refused()), (3, 1));
    assert_eq!(verdict.longest_until_free(), Duration::from_millis(30));
}

#[test]
fn two_holders_at_once_are_found() {
    assert_broken("V1", [enters(0, 1, 7), held(50, 1, 150), enters(40, 2, 8), freed(0)]);
}

#[test]
fn a_stopped_process_believes_up_to_its_deadline() {
    assert_broken(
        "V1",
        [enters(0, 1, 7), enters(99, 2, 8), event(300, 1, EventKind::Lost), freed(0)],
    );
    let verdict =
        judged([enters(0, 1, 7), enters(100, 2, 8), event(300, 1, EventKind::Lost), freed(0)]);
    assert!(verdict.violations().is_empty(), "{verdict}");
}

#[test]
fn a_killed_process_believes_nothing() {
    let verdict =
        judged([enters(0, 1, 7), event(20, 1, EventKind::Killed), enters(20, 2, 8), freed(0)]);

    assert!(verdict.violations().is_empty(), "{verdict}");
}

#[test]
fn a_unit_above_the_limit_is_found() {
    let of_two = |at, process, token| enters_for(at, process, token, at + TTL, 2);
    let two = [of_two(0, 1, 9), of_two(10, 2, 8), freed(0)];
    assert!(judged(two.clone()).violations().is_empty());

    assert_broken("V1", [&two[..], &[of_two(20, 3, 10)]].concat());
}

#[test]
fn a_stale_write_that_is_accepted_is_found() {
    let (first, second) = ([enters(0, 1, 7), ends(50, 1)], enters(60, 2, 8));
    let late = [second, writes(70, 2, true), writes(80, 1, true), freed(0)];

    assert_broken("V2", [&first[..], &late].concat());
}

#[test]
fn a_holder_that_is_refused_is_found() {
    assert_broken("V2", [enters(0, 1, 7), writes(10, 1, false), freed(0)]);
}

#[test]
fn a_write_without_a_hold_is_found() {
    assert_broken("V2", [writes(10, 1, false)]);
}

#[test]
fn tokens_that_do_not_grow_are_found() {
    let first = [enters(0, 1, 7), ends(50, 1), freed(0)];

    assert_broken("V3", [&first[..], &[enters(60, 2, 6)]].concat());
    assert_broken("V3", [&first[..], &[enters(60, 2, 7)]].concat());
}

#[test]
fn a_loss_that_is_withdrawn_is_found() {
    assert_broken(
        "V4",
        [enters(0, 1, 7), event(50, 1, EventKind::Lost), held(60, 1, 99), freed(0)],
    );
}

#[test]
fn a_guard_that_outlives_its_deadline_is_found() {
    assert_broken("V4", [enters(0, 1, 7), held(120, 1, 110), freed(0)]);
}

#[test]
fn a_key_that_is_not_freed_in_time_is_found() {
    assert_broken("V6", [enters(0, 1, 7), freed(TTL + 1)]);
    assert_broken("V6", [enters(0, 1, 7)]);
}
