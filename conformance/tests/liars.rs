//! Backends with one flaw each: a suite that does not catch them proves nothing.

use std::num::NonZeroU64;
use std::panic;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_conformance::{Harness, Time, report};
use leasehold_core::clock::TokioClock;
use leasehold_core::{
    Attempt, Capabilities, Claim, Contention, Error, ForcedRelease, Grant, Holder, Inspection,
    KeyWatch, Lease, LeaseId, LockBackend, LockKey, MemoryBackend, Release, Renewal,
};

/// A memory backend that behaves, except for one thing.
#[derive(Clone, Debug)]
struct Liar {
    store: MemoryBackend,
    flaw: Flaw,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Flaw {
    AcquiresWhatIsHeld,
    ExpiresEarly,
    ForgetsItsOwnGrant,
    HangsWhenContended,
    IssuesEqualTokens,
    KeepsWhatExpires,
    LetsAnybodyRelease,
    MixesUpCase,
    NeverTellsNews,
    RenewsInto,
    RenewsNothing,
    ReleasesNothing,
    SaysReleasedTwice,
    SaysRenewedWhenTaken,
    TellsAnotherHolder,
}

impl Liar {
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == flaw
    }

    /// The claim as the store gets it.
    fn twisted(&self, claim: &Claim) -> Claim {
        let lease = claim.lease();
        match self.flaw {
            Flaw::ExpiresEarly => Claim::new(lease.clone().with_ttl(lease.ttl() * 9 / 10)),
            Flaw::KeepsWhatExpires => Claim::new(lease.clone().with_ttl(lease.ttl() * 20)),
            _ => claim.clone(),
        }
    }
}

#[async_trait]
impl LockBackend for Liar {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        if self.has(Flaw::ForgetsItsOwnGrant) && self.store.inspect(claim.key()).await?.is_held() {
            return Ok(Attempt::Held(Contention::new()));
        }
        let mut attempt = self.store.try_acquire(&self.twisted(claim)).await?;
        if let (Flaw::AcquiresWhatIsHeld, Attempt::Held(_)) = (self.flaw, &attempt) {
            self.store.force_release(claim.key()).await?;
            attempt = self.store.try_acquire(claim).await?;
        }
        match attempt {
            Attempt::Granted(grant) => {
                if self.has(Flaw::IssuesEqualTokens) {
                    return Ok(Attempt::Granted(Grant::new(NonZeroU64::MIN)));
                }
                if self.has(Flaw::MixesUpCase)
                    && claim.key().as_str() != claim.key().as_str().to_lowercase()
                {
                    return Ok(Attempt::Held(Contention::new()));
                }
                Ok(Attempt::Granted(grant))
            }
            Attempt::Held(_) if self.has(Flaw::HangsWhenContended) => std::future::pending().await,
            Attempt::Held(_) if self.has(Flaw::TellsAnotherHolder) => {
                let nobody = Holder::new(LeaseId::new().fingerprint());
                let nobody = nobody.with_remaining(Some(Duration::from_secs(1)));
                Ok(Attempt::Held(Contention::new().with_holder(nobody)))
            }
            held @ Attempt::Held(_) => Ok(held),
        }
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
        match self.flaw {
            Flaw::RenewsNothing => Ok(Renewal::Renewed),
            Flaw::RenewsInto => match self.store.renew(lease).await? {
                Renewal::Vanished => {
                    self.store.try_acquire(&Claim::new(lease.clone())).await?;
                    Ok(Renewal::Renewed)
                }
                renewal => Ok(renewal),
            },
            Flaw::SaysRenewedWhenTaken => match self.store.renew(lease).await? {
                Renewal::Taken => Ok(Renewal::Renewed),
                renewal => Ok(renewal),
            },
            _ => self.store.renew(lease).await,
        }
    }

    async fn release(&self, lease: &Lease) -> Result<Release, Error> {
        match self.flaw {
            Flaw::ReleasesNothing => Ok(Release::Released),
            Flaw::LetsAnybodyRelease => {
                self.store.force_release(lease.key()).await?;
                Ok(Release::Released)
            }
            Flaw::SaysReleasedTwice => {
                self.store.release(lease).await?;
                Ok(Release::Released)
            }
            _ => self.store.release(lease).await,
        }
    }

    fn watch(&self, key: &LockKey) -> KeyWatch {
        if self.has(Flaw::NeverTellsNews) { KeyWatch::silent() } else { self.store.watch(key) }
    }

    async fn inspect(&self, key: &LockKey) -> Result<Inspection, Error> {
        self.store.inspect(key).await
    }

    async fn force_release(&self, key: &LockKey) -> Result<ForcedRelease, Error> {
        self.store.force_release(key).await
    }
}

