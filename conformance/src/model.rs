//! Runs random operations on the store and on the state machine that specifies its behavior, and
//! compares the results.

use std::borrow::Cow;
use std::collections::HashMap;
use std::env;
use std::fmt::Write;
use std::mem;
use std::time::Duration;

use leasehold_core::backend::{
    Attempt, AttemptAll, Claim, Contention, Feature, Fingerprint, Grant, Inspection, Lease,
    LeaseId, LockBackend, Mode, Patience, Renewal, Reply, Request,
};
use leasehold_core::clock::Instant;
use leasehold_core::memory::Machine;
use leasehold_core::{Error, ErrorKind, Holder, LockKey};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use crate::cases::{grant, waiting_is_queueing};
use crate::driven::Observed;
use crate::harness::Time;
use crate::need::{Need, Outcome};
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
type Modes = [Mode; LEASES];

/// Exclusive locks.
pub(crate) fn mutexes_agree_with_the_specification(store: Profile) -> Outcome {
    agrees(store, [Mode::Exclusive; LEASES], NEEDS)
}

/// Claims of one to three permits out of three, and one claim with a smaller limit.
pub(crate) fn semaphores_agree_with_the_specification(store: Profile) -> Outcome {
    agrees(store, [permits(1, 3), permits(2, 3), permits(3, 3), permits(1, 2)], NEEDS_OF_PERMITS)
}

/// Two readers and two writers.
pub(crate) fn rw_locks_agree_with_the_specification(store: Profile) -> Outcome {
    agrees(
        store,
        [Mode::READER, Mode::READER, Mode::WRITER, Mode::WRITER],
        NEEDS_OF_READERS_AND_WRITERS,
    )
}

/// Claims of different lock types on the same key.
pub(crate) fn mixed_kinds_agree_with_the_specification(store: Profile) -> Outcome {
    agrees(
        store,
        [Mode::Exclusive, Mode::Exclusive, permits(1, 1), permits(1, 2)],
        NEEDS_OF_PERMITS,
    )
}

const fn permits(units: u32, limit: u32) -> Mode {
    Mode::Units { units, limit }
}

/// The needs of the models. A model also runs the operations of each optional feature and facet
/// that the backend supports.
pub(crate) const NEEDS: &[Need] = &[Need::Advance];
pub(crate) const NEEDS_OF_PERMITS: &[Need] = &[Need::Advance, Need::Units];
pub(crate) const NEEDS_OF_READERS_AND_WRITERS: &[Need] = &[Need::Advance, Need::Queue, Need::Units];

/// The optional features and facets that a model uses.
#[derive(Clone, Copy, Debug)]
struct Features {
    admin: bool,
    queue: bool,
    together: bool,
    units: bool,
    /// Whether the store queues callers that only wait. The model uses such claims only if the
    /// clock does not advance between two operations, because the store keeps the key for a called
    /// waiter for only [`Patience::RESERVATION`].
    waits: bool,
}

