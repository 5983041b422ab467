//! A purge that overtakes an acquisition.

use std::time::Duration;

use leasehold_core::LockKey;
use leasehold_core::backend::Lease;
use leasehold_entry::Tag;
use leasehold_sql_support::FreeClaim;
use leasehold_sql_support::remote::Link;
use leasehold_testbed::{DatabaseKind, DatabaseServer};
use tokio::time::sleep;

use super::flawed::Flaw;
use super::target::{Target, connect, pool};

const KEY: &str = "overtaken";

/// How far the minimum token is ahead of the clock, in microseconds, so that no token comes from
/// the clock.
const AHEAD: i64 = 10_000_000;

/// InnoDB updates its list of transactions only if nobody has read it for 100 ms.
const PAUSE: Duration = Duration::from_millis(150);

/// Lets a purge delete the row of a key while an acquisition waits for this row, and returns the
/// tokens of the key before and after the purge. Without a flaw, the second token is larger.
///
/// The order of the steps does not depend on chance. If the acquisition has locked the minimum
/// token, the purge must wait, and the row is not deleted.
pub async fn overtake<D: Target>(
    server: &DatabaseServer<impl DatabaseKind>,
    flaw: Option<Flaw>,
) -> (i64, i64) {
    let waiting = async || {
        sleep(PAUSE).await;
        server.sql(D::WAITING).await.parse::<u32>().expect("a number")
    };
    let mut purger = connect::<D>(&server.url()).await;
    purger.exchange(D::tables()).await.expect("the tables can be created");
    raise_min_token::<D>(server.url(), AHEAD).await;
    let before = acquire::<D>(server.url(), None).await;
    let lock = format!("BEGIN; SELECT token FROM {} FOR UPDATE", D::ROW);
    purger.exchange(lock).await.expect("the row can be locked");

    let acquisition = tokio::spawn(acquire::<D>(server.url(), flaw));
    while waiting().await < 1 {}
    let purge = tokio::spawn(raise_min_token::<D>(server.url(), 2 * AHEAD));
    while !purge.is_finished() && waiting().await < 2 {}

    if purge.is_finished() {
        let delete = format!("DELETE FROM {}; COMMIT", D::ROW);
        purger.exchange(delete).await.expect("the row can be deleted");
    } else {
        purger.exchange("ROLLBACK".to_owned()).await.expect("the row can be unlocked");
    }
    let after = acquisition.await.expect("the acquisition does not panic");
    purge.await.expect("the purge does not panic");
    (before, after)
}

/// Raises the minimum token by a purge of the keys after `~`. No key is larger than `~`.
async fn raise_min_token<D: Target>(url: String, ahead: i64) {
    let purged = D::table(false, false).purge(&*pool::<D>(&url, None), "~", -ahead).await;
    purged.expect("the minimum token can be raised");
}

/// Acquires the free key as a new process, with a lease that expires immediately, and returns the
/// token.
async fn acquire<D: Target>(url: String, flaw: Option<Flaw>) -> i64 {
    let key = LockKey::new(KEY).expect("the name is valid");
    let claim = FreeClaim {
        key: KEY,
        tag: Tag::of(&Lease::new(&key, Duration::from_secs(1)).id()).id,
        ttl: 1,
        fingerprint: "0",
        description: None,
        spare: 0,
        requested_token: 0,
        membership: None,
    };
    let granted = D::table(false, false).acquire_free(&*pool::<D>(&url, flaw), &[claim]).await;
    let granted = granted.expect("the server replies").remove(0).expect("the claim is not aborted");
    granted.expect("the key is free").0
}
