//! The statements on the rows of the keys.

use std::sync::Arc;

use leasehold_core::backend::Vote;
use uuid::Uuid;

use super::dialect::DIALECT;
use super::texts::DEFAULT_SCHEMA;
use super::texts::INCARNATION;
use crate::call::{Call, Template, Value};
use crate::layout::Layout;
use crate::request::{micros, token_at};
use crate::values::{FreeClaim, HeldLease, Replacement};

/// Creates the statements on the tables of one layout. Each statement is a transaction of its own,
/// except [`purge`](Self::purge), which is one message of several statements.
///
/// # Generations
///
/// A long transaction anywhere in the database keeps dead versions of rows, and an update of a row
/// visits all of its versions. A key therefore moves to a new row of the next generation after a
/// number of changes, and every statement that writes names the generation. The row of generation 0
/// stays as a mark: it is `moved`. [`read`](Self::read) starts at the newest generation.
///
/// Every statement that finds nothing may have been called with an old generation. The caller must
/// then read the row.
///
/// # Tokens
///
/// While the row of a key exists, each token is larger than the last one. A row is deleted only
/// after the minimum token was raised to at least the row's token. PostgreSQL computes the values of
/// an `INSERT` before it waits for a row that another transaction is deleting, so the new row may
/// have a token that is too small. The statements therefore return the minimum token, which they
/// read *after* the row is in the table, from a sequence, which is not part of the snapshot. The
/// caller must [`raise`](Self::raise) a token that is not above the minimum token.
///
/// [`Call`] has an example.
#[derive(Clone, Debug)]
pub struct RowStatements {
    acquire: [Arc<Template>; 2],
    acquire_all: Arc<Template>,
    acquire_any: [Arc<Template>; 2],
    raise: Arc<Template>,
    release: [Arc<Template>; 2],
    release_all: [Arc<Template>; 2],
    renew: Arc<Template>,
    read: Arc<Template>,
    create: Arc<Template>,
    swap: [Arc<Template>; 2],
    swap_all: Arc<Template>,
    move_key: Arc<Template>,
    list: Arc<Template>,
    purge: Arc<Template>,
    member_status: Arc<Template>,
    join: Arc<Template>,
    is_member: Arc<Template>,
    channel: String,
    /// Whether the commit of a release does not wait for the disk.
    has_lazy_releases: bool,
}

impl RowStatements {
    /// The clock of the database, in microseconds since 1970. The value is exact, because it is less
    /// than 2⁵³.
    pub const CLOCK: &str = "(date_part('epoch', clock_timestamp()) * 1e6)::bigint";

    /// How many keys one purge visits.
    pub const PURGED: i64 = 512;

    /// Creates the statements. By default, the database's clock is used. Tests pass the expression
    /// of a different clock.
    pub fn new(layout: &Layout, clock: Option<&str>) -> Self {
        let layout = layout.or_in_schema(DEFAULT_SCHEMA);
        let ahead = token_at(micros(Vote::MAX_AHEAD)).to_string();
        let filled = |text: &str| {
            let text = text.replace("$NEXT_OF_EACH", &NEXT.replace(":requested", "u.requested"));
            let text = text.replace("$NEXT", NEXT).replace("$GRANTED", GRANTED);
            let text = layout.fill(&text, '"').replace("$AHEAD", &ahead);
            let text = text.replace("$CLOCK", clock.unwrap_or(Self::CLOCK));
            text.replace("$INCARNATION", INCARNATION)
        };
        let complete = |text: &str| Template::once(&DIALECT, filled(text));
        let template = |text: &str| Template::prepared(&DIALECT, filled(text));
        let with_condition = |text: &str| {
            ["", IS_MEMBER].map(|condition| template(&text.replace("$AND_MEMBER", condition)))
        };
        let with_laziness =
            |text: &str| ["", LAZILY].map(|lazily| template(&[text, lazily].concat()));
        Self {
            acquire: with_condition(ACQUIRE),
            acquire_all: template(ACQUIRE_ALL),
            acquire_any: with_condition(ACQUIRE_ANY),
            raise: template(RAISE),
            release: with_laziness(RELEASE),
            release_all: with_laziness(RELEASE_ALL),
            renew: template(RENEW),
            read: template(READ),
            create: template(CREATE),
            swap: with_condition(SWAP),
            swap_all: template(SWAP_ALL),
            move_key: template(MOVE),
            list: complete(LIST),
            purge: complete(PURGE),
            member_status: complete(MEMBER_STATUS),
            join: complete(JOIN),
            is_member: template(&["SELECT WHERE true", IS_MEMBER].concat()),
            channel: format!("{}news", layout.prefix()),
            has_lazy_releases: false,
        }
    }

