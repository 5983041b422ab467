//! Faulty backends. A campaign that does not find their flaws proves nothing about other stores.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use clap::ValueEnum;
use futures_util::future::join_all;
use leasehold_core::backend::{
    Attempt, Capabilities, Claim, Contention, Feature, Grant, Layer, Lease, LockBackend, Mode,
    Renewal, Reply, Request,
};
use leasehold_core::{Error, LockKey};
use tokio::time::sleep;

/// A flaw that clients or stores of distributed locks have had.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Flaw {
    /// The store grants half of the claims for keys that other clients hold.
    SecondGrants,
    /// The store reports renewals as successful without extending the leases.
    EmptyRenewals,
    /// Leases expire after a quarter of their TTL.
    ShortLeases,
    /// The store grants only one permit of several requested permits.
    SingleUnits,
    /// A refused claim ends the leases on its key.
    Evictions,
    /// All grants of a key to one process have the same token.
    StaleTokens,
    /// Some replies are up to a TTL late. A client that calculates deadlines from the time of the request is not affected.
    LateReplies,
}

/// A backend with a flaw.
#[derive(Debug)]
struct FaultyBackend {
    inner: Arc<dyn LockBackend>,
    flaw: Flaw,
    /// The first token of each key.
    tokens: Mutex<HashMap<LockKey, NonZeroU64>>,
}

/// Wraps `store` in a backend with the flaw of this name, if there is one.
///
/// # Panics
///
/// Panics if no flaw has this name.
pub fn with_flaw(store: Arc<dyn LockBackend>, flaw: Option<&str>) -> Arc<dyn LockBackend> {
    match flaw {
        Some(name) => {
            let flaw = Flaw::from_str(name, false).expect("parents and children share the names");
            Arc::new(FaultyBackend::new(store, flaw))
        }
        None => store,
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.to_possible_value().expect("all flaws have names");
        f.write_str(name.get_name())
    }
}

impl FaultyBackend {
    fn new(inner: Arc<dyn LockBackend>, flaw: Flaw) -> Self {
        Self { inner, flaw, tokens: Mutex::default() }
    }

    /// Returns the lease that the store receives.
    fn lease_for(&self, lease: &Lease) -> Lease {
        let lease = lease.clone();
        match (self.flaw, lease.mode()) {
            (Flaw::ShortLeases, _) => {
                let ttl = lease.ttl() / 4;
                lease.with_ttl(ttl)
            }
            (Flaw::SingleUnits, Mode::Units { limit, .. }) => {
                lease.with_mode(Mode::Units { units: 1, limit })
            }
            _ => lease,
        }
    }

    async fn delay(&self, ttl: Duration) {
        if self.flaw == Flaw::LateReplies && fastrand::u8(..4) == 0 {
            sleep(ttl.mul_f64(fastrand::f64())).await;
        }
    }

    fn first_token(&self, key: &LockKey, token: u64) -> NonZeroU64 {
        let token = NonZeroU64::new(token).expect("tokens begin with 1");
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        *tokens.entry(key.clone()).or_insert(token)
    }

    fn granted(&self, claim: &Claim, grant: Grant) -> Attempt {
        let first = self.first_token(claim.key(), grant.token());
        Attempt::Granted(if self.flaw == Flaw::StaleTokens { Grant::new(first) } else { grant })
    }

    async fn refused(&self, claim: &Claim, contention: Contention) -> Result<Attempt, Error> {
        match self.flaw {
            Flaw::SecondGrants if fastrand::bool() => {
                Ok(Attempt::Granted(Grant::new(self.first_token(claim.key(), 1))))
            }
            Flaw::Evictions => {
                let evict = Request::ForceRelease(Cow::Borrowed(claim.key()), None);
                evict.send(&*self.inner).await?;
                Ok(Attempt::Held(contention))
            }
            _ => Ok(Attempt::Held(contention)),
        }
    }

    async fn attempt(&self, claim: &Claim) -> Result<Attempt, Error> {
        let asked = Claim::new(self.lease_for(claim.lease()))
            .with_patience(claim.patience())
            .with_spare_tokens(claim.spare_tokens());
        let attempt = self.inner.acquire(&asked).await?;
        self.delay(claim.lease().ttl()).await;
        Ok(match attempt {
            Attempt::Granted(grant) => self.granted(claim, grant),
            Attempt::Held(contention) => self.refused(claim, contention).await?,
        })
    }

    async fn renewal(&self, lease: &Lease) -> Result<Renewal, Error> {
        if self.flaw == Flaw::EmptyRenewals {
            return Ok(Renewal::Renewed);
        }
        let renewal = self.inner.renew(&self.lease_for(lease)).await;
        self.delay(lease.ttl()).await;
        renewal
    }
}

#[async_trait]
impl Layer for FaultyBackend {
    fn inner(&self) -> &dyn LockBackend {
        &*self.inner
    }

    async fn request(&self, request: Request<'_>) -> Result<Reply, Error> {
        Ok(match &request {
            Request::Acquire(claim) => self.attempt(claim).await?.into(),
            Request::Renew(lease) => self.renewal(lease).await?.into(),
            Request::RenewAll(leases) => {
                join_all(leases.iter().map(|lease| self.renewal(lease))).await.into()
            }
            _ => request.send(&*self.inner).await?,
        })
    }

    /// Clients acquire several keys one at a time, so that each attempt has the flaw.
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities().without(Feature::Together)
    }
}
