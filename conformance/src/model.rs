//! Runs random operations on the store and on the state machine that specifies its behavior, and
//! compares the results.

use std::collections::HashMap;
use std::env;
use std::fmt::Write;
use std::mem;
use std::num::NonZeroU64;
use std::time::Duration;

use leasehold_core::admin::Inspection;
use leasehold_core::backend::{
    Attempt, AttemptAll, Claim, Contention, Feature, Fingerprint, Grant, Lease, LeaseId,
    LockBackend, Patience, Renewal, Share,
};
use leasehold_core::clock::Instant;
use leasehold_core::memory::{Machine, Op, Outcome as Specified};
use leasehold_core::{Error, ErrorKind, Holder, LockKey};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use crate::case::{Need, Outcome};
use crate::cases::{grant, waiting_is_queueing};
use crate::driven::Observed;
use crate::harness::Time;
use crate::pool::Sharing;
use crate::profile::Profile;
use crate::run;
use crate::scene::Scene;

/// The unit of time in the model. This unit is much longer than an operation, so that no lease
/// expires in the store between two steps.
const STEP: Duration = Duration::from_secs(200);

/// A short pause. Queue entries of callers that only wait expire within a few pauses, or within one
/// pause after the claim could be granted. All pauses of a sequence together are shorter than half
/// a `STEP`, so that they do not change a number of steps.
const PAUSE: Duration = Duration::from_secs(1);

/// The environment variable that contains the seed of the random operations.
const SEED: &str = "LEASEHOLD_CONFORMANCE_SEED";

/// The maximum number of operations in a sequence. The average is half of this number.
const LONGEST: usize = 84;

/// The maximum number of sequences. `TestRunner` runs all of them or fails. There is no minimum
/// number of operations, because the total is random and any minimum would sometimes fail.
const SEQUENCES: usize = 300;

/// The number of keys. There are only a few keys and leases per key, so that operations conflict.
const KEYS: usize = 2;
const LEASES: usize = 4;

/// The modes in which the leases of a key are requested.
type Shares = [Share; LEASES];

/// Exclusive locks.
pub(crate) fn mutexes_agree_with_the_specification(store: Profile) -> Outcome {
    agrees(store, [Share::Whole; LEASES], NEEDS)
}

/// Claims of one to three permits out of three, and one claim with a smaller limit.
pub(crate) fn semaphores_agree_with_the_specification(store: Profile) -> Outcome {
    agrees(store, [permits(1, 3), permits(2, 3), permits(3, 3), permits(1, 2)], NEEDS_OF_PERMITS)
}

/// Two readers and two writers.
pub(crate) fn rw_locks_agree_with_the_specification(store: Profile) -> Outcome {
    agrees(
        store,
        [Share::READER, Share::READER, Share::WRITER, Share::WRITER],
        NEEDS_OF_READERS_AND_WRITERS,
    )
}

/// Claims of different lock types on the same key.
pub(crate) fn mixed_kinds_agree_with_the_specification(store: Profile) -> Outcome {
    agrees(store, [Share::Whole, Share::Whole, permits(1, 1), permits(1, 2)], NEEDS_OF_PERMITS)
}

const fn permits(units: u32, limit: u32) -> Share {
    Share::Units { units, limit }
}

/// The needs of the models. A model also runs the operations of each optional feature that the
/// backend declares.
pub(crate) const NEEDS: &[Need] = &[Need::Advance];
pub(crate) const NEEDS_OF_PERMITS: &[Need] = &[Need::Advance, Need::Units];
pub(crate) const NEEDS_OF_READERS_AND_WRITERS: &[Need] = &[Need::Advance, Need::Queue, Need::Units];

/// The optional features that a model uses.
#[derive(Clone, Copy, Debug)]
struct Features {
    force_release: bool,
    inspect: bool,
    queue: bool,
    revocation: bool,
    together: bool,
    units: bool,
    /// Whether the store queues callers that only wait. The model uses such claims only if the
    /// clock does not advance between two operations, because the store keeps the key for a called
    /// waiter for only [`Patience::RESERVATION`].
    waits: bool,
}

impl Features {
    async fn of(scene: &Scene, backend: &Observed, shares: Shares) -> Self {
        let capabilities = backend.capabilities();
        let is_queueing = waiting_is_queueing(scene, Share::Whole).await;
        let shows_waiters = shares[3].is_whole() && shows_waiter(scene, backend).await;
        Self {
            force_release: capabilities.supports(Feature::ForceRelease),
            inspect: capabilities.supports(Feature::Inspect),
            queue: capabilities.supports(Feature::Queue),
            revocation: capabilities.supports(Feature::Revocation),
            together: capabilities.supports(Feature::Together),
            units: capabilities.supports(Feature::Units),
            waits: scene.time() != Time::Real && is_queueing && !shows_waiters,
        }
    }

