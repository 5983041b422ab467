//! The scenarios of the bench, in one binary.

mod histories;
mod smoke;
mod stopped;
