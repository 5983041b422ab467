//! Operations as calls of scripts.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Claim, Lease, LockKey, LockOptions, Patience, Share};

use crate::layout::Layout;
use crate::script::Script;

/// A script with its keys and arguments. `Debug` leaves the arguments out: they hold lease ids.
/// Clones share them.
#[derive(Clone)]
pub struct Call {
    script: Script,
    keys: Arc<[String]>,
    args: Arc<[String]>,
    /// How many of the keys it cannot do without: the first.
    essential: usize,
}

/// All keys are essential.
const ALL: usize = usize::MAX;

impl Call {
    /// As many locks as one call acquires: each is work for which the server keeps all others waiting.
    pub const MAX_TOGETHER: usize = 64;

    /// The call that attempts to acquire.
    pub fn acquire(layout: &Layout, claim: &Claim) -> Self {
        let (of, lease) = (layout.places(claim.key()), claim.lease());
        let [lock, fence, held] = [of.lock(), of.fence(), of.held()];
        let [queue, places, news, revoke] = [of.queue(), of.places(), of.news(), of.revoke()];
        match lease.share() {
            Share::Whole => {
                let id = lease.id().secret();
                let own_news = of.news_for(&id);
                Self {
                    script: Script::Acquire,
                    keys: [lock, fence, held, queue, places, news, revoke, own_news].into(),
                    args: acquire_args(claim, id).into(),
                    essential: ALL,
                }
            }
            Share::Units { units, limit } => Self {
                script: Script::AcquireUnits,
                keys: [lock, fence, held, queue, places, news, revoke, of.units()].into(),
                args: [
                    lease.id().secret(),
                    millis(lease.ttl()),
                    units.to_string(),
                    limit.to_string(),
                    description(lease),
                    millis(claim.place().unwrap_or_default()),
                ]
                .into(),
                essential: ALL,
            },
        }
    }

    /// The call that attempts to acquire all of several locks. `None` for claims of units, and for more than
    /// [`MAX_TOGETHER`](Self::MAX_TOGETHER).
    ///
    /// The locks are in any hash slots: a cluster does not take it.
    pub fn acquire_all(layout: &Layout, claims: &[Claim]) -> Option<Self> {
        let whole = claims.iter().all(|claim| claim.share().is_whole());
        if !whole || claims.len() > Self::MAX_TOGETHER {
            return None;
        }
        let (mut keys, mut args) = (Vec::new(), Vec::new());
        for claim in claims {
            let (of, lease) = (layout.places(claim.key()), claim.lease());
            keys.extend([
                of.lock(),
                of.fence(),
                of.held(),
                of.queue(),
                of.places(),
                of.news(),
                of.revoke(),
            ]);
            args.extend([value(lease), millis(lease.ttl()), lease.id().secret()]);
        }
        Some(Self {
            script: Script::AcquireAll,
            keys: keys.into(),
            args: args.into(),
            essential: ALL,
        })
    }

    /// The call that renews.
    pub fn renew(layout: &Layout, lease: &Lease) -> Self {
        let of = layout.places(lease.key());
        match lease.share() {
            Share::Whole => Self {
                script: Script::Renew,
                keys: [of.lock(), of.revoke()].into(),
                args: [value(lease), millis(lease.ttl())].into(),
                essential: 1,
            },
            Share::Units { units, .. } => Self {
                script: Script::RenewUnits,
                keys: [of.held(), of.units(), of.news(), of.revoke()].into(),
                args: [
                    lease.id().secret(),
                    millis(lease.ttl()),
                    units.to_string(),
                    description(lease),
                ]
                .into(),
                essential: 2,
            },
        }
    }

    /// The call that releases.
    pub fn release(layout: &Layout, lease: &Lease) -> Self {
        let of = layout.places(lease.key());
        match lease.share() {
            Share::Whole => Self {
                script: Script::Release,
                keys: [of.lock(), of.queue(), of.places(), of.news()].into(),
                args: [value(lease), lease.id().secret()].into(),
                essential: 1,
            },
            Share::Units { .. } => Self {
                script: Script::ReleaseUnits,
                keys: [of.held(), of.units(), of.queue(), of.places(), of.news()].into(),
                args: [lease.id().secret()].into(),
                essential: 2,
            },
        }
    }

