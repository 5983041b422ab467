//! The SQL statements from which query batches are assembled.
//!
//! `{name}` is a table, which [`Layout::fill`](crate::Layout::fill) replaces. `:name` is a value.
//! Each row of the reply starts with a word by which `rows.rs` recognizes the row. Each batch
//! assigns every session variable that it uses. A variable that depends on a second variable needs
//! a separate `SET`, because a `SET` evaluates all values before the first assignment. Rows are
//! read by `SELECT … INTO`, because MySQL locks the rows that a subquery of a `SET` reads. Writes
//! specify an index, because a scan would wait for locks on rows of other keys. Writes change a
//! single table, because MariaDB stores the rows of a join in a file until it writes them.

/// Sets all session settings that the meaning of a batch depends on, because the defaults of the
/// session are unknown.
///
/// With these settings, the server gives up before the client. `wait_timeout` ends a failed
/// transaction while the client is paused. `net_write_timeout` ends a transaction whose reply is
/// not read. MySQL and MariaDB use different settings for the statement time limit, and neither
/// supports the other's setting.
pub(super) const SETTINGS: &str = "SET NAMES utf8mb4;
SET sql_mode = 'STRICT_ALL_TABLES', time_zone = '+00:00', sql_safe_updates = 0, sql_select_limit = 18446744073709551615,
  wait_timeout = :seconds, net_write_timeout = :seconds, lock_wait_timeout = :seconds, innodb_lock_wait_timeout = :wait
  /*M! , max_statement_time = :fraction */ /*!80000 , max_execution_time = :millis */;
";

/// Allows writes, which are necessary to create tables in a session that is read-only by default.
pub(super) const WRITES: &str = "SET SESSION TRANSACTION READ WRITE;
";

pub(super) const START: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
START TRANSACTION READ WRITE;
";

pub(super) const START_TO_READ: &str = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;
START TRANSACTION READ ONLY;
";

/// After this row, only the commit can fail.
pub(super) const COMMIT: &str = "SELECT 'commit';
COMMIT AND NO CHAIN NO RELEASE;
SET wait_timeout = DEFAULT";

/// Locks the row. Overflows (1690) if the row is missing.
pub(super) const LOCK: &str =
    "SELECT MAX(token) INTO @token FROM {stripe} WHERE stripe = :stripe FOR UPDATE;
SET @token = CAST(COALESCE(@token, 9223372036854775807) AS SIGNED) + 1;
";

/// Locks all rows in ascending order. Overflows if rows are missing.
pub(super) const LOCK_ALL: &str =
    "SELECT COUNT(*) INTO @stripes FROM {stripe} FORCE INDEX (PRIMARY) FOR UPDATE;
SET @token = CAST(IF(@stripes = :all, 0, 9223372036854775807) AS SIGNED) + 1;
";

/// Reads the clock. All later statements use the same value of the clock.
pub(super) const CLOCK: &str = "SELECT CAST((:clock) AS SIGNED) INTO @now;
";

/// The token for the current time. Each microsecond has two tokens
/// ([`TOKENS_PER_MICROSECOND`](leasehold_core::backend::Grant::TOKENS_PER_MICROSECOND)).
pub(super) const CLOCK_TOKEN: &str = "2 * @now";

/// The database's clock in microseconds since 1970. The value is in UTC, because the session's time
/// zone was set. `SYSDATE` ignores a `timestamp` that the session has set.
pub(super) const DATABASE_CLOCK: &str =
    "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6))";

/// The name of the database's incarnation, or `NULL` if the database may lose acknowledged commits.
/// The server ID distinguishes a server from its replicas.
pub(super) const INCARNATION: &str =
    "SET @incarnation = IF(@@GLOBAL.innodb_flush_log_at_trx_commit IN (1, 3)
    AND (NOT @@GLOBAL.log_bin OR @@GLOBAL.sync_binlog = 1),
  CONCAT_WS('/', @@GLOBAL.server_id, @@hostname, @@port /*!80000 , @@server_uuid */), NULL);
";

/// Fails with two rows instead of one (1242) unless the store has joined the quorum with this
/// configuration.
pub(super) const CHARTERED: &str = "SELECT (SELECT 0 UNION ALL SELECT 1 FROM DUAL
  WHERE NOT EXISTS (SELECT 1 FROM {member} WHERE charter = :charter AND incarnation = @incarnation)) INTO @enlisted;
";

/// Deletes expired rows. It is not sufficient to ignore expired rows in later statements, because
/// only the deletion waits for a concurrent renewal. After waiting, the deletion skips a row that
/// is in force again.
pub(super) const EXPIRE: &str =
    "DELETE l FROM {lease} AS l FORCE INDEX (PRIMARY) WHERE l.`key` = :key AND l.ends <= @now;
