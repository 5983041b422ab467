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
mod spread;

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::LockKey;
use leasehold_sql_support::remote::{Connector, Driver, Execute, Link, Pool, Settings, Table};
use tokio::task::JoinSet;
use tokio::time::Instant;

use book::Book;
pub use book::Report;
use caller::Caller;
pub use flawed::Flaw;
use flawed::Flawed;
pub use overtaken::overtake;
use spread::Spread;

/// The number of connections.
const CONNECTIONS: usize = 14;

/// The number of connections that only delete rows.
const PURGERS: usize = 2;

const KEYS: usize = 3;

/// How much longer a run may take until the attack was [strong enough](Scenario::is_enough), because the
/// machine may be busy.
const EXTRA_TIME: Duration = Duration::from_secs(300);

/// The time limit of a call. A busy server must not exceed this limit.
const LIMIT: Duration = Duration::from_secs(60);

/// The driver of a database that can be attacked.
pub trait Target: Driver {
    /// The row of the key that a purge [overtakes](overtake), as it follows `FROM`.
    const ROW: &str;

    /// A query that counts the transactions that wait for a lock.
    const WAITING: &str;

    /// Returns the statements that create the tables.
    fn tables() -> String;

    /// Creates the statements for one server or for a cluster, on the database's clock or on a clock that
    /// jumps back by up to 3 s each time that it is read.
    fn table(clock_jumps: bool, is_in_cluster: bool) -> Box<dyn Table>;

    /// Returns the statement with the flaw.
    fn flawed(text: String, flaw: Flaw) -> String;
}

/// What the callers do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scenario {
    /// Leases are always released. The clock jumps, and rows are deleted.
    Purges,
    /// Leases of about 8 ms are renewed, released late, or left to expire.
    Expiry,
}

impl Scenario {
    /// Returns whether an attack is strong enough to mean something.
    pub fn is_enough(self, report: &Report) -> bool {
        let has_purged = self == Self::Expiry || report.purged > 20;
        report.grants > 50 && report.confirmed > 20 && has_purged
    }
}

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

fn connector<D: Target>(url: &str) -> D::Connector {
    let servers = D::read_url(url, &mut Settings::new(LIMIT)).expect("the URL is valid");
    D::connector(servers, LIMIT)
}

async fn connect<D: Target>(url: &str) -> <D::Connector as Connector>::Link {
    connector::<D>(url).connect().await.expect("the server accepts connections")
}

/// Returns one connection, whose statements may have a flaw.
fn pool<D: Target>(url: &str, flaw: Option<Flaw>) -> Box<dyn Execute> {
    let connector = Flawed { inner: connector::<D>(url), flaw, edit: D::flawed };
    Box::new(Pool::new(Arc::new(connector), 1, LIMIT))
}
