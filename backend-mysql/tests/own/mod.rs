//! The tests of MySQL and MariaDB alone.

mod galera;

use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::{
    Attempt, Claim, Feature, Fencing, LockBackend, Member as _, Release, Renewal, StoreAdmin as _,
    StoreId,
};
use leasehold_core::{Description, ErrorKind};
use leasehold_mysql::mysql_async::prelude::Queryable;
use leasehold_mysql::mysql_async::{self, Conn, Opts, from_value};
use leasehold_mysql::{Call, MysqlBackend, MysqlConfig, Row, Run, RunError, Urgency, reported};
use leasehold_testbed::{MariaDb, MariaDbOptions, patiently};
use tokio::sync::Mutex;

use crate::family::failures::acquire;
use crate::family::membership::{join, vote};
use crate::family::{TTL, connect, lease};
use crate::{Direct, is_mariadb};

#[tokio::test]
async fn a_missing_minimum_token_lets_no_client_connect() {
    let mariadb = MariaDb::start().await;
    drop(connect(&mariadb.url()).await);

    mariadb.sql("TRUNCATE leasehold_min_token").await;

    let error = MysqlBackend::connect(&mariadb.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(
        error.to_string().contains("a row is missing from the table leasehold_min_token"),
        "{error}"
    );
}

#[tokio::test]
async fn renewals_beside_one_that_others_keep_succeed() {
    let mariadb = MariaDb::start().await;
    let backend = connect(&mariadb.url()).await;
    let config = MysqlConfig::from_url(&mariadb.url()).unwrap();
    let config = config.timeout(Duration::from_secs(6)).unwrap();
    let renews = MysqlBackend::connect_with(config).await.unwrap();
    let held = ["a", "c", "kept"].map(lease);
    for lease in &held {
        assert!(acquire(&backend, lease).await.unwrap());
    }

    let keeping = Direct::open(&mariadb.url()).await;
    keeping.query("BEGIN").await.unwrap();
    let lock = "SELECT token FROM leasehold_key WHERE `key` = 'kept' FOR UPDATE";
    keeping.query(lock).await.unwrap();
    let renewed = renews.renew_all(&held).await;
    drop(keeping);

    assert!(matches!(renewed[0], Ok(Renewal::Renewed)), "{renewed:?}");
    assert!(matches!(renewed[1], Ok(Renewal::Renewed)), "{renewed:?}");
    assert_eq!(renewed[2].as_ref().unwrap_err().kind(), ErrorKind::Unavailable);
}

/// An application's own connection, which it keeps when a text failed, as a client that is stopped just then does.
#[derive(Debug)]
struct Kept(Mutex<Conn>);

#[async_trait]
impl Run for Kept {
    async fn run(&self, call: &Call, _: Urgency, _: Duration) -> Result<Vec<Row>, RunError> {
        let mut conn = self.0.lock().await;
        let mut rows = Vec::new();
        let read = async {
            let mut result = conn.query_iter(call.at(Duration::from_secs(2))).await?;
            while !result.is_empty() {
                let row =
                    |row: mysql_async::Row| row.unwrap().into_iter().map(from_value).collect();
                rows.extend(result.map(row).await?);
            }
            result.drop_result().await
        };
        match read.await {
            Ok(()) => Ok(rows),
            Err(mysql_async::Error::Server(error)) => Err(reported(error.code, &rows, error)),
            Err(error) => Err(RunError::no_reply(error)),
        }
    }
}

#[tokio::test]
async fn a_client_that_stands_still_after_an_error_keeps_no_other_out_for_long() {
    let mariadb = MariaDb::start().await;
    let conn = Conn::new(Opts::from_url(&mariadb.url()).unwrap()).await.unwrap();
    let config = MysqlConfig::from_run(Kept(Mutex::new(conn)));
    let still = MysqlBackend::connect_with(config).await.unwrap();
    let backend = connect(&mariadb.url()).await;
    assert!(acquire(&still, &lease("first")).await.unwrap());

    crate::raise(&mariadb, crate::INTERRUPTED, 1).await;
    let error = acquire(&still, &lease("job")).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(acquire(&backend, &lease("job")).await.unwrap(), "the server ended the transaction");
}

#[tokio::test]
async fn the_sessions_defaults_change_nothing() {
    let poison = "SET autocommit = 0, completion_type = 1, time_zone = '+05:00', timestamp = 1, \
        sql_mode = 'ANSI,PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES', character_set_client = latin1, \
        character_set_results = utf16, sql_safe_updates = 1, sql_select_limit = 1, max_join_size = 1; \
        SET SESSION TRANSACTION READ ONLY";
    let mariadb = MariaDbOptions::new().set("init-connect", poison).start().await;
    let backend = connect(&mariadb.url()).await;
    let text = r"it's \' X'00' :key {lease} @now ü";
    let held = lease("job").with_description(Some(Description::new(text).unwrap()));

    assert!(acquire(&backend, &held).await.unwrap());
    assert!(!acquire(&backend, &lease("job")).await.unwrap());

    let inspection = backend.inspect(held.key()).await.unwrap();
    let holder = &inspection.holders()[0];
    assert_eq!(holder.description().unwrap().as_str(), text);
    let left = holder.remaining().unwrap();
    assert!(left <= TTL && left > TTL / 2, "{left:?}");
    let ends = "SELECT ends BETWEEN (UNIX_TIMESTAMP() + 30) * 1000000 AND (UNIX_TIMESTAMP() + 61) * 1000000 FROM leasehold_key";
    assert_eq!(mariadb.sql(ends).await, "1");
    assert_eq!(backend.renew(&held).await.unwrap(), Renewal::Renewed);
    assert_eq!(backend.release(&held).await.unwrap(), Release::Released);
}

#[tokio::test]
async fn the_default_row_format_changes_nothing() {
    let options = MariaDbOptions::new().set("innodb_default_row_format", "compact");
    let mariadb = options.start().await;

    let backend = connect(&mariadb.url()).await;

    assert!(acquire(&backend, &lease("job")).await.unwrap());
}

#[tokio::test]
async fn tokens_are_strict_where_the_disk_is_waited_for() {
    let strict = MariaDb::start().await;
    let fencing = async || connect(&strict.url()).await.capabilities().fencing();
    assert_eq!(fencing().await, Fencing::Strict);
    assert!(!connect(&strict.url()).await.capabilities().supports(Feature::Push));

    strict.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 2").await;

    assert_eq!(fencing().await, Fencing::BestEffort);
}

#[tokio::test]
async fn server_that_does_not_wait_for_the_disk_is_no_member() {
    let mariadb = MariaDb::start().await;
    let backend = connect(&mariadb.url()).await;
    let store = join(&backend).await;

    let setting = "innodb_flush_log_at_trx_commit";
    // Only MariaDB can flush more often than at each commit.
    let strictest = if is_mariadb(&mariadb).await { 3 } else { 1 };
    for (lax, strict) in [(2, 1), (0, strictest)] {
        mariadb.sql(&format!("SET GLOBAL {setting} = {lax}")).await;
        let error = backend.status(StoreId::new()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        assert!(error.to_string().contains(setting), "{error}");
        assert_eq!(vote(&backend).await.unwrap_err().kind(), ErrorKind::Unavailable);

        mariadb.sql(&format!("SET GLOBAL {setting} = {strict}")).await;
        assert_eq!(backend.status(StoreId::new()).await.unwrap().store(), store);
        vote(&backend).await.unwrap();
    }
}

#[tokio::test]
async fn upgrade_waits_for_the_leases_of_the_earlier_layout_and_continues_its_tokens() {
    let mariadb = MariaDb::start().await;
    for statement in [
        "CREATE TABLE leasehold_stripe (stripe SMALLINT, token BIGINT)",
        "INSERT INTO leasehold_stripe VALUES (0, 5000000000000000)",
        "CREATE TABLE leasehold_lease (`key` VARBINARY(9), place BIGINT, ends BIGINT)",
        "INSERT INTO leasehold_lease VALUES ('job', NULL, (UNIX_TIMESTAMP() + 3600) * 1000000)",
    ] {
        mariadb.sql(statement).await;
    }

    let error = MysqlBackend::connect(&patiently(&mariadb.url())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("an earlier version still hold leases"), "{error}");
    mariadb.sql("UPDATE leasehold_lease SET ends = 1").await;
    let backend = connect(&mariadb.url()).await;

    let attempt = backend.acquire(&Claim::new(lease("job"))).await.unwrap();
    let Attempt::Granted(granted) = attempt else { panic!("it is free") };
    assert!(granted.token() > 5_000_000_000_000_000);
    assert_eq!(mariadb.sql("SHOW TABLES LIKE 'leasehold_stripe'").await, "");
}
