//! The next caller of the process, and leases that it does and does not take over.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use leasehold_core::backend::{Operation, Request};
use leasehold_core::fault::{Fault, Faults, Notifications};
use leasehold_core::{Error, ErrorKind, LeaseState, LockGuard, Mutex};

use crate::fixture::{Client, Fixture, TTL, ms, options};

/// A lease that the store confirmed so long ago is passed on only if the store would tell of its end.
const WITHOUT_NEWS: Duration = ms(50);

fn client(news: Notifications) -> (Client, Faults) {
    let Fixture { client, faults, .. } = Fixture::new();
    faults.set_notifications(news);
    (client, faults)
}

/// Calls that lock `mutex`, in this order. The first one asks the store, and the other ones wait in this process when the grant arrives: only
/// such callers take over the lease.
fn calls<'a>(mutex: &'a Mutex, faults: &Faults, count: usize) -> VecDeque<Call<'a>> {
    faults.inject(Operation::Acquire, Fault::DelayReply(ms(1)), 1);
    let mut calls: VecDeque<_> = (0..count).map(|_| mutex.lock().boxed()).collect();
    for call in &mut calls {
        assert!(call.now_or_never().is_none());
    }
    calls
}

/// Locks `mutex` while another caller waits for it.
async fn lock_before_another<'a>(mutex: &'a Mutex, faults: &Faults) -> (LockGuard, Call<'a>) {
    let mut calls = calls(mutex, faults, 2);
    let guard = calls.pop_front().unwrap().await.unwrap();
    (guard, calls.pop_front().unwrap())
}

type Call<'a> = BoxFuture<'a, Result<LockGuard, Error>>;

#[tokio::test(start_paused = true)]
async fn a_theft_is_told_to_a_release() {
    // From the same moment on if there is news of it, also once the watchdog has heard that; and otherwise once the store's
    // confirmation is old.
    for (news, after) in [
        (Notifications::True, Duration::ZERO),
        (Notifications::True, ms(1)),
        (Notifications::Muted, WITHOUT_NEWS),
    ] {
        let (client, faults) = client(news);
        let mutex = client.mutex("k").unwrap();
        let (guard, next) = lock_before_another(&mutex, &faults).await;

        client.backend().steal(mutex.key(), TTL).await.unwrap();
        tokio::time::sleep(after).await;
        let released = guard.release().await;

        assert_eq!(released.unwrap_err().kind(), ErrorKind::LeaseLost, "{news:?}");
        assert!(next.now_or_never().is_none(), "the thief holds it");
    }
}

