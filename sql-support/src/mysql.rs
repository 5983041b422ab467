//! The SQL dialect of MySQL and MariaDB: tables, query batches, rows and error numbers.
//!
//! On a connection that Leasehold opens, a [`Session`] has the settings, and each transaction is one
//! prepared statement with `autocommit`.
//!
//! On any other connection, a transaction is one query batch of several statements
//! ([`Call::at`](crate::Call::at)), including the settings, the `COMMIT` and all values. The client
//! sends the batch in one message. The server runs the batch without waiting for the client, so a
//! paused client does not hold database locks. Unlike in PostgreSQL, a failed statement ends the batch
//! but not the transaction, so the connection must be closed. Immediately before the `COMMIT`, the
//! batch returns a row `commit`, so that the client can distinguish commit errors from earlier errors.
//!
//! The statements need `SKIP LOCKED`, which requires MySQL 8.0 or MariaDB 10.6.
//!
//! ```
//! use leasehold_sql_support::Layout;
//! use leasehold_sql_support::mysql::RowStatements;
//!
//! let statements = RowStatements::new(&Layout::default().in_schema("app")?, None);
//! let call = statements.read(&["it's"]);
//! assert!(call.text().contains("`app`.`leasehold_key`"));
//! # Ok::<(), leasehold_core::Error>(())
//! ```

mod codes;
mod diagnosis;
mod dialect;
mod key_table;
mod row_statements;
mod session;
mod statements;
mod survey;
mod texts;

pub use codes::reported;
pub use key_table::KeyTable;
pub use row_statements::RowStatements;
pub use session::{Message, Parameter, Session};
pub use statements::Statements;
pub use survey::Survey;

use crate::layout::Layout;

/// Returns the statements that create the tables. If the application's user is not allowed to
/// create tables, an administrator must run these statements.
///
/// These statements can safely be run more than once.
///
/// ```
/// use leasehold_sql_support::{Layout, mysql};
///
/// assert!(mysql::migration(&Layout::default()).contains("leasehold_key"));
/// ```
pub fn migration(layout: &Layout) -> String {
    let schema = layout.schema().map_or("DATABASE()".to_owned(), |schema| format!("'{schema}'"));
    let exists = |table: &str| {
        let name = [layout.prefix(), table].concat();
        format!(
            "(SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = {schema} AND table_name = '{name}')"
        )
    };
    let text = MIGRATION
        .replace("$UPGRADE", UPGRADE)
        .replace("$HAS_STRIPE", &exists("stripe"))
        .replace("$HAS_RENAMED", &exists("stripe_v1"));
    layout.fill(&text, '`')
}

/// Names are stored as bytes. With a character set, two different names could compare as equal, and
/// an index could hold fewer characters. Keys are too long for the index of other row formats, which
/// a server may use by default. The view does not depend on the session's time zone.
///
/// Some statements commit on their own. A client may be killed between two of them, so all statements
/// can be run again. The table of the keys is created after the upgrade, because clients use the tables
/// as soon as all of them exist.
const MIGRATION: &str = "CREATE TABLE IF NOT EXISTS {min_token} (
  id SMALLINT NOT NULL PRIMARY KEY,
  token BIGINT NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
INSERT IGNORE INTO {min_token} VALUES (0, 0);
CREATE TABLE IF NOT EXISTS {member} (
  id SMALLINT NOT NULL PRIMARY KEY,
  store BINARY(16),
  charter BLOB,
  since BIGINT,
  incarnation VARBINARY(512)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
INSERT IGNORE INTO {member} (id) VALUES (0);
$UPGRADECREATE TABLE IF NOT EXISTS {key} (
  `key` VARBINARY(1536) NOT NULL PRIMARY KEY,
  token BIGINT NOT NULL,
  spare BIGINT NOT NULL DEFAULT 0,
  tag BINARY(16),
  ends BIGINT NOT NULL,
  since BIGINT,
  fingerprint VARBINARY(8),
  description VARBINARY(256),
  document MEDIUMBLOB
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
CREATE OR REPLACE VIEW {locks} AS
  SELECT CONVERT(`key` USING utf8mb4) AS `key`, token - spare AS token, FROM_UNIXTIME(ends / 1000000) AS ends,
    FROM_UNIXTIME(since / 1000000) AS since, CONVERT(fingerprint USING utf8mb4) AS fingerprint,
    CONVERT(description USING utf8mb4) AS description, CONVERT(document USING utf8mb4) AS document
  FROM {key} WHERE ends > 1000000 * UNIX_TIMESTAMP(SYSDATE(6));
";

/// Renames the table of lock-table partitions of layout 1, which clients of layout 1 need, so that
/// they cannot grant locks at the same time. The minimum token is at least their last token.
const UPGRADE: &str = "SET @upgrade = IF($HAS_STRIPE, 'RENAME TABLE {stripe} TO {stripe_v1}', 'DO 0');
PREPARE leasehold_upgrade FROM @upgrade;
EXECUTE leasehold_upgrade;
SET @upgrade = IF($HAS_RENAMED, 'UPDATE {min_token} SET token = GREATEST(token, COALESCE((SELECT MAX(token) FROM {stripe_v1}), 0))', 'DO 0');
PREPARE leasehold_upgrade FROM @upgrade;
EXECUTE leasehold_upgrade;
DEALLOCATE PREPARE leasehold_upgrade;
";
