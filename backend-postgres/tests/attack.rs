//! Eight connections that attack a few keys of one stripe, and a witness in tables of its own.

use std::time::Duration;

use leasehold_core::{Attempt, Claim, ErrorKind, Lease, LockBackend, LockKey, Patience, Release};
use leasehold_postgres::tokio_postgres::{self, NoTls};
use leasehold_postgres::{PostgresBackend, PostgresConfig};
use leasehold_testbed::{Postgres, PostgresOptions};
use tokio::task::JoinSet;

const TTL: Duration = Duration::from_secs(60);

/// How often each of the eight is granted a lock, however long that takes.
const GRANTS: u64 = 25;

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

/// One who acquires, enters, leaves and releases, as often as it can. Every third claim queues.
async fn attack(url: String, keys: Vec<LockKey>) {
    let config = PostgresConfig::from_url(&url).unwrap().timeout(TTL).unwrap();
    let backend = PostgresBackend::connect_with(config).await.unwrap();
    let (witness, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    witness.batch_execute("SET default_transaction_isolation = 'read committed'").await.unwrap();
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
                let token = i64::try_from(grant.token()).unwrap();
                let enter = "WITH seen AS (UPDATE seen SET token = $2 WHERE key = $1 AND token < $2 RETURNING 1)
                     INSERT INTO inside SELECT $1 WHERE EXISTS (SELECT FROM seen)";
                let entered = witness.execute(enter, &[&key.as_str(), &token]).await;
                assert_eq!(entered.expect("no other is inside"), 1, "tokens do not increase");
                backend.renew(&lease).await.unwrap();
                let leave = "DELETE FROM inside WHERE key = $1";
                assert_eq!(witness.execute(leave, &[&key.as_str()]).await.unwrap(), 1);
                assert_eq!(backend.release(&lease).await.unwrap(), Release::Released);
                grants += 1;
            }
            Ok(_) => assert_eq!(backend.release(&lease).await.unwrap(), Release::NotHeld),
            // Conflicts, several in a row.
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
        }
    }
}

async fn nobody_is_inside_beside_another(postgres: Postgres) {
    let keys = keys();
    drop(PostgresBackend::connect(&postgres.url()).await.unwrap());
    postgres.sql("CREATE TABLE inside (key text PRIMARY KEY); CREATE TABLE seen (key text, token bigint)").await;
    for key in &keys {
        postgres.sql(&format!("INSERT INTO seen VALUES ('{key}', 0)")).await;
    }

    let mut attackers = JoinSet::new();
    for _ in 0..8 {
        attackers.spawn(attack(postgres.url(), keys.clone()));
    }
    attackers.join_all().await;

    assert_eq!(postgres.sql("SELECT count(*) FROM inside").await, "0");
    assert_eq!(postgres.sql("SELECT count(*) FROM leasehold_lease WHERE place IS NULL").await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_connections_exclude_each_other() {
    nobody_is_inside_beside_another(Postgres::start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_connections_exclude_each_other_in_serializable_sessions() {
    let options = PostgresOptions::new().set("default_transaction_isolation", "serializable");
    nobody_is_inside_beside_another(options.start().await).await;
}
