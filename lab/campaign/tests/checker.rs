//! The checker finds each violation, and reports no violation of a correct history.

use std::time::Duration;

use leasehold_campaign::fault::{CATALOGUE, Fault};
use leasehold_conformance::history::checker::{Bounds, History};
use leasehold_conformance::history::event::{Event, EventKind, LeaseInfo, Usage};
use leasehold_conformance::history::fault::Hit;
use leasehold_conformance::history::run::{Cause, End, Kind, Register, Run};
use leasehold_conformance::history::summary::Summary;
use leasehold_conformance::{FaultKind, Rule};

/// Beside the recovery, which is none, longer than a key may take to be free.
const TTL: u64 = 100;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn event(at: u64, process: u32, kind: EventKind) -> Event {
    Event { at: ms(at), process, kind }
}

fn enters_for(at: u64, process: u32, token: u64, deadline: u64, limit: u32) -> Event {
    let (key, kind) = ("job".to_owned(), Kind::Mutex);
    let (hold, call, task, units, deadline) = (1, 9, 0, 1, ms(deadline));
    let entered = EventKind::Entered {
        hold,
        call,
        task,
        key,
        kind,
        token,
        units,
        limit,
        deadline,
        lease: LeaseInfo { id: token, ttl: ms(TTL), is_renewed: true },
    };
    event(at, process, entered)
}

fn enters(at: u64, process: u32, token: u64) -> Event {
    enters_for(at, process, token, at + TTL, 1)
}

fn held(at: u64, process: u32, deadline: u64) -> Event {
    event(at, process, EventKind::Held { hold: 1, deadline: ms(deadline) })
}

fn lost(at: u64, process: u32) -> Event {
    let reason = "expired".to_owned();
    event(at, process, EventKind::Lost { hold: 1, deadline: None, reason })
}

fn writes(at: u64, process: u32, accepted: bool) -> Event {
    let (hold, register, undid) = (1, Register::Fenced, false);
    event(at, process, EventKind::Wrote { hold, register, accepted, undid })
}

fn ends(at: u64, process: u32, deadline: u64) -> Event {
    event(at, process, EventKind::Ends { hold: 1, deadline: ms(deadline), waits: true })
}

fn asks(at: u64, until: u64, process: u32) -> [Event; 2] {
    let outcome = "busy".to_owned();
    [
        event(at, process, EventKind::Asked { call: 9, key: "job".to_owned(), limit: None }),
        event(until, process, EventKind::Answered { call: 9, outcome }),
    ]
}

fn freed(after: u64) -> Event {
    event(1_000, 0, EventKind::Freed { key: "job".to_owned(), after: ms(after) })
}

fn hit(kind: FaultKind, from: u64, until: u64) -> Hit {
    let fault = CATALOGUE.iter().find(|fault| fault.kind == kind).unwrap();
    let Fault { kind, window, is_outside, .. } = *fault;
    let target = "a server".to_owned();
    Hit { window, is_outside, target, ..Hit::new(kind, ms(from), ms(until)) }
}

fn judged(events: impl Into<Vec<Event>>, faults: Vec<Hit>) -> Run {
    let bounds = Bounds { ttl: ms(TTL), recovery: Duration::ZERO, after_effects: None };
    History::new(Duration::ZERO, events.into(), faults, bounds).check()
}

#[track_caller]
fn assert_kept(events: impl Into<Vec<Event>>) {
    let run = judged(events, Vec::new());
    assert!(run.violations.is_empty(), "{:?}", run.violations);
}

#[track_caller]
fn assert_broken(rule: Rule, events: impl Into<Vec<Event>>) {
    let run = judged(events, Vec::new());
    let [violation] = &run.violations[..] else { panic!("one is expected: {:?}", run.violations) };
    assert_eq!(violation.rule, rule, "{}", violation.text);
    assert_eq!(violation.excused, None);
}

