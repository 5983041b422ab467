//! The shared part of Leasehold's SQL backends. Each backend adds only a driver. [`Backend`]
//! implements the contract on top of any [`Database`], which keeps [one row per key](rows).
//!
//! `rows/backend.rs` converts an operation to one statement, or to a step that
//! [`Database::change`] applies to the state of the keys. [`Remote`] is the database on a server. It
//! executes the statements of a dialect, [`postgres`] or [`mysql`]. `news.rs` forwards change
//! notifications from other clients.
//!
//! # Layout
//!
//! The names of all tables start with a [prefix](Layout), `leasehold_` by default. All times are in
//! microseconds, on the database's clock.
//!
//! `leasehold_key` has one row per key. The documentation of [`rows`] describes its columns. On
//! PostgreSQL, the table has two more columns, because a key sometimes
//! [moves](postgres::RowStatements) to a new row.
//!
//! | column | type | contents |
//! | --- | --- | --- |
//! | `generation` | 64 bits, primary key with `key` | the number of times that the key has moved |
//! | `moved` | boolean | true for the row of generation 0 after the key has moved |
//!
//! `leasehold_min_token` contains the minimum token. PostgreSQL uses a sequence, and MySQL uses a
//! table with a single row.
//!
//! `leasehold_member` has a single row, which identifies the quorum of which the database is a
//! member.
//!
//! | column | type | contents |
//! | --- | --- | --- |
//! | `id` | primary key | 0 |
//! | `store` | UUID | the identity of the data; null if the data does not have an identity yet |
//! | `charter` | text | the [quorum configuration](leasehold_core::backend::QuorumConfiguration); null if the database is not a member of a quorum |
//! | `since` | 64 bits | when the data was given this identity |
//! | `incarnation` | text | identifies the server that wrote the row, and the server's history; on a different server, the row counts as empty |
//!
//! Other programs may read the tables. The view `leasehold_locks` of the servers shows all keys in
//! force. The tables never change within a layout version.

pub mod request;

pub mod rows;

mod call;
mod layout;
mod news;
mod reading;
mod remembered;
mod values;

mod failure;

pub mod mysql;
pub mod postgres;
pub mod remote;

pub use call::Call;
pub use failure::Failure;
pub use layout::Layout;
pub use news::{Concerns, News};
pub use reading::Reading;
pub use remote::Remote;
pub use rows::{Backend, Database};
pub use values::{FreeClaim, HeldLease, Replacement};
