//! A server, with one connection and pipeline for all calls and with additional connections for
//! calls that wait for replicas.

mod replication;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::Error;
use leasehold_core::backend::Lease;

use crate::address::Address;
use crate::call::Call;
use crate::connection::{ConnectionManager, Role, exactly, is_unknown};
use crate::context::Context;
use crate::driver::{Access, Driver, Request};
use crate::layout::Layout;
use crate::pipeline::{Change, Outcome, Pipeline};
use crate::renewals;
use crate::reply::Received;

use replication::WaitPool;
pub(crate) use replication::{Answer, Wait};

/// A server that stores locks.
pub(crate) struct Node<D: Driver> {
    connection: Arc<ConnectionManager<D>>,
    pipeline: Pipeline<D>,
    waiting: WaitPool<D>,
}

impl<D: Driver> Node<D> {
    pub(crate) fn new(
        address: Address,
        access: Access,
        layout: &Layout,
        context: &Arc<Context<D>>,
    ) -> Arc<Self> {
        let connection = ConnectionManager::new(address, access, Role::Store, context);
        let pipeline = Pipeline::new(&connection, layout);
        Arc::new(Self { pipeline, waiting: WaitPool::new(&connection, context), connection })
    }

    pub(crate) fn address(&self) -> &Address {
        self.connection.address()
    }

    /// Opens a connection, unless one is open.
    pub(crate) async fn connect(&self) -> Result<(), Error> {
        self.connection.connect().await
    }

    /// Closes all connections. The next call opens a new connection.
    pub(crate) fn disconnect(&self) {
        self.connection.disconnect();
        self.waiting.disconnect();
    }

    /// Sends read-only requests in one round trip. Returns one reply per request, in order.
    pub(crate) async fn ask<const N: usize>(
        &self,
        questions: [Request<'_>; N],
    ) -> Result<[Received; N], Error> {
        self.connection.ask(questions).await
    }

    /// Runs a script, and waits for replicas if `wait` is given. Concurrent scripts of different
    /// callers share the round trip.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, the script may have been sent. The
    /// script is never sent after a later request of the same caller.
    pub(crate) async fn run(&self, call: &Call, wait: Option<&Wait>) -> Result<Answer, Error> {
        if let Some(wait) = wait {
            return self.waiting.run(call, wait).await;
        }
        let Some(_alone) = self.pipeline.alone() else {
            let received = self.pipeline.submit(call)?.reply().await??.into_received()?;
            return Ok(Answer::unacknowledged(received));
        };
        let received = async {
            let mut request = Request::ByHash(call.run());
            loop {
                let current = self.connection.current().await?;
                let replies = self.connection.exchange(&current, || vec![request], Duration::ZERO);
                let [received] = exactly(replies.await?)?;
                match request {
                    Request::ByHash(run) if is_unknown(&received) => {
                        request = Request::BySource(run);
                    }
                    _ => return Ok(received),
                }
            }
        };
        received.await.map(Answer::unacknowledged).inspect_err(self.suspect())
    }

    /// Runs many scripts in as few round trips as possible. If an error occurs, replies that have
    /// already arrived are still returned.
    pub(crate) async fn run_all(&self, calls: &[&Call]) -> Vec<Result<Received, Error>> {
        let submitted: Vec<_> = calls.iter().map(|call| self.pipeline.submit(call)).collect();
        let replies =
            submitted.into_iter().map(async |submitted| submitted?.reply().await??.into_received());
        join_all(replies).await
    }

    /// Runs a script for a key that is moving to this server.
    pub(crate) async fn run_asking(&self, call: &Call) -> Result<Received, Error> {
        let requests = [Request::Words(&["ASKING"]), Request::ByHash(call.run())];
        let replies = self.connection.run(&requests, Duration::ZERO).await;
        let [asking, received] = exactly(replies.inspect_err(self.suspect())?)?;
        Ok(asking.and(received))
    }

    /// Acquires or releases a mutex as part of a batch. If there is no batch, the mutex is skipped,
    /// because the script for a single lock is faster.
    pub(crate) async fn change(&self, change: Change, lease: &Lease) -> Result<Outcome, Error> {
        self.pipeline.change(change, lease).await
    }

    /// Renews many mutexes. Returns whether each mutex was renewed. Each lease that was not renewed
    /// needs a separate script.
    pub(crate) async fn renew_all(
        &self,
        layout: &Layout,
        leases: &[&Lease],
    ) -> Result<Vec<bool>, Error> {
        let renewed = renewals::renew_all(&self.connection, layout, leases).await;
        renewed.inspect_err(self.suspect())
    }

    /// Returns a function that records a failed request to the server.
    fn suspect(&self) -> impl FnOnce(&Error) {
        |_error| self.connection.suspect()
    }
}

impl<D: Driver> fmt::Debug for Node<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.connection.fmt(f)
    }
}
