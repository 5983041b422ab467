//! One server: runs scripts on it, over one line that all calls share and more lines for calls that wait for replicas.

use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::Error;
use leasehold_core::backend::Lease;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::address::Address;
use crate::call::Call;
use crate::connection::{ConnectionManager, Role};
use crate::context::Context;
use crate::driver::{Access, Driver, Received, Request};
use crate::layout::Layout;
use crate::pipeline::{Joined, Pipeline, Wanted};
use crate::renewals;

/// How many calls may wait for replicas at a time.
const MAX_LANES: usize = 16;

/// A server that has locks.
pub(crate) struct Node<D: Driver> {
    line: Arc<ConnectionManager<D>>,
    pipeline: Arc<Pipeline<D>>,
    context: Arc<Context<D>>,
    lanes: Lanes<D>,
}

/// More lines to the same server, each for one call at a time.
struct Lanes<D: Driver> {
    permits: Semaphore,
    idle: Mutex<Vec<Arc<ConnectionManager<D>>>>,
}

impl<D: Driver> Lanes<D> {
    fn idle(&self) -> MutexGuard<'_, Vec<Arc<ConnectionManager<D>>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: Driver> Node<D> {
    pub(crate) fn new(
        address: Address,
        access: Access,
        layout: &Layout,
        context: &Arc<Context<D>>,
    ) -> Arc<Self> {
        let line = ConnectionManager::new(address, access, Role::Store, context);
        Arc::new(Self {
            pipeline: Pipeline::new(&line, layout),
            line,
            context: Arc::clone(context),
            lanes: Lanes { permits: Semaphore::new(MAX_LANES), idle: Mutex::default() },
        })
    }

    pub(crate) fn address(&self) -> &Address {
        self.line.address()
    }

    /// Connects, if that is needed.
    pub(crate) async fn connect(&self) -> Result<(), Error> {
        self.line.connect().await
    }

    /// Ends all connections. The next call makes another.
    pub(crate) fn disconnect(&self) {
        self.line.disconnect();
        let idle = mem::take(&mut *self.lanes.idle());
        // After the lock is released, since the end of a connection may wake other tasks.
        drop(idle);
    }

    /// Sends one command.
    pub(crate) async fn command(&self, words: &[&str]) -> Result<Received, Error> {
        self.line.command(words).await
    }

    /// Sends requests together; as many replies come, in their order.
    pub(crate) async fn exchange(
        &self,
        requests: Vec<Request<'_>>,
    ) -> Result<Vec<Received>, Error> {
        self.line.exchange(requests, Duration::ZERO).await
    }

    /// Runs one script.
    pub(crate) async fn call(&self, call: &Call) -> Result<Received, Error> {
        self.pipeline.run(call).await
    }

    /// Runs many scripts, in one round trip if the server knows them.
    pub(crate) async fn call_all(
        &self,
        calls: &[&Call],
    ) -> Result<Vec<Result<Received, Error>>, Error> {
        self.line.run_all(calls).await
    }

    /// Has a mutex acquired or released together with others, unless it is faster alone.
    pub(crate) fn join(&self, wanted: Wanted, lease: &Lease) -> Option<Joined> {
        self.pipeline.join(wanted, lease)
    }

    /// Renews many mutexes, and tells which of them take scripts of their own.
    pub(crate) async fn renew_all(
        &self,
        layout: &Layout,
        leases: &[&Lease],
    ) -> Result<Vec<bool>, Error> {
        renewals::renew_all(&self.line, layout, leases).await
    }

    /// Runs one script for a key that is on its way to this server.
    pub(crate) async fn call_asking(&self, call: &Call) -> Result<Received, Error> {
        let requests = [Request::Words(&["ASKING"]), Request::ByHash(call.run())];
        let [asking, received] = self.line.run(requests, Duration::ZERO).await?;
        Ok(asking.and(received))
    }

    /// Runs one script, and then `wait`, a command that the server answers when replicas have got as far, or when its `time` is
    /// up.
    ///
    /// Until then the server does nothing else for a connection, so this has one to itself.
    pub(crate) async fn call_and_wait(
        &self,
        call: &Call,
        wait: &[&str],
        time: Duration,
    ) -> Result<(Received, Received), Error> {
        let permit = timeout(self.context.timeout, self.lanes.permits.acquire()).await;
        let _permit = permit.map_err(|_elapsed| self.context.no_connection())?;
        let lane = self.lanes.idle().pop();
        let lane = lane.unwrap_or_else(|| self.line.another());
        let mut used = UsedLane { server: self, lane: Some(lane) };
        let lane = used.lane.as_ref().expect("it was put there");
        let requests = [Request::ByHash(call.run()), Request::Words(wait)];
        let answer = lane.run(requests, time).await;
        if let Some(lane) = used.lane.take() {
            self.put_back(lane);
        }
        answer.map(Into::into)
    }

    /// Keeps a lane for the next call, unless the backend was closed while it was in use.
    fn put_back(&self, lane: Arc<ConnectionManager<D>>) {
        let mut idle = self.lanes.idle();
        // With the lanes locked: a close marks the backend closed first, and then takes this lane out.
        if self.context.ensure_open().is_ok() {
            idle.push(lane);
        }
    }
}

impl<D: Driver> fmt::Debug for Node<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.line.fmt(f)
    }
}

/// A lane in use. If that is cut off, its connection ends, since the server may be busy with it for a while.
struct UsedLane<'a, D: Driver> {
    server: &'a Node<D>,
    lane: Option<Arc<ConnectionManager<D>>>,
}

impl<D: Driver> Drop for UsedLane<'_, D> {
    fn drop(&mut self) {
        if self.lane.is_some() {
            // So does its tracking of keys.
            self.server.context.news.interrupted();
        }
    }
}
