//! Tests of ZooKeeper that the suite does not have, in one binary: each file or folder is a subject.

mod access;
mod belief;
mod elections;
mod failures;
mod interop;
mod runtimes;
