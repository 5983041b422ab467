//! The SQL dialect of PostgreSQL: tables, query batches, rows and error codes.
//!
//! A transaction is one query batch of several statements, and the text of the batch contains all
//! values. The client sends the batch in one message of the simple query protocol. The server runs
//! the batch as one transaction without waiting for the client, so a paused client does not hold
//! database locks. A failed statement rolls back the whole batch, and the reply is complete only
//! after the commit. The batch needs no functions in the database and no session state, so a pooler
//! may run it on any connection.
//!
//! On connections that Leasehold opens, the statements for acquiring and releasing are prepared
//! once. If a prepared statement is later found to be missing, the client concludes that the
//! connection passes through a pooler, and stops preparing statements.
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

/// Returns the statements that create the tables. If the application's user is not allowed to
/// create tables, an administrator must run these statements.
///
/// These statements can safely be run more than once.
///
/// ```
/// use leasehold_sql_support::{Layout, postgres};
///
/// assert!(postgres::migration(&Layout::default()).contains("leasehold_lease"));
/// ```
pub fn migration(layout: &Layout) -> String {
    layout.fill(MIGRATION, '"')
}

/// The rows of partitions and leases are updated often. A `fillfactor` of 50 leaves space for new
/// row versions on the same page, so that the indexes do not change.
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
