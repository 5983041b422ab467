//! Runs random operations on the store and on the state machine that specifies its behavior, and
//! compares the results.

use std::collections::HashMap;
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
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use crate::case::{Need, Outcome};
use crate::driven::Observed;
use crate::pool::Sharing;
use crate::profile::Profile;
use crate::run;
use crate::scene::Scene;

/// The unit of time in the model. This unit is much longer than an operation, so that no lease
/// expires in the store between two steps.
const STEP: Duration = Duration::from_secs(200);

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

/// Exclusive locks. If the store has a queue, half of the claims are queued.
pub(crate) fn mutexes_agree_with_the_specification(store: Profile) -> Outcome {
    agrees(store, [Share::Whole; LEASES], NEEDS)
}

/// Claims of one to three permits out of three, and one claim with a smaller limit.
pub(crate) fn semaphores_agree_with_the_specification(store: Profile) -> Outcome {
    agrees(store, [permits(1, 3), permits(2, 3), permits(3, 3), permits(1, 2)], NEEDS_OF_ALL_KINDS)
}

/// Two readers and two writers.
pub(crate) fn rw_locks_agree_with_the_specification(store: Profile) -> Outcome {
    agrees(store, [Share::READER, Share::READER, Share::WRITER, Share::WRITER], NEEDS_OF_ALL_KINDS)
}

/// Claims of different lock types on the same key.
pub(crate) fn mixed_kinds_agree_with_the_specification(store: Profile) -> Outcome {
    agrees(store, [Share::Whole, Share::Whole, permits(1, 1), permits(1, 2)], NEEDS_OF_ALL_KINDS)
}

const fn permits(units: u32, limit: u32) -> Share {
    Share::Units { units, limit }
}

/// The needs of the model. `NEEDS_OF_ALL_KINDS` adds permits, queues and revocation.
pub(crate) const NEEDS: &[Need] = &[Need::Advance, Need::ForceRelease, Need::Inspect];
pub(crate) const NEEDS_OF_ALL_KINDS: &[Need] =
    &[Need::Advance, Need::ForceRelease, Need::Inspect, Need::Queue, Need::Revocation, Need::Units];

/// An operation on the lease or key with the given numbers.
#[derive(Clone, Debug)]
enum Step {
    /// Requests a lease. Every second lease is queued, and the store keeps its queue entry for this
    /// number of steps.
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
}

fn step(all_kinds: bool) -> impl Strategy<Value = Step> {
    let (key, lease, steps) = (0..KEYS, 0..LEASES, 1..5_u32);
    let which = (key.clone(), lease.clone(), steps.clone());
    let place = if all_kinds { 1..3_u32 } else { 0..1 };
    let if_all_kinds = u32::from(all_kinds);
    let meant = (key.clone(), option::of(lease.clone()));
    prop_oneof![
        6 => (which.clone(), place).prop_map(|((key, lease, steps), place)| {
            Step::Acquire { key, lease, steps, place }
        }),
        2 => ([lease.clone(), lease], steps.clone()).prop_map(|(leases, steps)| {
            Step::AcquireAll { leases, steps }
        }),
        if_all_kinds => which.clone().prop_map(|(key, lease, steps)| {
            Step::Downgrade { key, lease, steps }
        }),
        3 => which.clone().prop_map(|(key, lease, steps)| Step::Renew { key, lease, steps }),
        3 => which.prop_map(|(key, lease, _)| Step::Release { key, lease }),
        if_all_kinds => meant.clone().prop_map(|(key, lease)| Step::RequestRevocation { key, lease }),
        1 => meant.prop_map(|(key, lease)| Step::ForceRelease { key, lease }),
        1 => key.prop_map(|key| Step::Inspect { key }),
        3 => steps.prop_map(|steps| Step::Advance { steps }),
    ]
}

/// Checks that the store and the state machine return the same results for random requests at
/// random times.
fn agrees(store: Profile, shares: Shares, needs: &[Need]) -> Outcome {
    let runtime = store.runtime();
    let (scene, backend, all_kinds) = runtime.block_on(async {
        let scene = Scene::start(store, Sharing::Later).await;
        if let Err(skipped) = run::require_features(&scene, needs).await {
            scene.give_back();
            return Err(skipped);
        }
        let all_kinds = run::require_features(&scene, NEEDS_OF_ALL_KINDS).await.is_ok();
        let backend = scene.backend().await;
        Ok((scene, backend, all_kinds))
    })?;

    let cases = u32::try_from(store.rounds(SEQUENCES)).expect("they are few");
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new(config).run(&vec(step(all_kinds), 1..LONGEST), |steps| {
        runtime.block_on(scene.run(Pair::new(&scene, &backend, shares).compare(&steps)))
    });
    outcome
        .unwrap_or_else(|failure| panic!("{} does not behave as specified: {failure}", store.name));
    scene.give_back();
    Ok(())
}

/// The store and its specification.
struct Pair<'a> {
    scene: &'a Scene,
    backend: &'a Observed,
    machine: Machine,
    now: Instant,
    leases: Vec<Vec<Lease>>,
    last_tokens: [u64; KEYS],
    /// The time of the last revocation request to a single holder, by lease.
    asked_alone: HashMap<LeaseId, Instant>,
}

