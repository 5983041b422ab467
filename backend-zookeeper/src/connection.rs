//! Connects to the ensemble. Each connection leads to a single server.
//!
//! The client crate reconnects automatically, and then sends the requests that were made in the
//! meantime, even if their callers were dropped. Leasehold therefore discards a connection as soon
//! as it is lost, and the next request opens a new connection.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use leasehold_core::{Error, ErrorKind};
use tokio::runtime::Handle;
use tokio::select;
use tokio::sync::{Mutex, watch};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use zookeeper_client::{Client, Connector, Error as ClientError, SessionInfo, SessionState};

use crate::addresses::Addresses;
use crate::config::ZooKeeperConfig;
use crate::driver::Driver;
use crate::error::{self, Failure};

/// The timeout of the session for reads and watches. No lease is attached to this session. A server
/// that is silent for two fifths of this time is considered down.
const READING_SESSION: Duration = Duration::from_secs(5);

/// The shortest TTL, even if a server allows shorter TTLs. The client crate gives a connection
/// attempt two fifths of the session timeout.
pub(crate) const MIN_TTL: Duration = Duration::from_secs(1);

/// A session timeout that is longer than any server allows.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The required session timeout if no lease is attached to the session.
const ANY: Duration = Duration::ZERO;

/// The time after which a dropped request or connection attempt indicates that the server is not
/// replying. Healthy ensembles reply within milliseconds.
const SUSPICIOUS: Duration = Duration::from_millis(300);

/// The part of the time limit that may be used to detect that a server refuses connections. A
/// refusal takes one round trip, so the next server can be tried soon.
const REFUSAL: u32 = 10;

/// The pause before the next attempt if other clients use the last available connection. A client
/// needs about this time to renew a session.
const OTHERS: Duration = Duration::from_millis(10);

/// How long to wait for the last available connection. After this time, a holder gives up its main
/// connection to save time for the renewal.
const PATIENCE: Duration = Duration::from_millis(100);

/// The use of a session.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Use {
    /// A session for holders, which only their renewals keep alive.
    Locks,
    /// A session for waiters.
    Places,
}

/// The servers of an ensemble. One server is used at a time.
pub(crate) struct Servers {
    config: ZooKeeperConfig,
    addresses: Addresses,
    driver: Driver,
    /// A counter that increases with each switch to a different server.
    turn: Arc<AtomicUsize>,
    /// The connection for requests that do not use the session of a lease.
    main: Mutex<Option<Arc<Link>>>,
    closed: AtomicBool,
}

impl Servers {
    pub(crate) fn new(config: ZooKeeperConfig) -> Result<Self, Error> {
        Ok(Self {
            driver: Driver::start()?,
            addresses: Addresses::new(),
            config,
            turn: Arc::default(),
            main: Mutex::default(),
            closed: AtomicBool::new(false),
        })
    }

    pub(crate) fn config(&self) -> &ZooKeeperConfig {
        &self.config
    }

    /// Returns the time limit for a reply.
    pub(crate) fn timeout(&self) -> Duration {
        self.config.timeout
    }

    /// Returns the runtime for tasks that do not depend on a caller.
    pub(crate) fn tasks(&self) -> &Handle {
        &self.driver.handle
    }

    /// Returns the connection for requests that do not use the session of a lease.
    pub(crate) async fn main(&self) -> Result<Arc<Link>, Failure> {
        // The time limit also applies to a caller that waits for a different caller's connection
        // attempt.
        let servers = u32::try_from(self.config.servers.len()).unwrap_or(u32::MAX);
        let waited = timeout(self.config.timeout * servers, self.main.lock()).await;
        let mut main = waited.map_err(|_| Failure::ServerDown(error::unreachable()))?;
        if let Some(link) = &*main
            && link.is_alive()
        {
            return Ok(Arc::clone(link));
        }
        let link = self.connect_with_retries(&self.config.connector(READING_SESSION), ANY).await?;
        Ok(Arc::clone(main.insert(Arc::new(link))))
    }

    /// Returns the shortest and longest session timeouts that a server allows.
    ///
    /// Servers limit the number of connections per address. A new client needs two connections: the
    /// main connection, which it keeps, and a short-lived connection. New clients therefore leave
    /// the last available connection to clients that renew a lease.
    pub(crate) async fn range(&self) -> Result<(Duration, Duration), Failure> {
        self.find_room().await?;
        self.main().await?;
        let longest =
            self.connect_with_retries(&self.config.connector(DAY), ANY).await?.session_timeout();
        let began = Instant::now();
        let shortest = loop {
            // The server may still count the previous connection.
            match self.connect_with_retries(&self.config.connector(MIN_TTL), ANY).await {
                // The client crate has stopped trying before the caller's time limit, although the
                // servers have just replied.
                Err(Failure::ServerDown(_) | Failure::NoRoom(_))
                    if began.elapsed() < self.config.timeout => {}
                connected => break connected?.session_timeout(),
            }
        };
        Ok((shortest, longest))
    }

