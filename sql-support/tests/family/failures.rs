//! Tests of the outcomes when a server fails.

use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::join_all;
use leasehold_core::backend::{
    Attempt, Claim, Fencing, Lease, LockBackend, Release, Renewal, StoreAdmin as _,
};
use leasehold_core::{Description, Error, ErrorKind};
use leasehold_testbed::{NetworkFault, patiently, until};

use super::{connect, direct, lease, start};
use crate::{Backend, Config, Options, Server};

pub(crate) async fn acquire(backend: &Backend, lease: &Lease) -> Result<bool, Error> {
    let attempt = backend.acquire(&Claim::new(lease.clone())).await?;
    Ok(matches!(attempt, Attempt::Granted(_)))
}

pub(crate) async fn leases(server: &Server) -> String {
    server.sql("SELECT count(*) FROM leasehold_locks").await
}

#[tokio::test]
pub(crate) async fn a_lazy_client_connects_once_the_database_is_available() {
    let mut server = start().await;
    server.shut_down();
    let lazy = Backend::connect_lazily(Config::from_url(&patiently(&server.url())).unwrap());
    let error = acquire(&lazy, &lease("job")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(lazy.capabilities().fencing(), Fencing::BestEffort);

    server.restart().await;

    assert!(acquire(&lazy, &lease("job")).await.unwrap());
    assert_eq!(lazy.capabilities(), connect(&server.url()).await.capabilities());
}

#[tokio::test]
pub(crate) async fn an_acquisition_that_is_dropped_before_it_has_a_connection_is_not_sent() {
    let server = start().await;
    let config = Config::from_url(&patiently(&server.url())).unwrap().connections(1).unwrap();
    let backend = Backend::connect_with(config).await.unwrap();
    let [sent, dropped, next] = ["sent", "dropped", "next"].map(lease);
    let mut sent = Box::pin(acquire(&backend, &sent));
    assert!((&mut sent).now_or_never().is_none());

    assert!(acquire(&backend, &dropped).now_or_never().is_none());

    assert!(sent.await.unwrap() && acquire(&backend, &next).await.unwrap());
    assert!(!backend.inspect(dropped.key()).await.unwrap().is_held());
}

#[tokio::test]
async fn missing_tables_are_refused_and_named() {
    let server = Server::start().await;
    let backend = connect(&server.url()).await;

    server.sql("DROP TABLE leasehold_key CASCADE").await;

    let error = acquire(&backend, &lease("job")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(error.to_string().contains("leasehold tables"), "{error}");
}

#[tokio::test]
pub(crate) async fn a_read_only_server_is_unavailable() {
    let server = start().await;
    let backend = connect(&server.url()).await;
    let (held, other) = (lease("job"), lease("other"));
    assert!(acquire(&backend, &held).await.unwrap());

    server.set_read_only(true).await;
    let is_refused = |error: Error| {
        error.kind() == ErrorKind::NotWritable && error.to_string().contains("read-only")
    };
    let refused = async || acquire(&backend, &other).await.is_err_and(is_refused);
    until("acquisitions are refused", refused).await;
    until("renewals are refused", async || backend.renew(&held).await.is_err_and(is_refused)).await;
    let refused = async || backend.release(&other).await.is_err_and(is_refused);
    until("releases are refused", refused).await;
    assert!(backend.inspect(held.key()).await.unwrap().is_held());
    server.set_read_only(false).await;

    let renewed = async || backend.renew(&held).await.is_ok_and(|held| held == Renewal::Renewed);
    until("the lease is renewed", renewed).await;
}

#[tokio::test]
async fn a_full_disk_is_refused_and_named() {
    let server = Options::new().small_disk().start().await;
    let backend = connect(&server.url()).await;
    let description = Description::new("x".repeat(250)).unwrap();
    let grow = async || {
        let lease = lease(&fastrand::u64(..).to_string());
        acquire(&backend, &lease.with_description(Some(description.clone()))).await
    };
    grow().await.unwrap();

    server.fill_disk();
    let error = loop {
        if let Err(error) = grow().await {
            break error;
        }
    };
    server.clear_disk();

    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(error.to_string().contains("disk is full"), "{error}");
    assert!(grow().await.unwrap());
}

#[tokio::test]
pub(crate) async fn a_row_that_stays_locked_fails_the_call_in_time() {
    let server = start().await;
    let patient = connect(&server.url()).await;
    // The database gives up after half of the timeout. The remaining time is for a busy machine.
    let config = Config::from_url(&server.url()).unwrap().timeout(Duration::from_secs(8));
    let backend = Backend::connect_with(config.unwrap()).await.unwrap();
    let (held, free) = (lease("job"), lease("other"));
    for lease in [&held, &free] {
        assert!(acquire(&patient, lease).await.unwrap());
    }
    assert_eq!(patient.release(&free).await.unwrap(), Release::Released);

    let keeping = direct(&server).await;
    keeping.query("BEGIN").await.unwrap();
    keeping.query(crate::KEEP_OTHER).await.unwrap();
    let error = acquire(&backend, &lease("other")).await.unwrap_err();
    let renewal = patient.renew(&held).await.unwrap();
    keeping.query("ROLLBACK").await.unwrap();

    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let reasons = crate::REASONS_TO_GIVE_UP;
    assert!(reasons.iter().any(|reason| error.to_string().contains(reason)), "{error}");
    assert_eq!(renewal, Renewal::Renewed, "renewals lock only their own rows");
    assert!(acquire(&backend, &lease("next")).await.unwrap(), "no transaction remains open");
    assert_eq!(leases(&server).await, "2", "nothing was applied late");
}

#[tokio::test]
async fn rows_of_unused_keys_are_deleted() {
    let server = Server::start().await;
    let backend = connect(&server.url()).await;
    for n in 0..20 {
        assert!(acquire(&backend, &lease(&format!("left-{n}"))).await.unwrap());
    }
    server.sql("UPDATE leasehold_key SET ends = 1, token = 1").await;
    let held = lease("held");
    assert!(acquire(&backend, &held).await.unwrap());

    let left = "SELECT count(*) FROM leasehold_key WHERE token = 1";
    until("the rows are deleted", async || {
        lock_for_a_purge(&backend).await;
        server.sql(left).await == "0"
    })
    .await;

    assert_eq!(backend.renew(&held).await.unwrap(), Renewal::Renewed);
}

/// Causes a purge, which follows 256 acquisitions. The acquisitions share a few round trips, so that a
/// slow machine does not need much longer.
async fn lock_for_a_purge(backend: &Backend) {
    let leases: Vec<_> = (0..256).map(|n| lease(&format!("busy-{n}"))).collect();
    let acquired = join_all(leases.iter().map(|lease| acquire(backend, lease))).await;
    assert!(acquired.iter().all(|acquired| matches!(acquired, Ok(true))), "{acquired:?}");
    let released = join_all(leases.iter().map(|lease| backend.release(lease))).await;
    let is_released = |released: &_| matches!(released, Ok(Release::Released));
    assert!(released.iter().all(is_released), "{released:?}");
}

#[tokio::test]
pub(crate) async fn a_conflict_is_retried_four_times() {
    let server = start().await;
    let backend = connect(&server.url()).await;
    for code in crate::CONFLICTS {
        crate::raise(&server, code, 4).await;
        assert!(acquire(&backend, &lease(&format!("seldom-{code}"))).await.unwrap());

        crate::raise(&server, code, 5).await;
        let error = acquire(&backend, &lease(&format!("often-{code}"))).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(acquire(&backend, &lease(&format!("after-{code}"))).await.unwrap());
    }
    assert_eq!(leases(&server).await, "4");
}

#[tokio::test]
pub(crate) async fn an_error_does_not_leave_a_row_locked() {
    let server = start().await;
    let backend = connect(&server.url()).await;

    crate::raise(&server, crate::INTERRUPTED, 1).await;
    let error = acquire(&backend, &lease("job")).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(acquire(&backend, &lease("job")).await.unwrap());
}

#[tokio::test]
pub(crate) async fn a_paused_client_does_not_block_other_clients() {
    let server = start().await;
    let proxy = server.proxy().await;
    let still = connect(&server.url().replace(&server.address(), &proxy.address())).await;
    let backend = connect(&server.url()).await;
    let key = lease("job");
    acquire(&still, &lease("first")).await.unwrap();

    // The client sends its transaction, but never receives a reply.
    proxy.set_network_fault(NetworkFault::HoldReplies);
    let asks = key.clone();
    let asking = tokio::spawn(async move { acquire(&still, &asks).await });
    until("it was granted", async || leases(&server).await == "2").await;

    let begun_at = Instant::now();
    for _ in 0..10 {
        assert!(!acquire(&backend, &lease("job")).await.unwrap());
    }
    assert_eq!(backend.release(&key).await.unwrap(), Release::Released);
    assert!(acquire(&backend, &lease("job")).await.unwrap());
    assert!(
        begun_at.elapsed() < Duration::from_secs(10),
        "calls waited for the paused client's transaction"
    );
    asking.abort();
}

#[tokio::test]
pub(crate) async fn a_lost_reply_is_an_unknown_outcome() {
    let server = start().await;
    let proxy = server.proxy().await;
    let url = server.url().replace(&server.address(), &proxy.address());
    let backend = Backend::connect(&url).await.unwrap();
    acquire(&backend, &lease("first")).await.unwrap();

    proxy.set_network_fault(NetworkFault::HoldReplies);
    let error = acquire(&backend, &lease("job")).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
    until("it was applied", async || leases(&server).await == "2").await;
}

#[tokio::test]
async fn rows_of_keys_that_nobody_uses_are_deleted() {
    let server = Server::start().await;
    let backend = connect(&server.url()).await;
    for n in 0..8 {
        let old = lease(&format!("old:{n}"));
        assert!(acquire(&backend, &old).await.unwrap());
        backend.release(&old).await.unwrap();
    }
    server.sql("UPDATE leasehold_key SET token = 1").await;
    assert!(acquire(&backend, &lease("a-held-lock")).await.unwrap());

    let old = async || server.sql("SELECT count(*) FROM leasehold_key WHERE token = 1").await;
    // A few purges visit all keys.
    for _ in 0..5 {
        lock_for_a_purge(&backend).await;
    }

    until("the old rows are deleted", async || old().await == "0").await;
    assert_eq!(leases(&server).await, "1");
}
