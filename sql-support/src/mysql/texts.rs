//! The SQL statements that start a transaction and prepare a database.
//!
//! `{name}` is a table, which [`Layout::fill`](crate::Layout::fill) replaces. `:name` is a value.
//! Each row of a reply starts with a word by which the reply is recognized.

/// The character set of a complete query batch, whose literals do not depend on it.
pub(super) const NAMES: &str = "SET NAMES utf8mb4;
";

/// Applies the settings that the meaning of a statement depends on, because the defaults of the
/// session are unknown.
pub(super) const SETTINGS: &str = "SET sql_mode = 'STRICT_ALL_TABLES', time_zone = '+00:00', sql_safe_updates = 0, sql_big_selects = 1, sql_select_limit = 18446744073709551615;
";

/// Applies the settings of a connection that Leasehold opens. The values of prepared statements are
/// bytes without a character set.
pub(super) const SESSION: &str = "SET NAMES binary;
SET autocommit = 1, completion_type = 0;
SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET SESSION TRANSACTION READ WRITE;
";

/// Returns a row if the server is a node of a Galera cluster.
pub(super) const CLUSTER: &str = "SHOW VARIABLES WHERE Variable_name = 'wsrep_on' AND Value = 'ON'";

/// Delays each statement until the node has applied all transactions that the cluster committed
/// before. Otherwise, a lease that was granted on one node might not be found on another node.
pub(super) const CAUSAL: &str = "SET wsrep_sync_wait = 7";

/// Sets the time limits of the session, so that the server gives up before the client.
/// `net_write_timeout` ends a transaction whose reply is not read. MySQL and MariaDB use different
/// settings for the statement time limit, and neither supports the other's setting.
pub(super) const LIMITS: &str = "SET net_write_timeout = :seconds, lock_wait_timeout = :seconds, innodb_lock_wait_timeout = :wait
  /*M! , max_statement_time = :fraction */ /*!80000 , max_execution_time = :millis */;
";

/// Ends a failed transaction while the client is paused.
pub(super) const WAIT: &str = "SET wait_timeout = :seconds;
";

/// Allows writes, which are necessary to create tables in a session that is read-only by default.
pub(super) const WRITES: &str = "SET SESSION TRANSACTION READ WRITE;
";

pub(super) const START: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
START TRANSACTION READ WRITE;
";

pub(super) const START_TO_READ: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
START TRANSACTION READ ONLY;
";

/// Ends the last statement.
pub(super) const END: &str = ";
";

/// Returns the number of rows that the last statement has changed, and the insert id.
pub(super) const DONE: &str = ";
SELECT 'done', ROW_COUNT(), LAST_INSERT_ID();
";

/// After this row, only the commit can fail.
pub(super) const COMMIT: &str = "SELECT 'commit';
COMMIT AND NO CHAIN NO RELEASE;
SET wait_timeout = DEFAULT";

/// Reads the settings that decide whether the server keeps acknowledged commits. The query does not
/// need permissions.
pub(super) const SURVEY: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN
  ('innodb_flush_log_at_trx_commit', 'log_bin', 'sync_binlog', 'version', 'wsrep_on');
";

/// Reads the settings that can endanger locks.
pub(super) const DIAGNOSE: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN
  ('innodb_doublewrite', 'innodb_flush_log_at_trx_commit', 'log_bin', 'read_only', 'sync_binlog', 'version');
SELECT 'clock', :clock;
";

/// Changes nothing, but uses all tables, columns and permissions that the other statements need.
/// Returns whether the row of the minimum token exists.
pub(super) const TRY: &str = "INSERT INTO {key} (`key`, token, spare, tag, ends, since, fingerprint, description, document)
  SELECT `key`, token, spare, tag, ends, since, fingerprint, description, document FROM {key} WHERE FALSE;
UPDATE {key} SET ends = ends WHERE FALSE;
DELETE FROM {key} WHERE FALSE;
UPDATE {min_token} SET token = token WHERE FALSE;
UPDATE {member} SET since = since WHERE FALSE;
SELECT 'min_token', COUNT(*) FROM {min_token} WHERE id = 0;
";

/// Returns for how many microseconds the leases of layout 1 are still in force.
pub(super) const OLD_LEASES: &str =
    "SELECT 'old', GREATEST(COALESCE(MAX(ends), 0) - $CLOCK, 0) FROM {lease};
";
