//! The statements on the rows of the keys, on a real server.

use std::sync::Arc;
use std::time::Duration;

use leasehold_mysql::{Mysql, RunError};
use leasehold_sql_support::mysql::{RowStatements, migration};
use leasehold_sql_support::remote::{Driver, Execute, Pool, Reply, Settings};
use leasehold_sql_support::rows::Row;
use leasehold_sql_support::{Call, Failure, FreeClaim, HeldLease, Layout, Reading, Replacement};
use leasehold_testbed::{MariaDb, until};
use uuid::Uuid;

use direct::Direct;

mod direct;

const TTL: i64 = 60_000_000;

/// The time limit of a statement.
const LIMIT: Duration = Duration::from_secs(10);

/// A server with the tables.
struct Store {
    server: MariaDb,
    pool: Pool<<Mysql as Driver>::Connector>,
    statements: RowStatements,
}

impl Store {
    async fn start() -> Self {
        let server = MariaDb::start().await;
        server.sql(&migration(&Layout::default())).await;
        let servers = Mysql::read_url(&server.url(), &mut Settings::new(LIMIT)).unwrap();
        let pool = Pool::new(Arc::new(Mysql::connector(servers, LIMIT)), 1, LIMIT);
        Self { server, pool, statements: statements(None) }
    }

    async fn try_run(&self, call: &Call) -> Result<Reply, RunError> {
        self.pool.execute(call).await
    }

    async fn run(&self, call: &Call) -> Reply {
        self.try_run(call).await.unwrap()
    }

    /// Acquires the free key, and returns the token.
    async fn acquire(&self, key: &str, tag: Uuid) -> Option<i64> {
        let call = self.statements.acquire_any(&claim(key, tag));
        granted(&self.run(&call).await)
    }

    async fn release(&self, key: &str, tag: Uuid) -> Option<bool> {
        let reply = self.run(&self.statements.release(key, tag)).await;
        (reply.changed > 0).then_some(reply.insert_id == 1)
    }

    async fn read(&self, key: &str) -> Reading {
        let rows = self.run(&self.statements.read(&[key])).await.rows;
        Reading::of(&rows[0]).unwrap()
    }

    async fn expire(&self, key: &str) {
        let sql = format!("UPDATE leasehold_key SET ends = 1 WHERE `key` = '{key}'");
        self.server.sql(&sql).await;
    }
}

fn statements(clock: Option<&str>) -> RowStatements {
    RowStatements::new(&Layout::default(), clock)
}

fn granted(reply: &Reply) -> Option<i64> {
    (reply.changed > 0).then_some(reply.insert_id)
}

fn claim(key: &str, tag: Uuid) -> FreeClaim<'_> {
    FreeClaim {
        key,
        tag,
        ttl: TTL,
        fingerprint: "0000beef",
        description: Some("it's me"),
        spare: 0,
        requested_token: 0,
        membership: None,
    }
}

fn held(key: &str, tag: Uuid) -> HeldLease<'_> {
    HeldLease { key, generation: 0, tag, ttl: 2 * TTL, description: Some("it's me") }
}

