//! Users, passwords, rights and TLS.

use std::time::Duration;

use leasehold_conformance::stalls::{Stalls, measure};
use leasehold_core::backend::{Claim, Lease, LockBackend, Mode, Patience, StoreAdmin, Tenure};
use leasehold_core::retry::Retry;
use leasehold_core::{
    Description, Error, ErrorKind, LockClient, LockKey, LockOptions, LossReason, TryLockError,
};
use leasehold_etcd::etcd_client::{Client, ConnectOptions, Txn, TxnOp};
use leasehold_etcd::{EtcdBackend, EtcdConfig};
use leasehold_testbed::{Etcd, EtcdOptions, FaultProxy, NetworkFault, until};
use tokio::time::{Instant, timeout};

const SECRET: &str = "S3CR3T-CANARY";

const LONG: Duration = Duration::from_secs(60);

/// How late things may happen on a machine that does not stall.
const PROMPT: Duration = Duration::from_millis(250);

/// The limit for news. Without news, a client finds out much later.
const SOON: Duration = Duration::from_secs(5);

/// A cluster with the user and the role of the documentation, and a user without rights.
fn with_users() -> EtcdOptions {
    EtcdOptions::new().user("locker", SECRET, "lock/").user("other", "other", "other/")
}

fn url(etcd: &Etcd, user: &str, password: &str) -> String {
    format!("etcd://{user}:{password}@{}", etcd.endpoints().join(","))
}

async fn client(url: &str, ttl: Duration) -> LockClient<EtcdBackend> {
    let options = LockOptions::new().ttl(ttl);
    let backend = EtcdBackend::connect(url).await.unwrap();
    LockClient::builder(backend).options(options).build().unwrap()
}

async fn refusal(url: &str) -> Error {
    EtcdBackend::connect(url).await.unwrap_err()
}

async fn all_operations(backend: &EtcdBackend) -> Result<(), Error> {
    let lease = |name: &str| Lease::new(&LockKey::new(name).unwrap(), LONG);
    for tenure in [Tenure::Fixed, Tenure::Kept] {
        let (held, waits) = (lease("job").with_tenure(tenure), lease("job").with_tenure(tenure));
        backend.acquire(&Claim::new(held.clone())).await?;
        let queued = Claim::new(waits.clone()).with_patience(Patience::Queues(LONG));
        backend.acquire(&queued).await?;
        backend.renew(&held).await?;
        backend.inspect(held.key()).await?;
        backend.request_revocation(held.key(), None).await?;
        backend.release(&held).await?;
        backend.acquire(&queued).await?;
        backend.force_release(held.key(), None).await?;
        backend.release(&waits).await?;
    }

    let units = || lease("units").with_mode(Mode::Units { units: 1, limit: 1 });
    let (held, waits) = (units(), units());
    backend.acquire(&Claim::new(held.clone())).await?;
    let queued = Claim::new(waits.clone()).with_patience(Patience::Queues(LONG));
    backend.acquire(&queued).await?;
    backend.acquire(&Claim::new(units())).await?;
    backend.renew(&held.clone().with_description(Description::new("x").ok())).await?;
    backend.request_revocation(held.key(), None).await?;
    backend.release(&waits).await?;
    backend.release(&held).await?;

    let several = ["one", "other"].map(|name| Claim::new(lease(name)));
    backend.acquire_all(&several).await?;
    for claim in &several {
        backend.release(claim.lease()).await?;
    }
    Ok(())
}

mod the_documented_role {
    use super::*;

    #[tokio::test]
    async fn is_enough_for_everything() {
        let etcd = with_users().start().await;
        let backend = EtcdBackend::connect(&url(&etcd, "locker", SECRET)).await.unwrap();

        all_operations(&backend).await.unwrap();
    }

