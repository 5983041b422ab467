//! Measures a deep queue on one Redis: the server's CPU while all wait for one held key, and the scripts that it runs to serve each waiter once.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use leasehold_core::{LockClient, LockGuard, WriteGuard};
use leasehold_redis::RedisBackend;
use leasehold_testbed::Redis;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// The key of all.
const NAME: &str = "deep";

/// Few, so that nearly all wait.
const PERMITS: u32 = 4;

const VALID: &str = "the name and the numbers are valid";
const HAD: &str = "each client is served in the end";

/// Measures a deep queue on one Redis: the server's CPU while all wait for one held key, and the scripts that it runs to serve each
/// waiter once.
#[derive(Debug, Parser)]
#[command(name = "leasehold-depth")]
struct Args {
    /// The kinds of lock. Without any, all.
    kinds: Vec<Kind>,
    /// How many clients wait while the server's CPU is measured.
    #[arg(long, value_delimiter = ',', default_values_t = [200, 1_000, 4_000, 10_000])]
    idle: Vec<u16>,
    /// How many clients are served once each.
    #[arg(long, value_delimiter = ',', default_values_t = [50, 100, 200, 400])]
    serve: Vec<u16>,
    /// For how many seconds the server's CPU is measured.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// How many backends, with connections of their own, the clients share.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    connections: u16,
    /// Parameters of the URL, such as `push=off`.
    #[arg(long, default_value = "timeout-ms=10000")]
    parameters: String,
}

/// A kind of lock, and how its waiters wait.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    Mutex,
    FairMutex,
    Readers,
    Writers,
    Permits,
    FairPermits,
}

/// Clients that wait for one key, which another client holds.
struct Crowd {
    redis: Redis,
    held: Held,
    waiting: JoinSet<()>,
}

/// Counters of the server at one time.
struct Counters {
    at: Instant,
    cpu: Duration,
    scripts: u32,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let args = Args::parse();
    let kinds = if args.kinds.is_empty() { Kind::value_variants() } else { &args.kinds };
    println!("| waiting | clients | server CPU, % of a core | scripts per second |");
    println!("| --- | --- | --- | --- |");
    for (kind, clients) in kinds.iter().flat_map(|kind| args.idle.iter().map(move |n| (kind, n))) {
        idle(&args, *kind, *clients).await;
    }
    println!(
        "\n| served once each | clients | scripts | scripts per client | server CPU, s | time, s |"
    );
    println!("| --- | --- | --- | --- | --- | --- |");
    for (kind, clients) in kinds.iter().flat_map(|kind| args.serve.iter().map(move |n| (kind, n))) {
        serve(&args, *kind, *clients).await;
    }
}

async fn idle(args: &Args, kind: Kind, clients: u16) {
    let crowd = Crowd::gather(args, kind, clients).await;
    let before = Counters::of(&crowd.redis).await;
    sleep(Duration::from_secs(args.seconds)).await;
    let after = Counters::of(&crowd.redis).await;
    let time = (after.at - before.at).as_secs_f64();
    let cpu = (after.cpu - before.cpu).as_secs_f64() / time * 100.0;
    let scripts = f64::from(after.scripts - before.scripts) / time;
    println!("| {kind:?} | {clients} | {cpu:.1} | {scripts:.0} |");
}

async fn serve(args: &Args, kind: Kind, clients: u16) {
    let Crowd { redis, held, mut waiting } = Crowd::gather(args, kind, clients).await;
    let before = Counters::of(&redis).await;
    held.release().await;
    while let Some(served) = waiting.join_next().await {
        served.expect("each client is served");
    }
    let after = Counters::of(&redis).await;
    let scripts = after.scripts - before.scripts;
    let each = f64::from(scripts) / f64::from(clients);
    let cpu = (after.cpu - before.cpu).as_secs_f64();
    let time = (after.at - before.at).as_secs_f64();
    println!("| {kind:?} | {clients} | {scripts} | {each:.1} | {cpu:.2} | {time:.2} |");
}

