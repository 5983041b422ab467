//! One connection to a server: made when needed, shared by all calls, replaced when broken or hung.

use std::fmt;
use std::future::pending;
use std::mem;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use leasehold_core::backend::{Dial, check_io};
use leasehold_core::{Error, ErrorKind};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout, timeout_at};

use crate::address::Address;
use crate::context::Context;
use crate::driver::{
    Access, ConnectError, Connection, Destination, Driver, Protocol, Push, Request, in_full,
};
use crate::error::{ServerError, only_asked};
use crate::reply::{Received, Reply};
use crate::shared_task::SharedTask;

/// Replies in a row that do not come in time before the connection counts as hung. One may be a
/// slow script of another client; TCP itself does not notice a frozen server for minutes.
const TIMEOUTS_UNTIL_HUNG: u32 = 3;

/// A connection that was idle for so long is asked before it is used: the other side may have closed it, and nobody notices that while the
/// runtime that owns the connection is not driven. Servers count idle time in whole seconds.
const TRUSTED_FOR: Duration = Duration::from_secs(1);

/// In RESP2, not every client crate reports the end of a connection.
const TRUSTED_FOR_IN_RESP2: Duration = Duration::from_millis(50);

/// The purpose of a server, which decides the news that it is asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Role {
    /// Locks.
    Store,
    /// Where the store is.
    Sentinel,
}

/// The channel on which sentinels publish that another server has become the master.
const SWITCH: &str = "+switch-master";

/// One connection to a server, and the next one, and so on.
pub(crate) struct ConnectionManager<D: Driver> {
    address: Address,
    access: Access,
    role: Role,
    context: Arc<Context<D>>,
    /// Whether this server knows the old protocol only.
    resp2: AtomicBool,
    made: AtomicU64,
    making: SharedTask<Result<(), Arc<Error>>>,
    /// The IP address that the last connection was made to, which is tried first.
    dial: Dial<Option<SocketAddr>>,
    /// The id of the sentinel at the other end, if it has one.
    sentinel_id: Mutex<Option<Vec<u8>>>,
    current: Mutex<Option<Current<D::Connection>>>,
}

/// The connection, while it lasts.
#[derive(Clone)]
pub(crate) struct Current<L> {
    number: u64,
    connection: L,
    silence: Arc<Silence>,
    _guard: Arc<RuntimeGuard>,
}

/// A task that waits in the runtime of a connection, and ends with the connection.
struct RuntimeGuard(AbortHandle);

impl Drop for RuntimeGuard {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Gives up a connection when the runtime that owns it ends, so that no request is given to a task that is gone.
struct EndsWithRuntime<D: Driver> {
    manager: Weak<ConnectionManager<D>>,
    number: u64,
}

impl<D: Driver> Drop for EndsWithRuntime<D> {
    fn drop(&mut self) {
        listen(&self.manager, self.number, Push::Closed);
    }
}

/// The silence of a connection since its last reply.
struct Silence {
    made_at: Instant,
    /// How long the connection may be idle before it is asked whether it still works.
    trusted_for: Duration,
    /// When the last reply came, in ms since the connection was made.
    replied_at: AtomicU64,
    timeouts: AtomicU32,
    /// When a caller first gave up since then, or when that last counted: in ms since the connection was made. 0 if none did.
    given_up_at: AtomicU64,
}

impl Silence {
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

    /// Whether the connection has been idle for so long that it may have ended unnoticed.
    fn is_long(&self) -> bool {
        let replied_at = self.replied_at.load(Ordering::Relaxed);
        self.now().saturating_sub(replied_at) >= millis(self.trusted_for)
    }

    fn ends(&self) {
        self.replied_at.store(self.now(), Ordering::Relaxed);
        self.timeouts.store(0, Ordering::Relaxed);
        self.given_up_at.store(0, Ordering::Relaxed);
    }

    /// Counts a reply that did not come in time, and tells whether the connection counts as hung.
    fn is_hung_after_timeout(&self) -> bool {
        self.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= TIMEOUTS_UNTIL_HUNG
    }

