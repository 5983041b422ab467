//! The command, as its users run it, on real stores.

mod etcd;
mod operator;
mod redis;
mod redlock;
mod support;
mod this_machine;
