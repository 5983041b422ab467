//! The tests of PostgreSQL alone.

use std::collections::HashSet;
use std::fmt;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use leasehold_core::backend::{
    Attempt, Claim, Feature, Fencing, Inspection, LockBackend, Member as _, Patience, Release,
    Renewal, StoreAdmin as _, StoreId,
};
use leasehold_core::batch::LANES;
use leasehold_core::{Description, ErrorKind};
use leasehold_postgres::tokio_postgres::{self, Client, NoTls};
use leasehold_postgres::{
    Call, PostgresBackend, PostgresConfig, Row, Run, RunError, Urgency, reported,
};
use leasehold_sql_support::Layout;
use leasehold_sql_support::postgres::Statements;
use leasehold_testbed::{PgBouncer, PoolMode, Postgres, PostgresOptions, patiently, until};
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::Direct;
use crate::family::failures::{acquire, leases};
use crate::family::membership::{join, vote};
use crate::family::{TTL, connect, lease};

/// Has a write of a lease raise an error on a condition.
async fn raise(postgres: &Postgres, event: &str, condition: &str, code: &str, deferred: &str) {
    let sql = format!(
        "CREATE FUNCTION raise() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN IF {condition} THEN RAISE 'S' USING ERRCODE = '{code}'; END IF; RETURN NEW; END $$;
         CREATE CONSTRAINT TRIGGER raise AFTER {event} ON leasehold_key {deferred}
         FOR EACH ROW EXECUTE FUNCTION raise()"
    );
    postgres.sql(&sql).await;
}

#[tokio::test]
async fn renewals_beside_one_that_fails_succeed() {
    // A deadlock victim, and an error that a row may raise by itself.
    for code in ["40P01", "P0001"] {
        let postgres = Postgres::start().await;
        let backend = connect(&postgres.url()).await;
        let held = ["a", "bad", "c"].map(lease);
        for lease in &held {
            assert!(acquire(&backend, lease).await.unwrap());
        }

        raise(&postgres, "UPDATE", "NEW.key = 'bad'", code, "").await;
        let renewed = backend.renew_all(&held).await;

        assert!(matches!(renewed[0], Ok(Renewal::Renewed)), "{renewed:?}");
        assert!(renewed[1].is_err(), "{renewed:?}");
        assert!(matches!(renewed[2], Ok(Renewal::Renewed)), "{renewed:?}");
    }
}

#[tokio::test]
async fn renewals_beside_one_that_others_keep_succeed() {
    let postgres = Postgres::start().await;
    let backend = connect(&postgres.url()).await;
    let held: Vec<_> = (0..256).map(|n| lease(&format!("job-{n}"))).collect();
    for lease in &held {
        assert!(acquire(&backend, lease).await.unwrap());
    }

    let keeping = Direct::open(&postgres.url()).await;
    keeping.query("BEGIN").await.unwrap();
    let lock = "SELECT token FROM leasehold_key WHERE key = 'job-7' FOR UPDATE";
    keeping.query(lock).await.unwrap();
    let renewed = backend.renew_all(&held).await;
    keeping.query("ROLLBACK").await.unwrap();

    for (n, renewed) in renewed.into_iter().enumerate() {
        match renewed {
            Err(error) if n == 7 => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
            renewed => assert_eq!(renewed.unwrap(), Renewal::Renewed, "{n}"),
        }
    }
    assert_eq!(backend.renew(&held[7]).await.unwrap(), Renewal::Renewed);
}

