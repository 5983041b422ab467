//! Tests of the queue for one key, as seen by its callers.

use std::num::NonZeroU64;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::*;
use crate::clock::TokioClock;
use crate::contract::backend::{Fingerprint, Grant, Lease, Mode};
use crate::engine::record::LeaseRecord;
use crate::engine::wait::Wait;
use crate::observe::AskedKind;
use crate::options::LockOptions;
use crate::retry::Retry;

const ZERO: Instant = Instant::from_zero(Duration::ZERO);
const SECOND: Duration = Duration::from_secs(1);

fn queue(max_waiters: usize) -> (Arc<LocalQueue<LeaseRecord>>, LockKey) {
    (Arc::new(LocalQueue::new(max_waiters)), LockKey::new("k").unwrap())
}

fn for_ever() -> Wait {
    Wait::lasting(None, ZERO)
}

fn options() -> Arc<LockOptions> {
    Arc::default()
}

fn request<'a>(
    key: &'a LockKey,
    options: &'a Arc<LockOptions>,
    mode: Mode,
    wait: Wait,
) -> LockRequest<'a> {
    let kind = AskedKind::Mutex;
    LockRequest { key, options, mode, kind, queues: false, owner: None, wait }
}

fn outage() -> Error {
    Error::new(ErrorKind::Unavailable, "no route")
}

async fn next(
    queue: &Arc<LocalQueue<LeaseRecord>>,
    key: &LockKey,
    mode: Mode,
    wait: Wait,
    clock: &dyn Clock,
) -> Result<Next<LeaseRecord>, Error> {
    queue.turn(&request(key, &options(), mode, wait), None, &mut retries(), clock).await
}

fn retries() -> RetryState {
    RetryState::new(&Retry::default(), ZERO)
}

/// Waits for the turn to request the whole key.
async fn turn(
    queue: &Arc<LocalQueue<LeaseRecord>>,
    key: &LockKey,
    clock: &dyn Clock,
) -> StoreAccess<LeaseRecord> {
    match next(queue, key, Mode::Exclusive, for_ever(), clock).await.unwrap() {
        Next::Ask(access @ StoreAccess::Turn(_)) => access,
        other => panic!("not the turn: {other:?}"),
    }
}

fn holder(answer: Result<Next<LeaseRecord>, Error>) -> Holder {
    match answer {
        Ok(Next::Held(Some(holder))) => holder,
        other => panic!("no holder: {other:?}"),
    }
}

/// Grants a lease with the default TTL.
fn granted(access: StoreAccess<LeaseRecord>, mode: Mode, clock: &dyn Clock) -> Arc<LeaseRecord> {
    let lease = Lease::new(&LockKey::new("k").unwrap(), LockOptions::DEFAULT_TTL);
    let record = LeaseRecord::of(lease.with_mode(mode), None);
    record.granted(&Grant::new(NonZeroU64::MIN), clock.now(), false);
    access.granted(mode, &record, |turn| record.give_to_caller(turn));
    record
}

