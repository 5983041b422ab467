//! Stores that fail: for some leases and not for the others, or for all callers of a key.

use std::time::Duration;

use leasehold_core::backend::{Operation, Request};
use leasehold_core::fault::{Fault, Notifications};
use leasehold_core::{Error, ErrorKind, LockGuard, LockOptions};

use crate::fixture::{Fixture, TTL, key, ms};

impl Fixture {
    /// A lock whose requests of this kind all suffer the fault.
    async fn lock_in_trouble(
        &self,
        name: &str,
        ttl: Duration,
        operation: Operation,
        fault: Fault,
    ) -> LockGuard {
        self.faults.inject_on(&key(name), operation, fault, 100);
        self.lock(name, ttl).await
    }
}

#[tokio::test(start_paused = true)]
async fn renewals_that_hang_keep_no_others_waiting() {
    let fixture = Fixture::new();
    let (mut hung, mut healthy) = (Vec::new(), Vec::new());
    for n in 0..2_000 {
        let name = format!("k{n}");
        if n % 10 == 0 {
            let (operation, fault) = (Operation::Renew, Fault::SwallowRequest);
            hung.push(fixture.lock_in_trouble(&name, TTL, operation, fault).await);
        } else {
            healthy.push(fixture.lock(&name, TTL).await);
        }
    }

    tokio::time::sleep(TTL * 2).await;

    assert_eq!(hung.iter().filter(|guard| guard.is_held()).count(), 0);
    assert_eq!(healthy.iter().filter(|guard| guard.is_held()).count(), 1_800);
}

