//! The SQL statements from which query batches are assembled.
//!
//! `{name}` is a table, which [`Layout::fill`](crate::Layout::fill) replaces. `:name` is a value.
//! Each row of the reply starts with a word by which `rows.rs` recognizes the row. Rows that start
//! with `set` come from queries that run only for their side effects, for example to change a
//! setting.

/// Sets all session settings that the meaning of a batch depends on, because the defaults of the
/// session are unknown.
///
/// With these settings, the server gives up before the client, does not acknowledge a commit that a
/// crash would lose, and warns about a commit that its replica may lack. Index scans read one entry
/// at a time and mark the entries of expired leases as dead. A key that is locked repeatedly leaves
/// one such entry each time, and a bitmap scan would visit all of these entries in every
/// transaction.
pub(super) const BEGIN: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET LOCAL search_path = pg_catalog;
SELECT 'set', set_config('statement_timeout', :limit, true), set_config('lock_timeout', :limit, true),
  set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') IN ('off', 'local') THEN 'on'
    ELSE current_setting('synchronous_commit') END, true), set_config('client_min_messages', 'warning', true),
  set_config('enable_bitmapscan', 'off', true);
";

/// The plans of prepared statements are created once for all values, possibly while a table is
/// empty. The plans must use indexes even if a table was empty at that time.
pub(super) const PLANNED_ONCE: &str =
    "SELECT 'set', set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true),
  set_config('jit', 'off', true);
";

/// Locks the partitions' rows, in the same order in all transactions. Divides by zero if a row is
/// missing.
pub(super) const LOCK: &str = "WITH locked AS (SELECT stripe FROM {stripe} WHERE stripe IN (:stripes) ORDER BY stripe FOR UPDATE)
SELECT 'set', 1 / (count(*) = :locked)::integer FROM locked;
";

/// Reads the clock. All later statements use the same value of the clock.
pub(super) const CLOCK: &str = "SELECT 'set', set_config('leasehold.now', (:clock)::text, true);
";

/// The database's clock in microseconds since 1970. This clock keeps advancing within a
/// transaction.
pub(super) const DATABASE_CLOCK: &str =
    "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// The value of the clock that [`CLOCK`] read.
pub(super) const NOW: &str = "current_setting('leasehold.now')::bigint";

/// The token for the current time. Each microsecond has two tokens
/// ([`TOKENS_PER_MICROSECOND`](leasehold_core::backend::Grant::TOKENS_PER_MICROSECOND)).
pub(super) const CLOCK_TOKEN: &str = "2 * current_setting('leasehold.now')::bigint";

/// The name of the database's incarnation. The system identifier distinguishes databases, and each
/// promotion starts a new timeline. If commits do not wait for the disk, commits may be lost
/// whenever the server starts.
///
/// `pg_control_checkpoint` is not used, because it returns the timeline of the last checkpoint,
/// which may be older than a promotion.
pub(super) const INCARNATION: &str =
    "(SELECT system_identifier || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8) || CASE current_setting('fsync')
    WHEN 'on' THEN '' ELSE '/' || (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint END FROM pg_control_system())";

/// Fails with the logarithm of zero unless the store has joined the quorum with the configuration
/// of all claims.
pub(super) const CHARTERED: &str =
    "SELECT 'set', ln(count(*)) FROM {member} WHERE charter = ALL (ARRAY[:charters]) AND incarnation = :incarnation;
";

/// Deletes expired rows. It is not sufficient to ignore expired rows in later statements, because
/// only the deletion waits for a concurrent renewal. After waiting, the deletion skips a row that
/// is in force again.
pub(super) const EXPIRE: &str = "DELETE FROM {lease} WHERE key IN (:keys) AND ends <= :now;
";

