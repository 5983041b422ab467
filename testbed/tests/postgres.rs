//! The testbed's own PostgreSQL servers.

use std::process::Stdio;
use std::time::Duration;

use leasehold_testbed::{Postgres, PostgresOptions};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

#[tokio::test]
async fn a_server_answers_until_it_is_dropped() {
    let postgres = Postgres::start().await;
    postgres.sql("CREATE TABLE t AS SELECT 1 AS a, 'x' AS b").await;
    assert_eq!(postgres.sql("SELECT * FROM t").await, "1|x");

    let (address, folder) = (postgres.address(), postgres.folder().to_owned());
    drop(postgres);

    assert!(TcpStream::connect(address).await.is_err());
    assert!(!folder.exists());
}

#[tokio::test]
async fn servers_die_when_a_test_panics() {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let panicked = tokio::spawn(async {
        let postgres = Postgres::start().await;
        sender.send(postgres.address()).unwrap();
        panic!("as a test does");
    });

    assert!(panicked.await.unwrap_err().is_panic());
    assert!(TcpStream::connect(receiver.await.unwrap()).await.is_err());
}

#[tokio::test]
async fn a_paused_server_stops_in_mid_query_and_goes_on() {
    let postgres = Postgres::start().await;
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
async fn a_killed_server_keeps_its_data_and_its_port() {
    let mut postgres = Postgres::start().await;
    let address = postgres.address();
    postgres.sql("CREATE TABLE t AS SELECT 1 AS a").await;
    let mut sleeping = postgres.client("SELECT pg_sleep(60)").spawn().unwrap();

    postgres.kill();
    assert!(!sleeping.wait().await.unwrap().success());
    postgres.restart().await;

    assert_eq!(postgres.address(), address);
    assert_eq!(postgres.sql("SELECT * FROM t").await, "1");
    postgres.shut_down();
    postgres.restart().await;
    assert_eq!(postgres.sql("SELECT * FROM t").await, "1");
}

#[tokio::test]
async fn a_read_only_server_refuses_writes() {
    let postgres = Postgres::start().await;

    postgres.set_read_only(true).await;
    let refused = postgres.try_sql("CREATE TABLE t ()").await.unwrap_err();
    postgres.set_read_only(false).await;

    assert!(refused.contains("25006"), "{refused}");
    postgres.sql("CREATE TABLE t ()").await;
}

#[tokio::test]
async fn a_full_disk_refuses_rows() {
    let postgres = PostgresOptions::new().small_disk().start().await;
    postgres.sql("CREATE TABLE t (a text)").await;
    let insert = "INSERT INTO t SELECT repeat('x', 1000) FROM generate_series(1, 100)";

    postgres.fill_disk();
    let refused = postgres.try_sql(insert).await.unwrap_err();
    postgres.clear_disk();

    assert!(refused.contains("53100"), "{refused}");
    postgres.sql(insert).await;
}

#[tokio::test]
async fn passwords_and_tls_are_asked_for() {
    let postgres = PostgresOptions::new().passwords().tls_with_client_certificates().start().await;
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
async fn settings_are_in_force() {
    let postgres = PostgresOptions::new().set("max_connections", "17").start().await;

    assert_eq!(postgres.sql("SHOW max_connections").await, "17");
    assert_eq!(postgres.url(), format!("postgres://postgres@{}/postgres", postgres.address()));
}
