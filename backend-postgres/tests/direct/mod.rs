//! Connections past the backend.

use leasehold_postgres::Row;
use leasehold_postgres::tokio_postgres::{
    self, Client, Error, NoTls, SimpleQueryMessage, SimpleQueryRow,
};

/// A connection past the backend, with the default isolation of PostgreSQL.
#[derive(Debug)]
pub(crate) struct Direct(Client);

impl Direct {
    pub(crate) async fn open(url: &str) -> Self {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute("SET default_transaction_isolation = 'read committed'").await.unwrap();
        Self(client)
    }

    /// Runs a statement, and gives its rows.
    pub(crate) async fn query(&self, sql: &str) -> Result<Vec<Row>, Error> {
        let column = |row: &SimpleQueryRow, i| row.get(i).map(str::to_owned);
        let row = |message: &SimpleQueryMessage| match message {
            SimpleQueryMessage::Row(row) => Some((0..row.len()).map(|i| column(row, i)).collect()),
            _ => None,
        };
        Ok(self.0.simple_query(sql).await?.iter().filter_map(row).collect())
    }
}