#[tokio::test]
async fn a_commit_that_fails_is_no_grant() {
    let postgres = Postgres::start().await;
    let backend = connect(&postgres.url()).await;

    raise(&postgres, "INSERT", "true", "P0001", "DEFERRABLE INITIALLY DEFERRED").await;

    let error = acquire(&backend, &lease("job")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unexpected, "{error}");
    assert_eq!(leases(&postgres).await, "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_breaks_leaves_no_task() {
    let postgres = Postgres::start().await;
    let proxy = postgres.proxy().await;
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let _backend = connect(&postgres.url_at("postgres", &proxy.address())).await;
    assert!(tasks() > before + 1, "a task reads the messages of a connection");

    proxy.disconnect().await;

    // Another task closes idle connections.
    until("the task ends", async || tasks() == before + 1).await;
}

#[tokio::test]
async fn a_host_that_says_nothing_leaves_time_for_the_next() {
    let postgres = Postgres::start().await;
    // The kernel accepts connections for it, as for a server that stands still.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let hosts = format!("{},{}", silent.local_addr().unwrap(), postgres.address());

    let url = format!("{}?timeout-ms=2000", postgres.url_at("postgres", &hosts));
    let backend = connect(&url).await;

    assert!(acquire(&backend, &lease("job")).await.unwrap());
}

#[tokio::test]
async fn servers_without_a_primary_are_read_only_just_now() {
    let postgres = Postgres::start().await;
    drop(connect(&postgres.url()).await);
    postgres.sql("ALTER DATABASE postgres SET default_transaction_read_only = on").await;

    let url = format!("{}?target_session_attrs=read-write", postgres.url());
    let error = PostgresBackend::connect(&patiently(&url)).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::NotWritable, "{error}");
    assert!(error.to_string().contains("the database is read-only"), "{error}");
}

#[tokio::test]
async fn a_commit_that_a_replica_may_lack_is_an_unknown_outcome() {
    let (postgres, mut replica) = tokio::join!(Postgres::start(), Postgres::start());
    replica.follow(&postgres).await;
    let backend = connect(&postgres.url()).await;
    postgres.wait_for_replica().await;
    postgres.sql("ALTER ROLE postgres SET client_min_messages = error").await;
    let backend_without_warnings = connect(&postgres.url()).await;

    replica.pause();
    for (backend, key) in [(backend, "job"), (backend_without_warnings, "other")] {
        let lease = lease(key);
        let (attempt, ()) = tokio::join!(acquire(&backend, &lease), cancel_a_wait(&postgres));

        let error = attempt.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
        assert!(error.to_string().contains("replica"), "{error}");
    }
    replica.resume();

    assert_eq!(leases(&postgres).await, "2", "the primary has both");
}

async fn cancel_a_wait(postgres: &Postgres) {
    let waits = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    let cancel = format!("SELECT count(pg_cancel_backend(pid)) {waits}");
    until("a wait is cancelled", async || postgres.sql(&cancel).await == "1").await;
}

/// An application's own connection, and the number of messages on it.
struct Mine(Arc<Client>, Arc<AtomicUsize>);

#[async_trait]
impl Run for Mine {
    async fn run(&self, call: &Call, _: Urgency, limit: Duration) -> Result<Vec<Row>, RunError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        let reply = self.0.simple_query(&call.at(limit)).await;
        let messages = reply.map_err(|error| match error.code().cloned() {
            Some(code) => reported(code.code(), error),
            None => RunError::no_reply(error),
        })?;
        let rows = messages.iter().filter_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        Ok(rows
            .map(|row| (0..row.len()).map(|i| row.get(i).map(str::to_owned)).collect())
            .collect())
    }
}

impl fmt::Debug for Mine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mine")
    }
}

#[tokio::test]
async fn lease_that_others_keep_for_a_moment_is_renewed() {
    let postgres = Postgres::start().await;
    let backend = connect(&postgres.url()).await;
    let held = lease("job");
    assert!(acquire(&backend, &held).await.unwrap());
    let keeping = Direct::open(&postgres.url()).await;
    keeping.query("BEGIN; UPDATE leasehold_key SET description = 'kept'").await.unwrap();

    let (renewed, committed) = tokio::join!(backend.renew(&held), keeping.query("COMMIT"));

    committed.unwrap();
    assert_eq!(renewed.unwrap(), Renewal::Renewed);
}

