//! Creates the query batch of each transaction.

use std::time::Duration;

use leasehold_core::Error;
use leasehold_core::backend::{Charter, Claim, Enlistment, Finding, Fingerprint, StoreId};
use uuid::Uuid;

use super::{diagnosis, texts};
use crate::layout::Layout;
use crate::remote::{self, Rows, Text, bind};
use crate::reply::Inspected;
use crate::request::{Acquire, Key, List, Named, Renew, micros, token, token_at};

/// One out of this number of claims deletes expired rows, on behalf of all of these claims.
/// Searching for expired rows takes one eighth of the time of a lock, even if no row has expired.
const CLEARING: u8 = 8;

/// Creates the query batches of all transactions on the tables of one layout.
///
/// The example for [`mysql`](super) creates a query batch.
#[derive(Clone, Debug)]
pub struct Statements {
    layout: Layout,
    clock: String,
}

impl Statements {
    /// Creates the query batches for tables with this layout.
    ///
    /// By default, the database's clock is used. Tests pass a different `clock`, which is a query
    /// that returns microseconds and never goes backwards.
    pub fn new(layout: &Layout, clock: Option<&str>) -> Self {
        let clock = clock.unwrap_or(texts::DATABASE_CLOCK).to_owned();
        Self { layout: layout.clone(), clock }
    }

    /// Returns the query batch that detects the type of the server.
    pub fn survey(&self) -> Text {
        complete(texts::SURVEY.to_owned())
    }

    /// Returns the query batch that checks whether all tables exist and all permissions are
    /// granted.
    pub fn attempt(&self) -> Text {
        complete(self.layout.fill(&[texts::START, texts::TRY].concat(), '`'))
    }

    /// Returns the query batch that creates missing tables.
    pub fn install(&self) -> Text {
        complete([texts::WRITES, &super::migration(&self.layout)].concat())
    }

    fn on_key(&self, parts: &[&str], key: &Key, lease: &Uuid, more: &[(&str, String)]) -> Text {
        let mut values = key_values(key);
        values.push(("tag", tag(lease)));
        values.extend(more.iter().cloned());
        self.decide(&[key], &bind(&parts.concat(), &values))
    }

    /// Returns a transaction that locks the partitions of all keys, in ascending order and each
    /// partition once.
    fn decide(&self, keys: &[&Key], text: &str) -> Text {
        let mut stripes: Vec<_> = keys.iter().map(|key| key.stripe).collect();
        stripes.sort_unstable();
        stripes.dedup();
        let lock = |stripe: u8| bind(texts::LOCK, &[("stripe", stripe.to_string())]);
        self.text(texts::START, &stripes.into_iter().map(lock).collect::<String>(), text)
    }

    /// Returns the statements that check the claims' quorum configurations. Returns an empty string
    /// if no claim has a configuration.
    fn under_charters(claims: &[Acquire]) -> String {
        let mut charters: Vec<_> =
            claims.iter().filter_map(|claim| claim.charter.as_ref()).map(Charter::as_str).collect();
        charters.dedup();
        let look = |charter| bind(texts::CHARTERED, &[("charter", bytes(charter))]);
        let looks: String = charters.iter().map(look).collect();
        if looks.is_empty() { looks } else { texts::INCARNATION.to_owned() + &looks }
    }

    /// Returns the statements that delete expired rows, for one out of [`CLEARING`] claims. The
    /// lease's random tag determines whether a claim is selected. A selected claim deletes two rows
    /// for each of [`CLEARING`] claims.
    fn clear(claim: &Acquire) -> String {
        if claim.lease.tag.as_bytes()[0].is_multiple_of(CLEARING) {
            texts::BEGIN_CLEAR.to_owned() + &texts::CLEAR.repeat(2 * usize::from(CLEARING))
        } else {
            String::new()
        }
    }

    fn text(&self, start: &str, locks: &str, text: &str) -> Text {
        let clock = bind(texts::CLOCK, &[("clock", self.clock.clone())]);
        let fill = |text: &str| self.layout.fill(text, '`');
        // Values do not contain braces, because text is written in hexadecimal. The clock's query
        // may contain braces, so it is not passed to `fill`.
        complete([start, &fill(locks), &clock, &fill(text)].concat())
    }
}

impl remote::Statements for Statements {
    fn diagnose(&self) -> Text {
        complete(bind(texts::DIAGNOSE, &[("clock", self.clock.clone())]))
    }

    fn findings(&self, rows: &Rows) -> Result<Vec<Finding>, Error> {
        diagnosis::findings(rows)
    }

