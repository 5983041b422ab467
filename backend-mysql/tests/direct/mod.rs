//! Connections past the backend.

use leasehold_mysql::Row;
use leasehold_mysql::mysql_async::prelude::Queryable;
use leasehold_mysql::mysql_async::{self, Conn, Error, Opts, from_value};
use tokio::sync::Mutex;

/// A connection past the backend.
pub(crate) struct Direct(Mutex<Conn>);

impl Direct {
    pub(crate) async fn open(url: &str) -> Self {
        Self(Mutex::new(Conn::new(Opts::from_url(url).unwrap()).await.unwrap()))
    }

    /// Runs a statement, and gives its rows.
    pub(crate) async fn query(&self, sql: &str) -> Result<Vec<Row>, Error> {
        let row = |row: mysql_async::Row| row.unwrap().into_iter().map(from_value).collect();
        self.0.lock().await.query_map(sql, row).await
    }
}