    /// Selects a server that accepts two additional connections. The check briefly uses the last
    /// available connection and does not create a session.
    async fn find_room(&self) -> Result<(), Failure> {
        let mut full = Ok(());
        for _ in 0..self.config.servers.len() {
            let turn = self.turn.load(Ordering::Relaxed);
            let server = self.server(turn);
            let addresses = timeout(self.config.timeout, self.addresses(server)).await;
            let address = addresses.ok().and_then(Result::ok).and_then(|all| all.first().cloned());
            let is_full = match address.filter(|_| self.config.resolves()) {
                Some(address) => self.driver.is_full(address, self.config.timeout / REFUSAL).await,
                None => false,
            };
            if !is_full {
                return Ok(());
            }
            full = Err(Failure::NoRoom(error::no_room()).at(server));
            self.leave(turn);
        }
        full
    }

    /// Returns the addresses of a server in the order of the attempts. With TLS, the client crate
    /// must receive the name, because it compares the name with the certificate.
    async fn addresses(&self, server: &str) -> Result<Vec<String>, Failure> {
        match self.config.resolves() {
            true => self.addresses.of(server).await,
            false => Ok(vec![server.to_owned()]),
        }
    }

    /// Creates a session. The session expires one timeout after the leader's last contact with it,
    /// even if its connection is lost.
    pub(crate) async fn begin(&self, of: Use, timeout: Duration) -> Result<Link, Failure> {
        let connector = self.config.connector(timeout).with_detached();
        let link = self.connect_for(of, &connector, timeout).await?;
        Ok(link.that_leaves_its_session())
    }

    /// Connects to a session again. If the leader then commits a write on this connection, the
    /// session time has restarted.
    pub(crate) async fn attach(
        &self,
        of: Use,
        session: &SessionInfo,
        timeout: Duration,
    ) -> Result<Link, Failure> {
        let connector = self.config.connector(timeout).with_detached();
        let connector = connector.with_session(session.clone());
        let link = self.connect_for(of, &connector, timeout).await?;
        Ok(link.that_leaves_its_session())
    }

    /// Connects on behalf of a holder. If necessary, the main connection is closed to free a slot,
    /// because leases depend on the new connection.
    async fn connect_for(
        &self,
        of: Use,
        connector: &Connector,
        least: Duration,
    ) -> Result<Link, Failure> {
        match self.connect_with_retries(connector, least).await {
            Err(Failure::NoRoom(_)) if of == Use::Locks => {
                // While the mutex is locked, the main connection cannot be reopened before this
                // connection is open.
                let mut main = timeout(PATIENCE * 2, self.main.lock()).await;
                if let Some(link) = main.as_mut().ok().and_then(|main| main.take()) {
                    link.give_up();
                }
                let link = self.connect_with_retries(connector, least).await?;
                drop(main);
                // Reopen the main connection before a new client uses the free slot. If there is no
                // free slot, the next request reopens the main connection.
                drop(timeout(OTHERS * 5, self.main()).await);
                Ok(link)
            }
            connected => connected,
        }
    }

    /// Connects. Waits briefly if other clients use the last available connection.
    async fn connect_with_retries(
        &self,
        connector: &Connector,
        least: Duration,
    ) -> Result<Link, Failure> {
        let began = Instant::now();
        loop {
            match self.connect(connector, least).await {
                Err(Failure::NoRoom(_)) if began.elapsed() < PATIENCE => sleep(OTHERS).await,
                connected => return connected,
            }
        }
    }

    /// Connects to the current server, or to the next server if the current server is unusable. The
    /// session timeout must be at least `least`.
    async fn connect(&self, connector: &Connector, least: Duration) -> Result<Link, Failure> {
        let mut unusable = None;
        for _ in 0..self.config.servers.len() {
            if self.closed.load(Ordering::Relaxed) {
                let error = Error::new(ErrorKind::Closed, "the backend was closed");
                return Err(Failure::Final(error));
            }
            let turn = self.turn.load(Ordering::Relaxed);
            let failure = match self.connect_at(turn, connector.clone(), least).await {
                Ok(link) => return Ok(link),
                Err(failure @ Failure::SessionGone(_)) => return Err(failure),
                Err(failure) => failure.at(self.server(turn)),
            };
            self.leave(turn);
            // An error that an operator must fix is more useful than a temporary error.
            if unusable.is_none() || !matches!(failure, Failure::ServerDown(_)) {
                unusable = Some(failure);
            }
        }
        Err(unusable.expect("there is a server at least"))
    }

