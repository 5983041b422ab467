//! A lease that was stolen, and the next caller of the process that would take it over.

use std::time::Duration;

use futures_util::FutureExt;
use leasehold_core::clock::TokioClock;
use leasehold_core::fault::{Fault, FaultBackend, Faults, News};
use leasehold_core::{ErrorKind, LockClient, LockOptions, MemoryBackend, Operation};

const TTL: Duration = ms(30_000);

/// A lease that the store confirmed so long ago is passed on only if the store would tell of its end.
const WITHOUT_NEWS: Duration = ms(50);

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn client(news: News) -> (LockClient<FaultBackend<MemoryBackend>>, Faults) {
    let clock = TokioClock::new();
    let backend = FaultBackend::new(MemoryBackend::with_clock(clock));
    let faults = backend.faults().clone();
    faults.set_news(news);
    let options = LockOptions::new().ttl(TTL);
    (LockClient::builder(backend).clock(clock).options(options).build().unwrap(), faults)
}

#[tokio::test(start_paused = true)]
async fn a_theft_is_told_to_a_release() {
    // At the same moment if there is news of it, and otherwise once the store's confirmation is old.
    for (news, after) in [(News::True, Duration::ZERO), (News::Muted, WITHOUT_NEWS)] {
        let (client, _faults) = client(news);
        let mutex = client.mutex("k").unwrap();
        let guard = mutex.lock().await.unwrap();
        let mut next = Box::pin(mutex.lock());
        assert!((&mut next).now_or_never().is_none());

        client.backend().steal(mutex.key(), TTL).await.unwrap();
        tokio::time::sleep(after).await;
        let released = guard.release().await;

        assert_eq!(released.unwrap_err().kind(), ErrorKind::LeaseLost, "{news:?}");
        assert!(next.now_or_never().is_none(), "the thief holds it");
    }
}

#[tokio::test(start_paused = true)]
async fn a_theft_just_before_a_hand_over_without_news_is_soon_noticed() {
    let (client, _faults) = client(News::Muted);
    let mutex = client.mutex("k").unwrap();
    let guard = mutex.lock().await.unwrap();
    let mut next = Box::pin(mutex.lock());
    assert!((&mut next).now_or_never().is_none());

    client.backend().steal(mutex.key(), TTL).await.unwrap();
    guard.release().await.unwrap();
    let next = next.await.unwrap();
    tokio::time::sleep(WITHOUT_NEWS + ms(5)).await;

    assert!(!next.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_lease_with_news_is_passed_on_however_old_its_confirmation_is() {
    for (news, is_passed_on) in [(News::True, true), (News::Muted, false)] {
        let (client, faults) = client(news);
        let mutex = client.mutex("k").unwrap();
        let guard = mutex.lock().await.unwrap();
        let mut next = Box::pin(mutex.lock());
        assert!((&mut next).now_or_never().is_none());
        tokio::time::sleep(TTL / 6).await;

        guard.release().await.unwrap();
        let _next = next.await.unwrap();

        assert_eq!(faults.calls(Operation::Acquire) == 1, is_passed_on, "{news:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_not_passed_on_before_its_news_is_known() {
    let (client, faults) = client(News::True);
    let mutex = client.mutex("k").unwrap();
    let guard = mutex.lock().await.unwrap();
    let mut next = Box::pin(mutex.lock());
    assert!((&mut next).now_or_never().is_none());

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
    let (client, faults) = client(News::True);
    let mutex = client.mutex("k").unwrap();
    let guard = mutex.lock().await.unwrap();
    let mut next = Box::pin(mutex.lock());
    assert!((&mut next).now_or_never().is_none());

    faults.inject(Operation::Renew, Fault::DelayReply(ms(500)), 1);
    tokio::time::sleep(TTL / 3 + ms(100)).await;
    assert_eq!(faults.calls(Operation::Renew), 1, "a renewal is under way");
    guard.release().await.unwrap();
    let _next = next.await.unwrap();

    assert_eq!(faults.calls(Operation::Acquire), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_asked_back_before_its_grant_is_known() {
    let (client, faults) = client(News::True);
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
    let (client, faults) = client(News::Muted);
    let mutex = client.mutex("k").unwrap();
    let mut guard = mutex.lock().await.unwrap();

    for _ in 0..10 {
        let mut next = Box::pin(mutex.lock());
        assert!((&mut next).now_or_never().is_none());
        tokio::time::sleep(ms(1)).await;
        guard.release().await.unwrap();
        guard = next.await.unwrap();
    }

    assert_eq!((faults.calls(Operation::Acquire), faults.calls(Operation::Renew)), (1, 0));
}
