//! Disturbs real stores and real clients of Leasehold by a schedule that a seed decides, and judges the history of both.
//!
//! A [`Run`](run::Run) is the outcome on one class of store, as plain data; [`campaign::run`] brings it about, and [`report::html`] shows several.
#![forbid(unsafe_code)]

pub mod args;
pub mod campaign;
pub mod class;
pub mod event;
pub mod fault;
pub mod firewall;
pub mod judge;
pub mod liar;
pub mod line;
pub mod population;
pub mod process;
pub mod record;
pub mod report;
pub mod run;
pub mod schedule;
pub mod stalls;
pub mod store;
pub mod summary;
pub mod worker;
