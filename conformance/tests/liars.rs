//! Backends with one flaw each. The suite must detect every flaw.

use std::num::NonZeroU64;
use std::panic;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_conformance::{Harness, Need, Time, cases};
use leasehold_core::admin::{ForcedRelease, Inspection, Revocation};
use leasehold_core::backend::{
    Attempt, AttemptAll, Capabilities, Charter, Claim, Contention, Enlistment, Fingerprint, Grant,
    KeyPage, KeyWatch, Lease, LeaseId, LockBackend, Patience, Release, Renewal, Share, Standing,
    StoreId,
};
use leasehold_core::clock::TokioClock;
use leasehold_core::memory::MemoryBackend;
use leasehold_core::{Error, ErrorKind, Holder, LockKey};

/// A memory backend that behaves, except for one thing.
#[derive(Clone, Debug)]
struct Liar {
    store: MemoryBackend,
    flaw: Flaw,
    notes: Arc<Mutex<Notes>>,
}

/// The leases that the store of a liar would still have, or have forgotten; for all clients of that store.
#[derive(Debug, Default)]
struct Notes {
    /// The last grant under each id, until its release.
    granted: Vec<Lease>,
    /// Refused claims that are queued.
    queued: Vec<Claim>,
    /// Refused claims of waiters.
    waiting: Vec<Claim>,
    /// Keys that were asked for back.
    asked_back: Vec<LockKey>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Flaw {
    AcquiresWhatIsHeld,
    AddsUnitsAtRenewals,
    AsksTheNextHolderToo,
    CountsTheDead,
    CutsAllReservationsShort,
    ExpiresEarly,
    EnlistsAnyStore,
    ForgetsFloors,
    ForgetsItsOwnGrant,
    ForgetsPlaces,
    ForgetsWaiters,
    GrantsSomeOfSeveral,
    GrantsToAnyQuorum,
    GrantsWaitersBriefly,
    HangsWhenContended,
    IgnoresNewDescriptions,
    IgnoresWishes,
    IssuesEqualTokens,
    KeepsPlacesForEver,
    KeepsPlacesOfLeavers,
    KeepsUnitsGivenBack,
    KeepsWhatExpires,
    LetsAnybodyRelease,
    LetsNewcomersPass,
    LetsNewcomersPassWaiters,
    LetsOneTooManyIn,
    MixesKinds,
    MixesUpCase,
    NeverAsksBack,
    NeverTellsNews,
    ProlongsOthers,
    RenewsForForgedIds,
    RenewsInto,
    RenewsNothing,
    ReservesNoTokens,
    ReleasesNothing,
    SaysReleasedTwice,
    SaysRenewedWhenTaken,
    TakesAnyFloor,
    TellsAnotherHolder,
    TellsNoHolder,
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

impl Liar {
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == flaw
    }

    /// The lease, if it is in force.
    async fn holder(&self, lease: &Lease) -> Result<Option<Holder>, Error> {
        let inspection = self.store.inspect(lease.key()).await?;
        let mut holders = inspection.holders().iter();
        Ok(holders.find(|holder| holder.fingerprint() == lease.id().fingerprint()).cloned())
    }

    /// The claim as the store gets it.
    async fn twisted(&self, claim: &Claim) -> Result<Claim, Error> {
        let lease = claim.lease();
        let as_lease = |lease| Claim::new(lease).with_patience(claim.patience());
        Ok(match (self.flaw, claim.share(), claim.patience()) {
            (Flaw::ExpiresEarly, ..) => as_lease(lease.clone().with_ttl(lease.ttl() * 9 / 10)),
            (Flaw::KeepsWhatExpires, ..) => as_lease(lease.clone().with_ttl(lease.ttl() * 20)),
            (Flaw::LetsOneTooManyIn, Share::Units { units, limit }, _) => {
                let limit = limit.saturating_add(1);
                as_lease(lease.clone().with_share(Share::Units { units, limit }))
            }
            (Flaw::CountsTheDead, Share::Units { units, limit }, _) => {
                let limit = limit.saturating_sub(self.units_of_the_dead(claim.key()).await?);
                as_lease(lease.clone().with_share(Share::Units { units, limit }))
            }
            (Flaw::GrantsWaitersBriefly, ..) if self.notes.lock().unwrap().waits(claim) => {
                as_lease(lease.clone().with_ttl(lease.ttl() / 10))
            }
            (Flaw::GrantsToAnyQuorum | Flaw::IgnoresWishes, ..) => self.without_quorum(claim),
            (Flaw::ForgetsPlaces, ..) => Claim::new(lease.clone()),
            (Flaw::ForgetsWaiters, _, Patience::Waits) => {
                claim.clone().with_patience(Patience::Leaves)
            }
            (Flaw::ReservesNoTokens, ..) => claim.clone().with_spare_tokens(0),
            (Flaw::KeepsPlacesForEver, _, Patience::Queues(place)) => {
                claim.clone().with_patience(Patience::Queues(place * 1_000))
            }
            _ => claim.clone(),
        })
    }

    /// The claim without its charter, or without its wish for a token.
    fn without_quorum(&self, claim: &Claim) -> Claim {
        let bare = Claim::new(claim.lease().clone())
            .with_patience(claim.patience())
            .with_spare_tokens(claim.spare_tokens());
        match (self.flaw, claim.charter()) {
            (Flaw::GrantsToAnyQuorum, _) => bare.with_least_token(claim.least_token()),
            (_, Some(charter)) => bare.with_charter(charter.clone()),
            (_, None) => bare,
        }
    }

    /// The number of units that expired with their holders.
    async fn units_of_the_dead(&self, key: &LockKey) -> Result<u32, Error> {
        let inspection = self.store.inspect(key).await?;
        let lives = |lease: &Lease| {
            inspection.holders().iter().any(|h| h.fingerprint() == lease.id().fingerprint())
        };
        let notes = self.notes.lock().unwrap();
        let dead = notes.granted.iter().filter(|lease| lease.key() == key && !lives(lease));
        Ok(dead.map(|lease| lease.share().units()).sum())
    }

    /// Attempts as if these claims were not queued.
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

    /// The lease as the store should renew it.
    fn renewed(&self, lease: &Lease) -> Lease {
        let notes = self.notes.lock().unwrap();
        let (lease, Some(granted)) = (lease.clone(), notes.granted(lease)) else {
            return lease.clone();
        };
        match self.flaw {
            Flaw::IgnoresNewDescriptions => lease.with_description(granted.description().cloned()),
            Flaw::ForgetsFloors => lease.with_floor(0),
            Flaw::KeepsUnitsGivenBack => lease.with_share(granted.share()),
            _ => lease,
        }
    }

    /// Gives a lease in force as many units as its renewal asks for.
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
impl LockBackend for Liar {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        if self.has(Flaw::ForgetsItsOwnGrant) && self.holder(claim.lease()).await?.is_some() {
            return Ok(Attempt::Held(Contention::new()));
        }
        let mut attempt = match self.store.try_acquire(&self.twisted(claim).await?).await {
            Err(error) if self.has(Flaw::MixesKinds) && error.kind() == ErrorKind::WrongType => {
                Attempt::Granted(Grant::new(NonZeroU64::MAX))
            }
            attempt => attempt?,
        };
        if let (Flaw::AcquiresWhatIsHeld, Attempt::Held(_)) = (self.flaw, &attempt) {
            self.store.force_release(claim.key(), None).await?;
            attempt = self.store.try_acquire(claim).await?;
        }
        if let (Flaw::LetsNewcomersPass, Attempt::Held(_), None) =
            (self.flaw, &attempt, claim.place())
        {
            let queued = self.notes.lock().unwrap().queued.clone();
            attempt = self.pass(queued, claim).await?;
        }
        if let (Flaw::LetsNewcomersPassWaiters, Attempt::Held(_), Patience::Leaves) =
            (self.flaw, &attempt, claim.patience())
        {
            let waiting = self.notes.lock().unwrap().waiting.clone();
            attempt = self.pass(waiting, claim).await?;
        }
        self.notes.lock().unwrap().note(claim, &attempt);
        if self.has(Flaw::CutsAllReservationsShort) {
            self.cut_reservations_short(claim.key()).await?;
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
                let unknown = Holder::new(LeaseId::new().fingerprint());
                let unknown = unknown.with_remaining(Some(Duration::from_secs(1)));
                Ok(Attempt::Held(Contention::new().with_holder(unknown)))
            }
            Attempt::Held(_) if self.has(Flaw::TellsNoHolder) => {
                Ok(Attempt::Held(Contention::new()))
            }
            held @ Attempt::Held(_) => Ok(held),
        }
    }