impl Features {
    async fn of(scene: &Scene, backend: &Observed, modes: Modes) -> Self {
        let capabilities = backend.capabilities();
        let is_queueing = waiting_is_queueing(scene, Mode::Exclusive).await;
        let shows_waiters = modes[3].is_mutex() && shows_waiter(scene, backend).await;
        Self {
            admin: backend.admin().is_some(),
            queue: capabilities.supports(Feature::Queue),
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

/// Returns whether the store shows the waiter for which it reserves a free key as the holder. In
/// the specification, nobody holds a reserved key. The model of mutexes does not use waiting claims
/// on such a store.
async fn shows_waiter(scene: &Scene, backend: &Observed) -> bool {
    let key = scene.key();
    let [holder, waiter, newcomer] = std::array::from_fn(|_| scene.lease(&key));
    grant(backend, &holder).await;
    let waits = Claim::new(waiter.clone()).with_patience(Patience::Waits);
    backend.acquire(&waits).await.unwrap();
    backend.release(&holder).await.unwrap();
    let attempt = backend.acquire(&Claim::new(newcomer.clone())).await.unwrap();
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
        u32::from(features.admin) => meant.clone().prop_map(|(key, lease)| {
            Step::RequestRevocation { key, lease }
        }),
        u32::from(features.admin) => meant.prop_map(|(key, lease)| {
            Step::ForceRelease { key, lease }
        }),
        u32::from(features.admin) => key.prop_map(|key| Step::Inspect { key }),
        3 => steps.prop_map(|steps| Step::Advance { steps }),
        3 * u32::from(features.waits) => Just(Step::Pause),
    ]
}

/// Checks that the store and the state machine return the same results for random requests at
/// random times.
fn agrees(store: Profile, modes: Modes, needs: &[Need]) -> Outcome {
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
                let features = Features::of(&scene, &backend, modes).await;
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
        let pair = Pair::new(&scene, &backend, features, modes);
        runtime.block_on(scene.run(pair.compare(&steps)))
    });
    if let Err(failure) = outcome {
        panic!("{}", explain(&store, modes, &failure, seed));
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
fn explain(store: &Profile, modes: Modes, failure: &TestError<Vec<Step>>, seed: u64) -> String {
    let TestError::Fail(reason, steps) = failure else { return failure.to_string() };
    let mut text = format!(
        "{} differs from the specification after {} steps: {reason}\n",
        store.name,
        steps.len()
    );
    for (number, step) in steps.iter().enumerate() {
        writeln!(text, "  {}. {step:?}", number + 1).expect("a string accepts all text");
    }
    writeln!(text, "The leases of each key are {modes:?}.").expect("a string accepts all text");
    text + &format!("To repeat this failure, run the case with {SEED}={seed}.")
}

/// What the store or its specification returns.
type Answer = Result<Reply, Error>;

/// The store and its specification.
struct Pair<'a> {
    scene: &'a Scene,
    backend: &'a Observed,
    features: Features,
    machine: Machine,
    now: Instant,
    leases: Vec<Vec<Lease>>,
    last_tokens: HashMap<LockKey, u64>,
    /// The time of the last revocation request to a single holder, by lease.
    asked_alone: HashMap<LeaseId, Instant>,
}

impl<'a> Pair<'a> {
    fn new(scene: &'a Scene, backend: &'a Observed, features: Features, modes: Modes) -> Self {
        let leases = (0..KEYS).map(|_| {
            let key = scene.key();
            modes.map(|mode| Lease::new(&key, STEP).with_mode(mode)).to_vec()
        });
        Self {
            scene,
            backend,
            features,
            machine: Machine::default(),
            now: Instant::from_zero(Duration::ZERO),
            leases: leases.collect(),
            last_tokens: HashMap::new(),
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
            self.backend.release(lease).await.map_err(failed)?;
        }
        Ok(())
    }

    async fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match *step {
            Step::Acquire { key, lease, steps, place } => {
                let claim = Claim::new(self.leases[key][lease].clone().with_ttl(STEP * steps))
                    .with_patience(self.features.patience(lease, place));
                self.same(Request::Acquire(Cow::Owned(claim))).await
            }
            Step::AcquireAll { leases, steps } => self.acquire_all(leases, steps).await,
            Step::Downgrade { key, lease, steps } => {
                let lease = &self.leases[key][lease];
                let mode = lease.mode().capped_by(permits(1, 1));
                self.renew(lease.clone().with_ttl(STEP * steps).with_mode(mode)).await
            }
            Step::Renew { key, lease, steps } => {
                self.renew(self.leases[key][lease].clone().with_ttl(STEP * steps)).await
            }
            Step::Release { key, lease } => {
                let lease = self.leases[key][lease].clone();
                self.same(Request::Release(Cow::Owned(lease))).await
            }
            Step::RequestRevocation { key, lease } => {
                if let Some(lease) = lease {
                    self.asked_alone.insert(self.leases[key][lease].id(), self.now);
                }
                let (key, only) = (self.key(key), self.fingerprint(key, lease));
                self.same(Request::RequestRevocation(Cow::Owned(key), only)).await
            }
            Step::ForceRelease { key, lease } => {
                let (key, only) = (self.key(key), self.fingerprint(key, lease));
                self.same(Request::ForceRelease(Cow::Owned(key), only)).await
            }
            Step::Inspect { key } => self.same(Request::Inspect(Cow::Owned(self.key(key)))).await,
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
        let mode = self.leases[key][0].mode();
        let claim = Claim::new(Lease::new(&self.key(key), STEP).with_mode(mode));
        let lease = claim.lease().clone();
        self.same(Request::Acquire(Cow::Owned(claim))).await?;
        self.machine.apply(&Request::Release(Cow::Borrowed(&lease)), self.now).map_err(failed)?;
        self.backend.release(&lease).await.map_err(failed)?;
        Ok(())
    }