#[test]
fn a_true_history_is_believed() {
    let run = judged(
        [
            event(0, 1, EventKind::Started),
            enters(0, 1, 7),
            writes(10, 1, true),
            held(80, 1, 150),
            ends(90, 1, 150),
            enters(90, 2, 8),
            writes(95, 2, true),
            // Paused before its release was sent, and late.
            writes(96, 1, false),
            event(150, 1, EventKind::Killed),
            lost(200, 2),
            freed(30),
        ],
        Vec::new(),
    );

    assert!(run.violations.is_empty(), "{:?}", run.violations);
    let ends: Vec<_> = run.holds.iter().map(|hold| hold.end).collect();
    assert_eq!(ends, [End::Released, End::Deadline]);
    assert_eq!((run.holds[0].until_ms, run.holds[1].until_ms), (90.0, 190.0));
    assert_eq!(run.clients[0].cause, Some(Cause::Killed));
    assert_eq!(run.figures.writes, [2, 1]);
    assert_eq!(run.figures.loss_latency_ms, [10.0; 3]);
    assert_eq!(run.figures.until_free_ms, 30.0);
}

#[test]
fn two_holders_at_once_are_found() {
    let run = judged([enters(0, 1, 7), held(50, 1, 150), enters(40, 2, 8)], Vec::new());

    let violation = &run.violations[0];
    assert_eq!((violation.rule, violation.at_ms), (Rule::Exclusion, 40.0));
    assert_eq!(violation.length_ms, 100.0);
    assert_eq!(violation.holds, [0, 1]);
    assert_eq!(run.figures.longest_overlap_ms, 100.0);
    let first = "process 1, task 0 held job with token 7 from 0.000 s to 0.150 s (deadline)";
    assert!(Summary(&run).to_string().contains(first), "{}", Summary(&run));
}

#[test]
fn a_window_of_the_promises_excuses_an_overlap() {
    let overlap = [enters(0, 1, 7), enters(40, 2, 8)];
    let excused = judged(overlap.clone(), vec![hit(FaultKind::PrimaryKilled, 30, 50)]);
    let too_early = judged(overlap, vec![hit(FaultKind::PrimaryKilled, 60, 90)]);

    assert!(excused.violations[0].excused.as_ref().unwrap().starts_with("failover"));
    assert_eq!(excused.figures.excused[&Rule::Exclusion], 1);
    assert!(excused.figures.violations.is_empty());
    assert_eq!(too_early.figures.violations[&Rule::Exclusion], 1);
}

#[test]
fn an_overlap_beyond_the_bound_of_its_window_is_found() {
    let overlap = [enters(0, 1, 7), held(200, 1, 300), enters(40, 2, 8), held(200, 2, 300)];
    let run = judged(overlap, vec![hit(FaultKind::PrimaryKilled, 30, 50)]);

    assert_eq!(run.figures.violations[&Rule::Exclusion], 1, "it lasts for longer than a TTL");
}

#[test]
fn an_overlap_that_lasts_after_its_window_is_found() {
    let overlap = |at| [enters(at, 1, 7), enters(at + 40, 2, 8)];
    let flushed = || vec![hit(FaultKind::ClockForward, 30, 50)];

    assert!(judged(overlap(50), flushed()).figures.violations.is_empty(), "it ends at 150");
    assert_eq!(judged(overlap(51), flushed()).figures.violations[&Rule::Exclusion], 1);
}

#[test]
fn a_second_fault_prolongs_an_overlap() {
    let overlap =
        [enters_for(0, 1, 7, 150, 1), enters_for(40, 2, 8, 220, 1), enters_for(140, 3, 9, 230, 1)];
    let one = judged(overlap.clone(), vec![hit(FaultKind::ClockForward, 30, 50)]);
    let two = [hit(FaultKind::ClockForward, 130, 135), hit(FaultKind::ClockForward, 30, 50)];

    assert_eq!(one.figures.violations[&Rule::Exclusion], 1);
    assert!(judged(overlap, two.into()).figures.violations.is_empty());
}

#[test]
fn a_stopped_process_believes_up_to_its_deadline() {
    assert_broken(Rule::Exclusion, [enters(0, 1, 7), enters(99, 2, 8), lost(300, 1)]);
    assert_kept([enters(0, 1, 7), enters(100, 2, 8), lost(300, 1)]);
}

#[test]
fn a_killed_process_believes_nothing() {
    assert_kept([enters(0, 1, 7), event(20, 1, EventKind::Killed), enters(20, 2, 8)]);
}

/// Its client was shut down, and has released a guard that was forgotten.
#[test]
fn a_finished_process_believes_nothing() {
    let finishes = event(20, 1, EventKind::Finished(Usage::default()));
    assert_kept([enters(0, 1, 7), finishes, event(21, 1, EventKind::Ended), enters(22, 2, 8)]);
}