    fn acquire(&self, claim: &Acquire) -> Text {
        let mut parts = vec![texts::EXPIRE, texts::BEGIN_ROOM, texts::ROOM, texts::CALL_UP];
        parts.extend([texts::BEGIN_CLAIMS, texts::ADMIT, texts::GRANT]);
        let mut values = claim_values(0, claim);
        if let Some(place) = claim.place {
            parts.push(texts::QUEUE);
            values.push(("place", span(place.time)));
            values.push(("patience", place.patience.map_or_else(null, span)));
        }
        let clear = Self::clear(claim);
        parts.extend([&clear, texts::ROOM, texts::CALLED]);
        values.push(("up", "TRUE".to_owned()));
        let charter = Self::under_charters(std::slice::from_ref(claim));
        self.decide(&[&claim.lease.key], &(charter + &bind(&parts.concat(), &values)))
    }

    fn acquire_all(&self, claims: &[Acquire]) -> Text {
        let each = |text: &str| -> String {
            let values = claims.iter().enumerate().map(|(n, claim)| claim_values(n, claim));
            values.map(|values| bind(text, &values)).collect()
        };
        // All transactions wait for rows in the same order.
        let mut keys: Vec<_> = claims.iter().map(|claim| &claim.lease.key).collect();
        keys.sort_unstable_by_key(|key| key.name());
        let expired = keys.iter().map(|key| bind(texts::EXPIRE, &[("key", bytes(key.name()))]));
        let parts = [
            Self::under_charters(claims),
            expired.collect(),
            texts::BEGIN_CLAIMS.to_owned(),
            each(texts::ADMIT),
            each(texts::GRANT),
            claims.first().map_or_else(String::new, Self::clear),
        ];
        self.decide(&keys, &parts.concat())
    }

    fn renew(&self, leases: &[Renew]) -> Text {
        let mut rows: Vec<_> = leases.iter().enumerate().collect();
        // All transactions wait for rows in the same order.
        rows.sort_unstable_by_key(|(_, lease)| (lease.lease.key.name(), lease.lease.tag));
        let list: Vec<_> = rows.iter().map(|(n, lease)| renewal(*n, lease)).collect();
        let mut text = bind(texts::RENEW, &[("leases", list.join(" UNION ALL "))]);
        text.extend(rows.iter().map(|(_, lease)| bind(texts::RENEW_ONE, &renew_values(lease))));
        // Only leases of permits can return permits.
        let shared = rows.iter().filter(|(_, lease)| !lease.whole);
        let shared: Vec<_> = shared.map(|(n, lease)| key_of(*n, lease)).collect();
        if !shared.is_empty() {
            text += &bind(texts::CALLED_OF_ALL, &[("keys", shared.join(" UNION ALL "))]);
        }
        let raised: Vec<_> = leases.iter().filter(|lease| lease.floor > 0).collect();
        text.extend(raised.iter().map(|lease| bind(texts::RAISE, &floor_values(lease))));
        let keys: Vec<_> = raised.iter().map(|lease| &lease.lease.key).collect();
        self.decide(&keys, &text)
    }

    fn release(&self, lease: &Named) -> Text {
        let parts = [
            texts::EXPIRE,
            texts::RELEASE,
            texts::BEGIN_ROOM,
            texts::ROOM,
            texts::CALL_UP,
            texts::CALLED,
        ];
        let values = [("up", "@held".to_owned())];
        self.on_key(&parts, &lease.key, &lease.tag, &values)
    }

    fn request_revocation(&self, key: &Key, only: Option<Fingerprint>) -> Text {
        let parts = [texts::EXPIRE, texts::REQUEST_REVOCATION];
        let until = only.map_or_else(|| "@until".to_owned(), |_| i64::MAX.to_string());
        self.on_key(&parts, key, &Uuid::nil(), &[("meant", meant(only)), ("until", until)])
    }

    fn force_release(&self, key: &Key, only: Option<Fingerprint>) -> Text {
        let parts =
            [texts::EXPIRE, texts::FORCE_RELEASE, texts::BEGIN_ROOM, texts::ROOM, texts::CALLED];
        let values = [("meant", meant(only)), ("number", number(0))];
        self.on_key(&parts, key, &Uuid::nil(), &values)
    }

    fn inspect(&self, key: &Key) -> Text {
        let mut values = key_values(key);
        values.push(("listed", Inspected::LISTED.to_string()));
        self.text(texts::START_TO_READ, "", &bind(texts::INSPECT, &values))
    }

