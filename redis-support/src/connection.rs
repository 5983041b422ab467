//! A connection to a server, which is opened on demand, shared by all calls, and replaced when it
//! breaks or hangs.

use std::fmt;
use std::future::{pending, poll_fn};
use std::mem;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::Poll;
use std::time::Duration;

use leasehold_core::backend::{Dial, check_io, unpoisoned};
use leasehold_core::{Error, ErrorKind};
use tokio::task::AbortHandle;
use tokio::task::coop::unconstrained;
use tokio::time::{Instant, timeout, timeout_at};

use crate::address::Address;
use crate::context::Context;
use crate::driver::{
    Access, ConnectError, Connection, Destination, Driver, Protocol, Push, Request, in_full,
};
use crate::error::{ServerError, only_asked};
use crate::reply::{Received, Reply};
use crate::shared_task::SharedTask;

/// The number of consecutive replies that must fail to arrive in time before the connection counts
/// as hung. A single late reply may be caused by a different client's slow script. TCP does not
/// detect a frozen server for minutes.
const TIMEOUTS_UNTIL_HUNG: u32 = 3;

/// How long a connection may be idle before it is checked on its next use. The server may have
/// closed the connection in the meantime. The client cannot notice that the connection was closed
/// while the connection's runtime is not running. Servers count idle time in whole seconds.
const TRUSTED_FOR: Duration = Duration::from_secs(1);

/// How long a RESP2 connection may be idle before it is checked. The time is shorter because not
/// every client crate reports the end of a RESP2 connection.
const TRUSTED_FOR_IN_RESP2: Duration = Duration::from_millis(50);

/// The role of a server, which determines the notifications that the client requests.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Role {
    /// The server stores locks.
    Store,
    /// The sentinel reports the primary.
    Sentinel,
}

/// The channel on which sentinels publish a new primary.
const SWITCH: &str = "+switch-master";

/// Manages the current connection to a server and replaces it when necessary.
pub(crate) struct ConnectionManager<D: Driver> {
    address: Address,
    access: Access,
    role: Role,
    context: Arc<Context<D>>,
    /// Whether this server supports only RESP2.
    resp2: AtomicBool,
    made: AtomicU64,
    making: SharedTask<Result<(), Arc<Error>>>,
    /// Tries the IP address of the last connection first.
    dial: Dial<Option<SocketAddr>>,
    /// The ID of the connected sentinel, if it has an ID.
    sentinel_id: Mutex<Option<Vec<u8>>>,
    current: Mutex<Option<Current<D::Connection>>>,
    /// Locked while requests are prepared and handed to the connection, so that requests that were
    /// removed from a queue are sent before all later requests.
    sending: Mutex<()>,
    /// Called before `sending` is locked, in place of other threads that send first.
    #[cfg(test)]
    before_sending: Mutex<Box<dyn FnMut() + Send>>,
}

/// A connection that is in use.
#[derive(Clone)]
pub(crate) struct Current<L> {
    number: u64,
    connection: L,
    unanswered_wait: Arc<UnansweredWait>,
    _guard: Arc<RuntimeGuard>,
}

/// A task in the runtime of a connection, which ends with the connection.
struct RuntimeGuard(AbortHandle);

impl Drop for RuntimeGuard {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Drops a connection when its runtime ends, so that no request is sent to a task that no longer
/// runs.
struct EndsWithRuntime<D: Driver> {
    manager: Weak<ConnectionManager<D>>,
    number: u64,
}

impl<D: Driver> Drop for EndsWithRuntime<D> {
    fn drop(&mut self) {
        listen(&self.manager, self.number, Push::Closed);
    }
}

/// How long a connection has been silent since its last reply.
struct UnansweredWait {
    made_at: Instant,
    /// How long the connection may be idle before it is checked.
    trusted_for: Duration,
    /// The time of the last reply, in ms since the connection was opened.
    replied_at: AtomicU64,
    timeouts: AtomicU32,
    /// The time when a caller first gave up after the last reply, or when a caller that gave up was
    /// last counted, in ms since the connection was opened. 0 if no caller has given up.
    given_up_at: AtomicU64,
}

impl UnansweredWait {
    fn new(protocol: Protocol) -> Self {
        let trusted_for = match protocol {
            Protocol::Resp2 => TRUSTED_FOR_IN_RESP2,
            Protocol::Resp3 => TRUSTED_FOR,
        };
        let (replied_at, timeouts) = (AtomicU64::new(0), AtomicU32::new(0));
        let given_up_at = AtomicU64::new(0);
        Self { made_at: Instant::now(), trusted_for, replied_at, timeouts, given_up_at }
    }