#[test]
fn a_unit_above_the_limit_is_found() {
    let of_two = |at, process, token| enters_for(at, process, token, at + TTL, 2);
    let two = [of_two(0, 1, 9), of_two(10, 2, 8)];
    assert_kept(two.clone());

    assert_broken(Rule::Exclusion, [&two[..], &[of_two(20, 3, 10)]].concat());
}

#[test]
fn a_stale_write_that_is_accepted_is_found() {
    let (first, second) = ([enters(0, 1, 7), ends(50, 1, 100)], enters(60, 2, 8));
    let late = [second, writes(70, 2, true), writes(80, 1, true)];

    assert_broken(Rule::Fencing, [&first[..], &late].concat());
}

#[test]
fn a_holder_that_is_refused_without_a_successor_is_found() {
    assert_broken(Rule::Fencing, [enters(0, 1, 7), writes(10, 1, false)]);

    let successor = [enters(20, 2, 8), ends(30, 2, 120)];
    let run =
        judged([&[enters(0, 1, 7)], &successor[..], &[writes(40, 1, false)]].concat(), vec![]);
    assert_eq!(run.figures.violations.keys().collect::<Vec<_>>(), [&Rule::Exclusion]);
}

#[test]
fn a_write_without_a_hold_is_found() {
    assert_broken(Rule::Fencing, [writes(10, 1, false)]);
}

#[test]
fn an_update_that_is_lost_is_counted() {
    let (hold, register) = (1, Register::Unfenced);
    let undoes = EventKind::Wrote { hold, register, accepted: true, undid: true };
    let run = judged([enters(0, 1, 7), event(10, 1, undoes)], Vec::new());

    assert_eq!((run.figures.lost_updates, run.violations.len()), (1, 0));
}

#[test]
fn tokens_that_do_not_grow_are_found() {
    let first = [enters(0, 1, 7), ends(50, 1, 100)];

    assert_broken(Rule::TokenOrder, [&first[..], &[enters(60, 2, 6)]].concat());
    assert_broken(Rule::TokenOrder, [&first[..], &[enters(60, 2, 7)]].concat());
}

#[test]
fn a_late_entry_is_found_and_excused_where_leases_may_end_early() {
    let first = [enters(10, 1, 7), ends(50, 1, 110)];
    let late = [&first[..], &asks(5, 59, 2), &[enters(60, 2, 6)]].concat();
    assert_broken(Rule::EntryOrder, late.clone());

    let step = || vec![hit(FaultKind::ClockForward, 0, 10)];
    let excused = judged(late.clone(), step());
    assert!(excused.figures.violations.is_empty(), "{:?}", excused.violations);

    let refused = [&late[..], &[writes(10, 1, true), writes(61, 2, false)]].concat();
    let refused = judged(refused, step());
    assert!(refused.figures.violations.is_empty(), "{:?}", refused.violations);

    let in_order = [&late[..], &[writes(61, 2, true), writes(62, 1, true)]].concat();
    let in_order = judged(in_order, step());
    assert!(in_order.figures.violations.is_empty(), "{:?}", in_order.violations);

    let asked_after = [&first[..], &asks(11, 59, 2), &[enters(60, 2, 6)]].concat();
    assert_eq!(judged(asked_after, step()).figures.violations[&Rule::TokenOrder], 1);
}

#[test]
fn a_reentrant_entry_is_not_a_new_grant() {
    let entry = |at, process, hold, token| {
        let mut entered = enters(at, process, token);
        if let EventKind::Entered { hold: it, kind, .. } = &mut entered.kind {
            (*it, *kind) = (hold, Kind::Reentrant);
        }
        entered
    };
    let taken_over = [entry(0, 1, 1, 6), entry(20, 2, 1, 7)];
    let ended_early = vec![hit(FaultKind::ClockForward, 10, 15)];

    let again = [&taken_over[..], &[entry(30, 1, 2, 6)]].concat();
    let again = judged(again, ended_early.clone());
    assert!(!again.figures.violations.contains_key(&Rule::TokenOrder), "{:?}", again.violations);

    let by_another = [&taken_over[..], &[entry(30, 3, 1, 6)]].concat();
    let by_another = judged(by_another, ended_early);
    assert!(by_another.figures.violations.contains_key(&Rule::TokenOrder));
}

