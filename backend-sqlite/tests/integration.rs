//! Tests of SQLite that the suite does not have, in one binary: each file is a subject.

mod adversary;
mod failures;
mod membership;
mod migration;
mod news;
mod processes;
mod replaced;
mod together;
mod users;
mod wake;