/// The flaw of the store that is under test.
static FLAW: Mutex<Flaw> = Mutex::new(Flaw::AcquiresWhatIsHeld);

struct Lying(MemoryBackend);

#[async_trait]
impl Harness for Lying {
    type Backend = Liar;

    const NAME: &str = "liar";
    const TIME: Time = Time::Virtual;

    async fn start() -> Self {
        Self(MemoryBackend::with_clock(TokioClock::new()))
    }

    async fn connect(&self) -> Liar {
        Liar { store: self.0.clone(), flaw: *FLAW.lock().unwrap() }
    }

    async fn witness(&self, key: &LockKey) -> Option<Holder> {
        self.0.inspect(key).await.unwrap().holders().first().cloned()
    }
}

#[test]
fn every_flaw_is_caught() {
    // Failing is what these cases are to do: their backtraces would only be in the way.
    panic::set_hook(Box::new(|_| {}));
    let found: Vec<_> = FLAWS.iter().map(|(flaw, case)| (flaw, case, failures(*flaw))).collect();
    drop(panic::take_hook());

    for (flaw, case, failed) in found {
        assert!(failed.iter().any(|failed| failed == case), "{flaw:?}: only {failed:?} caught it");
    }
}

fn failures(flaw: Flaw) -> Vec<String> {
    *FLAW.lock().unwrap() = flaw;
    report::<Lying>().failures().map(|(case, _)| case.path()).collect()
}

/// Each flaw, and a case that must catch it.
const FLAWS: [(Flaw, &str); 15] = [
    (Flaw::AcquiresWhatIsHeld, "mutual_exclusion::many_clients_never_overlap"),
    (Flaw::ExpiresEarly, "expiry::an_unrenewed_lease_ends_after_its_ttl_and_not_before"),
    (
        Flaw::ForgetsItsOwnGrant,
        "mutual_exclusion::a_grant_whose_reply_is_lost_is_the_same_acquisition",
    ),
    (Flaw::HangsWhenContended, "mutual_exclusion::a_held_lock_is_refused_at_once"),
    (Flaw::IssuesEqualTokens, "fencing::tokens_strictly_increase"),
    (Flaw::KeepsWhatExpires, "expiry::an_unrenewed_lease_ends_after_its_ttl_and_not_before"),
    (Flaw::LetsAnybodyRelease, "release::a_stale_release_leaves_the_successor"),
    (Flaw::MixesUpCase, "mutual_exclusion::similar_names_are_different_locks"),
    (Flaw::NeverTellsNews, "waiting::a_release_wakes_who_waits"),
    (Flaw::ReleasesNothing, "release::a_released_lock_is_free_and_a_second_release_is_nothing"),
    (Flaw::RenewsInto, "renewal::a_renewal_puts_the_full_ttl_in_force"),
    (Flaw::RenewsNothing, "renewal::a_lock_is_kept_for_many_ttls"),
    (Flaw::SaysReleasedTwice, "release::a_released_lock_is_free_and_a_second_release_is_nothing"),
    (
        Flaw::SaysRenewedWhenTaken,
        "renewal::a_definite_no_is_a_loss_at_once_and_the_end_of_renewals",
    ),
    (Flaw::TellsAnotherHolder, "mutual_exclusion::a_refusal_tells_who_holds_it_and_for_how_long"),
];
