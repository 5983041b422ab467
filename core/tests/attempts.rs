//! Attempts: how often a call tries, and which answers it accepts.

use std::borrow::Cow;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use leasehold_core::backend::{Operation, Patience, Request, StoreAdmin};
use leasehold_core::fault::Fault;
use leasehold_core::retry::{Retry, RetryPolicy, Tried};
use leasehold_core::{Error, ErrorKind, LockGuard, LockOptions, RenewalMode};
use tokio::time::{Instant, sleep, timeout};

use crate::fixture::{Client, Fixture, key, ms};

/// Two clients of one store.
fn clients(options: LockOptions) -> [Client; 2] {
    let fixture = Fixture::with(options.clone());
    let (other, _faults) = fixture.process(options);
    [fixture.client, other]
}

mod that_are_counted {
    use super::*;

    fn five() -> LockOptions {
        LockOptions::new().retry(Retry::attempts(5).every(ms(200)))
    }

    #[tokio::test(start_paused = true)]
    async fn end_behind_a_holder_of_the_same_client_as_behind_another() {
        for holder in [0, 1] {
            let clients = clients(five());
            let _held = clients[holder].mutex("k").unwrap().lock().await.unwrap();
            let start = Instant::now();

            let error = clients[0].mutex("k").unwrap().lock().await.unwrap_err();

            assert_eq!(error.kind(), ErrorKind::Timeout);
            assert_eq!(start.elapsed().as_millis(), 800, "four pauses");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn go_on_when_the_turn_comes() {
        let [client, other] = clients(five().hand_over(false));
        let (mutex, theirs) = (client.mutex("k").unwrap(), other.mutex("k").unwrap());
        let held = mutex.lock().await.unwrap();
        let start = Instant::now();
        let waits = tokio::spawn(async move { mutex.lock().await.unwrap_err().kind() });
        sleep(ms(500)).await;

        // The other client is first to ask.
        client.backend().faults().inject(Operation::Acquire, Fault::DelayRequest(ms(10)), 1);
        held.release().await.unwrap();
        let _taken = theirs.lock().await.unwrap();

        assert_eq!(waits.await.unwrap(), ErrorKind::Timeout);
        assert_eq!(start.elapsed().as_millis(), 800, "four pauses in all");
    }

    #[tokio::test(start_paused = true)]
    async fn and_of_which_there_is_one_end_at_once() {
        let [client, _] = clients(LockOptions::new().retry(Retry::attempts(1)));
        let mutex = client.mutex("k").unwrap();
        let _held = mutex.lock().await.unwrap();
        let start = Instant::now();

        assert_eq!(mutex.lock().await.unwrap_err().kind(), ErrorKind::Timeout);

        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn do_not_end_before_the_first_answer() {
        let [client, _] = clients(LockOptions::new().retry(Retry::attempts(2).every(ms(10))));
        let mutex = client.mutex("k").unwrap();
        client.backend().faults().inject(Operation::Acquire, Fault::DelayReply(ms(300)), 1);

        let (one, other) = tokio::join!(mutex.lock(), async {
            let start = Instant::now();
            (mutex.lock().await.unwrap_err().kind(), start.elapsed())
        });

        assert!(one.unwrap().is_held());
        assert_eq!(other.0, ErrorKind::Timeout);
        assert!(other.1 >= ms(300), "{:?}", other.1);
    }
}

mod of_an_own_policy {
    use super::*;

    #[derive(Clone, Debug, Default)]
    struct Noting(Arc<Mutex<Vec<Tried>>>);

    impl RetryPolicy for Noting {
        fn pause(&self, tried: &Tried) -> Option<Duration> {
            self.0.lock().unwrap().push(*tried);
            (tried.elapsed() < ms(300)).then_some(ms(100))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn see_their_number_the_time_and_the_holder() {
        let policy = Noting::default();
        let options = LockOptions::new().retry(Retry::policy(policy.clone()));
        let [client, other] = clients(options);
        let fixed = other.options().ttl(ms(5_000)).renewal(RenewalMode::Off);
        let held = other.mutex("k").unwrap().with_options(fixed).unwrap().lock().await.unwrap();

        let error = client.mutex("k").unwrap().lock().await.unwrap_err();

        assert_eq!(error.kind(), ErrorKind::Timeout);
        let tried = policy.0.lock().unwrap().clone();
        let seen = tried.iter().map(|t| (t.attempts(), t.elapsed().as_millis()));
        assert_eq!(seen.collect::<Vec<_>>(), [(1, 0), (2, 100), (3, 200), (4, 300)]);
        let left = tried[3].holder_left().expect("the store tells");
        assert!(left <= ms(4_700) && left > ms(4_600), "{left:?}");
        drop(held);
    }

    #[tokio::test(start_paused = true)]
    async fn end_behind_a_holder_of_the_same_client() {
        let [client, _] = clients(LockOptions::new().retry(Retry::policy(Noting::default())));
        let mutex = client.mutex("k").unwrap();
        let _held = mutex.lock().await.unwrap();
        let start = Instant::now();

        assert_eq!(mutex.lock().await.unwrap_err().kind(), ErrorKind::Timeout);

        assert_eq!(start.elapsed().as_millis(), 300);
    }
}

mod that_are_granted {
    use super::*;

    fn at_least_four_of_five_seconds() -> LockOptions {
        LockOptions::new().ttl(ms(5_000)).min_validity(ms(4_000))
    }

    #[tokio::test(start_paused = true)]
    async fn with_too_little_left_are_asked_for_again() {
        let [client, _] = clients(at_least_four_of_five_seconds());
        client.backend().faults().inject(Operation::Acquire, Fault::DelayReply(ms(1_500)), 1);

        let guard = client.mutex("k").unwrap().lock().await.unwrap();

        assert!(guard.remaining() >= ms(4_000), "{:?}", guard.remaining());
        assert_eq!(client.backend().faults().calls(Operation::Acquire), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn with_too_little_left_are_released_in_the_end() {
        let [client, other] = clients(at_least_four_of_five_seconds());
        client.backend().faults().inject(Operation::Acquire, Fault::DelayReply(ms(1_500)), 1);

        let error = Error::from(client.mutex("k").unwrap().try_lock().await.unwrap_err());

        assert_eq!(error.kind(), ErrorKind::Indeterminate);
        sleep(ms(100)).await;
        assert!(other.mutex("k").unwrap().try_lock().await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn with_enough_left_are_accepted() {
        let [client, _] = clients(at_least_four_of_five_seconds());
        client.backend().faults().inject(Operation::Acquire, Fault::DelayReply(ms(900)), 1);

        let guard = client.mutex("k").unwrap().try_lock().await.unwrap();

        assert!(guard.remaining() >= ms(4_000), "{:?}", guard.remaining());
    }
}

mod that_are_refused_without_a_queue_entry {
    use super::*;

    /// A store that creates no queue entries, and the guard of another client that holds `k`.
    async fn held() -> (Fixture, LockGuard) {
        let fixture = Fixture::new();
        fixture.faults.on_request(|request| {
            Ok(match request {
                Request::Acquire(claim) => {
                    let claim = claim.into_owned().with_patience(Patience::Leaves);
                    Request::Acquire(Cow::Owned(claim))
                }
                request => request,
            })
        });
        let held = fixture.other.mutex("k").unwrap().lock().await.unwrap();
        (fixture, held)
    }

    #[tokio::test(start_paused = true)]
    async fn leave_nothing_to_release() {
        let (Fixture { client, requests, .. }, _held) = held().await;

        assert!(timeout(ms(500), client.mutex("k").unwrap().lock()).await.is_err());

        sleep(ms(100)).await;
        assert!(!requests.claims().is_empty());
        assert!(requests.released().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn do_not_delay_a_shutdown() {
        let (Fixture { client, .. }, _held) = held().await;
        let mutex = client.mutex("k").unwrap();
        let mut waiting = Box::pin(mutex.lock());
        assert!((&mut waiting).now_or_never().is_none());

        // The caller is not polled during the shutdown.
        client.shutdown(Duration::ZERO).await.unwrap();

        assert_eq!(waiting.await.unwrap_err().kind(), ErrorKind::Closed);
    }

    #[tokio::test(start_paused = true)]
    async fn are_released_if_a_later_attempt_has_an_unknown_outcome() {
        let (Fixture { client, faults, requests, store, .. }, held) = held().await;
        let mutex = client.mutex("k").unwrap();
        let mut waiting = Box::pin(mutex.lock());
        assert!((&mut waiting).now_or_never().is_none());
        faults.inject(Operation::Acquire, Fault::SwallowReply, 1);
        held.release().await.unwrap();
        assert!(timeout(ms(500), &mut waiting).await.is_err());
        assert!(store.inspect(&key("k")).await.unwrap().is_held(), "the later attempt is granted");

        drop(waiting);
        sleep(ms(1)).await;

        assert!(!store.inspect(&key("k")).await.unwrap().is_held());
        let (claims, released) = (requests.claims(), requests.released());
        assert_eq!(released.len(), 1);
        assert_eq!(released[0].id(), claims[0].id());
    }
}

mod within_a_wait_that_is_shorter_than_a_round_trip {
    use super::*;

    const ROUND_TRIP: Duration = ms(20);

    #[tokio::test(start_paused = true)]
    async fn tell_that_the_lock_is_held() {
        let [client, other] = clients(LockOptions::new());
        let _held = other.mutex("k").unwrap().lock().await.unwrap();
        client.backend().faults().inject(Operation::Acquire, Fault::DelayReply(ROUND_TRIP), 9);
        let mutex = client.mutex("k").unwrap();

        let (one, another) = tokio::join!(mutex.try_lock_for(ms(1)), mutex.try_lock_for(ms(1)));

        assert!(one.unwrap_err().into_busy().is_ok() && another.unwrap_err().into_busy().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn give_the_lock_if_it_is_free() {
        let [client, _] = clients(LockOptions::new());
        client.backend().faults().inject(Operation::Acquire, Fault::DelayReply(ROUND_TRIP), 1);

        let guard = client.mutex("k").unwrap().try_lock_for(ms(1)).await.unwrap();

        assert!(guard.is_held());
    }

    #[tokio::test(start_paused = true)]
    async fn tell_of_a_store_that_does_not_answer() {
        let [client, _] = clients(LockOptions::new());
        client.backend().faults().inject(Operation::Acquire, Fault::SwallowReply, 1);
        let start = Instant::now();

        let error = Error::from(client.mutex("k").unwrap().try_lock_for(ms(1)).await.unwrap_err());

        assert_eq!(error.kind(), ErrorKind::Indeterminate);
        assert_eq!(start.elapsed(), ms(50));
    }
}

#[tokio::test(start_paused = true)]
async fn refusal_at_the_end_of_a_wait_has_the_age_of_the_lease_at_that_time() {
    let [client, other] = clients(LockOptions::new().renewal(RenewalMode::Off));
    let _held = other.mutex("k").unwrap().lock().await.unwrap();
    let mutex = client.mutex("k").unwrap();
    let at_once = mutex.try_lock().await.unwrap_err().into_busy().unwrap();

    let later = mutex.try_lock_for(ms(4_000)).await.unwrap_err().into_busy().unwrap();

    let (at_once, later) = (at_once.holder().unwrap(), later.holder().unwrap());
    assert_eq!(later.held_for().unwrap() - at_once.held_for().unwrap(), ms(4_000));
    assert_eq!(at_once.remaining().unwrap() - later.remaining().unwrap(), ms(4_000));
}