#[tokio::test(start_paused = true)]
async fn a_theft_just_before_a_hand_over_without_news_is_soon_noticed() {
    let (client, faults) = client(Notifications::Muted);
    let mutex = client.mutex("k").unwrap();
    let (guard, next) = lock_before_another(&mutex, &faults).await;

    client.backend().steal(mutex.key(), TTL).await.unwrap();
    guard.release().await.unwrap();
    let next = next.await.unwrap();
    tokio::time::sleep(WITHOUT_NEWS + ms(5)).await;

    assert!(!next.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_lease_with_news_is_passed_on_however_old_its_confirmation_is() {
    for (news, is_passed_on) in [(Notifications::True, true), (Notifications::Muted, false)] {
        let (client, faults) = client(news);
        let mutex = client.mutex("k").unwrap();
        let (guard, next) = lock_before_another(&mutex, &faults).await;
        tokio::time::sleep(TTL / 6).await;

        guard.release().await.unwrap();
        let _next = next.await.unwrap();

        assert_eq!(faults.calls(Operation::Acquire) == 1, is_passed_on, "{news:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_asked_back_goes_back_to_the_store() {
    let (client, faults) = client(Notifications::True);
    let mutex = client.mutex("k").unwrap();
    let (guard, next) = lock_before_another(&mutex, &faults).await;

    client.request_revocation("k").await.unwrap();
    assert!(guard.revocation_requested().await);
    guard.release().await.unwrap();
    let next = next.await.unwrap();

    assert_eq!((faults.calls(Operation::Release), faults.calls(Operation::Acquire)), (1, 2));
    assert!(!next.is_revocation_requested());
}

#[tokio::test(start_paused = true)]
async fn a_lease_past_half_of_its_ttl_goes_back_to_the_store() {
    for (past, is_passed_on) in [(Duration::ZERO, true), (ms(1), false)] {
        let (client, faults) = client(Notifications::True);
        // Renewed, the lease would be as good as new.
        faults.inject(Operation::Renew, Fault::SwallowRequest, 1);
        let mutex = client.mutex("k").unwrap();
        let (guard, next) = lock_before_another(&mutex, &faults).await;

        tokio::time::sleep(guard.remaining() - TTL / 2 + past).await;
        assert_eq!((guard.state(), faults.calls(Operation::Renew)), (LeaseState::Held, 1));
        guard.release().await.unwrap();
        let next = next.await.unwrap();

        assert_eq!(faults.calls(Operation::Acquire) == 1, is_passed_on, "{past:?} past half");
        assert!(next.remaining() >= TTL / 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_unconfirmed_goes_back_to_the_store() {
    let (client, faults) = client(Notifications::True);
    faults.inject(Operation::Renew, Fault::Fail(ErrorKind::Unavailable), 1);
    let mutex = client.mutex("k").unwrap();
    let (guard, next) = lock_before_another(&mutex, &faults).await;

    assert_eq!(guard.unconfirmed().await, LeaseState::Unconfirmed);
    guard.release().await.unwrap();
    let _next = next.await.unwrap();

    assert_eq!(faults.calls(Operation::Acquire), 2);
}

#[tokio::test(start_paused = true)]
async fn a_lease_without_a_token_for_the_next_goes_back_to_the_store() {
    let (client, faults) = client(Notifications::True);
    // The store reserves two tokens for the later holders of a lease.
    faults.on_request(|request| {
        Ok(match request {
            Request::Acquire(claim) => {
                Request::Acquire(Cow::Owned(claim.into_owned().with_spare_tokens(2)))
            }
            request => request,
        })
    });
    let mutex = client.mutex("k").unwrap();
    let mut calls = calls(&mutex, &faults, 7);
    let mut guard = calls.pop_front().unwrap().await.unwrap();
    let mut asked = Vec::new();

    for next in calls {
        let token = guard.token().clone();
        guard.release().await.unwrap();
        guard = next.await.unwrap();
        assert!(token < *guard.token());
        asked.push(faults.calls(Operation::Acquire));
    }

    assert_eq!(asked, [1, 1, 2, 2, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_another_ttl_goes_back_to_the_store() {
    let (client, faults) = client(Notifications::True);
    let mutex = client.mutex("k").unwrap();
    let (guard, next) = lock_before_another(&mutex, &faults).await;

    guard.extend(TTL * 2).await.unwrap();
    guard.release().await.unwrap();
    let next = next.await.unwrap();

    assert_eq!(faults.calls(Operation::Acquire), 2);
    assert!(next.remaining() < TTL);
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_passed_only_to_a_call_that_asks_for_an_equal_one() {
    for (wanted, is_passed_on) in [
        (options(), true),
        (options().ttl(TTL * 2), false),
        (options().loss_grace(TTL / 4), false),
        (options().description("another".try_into().unwrap()), false),
    ] {
        let (client, faults) = client(Notifications::True);
        let mutex = client.mutex("k").unwrap();
        let other = mutex.clone().with_options(wanted.clone()).unwrap();
        let first = calls(&mutex, &faults, 1).pop_front().unwrap();
        let mut next = other.lock().boxed();
        assert!((&mut next).now_or_never().is_none());

        first.await.unwrap().release().await.unwrap();
        let _next = next.await.unwrap();

        assert_eq!(faults.calls(Operation::Acquire) == 1, is_passed_on, "{wanted:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_not_passed_on_before_its_news_is_known() {
    let (client, faults) = client(Notifications::True);
    let mutex = client.mutex("k").unwrap();
    let (guard, next) = lock_before_another(&mutex, &faults).await;

    faults.inject(Operation::Renew, Fault::DelayReply(ms(500)), 1);
    client.request_revocation("k").await.unwrap();
    tokio::time::sleep(ms(100)).await;
    assert_eq!(faults.calls(Operation::Renew), 1, "a renewal asks for the reason");
    guard.release().await.unwrap();
    let _next = next.await.unwrap();

    assert_eq!(faults.calls(Operation::Acquire), 2, "the lease went back to the store");
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_passed_on_during_a_renewal_without_a_reason() {
    let (client, faults) = client(Notifications::True);
    let mutex = client.mutex("k").unwrap();
    let (guard, next) = lock_before_another(&mutex, &faults).await;

    faults.inject(Operation::Renew, Fault::DelayReply(ms(500)), 1);
    tokio::time::sleep(TTL / 3 + ms(100)).await;
    assert_eq!(faults.calls(Operation::Renew), 1, "a renewal is under way");
    guard.release().await.unwrap();
    let _next = next.await.unwrap();

    assert_eq!(faults.calls(Operation::Acquire), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_asked_back_before_its_grant_is_known() {
    let (client, faults) = client(Notifications::True);
    let mutex = client.mutex("k").unwrap();
    faults.inject(Operation::Acquire, Fault::LoseReply, 1);
    let mut asking = Box::pin(mutex.lock());
    assert!((&mut asking).now_or_never().is_none(), "the next attempt follows a pause");

    client.request_revocation("k").await.unwrap();
    let guard = asking.await.unwrap();
    tokio::time::timeout(ms(100), guard.revocation_requested()).await.unwrap();

    assert_eq!(faults.calls(Operation::Acquire), 2);
}

#[tokio::test(start_paused = true)]
async fn leases_in_short_use_are_passed_on_without_news() {
    let (client, faults) = client(Notifications::Muted);
    let mutex = client.mutex("k").unwrap();
    let mut calls = calls(&mutex, &faults, 11);
    let mut guard = calls.pop_front().unwrap().await.unwrap();

    for next in calls {
        tokio::time::sleep(ms(1)).await;
        guard.release().await.unwrap();
        guard = next.await.unwrap();
    }

    assert_eq!((faults.calls(Operation::Acquire), faults.calls(Operation::Renew)), (1, 0));
}

/// Other processes wait as well.
#[tokio::test(start_paused = true)]
async fn a_lease_is_passed_on_for_a_while_after_its_first_holder() {
    for (held, is_passed_on) in [(ms(19), true), (ms(20), false)] {
        let (client, faults) = client(Notifications::True);
        let mutex = client.mutex("k").unwrap();
        let mut calls = calls(&mutex, &faults, 3);
        let first = calls.pop_front().unwrap().await.unwrap();
        tokio::time::sleep(TTL / 6).await;

        first.release().await.unwrap();
        let second = calls.pop_front().unwrap().await.unwrap();
        tokio::time::sleep(held).await;
        second.release().await.unwrap();
        let _third = calls.pop_front().unwrap().await.unwrap();

        assert_eq!(faults.calls(Operation::Acquire) == 1, is_passed_on, "{held:?}");
    }
}

/// Such a call may be one of a copy of the process: of a snapshot of its machine that runs twice. Both copies have the same spare tokens.
#[tokio::test(start_paused = true)]
async fn a_lease_is_not_passed_to_a_call_that_came_after_its_grant() {
    let (client, faults) = client(Notifications::True);
    let mutex = client.mutex("k").unwrap();
    let (guard, next) = lock_before_another(&mutex, &faults).await;
    let mut late = mutex.lock().boxed();
    assert!((&mut late).now_or_never().is_none());

    guard.release().await.unwrap();
    next.await.unwrap().release().await.unwrap();
    let asked = faults.calls(Operation::Acquire);
    late.await.unwrap().release().await.unwrap();

    assert_eq!((asked, faults.calls(Operation::Acquire)), (1, 2));
}
