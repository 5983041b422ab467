//! Stores that lie, or are slow: a campaign that finds none of them proves nothing of the stores in which it finds nothing.

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use clap::ValueEnum;
use leasehold_core::backend::{
    Attempt, Capabilities, Claim, Contention, Grant, KeyWatch, Lease, LockBackend, Release,
    Renewal, Share,
};
use leasehold_core::{Error, LockKey};
use tokio::time::sleep;

/// A flaw that clients or stores of distributed locks have had.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Lie {
    /// The store grants every other time a key that others hold.
    SecondGrants,
    /// The store says that it renews leases, and lets them end.
    EmptyRenewals,
    /// The store grants leases that end after a quarter of their TTL.
    ShortLeases,
    /// The store grants one unit to those that ask for several.
    SingleUnits,
    /// A claim that is refused ends the lease in its way.
    Evictions,
    /// The tokens of a process stay as they are.
    StaleTokens,
    /// Some replies are up to a TTL late, each for one client: no flaw for clients that count leases from before the request.
    LateReplies,
}

/// A backend with a flaw.
#[derive(Debug)]
struct Liar {
    inner: Arc<dyn LockBackend>,
    lie: Lie,
    /// The first token of each key.
    tokens: Mutex<HashMap<LockKey, NonZeroU64>>,
}

/// Shows a store with the flaw of this name, or as it is.
///
/// # Panics
///
/// If no flaw has this name.
pub fn with_flaw(store: Arc<dyn LockBackend>, flaw: Option<&str>) -> Arc<dyn LockBackend> {
    match flaw {
        Some(name) => {
            let lie = Lie::from_str(name, false).expect("parents and children share the names");
            Arc::new(Liar::new(store, lie))
        }
        None => store,
    }
}

impl fmt::Display for Lie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.to_possible_value().expect("all lies have names");
        f.write_str(name.get_name())
    }
}

impl Liar {
    fn new(inner: Arc<dyn LockBackend>, lie: Lie) -> Self {
        Self { inner, lie, tokens: Mutex::default() }
    }

    /// The lease that the store is really asked for.
    fn lease_for(&self, lease: &Lease) -> Lease {
        let lease = lease.clone();
        match (self.lie, lease.share()) {
            (Lie::ShortLeases, _) => {
                let ttl = lease.ttl() / 4;
                lease.with_ttl(ttl)
            }
            (Lie::SingleUnits, Share::Units { limit, .. }) => {
                lease.with_share(Share::Units { units: 1, limit })
            }
            _ => lease,
        }
    }

    async fn delay(&self, ttl: Duration) {
        if self.lie == Lie::LateReplies && fastrand::u8(..4) == 0 {
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
        Attempt::Granted(if self.lie == Lie::StaleTokens { Grant::new(first) } else { grant })
    }

    async fn refused(&self, claim: &Claim, contention: Contention) -> Result<Attempt, Error> {
        match self.lie {
            Lie::SecondGrants if fastrand::bool() => {
                Ok(Attempt::Granted(Grant::new(self.first_token(claim.key(), 1))))
            }
            Lie::Evictions => {
                self.inner.force_release(claim.key(), None).await?;
                Ok(Attempt::Held(contention))
            }
            _ => Ok(Attempt::Held(contention)),
        }
    }
}

/// Requests for several keys go to the store one by one, each with its flaw.
#[async_trait]
impl LockBackend for Liar {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        let asked = Claim::new(self.lease_for(claim.lease()))
            .with_patience(claim.patience())
            .with_spare_tokens(claim.spare_tokens());
        let attempt = self.inner.try_acquire(&asked).await?;
        self.delay(claim.lease().ttl()).await;
        Ok(match attempt {
            Attempt::Granted(grant) => self.granted(claim, grant),
            Attempt::Held(contention) => self.refused(claim, contention).await?,
        })
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
        match self.lie {
            Lie::EmptyRenewals => Ok(Renewal::Renewed),
            _ => {
                let renewal = self.inner.renew(&self.lease_for(lease)).await;
                self.delay(lease.ttl()).await;
                renewal
            }
        }
    }

    async fn release(&self, lease: &Lease) -> Result<Release, Error> {
        self.inner.release(lease).await
    }

    fn watch(&self, key: &LockKey) -> KeyWatch {
        self.inner.watch(key)
    }

    fn watch_claim(&self, claim: &Claim) -> KeyWatch {
        self.inner.watch_claim(claim)
    }

    fn watch_lease(&self, lease: &Lease) -> KeyWatch {
        self.inner.watch_lease(lease)
    }

    fn disconnect(&self) {
        self.inner.disconnect();
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}
