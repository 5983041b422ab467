//! The shared part of Leasehold's SQL backends. Each backend adds only a driver. [`Backend`]
//! implements the contract on top of any [`Database`].
//!
//! To process an operation, `backend.rs` first converts it to a typed [request]. The [`Database`]
//! runs the request *as one transaction, which it sends in one piece*, and returns a typed [reply].
//! `backend.rs` then converts the reply to the outcome. `news.rs` forwards change notifications
//! from other clients. The documentation of [`Database`] states the rules for a transaction's
//! decisions.
//!
//! # Layout
//!
//! The store consists of three tables. Their names start with a [prefix](Layout), `leasehold_` by
//! default. All times are in microseconds, on the database's clock.
//!
//! `leasehold_stripe` always has 256 rows, one per lock-table partition. Each key is assigned to
//! one partition. The partition's row serves as the mutex for all transactions that may grant or
//! end leases on the partition's keys. A partition's row also contains its token counter, so no
//! permanent data is stored per key.
//!
//! | column | type | contents |
//! | --- | --- | --- |
//! | `stripe` | 0 to 255, primary key | the [partition](request::Key::stripe) of a key |
//! | `token` | 64 bits | the last fencing token of the partition's keys |
//!
//! `leasehold_lease` has a row for each current lease and for each queue entry.
//!
//! | column | type | contents |
//! | --- | --- | --- |
//! | `key` | text, compared by bytes, at most [`Layout::MAX_KEY`] | the encoded name |
//! | `tag` | UUID, primary key with `key` | identifies the lease, see [`tag`](request::tag). The tag is not the lease ID, which is a secret |
//! | `place` | 64 bits | the position in the key's queue; null for a lease |
//! | `whole` | boolean | true for the whole key, false for permits |
//! | `units` | 32 bits, unsigned | the number of permits; 1 for the whole key |
//! | `capacity` | 32 bits, unsigned | the total number of permits; 1 for the whole key |
//! | `patience` | 64 bits | for a queue entry: how long the entry is kept after enough permits are free; null if the entry is kept until it expires |
//! | `ends` | 64 bits | when the lease or the queue entry expires; indexed |
//! | `asked` | 64 bits | for a lease: the time until which renewals report a revocation request; 0 if there is no request |
//! | `token` | 64 bits | for a lease: its fencing token; null for a queue entry |
//! | `fingerprint` | 8 hexadecimal digits | identifies the lease in logs |
//! | `description` | text of at most 256 bytes | describes the holder; may be null |
//!
//! `leasehold_member` has a single row, which identifies the quorum of which the database is a
//! member.
//!
//! | column | type | contents |
//! | --- | --- | --- |
//! | `id` | primary key | 0 |
//! | `store` | UUID | the identity of the data; null if the data does not have an identity yet |
//! | `charter` | text | the [quorum configuration](leasehold_core::backend::Charter); null if the database is not a member of a quorum |
//! | `since` | 64 bits | when the data was given this identity |
//! | `incarnation` | text | identifies the server that wrote the row, and the server's history; on a different server, the row counts as empty |
//!
//! Other programs may read the tables. [`Layout`] and the partitions never change within a layout
//! version.

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