    async fn connect_at(
        &self,
        turn: usize,
        connector: Connector,
        least: Duration,
    ) -> Result<Link, Failure> {
        let mut attempt = Attempt { servers: self, turn, began: Instant::now(), is_over: false };
        let connecting = self.reach(self.server(turn), &connector);
        let connected = timeout(self.config.timeout, connecting).await;
        attempt.is_over = true;
        let (client, task) =
            connected.unwrap_or_else(|_| Err(Failure::ServerDown(error::unreachable())))?;
        Link::new(self, turn, client, task).that_lasts(least)
    }

    /// Connects to a server at one of its addresses. The time until the session is created is
    /// divided equally among the addresses.
    async fn reach(
        &self,
        server: &str,
        connector: &Connector,
    ) -> Result<(Client, AbortHandle), Failure> {
        let ends = Instant::now() + self.config.timeout;
        let addresses = self.addresses(server).await?;
        let mut unusable = Failure::ServerDown(error::unreachable());
        for (i, address) in addresses.iter().enumerate() {
            let rest = u32::try_from(addresses.len() - i).unwrap_or(u32::MAX);
            let part = ends.saturating_duration_since(Instant::now()) / rest;
            let connecting = self.driver.connect(connector.clone(), self.config.endpoint(address));
            unusable = match timeout(part, connecting).await {
                Ok(Ok(connected)) => {
                    self.addresses.worked(server, address);
                    return Ok(connected);
                }
                Ok(Err(error)) => match error::connect(error) {
                    Failure::ServerDown(_) => {
                        self.driver.why_down(address.clone(), part / REFUSAL).await
                    }
                    failure => return Err(failure),
                },
                Err(_) => Failure::ServerDown(error::unreachable()),
            };
        }
        Err(unusable)
    }

    fn leave(&self, turn: usize) {
        leave(&self.turn, turn);
    }

    fn server(&self, turn: usize) -> &str {
        &self.config.servers[turn % self.config.servers.len()]
    }

    /// Makes all later calls fail.
    pub(crate) async fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        *self.main.lock().await = None;
    }
}

/// Switches to the next server because the server of this turn has failed.
fn leave(turns: &AtomicUsize, turn: usize) {
    let next = turn.wrapping_add(1);
    // An error means that a different caller has already switched.
    let _ = turns.compare_exchange(turn, next, Ordering::Relaxed, Ordering::Relaxed);
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Servers").field("config", &self.config).finish_non_exhaustive()
    }
}

/// A connection attempt. If the caller is dropped after a long wait, the attempt switches to the
/// next server.
struct Attempt<'a> {
    servers: &'a Servers,
    turn: usize,
    began: Instant,
    is_over: bool,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.is_over && self.began.elapsed() >= SUSPICIOUS {
            self.servers.leave(self.turn);
        }
    }
}

/// A connection and its session.
#[derive(Debug)]
pub(crate) struct Link {
    client: Client,
    task: AbortHandle,
    timeout: Duration,
    gone: watch::Sender<bool>,
    /// The current turn, and the turn in which this connection was opened.
    turns: Arc<AtomicUsize>,
    turn: usize,
    /// Whether the session stays open when the connection is dropped.
    leaves_session: bool,
}

impl Link {
    fn new(servers: &Servers, turn: usize, client: Client, task: AbortHandle) -> Self {
        let (gone, mut is_gone) = watch::channel(false);
        let turns = Arc::clone(&servers.turn);
        // The client crate would reconnect automatically.
        let mut state = client.state_watcher();
        let (lost, serving, failed) = (gone.clone(), task.clone(), Arc::clone(&turns));
        servers.tasks().spawn(async move {
            select! {
                () = until(&mut is_gone) => {}
                _ = state.changed() => {
                    give_up(&lost, &serving);
                    leave(&failed, turn);
                }
            }
        });
        let timeout = servers.config.timeout;
        Self { client, task, timeout, gone, turns, turn, leaves_session: false }
    }

    /// Rejects a server whose session timeout is too short, even for a session that was created on
    /// a different server.
    ///
    /// A longer session timeout is harmless, because shorter TTLs are rejected earlier.
    fn that_lasts(self, least: Duration) -> Result<Self, Failure> {
        let granted = self.session_timeout();
        if granted >= least {
            return Ok(self);
        }
        let message = format!(
            "the server allows a TTL of at most {granted:?}, not {least:?}; raise maxSessionTimeout in its configuration"
        );
        Err(Failure::Final(Error::new(ErrorKind::Invalid, message)))
    }

    fn that_leaves_its_session(mut self) -> Self {
        self.leaves_session = true;
        self
    }

    /// Returns the client crate's handle. Requests are sent in the order in which their futures are
    /// created.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the session timeout that the server has chosen. The server's timeout may differ from
    /// the requested timeout.
    pub(crate) fn session_timeout(&self) -> Duration {
        self.client.session_timeout()
    }

