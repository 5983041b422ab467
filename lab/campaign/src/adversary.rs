//! Attacks the statements of the SQL stores: 14 connections use 3 keys, two of them delete rows as
//! soon as they are free, and the clock jumps back.
//!
//! The callers mix all ways to change a row: the statements for a free key, documents, permits, queues,
//! and two keys at a time. A waiter sends the row to the holder, whose release transfers the key to the
//! first waiter. The holder may use a row that is out of date. Each caller acts as a separate process
//! with its own cache of rows. Half of the callers clear this cache before each lock. The statements
//! run on the connections of Leasehold's drivers. [`Flaw`] lists the variants that must break a rule.

mod book;
mod caller;
mod flawed;
#[cfg(feature = "mysql")]
mod mysql;
mod overtaken;
#[cfg(feature = "postgres")]
mod postgres;
mod scenario;
mod spread;
mod target;

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::LockKey;
use leasehold_sql_support::remote::Link as _;
use tokio::task::JoinSet;
use tokio::time::Instant;

use book::Book;
pub use book::Report;
use caller::Caller;
pub use flawed::Flaw;
pub use overtaken::overtake;
pub use scenario::Scenario;
use spread::Spread;
pub use target::Target;
use target::{connect, pool};

/// The number of connections.
const CONNECTIONS: usize = 14;

/// The number of connections that only delete rows.
const PURGERS: usize = 2;

const KEYS: usize = 3;

/// How much longer a run may take until the attack was [strong enough](Scenario::is_enough), because the
/// machine may be busy.
const EXTRA_TIME: Duration = Duration::from_secs(300);

/// Creates the tables in the database at the first URL, and runs a scenario on new keys for at least
/// this time, or until a rule is broken. If there are several URLs, each statement runs on a random
/// server.
pub async fn run<D: Target>(
    urls: &[String],
    scenario: Scenario,
    flaw: Option<Flaw>,
    time: Duration,
) -> Report {
    connect::<D>(&urls[0]).await.exchange(D::tables()).await.expect("the tables can be created");
    let (book, end) = (Arc::new(Book::default()), Instant::now() + time);
    let latest_end = if flaw.is_none() { end + EXTRA_TIME } else { end };
    let run = fastrand::u32(..);
    let keys: Vec<_> = (0..KEYS)
        .map(|n| LockKey::new(format!("attacked-{n}-{run}")).expect("the name is valid"))
        .collect();
    let mut tasks = JoinSet::new();
    for n in 0..CONNECTIONS {
        // A purge raises the minimum token only if its clock advances.
        let clock_jumps = scenario == Scenario::Purges && n >= PURGERS;
        let run = Box::new(Spread(urls.iter().map(|url| pool::<D>(url, flaw)).collect()));
        let is_in_cluster = urls.len() > 1;
        let table = D::table(clock_jumps, is_in_cluster);
        let (book, keys) = (Arc::clone(&book), keys.clone());
        let mut caller = Caller { run, table, keys, book, scenario, end, latest_end };
        tasks.spawn(async move {
            match scenario {
                Scenario::Purges if n < PURGERS => caller.purge().await,
                Scenario::Purges => {
                    while caller.goes_on() {
                        if n % 2 == 0 {
                            // A new process, which does not know any key.
                            caller.table = D::table(clock_jumps, is_in_cluster);
                        }
                        caller.call(n).await;
                    }
                }
                Scenario::Expiry => caller.let_expire(n).await,
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("a caller does not panic");
    }
    book.report()
}
