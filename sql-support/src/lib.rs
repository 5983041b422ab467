//! The common part of Leasehold's SQL backends: all but the driver. [`Backend`] is the contract on any [`Database`].
//!
//! One call from top to bottom: `backend.rs` turns an operation into one typed [request], the [`Database`] executes it
//! as *one transaction that it sends in one piece* and gives a typed [reply], and `backend.rs` turns that into the outcome.
//! `news.rs` passes on the changes of other clients. The rules that a transaction decides by are stated at [`Database`].
//!
//! # Layout
//!
//! Three tables, whose names begin with a [prefix](Layout), `leasehold_` by default. All times are microseconds by the database's
//! clock.
//!
//! `leasehold_stripe` has 256 rows for ever. Each key belongs to one of them. The row is the mutex of all transactions that may
//! grant or end leases of its keys, and the counter that numbers their grants, so nothing is kept per key.
//!
//! | column | type | holds |
//! | --- | --- | --- |
//! | `stripe` | 0 to 255, primary key | the [stripe](request::Key::stripe) of a key |
//! | `token` | 64 bits | the last fencing token of these keys |
//!
//! `leasehold_lease` has a row for each lease in force and for each place in a queue.
//!
//! | column | type | holds |
//! | --- | --- | --- |
//! | `key` | text of bytes, at most [`Layout::MAX_KEY`] | the encoded name |
//! | `tag` | UUID, primary key with `key` | names the lease, see [`tag`](request::tag): not its id, which is a bearer secret |
//! | `place` | 64 bits | the order in the key's queue; null: the lease is in force |
//! | `whole` | boolean | asks for the whole key, else for units |
//! | `units` | 32 bits, unsigned | how many units, 1 for the whole key |
//! | `capacity` | 32 bits, unsigned | of how many, 1 for the whole key |
//! | `patience` | 64 bits | of a place: for how long it is waited for once there is room for it; null: until it ends |
//! | `ends` | 64 bits | when the lease, or the place, ends by itself; indexed |
//! | `asked` | 64 bits | of a lease: until when renewals say that the holder is asked to finish; 0: not asked |
//! | `token` | 64 bits | of a lease: its fencing token; null for a place |
//! | `fingerprint` | 8 hexadecimal digits | names the lease in logs |
//! | `description` | text of at most 256 bytes | the holder, in words; may be null |
//!
//! `leasehold_member` has one row, which says which quorum the tables are a member of.
//!
//! | column | type | holds |
//! | --- | --- | --- |
//! | `id` | primary key | 0 |
//! | `store` | UUID | the identity of the data; null: none yet |
//! | `charter` | text | the [charter](leasehold_core::backend::Charter) of the quorum; null: no member |
//! | `since` | 64 bits | when the data took this identity |
//! | `incarnation` | text | names the server, and its history, that wrote the row: under another name the row counts as empty |
//!
//! Other programs may read the tables. [`Layout`] and the stripes never change within a layout version.

mod backend;
mod database;

pub mod reply;
pub mod request;

mod layout;
mod news;

mod failure;

pub mod mysql;
pub mod postgres;
pub mod remote;

pub use backend::Backend;
pub use database::Database;
pub use failure::Failure;
pub use layout::Layout;
pub use news::{Concerns, News};
pub use remote::Remote;
