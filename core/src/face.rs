//! What all kinds of lock have in common: a key, options, and the ways to ask.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Instant;
use crate::engine::{Engine, Locked, Request};
use crate::error::{Error, ErrorKind, Operation};
use crate::holder::Holder;
use crate::key::LockKey;
use crate::lock::Wait;
use crate::lock::guard::LockGuard;
use crate::options::LockOptions;
use crate::owner::OwnerId;

/// A lock as its face sees it. Holds no lease.
#[derive(Clone)]
pub(crate) struct Face {
    engine: Arc<Engine>,
    key: LockKey,
    options: Arc<LockOptions>,
}

impl Face {
    pub(crate) fn new(
        engine: Arc<Engine>,
        key: LockKey,
        options: LockOptions,
    ) -> Result<Self, Error> {
        let store = engine.backend().capabilities();
        options.validate(&store).map_err(|error| error.with_key(&key))?;
        Ok(Self { engine, key, options: Arc::new(options) })
    }

    pub(crate) fn with_options(self, options: LockOptions) -> Result<Self, Error> {
        Self::new(self.engine, self.key, options)
    }

    pub(crate) fn key(&self) -> &LockKey {
        &self.key
    }

    pub(crate) async fn lock(&self, owner: Option<OwnerId>) -> Result<LockGuard, Error> {
        let now = self.engine.now();
        let deadline = self.options.wait.map_or(Instant::FAR_FUTURE, |wait| now + wait);
        match self.request(owner, Wait::Until(deadline)).await? {
            Locked::Guard(guard) => Ok(guard),
            Locked::Held(holder) => {
                Err(self.timeout(holder.as_ref(), self.engine.now().since(now)))
            }
        }
    }

    pub(crate) async fn try_lock(
        &self,
        owner: Option<OwnerId>,
    ) -> Result<Option<LockGuard>, Error> {
        self.request(owner, Wait::No).await.map(Locked::guard)
    }

    pub(crate) async fn try_lock_for(
        &self,
        owner: Option<OwnerId>,
        wait: Duration,
    ) -> Result<Option<LockGuard>, Error> {
        let deadline = self.engine.now() + wait;
        self.request(owner, Wait::Until(deadline)).await.map(Locked::guard)
    }

    pub(crate) async fn try_lock_until(
        &self,
        owner: Option<OwnerId>,
        instant: std::time::Instant,
    ) -> Result<Option<LockGuard>, Error> {
        let wait = instant.saturating_duration_since(std::time::Instant::now());
        self.try_lock_for(owner, wait).await
    }

    pub(crate) async fn is_locked(&self) -> Result<bool, Error> {
        Ok(self.engine.backend().inspect(&self.key).await?.is_held())
    }

    async fn request(&self, owner: Option<OwnerId>, wait: Wait) -> Result<Locked, Error> {
        let (key, options) = (&self.key, &*self.options);
        self.engine.lock(Request { key, options, owner, wait }).await
    }

    fn timeout(&self, holder: Option<&Holder>, waited: Duration) -> Error {
        let by = match holder {
            Some(holder) => format!("held by {holder}"),
            None => "held by another".to_owned(),
        };
        let message = format!("not obtained within {waited:.1?}: {by}");
        Error::new(ErrorKind::Timeout, message)
            .with_operation(Operation::Acquire)
            .with_key(&self.key)
            .with_backend(self.engine.backend().capabilities().name())
    }
}

impl fmt::Debug for Face {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.key, f)
    }
}

impl Locked {
    fn guard(self) -> Option<LockGuard> {
        match self {
            Self::Guard(guard) => Some(guard),
            Self::Held(_) => None,
        }
    }
}
