//! Implements the backend contract on etcd.

mod acquire;
mod admin;
mod attachment;
mod keyed_claim;
mod look;
mod position;
mod queued;
mod release;
mod renew;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::{
    Attempt, AttemptAll, Capabilities, Claim, Feature, Fencing, KeyWatch, Lease, LockBackend,
    Operation, Release, Renewal, StoreAdmin, Subject, check_io,
};
use leasehold_core::clock::{Clock, Instant};
use leasehold_core::{Error, LockKey};

use crate::batch::Batches;
use crate::config::EtcdConfig;
use crate::connection::Connection;
use crate::error::{BACKEND, Failure};
use crate::late_entries::LateEntries;
use crate::layout::Layout;
use crate::session::Sessions;
use crate::slots::Slots;
use crate::watch::News;

/// Locks on an etcd cluster. Clones share connections and sessions.
///
/// The crate documentation contains a complete example.
#[derive(Clone)]
pub struct EtcdBackend {
    layout: Layout,
    clock: Arc<dyn Clock>,
    slots: Arc<Slots>,
    connection: Arc<Connection>,
    batches: Batches,
    sessions: Arc<Sessions>,
    late_entries: Arc<LateEntries>,
    news: Arc<News>,
}

impl EtcdBackend {
    /// Connects to the cluster at `url`. [`EtcdConfig::from_url`] describes the URL.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`EtcdConfig::from_url`] and of [`EtcdBackend::connect_with`].
    ///
    /// # Cancel safety
    ///
    /// This function is cancel safe.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::connect_with(EtcdConfig::from_url(url)?).await
    }

    /// Connects to the cluster in `config` and checks the credentials.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unavailable`](leasehold_core::ErrorKind::Unavailable) if no member can
    /// be reached, and [`ErrorKind::Denied`](leasehold_core::ErrorKind::Denied) if the cluster
    /// rejects the credentials.
    ///
    /// # Cancel safety
    ///
    /// This function is cancel safe.
    pub async fn connect_with(config: EtcdConfig) -> Result<Self, Error> {
        let refused = |error: Error| error.with_operation(Operation::Connect).with_backend(BACKEND);
        check_io().map_err(refused)?;
        let backend = Self::connect_lazily(config);
        backend.connection.open().await.map_err(|failure| refused(failure.into_error()))?;
        Ok(backend)
    }

    /// Creates a backend that connects to the cluster in `config` on the first request. This
    /// function performs neither I/O nor checks.
    pub fn connect_lazily(config: EtcdConfig) -> Self {
        if config.exposes_password {
            tracing::warn!(
                ?config,
                "the password is sent over the network unencrypted; use etcds://"
            );
        }
        let (clock, layout) = (Arc::clone(&config.clock), config.layout.clone());
        let connection = Arc::new(Connection::new(config));
        Self {
            layout,
            slots: Arc::new(Slots::new()),
            batches: Batches::new(&connection),
            connection,
            sessions: Arc::new(Sessions::new(Arc::clone(&clock))),
            late_entries: Arc::new(LateEntries::new(Arc::clone(&clock))),
            clock,
            news: Arc::new(News::new()),
        }
    }

    /// Returns the key of one of this client's leases. If the lease has ended or a different client
    /// holds it, returns an unused key.
    pub(crate) fn entry_of(&self, lease: &Lease) -> String {
        self.slots.find(&self.layout, lease).unwrap_or_else(|| self.layout.unused())
    }

    /// Stops keeping the current sessions alive if a lease was abandoned, for example because a
    /// clone was dropped without releasing the lease. Otherwise, the renewals of other leases would
    /// keep the abandoned lease alive.
    fn doubt_strays(&self, now: Instant) {
        if self.slots.finds_strays(now) {
            self.sessions.doubt();
        }
    }

    /// Handles a lease that has no entry in the store and that no caller needs. If a late request
    /// may still create the entry, the current sessions are no longer kept alive.
    fn abandon(&self, lease: &Lease) {
        if self.late_entries.forget(lease) {
            self.sessions.doubt();
        }
        self.slots.free(lease);
    }
}

/// Returns the error of an operation on `key`.
fn context(failure: Failure, operation: Operation, key: &LockKey) -> Error {
    failure.into_error().with_operation(operation).with_key(key).with_backend(BACKEND)
}

#[async_trait]
impl LockBackend for EtcdBackend {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new(BACKEND, Fencing::Strict)
            .with(Feature::Push)
            .with(Feature::Queue)
            .with(Feature::Sessions)
            .with(Feature::SpareTokens)
            .with(Feature::Together)
            .with(Feature::Units)
            .with_ttl_range(Duration::from_secs(1), Capabilities::DEFAULT_MAX_TTL)
            .with_ttl_granularity(Duration::from_secs(1))
    }

    async fn acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        let attempt = self.acquire_claims(std::slice::from_ref(claim)).await;
        let attempt =
            attempt.map_err(|failure| context(failure, Operation::Acquire, claim.key()))?;
        Ok(match attempt {
            AttemptAll::Granted(grants) => {
                Attempt::Granted(grants.into_iter().next().expect("it is the one claim's"))
            }
            AttemptAll::Held { contention, .. } => Attempt::Held(contention),
        })
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
        let renewed = self.renew_all(std::slice::from_ref(lease)).await;
        renewed.into_iter().next().expect("one result for one lease")
    }

    async fn release(&self, lease: &Lease) -> Result<Release, Error> {
        let released = self.end(lease).await;
        released.map_err(|failure| context(failure, Operation::Release, lease.key()))
    }

    async fn acquire_all(&self, claims: &[Claim]) -> Result<AttemptAll, Error> {
        let Some(first) = claims.first() else {
            return Ok(AttemptAll::Granted(Vec::new()));
        };
        Self::ensure_possible_together(claims)?;
        let attempt = self.acquire_claims(claims).await;
        attempt.map_err(|failure| context(failure, Operation::Acquire, first.key()))
    }

    async fn renew_all(&self, leases: &[Lease]) -> Vec<Result<Renewal, Error>> {
        self.renew_leases(leases).await
    }

    fn watch(&self, subject: Subject<'_>) -> KeyWatch {
        match subject {
            Subject::Claim(claim) => self.news.watch_claim(claim),
            Subject::Lease(lease) => self.news.watch_lease(lease),
            subject => self.news.observe(&self.connection, &self.layout, subject.key()),
        }
    }

    fn admin(&self) -> Option<&dyn StoreAdmin> {
        Some(self)
    }

    fn disconnect(&self) {
        self.connection.disconnect();
    }

    async fn close(&self) {
        // While a slot is in use, an entry may be attached to a session, so the session is left to
        // expire.
        if self.slots.are_free() {
            self.sessions.end_all(&self.connection).await;
        }
        self.connection.close().await;
    }
}

impl fmt::Debug for EtcdBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdBackend").field("connection", &self.connection).finish_non_exhaustive()
    }
}
