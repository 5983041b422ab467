//! The dialect of PostgreSQL: tables, the texts of transactions, their rows, the meaning of error codes.
//!
//! A transaction is one text of several statements, which goes to the server in one message of the simple query protocol, with all values
//! in it. The server runs it as one transaction, without a look at the client in between: a client that is stopped keeps no lock, a
//! statement that fails ends all of it, and the reply is complete only after the commit. It needs no function in the database and no state
//! of the session, so that poolers may hand it to any connection. Connections of our own prepare the statements of a lock and of its release
//! once, until they miss one: then a pooler is in between.
//!
//! ```
//! use leasehold_core::LockKey;
//! use leasehold_sql_support::postgres::Statements;
//! use leasehold_sql_support::remote::Statements as _;
//! use leasehold_sql_support::request::Key;
//! use leasehold_sql_support::Layout;
//!
//! let statements = Statements::new(&Layout::default().in_schema("app")?, None);
//! let text = statements.force_release(&Key::of(&LockKey::new("it's")?), None);
//! assert!(text.at(std::time::Duration::from_secs(1)).contains(r#"DELETE FROM "app"."leasehold_lease" WHERE key"#));
//! # Ok::<(), leasehold_core::Error>(())
//! ```

mod codes;
mod diagnosis;
mod prepared;
mod statements;
mod survey;
mod texts;

pub use codes::reported;
pub use statements::Statements;
pub use survey::Survey;

use crate::layout::Layout;

/// The statements that create the tables. An application whose user may not create tables has an administrator run them.
///
/// They may be run again.
pub fn migration(layout: &Layout) -> String {
    layout.fill(MIGRATION, '"')
}

/// The rows of stripes and leases are updated all the time: a `fillfactor` of 50 leaves room beside them, so that the index is left alone.
const MIGRATION: &str = r#"CREATE TABLE IF NOT EXISTS {stripe} (
  stripe smallint PRIMARY KEY,
  token bigint NOT NULL
) WITH (fillfactor = 50);
INSERT INTO {stripe} SELECT n, 0 FROM generate_series(0, 255) n ON CONFLICT DO NOTHING;
CREATE TABLE IF NOT EXISTS {lease} (
  key text COLLATE "C" NOT NULL CHECK (octet_length(key) <= 1536),
  tag uuid NOT NULL,
  place bigint,
  whole boolean NOT NULL,
  units bigint NOT NULL,
  capacity bigint NOT NULL,
  patience bigint,
  ends bigint NOT NULL,
  asked bigint NOT NULL DEFAULT 0,
  token bigint,
  fingerprint text NOT NULL,
  description text,
  PRIMARY KEY (key, tag)
) WITH (fillfactor = 50);
CREATE INDEX IF NOT EXISTS {=lease_ends} ON {lease} (ends);
CREATE TABLE IF NOT EXISTS {member} (
  id smallint PRIMARY KEY CHECK (id = 0),
  store uuid,
  charter text COLLATE "C",
  since bigint,
  incarnation text
);
INSERT INTO {member} (id) VALUES (0) ON CONFLICT DO NOTHING;
"#;
