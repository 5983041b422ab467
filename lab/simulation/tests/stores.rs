//! Clients of several stores, with different backends.

use async_trait::async_trait;
use leasehold_conformance::Rule;
use leasehold_core::Error;
use leasehold_core::backend::{
    Attempt, Capabilities, Claim, Contention, Fencing, Lease, LockBackend, Release, Renewal,
};
use leasehold_simulation::{Link, Simulation};

/// The number of stores that must grant a lease. The flaw is that this number is less than a majority.
const ENOUGH: usize = 1;

/// A lock on several stores with a mistake that a careless author could make.
#[derive(Debug)]
struct Minority(Vec<Link>);

#[async_trait]
impl LockBackend for Minority {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("minority", Fencing::None)
    }

    async fn acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        let mut grants = Vec::new();
        for link in &self.0 {
            if let Ok(Attempt::Granted(grant)) = link.acquire(claim).await {
                grants.push(grant);
            }
        }
        if grants.len() >= ENOUGH {
            return Ok(Attempt::Granted(grants.swap_remove(0)));
        }
        self.release(claim.lease()).await?;
        Ok(Attempt::Held(Contention::new()))
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
        let mut renewal = Ok(Renewal::Vanished);
        for link in &self.0 {
            match link.renew(lease).await {
                Ok(Renewal::Renewed) => return Ok(Renewal::Renewed),
                other => renewal = other,
            }
        }
        renewal
    }

    async fn release(&self, lease: &Lease) -> Result<Release, Error> {
        let mut released = Ok(Release::NotHeld);
        for link in &self.0 {
            let one = link.release(lease).await;
            released = released.and(one);
        }
        released
    }
}

#[test]
fn a_grant_by_a_minority_is_found() {
    let broken = (0..200).find(|seed| {
        let report = Simulation::new(*seed).stores(3).backend(Minority).run();
        report.violates(Rule::Exclusion)
    });

    assert!(broken.is_some(), "a grant by one store of three broke nothing");
}

#[test]
fn one_store_of_several_breaks_no_promise() {
    for seed in 0..200 {
        let backend = |mut links: Vec<Link>| links.swap_remove(1);
        let report = Simulation::new(seed).stores(3).backend(backend).run();

        assert!(report.guards() > 0, "{report}");
        assert!(!report.is_violated(), "{report}");
    }
}

#[test]
fn a_seed_decides_everything_on_several_stores() {
    for seed in 0..50 {
        let simulation = Simulation::new(seed).stores(3).backend(Minority);
        assert_eq!(simulation.run().trace(), simulation.run().trace(), "seed {seed}");
    }
}