    /// The call that inspects.
    pub fn inspect(layout: &Layout, key: &LockKey) -> Self {
        let of = layout.places(key);
        let keys = vec![of.lock(), of.fence(), of.held(), of.units(), of.news()];
        Self { script: Script::Inspect, keys: keys.into(), args: [].into(), essential: ALL }
    }

    /// The call that ends others' leases.
    pub fn force_release(layout: &Layout, key: &LockKey) -> Self {
        let of = layout.places(key);
        let keys = vec![of.lock(), of.fence(), of.held(), of.units(), of.news(), of.revoke()];
        Self { script: Script::ForceRelease, keys: keys.into(), args: [].into(), essential: ALL }
    }

    /// The call that asks holders to finish.
    pub fn request_revocation(layout: &Layout, key: &LockKey) -> Self {
        let of = layout.places(key);
        let keys = vec![of.lock(), of.held(), of.revoke()];
        Self { script: Script::Revoke, keys: keys.into(), args: [].into(), essential: ALL }
    }

    /// The same with only those keys that are there as long as the lease is in force, if there are others: what it does for them
    /// is not done then. A server of which a slot is on its way to another one runs no script that names keys which are not there.
    pub(crate) fn with_essential_keys(&self) -> Option<Self> {
        let keys = self.keys.get(..self.essential).filter(|keys| keys.len() < self.keys.len())?;
        let (keys, args) = (keys.into(), Arc::clone(&self.args));
        Some(Self { script: self.script, keys, args, essential: self.essential })
    }

    /// How many bytes it has, nearly.
    pub(crate) fn size(&self) -> usize {
        self.keys.iter().chain(&*self.args).map(String::len).sum()
    }

    /// The script.
    pub fn script(&self) -> Script {
        self.script
    }

    /// All keys that the script touches, those of one lock in one hash slot.
    pub fn keys(&self) -> &[String] {
        &self.keys
    }

    /// The arguments after the keys. They may hold a lease id.
    pub fn args(&self) -> &[String] {
        &self.args
    }
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call")
            .field("script", &self.script)
            .field("keys", &self.keys)
            .finish_non_exhaustive()
    }
}

/// The arguments of a claim of a whole key.
fn acquire_args(claim: &Claim, id: String) -> [String; 6] {
    let lease = claim.lease();
    let (place, offer) = match claim.patience() {
        Patience::Waits => (LockOptions::PLACE_TTL, Patience::OFFER),
        _ => (claim.place().unwrap_or_default(), Duration::ZERO),
    };
    [
        value(lease),
        millis(lease.ttl()),
        id,
        millis(place),
        millis(offer),
        claim.spare_tokens().to_string(),
    ]
}

/// What lies under the key of a lock.
fn value(lease: &Lease) -> String {
    let id = lease.id().secret();
    match lease.description() {
        Some(description) => format!("{id} {description}"),
        None => id,
    }
}

/// Who holds a lease, in words; nothing if it does not say.
fn description(lease: &Lease) -> String {
    lease.description().map(ToString::to_string).unwrap_or_default()
}

/// A TTL as the server takes it: in whole milliseconds, rounded up.
fn millis(ttl: Duration) -> String {
    ttl.as_nanos().div_ceil(1_000_000).to_string()
}

#[cfg(test)]
mod tests {
    use leasehold_core::Description;

    use super::*;

    fn lease() -> Lease {
        Lease::new(&LockKey::new("k").unwrap(), Duration::from_micros(1_500))
    }

    #[test]
    fn the_value_is_the_id_and_who_it_is() {
        let bare = lease();
        let described = lease().with_description(Some(Description::new("web-1/42").unwrap()));

        assert_eq!(value(&bare), bare.id().secret());
        assert_eq!(value(&described), format!("{} web-1/42", described.id().secret()));
    }

    #[test]
    fn ttls_are_rounded_up() {
        assert_eq!(Call::renew(&Layout::default(), &lease()).args()[1], "2");
    }

    #[test]
    fn debug_keeps_the_id_to_itself() {
        let lease = lease();
        let shown = format!("{:?}", Call::renew(&Layout::default(), &lease));

        assert!(!shown.contains(&lease.id().secret()), "{shown}");
    }
}
