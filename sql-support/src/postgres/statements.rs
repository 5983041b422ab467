//! Creates the query batch of each transaction.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Error;
use leasehold_core::backend::{Claim, Enlistment, Finding, Fingerprint, Share, StoreId};
use uuid::Uuid;

use super::prepared::preparable;
use super::{diagnosis, texts};
use crate::layout::Layout;
use crate::remote::{self, Preparable, Rows, Text, Value, bind, replace};
use crate::reply::Inspected;
use crate::request::{Acquire, Key, List, Named, Renew, micros, token, token_at};

/// Creates the query batches of all transactions on the tables of one layout.
///
/// The example for [`postgres`](super) creates a query batch.
#[derive(Clone, Debug)]
pub struct Statements {
    layout: Layout,
    clock: String,
    /// The statements of a plain claim.
    acquire: Arc<Preparable>,
    /// The statements of a release.
    release: Arc<Preparable>,
}

impl Statements {
    /// Creates the query batches for tables with this layout.
    ///
    /// The layout should name a schema, because the batches do not use the session's search path.
    /// By default, the database's clock is used. Tests pass a different `clock`, which is a query
    /// that returns microseconds and never goes backwards.
    pub fn new(layout: &Layout, clock: Option<&str>) -> Self {
        let clock = clock.unwrap_or(texts::DATABASE_CLOCK).to_owned();
        let acquire = [texts::EXPIRE, texts::CALL_UP, texts::ACQUIRE, texts::CLEAR];
        let acquire =
            on_one_key(layout, &clock, &acquire, &[("up", "true"), ("number", texts::CLOCK_TOKEN)]);
        let release = [texts::RELEASE, texts::EXPIRE, texts::CALL_UP, texts::TELL];
        let values = [("up", texts::WAS_HELD), ("told", texts::IS_HEARD)];
        let release = on_one_key(layout, &clock, &release, &values);
        Self { layout: layout.clone(), clock, acquire, release }
    }

    /// Returns the channel on which transactions notify other clients.
    /// [`News::heard`](crate::News::heard) reads the messages.
    pub fn channel(&self) -> String {
        channel(&self.layout)
    }

    /// Returns the statement that listens to the channel.
    pub fn listen(&self) -> String {
        format!("LISTEN \"{}\"", self.channel())
    }

    /// Returns the query batch that finds the tables. The session's time limits apply to this query
    /// batch.
    pub fn survey(&self) -> Text {
        let name = |table: &str| literal(&self.layout.object(table, '"'));
        let values = ["stripe", "lease", "member"].map(|table| (table, name(table)));
        Text::new(no_limit, bind(texts::SURVEY, &values))
    }

    /// Returns the query batch that creates missing tables. Only one client at a time creates
    /// tables. The session's time limits apply to this query batch.
    pub fn install(&self) -> Text {
        Text::new(no_limit, [texts::ONE_BY_ONE, &super::migration(&self.layout)].concat())
    }

    fn text(&self, parts: &[&str], lock: Lock<'_>, values: &[(&str, String)]) -> Text {
        let (keys, locks) = match lock {
            Lock::Stripes(keys) => (keys, texts::LOCK),
            Lock::AllStripes => (&[][..], texts::LOCK),
            Lock::Nothing(keys) => (keys, ""),
        };
        let mut stripes: Vec<_> = match lock {
            Lock::AllStripes => (0..Key::STRIPES).map(|stripe| stripe.to_string()).collect(),
            _ => keys.iter().map(|key| key.stripe.to_string()).collect(),
        };
        stripes.sort_unstable();
        stripes.dedup();
        let names: Vec<_> = keys.iter().map(|key| literal(key.name())).collect();
        let mut all = vec![
            ("clock", self.clock.clone()),
            ("now", texts::NOW.to_owned()),
            ("channel", literal(&self.channel())),
            ("locked", stripes.len().to_string()),
            ("stripes", stripes.join(", ")),
            ("key", names.first().cloned().unwrap_or_default()),
            ("keys", names.join(", ")),
        ];
        all.extend(values.iter().cloned());
        let text = self.layout.fill(&[locks, texts::CLOCK, &parts.concat()].concat(), '"');
        Text::new(begin, bind(&text, &all))
    }
}

