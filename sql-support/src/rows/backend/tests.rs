//! Counts the statements that two clients send to one database.

use std::sync::Mutex;
use std::time::Duration;

use leasehold_core::backend::{Claim, Patience, unpoisoned};
use tokio::time::{Instant, sleep};

use super::*;
use crate::request::micros;
use crate::rows::row::Row;

const TTL: Duration = Duration::from_secs(60);

/// A table in memory, which records its statements.
#[derive(Debug)]
struct Table {
    started: Instant,
    rows: Mutex<HashMap<LockKey, Row>>,
    statements: Mutex<Vec<&'static str>>,
    listeners: Mutex<Vec<News>>,
}

/// A client of the table.
#[derive(Debug)]
struct Recorded {
    table: Arc<Table>,
    news: News,
}

impl Table {
    fn new() -> Arc<Self> {
        let (started, rows) = (Instant::now(), Mutex::default());
        let (statements, listeners) = (Mutex::default(), Mutex::default());
        Arc::new(Self { started, rows, statements, listeners })
    }

    /// Creates a client, which is notified of other clients' changes unless `news` is local.
    fn client(self: &Arc<Self>, news: News) -> Backend<Recorded> {
        unpoisoned(&self.listeners).push(news.clone());
        Backend::new(Recorded { table: Arc::clone(self), news })
    }

    /// Returns the statements since the last call.
    fn statements(&self) -> Vec<&'static str> {
        std::mem::take(&mut *unpoisoned(&self.statements))
    }

    fn record(&self, statement: &'static str) {
        unpoisoned(&self.statements).push(statement);
    }

    fn state(&self, key: &LockKey) -> (State, Clock) {
        let now = micros(self.started.elapsed());
        let clock = Clock { now, wall: now };
        let row = unpoisoned(&self.rows).get(key).cloned();
        (State::new(key.clone(), row, 0, clock), clock)
    }
}

#[async_trait]
impl Database for Recorded {
    type Config = ();

    const NAME: &str = "recorded";

    fn read_url(_: &str) -> Result<(), Error> {
        Ok(())
    }

    async fn open((): ()) -> Result<Self, Error> {
        Ok(Self { table: Table::new(), news: News::new() })
    }

    fn fencing(&self) -> Fencing {
        Fencing::Strict
    }

    fn news(&self) -> &News {
        &self.news
    }

    async fn acquire_free(&self, claim: &Acquire) -> Result<Option<Granted>, Error> {
        self.table.record("acquire");
        let (state, clock) = self.table.state(&claim.lease.key);
        let (row, tag) = (state.row().cloned().unwrap_or_default(), claim.lease.tag);
        if row.ends > clock.now && row.tag != Some(tag.id) {
            return Ok(None);
        }
        let token = row.token + 1;
        let row = Row {
            token,
            tag: Some(tag.id),
            ends: clock.now + micros(claim.ttl),
            fingerprint: Some(tag.fingerprint.to_string()),
            ..Row::default()
        };
        unpoisoned(&self.table.rows).insert(claim.lease.key.clone(), row);
        Ok(Some(Granted { token: token.try_into().unwrap(), spare: 0 }))
    }

    async fn release_simple(&self, lease: &Named) -> Result<Option<bool>, Error> {
        self.table.record("release");
        let mut rows = unpoisoned(&self.table.rows);
        let row = rows.get_mut(&lease.key).filter(|row| row.tag == Some(lease.tag.id));
        Ok(row.map(|row| {
            (row.tag, row.ends) = (None, -row.ends);
            true
        }))
    }

    async fn renew_simple(&self, leases: &[Renew]) -> Vec<Result<bool, Error>> {
        leases.iter().map(|_| Ok(false)).collect()
    }