    #[tokio::test]
    async fn is_enough_to_be_told() {
        let etcd = with_users().start().await;
        let url = url(&etcd, "locker", SECRET);
        let (holder, waiter) = (client(&url, LONG).await, client(&url, LONG).await);
        let guard = holder.mutex("job").unwrap().lock().await.unwrap();
        let told = waiter.options().retry(Retry::unlimited().every(LONG));
        let mutex = waiter.mutex("job").unwrap().with_options(told).unwrap();
        let waiting = tokio::spawn(async move { mutex.lock().await.unwrap() });
        until("it queues", async || {
            etcd.ctl(&["get", "--prefix", "--keys-only", "lock/job/"])
                .await
                .split_whitespace()
                .count()
                == 2
        })
        .await;

        guard.release().await.unwrap();

        let granted = timeout(SOON, waiting).await;
        let guard = granted.expect("it is told").unwrap();
        // By its own entry, once it has held it for a moment.
        etcd.ctl(&["del", "--prefix", "lock/job/"]).await;
        let lost = timeout(SOON, guard.lost()).await.expect("it is told");
        assert_eq!(lost, Some(LossReason::Vanished));
    }

    #[tokio::test]
    async fn is_enough_for_locks_of_all_kinds() {
        let etcd = with_users().start().await;
        let client = client(&url(&etcd, "locker", SECRET), LONG).await;

        let lock = client.rw_lock("table").unwrap();
        lock.write().await.unwrap().downgrade().await.unwrap().release().await.unwrap();
        lock.read().await.unwrap().release().await.unwrap();
        client.semaphore("permits", 3).unwrap().acquire(2).await.unwrap().release().await.unwrap();
        let leader = client.election("leader").unwrap().campaign("a").await.unwrap();
        leader.proclaim("b").await.unwrap();
        leader.resign().await.unwrap();
        let _held = client.mutex("job").unwrap().lock().await.unwrap();
        assert!(client.admin().inspect("job").await.unwrap().is_held());
        let forced = client.admin().force_release("job", "a test").await.unwrap();
        assert_eq!(forced.ended().len(), 1);
    }

    #[tokio::test]
    async fn of_another_prefix_is_denied() {
        let etcd = with_users().start().await;
        let backend = EtcdBackend::connect(&url(&etcd, "other", "other")).await.unwrap();

        let error = all_operations(&backend).await.unwrap_err();

        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(!error.is_retryable());
        assert!(error.to_string().contains("prefix"), "{error}");
        let url = format!("{}?prefix=other/", url(&etcd, "other", "other"));
        all_operations(&EtcdBackend::connect(&url).await.unwrap()).await.unwrap();
    }
}

mod credentials {
    use super::*;

    #[tokio::test]
    async fn that_are_wrong_are_denied_at_once() {
        let etcd = with_users().start().await;
        for (user, password) in [("locker", "wrong"), ("stranger", SECRET), ("locker", "")] {
            let error = refusal(&url(&etcd, user, password)).await;

            assert_eq!(error.kind(), ErrorKind::Denied, "{user}: {error}");
            assert!(!error.is_retryable());
        }
    }

    #[tokio::test]
    async fn that_are_missing_are_denied() {
        let etcd = with_users().start().await;

        let error = match EtcdBackend::connect(&etcd.url()).await {
            Ok(backend) => all_operations(&backend).await.unwrap_err(),
            Err(error) => error,
        };

        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    }

    #[tokio::test]
    async fn for_a_server_without_users_are_denied() {
        let etcd = Etcd::start().await;

        let error = refusal(&url(&etcd, "locker", SECRET)).await;

        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(error.to_string().contains("authentication is not enabled"), "{error}");
    }