    fn list(&self, list: &List) -> Text {
        let values = [
            ("from", bytes(&list.from)),
            ("after", bytes(&list.after)),
            ("to", bytes(&list.to)),
            ("listed", List::KEYS.to_string()),
        ];
        self.text(texts::START_TO_READ, "", &bind(texts::LIST, &values))
    }

    fn standing(&self, fresh: StoreId, enlistment: Option<&Enlistment>) -> Text {
        let mut values = vec![("fresh", format!("X'{fresh}'")), ("all", Key::STRIPES.to_string())];
        let lock =
            if enlistment.is_some() { bind(texts::LOCK_ALL, &values) } else { String::new() };
        let mut parts = vec![texts::INCARNATION, texts::FOUND];
        if let Some(enlistment) = enlistment {
            parts.push(texts::ENLIST);
            values.extend([
                ("store", format!("X'{}'", enlistment.store())),
                ("charter", bytes(enlistment.charter().as_str())),
                ("floor", token(enlistment.floor()).to_string()),
            ]);
        }
        parts.push(texts::STANDING);
        self.text(texts::START, &lock, &bind(&parts.concat(), &values))
    }
}

/// Adds the session settings and the commit to a batch.
fn complete(text: String) -> Text {
    Text::new(settings, text + texts::COMMIT)
}

/// Lock waits have a limit in whole seconds, which is at most half of `limit` but at least one
/// second.
fn settings(limit: Duration) -> String {
    let millis = limit.as_millis().max(1);
    let values = [
        ("seconds", (millis / 1000).max(1).to_string()),
        ("wait", (millis / 2000).max(1).to_string()),
        ("millis", millis.to_string()),
        ("fraction", format!("{}.{:03}", millis / 1000, millis % 1000)),
    ];
    bind(texts::SETTINGS, &values)
}

