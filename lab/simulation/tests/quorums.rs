//! Quorums of simulated stores that are slow, unreachable or stopped, that lose their data, and whose clocks jump forward.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use leasehold_conformance::Rule;
use leasehold_core::Error;
use leasehold_core::backend::{Layer, LockBackend, Renewal, Reply, Request};
use leasehold_quorum::Quorum;
use leasehold_simulation::{Link, Report, Simulation};

/// Longer than all TTLs of a simulation, including the lock delays.
const MAX_TTL: Duration = Duration::from_millis(2_500);

/// The seeds take about 15 s of CPU time for each number of members.
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

/// A member that releases leases instead of renewing them, and reports that it has renewed them.
#[derive(Debug)]
struct Fickle(Link);

#[async_trait]
impl Layer for Fickle {
    fn inner(&self) -> &dyn LockBackend {
        &self.0
    }

    async fn request(&self, request: Request<'_>) -> Result<Reply, Error> {
        match &request {
            Request::Raise(lease, _) | Request::Renew(lease) => {
                self.0.release(lease).await.map(|_released| Renewal::Renewed.into())
            }
            Request::RenewAll(leases) => {
                Ok(join_all(leases.iter().map(|lease| self.renew(lease))).await.into())
            }
            _ => request.send(&self.0).await,
        }
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