    #[tokio::test]
    async fn are_shown_by_no_error_and_no_debug_output() {
        let etcd = with_users().start().await;
        let proxy = FaultProxy::start(etcd.endpoints().remove(0)).await;
        let with_proxy = format!("etcd://locker:{SECRET}@{}?timeout-ms=300", proxy.address());
        let backend = loop {
            // A busy machine may need more than so short a time to connect.
            if let Ok(backend) = EtcdBackend::connect(&with_proxy).await {
                break backend;
            }
        };
        let client = LockClient::new(backend.clone());
        let mut shown = vec![format!("{backend:?} {client:?} {:?}", client.mutex("job").unwrap())];
        let mut show = |error: Error| {
            let source =
                std::error::Error::source(&error).map(|source| format!("{source} {source:?}"));
            shown.push(format!("{error} {error:?} {error:#?} {source:?}"));
        };

        for fault in [NetworkFault::BlackHole, NetworkFault::Reset] {
            proxy.set_network_fault(fault);
            for _ in 0..3 {
                show(all_operations(&backend).await.unwrap_err());
            }
        }
        for url in [
            url(&etcd, "locker", &format!("{SECRET}x")),
            url(&etcd, SECRET, "wrong"),
            format!("etcd://x:{SECRET}@127.0.0.1:1"),
            format!("etcd://x:{SECRET}@no.such.host.invalid"),
            format!("etcd://x:{SECRET}@{}/path", etcd.endpoints()[0]),
            format!("etcds://x:{SECRET}@{}", etcd.endpoints()[0]),
        ] {
            show(refusal(&url).await);
        }

        for text in shown {
            assert!(!text.contains(SECRET), "{text}");
        }
    }
}

mod a_token {
    use super::*;

    async fn tokens(etcd: &Etcd) -> f64 {
        etcd.metric(0, r#"grpc_server_handled_total{grpc_method="Authenticate",grpc_code="OK"}"#)
            .await
    }

    #[tokio::test]
    async fn that_expires_again_and_again_costs_no_lock_and_no_error() {
        let short = ["--auth-token", "simple", "--auth-token-ttl", "1"];
        let etcd = with_users().args(short).start().await;
        // It is renewed every two and a half seconds, and then the token has expired.
        let ttl = Duration::from_millis(7_500);
        let client = client(&url(&etcd, "locker", SECRET), ttl).await;
        let guard = client.mutex("job").unwrap().lock().await.unwrap();
        let before = tokens(&etcd).await;

        let mut renewals = 0;
        let mut deadline = guard.deadline();
        while renewals < 4 {
            until("it is renewed", async || guard.deadline() > deadline || !guard.is_held()).await;
            assert!(guard.is_held(), "after {renewals} renewals");
            deadline = guard.deadline();
            renewals += 1;
        }

        assert!(tokens(&etcd).await >= before + 3.0, "the token does not expire");
        until_token_expired().await;
        let other = client.mutex("other").unwrap();
        other.try_lock().await.unwrap().release().await.unwrap();
        until_token_expired().await;
        guard.release().await.unwrap();
    }

    /// The server looks once a second for tokens that were not used for their time.
    async fn until_token_expired() {
        tokio::time::sleep(Duration::from_millis(2_100)).await;
    }

    #[tokio::test]
    async fn that_a_change_of_rights_makes_old_is_replaced() {
        let etcd = with_users().start().await;
        let client = client(&url(&etcd, "locker", SECRET), LONG).await;
        let guard = client.mutex("job").unwrap().lock().await.unwrap();

        for change in [["role", "add", "new"], ["role", "delete", "new"]] {
            etcd.ctl(&change).await;
            let other = client.mutex("other").unwrap();
            other.try_lock().await.unwrap().release().await.unwrap();
            guard.extend(LONG).await.unwrap();
        }

        etcd.ctl(&["user", "add", "new:new"]).await;
        guard.release().await.unwrap();
    }
}

mod news {
    use super::*;

