//! The campaign, in one binary.

mod gate;
mod judge;
mod lies;
mod schedule;
