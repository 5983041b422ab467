//! Runs calls that wait for acknowledgements by replicas.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use leasehold_core::Error;
use leasehold_core::backend::unpoisoned;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::call::Call;
use crate::connection::{ConnectionManager, exactly};
use crate::context::Context;
use crate::driver::{Driver, Request};
use crate::reply::{Received, Reply};

/// The maximum number of calls that wait for replicas at the same time.
const MAX_WAITING: usize = 16;

/// The number of replicas that must acknowledge a call, and the time limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    pub(crate) replicas: u32,
    pub(crate) time: Duration,
}

/// The reply to a script, and the reply to the wait for replicas.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) received: Received,
    acknowledged: Received,
}

impl Answer {
    /// Returns the reply of a server that did not wait for replicas.
    pub(crate) fn unacknowledged(received: Received) -> Self {
        Self { received, acknowledged: Ok(Reply::Int(0)) }
    }

    /// Returns the number of replicas that have acknowledged the script.
    pub(crate) fn replicas(&self) -> Result<u32, Error> {
        match &self.acknowledged {
            Ok(Reply::Int(count)) => Ok(u32::try_from(*count).unwrap_or_default()),
            Ok(_) => Ok(0),
            Err(refusal) => Err(refusal.clone().into_error()),
        }
    }
}

/// Connections to a server, each of which serves one call at a time. While a server waits for
/// replicas, it does not process further requests on the same connection.
pub(super) struct WaitPool<D: Driver> {
    main: Arc<ConnectionManager<D>>,
    context: Arc<Context<D>>,
    permits: Semaphore,
    idle: Mutex<Vec<Arc<ConnectionManager<D>>>>,
}

impl<D: Driver> WaitPool<D> {
    /// Creates a pool of connections to the same server as `main`.
    pub(super) fn new(main: &Arc<ConnectionManager<D>>, context: &Arc<Context<D>>) -> Self {
        let (permits, idle) = (Semaphore::new(MAX_WAITING), Mutex::default());
        Self { main: Arc::clone(main), context: Arc::clone(context), permits, idle }
    }

    pub(super) fn disconnect(&self) {
        let idle = mem::take(&mut *self.idle());
        // The in-process mutex is unlocked first, because closing a connection may wake other
        // tasks.
        drop(idle);
    }

    /// Runs a script, and waits until replicas have acknowledged it or the time limit has passed.
    pub(super) async fn run(&self, call: &Call, wait: &Wait) -> Result<Answer, Error> {
        // The main connection is opened first, because holders need it to renew and release, and
        // the server may accept only one more connection.
        self.main.connect().await.inspect_err(|_error| self.context.suspect())?;
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
        let [received, acknowledged] = answer.inspect_err(|_error| self.context.suspect())?;
        Ok(Answer { received, acknowledged })
    }

    /// Keeps a connection for the next call, unless the backend was closed in the meantime.
    fn put_back(&self, connection: Arc<ConnectionManager<D>>) {
        let mut idle = self.idle();
        // This check must run while the mutex is locked, because closing the backend first marks it
        // as closed and then removes the connections.
        if self.context.ensure_open().is_ok() {
            idle.push(connection);
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Arc<ConnectionManager<D>>>> {
        unpoisoned(&self.idle)
    }
}

/// A connection in use. If the call is dropped, the connection is closed, because the server may
/// keep waiting for replicas on it for some time.
struct Used<'a, D: Driver> {
    pool: &'a WaitPool<D>,
    connection: Option<Arc<ConnectionManager<D>>>,
}

impl<D: Driver> Drop for Used<'_, D> {
    fn drop(&mut self) {
        if self.connection.is_some() {
            // Closing the connection also ends the tracking of its keys.
            self.pool.context.news.interrupted();
        }
    }
}
