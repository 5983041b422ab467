//! Supports databases on a server. [`Remote`] runs the query batches of a dialect on the
//! connections of a [`Driver`].
//!
//! For each call, `database.rs` gets the query batch for the operation from the dialect's
//! [`Statements`]. The batch runs on the application's connections ([`Run`]) or on the driver's
//! [`Pool`]. [`Rows`] reads the reply, which has the same format in both dialects. `under_way.rs`
//! delays a release until the acquisition of the same lease has completed.

mod database;

mod pool;
mod run;
mod under_way;

mod statements;
mod text;

mod rows;

mod config;
mod driver;

pub use config::{Config, Settings, invalid};
pub use database::Remote;
pub use driver::{Driver, Hears, Opened};
pub use pool::{Connector, Link, Pool, addresses_of, host_and_port, no_connection};
pub use rows::{Row, Rows};
pub use run::{Run, RunError, Urgency};
pub use statements::Statements;
pub use text::Text;
pub(crate) use text::{Preparable, Value, bind, replace};
