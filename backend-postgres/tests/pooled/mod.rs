//! Runs those tests of databases on a server behind a pooler for which a pooler can make a difference, and tests the pooler's limits.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::process::Command;
use std::time::{Duration, Instant};

use leasehold_core::LockClient;
use leasehold_core::backend::{Feature, LockBackend as _};
use leasehold_postgres::tokio_postgres::{self, NoTls, SimpleQueryMessage};
use leasehold_testbed::{FaultProxy, PgBouncer, PoolMode, Warnings, patiently, until};

use crate::family::failures::acquire;
use crate::family::limits::keep_a_lock_while_waiters_use_all_connections;
use crate::family::{connect, lease};
use crate::{Backend, Config, Direct, Options, Server};

/// A server, and the pooler through which clients use the server, if there is one.
pub(crate) struct Store {
    server: Server,
    pooler: Option<PgBouncer>,
}

thread_local! {
    /// The mode of the pooler that the test on this thread starts. A test starts its server on the thread of the test.
    static MODE: Cell<Option<PoolMode>> = const { Cell::new(None) };
}

/// Runs a test behind a pooler.
fn behind(mode: PoolMode, test: fn()) {
    MODE.set(Some(mode));
    test();
}

/// Starts a server, and a pooler if the test runs [behind](behind) one.
pub(crate) async fn start(options: Options) -> Store {
    let server = options.start().await;
    let pooler = match MODE.get() {
        None => None,
        Some(mode) => {
            let connections = match mode {
                // The server accepts a few more.
                PoolMode::Session => 180,
                // Fewer than the calls of a test, so that transactions change connections.
                PoolMode::Transaction => 4,
            };
            Some(PgBouncer::start(&server, mode, connections).await)
        }
    };
    Store { server, pooler }
}

impl Store {
    /// The address that clients use.
    pub(crate) fn address(&self) -> String {
        self.pooler.as_ref().map_or_else(|| self.server.address(), PgBouncer::address)
    }

    /// The URL that clients use.
    pub(crate) fn url(&self) -> String {
        self.server.url_at("postgres", &self.address())
    }

    /// Starts a proxy between clients and the pooler.
    pub(crate) async fn proxy(&self) -> FaultProxy {
        FaultProxy::start(self.address()).await
    }
}

