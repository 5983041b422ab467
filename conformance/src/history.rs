//! Runs real client processes, pauses and kills them, records their history, and checks it.
//!
//! A [`Population`](population::Population) of processes uses one store. Each process calls
//! [`worker::run`], and reports to a [`Record`](record::Record) which locks it considers held.
//! [`History::check`](checker::History::check) creates a [`Run`](run::Run) from the record, with
//! all violated guarantees. A [`Summary`](summary::Summary) displays the run.
//!
//! `leasehold verify` and the fault campaign of the repository use this module. The simulation of
//! the repository records its history with the same [`event`]s and checks it with the same
//! [`checker`]. The module is not covered by semantic versioning.

pub mod checker;
pub mod event;
pub mod fault;
pub mod line;
pub mod population;
pub mod process;
pub mod record;
pub mod run;
pub mod stalls;
pub mod summary;
pub mod worker;
