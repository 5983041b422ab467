//! The dialect of MySQL and MariaDB.

use crate::layout::Layout;

/// The statements that create the tables. An application whose user may not create tables has an administrator run them.
///
/// They may be run again.
pub fn migration(layout: &Layout) -> String {
    layout.fill(MIGRATION, '`')
}

/// Names are bytes: in a character set, two of them might be equal, and an index could hold fewer.
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
";