    /// Lets [`release`](Self::release) and [`release_all`](Self::release_all) commit without waiting for
    /// the disk or for replicas.
    #[must_use]
    pub fn with_lazy_releases(mut self) -> Self {
        self.has_lazy_releases = true;
        self
    }

    /// Grants the key to the claim if the row of this generation has expired, or belongs to the lease
    /// already. Returns the tag of the lease, the largest token of the grant, the number of its spare
    /// tokens, and the minimum token, or no row.
    pub fn acquire(&self, claim: &FreeClaim<'_>, generation: i64) -> Call {
        let mut values = claim.values();
        values.push(("generation", generation.into()));
        Call::new(&self.acquire[usize::from(claim.membership.is_some())], values)
    }

    /// Does the same as [`acquire`](Self::acquire) for several keys whose generations are given. Skips
    /// rows that another transaction has locked. The claims must not belong to a quorum.
    pub fn acquire_all(&self, claims: &[(FreeClaim<'_>, i64)]) -> Call {
        let mut values = FreeClaim::all(claims.iter().map(|(claim, _)| claim));
        let generations = claims.iter().map(|(_, generation)| Some(*generation)).collect();
        values.push(("generations", Value::Ints(generations)));
        Call::new(&self.acquire_all, values)
    }

    /// Does the same as [`acquire`](Self::acquire) for several keys of generation 0, and creates their
    /// rows if there are none. All claims must belong to the same quorum or to none.
    pub fn acquire_any(&self, claims: &[FreeClaim<'_>]) -> Call {
        let mut values = FreeClaim::all(claims);
        let membership = claims.first().and_then(|claim| claim.membership);
        values.extend(membership.map(|configuration| ("configuration", configuration.into())));
        Call::new(&self.acquire_any[usize::from(membership.is_some())], values)
    }

    /// Raises the token of a grant above `min_token`, if the row still contains the grant. Returns
    /// the same columns as [`acquire`](Self::acquire).
    pub fn raise(&self, lease: &HeldLease<'_>, token: i64, min_token: i64) -> Call {
        let values = vec![
            ("key", lease.key.into()),
            ("generation", lease.generation.into()),
            ("tag", lease.tag.into()),
            ("token", token.into()),
            ("min_token", min_token.into()),
        ];
        Call::new(&self.raise, values)
    }

    /// Releases a lease in the simple state. Returns the tag of the lease and whether the lease was still
    /// in force, or no row.
    pub fn release(&self, key: &str, generation: i64, tag: Uuid) -> Call {
        let values =
            vec![("key", key.into()), ("generation", generation.into()), ("tag", tag.into())];
        Call::new(&self.release[usize::from(self.has_lazy_releases)], values)
    }

    /// Releases leases in the simple state, which are given by key, generation and tag. Returns the tag
    /// of each released lease and whether the lease was still in force. Skips rows that another
    /// transaction has locked.
    pub fn release_all(&self, leases: &[(&str, i64, Uuid)]) -> Call {
        let values = vec![
            ("keys", Value::Texts(leases.iter().map(|lease| Some(lease.0.to_owned())).collect())),
            ("generations", Value::Ints(leases.iter().map(|lease| Some(lease.1)).collect())),
            ("tags", Value::Uuids(leases.iter().map(|lease| Some(lease.2)).collect())),
        ];
        Call::new(&self.release_all[usize::from(self.has_lazy_releases)], values)
    }

    /// Renews leases in the simple state. Returns the tags of the leases that it has renewed. Skips
    /// rows that another transaction has locked.
    pub fn renew(&self, leases: &[HeldLease<'_>]) -> Call {
        let ints = |int: fn(&HeldLease<'_>) -> i64| {
            Value::Ints(leases.iter().map(|lease| Some(int(lease))).collect())
        };
        let texts = |text: fn(&HeldLease<'_>) -> Option<String>| {
            Value::Texts(leases.iter().map(text).collect())
        };
        let values = vec![
            ("keys", texts(|lease| Some(lease.key.to_owned()))),
            ("generations", ints(|lease| lease.generation)),
            ("tags", Value::Uuids(leases.iter().map(|lease| Some(lease.tag)).collect())),
            ("ttls", ints(|lease| lease.ttl)),
            ("descriptions", texts(|lease| lease.description.map(str::to_owned))),
        ];
        Call::new(&self.renew, values)
    }

    /// Reads the rows of the keys. Returns one row per key, which
    /// [`Reading`](crate::Reading) reads.
    pub fn read(&self, keys: &[&str]) -> Call {
        Call::new(&self.read, vec![("keys", texts(keys))])
    }

    /// Creates free rows for keys that have none. Returns the keys of the created rows.
    ///
    /// The token of a new row may be less than the minimum token. Each value of `ends` must be a
    /// different random negative number, which makes the version of the row unique, because a row may
    /// be purged and created again while another client still wants to replace it.
    pub fn create(&self, keys: &[&str], ends: &[i64]) -> Call {
        let ends = Value::Ints(ends.iter().copied().map(Some).collect());
        Call::new(&self.create, vec![("keys", texts(keys)), ("ends", ends)])
    }

    /// Replaces a row if it has not changed, and if the database is a member of the quorum. Sends the
    /// messages to other clients. Returns a row if it has replaced the row.
    pub fn swap(
        &self,
        replacement: &Replacement<'_>,
        membership: Option<&str>,
        news: &[String],
    ) -> Call {
        let mut values = replacement.values();
        values.push(("generation", replacement.generation.into()));
        let (document, at) = replacement.told.unzip();
        values.extend([("told_document", document.into()), ("told_at", at.into())]);
        values.extend(membership.map(|configuration| ("configuration", configuration.into())));
        values.extend(self.news(news));
        Call::new(&self.swap[usize::from(membership.is_some())], values)
    }

    /// Replaces several rows if none of them has changed. Returns one row per replaced row.
    pub fn swap_all(&self, replacements: &[Replacement<'_>], news: &[String]) -> Call {
        let ints = |int: fn(&Replacement<'_>) -> Option<i64>| {
            Value::Ints(replacements.iter().map(int).collect())
        };
        let texts = |text: fn(&Replacement<'_>) -> Option<String>| {
            Value::Texts(replacements.iter().map(text).collect())
        };
        let count = i64::try_from(replacements.len()).expect("there are only a few keys");
        let mut values = vec![
            ("count", count.into()),
            ("keys", texts(|one| Some(one.key.to_owned()))),
            ("generations", ints(|one| Some(one.generation))),
            ("old_tokens", ints(|one| Some(one.old_token))),
            ("old_ends", ints(|one| Some(one.old_ends))),
            ("tokens", ints(|one| Some(one.row.token))),
            ("spares", ints(|one| Some(one.row.spare))),
            ("tags", Value::Uuids(replacements.iter().map(|one| one.row.tag).collect())),
            ("all_ends", ints(|one| Some(one.row.ends))),
            ("sinces", ints(|one| one.row.since)),
            ("fingerprints", texts(|one| one.row.fingerprint.clone())),
            ("descriptions", texts(|one| one.row.description.clone())),
            ("documents", texts(|one| one.row.document.clone())),
        ];
        values.extend(self.news(news));
        Call::new(&self.swap_all, values)
    }

    fn news(&self, news: &[String]) -> [(&'static str, Value); 2] {
        let messages = news.iter().cloned().map(Some).collect();
        [("channel", self.channel.as_str().into()), ("news", Value::Texts(messages))]
    }

    /// Returns a row if the database is a member of the quorum.
    pub fn is_member(&self, configuration: &str) -> Call {
        Call::new(&self.is_member, vec![("configuration", configuration.into())])
    }

    /// Moves a key to the next generation. Returns the new generation, or no row if the key has moved
    /// already.
    pub fn move_key(&self, key: &str, generation: i64) -> Call {
        let values = vec![("key", key.into()), ("generation", generation.into())];
        Call::new(&self.move_key, values)
    }

    /// Lists up to `count` keys with leases or queue entries in force, in order. The keys are at least
    /// `from`, after `after` and before `to`.
    pub fn list(&self, from: &str, after: &str, to: &str, count: i64) -> Call {
        let values = vec![
            ("from", from.into()),
            ("after", after.into()),
            ("to", to.into()),
            ("count", count.into()),
        ];
        Call::new(&self.list, values)
    }

    /// Deletes the rows of keys that were last granted at least `age` microseconds ago, and that have
    /// expired. Visits up to [`PURGED`](Self::PURGED) keys after the key `after`. Returns the last key
    /// that was visited and the number of deleted rows.
    pub fn purge(&self, after: &str, age: i64) -> Call {
        let values =
            vec![("after", after.into()), ("age", age.into()), ("count", Self::PURGED.into())];
        Call::new(&self.purge, values)
    }

    /// Returns the identity, the configuration, the last token and the age of the data in microseconds. Gives
    /// the data the identity `fresh` if it has none.
    pub fn member_status(&self, fresh: Uuid) -> Call {
        Call::new(&self.member_status, vec![("fresh", fresh.into())])
    }

    /// Joins the data with the identity `store` to a quorum, unless the data is a member with a
    /// different configuration, and raises the minimum token. [`member_status`](Self::member_status)
    /// must follow.
    pub fn join(&self, store: Uuid, configuration: &str, min_token: i64) -> Call {
        let values = vec![
            ("store", store.into()),
            ("configuration", configuration.into()),
            ("min_token", min_token.into()),
        ];
        Call::new(&self.join, values)
    }
}

fn texts(texts: &[&str]) -> Value {
    Value::Texts(texts.iter().map(|text| Some((*text).to_owned())).collect())
}

/// The clock and the token that a grant reaches unless the last token is larger: the token of the
/// current time, or the requested token if it is not too far ahead of the clock. The clock is read
/// once, possibly before the statement waits for the row. With an earlier time, a claim is refused
/// more often and its lease ends earlier.
const NEXT: &str = "SELECT c.now, greatest(2 * c.now, CASE WHEN :requested <= 2 * c.now + $AHEAD THEN :requested END) AS token
  FROM (SELECT $CLOCK AS now) AS c";

/// The number of spare tokens that lie between the last token and the new one, so that spare tokens
/// are never ahead of the clock.
///
/// The statement fails with a division by zero if commits do not wait for the disk, because the
/// session has lost its settings.
const GRANTED: &str = "RETURNING k.tag, k.token, k.spare, (SELECT last_value FROM {min_token} WHERE k.token IS NOT NULL), 1 / (current_setting('synchronous_commit') <> 'off')::int";

/// The minimum token is read for each row, after the row is in the table.
const ACQUIRE: &str = "UPDATE {key} AS k SET token = greatest(k.token + 1, n.token), spare = least(:spare, greatest(k.token + 1, n.token) - k.token - 1),
  tag = :tag, ends = n.now + :ttl, since = n.now, fingerprint = :fingerprint, description = :description, document = NULL
FROM ($NEXT) AS n
WHERE k.key = :key AND k.generation = :generation AND NOT k.moved AND (k.ends <= n.now OR k.tag = :tag)$AND_MEMBER
$GRANTED";

/// The rows are locked in the order of their keys. One row that stays locked must not delay the other
/// callers.
const ACQUIRE_ALL: &str = "WITH mine AS (
  SELECT u.* FROM unnest(:keys, :tags, :ttls, :fingerprints, :descriptions, :spares, :requested_tokens, :generations)
    AS u (key, tag, ttl, fingerprint, description, spare, requested, generation)
  JOIN {key} AS k ON k.key = u.key AND k.generation = u.generation AND NOT k.moved AND (k.ends <= $CLOCK OR k.tag = u.tag)
  ORDER BY u.key FOR NO KEY UPDATE OF k SKIP LOCKED
)
UPDATE {key} AS k SET token = greatest(k.token + 1, n.token), spare = least(u.spare, greatest(k.token + 1, n.token) - k.token - 1),
  tag = u.tag, ends = n.now + u.ttl, since = n.now, fingerprint = u.fingerprint, description = u.description, document = NULL
FROM mine AS u CROSS JOIN LATERAL ($NEXT_OF_EACH) AS n
WHERE k.key = u.key AND k.generation = u.generation AND NOT k.moved AND (k.ends <= n.now OR k.tag = u.tag)
$GRANTED";

/// The rows are created in the order of their keys.
const ACQUIRE_ANY: &str = "INSERT INTO {key} AS k (key, generation, token, spare, tag, ends, since, fingerprint, description)
SELECT u.key, 0, n.token, least(u.spare, n.token - 1), u.tag, n.now + u.ttl, n.now, u.fingerprint, u.description
FROM unnest(:keys, :tags, :ttls, :fingerprints, :descriptions, :spares, :requested_tokens)
  AS u (key, tag, ttl, fingerprint, description, spare, requested)
CROSS JOIN LATERAL ($NEXT_OF_EACH) AS n
WHERE true$AND_MEMBER
ORDER BY u.key
ON CONFLICT (key, generation) DO UPDATE SET token = greatest(k.token + 1, EXCLUDED.token),
  spare = least(EXCLUDED.spare, greatest(k.token + 1, EXCLUDED.token) - k.token - 1), tag = EXCLUDED.tag, ends = EXCLUDED.ends,
  since = EXCLUDED.since, fingerprint = EXCLUDED.fingerprint, description = EXCLUDED.description, document = NULL
WHERE NOT k.moved AND (k.ends <= EXCLUDED.since OR k.tag = EXCLUDED.tag)
$GRANTED";

const IS_MEMBER: &str = "
  AND EXISTS (SELECT FROM {member} WHERE charter = :configuration AND incarnation = $INCARNATION)";

const RAISE: &str = "UPDATE {key} AS k SET token = greatest(k.token, :min_token) + 1, spare = 0
WHERE k.key = :key AND k.generation = :generation AND NOT k.moved AND k.tag = :tag AND k.token = :token
$GRANTED";

const RELEASE: &str = "UPDATE {key} SET tag = NULL, ends = -ends
WHERE key = :key AND generation = :generation AND NOT moved AND tag = :tag RETURNING :tag, -ends > $CLOCK";

const RELEASE_ALL: &str = "WITH mine AS (
  SELECT u.* FROM unnest(:keys, :generations, :tags) AS u (key, generation, tag)
  JOIN {key} AS k ON k.key = u.key AND k.generation = u.generation AND k.tag = u.tag AND NOT k.moved
  ORDER BY u.key FOR NO KEY UPDATE OF k SKIP LOCKED
)
UPDATE {key} AS k SET tag = NULL, ends = -k.ends FROM mine
WHERE k.key = mine.key AND k.generation = mine.generation AND k.tag = mine.tag AND NOT k.moved
RETURNING mine.tag, -k.ends > $CLOCK";

/// Applies to the commit of this statement only. The next grant of the key waits until the release is on
/// the disk, because the log is written in order.
const LAZILY: &str = ", set_config('synchronous_commit', 'off', true)";

/// A renewal of many leases must not wait for one of them, so it skips locked rows. The rows are
/// locked in the order of their keys, as by all statements on several rows.
const RENEW: &str = "WITH mine AS (
  SELECT k.key, k.generation, u.ttl, u.description
  FROM unnest(:keys, :generations, :tags, :ttls, :descriptions) AS u (key, generation, tag, ttl, description)
  JOIN {key} AS k ON k.key = u.key AND k.generation = u.generation AND k.tag = u.tag AND NOT k.moved
  ORDER BY k.key FOR NO KEY UPDATE OF k SKIP LOCKED
)
UPDATE {key} AS k SET ends = $CLOCK + mine.ttl, description = mine.description FROM mine
WHERE k.key = mine.key AND k.generation = mine.generation AND k.ends > $CLOCK RETURNING k.tag";

/// With `key = …`, the planner would drop the order and start with the oldest versions.
///
/// A snapshot never contains a row without the sequence's value of that time, so the minimum token
/// is at least the token of every row that was deleted before the read row was created.
const READ: &str = "SELECT u.key, r.generation, r.token, r.spare, r.tag, r.ends, r.since, r.fingerprint, r.description, r.document,
  (SELECT last_value FROM {min_token} WHERE u.key IS NOT NULL), $CLOCK
FROM unnest(:keys) AS u (key) LEFT JOIN LATERAL (
  SELECT * FROM {key} AS k WHERE k.key >= u.key AND k.key <= u.key ORDER BY k.key DESC, k.generation DESC LIMIT 1
) AS r ON true";

const CREATE: &str = "INSERT INTO {key} (key, generation, token, ends)
SELECT u.key, 0, greatest(2 * $CLOCK, (SELECT last_value FROM {min_token})), u.ends FROM unnest(:keys, :ends) AS u (key, ends) ORDER BY u.key
ON CONFLICT DO NOTHING RETURNING key";

const SWAP: &str = "UPDATE {key} SET token = :token, spare = :spare, tag = :tag, ends = :ends, since = :since,
  fingerprint = :fingerprint, description = :description, document = :document
WHERE key = :key AND generation = :generation AND NOT moved AND token = :old_token AND ends = :old_ends
  AND (:told_at IS NULL OR document = :told_document AND :told_at BETWEEN $CLOCK - 10000000 AND $CLOCK)$AND_MEMBER
RETURNING key, (SELECT count(pg_notify(:channel, message)) FROM unnest(:news) AS n (message) WHERE token IS NOT NULL)";

/// Locks the unchanged rows in the order of their keys before it changes any of them.
const SWAP_ALL: &str = "WITH mine AS (
  SELECT u.* FROM unnest(:keys, :generations, :old_tokens, :old_ends, :tokens, :spares, :tags, :all_ends, :sinces, :fingerprints,
    :descriptions, :documents) AS u (key, generation, old_token, old_ends, token, spare, tag, ends, since, fingerprint, description, document)
  JOIN {key} AS k ON k.key = u.key AND k.generation = u.generation AND NOT k.moved AND k.token = u.old_token AND k.ends = u.old_ends
  ORDER BY u.key FOR NO KEY UPDATE OF k
)
UPDATE {key} AS k SET token = mine.token, spare = mine.spare, tag = mine.tag, ends = mine.ends, since = mine.since,
  fingerprint = mine.fingerprint, description = mine.description, document = mine.document
FROM mine WHERE k.key = mine.key AND k.generation = mine.generation AND (SELECT count(*) FROM mine) = :count
RETURNING k.key, (SELECT count(pg_notify(:channel, message)) FROM unnest(:news) AS n (message) WHERE k.token IS NOT NULL)";

/// Copies the row in any state. Only the row of generation 0 stays, because an insertion must find
/// it.
const MOVE: &str = "WITH current AS (
  SELECT * FROM {key} WHERE key = :key AND generation = :generation AND NOT moved FOR UPDATE SKIP LOCKED
), next AS (
  INSERT INTO {key} (key, generation, token, spare, tag, ends, since, fingerprint, description, document)
  SELECT key, generation + 1, token, spare, tag, ends, since, fingerprint, description, document FROM current RETURNING generation
), gone AS (
  DELETE FROM {key} WHERE key = :key AND generation = :generation AND generation > 0 AND EXISTS (SELECT FROM next)
), mark AS (
  UPDATE {key} SET moved = true, tag = NULL, ends = 0, since = NULL, fingerprint = NULL, description = NULL, document = NULL
  WHERE key = :key AND generation = :generation AND generation = 0 AND EXISTS (SELECT FROM next)
)
SELECT generation FROM next";

const LIST: &str = "SELECT key FROM {key} WHERE key >= :from AND key > :after AND key < :to AND ends > $CLOCK ORDER BY key LIMIT :count";

/// One purge at a time raises the minimum token, because `setval` could otherwise lower it. The
/// number of the advisory lock is a random constant.
///
/// Each key has one row of generation 0. Under an old snapshot, only this row and the newest row of a key
/// are visited, because the key may have many dead versions of other generations.
const PURGE: &str = "SELECT pg_advisory_xact_lock(4417392650162286022);
SELECT setval('{min_token}', greatest(last_value, 2 * ($CLOCK - :age))) FROM {min_token};
WITH page AS (
  SELECT key, (SELECT generation FROM {key} AS n WHERE n.key >= k.key AND n.key <= k.key ORDER BY n.key DESC, n.generation DESC LIMIT 1) AS generation
  FROM {key} AS k WHERE key > :after AND generation = 0 ORDER BY key LIMIT :count
), old AS (
  SELECT k.key FROM page JOIN {key} AS k ON k.key = page.key AND k.generation = page.generation
  WHERE NOT k.moved AND k.ends <= $CLOCK AND k.token <= (SELECT last_value FROM {min_token}) ORDER BY k.key FOR UPDATE OF k SKIP LOCKED
), gone AS (
  DELETE FROM {key} WHERE key IN (SELECT key FROM old) RETURNING 1
)
SELECT (SELECT max(key) FROM page), (SELECT count(*) FROM gone)";

const MEMBER_STATUS: &str = "UPDATE {member} SET store = :fresh, charter = NULL, since = $CLOCK, incarnation = $INCARNATION
WHERE store IS NULL OR incarnation IS DISTINCT FROM $INCARNATION;
SELECT store, charter, greatest((SELECT last_value FROM {min_token}), (SELECT max(token) FROM {key})), $CLOCK - since FROM {member}";

/// The minimum token is raised before the configuration can be seen, so a claim with the
/// configuration gets a larger token.
const JOIN: &str = "SELECT pg_advisory_xact_lock(4417392650162286022);
SELECT setval('{min_token}', greatest(last_value, :min_token)) FROM {min_token}
WHERE EXISTS (SELECT FROM {member} WHERE store = :store AND coalesce(charter, :configuration) = :configuration);
UPDATE {member} SET charter = :configuration WHERE store = :store AND coalesce(charter, :configuration) = :configuration";
