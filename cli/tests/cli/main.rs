//! The command, as its users run it, on real stores.

mod etcd;
mod redis;
mod support;
mod this_machine;