#[tokio::test]
async fn locks_go_through_a_pooler_that_changes_connections() {
    let postgres = Postgres::start().await;
    let pooler = PgBouncer::start(&postgres, PoolMode::Transaction, 3).await;
    let url = postgres.url_at("postgres", &pooler.address());
    let url_with_limit = format!("{url}?timeout-ms=2000");
    // One client sends the acquisitions of several callers together, in one session.
    let backends = join_all((0..3).map(|_| connect(&url_with_limit))).await;

    for round in 0..3 {
        let held: Vec<_> = (0..15).map(|n| lease(&format!("job-{n}"))).collect();
        let of_backends = || held.iter().zip(backends.iter().cycle());
        let acquired = of_backends().map(|(lease, backend)| acquire(backend, lease));
        for granted in join_all(acquired).await {
            assert!(granted.unwrap(), "in round {round}");
        }
        let released = of_backends().map(|(lease, backend)| backend.release(lease));
        for released in join_all(released).await {
            assert_eq!(released.unwrap(), Release::Released, "in round {round}");
        }
    }
    assert!(!backends[0].capabilities().supports(Feature::Push));
    let direct = Direct::open(&url).await;
    let left = "SELECT current_setting('search_path'), pg_backend_pid(),
        (SELECT count(*) FROM pg_listening_channels()) + (SELECT count(*) FROM pg_prepared_statements)";
    let mut sessions = HashSet::new();
    for _ in 0..12 {
        let mut rows = direct.query(left).await.unwrap();
        let [path, session, left] = rows.remove(0).try_into().unwrap();
        assert_eq!((path.unwrap().as_str(), left.unwrap().as_str()), ("\"$user\", public", "0"));
        sessions.insert(session);
    }
    assert!(sessions.len() > 1, "the pooler changes sessions");
}

