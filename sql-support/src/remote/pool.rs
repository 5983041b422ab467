//! The connections that Leasehold opens.

mod lane;
#[cfg(test)]
mod tests;

use std::fmt;
use std::iter;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::unpoisoned;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::call::Call;
use crate::failure::Failure;
use crate::remote::continued::Continued;
use crate::remote::per_runtime::{PerRuntime, turn};
use crate::remote::{Connections, Connector, Execute, Link, Reply, RunError, Urgency};
use lane::{IDLE, Lane, Step};

/// Three groups of connections: several connections for acquisitions, one for releases, and one for
/// renewals. Releases have a separate connection, so that acquisitions cannot occupy it. One
/// connection is enough for renewals, because they are sent in batches.
///
/// Each tokio runtime has its own connections, because a connection makes progress only while its
/// runtime runs.
///
/// Tasks of the pool make the connections. If a caller leaves, a task continues its exchange, so that
/// the connection can be reused.
///
/// [`Remote`](crate::Remote) creates a pool unless the application provides the connections.
pub struct Pool<C: Connector> {
    connector: Arc<C>,
    runtimes: PerRuntime<Shared<C>>,
}

/// The connections of one runtime.
struct Shared<C: Connector> {
    connector: Arc<C>,
    asks: Lane<C::Link>,
    releases: Lane<C::Link>,
    renews: Lane<C::Link>,
    /// Whether calls are executed in sessions. Becomes `false` if a session has lost its settings or
    /// its prepared statements.
    has_sessions: AtomicBool,
    limit: Duration,
    /// The task that closes idle connections, or `None` if there are none.
    closing: Mutex<Option<AbortHandle>>,
}

/// A connection for one call.
struct Borrowed<L> {
    link: L,
    lane: Urgency,
    _turn: OwnedSemaphorePermit,
}

impl<C: Connector> Pool<C> {
    /// Creates a pool with `connections` connections for acquisitions on each runtime. `limit` is the
    /// time limit for a call.
    pub fn new(connector: Arc<C>, connections: usize, limit: Duration) -> Self {
        let shared = Arc::clone(&connector);
        let create = move || Shared::new(Arc::clone(&shared), connections, limit);
        Self { connector, runtimes: PerRuntime::new(create) }
    }
}

impl<C: Connector> Shared<C> {
    fn new(connector: Arc<C>, connections: usize, limit: Duration) -> Self {
        let [asks, releases, renews] = [connections, 1, 1].map(Lane::new);
        let (has_sessions, closing) = (AtomicBool::new(true), Mutex::default());
        Self { connector, asks, releases, renews, has_sessions, limit, closing }
    }

    fn lane(&self, urgency: Urgency) -> &Lane<C::Link> {
        match urgency {
            Urgency::Asks => &self.asks,
            Urgency::Releases => &self.releases,
            Urgency::Renews => &self.renews,
        }
    }

    fn lanes(&self) -> [&Lane<C::Link>; 3] {
        [&self.asks, &self.releases, &self.renews]
    }

    /// Executes a call on a connection of this group, until `give_up`.
    async fn run_on(
        self: &Arc<Self>,
        urgency: Urgency,
        call: &Call,
        give_up: Instant,
    ) -> Result<Reply, RunError> {
        loop {
            let borrowed = self.borrow_any(urgency, give_up).await?;
            let lane = borrowed.lane;
            let exchange = Arc::clone(self).exchange(borrowed, call.clone(), give_up);
            let reply = match timeout_at(give_up, Continued::new(exchange)).await {
                Ok(Some(reply)) => reply,
                Ok(None) => continue,
                Err(elapsed) => Err(RunError::no_reply(elapsed)),
            };
            return reply.inspect_err(|error| {
                if error.failure() == Failure::Unknown {
                    // The server may be down, in which case a call would time out on each remaining
                    // idle connection.
                    self.lane(lane).disconnect();
                }
            });
        }
    }