    fn now(&self) -> u64 {
        millis(self.made_at.elapsed())
    }

    /// Returns whether the connection was idle for so long that it may have ended unnoticed.
    fn is_long(&self) -> bool {
        let replied_at = self.replied_at.load(Ordering::Relaxed);
        self.now().saturating_sub(replied_at) >= millis(self.trusted_for)
    }

    fn ends(&self) {
        self.replied_at.store(self.now(), Ordering::Relaxed);
        self.timeouts.store(0, Ordering::Relaxed);
        self.given_up_at.store(0, Ordering::Relaxed);
    }

    /// Records that a reply did not arrive in time. Returns whether the connection counts as hung.
    fn is_hung_after_timeout(&self) -> bool {
        self.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= TIMEOUTS_UNTIL_HUNG
    }

    /// Records that a caller gave up before `limit`. A caller that gave up counts only if the
    /// connection has been silent for at least `limit`.
    fn is_hung_after_giving_up(&self, limit: Duration) -> bool {
        let now = self.now().max(1);
        let replace = |before| {
            self.given_up_at.compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed)
        };
        match replace(0) {
            Ok(_first) => false,
            Err(before) => {
                now.saturating_sub(before) >= millis(limit)
                    && replace(before).is_ok()
                    && self.is_hung_after_timeout()
            }
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A request in progress. If this value is dropped, the caller has given up.
struct UnderWay<'a, D: Driver> {
    manager: &'a ConnectionManager<D>,
    current: &'a Current<D::Connection>,
}

impl<D: Driver> Drop for UnderWay<'_, D> {
    fn drop(&mut self) {
        if self.current.unanswered_wait.is_hung_after_giving_up(self.manager.context.timeout) {
            self.manager.leave(self.current.number);
        }
    }
}

impl<D: Driver> ConnectionManager<D> {
    pub(crate) fn new(
        address: Address,
        access: Access,
        role: Role,
        context: &Arc<Context<D>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            address,
            access,
            role,
            context: Arc::clone(context),
            resp2: AtomicBool::new(false),
            made: AtomicU64::new(0),
            making: SharedTask::new(),
            dial: Dial::new(),
            sentinel_id: Mutex::new(None),
            current: Mutex::new(None),
            sending: Mutex::default(),
            #[cfg(test)]
            before_sending: Mutex::new(Box::new(|| ())),
        })
    }

    /// Returns an additional connection to the same server.
    pub(crate) fn another(&self) -> Arc<Self> {
        Self::new(self.address.clone(), self.access.clone(), self.role, &self.context)
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Returns the IP address of the last connection.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.dial.last().flatten()
    }

    /// Returns the name of the sentinel that was last connected. A sentinel without an ID is
    /// identified by its IP address, because several host names may lead to one sentinel.
    pub(crate) fn sentinel(&self) -> String {
        let id = unpoisoned(&self.sentinel_id).clone();
        let id = id.and_then(|id| String::from_utf8(id).ok());
        let address = || self.peer().map_or_else(|| self.address.to_string(), |ip| ip.to_string());
        id.unwrap_or_else(address)
    }

    /// Returns the time limit for a reply.
    pub(crate) fn timeout(&self) -> Duration {
        self.context.timeout
    }

    /// Returns whether the server supports requests without notifications, according to what the
    /// client knows.
    pub(crate) fn may_forgo_news(&self) -> bool {
        self.context.may_forgo_news()
    }

    /// Records that a request to the server failed, so that the primaries are queried again. A
    /// request that was rejected before it was sent does not count, for example because the queue
    /// is full.
    pub(crate) fn suspect(&self) {
        self.context.suspect();
    }

    /// Records that the server does not support requests without notifications.
    pub(crate) fn take_all_news(&self) {
        self.context.take_all_news();
    }

    /// Closes the connection. The next call opens a new connection.
    pub(crate) fn disconnect(&self) {
        let left = self.locked().take();
        // The in-process mutex is unlocked first, because closing a connection may wake other
        // tasks.
        drop(left);
    }

    /// Opens a connection, unless one is open.
    pub(crate) async fn connect(self: &Arc<Self>) -> Result<(), Error> {
        self.current().await.map(drop)
    }

    /// Sends read-only requests. If the connection has ended, the requests are retried on a new
    /// connection.
    pub(crate) async fn ask<const N: usize>(
        self: &Arc<Self>,
        questions: [Request<'_>; N],
    ) -> Result<[Received; N], Error> {
        let was_connected = self.locked().is_some();
        let asked = self.run(&questions, Duration::ZERO).await;
        if was_connected && asked.is_err() && self.locked().is_none() {
            return exactly(self.run(&questions, Duration::ZERO).await?);
        }
        exactly(asked?)
    }

    /// Sends requests in one round trip. If the server does not know one of the scripts, all
    /// requests are sent again with the scripts' sources, so a script may run twice. Returns one
    /// reply per request, in order. `more_time` extends the time limit for the replies.
    pub(crate) async fn run(
        self: &Arc<Self>,
        requests: &[Request<'_>],
        more_time: Duration,
    ) -> Result<Vec<Received>, Error> {
        let current = self.current().await?;
        let replies = self.exchange(&current, || requests.to_vec(), more_time).await?;
        if !replies.iter().any(is_unknown) {
            return Ok(replies);
        }
        let current = self.current().await?;
        self.exchange(&current, || in_full(requests.to_vec()), more_time).await
    }

    /// Calls `prepare`, and sends the returned requests in one round trip on an existing
    /// connection. Returns one reply per request, in order. If `prepare` returns no requests,
    /// nothing is sent.
    ///
    /// From the call of `prepare` until the requests are sent, no other call prepares or sends
    /// requests through this manager. Requests that `prepare` removes from a queue are therefore
    /// sent before all later requests. `prepare` must not block or call this method.
    ///
    /// The connection is dropped if the server is silent too often or is no longer the primary.
    pub(crate) async fn exchange<'a>(
        &self,
        current: &Current<D::Connection>,
        prepare: impl FnOnce() -> Vec<Request<'a>> + Send,
        more_time: Duration,
    ) -> Result<Vec<Received>, Error> {
        let time = self.context.timeout + more_time;
        let round_trip = async {
            let requests = prepare();
            let count = requests.len();
            if count == 0 {
                return Ok(Vec::new());
            }
            let replies = current.connection.send(requests).await?;
            if replies.len() == count { Ok(replies) } else { Err(incomplete()) }
        };
        let under_way = UnderWay { manager: self, current };
        // The first poll sends the requests. Tokio's cooperative budget is disabled, because an
        // exhausted budget would delay the requests until a later poll.
        let mut round_trip = pin!(unconstrained(timeout(time, round_trip)));
        let first = poll_fn(|context| {
            let _sending = self.lock_sending();
            Poll::Ready(round_trip.as_mut().poll(context))
        });
        let replies = match first.await {
            Poll::Ready(replies) => replies,
            Poll::Pending => round_trip.await,
        };
        mem::forget(under_way);
        let Ok(replies) = replies else {
            return Err(self.no_reply(current, time));
        };
        self.note_replies(current, &replies);
        replies
    }

    /// Records that the server has replied, and drops the connection if it is broken or if the
    /// server is no longer the primary.
    fn note_replies(
        &self,
        current: &Current<D::Connection>,
        replies: &Result<Vec<Received>, Error>,
    ) {
        let is_left = match replies {
            // Nothing was sent.
            Ok(replies) if replies.is_empty() => return,
            // The host name or a load balancer may now lead to a different server.
            Ok(replies) => {
                replies.iter().any(|reply| reply.as_ref().is_err_and(ServerError::is_no_primary))
            }
            Err(_broken) => true,
        };
        current.unanswered_wait.ends();
        if is_left {
            self.leave(current.number);
        }
    }

    fn no_reply(&self, current: &Current<D::Connection>, time: Duration) -> Error {
        if current.unanswered_wait.is_hung_after_timeout() {
            self.leave(current.number);
        }
        let message = format!("no reply arrived within {time:?}, so the outcome is unknown");
        Error::new(ErrorKind::Indeterminate, message)
    }

    /// Drops a connection. The next call opens a new connection.
    fn leave(&self, number: u64) {
        let left = self.locked().take_if(|current| current.number == number);
        if left.is_none() {
            return;
        }
        drop(left);
        // The server may have been replaced, or a sentinel's notification of a failover may have
        // been missed.
        self.context.suspect();
        if self.role == Role::Store {
            // Push messages may have been missed.
            self.context.news.interrupted();
        }
    }

    /// Returns the connection, or starts a task that opens it. The task continues even if its
    /// callers give up, because connecting takes several round trips and the callers may have time
    /// for only one round trip.
    pub(crate) async fn current(self: &Arc<Self>) -> Result<Current<D::Connection>, Error> {
        self.replace_if_closed().await?;
        // A second attempt is necessary if the first task ran in a runtime that has stopped.
        for _ in 0..2 {
            if let Some(current) = self.existing()? {
                return Ok(current);
            }
            check_io()?;
            // The limit is longer than an attempt, so that the attempt ends first if its runtime is
            // running.
            let limit = 2 * self.context.timeout;
            let make = || Arc::clone(self).make();
            if let Some(Err(error)) = self.making.outcome(limit, make).await {
                return Err(error.repeated());
            }
        }
        self.existing()?.ok_or_else(|| self.context.no_connection())
    }

    /// Replaces a connection that ended while it was idle, so that the next request is not lost.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unavailable`] if the server does not reply. If so, only the check was
    /// sent.
    async fn replace_if_closed(&self) -> Result<(), Error> {
        let current = self.existing()?;
        // Requests to sentinels are read-only, so they can be retried.
        let Some(current) =
            current.filter(|current| self.role == Role::Store && current.unanswered_wait.is_long())
        else {
            return Ok(());
        };
        // Every user with permissions for locks may send this command, and proxies can route the
        // command because it contains a key.
        let words = ["EXISTS", self.context.nothing()];
        let question = || vec![Request::Words(&words)];
        // The future is boxed because it is rarely used but is a part of every call.
        match Box::pin(self.exchange(&current, question, Duration::ZERO)).await {
            Err(error) if self.is_current(&current) => {
                Err(only_asked(error, "the server did not reply"))
            }
            _ => Ok(()),
        }
    }

    fn is_current(&self, current: &Current<D::Connection>) -> bool {
        self.locked().as_ref().is_some_and(|now| now.number == current.number)
    }

    async fn make(self: Arc<Self>) -> Result<(), Arc<Error>> {
        let made = self.connect_anew().await;
        made.and_then(|current| self.keep(current)).map_err(|error| {
            tracing::debug!(address = %self.address, %error, "no connection");
            Arc::new(error)
        })
    }

    /// Stores a new connection for all calls, unless the backend was closed or another connection
    /// was stored in the meantime. If two connections were opened at the same time, the first
    /// connection is kept.
    fn keep(&self, made: Current<D::Connection>) -> Result<(), Error> {
        {
            let mut current = self.locked();
            // This check must run while the mutex is locked, because closing the backend first
            // marks it as closed and then removes the connection.
            self.context.ensure_open()?;
            if current.is_some() {
                return Ok(());
            }
            *current = Some(made);
        }
        if self.role == Role::Store {
            // The server does not yet know which keys' changes it must report to this connection.
            self.context.news.interrupted();
        }
        Ok(())
    }

    fn existing(&self) -> Result<Option<Current<D::Connection>>, Error> {
        self.context.ensure_open()?;
        Ok(self.locked().clone())
    }

    async fn connect_anew(self: &Arc<Self>) -> Result<Current<D::Connection>, Error> {
        self.context.warn_if_exposed(&self.access, &self.address);
        let deadline = Instant::now() + self.context.timeout;
        let addresses = self.context.driver.addresses(&self.address);
        let found = timeout_at(deadline, addresses).await;
        let found = found.map_err(|_elapsed| self.too_late())?;
        let addresses = found.map_err(|error| self.at_address(&error))?;
        let left = deadline.saturating_duration_since(Instant::now());
        let connected = self.dial.first(addresses, left, |at| self.connect_to(at)).await;
        connected.map_err(|failures| {
            // An error that an operator must fix is more useful than a temporary error.
            let worst = failures.into_iter().min_by_key(Error::is_retryable);
            worst.unwrap_or_else(|| self.too_late())
        })
    }

    async fn connect_to(
        self: &Arc<Self>,
        at: Option<SocketAddr>,
    ) -> Result<Current<D::Connection>, Error> {
        loop {
            let (protocol, hears) = (self.protocol(), self.context.channel().is_some());
            match self.connect_with(protocol, at).await {
                Err(ConnectError::Protocol) if protocol == Protocol::Resp3 => {
                    self.fall_back_to_resp2();
                }
                // After this error, the connection is no longer usable.
                Err(ConnectError::Failed(_)) if hears && self.context.channel().is_none() => {}
                connected => return connected.map_err(|refused| self.failure(refused)),
            }
        }
    }

    fn protocol(&self) -> Protocol {
        let knows_less = self.resp2.load(Ordering::Relaxed);
        if knows_less { Protocol::Resp2 } else { self.context.protocol }
    }

    /// Switches to RESP2, because the server does not support RESP3. After the switch, a sentinel
    /// is queried as often as before, and a store no longer sends notifications.
    fn fall_back_to_resp2(&self) {
        self.resp2.store(true, Ordering::Relaxed);
        if self.role == Role::Store {
            tracing::info!(address = %self.address, "the server does not support RESP3; waiters will poll");
            self.context.stop_push();
        }
    }

    fn failure(&self, refused: ConnectError) -> Error {
        match refused {
            ConnectError::Failed(error) => self.at_address(&error),
            ConnectError::Protocol => {
                let message =
                    format!("the server at {} supports neither RESP2 nor RESP3", self.address);
                Error::new(ErrorKind::Unsupported, message)
            }
        }
    }

    /// Adds the address to an error.
    fn at_address(&self, error: &Error) -> Error {
        // Only the text is copied, because the error of a connection attempt contains neither a key
        // nor an operation.
        Error::new(error.kind(), format!("{}: {error}", self.address))
    }

    fn too_late(&self) -> Error {
        let hint = if self.context.driver.is_encrypted() {
            "; check that the server supports TLS"
        } else {
            ""
        };
        let error = self.context.no_connection();
        Error::new(error.kind(), format!("{}: {error}{hint}", self.address))
    }

    async fn connect_with(
        self: &Arc<Self>,
        protocol: Protocol,
        at: Option<SocketAddr>,
    ) -> Result<Current<D::Connection>, ConnectError> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let this = Arc::downgrade(self);
        let listener = Arc::new(move |said| listen(&this, number, said));
        let (driver, to) = (&self.context.driver, Destination { address: &self.address, at });
        let connection = driver.connect(to, &self.access, protocol, listener).await?;
        if self.role == Role::Sentinel {
            self.ask_for_id(&connection).await.map_err(ConnectError::Failed)?;
        }
        if protocol == Protocol::Resp3 {
            self.ask_for_news(&connection).await.map_err(ConnectError::Failed)?;
        }
        let ends = EndsWithRuntime { manager: Arc::downgrade(self), number };
        let waiting = tokio::spawn(async move {
            let _ends = ends;
            pending::<()>().await;
        });
        let guard = Arc::new(RuntimeGuard(waiting.abort_handle()));
        Ok(Current {
            number,
            connection,
            unanswered_wait: Arc::new(UnansweredWait::new(protocol)),
            _guard: guard,
        })
    }

    /// Queries a sentinel's ID, which does not change during a connection. Services that imitate
    /// sentinels may not have an ID.
    async fn ask_for_id(&self, connection: &D::Connection) -> Result<(), Error> {
        let question = Request::Words(&["SENTINEL", "MYID"]);
        let id = match connection.send(vec![question]).await?.remove(0) {
            Ok(Reply::Bytes(id)) => Some(id),
            Ok(_) => return Err(senseless()),
            Err(refusal) if refusal.is_unknown_to_a_sentinel() => None,
            Err(refusal) => return Err(refusal.into_error()),
        };
        *unpoisoned(&self.sentinel_id) = id;
        Ok(())
    }

    /// Enables tracking, and subscribes to the channels that this client needs.
    async fn ask_for_news(&self, connection: &D::Connection) -> Result<(), Error> {
        match self.role {
            Role::Sentinel => connection.subscribe(SWITCH).await,
            Role::Store if !self.context.has_push() => Ok(()),
            Role::Store => {
                // Tracking covers the keys that Leasehold's scripts read, and reports changes by
                // other clients. Scripts that do not need notifications opt out.
                let tracking = Request::Words(&["CLIENT", "TRACKING", "ON", "NOLOOP", "OPTOUT"]);
                if let Err(refusal) = connection.send(vec![tracking]).await?.remove(0) {
                    // After such an error, scripts would also fail on this connection. The next
                    // connection may support tracking.
                    if refusal.is_retryable() {
                        return Err(refusal.into_error());
                    }
                    tracing::info!(
                        ?refusal,
                        "the server does not send notifications; waiters will poll"
                    );
                    self.context.stop_push();
                }
                let Some(channel) = self.context.channel() else { return Ok(()) };
                connection.subscribe(channel).await.inspect_err(|error| {
                    if !error.is_retryable() {
                        tracing::info!(%error, "the server cannot notify individual waiters; released locks are left free instead");
                        self.context.stop_reservations();
                    }
                })
            }
        }
    }

    fn lock_sending(&self) -> MutexGuard<'_, ()> {
        #[cfg(test)]
        (*unpoisoned(&self.before_sending))();
        unpoisoned(&self.sending)
    }

    /// Returns whether requests are being sent.
    #[cfg(test)]
    pub(crate) fn is_sending(&self) -> bool {
        self.sending.try_lock().is_err()
    }

    /// Calls `other` each time before requests are prepared and sent, as if a different thread had
    /// run immediately before.
    #[cfg(test)]
    pub(crate) fn before_sending(&self, other: impl FnMut() + Send + 'static) {
        *unpoisoned(&self.before_sending) = Box::new(other);
    }

    fn locked(&self) -> MutexGuard<'_, Option<Current<D::Connection>>> {
        unpoisoned(&self.current)
    }
}

