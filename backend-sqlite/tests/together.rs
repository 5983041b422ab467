//! Tests of calls that wait for a busy file and then run in one transaction.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::backend::{
    Attempt, Claim, Lease, LockBackend as _, Mode, Release, Renewal, StoreAdmin as _,
};
use leasehold_core::{Error, ErrorKind, LockKey};
use leasehold_sqlite::{SqliteBackend, SqliteConfig};
use leasehold_testbed::{Folder, until};
use rusqlite::Connection;

/// The number of calls, which fit into one transaction.
const CALLS: usize = 40;

/// The length of a page in the log.
const PAGE: u64 = 4096;

/// The longest wait of a call for the busy file.
const PATIENCE: Duration = Duration::from_secs(30);

fn file(folder: &Path) -> PathBuf {
    folder.join("locks.db")
}

async fn connect(folder: &Path) -> SqliteBackend {
    let config = SqliteConfig::new(file(folder)).unwrap().timeout(PATIENCE).unwrap();
    SqliteBackend::connect_with(config).await.unwrap()
}

fn lease(name: &str) -> Lease {
    Lease::new(&LockKey::new(name).unwrap(), PATIENCE)
}

fn length_of_log(folder: &Path) -> u64 {
    fs::metadata(folder.join("locks.db-wal")).unwrap().len()
}

/// Runs `calls` while another program has a write transaction open, and ends that transaction when all
/// calls wait.
async fn while_busy<T>(
    folder: &Path,
    calls: impl IntoIterator<Item: Future<Output = T>>,
) -> Vec<T> {
    let other = Connection::open(file(folder)).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let free = async {
        // The futures of `join_all` have been polled once, so all calls wait.
        tokio::task::yield_now().await;
        other.execute_batch("COMMIT").unwrap();
    };
    let (done, ()) = tokio::join!(biased; join_all(calls), free);
    done
}

#[tokio::test]
async fn waiting_calls_are_written_together() {
    let folder = Folder::in_memory("sqlite-");
    let backend = connect(folder.path()).await;
    let leases: Vec<Lease> = (0..CALLS).map(|n| lease(&format!("job-{n}"))).collect();
    let claims: Vec<Claim> = leases.iter().cloned().map(Claim::new).collect();
    // The first grant raises the ceiling of the tokens.
    backend.acquire(&claims[0]).await.unwrap();
    let before = length_of_log(folder.path());

    let granted =
        while_busy(folder.path(), claims.iter().map(|claim| backend.acquire(claim))).await;
    let released =
        while_busy(folder.path(), leases.iter().map(|lease| backend.release(lease))).await;

    assert!(granted.iter().all(|attempt| matches!(attempt, Ok(Attempt::Granted(_)))));
    assert!(released.iter().all(|release| matches!(release, Ok(Release::Released))));
    let pages = (length_of_log(folder.path()) - before) / PAGE;
    assert!(pages < CALLS as u64, "{pages} pages for {CALLS} grants and releases");
}

#[tokio::test]
async fn a_call_that_fails_does_not_affect_the_calls_in_the_same_transaction() {
    let folder = Folder::in_memory("sqlite-");
    let backend = connect(folder.path()).await;
    let held = lease("held");
    backend.acquire(&Claim::new(held.clone())).await.unwrap();
    let permit = |name| lease(name).with_mode(Mode::Units { units: 1, limit: 2 });
    let claims = [lease("before"), permit("held"), permit("permits"), lease("after")];
    let claims = claims.map(Claim::new);

    let attempts =
        while_busy(folder.path(), claims.iter().map(|claim| backend.acquire(claim))).await;

    let outcome = |attempt: Result<Attempt, Error>| match attempt {
        Ok(Attempt::Granted(_)) => None,
        Ok(Attempt::Held(_)) => unreachable!("no claim is refused"),
        Err(error) => Some(error.kind()),
    };
    let outcomes: Vec<_> = attempts.into_iter().map(outcome).collect();
    assert_eq!(outcomes, [None, Some(ErrorKind::WrongType), None, None]);
    for claim in [&claims[0], &claims[2], &claims[3]] {
        assert_eq!(backend.renew(claim.lease()).await.unwrap(), Renewal::Renewed);
    }
    let shown = backend.inspect(held.key()).await.unwrap();
    assert_eq!(shown.holders()[0].fingerprint(), held.id().fingerprint());
}

#[tokio::test]
async fn a_release_does_not_overtake_the_acquisition_of_its_lease() {
    let folder = Folder::in_memory("sqlite-");
    let backend = connect(folder.path()).await;
    let claim = Claim::new(lease("job"));
    let acquire =
        async { assert!(matches!(backend.acquire(&claim).await, Ok(Attempt::Granted(_)))) };
    let release = async {
        assert_eq!(backend.release(claim.lease()).await.unwrap(), Release::Released);
    };

    let calls: [std::pin::Pin<Box<dyn Future<Output = ()>>>; 2] =
        [Box::pin(acquire), Box::pin(release)];
    while_busy(folder.path(), calls).await;

    until("the key is free", async || !backend.inspect(claim.key()).await.unwrap().is_held()).await;
}
