//! One seed, one schedule: the real layers of Leasehold over simulated stores, networks and clocks.
//!
//! A [`Simulation`] runs several clients with several tasks each, on one or more stores, in virtual time on one thread. Its seed decides everything: the
//! kinds of lock and their options, the fate of every message, the incidents that befall clients and stores, the pace of
//! every clock, and the points at which calls are dropped. So a failure is one number, and a fix is proved by the same number.
//!
//! ```
//! use leasehold_simulation::Simulation;
//!
//! let report = Simulation::new(7).run();
//!
//! assert!(!report.is_violated(), "{report}");
//! ```
//!
//! The simulation records a [history](leasehold_conformance::history), and the checker of histories applies every
//! [rule](leasehold_conformance::Rule) to the record.
//!
//! Wipes, failovers and operators end leases whose callers still consider themselves holders. `docs/promises.md` permits the overlap for a TTL, and
//! the report counts the overlap separately.

mod simulation;

mod incident;
mod schedule;

mod process;
mod workload;

mod clock;
mod conditions;
mod endpoint;
mod network;
mod processor;
mod store;
mod world;

mod aftermath;
mod recorder;

mod report;
mod shrink;

pub use network::Link;
pub use report::Report;
pub use shrink::shrink;
pub use simulation::Simulation;