/// Returns the queue entries that can be granted now. If `:up` is set, also limits these entries to
/// their patience.
///
/// A message to other clients has space for only a few tags. If there are more tags, an empty
/// message makes all waiters read the queue.
pub(super) const CALL_UP: &str = "WITH sums AS (
  SELECT tag, patience, place, sum(units) OVER (ORDER BY place) + (
      SELECT coalesce(sum(units), 0) FROM {lease} WHERE key = :key AND place IS NULL) <= capacity AS fits
  FROM {lease} WHERE key = :key AND place IS NOT NULL
), queue AS (
  SELECT tag, patience, bool_and(fits) OVER (ORDER BY place) AS fits FROM sums
), up AS (
  UPDATE {lease} l SET ends = least(l.ends, :now + q.patience) FROM queue q
  WHERE q.fits AND q.patience IS NOT NULL AND l.key = :key AND l.tag = q.tag AND :up
)
SELECT 'called', string_agg(tag::text, ' ') FILTER (WHERE fits AND tag <> :tag),
  set_config('leasehold.queued', (count(*) > 0)::text, true),
  set_config('leasehold.news', CASE WHEN count(*) FILTER (WHERE fits) > 64 THEN ''
    ELSE 'w' || :key || coalesce(' ' || string_agg(tag::text, ' ') FILTER (WHERE fits), '') END, true)
FROM queue;
";

/// Notifies other clients of the entries that can be granted now, if `:told` is set.
pub(super) const TELL: &str =
    "SELECT 'set', pg_notify(:channel, current_setting('leasehold.news')) WHERE :told;
";

/// Returns whether any client needs the notification, because a commit with a notification blocks
/// all other notifying transactions on the server. Waiters have rows, but observers of an election
/// do not.
pub(super) const IS_HEARD: &str = "current_setting('leasehold.observed')::boolean
  OR current_setting('leasehold.queued')::boolean AND current_setting('leasehold.there')::boolean";

/// Decides a claim based on the remaining rows, and writes the result.
pub(super) const ACQUIRE: &str = "WITH own AS (
  SELECT place FROM {lease} WHERE key = :key AND tag = :tag
), others AS (
  SELECT coalesce(sum(units), 0) AS used, coalesce(bool_or(place IS NULL), false) AS held,
    coalesce(bool_or(place IS NULL AND whole <> :whole), false) AS other,
    coalesce(max(asked) FILTER (WHERE place IS NULL AND asked < 9223372036854775807), 0) AS asked, min(ends) FILTER (WHERE place IS NOT NULL) AS first_place
  FROM {lease} WHERE key = :key AND tag <> :tag AND (place IS NULL OR place < coalesce((SELECT place FROM own), 9223372036854775807))
), decision AS (
  SELECT o.*, NOT o.other AND (used + :units <= :capacity OR EXISTS (SELECT FROM own WHERE place IS NULL)) AS fits
  FROM others o
), counted AS (
  UPDATE {stripe} s SET token = greatest(s.token + 1, :number) FROM decision d, {stripe} before
  WHERE d.fits AND s.stripe = :stripes AND before.stripe = :stripes
  RETURNING s.token AS last, greatest(before.token + 1, s.token - :spare) AS first
), written AS (
  INSERT INTO {lease} AS l (key, tag, place, whole, units, capacity, patience, ends, asked, token, fingerprint, description)
  SELECT :key, :tag, CASE WHEN NOT d.fits THEN coalesce((SELECT place FROM own),
      (SELECT max(place) + 1 FROM {lease} WHERE key = :key), 1) END,
    :whole, :units, :capacity, CASE WHEN NOT d.fits THEN :patience END,
    :now + CASE WHEN d.fits THEN :ttl ELSE :place END, CASE WHEN d.fits THEN d.asked ELSE 0 END, c.first, :fingerprint, :description
  FROM decision d LEFT JOIN counted c ON true WHERE d.fits OR NOT d.other AND :place > 0
  ON CONFLICT (key, tag) DO UPDATE SET place = EXCLUDED.place, capacity = EXCLUDED.capacity, patience = EXCLUDED.patience,
    units = CASE WHEN l.place IS NULL THEN least(l.units, EXCLUDED.units) ELSE EXCLUDED.units END, ends = EXCLUDED.ends,
    asked = greatest(l.asked, EXCLUDED.asked), token = EXCLUDED.token, description = EXCLUDED.description
), holder AS (
  SELECT fingerprint, description, units, ends FROM {lease} WHERE key = :key AND place IS NULL ORDER BY ends LIMIT 1
)
SELECT CASE WHEN d.other THEN 'other' WHEN d.fits THEN 'granted' ELSE 'refused' END, 0, c.first, c.last - c.first,
  h.fingerprint, h.description, h.units, h.ends - :now, CASE WHEN NOT (:whole AND d.held) THEN d.first_place - :now END,
  CASE WHEN d.fits AND NOT d.held AND :observed THEN pg_notify(:channel, 'w' || :key)::text END
