//! The SQL dialect of PostgreSQL: tables, query batches, rows and error codes.
//!
//! A transaction is one request to the server: the execution of a prepared statement, or one message of
//! the simple query protocol. The server runs a request as one transaction without waiting for the
//! client, so a paused client does not hold database locks. A failed statement rolls back the whole
//! request, and the reply is complete only after the commit. The statements need no functions in the
//! database.
//!
//! On a connection that Leasehold opens, a [`Session`] has the settings, and each statement is
//! prepared once. Behind a pooler and on the application's connections, the request is a complete
//! query batch ([`Call::at`](crate::Call::at)), which contains the settings and may run in any session.
//!
//! ```
//! use leasehold_sql_support::Layout;
//! use leasehold_sql_support::postgres::RowStatements;
//!
//! let statements = RowStatements::new(&Layout::default().in_schema("app")?, None);
//! let call = statements.read(&["it's"]);
//! assert!(call.text().contains(r#""app"."leasehold_key""#));
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
#[cfg(test)]
pub(crate) use dialect::DIALECT;
pub use key_table::KeyTable;
pub use row_statements::RowStatements;
pub use session::{Message, Parameter, Session};
pub use statements::Statements;
pub use survey::Survey;

use crate::layout::Layout;
use texts::DEFAULT_SCHEMA;

/// Returns the statements that create the tables. If the application's user is not allowed to
/// create tables, an administrator must run these statements.
///
/// These statements can safely be run more than once.
///
/// ```
/// use leasehold_sql_support::{Layout, postgres};
///
/// assert!(postgres::migration(&Layout::default()).contains("leasehold_key"));
/// ```
pub fn migration(layout: &Layout) -> String {
    let layout = layout.or_in_schema(DEFAULT_SCHEMA);
    let text = MIGRATION.replace("$SCHEMA", layout.schema().unwrap_or(DEFAULT_SCHEMA));
    layout.fill(&text, '"').replace("$CLOCK", RowStatements::CLOCK)
}

/// The rows are updated often, and only the primary key has an index, so a `fillfactor` of 50 leaves
/// space for new row versions on the same page without a change of the index. Values of a document
/// are not compressed, because they change with every write. Clients of layout 1 need the table that
/// is renamed, so they cannot grant locks at the same time.
const MIGRATION: &str = r#"DO $$ BEGIN
  IF to_regnamespace('"$SCHEMA"') IS NULL THEN CREATE SCHEMA "$SCHEMA"; END IF;
END $$;
CREATE TABLE IF NOT EXISTS {key} (
  key text COLLATE "C" NOT NULL CHECK (octet_length(key) <= 1536),
  generation bigint NOT NULL,
  moved boolean NOT NULL DEFAULT false,
  token bigint NOT NULL,
  spare bigint NOT NULL DEFAULT 0,
  tag uuid,
  ends bigint NOT NULL,
  since bigint,
  fingerprint text,
  description text,
  document text,
  PRIMARY KEY (key, generation)
) WITH (fillfactor = 50);
ALTER TABLE {key} ALTER COLUMN document SET STORAGE EXTERNAL;
CREATE SEQUENCE IF NOT EXISTS {min_token} MINVALUE 0 START 0;
CREATE TABLE IF NOT EXISTS {member} (
  id smallint PRIMARY KEY CHECK (id = 0),
  store uuid,
  charter text COLLATE "C",
  since bigint,
  incarnation text
);
INSERT INTO {member} (id) VALUES (0) ON CONFLICT DO NOTHING;
CREATE OR REPLACE VIEW {locks} AS
  SELECT key, token - spare AS token, to_timestamp(ends / 1e6) AS ends, to_timestamp(since / 1e6) AS since, fingerprint, description, document
  FROM {key} WHERE ends > $CLOCK;
DO $$ BEGIN
  IF to_regclass('{stripe}') IS NOT NULL THEN
    ALTER TABLE {stripe} RENAME TO {=stripe_v1};
    PERFORM setval('{min_token}', greatest(last_value, (SELECT max(token) FROM {stripe_v1}))) FROM {min_token};
  END IF;
END $$;
"#;
