//! Eight connections that attack a few keys of one stripe, and a witness in tables of its own.

use std::time::Duration;

use leasehold_core::backend::{Attempt, Claim, Lease, LockBackend, Patience, Release};
use leasehold_core::{ErrorKind, LockKey};
use tokio::task::JoinSet;

use super::TTL;
use crate::{Backend, Config, Direct, Server};

/// How often each of the eight is granted a lock, however long that takes.
const GRANTS: u64 = 10;

/// Three keys of the stripe 31.
fn keys() -> Vec<LockKey> {
    let names = (0..).map(|n| format!("attack:{n}"));
    let of_stripe = names.filter(|name| stripe(name) == 31);
    of_stripe.take(3).map(|name| LockKey::new(name).unwrap()).collect()
}

/// As documented: other programs may rely on it.
fn stripe(name: &str) -> u8 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    hash.to_le_bytes().into_iter().fold(0, |folded, byte| folded ^ byte)
}

/// Acquires, enters, leaves and releases, as often as it can. Two of three claims leave a place in the queue.
async fn attack(url: String, keys: Vec<LockKey>) {
    let config = Config::from_url(&url).unwrap().timeout(TTL).unwrap();
    let backend = Backend::connect_with(config).await.unwrap();
    let witness = Direct::open(&url).await;
    let mut grants = 0;
    while grants < GRANTS {
        let key = &keys[fastrand::usize(..keys.len())];
        let lease = Lease::new(key, TTL);
        let patience = match fastrand::u8(..3) {
            0 => Patience::Queues(Duration::from_millis(20)),
            1 => Patience::Waits,
            _ => Patience::Leaves,
        };
        let claim = Claim::new(lease.clone()).with_patience(patience);
        match backend.try_acquire(&claim).await {
            Ok(Attempt::Granted(grant)) => {
                enter(&witness, key, grant.token()).await;
                raise(&backend, &witness, &lease, grant.token()).await;
                let leave = format!("DELETE FROM inside WHERE name = '{key}'");
                witness.query(&leave).await.unwrap();
                assert_eq!(backend.release(&lease).await.unwrap(), Release::Released);
                grants += 1;
            }
            Ok(_) => assert_eq!(backend.release(&lease).await.unwrap(), Release::NotHeld),
            // Conflicts, several in a row.
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
        }
    }
}

async fn enter(witness: &Direct, key: &LockKey, token: u64) {
    let enter = format!("INSERT INTO inside VALUES ('{key}')");
    witness.query(&enter).await.expect("no other is inside");
    let seen = witness.query(&format!("SELECT token FROM seen WHERE name = '{key}'")).await;
    let seen: u64 = seen.unwrap()[0][0].as_deref().unwrap().parse().unwrap();
    assert!(seen < token, "tokens do not increase");
    let see = format!("UPDATE seen SET token = {token} WHERE name = '{key}'");
    witness.query(&see).await.unwrap();
}

/// Renews, often with a floor: the next to enter has a token above it.
async fn raise(backend: &Backend, witness: &Direct, lease: &Lease, token: u64) {
    let floor = if fastrand::bool() { token + 1_000_000 } else { 0 };
    backend.renew(&lease.clone().with_floor(floor)).await.unwrap();
    let (key, seen) = (lease.key(), token.max(floor));
    let see = format!("UPDATE seen SET token = {seen} WHERE name = '{key}'");
    witness.query(&see).await.unwrap();
}

async fn all_exclude_each_other(server: Server) {
    let keys = keys();
    drop(Backend::connect(&server.url()).await.unwrap());
    server.sql("CREATE TABLE inside (name VARCHAR(99) PRIMARY KEY)").await;
    server.sql("CREATE TABLE seen (name VARCHAR(99) PRIMARY KEY, token BIGINT)").await;
    for key in &keys {
        server.sql(&format!("INSERT INTO seen VALUES ('{key}', 0)")).await;
    }

    let mut attackers = JoinSet::new();
    for _ in 0..8 {
        attackers.spawn(attack(server.url(), keys.clone()));
    }
    attackers.join_all().await;

    assert_eq!(server.sql("SELECT count(*) FROM inside").await, "0");
    assert_eq!(server.sql("SELECT count(*) FROM leasehold_lease WHERE place IS NULL").await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_connections_exclude_each_other() {
    all_exclude_each_other(Server::start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_connections_exclude_each_other_in_serializable_sessions() {
    all_exclude_each_other(crate::in_serializable_sessions().start().await).await;
}