";

/// Runs before the first count of permits. There may be queue entries.
pub(super) const BEGIN_ROOM: &str = "SET @queued = TRUE;
";

/// Counts the permits in use and the queue entries, and finds the first queue entry that cannot be
/// admitted. If there were no queue entries, later counts are skipped, because each count visits
/// all rows that InnoDB has not purged yet. The window function needs a temporary table, which
/// locks without a queue do not need.
pub(super) const ROOM: &str =
    "SELECT COALESCE(SUM(IF(place IS NULL, units, 0)), 0), COUNT(place) INTO @used, @queued FROM {lease}
  WHERE @queued AND `key` = :key;
SELECT IF(@queued, (SELECT COALESCE(MIN(place), 9223372036854775807) FROM (
    SELECT place, @used + SUM(units) OVER (ORDER BY place) > capacity AS is_full
    FROM {lease} WHERE `key` = :key AND place IS NOT NULL) AS sums WHERE is_full), 9223372036854775807) INTO @stop;
";

/// Limits the queue entries that can be granted now to their patience, if `:up` is set.
pub(super) const CALL_UP: &str =
    "UPDATE {lease} FORCE INDEX (PRIMARY) SET ends = LEAST(ends, @now + patience)
  WHERE @queued AND `key` = :key AND place < @stop AND patience IS NOT NULL AND :up;
";

/// Returns the queue entries that can be granted now.
pub(super) const CALLED: &str =
    "SELECT 'called', HEX(tag) FROM {lease} WHERE @queued AND `key` = :key AND place < @stop AND tag <> :tag;
";

/// Runs before the first claim. The variable records whether all claims can be granted.
pub(super) const BEGIN_CLAIMS: &str = "SET @all = TRUE;
";

/// Decides one claim based on the remaining rows. If the claim is not granted, returns the reason.
pub(super) const ADMIT: &str = "SELECT MAX(place), COALESCE(MAX(place IS NULL), FALSE) INTO @place, @again
  FROM {lease} WHERE `key` = :key AND tag = :tag;
SELECT COALESCE(SUM(units), 0), COUNT(*) > COUNT(place), COALESCE(MAX(place IS NULL AND whole <> :whole), FALSE),
    MIN(IF(place IS NULL, NULL, ends)), COALESCE(MAX(IF(place IS NULL AND asked < 9223372036854775807, asked, NULL)), 0)
  INTO @used, @held, @other, @first_place, @asked:n
  FROM {lease} WHERE `key` = :key AND (place IS NULL OR place < COALESCE(@place, 9223372036854775807));
SET @fits = NOT @other AND (@again OR @used + :units <= :capacity);
SET @all = @all AND @fits;
SELECT IF(@other, 'other', 'refused'), :n, NULL, NULL, h.fingerprint, h.description, h.units, h.ends - @now,
    IF(:whole AND @held, NULL, @first_place - @now)
  FROM (SELECT 1) AS one LEFT JOIN (SELECT fingerprint, description, units, ends FROM {lease}
    WHERE NOT @fits AND `key` = :key AND place IS NULL ORDER BY ends LIMIT 1) AS h ON TRUE
  WHERE NOT @fits;
";

/// Grants one claim if all claims can be granted. Assignments run in order, so an old row is read
/// before it is written.
pub(super) const GRANT: &str = "SELECT token + 1 INTO @next FROM {stripe} WHERE stripe = :stripe;
SET @token = GREATEST(@next, :number);
SET @first = GREATEST(@next, @token - :spare);
UPDATE {stripe} FORCE INDEX (PRIMARY) SET token = @token WHERE stripe = :stripe AND @all;
INSERT INTO {lease} (`key`, tag, place, whole, units, capacity, patience, ends, asked, token, fingerprint, description)
  SELECT :key, :tag, NULL, :whole, :units, :capacity, NULL, @now + :ttl, @asked:n, @first, :fingerprint, :description
  FROM DUAL WHERE @all
  ON DUPLICATE KEY UPDATE units = IF(place IS NULL, LEAST(units, :units), :units), place = NULL, capacity = :capacity,
    patience = NULL, ends = @now + :ttl, asked = GREATEST(asked, @asked:n), token = @first, description = :description;
SELECT 'granted', :n, @first, @token - @first FROM DUAL WHERE @all;
";

