//! A quorum of five real servers: the suite, and what only real servers can show.

mod servers;
mod suite;
