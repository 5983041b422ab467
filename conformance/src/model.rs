//! Random operations with time, on the store and on the state machine that specifies it.

use std::num::NonZeroU64;
use std::time::Duration;

use leasehold_core::clock::Instant;
use leasehold_core::memory::{Machine, Op, Outcome as Specified};
use leasehold_core::{Attempt, Claim, Grant, Holder, Inspection, Lease, LockBackend, LockKey};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use crate::case::{Need, Outcome};
use crate::harness::Harness;
use crate::run;
use crate::scene::Scene;

/// Time in the model goes in steps of this. Long compared to what the operations themselves take,
/// so that no lease of the store ends between two steps.
const STEP: Duration = Duration::from_secs(200);

/// How many sequences of operations are tried.
const SEQUENCES: u32 = 60;

/// Keys and leases per key. Few, so that operations meet.
const KEYS: usize = 2;
const LEASES: usize = 3;

/// An operation, on the lease or key with these numbers.
#[derive(Clone, Debug)]
enum Step {
    Acquire { key: usize, lease: usize, steps: u32 },
    Renew { key: usize, lease: usize, steps: u32 },
    Release { key: usize, lease: usize },
    ForceRelease { key: usize },
    Inspect { key: usize },
    Advance { steps: u32 },
}

fn step() -> impl Strategy<Value = Step> {
    let (key, lease, steps) = (0..KEYS, 0..LEASES, 1..5_u32);
    let which = (key.clone(), lease, steps.clone());
    prop_oneof![
        6 => which.clone().prop_map(|(key, lease, steps)| Step::Acquire { key, lease, steps }),
        3 => which.clone().prop_map(|(key, lease, steps)| Step::Renew { key, lease, steps }),
        3 => which.prop_map(|(key, lease, _)| Step::Release { key, lease }),
        1 => key.clone().prop_map(|key| Step::ForceRelease { key }),
        1 => key.prop_map(|key| Step::Inspect { key }),
        3 => steps.prop_map(|steps| Step::Advance { steps }),
    ]
}

/// The store does what the state machine does, whatever is asked in whatever order at whatever time.
pub(crate) fn agrees_with_the_specification<H: Harness>() -> Outcome {
    let runtime = run::runtime::<H>();
    let (scene, backend) = runtime.block_on(async {
        let scene = Scene::<H>::start().await;
        let needs = [Need::Advance, Need::ForceRelease, Need::Inspect];
        run::require(&scene, &needs).await?;
        let backend = scene.backend().await;
        Ok((scene, backend))
    })?;

    let config = Config { cases: SEQUENCES, failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new(config).run(&vec(step(), 1..60), |steps| {
        runtime.block_on(Pair::new(&scene, &backend).compare(&steps))
    });
    outcome.unwrap_or_else(|failure| panic!("{} is not as specified: {failure}", H::NAME));
    Ok(())
}

/// The store and its specification, side by side.
struct Pair<'a, H: Harness> {
    scene: &'a Scene<H>,
    backend: &'a H::Backend,
    machine: Machine,
    now: Instant,
    leases: Vec<Vec<Lease>>,
    last_tokens: [u64; KEYS],
}

impl<'a, H: Harness> Pair<'a, H> {
    fn new(scene: &'a Scene<H>, backend: &'a H::Backend) -> Self {
        let leases = (0..KEYS).map(|_| {
            let key = scene.key();
            (0..LEASES).map(|_| Lease::new(&key, STEP)).collect()
        });
        Self {
            scene,
            backend,
            machine: Machine::default(),
            now: Instant::from_zero(Duration::ZERO),
            leases: leases.collect(),
            last_tokens: [0; KEYS],
        }
    }

    fn key(&self, key: usize) -> LockKey {
        self.leases[key][0].key().clone()
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
            Step::Acquire { key, lease, steps } => {
                let claim = Claim::new(self.leases[key][lease].clone().with_ttl(STEP * steps));
                let specified = self.machine.apply(Op::TryAcquire(&claim), self.now);
                let attempt = self.backend.try_acquire(&claim).await.map_err(store_failed)?;
                let attempt = self.without_token(key, attempt)?;
                let specified = match specified {
                    Specified::Attempt(Attempt::Granted(_)) => {
                        Specified::Attempt(Attempt::Granted(some_grant()))
                    }
                    specified => specified,
                };
                self.same(step, &specified, &Specified::Attempt(attempt))
            }
            Step::Renew { key, lease, steps } => {
                let lease = self.leases[key][lease].clone().with_ttl(STEP * steps);
                let specified = self.machine.apply(Op::Renew(&lease), self.now);
                let renewal = self.backend.renew(&lease).await.map_err(store_failed)?;
                self.same(step, &specified, &Specified::Renewal(renewal))
            }
            Step::Release { key, lease } => {
                let lease = &self.leases[key][lease];
                let specified = self.machine.apply(Op::Release(lease), self.now);
                let release = self.backend.release(lease).await.map_err(store_failed)?;
                self.same(step, &specified, &Specified::Release(release))
            }
            Step::ForceRelease { key } => {
                let key = self.key(key);
                let specified = self.machine.apply(Op::ForceRelease(&key), self.now);
                let forced = self.backend.force_release(&key).await.map_err(store_failed)?;
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
                self.scene.harness().advance(&keys, STEP * steps).await;
                Ok(())
            }
        }
    }

    /// Tokens need not be those of the specification, but they must grow.
    fn without_token(&mut self, key: usize, attempt: Attempt) -> Result<Attempt, TestCaseError> {
        let Attempt::Granted(grant) = attempt else { return Ok(attempt) };
        let last = &mut self.last_tokens[key];
        prop_assert!(grant.token() > *last, "token {} after {last}", grant.token());
        *last = grant.token();
        Ok(Attempt::Granted(some_grant()))
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

fn some_grant() -> Grant {
    Grant::new(NonZeroU64::MIN)
}

fn store_failed(error: leasehold_core::Error) -> TestCaseError {
    TestCaseError::fail(error.to_string())
}

/// An outcome as text, without the token and with times in whole steps.
fn comparable(outcome: &Specified) -> String {
    match outcome {
        Specified::Attempt(Attempt::Held(contention)) => {
            format!("held by {}", holders(contention.holder()))
        }
        Specified::ForcedRelease(forced) => format!("ended {}", holders(forced.ended())),
        Specified::Inspection(inspection) => {
            format!("held by {}", holders(Inspection::holders(inspection)))
        }
        other => format!("{other:?}"),
    }
}

fn holders<'a>(holders: impl IntoIterator<Item = &'a Holder>) -> String {
    let steps = |holder: &Holder| {
        holder.remaining().map(|left| (left.as_secs_f64() / STEP.as_secs_f64()).round())
    };
    let show = |holder: &Holder| format!("{} for {:?} steps", holder.fingerprint(), steps(holder));
    holders.into_iter().map(show).collect::<Vec<_>>().join(", ")
}
