//! The least that still fails.

use crate::report::Report;
use crate::simulation::Simulation;

/// Leaves out one incident after the other for as long as the simulation breaks a promise; the report of the last run that did.
///
/// A report without violations comes back as it is.
pub fn shrink(simulation: Simulation) -> Report {
    let (mut simulation, mut report) = (simulation.clone(), simulation.run());
    let mut number = 0;
    while report.is_violated() && number < simulation.drawn_incidents() {
        let smaller = simulation.clone().without(number);
        let outcome = smaller.run();
        if outcome.is_violated() {
            (simulation, report) = (smaller, outcome);
        }
        number += 1;
    }
    report
}
