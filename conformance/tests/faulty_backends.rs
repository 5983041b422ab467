//! Each faulty backend in `lab/flaws.md` fails a case of the suite.

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroU64;
use std::panic;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_conformance::{Harness, Need, Outcome, Time, cases};
use leasehold_core::admin::{ForcedRelease, Inspection, Revocation};
use leasehold_core::backend::{
    Attempt, AttemptAll, Capabilities, Charter, Claim, Contention, Enlistment, Fingerprint, Grant,
    KeyPage, KeyWatch, Lease, LeaseId, LockBackend, Patience, Release, Renewal, Share, Standing,
    StoreId,
};
use leasehold_core::clock::TokioClock;
use leasehold_core::memory::MemoryBackend;
use leasehold_core::{Error, ErrorKind, Holder, LockKey};

/// An in-memory backend with one flaw.
#[derive(Clone, Debug)]
struct FaultyBackend {
    store: MemoryBackend,
    flaw: Flaw,
    notes: Arc<Mutex<Notes>>,
}

/// What a faulty backend must remember, because a correct store forgets it. All clients of a store share the notes.
#[derive(Debug, Default)]
struct Notes {
    /// The last grant of each lease ID, until its release.
    granted: Vec<Lease>,
    /// Refused claims that are queued.
    queued: Vec<Claim>,
    /// Refused claims of waiters.
    waiting: Vec<Claim>,
    /// Keys whose revocation was requested.
    asked_back: Vec<LockKey>,
}

/// Declares the flaws, and lists them.
macro_rules! flaws {
    ($($flaw:ident),* $(,)?) => {
        #[derive(Clone, Copy, Debug, PartialEq)]
        enum Flaw {
            $($flaw),*
        }

        const FLAWS: &[Flaw] = &[$(Flaw::$flaw),*];
    };
}

flaws! {
    EnlistsAnyStore,
    EqualTokens,
    ExpiredPermitsCount,
    ExpiresEarly,
    ExpiresLate,
    ForgetsOwnGrant,
    ForgetsWaiters,
    GrantsHeldKeys,
    GrantsPartOfBatch,
    HangsWhenContended,
    IgnoresCase,
    IgnoresCharter,
    IgnoresNewDescriptions,
    IgnoresRequestedToken,
    MinimumTokenWithoutLease,
    MixesLockTypes,
    NewcomersOvertake,
    NewcomersOvertakeWaiters,
    NoHolder,
    NoNotifications,
    NoQueueEntries,
    NoSpareTokens,
    OnePermitTooMany,
    QueueEntriesNeverExpire,
    QueueEntriesOfLeavers,
    ReleaseHasNoEffect,
    ReleaseIgnoresId,
    RenewalAddsPermits,
    RenewalCreatesLease,
    RenewalExtendsOthers,
    RenewalHasNoEffect,
    RenewalIgnoresId,
    RenewalIgnoresMinimumToken,
    ReservationsCutShort,
    ReturnedPermitsKept,
    RevocationNotReported,
    RevocationReachesNextHolder,
    SecondReleaseSucceeds,
    ShortLeaseAfterWait,
    TakenLeaseRenews,
    WrongHolder,
}

impl Notes {
    fn granted(&self, lease: &Lease) -> Option<&Lease> {
        self.granted.iter().find(|granted| granted.id() == lease.id())
    }

    fn note(&mut self, claim: &Claim, attempt: &Attempt) {
        self.forget(claim.lease());
        match attempt {
            Attempt::Granted(_) => self.granted.push(claim.lease().clone()),
            Attempt::Held(_) if claim.place().is_some() => self.queued.push(claim.clone()),
            Attempt::Held(_) if claim.patience() == Patience::Waits => {
                self.waiting.push(claim.clone());
            }
            Attempt::Held(_) => {}
        }
    }

    fn waits(&self, claim: &Claim) -> bool {
        self.waiting.iter().any(|waiting| waiting.id() == claim.id())
    }

    fn forget(&mut self, lease: &Lease) {
        self.granted.retain(|granted| granted.id() != lease.id());
        self.queued.retain(|claim| claim.id() != lease.id());
        self.waiting.retain(|claim| claim.id() != lease.id());
    }
}

