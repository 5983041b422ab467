//! Tests of SQLite that the suite does not have, in one binary: each file is a subject.

mod failures;
mod membership;
mod news;
mod processes;
mod replaced;
mod users;
