//! The statements on the rows of the keys.

use std::sync::Arc;

use leasehold_core::backend::Vote;
use uuid::Uuid;

use super::dialect::{DIALECT, literal};
use crate::call::{Call, Form, Template, Value, replace};
use crate::layout::Layout;
use crate::request::{micros, token_at};
use crate::values::{FreeClaim, HeldLease, Replacement};

/// Creates the statements on the tables of one layout. Each statement is a transaction of its own.
///
/// Galera clusters require this, because a node does not report every transaction of several
/// statements that it aborts. The decision record 0015 has the measurements.
///
/// The outcome of a statement that writes is the number of rows that it has changed, so
/// `CLIENT_FOUND_ROWS` must be off. A statement that grants returns the token as the *insert id*.
///
/// # Tokens
///
/// While the row of a key exists, each token is larger than the last one. A purge raises the minimum
/// token in one transaction and deletes rows in another one. A statement that creates a row locks
/// the minimum token until it has committed, so the row is in the table before the minimum token is
/// raised, or the row's token is larger.
///
/// [`Call`] has an example for PostgreSQL.
#[derive(Clone, Debug)]
pub struct RowStatements {
    layout: Layout,
    clock: String,
    acquire: Arc<Template>,
    acquire_any: [Arc<Template>; 2],
    release: Arc<Template>,
    read: Arc<Template>,
    create: Arc<Template>,
    swap: [Arc<Template>; 2],
    list: Arc<Template>,
    raise_min_token: Arc<Template>,
    purge_page: Arc<Template>,
    purge: Arc<Template>,
    give_identity: Arc<Template>,
    member_status: Arc<Template>,
    raise_for_join: Arc<Template>,
    join: Arc<Template>,
    is_member: Arc<Template>,
}

