//! Causes faults of real stores and real clients of Leasehold, and checks the recorded history. A seed determines the schedule of the faults.
//!
//! [`campaign::run`] tests one class of store. `leasehold_conformance::history` contains the clients and the checker.
#![forbid(unsafe_code)]

pub mod adversary;
pub mod args;
pub mod campaign;
pub mod class;
pub mod fault;
pub mod faulty_backend;
pub mod firewall;
pub mod report;
pub mod schedule;
pub mod store;
