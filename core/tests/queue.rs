//! Callers that wait: in their own process, and in the store's queue.

use std::time::Duration;

use futures_util::FutureExt;
use leasehold_core::backend::{
    Attempt, AttemptAll, Claim, Lease, LockBackend, Operation, Patience,
};
use leasehold_core::clock::TokioClock;
use leasehold_core::fault::Fault;
use leasehold_core::memory::MemoryBackend;
use leasehold_core::retry::Retry;
use leasehold_core::{Error, ErrorKind, LockClient, LockGuard, LockKey, LockOptions, TryLockError};
use tokio::time::sleep;

use crate::fixture::{Client, Fixture, ms};

/// A process whose requests may suffer, and another one.
fn processes(options: LockOptions) -> (Client, LockClient<MemoryBackend>) {
    let Fixture { client, other, .. } = Fixture::with(options);
    (client, other)
}

mod callers_of_one_process {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn send_nothing_while_one_of_them_has_it_alone() {
        let ((client, _other), wait) = (processes(LockOptions::new()), ms(50));
        let mutex = client.mutex("mutex").unwrap();
        let lock = client.rw_lock("lock").unwrap();
        let semaphore = client.semaphore("semaphore", 2).unwrap();
        let election = client.election("election").unwrap();
        let _holds = (
            mutex.lock().await.unwrap(),
            lock.write().await.unwrap(),
            semaphore.acquire(2).await.unwrap(),
            election.campaign("one").await.unwrap(),
        );

        assert!(matches!(mutex.try_lock().await, Err(TryLockError::Busy(_))));
        assert!(matches!(mutex.try_lock_for(wait).await, Err(TryLockError::Busy(_))));
        assert!(matches!(lock.try_read_for(wait).await, Err(TryLockError::Busy(_))));
        assert!(matches!(lock.try_write_for(wait).await, Err(TryLockError::Busy(_))));
        assert!(matches!(semaphore.try_acquire_for(1, wait).await, Err(TryLockError::Busy(_))));
        assert!(matches!(
            election.try_campaign_for("another", wait).await,
            Err(TryLockError::Busy(_))
        ));

