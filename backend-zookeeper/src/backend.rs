//! Implements the backend contract on ZooKeeper.

mod acquire;
mod admin;
mod look;
mod queued;
mod release;
mod relocate;
mod renew;
mod trial;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::{
    Attempt, Capabilities, Claim, Feature, Fencing, KeyWatch, Lease, LockBackend, Operation,
    Release, Renewal, StoreAdmin, Subject, check_io,
};
use leasehold_core::clock::{Clock, Instant};
use leasehold_core::{Error, LockKey};

use crate::claims::Claims;
use crate::config::ZooKeeperConfig;
use crate::connection::Servers;
use crate::error::{BACKEND, Failure};
use crate::layout::Layout;
use crate::name::State;
use crate::session::Sessions;
use crate::watch::News;

/// Locks on a ZooKeeper ensemble. Clones share connections and sessions.
///
/// The crate documentation contains a complete example.
#[derive(Clone)]
pub struct ZooKeeperBackend {
    layout: Layout,
    clock: Arc<dyn Clock>,
    servers: Arc<Servers>,
    sessions: Arc<Sessions>,
    claims: Arc<Claims>,
    news: Arc<News>,
    /// The shortest and longest session timeouts that the servers allow.
    range: (Duration, Duration),
}

impl ZooKeeperBackend {
    /// Connects to the ensemble at `url`. [`ZooKeeperConfig::from_url`] describes the URL.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`ZooKeeperConfig::from_url`] and of
    /// [`ZooKeeperBackend::connect_with`].
    ///
    /// # Cancel safety
    ///
    /// This function is cancel safe.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::connect_with(ZooKeeperConfig::from_url(url)?).await
    }

    /// Connects to the ensemble in `config`, checks the credentials, and determines which TTLs the
    /// ensemble supports.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unavailable`](leasehold_core::ErrorKind::Unavailable) if no server can
    /// be reached that is connected to a majority of the ensemble. Returns
    /// [`ErrorKind::Denied`](leasehold_core::ErrorKind::Denied) if the ensemble rejects the
    /// credentials.
    ///
    /// # Cancel safety
    ///
    /// This function is cancel safe.
    pub async fn connect_with(config: ZooKeeperConfig) -> Result<Self, Error> {
        if config.exposes_password {
            tracing::warn!(
                ?config,
                "the password is sent over the network unencrypted; use zookeepers://"
            );
        }
        let (layout, clock) = (config.layout.clone(), Arc::clone(&config.clock));
        let refused = |error: Error| error.with_operation(Operation::Connect).with_backend(BACKEND);
        check_io().map_err(refused)?;
        let servers = Arc::new(Servers::new(config)?);
        let range = servers.range().await.map_err(|failure| refused(failure.into_error()))?;
        Ok(Self {
            layout,
            sessions: Arc::new(Sessions::new(Arc::clone(&clock))),
            claims: Arc::new(Claims::new()),
            news: Arc::new(News::new(Arc::clone(&servers))),
            clock,
            servers,
            range,
        })
    }

    /// Stops keeping the current sessions alive if a lease was abandoned, for example because a
    /// clone was dropped without releasing the lease.
    fn doubt_strays(&self, now: Instant) {
        if self.claims.finds_strays(now) {
            self.sessions.doubt();
        }
    }

    /// Returns a watch of a lease. If this client knows that the lease is held, its node is watched
    /// from now on.
    fn watch_held(&self, lease: &Lease) -> KeyWatch {
        let watch = self.news.watch_lease(lease);
        if let Some(known) = self.claims.find(lease).filter(|known| known.state == State::Held)
            && let Some(name) = known.name
        {
            self.news.holds(lease, self.layout.node(lease.key(), &name));
        }
        watch
    }
}

/// Returns the error of an operation on `key`.
fn context(failure: Failure, operation: Operation, key: &LockKey) -> Error {
    failure.into_error().with_operation(operation).with_key(key).with_backend(BACKEND)
}

#[async_trait]
impl LockBackend for ZooKeeperBackend {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new(BACKEND, Fencing::Strict)
            .with(Feature::Push)
            .with(Feature::Queue)
            .with(Feature::Sessions)
            .with(Feature::SpareTokens)
            .with(Feature::Units)
            .with_ttl_range(self.range.0, self.range.1)
            .with_ttl_granularity(self.servers.config().tick)
    }

    async fn acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        let attempt = self.acquire_claim(claim).await;
        attempt.map_err(|failure| context(failure, Operation::Acquire, claim.key()))
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
        let renewed = self.renew_all(std::slice::from_ref(lease)).await;
        renewed.into_iter().next().expect("one result for one lease")
    }

    async fn release(&self, lease: &Lease) -> Result<Release, Error> {
        let released = self.end(lease).await;
        released.map_err(|failure| context(failure, Operation::Release, lease.key()))
    }

    async fn renew_all(&self, leases: &[Lease]) -> Vec<Result<Renewal, Error>> {
        self.renew_leases(leases).await
    }

    fn watch(&self, subject: Subject<'_>) -> KeyWatch {
        match subject {
            Subject::Claim(claim) => self.news.watch_claim(claim),
            Subject::Lease(lease) => self.watch_held(lease),
            subject => self.news.observe(&self.layout, subject.key()),
        }
    }

    fn admin(&self) -> Option<&dyn StoreAdmin> {
        Some(self)
    }

    async fn close(&self) {
        self.servers.close().await;
    }
}

impl fmt::Debug for ZooKeeperBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZooKeeperBackend").field("servers", &self.servers).finish_non_exhaustive()
    }
}