impl Crowd {
    async fn gather(args: &Args, kind: Kind, clients: u16) -> Self {
        let redis = Redis::start().await;
        let url = format!("{}?{}", redis.url(), args.parameters);
        let mut backends: Vec<RedisBackend> = Vec::new();
        for _ in 0..args.connections {
            backends.push(RedisBackend::connect(&url).await.expect("the server is there"));
        }
        let holder = LockClient::new(backends[0].clone());
        let held = kind.hold(&holder).await;
        let mut waiting = JoinSet::new();
        for backend in backends.iter().cycle().take(usize::from(clients)) {
            let client = LockClient::new(backend.clone());
            waiting.spawn(async move { kind.wait(&client).await });
        }
        let crowd = Self { redis, held, waiting };
        crowd.until_all_wait(u32::from(clients)).await;
        crowd
    }

    /// Waits until each client has asked once, and a while longer, so that the rush is over.
    async fn until_all_wait(&self, clients: u32) {
        let mut before = 0;
        loop {
            sleep(Duration::from_millis(500)).await;
            let scripts = Counters::of(&self.redis).await.scripts;
            if scripts > clients && before > clients {
                break;
            }
            before = scripts;
        }
        sleep(Duration::from_secs(2)).await;
    }
}

/// A guard of the client that holds the key first.
enum Held {
    Lock(LockGuard),
    Write(WriteGuard),
}

impl Held {
    async fn release(self) {
        let released = match self {
            Self::Lock(guard) => guard.release().await,
            Self::Write(guard) => guard.release().await,
        };
        released.expect("the server is there");
    }
}

impl Kind {
    /// Takes the key so that no waiter gets it.
    async fn hold(self, client: &LockClient<RedisBackend>) -> Held {
        match self {
            Self::Mutex | Self::FairMutex => mutex(client, false).await,
            Self::Readers => write(client).await,
            Self::Writers => read(client).await,
            Self::Permits | Self::FairPermits => permits(client, PERMITS, false).await,
        }
    }

    async fn wait(self, client: &LockClient<RedisBackend>) {
        let held = match self {
            Self::Mutex => mutex(client, false).await,
            Self::FairMutex => mutex(client, true).await,
            Self::Readers => read(client).await,
            Self::Writers => write(client).await,
            Self::Permits => permits(client, 1, false).await,
            Self::FairPermits => permits(client, 1, true).await,
        };
        held.release().await;
    }
}

async fn mutex(client: &LockClient<RedisBackend>, fair: bool) -> Held {
    let options = client.options().fair(fair);
    let mutex = client.mutex(NAME).and_then(|lock| lock.with_options(options)).expect(VALID);
    Held::Lock(mutex.lock().await.expect(HAD))
}

async fn read(client: &LockClient<RedisBackend>) -> Held {
    Held::Lock(client.rw_lock(NAME).expect(VALID).read().await.expect(HAD))
}

async fn write(client: &LockClient<RedisBackend>) -> Held {
    Held::Write(client.rw_lock(NAME).expect(VALID).write().await.expect(HAD))
}

async fn permits(client: &LockClient<RedisBackend>, count: u32, fair: bool) -> Held {
    let options = client.options().fair(fair);
    let semaphore = client.semaphore(NAME, PERMITS).and_then(|lock| lock.with_options(options));
    Held::Lock(semaphore.expect(VALID).acquire(count).await.expect(HAD))
}

impl Counters {
    async fn of(redis: &Redis) -> Self {
        let info = redis.command(&["INFO", "cpu"]).await;
        let seconds = |name: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|seconds| seconds.trim().parse::<f64>().ok())
                .expect("the server tells it")
        };
        let cpu = Duration::from_secs_f64(seconds("used_cpu_sys:") + seconds("used_cpu_user:"));
        let scripts = u32::try_from(redis.calls(&["eval", "evalsha"]).await);
        let scripts = scripts.expect("it has just been started");
        Self { at: Instant::now(), cpu, scripts }
    }
}
