//! The tests that all database servers pass.
//!
//! The including file names the `Server` and `Options` types, and the SQL in which the databases differ.

use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::{Options, Server};

#[tokio::test]
async fn a_server_answers_until_it_is_dropped() {
    let server = Server::start().await;
    server.sql("CREATE TABLE t AS SELECT 1 AS a, 'x' AS b").await;
    assert_eq!(server.sql("SELECT * FROM t").await, crate::ROW);

    let (address, folder) = (server.address(), server.folder().to_owned());
    drop(server);

    assert!(TcpStream::connect(address).await.is_err());
    assert!(!folder.exists());
}

#[tokio::test]
async fn servers_die_when_a_test_panics() {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let panicked = tokio::spawn(async {
        let server = Server::start().await;
        sender.send(server.address()).unwrap();
        panic!("as a test does");
    });

    assert!(panicked.await.unwrap_err().is_panic());
    assert!(TcpStream::connect(receiver.await.unwrap()).await.is_err());
}

#[tokio::test]
async fn a_paused_server_is_silent_until_it_goes_on() {
    let server = Server::start().await;

    server.pause();
    let silence = timeout(Duration::from_millis(200), server.sql("SELECT 1")).await;
    assert!(silence.is_err());

    server.resume();
    assert_eq!(server.sql("SELECT 1").await, "1");
}

#[tokio::test]
async fn a_killed_server_keeps_its_data_and_its_port() {
    let mut server = Server::start().await;
    let address = server.address();
    server.sql("CREATE TABLE t AS SELECT 1 AS a").await;
    let mut sleeping = server.client(crate::SLEEP).spawn().unwrap();

    server.kill();
    assert!(TcpStream::connect(&address).await.is_err());
    assert!(!sleeping.wait().await.unwrap().success());
    server.restart().await;

    assert_eq!(server.address(), address);
    assert_eq!(server.sql("SELECT * FROM t").await, "1");
    server.shut_down();
    server.restart().await;
    assert_eq!(server.sql("SELECT * FROM t").await, "1");
}

#[tokio::test]
async fn a_full_disk_refuses_rows() {
    let server = Options::new().small_disk().start().await;
    server.sql("CREATE TABLE t (a TEXT)").await;

    server.fill_disk();
    let refused = server.try_sql(crate::INSERT).await.unwrap_err();
    server.clear_disk();

    assert!(refused.contains(crate::DISK_FULL), "{refused}");
    server.sql(crate::INSERT).await;
}

#[tokio::test]
async fn a_small_disk_outlives_the_server() {
    let mut server = Options::new().small_log_disk().start().await;
    server.sql("CREATE TABLE t (a TEXT)").await;

    server.fill_disk();
    server.kill();
    server.clear_disk();
    server.restart().await;

    server.sql(crate::INSERT).await;
}

#[tokio::test]
async fn settings_are_in_force() {
    let server = Options::new().set("max_connections", "17").start().await;

    assert_eq!(server.sql(crate::MAX_CONNECTIONS).await, "17");
    assert_eq!(server.url(), crate::url(&server.address()));
}
