//! What a server may say or leave unsaid, and what comes of it.

use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::{
    Attempt, Claim, Description, Error, ErrorKind, Feature, Fencing, Lease, LockBackend, LockKey,
    Release, Renewal,
};
use leasehold_mysql::mysql_async::prelude::Queryable;
use leasehold_mysql::mysql_async::{self, Conn, Opts, from_value};
use leasehold_mysql::{MysqlBackend, MysqlConfig, Row, Run, RunError, Text, Urgency, reported};
use leasehold_testbed::{MariaDb, MariaDbOptions, Weather, until};
use tokio::sync::Mutex;

const TTL: Duration = Duration::from_secs(60);

/// A client that gets an answer also from a busy machine.
async fn connect(url: &str) -> MysqlBackend {
    let config = MysqlConfig::from_url(url).unwrap().timeout(Duration::from_secs(15)).unwrap();
    MysqlBackend::connect_with(config).await.unwrap()
}

fn lease(key: &str) -> Lease {
    Lease::new(&LockKey::new(key).unwrap(), TTL)
}

async fn acquire(backend: &MysqlBackend, lease: &Lease) -> Result<bool, Error> {
    let attempt = backend.try_acquire(&Claim::new(lease.clone())).await?;
    Ok(matches!(attempt, Attempt::Granted(_)))
}

async fn leases(mariadb: &MariaDb) -> String {
    mariadb.sql("SELECT COUNT(*) FROM leasehold_lease").await
}

/// A connection past the backend, in a transaction that keeps locked what the statement locks.
async fn keeping(mariadb: &MariaDb, locking: &str) -> Conn {
    let mut conn = Conn::new(Opts::from_url(&mariadb.url()).unwrap()).await.unwrap();
    conn.query_drop("BEGIN").await.unwrap();
    conn.query_drop(locking).await.unwrap();
    conn
}

#[tokio::test]
async fn an_emptied_table_of_stripes_grants_nothing() {
    let mariadb = MariaDb::start().await;
    let backend = connect(&mariadb.url()).await;
    let (held, other) = (lease("job"), lease("other"));
    assert!(acquire(&backend, &held).await.unwrap());

    mariadb.sql("TRUNCATE leasehold_stripe").await;

    let error = acquire(&backend, &other).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(error.to_string().contains("a stripe is missing"), "{error}");
    assert_eq!(backend.release(&held).await.unwrap_err().kind(), ErrorKind::Refused);
    assert_eq!(leases(&mariadb).await, "1");
    let error = MysqlBackend::connect(&mariadb.url()).await.unwrap_err();
    assert!(error.to_string().contains("stripes are missing"), "{error}");

    let config = MysqlConfig::from_url(&mariadb.url()).unwrap();
    mariadb.sql(&config.migration()).await;
    assert!(acquire(&backend, &other).await.unwrap());
    assert_eq!(backend.release(&held).await.unwrap(), Release::Released);
}

#[tokio::test]
async fn a_read_only_server_is_unavailable() {
    let mariadb = MariaDb::start().await;
    let backend = connect(&mariadb.url()).await;
    let held = lease("job");
    assert!(acquire(&backend, &held).await.unwrap());

    mariadb.set_read_only(true).await;
    let error = acquire(&backend, &lease("other")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("read-only"), "{error}");
    let error = backend.renew(&held).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(backend.inspect(held.key()).await.unwrap().is_held());
    mariadb.set_read_only(false).await;

    assert_eq!(backend.renew(&held).await.unwrap(), Renewal::Renewed);
}

#[tokio::test]
async fn a_full_disk_is_refused_and_named() {
    let mariadb = MariaDbOptions::new().small_disk().start().await;
    let backend = connect(&mariadb.url()).await;
    let description = Description::new("x".repeat(250)).unwrap();
    let grow = async || {
        let lease = lease(&fastrand::u64(..).to_string());
        acquire(&backend, &lease.with_description(Some(description.clone()))).await
    };
    grow().await.unwrap();

    mariadb.fill_disk();
    let error = loop {
        if let Err(error) = grow().await {
            break error;
        }
    };
    mariadb.clear_disk();

    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(error.to_string().contains("disk is full"), "{error}");
    assert!(grow().await.unwrap());
}

#[tokio::test]
async fn a_stripe_that_others_keep_is_given_up_in_time() {
    let mariadb = MariaDb::start().await;
    let patient = connect(&mariadb.url()).await;
    let config = MysqlConfig::from_url(&mariadb.url()).unwrap();
    let backend = MysqlBackend::connect_with(config).await.unwrap();
    let held = lease("job");
    assert!(acquire(&patient, &held).await.unwrap());

    let keeping = keeping(&mariadb, "SELECT * FROM leasehold_stripe FOR UPDATE").await;
    let error = acquire(&backend, &lease("other")).await.unwrap_err();
    let renewal = patient.renew(&held).await.unwrap();
    keeping.disconnect().await.unwrap();

    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(renewal, Renewal::Renewed, "renewals need no stripe");
    assert!(acquire(&backend, &lease("next")).await.unwrap(), "no transaction stayed open");
    assert_eq!(leases(&mariadb).await, "2", "nothing was applied late");
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

    let keeping =
        keeping(&mariadb, "SELECT * FROM leasehold_lease WHERE `key` = 'kept' FOR UPDATE").await;
    let renewed = renews.renew_all(&held).await;
    keeping.disconnect().await.unwrap();

    assert!(matches!(renewed[0], Ok(Renewal::Renewed)), "{renewed:?}");
    assert!(matches!(renewed[1], Ok(Renewal::Renewed)), "{renewed:?}");
    assert_eq!(renewed[2].as_ref().unwrap_err().kind(), ErrorKind::Unavailable);
}

