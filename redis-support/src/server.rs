//! One server, and the connections to it: made when needed, shared by all calls, replaced when broken or hung.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use leasehold_core::{Error, ErrorKind};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::address::Address;
use crate::call::Call;
use crate::client::{Access, Client, Link, NoLink, Protocol, Received, Request, Said};
use crate::error::ServerError;
use crate::watch::News;

/// Replies in a row that do not come in time before the connection counts as hung. One may be a
/// slow script of somebody else's; TCP itself does not notice a frozen server for minutes.
const TIMEOUTS_UNTIL_HUNG: u32 = 3;

/// How many calls may wait for replicas at a time.
const MAX_LANES: usize = 16;

/// What all servers of a backend have in common.
pub(crate) struct Shared<C> {
    pub(crate) client: C,
    pub(crate) timeout: Duration,
    pub(crate) news: Arc<News>,
    /// Whether servers are asked to tell of changes.
    push: AtomicBool,
    /// Whether the old protocol is all that they know.
    resp2: AtomicBool,
    closed: AtomicBool,
}

impl<C: Client> Shared<C> {
    pub(crate) fn new(
        client: C,
        timeout: Duration,
        news: Arc<News>,
        push: bool,
        protocol: Protocol,
    ) -> Arc<Self> {
        let resp2 = AtomicBool::new(protocol == Protocol::Resp2);
        let (push, closed) = (AtomicBool::new(push), AtomicBool::new(false));
        Arc::new(Self { client, timeout, news, push, resp2, closed })
    }

    /// Whether servers tell of changes, as far as is known.
    pub(crate) fn has_push(&self) -> bool {
        self.push.load(Ordering::Relaxed) && self.protocol() == Protocol::Resp3
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn ensure_open(&self) -> Result<(), Error> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Closed, "the backend was closed"));
        }
        Ok(())
    }

    pub(crate) fn protocol(&self) -> Protocol {
        if self.resp2.load(Ordering::Relaxed) { Protocol::Resp2 } else { Protocol::Resp3 }
    }
}

/// What a server is asked for besides what we call, which decides what it is asked to tell unasked.
#[derive(Clone)]
pub(crate) enum Role {
    /// Locks.
    Store,
    /// Where the store is: whoever listens is told when that may have changed.
    Sentinel(Arc<dyn Fn(Hint) + Send + Sync>),
}

/// What a sentinel gives to understand.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Hint {
    /// There is another master, of one thing or another.
    Switched,
    /// The connection has ended: who knows.
    Silent,
}

/// What sentinels publish when another server has become the master.
const SWITCH: &str = "+switch-master";

/// One connection to a server, and the next one, and so on.
pub(crate) struct Server<C: Client> {
    address: Address,
    access: Access,
    role: Role,
    shared: Arc<Shared<C>>,
    /// Whoever connects holds it; the others wait for the outcome.
    connecting: tokio::sync::Mutex<()>,
    links: AtomicU64,
    state: Mutex<State<C::Link>>,
    lanes: Lanes<C>,
}

/// More connections to the same server, each for one call at a time.
struct Lanes<C: Client> {
    permits: Semaphore,
    idle: Mutex<Vec<Arc<Server<C>>>>,
}

impl<C: Client> Lanes<C> {
    fn idle(&self) -> MutexGuard<'_, Vec<Arc<Server<C>>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct State<L> {
    current: Option<Current<L>>,
    last_failure: Option<(Instant, Error)>,
}

/// The connection, while it lasts.
#[derive(Clone)]
struct Current<L> {
    number: u64,
    link: L,
    timeouts: Arc<AtomicU32>,
}

