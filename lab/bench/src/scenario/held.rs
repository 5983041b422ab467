//! Many held leases: the cost of holding them, and whether any is lost.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use leasehold_core::backend::LockBackend;
use leasehold_core::{Error, LockClient, LockGuard, LockOptions};
use leasehold_fred::FredBackend;
use leasehold_redis::RedisBackend;
use leasehold_testbed::{Redis, patiently};
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::args::Args;
use crate::child::{Child, PlannedScenario, Word, Workers};
use crate::contest::{Contest, Contestant, Turn};
use crate::database::{Database, Server};
use crate::lockers::native_redis;
use crate::machine;
use crate::measure::Measure;
use crate::outcome::Outcome;
use crate::round::Round;
use crate::store::Store;
use crate::target::{Bound, Target};

const CPU: Measure = Measure::less("CPU of the client", "% of a core");
const CPU_OF_SERVER: Measure = Measure::less("CPU of the server", "% of a core");
const MEMORY: Measure = Measure::less("memory per lease", "bytes");
const LOST: Measure = Measure::less("lost", "");
const TASKS: Measure = Measure::less("tasks", "");
const ACQUIRED: Measure = Measure::more("acquired per second", "/s");
const RENEWED: Measure = Measure::less("rows changed per second", "");

/// How many, and how long.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
struct Size {
    leases: usize,
    ttl: Duration,
    hold: Duration,
}

const FULL: Size =
    Size { leases: 100_000, ttl: Duration::from_secs(30), hold: Duration::from_secs(60) };

const MILLION: Size = Size { leases: 1_000_000, ..FULL };

const QUICK: Size =
    Size { leases: 500, ttl: Duration::from_secs(12), hold: Duration::from_millis(4_500) };

const FULL_ON_DATABASES: Size = Size { leases: 10_000, ..FULL };

/// Long enough for dropped leases to be given back.
const UNTIL_QUIET: Duration = Duration::from_millis(200);

/// So many tasks acquire the leases. They have ended when the cost of holding is measured.
const ACQUIRERS: usize = 128;

/// A keeper of leases.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
enum KeeperKind {
    Redis,
    Fred,
    AsyncRedisLock,
    Sql(Database),
}

impl KeeperKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Redis => "leasehold, redis",
            Self::Fred => "leasehold, fred",
            Self::AsyncRedisLock => "async-redis-lock",
            Self::Sql(Database::Postgres) => "leasehold, postgres",
            Self::Sql(Database::MariaDb) => "leasehold, mariadb",
            Self::Sql(Database::Sqlite) => "leasehold, sqlite",
        }
    }
}

pub(super) async fn run(args: &Args) -> Outcome {
    let kinds = [KeeperKind::Redis, KeeperKind::Fred, KeeperKind::AsyncRedisLock];
    let mut contest = on_redis("redis-held", &kinds, args.scale(FULL, QUICK), args).await;
    let names = [KeeperKind::Redis, KeeperKind::Fred].map(KeeperKind::name);
    let targets = names.map(|name| {
        let at_most = |measure, bound| Target::new(name, measure, Bound::AtMost(bound));
        [at_most(LOST, 0.0), at_most(CPU, 1.4), at_most(MEMORY, 700.0), at_most(TASKS, 1.0)]
    });
    contest.targets = targets.into_iter().flatten().collect();
    contest.run(args).await
}

/// Ten times as many leases.
pub(super) async fn run_million(args: &Args) -> Outcome {
    let size = args.scale(MILLION, QUICK);
    let mut contest = on_redis("redis-held-million", &[KeeperKind::Redis], size, args).await;
    contest.targets = vec![Target::new(KeeperKind::Redis.name(), LOST, Bound::AtMost(0.0))];
    contest.run(args).await
}

async fn on_redis(name: &'static str, all: &[KeeperKind], size: Size, args: &Args) -> Contest {
    let redis = Arc::new(Redis::start().await);
    let Size { leases, ttl, hold } = size;
    let title = format!("Redis, {leases} leases with a TTL of {ttl:?}, held for {hold:?}");
    let mut contest = Contest::new(name, title);
    contest.warms_up = false;
    for &kind in all {
        let (store, workers) = (Place::Redis(Store::new(&redis)), Workers::of(args));
        contest.add(args, Holders { kind, store, workers, size });
    }
    contest
}