#[tokio::test(start_paused = true)]
async fn renewals_that_hang_for_long_keep_no_others_waiting() {
    const LONG: Duration = Duration::from_secs(3_600);

    let fixture = Fixture::new();
    let mut hung = Vec::new();
    for n in 0..9 {
        let (operation, fault) = (Operation::Renew, Fault::SwallowRequest);
        hung.push(fixture.lock_in_trouble(&format!("k{n}"), LONG, operation, fault).await);
        // Each is due by itself.
        tokio::time::sleep(LONG / 100).await;
    }
    tokio::time::sleep(LONG / 3 - LONG / 100 * 9).await;

    let guard = fixture.lock("other", TTL).await;

    assert!(tokio::time::timeout(LONG / 6, guard.lost()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn releases_that_fail_keep_no_others_waiting() {
    let fixture = Fixture::new();
    let mut failing = Vec::new();
    for n in 0..200 {
        let (operation, fault) = (Operation::Release, Fault::Fail(ErrorKind::Unavailable));
        failing.push(fixture.lock_in_trouble(&format!("k{n}"), TTL, operation, fault).await);
    }
    drop(failing);
    tokio::time::sleep(ms(100)).await;

    drop(fixture.lock("other", TTL).await);
    tokio::time::sleep(ms(1)).await;

    assert!(fixture.other.mutex("other").unwrap().try_lock().await.is_ok());
    // The others are free when their TTL is over, and nothing is owed any more.
    tokio::time::sleep(TTL).await;
    fixture.client.shutdown(Duration::ZERO).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn releases_that_hang_are_tried_again() {
    let fixture = Fixture::new();
    let guard = fixture.lock("k", TTL).await;
    fixture.faults.inject(Operation::Release, Fault::SwallowRequest, 1);

    drop(guard);
    tokio::time::sleep(TTL / 5).await;

    assert!(fixture.other.mutex("k").unwrap().try_lock().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn releases_that_are_denied_are_not_tried_again() {
    let fixture = Fixture::new();
    let (operation, fault) = (Operation::Release, Fault::Fail(ErrorKind::Denied));

    drop(fixture.lock_in_trouble("k", TTL, operation, fault).await);
    tokio::time::sleep(TTL * 2).await;

    assert_eq!(fixture.faults.calls(operation), 1);
    fixture.client.shutdown(Duration::ZERO).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_release_that_was_not_sent_at_first_tells_of_the_loss() {
    let fixture = Fixture::new();
    let guard = fixture.lock("k", TTL).await;
    fixture.faults.set_notifications(Notifications::Muted);
    fixture.client.backend().expire(guard.key()).await.unwrap();
    fixture.faults.inject(Operation::Release, Fault::Fail(ErrorKind::Unavailable), 1);

    let error = guard.release().await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::LeaseLost, "{error}");
    assert_eq!(fixture.faults.calls(Operation::Release), 2);
}

#[tokio::test(start_paused = true)]
async fn renewals_that_fail_with_news_each_time_have_pauses_between_them() {
    let Fixture { client, faults, .. } = Fixture::new();
    faults.set_notifications(Notifications::Scripted);
    faults.inject(Operation::Renew, Fault::DelayRequest(ms(1)), usize::MAX);
    // Each renewal breaks the connection, and the store announces that it is reachable again.
    let news = faults.clone();
    faults.on_request(move |request| match request {
        Request::Renew(_) | Request::RenewAll(_) => {
            news.notify_falsely(&key("k"));
            Err(Error::new(ErrorKind::Indeterminate, "the connection broke"))
        }
        request => Ok(request),
    });
    let _guard = client.mutex("k").unwrap().lock().await.unwrap();

    tokio::time::sleep(TTL / 3 + ms(1_000)).await;

    let renewals = faults.calls(Operation::Renew);
    assert!((5..=10).contains(&renewals), "{renewals}");
}

mod callers_of_one_key {
    use futures_util::FutureExt;
    use leasehold_core::{Mutex, OwnerId};
    use tokio::time::{Instant, sleep};

    use super::*;

    const OUTAGE_WAIT: Duration = LockOptions::DEFAULT_OUTAGE_WAIT;

    impl Fixture {
        fn mutex(&self) -> Mutex {
            self.client.mutex("k").unwrap()
        }

        /// The store cannot be reached from now on.
        fn go_down(&self) {
            self.faults.inject(Operation::Acquire, Fault::Fail(ErrorKind::Unavailable), 100_000);
        }

        /// The store cannot be reached, as a caller knows that waits for it.
        async fn is_down(&self) {
            self.go_down();
            let mutex = self.mutex();
            tokio::spawn(async move { mutex.lock().await });
            sleep(ms(100)).await;
        }
    }

    /// How the wait of a caller ends, and after how long.
    async fn failure(mutex: Mutex) -> (ErrorKind, Duration) {
        let asked_at = Instant::now();
        let error = mutex.lock().await.unwrap_err();
        (error.kind(), asked_at.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn are_all_told_of_an_outage_within_its_wait() {
        let fixture = Fixture::new();
        fixture.go_down();
        let mut callers = Vec::new();
        for _ in 0..20 {
            callers.push(tokio::spawn(failure(fixture.mutex())));
            sleep(ms(100)).await;
        }

        for caller in callers {
            let (kind, after) = caller.await.unwrap();

            assert_eq!(kind, ErrorKind::Unavailable);
            assert!(after >= OUTAGE_WAIT && after <= OUTAGE_WAIT + ms(10), "{after:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn are_never_told_held_during_an_outage() {
        let fixture = Fixture::new();
        fixture.is_down().await;
        let mutex = fixture.mutex();
        let impatient = fixture.client.options().wait(ms(500));
        let impatient = mutex.clone().with_options(impatient).unwrap();

        assert_eq!(Error::from(mutex.try_lock().await.unwrap_err()).kind(), ErrorKind::Unavailable);
        let told = mutex.try_lock_for(ms(500)).await;
        assert_eq!(Error::from(told.unwrap_err()).kind(), ErrorKind::Unavailable);
        assert_eq!(impatient.lock().await.unwrap_err().kind(), ErrorKind::Unavailable);
    }

    #[tokio::test(start_paused = true)]
    async fn are_told_of_an_outage_while_their_owner_asks() {
        let fixture = Fixture::new();
        fixture.go_down();
        let (owner, mutex) = (OwnerId::new(), fixture.client.reentrant_mutex("k").unwrap());
        let asking = mutex.clone();
        tokio::spawn(owner.scope(async move { asking.lock().await }));
        sleep(ms(100)).await;

        let at_once = owner.scope(mutex.try_lock()).await.unwrap_err();
        let later = owner.scope(mutex.try_lock_for(ms(500))).await.unwrap_err();

        for told in [at_once, later] {
            assert_eq!(Error::from(told).kind(), ErrorKind::Unavailable);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn are_not_told_held_before_the_first_answer() {
        let fixture = Fixture::new();
        fixture.faults.inject(Operation::Acquire, Fault::SwallowRequest, 1);
        let mutex = fixture.mutex();
        let mut asking = Box::pin(mutex.lock());
        assert!((&mut asking).now_or_never().is_none());

        let told = mutex.try_lock_for(ms(500)).await;

        assert_eq!(Error::from(told.unwrap_err()).kind(), ErrorKind::Indeterminate);
        assert!(mutex.try_lock().await.is_ok(), "the store was not asked");
    }

    #[tokio::test(start_paused = true)]
    async fn go_on_in_turn_when_the_store_is_back() {
        let fixture = Fixture::new();
        fixture.is_down().await;
        let callers: Vec<_> = (0..5)
            .map(|_| {
                let mutex = fixture.mutex();
                tokio::spawn(async move { mutex.lock().await.unwrap().release().await })
            })
            .collect();
        sleep(OUTAGE_WAIT / 2).await;

        fixture.faults.heal();

        for caller in callers {
            caller.await.unwrap().unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn are_not_told_of_an_outage_that_has_ended() {
        let fixture = Fixture::new();
        let other = fixture.other.mutex("k").unwrap().lock().await.unwrap();
        fixture.is_down().await;
        let waiting = tokio::spawn(failure(fixture.mutex()));
        sleep(OUTAGE_WAIT / 2).await;

        // The store is back, and another client still holds the key.
        fixture.faults.heal();
        sleep(OUTAGE_WAIT * 2).await;

        assert!(!waiting.is_finished(), "{:?}", waiting.await);
        other.release().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn wait_out_an_outage_however_long_they_have_waited_for_a_holder() {
        let fixture = Fixture::new();
        let other = fixture.other.mutex("k").unwrap().lock().await.unwrap();
        let waiting = tokio::spawn(failure(fixture.mutex()));
        sleep(OUTAGE_WAIT * 3).await;

        fixture.go_down();
        other.release().await.unwrap();
        sleep(OUTAGE_WAIT / 2).await;

        assert!(!waiting.is_finished(), "an outage of half its wait ended the call");
        assert_eq!(waiting.await.unwrap().0, ErrorKind::Unavailable);
    }

    #[tokio::test(start_paused = true)]
    async fn are_told_of_an_outage_that_follows_a_holder() {
        let fixture = Fixture::new();
        let guard = fixture.lock("k", TTL).await;
        let waiting: Vec<_> = (0..3).map(|_| tokio::spawn(failure(fixture.mutex()))).collect();
        sleep(OUTAGE_WAIT * 2).await;

        fixture.go_down();
        fixture.client.backend().expire(guard.key()).await.unwrap();
        guard.lost().await;
        let went_down_at = Instant::now();
        drop(guard);

        for caller in waiting {
            assert_eq!(caller.await.unwrap().0, ErrorKind::Unavailable);
        }
        let after = went_down_at.elapsed();
        assert!(after >= OUTAGE_WAIT && after <= OUTAGE_WAIT + ms(10), "{after:?}");
    }
}
