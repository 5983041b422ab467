//! Independent servers in memory that die, hang, are slow, and lose their data on command.

use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::clock::TokioClock;
use leasehold_core::{
    Attempt, Capabilities, Claim, Enlistment, Error, ErrorKind, ForcedRelease, Inspection,
    KeyWatch, Lease, LockBackend, LockClient, LockKey, LockOptions, MemoryBackend, Quorum,
    QuorumBuilder, Release, Renewal, Revocation, Standing, StoreId,
};
use tokio::time::sleep;

/// The TTL of most leases.
pub(crate) const TTL: Duration = Duration::from_secs(10);

/// The longest TTL that the quorums here allow.
pub(crate) const MAX_TTL: Duration = Duration::from_secs(20);

/// A server.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) store: MemoryBackend,
    state: Arc<Mutex<State>>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum State {
    Up,
    /// It refuses connections.
    Down,
    /// It answers nothing.
    Silent,
    /// It applies each request so late, and answers at once then.
    Slow(Duration),
}

impl Server {
    fn new() -> Self {
        let store = MemoryBackend::with_clock(TokioClock::new());
        Self { store, state: Arc::new(Mutex::new(State::Up)) }
    }

    pub(crate) fn set(&self, state: State) {
        *self.state.lock().unwrap() = state;
    }

    async fn reach(&self) -> Result<&MemoryBackend, Error> {
        let state = *self.state.lock().unwrap();
        match state {
            State::Up => {}
            State::Down => return Err(Error::new(ErrorKind::Unavailable, "connection refused")),
            State::Silent => pending().await,
            State::Slow(delay) => sleep(delay).await,
        }
        Ok(&self.store)
    }
}

#[async_trait]
impl LockBackend for Server {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        self.reach().await?.try_acquire(claim).await
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
        self.reach().await?.renew(lease).await
    }

    async fn release(&self, lease: &Lease) -> Result<Release, Error> {
        self.reach().await?.release(lease).await
    }

    fn watch(&self, key: &LockKey) -> KeyWatch {
        self.store.watch(key)
    }

    fn watch_lease(&self, lease: &Lease) -> KeyWatch {
        self.store.watch_lease(lease)
    }

    async fn inspect(&self, key: &LockKey) -> Result<Inspection, Error> {
        self.reach().await?.inspect(key).await
    }

    async fn force_release(&self, key: &LockKey) -> Result<ForcedRelease, Error> {
        self.reach().await?.force_release(key).await
    }

    async fn request_revocation(&self, key: &LockKey) -> Result<Revocation, Error> {
        self.reach().await?.request_revocation(key).await
    }

    async fn standing(&self, fresh: StoreId) -> Result<Standing, Error> {
        self.reach().await?.standing(fresh).await
    }

    async fn enlist(&self, enlistment: &Enlistment) -> Result<Standing, Error> {
        self.reach().await?.enlist(enlistment).await
    }
}

/// All servers of a quorum.
#[derive(Clone, Debug)]
pub(crate) struct Servers(pub(crate) Vec<Server>);

impl Servers {
    /// Starts so many servers without data.
    pub(crate) fn start(count: usize) -> Self {
        Self((0..count).map(|_| Server::new()).collect())
    }

    /// Starts so many servers and founds a quorum of them.
    pub(crate) async fn found(count: usize) -> Self {
        let servers = Self::start(count);
        lock_once(&servers.client()).await.unwrap();
        servers
    }

    pub(crate) fn builder(&self) -> QuorumBuilder<Server> {
        let names = ["a", "b", "c", "d", "e"].into_iter();
        Quorum::builder(names.zip(self.0.clone())).max_ttl(MAX_TTL).clock(TokioClock::new())
    }

    pub(crate) fn quorum(&self) -> Quorum<Server> {
        self.builder().build().unwrap()
    }

    /// A new client of the quorum.
    pub(crate) fn client(&self) -> LockClient<Quorum<Server>> {
        client_of(self.quorum())
    }

    /// How many servers have a lease of the key.
    pub(crate) async fn holding(&self, key: &LockKey) -> usize {
        let mut count = 0;
        for server in &self.0 {
            count += usize::from(server.store.inspect(key).await.unwrap().is_held());
        }
        count
    }
}

pub(crate) fn client_of(quorum: Quorum<Server>) -> LockClient<Quorum<Server>> {
    let options = LockOptions::new().ttl(TTL).outage_wait(Duration::ZERO);
    LockClient::builder(quorum).clock(TokioClock::new()).options(options).build().unwrap()
}

pub(crate) fn key() -> LockKey {
    LockKey::new("k").unwrap()
}

/// Locks and releases, and tells the token.
pub(crate) async fn lock_once(client: &LockClient<Quorum<Server>>) -> Result<u64, Error> {
    let guard = client.mutex(key())?.lock().await?;
    let token = guard.token().number();
    guard.release().await?;
    Ok(token)
}