#[tokio::test]
async fn many_callers_share_a_statement() {
    let postgres = Postgres::start().await;
    let (client, connection) = tokio_postgres::connect(&postgres.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    let messages = Arc::new(AtomicUsize::new(0));
    let config = PostgresConfig::from_run(Mine(Arc::new(client), Arc::clone(&messages)));
    let config = config.timeout(Duration::from_secs(30)).unwrap();
    let backend = PostgresBackend::connect_with(config).await.unwrap();

    // The backend has not used the keys before the first round.
    for round in 0..3 {
        let held: Vec<_> = (0..64).map(|n| lease(&format!("job-{n}"))).collect();
        let before = messages.load(Ordering::Relaxed);
        for granted in join_all(held.iter().map(|lease| acquire(&backend, lease))).await {
            assert!(granted.unwrap(), "in round {round}");
        }
        for released in join_all(held.iter().map(|lease| backend.release(lease))).await {
            assert_eq!(released.unwrap(), Release::Released, "in round {round}");
        }
        let sent = messages.load(Ordering::Relaxed) - before;
        // The first caller does not wait for a batch.
        assert!(sent <= 2 * (1 + LANES), "{sent} messages in round {round}");
    }
}

#[tokio::test]
async fn a_connection_of_the_application_in_a_failed_transaction_grants_nothing() {
    let postgres = Postgres::start().await;
    let (client, connection) = tokio_postgres::connect(&postgres.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    let client = Arc::new(client);
    let config = PostgresConfig::from_run(Mine(Arc::clone(&client), Arc::default()));
    let backend = PostgresBackend::connect_with(config).await.unwrap();
    assert!(acquire(&backend, &lease("before")).await.unwrap());

    // A `COMMIT` would answer `ROLLBACK`, and no error.
    client.batch_execute("BEGIN; SELECT 1 / 0").await.unwrap_err();
    let error = acquire(&backend, &lease("job")).await.unwrap_err();
    client.batch_execute("COMMIT").await.unwrap();

    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(leases(&postgres).await, "1");
    assert!(!backend.capabilities().supports(Feature::Push));
}

#[tokio::test]
async fn the_sessions_defaults_change_nothing() {
    let postgres = Postgres::start().await;
    let backend = connect(&postgres.url()).await;
    postgres
        .sql(
            "ALTER DATABASE postgres SET synchronous_commit = off;
             ALTER DATABASE postgres SET default_transaction_isolation = 'serializable';
             ALTER DATABASE postgres SET standard_conforming_strings = off;
             ALTER DATABASE postgres SET search_path = 'nowhere';
             ALTER DATABASE postgres SET array_nulls = off;
             CREATE TABLE seen (commits text, isolation text, keepalive text);
             CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             INSERT INTO public.seen VALUES (current_setting('synchronous_commit'), current_setting('transaction_isolation'),
               concat_ws('/', current_setting('tcp_keepalives_idle'), current_setting('tcp_keepalives_interval'), current_setting('tcp_keepalives_count')));
             RETURN NEW; END $$;
             CREATE TRIGGER see AFTER INSERT ON leasehold_key FOR EACH ROW EXECUTE FUNCTION see()",
        )
        .await;
    drop(backend);
    let backend = connect(&postgres.url()).await;
    let text = r"it's \' E'x' :key {lease} $1 ü";
    let lease = lease("job").with_description(Some(Description::new(text).unwrap()));

    assert!(acquire(&backend, &lease).await.unwrap());

    assert_eq!(postgres.sql("SELECT * FROM public.seen").await, "on|read committed|15/5/3");
    let inspection = backend.inspect(lease.key()).await.unwrap();
    assert_eq!(inspection.holders()[0].description().unwrap().as_str(), text);
    let without_description = self::lease("other");
    assert!(acquire(&backend, &without_description).await.unwrap());
    let inspection = backend.inspect(without_description.key()).await.unwrap();
    assert_eq!(inspection.holders()[0].description(), None);
}

#[tokio::test]
async fn tokens_are_strict_where_the_disk_is_waited_for() {
    let lax = Postgres::start().await;
    let strict = PostgresOptions::new().set("fsync", "on").start().await;

    let fencing =
        async |postgres: &Postgres| connect(&postgres.url()).await.capabilities().fencing();

    assert_eq!(fencing(&lax).await, Fencing::BestEffort);
    assert_eq!(fencing(&strict).await, Fencing::Strict);
}

#[tokio::test]
async fn server_that_does_not_wait_for_the_disk_loses_its_configuration_when_it_restarts() {
    let mut lax = Postgres::start().await;
    let backend = connect(&lax.url()).await;
    let store = join(&backend).await;
    assert!(matches!(vote(&backend).await, Ok(Attempt::Granted(_))));

    lax.restart().await;

    let backend = connect(&lax.url()).await;
    assert_eq!(vote(&backend).await.unwrap_err().kind(), ErrorKind::Unavailable);
    let found = backend.status(StoreId::new()).await.unwrap();
    assert_ne!(found.store(), store);
    assert_eq!(found.configuration(), None);
}

/// Starts a server that writes its log only if a transaction waits for it.
async fn with_lazy_log() -> Postgres {
    PostgresOptions::new().set("wal_writer_delay", "10s").start().await
}

#[tokio::test]
async fn only_a_lazy_release_may_be_lost_in_a_crash() {
    for (parameters, is_lost) in [("", false), ("?release=lazy", true)] {
        let mut postgres = with_lazy_log().await;
        let backend = connect(&format!("{}{parameters}", postgres.url())).await;
        let held = lease("job");
        assert!(acquire(&backend, &held).await.unwrap());

        assert_eq!(backend.release(&held).await.unwrap(), Release::Released);
        postgres.restart().await;

        let inspection = connect(&postgres.url()).await.inspect(held.key()).await.unwrap();
        assert_eq!(inspection.is_held(), is_lost, "{parameters}");
    }
}

#[tokio::test]
async fn a_grant_after_a_lazy_release_survives_a_crash() {
    let mut postgres = with_lazy_log().await;
    let url = format!("{}?release=lazy", postgres.url());
    let backend = connect(&url).await;
    let [first, second, waits] = [(); 3].map(|()| lease("job"));
    assert!(acquire(&backend, &first).await.unwrap());

    assert_eq!(backend.release(&first).await.unwrap(), Release::Released);
    assert!(acquire(&backend, &second).await.unwrap());
    postgres.restart().await;

    let backend = connect(&url).await;
    assert_eq!(backend.renew(&second).await.unwrap(), Renewal::Renewed);
    let waiting = Claim::new(waits).with_patience(Patience::Queues(TTL));
    assert!(matches!(backend.acquire(&waiting).await.unwrap(), Attempt::Held(_)));

    assert_eq!(backend.release(&second).await.unwrap(), Release::Released);
    postgres.restart().await;

    let attempt = connect(&url).await.acquire(&waiting).await.unwrap();
    assert!(matches!(attempt, Attempt::Granted(_)), "{attempt:?}");
}

#[tokio::test]
async fn only_waiters_are_told() {
    let postgres = Postgres::start().await;
    let backend = connect(&postgres.url()).await;
    let (client, mut connection) = tokio_postgres::connect(&postgres.url(), NoTls).await.unwrap();
    let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
            if let tokio_postgres::AsyncMessage::Notification(notification) = message {
                told.send(notification.payload().to_owned()).unwrap();
            }
        }
    });
    client.batch_execute("LISTEN leasehold_news").await.unwrap();

    let alone = lease("alone");
    assert!(acquire(&backend, &alone).await.unwrap());
    backend.renew(&alone).await.unwrap();
    backend.release(&alone).await.unwrap();
    let (held, waits) = (lease("wanted"), lease("wanted"));
    assert!(acquire(&backend, &held).await.unwrap());
    let waiting = Claim::new(waits).with_patience(Patience::Waits);
    assert!(matches!(backend.acquire(&waiting).await.unwrap(), Attempt::Held(_)));
    backend.release(&held).await.unwrap();

    // Earlier messages would have come first.
    for expected in ["qwanted ", "wwanted "] {
        let message = timeout(TTL, heard.recv()).await.unwrap().unwrap();
        assert!(message.starts_with(expected), "{message}");
    }
}