type Values = Vec<(&'static str, String)>;

/// Returns the condition that selects the leases for an operator's request.
fn meant(only: Option<Fingerprint>) -> String {
    let equals = |lease: Fingerprint| format!("fingerprint = {}", bytes(lease.to_string()));
    only.map_or_else(|| "TRUE".to_owned(), equals)
}

fn key_values(key: &Key) -> Values {
    vec![("stripe", key.stripe.to_string()), ("key", bytes(key.name()))]
}

fn claim_values(n: usize, claim: &Acquire) -> Values {
    let mut values = key_values(&claim.lease.key);
    values.extend([
        ("n", n.to_string()),
        ("tag", tag(&claim.lease.tag)),
        ("whole", flag(claim.whole)),
        ("units", claim.units.to_string()),
        ("capacity", claim.capacity.to_string()),
        ("ttl", span(claim.ttl)),
        ("spare", claim.spare.to_string()),
        ("fingerprint", bytes(&claim.fingerprint)),
        ("description", claim.description.as_deref().map_or_else(null, bytes)),
        ("number", number(claim.least_token)),
    ]);
    values
}

/// Returns the token that a grant must reach: the clock's token, or the requested minimum token if
/// that is larger.
fn number(wish: i64) -> String {
    if wish == 0 {
        return texts::CLOCK_TOKEN.to_owned();
    }
    let (clock, ahead) = (texts::CLOCK_TOKEN, token_at(micros(Claim::WISHED_AHEAD)));
    format!("GREATEST({clock}, IF({wish} <= {clock} + {ahead}, {wish}, 0))")
}

fn renew_values(renew: &Renew) -> Values {
    vec![
        ("key", bytes(renew.lease.key.name())),
        ("tag", tag(&renew.lease.tag)),
        ("units", renew.units.to_string()),
        ("ttl", span(renew.ttl)),
        ("description", renew.description.as_deref().map_or_else(null, bytes)),
    ]
}

fn floor_values(renew: &Renew) -> Values {
    let mut values = key_values(&renew.lease.key);
    values.extend([("tag", tag(&renew.lease.tag)), ("floor", renew.floor.to_string())]);
    values
}

/// Returns the row of a lease to renew.
fn renewal(n: usize, renew: &Renew) -> String {
    format!(
        "{}, {} AS tag, {} AS whole",
        key_of(n, renew),
        tag(&renew.lease.tag),
        flag(renew.whole)
    )
}

fn key_of(n: usize, renew: &Renew) -> String {
    format!("SELECT {n} AS n, {} AS `key`", bytes(renew.lease.key.name()))
}

/// Returns text as a byte literal, which has the same meaning in all SQL modes and character sets.
fn bytes(text: impl AsRef<[u8]>) -> String {
    let digits = text.as_ref().iter().map(|byte| format!("{byte:02X}"));
    format!("X'{}'", digits.collect::<String>())
}

fn tag(tag: &Uuid) -> String {
    bytes(tag.as_bytes())
}

fn flag(flag: bool) -> String {
    u8::from(flag).to_string()
}

/// Returns a time in microseconds. The result is small enough to be added to the clock.
fn span(time: Duration) -> String {
    micros(time).min(i64::MAX / 2).to_string()
}

fn null() -> String {
    "NULL".to_owned()
}

#[cfg(test)]
mod tests {
    use leasehold_core::LockKey;
    use leasehold_core::backend::{Claim, Lease, Patience, Share};

    use super::*;
    use crate::remote::Statements as _;

    fn claim(name: &str) -> Acquire {
        let lease = Lease::new(&LockKey::new(name).unwrap(), Duration::from_secs(10))
            .with_share(Share::Units { units: 1, limit: 2 });
        let charter = Charter::from_text("a, b, c");
        Acquire::of(&Claim::new(lease).with_patience(Patience::Waits).with_charter(charter))
    }

    fn all_texts() -> Vec<Text> {
        let statements = Statements::new(&Layout::default(), Some("SELECT us FROM test_clock"));
        let claims = [claim("a"), claim("b")];
        let lease = &claims[0].lease;
        let renew = Renew {
            lease: lease.clone(),
            whole: false,
            description: None,
            units: 1,
            ttl: Duration::from_secs(10),
            floor: 1,
        };
        let enlistment = Enlistment::new(StoreId::new(), Charter::from_text("a, b, c"));
        vec![
            statements.survey(),
            statements.diagnose(),
            statements.attempt(),
            statements.install(),
            statements.acquire(&claims[0]),
            statements.acquire_all(&claims),
            statements.renew(&[renew]),
            statements.release(lease),
            statements.request_revocation(&lease.key, None),
            statements.force_release(&lease.key, None),
            statements.inspect(&lease.key),
            statements.list(&List::of("job", None)),
            statements.standing(StoreId::new(), None),
            statements.standing(StoreId::new(), Some(&enlistment)),
        ]
    }

    #[test]
    fn the_commit_comes_after_all_rows() {
        for text in all_texts() {
            let text = text.at(Duration::from_secs(1));
            let (_, after) = text.split_once("SELECT 'commit';\nCOMMIT").unwrap();
            assert!(!after.contains("SELECT"), "{after}");
        }
    }

    #[test]
    fn variables_are_not_set_from_rows() {
        for text in all_texts() {
            let text = text.at(Duration::from_secs(1));
            let mut sets = text.split(";\n").filter(|statement| statement.starts_with("SET "));
            assert!(sets.all(|set| !set.contains("FROM")), "{text}");
        }
    }

    #[test]
    fn plain_requests_look_at_no_member_and_lock_as_before() {
        let statements = Statements::new(&Layout::default(), None);
        let lease = Lease::new(&LockKey::new("job").unwrap(), Duration::from_secs(10));
        let plain = Claim::new(lease.clone());
        let acquire = |claim: &Claim| statements.acquire(&Acquire::of(claim)).at(Duration::ZERO);
        let renew = |lease: &Lease| statements.renew(&[Renew::of(lease)]).at(Duration::ZERO);

        assert!(!acquire(&plain).contains("leasehold_member"));
        assert!(acquire(&plain).contains("SET @token = GREATEST(@next, 2 * @now);"));
        assert!(!renew(&lease).contains("leasehold_stripe"));

        let charter = Charter::from_text("a, b, c");
        assert!(acquire(&plain.clone().with_charter(charter)).contains("leasehold_member"));
        assert!(acquire(&plain.with_least_token(5)).contains("IF(5 <= 2 * @now + 2000000, 5, 0)"));
        assert!(renew(&lease.with_floor(5)).contains("leasehold_stripe"));
    }

    #[test]
    fn texts_are_literals_of_bytes() {
        assert_eq!(bytes("it's"), "X'69742773'");
        assert_eq!(bytes(""), "X''");
    }

    #[test]
    fn the_servers_limits_are_whole_seconds_at_least_one() {
        let short = settings(Duration::from_millis(250));
        assert!(short.contains("innodb_lock_wait_timeout = 1\n"), "{short}");
        assert!(short.contains("max_statement_time = 0.250"), "{short}");
        assert!(settings(Duration::from_secs(4)).contains("innodb_lock_wait_timeout = 2\n"));
    }
}
