//! The tests of the simulation, in one binary.

mod followers;
mod quorums;
mod seeds;
mod stores;