/// Has the insertion of a row raise an error, so often.
async fn raise(mariadb: &MariaDb, code: u16, times: u8) {
    let sql = format!(
        "CREATE OR REPLACE TABLE raised (n INT) ENGINE = MyISAM;
         CREATE OR REPLACE TRIGGER raises BEFORE INSERT ON leasehold_lease FOR EACH ROW
         IF (SELECT COUNT(*) FROM raised) < {times} THEN
           INSERT INTO raised VALUES (1);
           SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = {code}, MESSAGE_TEXT = 'a test';
         END IF"
    );
    let mut conn = Conn::new(Opts::from_url(&mariadb.url()).unwrap()).await.unwrap();
    for statement in sql.splitn(2, ";\n") {
        conn.query_drop(statement).await.unwrap();
    }
    conn.disconnect().await.unwrap();
}

#[tokio::test]
async fn a_conflict_is_asked_about_four_times_more() {
    let mariadb = MariaDb::start().await;
    let backend = connect(&mariadb.url()).await;
    for code in [1205, 1213] {
        raise(&mariadb, code, 4).await;
        let seldom = lease(&format!("seldom-{code}"));
        assert!(acquire(&backend, &seldom).await.unwrap());

        raise(&mariadb, code, 5).await;
        let often = lease(&format!("often-{code}"));
        let error = acquire(&backend, &often).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    assert_eq!(leases(&mariadb).await, "2");
}

#[tokio::test]
async fn an_error_leaves_no_stripe_locked() {
    let mariadb = MariaDb::start().await;
    let backend = connect(&mariadb.url()).await;

    raise(&mariadb, 1317, 1).await;
    let error = acquire(&backend, &lease("job")).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(acquire(&backend, &lease("job")).await.unwrap());
}

#[tokio::test]
async fn a_client_that_stands_still_keeps_nobody_out() {
    let mariadb = MariaDb::start().await;
    let proxy = mariadb.proxy().await;
    let still = connect(&mariadb.url_at("leasehold", &proxy.address())).await;
    let backend = connect(&mariadb.url()).await;
    let key = lease("job");
    acquire(&still, &lease("first")).await.unwrap();

    // It sends its transaction, and never reads a reply.
    proxy.set_weather(Weather::HoldReplies);
    let asks = key.clone();
    let asking = tokio::spawn(async move { acquire(&still, &asks).await });
    until("it was granted", async || leases(&mariadb).await == "2").await;

    for _ in 0..10 {
        assert!(!acquire(&backend, &lease("job")).await.unwrap());
    }
    assert_eq!(backend.release(&key).await.unwrap(), Release::Released);
    assert!(acquire(&backend, &lease("job")).await.unwrap());
    asking.abort();
}

/// An application's own connection, which it keeps when a text failed, as a client that is stopped just then does.
#[derive(Debug)]
struct Kept(Mutex<Conn>);

#[async_trait]
impl Run for Kept {
    async fn run(&self, text: &Text, _: Urgency, _: Duration) -> Result<Vec<Row>, RunError> {
        let mut conn = self.0.lock().await;
        let mut rows = Vec::new();
        let read = async {
            let mut result = conn.query_iter(text.at(Duration::from_secs(2))).await?;
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
async fn a_client_that_stands_still_after_an_error_keeps_nobody_out_for_long() {
    let mariadb = MariaDb::start().await;
    let conn = Conn::new(Opts::from_url(&mariadb.url()).unwrap()).await.unwrap();
    let config = MysqlConfig::from_run(Kept(Mutex::new(conn)));
    let still = MysqlBackend::connect_with(config).await.unwrap();
    let backend = connect(&mariadb.url()).await;
    assert!(acquire(&still, &lease("first")).await.unwrap());

    raise(&mariadb, 1317, 1).await;
    let error = acquire(&still, &lease("job")).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(acquire(&backend, &lease("job")).await.unwrap(), "the server ended the transaction");
}

#[tokio::test]
async fn a_reply_that_is_lost_is_unknown() {
    let mariadb = MariaDb::start().await;
    let proxy = mariadb.proxy().await;
    let url = mariadb.url_at("leasehold", &proxy.address());
    let config = MysqlConfig::from_url(&url).unwrap();
    let backend = MysqlBackend::connect_with(config).await.unwrap();
    acquire(&backend, &lease("first")).await.unwrap();

    proxy.set_weather(Weather::HoldReplies);
    let error = acquire(&backend, &lease("job")).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
    until("it was applied", async || leases(&mariadb).await == "2").await;
}

#[tokio::test]
async fn the_sessions_defaults_change_nothing() {
    let poison = "SET autocommit = 0, completion_type = 1, time_zone = '+05:00', timestamp = 1, \
        sql_mode = 'ANSI,PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES', character_set_client = latin1, \
        character_set_results = utf16, tx_read_only = 1, sql_safe_updates = 1, sql_select_limit = 1, \
        @now = 1, @last = 1, @next = 1, @token = 1, @first = 1, @fits = 1, @all = 1, @again = 1, @place = 7, \
        @other = 1, @held = 1, @used = 0, @stop = 1, @asked = 9, @until = 1";
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
    let ends = "SELECT ends BETWEEN (UNIX_TIMESTAMP() + 30) * 1000000 AND (UNIX_TIMESTAMP() + 61) * 1000000 FROM leasehold_lease";
    assert_eq!(mariadb.sql(ends).await, "1");
    assert_eq!(backend.renew(&held).await.unwrap(), Renewal::Renewed);
    assert_eq!(backend.release(&held).await.unwrap(), Release::Released);
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