#[test]
fn a_second_owner_that_enters_a_reentrant_lock_is_found() {
    let entry = |at, number, owner| {
        let mut entered = enters(at, 1, 7);
        if let EventKind::Entered { hold, task, kind, .. } = &mut entered.kind {
            (*hold, *task, *kind) = (number, owner, Kind::Reentrant);
        }
        entered
    };

    let by_one = judged([entry(0, 1, 1), entry(10, 2, 1)].to_vec(), Vec::new());
    assert!(by_one.figures.violations.is_empty(), "{:?}", by_one.violations);
    assert_broken(Rule::Exclusion, [entry(0, 1, 1), entry(10, 2, 2)]);
}

#[test]
fn a_loss_that_is_withdrawn_is_found() {
    assert_broken(Rule::HonestGuard, [enters(0, 1, 7), lost(50, 1), held(60, 1, 99)]);
}

#[test]
fn a_guard_that_outlives_its_deadline_is_found() {
    assert_broken(Rule::HonestGuard, [enters(0, 1, 7), held(120, 1, 110)]);
}

#[test]
fn work_that_goes_on_after_a_loss_is_found() {
    assert_broken(
        Rule::HonestGuard,
        [enters(0, 1, 7), lost(50, 1), event(60, 1, EventKind::WentOn { hold: 1 })],
    );
}

#[test]
fn a_caller_that_waits_for_a_free_key_is_found() {
    let held = [enters(0, 1, 7), ends(50, 1, 100)];
    let waits = |until| [&held[..], &asks(0, until, 2)].concat();
    assert_kept(waits(150));

    assert_broken(Rule::BoundedWait, waits(151));
    let run = judged(waits(400), vec![hit(FaultKind::PrimaryKilled, 60, 310)]);
    assert!(run.violations.is_empty(), "no caller waits longer than a TTL without a fault");
}

#[test]
fn a_caller_that_waits_while_the_machine_stands_still_is_not_passed_over() {
    let held = [enters(0, 1, 7), ends(50, 1, 100)];
    let stalled = event(300, 0, EventKind::Stalled { late: ms(200) });
    let run = judged([&held[..], &[stalled], &asks(0, 380, 2)].concat(), Vec::new());

    assert!(run.violations.is_empty(), "{:?}", run.violations);
    assert_eq!(run.figures.stalled_ms, 200.0);
}

#[test]
fn an_error_that_no_fault_explains_is_found() {
    let answered = EventKind::Answered { call: 1, outcome: "internal".to_owned() };

    assert_broken(Rule::ExplainedFailure, [event(10, 1, answered)]);
}

#[test]
fn a_key_that_is_not_freed_in_time_is_found() {
    assert_kept([freed(TTL)]);

    assert_broken(Rule::NoResidue, [freed(TTL + 1)]);
    assert_broken(Rule::NoResidue, [event(0, 0, EventKind::Left { key: "job".to_owned() })]);
}

#[test]
fn resources_that_a_process_keeps_are_found() {
    let usage = |fds, leases| Usage {
        fds,
        entries: [("leases".to_owned(), leases)].into(),
        ..Usage::default()
    };
    let finishes =
        |usage| [event(90, 1, EventKind::Finished(usage)), event(91, 1, EventKind::Ended)];
    let works = event(10, 1, EventKind::Uses(usage(20, 5)));
    assert_kept([std::slice::from_ref(&works), &finishes(usage(20, 0))[..]].concat());

    assert_broken(Rule::NoResidue, finishes(usage(20, 1)));
    assert_broken(Rule::NoResidue, [&[works], &finishes(usage(90, 0))[..]].concat());
}

#[test]
fn a_process_that_fails_is_found() {
    assert_broken(Rule::SoundRun, [event(10, 1, EventKind::Ended)]);
}

#[test]
fn a_process_that_runs_while_it_is_paused_is_found() {
    assert_broken(Rule::SoundRun, [event(10, 1, EventKind::RanPaused)]);
}

#[test]
fn something_that_remains_is_found() {
    let remained = EventKind::Remained { what: "a task".to_owned() };

    assert_broken(Rule::NoResidue, [event(10, 0, remained)]);
}

