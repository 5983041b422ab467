// The page contains examples that use the `leasehold` crate, which this crate cannot depend on. The
// examples are tested as doctests of `leasehold`.
#![cfg_attr(not(doctest), doc = include_str!("../README.md"))]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod config;

mod backend;
mod owner;

mod entry;
mod layout;
mod place;
mod queue;
mod slots;

mod batch;
mod connection;
mod late_entries;
mod session;
mod version;
mod watch;

mod error;

pub use backend::EtcdBackend;
pub use config::EtcdConfig;
pub use owner::EtcdGuard;

/// The client crate. [`EtcdConfig::from_options`] accepts its [`etcd_client::ConnectOptions`].
pub use etcd_client;