#[tokio::test(start_paused = true)]
async fn turns_come_in_the_order_of_asking() {
    let (queue, key) = queue(10);
    let clock = TokioClock::new();
    let first = turn(&queue, &key, &clock).await;
    let mut second = Box::pin(turn(&queue, &key, &clock));
    let mut third = Box::pin(turn(&queue, &key, &clock));
    assert!((&mut second).now_or_never().is_none());
    assert!((&mut third).now_or_never().is_none());

    drop(first);

    assert!((&mut third).now_or_never().is_none());
    let second = second.await;
    assert!((&mut third).now_or_never().is_none());
    drop(second);
    third.await;
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_leaves_is_passed_over_even_with_the_turn_in_hand() {
    let (queue, key) = queue(10);
    let clock = TokioClock::new();
    let first = turn(&queue, &key, &clock).await;
    let mut second = Box::pin(turn(&queue, &key, &clock));
    let mut third = Box::pin(turn(&queue, &key, &clock));
    let mut fourth = Box::pin(turn(&queue, &key, &clock));
    for waiter in [&mut second, &mut third, &mut fourth] {
        assert!(waiter.now_or_never().is_none());
    }

    drop(second);
    drop(first);
    drop(third);

    fourth.await;
}

#[tokio::test(start_paused = true)]
async fn a_waiter_is_told_held_when_its_wait_ends_behind_a_holder() {
    let (queue, key) = queue(10);
    let clock = TokioClock::new();
    let first = turn(&queue, &key, &clock).await;
    let record = granted(first, Mode::Exclusive, &clock);

    let at_once = next(&queue, &key, Mode::Exclusive, Wait::once(clock.now()), &clock).await;
    assert_eq!(holder(at_once), record.holder(ZERO));
    let wait = Wait::lasting(Some(SECOND), clock.now());
    let later = next(&queue, &key, Mode::Exclusive, wait, &clock).await;
    assert_eq!(holder(later), record.holder(ZERO + SECOND));
    assert_eq!(clock.now(), wait.end());
}

#[tokio::test(start_paused = true)]
async fn a_refusal_names_the_holder_to_all_callers_behind() {
    let (queue, key) = queue(10);
    let clock = TokioClock::new();
    let asking = turn(&queue, &key, &clock).await;
    let other = Holder::new(Fingerprint::of(b"other")).with_remaining(Some(SECOND * 9));
    asking.refused(Some(&other), ZERO);

    let wait = Wait::lasting(Some(SECOND), clock.now());
    let later = next(&queue, &key, Mode::Exclusive, wait, &clock).await;

    let left = other.clone().with_remaining(Some(SECOND * 8));
    assert_eq!(holder(later), left);
    assert_eq!(queue.last_known(&key, clock.now()).unwrap(), Some(left));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_saw_no_holder_is_not_told_held() {
    let (queue, key) = queue(10);
    let clock = TokioClock::new();
    let wait = || Wait::lasting(Some(SECOND), clock.now());
    let asking = turn(&queue, &key, &clock).await;
    let before = next(&queue, &key, Mode::Exclusive, wait(), &clock).await;
    assert_eq!(before.unwrap_err().kind(), ErrorKind::Indeterminate);

    // A waiter that arrives after the release is not notified that the key was held.
    let records = granted(asking, Mode::Exclusive, &clock);
    let mut heir = Box::pin(turn(&queue, &key, &clock));
    assert!((&mut heir).now_or_never().is_none());
    let mut met = Box::pin(next(&queue, &key, Mode::Exclusive, wait(), &clock));
    assert!((&mut met).now_or_never().is_none());
    drop(records);
    let _asking = heir.await;
    let late = next(&queue, &key, Mode::Exclusive, wait(), &clock);
    let (met, late) = tokio::join!(met, late);

    assert!(matches!(met, Ok(Next::Held(_))));
    assert_eq!(late.unwrap_err().kind(), ErrorKind::Indeterminate);
}

#[tokio::test(start_paused = true)]
async fn waiters_share_an_outage_each_with_its_own_patience() {
    let (queue, key) = queue(10);
    let clock = TokioClock::new();
    let outage_wait = options().outage_wait;
    let asking = turn(&queue, &key, &clock).await;
    let wait = |end| Wait::lasting(end, clock.now());
    let early = next(&queue, &key, Mode::Exclusive, wait(None), &clock);
    let timed = next(&queue, &key, Mode::Exclusive, wait(Some(SECOND)), &clock);
    let fails = async {
        clock.sleep_until(ZERO + SECOND / 2).await;
        asking.failed(ZERO, &outage());
        clock.sleep_until(ZERO + SECOND * 3).await;
        asking.failed(ZERO, &outage());
        let late = next(&queue, &key, Mode::Exclusive, wait(None), &clock).await;
        (late.unwrap_err().kind(), clock.now())
    };
    let told = async |next: BoxFuture<'_, Result<Next<LeaseRecord>, Error>>| {
        (next.await.unwrap_err().kind(), clock.now())
    };

    let (early, timed, late) = tokio::join!(told(early.boxed()), told(timed.boxed()), fails);

    assert_eq!(early, (ErrorKind::Unavailable, ZERO + outage_wait));
    assert_eq!(timed, (ErrorKind::Unavailable, ZERO + SECOND));
    assert_eq!(late, (ErrorKind::Unavailable, ZERO + SECOND * 3 + outage_wait));
}

#[tokio::test(start_paused = true)]
async fn an_outage_that_ends_is_told_to_none() {
    let (queue, key) = queue(10);
    let clock = TokioClock::new();
    let asking = turn(&queue, &key, &clock).await;
    let mut waits = Box::pin(turn(&queue, &key, &clock));
    assert!((&mut waits).now_or_never().is_none());
    asking.failed(ZERO, &outage());
    assert!((&mut waits).now_or_never().is_none());

    asking.refused(None, ZERO);

    clock.sleep_until(ZERO + SECOND * 100).await;
    assert!((&mut waits).now_or_never().is_none());
    drop(asking);
    waits.await;
}

#[tokio::test(start_paused = true)]
async fn an_attempt_without_a_wait_asks_unless_the_key_is_known_to_be_held() {
    let (queue, key) = queue(10);
    let clock = TokioClock::new();
    let asks = async || {
        let once = Wait::once(clock.now());
        match next(&queue, &key, Mode::Exclusive, once, &clock).await.unwrap() {
            Next::Ask(StoreAccess::Alone) => true,
            Next::Held(_) => false,
            other => panic!("{other:?}"),
        }
    };
    let asking = turn(&queue, &key, &clock).await;

    assert!(asks().await);
    asking.failed(ZERO, &outage());
    assert!(asks().await);
    asking.refused(None, ZERO);
    assert!(!asks().await);
    let _held = granted(asking, Mode::Exclusive, &clock);
    assert!(!asks().await);
}

#[tokio::test(start_paused = true)]
async fn a_caller_of_another_kind_asks_the_store() {
    let (queue, key) = queue(10);
    let clock = TokioClock::new();
    let _held = granted(turn(&queue, &key, &clock).await, Mode::Exclusive, &clock);

    for wait in [for_ever(), Wait::once(ZERO)] {
        let other = next(&queue, &key, Mode::READER, wait, &clock).await.unwrap();
        assert!(
            matches!(other, Next::Ask(StoreAccess::Alone | StoreAccess::Parallel(_))),
            "{other:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn equal_shares_are_asked_for_at_once_until_one_is_refused() {
    let (queue, key) = queue(10);
    let clock = TokioClock::new();
    let reader = || next(&queue, &key, Mode::READER, for_ever(), &clock);
    let Next::Ask(first) = reader().await.unwrap() else { panic!() };
    let Next::Ask(second) = reader().await.unwrap() else { panic!() };
    assert!(first.once().is_none() && second.once().is_some());
    let mut writer = Box::pin(next(&queue, &key, Mode::WRITER, for_ever(), &clock));
    assert!((&mut writer).now_or_never().is_none());
    let mut third = Box::pin(reader());
    assert!((&mut third).now_or_never().is_none(), "it passes a writer");
    drop(writer);

    // A grant allows another caller to send a request, but a rejection does not.
    granted(second, Mode::READER, &clock);
    let Next::Ask(third) = third.await.unwrap() else { panic!() };
    first.refused(None, ZERO);
    let mut fourth = Box::pin(reader());
    assert!((&mut fourth).now_or_never().is_none());
    granted(third, Mode::READER, &clock);
    assert!((&mut fourth).now_or_never().is_none());
    granted(first, Mode::READER, &clock);
    assert!(matches!(fourth.await.unwrap(), Next::Ask(StoreAccess::Turn(_))));
    assert_eq!(queue.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_was_refused_has_its_place_again() {
    let (queue, key) = queue(10);
    let clock = TokioClock::new();
    let reader = |back| {
        let (queue, key, clock) = (&queue, &key, &clock);
        async move {
            let options = options();
            let request = request(key, &options, Mode::READER, for_ever());
            queue.turn(&request, back, &mut retries(), clock).await
        }
    };
    let Next::Ask(first) = reader(None).await.unwrap() else { panic!() };
    let Next::Ask(second) = reader(None).await.unwrap() else { panic!() };
    let ticket = second.once().unwrap();
    first.refused(None, ZERO);
    let mut third = Box::pin(reader(None));
    assert!((&mut third).now_or_never().is_none());

    drop(second);
    let mut second = Box::pin(reader(Some(Requeue { ticket, refused: true })));
    assert!((&mut second).now_or_never().is_none());
    drop(first);

    assert!((&mut third).now_or_never().is_none());
    assert!(matches!(second.await.unwrap(), Next::Ask(StoreAccess::Turn(_))));
}

#[tokio::test(start_paused = true)]
async fn all_that_ask_or_wait_are_limited_and_none_that_left_counts() {
    let (queue, key) = queue(3);
    let clock = TokioClock::new();
    let (options, fair) = (options(), Arc::new(LockOptions::new().fair(true)));
    let unfair = request(&key, &options, Mode::Exclusive, for_ever());
    let fair = request(&key, &fair, Mode::Exclusive, for_ever());
    let asking = turn(&queue, &key, &clock).await;
    let alone = queue.turn(&fair, None, &mut retries(), &clock).await.unwrap();
    let mut waits = Box::pin(turn(&queue, &key, &clock));
    assert!((&mut waits).now_or_never().is_none());

    for request in [&unfair, &fair] {
        let refused = queue.turn(request, None, &mut retries(), &clock).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::TooManyWaiters);
        assert!(refused.to_string().contains("3 callers"), "{refused}");
    }

    drop(waits);
    let mut waits = Box::pin(turn(&queue, &key, &clock));
    assert!((&mut waits).now_or_never().is_none());
    drop(alone);
    let again = queue.turn(&fair, None, &mut retries(), &clock).await.unwrap();
    // The holder does not count as a waiter.
    let _held = granted(asking, Mode::Exclusive, &clock);
    let more = queue.turn(&fair, None, &mut retries(), &clock).await.unwrap();
    drop((again, more));
}

#[tokio::test(start_paused = true)]
async fn an_outage_under_way_is_told_to_a_caller_that_comes() {
    let (queue, key) = queue(10);
    let clock = TokioClock::new();
    let asking = turn(&queue, &key, &clock).await;
    asking.failed(ZERO, &outage());

    let late = next(&queue, &key, Mode::Exclusive, for_ever(), &clock).await;

    assert_eq!(late.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(clock.now(), ZERO + options().outage_wait);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_all_waits_in_line() {
    let (queue, key) = queue(10);
    let clock = TokioClock::new();
    let _asking = turn(&queue, &key, &clock).await;
    let waits = || next(&queue, &key, Mode::Exclusive, for_ever(), &clock);
    let shutdown = async { queue.close() };

    let (first, second, ()) = tokio::join!(waits(), waits(), shutdown);

    assert_eq!(first.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(second.unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn an_answer_to_a_waiter_that_has_left_goes_back() {
    let (_, key) = queue(10);
    let (waiter, messages) =
        Waiter::new(&request(&key, &options(), Mode::Exclusive, for_ever()), false);
    assert_eq!(messages.leave(), None);

    assert_eq!(waiter.send("answer"), Err("answer"));
}

#[test]
fn a_waiter_that_leaves_gives_back_an_answer_that_has_come() {
    let (_, key) = queue(10);
    let (waiter, messages) =
        Waiter::new(&request(&key, &options(), Mode::Exclusive, for_ever()), false);
    assert_eq!(waiter.send("answer"), Ok(()));

    assert_eq!(messages.leave(), Some("answer"));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_kept_for_unwanted_keys() {
    let (queue, key) = queue(10);
    let clock = TokioClock::new();
    let first = turn(&queue, &key, &clock).await;
    assert!(turn(&queue, &key, &clock).now_or_never().is_none());
    assert_eq!(queue.len(), 1);

    drop(first);

    assert_eq!(queue.len(), 0);
}