    /// Returns how long the claim for this lease waits. The first lease never waits.
    fn patience(self, lease: usize, place: u32) -> Patience {
        match lease {
            1 if self.queue => Patience::Queues(STEP * place),
            2 | 3 if self.waits => Patience::Waits,
            3 if self.queue => Patience::Queues(STEP * place),
            _ => Patience::Leaves,
        }
    }
}

/// Returns whether the store shows the waiter for which it reserves a free key as the holder. In the
/// specification, nobody holds a reserved key. The model of mutexes does not use waiting claims on
/// such a store.
async fn shows_waiter(scene: &Scene, backend: &Observed) -> bool {
    let key = scene.key();
    let [holder, waiter, newcomer] = std::array::from_fn(|_| scene.lease(&key));
    grant(backend, &holder).await;
    let waits = Claim::new(waiter.clone()).with_patience(Patience::Waits);
    backend.try_acquire(&waits).await.unwrap();
    backend.release(&holder).await.unwrap();
    let attempt = backend.try_acquire(&Claim::new(newcomer.clone())).await.unwrap();
    for lease in [waiter, newcomer] {
        backend.release(&lease).await.unwrap();
    }
    matches!(attempt, Attempt::Held(contention) if contention.holder().is_some())
}

/// An operation on the lease or key with the given numbers.
#[derive(Clone, Debug)]
enum Step {
    /// Requests a lease. If the claim is queued, the store keeps its queue entry for `place` steps.
    Acquire {
        key: usize,
        lease: usize,
        steps: u32,
        place: u32,
    },
    /// Requests one lease of each key, if both leases are exclusive.
    AcquireAll {
        leases: [usize; KEYS],
        steps: u32,
    },
    /// Returns all permits except the first one.
    Downgrade {
        key: usize,
        lease: usize,
        steps: u32,
    },
    Renew {
        key: usize,
        lease: usize,
        steps: u32,
    },
    Release {
        key: usize,
        lease: usize,
    },
    /// Requests the revocation of one lease, or of all leases.
    RequestRevocation {
        key: usize,
        lease: Option<usize>,
    },
    /// Force-releases one lease, or all leases.
    ForceRelease {
        key: usize,
        lease: Option<usize>,
    },
    Inspect {
        key: usize,
    },
    Advance {
        steps: u32,
    },
    /// Lets a short time pass.
    Pause,
}

fn step(features: Features) -> impl Strategy<Value = Step> {
    let (key, lease, steps, place) = (0..KEYS, 0..LEASES, 1..5_u32, 1..3_u32);
    let which = (key.clone(), lease.clone(), steps.clone());
    let meant = (key.clone(), option::of(lease.clone()));
    prop_oneof![
        6 => (which.clone(), place).prop_map(|((key, lease, steps), place)| {
            Step::Acquire { key, lease, steps, place }
        }),
        2 * u32::from(features.together) => ([lease.clone(), lease], steps.clone()).prop_map(|(leases, steps)| {
            Step::AcquireAll { leases, steps }
        }),
        u32::from(features.units) => which.clone().prop_map(|(key, lease, steps)| {
            Step::Downgrade { key, lease, steps }
        }),
        3 => which.clone().prop_map(|(key, lease, steps)| Step::Renew { key, lease, steps }),
        3 => which.prop_map(|(key, lease, _)| Step::Release { key, lease }),
        u32::from(features.revocation) => meant.clone().prop_map(|(key, lease)| {
            Step::RequestRevocation { key, lease }
        }),
        u32::from(features.force_release) => meant.prop_map(|(key, lease)| {
            Step::ForceRelease { key, lease }
        }),
        u32::from(features.inspect) => key.prop_map(|key| Step::Inspect { key }),
        3 => steps.prop_map(|steps| Step::Advance { steps }),
        3 * u32::from(features.waits) => Just(Step::Pause),
    ]
}