    /// Borrows a connection from the group for `urgency`. The server may refuse further connections
    /// while locks must be renewed and released, so renewals and releases may use the other groups.
    async fn borrow_any(
        self: &Arc<Self>,
        urgency: Urgency,
        give_up: Instant,
    ) -> Result<Borrowed<C::Link>, RunError> {
        let others = [Urgency::Asks, Urgency::Renews].into_iter().filter(|&other| {
            urgency != Urgency::Asks && urgency != other && self.lane(other).has_connection()
        });
        if self.lane(urgency).has_connection() || others.clone().next().is_none() {
            return self.borrow(urgency, give_up).await;
        }
        // The new connection may take the whole time, because a pooler without a free session accepts
        // connections but does not reply.
        let now = Instant::now();
        let halfway = now + give_up.saturating_duration_since(now) / 2;
        let idle = others.clone().filter(|&other| self.lane(other).has_idle_connection());
        let attempts = iter::once((urgency, now))
            .chain(idle.map(|other| (other, now)))
            .chain(iter::once((urgency, halfway)))
            .chain(others.map(|other| (other, give_up)));
        let mut borrowed = Err(RunError::late());
        for (lane, until) in attempts {
            borrowed = self.borrow(lane, until).await;
            if borrowed.is_ok() || Instant::now() >= give_up {
                break;
            }
        }
        borrowed
    }

    async fn borrow(
        self: &Arc<Self>,
        urgency: Urgency,
        give_up: Instant,
    ) -> Result<Borrowed<C::Link>, RunError> {
        let lane = self.lane(urgency);
        // An earlier failure explains the delay.
        let late = |error: RunError| lane.failure().unwrap_or(error);
        let left = give_up.saturating_duration_since(Instant::now());
        let turn = turn(Arc::clone(&lane.turns), left).await.map_err(late)?;
        let waiting = lane.wait();
        let link = loop {
            // The future is created before the step, so that no change is missed in between.
            let change = waiting.change();
            let next = match waiting.step() {
                Step::Use(link) => break link,
                Step::Fail(error) => return Err(error),
                Step::Connect => {
                    self.connect(urgency);
                    continue;
                }
                Step::Wait(next) => next.map_or(give_up, |next| next.min(give_up)),
            };
            if let Err(elapsed) = timeout_at(next, change).await
                && Instant::now() >= give_up
            {
                return Err(late(RunError::not_sent(elapsed).at(&self.connector.address())));
            }
        };
        Ok(Borrowed { link, lane: urgency, _turn: turn })
    }

    /// Starts a task that opens a connection, which belongs to the pool and not to a caller.
    fn connect(self: &Arc<Self>, urgency: Urgency) {
        let mut attempt = Attempt { shared: Arc::clone(self), urgency, connected: None };
        tokio::spawn(async move {
            let shared = &attempt.shared;
            // The connector has a limit for the connection, which explains the failure better.
            let connected = timeout(2 * shared.limit, shared.connector.connect()).await;
            let connected = connected.unwrap_or_else(|elapsed| Err(RunError::not_sent(elapsed)));
            let address = shared.connector.address();
            attempt.connected.replace(connected.map_err(|error| error.at(&address)));
            attempt.shared.close_idle_later();
        });
    }

    /// Executes a call on a connection. Returns `None` if the server has closed the connection, in
    /// which case the call was not sent.
    async fn exchange(
        self: Arc<Self>,
        mut borrowed: Borrowed<C::Link>,
        call: Call,
        give_up: Instant,
    ) -> Option<Result<Reply, RunError>> {
        let link = &mut borrowed.link;
        if !link.is_alive(self.limit / 4).await {
            // Because one idle connection was closed, the remaining idle connections may be closed
            // too.
            self.lane(borrowed.lane).disconnect();
            return None;
        }
        let left = give_up.saturating_duration_since(Instant::now());
        if left.is_zero() {
            // The caller may have received its error, and a release may follow.
            self.lane(borrowed.lane).put_back(borrowed.link);
            return Some(Err(RunError::late()));
        }
        let reply = async {
            if self.has_sessions.load(Ordering::Relaxed) {
                return link.execute(&call, left).await;
            }
            call.reply(link.exchange(call.at(left * 4 / 5)).await?)
        };
        // The server replies within its own limit, even if the caller has less time.
        let reply = timeout(self.limit.max(left), reply).await;
        let reply = reply.unwrap_or_else(|elapsed| Err(RunError::no_reply(elapsed)));
        if !reply.as_ref().is_err_and(|error| error.failure() == Failure::Unknown) {
            self.lane(borrowed.lane).put_back(borrowed.link);
            self.close_idle_later();
        }
        Some(reply)
    }