/// The same on databases.
pub(super) async fn run_on_databases(args: &Args) -> Outcome {
    let size = args.scale(FULL_ON_DATABASES, QUICK);
    let Size { leases, ttl, hold } = size;
    let title = format!("Databases, {leases} leases with a TTL of {ttl:?}, held for {hold:?}");
    let mut contest = Contest::new("sql-held", title);
    contest.warms_up = false;
    for database in [Database::Postgres, Database::MariaDb, Database::Sqlite] {
        let (store, workers) = (Place::Database(database, None), Workers::of(args));
        let kind = KeeperKind::Sql(database);
        contest.add(args, Holders { kind, store, workers, size });
        contest.targets.push(Target::new(kind.name(), CPU_OF_SERVER, Bound::AtMost(1.0)));
    }
    contest.run(args).await
}

/// Where leases are held.
enum Place {
    Redis(Store),
    /// A server of its own in each round.
    Database(Database, Option<Server>),
}

impl Place {
    /// The URL of a server without leases.
    async fn fresh(&mut self) -> String {
        match self {
            Self::Redis(store) => {
                store.clear().await;
                store.url()
            }
            Self::Database(database, server) => server.insert(Server::start(*database).await).url(),
        }
    }

    async fn cpu_time(&self) -> Duration {
        match self {
            Self::Redis(store) => store.cpu_time().await,
            Self::Database(_, server) => server.as_ref().map(Server::cpu_time).unwrap_or_default(),
        }
    }

    async fn rows_changed(&self) -> Option<f64> {
        match self {
            Self::Database(_, Some(server)) => server.rows_changed().await,
            _ => None,
        }
    }
}

/// A process that holds them.
struct Holders {
    kind: KeeperKind,
    store: Place,
    workers: Workers,
    size: Size,
}

#[async_trait]
impl Contestant for Holders {
    fn name(&self) -> String {
        self.kind.name().to_owned()
    }

    async fn round(&mut self, turn: Turn) -> Round {
        let Self { kind, size, .. } = *self;
        let plan = Plan {
            kind,
            url: self.store.fresh().await,
            prefix: format!("{}/held", turn.prefix()),
            size,
        };
        let mut child = Child::start(&self.workers, PlannedScenario::Held, &plan).await;
        // It is ready when it holds all of them.
        let (cpu, rows) = (self.store.cpu_time().await, self.store.rows_changed().await);
        child.go().await;
        let report: Report = child.report().await;
        let cpu_of_server = self.store.cpu_time().await.saturating_sub(cpu);
        let rows = self.store.rows_changed().await.zip(rows).map(|(now, then)| now - then);

        let leases = size.leases as f64;
        let percent = |time: Duration| 100.0 * time.as_secs_f64() / report.held.as_secs_f64();
        Round::new()
            .with(CPU, percent(report.cpu))
            .with(CPU_OF_SERVER, percent(cpu_of_server))
            .with(MEMORY, report.memory.map(|memory| memory as f64 / leases))
            .with(LOST, report.lost as f64)
            .with(TASKS, report.tasks as f64)
            .with(ACQUIRED, leases / report.acquiring.as_secs_f64())
            .with(RENEWED, rows.map(|rows| rows / report.held.as_secs_f64()))
    }
}

/// Asked of the process.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Plan {
    kind: KeeperKind,
    url: String,
    prefix: String,
    size: Size,
}

/// The report of a process.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Report {
    acquiring: Duration,
    memory: Option<u64>,
    tasks: usize,
    held: Duration,
    cpu: Duration,
    lost: usize,
}

impl Plan {
    pub(crate) async fn run(self, word: Word) -> Report {
        let (url, ttl) = (patiently(&self.url), self.size.ttl);
        match self.kind {
            KeeperKind::Redis => {
                let backend = connected(RedisBackend::connect(&url)).await;
                self.hold(client(backend, ttl), word).await
            }
            KeeperKind::Fred => {
                let backend = connected(FredBackend::connect(&url)).await;
                self.hold(client(backend, ttl), word).await
            }
            KeeperKind::Sql(_) => {
                let backend = connected(leasehold::backend::connect(&url)).await;
                self.hold(client(backend, ttl), word).await
            }
            KeeperKind::AsyncRedisLock => {
                let locker = async_redis_lock::Locker::from_client(native_redis(&self.url)).await;
                let options = async_redis_lock::Options::new().timeout(None).ttl(ttl);
                let options = options.extend(ttl / 3);
                self.hold((locker.expect("the server is up"), options), word).await
            }
        }
    }

