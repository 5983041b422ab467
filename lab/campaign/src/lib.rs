//! Disturbs real stores and real clients of Leasehold by a schedule that a seed decides, and judges the history of both.
//!
//! [`campaign::run`] visits one class of store. `leasehold_conformance::history` has the clients and the judge.
#![forbid(unsafe_code)]

pub mod args;
pub mod campaign;
pub mod class;
pub mod fault;
pub mod firewall;
pub mod liar;
pub mod report;
pub mod schedule;
pub mod store;
