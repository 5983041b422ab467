//! A store whose servers answer renewals before their leader has heard of them, as ZooKeeper's do.

use std::time::Duration;

use leasehold_conformance::Rule;
use leasehold_simulation::Simulation;

/// Half a tick of a leader with sessions of some seconds.
const PINGS: Duration = Duration::from_millis(250);

fn overlaps(simulation: &Simulation) -> bool {
    simulation.run().violates(Rule::Exclusion)
}

#[test]
fn a_reply_that_is_no_renewal_is_found_and_one_of_the_leader_breaks_nothing() {
    let broken =
        (0..1_500).find(|seed| overlaps(&Simulation::new(*seed).answered_by_followers(PINGS)));

    let broken = broken.expect("belief that counts from a follower's reply ends in time");
    // The backend on ZooKeeper renews by a request that the leader has to answer.
    let report = Simulation::new(broken).run();
    assert!(!report.is_violated(), "{report}");
}
