//! A quorum of five real servers: what only real servers can show.

mod redlock;
mod restarts;
mod servers;
mod silence;
mod tokens;