FROM decision d LEFT JOIN counted c ON true LEFT JOIN holder h ON NOT d.fits;
";

/// Decides several claims. The claims are granted if all of them can be admitted.
///
/// Claims on the same partition share its token counter and get no spare tokens.
pub(super) const ACQUIRE_ALL: &str = "WITH claim (n, stripe, key, tag, whole, units, capacity, ttl, spare, fingerprint, description) AS (VALUES :claims),
decision AS (
  SELECT c.n, o.*, NOT o.other AND (o.used + c.units <= c.capacity OR EXISTS (
      SELECT FROM {lease} l WHERE l.key = c.key AND l.tag = c.tag AND l.place IS NULL)) AS fits
  FROM claim c, LATERAL (
    SELECT coalesce(sum(l.units), 0) AS used, coalesce(bool_or(l.place IS NULL), false) AS held,
      coalesce(bool_or(l.place IS NULL AND l.whole <> c.whole), false) AS other,
      coalesce(max(l.asked) FILTER (WHERE l.place IS NULL AND l.asked < 9223372036854775807), 0) AS asked, min(l.ends) FILTER (WHERE l.place IS NOT NULL) AS first_place
    FROM {lease} l WHERE l.key = c.key AND l.tag <> c.tag AND (l.place IS NULL OR l.place < coalesce(
      (SELECT own.place FROM {lease} own WHERE own.key = c.key AND own.tag = c.tag), 9223372036854775807))) o
), obstacle AS (
  SELECT * FROM decision WHERE NOT fits ORDER BY n LIMIT 1
), counted AS (
  UPDATE {stripe} s SET token = greatest(s.token + w.claims, :number)
  FROM (SELECT stripe, count(*) AS claims, max(spare) AS spare FROM claim GROUP BY stripe) w, {stripe} before
  WHERE NOT EXISTS (SELECT FROM obstacle) AND s.stripe = w.stripe AND before.stripe = s.stripe
  RETURNING s.stripe, s.token AS last, CASE WHEN w.claims = 1 THEN greatest(before.token + 1, s.token - w.spare) END AS first
), granted AS (
  SELECT c.*, d.asked, n.last - behind AS last, coalesce(n.first, n.last - behind) AS first
  FROM (SELECT c.*, count(*) OVER (PARTITION BY stripe ORDER BY n DESC) - 1 AS behind FROM claim c) c
  JOIN decision d USING (n) JOIN counted n USING (stripe)
), written AS (
  INSERT INTO {lease} AS l (key, tag, whole, units, capacity, ends, asked, token, fingerprint, description)
  SELECT key, tag, whole, units, capacity, :now + ttl, asked, first, fingerprint, description FROM granted
  ON CONFLICT (key, tag) DO UPDATE SET place = NULL, capacity = EXCLUDED.capacity, patience = NULL,
    units = CASE WHEN l.place IS NULL THEN least(l.units, EXCLUDED.units) ELSE EXCLUDED.units END, ends = EXCLUDED.ends,
    asked = greatest(l.asked, EXCLUDED.asked), token = EXCLUDED.token, description = EXCLUDED.description
)
SELECT 'granted', n, first, last - first, NULL, NULL, NULL::bigint, NULL::bigint, NULL::bigint FROM granted
UNION ALL
SELECT CASE WHEN o.other THEN 'other' ELSE 'refused' END, n, NULL, NULL, h.fingerprint, h.description, h.units, h.ends - :now,
  CASE WHEN NOT (c.whole AND o.held) THEN o.first_place - :now END
