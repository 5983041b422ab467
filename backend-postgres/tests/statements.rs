//! The statements on the rows of the keys, on a real server.

use std::sync::Arc;
use std::time::Duration;

use leasehold_postgres::tokio_postgres::{self, Client, NoTls, SimpleQueryMessage};
use leasehold_sql_support::postgres::{RowStatements, migration};
use leasehold_sql_support::remote::{Driver, Execute, Pool, Settings};
use leasehold_sql_support::rows::Row;
use leasehold_sql_support::{Call, FreeClaim, HeldLease, Layout, Reading, Replacement};
use leasehold_testbed::Postgres;
use uuid::Uuid;

const TTL: i64 = 60_000_000;

/// The time limit of a statement.
const LIMIT: Duration = Duration::from_secs(10);

/// Settings that transactions of Leasehold have.
const SESSION: &str = "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off;
  SET enable_bitmapscan = off; SET jit = off";

type Columns = Vec<Option<String>>;

type Connector = <leasehold_postgres::Postgres as Driver>::Connector;

/// A server with the tables.
struct Store {
    server: Postgres,
    client: Client,
    pool: Pool<Connector>,
    statements: RowStatements,
}

impl Store {
    async fn start() -> Self {
        let server = Postgres::start().await;
        let client = connect(&server).await;
        client.batch_execute(&migration(&layout())).await.unwrap();
        let settings = &mut Settings::new(LIMIT);
        let servers = leasehold_postgres::Postgres::read_url(&server.url(), settings).unwrap();
        let connector = leasehold_postgres::Postgres::connector(servers, LIMIT);
        let pool = Pool::new(Arc::new(connector), 1, LIMIT);
        Self { server, client, pool, statements: statements(None) }
    }

    async fn run(&self, call: &Call) -> Vec<Columns> {
        self.pool.execute(call).await.unwrap().rows
    }

    /// Acquires the free key, and returns the token and the minimum token.
    async fn acquire(&self, key: &str, tag: Uuid) -> Option<(i64, i64)> {
        token(&self.run(&self.statements.acquire_any(&[claim(key, tag)])).await)
    }

    async fn release(&self, key: &str, tag: Uuid) -> Option<bool> {
        flag(&self.run(&self.statements.release(key, 0, tag)).await)
    }

    async fn read(&self, key: &str) -> Reading {
        let rows = self.run(&self.statements.read(&[key])).await;
        Reading::of(&rows[0]).unwrap()
    }

    async fn expire(&self, key: &str) {
        let sql = format!("UPDATE leasehold_key SET ends = 1 WHERE key = '{key}'");
        self.client.batch_execute(&sql).await.unwrap();
    }
}

fn statements(clock: Option<&str>) -> RowStatements {
    RowStatements::new(&layout(), clock)
}

/// A transaction ignores the search path, so its statements name the schema.
fn layout() -> Layout {
    Layout::default().in_schema("public").unwrap()
}

async fn connect(server: &Postgres) -> Client {
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(SESSION).await.unwrap();
    client
}

fn rows(messages: &[SimpleQueryMessage]) -> Vec<Columns> {
    let row = |message: &SimpleQueryMessage| match message {
        SimpleQueryMessage::Row(row) => {
            Some((0..row.len()).map(|column| row.get(column).map(str::to_owned)).collect())
        }
        _ => None,
    };
    messages.iter().filter_map(row).collect()
}

fn token(rows: &[Columns]) -> Option<(i64, i64)> {
    let number = |text: &Option<String>| text.as_ref().unwrap().parse().unwrap();
    rows.first().map(|row| (number(&row[1]), number(&row[3])))
}

fn flag(rows: &[Columns]) -> Option<bool> {
    rows.first().map(|row| row[1].as_deref() == Some("t"))
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

fn held(key: &str, generation: i64, tag: Uuid) -> HeldLease<'_> {
    HeldLease { key, generation, tag, ttl: 2 * TTL, description: Some("renewed") }
}

