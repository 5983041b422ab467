//! Databases on a server: [`Remote`] runs the texts of a dialect on the connections of a [`Driver`].
//!
//! One call from top to bottom: `database.rs` takes the text of an operation from the dialect's [`Statements`] and runs it on an
//! application's connections ([`Run`]) or on the [`Pool`] of the driver's. [`Rows`] reads the reply, which is the same in
//! both dialects. `under_way.rs` keeps a release behind its acquisition.

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
