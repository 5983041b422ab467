//! Requests to a store whose leases share a TTL, and the use of a queue entry that such a store creates without being asked.

use std::time::Duration;

use leasehold_core::backend::{
    Attempt, Capabilities, Feature, Lease, LockBackend, Operation, Patience, Reply, Request,
    Tenure, WokenBy,
};
use leasehold_core::fault::{Fault, Notifications};
use leasehold_core::memory::MemoryBackend;
use leasehold_core::retry::Retry;
use leasehold_core::{ErrorKind, LeaseState, LockOptions, LossReason, RenewalMode, TryLockError};

use crate::fixture::{Fixture, TTL, ms, options};

const PLACE: Duration = ms(9_000);

/// A store of sessions, which keeps a queue entry for each waiter for a while. `options` are the client's options.
fn sessions(options: LockOptions) -> Fixture {
    declaring(MemoryBackend::new().capabilities().with(Feature::Sessions), options)
}

/// A store whose leases have separate TTLs.
fn without_sessions() -> Fixture {
    declaring(MemoryBackend::new().capabilities(), options())
}

fn declaring(capabilities: Capabilities, options: LockOptions) -> Fixture {
    let fixture = Fixture::declaring(capabilities, options);
    fixture.faults.set_notifications(Notifications::Muted);
    fixture.faults.on_reply(|request, reply| {
        Ok(match (request, reply) {
            (Request::Acquire(claim), Reply::Attempt(Attempt::Held(contention)))
                if claim.patience() == Patience::Waits =>
            {
                Reply::Attempt(Attempt::Held(contention.with_queue_entry(PLACE)))
            }
            (_, reply) => reply,
        })
    });
    fixture
}

mod losses {
    use super::*;