FROM obstacle o JOIN claim c USING (n) LEFT JOIN LATERAL (
  SELECT * FROM {lease} l WHERE l.key = c.key AND l.place IS NULL ORDER BY l.ends LIMIT 1) h ON true
ORDER BY 2;
";

/// Renews leases in force without locking the partition. A lease whose row is deleted by a
/// concurrent acquisition is not in force.
///
/// `passing` is `SKIP LOCKED` for several leases. A row that another transaction has locked is
/// skipped and reported, because waiting for it would delay all other leases.
pub(super) const RENEW: &str = "WITH lease (n, key, tag, whole, units, ttl, description) AS (VALUES :leases),
before AS (
  SELECT a.n, l.units, l.description, l.place IS NULL AND l.ends > :now AS held FROM lease a JOIN {lease} l ON l.key = a.key AND l.tag = a.tag
), free AS (
  SELECT a.* FROM lease a JOIN {lease} l ON l.key = a.key AND l.tag = a.tag FOR NO KEY UPDATE OF l :passing
), renewed AS (
  UPDATE {lease} l SET ends = :now + a.ttl, units = least(l.units, a.units), description = a.description
  FROM free a WHERE l.key = a.key AND l.tag = a.tag AND l.place IS NULL AND l.ends > :now
  RETURNING a.n, a.key, l.whole, l.asked > :now AS asked, l.units, l.description
), changed AS (
  SELECT set_config('leasehold.changed', coalesce(array_agg(DISTINCT r.key), ARRAY[]::text[])::text, true) AS keys
  FROM renewed r JOIN before b USING (n)
  WHERE NOT r.whole AND (b.units, b.description) IS DISTINCT FROM (r.units, r.description)
)
SELECT CASE WHEN r.n IS NULL AND b.held THEN 'kept' ELSE 'renewed' END, n, r.asked, EXISTS (
    SELECT FROM {lease} o WHERE o.key = a.key AND o.tag <> a.tag AND o.place IS NULL AND o.ends > :now AND o.whole = a.whole)
FROM lease a LEFT JOIN before b USING (n) LEFT JOIN renewed r USING (n)
UNION ALL SELECT 'set', length(keys), NULL, NULL FROM changed;
";

/// Raises locked partitions to the minimum tokens of those leases that the previous renewal found
/// in force.
pub(super) const RAISE: &str = "WITH lease (stripe, key, tag, floor) AS (VALUES :floors),
raised AS (
  SELECT stripe, max(floor) AS floor FROM lease a
  WHERE EXISTS (SELECT FROM {lease} l WHERE l.key = a.key AND l.tag = a.tag AND l.place IS NULL AND l.ends > :now) GROUP BY stripe
)
UPDATE {stripe} s SET token = r.floor FROM raised r WHERE s.stripe = r.stripe AND s.token < r.floor;
";