    /// Lets time pass, so that a store that rounds TTLs up has expired the same leases as the specification.
    async fn pass(&mut self, time: Duration) {
        let keys: Vec<_> = (0..KEYS).map(|key| self.key(key)).collect();
        let time = time + self.backend.capabilities().ttl_granularity();
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
        let claims: Vec<Claim> = leases
            .into_iter()
            .zip(&self.leases)
            .map(|(lease, of_key)| {
                Claim::new(of_key[lease].clone().with_ttl(STEP * steps))
                    .with_patience(self.features.patience(lease, 1))
            })
            .collect();
        if claims.iter().all(|claim| claim.mode().is_mutex()) {
            self.same(Request::AcquireAll(Cow::Owned(claims))).await?;
        }
        Ok(())
    }

    async fn renew(&mut self, lease: Lease) -> Result<(), TestCaseError> {
        // A store may forget a revocation request to a single holder once the original lease would
        // have expired. The holder has renewed the lease before that.
        let may_forget = self.asked_alone.get(&lease.id()).is_some_and(|at| *at < self.now);
        let (specified, found) = self.replies(&Request::Renew(Cow::Owned(lease))).await?;
        let is_forgotten = matches!(specified, Ok(Reply::Renewal(Renewal::RevocationRequested)))
            && matches!(found, Ok(Reply::Renewal(Renewal::Renewed)));
        if may_forget && is_forgotten { Ok(()) } else { self.compare_replies(&specified, &found) }
    }

    /// Sends a request to the store and to the specification, and compares the replies.
    async fn same(&mut self, request: Request<'_>) -> Result<(), TestCaseError> {
        let (specified, found) = self.replies(&request).await?;
        self.compare_replies(&specified, &found)
    }

    /// Returns the replies of the specification and of the store.
    async fn replies(&mut self, request: &Request<'_>) -> Result<(Answer, Answer), TestCaseError> {
        let specified = self.machine.apply(request, self.now);
        let found = request.send(self.backend).await;
        self.newer(request, found.as_ref().map(Reply::grants).unwrap_or_default())?;
        Ok((specified, found))
    }

    /// Tokens may differ from the specification but must increase.
    fn newer<'g>(
        &mut self,
        request: &Request<'_>,
        grants: impl IntoIterator<Item = &'g Grant>,
    ) -> Result<(), TestCaseError> {
        for (claim, grant) in request.claims().iter().zip(grants) {
            let last = self.last_tokens.entry(claim.key().clone()).or_default();
            let (before, found) = (mem::replace(last, grant.token()), grant.token());
            if found <= before {
                let message = format!("found the token {found}, expected more than {before}");
                return Err(TestCaseError::fail(message));
            }
        }
        Ok(())
    }

    fn compare_replies(&self, specified: &Answer, found: &Answer) -> Result<(), TestCaseError> {
        let (expected, found) = (self.comparable(specified), self.comparable(found));
        if found == expected {
            return Ok(());
        }
        Err(TestCaseError::fail(format!("found {found}, expected {expected}")))
    }

    /// Formats an answer for comparison, without the token and with times in whole steps.
    fn comparable(&self, answer: &Answer) -> String {
        let reply = match answer {
            Err(error) if error.kind() == ErrorKind::WrongType => {
                return format!("that {:?} is in use as another type of lock", error.key());
            }
            Err(error) => return error.to_string(),
            Ok(reply) => reply,
        };
        match reply {
            Reply::Attempt(Attempt::Granted(_)) => "a grant".to_owned(),
            Reply::Attempt(Attempt::Held(contention)) => self.refused(contention),
            Reply::AttemptAll(AttemptAll::Granted(grants)) => format!("{} grants", grants.len()),
            Reply::AttemptAll(AttemptAll::Held { key, contention }) => {
                format!("{key}: {}", self.refused(contention))
            }
            Reply::ForcedRelease(forced) => {
                let token = if forced.min_token().is_some() { "a token" } else { "no token" };
                format!("the end of [{}] with {token}", holders(forced.ended()))
            }
            Reply::Inspection(inspection) => {
                let (units, by) = (inspection.units(), holders(Inspection::holders(inspection)));
                format!("{units} units held by [{by}]")
            }
            other => format!("{other:?}"),
        }
    }

    fn refused(&self, contention: &Contention) -> String {
        // If several leases expire in the same step, the store may report any of them.
        let holder = contention.holder().filter(|_| self.features.admin);
        let left = holder.and_then(Holder::remaining);
        // A store may report the waiter for which it reserves a free key as the holder.
        let left = left.filter(|left| *left > Patience::RESERVATION).map(steps);
        let retry_after = contention.retry_after().map(steps);
        format!("a refusal: held for {left:?} steps, retry after {retry_after:?} steps")
    }
}

fn failed(error: Error) -> TestCaseError {
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