fn tag(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

#[tokio::test]
async fn one_lease_at_a_time_has_a_key() {
    let store = Store::start().await;
    let [first, second] = [1, 2].map(tag);

    let (token, _) = store.acquire("k", first).await.unwrap();
    let row = store.read("k").await.row.unwrap();
    assert_eq!((row.token, row.tag, row.document), (token, Some(first), None));
    assert_eq!(row.description.as_deref(), Some("it's me"));
    assert_eq!(store.acquire("k", second).await, None);
    assert_eq!(store.release("k", second).await, None);

    assert_eq!(store.release("k", first).await, Some(true));
    assert_eq!(store.release("k", first).await, None);
    let (later, _) = store.acquire("k", second).await.unwrap();
    assert!(later > token);
}

#[tokio::test]
async fn a_lease_acquires_again_and_an_expired_lease_gives_way() {
    let store = Store::start().await;
    let [first, second] = [1, 2].map(tag);
    let (token, _) = store.acquire("k", first).await.unwrap();

    let (again, _) = store.acquire("k", first).await.unwrap();
    assert!(again > token);

    store.expire("k").await;
    let (other, _) = store.acquire("k", second).await.unwrap();
    assert!(other > again);
    assert_eq!(store.release("k", first).await, None);

    store.expire("k").await;
    assert_eq!(store.release("k", second).await, Some(false));
}

#[tokio::test]
async fn a_known_key_is_acquired_only_where_its_row_is() {
    let store = Store::start().await;
    let acquire = async |generation| {
        let call = store.statements.acquire(&claim("k", tag(1)), generation);
        token(&store.run(&call).await)
    };
    assert_eq!(acquire(0).await, None);
    store.acquire("k", tag(2)).await.unwrap();
    assert_eq!(acquire(0).await, None);
    store.release("k", tag(2)).await.unwrap();

    assert_eq!(acquire(1).await, None);
    assert!(acquire(0).await.is_some());
}

#[tokio::test]
async fn many_keys_are_acquired_and_released_together() {
    let store = Store::start().await;
    store.acquire("held", tag(9)).await.unwrap();
    store.acquire("known", tag(8)).await.unwrap();
    assert_eq!(store.release("known", tag(8)).await, Some(true));
    let tags = |rows: Vec<Columns>| {
        let mut tags: Vec<_> = rows.iter().map(|row| row[0].clone().unwrap()).collect();
        tags.sort();
        tags
    };
    let new = [claim("new", tag(1)), claim("known", tag(2)), claim("held", tag(3))];
    let released = [("new", 0, tag(1)), ("known", 0, tag(2)), ("held", 0, tag(3))];
    let both = [tag(1), tag(2)].map(|tag| tag.to_string());

    assert_eq!(tags(store.run(&store.statements.acquire_any(&new)).await), both);
    assert_eq!(tags(store.run(&store.statements.release_all(&released)).await), both);

    let known = new.map(|claim| (claim, 0));
    let acquired = store.run(&store.statements.acquire_all(&known)).await;
    let row = store.read("new").await.row.unwrap();
    let token_of_new = |row: &&Columns| row[0] == Some(tag(1).to_string());
    let granted = acquired.iter().find(token_of_new).unwrap();
    assert_eq!(granted[1], Some(row.token.to_string()));
    assert_eq!(tags(acquired), both);
    assert_eq!((row.tag, row.description.as_deref()), (Some(tag(1)), Some("it's me")));
    assert_eq!(store.read("held").await.row.unwrap().tag, Some(tag(9)));
}

#[tokio::test]
async fn a_locked_row_does_not_delay_the_other_keys() {
    let store = Store::start().await;
    for key in ["free", "locked"] {
        store.acquire(key, tag(1)).await.unwrap();
        store.release(key, tag(1)).await.unwrap();
    }
    let sql = "BEGIN; SELECT FROM leasehold_key WHERE key = 'locked' FOR UPDATE";
    store.client.batch_execute(sql).await.unwrap();

    let claims = ["free", "locked"].map(|key| (claim(key, tag(2)), 0));
    let acquired = store.run(&store.statements.acquire_all(&claims)).await;
    let leases = ["free", "locked"].map(|key| (key, 0, tag(2)));
    let released = store.run(&store.statements.release_all(&leases)).await;

    assert_eq!((acquired.len(), released.len()), (1, 1));
}

#[tokio::test]
async fn a_grant_covers_its_spare_tokens_and_the_requested_token() {
    let store = Store::start().await;
    let ahead = statements(Some("1000"));
    let take = async |statements: &RowStatements, spare, requested_token| {
        let claim = FreeClaim { spare, requested_token, ..claim("k", tag(1)) };
        token(&store.run(&statements.acquire_any(&[claim])).await).unwrap().0
    };
    // The clock has stopped, so only the row orders the tokens.
    assert_eq!(take(&ahead, 0, 0).await, 2_000);
    assert_eq!(take(&ahead, 9, 0).await, 2_001);
    assert_eq!(store.read("k").await.row.unwrap().spare, 0, "no token is ahead of the clock");
    assert_eq!(take(&statements(Some("1003")), 9, 0).await, 2_006);
    assert_eq!(store.read("k").await.row.unwrap().spare, 4);
    assert_eq!(take(&statements(Some("2000")), 9, 0).await, 4_000);
    assert_eq!(store.read("k").await.row.unwrap().spare, 9);

    assert_eq!(take(&ahead, 0, 5_000).await, 5_000);
    let too_far = 2_000 + 2 * 1_000_000 + 1;
    assert_eq!(take(&ahead, 0, too_far).await, 5_001);
    assert_eq!(take(&ahead, 0, too_far - 1).await, too_far - 1);
}

#[tokio::test]
async fn a_document_is_overwritten_only_once_it_has_expired() {
    let store = Store::start().await;
    store.acquire("k", tag(1)).await.unwrap();
    let Reading { row, .. } = store.read("k").await;
    let old = row.unwrap();
    let document = Row {
        token: old.token + 1,
        tag: None,
        ends: old.ends,
        document: Some("{\"v\":1}".to_owned()),
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

    assert_eq!(store.run(&store.statements.swap(&replacement, None, &[])).await.len(), 1);
    assert_eq!(store.read("k").await.row, Some(document));
    assert_eq!(store.run(&store.statements.swap(&replacement, None, &[])).await.len(), 0);
    assert_eq!(store.acquire("k", tag(1)).await, None);
    assert_eq!(store.release("k", tag(1)).await, None);

    store.expire("k").await;
    store.acquire("k", tag(2)).await.unwrap();
    assert_eq!(store.read("k").await.row.unwrap().document, None);
}

#[tokio::test]
async fn a_forged_notification_replaces_no_row() {
    let store = Store::start().await;
    store.acquire("k", tag(1)).await.unwrap();
    let old = store.read("k").await;
    let row = old.row.unwrap();
    let document = Row { tag: None, document: Some("{\"v\":1}".to_owned()), ..row.clone() };
    let (old_token, old_ends) = (row.token, row.ends);
    let first =
        Replacement { key: "k", generation: 0, old_token, old_ends, told: None, row: &document };
    assert_eq!(store.run(&store.statements.swap(&first, None, &[])).await.len(), 1);
    let (token, ends) = (document.token, document.ends);
    let next = Row { token: token + 1, ends: -1, ..Row::default() };
    let swap = async |text: &str, at| {
        let told = Some((text, at));
        let swap = Replacement { old_token: token, old_ends: ends, told, row: &next, ..first };
        store.run(&store.statements.swap(&swap, None, &[])).await.len()
    };

    let genuine = document.document.as_deref().unwrap();
    assert_eq!(swap("{\"v\":1,\"queue\":[]}", old.now).await, 0);
    assert_eq!(swap(genuine, old.now + 60_000_000).await, 0);
    assert_eq!(swap(genuine, old.now - 60_000_000).await, 0);
    assert_eq!(swap(genuine, old.now).await, 1);
}

#[tokio::test]
async fn a_renewal_excludes_a_swap_of_the_row_that_was_read_before() {
    let store = Store::start().await;
    store.acquire("k", tag(1)).await.unwrap();
    let old = store.read("k").await.row.unwrap();
    let new = Row { token: old.token + 1, ends: -1, ..Row::default() };

    let renewed = store.run(&store.statements.renew(&[held("k", 0, tag(1))])).await;
    assert_eq!(renewed.len(), 1);
    let (old_token, old_ends) = (old.token, old.ends);
    let swap = Replacement { key: "k", generation: 0, old_token, old_ends, told: None, row: &new };
    assert_eq!(store.run(&store.statements.swap(&swap, None, &[])).await.len(), 0);
}

#[tokio::test]
async fn only_leases_in_force_are_renewed_and_locked_rows_are_skipped() {
    let store = Store::start().await;
    for (key, number) in [("expired", 1), ("held", 2), ("locked", 3), ("taken", 4)] {
        store.acquire(key, tag(number)).await.unwrap();
    }
    store.expire("expired").await;
    let before = store.read("held").await.row.unwrap();
    let other = connect(&store.server).await;
    let lock = "BEGIN; SELECT FROM leasehold_key WHERE key = 'locked' FOR UPDATE";
    other.batch_execute(lock).await.unwrap();

    let leases = [("taken", 9), ("locked", 3), ("held", 2), ("expired", 1), ("missing", 5)]
        .map(|(key, number)| held(key, 0, tag(number)));
    let renewed = store.run(&store.statements.renew(&leases)).await;

    assert_eq!(renewed, [[Some(tag(2).to_string())]]);
    let after = store.read("held").await.row.unwrap();
    assert!(after.ends > before.ends + TTL / 2);
    assert_eq!((after.token, after.description.as_deref()), (before.token, Some("renewed")));
    assert_eq!(store.read("expired").await.row.unwrap().ends, 1);
}

#[tokio::test]
async fn several_rows_are_swapped_together_or_not_at_all() {
    let store = Store::start().await;
    let stopped = statements(Some("0"));
    let keys = ["a", "b"];
    assert_eq!(store.run(&stopped.create(&keys, &[-5, -6])).await.len(), 2);
    let again = store.run(&stopped.create(&["b", "c"], &[-7, -8])).await;
    assert_eq!(again, [[Some("c".to_owned())]], "rows are created only for missing keys");
    let created = store.read("a").await.row.unwrap();
    assert_eq!((created.ends, created.tag), (-5, None));
    let row = |token, ends| Row { token, ends, document: Some("d".to_owned()), ..Row::default() };
    let new = [row(10, 100), row(11, 200)];
    let swap = async |rows: &[Row; 2], old_ends: [i64; 2], old_tokens: [i64; 2]| {
        let replacements = [0, 1].map(|n| Replacement {
            key: keys[n],
            generation: 0,
            old_token: old_tokens[n],
            old_ends: old_ends[n],
            told: None,
            row: &rows[n],
        });
        store.run(&store.statements.swap_all(&replacements, &[])).await.len()
    };

    assert_eq!(swap(&new, [-5, -9], [0, 0]).await, 0);
    assert_eq!(store.read("a").await.row.unwrap(), created, "nothing was written");
    assert_eq!(swap(&new, [-5, -6], [0, 0]).await, 2);
    assert_eq!(store.read("a").await.row.unwrap(), new[0]);
    assert_eq!(store.read("b").await.row.unwrap(), new[1]);
    assert_eq!(swap(&new, [100, 200], [10, 12]).await, 0);
}

#[tokio::test]
async fn a_read_returns_each_key_and_its_newest_row() {
    let store = Store::start().await;
    store.acquire("a", tag(1)).await.unwrap();
    store.run(&store.statements.move_key("a", 0)).await;

    let rows = store.run(&store.statements.read(&["a", "b"])).await;
    let [a, b] = [0, 1].map(|n| Reading::of(&rows[n]).unwrap());

    assert_eq!((a.key.as_str(), a.generation, a.row.unwrap().tag), ("a", 1, Some(tag(1))));
    assert_eq!((b.key.as_str(), b.row), ("b", None));
    assert!(b.now > 1_000_000_000_000_000 && b.min_token == 0);
}

#[tokio::test]
async fn a_moved_key_is_changed_only_in_its_new_generation() {
    let store = Store::start().await;
    store.acquire("k", tag(1)).await.unwrap();
    let before = store.read("k").await.row.unwrap();

    let statements = &store.statements;
    let moved = store.run(&statements.move_key("k", 0)).await;
    assert_eq!(moved, [[Some("1".to_owned())]]);
    assert!(store.run(&statements.move_key("k", 0)).await.is_empty(), "a key moves once");
    assert_eq!(store.read("k").await.row.unwrap(), before);

    // The old generation.
    let swap = Replacement {
        key: "k",
        generation: 0,
        old_token: before.token,
        old_ends: 0,
        told: None,
        row: &Row::default(),
    };
    assert_eq!(store.run(&statements.swap(&swap, None, &[])).await.len(), 0);
    assert_eq!(store.release("k", tag(1)).await, None);
    assert!(store.run(&statements.renew(&[held("k", 0, tag(1))])).await.is_empty());

    // The new generation.
    assert_eq!(store.run(&statements.renew(&[held("k", 1, tag(1))])).await.len(), 1);
    let released = store.run(&statements.release("k", 1, tag(1))).await;
    assert_eq!(flag(&released), Some(true));
    assert_eq!(store.acquire("k", tag(2)).await, None, "no second row is created");
    let known = async |generation| {
        store.run(&statements.acquire(&claim("k", tag(2)), generation)).await.len()
    };
    assert_eq!((known(0).await, known(1).await), (0, 1));

    assert_eq!(store.run(&statements.move_key("k", 1)).await.len(), 1);
    let count = store.server.sql("SELECT count(*), bool_or(moved) FROM leasehold_key").await;
    assert_eq!(count, "2|t", "the mark and the newest row remain");
}

#[tokio::test]
async fn keys_in_force_are_listed_in_order() {
    let store = Store::start().await;
    for key in ["a.1", "a.2", "a.3", "a.4", "b.1"] {
        store.acquire(key, tag(1)).await.unwrap();
    }
    store.release("a.2", tag(1)).await.unwrap();
    store.run(&store.statements.move_key("a.3", 0)).await;

    let list = async |after, count| {
        let rows = store.run(&store.statements.list("a.", after, "a.~", count)).await;
        rows.into_iter().map(|mut row| row.remove(0).unwrap()).collect::<Vec<_>>()
    };

    assert_eq!(list("", 256).await, ["a.1", "a.3", "a.4"]);
    assert_eq!(list("a.1", 1).await, ["a.3"]);
}

#[tokio::test]
async fn a_purge_deletes_old_free_keys_and_later_tokens_stay_above_them() {
    let store = Store::start().await;
    for key in ["free", "held", "moved"] {
        store.acquire(key, tag(1)).await.unwrap();
    }
    let (old, _) = store.acquire("free", tag(1)).await.unwrap();
    store.release("free", tag(1)).await.unwrap();
    store.run(&store.statements.move_key("moved", 0)).await;
    store.run(&store.statements.release("moved", 1, tag(1))).await;
    let purge = async |after, age| {
        let rows = store.run(&store.statements.purge(after, age)).await;
        rows.last().unwrap().clone()
    };
    let reply = |last: &str, count: &str| vec![Some(last.to_owned()), Some(count.to_owned())];

    assert_eq!(purge("", 60_000_000).await, reply("moved", "0"), "the keys are not old");
    assert_eq!(purge("free", -1_000_000).await, reply("moved", "2"));
    assert_eq!(purge("", -1_000_000).await, reply("held", "1"));
    assert_eq!(store.read("free").await.row, None);
    assert!(store.read("held").await.row.is_some());
    let min_token = store.read("free").await.min_token;
    assert!(min_token >= old);

    // The clock is behind, so the caller must raise the token.
    let behind = statements(Some("1000"));
    let (token, floor) =
        token(&store.run(&behind.acquire_any(&[claim("free", tag(2))])).await).unwrap();
    assert_eq!((token, floor), (2_000, min_token));
    let raise = async |tag, token| {
        let call = behind.raise(&held("free", 0, tag), token, min_token);
        store.run(&call).await
    };
    assert!(raise(tag(3), token).await.is_empty());
    assert!(raise(tag(2), token + 1).await.is_empty());
    assert_eq!(raise(tag(2), token).await[0][1], Some((min_token + 1).to_string()));
    let again = store.run(&behind.acquire(&claim("free", tag(2)), 0)).await;
    assert_eq!(again[0][1], Some((min_token + 2).to_string()));
}

#[tokio::test]
async fn a_purge_skips_a_row_that_another_transaction_has_locked() {
    let store = Store::start().await;
    store.acquire("k", tag(1)).await.unwrap();
    store.release("k", tag(1)).await.unwrap();
    let other = connect(&store.server).await;
    other.batch_execute("BEGIN; SELECT FROM leasehold_key FOR UPDATE").await.unwrap();

    let rows = store.run(&store.statements.purge("", -1_000_000)).await;

    assert_eq!(rows.last().unwrap()[1].as_deref(), Some("0"));
}

#[tokio::test]
async fn only_a_member_grants_votes_and_a_joined_store_grants_larger_tokens() {
    let store = Store::start().await;
    let statements = &store.statements;
    let vote = |configuration| FreeClaim { membership: Some(configuration), ..claim("k", tag(1)) };
    let granted = async |configuration| {
        let any = store.run(&statements.acquire_any(&[vote(configuration)])).await.len();
        (any, store.run(&statements.acquire(&vote(configuration), 0)).await.len())
    };
    let [identity, other] = [7, 8].map(Uuid::from_u128);
    let status =
        async || store.run(&statements.member_status(identity)).await.last().unwrap().clone();
    let join = async |store_id, configuration, min_token| {
        store.run(&statements.join(store_id, configuration, min_token)).await;
    };

    let first = status().await;
    assert_eq!(first[..3], [Some(identity.to_string()), None, Some("0".to_owned())]);
    assert_eq!(granted("a, b, c").await, (0, 0));
    join(other, "a, b, c", 1).await;
    assert_eq!(status().await[1], None, "the identity is different");

    let far = 1 << 60;
    join(identity, "a, b, c", far).await;
    join(identity, "x, y, z", far + 1).await;
    assert_eq!(status().await[1..3], [Some("a, b, c".to_owned()), Some(far.to_string())]);
    assert_eq!(granted("x, y, z").await, (0, 0));
    assert_eq!(granted("a, b, c").await, (1, 1));
    assert_eq!(store.read("k").await.min_token, far);
}

#[tokio::test]
async fn an_administrator_reads_the_locks_in_a_view() {
    let store = Store::start().await;
    store.acquire("k", tag(1)).await.unwrap();
    store.acquire("free", tag(1)).await.unwrap();
    store.release("free", tag(1)).await.unwrap();

    let sql = "SELECT key, fingerprint, description, ends > now() FROM leasehold_locks";
    assert_eq!(store.server.sql(sql).await, "k|0000beef|it's me|t");
}

/// The number of pages that a statement visits.
async fn pages(store: &Store, call: &Call) -> u64 {
    let explain = format!("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {}", call.text());
    let rows = rows(&store.client.simple_query(&explain).await.unwrap());
    let plan = rows[0][0].clone().unwrap();
    let total = plan.split("\"Shared Hit Blocks\": ").nth(1).unwrap();
    total.split(|digit: char| !digit.is_ascii_digit()).next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn an_old_snapshot_does_not_make_statements_slower_without_bound() {
    let store = Store::start().await;
    let statements = &store.statements;
    store.acquire("k", tag(1)).await.unwrap();
    let old = connect(&store.server).await;
    let snapshot = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM leasehold_key";
    old.batch_execute(snapshot).await.unwrap();

    let lock = async |key: &str, generation, times| {
        let acquire = statements.acquire(&claim(key, tag(1)), generation).text();
        let release = statements.release(key, generation, tag(1)).text();
        store.client.batch_execute(&format!("{acquire}; {release};").repeat(times)).await.unwrap();
    };
    let generations = 16;
    for generation in 0..generations {
        lock("k", generation, 256).await;
        store.run(&statements.move_key("k", generation)).await;
    }

    let acquire = pages(&store, &statements.acquire(&claim("k", tag(1)), generations)).await;
    let read = pages(&store, &statements.read(&["k"])).await;
    let release = pages(&store, &statements.release("k", generations, tag(1))).await;
    let last = |text: String| text.rsplit(';').next().unwrap().to_owned();
    let purge = pages(&store, &statements.purge("", 60_000_000).edited(last)).await;
    let bound = 64;
    // As a control, a key that never moves.
    store.acquire("stays", tag(1)).await.unwrap();
    lock("stays", 0, 4_096).await;
    let control = pages(&store, &statements.acquire(&claim("stays", tag(1)), 0)).await;
    assert!(control > 2 * bound, "{control}");
    let all = [acquire, read, release, purge];
    assert!(all.iter().all(|pages| *pages < bound), "{all:?}");
    let held = store.read("k").await;
    assert_eq!(held.generation, generations);
    old.batch_execute("COMMIT").await.unwrap();
}
