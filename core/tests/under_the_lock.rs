//! Work under a lock, and the guards that it has.

use std::future::pending;
use std::time::Duration;

use leasehold_core::backend::Operation;
use leasehold_core::clock::TokioClock;
use leasehold_core::fault::Fault;
use leasehold_core::memory::MemoryBackend;
use leasehold_core::{
    ErrorKind, LeaseState, LockClient, LockOptions, OwnerId, RenewalMode, TryLockError,
};
use tokio::time::{Instant, sleep, timeout};

use crate::fixture::{Client, Fixture, ms};

const TTL: Duration = ms(10_000);

fn client_with(options: LockOptions) -> Client {
    Fixture::with(options.ttl(TTL)).client
}

fn client() -> Client {
    client_with(LockOptions::new())
}

mod run {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn of_a_reader_writer_lock_lets_readers_share() {
        let lock = client().rw_lock("k").unwrap();

        let both = lock.run_read(async |_| {
            lock.run_read(async |_| lock.try_run_write(async |_| ()).await).await
        });

        let refused = both.await.unwrap().unwrap().unwrap_err();
        refused.into_busy().unwrap();
        let alone = lock.run_write(async |_| lock.try_run_read(async |_| ()).await).await;
        alone.unwrap().unwrap_err().into_busy().unwrap();
        assert!(lock.try_run_write(async |guard| guard.is_held()).await.unwrap());
        assert!(!lock.is_locked().await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn is_skipped_by_an_attempt_that_is_refused() {
        let client = client();
        let _held = [
            client.mutex("mutex").unwrap().lock().await.unwrap(),
            client.semaphore("semaphore", 1).unwrap().acquire(1).await.unwrap(),
            client.mutex("striped/0").unwrap().lock().await.unwrap(),
        ];
        let reentrant = client.reentrant_mutex("mutex").unwrap();
        let multi = client.multi_lock().mutexes(["free", "mutex"]).unwrap();

        let keys = [
            client
                .mutex("mutex")
                .unwrap()
                .try_run(async |_| ())
                .await
                .unwrap_err()
                .into_busy()
                .unwrap(),
            reentrant.try_run(async |_| ()).await.unwrap_err().into_busy().unwrap(),
            client
                .semaphore("semaphore", 1)
                .unwrap()
                .try_run(1, async |_| ())
                .await
                .unwrap_err()
                .into_busy()
                .unwrap(),
            client
                .striped("striped", 1)
                .unwrap()
                .try_run(async |_| ())
                .await
                .unwrap_err()
                .into_busy()
                .unwrap(),
            multi.try_run(async |_| ()).await.unwrap_err().into_busy().unwrap(),
        ]
        .map(|busy| busy.key().to_string());

        assert_eq!(keys, ["mutex", "mutex", "semaphore", "striped", "mutex"]);
        assert!(!client.mutex("free").unwrap().is_locked().await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn by_an_attempt_releases_its_grant() {
        let (clock, store) = (TokioClock::new(), MemoryBackend::new());
        let client = LockClient::builder(store.clone()).clock(clock).build().unwrap();
        let multi = client.multi_lock().mutexes(["a", "b"]).unwrap();

        client.mutex("a").unwrap().try_run(async |_| ()).await.unwrap();
        client.reentrant_mutex("a").unwrap().try_run(async |_| ()).await.unwrap();
        client.semaphore("s", 2).unwrap().try_run(2, async |_| ()).await.unwrap();
        client.striped("r", 2).unwrap().try_run(async |_| ()).await.unwrap();
        multi.try_run(async |guard| assert_eq!(guard.guards().len(), 2)).await.unwrap();

        assert_eq!(store.keys(), 0);
    }
}

mod a_caller_that_would_wait_for_itself {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn is_told_so() {
        let client = client();
        let (mutex, other) = (client.mutex("k").unwrap(), client.mutex("other").unwrap());

        let kind = mutex.run(async |_| {
            other.run(async |_| mutex.lock().await.unwrap_err().kind()).await.unwrap()
        });

        assert_eq!(kind.await.unwrap(), ErrorKind::WouldDeadlock);
    }

    #[tokio::test(start_paused = true)]
    async fn as_a_reader_that_wants_to_write_is_told_so() {
        let lock = client().rw_lock("k").unwrap();

        let kind = lock.run_read(async |_| lock.write().await.unwrap_err().kind());

        assert_eq!(kind.await.unwrap(), ErrorKind::WouldDeadlock);
    }

    #[tokio::test(start_paused = true)]
    async fn for_one_of_several_locks_is_told_so() {
        let client = client();
        let mutex = client.mutex("k").unwrap();
        let several = client.multi_lock().mutexes(["a", "k"]).unwrap();

        let kind = mutex.run(async |_| several.lock().await.unwrap_err().kind());

        assert_eq!(kind.await.unwrap(), ErrorKind::WouldDeadlock);
    }

    #[tokio::test(start_paused = true)]
    async fn under_several_locks_is_told_so() {
        let client = client();
        let (mutex, several) = (client.mutex("b").unwrap(), client.multi_lock());
        let several = several.mutexes(["a", "b"]).unwrap();

        let kind = several.run(async |_| mutex.lock().await.unwrap_err().kind());

        assert_eq!(kind.await.unwrap(), ErrorKind::WouldDeadlock);
    }

    #[tokio::test(start_paused = true)]
    async fn under_the_only_segment_is_told_so() {
        let stock = client().striped("stock", 1).unwrap();

        let kind = stock.run(async |_| stock.lock().await.unwrap_err().kind());

        assert_eq!(kind.await.unwrap(), ErrorKind::WouldDeadlock);
    }

    #[tokio::test(start_paused = true)]
    async fn that_leads_and_campaigns_is_told_so() {
        let election = client().election("e").unwrap();

        let kind =
            election.run_leader("1", async |_| election.campaign("2").await.unwrap_err().kind());

        assert_eq!(kind.await.unwrap(), ErrorKind::WouldDeadlock);
    }

    #[tokio::test(start_paused = true)]
    async fn is_not_seen_in_attempts_in_other_tasks_in_other_clients_and_in_locks_with_room() {
        let (client, another) = (client(), client());
        let (mutex, theirs) = (client.mutex("k").unwrap(), another.mutex("k").unwrap());
        let semaphore = client.semaphore("s", 3).unwrap();

        let run = mutex.run(async |_| {
            assert!(matches!(mutex.try_lock().await, Err(TryLockError::Busy(_))));
            theirs.lock().await.unwrap().release().await.unwrap();
            let mutex = mutex.clone();
            let waits = tokio::spawn(async move { mutex.try_lock_for(ms(10)).await });
            assert!(waits.await.unwrap().unwrap_err().into_busy().is_ok());
        });
        run.await.unwrap();
        semaphore.run(2, async |_| semaphore.run(1, async |_| ()).await).await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn is_not_seen_in_an_owner_that_enters_again() {
        let mutex = client().reentrant_mutex("k").unwrap();

        let run = OwnerId::new().scope(mutex.run(async |_| mutex.run(async |_| ()).await));

        run.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn is_not_seen_once_the_lock_is_lost() {
        let grace = LockOptions::new().loss_grace(ms(1_000));
        let client = client_with(grace);
        let mutex = client.mutex("k").unwrap();

        let run = mutex.run(async |guard| {
            client.admin().force_release("k", "test").await.unwrap();
            guard.ending().await;
            mutex.lock().await.unwrap().release().await.unwrap();
        });

        assert_eq!(run.await.unwrap_err().kind(), ErrorKind::LeaseLost);
    }
}

mod the_grace_after_a_loss {
    use super::*;

    const GRACE: Duration = ms(2_000);

    fn graceful() -> Client {
        client_with(LockOptions::new().loss_grace(GRACE))
    }

    #[tokio::test(start_paused = true)]
    async fn follows_the_signal() {
        let client = graceful();
        let (mut signalled, mut cleaned) = (None, false);
        let start = Instant::now();

        let mutex = client.mutex("k").unwrap();
        let ran = mutex.run(async |guard| {
            client.admin().force_release("k", "test").await.unwrap();
            guard.ending().await;
            signalled = Some(start.elapsed());
            sleep(GRACE - ms(1)).await;
            cleaned = true;
            pending::<()>().await;
        });

        assert_eq!(ran.await.unwrap_err().kind(), ErrorKind::LeaseLost);
        assert!(cleaned && signalled.unwrap() < ms(100), "{signalled:?}");
        assert!(start.elapsed() < GRACE + ms(100), "{:?}", start.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn comes_before_a_deadline_that_is_known() {
        let client = graceful();
        client.backend().faults().inject(
            Operation::Renew,
            Fault::Fail(ErrorKind::Unavailable),
            999,
        );
        let (mut signalled, mut deadline) = (None, None);

        let mutex = client.mutex("k").unwrap();
        let ran = mutex.run(async |guard| {
            deadline = Some(guard.remaining());
            let start = Instant::now();
            guard.ending().await;
            assert!(guard.is_held());
            signalled = Some(start.elapsed());
            pending::<()>().await;
        });
        let start = Instant::now();

        assert_eq!(ran.await.unwrap_err().kind(), ErrorKind::LeaseLost);
        let deadline = deadline.unwrap();
        assert_eq!(start.elapsed().as_millis(), deadline.as_millis());
        assert_eq!(signalled.unwrap().as_millis(), (deadline - GRACE).as_millis());
    }

    #[tokio::test(start_paused = true)]
    async fn is_no_signal_while_renewals_succeed() {
        let guard = graceful().mutex("k").unwrap().lock().await.unwrap();

        assert!(timeout(TTL * 5, guard.ending()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn of_work_that_ends_in_it_is_a_loss_all_the_same() {
        let client = graceful();
        let multi = client.multi_lock().mutexes(["a", "b"]).unwrap();

        let ran = multi.run(async |guard| {
            client.admin().force_release("b", "test").await.unwrap();
            guard.get("b").unwrap().ending().await;
        });

        let error = ran.await.unwrap_err();
        assert_eq!((error.kind(), error.key().unwrap().as_str()), (ErrorKind::LeaseLost, "b"));
    }
}

mod a_guard_of_several {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn extends_all_of_them() {
        let client = client_with(LockOptions::new().renewal(RenewalMode::Off));
        let guard = client.multi_lock().mutexes(["a", "b"]).unwrap().lock().await.unwrap();

        guard.extend(TTL * 3).await.unwrap();

        assert!(guard.remaining() > TTL * 2);
    }

    #[tokio::test(start_paused = true)]
    async fn tells_which_is_lost_to_an_extension() {
        let client = client();
        let guard = client.multi_lock().mutexes(["a", "b"]).unwrap().lock().await.unwrap();
        client.admin().force_release("b", "test").await.unwrap();

        let error = guard.extend(TTL * 3).await.unwrap_err();

        assert_eq!((error.kind(), error.key().unwrap().as_str()), (ErrorKind::LeaseLost, "b"));
        assert!(guard.get("a").unwrap().remaining() > TTL * 2);
    }

    #[tokio::test(start_paused = true)]
    async fn is_unconfirmed_when_one_is() {
        let client = client();
        let guard = client.multi_lock().mutexes(["a", "b"]).unwrap().lock().await.unwrap();
        let key = guard.guards()[1].key().clone();
        client.backend().faults().inject_on(
            &key,
            Operation::Renew,
            Fault::Fail(ErrorKind::Unavailable),
            1,
        );

        assert_eq!(guard.unconfirmed().await, (key, LeaseState::Unconfirmed));
    }

    #[tokio::test(start_paused = true)]
    async fn is_asked_to_finish_when_one_is() {
        let client = client();
        let guard = client.multi_lock().mutexes(["a", "b"]).unwrap().lock().await.unwrap();
        let (asked, ends) = (guard.revocation_requested(), guard.revocation_requested());
        assert!(!guard.is_revocation_requested());

        client.request_revocation("b").await.unwrap();

        assert_eq!(asked.await.unwrap().as_str(), "b");
        assert!(guard.is_revocation_requested());
        drop(guard);
        assert_eq!(ends.await.unwrap().as_str(), "b");
        let guard = client.multi_lock().mutexes(["c", "d"]).unwrap().lock().await.unwrap();
        let ends = guard.revocation_requested();
        drop(guard);
        assert_eq!(ends.await, None);
    }
}

mod permits {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn given_back_let_waiters_in() {
        let client = client();
        let semaphore = client.semaphore("k", 3).unwrap();
        let guard = semaphore.acquire(3).await.unwrap();
        let (waiting, token) = (semaphore.clone(), guard.token().number());
        let waits = tokio::spawn(async move { waiting.acquire(2).await.unwrap().units() });
        sleep(ms(10)).await;

        guard.give_back(2).await.unwrap();

        assert_eq!(timeout(ms(1_000), waits).await.unwrap().unwrap(), 2);
        assert_eq!((guard.units(), guard.token().number()), (1, token));
        sleep(TTL * 2).await;
        assert_eq!(semaphore.available().await.unwrap(), 2);
        guard.release().await.unwrap();
        assert_eq!(semaphore.available().await.unwrap(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn are_not_given_back_to_the_last_and_by_no_other_kind_of_lock() {
        let client = client();
        let permits = client.semaphore("s", 3).unwrap().acquire(2).await.unwrap();
        let writer = client.rw_lock("w").unwrap().write().await.unwrap();
        let mutex = client.mutex("m").unwrap().lock().await.unwrap();

        for (guard, count) in [(&permits, 0), (&permits, 2), (&*writer, 1), (&mutex, 1)] {
            assert_eq!(guard.give_back(count).await.unwrap_err().kind(), ErrorKind::Invalid);
        }
        assert_eq!(permits.units(), 2);
    }
}

mod a_ping {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn tells_whether_the_store_serves() {
        let client = client();
        client.ping(ms(100)).await.unwrap();

        let faults = client.backend().faults();
        faults.inject(Operation::Ping, Fault::Fail(ErrorKind::Denied), 1);
        assert_eq!(client.ping(ms(100)).await.unwrap_err().kind(), ErrorKind::Denied);

        faults.inject(Operation::Ping, Fault::SwallowReply, 1);
        let start = Instant::now();
        let error = client.ping(ms(100)).await.unwrap_err();
        assert_eq!((error.kind(), start.elapsed()), (ErrorKind::Unavailable, ms(100)));

        client.shutdown(ms(100)).await.unwrap();
        assert_eq!(client.ping(ms(100)).await.unwrap_err().kind(), ErrorKind::Closed);
    }
}

mod in_a_task_of_its_own {
    use std::sync::Arc;

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn work_finishes_although_its_caller_is_dropped() {
        let mutex = client().mutex("k").unwrap();
        let (started, proceed) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let work = {
            let (mutex, started, proceed) = (mutex.clone(), started.clone(), proceed.clone());
            async move {
                let run = tokio::spawn(async move {
                    mutex
                        .run(async |guard| {
                            started.notify_one();
                            proceed.notified().await;
                            guard.is_held()
                        })
                        .await
                });
                run.await.unwrap()
            }
        };

        tokio::select! {
            _ = work => panic!("the work waits for us"),
            () = started.notified() => {}
        }
        assert!(mutex.is_locked().await.unwrap(), "the work goes on");
        proceed.notify_one();

        drop(mutex.try_lock_for(Duration::from_secs(1)).await.unwrap());
    }
}