impl RowStatements {
    /// The clock of the database, in microseconds since 1970. The value is in UTC if the session's
    /// time zone is. `SYSDATE` ignores a `timestamp` that the session has set.
    pub const CLOCK: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6))";

    /// How many keys one purge visits.
    pub const PURGED: i64 = 512;

    /// Creates the statements. By default, the database's clock is used. Tests pass the expression
    /// of a different clock.
    pub fn new(layout: &Layout, clock: Option<&str>) -> Self {
        let clock = clock.unwrap_or(Self::CLOCK).to_owned();
        let template = |text: &str| Template::prepared(&DIALECT, fill(layout, &clock, text));
        let with_condition = |text: &str| {
            ["", IS_MEMBER].map(|condition| template(&text.replace("$AND_MEMBER", condition)))
        };
        Self {
            acquire: template(ACQUIRE),
            acquire_any: with_condition(&ACQUIRE_ANY.replace("$CLAIMS", "").replace("$ORDER", "")),
            release: template(RELEASE),
            read: template(READ),
            create: template(CREATE),
            swap: with_condition(SWAP),
            list: template(LIST),
            raise_min_token: template(RAISE_MIN_TOKEN),
            purge_page: template(PURGE_PAGE),
            purge: template(PURGE),
            give_identity: template(GIVE_IDENTITY),
            member_status: template(MEMBER_STATUS),
            raise_for_join: template(RAISE_FOR_JOIN),
            join: template(JOIN),
            is_member: template(&["SELECT 1 FROM DUAL WHERE TRUE", IS_MEMBER].concat()),
            layout: layout.clone(),
            clock,
        }
    }

    /// Grants the key to the claim if its row exists, and has expired or belongs to the lease already.
    /// The insert id is the largest token of the grant. [`spare_tokens`](Self::spare_tokens) returns the
    /// number of its spare tokens. The claim must not belong to a quorum, because the statement ignores the
    /// minimum token.
    pub fn acquire(&self, claim: &FreeClaim<'_>) -> Call {
        Call::new(&self.acquire, values(claim))
    }

    /// Does the same as [`acquire`](Self::acquire), also for claims of a quorum, and creates the row if there
    /// is none.
    pub fn acquire_any(&self, claim: &FreeClaim<'_>) -> Call {
        Call::new(&self.acquire_any[usize::from(claim.membership.is_some())], values(claim))
    }

    /// Does the same as [`acquire_any`](Self::acquire_any) for several keys. Returns the tag of each
    /// granted lease, the largest token of the grant, and the number of its spare tokens. The claims
    /// must not belong to a quorum.
    pub fn acquire_all(&self, claims: &[FreeClaim<'_>]) -> Call {
        let rows: Vec<_> = claims.iter().map(|claim| selected(values(claim))).collect();
        let acquire = ACQUIRE_ANY.replace("$AND_MEMBER", "").replace("$ORDER", " ORDER BY u.`key`");
        let acquire = fill(&self.layout, &self.clock, &acquire);
        let acquire = replace(&acquire, |name| format!("u.`{name}`"));
        let acquire =
            acquire.replace("$CLAIMS", &format!(" JOIN ({}) AS u", rows.join(" UNION ALL\n")));
        let leases: Vec<_> = claims.iter().map(|claim| (claim.key, claim.tag)).collect();
        several([&acquire, ";\n", &self.on_keys(GRANTED, &leases)].concat())
    }

    /// Returns the number of spare tokens of the grant with this largest token.
    pub fn spare_tokens(token: i64) -> i64 {
        (1 << (token % 32)) - 1
    }

    /// Releases a lease in the simple state. The insert id is 1 if the lease was still in force, or 2
    /// if it had expired. Changes no row if the row does not have this tag.
    pub fn release(&self, key: &str, tag: Uuid) -> Call {
        Call::new(&self.release, vec![("key", key.into()), ("tag", tag.into())])
    }

    /// Releases leases in the simple state, which are given by key and tag. Returns the tag in each row
    /// before the release, and whether the row was still in force. The tag of a row with a document is null.
    pub fn release_all(&self, leases: &[(&str, Uuid)]) -> Call {
        several(self.on_keys(RELEASE_ALL, leases))
    }

    /// Renews leases in the simple state that have the same TTL, and whose descriptions have not
    /// changed. If the number of changed rows is smaller than the number of leases, some leases were
    /// not renewed.
    pub fn renew(&self, leases: &[HeldLease<'_>]) -> Call {
        let ttl = leases.first().map_or(0, |lease| lease.ttl);
        Call::new(&self.on_leases(RENEW, leases), vec![("ttl", ttl.into())])
    }

    /// Returns the tags of the leases that [`renew`](Self::renew) would renew without waiting for
    /// another transaction.
    pub fn unlocked(&self, leases: &[HeldLease<'_>]) -> Call {
        Call::new(&self.on_leases(UNLOCKED, leases), Vec::new())
    }

    fn on_leases(&self, text: &str, leases: &[HeldLease<'_>]) -> Arc<Template> {
        let columns = |lease: &HeldLease<'_>| {
            [lease.key.into(), lease.tag.into(), lease.description.unwrap_or_default().into()]
        };
        complete(self.on_rows(text, &leases.iter().map(columns).collect::<Vec<_>>()))
    }

    /// Returns statements on leases that are given by key and tag.
    fn on_keys(&self, text: &str, leases: &[(&str, Uuid)]) -> String {
        let columns = |(key, tag): &(&str, Uuid)| [(*key).into(), (*tag).into()];
        self.on_rows(text, &leases.iter().map(columns).collect::<Vec<_>>())
    }

    /// Returns statements on leases that are given by columns, the first of which is the key.
    fn on_rows<const N: usize>(&self, text: &str, rows: &[[Value; N]]) -> String {
        let rows: Vec<_> = rows.iter().map(|row| row.each_ref().map(literal)).collect();
        let keys: Vec<_> = rows.iter().map(|row| row[0].as_str()).collect();
        let rows: Vec<_> = rows.iter().map(|row| format!("({})", row.join(", "))).collect();
        let text = text.replace("$KEYS", &keys.join(", ")).replace("$LEASES", &rows.join(", "));
        fill(&self.layout, &self.clock, &text)
    }

    /// Reads the rows of the keys. Returns one row per key, which
    /// [`Reading`](crate::Reading) reads.
    pub fn read(&self, keys: &[&str]) -> Call {
        let call = |key: &str| Call::new(&self.read, vec![("key", key.into())]);
        if let [key] = keys {
            return call(key);
        }
        let reads: Vec<_> = keys.iter().map(|key| call(key).text()).collect();
        Call::new(&complete(reads.join("\nUNION ALL ")), Vec::new())
    }

    /// Creates a free row for a key that has none.
    ///
    /// `ends` makes the version of the row unique, so it must be a random negative number, because a
    /// row may be purged and created again while another client still wants to replace it.
    pub fn create(&self, key: &str, ends: i64) -> Call {
        Call::new(&self.create, vec![("key", key.into()), ("ends", ends.into())])
    }

    /// Replaces a row if it has not changed, and if the database is a member of the quorum.
    pub fn swap(&self, replacement: &Replacement<'_>, membership: Option<&str>) -> Call {
        let mut values = replacement.values();
        values.extend(membership.map(|configuration| ("configuration", configuration.into())));
        Call::new(&self.swap[usize::from(membership.is_some())], values)
    }

    /// Returns a row if the database is a member of the quorum.
    pub fn is_member(&self, configuration: &str) -> Call {
        Call::new(&self.is_member, vec![("configuration", configuration.into())])
    }

    /// Replaces several rows, in the order of their keys, if none of them has changed. Otherwise, the
    /// server reports the error 1690.
    pub fn swap_all(&self, replacements: &[Replacement<'_>]) -> Call {
        let rows: Vec<_> = replacements.iter().map(|one| selected(one.values())).collect();
        let text = SWAP_ALL.replace("$ROWS", &rows.join("\n  UNION ALL "));
        Call::new(&complete(fill(&self.layout, &self.clock, &text)), Vec::new())
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

    /// Raises the minimum token to the token of the time `age` microseconds ago. The first of the
    /// three transactions of a purge.
    pub fn raise_min_token(&self, age: i64) -> Call {
        Call::new(&self.raise_min_token, vec![("age", age.into())])
    }

    /// Returns the last of up to [`PURGED`](Self::PURGED) keys after the key `after`.
    pub fn purge_page(&self, after: &str) -> Call {
        Call::new(&self.purge_page, vec![("after", after.into()), ("count", Self::PURGED.into())])
    }

    /// Deletes the rows of expired keys after `after`, up to `last`, whose tokens are not above the
    /// minimum token.
    pub fn purge(&self, after: &str, last: &str) -> Call {
        Call::new(&self.purge, vec![("after", after.into()), ("last", last.into())])
    }

    /// Gives the data the identity `fresh` if it has none.
    pub fn give_identity(&self, fresh: Uuid) -> Call {
        Call::new(&self.give_identity, vec![("fresh", fresh.into())])
    }

    /// Returns whether the data can be a member, its identity, the configuration, the last token and
    /// the age of the data in microseconds.
    pub fn member_status(&self) -> Call {
        Call::new(&self.member_status, Vec::new())
    }

    /// Joins the data with the identity `store` to a quorum, unless the data is a member with a
    /// different configuration. The first statement raises the minimum token.
    pub fn join(&self, store: Uuid, configuration: &str, min_token: i64) -> [Call; 2] {
        let values = vec![
            ("store", store.into()),
            ("configuration", configuration.into()),
            ("min_token", min_token.into()),
        ];
        [&self.raise_for_join, &self.join].map(|template| Call::new(template, values.clone()))
    }
}

fn complete(text: String) -> Arc<Template> {
    Template::once(&DIALECT, text)
}

fn several(text: String) -> Call {
    Call::new(&Template::new(&DIALECT, Form::Several, text), Vec::new())
}

/// Returns a query of these values, for a table of several rows.
fn selected(values: Vec<(&'static str, Value)>) -> String {
    let column = |(name, value)| format!("{} AS `{name}`", literal(&value));
    format!("SELECT {}", values.into_iter().map(column).collect::<Vec<_>>().join(", "))
}

/// Returns the values of a claim. The number of spare tokens becomes 2ⁿ − 1.
fn values(claim: &FreeClaim<'_>) -> Vec<(&'static str, Value)> {
    let spare = (1 << (claim.spare + 1).ilog2().min(31)) - 1;
    FreeClaim { spare, ..*claim }.values()
}

/// Replaces all names that are not values.
fn fill(layout: &Layout, clock: &str, text: &str) -> String {
    let after =
        |text: &str, spare: &str, last: &str| text.replace("$SPARE", spare).replace("$LAST", last);
    let text = text
        .replace("$SPARE_AFTER_ROW", &after(SPARE, "", "token"))
        .replace("$TOKEN_AFTER_ROW", &after(TOKEN, "spare", "token"))
        .replace("$SPARE_AFTER_LOCKED", &after(SPARE, "", LAST_OF_LOCKED))
        .replace("$TOKEN_AFTER_LOCKED", &after(TOKEN, "{key}.spare", LAST_OF_LOCKED))
        .replace("$TOKEN_OF_NEW_ROW", &after(TOKEN, ":spare", "f.token"))
        .replace("$NEXT", NEXT)
        .replace("$AHEAD", &token_at(micros(Vote::MAX_AHEAD)).to_string())
        .replace("$INCARNATION", INCARNATION);
    // The expression of the clock may contain braces, so it is not passed to `fill`.
    layout.fill(&text, '`').replace("$CLOCK", clock)
}

/// The token that a grant reaches unless the last token is larger: the token of the current time, or
/// the requested token if it is not too far ahead of the clock.
const NEXT: &str = "GREATEST(2 * $CLOCK, IF(:requested <= 2 * $CLOCK + $AHEAD, :requested, 0))";

/// The number of spare tokens of a grant after the token `$LAST`: at most the requested ones, and none
/// that is ahead of the clock. The number is 2ⁿ − 1, so that the reply can contain `n`.
const SPARE: &str = "(1 << FLOOR(LOG2(GREATEST(LEAST(:spare + 1, $NEXT - $LAST), 1)))) - 1";

/// The largest token of a grant with `$SPARE` spare tokens, after the token `$LAST`. The reply contains
/// only this number, so its lowest five bits are the number of bits of `$SPARE`. The token may
/// therefore be ahead of the clock by at most 31.
const TOKEN: &str = "LAST_INSERT_ID((GREATEST($LAST + 1 + $SPARE, $NEXT) + 31 - BIT_COUNT($SPARE)) DIV 32 * 32 + BIT_COUNT($SPARE))";

/// The name of the database's incarnation, or null if the database may lose acknowledged commits.
/// The server ID distinguishes a server from its replicas.
const INCARNATION: &str = "IF(@@GLOBAL.innodb_flush_log_at_trx_commit IN (1, 3)
  AND (NOT @@GLOBAL.log_bin OR @@GLOBAL.sync_binlog = 1),
  CONCAT_WS('/', @@GLOBAL.server_id, @@hostname, @@port /*!80000 , @@server_uuid */), NULL)";

const IS_MEMBER: &str = "
  AND EXISTS (SELECT 1 FROM {member} WHERE charter = :configuration AND incarnation = $INCARNATION)";

/// Assignments are evaluated in order and see earlier assignments, so `spare` comes before `token`. The
/// row alone orders the tokens of its key, except for votes. To read the minimum token as well would make
/// the statement 1.4 times as slow.
const ACQUIRE: &str = "UPDATE {key} SET spare = $SPARE_AFTER_ROW, token = $TOKEN_AFTER_ROW,
  tag = :tag, ends = $CLOCK + :ttl, since = $CLOCK, fingerprint = :fingerprint, description = :description, document = NULL
WHERE `key` = :key AND (ends <= $CLOCK OR tag = :tag)";

/// The first assignment decides, and the other assignments depend on its result. `ends` is last,
/// because the decision reads it.
const ACQUIRE_ANY: &str = "INSERT INTO {key} (`key`, token, spare, tag, ends, since, fingerprint, description)
SELECT :key, $TOKEN_OF_NEW_ROW, :spare, :tag, $CLOCK + :ttl, $CLOCK, :fingerprint, :description
FROM {min_token} AS f$CLAIMS WHERE f.id = 0$AND_MEMBER$ORDER LOCK IN SHARE MODE
ON DUPLICATE KEY UPDATE tag = IF({key}.ends <= $CLOCK, :tag, {key}.tag),
  spare = IF({key}.tag = :tag, $SPARE_AFTER_LOCKED, {key}.spare), token = IF({key}.tag = :tag, $TOKEN_AFTER_LOCKED, {key}.token),
  since = IF({key}.tag = :tag, $CLOCK, {key}.since), fingerprint = IF({key}.tag = :tag, :fingerprint, {key}.fingerprint),
  description = IF({key}.tag = :tag, :description, {key}.description), document = IF({key}.tag = :tag, NULL, {key}.document),
  ends = IF({key}.tag = :tag, $CLOCK + :ttl, {key}.ends)";

const LAST_OF_LOCKED: &str = "GREATEST({key}.token, f.token)";

const RELEASE: &str =
    "UPDATE {key} SET ends = IF(LAST_INSERT_ID(IF(ends > $CLOCK, 1, 2)), -ends, -ends), tag = NULL
WHERE `key` = :key AND tag = :tag";

/// The rows are locked in the order of their keys. Rows with a document are locked too. Otherwise, such a
/// row could return to the simple state before the second statement, which would then release a lease that
/// the first statement has not returned.
const RELEASE_ALL: &str = "SELECT HEX(tag), ends > $CLOCK FROM {key} FORCE INDEX (PRIMARY) WHERE `key` IN ($KEYS)
AND (tag IS NULL OR (`key`, tag) IN ($LEASES)) FOR UPDATE;
UPDATE {key} FORCE INDEX (PRIMARY) SET ends = -ends, tag = NULL WHERE `key` IN ($KEYS) AND (`key`, tag) IN ($LEASES)";

const GRANTED: &str = "SELECT HEX(tag), token, spare FROM {key} FORCE INDEX (PRIMARY)
WHERE `key` IN ($KEYS) AND (`key`, tag) IN ($LEASES)";

/// The keys select the rows by the index.
const RENEW: &str = "UPDATE {key} FORCE INDEX (PRIMARY) SET ends = $CLOCK + :ttl
WHERE `key` IN ($KEYS) AND (`key`, tag, COALESCE(description, '')) IN ($LEASES) AND ends > $CLOCK";

const UNLOCKED: &str = "SELECT HEX(tag) FROM {key} FORCE INDEX (PRIMARY)
WHERE `key` IN ($KEYS) AND (`key`, tag, COALESCE(description, '')) IN ($LEASES) AND ends > $CLOCK FOR UPDATE SKIP LOCKED";

const READ: &str = "SELECT :key, 0, r.token, r.spare, HEX(r.tag), r.ends, r.since, r.fingerprint, r.description, r.document,
  (SELECT token FROM {min_token} WHERE id = 0), $CLOCK
FROM (SELECT 1) AS one LEFT JOIN {key} AS r ON r.`key` = :key";

const CREATE: &str = "INSERT INTO {key} (`key`, token, ends)
SELECT :key, GREATEST(f.token, 2 * $CLOCK), :ends FROM {min_token} AS f WHERE f.id = 0 LOCK IN SHARE MODE
ON DUPLICATE KEY UPDATE ends = {key}.ends";

const SWAP: &str =
    "UPDATE {key} SET token = :token, spare = :spare, tag = :tag, ends = :ends, since = :since,
  fingerprint = :fingerprint, description = :description, document = :document
WHERE `key` = :key AND token = :old_token AND ends = :old_ends$AND_MEMBER";

/// The addition overflows if a row has changed or is missing, which undoes the whole statement.
const SWAP_ALL: &str = "UPDATE ($ROWS) AS n LEFT JOIN {key} AS r ON r.`key` = n.`key`
SET r.token = n.token, r.spare = n.spare, r.tag = n.tag, r.ends = n.ends, r.since = n.since,
  r.fingerprint = n.fingerprint, r.description = n.description, r.document = n.document
WHERE IF(r.token = n.old_token AND r.ends = n.old_ends, 1, n.old_token + 9223372036854775807 + 1)";

const LIST: &str = "SELECT `key` FROM {key}
WHERE `key` >= :from AND `key` > :after AND `key` < :to AND ends > $CLOCK ORDER BY `key` LIMIT :count";

const RAISE_MIN_TOKEN: &str =
    "UPDATE {min_token} SET token = GREATEST(token, 2 * ($CLOCK - :age)) WHERE id = 0";

const PURGE_PAGE: &str = "SELECT MAX(`key`) FROM (SELECT `key` FROM {key} WHERE `key` > :after ORDER BY `key` LIMIT :count) AS page";

const PURGE: &str = "DELETE FROM {key} WHERE `key` > :after AND `key` <= :last AND ends <= $CLOCK
  AND token <= (SELECT f.token FROM {min_token} AS f WHERE f.id = 0)";

const GIVE_IDENTITY: &str =
    "UPDATE {member} SET store = :fresh, charter = NULL, since = $CLOCK, incarnation = $INCARNATION
WHERE id = 0 AND $INCARNATION IS NOT NULL AND (store IS NULL OR incarnation <> $INCARNATION)";

const MEMBER_STATUS: &str = "SELECT $INCARNATION IS NOT NULL, HEX(store), charter,
  GREATEST((SELECT token FROM {min_token} WHERE id = 0), COALESCE((SELECT MAX(token) FROM {key}), 0)), $CLOCK - since
FROM {member} WHERE id = 0";

const RAISE_FOR_JOIN: &str = "UPDATE {min_token} SET token = GREATEST(token, :min_token)
WHERE id = 0 AND EXISTS (SELECT 1 FROM {member} AS m
  WHERE m.store = :store AND m.incarnation = $INCARNATION AND COALESCE(m.charter, :configuration) = :configuration)";

const JOIN: &str = "UPDATE {member} SET charter = :configuration
WHERE id = 0 AND store = :store AND incarnation = $INCARNATION AND COALESCE(charter, :configuration) = :configuration";
