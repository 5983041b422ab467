//! The simulation and its judge, in one binary: each file is a subject.

mod followers;
mod quorums;
mod seeds;
mod stores;
