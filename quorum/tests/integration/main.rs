//! The quorum on stores in memory, in virtual time, and a model of its tokens.

mod batches;
mod configuration;
mod crowds;
mod members;
mod model;
mod operator;
mod servers;
mod tokens;
mod upkeep;
mod votes;