    /// The keys that are released within two TTLs after the renewals of one of two locks begin to fail, while both guards still exist.
    async fn released(fixture: Fixture) -> Vec<String> {
        let Fixture { client, faults, requests, .. } = fixture;
        let guard = client.mutex("k").unwrap().lock().await.unwrap();
        let other = client.mutex("other").unwrap().lock().await.unwrap();
        let fault = Fault::Fail(ErrorKind::Unavailable);
        faults.inject_on(guard.key(), Operation::Renew, fault, 100);

        tokio::time::sleep(TTL * 2).await;

        assert_eq!(guard.state(), LeaseState::Lost(LossReason::Expired));
        assert!(other.is_held());
        requests.released().iter().map(|lease| lease.key().to_string()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn are_given_back_where_the_store_may_keep_them_alive_with_others() {
        assert_eq!(released(sessions(options())).await, ["k"]);
        assert!(released(without_sessions()).await.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn are_released_by_the_last_guard_if_an_earlier_release_failed() {
        let Fixture { client, faults, requests, .. } = sessions(options());
        let guard = client.mutex("k").unwrap().lock().await.unwrap();
        let _other = client.mutex("other").unwrap().lock().await.unwrap();
        faults.inject_on(guard.key(), Operation::Renew, Fault::Fail(ErrorKind::Unavailable), 100);
        faults.inject_on(guard.key(), Operation::Release, Fault::Fail(ErrorKind::Denied), 1);
        tokio::time::sleep(TTL * 2).await;
        assert_eq!(guard.state(), LeaseState::Lost(LossReason::Expired));
        let before = requests.released().len();

        drop(guard);
        tokio::time::sleep(ms(10)).await;

        assert_eq!(requests.released().len(), before + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn are_left_to_the_store_where_the_lease_has_its_own_end() {
        let Fixture { client, requests, .. } = sessions(options().renewal(RenewalMode::Off));
        let guard = client.mutex("k").unwrap().lock().await.unwrap();

        tokio::time::sleep(TTL * 2).await;

        assert_eq!(guard.state(), LeaseState::Lost(LossReason::Expired));
        assert!(requests.released().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_loss_that_a_late_reply_tells_of_is_given_back() {
    let Fixture { client, faults, requests, .. } = sessions(options());
    let guard = client.mutex("k").unwrap().lock().await.unwrap();
    faults.inject(Operation::Renew, Fault::DelayReply(ms(1_000)), 1);
    tokio::time::sleep(TTL / 3 + ms(100)).await;

    // The process stands still until long after the deadline.
    tokio::time::advance(TTL * 2).await;
    tokio::time::sleep(ms(1)).await;

    assert!(!guard.is_held());
    assert_eq!(requests.released().len(), 1);
}

mod renewals {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn of_one_ttl_come_together_however_far_apart_the_locks_were_taken() {
        let Fixture { client, requests, .. } = sessions(options());
        let mut guards = Vec::new();
        for name in ["a", "b", "c", "d"] {
            guards.push(client.mutex(name).unwrap().lock().await.unwrap());
            tokio::time::sleep(ms(2_000)).await;
        }

        tokio::time::sleep(TTL * 2).await;

        let batches: Vec<_> = requests.renewals().iter().map(Vec::len).collect();
        // Every third of the TTL, in the 68 seconds since the first.
        assert_eq!(batches, [4; 6]);
        assert!(guards.iter().all(|guard| guard.is_held()));
    }

    #[tokio::test(start_paused = true)]
    async fn of_different_ttls_keep_their_own_time() {
        let Fixture { client, requests, .. } = sessions(options());
        let short = client.mutex("short").unwrap().with_options(options().ttl(TTL / 2)).unwrap();
        let _long = client.mutex("long").unwrap().lock().await.unwrap();
        tokio::time::sleep(ms(1_000)).await;
        let _short = short.lock().await.unwrap();

        tokio::time::sleep(TTL + ms(1_000)).await;

        let renewed = requests.renewals().concat();
        let of = |ttl| renewed.iter().filter(|lease| lease.ttl() == ttl).count();
        assert_eq!((of(TTL), of(TTL / 2)), (3, 6));
    }

    #[tokio::test(start_paused = true)]
    async fn where_nothing_is_shared_come_each_at_its_own_time() {
        let Fixture { client, requests, .. } = without_sessions();
        let _first = client.mutex("a").unwrap().lock().await.unwrap();
        tokio::time::sleep(ms(2_000)).await;
        let _second = client.mutex("b").unwrap().lock().await.unwrap();

        tokio::time::sleep(TTL).await;

        assert!(requests.renewals().iter().all(|batch| batch.len() == 1));
    }
}

mod tenure {
    use super::*;

    /// The tenure in the claim that a lock with these options makes.
    async fn of(options: LockOptions) -> Tenure {
        let Fixture { client, requests, .. } = sessions(options);
        let _guard = client.mutex("k").unwrap().lock().await.unwrap();
        requests.claims()[0].lease().tenure()
    }

    #[tokio::test(start_paused = true)]
    async fn is_kept_only_if_nothing_ends_the_lease_but_its_release() {
        assert_eq!(of(options()).await, Tenure::Kept);
        assert_eq!(of(options().max_hold(TTL * 2)).await, Tenure::Kept);
        assert_eq!(of(options().renewal(RenewalMode::Off)).await, Tenure::Fixed);
        assert_eq!(of(options().lock_delay(ms(1_000))).await, Tenure::Fixed);
        assert_eq!(of(options().max_hold(TTL / 2)).await, Tenure::Fixed);
    }

    #[tokio::test(start_paused = true)]
    async fn of_the_last_renewal_before_max_hold_is_fixed() {
        let Fixture { client, requests, .. } = sessions(options().max_hold(TTL + TTL / 2));
        let guard = client.mutex("k").unwrap().lock().await.unwrap();

        guard.lost().await;

        let last = requests.renewals().concat().pop().unwrap();
        assert!(last.ttl() < TTL);
        assert_eq!(last.tenure(), Tenure::Fixed);
    }

    #[tokio::test(start_paused = true)]
    async fn after_an_early_release_is_fixed() {
        let Fixture { client, requests, .. } = sessions(options().min_hold(TTL * 2));
        let guard = client.mutex("k").unwrap().lock().await.unwrap();

        guard.release().await.unwrap();

        let last = requests.renewals().concat().pop().unwrap();
        assert_eq!(last.tenure(), Tenure::Fixed);
        assert!(requests.released().is_empty());
    }
}

mod place {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn that_the_store_gives_is_kept_by_asking_again_in_time() {
        let rarely = Retry::unlimited().every(TTL * 10);
        let Fixture { client, requests, other, .. } = sessions(options().retry(rarely));
        let _guard = other.mutex("k").unwrap().lock().await.unwrap();

        let waited = client.mutex("k").unwrap().try_lock_for(PLACE).await;

        assert!(matches!(waited, Err(TryLockError::Busy(_))));
        let asked = requests.claims().len();
        assert!(
            (3..=4).contains(&asked),
            "a third of the time it is kept for, between each: {asked}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn with_news_is_polled_only_when_it_is_due() {
        for (tells, polls) in [(true, 3..=4), (false, 10..=1_000)] {
            let Fixture { client, faults, requests, other, .. } = sessions(options());
            if tells {
                faults.on_reply(|_request, reply| {
                    Ok(match reply {
                        Reply::Attempt(Attempt::Held(contention)) => {
                            let contention = contention.with_woken_by(WokenBy::Key);
                            Reply::Attempt(Attempt::Held(contention))
                        }
                        reply => reply,
                    })
                });
            }
            let _guard = other.mutex("k").unwrap().lock().await.unwrap();

            assert!(matches!(
                client.mutex("k").unwrap().try_lock_for(PLACE).await,
                Err(TryLockError::Busy(_))
            ));

            let asked = requests.claims().len();
            assert!(polls.contains(&asked), "news: {tells}, attempts: {asked}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn is_given_back_by_a_caller_that_gives_up() {
        let Fixture { client, requests, other, .. } = sessions(options());
        let _guard = other.mutex("k").unwrap().lock().await.unwrap();

        assert!(matches!(
            client.mutex("k").unwrap().try_lock_for(ms(100)).await,
            Err(TryLockError::Busy(_))
        ));
        tokio::time::sleep(ms(1)).await;

        let (claims, released) = (requests.claims(), requests.released());
        assert_eq!(released.iter().map(Lease::id).collect::<Vec<_>>(), [claims[0].id()]);
    }

    #[tokio::test(start_paused = true)]
    async fn is_not_asked_for_without_waiting() {
        let Fixture { client, requests, other, .. } = sessions(options());
        let _guard = other.mutex("k").unwrap().lock().await.unwrap();

        assert!(matches!(client.mutex("k").unwrap().try_lock().await, Err(TryLockError::Busy(_))));
        tokio::time::sleep(ms(1)).await;

        assert_eq!(requests.claims()[0].patience(), Patience::Leaves);
        assert!(requests.released().is_empty());
    }
}