#[tokio::test]
async fn upgrade_waits_for_the_leases_of_the_earlier_layout_and_continues_its_tokens() {
    let postgres = Postgres::start().await;
    postgres
        .sql(
            "CREATE TABLE leasehold_stripe (stripe smallint, token bigint);
             INSERT INTO leasehold_stripe VALUES (0, 5000000000000000);
             CREATE TABLE leasehold_lease (key text, place bigint, ends bigint);
             INSERT INTO leasehold_lease SELECT 'job', NULL, (extract(epoch FROM clock_timestamp()) + 3600) * 1000000",
        )
        .await;

    let error = PostgresBackend::connect(&patiently(&postgres.url())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("an earlier version still hold leases"), "{error}");
    postgres.sql("UPDATE leasehold_lease SET ends = 1").await;
    let backend = connect(&postgres.url()).await;

    let attempt = backend.acquire(&Claim::new(lease("job"))).await.unwrap();
    let Attempt::Granted(granted) = attempt else { panic!("it is free") };
    assert!(granted.token() > 5_000_000_000_000_000);
    assert_eq!(postgres.sql("SELECT to_regclass('leasehold_stripe') IS NULL").await, "t");
}

/// A server with a user that may create tables in `public`, and has a schema of the same name, which is
/// the first one in the search path.
async fn with_schema_of_user() -> (Postgres, String) {
    let postgres = Postgres::start().await;
    postgres
        .sql("CREATE ROLE locker LOGIN; GRANT CREATE ON SCHEMA public TO locker; CREATE SCHEMA locker AUTHORIZATION locker")
        .await;
    let url = postgres.url_as("locker");
    (postgres, url)
}