    async fn try_acquire_all(&self, claims: &[Claim]) -> Result<AttemptAll, Error> {
        let attempt = self.store.try_acquire_all(claims).await?;
        if let (Flaw::GrantsSomeOfSeveral, AttemptAll::Held { .. }) = (self.flaw, &attempt) {
            for claim in claims {
                self.store.try_acquire(claim).await?;
            }
        }
        Ok(attempt)
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
        if self.has(Flaw::RenewsNothing) {
            return Ok(Renewal::Renewed);
        }
        let renewal = self.store.renew(&self.renewed(lease)).await?;
        match (self.flaw, renewal) {
            (Flaw::AddsUnitsAtRenewals, Renewal::Renewed) => self.add_units(lease).await?,
            (Flaw::ProlongsOthers, Renewal::Renewed) => self.prolong_others(lease).await?,
            (Flaw::RenewsForForgedIds, Renewal::Taken) => self.prolong_others(lease).await?,
            (Flaw::RenewsInto, Renewal::Vanished) => {
                self.store.try_acquire(&Claim::new(lease.clone())).await?;
                return Ok(Renewal::Renewed);
            }
            (Flaw::SaysRenewedWhenTaken, Renewal::Taken)
            | (Flaw::NeverAsksBack, Renewal::RevocationRequested) => return Ok(Renewal::Renewed),
            (Flaw::TakesAnyFloor, Renewal::Taken) => {
                let standing = self.store.standing(StoreId::new()).await?;
                let charter = standing.charter().cloned().unwrap_or(Charter::from_text("any"));
                let enlistment = Enlistment::new(standing.store(), charter);
                self.store.enlist(&enlistment.with_floor(lease.floor())).await?;
            }
            (Flaw::AsksTheNextHolderToo, Renewal::Renewed)
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
            Flaw::KeepsPlacesOfLeavers if !was_granted => Ok(Release::NotHeld),
            Flaw::ReleasesNothing => Ok(Release::Released),
            Flaw::LetsAnybodyRelease => {
                self.store.force_release(lease.key(), None).await?;
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
        match self.flaw {
            Flaw::NeverTellsNews => KeyWatch::silent(),
            _ => self.store.watch(key),
        }
    }

    fn watch_lease(&self, lease: &Lease) -> KeyWatch {
        if self.has(Flaw::NeverTellsNews) {
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

/// The flaw of the store that is under test.
static FLAW: Mutex<Flaw> = Mutex::new(Flaw::AcquiresWhatIsHeld);

struct Lying(Liar);

#[async_trait]
impl Harness for Lying {
    type Backend = Liar;

    const NAME: &str = "liar";
    const TIME: Time = Time::Virtual;
    const HOOKS: &[Need] = &[Need::Advance];

    async fn start() -> Self {
        let store = MemoryBackend::with_clock(TokioClock::new());
        let (flaw, notes) = (*FLAW.lock().unwrap(), Arc::default());
        Self(Liar { store, flaw, notes })
    }

    async fn connect(&self) -> Liar {
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
fn every_flaw_is_caught() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    // These cases must fail, so their backtraces are not printed.
    panic::set_hook(Box::new(|_| {}));
    let missed: Vec<_> = FLAWS.iter().filter(|(flaw, case)| !catches(case, *flaw)).collect();
    drop(panic::take_hook());

    assert!(missed.is_empty(), "{missed:?}");
}

fn catches(path: &str, flaw: Flaw) -> bool {
    *FLAW.lock().unwrap() = flaw;
    let case = cases::<Lying>().into_iter().find(|case| case.path() == path);
    let case = case.unwrap_or_else(|| panic!("there is no case {path}"));
    panic::catch_unwind(|| case.run()).is_err()
}

/// Returns the message of a model that fails on a backend with this flaw.
fn failure_of_the_model(flaw: Flaw) -> String {
    *FLAW.lock().unwrap() = flaw;
    let case = cases::<Lying>().into_iter().find(|case| case.path() == MODEL).unwrap();
    let failure = panic::catch_unwind(|| case.run()).unwrap_err();
    failure.downcast_ref::<String>().unwrap().clone()
}

#[test]
fn a_failed_model_prints_its_steps_and_a_seed() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    panic::set_hook(Box::new(|_| {}));
    let failure = failure_of_the_model(Flaw::LetsAnybodyRelease);
    drop(panic::take_hook());

    assert!(failure.contains("found Released, expected NotHeld"), "{failure}");
    assert!(failure.contains("  1. Release { key: 0, lease: 0 }\n"), "{failure}");
    let (_, seed) = failure.split_once("LEASEHOLD_CONFORMANCE_SEED=").expect("a seed");
    assert!(seed.trim_end_matches('.').parse::<u64>().is_ok(), "{failure}");
}

const MODEL: &str = "model::mutexes_agree_with_the_specification";

/// Each flaw, and a case that must catch it.
const FLAWS: [(Flaw, &str); 41] = [
    (Flaw::AcquiresWhatIsHeld, "mutual_exclusion::many_clients_never_overlap"),
    (Flaw::AddsUnitsAtRenewals, "semaphore::a_renewal_gives_units_back_and_takes_none"),
    (Flaw::AsksTheNextHolderToo, "revocation::the_next_holder_is_not_asked"),
    (Flaw::CountsTheDead, "semaphore::a_lost_permit_comes_back_once"),
    (Flaw::CutsAllReservationsShort, "model::mutexes_agree_with_the_specification"),
    (Flaw::ExpiresEarly, "expiry::an_unrenewed_lease_ends_after_its_ttl_and_not_before"),
    (Flaw::EnlistsAnyStore, "membership::an_enlistment_of_another_store_changes_nothing"),
    (Flaw::ForgetsFloors, "membership::a_renewal_raises_the_floor"),
    (
        Flaw::ForgetsItsOwnGrant,
        "mutual_exclusion::a_grant_whose_reply_is_lost_is_the_same_acquisition",
    ),
    (Flaw::ForgetsPlaces, "fair::claims_are_served_in_order_of_arrival"),
    (Flaw::ForgetsWaiters, "hand_over::processes_that_want_it_all_the_time_get_fair_shares"),
    (Flaw::GrantsSomeOfSeveral, "together::all_keys_are_granted_or_none"),
    (Flaw::GrantsToAnyQuorum, "membership::a_claim_under_a_charter_needs_an_enlisted_store"),
    (Flaw::GrantsWaitersBriefly, "waiting::a_lease_after_a_wait_lasts_like_any_other"),
    (Flaw::HangsWhenContended, "mutual_exclusion::a_held_lock_is_refused_at_once"),
    (Flaw::IgnoresNewDescriptions, "election::a_proclamation_is_seen_by_all"),
    (Flaw::IgnoresWishes, "membership::a_wish_for_a_token_is_heeded_within_reach"),
    (Flaw::IssuesEqualTokens, "fencing::tokens_strictly_increase"),
    (Flaw::KeepsPlacesForEver, "fair::a_dead_waiter_holds_up_the_next_for_its_place_only"),
    (Flaw::KeepsPlacesOfLeavers, "fair::a_waiter_that_gives_up_leaves_the_queue_at_once"),
    (Flaw::KeepsUnitsGivenBack, "rw_lock::a_downgrade_lets_readers_in_and_no_writer_between"),
    (Flaw::KeepsWhatExpires, "expiry::an_unrenewed_lease_ends_after_its_ttl_and_not_before"),
    (Flaw::LetsAnybodyRelease, "release::a_stale_release_leaves_the_successor"),
    (Flaw::LetsNewcomersPass, "fair::no_claim_passes_the_queue"),
    (Flaw::LetsNewcomersPassWaiters, "model::mutexes_agree_with_the_specification"),
    (Flaw::LetsOneTooManyIn, "semaphore::no_more_permits_are_out_than_there_are"),
    (Flaw::MixesKinds, "semaphore::a_key_is_one_kind_of_lock_at_a_time"),
    (Flaw::MixesUpCase, "mutual_exclusion::similar_names_are_different_locks"),
    (Flaw::NeverAsksBack, "revocation::a_holder_that_is_asked_back_learns_of_it_and_goes_on"),
    (Flaw::NeverTellsNews, "waiting::a_release_wakes_a_waiter"),
    (Flaw::ProlongsOthers, "semaphore::each_holder_has_its_own_ttl"),
    (Flaw::RenewsForForgedIds, "renewal::a_forged_id_renews_nothing"),
    (Flaw::ReleasesNothing, "release::a_released_lock_is_free_and_a_second_release_is_nothing"),
    (Flaw::RenewsInto, "renewal::a_renewal_puts_the_full_ttl_in_force"),
    (Flaw::RenewsNothing, "renewal::a_lock_is_kept_for_many_ttls"),
    (Flaw::ReservesNoTokens, "hand_over::a_lease_passes_to_the_next_task_without_a_request"),
    (Flaw::SaysReleasedTwice, "release::a_released_lock_is_free_and_a_second_release_is_nothing"),
    (
        Flaw::SaysRenewedWhenTaken,
        "renewal::a_definite_no_is_a_loss_at_once_and_the_end_of_renewals",
    ),
    (Flaw::TakesAnyFloor, "membership::a_floor_without_its_lease_is_refused"),
    (Flaw::TellsAnotherHolder, "mutual_exclusion::a_refusal_names_the_holder_and_the_time_left"),
    (Flaw::TellsNoHolder, "semaphore::a_refusal_tells_of_the_lease_that_ends_first"),
];
