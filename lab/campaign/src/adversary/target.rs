//! The databases that can be attacked, and connections to them.

use std::sync::Arc;
use std::time::Duration;

use leasehold_sql_support::remote::{Connector, Driver, Execute, Pool, Settings, Table};

use super::flawed::{Flaw, Flawed};

/// The time limit of a call. A busy server must not exceed this limit.
const LIMIT: Duration = Duration::from_secs(60);

/// The driver of a database that can be attacked.
pub trait Target: Driver {
    /// The row of the key for the test in which a purge overtakes an acquisition, as it follows
    /// `FROM`.
    const ROW: &str;

    /// A query that counts the transactions that wait for a lock.
    const WAITING: &str;

    /// Returns the statements that create the tables.
    fn tables() -> String;

    /// Creates the statements for one server or for a cluster, on the database's clock or on a
    /// clock that jumps back by up to 3 s each time that it is read.
    fn table(clock_jumps: bool, is_in_cluster: bool) -> Box<dyn Table>;

    /// Returns the statement with the flaw.
    fn flawed(text: String, flaw: Flaw) -> String;
}

fn connector<D: Target>(url: &str) -> D::Connector {
    let servers = D::read_url(url, &mut Settings::new(LIMIT)).expect("the URL is valid");
    D::connector(servers, LIMIT)
}

pub(super) async fn connect<D: Target>(url: &str) -> <D::Connector as Connector>::Link {
    connector::<D>(url).connect().await.expect("the server accepts connections")
}

/// Returns one connection, whose statements may have a flaw.
pub(super) fn pool<D: Target>(url: &str, flaw: Option<Flaw>) -> Box<dyn Execute> {
    let connector = Flawed { inner: connector::<D>(url), flaw, edit: D::flawed };
    Box::new(Pool::new(Arc::new(connector), 1, LIMIT))
}
