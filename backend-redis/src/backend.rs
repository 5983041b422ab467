//! The contract, on Redis.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use leasehold_core::{
    Attempt, AttemptAll, Capabilities, Claim, Error, ErrorKind, Feature, Fencing, ForcedRelease,
    Inspection, KeyWatch, Lease, LockBackend, LockKey, Operation, Release, Renewal, Revocation,
};
use leasehold_redis_support::{
    Call, Layout, News as Concerns, decode_attempt, decode_attempt_all, decode_forced_release,
    decode_inspection, decode_release, decode_renewal, decode_revocation,
};

use crate::config::RedisConfig;
use crate::connection::{Connection, Received};
use crate::error::BACKEND;
use crate::watch::News;

/// Locks on one Redis or Valkey server. Clones share one connection.
#[derive(Clone)]
pub struct RedisBackend {
    address: Arc<str>,
    layout: Layout,
    news: Arc<News>,
    connection: Arc<Connection>,
}

impl RedisBackend {
    /// Connects to the server at `url`, see [`RedisConfig::from_url`].
    ///
    /// # Errors
    ///
    /// Those of [`RedisConfig::from_url`] and [`RedisBackend::connect_with`].
    ///
    /// # Cancel safety
    ///
    /// Safe to drop.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::connect_with(RedisConfig::from_url(url)?).await
    }

    /// Connects to the server of `config`, to find out now whether it is there and lets us in.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`](leasehold_core::ErrorKind::Unavailable) if it cannot be reached,
    /// [`ErrorKind::Denied`](leasehold_core::ErrorKind::Denied) if it does not let us in.
    ///
    /// # Cancel safety
    ///
    /// Safe to drop.
    pub async fn connect_with(config: RedisConfig) -> Result<Self, Error> {
        let backend = Self::connect_lazily(config);
        let connected = backend.connection.ensure().await;
        connected
            .map_err(|error| error.with_operation(Operation::Connect).with_backend(BACKEND))?;
        Ok(backend)
    }

    /// Connects to the server of `config` when the first lock is taken. Nothing is checked before.
    pub fn connect_lazily(config: RedisConfig) -> Self {
        let address = config.address().into();
        if config.exposes_password() {
            tracing::warn!(%address, "the password crosses the network in the clear: use rediss://");
        }
        let layout = config.layout.clone();
        let news = Arc::new(News::new(layout.clone()));
        let connection = Connection::new(config, Arc::clone(&news));
        Self { address, layout, news, connection }
    }

    /// Tells those of this process who wait that a renewal may have given units back.
    fn renewed(&self, lease: &Lease) {
        if !lease.share().is_whole() {
            self.news.changed(lease.key(), Concerns::Waiters);
        }
    }

    async fn call<T>(
        &self,
        operation: Operation,
        key: &LockKey,
        call: Call,
        decode: impl FnOnce(Received) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let decoded = self.connection.call(&call).await.and_then(decode);
        decoded.map_err(|error| context(error, operation, key))
    }
}

fn context(error: Error, operation: Operation, key: &LockKey) -> Error {
    error.with_operation(operation).with_key(key).with_backend(BACKEND)
}

#[async_trait]
impl LockBackend for RedisBackend {
    fn capabilities(&self) -> Capabilities {
        let capabilities = Capabilities::new(BACKEND, Fencing::BestEffort)
            .with(Feature::ForceRelease)
            .with(Feature::Inspect)
            .with(Feature::Queue)
            .with(Feature::Revocation)
            .with(Feature::Together)
            .with(Feature::Units);
        if self.connection.has_push() { capabilities.with(Feature::Push) } else { capabilities }
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        let call = Call::acquire(&self.layout, claim);
        let attempt = self.call(Operation::Acquire, claim.key(), call, decode_attempt).await?;
        let share = claim.share();
        if matches!(attempt, Attempt::Granted(_)) && share.is_exclusive() && !share.is_whole() {
            // Those who observe an election hear of who is elected.
            self.news.changed(claim.key(), Concerns::Waiters);
        }
        Ok(attempt)
    }

    async fn try_acquire_all(&self, claims: &[Claim]) -> Result<AttemptAll, Error> {
        let Some(first) = claims.first() else {
            return Ok(AttemptAll::Granted(Vec::new()));
        };
        let Some(call) = Call::acquire_all(&self.layout, claims) else {
            let message =
                format!("one request acquires mutexes, and at most {} of them", Call::MAX_TOGETHER);
            let error = Error::new(ErrorKind::Unsupported, message);
            return Err(context(error, Operation::Acquire, first.key()));
        };
        let decode = |received| decode_attempt_all(received, claims);
        self.call(Operation::Acquire, first.key(), call, decode).await
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
        let call = Call::renew(&self.layout, lease);
        let renewal = self.call(Operation::Renew, lease.key(), call, decode_renewal).await;
        self.renewed(lease);
        renewal
    }

    async fn release(&self, lease: &Lease) -> Result<Release, Error> {
        let call = Call::release(&self.layout, lease);
        let release = self.call(Operation::Release, lease.key(), call, decode_release).await?;
        // Also if only a place in the queue was given up.
        self.news.changed(lease.key(), Concerns::Waiters);
        Ok(release)
    }

    async fn renew_all(&self, leases: &[Lease]) -> Vec<Result<Renewal, Error>> {
        let calls: Vec<Call> =
            leases.iter().map(|lease| Call::renew(&self.layout, lease)).collect();
        let replies: Vec<_> = match self.connection.call_all(&calls).await {
            Ok(replies) => replies.into_iter().map(decode_renewal).collect(),
            // What failed a whole batch failed each of its parts.
            Err(error) => leases.iter().map(|_lease| Err(error.repeated())).collect(),
        };
        let with_context = |(renewal, lease): (Result<_, Error>, &Lease)| {
            self.renewed(lease);
            renewal.map_err(|error| context(error, Operation::Renew, lease.key()))
        };
        replies.into_iter().zip(leases).map(with_context).collect()
    }

    fn watch(&self, key: &LockKey) -> KeyWatch {
        self.news.watch(key)
    }

    fn watch_lease(&self, lease: &Lease) -> KeyWatch {
        self.news.watch_lease(lease.key())
    }

    async fn inspect(&self, key: &LockKey) -> Result<Inspection, Error> {
        let call = Call::inspect(&self.layout, key);
        self.call(Operation::Inspect, key, call, decode_inspection).await
    }

    async fn force_release(&self, key: &LockKey) -> Result<ForcedRelease, Error> {
        let call = Call::force_release(&self.layout, key);
        let forced = self.call(Operation::ForceRelease, key, call, decode_forced_release).await?;
        self.news.changed(key, Concerns::Lock);
        Ok(forced)
    }

    async fn request_revocation(&self, key: &LockKey) -> Result<Revocation, Error> {
        let call = Call::request_revocation(&self.layout, key);
        let revocation = self.call(Operation::Revoke, key, call, decode_revocation).await?;
        self.news.changed(key, Concerns::Holders);
        Ok(revocation)
    }

    async fn close(&self) {
        self.connection.close();
    }
}

impl fmt::Debug for RedisBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBackend")
            .field("address", &self.address)
            .field("layout", &self.layout)
            .finish_non_exhaustive()
    }
}