#[test]
fn a_loss_that_no_fault_explains_is_found() {
    let checked = |faults| {
        let bounds = Bounds { ttl: ms(TTL), recovery: Duration::ZERO, after_effects: Some(ms(20)) };
        History::new(Duration::ZERO, vec![enters(50, 1, 7), lost(80, 1)], faults, bounds).check()
    };
    let of_key =
        |key: &str| Hit { key: Some(key.to_owned()), ..hit(FaultKind::LeaderKilled, 60, 70) };

    assert_eq!(checked(vec![]).figures.violations[&Rule::ExplainedFailure], 1);
    assert_eq!(checked(vec![of_key("another")]).figures.violations.len(), 1);
    assert_eq!(checked(vec![hit(FaultKind::LeaderKilled, 10, 29)]).figures.violations.len(), 1);
    assert!(checked(vec![of_key("job")]).violations.is_empty());
    assert!(checked(vec![hit(FaultKind::LeaderKilled, 10, 30)]).violations.is_empty());
}

#[test]
fn a_call_that_takes_longer_than_its_limit_is_found() {
    let calls = |until| {
        let limit = Some(ms(100));
        let asked = EventKind::Asked { call: 9, key: "job".to_owned(), limit };
        let answered = EventKind::Answered { call: 9, outcome: "busy".to_owned() };
        [event(0, 1, asked), event(until, 1, answered)]
    };
    assert_kept(calls(154));

    assert_broken(Rule::BoundedWait, calls(155));
    let paused = Hit { stopped: vec![1], ..hit(FaultKind::ClientStopped, 20, 60) };
    assert!(judged(calls(155), vec![paused]).violations.is_empty());
}

#[test]
fn a_store_that_grants_a_smaller_token_is_found() {
    let grants = |at, lease, token, last_token| {
        let (store, key) = (0, "job".to_owned());
        event(at, 0, EventKind::Granted { store, key, lease, token, last_token })
    };
    assert_kept([grants(0, 1, 7, 9), grants(10, 2, 10, 10)]);
    let lost = event(5, 0, EventKind::TokensLost { store: 0 });
    assert_kept([grants(0, 1, 7, 9), lost, grants(10, 2, 1, 1)]);

    assert_broken(Rule::TokenOrder, [grants(0, 1, 7, 9), grants(10, 2, 9, 9)]);
}

fn enters_with_lease(at: u64, hold: u64, token: u64, deadline: u64) -> Event {
    let mut entered = enters_for(at, 1, token, deadline, 1);
    if let EventKind::Entered { hold: number, lease, .. } = &mut entered.kind {
        (*number, lease.id) = (hold, 5);
    }
    entered
}

#[test]
fn a_lease_that_is_handed_off_shortly_before_its_deadline_is_found() {
    let first = [enters_with_lease(0, 1, 7, 100), ends(60, 1, 100)];
    let handed_off = |deadline| [&first[..], &[enters_with_lease(60, 2, 8, deadline)]].concat();

    assert_eq!(judged(handed_off(160), Vec::new()).figures.handed_off, 1);
    assert_kept(handed_off(110));
    assert_broken(Rule::HandOff, handed_off(100));
}

#[test]
fn a_lease_that_is_handed_off_despite_a_revocation_request_is_found() {
    let (store, key) = (0, || "job".to_owned());
    let granted = EventKind::Granted { store, key: key(), lease: 5, token: 7, last_token: 9 };
    let requested = event(10, 0, EventKind::RevocationRequested { store, key: key() });
    let notified = event(20, 1, EventKind::Notified { store, key: key() });
    let handed_off = |between: &[Event]| {
        let first = [event(0, 0, granted.clone()), enters_with_lease(0, 1, 7, 100)];
        let then = [ends(30, 1, 100), enters_with_lease(30, 2, 8, 130)];
        [&first[..], between, &then[..]].concat()
    };
    assert_kept(handed_off(std::slice::from_ref(&requested)));
    assert_kept(handed_off(std::slice::from_ref(&notified)));

    assert_broken(Rule::HandOff, handed_off(&[requested, notified]));
}

#[test]
fn a_line_that_is_missing_is_found() {
    assert_broken(Rule::SoundRun, [event(10, 1, EventKind::Missing)]);
}
