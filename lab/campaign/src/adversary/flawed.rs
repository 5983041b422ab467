//! Connections whose statements have a flaw.

use std::time::Duration;

use async_trait::async_trait;
use leasehold_sql_support::Call;
use leasehold_sql_support::remote::{Connector, Link, Reply, Row, RunError};

/// A wrong variant of the statements.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Flaw {
    /// Grants do not depend on the minimum token.
    WithoutMinimumToken,
    /// The minimum token is read without its lock, while a row is inserted (MySQL).
    MinimumTokenWithoutLock,
    /// The minimum token is read together with the values of an inserted row (PostgreSQL).
    TokenDrawnInValues,
    /// A grant may use the row from which a key has moved (PostgreSQL).
    WithoutMoved,
    /// A row is replaced although it has changed since it was read.
    WithoutVersion,
}

/// The condition of a swap, in both dialects.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(super) const VERSION: &str = " AND token = :old_token AND ends = :old_ends";

/// A connector or a connection that changes each statement.
pub(super) struct Flawed<T> {
    pub(super) inner: T,
    pub(super) flaw: Option<Flaw>,
    pub(super) edit: fn(String, Flaw) -> String,
}

#[async_trait]
impl<C: Connector> Connector for Flawed<C> {
    type Link = Flawed<C::Link>;

    fn address(&self) -> String {
        self.inner.address()
    }

    async fn connect(&self) -> Result<Self::Link, RunError> {
        let inner = self.inner.connect().await?;
        Ok(Flawed { inner, flaw: self.flaw, edit: self.edit })
    }
}

#[async_trait]
impl<L: Link> Link for Flawed<L> {
    fn is_usable(&self) -> bool {
        self.inner.is_usable()
    }

    async fn is_alive(&mut self, limit: Duration) -> bool {
        self.inner.is_alive(limit).await
    }

    async fn execute(&mut self, call: &Call, left: Duration) -> Result<Reply, RunError> {
        match self.flaw {
            Some(flaw) => {
                let flawed = call.edited(|text| (self.edit)(text, flaw));
                self.inner.execute(&flawed, left).await
            }
            None => self.inner.execute(call, left).await,
        }
    }

    async fn exchange(&mut self, text: String) -> Result<Vec<Row>, RunError> {
        self.inner.exchange(text).await
    }
}
