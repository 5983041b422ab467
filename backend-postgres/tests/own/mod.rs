//! The tests of PostgreSQL alone.

use std::fmt;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use leasehold_core::backend::{
    Attempt, Claim, Feature, Fencing, LockBackend, Patience, Release, Renewal, StoreId,
};
use leasehold_core::{Description, ErrorKind};
use leasehold_postgres::tokio_postgres::{self, Client, NoTls};
use leasehold_postgres::{
    PostgresBackend, PostgresConfig, Row, Run, RunError, Text, Urgency, reported,
};
use leasehold_testbed::{PgBouncer, Postgres, PostgresOptions, patiently, until};
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::Direct;
use crate::family::failures::{acquire, leases};
use crate::family::membership::{claim, enlist};
use crate::family::{TTL, connect, lease};

/// Has a write of a lease raise an error on a condition.
async fn raise(postgres: &Postgres, event: &str, condition: &str, code: &str, deferred: &str) {
    let sql = format!(
        "CREATE FUNCTION raise() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN IF {condition} THEN RAISE 'S' USING ERRCODE = '{code}'; END IF; RETURN NEW; END $$;
         CREATE CONSTRAINT TRIGGER raise AFTER {event} ON leasehold_lease {deferred}
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
    let lock = "SELECT token FROM leasehold_lease WHERE key = 'job-7' FOR UPDATE";
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
    assert!(tasks() > before, "a task reads the messages of a connection");

    proxy.disconnect().await;

    until("the task ends", async || tasks() == before).await;
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

/// An application's own connection.
struct Mine(Arc<Client>);

#[async_trait]
impl Run for Mine {
    async fn run(&self, text: &Text, _: Urgency, limit: Duration) -> Result<Vec<Row>, RunError> {
        let reply = self.0.simple_query(&text.at(limit)).await;
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
    keeping.query("BEGIN; UPDATE leasehold_lease SET asked = ends").await.unwrap();

    let (renewed, committed) = tokio::join!(backend.renew(&held), keeping.query("COMMIT"));

    committed.unwrap();
    assert_eq!(renewed.unwrap(), Renewal::RevocationRequested);
}

#[tokio::test]
async fn locks_go_through_a_pooler_that_changes_connections() {
    let postgres = Postgres::start().await;
    let pooler = PgBouncer::start(&postgres, 3).await;
    let url = format!("{}?push=off", postgres.url_at("postgres", &pooler.address()));
    let backend = connect(&url).await;

    for round in 0..3 {
        let held: Vec<_> = (0..16).map(|n| lease(&format!("job-{n}"))).collect();
        for granted in join_all(held.iter().map(|lease| acquire(&backend, lease))).await {
            assert!(granted.unwrap(), "in round {round}");
        }
        for released in join_all(held.iter().map(|lease| backend.release(lease))).await {
            assert_eq!(released.unwrap(), Release::Released, "in round {round}");
        }
    }
}

#[tokio::test]
async fn a_connection_of_the_application_in_a_failed_transaction_grants_nothing() {
    let postgres = Postgres::start().await;
    let (client, connection) = tokio_postgres::connect(&postgres.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    let client = Arc::new(client);
    let config = PostgresConfig::from_run(Mine(Arc::clone(&client)));
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
             CREATE TABLE seen (commits text, isolation text);
             CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             INSERT INTO public.seen VALUES (current_setting('synchronous_commit'), current_setting('transaction_isolation'));
             RETURN NEW; END $$;
             CREATE TRIGGER see AFTER INSERT ON leasehold_lease FOR EACH ROW EXECUTE FUNCTION see()",
        )
        .await;
    drop(backend);
    let url = format!("{}?schema=public", postgres.url());
    let backend = connect(&url).await;
    let text = r"it's \' E'x' :key {lease} $1 ü";
    let lease = lease("job").with_description(Some(Description::new(text).unwrap()));

    assert!(acquire(&backend, &lease).await.unwrap());

    assert_eq!(postgres.sql("SELECT * FROM public.seen").await, "on|read committed");
    let inspection = backend.inspect(lease.key()).await.unwrap();
    assert_eq!(inspection.holders()[0].description().unwrap().as_str(), text);
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
async fn server_that_does_not_wait_for_the_disk_loses_its_charter_with_a_restart() {
    let mut lax = Postgres::start().await;
    let backend = connect(&lax.url()).await;
    let store = enlist(&backend).await;
    assert!(matches!(claim(&backend).await, Ok(Attempt::Granted(_))));

    lax.restart().await;

    let backend = connect(&lax.url()).await;
    assert_eq!(claim(&backend).await.unwrap_err().kind(), ErrorKind::Unavailable);
    let found = backend.standing(StoreId::new()).await.unwrap();
    assert_ne!(found.store(), store);
    assert_eq!(found.charter(), None);
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
    assert!(matches!(backend.try_acquire(&waiting).await.unwrap(), Attempt::Held(_)));
    backend.release(&held).await.unwrap();

    // Earlier ones would have come first.
    let first = timeout(TTL, heard.recv()).await.unwrap().unwrap();
    assert!(first.starts_with("wwanted "), "{first}");
}