    /// A waiter on an open stream is told, even if the stream's token has expired.
    async fn is_told_after(etcd: &Etcd, change: impl AsyncFnOnce()) {
        let url = url(etcd, "locker", SECRET);
        let (holder, waiter) = (client(&url, LONG).await, client(&url, LONG).await);
        let guard = holder.mutex("job").unwrap().lock().await.unwrap();
        let told = waiter.options().retry(Retry::unlimited().every(LONG));
        let mutex = |name| waiter.mutex(name).unwrap().with_options(told.clone()).unwrap();
        // A holder of more than a moment keeps the stream open.
        let keeps_stream = mutex("held").lock().await.unwrap();
        let watchers = async || etcd.metric(0, "etcd_debugging_mvcc_watcher_total").await;
        until("the stream is open", async || watchers().await > 1.0).await;

        change().await;
        let before = watchers().await;
        let waits = mutex("job");
        let waits = tokio::spawn(async move { waits.lock().await.unwrap() });
        until("it queues", async || {
            let keys = etcd.ctl(&["get", "--prefix", "--keys-only", "lock/job/"]).await;
            keys.split_whitespace().count() == 2
        })
        .await;
        // News before the watch is in force does not count.
        until("its lock is watched", async || watchers().await > before).await;
        guard.release().await.unwrap();

        let granted = timeout(SOON, waits).await;
        granted.expect("it is told").unwrap().release().await.unwrap();
        keeps_stream.release().await.unwrap();
    }

    #[tokio::test]
    async fn come_after_a_change_of_rights() {
        let etcd = with_users().start().await;

        is_told_after(&etcd, async || drop(etcd.ctl(&["user", "add", "new:new"]).await)).await;
    }

    #[tokio::test]
    async fn come_after_the_token_has_expired() {
        let short = ["--auth-token", "simple", "--auth-token-ttl", "1"];
        let etcd = with_users().args(short).start().await;

        is_told_after(&etcd, async || tokio::time::sleep(Duration::from_millis(2_500)).await).await;
    }
}

mod rights {
    use super::*;

    #[tokio::test]
    async fn that_are_taken_away_end_the_lock_by_its_deadline_and_deny_its_release() {
        measure(async || {
            let etcd = with_users().start().await;
            let client = client(&url(&etcd, "locker", SECRET), Duration::from_secs(3)).await;
            let kept = client.mutex("kept").unwrap().lock().await.unwrap();
            let released = client.mutex("released").unwrap().lock().await.unwrap();

            etcd.ctl(&["role", "revoke-permission", "--prefix", "locker", "lock/"]).await;

            let error = released.release().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
            let (deadline, left) = (kept.deadline(), kept.remaining());
            let lost = Stalls::watch().promptly("the loss", left + PROMPT, kept.lost()).await?;
            assert_eq!(lost, Some(LossReason::Expired));
            assert_eq!(kept.deadline(), deadline, "it was renewed");
            Ok(())
        })
        .await;
    }

    #[tokio::test]
    async fn that_are_given_back_in_time_save_the_lock() {
        let etcd = with_users().start().await;
        let client = client(&url(&etcd, "locker", SECRET), Duration::from_secs(6)).await;
        let guard = client.mutex("job").unwrap().lock().await.unwrap();
        etcd.ctl(&["role", "revoke-permission", "--prefix", "locker", "lock/"]).await;
        let error = guard.extend(Duration::from_secs(6)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(guard.is_held(), "a refused renewal is no loss");

        let rights = ["role", "grant-permission", "--prefix", "locker", "readwrite", "lock/"];
        etcd.ctl(&rights).await;

        guard.extend(Duration::from_secs(6)).await.unwrap();
        guard.release().await.unwrap();
    }

    #[tokio::test]
    async fn that_end_some_holders_and_not_the_others_are_no_definite_no() {
        let etcd = with_users().start().await;
        let options = ConnectOptions::new().with_user("locker", SECRET);
        let store = Client::connect(etcd.endpoints(), Some(options)).await.unwrap();
        for holders in ["few", "more"] {
            let held =
                |n| TxnOp::put(format!("lock/job/{holders}-{n}"), "held 0 00000000 1/2000", None);
            let together: Vec<TxnOp> = (0..120).map(held).collect();
            store.kv_client().txn(Txn::new().and_then(together)).await.unwrap();
        }
        let backend = EtcdBackend::connect(&url(&etcd, "locker", SECRET)).await.unwrap();
        let role = async |change: &[&str]| drop(etcd.ctl(&[&["role"], change].concat()).await);
        role(&["revoke-permission", "--prefix", "locker", "lock/"]).await;
        role(&["grant-permission", "--prefix", "locker", "read", "lock/"]).await;
        role(&["grant-permission", "--prefix", "locker", "readwrite", "lock/job/few"]).await;

        let error = backend.force_release(&LockKey::new("job").unwrap(), None).await.unwrap_err();

        assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
        let left = etcd.ctl(&["get", "--prefix", "--keys-only", "lock/job/"]).await;
        assert_eq!(left.split_whitespace().count(), 120);
    }
}

mod another_user {
    use super::*;