/// The locks that a transaction acquires before it reads the clock, and the keys that it uses.
enum Lock<'a> {
    Stripes(&'a [&'a Key]),
    AllStripes,
    Nothing(&'a [&'a Key]),
}

impl remote::Statements for Statements {
    fn diagnose(&self) -> Text {
        Text::new(no_limit, bind(texts::DIAGNOSE, &[("clock", self.clock.clone())]))
    }

    fn findings(&self, rows: &Rows) -> Result<Vec<Finding>, Error> {
        diagnosis::findings(rows)
    }

    fn acquire(&self, claim: &Acquire) -> Text {
        let place = claim.place;
        let is_leader = Share::Units { units: 1, limit: 1 };
        let is_observed =
            !claim.whole && (claim.units, claim.capacity) == (is_leader.units(), is_leader.limit());
        let Named { key, tag } = &claim.lease;
        let mut values = vec![
            ("tag", uuid(tag)),
            ("whole", claim.whole.to_string()),
            ("units", format!("{}::bigint", claim.units)),
            ("capacity", format!("{}::bigint", claim.capacity)),
            ("ttl", bigint(claim.ttl)),
            ("spare", claim.spare.to_string()),
            ("place", place.map_or("0::bigint".to_owned(), |place| bigint(place.time))),
            (
                "patience",
                place.and_then(|place| place.patience).map_or("NULL::bigint".to_owned(), bigint),
            ),
            ("fingerprint", literal(&claim.fingerprint)),
            ("description", optional(claim.description.as_deref())),
            ("observed", is_observed.to_string()),
        ];
        if claim.charter.is_none() && claim.least_token == 0 {
            return of_key(&self.acquire, key, values);
        }
        let (charter, of_charter) = under_charters(std::slice::from_ref(claim));
        values.extend(of_charter);
        values.push(("up", "true".to_owned()));
        values.push(("number", number(std::slice::from_ref(claim))));
        let parts = [charter, texts::EXPIRE, texts::CALL_UP, texts::ACQUIRE, texts::CLEAR];
        self.text(&parts, Lock::Stripes(&[key]), &values)
    }

    fn acquire_all(&self, claims: &[Acquire]) -> Text {
        let row = |(n, claim): (usize, &Acquire)| {
            let Named { key, tag } = &claim.lease;
            format!(
                "({n}, {}, {}, '{tag}'::uuid, {}, {}::bigint, {}::bigint, {}, {}, {}, {})",
                key.stripe,
                literal(key.name()),
                claim.whole,
                claim.units,
                claim.capacity,
                bigint(claim.ttl),
                claim.spare,
                literal(&claim.fingerprint),
                optional(claim.description.as_deref()),
            )
        };
        let rows: Vec<_> = claims.iter().enumerate().map(row).collect();
        let keys: Vec<_> = claims.iter().map(|claim| &claim.lease.key).collect();
        let (charter, of_charter) = under_charters(claims);
        let parts = [charter, texts::EXPIRE, texts::ACQUIRE_ALL, texts::CLEAR];
        let mut values = vec![("claims", rows.join(", ")), ("number", number(claims))];
        values.extend(of_charter);
        self.text(&parts, Lock::Stripes(&keys), &values)
    }

    fn renew(&self, leases: &[Renew]) -> Text {
        let row = |(n, lease): (usize, &Renew)| {
            let Named { key, tag } = &lease.lease;
            format!(
                "({n}, {}, '{tag}'::uuid, {}, {}::bigint, {}, {})",
                literal(key.name()),
                lease.whole,
                lease.units,
                bigint(lease.ttl),
                optional(lease.description.as_deref()),
            )
        };
        let rows: Vec<_> = leases.iter().enumerate().map(row).collect();
        let passing = if leases.len() > 1 { "SKIP LOCKED" } else { "" };
        let mut values = vec![("leases", rows.join(", ")), ("passing", passing.to_owned())];
        let mut parts = vec![texts::RENEW];
        if leases.iter().any(|lease| !lease.whole) {
            // A mutex's description does not affect waiters.
            parts.push(texts::TELL_CHANGED);
        }
        let raised: Vec<_> = leases.iter().filter(|lease| lease.floor > 0).collect();
        if raised.is_empty() {
            return self.text(&parts, Lock::Nothing(&[]), &values);
        }
        let floor = |lease: &&Renew| {
            let Named { key, tag } = &lease.lease;
            format!("({}, {}, '{tag}'::uuid, {})", key.stripe, literal(key.name()), lease.floor)
        };
        parts.push(texts::RAISE);
        values.push(("floors", raised.iter().map(floor).collect::<Vec<_>>().join(", ")));
        let keys: Vec<_> = raised.iter().map(|lease| &lease.lease.key).collect();
        self.text(&parts, Lock::Stripes(&keys), &values)
    }

