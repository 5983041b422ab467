//! A quorum of five real servers: tests that only real servers allow.

mod redlock;
mod restarts;
mod servers;
mod silence;
mod tokens;
