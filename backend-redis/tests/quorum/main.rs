//! A quorum of five real servers: the suite, and what only real servers can show.

mod redlock;
mod restarts;
mod servers;
mod silence;
mod suite;
mod tokens;