    fn release(&self, lease: &Named) -> Text {
        of_key(&self.release, &lease.key, vec![("tag", uuid(&lease.tag))])
    }

    fn request_revocation(&self, key: &Key, only: Option<Fingerprint>) -> Text {
        let parts = [texts::EXPIRE, texts::REQUEST_REVOCATION];
        let values = [("meant", meant(only)), ("alone", only.is_some().to_string())];
        self.text(&parts, Lock::Stripes(&[key]), &values)
    }

    fn force_release(&self, key: &Key, only: Option<Fingerprint>) -> Text {
        let values = [
            ("meant", meant(only)),
            ("up", "false".to_owned()),
            ("told", "current_setting('leasehold.there')::boolean".to_owned()),
            ("tag", "'00000000-0000-0000-0000-000000000000'::uuid".to_owned()),
            ("number", texts::CLOCK_TOKEN.to_owned()),
        ];
        let parts = [texts::EXPIRE, texts::FORCE_RELEASE, texts::CALL_UP, texts::TELL];
        self.text(&parts, Lock::Stripes(&[key]), &values)
    }

    fn inspect(&self, key: &Key) -> Text {
        let values = [("listed", Inspected::LISTED.to_string())];
        self.text(&[texts::INSPECT], Lock::Nothing(&[key]), &values)
    }

    fn list(&self, list: &List) -> Text {
        let values = [
            ("from", literal(&list.from)),
            ("after", literal(&list.after)),
            ("to", literal(&list.to)),
            ("listed", List::KEYS.to_string()),
        ];
        self.text(&[texts::LIST], Lock::Nothing(&[]), &values)
    }

    fn standing(&self, fresh: StoreId, enlistment: Option<&Enlistment>) -> Text {
        let mut values = vec![
            ("fresh", format!("'{fresh}'::uuid")),
            ("incarnation", texts::INCARNATION.to_owned()),
            ("all", Key::STRIPES.to_string()),
        ];
        let Some(enlistment) = enlistment else {
            let parts = [texts::FOUND, texts::STANDING];
            return self.text(&parts, Lock::Nothing(&[]), &values);
        };
        values.extend([
            ("store", format!("'{}'::uuid", enlistment.store())),
            ("charter", literal(enlistment.charter().as_str())),
            ("floor", token(enlistment.floor()).to_string()),
        ]);
        let parts = [texts::FOUND, texts::ENLIST, texts::STANDING];
        self.text(&parts, Lock::AllStripes, &values)
    }
}

/// Returns the statements of transactions on one key, with `:name` placeholders for all values that
/// are not given.
fn on_one_key(
    layout: &Layout,
    clock: &str,
    parts: &[&str],
    values: &[(&str, &str)],
) -> Arc<Preparable> {
    let channel = literal(&channel(layout));
    let of_all = [
        ("clock", clock),
        ("now", texts::NOW),
        ("channel", &channel),
        ("locked", "1"),
        ("stripes", ":stripe"),
        ("keys", ":key"),
    ];
    let known = |name: &str| of_all.iter().chain(values).find(|(known, _)| *known == name);
    let value = |name: &str| {
        known(name).map_or_else(|| format!(":{name}"), |(_, value)| (*value).to_owned())
    };
    let statement = |part: &&str| replace(&layout.fill(part, '"'), &value);
    let statements: Vec<_> =
        [texts::LOCK, texts::CLOCK].iter().chain(parts).map(statement).collect();
    Arc::new(preparable(&statements))
}

/// Returns the condition that selects the leases for an operator's request.
fn meant(only: Option<Fingerprint>) -> String {
    let equals = |lease: Fingerprint| format!("fingerprint = {}", literal(&lease.to_string()));
    only.map_or_else(|| "true".to_owned(), equals)
}

