//! The order of acquisitions and releases on a store with several connections.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use leasehold_core::ErrorKind;
use leasehold_core::batch::InOrder;
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep, timeout};

/// The time limit of a request.
const LIMIT: Duration = Duration::from_secs(1);

/// The time that the store needs for an acquisition.
const ROUND_TRIP: Duration = Duration::from_millis(10);

/// Starts an acquisition that takes `time`, and leaves before the reply.
fn leave(in_order: &InOrder<&'static str>, leases: &[&'static str], time: Duration) {
    let reply = in_order.acquire(leases.iter().copied(), sleep(time)).now_or_never();
    assert!(reply.is_none());
}

async fn release(in_order: &InOrder<&'static str>, lease: &'static str) -> Result<(), ErrorKind> {
    let ended = in_order.wait_for_acquisitions(&lease, LIMIT).await;
    ended.map_err(|error| error.kind())
}

#[tokio::test(start_paused = true)]
async fn release_waits_for_acquisitions_whose_callers_have_left() {
    let (in_order, begun_at) = (InOrder::new(), Instant::now());
    leave(&in_order, &["a", "b"], ROUND_TRIP);
    leave(&in_order, &["a"], 2 * ROUND_TRIP);

    assert_eq!(release(&in_order, "c").await, Ok(()));
    assert_eq!(begun_at.elapsed(), Duration::ZERO, "no acquisition of this lease was sent");
    assert_eq!(release(&in_order, "b").await, Ok(()));
    assert_eq!(begun_at.elapsed(), ROUND_TRIP);
    assert_eq!(release(&in_order, "a").await, Ok(()));
    assert_eq!(begun_at.elapsed(), 2 * ROUND_TRIP);

    assert!(in_order.is_idle());
}

#[tokio::test(start_paused = true)]
async fn release_is_not_sent_if_the_acquisition_takes_longer_than_the_limit() {
    let (in_order, begun_at) = (InOrder::new(), Instant::now());
    leave(&in_order, &["a"], LIMIT + ROUND_TRIP);

    assert_eq!(release(&in_order, "a").await, Err(ErrorKind::Unavailable));
    assert_eq!(begun_at.elapsed(), LIMIT);

    assert_eq!(release(&in_order, "a").await, Ok(()));
    assert_eq!(begun_at.elapsed(), LIMIT + ROUND_TRIP);
}

#[tokio::test(start_paused = true)]
async fn caller_that_waits_gets_the_reply() {
    let in_order = InOrder::new();

    let reply = in_order.acquire(["a"], async { sleep(ROUND_TRIP).await }.map(|()| 7)).await;

    assert_eq!(reply.unwrap(), 7);
    assert!(in_order.is_idle());
}

#[tokio::test(start_paused = true)]
async fn acquisition_that_was_not_polled_does_not_start() {
    let in_order = InOrder::new();

    drop(in_order.acquire(["a"], async { panic!("the acquisition started") }));

    assert!(in_order.is_idle());
}

#[tokio::test(start_paused = true)]
async fn outcome_of_an_acquisition_that_panics_is_unknown() {
    let in_order = InOrder::new();

    let reply = in_order.acquire(["a"], async { panic!("as the test requires") }).await;

    let reply: Result<(), _> = reply;
    assert_eq!(reply.unwrap_err().kind(), ErrorKind::Indeterminate);
    assert!(in_order.is_idle());
}

#[test]
fn shut_down_runtime_leaves_the_outcome_unknown() {
    let runtime = || Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let (ending, other) = (runtime(), runtime());
    let in_order = Arc::new(InOrder::new());
    let mut acquiring = Box::pin(in_order.acquire(["a"], pending::<()>()));
    ending.block_on(async { assert!((&mut acquiring).now_or_never().is_none()) });

    drop(ending);

    let reply = other.block_on(async { timeout(LIMIT, acquiring).await.unwrap() });
    assert_eq!(reply.unwrap_err().kind(), ErrorKind::Indeterminate);
    assert!(in_order.is_idle());
}

#[test]
fn no_acquisition_starts_outside_of_a_runtime() {
    let in_order = InOrder::new();

    let refused = in_order.acquire(["a"], async {}).now_or_never().unwrap().unwrap_err();

    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert!(in_order.is_idle());
}
