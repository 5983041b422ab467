// The page contains examples that use the `leasehold` crate, which this crate cannot depend on. The
// examples are tested as doctests of `leasehold`.
#![cfg_attr(not(doctest), doc = include_str!("../README.md"))]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod config;

mod backend;

mod entry;
mod layout;
mod name;
mod queue;

mod addresses;
mod claims;
mod connection;
mod driver;
mod session;
mod watch;

mod error;

pub use backend::ZooKeeperBackend;
pub use config::ZooKeeperConfig;