/// Notifies waiters if a holder has returned permits, and observers if a holder has changed its
/// published value.
pub(super) const TELL_CHANGED: &str = "WITH sums AS (
  SELECT l.key, l.tag, l.place, sum(l.units) OVER (PARTITION BY l.key ORDER BY l.place) + (
      SELECT coalesce(sum(h.units), 0) FROM {lease} h WHERE h.key = l.key AND h.place IS NULL) <= l.capacity AS fits
  FROM {lease} l WHERE l.key = ANY (current_setting('leasehold.changed')::text[]) AND l.place IS NOT NULL
), queue AS (
  SELECT key, tag, bool_and(fits) OVER (PARTITION BY key ORDER BY place) AS fits FROM sums
), called AS (
  SELECT c.key, count(q.tag) FILTER (WHERE q.fits) AS places, string_agg(q.tag::text, ' ') FILTER (WHERE q.fits) AS tags
  FROM unnest(current_setting('leasehold.changed')::text[]) AS c (key) LEFT JOIN queue q USING (key) GROUP BY c.key
)
SELECT 'called', tags, pg_notify(:channel, CASE WHEN places > 64 THEN '' ELSE 'w' || key || coalesce(' ' || tags, '') END)
FROM called;
";

/// Releases a lease or removes a queue entry.
pub(super) const RELEASE: &str = "WITH gone AS (
  DELETE FROM {lease} WHERE key = :key AND tag = :tag
  RETURNING place IS NULL AND ends > :now AS held, place IS NULL AND NOT whole AND capacity = 1 AS observed
)
SELECT 'released', coalesce(bool_or(held), false), set_config('leasehold.held', coalesce(bool_or(held), false)::text, true),
  set_config('leasehold.there', (count(*) > 0)::text, true),
  set_config('leasehold.observed', coalesce(bool_or(observed), false)::text, true)
FROM gone;
";

/// Whether the previous statement released a lease in force.
pub(super) const WAS_HELD: &str = "current_setting('leasehold.held')::boolean";

/// Deletes rows of any key that expired a minute ago, without waiting for other transactions.
pub(super) const CLEAR: &str = "DELETE FROM {lease} WHERE (key, tag) IN (
  SELECT key, tag FROM {lease} WHERE ends < :now - 60000000 ORDER BY ends LIMIT 2 FOR UPDATE SKIP LOCKED);
";

/// Requests revocation. A request to a single holder remains for as long as the holder has the
/// lease.
pub(super) const REQUEST_REVOCATION: &str = "WITH asked AS (
  UPDATE {lease} SET asked = CASE WHEN asked = 9223372036854775807 OR :alone THEN 9223372036854775807
    ELSE (SELECT max(ends) FROM {lease} WHERE key = :key AND place IS NULL) END
  WHERE key = :key AND place IS NULL AND :meant RETURNING 1
)
SELECT 'asked', count(*) > 0, CASE WHEN count(*) > 0 THEN pg_notify(:channel, 'h' || :key)::text END FROM asked;
";

pub(super) const FORCE_RELEASE: &str = "WITH ended AS (
  DELETE FROM {lease} WHERE key = :key AND place IS NULL AND :meant RETURNING fingerprint, description, units, ends
), counted AS (
  UPDATE {stripe} SET token = greatest(token + 1, :number) WHERE stripe = :stripes AND EXISTS (SELECT FROM ended) RETURNING token
), told AS (
  SELECT set_config('leasehold.there', (count(*) > 0)::text, true),
    CASE WHEN count(*) > 0 THEN pg_notify(:channel, 'h' || :key)::text END FROM ended
)
SELECT 'holder', fingerprint, description, units, ends - :now FROM (SELECT * FROM ended ORDER BY ends) e
UNION ALL SELECT 'token', token::text, NULL, NULL, NULL FROM counted
  WHERE NOT EXISTS (SELECT FROM {lease} WHERE key = :key AND place IS NULL AND NOT (:meant))
UNION ALL SELECT 'set', told::text, NULL, NULL, NULL FROM told;
";

pub(super) const INSPECT: &str = "WITH found AS (
  SELECT * FROM {lease} WHERE key = :key AND ends > :now
)
SELECT 'holder', fingerprint, description, units, ends - :now, whole, capacity, token
  FROM (SELECT * FROM found WHERE place IS NULL ORDER BY ends LIMIT :listed) h