    /// The same for a caller that did not wait for `limit`: such callers count once the connection has been silent for so long.
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

/// A request that is under way. If it is dropped, its caller gave up.
struct UnderWay<'a, D: Driver> {
    manager: &'a ConnectionManager<D>,
    current: &'a Current<D::Connection>,
}

impl<D: Driver> Drop for UnderWay<'_, D> {
    fn drop(&mut self) {
        if self.current.silence.is_hung_after_giving_up(self.manager.context.timeout) {
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
        })
    }

    /// Another connection to the same server.
    pub(crate) fn another(&self) -> Arc<Self> {
        Self::new(self.address.clone(), self.access.clone(), self.role, &self.context)
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// The IP address that the last connection was made to.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.dial.last().flatten()
    }

    /// The name of the sentinel that was last connected. A sentinel without an id is named by its IP address, since several host names may lead
    /// to one sentinel.
    pub(crate) fn sentinel(&self) -> String {
        let id = self.sentinel_id.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let id = id.and_then(|id| String::from_utf8(id).ok());
        let address = || self.peer().map_or_else(|| self.address.to_string(), |ip| ip.to_string());
        id.unwrap_or_else(address)
    }

    /// How long a reply may take.
    pub(crate) fn timeout(&self) -> Duration {
        self.context.timeout
    }

    /// Whether the server can be told that a request is to ask for no news, as far as is known.
    pub(crate) fn may_forgo_news(&self) -> bool {
        self.context.may_forgo_news()
    }

    /// The server does not let itself be told that.
    pub(crate) fn take_all_news(&self) {
        self.context.take_all_news();
    }

    /// Ends the connection. The next call makes another.
    pub(crate) fn disconnect(&self) {
        let left = self.locked().take();
        // After the lock is released, since the end of a connection may wake other tasks.
        drop(left);
    }

    /// Connects, if that is needed.
    pub(crate) async fn connect(self: &Arc<Self>) -> Result<(), Error> {
        self.current().await.map(drop)
    }

    /// Asks questions, which change nothing. If the connection has ended, possibly before it was used, they are repeated on a new one.
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

    /// Sends requests in one round trip, and all of them once more, in full, if the server does not know a script: so if there are several
    /// scripts, each may run twice. As many replies come, in their order. The server may take `more_time` than usual.
    pub(crate) async fn run(
        self: &Arc<Self>,
        requests: &[Request<'_>],
        more_time: Duration,
    ) -> Result<Vec<Received>, Error> {
        let current = self.current().await?;
        let replies = self.exchange(&current, requests.to_vec(), more_time).await?;
        if !replies.iter().any(is_unknown) {
            return Ok(replies);
        }
        let current = self.current().await?;
        self.exchange(&current, in_full(requests.to_vec()), more_time).await
    }

    /// Sends requests together over a connection that there is; as many replies come, in their order. Sends at once.
    ///
    /// A server that is silent too often is left, and so is one that is not the primary.
    pub(crate) async fn exchange(
        &self,
        current: &Current<D::Connection>,
        requests: Vec<Request<'_>>,
        more_time: Duration,
    ) -> Result<Vec<Received>, Error> {
        let (count, time) = (requests.len(), self.context.timeout + more_time);
        let under_way = UnderWay { manager: self, current };
        let replies = timeout(time, current.connection.send(requests)).await;
        mem::forget(under_way);
        let Ok(replies) = replies else {
            return Err(self.no_reply(current, time));
        };
        current.silence.ends();
        let is_complete = |replies: &Vec<Received>| replies.len() == count;
        let replies = replies
            .and_then(|replies| is_complete(&replies).then_some(replies).ok_or_else(incomplete));
        let is_left = match &replies {
            Ok(replies) => replies.iter().any(|reply| {
                // A name or a load balancer may lead to another server by now.
                reply.as_ref().is_err_and(ServerError::is_no_primary)
            }),
            Err(_broken) => true,
        };
        if is_left {
            self.leave(current.number);
        }
        replies
    }

    fn no_reply(&self, current: &Current<D::Connection>, time: Duration) -> Error {
        if current.silence.is_hung_after_timeout() {
            self.leave(current.number);
        }
        let message = format!("no reply within {time:?}, outcome unknown");
        Error::new(ErrorKind::Indeterminate, message)
    }

    /// Gives up a connection; the next call makes another.
    fn leave(&self, number: u64) {
        let left = self.locked().take_if(|current| current.number == number);
        if left.is_none() {
            return;
        }
        drop(left);
        // The server may have been replaced, or a sentinel have said so unheard.
        self.context.suspect();
        if self.role == Role::Store {
            // Push messages may have been missed.
            self.context.news.interrupted();
        }
    }

    /// The connection. If there is none, a task makes one, and goes on if its callers give up: a connection takes several round trips, and
    /// they may have time for one.
    pub(crate) async fn current(self: &Arc<Self>) -> Result<Current<D::Connection>, Error> {
        self.replace_if_closed().await?;
        // Once more if the task ran in a runtime that stands still or has ended.
        for _ in 0..2 {
            if let Some(current) = self.existing()? {
                return Ok(current);
            }
            check_io()?;
            // Longer than an attempt takes, so that its end comes first in a runtime that is driven.
            let limit = 2 * self.context.timeout;
            let make = || Arc::clone(self).make();
            if let Some(Err(error)) = self.making.outcome(limit, make).await {
                return Err(error.repeated());
            }
        }
        self.existing()?.ok_or_else(|| self.context.no_connection())
    }

    /// Gives up a connection that has ended while it was idle, before any request is lost on it.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unavailable`] if the server does not answer. Nothing but the question was sent.
    async fn replace_if_closed(&self) -> Result<(), Error> {
        let current = self.existing()?;
        // A sentinel is only asked questions, which may be repeated.
        let Some(current) =
            current.filter(|current| self.role == Role::Store && current.silence.is_long())
        else {
            return Ok(());
        };
        // The rights for locks allow this question, and proxies can route it, since it names a key.
        let words = ["EXISTS", self.context.nothing()];
        let question = vec![Request::Words(&words)];
        // Boxed, since it is rare, and a part of every call.
        match Box::pin(self.exchange(&current, question, Duration::ZERO)).await {
            Err(error) if self.is_current(&current) => {
                Err(only_asked(error, "the server does not answer"))
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

    /// Shares a new connection among all calls, unless the backend was closed meanwhile, or another one is shared already: if
    /// two were made at the same time, the first one counts.
    fn keep(&self, made: Current<D::Connection>) -> Result<(), Error> {
        {
            let mut current = self.locked();
            // With it locked: a close marks the backend closed first, and then takes this connection out.
            self.context.ensure_open()?;
            if current.is_some() {
                return Ok(());
            }
            *current = Some(made);
        }
        if self.role == Role::Store {
            // On this connection the server knows of no key yet that we want to hear of.
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
            // A failure that needs somebody's help says more than a passing one.
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
                // A connection on which that was refused is of no use any more.
                Err(ConnectError::Failed(_)) if hears && self.context.channel().is_none() => {}
                connected => return connected.map_err(|refused| self.failure(refused)),
            }
        }
    }

    fn protocol(&self) -> Protocol {
        let knows_less = self.resp2.load(Ordering::Relaxed);
        if knows_less { Protocol::Resp2 } else { self.context.protocol }
    }

    /// The server knows the old protocol only. A sentinel that does is asked as often as the others; a store tells no news.
    fn fall_back_to_resp2(&self) {
        self.resp2.store(true, Ordering::Relaxed);
        if self.role == Role::Store {
            tracing::info!(address = %self.address, "the server knows no RESP3: waiters will poll");
            self.context.stop_push();
        }
    }

    fn failure(&self, refused: ConnectError) -> Error {
        match refused {
            ConnectError::Failed(error) => self.at_address(&error),
            ConnectError::Protocol => {
                let message = format!("{} speaks no protocol that we know", self.address);
                Error::new(ErrorKind::Unsupported, message)
            }
        }
    }

    /// Adds the address to an error.
    fn at_address(&self, error: &Error) -> Error {
        // Nothing but the text is lost: no connection, no key, no operation of its own.
        Error::new(error.kind(), format!("{}: {error}", self.address))
    }

    fn too_late(&self) -> Error {
        let hint =
            if self.context.driver.is_encrypted() { "; does the server speak TLS?" } else { "" };
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
        Ok(Current { number, connection, silence: Arc::new(Silence::new(protocol)), _guard: guard })
    }

    /// Asks a sentinel for its id, which lasts as long as the connection. Services that answer like sentinels may have none.
    async fn ask_for_id(&self, connection: &D::Connection) -> Result<(), Error> {
        let question = Request::Words(&["SENTINEL", "MYID"]);
        let id = match connection.send(vec![question]).await?.remove(0) {
            Ok(Reply::Bytes(id)) => Some(id),
            Ok(_) => return Err(senseless()),
            Err(refusal) if refusal.is_unknown_to_a_sentinel() => None,
            Err(refusal) => return Err(refusal.into_error()),
        };
        *self.sentinel_id.lock().unwrap_or_else(PoisonError::into_inner) = id;
        Ok(())
    }

    /// Enables tracking and subscribes to the channels that this client needs.
    async fn ask_for_news(&self, connection: &D::Connection) -> Result<(), Error> {
        match self.role {
            Role::Sentinel => connection.subscribe(SWITCH).await,
            Role::Store if !self.context.has_push() => Ok(()),
            Role::Store => {
                // Tracking covers keys that our scripts read and changes by other clients; a script that needs none says so before.
                let tracking = Request::Words(&["CLIENT", "TRACKING", "ON", "NOLOOP", "OPTOUT"]);
                if let Err(refusal) = connection.send(vec![tracking]).await?.remove(0) {
                    // Then no script would run on this connection either, and the next one may well have news.
                    if refusal.is_retryable() {
                        return Err(refusal.into_error());
                    }
                    tracing::info!(?refusal, "the server sends no news: waiters will poll");
                    self.context.stop_push();
                }
                let Some(channel) = self.context.channel() else { return Ok(()) };
                connection.subscribe(channel).await.inspect_err(|error| {
                    if !error.is_retryable() {
                        tracing::info!(%error, "the server sends no offers: waiters will ask");
                        self.context.stop_offers();
                    }
                })
            }
        }
    }

    fn locked(&self) -> MutexGuard<'_, Option<Current<D::Connection>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: Driver> fmt::Debug for ConnectionManager<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

/// Whether the server did not know the script.
pub(crate) fn is_unknown(reply: &Received) -> bool {
    reply.as_ref().is_err_and(ServerError::is_no_script)
}

/// The replies to so many requests.
pub(crate) fn exactly<const N: usize>(replies: Vec<Received>) -> Result<[Received; N], Error> {
    replies.try_into().map_err(|_replies| incomplete())
}

/// The error for a sentinel's answer that cannot be read.
pub(crate) fn senseless() -> Error {
    Error::new(ErrorKind::Unexpected, "a sentinel's answer makes no sense")
}

/// The protocol promises one reply per request.
fn incomplete() -> Error {
    Error::new(ErrorKind::Unexpected, "replies are missing, outcome unknown")
}

/// Handles a push message of the server.
fn listen<D: Driver>(manager: &Weak<ConnectionManager<D>>, number: u64, said: Push) {
    let Some(manager) = manager.upgrade() else {
        return;
    };
    match (said, manager.role) {
        (Push::Changed(keys), _) => manager.context.news.invalidated(&keys),
        (Push::Published(message), Role::Store) => {
            manager.context.news.reserved(&message);
        }
        // After a FLUSHALL.
        (Push::AllChanged, Role::Store) => manager.context.news.interrupted(),
        (Push::AllChanged | Push::Published(_), Role::Sentinel) => {
            manager.context.suspect();
            // The waiters ask the new server.
            manager.context.news.interrupted();
        }
        (Push::Closed, _) => manager.leave(number),
    }
}
