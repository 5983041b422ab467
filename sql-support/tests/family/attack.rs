//! Eight connections compete for three keys. A separate connection checks mutual exclusion in
//! separate tables.

use std::time::Duration;

use leasehold_core::backend::{Attempt, Claim, Lease, LockBackend, Member as _, Patience, Release};
use leasehold_core::{ErrorKind, LockKey};
use tokio::task::JoinSet;

use super::{TTL, direct, start};
use crate::{Backend, Config, Direct, Store};

/// The number of grants after which a connection stops.
const GRANTS: u64 = 10;

/// Acquires, renews and releases keys until there are [`GRANTS`] grants. Two of three claims leave a
/// queue entry.
async fn attack(url: String, probe: Direct, keys: Vec<LockKey>) {
    let config = Config::from_url(&url).unwrap().timeout(TTL).unwrap();
    let backend = Backend::connect_with(config).await.unwrap();
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
        match backend.acquire(&claim).await {
            Ok(Attempt::Granted(grant)) => {
                enter(&probe, key, grant.token()).await;
                raise(&backend, &probe, &lease, grant.token()).await;
                let leave = format!("DELETE FROM inside WHERE name = '{key}'");
                probe.query(&leave).await.unwrap();
                assert_eq!(backend.release(&lease).await.unwrap(), Release::Released);
                grants += 1;
            }
            Ok(_) => {
                // A release may have handed over the key to a claim that waits.
                let released = backend.release(&lease).await.unwrap();
                assert!(released == Release::NotHeld || patience == Patience::Waits);
            }
            // Too many conflicts in a row.
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
        }
    }
}

async fn enter(probe: &Direct, key: &LockKey, token: u64) {
    let enter = format!("INSERT INTO inside VALUES ('{key}')");
    probe.query(&enter).await.expect("no other holder is inside");
    let seen = probe.query(&format!("SELECT token FROM seen WHERE name = '{key}'")).await;
    let seen: u64 = seen.unwrap()[0][0].as_deref().unwrap().parse().unwrap();
    assert!(seen < token, "tokens do not increase");
    let see = format!("UPDATE seen SET token = {token} WHERE name = '{key}'");
    probe.query(&see).await.unwrap();
}

/// Renews the lease, and often raises the minimum token. The next holder's token must be larger.
async fn raise(backend: &Backend, probe: &Direct, lease: &Lease, token: u64) {
    let min_token = if fastrand::bool() { token + 1_000_000 } else { 0 };
    backend.raise(lease, min_token).await.unwrap();
    let (key, seen) = (lease.key(), token.max(min_token));
    let see = format!("UPDATE seen SET token = {seen} WHERE name = '{key}'");
    probe.query(&see).await.unwrap();
}

async fn all_exclude_each_other(server: Store) {
    let keys = ["a", "b", "c"].map(|name| LockKey::new(name).unwrap());
    drop(Backend::connect(&server.url()).await.unwrap());
    server.sql("CREATE TABLE inside (name VARCHAR(99) PRIMARY KEY)").await;
    server.sql("CREATE TABLE seen (name VARCHAR(99) PRIMARY KEY, token BIGINT)").await;
    for key in &keys {
        server.sql(&format!("INSERT INTO seen VALUES ('{key}', 0)")).await;
    }

    let mut attackers = JoinSet::new();
    for _ in 0..8 {
        attackers.spawn(attack(server.url(), direct(&server).await, keys.to_vec()));
    }
    attackers.join_all().await;

    assert_eq!(server.sql("SELECT count(*) FROM inside").await, "0");
    assert_eq!(
        server.sql("SELECT count(*) FROM leasehold_locks WHERE document IS NULL").await,
        "0"
    );
}

#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn eight_connections_exclude_each_other() {
    all_exclude_each_other(start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn eight_connections_exclude_each_other_in_serializable_sessions() {
    all_exclude_each_other(crate::start(crate::in_serializable_sessions()).await).await;
}