        assert_eq!(client.backend().faults().calls(Operation::Acquire), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn ask_the_store_while_one_of_them_leaves_something() {
        let (client, _other) = processes(LockOptions::new());
        let lock = client.rw_lock("lock").unwrap();
        let semaphore = client.semaphore("semaphore", 2).unwrap();
        let _holds = (lock.read().await.unwrap(), semaphore.acquire(1).await.unwrap());

        assert!(lock.try_read_for(ms(50)).await.is_ok());
        assert!(semaphore.try_acquire_for(1, ms(50)).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn are_told_of_a_lock_of_another_kind() {
        let (client, _other) = processes(LockOptions::new());
        let (mutex, lock) = (client.mutex("k").unwrap(), client.rw_lock("k").unwrap());
        let wait = ms(50);

        let guard = mutex.lock().await.unwrap();
        for told in [lock.try_read().await, lock.try_read_for(wait).await] {
            assert_eq!(Error::from(told.unwrap_err()).kind(), ErrorKind::WrongType);
        }
        guard.release().await.unwrap();

        let guard = lock.write().await.unwrap();
        for told in [mutex.try_lock().await, mutex.try_lock_for(wait).await] {
            assert_eq!(Error::from(told.unwrap_err()).kind(), ErrorKind::WrongType);
        }
        guard.release().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn are_limited_though_they_are_fair() {
        for options in [LockOptions::new(), LockOptions::new().fair(true)] {
            let (_client, other) = processes(LockOptions::new());
            let client = LockClient::builder(other.backend().clone()).max_waiters(3);
            let client = client.options(options).build().unwrap();
            let _guard = other.mutex("k").unwrap().lock().await.unwrap();
            let mutex = client.mutex("k").unwrap();
            let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(mutex.lock())).collect();
            for waiter in &mut waiting {
                assert!(waiter.now_or_never().is_none());
            }

            let refused = mutex.lock().now_or_never().expect("it is told at once").unwrap_err();

            assert_eq!(refused.kind(), ErrorKind::TooManyWaiters);
            assert!(refused.to_string().contains("3 callers"), "{refused}");
            waiting.pop();
            assert!(mutex.lock().now_or_never().is_none());
        }
    }
}

mod callers_that_share {
    use futures_util::future::{BoxFuture, join_all};

    use super::*;

    const CALLERS: usize = 500;
    const ROUND_TRIP: Duration = ms(10);

    /// A reader or permit of a process, at a store that takes many requests at a time.
    type Call = BoxFuture<'static, LockGuard>;

    fn read(client: &Client) -> Call {
        let lock = client.rw_lock("k").unwrap();
        async move { lock.read().await.unwrap() }.boxed()
    }

    fn acquire(client: &Client) -> Call {
        let semaphore = client.semaphore("k", 500).unwrap();
        async move { semaphore.acquire(1).await.unwrap() }.boxed()
    }

    #[tokio::test(start_paused = true)]
    async fn get_a_free_lock_at_once() {
        for call in [read, acquire] {
            let (client, _other) = processes(LockOptions::new());
            let faults = client.backend().faults();
            faults.inject(Operation::Acquire, Fault::DelayReply(ROUND_TRIP), 10_000);
            let asked_at = tokio::time::Instant::now();

            let guards = join_all((0..CALLERS).map(|_| call(&client))).await;

            let after = asked_at.elapsed();
            assert!(after <= ROUND_TRIP * 5, "{after:?}");
            assert_eq!(faults.calls(Operation::Acquire), guards.len());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn get_a_lock_that_is_freed_in_a_few_round_trips() {
        let (client, other) = processes(LockOptions::new());
        let faults = client.backend().faults();
        let writer = other.rw_lock("k").unwrap().write().await.unwrap();
        let readers: Vec<_> = (0..CALLERS).map(|_| tokio::spawn(read(&client))).collect();
        sleep(ms(1_000)).await;
        let (freed_at, asked) = (tokio::time::Instant::now(), faults.calls(Operation::Acquire));
        faults.inject(Operation::Acquire, Fault::DelayReply(ROUND_TRIP), 10_000);

        writer.release().await.unwrap();
        let _guards = join_all(readers).await;

        let after = freed_at.elapsed();
        assert!(after <= ROUND_TRIP * 20, "{after:?}");
        assert_eq!(faults.calls(Operation::Acquire) - asked, CALLERS);
    }

    #[tokio::test(start_paused = true)]
    async fn know_the_refusal_that_they_had_themselves() {
        let (client, other) = processes(LockOptions::new());
        let writer = other.rw_lock("k").unwrap().write().await.unwrap();
        // The caller with the turn has no answer for a second.
        client.backend().faults().inject(Operation::Acquire, Fault::DelayReply(ms(1_000)), 1);
        let reads = client.rw_lock("k").unwrap();
        let mut slow = reads.read().boxed();
        assert!((&mut slow).now_or_never().is_none());

        let refused = client.rw_lock("k").unwrap().try_read_for(ms(500)).await;

        assert!(refused.unwrap_err().into_busy().is_ok());
        drop(slow);
        writer.release().await.unwrap();
    }

    /// A reader may send a request while another reader waits for its reply, so the second reader
    /// may be refused first.
    #[tokio::test(start_paused = true)]
    async fn keep_their_place_when_they_are_refused() {
        let (client, other) = processes(LockOptions::new());
        let (faults, lock) = (client.backend().faults(), client.rw_lock("k").unwrap());
        let held = other.rw_lock("k").unwrap().write().await.unwrap();
        for delay in [ms(1_000), ms(10)] {
            faults.inject(Operation::Acquire, Fault::DelayReply(delay), 1);
        }
        let first = read(&client);
        let mut second = read(&client);
        let mut writer = lock.write().boxed();
        let first = tokio::spawn(first);
        sleep(ms(1)).await;
        assert!((&mut second).now_or_never().is_none() && (&mut writer).now_or_never().is_none());
        let second = tokio::spawn(second);
        sleep(ms(2_000)).await;

        held.release().await.unwrap();
        sleep(ms(2_000)).await;

        assert!(first.is_finished() && second.is_finished());
        assert!((&mut writer).now_or_never().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn do_not_pass_a_writer_that_came_before_them() {
        let (client, _other) = processes(LockOptions::new());
        let (faults, lock) = (client.backend().faults(), client.rw_lock("k").unwrap());
        faults.inject(Operation::Acquire, Fault::DelayReply(ROUND_TRIP), 1);
        let mut first = read(&client);
        let mut writer = lock.write().boxed();
        let mut second = read(&client);
        assert!((&mut first).now_or_never().is_none());
        assert!((&mut writer).now_or_never().is_none() && (&mut second).now_or_never().is_none());
        assert_eq!(faults.calls(Operation::Acquire), 1);

        let first = first.await;
        assert!((&mut second).now_or_never().is_none());
        first.release().await.unwrap();
        let writer = writer.await.unwrap();
        assert!((&mut second).now_or_never().is_none());
        writer.release().await.unwrap();
        second.await.release().await.unwrap();
    }

    /// The store granted the last permit before it refused the caller with the turn, and the grant
    /// arrives after the refusal.
    #[tokio::test(start_paused = true)]
    async fn are_not_let_in_by_a_grant_from_before_a_refusal() {
        let rarely = Retry::unlimited().every(ms(600_000));
        let (client, other) = processes(LockOptions::new().retry(rarely));
        let faults = client.backend().faults();
        let _held = other.semaphore("k", 2).unwrap().acquire(1).await.unwrap();
        faults.inject(Operation::Acquire, Fault::DelayRequest(ms(20)), 1);
        faults.inject(Operation::Acquire, Fault::DelayReply(ms(100)), 1);
        let acquire = || {
            let permits = client.semaphore("k", 2).unwrap();
            tokio::spawn(async move { permits.acquire(1).await })
        };
        let (turn, beside) = (acquire(), acquire());
        sleep(ms(50)).await;

        let late = acquire();
        sleep(ms(100)).await;

        assert!(beside.is_finished() && !turn.is_finished() && !late.is_finished());
        assert_eq!(faults.calls(Operation::Acquire), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn send_few_requests_while_others_hold_it() {
        const FREED: usize = 20;

        let rarely = Retry::unlimited().every(ms(600_000));
        let (client, other) = processes(LockOptions::new().retry(rarely));
        let faults = client.backend().faults();
        let permits = other.semaphore("k", 500).unwrap();
        let mut held = Vec::new();
        for _ in 0..500 {
            held.push(permits.acquire(1).await.unwrap());
        }
        let _waiting: Vec<_> = (0..CALLERS).map(|_| tokio::spawn(acquire(&client))).collect();
        sleep(ms(100)).await;
        let asked = faults.calls(Operation::Acquire);
        assert!(asked < 5, "{asked} requests, though the first was refused");

        for _ in 0..FREED {
            held.pop().unwrap().release().await.unwrap();
            sleep(ms(100)).await;
        }

        // The one that is granted, and the two that it lets ask.
        let asked = faults.calls(Operation::Acquire) - asked;
        assert!((FREED..=FREED * 3).contains(&asked), "{asked} requests");
    }
}

mod a_caller_whose_wait_is_over {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn has_left_the_queue_when_it_is_told() {
        let (client, other) = processes(LockOptions::new());
        let third = LockClient::new(other.backend().clone());
        for fair in [false, true] {
            let holder = other.mutex("k").unwrap().lock().await.unwrap();
            let waits = client.mutex("k").unwrap();
            let waits = waits.with_options(LockOptions::new().fair(fair)).unwrap();

            assert!(matches!(waits.try_lock_for(ms(50)).await, Err(TryLockError::Busy(_))));
            holder.release().await.unwrap();

            let next = third.mutex("k").unwrap().try_lock().await.unwrap();
            next.release().await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn does_not_stay_for_a_store_that_has_gone_silent() {
        let (client, other) = processes(LockOptions::new());
        let _holder = other.mutex("k").unwrap().lock().await.unwrap();
        client.backend().faults().inject(Operation::Release, Fault::SwallowRequest, 1);
        let asked_at = tokio::time::Instant::now();

        let told = client.mutex("k").unwrap().try_lock_for(ms(1_000)).await;

        assert!(told.unwrap_err().into_busy().is_ok());
        let after = asked_at.elapsed();
        assert!(after <= ms(1_055), "{after:?}");
    }
}

mod a_lease_that_is_lost_on_its_way {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn to_a_stalled_caller_is_asked_for_anew() {
        let (client, _other) = processes(LockOptions::new());
        let mutex = client.mutex("k").unwrap();
        client.backend().faults().inject(Operation::Acquire, Fault::DelayReply(ms(1)), 1);
        let mut first = Box::pin(mutex.lock());
        assert!((&mut first).now_or_never().is_none());
        let mut next = Box::pin(mutex.lock());
        assert!((&mut next).now_or_never().is_none());
        first.await.unwrap().release().await.unwrap();

        // It is handed over, and the whole process stands still.
        tokio::time::advance(LockOptions::DEFAULT_TTL * 2).await;

        assert!(next.await.unwrap().is_held());
    }
}

mod places {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn of_the_dead_are_kept_for_some_seconds_and_no_longer_than_a_ttl() {
        for (ttl, place) in [(ms(30_000), LockOptions::PLACE_TTL), (ms(2_000), ms(2_000))] {
            let (dying, other) = processes(LockOptions::new().ttl(ttl).fair(true));
            let mutex = other.mutex("k").unwrap();
            let guard = mutex.lock().await.unwrap();
            let dies = dying.mutex("k").unwrap();
            let asked_at = tokio::time::Instant::now();
            let dead = tokio::spawn(async move { dies.lock().await });
            tokio::time::sleep(ms(10)).await;
            for operation in [Operation::Acquire, Operation::Release] {
                dying.backend().faults().inject(operation, Fault::SwallowRequest, 1_000);
            }

            guard.release().await.unwrap();
            let next = mutex.lock().await.unwrap();

            let after = asked_at.elapsed();
            assert!(after >= place && after < place + ms(100), "passed after {after:?}");
            assert!(!dead.is_finished());
            drop(next);
        }
    }
}

mod a_silent_waiter {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn holds_up_others_no_longer_than_a_free_key_is_offered() {
        let store = MemoryBackend::with_clock(TokioClock::new());
        let key = LockKey::new("k").unwrap();
        let claim = || Claim::new(Lease::new(&key, ms(60_000))).with_patience(Patience::Waits);
        let is_granted = async |claim: &Claim| {
            matches!(store.acquire(claim).await.unwrap(), Attempt::Granted(_))
        };
        let (holder, dead, next) = (claim(), claim(), claim());
        assert!(is_granted(&holder).await);
        assert!(!is_granted(&dead).await && !is_granted(&next).await);
        sleep(ms(1_000)).await;

        store.release(holder.lease()).await.unwrap();

        let Attempt::Held(contention) = store.acquire(&next).await.unwrap() else { panic!() };
        assert_eq!(contention.retry_after(), Some(Patience::RESERVATION));
        sleep(Patience::RESERVATION - ms(1)).await;
        assert!(!is_granted(&next).await);
        sleep(ms(1)).await;
        assert!(is_granted(&next).await);
    }

    #[tokio::test(start_paused = true)]
    async fn keeps_its_place_among_claims_for_several_keys() {
        let store = MemoryBackend::with_clock(TokioClock::new());
        let key = LockKey::new("k").unwrap();
        let claim = || Claim::new(Lease::new(&key, ms(1_000)));
        // For as long as the place of any waiter lasts, which is no longer than its TTL.
        let waits = Claim::new(Lease::new(&key, ms(60_000))).with_patience(Patience::Waits);
        store.acquire(&claim()).await.unwrap();
        store.acquire(&waits).await.unwrap();
        // The holder's lease ends by itself, and an attempt for several keys changes nothing.
        sleep(ms(1_000)).await;
        let several = store.acquire_all(&[claim()]).await.unwrap();
        assert!(matches!(several, AttemptAll::Held { .. }));

        sleep(Patience::RESERVATION * 2).await;

        assert!(matches!(store.acquire(&claim()).await.unwrap(), Attempt::Held(_)));
        assert!(matches!(store.acquire(&waits).await.unwrap(), Attempt::Granted(_)));
    }
}

mod callers_at_the_store {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn hear_of_a_release_that_overtakes_their_refusal() {
        for options in [LockOptions::new(), LockOptions::new().fair(true)] {
            let options = options.retry(Retry::unlimited().every(ms(600_000)));
            let Fixture { client, faults, store, .. } = Fixture::with(options);
            let holder = Lease::new(&LockKey::new("k").unwrap(), ms(600_000));
            store.acquire(&Claim::new(holder.clone())).await.unwrap();
            // The holder releases after the store has refused the claim, and before the refusal arrives.
            faults.on_reply(move |_request, reply| {
                store.release(&holder).now_or_never().unwrap().map(|_released| reply)
            });

            let started = tokio::time::Instant::now();
            let _guard = client.mutex("k").unwrap().lock().await.unwrap();

            assert_eq!(started.elapsed(), Duration::ZERO);
        }
    }
}
