//! The command, as its users run it, on real stores.

mod etcd;
mod operator;
mod redis;
mod support;
mod this_machine;
