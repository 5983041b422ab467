//! Eight connections that attack a few keys of one stripe, and a witness in tables of its own.

use std::time::Duration;

use leasehold_core::{Attempt, Claim, ErrorKind, Lease, LockBackend, LockKey, Patience, Release};
use leasehold_mysql::mysql_async::prelude::Queryable;
use leasehold_mysql::mysql_async::{Conn, Opts};
use leasehold_mysql::{MysqlBackend, MysqlConfig};
use leasehold_testbed::{MariaDb, MariaDbOptions};
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
    let config = MysqlConfig::from_url(&url).unwrap().timeout(TTL).unwrap();
    let backend = MysqlBackend::connect_with(config).await.unwrap();
    let mut witness = Conn::new(Opts::from_url(&url).unwrap()).await.unwrap();
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
                let token = grant.token();
                let enter = format!("INSERT INTO inside VALUES ('{key}')");
                witness.query_drop(enter).await.expect("no other is inside");
                let see = format!(
                    "UPDATE seen SET token = {token} WHERE name = '{key}' AND token < {token}"
                );
                witness.query_drop(see).await.unwrap();
                assert_eq!(witness.affected_rows(), 1, "tokens do not increase");
                backend.renew(&lease).await.unwrap();
                witness
                    .query_drop(format!("DELETE FROM inside WHERE name = '{key}'"))
                    .await
                    .unwrap();
                assert_eq!(backend.release(&lease).await.unwrap(), Release::Released);
                grants += 1;
            }
            Ok(_) => assert_eq!(backend.release(&lease).await.unwrap(), Release::NotHeld),
            // Conflicts, several in a row.
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
        }
    }
}

async fn all_exclude_each_other(mariadb: MariaDb) {
    let keys = keys();
    drop(MysqlBackend::connect(&mariadb.url()).await.unwrap());
    mariadb.sql("CREATE TABLE inside (name VARCHAR(99) PRIMARY KEY); CREATE TABLE seen (name VARCHAR(99) PRIMARY KEY, token BIGINT)").await;
    for key in &keys {
        mariadb.sql(&format!("INSERT INTO seen VALUES ('{key}', 0)")).await;
    }

    let mut attackers = JoinSet::new();
    for _ in 0..8 {
        attackers.spawn(attack(mariadb.url(), keys.clone()));
    }
    attackers.join_all().await;

    assert_eq!(mariadb.sql("SELECT count(*) FROM inside").await, "0");
    assert_eq!(mariadb.sql("SELECT count(*) FROM leasehold_lease WHERE place IS NULL").await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_connections_exclude_each_other() {
    all_exclude_each_other(MariaDb::start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_connections_exclude_each_other_in_serializable_sessions() {
    let options = MariaDbOptions::new().set("transaction-isolation", "SERIALIZABLE");
    all_exclude_each_other(options.start().await).await;
}
