//! The testbed's own PostgreSQL servers.

use std::process::Stdio;
use std::time::Duration;

use leasehold_testbed::{Postgres as Server, PostgresOptions as Options};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::time::timeout;

mod database;

/// A row, as the client prints it.
const ROW: &str = "1|x";

const SLEEP: &str = "SELECT pg_sleep(60)";

const INSERT: &str = "INSERT INTO t SELECT repeat('x', 1000) FROM generate_series(1, 100)";

const DISK_FULL: &str = "53100";

const MAX_CONNECTIONS: &str = "SHOW max_connections";

fn url(address: &str) -> String {
    format!("postgres://postgres@{address}/postgres")
}

#[tokio::test]
async fn a_paused_server_stops_in_mid_query_and_goes_on() {
    let postgres = Server::start().await;
    let tick = "DO $$ BEGIN LOOP RAISE NOTICE 'tick'; PERFORM pg_sleep(0.01); END LOOP; END $$";
    let mut ticking = postgres.client(tick).stderr(Stdio::piped()).spawn().unwrap();
    let mut ticks = BufReader::new(ticking.stderr.take().unwrap()).lines();
    ticks.next_line().await.unwrap().unwrap();

    postgres.pause();
    let silence =
        async { while timeout(Duration::from_millis(500), ticks.next_line()).await.is_ok() {} };
    timeout(Duration::from_secs(10), silence).await.unwrap();
    let stranger = timeout(Duration::from_millis(200), postgres.sql("SELECT 1")).await;
    assert!(stranger.is_err());

    postgres.resume();
    ticks.next_line().await.unwrap().unwrap();
    assert_eq!(postgres.sql("SELECT 1").await, "1");
}

#[tokio::test]
async fn a_replica_takes_over_with_all_that_was_acknowledged() {
    let options = Options::new().small_log_disk();
    let (mut first, mut second) = tokio::join!(options.clone().start(), options.start());
    second.follow(&first).await;
    first.wait_for_replica().await;
    first.sql("CREATE TABLE t AS SELECT 1 AS a").await;

    first.kill();
    second.promote().await;
    let taken_over = second.sql("SELECT a FROM t").await;
    first.follow(&second).await;

    assert_eq!(taken_over, "1");
    assert_eq!(first.sql("SELECT a, pg_is_in_recovery() FROM t").await, "1|t");
}

#[tokio::test]
async fn without_its_replica_a_primary_acknowledges_nothing() {
    let (primary, mut replica) = tokio::join!(Server::start(), Server::start());
    replica.follow(&primary).await;
    primary.wait_for_replica().await;

    replica.pause();
    let silence = timeout(Duration::from_millis(300), primary.sql("CREATE TABLE t ()")).await;
    replica.resume();
    primary.until_synchronous().await;

    assert!(silence.is_err());
    primary.sql("CREATE TABLE u ()").await;
}

/// The ids of all segments of shared memory.
fn segments() -> Vec<String> {
    let all = std::fs::read_to_string("/proc/sysvipc/shm").unwrap();
    let id = |line: &str| line.split_whitespace().nth(1).map(str::to_owned);
    all.lines().skip(1).filter_map(id).collect()
}

/// There are a few thousand of them, and a killed server does not remove its own.
#[tokio::test]
async fn a_server_leaves_no_shared_memory() {
    let mut server = Server::start().await;
    let segment = |server: &Server| {
        let status = std::fs::read_to_string(server.folder().join("data/postmaster.pid")).unwrap();
        status.lines().nth(6).unwrap().split_whitespace().nth(1).unwrap().to_owned()
    };
    let first = segment(&server);
    assert!(segments().contains(&first));

    server.kill();
    assert!(!segments().contains(&first));
    server.restart().await;
    let second = segment(&server);
    assert!(segments().contains(&second));
    drop(server);
    assert!(!segments().contains(&second));
}

#[tokio::test]
async fn a_read_only_server_refuses_writes() {
    let postgres = Server::start().await;

    postgres.set_read_only(true).await;
    let refused = postgres.try_sql("CREATE TABLE t ()").await.unwrap_err();
    postgres.set_read_only(false).await;

    assert!(refused.contains("25006"), "{refused}");
    postgres.sql("CREATE TABLE t ()").await;
}

#[tokio::test]
async fn passwords_and_tls_are_asked_for() {
    let postgres = Options::new().passwords().tls_with_client_certificates().start().await;
    postgres.sql("CREATE ROLE locker LOGIN PASSWORD 'secret'").await;
    let certificates = postgres.certificates();
    let tls = |password: &str, more: &str| {
        let port = postgres.port();
        format!("host=localhost port={port} user=locker password={password} dbname=postgres {more}")
    };
    let [root, cert, key] =
        [certificates.authority(), certificates.client_certificate(), certificates.client_key()];
    let (root, cert, key) = (root.display(), cert.display(), key.display());
    let trusted = format!("sslmode=verify-full sslrootcert={root} sslcert={cert} sslkey={key}");
    let user = async |to: String| {
        let mut psql = tokio::process::Command::new("psql");
        let output = psql.args(["-XAtq", "-c", "SELECT current_user", &to]).output().await.unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    std::fs::set_permissions(
        certificates.client_key(),
        std::os::unix::fs::PermissionsExt::from_mode(0o600),
    )
    .unwrap();

    assert_eq!(user(tls("secret", &trusted)).await, "locker\n");
    assert_eq!(user(tls("guess", &trusted)).await, "");
    assert_eq!(user(tls("secret", &format!("sslmode=verify-full sslrootcert={root}"))).await, "");
    assert_eq!(user(tls("secret", "sslmode=disable")).await, "");
}

#[tokio::test]
async fn a_new_server_has_the_database_of_its_tests_and_no_other() {
    let server = Server::start().await;

    assert_eq!(server.sql("SELECT datname FROM pg_database").await, "postgres");
}