/// Creates or refreshes the queue entry of a claim that was not granted.
pub(super) const QUEUE: &str = "SELECT IF(@fits, NULL,
  COALESCE(@place, (SELECT COALESCE(MAX(place), 0) + 1 FROM {lease} WHERE `key` = :key))) INTO @place;
INSERT INTO {lease} (`key`, tag, place, whole, units, capacity, patience, ends, fingerprint, description)
  SELECT :key, :tag, @place, :whole, :units, :capacity, :patience, @now + :place, :fingerprint, :description
  FROM DUAL WHERE NOT @fits AND NOT @other
  ON DUPLICATE KEY UPDATE patience = :patience, ends = @now + :place, description = :description;
";

/// Runs before the first deletion of an expired row. The variable records whether there may be
/// another expired row.
pub(super) const BEGIN_CLEAR: &str = "SET @more = @all;
";

/// If the claims were granted, deletes one row of any key that expired a minute ago, without
/// waiting for other transactions. The row remains locked, which is harmless because no later
/// statement waits for a row. The search visits all recently deleted rows that InnoDB has not
/// purged yet.
pub(super) const CLEAR: &str = "SET @key = NULL, @tag = NULL;
SELECT `key`, tag INTO @key, @tag FROM {lease} FORCE INDEX ({=lease_ends})
  WHERE ends < IF(@more, @now - 60000000, NULL) ORDER BY ends LIMIT 1 FOR UPDATE SKIP LOCKED;
SET @more = @key IS NOT NULL;
DELETE l FROM {lease} AS l FORCE INDEX (PRIMARY) WHERE @more AND l.`key` = @key AND l.tag = @tag;
";

/// Renews leases in force without locking the partition. A lease whose row is deleted by a
/// concurrent acquisition is not in force.
pub(super) const RENEW: &str =
    "SELECT 'renewed', a.n, l.asked > @now, l.tag IS NULL AND EXISTS (SELECT 1 FROM {lease} AS o
    WHERE o.`key` = a.`key` AND o.place IS NULL AND o.ends > @now AND o.whole = a.whole)
  FROM (:leases) AS a LEFT JOIN {lease} AS l FORCE INDEX (PRIMARY)
    ON l.`key` = a.`key` AND l.tag = a.tag AND l.place IS NULL AND l.ends > @now
  FOR UPDATE;
";

pub(super) const RENEW_ONE: &str = "UPDATE {lease} FORCE INDEX (PRIMARY)
  SET ends = @now + :ttl, units = LEAST(units, :units), description = :description
  WHERE `key` = :key AND tag = :tag AND place IS NULL AND ends > @now;
";

/// Raises a locked partition to the minimum token of a lease, if the previous renewal found the
/// lease in force.
pub(super) const RAISE: &str = "SELECT COUNT(*) > 0 INTO @held FROM {lease}
  WHERE `key` = :key AND tag = :tag AND place IS NULL AND ends > @now;
UPDATE {stripe} FORCE INDEX (PRIMARY) SET token = GREATEST(token, :floor) WHERE stripe = :stripe AND @held;
";

/// Returns the queue entries of these keys that can be granted after the renewals.
pub(super) const CALLED_OF_ALL: &str = "SELECT 'called', HEX(tag) FROM (
  SELECT tag, MAX(is_full) OVER (PARTITION BY n ORDER BY place) AS is_full FROM (
    SELECT a.n, l.tag, l.place, COALESCE((SELECT SUM(h.units) FROM {lease} AS h WHERE h.`key` = a.`key` AND h.place IS NULL), 0)
      + SUM(l.units) OVER (PARTITION BY a.n ORDER BY l.place) > l.capacity AS is_full
    FROM (:keys) AS a JOIN {lease} AS l ON l.`key` = a.`key` AND l.place IS NOT NULL) AS sums) AS queue
WHERE NOT is_full;
";

/// Releases a lease or removes a queue entry.
pub(super) const RELEASE: &str = "SELECT COUNT(*) > 0 INTO @held FROM {lease} WHERE `key` = :key AND tag = :tag AND place IS NULL;
DELETE l FROM {lease} AS l FORCE INDEX (PRIMARY) WHERE l.`key` = :key AND l.tag = :tag;
SELECT 'released', @held;
";

pub(super) const REQUEST_REVOCATION: &str =
    "SELECT MAX(ends) INTO @until FROM {lease} WHERE `key` = :key AND place IS NULL AND :meant;
UPDATE {lease} FORCE INDEX (PRIMARY) SET asked = IF(asked = 9223372036854775807, asked, :until)
  WHERE `key` = :key AND place IS NULL AND :meant;
SELECT 'asked', @until IS NOT NULL;
";

