//! Connections to several servers of one database.

use async_trait::async_trait;
use leasehold_sql_support::Call;
use leasehold_sql_support::remote::{Execute, Reply, RunError};

/// Executes each statement on a random server.
#[derive(Debug)]
pub(super) struct Spread(pub(super) Vec<Box<dyn Execute>>);

#[async_trait]
impl Execute for Spread {
    async fn execute(&self, call: &Call) -> Result<Reply, RunError> {
        self.0[fastrand::usize(..self.0.len())].execute(call).await
    }
}