/// Checks that the store and the state machine return the same results for random requests at
/// random times.
fn agrees(store: Profile, shares: Shares, needs: &[Need]) -> Outcome {
    let runtime = store.runtime();
    let (scene, backend, features) = runtime.block_on(async {
        let scene = Scene::start(store, Sharing::Later).await;
        if let Err(skipped) = run::require_features(&scene, needs).await {
            scene.give_back();
            return Err(skipped);
        }
        let (backend, features) = scene
            .run(async {
                let backend = scene.backend().await;
                let features = Features::of(&scene, &backend, shares).await;
                (backend, features)
            })
            .await;
        Ok((scene, backend, features))
    })?;

    let cases = u32::try_from(store.rounds(SEQUENCES)).expect("they are few");
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let seed = seed();
    let mut runner = TestRunner::new_with_rng(config, random(seed));
    let outcome = runner.run(&vec(step(features), 1..LONGEST), |steps| {
        let pair = Pair::new(&scene, &backend, features, shares);
        runtime.block_on(scene.run(pair.compare(&steps)))
    });
    if let Err(failure) = outcome {
        panic!("{}", explain(&store, shares, &failure, seed));
    }
    scene.give_back();
    Ok(())
}

/// Returns the seed from the environment, or a random seed.
fn seed() -> u64 {
    match env::var(SEED) {
        Ok(seed) => seed.parse().unwrap_or_else(|_| {
            panic!("found {SEED}={seed:?}, expected the number that a failed case has printed")
        }),
        Err(_) => fastrand::u64(..),
    }
}

fn random(seed: u64) -> TestRng {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    TestRng::from_seed(RngAlgorithm::ChaCha, &bytes)
}

/// Describes a failure, with the shortest sequence that fails and the seed to repeat the failure.
fn explain(store: &Profile, shares: Shares, failure: &TestError<Vec<Step>>, seed: u64) -> String {
    let TestError::Fail(reason, steps) = failure else { return failure.to_string() };
    let mut text = format!(
        "{} differs from the specification after {} steps: {reason}\n",
        store.name,
        steps.len()
    );
    for (number, step) in steps.iter().enumerate() {
        writeln!(text, "  {}. {step:?}", number + 1).expect("a string accepts all text");
    }
    writeln!(text, "The leases of each key are {shares:?}.").expect("a string accepts all text");
    text + &format!("To repeat this failure, run the case with {SEED}={seed}.")
}

/// The store and its specification.
struct Pair<'a> {
    scene: &'a Scene,
    backend: &'a Observed,
    features: Features,
    machine: Machine,
    now: Instant,
    leases: Vec<Vec<Lease>>,
    last_tokens: [u64; KEYS],
    /// The time of the last revocation request to a single holder, by lease.
    asked_alone: HashMap<LeaseId, Instant>,
}

impl<'a> Pair<'a> {
    fn new(scene: &'a Scene, backend: &'a Observed, features: Features, shares: Shares) -> Self {
        let leases = (0..KEYS).map(|_| {
            let key = scene.key();
            shares.map(|share| Lease::new(&key, STEP).with_share(share)).to_vec()
        });
        Self {
            scene,
            backend,
            features,
            machine: Machine::default(),
            now: Instant::from_zero(Duration::ZERO),
            leases: leases.collect(),
            last_tokens: [0; KEYS],
            asked_alone: HashMap::new(),
        }
    }

    fn key(&self, key: usize) -> LockKey {
        self.leases[key][0].key().clone()
    }

    fn fingerprint(&self, key: usize, lease: Option<usize>) -> Option<Fingerprint> {
        lease.map(|lease| self.leases[key][lease].id().fingerprint())
    }

    async fn compare(mut self, steps: &[Step]) -> Result<(), TestCaseError> {
        for step in steps {
            self.step(step).await?;
        }
        for lease in self.leases.iter().flatten() {
            self.backend.release(lease).await.map_err(store_failed)?;
        }
        Ok(())
    }

