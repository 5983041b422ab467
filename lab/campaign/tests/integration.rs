//! The campaign, in one binary.

mod checker;
mod gate;
mod lies;
mod schedule;