impl FaultyBackend {
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == flaw
    }

    /// Returns the holder of the lease if the lease is in force.
    async fn holder(&self, lease: &Lease) -> Result<Option<Holder>, Error> {
        let inspection = self.store.inspect(lease.key()).await?;
        let mut holders = inspection.holders().iter();
        Ok(holders.find(|holder| holder.fingerprint() == lease.id().fingerprint()).cloned())
    }

    /// Returns the claim that the store receives.
    async fn twisted(&self, claim: &Claim) -> Result<Claim, Error> {
        let lease = claim.lease();
        let as_lease = |lease| Claim::new(lease).with_patience(claim.patience());
        Ok(match (self.flaw, claim.share(), claim.patience()) {
            (Flaw::ExpiresEarly, ..) => as_lease(lease.clone().with_ttl(lease.ttl() * 9 / 10)),
            (Flaw::ExpiresLate, ..) => as_lease(lease.clone().with_ttl(lease.ttl() * 20)),
            (Flaw::OnePermitTooMany, Share::Units { units, limit }, _) => {
                let limit = limit.saturating_add(1);
                as_lease(lease.clone().with_share(Share::Units { units, limit }))
            }
            (Flaw::ExpiredPermitsCount, Share::Units { units, limit }, _) => {
                let limit = limit.saturating_sub(self.units_of_the_dead(claim.key()).await?);
                as_lease(lease.clone().with_share(Share::Units { units, limit }))
            }
            (Flaw::ShortLeaseAfterWait, ..) if self.notes.lock().unwrap().waits(claim) => {
                as_lease(lease.clone().with_ttl(lease.ttl() / 10))
            }
            (Flaw::IgnoresCharter | Flaw::IgnoresRequestedToken, ..) => self.without_quorum(claim),
            (Flaw::NoQueueEntries, ..) => Claim::new(lease.clone()),
            (Flaw::ForgetsWaiters, _, Patience::Waits) => {
                claim.clone().with_patience(Patience::Leaves)
            }
            (Flaw::NoSpareTokens, ..) => claim.clone().with_spare_tokens(0),
            (Flaw::QueueEntriesNeverExpire, _, Patience::Queues(place)) => {
                claim.clone().with_patience(Patience::Queues(place * 1_000))
            }
            _ => claim.clone(),
        })
    }

    /// Returns the claim without its charter or without its minimum token.
    fn without_quorum(&self, claim: &Claim) -> Claim {
        let bare = Claim::new(claim.lease().clone())
            .with_patience(claim.patience())
            .with_spare_tokens(claim.spare_tokens());
        match (self.flaw, claim.charter()) {
            (Flaw::IgnoresCharter, _) => bare.with_least_token(claim.least_token()),
            (_, Some(charter)) => bare.with_charter(charter.clone()),
            (_, None) => bare,
        }
    }

    /// Returns the number of permits whose leases expired.
    async fn units_of_the_dead(&self, key: &LockKey) -> Result<u32, Error> {
        let inspection = self.store.inspect(key).await?;
        let lives = |lease: &Lease| {
            inspection.holders().iter().any(|h| h.fingerprint() == lease.id().fingerprint())
        };
        let notes = self.notes.lock().unwrap();
        let dead = notes.granted.iter().filter(|lease| lease.key() == key && !lives(lease));
        Ok(dead.map(|lease| lease.share().units()).sum())
    }

    /// Makes an attempt as if these claims were not queued.
    async fn pass(&self, mut queued: Vec<Claim>, claim: &Claim) -> Result<Attempt, Error> {
        queued.retain(|waiter| waiter.key() == claim.key());
        for waiter in &queued {
            self.store.release(waiter.lease()).await?;
        }
        let attempt = self.store.try_acquire(claim).await?;
        for waiter in &queued {
            self.store.try_acquire(waiter).await?;
        }
        Ok(attempt)
    }

    /// Returns the lease that the store receives in a renewal.
    fn renewed(&self, lease: &Lease) -> Lease {
        let notes = self.notes.lock().unwrap();
        let (lease, Some(granted)) = (lease.clone(), notes.granted(lease)) else {
            return lease.clone();
        };
        match self.flaw {
            Flaw::IgnoresNewDescriptions => lease.with_description(granted.description().cloned()),
            Flaw::RenewalIgnoresMinimumToken => lease.with_floor(0),
            Flaw::ReturnedPermitsKept => lease.with_share(granted.share()),
            _ => lease,
        }
    }

    /// Adds the permits that a renewal requests.
    async fn add_units(&self, lease: &Lease) -> Result<(), Error> {
        let holder = self.holder(lease).await?;
        if holder.is_some_and(|holder| holder.units() < lease.share().units()) {
            self.store.release(lease).await?;
            let share = Share::Units { units: lease.share().units(), limit: u32::MAX };
            self.store.try_acquire(&Claim::new(lease.clone().with_share(share))).await?;
        }
        Ok(())
    }

    /// Keeps the queue entries of waiters only briefly, although the key is held.
    async fn cut_reservations_short(&self, key: &LockKey) -> Result<(), Error> {
        let inspection = self.store.inspect(key).await?;
        let waiting = self.notes.lock().unwrap().waiting.clone();
        let is_queued = |claim: &&Claim| {
            let mut queue = inspection.queue().iter();
            queue.any(|waiter| waiter.fingerprint() == claim.id().fingerprint())
        };
        for claim in waiting.iter().filter(|_| inspection.is_held()).filter(is_queued) {
            let brief = claim.lease().clone().with_ttl(Patience::RESERVATION);
            self.store.try_acquire(&Claim::new(brief).with_patience(Patience::Waits)).await?;
        }
        Ok(())
    }

    /// Renews the leases of the key's other holders with the TTL of this lease.
    async fn prolong_others(&self, lease: &Lease) -> Result<(), Error> {
        let mut granted = self.notes.lock().unwrap().granted.clone();
        granted.retain(|other| other.key() == lease.key() && other.id() != lease.id());
        for other in granted {
            self.store.renew(&other.with_ttl(lease.ttl())).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl LockBackend for FaultyBackend {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        if self.has(Flaw::ForgetsOwnGrant) && self.holder(claim.lease()).await?.is_some() {
            return Ok(Attempt::Held(Contention::new()));
        }
        let mut attempt = match self.store.try_acquire(&self.twisted(claim).await?).await {
            Err(error)
                if self.has(Flaw::MixesLockTypes) && error.kind() == ErrorKind::WrongType =>
            {
                Attempt::Granted(Grant::new(NonZeroU64::MAX))
            }
            attempt => attempt?,
        };
        if let (Flaw::GrantsHeldKeys, Attempt::Held(_)) = (self.flaw, &attempt) {
            self.store.force_release(claim.key(), None).await?;
            attempt = self.store.try_acquire(claim).await?;
        }
        if let (Flaw::NewcomersOvertake, Attempt::Held(_), None) =
            (self.flaw, &attempt, claim.place())
        {
            let queued = self.notes.lock().unwrap().queued.clone();
            attempt = self.pass(queued, claim).await?;
        }
        if let (Flaw::NewcomersOvertakeWaiters, Attempt::Held(_), Patience::Leaves) =
            (self.flaw, &attempt, claim.patience())
        {
            let waiting = self.notes.lock().unwrap().waiting.clone();
            attempt = self.pass(waiting, claim).await?;
        }
        self.notes.lock().unwrap().note(claim, &attempt);
        if self.has(Flaw::ReservationsCutShort) {
            self.cut_reservations_short(claim.key()).await?;
        }
        match attempt {
            Attempt::Granted(grant) => {
                if self.has(Flaw::EqualTokens) {
                    return Ok(Attempt::Granted(Grant::new(NonZeroU64::MIN)));
                }
                if self.has(Flaw::IgnoresCase)
                    && claim.key().as_str() != claim.key().as_str().to_lowercase()
                {
                    return Ok(Attempt::Held(Contention::new()));
                }
                Ok(Attempt::Granted(grant))
            }
            Attempt::Held(_) if self.has(Flaw::HangsWhenContended) => std::future::pending().await,
            Attempt::Held(_) if self.has(Flaw::WrongHolder) => {
                let unknown = Holder::new(LeaseId::new().fingerprint());
                let unknown = unknown.with_remaining(Some(Duration::from_secs(1)));
                Ok(Attempt::Held(Contention::new().with_holder(unknown)))
            }
            Attempt::Held(_) if self.has(Flaw::NoHolder) => Ok(Attempt::Held(Contention::new())),
            held @ Attempt::Held(_) => Ok(held),
        }
    }

    async fn try_acquire_all(&self, claims: &[Claim]) -> Result<AttemptAll, Error> {
        let attempt = self.store.try_acquire_all(claims).await?;
        if let (Flaw::GrantsPartOfBatch, AttemptAll::Held { .. }) = (self.flaw, &attempt) {
            for claim in claims {
                self.store.try_acquire(claim).await?;
            }
        }
        Ok(attempt)
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
        if self.has(Flaw::RenewalHasNoEffect) {
            return Ok(Renewal::Renewed);
        }
        let renewal = self.store.renew(&self.renewed(lease)).await?;
        match (self.flaw, renewal) {
            (Flaw::RenewalAddsPermits, Renewal::Renewed) => self.add_units(lease).await?,
            (Flaw::RenewalExtendsOthers, Renewal::Renewed)
            | (Flaw::RenewalIgnoresId, Renewal::Taken) => self.prolong_others(lease).await?,
            (Flaw::RenewalCreatesLease, Renewal::Vanished) => {
                self.store.try_acquire(&Claim::new(lease.clone())).await?;
                return Ok(Renewal::Renewed);
            }
            (Flaw::TakenLeaseRenews, Renewal::Taken)
            | (Flaw::RevocationNotReported, Renewal::RevocationRequested) => {
                return Ok(Renewal::Renewed);
            }
            (Flaw::MinimumTokenWithoutLease, Renewal::Taken) => {
                let standing = self.store.standing(StoreId::new()).await?;
                let charter = standing.charter().cloned().unwrap_or(Charter::from_text("any"));
                let enlistment = Enlistment::new(standing.store(), charter);
                self.store.enlist(&enlistment.with_floor(lease.floor())).await?;
            }
            (Flaw::RevocationReachesNextHolder, Renewal::Renewed)
                if self.notes.lock().unwrap().asked_back.contains(lease.key()) =>
            {
                return Ok(Renewal::RevocationRequested);
            }
            _ => {}
        }
        Ok(renewal)
    }

    async fn release(&self, lease: &Lease) -> Result<Release, Error> {
        let was_granted = self.notes.lock().unwrap().granted(lease).is_some();
        self.notes.lock().unwrap().forget(lease);
        match self.flaw {
            Flaw::QueueEntriesOfLeavers if !was_granted => Ok(Release::NotHeld),
            Flaw::ReleaseHasNoEffect => Ok(Release::Released),
            Flaw::ReleaseIgnoresId => {
                self.store.force_release(lease.key(), None).await?;
                Ok(Release::Released)
            }
            Flaw::SecondReleaseSucceeds => {
                self.store.release(lease).await?;
                Ok(Release::Released)
            }
            _ => self.store.release(lease).await,
        }
    }

    fn watch(&self, key: &LockKey) -> KeyWatch {
        match self.flaw {
            Flaw::NoNotifications => KeyWatch::silent(),
            _ => self.store.watch(key),
        }
    }

    fn watch_lease(&self, lease: &Lease) -> KeyWatch {
        if self.has(Flaw::NoNotifications) {
            KeyWatch::silent()
        } else {
            self.store.watch_lease(lease)
        }
    }

    async fn inspect(&self, key: &LockKey) -> Result<Inspection, Error> {
        self.store.inspect(key).await
    }

    async fn list(&self, prefix: &str, after: Option<&str>) -> Result<KeyPage, Error> {
        self.store.list(prefix, after).await
    }

    async fn standing(&self, fresh: StoreId) -> Result<Standing, Error> {
        self.store.standing(fresh).await
    }

    async fn enlist(&self, enlistment: &Enlistment) -> Result<Standing, Error> {
        if self.has(Flaw::EnlistsAnyStore) {
            let store = self.store.standing(StoreId::new()).await?.store();
            let charter = Charter::from_text(enlistment.charter().as_str());
            let any = Enlistment::new(store, charter).with_floor(enlistment.floor());
            return self.store.enlist(&any).await;
        }
        self.store.enlist(enlistment).await
    }

    async fn force_release(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<ForcedRelease, Error> {
        self.notes.lock().unwrap().granted.retain(|granted| granted.key() != key);
        self.store.force_release(key, only).await
    }

    async fn request_revocation(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<Revocation, Error> {
        self.notes.lock().unwrap().asked_back.push(key.clone());
        self.store.request_revocation(key, only).await
    }
}

/// The flaw of the backend under test, because `Harness::start` has no arguments.
static FLAW: Mutex<Flaw> = Mutex::new(Flaw::GrantsHeldKeys);

struct Fixture(FaultyBackend);

#[async_trait]
impl Harness for Fixture {
    type Backend = FaultyBackend;

    const NAME: &str = "faulty";
    const TIME: Time = Time::Virtual;
    const HOOKS: &[Need] = &[Need::Advance];

    async fn start() -> Self {
        let store = MemoryBackend::with_clock(TokioClock::new());
        let (flaw, notes) = (*FLAW.lock().unwrap(), Arc::default());
        Self(FaultyBackend { store, flaw, notes })
    }

    async fn connect(&self) -> FaultyBackend {
        self.0.clone()
    }

    async fn witness(&self, key: &LockKey) -> Option<Holder> {
        self.0.inspect(key).await.unwrap().holders().first().cloned()
    }

    async fn advance(&self, _keys: &[LockKey], time: Duration) {
        tokio::time::advance(time).await;
    }
}

/// Held by each test, because all tests of this process share `FLAW` and the panic hook.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

#[test]
fn each_faulty_backend_fails_the_listed_case() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let list = fs::read_to_string("../lab/flaws.md").unwrap();
    let listed = rows(&list, "Suite");
    let flaws: BTreeMap<String, Flaw> = FLAWS.iter().map(|flaw| (name(*flaw), *flaw)).collect();
    assert!(
        listed.keys().eq(flaws.keys()),
        "lab/flaws.md and `Flaw` differ: {listed:?}, {flaws:?}"
    );

    // The output would contain a backtrace for each case that fails as expected.
    panic::set_hook(Box::new(|_| {}));
    let missed: Vec<_> =
        listed.iter().filter(|(name, case)| run(case, flaws[*name]).is_ok()).collect();
    drop(panic::take_hook());

    assert!(missed.is_empty(), "found none of {missed:?}, expected all");
}

/// Returns the first and the last cell of each row in a section's table.
fn rows(page: &str, section: &str) -> BTreeMap<String, String> {
    let (_, section) = page.split_once(&format!("\n## {section}\n")).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let cells =
        rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim_matches([' ', '`'])));
    cells
        .map(|mut cells| (cells.next().unwrap().to_owned(), cells.next_back().unwrap().to_owned()))
        .collect()
}

