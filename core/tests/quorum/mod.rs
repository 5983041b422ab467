//! Locks on a majority of independent stores: the model of their tokens, and the backend in virtual time.

mod configuration;
mod crowds;
mod members;
mod model;
mod operator;
mod servers;
mod tokens;
mod upkeep;
mod votes;