impl<'a> Pair<'a> {
    fn new(scene: &'a Scene, backend: &'a Observed, shares: Shares) -> Self {
        let leases = (0..KEYS).map(|_| {
            let key = scene.key();
            shares.map(|share| Lease::new(&key, STEP).with_share(share)).to_vec()
        });
        Self {
            scene,
            backend,
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
                let mut claim = Claim::new(self.leases[key][lease].clone().with_ttl(STEP * steps));
                if place > 0 && lease % 2 == 1 {
                    claim = claim.with_patience(Patience::Queues(STEP * place));
                }
                let specified = self.machine.apply(Op::TryAcquire(&claim), self.now);
                let found = self.found_attempt(key, self.backend.try_acquire(&claim).await)?;
                let specified = match specified {
                    Specified::Attempt(Attempt::Granted(_)) => granted(),
                    specified => specified,
                };
                self.same(step, &specified, &found)
            }
            Step::AcquireAll { leases, steps } => self.acquire_all(step, leases, steps).await,
            Step::Downgrade { key, lease, steps } => {
                let lease = &self.leases[key][lease];
                let share = lease.share().capped_by(permits(1, 1));
                self.renew(step, lease.clone().with_ttl(STEP * steps).with_share(share)).await
            }
            Step::Renew { key, lease, steps } => {
                self.renew(step, self.leases[key][lease].clone().with_ttl(STEP * steps)).await
            }
            Step::Release { key, lease } => {
                let lease = &self.leases[key][lease];
                let specified = self.machine.apply(Op::Release(lease), self.now);
                let release = self.backend.release(lease).await.map_err(store_failed)?;
                self.same(step, &specified, &Specified::Release(release))
            }
            Step::RequestRevocation { key, lease } => {
                if let Some(lease) = lease {
                    self.asked_alone.insert(self.leases[key][lease].id(), self.now);
                }
                let (key, only) = (self.key(key), self.fingerprint(key, lease));
                let specified = self.machine.apply(Op::RequestRevocation(&key, only), self.now);
                let found = self.backend.request_revocation(&key, only).await;
                let found = found.map_err(store_failed)?;
                self.same(step, &specified, &Specified::Revocation(found))
            }
            Step::ForceRelease { key, lease } => {
                let (key, only) = (self.key(key), self.fingerprint(key, lease));
                let specified = self.machine.apply(Op::ForceRelease(&key, only), self.now);
                let forced = self.backend.force_release(&key, only).await.map_err(store_failed)?;
                self.same(step, &specified, &Specified::ForcedRelease(forced))
            }
            Step::Inspect { key } => {
                let key = self.key(key);
                let specified = self.machine.apply(Op::Inspect(&key), self.now);
                let inspection = self.backend.inspect(&key).await.map_err(store_failed)?;
                self.same(step, &specified, &Specified::Inspection(inspection))
            }
            Step::Advance { steps } => {
                let keys: Vec<_> = (0..KEYS).map(|key| self.key(key)).collect();
                self.now = self.now + STEP * steps;
                self.scene.age(&keys, STEP * steps).await;
                Ok(())
            }
        }
    }

    /// Requests several leases. Even leases that would otherwise be queued must not create queue
    /// entries in such a request.
    async fn acquire_all(
        &mut self,
        step: &Step,
        leases: [usize; KEYS],
        steps: u32,
    ) -> Result<(), TestCaseError> {
        let claims = std::array::from_fn::<_, KEYS, _>(|key| {
            let lease = &self.leases[key][leases[key]];
            let claim = Claim::new(lease.clone().with_ttl(STEP * steps));
            let queues = leases[key] % 2 == 1;
            if queues { claim.with_patience(Patience::Queues(STEP)) } else { claim }
        });
        let possible = claims.iter().all(|claim| claim.share().is_whole());
        if !possible || !self.backend.capabilities().supports(Feature::Together) {
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
        self.same(step, &specified, &found)
    }

    async fn renew(&mut self, step: &Step, lease: Lease) -> Result<(), TestCaseError> {
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
        self.same(step, &specified, &Specified::Renewal(renewal))
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
        prop_assert!(
            grant.token() > *last,
            "the token {} is not larger than the previous token {last}",
            grant.token()
        );
        *last = grant.token();
        Ok(())
    }

    fn same(
        &self,
        step: &Step,
        specified: &Specified,
        found: &Specified,
    ) -> Result<(), TestCaseError> {
        let (specified, found) = (comparable(specified), comparable(found));
        prop_assert_eq!(&specified, &found, "at {:?}", step);
        Ok(())
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

/// Formats an outcome for comparison, without the token and with times in whole steps.
fn comparable(outcome: &Specified) -> String {
    match outcome {
        Specified::Attempt(Attempt::Held(contention)) => refused(contention),
        Specified::AttemptAll(AttemptAll::Held { key, contention }) => {
            format!("{key} {}", refused(contention))
        }
        Specified::ForcedRelease(forced) => {
            let tells = if forced.min_token().is_some() { "a token" } else { "no token" };
            format!("ended {}, and reported {tells}", holders(forced.ended()))
        }
        Specified::Inspection(inspection) => {
            let (units, by) = (inspection.units(), holders(Inspection::holders(inspection)));
            format!("{units} units held by {by}")
        }
        other => format!("{other:?}"),
    }
}

fn refused(contention: &Contention) -> String {
    // If several leases expire in the same step, the store may report any of them.
    let holder = contention.holder().and_then(Holder::remaining).map(steps);
    format!("held for {holder:?}, retry after {:?}", contention.retry_after().map(steps))
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