UNION ALL SELECT 'waiter', fingerprint, description, units, ends - :now, whole, capacity, NULL
  FROM (SELECT * FROM found WHERE place IS NOT NULL ORDER BY place LIMIT :listed) q
UNION ALL SELECT 'units', sum(units)::text, NULL, NULL, NULL, NULL, NULL, NULL FROM found WHERE place IS NULL
UNION ALL SELECT 'waiting', count(*)::text, NULL, NULL, NULL, NULL, NULL, NULL FROM found WHERE place IS NOT NULL
UNION ALL SELECT 'clock', (:now)::text, NULL, NULL, NULL, NULL, NULL, NULL
UNION ALL SELECT 'token', token::text, NULL, NULL, NULL, NULL, NULL, NULL FROM {stripe} WHERE stripe = :stripes;
";

pub(super) const LIST: &str = "SELECT DISTINCT 'key', key FROM {lease}
  WHERE key >= :from AND key > :after AND key < :to AND ends > :now ORDER BY key LIMIT :listed;
";

/// Gives the membership row a new identity if the row does not have one or comes from a different
/// incarnation. A read-only server always rejects this statement.
pub(super) const FOUND: &str =
    "UPDATE {member} SET store = :fresh, charter = NULL, since = :now, incarnation = :incarnation
WHERE store IS NULL OR incarnation IS DISTINCT FROM :incarnation;
";

/// Joins the store with this identity to the quorum, unless the store is a member with a different
/// configuration. Raises all partitions, which are already locked.
pub(super) const ENLIST: &str = "WITH enlisted AS (
  UPDATE {member} SET charter = :charter WHERE store = :store AND coalesce(charter, :charter) = :charter RETURNING 1
)
UPDATE {stripe} SET token = :floor WHERE token < :floor AND EXISTS (SELECT FROM enlisted);
";

/// Reads the membership status. Divides by zero if a partition is missing. Each PostgreSQL member
/// is either durable or loses its identity when it restarts.
pub(super) const STANDING: &str = "SELECT 'standing', true, store, charter,
  (SELECT coalesce(max(token), 0) / (count(*) = :all)::integer FROM {stripe}), :now - since FROM {member};
";

/// Reads whether and in which schema the tables exist, and whether the user has the permissions
/// that the statements need.
pub(super) const SURVEY: &str = "SELECT 'survey', coalesce(n.nspname, current_schema()), l.oid IS NOT NULL AND s.oid IS NOT NULL AND m.oid IS NOT NULL,
  coalesce(has_table_privilege(s.oid, 'SELECT') AND has_table_privilege(s.oid, 'UPDATE')
    AND has_table_privilege(l.oid, 'SELECT') AND has_table_privilege(l.oid, 'INSERT')
    AND has_table_privilege(l.oid, 'UPDATE') AND has_table_privilege(l.oid, 'DELETE')
    AND has_table_privilege(m.oid, 'SELECT') AND has_table_privilege(m.oid, 'UPDATE'), false),
  current_setting('fsync'), pg_is_in_recovery()
FROM (SELECT 1) one LEFT JOIN pg_class s ON s.oid = to_regclass(:stripe) LEFT JOIN pg_class l ON l.oid = to_regclass(:lease)
LEFT JOIN pg_class m ON m.oid = to_regclass(:member) LEFT JOIN pg_namespace n ON n.oid = s.relnamespace;
";

/// Reads the settings that can endanger locks. The settings of the session apply.
pub(super) const DIAGNOSE: &str = "SELECT 'diagnosis', current_setting('server_version'), current_setting('server_version_num'), pg_is_in_recovery(),
  current_setting('default_transaction_read_only'), current_setting('fsync'), current_setting('full_page_writes'), (:clock);
";

/// Prevents two clients from creating a table at the same time. The number is a random constant.
pub(super) const ONE_BY_ONE: &str =
    "SELECT 'set', pg_catalog.pg_advisory_xact_lock(4417392650162286021);
";
