//! Calls that wait until replicas have acknowledged them.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::Error;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::call::Call;
use crate::connection::{ConnectionManager, exactly};
use crate::context::Context;
use crate::driver::{Driver, Request};
use crate::reply::{Received, Reply};

/// How many calls may wait for replicas at a time.
const MAX_WAITING: usize = 16;

/// How many replicas are waited for, and how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    pub(crate) replicas: u32,
    pub(crate) time: Duration,
}

/// The reply to a script, and that to a wait for replicas.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) received: Received,
    acknowledged: Received,
}

impl Answer {
    /// The answer of a server that waited for no replica.
    pub(crate) fn unacknowledged(received: Received) -> Self {
        Self { received, acknowledged: Ok(Reply::Int(0)) }
    }

    /// How many replicas have acknowledged the script.
    pub(crate) fn replicas(&self) -> Result<u32, Error> {
        match &self.acknowledged {
            Ok(Reply::Int(count)) => Ok(u32::try_from(*count).unwrap_or_default()),
            Ok(_) => Ok(0),
            Err(refusal) => Err(refusal.clone().into_error()),
        }
    }
}

/// Connections to a server, each for one call at a time: a server does nothing else for a connection while it waits.
pub(super) struct WaitPool<D: Driver> {
    main: Arc<ConnectionManager<D>>,
    context: Arc<Context<D>>,
    permits: Semaphore,
    idle: Mutex<Vec<Arc<ConnectionManager<D>>>>,
}

impl<D: Driver> WaitPool<D> {
    /// A pool of connections to the same server as `main`.
    pub(super) fn new(main: &Arc<ConnectionManager<D>>, context: &Arc<Context<D>>) -> Self {
        let (permits, idle) = (Semaphore::new(MAX_WAITING), Mutex::default());
        Self { main: Arc::clone(main), context: Arc::clone(context), permits, idle }
    }

    pub(super) fn disconnect(&self) {
        let idle = mem::take(&mut *self.idle());
        // After the lock is released, since the end of a connection may wake other tasks.
        drop(idle);
    }

    /// Runs one script, and then waits until replicas have got as far, or the time is up.
    pub(super) async fn run(&self, call: &Call, wait: &Wait) -> Result<Answer, Error> {
        // The holder renews and releases over the main connection, which may be the last that the server allows.
        self.main.connect().await?;
        let permit = timeout(self.context.timeout, self.permits.acquire()).await;
        let _permit = permit.map_err(|_elapsed| self.context.no_connection())?;
        let idle = self.idle().pop();
        let connection = idle.unwrap_or_else(|| self.main.another());
        let mut used = Used { pool: self, connection: Some(connection) };
        let connection = used.connection.as_ref().expect("it was put there");
        let (replicas, millis) = (wait.replicas.to_string(), wait.time.as_millis().to_string());
        let wait_for = ["WAIT", &replicas, &millis];
        let requests = [Request::ByHash(call.run()), Request::Words(&wait_for)];
        let answer = connection.run(&requests, wait.time).await.and_then(exactly);
        if let Some(connection) = used.connection.take() {
            self.put_back(connection);
        }
        answer.map(|[received, acknowledged]| Answer { received, acknowledged })
    }

    /// Keeps a connection for the next call, unless the backend was closed while it was in use.
    fn put_back(&self, connection: Arc<ConnectionManager<D>>) {
        let mut idle = self.idle();
        // With the pool locked: a close marks the backend closed first, and then takes this connection out.
        if self.context.ensure_open().is_ok() {
            idle.push(connection);
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Arc<ConnectionManager<D>>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection in use. If its call is cut off it ends, since the server may be busy with it for a while.
struct Used<'a, D: Driver> {
    pool: &'a WaitPool<D>,
    connection: Option<Arc<ConnectionManager<D>>>,
}

impl<D: Driver> Drop for Used<'_, D> {
    fn drop(&mut self) {
        if self.connection.is_some() {
            // So does its tracking of keys.
            self.pool.context.news.interrupted();
        }
    }
}