    #[tokio::test]
    async fn cannot_touch_our_keys() {
        let etcd = with_users().start().await;
        let client = client(&url(&etcd, "locker", SECRET), LONG).await;
        let guard = client.mutex("job").unwrap().lock().await.unwrap();
        let keys = etcd.ctl(&["get", "--prefix", "--keys-only", "lock/"]).await;
        let entry = keys.trim();
        let lease = lease_id(&etcd).await;

        for attempt in [
            &["get", entry][..],
            &["put", entry, "x"],
            &["del", entry],
            &["del", "--prefix", "lock/"],
            &["lease", "revoke", &lease],
            &["lock", "lock/job", "true"],
        ] {
            let attempt = [&["--user", "other:other"], attempt].concat();
            let denied = etcd.try_ctl(&attempt).await.unwrap_err();
            assert!(denied.contains("permission denied"), "{attempt:?}: {denied}");
        }

        guard.extend(LONG).await.unwrap();
        guard.release().await.unwrap();
    }

    /// The only lease that there is, in hexadecimal.
    async fn lease_id(etcd: &Etcd) -> String {
        let leases = etcd.ctl(&["lease", "list"]).await;
        leases.lines().nth(1).unwrap().to_owned()
    }

    #[tokio::test]
    async fn that_keeps_our_lease_alive_hides_no_loss_and_keeps_nothing_closed() {
        measure(async || {
            let etcd = with_users().start().await;
            let proxy = FaultProxy::start(etcd.endpoints().remove(0)).await;
            let behind = format!("etcd://locker:{SECRET}@{}", proxy.address());
            let ttl = Duration::from_secs(3);
            let (cut_off, waiter) =
                (client(&behind, ttl).await, client(&url(&etcd, "locker", SECRET), ttl).await);
            let guard = cut_off.mutex("job").unwrap().lock().await.unwrap();
            let lease = lease_id(&etcd).await;
            // This is root, because etcd 3.5.30 denies the request of a user who may not write the
            // keys of the lease. Version 3.5.16 lets every user keep the lease alive.
            let mut foreign = etcd.ctl_command(&["lease", "keep-alive", &lease]);
            let _foreign = foreign.stdout(std::process::Stdio::null()).spawn().unwrap();

            proxy.set_network_fault(NetworkFault::Reset);
            let lost = Stalls::watch().promptly("the loss", ttl + PROMPT, guard.lost()).await?;
            assert_eq!(lost, Some(LossReason::Expired));
            let start = Instant::now();
            until("the lease would have ended", async || start.elapsed() > ttl).await;
            let mutex = waiter.mutex("job").unwrap();
            assert!(
                matches!(mutex.try_lock().await, Err(TryLockError::Busy(_))),
                "the holder did not keep it alive"
            );
            proxy.set_network_fault(NetworkFault::None);
            drop(guard);

            let freed = timeout(Duration::from_secs(3), mutex.lock()).await;
            freed.expect("it is released").unwrap().release().await.unwrap();
            Ok(())
        })
        .await;
    }
}

#[cfg(feature = "tls")]
mod tls {
    use super::*;