#[tokio::test]
async fn users_with_different_search_paths_exclude_each_other() {
    let (postgres, url) = with_schema_of_user().await;
    let backend = connect(&url).await;
    let other = connect(&postgres.url()).await;

    assert!(acquire(&backend, &lease("job")).await.unwrap());

    assert!(!acquire(&other, &lease("job")).await.unwrap());
}

#[tokio::test]
async fn tables_in_another_schema_are_not_created_a_second_time() {
    let (postgres, url) = with_schema_of_user().await;
    let in_schema = connect(&format!("{url}?schema=locker")).await;
    assert!(acquire(&in_schema, &lease("job")).await.unwrap());

    for user in [&url, &postgres.url()] {
        let error = PostgresBackend::connect(&patiently(user)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        assert!(error.to_string().contains("add schema=locker"), "{error}");
    }
    let tables = "SELECT count(*) FROM pg_tables WHERE tablename = 'leasehold_key'";
    assert_eq!(postgres.sql(tables).await, "1");

    // With tables in both schemas, a client of an earlier version would use the tables of its user.
    connect(&format!("{}?schema=public", postgres.url())).await;
    let error = PostgresBackend::connect(&patiently(&url)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    let other = connect(&postgres.url()).await;
    assert!(acquire(&other, &lease("job")).await.unwrap(), "a user without such a schema");
    let same = connect(&format!("{url}?schema=locker")).await;
    assert!(!acquire(&same, &lease("job")).await.unwrap());
}

#[tokio::test]
async fn a_schema_that_cannot_hold_the_tables_is_an_error_with_the_next_step() {
    let postgres = Postgres::start().await;
    postgres.sql("CREATE ROLE locker LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC").await;
    let url = postgres.url_as("locker");

    for (url, kind, step) in [
        (url.clone(), ErrorKind::Denied, "add schema=NAME to the URL"),
        (url.clone(), ErrorKind::Denied, "`leasehold tables` and `leasehold acl`"),
        (
            format!("{url}?schema=missing"),
            ErrorKind::Denied,
            "`leasehold tables` and `leasehold acl`",
        ),
        (format!("{url}?tables=exist"), ErrorKind::Refused, "`leasehold tables`"),
    ] {
        let error = PostgresBackend::connect(&patiently(&url)).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{url}: {error}");
        assert!(error.to_string().contains(step), "{url}: {error}");
    }
}

#[tokio::test]
async fn a_missing_schema_is_created_if_permitted() {
    let postgres = Postgres::start().await;
    postgres.sql("CREATE ROLE locker LOGIN; GRANT CREATE ON DATABASE postgres TO locker").await;
    let url = format!("{}?schema=locks", postgres.url_as("locker"));

    let backend = connect(&url).await;

    assert!(acquire(&backend, &lease("job")).await.unwrap());
    assert_eq!(postgres.sql("SELECT count(*) FROM locks.leasehold_key").await, "1");
}

#[tokio::test]
async fn descriptions_that_the_databases_encoding_lacks_are_stored() {
    let postgres = Postgres::start().await;
    // A database with another encoding needs a template of this name.
    postgres.sql("CREATE DATABASE template0 TEMPLATE postgres").await;
    postgres.sql("CREATE DATABASE latin ENCODING LATIN1 TEMPLATE template0").await;
    let url = postgres.url();
    let (server, _) = url.rsplit_once('/').unwrap();
    let backend = connect(&format!("{server}/latin")).await;
    let description = || Some(Description::new("nightly 😀").unwrap());
    let held = lease("job").with_description(description());
    let waits = Claim::new(lease("job").with_description(description()));

    assert!(acquire(&backend, &held).await.unwrap());
    assert_eq!(backend.renew(&held).await.unwrap(), Renewal::Renewed);
    let holder =
        |inspection: Inspection| inspection.holders()[0].description().unwrap().to_string();
    assert_eq!(holder(backend.inspect(held.key()).await.unwrap()), r"nightly \ud83d\ude00");

    let waits = waits.with_patience(Patience::Waits);
    assert!(matches!(backend.acquire(&waits).await.unwrap(), Attempt::Held(_)));
    assert_eq!(backend.release(&held).await.unwrap(), Release::Released);
    assert!(matches!(backend.acquire(&waits).await.unwrap(), Attempt::Granted(_)));
}

#[tokio::test]
async fn a_release_succeeds_while_the_queue_of_notifications_is_full() {
    let postgres = Postgres::start().await;
    let backend = connect(&postgres.url()).await;
    let held = lease("job");
    let waits = Claim::new(lease("job")).with_patience(Patience::Waits);
    assert!(acquire(&backend, &held).await.unwrap());
    assert!(matches!(backend.acquire(&waits).await.unwrap(), Attempt::Held(_)));

    // PostgreSQL ignores a new definition of a built-in function.
    let full = "SET search_path = pg_catalog; ALTER FUNCTION pg_notify RENAME TO pg_notify_built_in;
         CREATE FUNCTION pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS
         $$ BEGIN RAISE 'too many notifications in the NOTIFY queue' USING ERRCODE = '54000'; END $$";
    postgres.sql(full).await;

    assert_eq!(backend.release(&held).await.unwrap(), Release::Released);
    assert!(matches!(backend.acquire(&waits).await.unwrap(), Attempt::Granted(_)));
}

#[tokio::test]
async fn the_connection_of_a_client_that_does_not_read_its_notifications_is_closed() {
    let postgres = Postgres::start().await;
    let url = format!("{}?application_name=paused", postgres.url());
    let (client, mut connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    let listen = Statements::new(&Layout::default()).listen();
    tokio::select! {
        listening = client.batch_execute(&listen) => listening.unwrap(),
        ended = &mut connection => panic!("{ended:?}"),
    }

    // From here on, nothing reads from the connection. More than fits into the buffers is sent.
    postgres.sql("SELECT count(pg_notify('leasehold_news', lpad(n::text, 7000))) FROM generate_series(1, 4000) n").await;
    let paused = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'paused'";
    assert_eq!(postgres.sql(paused).await, "1");

    until("the server has closed the connection", async || postgres.sql(paused).await == "0").await;
    drop(connection);
}

#[tokio::test]
async fn restored_tables_keep_their_leases_and_continue_their_tokens() {
    let (original, restored) = tokio::join!(Postgres::start(), Postgres::start());
    let backend = connect(&original.url()).await;
    let lease = lease("job");
    let Attempt::Granted(grant) = backend.acquire(&Claim::new(lease.clone())).await.unwrap() else {
        panic!("the key is free")
    };
    drop(connect(&restored.url()).await);

    // As a dump does it, with a token that the other server's clock has not reached.
    original.sql("UPDATE leasehold_key SET token = token + 3600000000").await;
    let dump = "SELECT format('INSERT INTO leasehold_key SELECT (%L::leasehold_key).*', k) FROM leasehold_key k";
    restored.sql(&original.sql(dump).await).await;
    let backend = connect(&restored.url()).await;

    assert!(
        !acquire(&backend, &crate::family::lease("job")).await.unwrap(),
        "until the TTL has passed"
    );
    backend.force_release(lease.key(), None).await.unwrap();
    let next = backend.acquire(&Claim::new(crate::family::lease("job"))).await.unwrap();
    let Attempt::Granted(next) = next else { panic!("the key was released") };
    assert!(next.token() > grant.token() + 3_500_000_000, "{}", next.token());
}