pub(super) const FORCE_RELEASE: &str = "SELECT COUNT(*) > 0 INTO @held FROM {lease} WHERE `key` = :key AND place IS NULL AND :meant;
SELECT 'holder', fingerprint, description, units, ends - @now FROM {lease} WHERE `key` = :key AND place IS NULL AND :meant ORDER BY ends;
DELETE l FROM {lease} AS l FORCE INDEX (PRIMARY) WHERE l.`key` = :key AND l.place IS NULL AND :meant;
UPDATE {stripe} FORCE INDEX (PRIMARY) SET token = GREATEST(token + 1, :number) WHERE stripe = :stripe AND @held;
SELECT 'token', token FROM {stripe} WHERE stripe = :stripe AND @held
  AND NOT EXISTS (SELECT 1 FROM {lease} WHERE `key` = :key AND place IS NULL);
";

pub(super) const INSPECT: &str =
    "SELECT 'holder', fingerprint, description, units, ends - @now, whole, capacity, token FROM {lease}
  WHERE `key` = :key AND place IS NULL AND ends > @now ORDER BY ends LIMIT :listed;
SELECT 'waiter', fingerprint, description, units, ends - @now, whole, capacity, NULL FROM {lease}
  WHERE `key` = :key AND place IS NOT NULL AND ends > @now ORDER BY place LIMIT :listed;
SELECT 'waiting', COUNT(*) FROM {lease} WHERE `key` = :key AND place IS NOT NULL AND ends > @now;
SELECT 'clock', @now;
SELECT 'units', SUM(units) FROM {lease} WHERE `key` = :key AND place IS NULL AND ends > @now;
SELECT 'token', token FROM {stripe} WHERE stripe = :stripe;
";

pub(super) const LIST: &str = "SELECT DISTINCT 'key', `key` FROM {lease}
  WHERE `key` >= :from AND `key` > :after AND `key` < :to AND ends > @now ORDER BY `key` LIMIT :listed;
";

/// Gives the membership row a new identity if the row does not have one or comes from a different
/// incarnation.
pub(super) const FOUND: &str = "UPDATE {member} FORCE INDEX (PRIMARY)
  SET store = :fresh, charter = NULL, since = @now, incarnation = @incarnation
  WHERE id = 0 AND @incarnation IS NOT NULL AND (store IS NULL OR incarnation <> @incarnation);
";

/// Joins the store with this identity to the quorum, unless the store is a member with a different
/// configuration. Raises all partitions, which are already locked.
pub(super) const ENLIST: &str = "SELECT COUNT(*) > 0 INTO @held FROM {member}
  WHERE store = :store AND incarnation = @incarnation AND COALESCE(charter, :charter) = :charter;
UPDATE {member} FORCE INDEX (PRIMARY) SET charter = :charter WHERE id = 0 AND @held;
UPDATE {stripe} FORCE INDEX (PRIMARY) SET token = GREATEST(token, :floor) WHERE @held;
";

/// Reads the membership status. Overflows if a partition is missing.
pub(super) const STANDING: &str = "SELECT MAX(token), COUNT(*) INTO @first, @stripes FROM {stripe};
SET @token = CAST(IF(@stripes = :all, 0, 9223372036854775807) AS SIGNED) + 1;
SELECT 'standing', @incarnation IS NOT NULL, HEX(store), charter, @first, @now - since FROM {member};
";

/// Reads the settings that decide whether the server keeps acknowledged commits. The query does not
/// need permissions.
pub(super) const SURVEY: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN
  ('innodb_flush_log_at_trx_commit', 'log_bin', 'sync_binlog', 'wsrep_on');
";

/// Reads the settings that can endanger locks.
pub(super) const DIAGNOSE: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN
  ('innodb_doublewrite', 'innodb_flush_log_at_trx_commit', 'log_bin', 'read_only', 'sync_binlog', 'version');
SELECT 'clock', (:clock);
";

/// Changes nothing, but uses all tables, columns and permissions that the other statements need.
pub(super) const TRY: &str = "UPDATE {stripe} SET token = token WHERE stripe < 0;
INSERT INTO {lease} (`key`, tag, place, whole, units, capacity, patience, ends, asked, token, fingerprint, description)
  SELECT `key`, tag, place, whole, units, capacity, patience, ends, asked, token, fingerprint, description FROM {lease} WHERE FALSE;
UPDATE {lease} SET ends = ends WHERE FALSE;
DELETE FROM {lease} WHERE FALSE;
UPDATE {member} SET since = since WHERE FALSE;
SELECT 'stripes', COUNT(*) FROM {stripe};
";
