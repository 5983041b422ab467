//! A quorum of five real servers: the suite, and tests that only real servers allow.

mod redlock;
mod restarts;
mod servers;
mod silence;
mod suite;
mod tokens;