    /// Boxed, like [`connected`].
    fn hold<K: Keeper>(self, keeper: K, word: Word) -> BoxFuture<'static, Report> {
        Box::pin(self.hold_with(keeper, word))
    }

    async fn hold_with<K: Keeper>(self, keeper: K, word: Word) -> Report {
        // The work of the first leases alone, such as loading scripts and starting tasks. One lease stays held, and its
        // cost is counted with the others.
        let first = acquire(&keeper, &format!("{}/first", self.prefix), ACQUIRERS).await;
        let _one = first.into_iter().flatten().next();
        sleep(UNTIL_QUIET).await;

        let (memory, tasks) = (machine::memory(), tasks_alive());
        let began = Instant::now();
        let kept = acquire(&keeper, &self.prefix, self.size.leases).await;
        let acquiring = began.elapsed();
        let memory = machine::memory().zip(memory).map(|(now, before)| now.saturating_sub(before));
        word.wait().await;

        let (began, cpu) = (Instant::now(), machine::cpu_time());
        sleep(self.size.hold).await;
        let (held, cpu) = (began.elapsed(), machine::cpu_time().saturating_sub(cpu));
        let lost = kept.iter().flatten().filter(|kept| !K::is_held(kept)).count();
        let tasks = tasks_alive().saturating_sub(tasks) + 1;
        Report { acquiring, memory, tasks, held, cpu, lost }
    }
}

/// Boxed, since the compiler cannot tell of all these types together that they may be sent to other threads.
fn connected<'a, B: LockBackend>(
    connecting: impl Future<Output = Result<B, Error>> + Send + 'a,
) -> BoxFuture<'a, B> {
    Box::pin(async { connecting.await.expect("the server is up") })
}

fn tasks_alive() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

fn client<B: LockBackend>(backend: B, ttl: Duration) -> LockClient<B> {
    let options = LockOptions::new().ttl(ttl);
    LockClient::builder(backend).options(options).build().expect("such leases are possible")
}

/// A client that holds leases and renews them by itself.
trait Keeper: Clone + Send + Sync + 'static {
    type Kept: Send + 'static;

    fn acquire(&self, key: String) -> impl Future<Output = Self::Kept> + Send;

    fn is_held(kept: &Self::Kept) -> bool;
}

impl<B: LockBackend> Keeper for LockClient<B> {
    type Kept = LockGuard;

    async fn acquire(&self, key: String) -> LockGuard {
        let mutex = self.mutex(key).expect("it is a good key");
        mutex.lock().await.expect("the server is up")
    }

    fn is_held(kept: &LockGuard) -> bool {
        kept.is_held()
    }
}

impl Keeper for (async_redis_lock::Locker, async_redis_lock::Options) {
    type Kept = async_redis_lock::Lock;

    async fn acquire(&self, key: String) -> async_redis_lock::Lock {
        let (locker, options) = self;
        locker.acquire_with_options(options, key).await.expect("the server is up")
    }

    fn is_held(kept: &async_redis_lock::Lock) -> bool {
        !kept.is_lost()
    }
}

/// Returns the leases by the task that acquired them, so that nothing moves afterwards.
async fn acquire<K: Keeper>(keeper: &K, prefix: &str, count: usize) -> Vec<Vec<K::Kept>> {
    let mut tasks = JoinSet::new();
    for first in 0..ACQUIRERS {
        let (keeper, prefix) = (keeper.clone(), prefix.to_owned());
        tasks.spawn(async move {
            let mut kept = Vec::with_capacity(count.div_ceil(ACQUIRERS));
            for number in (first..count).step_by(ACQUIRERS) {
                kept.push(keeper.acquire(format!("{prefix}/{number:06}")).await);
            }
            kept
        });
    }
    tasks.join_all().await
}
