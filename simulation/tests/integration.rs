//! The simulation and its judge, in one binary: each file is a subject.

mod followers;
mod history;
mod quorums;
mod seeds;
mod stores;
