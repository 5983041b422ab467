//! One row per key.
//!
//! A row has two forms. In the *simple state*, one lease has the whole key and nobody waits. The
//! columns contain this lease, so that one statement acquires a free key and one statement
//! releases it. In any other state, the row contains a
//! [document](leasehold_entry::Document), which [`Database::change`] reads and replaces.
//!
//! | column | type | contents |
//! | --- | --- | --- |
//! | `key` | text, compared by bytes, primary key | the encoded name, at most [`Layout::MAX_KEY`](crate::Layout::MAX_KEY) bytes |
//! | `token` | 64 bits | the last token; each grant and each written document gets a larger token |
//! | `spare` | 64 bits | in the simple state: by how much the fencing token of the lease is less than `token` |
//! | `tag` | UUID | in the simple state: the [tag](leasehold_entry::Tag) of the lease; otherwise null |
//! | `ends` | 64 bits | when all leases and queue entries of the row have expired; a released row contains the negated former value |
//! | `since` | 64 bits | in the simple state: when the lease was last granted |
//! | `fingerprint` | 8 hexadecimal digits | in the simple state: identifies the lease in logs |
//! | `description` | text of at most 256 bytes | in the simple state: describes the holder |
//! | `document` | JSON | in any other state: all holders, the queue and the revocation request; otherwise null |
//!
//! The *version* of a row is (`token`, `ends`). A grant and a written document change `token`, and
//! a renewal and a release of the simple state change only `ends`.
//!
//! A row remains after the release, and contains the last token. A *purge* deletes rows that have
//! ended, after it has raised the *minimum token* of the tables to their tokens. A new row gets a
//! token above the minimum token.

mod backend;
mod database;
mod request;
mod row;

pub use backend::Backend;
pub use database::Database;
pub use request::{Acquire, Change, Granted, Named, Renew};
pub use row::{Clock, Notices, Row, State};
