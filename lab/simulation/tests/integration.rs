//! The simulation and its judge, in one binary: each file is a subject.

mod compare;
mod followers;
mod quorums;
mod seeds;
mod stores;
