//! The SQL statements that prepare a database.
//!
//! `{name}` is a table, which [`Layout::fill`](crate::Layout::fill) replaces. `:name` is a value.
//! Each row of a reply starts with a word by which the reply is recognized.

/// The schema of the tables, unless the layout names a different schema. A search path would be
/// different for each user, so two users could use different tables.
pub(super) const DEFAULT_SCHEMA: &str = "public";

/// Applies the settings that the meaning of a statement depends on, because the defaults of the
/// session are unknown. Returns a row only if the session has the mark, which a pooler drops.
///
/// With these settings, the server gives up before the client, does not acknowledge a commit that a
/// crash would lose, and warns about a commit that its replica may lack. The plans of prepared
/// statements are created once for all values, possibly while a table is empty, so they must use
/// indexes. An index scan reads one entry at a time and marks dead entries. Arrays are passed as texts
/// in which `NULL` is the null of SQL.
///
/// If the client's machine fails between the last two packets of a request, the rows of the request stay
/// locked until the server notices after half a minute that the connection is gone.
pub(super) const SETTINGS: &str = "SELECT set_config('search_path', 'pg_catalog', false), set_config('default_transaction_isolation', 'read committed', false),
  set_config('statement_timeout', :limit, false), set_config('lock_timeout', :limit, false),
  set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') IN ('off', 'local') THEN 'on'
    ELSE current_setting('synchronous_commit') END, false), set_config('client_min_messages', 'warning', false),
  set_config('plan_cache_mode', 'force_generic_plan', false), set_config('enable_seqscan', 'off', false),
  set_config('enable_bitmapscan', 'off', false), set_config('jit', 'off', false), set_config('array_nulls', 'on', false),
  set_config('tcp_keepalives_idle', '15', false), set_config('tcp_keepalives_interval', '5', false), set_config('tcp_keepalives_count', '3', false)
WHERE current_setting('leasehold.session', true) = '1'";

/// Lowers the time limits of the statements that follow in the same message.
pub(super) const LIMITS: &str =
    "SET LOCAL statement_timeout = :limit; SET LOCAL lock_timeout = :limit;
";

/// Restores the settings of the user for the statements that follow in the same message.
pub(super) const DEFAULTS: &str = "SET LOCAL search_path = DEFAULT; SET LOCAL statement_timeout = DEFAULT; SET LOCAL lock_timeout = DEFAULT;
";

/// Applies the [`SETTINGS`] to the transaction in a session that other code may use. Returns no row.
pub(super) const BEGIN: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET LOCAL search_path = pg_catalog;
SELECT 1 WHERE concat(set_config('statement_timeout', :limit, true), set_config('lock_timeout', :limit, true),
  set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') IN ('off', 'local') THEN 'on'
    ELSE current_setting('synchronous_commit') END, true), set_config('client_min_messages', 'warning', true),
  set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true),
  set_config('enable_bitmapscan', 'off', true), set_config('jit', 'off', true)) IS NULL;
";

/// The name of the database's incarnation. The system identifier distinguishes databases, and each
/// promotion starts a new timeline. If commits do not wait for the disk, commits may be lost
/// whenever the server starts.
///
/// `pg_control_checkpoint` is not used, because it returns the timeline of the last checkpoint,
/// which may be older than a promotion.
pub(super) const INCARNATION: &str =
    "(SELECT system_identifier || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8) || CASE current_setting('fsync')
    WHEN 'on' THEN '' ELSE '/' || (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint END FROM pg_control_system())";