impl<C: Client> Server<C> {
    pub(crate) fn new(
        address: Address,
        access: Access,
        role: Role,
        shared: &Arc<Shared<C>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            address,
            access,
            role,
            shared: Arc::clone(shared),
            connecting: tokio::sync::Mutex::default(),
            links: AtomicU64::new(0),
            state: Mutex::new(State { current: None, last_failure: None }),
            lanes: Lanes { permits: Semaphore::new(MAX_LANES), idle: Mutex::default() },
        })
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Connects, if that is needed.
    pub(crate) async fn connect(self: &Arc<Self>) -> Result<(), Error> {
        self.current().await.map(drop)
    }

    /// Ends the connection. The next call makes another.
    pub(crate) fn disconnect(&self) {
        self.state().current = None;
        self.lanes.idle().clear();
    }

    /// Runs one script.
    pub(crate) async fn call(self: &Arc<Self>, call: &Call) -> Result<Received, Error> {
        let current = self.current().await?;
        let received = self.exchange(&current, Request::ByHash(call)).await?;
        match received {
            Err(error) if error.is_no_script() => {
                self.exchange(&current, Request::BySource(call)).await
            }
            received => Ok(received),
        }
    }

    /// Runs many scripts in one round trip; in two, if the server does not know them.
    pub(crate) async fn call_all(
        self: &Arc<Self>,
        calls: &[&Call],
    ) -> Result<Vec<Received>, Error> {
        let current = self.current().await?;
        let by_hash = calls.iter().map(|call| Request::ByHash(call)).collect();
        let mut received = self.exchange_all(&current, by_hash, Duration::ZERO).await?;
        let is_unknown = |reply: &Received| reply.as_ref().is_err_and(ServerError::is_no_script);
        let unknown: Vec<usize> =
            (0..calls.len()).filter(|index| is_unknown(&received[*index])).collect();
        if unknown.is_empty() {
            return Ok(received);
        }
        // The first call of each brings its source along, the others find it there.
        let mut known = Vec::new();
        let again = unknown.iter().map(|index| {
            let call = calls[*index];
            if known.contains(&call.script()) {
                return Request::ByHash(call);
            }
            known.push(call.script());
            Request::BySource(call)
        });
        let again = again.collect();
        let replies = self.exchange_all(&current, again, Duration::ZERO).await?;
        for (index, reply) in unknown.into_iter().zip(replies) {
            received[index] = reply;
        }
        Ok(received)
    }

    /// Runs one script for a key that is on its way to this server.
    pub(crate) async fn call_asking(self: &Arc<Self>, call: &Call) -> Result<Received, Error> {
        let current = self.current().await?;
        let asking = Request::Words(&["ASKING"]);
        for request in [Request::ByHash(call), Request::BySource(call)] {
            let replies = self.exchange_all(&current, vec![asking, request], Duration::ZERO);
            match pair(replies.await?)? {
                (Err(refusal), _) => return Ok(Err(refusal)),
                (Ok(_), Err(error)) if error.is_no_script() => {}
                (Ok(_), received) => return Ok(received),
            }
        }
        let message = "the server forgets scripts as soon as it has been told them";
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    /// Runs one script, and then `wait`, a command that the server answers when replicas have got as far, or when its `time` is
    /// up.
    ///
    /// Until then the server does nothing else for a connection, so this has one to itself.
    pub(crate) async fn call_and_wait(
        self: &Arc<Self>,
        call: &Call,
        wait: &[&str],
        time: Duration,
    ) -> Result<(Received, Received), Error> {
        let permit = timeout(self.shared.timeout, self.lanes.permits.acquire()).await;
        let _permit = permit.map_err(|_elapsed| self.no_connection())?;
        let lane = self.lanes.idle().pop();
        let lane = lane.unwrap_or_else(|| {
            Self::new(self.address.clone(), self.access.clone(), Role::Store, &self.shared)
        });
        let mut used = UsedLane { server: self, lane: Some(lane) };
        let lane = used.lane.as_ref().expect("it was put there");
        let answer = lane.exchange_and_wait(call, wait, time).await;
        self.lanes.idle().extend(used.lane.take());
        answer
    }

    async fn exchange_and_wait(
        self: &Arc<Self>,
        call: &Call,
        wait: &[&str],
        time: Duration,
    ) -> Result<(Received, Received), Error> {
        let current = self.current().await?;
        let wait = Request::Words(wait);
        let requests = vec![Request::ByHash(call), wait];
        let (received, waited) = pair(self.exchange_all(&current, requests, time).await?)?;
        match received {
            Err(error) if error.is_no_script() => {
                let requests = vec![Request::BySource(call), wait];
                pair(self.exchange_all(&current, requests, time).await?)
            }
            received => Ok((received, waited)),
        }
    }

    /// Sends one command.
    pub(crate) async fn command(self: &Arc<Self>, words: &[&str]) -> Result<Received, Error> {
        let current = self.current().await?;
        self.exchange(&current, Request::Words(words)).await
    }

    async fn exchange(
        &self,
        current: &Current<C::Link>,
        request: Request<'_>,
    ) -> Result<Received, Error> {
        let reply = self.in_time(current, Duration::ZERO, current.link.send(request)).await?;
        reply.inspect_err(|_broken| self.leave(current.number))
    }

    async fn exchange_all(
        &self,
        current: &Current<C::Link>,
        requests: Vec<Request<'_>>,
        more_time: Duration,
    ) -> Result<Vec<Received>, Error> {
        let replies = current.link.send_all(requests);
        let replies = self.in_time(current, more_time, replies).await?;
        replies.inspect_err(|_broken| self.leave(current.number))
    }

    /// Waits for a reply, but not for ever; a server that is silent too often is left.
    async fn in_time<T>(
        &self,
        current: &Current<C::Link>,
        more_time: Duration,
        reply: impl Future<Output = T>,
    ) -> Result<T, Error> {
        let time = self.shared.timeout + more_time;
        if let Ok(reply) = timeout(time, reply).await {
            current.timeouts.store(0, Ordering::Relaxed);
            return Ok(reply);
        }
        if current.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= TIMEOUTS_UNTIL_HUNG {
            self.leave(current.number);
        }
        let message = format!("no reply within {time:?}, outcome unknown");
        Err(Error::new(ErrorKind::Indeterminate, message))
    }

    /// Gives up a connection; the next call makes another.
    fn leave(&self, number: u64) {
        let mut state = self.state();
        if state.current.as_ref().is_some_and(|current| current.number == number) {
            state.current = None;
            drop(state);
            match &self.role {
                // What the server would have told may have been missed.
                Role::Store => self.shared.news.interrupted(),
                Role::Sentinel(hint) => hint(Hint::Silent),
            }
        }
    }

    async fn current(self: &Arc<Self>) -> Result<Current<C::Link>, Error> {
        if let Some(current) = self.existing()? {
            return Ok(current);
        }
        let asked_at = Instant::now();
        let turn = timeout(self.shared.timeout, self.connecting.lock()).await;
        let _turn = turn.map_err(|_elapsed| self.no_connection())?;
        if let Some(current) = self.existing()? {
            return Ok(current);
        }
        // What another call found out while this one waited for its turn to connect holds for both.
        if let Some((at, error)) = &self.state().last_failure
            && *at >= asked_at
        {
            return Err(error.repeated());
        }
        // Boxed, since it happens seldom and is as large as client crates make it.
        let connected = timeout(self.shared.timeout, Box::pin(self.connect_anew())).await;
        let connected = connected.unwrap_or_else(|_elapsed| Err(self.no_connection()));
        match &connected {
            Ok(current) => {
                self.state().current = Some(current.clone());
                if matches!(self.role, Role::Store) {
                    // On this connection the server knows of no key yet that we want to hear of.
                    self.shared.news.interrupted();
                }
            }
            Err(error) => {
                tracing::debug!(address = %self.address, %error, "no connection");
                self.state().last_failure = Some((Instant::now(), error.repeated()));
            }
        }
        connected
    }

    fn existing(&self) -> Result<Option<Current<C::Link>>, Error> {
        self.shared.ensure_open()?;
        Ok(self.state().current.clone())
    }

    fn no_connection(&self) -> Error {
        let message = format!("no connection within {:?}", self.shared.timeout);
        Error::new(ErrorKind::Unavailable, message)
    }

    async fn connect_anew(self: &Arc<Self>) -> Result<Current<C::Link>, Error> {
        let protocol = self.shared.protocol();
        match self.connect_with(protocol).await {
            Err(NoLink::Protocol) if protocol == Protocol::Resp3 => {
                tracing::info!(address = %self.address, "the server knows no RESP3: those who wait will poll");
                self.shared.resp2.store(true, Ordering::Relaxed);
                self.connect_with(Protocol::Resp2).await.map_err(|no_link| self.failure(no_link))
            }
            connected => connected.map_err(|no_link| self.failure(no_link)),
        }
    }

    fn failure(&self, no_link: NoLink) -> Error {
        match no_link {
            NoLink::Failed(error) => error,
            NoLink::Protocol => {
                let message = format!("{} speaks no protocol that we know", self.address);
                Error::new(ErrorKind::Unsupported, message)
            }
        }
    }

    async fn connect_with(
        self: &Arc<Self>,
        protocol: Protocol,
    ) -> Result<Current<C::Link>, NoLink> {
        let number = self.links.fetch_add(1, Ordering::Relaxed);
        let this = Arc::downgrade(self);
        let listener = Arc::new(move |said| listen(&this, number, said));
        let client = &self.shared.client;
        let link = client.connect(&self.address, &self.access, protocol, listener).await?;
        if protocol == Protocol::Resp3 {
            self.ask_for_news(&link).await.map_err(NoLink::Failed)?;
        }
        Ok(Current { number, link, timeouts: Arc::default() })
    }

    /// Asks the server to tell what we want to know unasked.
    async fn ask_for_news(&self, link: &C::Link) -> Result<(), Error> {
        match &self.role {
            Role::Sentinel(_) => link.subscribe(SWITCH).await,
            Role::Store if !self.shared.has_push() => Ok(()),
            Role::Store => {
                // Of keys that our scripts read, what others than us do to them.
                let tracking = Request::Words(&["CLIENT", "TRACKING", "ON", "NOLOOP"]);
                if let Err(refusal) = link.send(tracking).await? {
                    tracing::info!(?refusal, "the server tells no news: those who wait will poll");
                    self.shared.push.store(false, Ordering::Relaxed);
                }
                Ok(())
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State<C::Link>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: Client> fmt::Debug for Server<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

/// A lane in use. If that is cut off, its connection ends, since the server may be busy with it for a while.
struct UsedLane<'a, C: Client> {
    server: &'a Server<C>,
    lane: Option<Arc<Server<C>>>,
}

impl<C: Client> Drop for UsedLane<'_, C> {
    fn drop(&mut self) {
        if self.lane.is_some() {
            // So does the news of what was asked for on it.
            self.server.shared.news.interrupted();
        }
    }
}

/// What a server says unasked.
fn listen<C: Client>(server: &Weak<Server<C>>, number: u64, said: Said) {
    let Some(server) = server.upgrade() else {
        return;
    };
    match (said, &server.role) {
        (Said::Changed(keys), _) => server.shared.news.invalidated(&keys),
        // After a FLUSHALL.
        (Said::AllChanged, _) => server.shared.news.interrupted(),
        (Said::Published, Role::Sentinel(hint)) => hint(Hint::Switched),
        (Said::Published, Role::Store) => {}
        (Said::Closed, _) => server.leave(number),
    }
}

fn pair(replies: Vec<Received>) -> Result<(Received, Received), Error> {
    let replies: Result<[Received; 2], _> = replies.try_into();
    replies.map(Into::into).map_err(|_replies| incomplete())
}

/// As many replies as requests are what the protocol promises.
fn incomplete() -> Error {
    Error::new(ErrorKind::Unexpected, "replies are missing, outcome unknown")
}
