//! Tests of etcd that the suite does not have, in one binary: each file or folder is a subject.

mod access;
mod batching;
mod failures;
mod fair;
mod interop;
mod owner;
mod requests;
mod runtimes;
mod sessions;
mod versions;
mod waiting;
