//! Quorums of simulated stores that are slow, dead, cut off, set forward and emptied.

use std::time::Duration;

use async_trait::async_trait;
use leasehold_conformance::Rule;
use leasehold_core::Error;
use leasehold_core::backend::{
    Attempt, Capabilities, Claim, Enlistment, Lease, LockBackend, Release, Renewal, Standing,
    StoreId,
};
use leasehold_core::quorum::Quorum;
use leasehold_simulation::{Link, Report, Simulation};

/// Above all TTLs of a simulation, with their lock delays.
const MAX_TTL: Duration = Duration::from_millis(2_500);

/// About fifteen seconds of a processor for each number of members.
const SEEDS: u64 = 200;

fn quorum<B: LockBackend>(links: Vec<Link>, member: impl Fn(Link) -> B) -> Quorum<B> {
    let clock = links[0].clock();
    let named = links.into_iter().map(|link| (link.store().to_string(), member(link)));
    Quorum::builder(named).max_ttl(MAX_TTL).clock(clock).build().expect("the links are alike")
}

fn run(seed: u64, members: usize) -> Report {
    let simulation = Simulation::new(seed).members(members);
    simulation.backend(|links| quorum(links, |link| link)).run()
}

fn assert_no_promise_is_broken(members: usize) {
    let (mut guards, mut handed_off) = (0, 0);
    for seed in 0..SEEDS {
        let report = run(seed, members);
        assert!(!report.is_violated(), "{members} members, {report}");
        guards += report.guards();
        handed_off += report.handed_off();
    }
    assert!(guards > 3 * SEEDS, "{guards} guards in {SEEDS} seeds");
    assert!(handed_off > 0);
}

#[test]
fn quorum_of_three_breaks_no_promise() {
    assert_no_promise_is_broken(3);
}

#[test]
fn quorum_of_five_breaks_no_promise() {
    assert_no_promise_is_broken(5);
}

#[test]
fn seed_decides_everything_about_a_quorum() {
    for seed in 0..30 {
        assert_eq!(run(seed, 3).trace(), run(seed, 3).trace(), "seed {seed}");
    }
}

/// A member that ends leases when it is to renew them, and says that it has.
#[derive(Debug)]
struct Fickle(Link);

#[async_trait]
impl LockBackend for Fickle {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        self.0.try_acquire(claim).await
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
        self.0.release(lease).await.map(|_released| Renewal::Renewed)
    }

    async fn release(&self, lease: &Lease) -> Result<Release, Error> {
        self.0.release(lease).await
    }

    async fn standing(&self, fresh: StoreId) -> Result<Standing, Error> {
        self.0.standing(fresh).await
    }

    async fn enlist(&self, enlistment: &Enlistment) -> Result<Standing, Error> {
        self.0.enlist(enlistment).await
    }
}

#[test]
fn votes_without_a_lease_are_found() {
    let broken = (0..300).find(|seed| {
        let simulation = Simulation::new(*seed).members(3);
        let report = simulation.backend(|links| quorum(links, Fickle)).run();
        report.violates(Rule::Exclusion)
    });

    assert!(broken.is_some(), "members that renew nothing broke nothing");
}
