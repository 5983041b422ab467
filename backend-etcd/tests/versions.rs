//! Servers of other versions.

use std::time::Duration;

use leasehold_core::retry::Retry;
use leasehold_core::{LockClient, LockOptions, TryLockError};
use leasehold_etcd::EtcdBackend;
use leasehold_testbed::{Etcd, EtcdOptions, Warnings, until};
use tokio::time::timeout;

async fn client(etcd: &Etcd) -> LockClient<EtcdBackend> {
    let told = Retry::unlimited().every(Duration::from_secs(60));
    let options = LockOptions::new().ttl(Duration::from_secs(2)).retry(told);
    let backend = EtcdBackend::connect(&etcd.url()).await.unwrap();
    LockClient::builder(backend).options(options).build().unwrap()
}

/// Everything that asks something of the server.
async fn everything_works(etcd: &Etcd) {
    let (holder, waiter) = (client(etcd).await, client(etcd).await);
    let guard = holder.mutex("job").unwrap().lock().await.unwrap();
    let (token, deadline) = (guard.token().clone(), guard.deadline());
    let mutex = waiter.mutex("job").unwrap();
    assert!(matches!(mutex.try_lock().await, Err(TryLockError::Busy(_))));
    let mut waiting = tokio::spawn(async move { mutex.lock().await.unwrap() });
    until("it is renewed", async || guard.deadline() > deadline).await;
    assert!(!waiting.is_finished());

    guard.release().await.unwrap();
    let granted = timeout(Duration::from_secs(5), &mut waiting).await;
    let guard = granted.expect("it is told").unwrap();
    assert!(*guard.token() > token);

    holder.request_revocation("job").await.unwrap();
    let asked = timeout(Duration::from_millis(500), guard.revocation_requested());
    assert!(asked.await.expect("it is told"));
    guard.release().await.unwrap();

    let semaphore = holder.semaphore("permits", 2).unwrap();
    let permits = [semaphore.acquire(1).await.unwrap(), semaphore.acquire(1).await.unwrap()];
    assert_eq!(semaphore.available().await.unwrap(), 0);
    for permit in permits {
        permit.release().await.unwrap();
    }
    let lock = holder.rw_lock("table").unwrap();
    let read = lock.read().await.unwrap();
    assert!(matches!(lock.try_write().await, Err(TryLockError::Busy(_))));
    read.release().await.unwrap();
    lock.write().await.unwrap().release().await.unwrap();
}

mod a_server_that_may_end_live_leases {
    use super::*;

    #[tokio::test]
    async fn is_warned_of_once_by_each_client() {
        let mut etcd = EtcdOptions::new().old().start().await;
        let (warnings, _guard) = Warnings::record();

        let client = client(&etcd).await;
        client.mutex("job").unwrap().lock().await.unwrap().release().await.unwrap();
        let warned = warnings.all();
        assert_eq!(warned.len(), 1, "{warned:?}");
        assert!(warned[0].contains("3.4.23") && warned[0].contains("15247"), "{warned:?}");

        etcd.restart().await;
        client.mutex("job").unwrap().lock().await.unwrap().release().await.unwrap();
        let again = warnings.all().into_iter().filter(|text| text.contains("15247")).count();
        assert_eq!(again, 1);
    }

    #[tokio::test]
    async fn serves_all_the_same() {
        let etcd = EtcdOptions::new().old().start().await;

        everything_works(&etcd).await;
    }
}

mod a_server_that_keeps_live_leases {
    use super::*;

    #[tokio::test]
    async fn is_not_warned_of() {
        let etcd = Etcd::start().await;
        let (warnings, _guard) = Warnings::record();

        everything_works(&etcd).await;

        assert_eq!(warnings.all(), Vec::<String>::new());
    }
}

mod a_ttl_that_a_change_of_the_leader_may_eat_up {
    use super::*;

    async fn warned_of(etcd: &Etcd, ttl: Duration) -> Vec<String> {
        let (warnings, _guard) = Warnings::record();
        let backend = EtcdBackend::connect(&etcd.url()).await.unwrap();
        let client = LockClient::builder(backend).options(LockOptions::new().ttl(ttl));
        let client = client.build().unwrap();
        for name in ["one", "other"] {
            client.mutex(name).unwrap().lock().await.unwrap().release().await.unwrap();
        }
        warnings.all()
    }

    #[tokio::test]
    async fn is_warned_of_once_where_there_are_several_members() {
        let (one, three) = (Etcd::start().await, EtcdOptions::new().members(3).start().await);
        let (short, long) = (Duration::from_secs(9), Duration::from_secs(10));

        let warned = warned_of(&three, short).await;

        assert!(warned.len() == 1 && warned[0].contains("9s"), "{warned:?}");
        assert_eq!(warned_of(&three, long).await, Vec::<String>::new());
        assert_eq!(warned_of(&one, short).await, Vec::<String>::new());
    }
}
