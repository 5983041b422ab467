//! One seed, one schedule: the real layers of Leasehold over simulated stores, networks and clocks.
//!
//! A [`Simulation`] runs several clients with several tasks each, on one or more stores, in virtual time on one thread. Its seed decides everything: the
//! kinds of lock and their options, the fate of every message, the [incidents](Incident) that befall clients and stores, the pace of
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
//! | V4 | a guard says *held* after it has said *lost*, or for longer than it may be held |
//! | V5 | a call outlives its wait, a client is passed for ever, or a lease is lost to a fault of another key |
//! | V6 | faults have ended, and a key is not free within a TTL, or a task, a record, a watch or an entry of a client is left |
//! | V7 | a lease is handed over that is asked back, or of which less than half is left |
//!
//! Wipes, failovers and operators end leases that their holders still believe in. `docs/promises.md` grants the overlap for a TTL, and
//! the report counts it apart.

mod simulation;

mod incident;
mod schedule;

mod process;
mod workload;

mod clock;
mod network;
mod processor;
mod store;
mod weather;
mod world;

mod aftermath;
mod judge;

mod report;
mod shrink;

pub use incident::{Fault, Incident};
pub use network::Link;
pub use report::Report;
pub use shrink::shrink;
pub use simulation::Simulation;
