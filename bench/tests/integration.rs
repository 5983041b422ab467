//! The scenarios of the bench, in one binary.

mod smoke;
mod stopped;
