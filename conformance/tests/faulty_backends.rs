//! Each faulty backend in `lab/flaws.md` fails a case of the suite.

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroU64;
use std::panic;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use leasehold_conformance::{Harness, Need, Outcome, Time, cases};
use leasehold_core::backend::{
    Attempt, AttemptAll, Claim, Contention, Grant, JoinRequest, KeyWatch, Layer, Lease, LeaseId,
    LockBackend, Member, MemberStatus, Mode, Patience, QuorumConfiguration, Release, Renewal,
    Reply, Request, StoreAdmin, StoreId, Subject, Vote,
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
    revocation_requested: Vec<LockKey>,
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
    IgnoresConfiguration,
    IgnoresNewDescriptions,
    IgnoresRequestedToken,
    IgnoresStoreId,
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
            Attempt::Held(_) => match claim.patience() {
                Patience::Queues(_) => self.queued.push(claim.clone()),
                Patience::Waits => self.waiting.push(claim.clone()),
                _ => {}
            },
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
        Ok(match (self.flaw, claim.mode(), claim.patience()) {
            (Flaw::ExpiresEarly, ..) => as_lease(lease.clone().with_ttl(lease.ttl() * 9 / 10)),
            (Flaw::ExpiresLate, ..) => as_lease(lease.clone().with_ttl(lease.ttl() * 20)),
            (Flaw::OnePermitTooMany, Mode::Units { units, limit }, _) => {
                let limit = limit.saturating_add(1);
                as_lease(lease.clone().with_mode(Mode::Units { units, limit }))
            }
            (Flaw::ExpiredPermitsCount, Mode::Units { units, limit }, _) => {
                let limit = limit.saturating_sub(self.units_of_the_dead(claim.key()).await?);
                as_lease(lease.clone().with_mode(Mode::Units { units, limit }))
            }
            (Flaw::ShortLeaseAfterWait, ..) if self.notes.lock().unwrap().waits(claim) => {
                as_lease(lease.clone().with_ttl(lease.ttl() / 10))
            }
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

    /// Returns the number of permits whose leases expired.
    async fn units_of_the_dead(&self, key: &LockKey) -> Result<u32, Error> {
        let inspection = self.store.inspect(key).await?;
        let lives = |lease: &Lease| {
            inspection.holders().iter().any(|h| h.fingerprint() == lease.id().fingerprint())
        };
        let notes = self.notes.lock().unwrap();
        let dead = notes.granted.iter().filter(|lease| lease.key() == key && !lives(lease));
        Ok(dead.map(|lease| lease.mode().units()).sum())
    }

    /// Makes an attempt as if these claims were not queued.
    async fn pass(&self, mut queued: Vec<Claim>, claim: &Claim) -> Result<Attempt, Error> {
        queued.retain(|waiter| waiter.key() == claim.key());
        for waiter in &queued {
            self.store.release(waiter.lease()).await?;
        }
        let attempt = self.store.acquire(claim).await?;
        for waiter in &queued {
            self.store.acquire(waiter).await?;
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
            Flaw::ReturnedPermitsKept => lease.with_mode(granted.mode()),
            _ => lease,
        }
    }

    /// Adds the permits that a renewal requests.
    async fn add_units(&self, lease: &Lease) -> Result<(), Error> {
        let holder = self.holder(lease).await?;
        if holder.is_some_and(|holder| holder.units() < lease.mode().units()) {
            self.store.release(lease).await?;
            let mode = Mode::Units { units: lease.mode().units(), limit: u32::MAX };
            self.store.acquire(&Claim::new(lease.clone().with_mode(mode))).await?;
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
            self.store.acquire(&Claim::new(brief).with_patience(Patience::Waits)).await?;
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

    async fn attempt(&self, claim: &Claim) -> Result<Attempt, Error> {
        if self.has(Flaw::ForgetsOwnGrant) && self.holder(claim.lease()).await?.is_some() {
            return Ok(Attempt::Held(Contention::new()));
        }
        let mut attempt = match self.store.acquire(&self.twisted(claim).await?).await {
            Err(error)
                if self.has(Flaw::MixesLockTypes) && error.kind() == ErrorKind::WrongType =>
            {
                Attempt::Granted(Grant::new(NonZeroU64::MAX))
            }
            attempt => attempt?,
        };
        if let (Flaw::GrantsHeldKeys, Attempt::Held(_)) = (self.flaw, &attempt) {
            self.store.force_release(claim.key(), None).await?;
            attempt = self.store.acquire(claim).await?;
        }
        let queues = matches!(claim.patience(), Patience::Queues(_));
        if let (Flaw::NewcomersOvertake, Attempt::Held(_), false) = (self.flaw, &attempt, queues) {
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

    async fn attempt_all(&self, claims: &[Claim]) -> Result<AttemptAll, Error> {
        let attempt = self.store.acquire_all(claims).await?;
        if let (Flaw::GrantsPartOfBatch, AttemptAll::Held { .. }) = (self.flaw, &attempt) {
            for claim in claims {
                self.store.acquire(claim).await?;
            }
        }
        Ok(attempt)
    }

    async fn renewal(&self, lease: &Lease) -> Result<Renewal, Error> {
        if self.has(Flaw::RenewalHasNoEffect) {
            return Ok(Renewal::Renewed);
        }
        let renewal = self.store.renew(&self.renewed(lease)).await?;
        match (self.flaw, renewal) {
            (Flaw::RenewalAddsPermits, Renewal::Renewed) => self.add_units(lease).await?,
            (Flaw::RenewalExtendsOthers, Renewal::Renewed)
            | (Flaw::RenewalIgnoresId, Renewal::Taken) => self.prolong_others(lease).await?,
            (Flaw::RenewalCreatesLease, Renewal::Vanished) => {
                self.store.acquire(&Claim::new(lease.clone())).await?;
                return Ok(Renewal::Renewed);
            }
            (Flaw::TakenLeaseRenews, Renewal::Taken)
            | (Flaw::RevocationNotReported, Renewal::RevocationRequested) => {
                return Ok(Renewal::Renewed);
            }
            (Flaw::RevocationReachesNextHolder, Renewal::Renewed)
                if self.notes.lock().unwrap().revocation_requested.contains(lease.key()) =>
            {
                return Ok(Renewal::RevocationRequested);
            }
            _ => {}
        }
        Ok(renewal)
    }

    async fn end(&self, lease: &Lease) -> Result<Release, Error> {
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

    async fn voted(&self, vote: &Vote) -> Result<Attempt, Error> {
        match self.flaw {
            Flaw::IgnoresConfiguration => self.store.acquire(vote.claim()).await,
            Flaw::IgnoresRequestedToken => {
                let (claim, quorum) = (vote.claim().clone(), vote.configuration().clone());
                self.store.vote(&Vote::new(claim, quorum)).await
            }
            _ => self.store.vote(vote).await,
        }
    }

    async fn raised(&self, lease: &Lease, min_token: u64) -> Result<Renewal, Error> {
        if self.has(Flaw::RenewalIgnoresMinimumToken) {
            return self.store.renew(lease).await;
        }
        let renewal = self.store.raise(lease, min_token).await?;
        if let (Flaw::MinimumTokenWithoutLease, Renewal::Taken) = (self.flaw, renewal) {
            let status = self.store.status(StoreId::new()).await?;
            let quorum = status.configuration().cloned();
            let quorum = quorum.unwrap_or(QuorumConfiguration::from_text("any"));
            let request = JoinRequest::new(status.store(), quorum).with_min_token(min_token);
            self.store.join(&request).await?;
        }
        Ok(renewal)
    }

    async fn joined(&self, request: &JoinRequest) -> Result<MemberStatus, Error> {
        if self.has(Flaw::IgnoresStoreId) {
            let store = self.store.status(StoreId::new()).await?.store();
            let any = JoinRequest::new(store, request.configuration().clone());
            return self.store.join(&any.with_min_token(request.min_token())).await;
        }
        self.store.join(request).await
    }
}

#[async_trait]
impl Layer for FaultyBackend {
    fn inner(&self) -> &dyn LockBackend {
        &self.store
    }

    async fn request(&self, request: Request<'_>) -> Result<Reply, Error> {
        Ok(match &request {
            Request::Acquire(claim) => self.attempt(claim).await?.into(),
            Request::AcquireAll(claims) => self.attempt_all(claims).await?.into(),
            Request::Renew(lease) => self.renewal(lease).await?.into(),
            Request::RenewAll(leases) => {
                join_all(leases.iter().map(|lease| self.renewal(lease))).await.into()
            }
            Request::Release(lease) => self.end(lease).await?.into(),
            Request::Vote(vote) => self.voted(vote).await?.into(),
            Request::Raise(lease, min_token) => self.raised(lease, *min_token).await?.into(),
            Request::Join(join) => self.joined(join).await?.into(),
            Request::ForceRelease(key, _) => {
                self.notes.lock().unwrap().granted.retain(|granted| granted.key() != &**key);
                request.send(&self.store).await?
            }
            Request::RequestRevocation(key, _) => {
                self.notes.lock().unwrap().revocation_requested.push((**key).clone());
                request.send(&self.store).await?
            }
            _ => request.send(&self.store).await?,
        })
    }

    fn watch(&self, subject: Subject<'_>) -> KeyWatch {
        match self.flaw {
            Flaw::NoNotifications => KeyWatch::silent(),
            _ => self.store.watch(subject),
        }
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

    async fn probe(&self, key: &LockKey) -> Option<Holder> {
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