    /// Returns whether, to the client's knowledge, the connection is usable.
    pub(crate) fn is_alive(&self) -> bool {
        !*self.gone.borrow() && self.client.state() == SessionState::SyncConnected
    }

    /// Waits for the reply to a request on this connection.
    pub(crate) async fn reply<T, E>(
        &self,
        request: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Failure>
    where
        ClientError: From<E>,
    {
        let mut waiting = Waiting { link: self, began: Instant::now(), is_over: false };
        let reply = timeout(self.timeout, request).await;
        waiting.is_over = true;
        let failure = match reply {
            Ok(Ok(reply)) => return Ok(reply),
            Ok(Err(error)) => error::request(error.into()),
            Err(_) => Failure::silent(),
        };
        match failure {
            Failure::Mismatch(_) | Failure::Final(_) => {}
            Failure::SessionGone(_) => self.give_up(),
            Failure::Unknown(_) | Failure::ServerDown(_) | Failure::NoRoom(_) => {
                self.give_up();
                leave(&self.turns, self.turn);
            }
        }
        Err(failure)
    }

    /// Closes the connection without sending further data, including queued requests.
    pub(crate) fn give_up(&self) {
        give_up(&self.gone, &self.task);
    }

    /// Waits until the connection is lost or closed.
    ///
    /// After the connection is gone, the client crate's watchers panic when they are polled.
    pub(crate) async fn gone(&self) {
        until(&mut self.gone.subscribe()).await;
    }
}

/// Closes a connection. Tasks that wait for its loss are notified before the client crate's
/// watchers.
fn give_up(gone: &watch::Sender<bool>, task: &AbortHandle) {
    gone.send_replace(true);
    task.abort();
}

async fn until(gone: &mut watch::Receiver<bool>) {
    // An error means that the connection was dropped.
    drop(gone.wait_for(|gone| *gone).await);
}

impl Drop for Link {
    fn drop(&mut self) {
        // The client crate closes the session when its client is dropped.
        if self.leaves_session {
            self.give_up();
        } else {
            self.gone.send_replace(true);
        }
    }
}

/// A reply that a caller waits for. If the caller is dropped after a long wait, the connection is
/// no longer used.
struct Waiting<'a> {
    link: &'a Link,
    began: Instant,
    is_over: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.is_over && self.began.elapsed() >= SUSPICIOUS {
            self.link.give_up();
            leave(&self.link.turns, self.link.turn);
        }
    }
}

#[cfg(test)]
mod tests {
    use leasehold_testbed::ZooKeeper;
    use tokio::net::{TcpListener, TcpSocket, TcpStream};

    use super::*;

    /// A host name that the tests resolve.
    const NAME: &str = "db.example:2181";

    const TTL: Duration = Duration::from_secs(10);

    fn servers(names: &[&str], addresses: &[&str]) -> Servers {
        let config = ZooKeeperConfig::from_servers(names.iter().copied()).unwrap();
        let mut servers = Servers::new(config.timeout(TTL / 2).unwrap()).unwrap();
        servers.addresses.fixed = Some(addresses.iter().map(ToString::to_string).collect());
        servers
    }

    async fn uses_the_address_that_serves(silent: &str) {
        let zookeeper = ZooKeeper::start().await;
        let good = zookeeper.endpoints().remove(0);
        let servers = servers(&[NAME], &[silent, &good]);

        let range = servers.range().await.map_err(Failure::into_error).unwrap();

        assert!(range.0 <= TTL && TTL <= range.1, "{range:?}");
        let first = servers.addresses.of(NAME).await.map_err(Failure::into_error).unwrap();
        assert_eq!(first, [good, silent.to_owned()], "the address that responded is tried first");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_address_that_accepts_and_says_nothing_is_passed_over() {
        let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();

        uses_the_address_that_serves(&mute.local_addr().unwrap().to_string()).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_address_that_swallows_packets_is_passed_over() {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let full = socket.listen(0).unwrap();
        let address = full.local_addr().unwrap();
        // The accept queue holds one or two connections. The kernel drops all further packets.
        let mut queued = Vec::new();
        while let Ok(Ok(stream)) =
            timeout(Duration::from_millis(200), TcpStream::connect(address)).await
        {
            queued.push(stream);
        }

        uses_the_address_that_serves(&address.to_string()).await;
    }

    #[tokio::test]
    async fn an_address_that_refuses_costs_no_time() {
        let began = Instant::now();

        // There is no server at these addresses.
        let error = servers(&[NAME], &["127.0.0.1:1", "127.0.0.1:2"]).range().await.unwrap_err();

        let error = error.into_error();
        assert_eq!(error.to_string(), format!("{NAME}: connection refused"));
        assert!(began.elapsed() < TTL / 4, "{:?}", began.elapsed());
    }
}