    /// Starts the task that closes idle connections, unless the task is running.
    fn close_idle_later(self: &Arc<Self>) {
        let mut closing = unpoisoned(&self.closing);
        // The task may have ended together with its runtime.
        if closing.as_ref().is_none_or(AbortHandle::is_finished) {
            let shared = Arc::downgrade(self);
            *closing = Some(tokio::spawn(close_idle(shared)).abort_handle());
        }
    }
}

/// Closes idle connections until there are none. If the runtime ends before, closes all of them.
async fn close_idle<C: Connector>(shared: Weak<Shared<C>>) {
    let mut runtime = Ends(shared.clone());
    loop {
        sleep(IDLE / 2).await;
        let Some(shared) = shared.upgrade() else { return };
        let mut closing = unpoisoned(&shared.closing);
        let are_left = shared.lanes().map(Lane::close_idle).contains(&true);
        if !are_left {
            *closing = None;
            // A new task closes the connections that later calls put back.
            runtime.0 = Weak::new();
            return;
        }
    }
}

/// Closes the idle connections when the runtime ends and drops its tasks. The server would otherwise
/// keep connections that no call can use.
struct Ends<C: Connector>(Weak<Shared<C>>);

impl<C: Connector> Drop for Ends<C> {
    fn drop(&mut self) {
        if let Some(shared) = self.0.upgrade() {
            shared.lanes().into_iter().for_each(Lane::disconnect);
        }
    }
}

/// A connection attempt in progress.
struct Attempt<C: Connector> {
    shared: Arc<Shared<C>>,
    urgency: Urgency,
    /// The result, or `None` if the attempt's runtime shuts down.
    connected: Option<Result<C::Link, RunError>>,
}

impl<C: Connector> Drop for Attempt<C> {
    fn drop(&mut self) {
        let ended = || Err(RunError::not_sent("the runtime shuts down"));
        let connected = self.connected.take().unwrap_or_else(ended);
        let lane = self.shared.lane(self.urgency);
        lane.connected(connected);
    }
}

#[async_trait]
impl<C: Connector> Execute for Pool<C> {
    async fn execute(&self, call: &Call) -> Result<Reply, RunError> {
        let limit = self.runtimes.current()?.limit;
        self.run(call, Urgency::Asks, limit).await
    }
}

#[async_trait]
impl<C: Connector> Connections for Pool<C> {
    async fn run(&self, call: &Call, urgency: Urgency, limit: Duration) -> Result<Reply, RunError> {
        let (shared, give_up) = (&self.runtimes.current()?, Instant::now() + limit);
        let reply = shared.run_on(urgency, call, give_up).await;
        if !reply.as_ref().is_err_and(|error| error.failure() == Failure::Unprepared) {
            return reply;
        }
        if let Err(error) = &reply
            && shared.has_sessions.swap(false, Ordering::Relaxed)
        {
            tracing::info!(%error, "complete query batches are sent from now on");
        }
        shared.run_on(urgency, call, give_up).await
    }

    fn keep_for_renewals(&self, ttl: Duration) {
        if let Ok(shared) = self.runtimes.current() {
            shared.asks.keep_last(ttl);
            shared.renews.keep_last(ttl);
        }
    }

    fn disconnect(&self) {
        for shared in self.runtimes.all() {
            shared.lanes().into_iter().for_each(Lane::disconnect);
        }
    }

    async fn close(&self) {
        for shared in self.runtimes.close() {
            for lane in shared.lanes() {
                lane.turns.close();
                lane.disconnect();
            }
        }
    }
}

impl<C: Connector> fmt::Debug for Pool<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("address", &self.connector.address()).finish_non_exhaustive()
    }
}
