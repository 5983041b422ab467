//! Supports databases on a server. [`Remote`] executes the statements of a dialect's [`Table`] on the
//! connections of a [`Driver`].
//!
//! [`Table`] converts an operation to [calls](crate::Call) of statements, which run on the
//! application's connections ([`Run`]) or on the driver's [`Pool`]. [`change`] compares and swaps the rows of keys.
//! [`InOrder`](leasehold_core::batch::InOrder) delays a release until the acquisition of the same
//! lease has completed.

mod database;

mod by_key;
mod connector;
mod continued;
mod per_runtime;
mod pool;
mod purge;
mod run;
mod run_error;
mod runner;

pub(crate) mod table;
mod together;

mod rows;

mod config;
mod driver;
mod settings;
mod upgrade;

pub use config::Config;
pub use connector::{Connector, Link, addresses_of, host_and_port, no_connection};
pub use database::Remote;
pub use driver::{Driver, Hears, Opened};
pub use pool::Pool;
pub use rows::{Reply, Row, Rows};
pub(crate) use run::{Connections, Theirs};
pub use run::{Run, Urgency};
pub use run_error::RunError;
pub use settings::Settings;
pub use table::{Execute, Purged, Table, change};
pub use upgrade::check_old_leases;
