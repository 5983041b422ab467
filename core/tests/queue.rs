//! Those who wait: in their own process, and in the store's queue.

use std::time::Duration;

use leasehold_core::clock::TokioClock;
use leasehold_core::fault::{Fault, FaultBackend};
use leasehold_core::{
    Attempt, AttemptAll, Claim, Lease, LockBackend, LockClient, LockKey, LockOptions,
    MemoryBackend, Operation, Patience,
};
use tokio::time::sleep;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A process whose requests may suffer, and another one.
fn processes(
    options: LockOptions,
) -> (LockClient<FaultBackend<MemoryBackend>>, LockClient<MemoryBackend>) {
    let clock = TokioClock::new();
    let store = MemoryBackend::with_clock(clock);
    let one = LockClient::builder(FaultBackend::new(store.clone())).clock(clock).options(options);
    (one.build().unwrap(), LockClient::builder(store).clock(clock).build().unwrap())
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

        assert!(mutex.try_lock().await.unwrap().is_none());
        assert!(mutex.try_lock_for(wait).await.unwrap().is_none());
        assert!(lock.try_read_for(wait).await.unwrap().is_none());
        assert!(lock.try_write_for(wait).await.unwrap().is_none());
        assert!(semaphore.try_acquire_for(1, wait).await.unwrap().is_none());
        assert!(election.try_campaign_for("another", wait).await.unwrap().is_none());

        assert_eq!(client.backend().faults().calls(Operation::Acquire), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn ask_the_store_while_one_of_them_leaves_something() {
        let (client, _other) = processes(LockOptions::new());
        let lock = client.rw_lock("lock").unwrap();
        let semaphore = client.semaphore("semaphore", 2).unwrap();
        let _holds = (lock.read().await.unwrap(), semaphore.acquire(1).await.unwrap());

        assert!(lock.try_read_for(ms(50)).await.unwrap().is_some());
        assert!(semaphore.try_acquire_for(1, ms(50)).await.unwrap().is_some());
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

mod a_waiter_of_whom_nothing_is_heard {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn holds_up_others_no_longer_than_a_free_key_is_offered() {
        let store = MemoryBackend::with_clock(TokioClock::new());
        let key = LockKey::new("k").unwrap();
        let claim = || Claim::new(Lease::new(&key, ms(60_000))).with_patience(Patience::Waits);
        let is_granted = async |claim: &Claim| {
            matches!(store.try_acquire(claim).await.unwrap(), Attempt::Granted(_))
        };
        let (holder, dead, next) = (claim(), claim(), claim());
        assert!(is_granted(&holder).await);
        assert!(!is_granted(&dead).await && !is_granted(&next).await);
        sleep(ms(1_000)).await;

        store.release(holder.lease()).await.unwrap();

        let Attempt::Held(contention) = store.try_acquire(&next).await.unwrap() else { panic!() };
        assert_eq!(contention.retry_after(), Some(Patience::RESERVATION));
        sleep(Patience::RESERVATION - ms(1)).await;
        assert!(!is_granted(&next).await);
        sleep(ms(1)).await;
        assert!(is_granted(&next).await);
    }

    #[tokio::test(start_paused = true)]
    async fn keeps_its_place_among_those_who_ask_for_several_keys() {
        let store = MemoryBackend::with_clock(TokioClock::new());
        let key = LockKey::new("k").unwrap();
        let claim = || Claim::new(Lease::new(&key, ms(1_000)));
        // For as long as the place of any waiter lasts, which is no longer than its TTL.
        let waits = Claim::new(Lease::new(&key, ms(60_000))).with_patience(Patience::Waits);
        store.try_acquire(&claim()).await.unwrap();
        store.try_acquire(&waits).await.unwrap();
        // The holder's lease ends by itself, and an attempt for several keys changes nothing.
        sleep(ms(1_000)).await;
        let several = store.try_acquire_all(&[claim()]).await.unwrap();
        assert!(matches!(several, AttemptAll::Held { .. }));

        sleep(Patience::RESERVATION * 2).await;

        assert!(matches!(store.try_acquire(&claim()).await.unwrap(), Attempt::Held(_)));
        assert!(matches!(store.try_acquire(&waits).await.unwrap(), Attempt::Granted(_)));
    }
}