fn tag(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

#[tokio::test]
async fn one_lease_at_a_time_has_a_key() {
    let store = Store::start().await;
    let [first, second] = [1, 2].map(tag);

    let token = store.acquire("k", first).await.unwrap();
    let row = store.read("k").await.row.unwrap();
    assert_eq!((row.token, row.tag, row.document), (token, Some(first), None));
    assert_eq!(row.description.as_deref(), Some("it's me"));
    assert_eq!(store.acquire("k", second).await, None);
    assert_eq!(store.release("k", second).await, None);

    assert_eq!(store.release("k", first).await, Some(true));
    let free = store.read("k").await.row.unwrap();
    assert_eq!((free.tag, free.ends), (None, -row.ends));
    assert_eq!(store.release("k", first).await, None);
    assert!(store.acquire("k", second).await.unwrap() > token);
}

#[tokio::test]
async fn many_keys_are_acquired_and_released_together() {
    let store = Store::start().await;
    store.acquire("held", tag(9)).await.unwrap();
    store.acquire("known", tag(8)).await.unwrap();
    assert_eq!(store.release("known", tag(8)).await, Some(true));
    let column = |rows: &[Vec<Option<String>>], tag: Uuid, column: usize| {
        let tag = format!("{:032X}", tag.as_u128());
        let row = rows.iter().find(|row| row[0].as_ref() == Some(&tag))?;
        row[column].as_ref()?.parse::<i64>().ok()
    };
    let spare = 100;
    let claims = ["new", "known", "held"].map(|key| FreeClaim { spare, ..claim(key, tag(1)) });
    let claims =
        [claims[0], FreeClaim { tag: tag(2), ..claims[1] }, FreeClaim { tag: tag(3), ..claims[2] }];

    for round in 0..2 {
        let rows = store.run(&store.statements.acquire_all(&claims)).await.rows;

        assert_eq!(rows.len(), 2, "in round {round}");
        for (key, tag) in [("new", tag(1)), ("known", tag(2))] {
            let row = store.read(key).await.row.unwrap();
            assert_eq!((row.tag, row.description.as_deref()), (Some(tag), Some("it's me")));
            assert_eq!(column(&rows, tag, 1), Some(row.token), "in round {round}");
            assert_eq!((column(&rows, tag, 2), row.spare), (Some(63), 63), "in round {round}");
        }
        assert_eq!(store.read("held").await.row.unwrap().tag, Some(tag(9)));
        if round == 1 {
            store.expire("known").await;
        }
        let leases = [("new", tag(1)), ("known", tag(2)), ("held", tag(3))];
        let released = store.run(&store.statements.release_all(&leases)).await.rows;
        let was_held = [tag(1), tag(2), tag(3)].map(|tag| column(&released, tag, 1));
        assert_eq!(was_held, [Some(1), Some(i64::from(round == 0)), None]);
        assert_eq!(store.read("new").await.row.unwrap().tag, None);
    }
}

#[tokio::test]
async fn a_row_that_loses_its_document_during_a_release_of_many_keys_keeps_its_lease() {
    let store = Store::start().await;
    for (key, number) in [("a", 1), ("b", 2)] {
        store.acquire(key, tag(number)).await.unwrap();
    }
    let simple = store.read("a").await.row.unwrap();
    let document = Row { tag: None, document: Some("{}".to_owned()), ..simple.clone() };
    let swap = |old: &Row, row: &Row| {
        let (key, generation, told) = ("a", 0, None);
        let (old_token, old_ends) = (old.token, old.ends);
        let replacement = Replacement { key, generation, old_token, old_ends, told, row };
        store.statements.swap(&replacement, None)
    };
    assert_eq!(store.run(&swap(&simple, &document)).await.changed, 1);
    let other = Direct::open(&store.server.url()).await;
    other.query("SET innodb_lock_wait_timeout = 1").await.unwrap();
    let blocking = Direct::open(&store.server.url()).await;
    blocking.query("BEGIN").await.unwrap();
    blocking.query("SELECT token FROM leasehold_key WHERE `key` = 'b' FOR UPDATE").await.unwrap();

    let call = store.statements.release_all(&[("a", tag(1)), ("b", tag(2))]);
    let release = store.run(&call);
    let waiter_leaves = async {
        until("the release waits for the second row", || async {
            let sql = "SELECT 1 FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'";
            !store.server.sql(sql).await.is_empty()
        })
        .await;
        // The row returns to the columns, unless the release has locked it.
        drop(other.query(&swap(&document, &simple).text()).await);
        blocking.query("COMMIT").await.unwrap();
    };
    let (reply, ()) = tokio::join!(release, waiter_leaves);

    let released = reply.rows.iter().filter(|row| row[0].is_some());
    assert_eq!(released.count(), 1, "the lease of the second key");
    assert!(store.read("a").await.row.unwrap().ends > 0, "a release that is not reported");
}

#[tokio::test]
async fn a_lease_acquires_again_and_an_expired_lease_gives_way() {
    let store = Store::start().await;
    let [first, second] = [1, 2].map(tag);
    let token = store.acquire("k", first).await.unwrap();

    let again = store.acquire("k", first).await.unwrap();
    assert!(again > token);

    store.expire("k").await;
    assert!(store.acquire("k", second).await.unwrap() > again);
    assert_eq!(store.release("k", first).await, None);
    assert_eq!(store.read("k").await.row.unwrap().tag, Some(second));

    store.expire("k").await;
    assert_eq!(store.release("k", second).await, Some(false));
}

#[tokio::test]
async fn a_known_key_is_acquired_only_if_it_has_a_row() {
    let store = Store::start().await;
    let known = store.statements.acquire(&claim("k", tag(1)));
    assert_eq!(granted(&store.run(&known).await), None);
    let token = store.acquire("k", tag(2)).await.unwrap();
    assert_eq!(granted(&store.run(&known).await), None);
    store.release("k", tag(2)).await.unwrap();

    assert!(granted(&store.run(&known).await).unwrap() > token);
    assert_eq!(store.read("k").await.row.unwrap().tag, Some(tag(1)));
}

#[tokio::test]
async fn a_grant_covers_its_spare_tokens_and_the_requested_token() {
    let store = Store::start().await;
    // The clock has stopped, so only the row orders the tokens.
    let stopped = statements(Some("1000"));
    let call = |is_known, spare, requested_token| {
        let claim = FreeClaim { spare, requested_token, ..claim("k", tag(1)) };
        if is_known { stopped.acquire(&claim) } else { stopped.acquire_any(&claim) }
    };
    let too_far = 2_000 + 2 * 1_000_000 + 1;
    let claims = [
        (call(false, 0, 0), 2_016, 0),
        (call(false, 9, 0), 2_048, 0),
        (call(true, 9, 0), 2_080, 0),
        (call(true, 9, 5_000), 5_027, 7),
        (call(true, 9, 5_032), 5_058, 3),
        (call(false, 0, 6_000), 6_016, 0),
        (call(false, 0, too_far), 6_048, 0),
        (call(true, 0, too_far), 6_080, 0),
        (call(true, 0, too_far - 2), 2_002_016, 0),
    ];

    for (call, expected, spare) in claims {
        assert_eq!(granted(&store.run(&call).await), Some(expected));
        let row = store.read("k").await.row.unwrap();
        assert_eq!((row.token, row.spare), (expected, spare));
        assert_eq!(RowStatements::spare_tokens(expected), spare);
    }
}

#[tokio::test]
async fn a_document_is_overwritten_only_once_it_has_expired() {
    let store = Store::start().await;
    store.acquire("k", tag(1)).await.unwrap();
    let old = store.read("k").await.row.unwrap();
    let document = Row {
        token: old.token + 1,
        ends: old.ends,
        document: Some("{\"v\":1,\"é\":\"?\"}".to_owned()),
        ..Row::default()
    };
    let replacement = Replacement {
        key: "k",
        generation: 0,
        old_token: old.token,
        old_ends: old.ends,
        told: None,
        row: &document.clone(),
    };
    let swap = store.statements.swap(&replacement, None);

    assert_eq!(store.run(&swap).await.changed, 1);
    assert_eq!(store.read("k").await.row, Some(document));
    assert_eq!(store.run(&swap).await.changed, 0);
    assert_eq!(store.acquire("k", tag(1)).await, None);
    assert_eq!(store.release("k", tag(1)).await, None);

    store.expire("k").await;
    store.acquire("k", tag(2)).await.unwrap();
    assert_eq!(store.read("k").await.row.unwrap().document, None);
}

#[tokio::test]
async fn a_renewal_excludes_a_swap_of_the_row_that_was_read_before() {
    let store = Store::start().await;
    store.acquire("k", tag(1)).await.unwrap();
    let old = store.read("k").await.row.unwrap();
    let new = Row { token: old.token + 1, ends: -1, ..Row::default() };
    let (old_token, old_ends) = (old.token, old.ends);
    let replacement =
        Replacement { key: "k", generation: 0, old_token, old_ends, told: None, row: &new };
    let swap = store.statements.swap(&replacement, None);

    assert_eq!(store.run(&store.statements.renew(&[held("k", tag(1))])).await.changed, 1);
    assert_eq!(store.run(&swap).await.changed, 0);
}

#[tokio::test]
async fn only_unchanged_leases_in_force_are_renewed() {
    let store = Store::start().await;
    for (key, number) in [("expired", 1), ("held", 2), ("other", 3), ("taken", 4)] {
        store.acquire(key, tag(number)).await.unwrap();
    }
    store.expire("expired").await;
    let before = store.read("held").await.row.unwrap();
    let mut leases = [("taken", 9), ("held", 2), ("other", 3), ("expired", 1), ("missing", 5)]
        .map(|(key, number)| held(key, tag(number)));
    leases[2].description = Some("new");

    let call = store.statements.renew(&leases);
    assert_eq!(store.run(&call).await.changed, 1);

    let after = store.read("held").await.row.unwrap();
    assert!(after.ends > before.ends + TTL / 2);
    assert_eq!(after.token, before.token);
    assert_eq!(store.read("expired").await.row.unwrap().ends, 1);
    assert!(store.read("other").await.row.unwrap().ends < before.ends + TTL / 2);
}

#[tokio::test]
async fn several_rows_are_swapped_together_or_not_at_all() {
    let store = Store::start().await;
    let stopped = statements(Some("0"));
    let keys = ["a", "b"];
    for (key, ends) in [("a", -5), ("b", -6)] {
        assert_eq!(store.run(&stopped.create(key, ends)).await.changed, 1);
    }
    let again = stopped.create("b", -7);
    assert_eq!(store.run(&again).await.changed, 0, "only missing rows are created");
    let created = store.read("a").await.row.unwrap();
    assert_eq!((created.ends, created.tag), (-5, None));
    let row = |token, ends| Row { token, ends, document: Some("d".to_owned()), ..Row::default() };
    let new = [row(10, 100), row(11, 200)];
    let swap = |store: &Store, old_ends: [i64; 2]| {
        let replacements = [0, 1].map(|n| Replacement {
            key: keys[n],
            generation: 0,
            old_token: 0,
            old_ends: old_ends[n],
            told: None,
            row: &new[n],
        });
        store.statements.swap_all(&replacements)
    };

    let error = store.try_run(&swap(&store, [-5, -9])).await.unwrap_err();
    assert_eq!(error.failure(), Failure::Changed, "{error}");
    assert_eq!(store.read("a").await.row.unwrap(), created, "nothing was written");

    store.run(&swap(&store, [-5, -6])).await;
    assert_eq!(store.read("a").await.row.unwrap(), new[0]);
    assert_eq!(store.read("b").await.row.unwrap(), new[1]);
}

#[tokio::test]
async fn a_read_returns_each_key() {
    let store = Store::start().await;
    store.acquire("a", tag(1)).await.unwrap();

    let rows = store.run(&store.statements.read(&["b", "a"])).await.rows;
    let [b, a] = [0, 1].map(|n| Reading::of(&rows[n]).unwrap());

    assert_eq!((a.key.as_str(), a.row.unwrap().tag), ("a", Some(tag(1))));
    assert_eq!((b.key.as_str(), b.row), ("b", None));
    assert!(b.now > 1_000_000_000_000_000 && b.min_token == 0);
}

#[tokio::test]
async fn keys_in_force_are_listed_in_order() {
    let store = Store::start().await;
    for key in ["a.1", "a.2", "a.3", "a.4", "b.1"] {
        store.acquire(key, tag(1)).await.unwrap();
    }
    store.release("a.2", tag(1)).await.unwrap();

    let list = async |after, count| {
        let call = store.statements.list("a.", after, "a.~", count);
        let rows = store.run(&call).await.rows;
        rows.into_iter().map(|mut row| row.remove(0).unwrap()).collect::<Vec<_>>()
    };

    assert_eq!(list("", 256).await, ["a.1", "a.3", "a.4"]);
    assert_eq!(list("a.1", 1).await, ["a.3"]);
}

#[tokio::test]
async fn a_purge_deletes_old_free_keys_and_later_tokens_are_above_the_minimum() {
    let store = Store::start().await;
    let mut old = 0;
    for key in ["a", "b", "held"] {
        old = store.acquire(key, tag(1)).await.unwrap();
    }
    for key in ["a", "b"] {
        store.release(key, tag(1)).await.unwrap();
    }
    let purge = async |store: &Store, after, age| {
        store.run(&store.statements.raise_min_token(age)).await;
        let page = store.run(&store.statements.purge_page(after)).await;
        let last = page.rows[0][0].clone().unwrap();
        (store.run(&store.statements.purge(after, &last)).await.changed, last)
    };

    assert_eq!(purge(&store, "", 60_000_000).await, (0, "held".to_owned()));
    assert_eq!(purge(&store, "a", -1_000_000).await, (1, "held".to_owned()));
    assert_eq!(purge(&store, "", -1_000_000).await, (1, "held".to_owned()));
    assert_eq!(store.read("a").await.row, None);
    assert!(store.read("held").await.row.is_some());
    let min_token = store.read("a").await.min_token;
    assert!(min_token >= old);

    // The clock is behind, so the minimum token decides.
    let behind = statements(Some("1000"));
    let any = store.run(&behind.acquire_any(&claim("a", tag(2)))).await;
    // Tokens without spare tokens are multiples of 32.
    let next = (min_token + 32) / 32 * 32;
    assert_eq!(granted(&any), Some(next));
    store.run(&behind.create("b", -5)).await;
    assert_eq!(store.read("b").await.row.unwrap().token, min_token);
    let known = store.run(&behind.acquire(&claim("b", tag(2)))).await;
    assert_eq!(granted(&known), Some(next));
}

#[tokio::test]
async fn only_a_member_grants_votes_and_a_joined_store_grants_larger_tokens() {
    let store = Store::start().await;
    store.server.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 1").await;
    let vote = |configuration| FreeClaim { membership: Some(configuration), ..claim("k", tag(1)) };
    let grants = async |store: &Store, configuration| {
        let vote = store.statements.acquire_any(&vote(configuration));
        // The first grant creates the row.
        let replies = [store.run(&vote).await, store.run(&vote).await];
        replies.map(|reply| granted(&reply).is_some())
    };
    let [identity, other] = [7, 8].map(Uuid::from_u128);
    let status = async |store: &Store| {
        store.run(&store.statements.give_identity(identity)).await;
        store.run(&store.statements.member_status()).await.rows.remove(0)
    };
    let join = async |store: &Store, id, configuration, min_token| {
        for call in store.statements.join(id, configuration, min_token) {
            store.run(&call).await;
        }
    };

    let first = status(&store).await;
    let hex = format!("{:032X}", 7);
    assert_eq!(first[..4], [Some("1".to_owned()), Some(hex), None, Some("0".to_owned())]);
    assert_eq!(grants(&store, "a, b, c").await, [false, false]);
    join(&store, other, "a, b, c", 1).await;
    assert_eq!(status(&store).await[2], None, "the identity is different");

    let far = 1 << 60;
    join(&store, identity, "a, b, c", far).await;
    join(&store, identity, "x, y, z", far + 1).await;
    let joined = status(&store).await;
    assert_eq!(joined[2..4], [Some("a, b, c".to_owned()), Some(far.to_string())]);
    assert_eq!(grants(&store, "x, y, z").await, [false, false]);
    assert_eq!(grants(&store, "a, b, c").await, [true, true]);
    assert_eq!(store.read("k").await.row.unwrap().token, far + 64);
}

#[tokio::test]
async fn an_administrator_reads_the_locks_in_a_view() {
    let store = Store::start().await;
    store.acquire("k", tag(1)).await.unwrap();
    store.acquire("free", tag(1)).await.unwrap();
    store.release("free", tag(1)).await.unwrap();

    let sql = "SELECT `key`, fingerprint, description, ends > NOW() FROM leasehold_locks";
    assert_eq!(store.server.sql(sql).await, "k\t0000beef\tit's me\t1");
}