/// Returns the query batch of a transaction on `key`.
fn of_key(statements: &Arc<Preparable>, key: &Key, mut values: Vec<Value>) -> Text {
    values.push(("key", literal(key.name())));
    values.push(("stripe", key.stripe.to_string()));
    Text::preparable(begin, statements, values)
}

/// Returns the statement that checks the claims' quorum configurations, with its values. Returns an
/// empty string if no claim has a configuration.
fn under_charters(claims: &[Acquire]) -> (&'static str, Vec<(&'static str, String)>) {
    let charters = claims.iter().filter_map(|claim| claim.charter.as_ref());
    let charters: Vec<_> = charters.map(|charter| literal(charter.as_str())).collect();
    if charters.is_empty() {
        return ("", Vec::new());
    }
    let incarnation = texts::INCARNATION.to_owned();
    (texts::CHARTERED, vec![("charters", charters.join(", ")), ("incarnation", incarnation)])
}

/// Returns the token that these claims must reach: the clock's token, or the requested minimum
/// token if that is larger.
fn number(claims: &[Acquire]) -> String {
    let wish = claims.iter().map(|claim| claim.least_token).max().unwrap_or_default();
    if wish == 0 {
        return texts::CLOCK_TOKEN.to_owned();
    }
    // All claims on a partition share its token counter, and the first claim gets the smallest
    // token.
    let others = i64::try_from(claims.len() - 1).expect("they are few");
    let (reached, ahead) = (wish.saturating_add(others), token_at(micros(Claim::WISHED_AHEAD)));
    let clock = texts::CLOCK_TOKEN;
    format!("greatest({clock}, CASE WHEN {wish} <= {clock} + {ahead} THEN {reached} END)")
}

/// Starts a transaction with a time limit of at least one millisecond per statement.
fn begin(limit: Duration) -> String {
    bind(texts::BEGIN, &[("limit", literal(&limit.as_millis().max(1).to_string()))])
}

/// Starts a transaction without a time limit, so that the session's limits apply.
fn no_limit(_: Duration) -> String {
    String::new()
}

/// Returns text as a literal that does not depend on `standard_conforming_strings`.
fn literal(text: &str) -> String {
    format!("E'{}'::text", text.replace('\\', r"\\").replace('\'', "''"))
}

fn uuid(tag: &Uuid) -> String {
    format!("'{tag}'::uuid")
}

fn channel(layout: &Layout) -> String {
    format!("{}news", layout.prefix())
}

fn optional(text: Option<&str>) -> String {
    text.map_or("NULL::text".to_owned(), literal)
}

fn bigint(time: Duration) -> String {
    format!("{}::bigint", micros(time))
}

#[cfg(test)]
mod tests {
    use leasehold_core::LockKey;
    use leasehold_core::backend::{Charter, Lease};

    use super::*;
    use crate::remote::Statements as _;

    #[test]
    fn plain_requests_look_at_no_member_and_lock_as_before() {
        let statements = Statements::new(&Layout::default(), None);
        let lease = Lease::new(&LockKey::new("job").unwrap(), Duration::from_secs(10));
        let plain = Claim::new(lease.clone());
        let acquire = |claim: &Claim| statements.acquire(&Acquire::of(claim)).at(Duration::ZERO);
        let renew = |lease: &Lease| statements.renew(&[Renew::of(lease)]).at(Duration::ZERO);

        assert!(!acquire(&plain).contains("leasehold_member"));
        assert!(
            acquire(&plain).contains(
                "greatest(s.token + 1, 2 * current_setting('leasehold.now')::bigint) FROM"
            )
        );
        assert!(!renew(&lease).contains("leasehold_stripe"));

        let charter = Charter::from_text("a, b, c");
        assert!(acquire(&plain.clone().with_charter(charter)).contains("leasehold_member"));
        assert!(acquire(&plain.with_least_token(5)).contains("THEN 5 END"));
        assert!(renew(&lease.with_floor(5)).contains("FOR UPDATE"));
    }

    #[test]
    fn no_text_leaves_its_literal() {
        assert_eq!(literal(r"it's \' :x"), r"E'it''s \\'' :x'::text");
    }
}
