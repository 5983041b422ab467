//! The SQL dialect of MySQL and MariaDB: tables, query batches, rows and error numbers.
//!
//! A transaction is one query batch of several statements, including the `COMMIT` and all values.
//! The client sends the batch in one message. The server runs the batch without waiting for the
//! client, so a paused client does not hold database locks. Unlike in PostgreSQL, a failed
//! statement ends the batch but not the transaction, so the connection must be closed. Immediately
//! before the `COMMIT`, the batch returns a row `commit`, so that the client can distinguish commit
//! errors from earlier errors.
//!
//! The statements need `SKIP LOCKED`, which requires MySQL 8.0 or MariaDB 10.6.
//!
//! ```
//! use leasehold_core::LockKey;
//! use leasehold_sql_support::Layout;
//! use leasehold_sql_support::mysql::Statements;
//! use leasehold_sql_support::remote::Statements as _;
//! use leasehold_sql_support::request::Key;
//!
//! let statements = Statements::new(&Layout::default().in_schema("app")?, None);
//! let text = statements.force_release(&Key::of(&LockKey::new("it's")?), None);
//! assert!(text.at(std::time::Duration::from_secs(1)).contains("`app`.`leasehold_lease`"));
//! # Ok::<(), leasehold_core::Error>(())
//! ```

mod codes;
mod diagnosis;
mod statements;
mod survey;
mod texts;

pub use codes::reported;
pub use statements::Statements;
pub use survey::{Survey, has_all_stripes};

use crate::layout::Layout;

/// Returns the statements that create the tables. If the application's user is not allowed to
/// create tables, an administrator must run these statements.
///
/// These statements can safely be run more than once.
///
/// ```
/// use leasehold_sql_support::{Layout, mysql};
///
/// assert!(mysql::migration(&Layout::default()).contains("leasehold_lease"));
/// ```
pub fn migration(layout: &Layout) -> String {
    layout.fill(MIGRATION, '`')
}

/// Names are stored as bytes. With a character set, two different names could compare as equal, and
/// an index could hold fewer characters.
const MIGRATION: &str = "CREATE TABLE IF NOT EXISTS {stripe} (
  stripe SMALLINT NOT NULL PRIMARY KEY,
  token BIGINT NOT NULL
) ENGINE = InnoDB;
INSERT IGNORE INTO {stripe} WITH RECURSIVE n (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < 255) SELECT n, 0 FROM n;
CREATE TABLE IF NOT EXISTS {lease} (
  `key` VARBINARY(1536) NOT NULL,
  tag BINARY(16) NOT NULL,
  place BIGINT,
  whole BOOLEAN NOT NULL,
  units BIGINT NOT NULL,
  capacity BIGINT NOT NULL,
  patience BIGINT,
  ends BIGINT NOT NULL,
  asked BIGINT NOT NULL DEFAULT 0,
  token BIGINT,
  fingerprint VARBINARY(8) NOT NULL,
  description VARBINARY(256),
  PRIMARY KEY (`key`, tag),
  INDEX {=lease_ends} (ends)
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS {member} (
  id SMALLINT NOT NULL PRIMARY KEY,
  store BINARY(16),
  charter BLOB,
  since BIGINT,
  incarnation VARBINARY(512)
) ENGINE = InnoDB;
INSERT IGNORE INTO {member} (id) VALUES (0);
";
