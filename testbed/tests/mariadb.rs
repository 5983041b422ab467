//! The testbed's own MariaDB servers.

use std::time::Duration;

use leasehold_testbed::{MariaDb, MariaDbOptions};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::timeout;

#[tokio::test]
async fn a_server_answers_until_it_is_dropped() {
    let mariadb = MariaDb::start().await;
    mariadb.sql("CREATE TABLE t AS SELECT 1 AS a, 'x' AS b").await;
    assert_eq!(mariadb.sql("SELECT * FROM t").await, "1\tx");

    let (address, folder) = (mariadb.address(), mariadb.folder().to_owned());
    drop(mariadb);

    assert!(TcpStream::connect(address).await.is_err());
    assert!(!folder.exists());
}

#[tokio::test]
async fn servers_die_when_a_test_panics() {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let panicked = tokio::spawn(async {
        let mariadb = MariaDb::start().await;
        sender.send(mariadb.address()).unwrap();
        panic!("as a test does");
    });

    assert!(panicked.await.unwrap_err().is_panic());
    assert!(TcpStream::connect(receiver.await.unwrap()).await.is_err());
}

#[tokio::test]
async fn a_paused_server_is_silent_and_goes_on_where_it_was() {
    let mariadb = MariaDb::start().await;

    mariadb.pause();
    let silence = timeout(Duration::from_millis(200), mariadb.sql("SELECT 1")).await;
    assert!(silence.is_err());

    mariadb.resume();
    assert_eq!(mariadb.sql("SELECT 1").await, "1");
}

#[tokio::test]
async fn a_killed_server_keeps_its_data_and_its_port() {
    let mut mariadb = MariaDb::start().await;
    let address = mariadb.address();
    mariadb.sql("CREATE TABLE t AS SELECT 1 AS a").await;

    mariadb.kill();
    assert!(TcpStream::connect(&address).await.is_err());
    mariadb.restart().await;

    assert_eq!(mariadb.address(), address);
    assert_eq!(mariadb.sql("SELECT * FROM t").await, "1");
    mariadb.shut_down();
    mariadb.restart().await;
    assert_eq!(mariadb.sql("SELECT * FROM t").await, "1");
}

#[tokio::test]
async fn a_read_only_server_refuses_writes_of_its_user() {
    let mariadb = MariaDb::start().await;

    mariadb.set_read_only(true).await;
    let refused = as_user(&mariadb, &["-uleasehold"], "CREATE TABLE t (a INT)").await.unwrap_err();
    mariadb.set_read_only(false).await;

    assert!(refused.contains("ERROR 1290"), "{refused}");
    as_user(&mariadb, &["-uleasehold"], "CREATE TABLE t (a INT)").await.unwrap();
}

#[tokio::test]
async fn a_full_disk_refuses_rows() {
    let mariadb = MariaDbOptions::new().small_disk().start().await;
    mariadb.sql("CREATE TABLE t (a TEXT) ENGINE = InnoDB").await;
    let insert = "INSERT INTO t SELECT REPEAT('x', 1000) FROM seq_1_to_1000";

    mariadb.fill_disk();
    let refused = mariadb.try_sql(insert).await.unwrap_err();
    mariadb.clear_disk();

    assert!(refused.contains("ERROR 1114"), "{refused}");
    mariadb.sql(insert).await;
}

#[tokio::test]
async fn passwords_and_tls_are_asked_for() {
    let mariadb = MariaDbOptions::new().tls().start().await;
    mariadb.sql("CREATE USER locker IDENTIFIED BY 'secret' REQUIRE SSL").await;
    let authority = mariadb.certificates().authority();
    let authority = format!("--ssl-ca={}", authority.display());
    let login = async |args: &[&str]| as_user(&mariadb, args, "SELECT USER()").await;

    let verified = ["-ulocker", "-psecret", &authority, "--ssl-verify-server-cert"];
    assert_eq!(login(&verified).await.unwrap(), "locker@127.0.0.1\n");
    login(&["-ulocker", "-pguess", &authority]).await.unwrap_err();
    login(&["-ulocker", "-psecret", "--skip-ssl"]).await.unwrap_err();
}

#[tokio::test]
async fn arguments_are_in_force() {
    let mariadb = MariaDbOptions::new().set("max-connections", "17").start().await;

    assert_eq!(mariadb.sql("SELECT @@max_connections").await, "17");
    assert_eq!(mariadb.url(), format!("mysql://leasehold@{}/leasehold", mariadb.address()));
}

/// Runs SQL over TCP.
async fn as_user(mariadb: &MariaDb, args: &[&str], sql: &str) -> Result<String, String> {
    let database = if args.contains(&"-uleasehold") { "leasehold" } else { "" };
    let mut client = Command::new("mariadb");
    client.args(["--no-defaults", "-NB", "-h", "localhost", "--protocol=tcp", "-e", sql]);
    client.args(["-P", &mariadb.port().to_string(), "-D", database]).args(args);
    let output = client.output().await.unwrap();
    if output.status.success() {
        return Ok(String::from_utf8(output.stdout).unwrap());
    }
    Err(String::from_utf8(output.stderr).unwrap())
}
