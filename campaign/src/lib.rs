//! Disturbs real stores and real clients of Leasehold by a schedule that a seed decides, and judges the history of both.
//!
//! A [`Run`](run::Run) is the outcome on one class of store, as plain data.
#![forbid(unsafe_code)]

pub mod run;