/// Returns the name of a flaw in the list: `ExpiresLate` is `expires-late`.
fn name(flaw: Flaw) -> String {
    let variant = format!("{flaw:?}");
    let hyphen = |letter: char| letter.is_uppercase().then_some('-');
    let letters = variant.chars().flat_map(|it| hyphen(it).into_iter().chain(it.to_lowercase()));
    letters.skip(1).collect()
}

/// Runs a case of the suite on a backend with this flaw.
fn run(path: &str, flaw: Flaw) -> thread::Result<Outcome> {
    *FLAW.lock().unwrap() = flaw;
    let case = cases::<Fixture>().into_iter().find(|case| case.path() == path);
    let case = case.unwrap_or_else(|| panic!("there is no case {path}"));
    panic::catch_unwind(|| case.run())
}

#[test]
fn a_failed_model_prints_its_steps_and_a_seed() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    panic::set_hook(Box::new(|_| {}));
    let failure = run("model::mutexes_agree_with_the_specification", Flaw::ReleaseIgnoresId);
    drop(panic::take_hook());
    let failure = *failure.unwrap_err().downcast::<String>().unwrap();

    // The shortest sequence of operations that fails depends on the seed.
    let (_, difference) = failure.split_once("found ").expect("the reply of the store");
    assert!(difference.contains(", expected "), "{failure}");
    assert!(failure.contains("\n  1. "), "{failure}");
    let (_, seed) = failure.split_once("LEASEHOLD_CONFORMANCE_SEED=").expect("a seed");
    assert!(seed.trim_end_matches('.').parse::<u64>().is_ok(), "{failure}");
}
