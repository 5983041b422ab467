//! Histories of real processes: clients that lock, are stopped and are killed, a record of their beliefs, its judge, and a page that shows it.
//!
//! A [`Population`](population::Population) of processes works on one store. Each runs [`worker::run`], and tells a [`Record`](record::Record) of
//! its beliefs. [`History::judge`](judge::History::judge) makes a [`Run`](run::Run) of that, with the promises that the history breaks, and
//! [`report::html`] shows several runs.
//!
//! `leasehold verify` and the fault campaign of the repository share this module. It is outside semantic versioning.

pub mod event;
pub mod fault;
pub mod judge;
pub mod line;
pub mod population;
pub mod process;
pub mod record;
pub mod report;
pub mod run;
pub mod stalls;
pub mod summary;
pub mod worker;
