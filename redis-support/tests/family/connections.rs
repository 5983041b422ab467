//! Tests of connections that end unnoticed, and of the connections that replace them.

use std::net::ToSocketAddrs;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::StoreAdmin as _;
use leasehold_core::{Error, ErrorKind, LockClient};
use leasehold_redis_support::{
    Access, Address, Connection, Destination, Driver, Protocol, Request, Server,
};
use leasehold_testbed::{
    FaultProxy, NetworkFault, Redis, RedisCluster, RedisOptions, RedisSentinel, patiently, until,
};
use tokio::runtime::{Builder, Runtime};

use super::connect;
use super::steps::lock;
use crate::{Backend, Native};

/// A server with `timeout 1` closes idle connections within this time.
const IDLE: Duration = Duration::from_secs(4);

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn many_threads() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Connects a client in one runtime, and then locks and releases with this client in four further
/// runtimes, one after the other.
fn survives_its_runtimes(url: &str) {
    for runtime in [one_thread, many_threads] {
        let client = runtime().block_on(async { LockClient::new(connect(url).await.unwrap()) });
        for round in 1..=4 {
            runtime().block_on(async {
                let granted = client.mutex("job").unwrap().try_lock().await;
                let guard = granted.unwrap_or_else(|error| panic!("{url}, {round}: {error}"));
                guard.release().await.unwrap();
            });
        }
    }
}

#[test]
fn a_client_survives_the_runtime_that_has_connected_it() {
    let servers = many_threads();
    let redis = servers.block_on(Redis::start());

    survives_its_runtimes(&redis.url());
    survives_its_runtimes(&format!("{}?protocol=resp2", redis.url()));
}

#[test]
fn a_client_of_sentinels_survives_the_runtime_that_has_connected_it() {
    let servers = many_threads();
    let redis = servers.block_on(RedisSentinel::start());

    survives_its_runtimes(&redis.url());
    survives_its_runtimes(&format!("{}?protocol=resp2", redis.url()));
}

#[test]
fn a_client_of_a_cluster_survives_the_runtime_that_has_connected_it() {
    let servers = many_threads();
    let redis = servers.block_on(RedisCluster::start());

    survives_its_runtimes(&redis.url());
}

#[test]
fn a_connection_that_the_server_closed_is_replaced_before_use() {
    let servers = many_threads();
    let redis = servers.block_on(RedisOptions::new().args(["--timeout", "1"]).start());
    for protocol in ["resp2", "resp3"] {
        // The client notices the end of a connection while the runtime is driven, or when it sends
        // the next request.
        for is_driven in [true, false] {
            let client_runtime = one_thread();
            let url = format!("{}?protocol={protocol}", redis.url());
            let client =
                client_runtime.block_on(async { LockClient::new(connect(&url).await.unwrap()) });
            for round in 0..2 {
                client_runtime.block_on(async {
                    let granted = client.mutex("job").unwrap().try_lock().await;
                    let guard =
                        granted.unwrap_or_else(|error| panic!("{protocol}, {round}: {error}"));
                    guard.release().await.unwrap();
                });
                if is_driven {
                    client_runtime.block_on(async { tokio::time::sleep(IDLE).await });
                } else {
                    servers.block_on(async {
                        redis.command(&["CLIENT", "KILL", "TYPE", "normal"]).await;
                        redis.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
                        tokio::time::sleep(IDLE).await;
                    });
                }
            }
        }
    }
}

#[tokio::test]
async fn a_connection_that_leads_nowhere_is_no_unknown_outcome_after_a_pause() {
    let redis = Redis::start().await;
    let proxy = FaultProxy::start(redis.address()).await;
    let backend = connect(&format!("redis://{}?timeout-ms=300", proxy.address())).await.unwrap();
    let client = LockClient::new(backend);
    lock(&client, "job").await.release().await.unwrap();

    // Simulates a firewall that has dropped the connection.
    tokio::time::sleep(Duration::from_secs(1)).await;
    proxy.set_network_fault(NetworkFault::BlackHole);

    let error = Error::from(client.mutex("job").unwrap().try_lock().await.unwrap_err());
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[tokio::test]
async fn databases_above_255_are_used_if_the_server_has_them() {
    let redis = RedisOptions::new().args(["--databases", "512"]).start().await;
    let client = LockClient::new(connect(&format!("{}/300", redis.url())).await.unwrap());

    let _guard = lock(&client, "job").await;

    let spaces = redis.command(&["INFO", "keyspace"]).await;
    assert!(spaces.contains("db300:") && !spaces.contains("db0:"), "{spaces}");
    let error = connect(&format!("{}/512", redis.url())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

#[tokio::test]
async fn a_driver_connects_to_the_address_that_it_is_given_whatever_the_name() {
    let redis = Redis::start().await;
    let at = redis.address().to_socket_addrs().unwrap().next();
    let address =
        Address::Tcp(Server { host: "no.such.host.invalid".to_owned(), port: at.unwrap().port() });
    let driver = Native::new(None).unwrap();

    let to = Destination { address: &address, at };
    let connection = driver
        .connect(to, &Access::default(), Protocol::Resp3, Arc::new(|_said| ()))
        .await
        .unwrap();

    assert!(connection.send(vec![Request::Words(&["TIME"])]).await.unwrap()[0].is_ok());
}

#[tokio::test]
async fn a_server_too_far_away_for_the_default_is_an_error_that_names_the_setting() {
    let redis = Redis::start().await;
    let proxy = FaultProxy::start(redis.address()).await;
    proxy.set_network_fault(NetworkFault::Slow(Duration::from_millis(300)));

    let error = Backend::connect(&format!("redis://{}", proxy.address())).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("timeout-ms"), "{error}");
    let patient = patiently(&format!("redis://{}", proxy.address()));
    let backend = Backend::connect(&patient).await.unwrap();
    until("it is connected to", async || {
        let key = leasehold_core::LockKey::new("job").unwrap();
        backend.inspect(&key).await.is_ok()
    })
    .await;
}
