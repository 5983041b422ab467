//! One seed, one schedule: the real layers of Leasehold over a simulated store, a simulated network and simulated clocks.
//!
//! A [`Simulation`] runs several clients with several tasks each in virtual time on one thread. Its seed decides everything: the
//! kinds of lock and their options, the fate of every message, the [incidents](Incident) that befall clients and store, the pace of
//! every clock, and the points at which calls are dropped. So a failure is one number, and a fix is proved by the same number.
//!
//! ```
//! use leasehold_simulation::Simulation;
//!
//! let report = Simulation::new(7).run();
//!
//! assert!(report.violations().is_empty(), "{report}");
//! ```
//!
//! A simulation judges promises, not cases:
//!
//! | rule | the simulation fails if |
//! | --- | --- |
//! | V1 | the holders that believe in their leases of a key have more units than its limit |
//! | V2 | a resource that checks fencing tokens accepts a write by a holder that a later holder has succeeded there |
//! | V3 | the tokens of a key do not grow in the order in which its store grants leases |
//! | V4 | a guard says *held* after it has said *lost* |
//! | V5 | a call outlives its wait, or a client is passed for ever |
//! | V6 | faults have ended, and a key is not free within a TTL, or a task or a record is left |
//!
//! Wipes and failovers lose leases that their holders still believe in. `docs/promises.md` grants the overlap for a TTL, and the report
//! counts it apart.

mod simulation;

mod incident;
mod schedule;

mod clock;
mod network;
mod store;

mod judge;
mod workload;

mod report;
mod shrink;

pub use incident::{Fault, Incident};
pub use report::Report;
pub use shrink::shrink;
pub use simulation::Simulation;