/// Reads:
///
/// - whether the user may create the tables, whether the tables exist, and whether the user has the
///   permissions that the statements need;
/// - whether the tables of layout 1 exist, and whether the database can store all characters;
/// - which other schema has such tables. Earlier versions found and created the tables through the
///   user's search path, which starts with the schema that is named like the user.
///
/// The tables are found by name in the catalog, because `to_regclass` fails if the user is not allowed
/// to use the schema.
pub(super) const SURVEY: &str = "SELECT 'survey', coalesce(has_schema_privilege(n.oid, 'CREATE'), has_database_privilege(current_database(), 'CREATE')),
  k.oid IS NOT NULL AND t.oid IS NOT NULL AND m.oid IS NOT NULL,
  coalesce(has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(k.oid, 'SELECT') AND has_table_privilege(k.oid, 'INSERT')
    AND has_table_privilege(k.oid, 'UPDATE') AND has_table_privilege(k.oid, 'DELETE')
    AND has_sequence_privilege(t.oid, 'SELECT') AND has_sequence_privilege(t.oid, 'UPDATE')
    AND has_table_privilege(m.oid, 'SELECT') AND has_table_privilege(m.oid, 'UPDATE'), false),
  current_setting('fsync'), l.oid IS NOT NULL, getdatabaseencoding() IN ('UTF8', 'SQL_ASCII'), o.nspname, coalesce(o.nspname = current_user, false)
FROM (SELECT 1) one LEFT JOIN pg_namespace n ON n.nspname = :schema
LEFT JOIN pg_class k ON k.relnamespace = n.oid AND k.relname = :key LEFT JOIN pg_class t ON t.relnamespace = n.oid AND t.relname = :min_token
LEFT JOIN pg_class m ON m.relnamespace = n.oid AND m.relname = :member LEFT JOIN pg_class l ON l.relnamespace = n.oid AND l.relname = :lease
LEFT JOIN LATERAL (SELECT s.nspname FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace
  WHERE c.relname IN (:key, :stripe) AND s.nspname <> :schema AND s.nspname !~ '^pg_'
  ORDER BY s.nspname = current_user DESC, s.nspname LIMIT 1) o ON true;
";

/// Returns for how many microseconds the leases of layout 1 are still in force.
pub(super) const OLD_LEASES: &str =
    "SELECT 'old', greatest(coalesce(max(ends), 0) - $CLOCK, 0) FROM {lease};
";

/// Reads the settings that can endanger locks, the number of dead rows, and the oldest snapshot. The
/// settings of the session apply.
///
/// Only snapshots in this database and snapshots of replicas keep dead rows. A vacuum does not keep any.
/// Every user may read these columns except `xact_start`, which requires `pg_monitor` for transactions
/// of other users.
pub(super) const DIAGNOSE: &str = "SELECT 'diagnosis', current_setting('server_version'), current_setting('server_version_num'), pg_is_in_recovery(),
  current_setting('default_transaction_read_only'), current_setting('fsync'), current_setting('full_page_writes'), $CLOCK;
SELECT 'dead', coalesce(pg_stat_get_dead_tuples('{key}'::regclass), 0);
SELECT 'snapshot', kind, name, application, xids, extract(epoch FROM clock_timestamp() - since)::bigint FROM (
  SELECT CASE WHEN datname IS NULL THEN 'replica' ELSE 'session' END AS kind, pid::text AS name, application_name AS application,
    greatest(age(backend_xid), age(backend_xmin)) AS xids, xact_start AS since
  FROM pg_stat_activity WHERE coalesce(datname, current_database()) = current_database() AND pid <> pg_backend_pid()
    AND pid NOT IN (SELECT pid FROM pg_stat_progress_vacuum)
  UNION ALL SELECT 'prepared', gid, '', age(transaction), prepared FROM pg_prepared_xacts WHERE database = current_database()
  UNION ALL SELECT 'slot', slot_name, '', age(xmin), NULL FROM pg_replication_slots
) snapshot WHERE xids IS NOT NULL ORDER BY xids DESC LIMIT 1;
";

/// Prevents two clients from creating a table at the same time. The number is a random constant.
pub(super) const ONE_BY_ONE: &str =
    "SELECT 'set', pg_catalog.pg_advisory_xact_lock(4417392650162286021);
";
