//! The campaign, in one binary.

mod adversary;
mod checker;
mod faulty_backends;
mod gate;
mod schedule;
