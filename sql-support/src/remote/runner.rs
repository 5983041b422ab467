//! Runs the statements of calls within their time limits.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::Error;
use tokio::time::Instant;

use crate::call::Call;
use crate::failure::Failure;
use crate::reading::Reading;
use crate::remote::{Connections, Execute, Reply, RunError, Table, Urgency, change};
use crate::rows::{Change, Clock, State};

/// Runs statements on connections.
#[derive(Clone, Debug)]
pub(super) struct Runner {
    pub(super) connections: Arc<dyn Connections>,
    pub(super) table: Arc<dyn Table>,
    pub(super) timeout: Duration,
}

/// Runs the statements of one call.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) runner: Runner,
    urgency: Urgency,
    pub(super) give_up: Instant,
}

impl Runner {
    /// Runs statements with this urgency within the time limit of one call.
    pub(super) fn within_limit(&self, urgency: Urgency) -> Running {
        Running { runner: self.clone(), urgency, give_up: Instant::now() + self.timeout }
    }
}

impl Running {
    pub(super) async fn change<T, F>(
        &self,
        request: &Change,
        known: Option<Reading>,
        step: F,
    ) -> Result<T, Error>
    where
        T: Send,
        F: FnMut(&mut [State], Clock) -> Result<T, Error> + Send,
    {
        change(&*self.runner.table, self, request, known, self.give_up, step).await
    }
}

#[async_trait]
impl Execute for Running {
    /// Retries a transaction that was rolled back because of a conflict, unless more time has passed
    /// than is left. A conflict may be a wait for a row, which takes at least one second on MySQL. If
    /// the client gave up during a second wait, the outcome would be unknown.
    async fn execute(&self, call: &Call) -> Result<Reply, RunError> {
        let begun_at = Instant::now();
        let left = || self.give_up.saturating_duration_since(Instant::now());
        let escaped = self.runner.table.escapes_texts().then(|| call.escaped());
        let call = escaped.as_ref().unwrap_or(call);
        let mut tries = 1;
        loop {
            let reply = self.runner.connections.run(call, self.urgency, left()).await;
            let is_conflict = matches!(&reply, Err(error) if error.failure() == Failure::Conflict);
            if !is_conflict || tries == TRIES || left() < begun_at.elapsed() {
                return reply;
            }
            tries += 1;
        }
    }
}

/// The maximum number of executions of a transaction. A database rolls back a deadlock victim
/// completely. Under contention, InnoDB may choose the same victim several times in a row.
const TRIES: usize = 5;
