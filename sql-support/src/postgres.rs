//! The dialect of PostgreSQL.

use crate::layout::Layout;

/// The statements that create the tables. An application whose user may not create tables has an administrator run them.
///
/// They may be run again.
pub fn migration(layout: &Layout) -> String {
    layout.fill(MIGRATION, '"')
}

/// The rows of both tables are updated all the time: a `fillfactor` of 50 leaves room beside them, so that the index is left alone.
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
"#;