    fn trusting(etcd: &Etcd) -> String {
        format!("{}?ca={}", etcd.tls_url(), etcd.certificates().authority().display())
    }

    async fn assert_is_refused_in_time(url: &str) {
        // A call that was about to give up may try once more.
        let bound = EtcdConfig::DEFAULT_TIMEOUT * 2 + PROMPT;
        let refused = async || Stalls::watch().promptly("the refusal", bound, refusal(url)).await;
        let error = measure(refused).await;
        assert!(matches!(error.kind(), ErrorKind::Denied | ErrorKind::Unavailable), "{error:?}");
    }

    #[tokio::test]
    async fn a_server_with_a_trusted_certificate_is_used() {
        let etcd = EtcdOptions::new().tls().start().await;
        let backend = EtcdBackend::connect(&trusting(&etcd)).await.unwrap();

        all_operations(&backend).await.unwrap();
    }

    #[tokio::test]
    async fn a_server_that_is_not_trusted_is_refused() {
        let (etcd, other) = (EtcdOptions::new().tls(), EtcdOptions::new().tls());
        let (etcd, other) = tokio::join!(etcd.start(), other.start());
        let authority = other.certificates().authority();

        let unknown_to_the_system = refusal(&etcd.tls_url()).await;
        let wrong_authority =
            refusal(&format!("{}?ca={}", etcd.tls_url(), authority.display())).await;
        let wrong_name = refusal(&trusting(&etcd).replace("localhost", "127.0.0.2")).await;

        for error in [unknown_to_the_system, wrong_authority] {
            assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
        }
        assert!(
            matches!(wrong_name.kind(), ErrorKind::Denied | ErrorKind::Unavailable),
            "{wrong_name:?}"
        );
    }

    #[tokio::test]
    async fn a_server_without_tls_is_not_spoken_to_in_the_clear() {
        let etcd = Etcd::start().await;

        assert_is_refused_in_time(&format!("etcds://x:{SECRET}@{}", etcd.endpoints()[0])).await;
    }

    #[tokio::test]
    async fn a_server_with_tls_that_is_spoken_to_in_the_clear_is_an_error_in_time() {
        let etcd = EtcdOptions::new().tls().start().await;

        assert_is_refused_in_time(&etcd.url()).await;
    }

    #[tokio::test]
    async fn a_server_that_asks_for_a_certificate_gets_ours() {
        let etcd = EtcdOptions::new().tls_with_client_certificates().start().await;
        let files = etcd.certificates();
        let (cert, key) = (files.client_certificate(), files.client_key());

        let with = format!("{}&cert={}&key={}", trusting(&etcd), cert.display(), key.display());
        let backend = EtcdBackend::connect(&with).await.unwrap();
        all_operations(&backend).await.unwrap();

        let without = refusal(&trusting(&etcd)).await;
        assert!(
            matches!(without.kind(), ErrorKind::Denied | ErrorKind::Unavailable),
            "{without:?}"
        );
    }
}

#[tokio::test]
async fn two_users_of_one_url_exclude_each_other() {
    let etcd = with_users().user("second", "second", "lock/").start().await;
    let one = client(&url(&etcd, "locker", SECRET), LONG).await;
    let two = client(&url(&etcd, "second", "second"), LONG).await;
    let held = one.mutex("job").unwrap().lock().await.unwrap();

    let refused = two.mutex("job").unwrap().try_lock().await.unwrap_err();

    assert!(refused.into_busy().is_ok(), "the lock belongs to the key and not to a user");
    held.release().await.unwrap();
    let held = two.mutex("job").unwrap().try_lock().await.unwrap();
    assert!(matches!(one.mutex("job").unwrap().try_lock().await, Err(TryLockError::Busy(_))));
    held.release().await.unwrap();
}