    async fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match *step {
            Step::Acquire { key, lease, steps, place } => {
                let claim = Claim::new(self.leases[key][lease].clone().with_ttl(STEP * steps))
                    .with_patience(self.features.patience(lease, place));
                let specified = self.machine.apply(Op::TryAcquire(&claim), self.now);
                let found = self.found_attempt(key, self.backend.try_acquire(&claim).await)?;
                let specified = match specified {
                    Specified::Attempt(Attempt::Granted(_)) => granted(),
                    specified => specified,
                };
                self.same(&specified, &found)
            }
            Step::AcquireAll { leases, steps } => self.acquire_all(leases, steps).await,
            Step::Downgrade { key, lease, steps } => {
                let lease = &self.leases[key][lease];
                let share = lease.share().capped_by(permits(1, 1));
                self.renew(lease.clone().with_ttl(STEP * steps).with_share(share)).await
            }
            Step::Renew { key, lease, steps } => {
                self.renew(self.leases[key][lease].clone().with_ttl(STEP * steps)).await
            }
            Step::Release { key, lease } => {
                let lease = &self.leases[key][lease];
                let specified = self.machine.apply(Op::Release(lease), self.now);
                let release = self.backend.release(lease).await.map_err(store_failed)?;
                self.same(&specified, &Specified::Release(release))
            }
            Step::RequestRevocation { key, lease } => {
                if let Some(lease) = lease {
                    self.asked_alone.insert(self.leases[key][lease].id(), self.now);
                }
                let (key, only) = (self.key(key), self.fingerprint(key, lease));
                let specified = self.machine.apply(Op::RequestRevocation(&key, only), self.now);
                let found = self.backend.request_revocation(&key, only).await;
                let found = found.map_err(store_failed)?;
                self.same(&specified, &Specified::Revocation(found))
            }
            Step::ForceRelease { key, lease } => {
                let (key, only) = (self.key(key), self.fingerprint(key, lease));
                let specified = self.machine.apply(Op::ForceRelease(&key, only), self.now);
                let forced = self.backend.force_release(&key, only).await.map_err(store_failed)?;
                self.same(&specified, &Specified::ForcedRelease(forced))
            }
            Step::Inspect { key } => {
                let key = self.key(key);
                let specified = self.machine.apply(Op::Inspect(&key), self.now);
                let inspection = self.backend.inspect(&key).await.map_err(store_failed)?;
                self.same(&specified, &Specified::Inspection(inspection))
            }
            Step::Advance { steps } => {
                self.pass(STEP * steps).await;
                Ok(())
            }
            Step::Pause => {
                for key in 0..KEYS {
                    self.probe(key).await?;
                }
                self.pass(PAUSE).await;
                Ok(())
            }
        }
    }

    /// Makes an attempt and releases its lease. A store may notice only at an attempt that a queued
    /// claim could be granted, and this attempt makes all stores notice at the same time.
    async fn probe(&mut self, key: usize) -> Result<(), TestCaseError> {
        let share = self.leases[key][0].share();
        let claim = Claim::new(Lease::new(&self.key(key), STEP).with_share(share));
        let specified = self.machine.apply(Op::TryAcquire(&claim), self.now);
        let found = self.found_attempt(key, self.backend.try_acquire(&claim).await)?;
        self.same(&specified, &found)?;
        self.machine.apply(Op::Release(claim.lease()), self.now);
        self.backend.release(claim.lease()).await.map_err(store_failed)?;
        Ok(())
    }

    async fn pass(&mut self, time: Duration) {
        let keys: Vec<_> = (0..KEYS).map(|key| self.key(key)).collect();
        self.now = self.now + time;
        self.scene.age(&keys, time).await;
    }

    /// Requests several leases. Even leases that would otherwise be queued must not create queue
    /// entries in such a request.
    async fn acquire_all(
        &mut self,
        leases: [usize; KEYS],
        steps: u32,
    ) -> Result<(), TestCaseError> {
        let claims = std::array::from_fn::<_, KEYS, _>(|key| {
            let lease = &self.leases[key][leases[key]];
            Claim::new(lease.clone().with_ttl(STEP * steps))
                .with_patience(self.features.patience(leases[key], 1))
        });
        let possible = claims.iter().all(|claim| claim.share().is_whole());
        if !possible {
            return Ok(());
        }
        let specified = match self.machine.apply(Op::TryAcquireAll(&claims), self.now) {
            Specified::AttemptAll(AttemptAll::Granted(grants)) => all_granted(grants.len()),
            specified => specified,
        };
        let found = match self.backend.try_acquire_all(&claims).await {
            Ok(AttemptAll::Granted(grants)) => {
                for (key, grant) in grants.iter().enumerate() {
                    self.newer(key, grant)?;
                }
                all_granted(grants.len())
            }
            Ok(held) => Specified::AttemptAll(held),
            Err(error) => wrong_type(error)?,
        };
        self.same(&specified, &found)
    }

    async fn renew(&mut self, lease: Lease) -> Result<(), TestCaseError> {
        let specified = self.machine.apply(Op::Renew(&lease), self.now);
        let renewal = self.backend.renew(&lease).await.map_err(store_failed)?;
        // A store may forget a revocation request to a single holder once the original lease would
        // have expired. The holder has renewed the lease before that.
        let may_be_forgotten = self.asked_alone.get(&lease.id()).is_some_and(|at| *at < self.now);
        if may_be_forgotten
            && specified == Specified::Renewal(Renewal::RevocationRequested)
            && renewal == Renewal::Renewed
        {
            return Ok(());
        }
        self.same(&specified, &Specified::Renewal(renewal))
    }

    fn found_attempt(
        &mut self,
        key: usize,
        attempt: Result<Attempt, Error>,
    ) -> Result<Specified, TestCaseError> {
        match attempt {
            Ok(Attempt::Granted(grant)) => {
                self.newer(key, &grant)?;
                Ok(granted())
            }
            Ok(held) => Ok(Specified::Attempt(held)),
            Err(error) => wrong_type(error.with_key(&self.key(key))),
        }
    }

    /// Tokens may differ from the specification but must increase.
    fn newer(&mut self, key: usize, grant: &Grant) -> Result<(), TestCaseError> {
        let last = &mut self.last_tokens[key];
        let before = mem::replace(last, grant.token());
        if grant.token() > before {
            return Ok(());
        }
        let found = grant.token();
        Err(TestCaseError::fail(format!("found the token {found}, expected more than {before}")))
    }

    fn same(&self, specified: &Specified, found: &Specified) -> Result<(), TestCaseError> {
        let (expected, found) = (self.comparable(specified), self.comparable(found));
        if found == expected {
            return Ok(());
        }
        Err(TestCaseError::fail(format!("found {found}, expected {expected}")))
    }

    /// Formats an outcome for comparison, without the token and with times in whole steps.
    fn comparable(&self, outcome: &Specified) -> String {
        match outcome {
            Specified::Attempt(Attempt::Granted(_)) => "a grant".to_owned(),
            Specified::Attempt(Attempt::Held(contention)) => self.refused(contention),
            Specified::AttemptAll(AttemptAll::Granted(_)) => "a grant of all keys".to_owned(),
            Specified::AttemptAll(AttemptAll::Held { key, contention }) => {
                format!("{key}: {}", self.refused(contention))
            }
            Specified::ForcedRelease(forced) => {
                let token = if forced.min_token().is_some() { "a token" } else { "no token" };
                format!("the end of [{}] with {token}", holders(forced.ended()))
            }
            Specified::Inspection(inspection) => {
                let (units, by) = (inspection.units(), holders(Inspection::holders(inspection)));
                format!("{units} units held by [{by}]")
            }
            Specified::Release(release) => format!("{release:?}"),
            Specified::Renewal(renewal) => format!("{renewal:?}"),
            Specified::Revocation(revocation) => format!("{revocation:?}"),
            other => format!("{other:?}"),
        }
    }

    fn refused(&self, contention: &Contention) -> String {
        // If several leases expire in the same step, the store may report any of them.
        let holder = contention.holder().filter(|_| self.features.inspect);
        let left = holder.and_then(Holder::remaining);
        // A store may report the waiter for which it reserves a free key as the holder.
        let left = left.filter(|left| *left > Patience::RESERVATION).map(steps);
        let retry_after = contention.retry_after().map(steps);
        format!("a refusal: held for {left:?} steps, retry after {retry_after:?} steps")
    }
}

fn granted() -> Specified {
    Specified::Attempt(Attempt::Granted(Grant::new(NonZeroU64::MIN)))
}

fn all_granted(count: usize) -> Specified {
    Specified::AttemptAll(AttemptAll::Granted(vec![Grant::new(NonZeroU64::MIN); count]))
}

/// Converts the error for a key that is held as a different lock type.
fn wrong_type(error: Error) -> Result<Specified, TestCaseError> {
    match error.key() {
        Some(key) if error.kind() == ErrorKind::WrongType => Ok(Specified::WrongType(key.clone())),
        _ => Err(store_failed(error)),
    }
}

fn store_failed(error: Error) -> TestCaseError {
    TestCaseError::fail(error.to_string())
}

fn holders(holders: &[Holder]) -> String {
    let show = |holder: &Holder| {
        let (units, left) = (holder.units(), holder.remaining().map(steps));
        format!("{} with {units} for {left:?} steps", holder.fingerprint())
    };
    let mut shown: Vec<String> = holders.iter().map(show).collect();
    shown.sort();
    shown.join(", ")
}

fn steps(time: Duration) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a few steps, rounded"
    )]
    let steps = (time.as_secs_f64() / STEP.as_secs_f64()).round() as u64;
    steps
}
