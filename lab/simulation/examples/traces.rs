//! Prints a digest of all messages for each of the seeds 0 to 999. `scripts/evidence` records the output.

use leasehold_simulation::Simulation;

fn main() {
    for seed in 0..1_000 {
        let report = Simulation::new(seed).run();
        println!("{seed}\t{}\t{:016x}", report.messages(), report.trace());
    }
}