impl Deref for Store {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl DerefMut for Store {
    fn deref_mut(&mut self) -> &mut Server {
        &mut self.server
    }
}

/// Runs each test behind a pooler in session mode, and behind a pooler in transaction mode.
macro_rules! behind_poolers {
    ($($module:ident::$test:ident,)*) => {
        mod session {
            use super::*;

            $(#[test]
            fn $test() {
                behind(PoolMode::Session, crate::family::$module::$test);
            })*
        }

        mod transaction {
            use super::*;

            $(#[test]
            fn $test() {
                behind(PoolMode::Transaction, crate::family::$module::$test);
            })*
        }
    };
}

behind_poolers! {
    // The tests of `access` are left out, because the pooler checks passwords and certificates, and permissions do not depend on the connection.
    attack::eight_connections_exclude_each_other,
    attack::eight_connections_exclude_each_other_in_serializable_sessions,

    failures::a_lazy_client_connects_once_the_database_is_available,
    failures::an_acquisition_that_is_dropped_before_it_has_a_connection_is_not_sent,
    failures::a_read_only_server_is_unavailable,
    failures::a_row_that_stays_locked_fails_the_call_in_time,
    failures::a_conflict_is_retried_four_times,
    failures::an_error_does_not_leave_a_row_locked,
    failures::a_paused_client_does_not_block_other_clients,
    failures::a_lost_reply_is_an_unknown_outcome,
    // Missing tables, a full disk and the rows of unused keys do not depend on the connection.

    // The test in `limits` reaches the limits of the server. The tests below reach the limits of a pooler instead.

    membership::another_incarnation_has_lost_its_identity_and_configuration,
    membership::durable_server_keeps_its_configuration_after_a_crash,
    membership::renewals_do_not_wait_for_a_raising_renewal_of_another_key,
    // The meaning of a literal depends on the settings of the session.
    membership::configurations_are_stored_unchanged,
    // The remaining tests of `membership` change the tables or the permissions, or send invalid texts.

    recovery::locks_recover_from_a_pause_of_the_server_although_callers_give_up,

    // The test `runtimes_that_share_a_client_keep_their_connections` counts connections to the server, which belong to the pooler.
    runtimes::a_blocked_runtime_does_not_delay_other_runtimes,
}

#[tokio::test]
async fn a_pooler_that_shares_its_sessions_is_recognized_before_a_time_limit() {
    const LIMIT: Duration = Duration::from_secs(60);

    let server = Server::start().await;
    for connections in [1, 4] {
        let pooler = PgBouncer::start(&server, PoolMode::Transaction, connections).await;
        let url = server.url_at("postgres", &pooler.address());
        let config = Config::from_url(&url).unwrap().timeout(LIMIT).unwrap();

        let begun_at = Instant::now();
        let backend = Backend::connect_with(config).await.unwrap();

        assert!(!backend.capabilities().supports(Feature::Push));
        let elapsed = begun_at.elapsed();
        assert!(elapsed < LIMIT / 4, "{connections} connections: {elapsed:?}");
    }
}

#[tokio::test]
async fn a_client_connects_although_the_pooler_has_no_session_for_the_check_of_notifications() {
    const LIMIT: Duration = Duration::from_secs(1);

    let server = Server::start().await;
    let pooler = PgBouncer::start(&server, PoolMode::Session, 2).await;
    let url = server.url_at("postgres", &pooler.address());
    let config = Config::from_url(&url).unwrap().timeout(LIMIT).unwrap();

    let begun_at = Instant::now();
    let backend = Backend::connect_with(config).await.unwrap();

    assert!(!backend.capabilities().supports(Feature::Push));
    let elapsed = begun_at.elapsed();
    assert!(elapsed < 8 * LIMIT, "{elapsed:?}");
}

#[tokio::test]
async fn waiters_behind_a_pooler_in_transaction_mode_poll_after_one_warning() {
    let (warnings, _guard) = Warnings::record();
    let server = Server::start().await;
    let pooler = PgBouncer::start(&server, PoolMode::Transaction, 4).await;
    let url = server.url_at("postgres", &pooler.address());

    let holder = LockClient::new(connect(&format!("{url}?push=off")).await);
    assert_eq!(warnings.all().len(), 0);
    let waiter = LockClient::new(connect(&url).await);
    assert_eq!(warnings.all().len(), 1);

    let guard = holder.mutex("job").unwrap().lock().await.unwrap();
    let mutex = waiter.mutex("job").unwrap();
    let queued = "SELECT count(*) FROM leasehold_locks WHERE document IS NOT NULL";
    let (waited, ()) = tokio::join!(mutex.lock(), async {
        until("the waiter is queued", async || server.sql(queued).await == "1").await;
        guard.release().await.unwrap();
    });
    waited.unwrap().release().await.unwrap();
    assert_eq!(warnings.all().len(), 1);
}

/// Sends a signal to the process of a session.
fn signal(signal: &str, session: &str) {
    let status = Command::new("kill").args([signal, session]).status();
    assert!(status.expect("there is a kill command").success(), "{session}");
}

/// If a notification arrives while PgBouncer 1.18 resets a session, PgBouncer connects the next client to the session too early. Each reply
/// to this client then belongs to the previous message.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_that_a_pooler_owes_to_an_earlier_client_is_not_used() {
    let server = Server::start().await;
    let pooler = PgBouncer::start(&server, PoolMode::Session, 1).await;
    let url = server.url_at("postgres", &pooler.address());
    let earlier = Direct::open(&url).await;
    let number = earlier.query("LISTEN others; SELECT pg_backend_pid()").await.unwrap();
    let session = number[0][0].as_deref().unwrap();
    // The reset has to drop these tables, which takes longer than a notification.
    let tables = "DO $$ BEGIN FOR n IN 1..500 LOOP EXECUTE format('CREATE TEMP TABLE t%s ()', n); END LOOP; END $$";
    earlier.query(tables).await.unwrap();
    let (console, connection) =
        tokio_postgres::connect(&format!("{}/pgbouncer", url.rsplit_once('/').unwrap().0), NoTls)
            .await
            .unwrap();
    tokio::spawn(connection);
    let is_resetting = async || {
        let pools = console.simple_query("SHOW POOLS").await.unwrap();
        pools.iter().any(|message| match message {
            SimpleQueryMessage::Row(row) => {
                row.get("sv_tested") == Some("1") && row.get("cl_waiting") == Some("1")
            }
            _ => false,
        })
    };

    signal("-STOP", session);
    server.sql("NOTIFY others").await;
    drop(earlier);
    let next = format!("{}?push=off", server.url_at("postgres", &pooler.address()));
    let connecting = tokio::spawn(async move { Backend::connect(&patiently(&next)).await });
    until("the next client waits for the reset", is_resetting).await;
    signal("-CONT", session);

    let backend = connecting.await.unwrap().unwrap();
    for key in ["job", "other"] {
        assert!(acquire(&backend, &lease(key)).await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_kept_while_waiters_use_all_connections_of_a_pooler_in_session_mode() {
    let server = Server::start().await;
    let pooler = PgBouncer::start(&server, PoolMode::Session, 12).await;
    // A client reports the timeout only after this time.
    let url = format!("{}?timeout-ms=5000", server.url_at("postgres", &pooler.address()));

    // The pooler accepts further clients, but does not reply to them.
    keep_a_lock_while_waiters_use_all_connections(&url, "timeout-ms").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_kept_while_waiters_use_all_connections_of_a_pooler_in_transaction_mode() {
    let server = Server::start().await;
    let pooler = PgBouncer::start_for(12, &server, PoolMode::Transaction, 4).await;
    let url = server.url_at("postgres", &pooler.address());

    keep_a_lock_while_waiters_use_all_connections(&patiently(&url), "max_client_conn").await;
}