impl<D: Driver> fmt::Debug for ConnectionManager<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

/// Returns whether the reply means that the server does not know the script.
pub(crate) fn is_unknown(reply: &Received) -> bool {
    reply.as_ref().is_err_and(ServerError::is_no_script)
}

/// Returns the replies to exactly `N` requests.
pub(crate) fn exactly<const N: usize>(replies: Vec<Received>) -> Result<[Received; N], Error> {
    replies.try_into().map_err(|_replies| incomplete())
}

/// Returns the error for a sentinel's reply that cannot be read.
pub(crate) fn senseless() -> Error {
    Error::new(ErrorKind::Unexpected, "a sentinel sent a malformed reply")
}

/// Returns the error for missing replies. The protocol guarantees one reply per request.
fn incomplete() -> Error {
    Error::new(ErrorKind::Unexpected, "replies are missing, so the outcome is unknown")
}

/// Handles a push message from the server.
fn listen<D: Driver>(manager: &Weak<ConnectionManager<D>>, number: u64, said: Push) {
    let Some(manager) = manager.upgrade() else {
        return;
    };
    match (said, manager.role) {
        (Push::Changed(keys), _) => manager.context.news.invalidated(&keys),
        (Push::Published(message), Role::Store) => {
            manager.context.news.reserved(&message);
        }
        // All keys change after a FLUSHALL, for example.
        (Push::AllChanged, Role::Store) => manager.context.news.interrupted(),
        (Push::AllChanged | Push::Published(_), Role::Sentinel) => {
            manager.context.suspect();
            // The waiters must send their requests to the new server.
            manager.context.news.interrupted();
        }
        (Push::Closed, _) => manager.leave(number),
    }
}