    async fn change<T, F>(&self, change: Change, mut step: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnMut(&mut [State], Clock) -> Result<T, Error> + Send + 'static,
    {
        self.table.record("read");
        let (state, clock) = self.table.state(&change.keys[0]);
        let mut states = [state];
        let done = step(&mut states, clock)?;
        let [state] = states;
        if let Some(row) = state.written() {
            self.table.record("swap");
            unpoisoned(&self.table.rows).insert(state.key().clone(), row);
            let listeners = unpoisoned(&self.table.listeners).clone();
            for news in listeners.iter().filter(|news| news.hears_others()) {
                state.messages().iter().for_each(|message| news.heard(message));
            }
        }
        Ok(done)
    }

    async fn read(&self, key: &LockKey) -> Result<(State, Clock), Error> {
        self.table.record("read");
        Ok(self.table.state(key))
    }

    async fn list(&self, _: List) -> Result<Vec<String>, Error> {
        Ok(Vec::new())
    }

    async fn member_status(
        &self,
        _: StoreId,
        _: Option<JoinRequest>,
    ) -> Result<MemberStatus, Error> {
        Err(Failure::Missing.error("the table has no members"))
    }

    async fn close(&self) {}
}

fn claim() -> Claim {
    let key = LockKey::new("job").unwrap();
    Claim::new(Lease::new(&key, TTL)).with_patience(Patience::Waits)
}

async fn is_granted(backend: &Backend<Recorded>, claim: &Claim) -> bool {
    matches!(backend.acquire(claim).await.unwrap(), Attempt::Granted(_))
}

/// Queues a new claim, and returns it with its watch.
async fn queue(backend: &Backend<Recorded>) -> (Claim, KeyWatch) {
    let claim = claim();
    let watch = backend.watch(Subject::Claim(&claim));
    let Attempt::Held(contention) = backend.acquire(&claim).await.unwrap() else { panic!() };
    assert_eq!(contention.woken_by(), Some(WokenBy::Claim));
    (claim, watch)
}

#[tokio::test(start_paused = true)]
async fn a_transfer_needs_three_statements_and_a_lease_without_waiters_two() {
    let table = Table::new();
    let [one, other] = [(); 2].map(|()| table.client(News::new()));
    let held = claim();
    assert!(is_granted(&one, &held).await);
    one.release(held.lease()).await.unwrap();
    assert_eq!(table.statements(), ["acquire", "release"]);

    // The first holder that had to wait expects that others wait, too.
    let (mut holders, mut held) = ([&one, &other], claim());
    assert!(is_granted(&one, &held).await);
    for round in 0..3 {
        let (next, mut watch) = queue(holders[1]).await;
        table.statements();
        holders[0].release(held.lease()).await.unwrap();
        watch.changed().await;
        assert!(is_granted(holders[1], &next).await);
        let in_vain: &[_] = if round == 0 { &["release"] } else { &[] };
        assert_eq!(table.statements(), [in_vain, &["read", "swap", "acquire"]].concat());
        held = next;
        holders.reverse();
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_with_others_behind_it_is_granted_without_an_attempt_in_vain() {
    let table = Table::new();
    let [one, other] = [(); 2].map(|()| table.client(News::new()));
    let held = claim();
    assert!(is_granted(&one, &held).await);
    let (next, mut watch) = queue(&other).await;
    let (_last, _watch) = queue(&one).await;
    one.release(held.lease()).await.unwrap();
    watch.changed().await;
    table.statements();

    assert!(is_granted(&other, &next).await);
    assert_eq!(table.statements(), ["read", "swap"]);
}

#[tokio::test(start_paused = true)]
async fn a_released_key_belongs_to_the_first_waiter_until_its_reservation_ends() {
    let table = Table::new();
    let [one, other] = [(); 2].map(|()| table.client(News::new()));
    let held = claim();
    assert!(is_granted(&one, &held).await);
    let (dead, _watch) = queue(&other).await;
    let (next, mut watch) = queue(&other).await;
    let (_later, mut later_watch) = queue(&other).await;

    one.release(held.lease()).await.unwrap();

    let released = Instant::now();
    // These watches also report changes of the key.
    watch.changed().await;
    later_watch.changed().await;
    let inspection = one.inspect(held.key()).await.unwrap();
    assert_eq!(inspection.holders()[0].fingerprint(), Tag::of(&dead.id()).fingerprint);
    sleep(Patience::RESERVATION - Duration::from_millis(1)).await;
    assert!(!is_granted(&one, &claim()).await);
    watch.changed().await;
    assert!(is_granted(&other, &next).await);
    assert!(released.elapsed() <= Duration::from_millis(300));
    later_watch.changed().await;
}

#[tokio::test(start_paused = true)]
async fn a_queued_claim_polls_with_one_read_until_its_caller_leaves() {
    let table = Table::new();
    let [one, other] = [(); 2].map(|()| table.client(News::local()));
    let held = claim();
    assert!(is_granted(&one, &held).await);
    let polls = async |waiting: Duration| {
        table.statements();
        sleep(waiting).await;
        let statements = table.statements();
        assert!(statements.iter().all(|statement| *statement == "read"), "{statements:?}");
        statements.len()
    };
    assert_eq!(polls(TTL / 2).await, 0);

    let (next, mut watch) = queue(&other).await;
    assert_eq!(polls(Duration::from_secs(1)).await, 203);
    assert_eq!(polls(Duration::from_secs(1)).await, 28);
    one.release(held.lease()).await.unwrap();
    watch.changed().await;
    assert!(is_granted(&other, &next).await);
    assert_eq!(polls(Duration::from_millis(200)).await, 0);

    let (_gone, watch) = queue(&one).await;
    drop(watch);
    assert_eq!(polls(TTL / 2).await, 0);
}
