//! A client process that repeatedly acquires and releases locks. Before each action, the process
//! reports which locks it believes it holds.

mod held;
mod lock;
mod teller;
mod usage;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::stdin;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::backend::LockBackend;
use leasehold_core::{Error, ErrorKind, LockClient, LockGuard, LockOptions, Mutex, RenewalMode};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use self::held::{Belief, Held};
use self::lock::{Guards, KEYS, Lock, PERMITS};
use self::teller::Teller;
use crate::history::event::{EventKind, Usage, outcome_of};
use crate::history::line::Plan;
use crate::history::record::Record;
use crate::history::run::Kind;

/// The pause between two attempts to connect to a store that is down.
const PAUSE: Duration = Duration::from_millis(50);

/// The time after which a key must be free. A key that is still held means that the store hangs, or
/// that a client has left a lease that never expires.
const UNTIL_GIVEN_UP: Duration = Duration::from_secs(60);

/// The time after the TTL in which dropped guards and cancelled calls must have been released.
const UNTIL_CLEAN: Duration = Duration::from_secs(10);

/// Connects to a store. Waits until the store is available.
///
/// `leasehold verify` and the fault campaign call this function.
///
/// # Panics
///
/// Panics if the URL or the TTL is not valid.
pub async fn client(
    connect: impl AsyncFn() -> Result<Arc<dyn LockBackend>, Error>,
    ttl: Duration,
) -> LockClient {
    let build = |backend| LockClient::builder(backend).options(options(ttl)).build();
    loop {
        match connect().await.and_then(build) {
            Ok(client) => return client.into_dyn(),
            Err(error) if error.kind() == ErrorKind::Invalid => panic!("{error}"),
            Err(_down) => sleep(PAUSE).await,
        }
    }
}

fn options(ttl: Duration) -> LockOptions {
    LockOptions::new().ttl(ttl).outage_wait(ttl * 2)
}

/// Reads a plan and runs it until the process is killed or is ordered to finish.
///
/// `connect` connects to the store. `entries` counts the entries in a client's maps, if the program
/// supports counting them.
///
/// `leasehold verify` and the fault campaign call this function.
///
/// # Panics
///
/// Panics if there is no plan, or if the URL of the store is not valid.
pub async fn run(
    connect: impl AsyncFn(&Plan) -> Result<Arc<dyn LockBackend>, Error>,
    entries: fn(&LockClient) -> BTreeMap<String, u64>,
) -> ExitCode {
    let mut line = String::new();
    stdin().read_line(&mut line).expect("the parent writes a plan");
    let plan: Plan =
        serde_json::from_str(&line).expect("parents and children share the type of plans");
    let teller = Arc::new(Teller::new());
    let client = client(async || connect(&plan).await, plan.ttl).await;
    let usage = || usage::usage(entries(&client));
    let locks: Arc<[Lock]> = Lock::all(&client).into();
    let mut tasks = JoinSet::new();
    for task in 0..plan.tasks {
        let (locks, teller) = (Arc::clone(&locks), Arc::clone(&teller));
        let Plan { ttl, patience, .. } = plan;
        tasks.spawn(Worker { locks, teller, task, ttl, patience }.work());
    }
    tokio::select! {
        never = sample(&usage, &teller, plan.sample_every) => match never {},
        _ = tasks.join_all() => {}
    }
    teller.tell(EventKind::Finished(clean_usage(&usage, plan.ttl).await));
    drop(timeout(UNTIL_CLEAN, client.shutdown(plan.ttl)).await);
    ExitCode::SUCCESS
}

/// Reports the resource usage periodically.
async fn sample(usage: &impl Fn() -> Usage, teller: &Teller, pause: Duration) -> Infallible {
    loop {
        sleep(pause).await;
        teller.tell(EventKind::Uses(usage()));
    }
}

/// Returns the resource usage after all pending releases should be complete.
async fn clean_usage(usage: &impl Fn() -> Usage, ttl: Duration) -> Usage {
    let give_up = Instant::now() + ttl + UNTIL_CLEAN;
    loop {
        let usage = usage();
        if usage.entries.values().all(|entries| *entries == 0) || Instant::now() > give_up {
            return usage;
        }
        sleep(PAUSE).await;
    }
}

/// A task that acquires locks.
struct Worker {
    locks: Arc<[Lock]>,
    teller: Arc<Teller>,
    task: u32,
    ttl: Duration,
    patience: Duration,
}

impl Worker {
    async fn work(self) {
        while !self.teller.is_finishing() {
            let lock = self.choose();
            let renewal =
                if fastrand::u8(..5) == 0 { RenewalMode::Off } else { RenewalMode::Watchdog };
            match lock.as_mutex() {
                Some(mutex) if fastrand::u8(..8) == 0 => self.work_in_run(lock, &mutex).await,
                _ => self.work_with_guard(lock, renewal).await,
            }
        }
    }

    fn choose(&self) -> &Lock {
        let weights: u32 = self.locks.iter().map(Lock::weight).sum();
        let mut place = fastrand::u32(..weights);
        let chosen = self.locks.iter().find(|lock| {
            let is_here = place < lock.weight();
            place = place.saturating_sub(lock.weight());
            is_here
        });
        chosen.expect("the place is below the sum of all weights")
    }

    fn options(&self) -> LockOptions {
        options(self.ttl)
    }

    async fn work_with_guard(&self, lock: &Lock, renewal: RenewalMode) {
        if let Some((call, guards)) = self.acquire(lock, self.options().renewal(renewal)).await
            && let Some(held) = Held::enter(&self.teller, (self.task, call), lock, renewal, guards)
        {
            held.live(self.ttl, renewal).await;
        }
    }

    /// Acquires a lock. Some calls do not wait, and some are cancelled at random times.
    async fn acquire(&self, lock: &Lock, options: LockOptions) -> Option<(u64, Guards)> {
        let patience = match fastrand::u8(..8) {
            0 => Duration::ZERO,
            1..4 => self.ttl.mul_f64(fastrand::f64()),
            _ => self.patience,
        };
        let call = self.ask(lock);
        let taking = lock.take(options, patience, fastrand::u32(1..PERMITS));
        let taken = if fastrand::u8(..10) == 0 {
            timeout(Duration::from_micros(fastrand::u64(..20_000)), taking).await.ok()
        } else {
            Some(taking.await)
        };
        match taken {
            Some(Ok(Some(guards))) => {
                self.answer(call, "granted");
                return Some((call, guards));
            }
            Some(Ok(None)) => self.answer(call, "busy"),
            Some(Err(error)) => self.fail(call, &error).await,
            None => self.answer(call, "cancelled"),
        }
        None
    }

    /// Works in `run`, which cancels the work if the lock is lost.
    async fn work_in_run(&self, lock: &Lock, mutex: &Mutex) {
        let options = self.options().wait(self.patience);
        let mutex = mutex.clone().with_options(options).expect("such leases are possible");
        let time = self.ttl.mul_f64(1.5 * fastrand::f64());
        let (call, entered) = (self.ask(lock), OnceLock::new());
        let work = async |guard: &LockGuard| {
            self.answer(call, "granted");
            let renewal = RenewalMode::Watchdog;
            let belief = Belief::enter(&self.teller, (self.task, call), lock, renewal, guard);
            if let Some(belief) = entered.get_or_init(|| belief) {
                belief.work(guard, self.ttl, time).await;
            }
        };
        match (mutex.run(work).await, entered.get()) {
            (Ok(()), _) | (Err(_), Some(None)) => {}
            (Err(_lost), Some(Some(belief))) => belief.tell_loss(),
            (Err(error), None) => self.fail(call, &error).await,
        }
    }

    fn ask(&self, lock: &Lock) -> u64 {
        let call = self.teller.next();
        self.teller.tell(EventKind::Asked { call, key: lock.name().to_owned(), limit: None });
        call
    }

    fn answer(&self, call: u64, outcome: &str) {
        self.teller.tell(EventKind::Answered { call, outcome: outcome.to_owned() });
    }

    async fn fail(&self, call: u64, error: &Error) {
        self.answer(call, &outcome_of(error));
        if error.kind() != ErrorKind::Timeout {
            sleep(PAUSE).await;
        }
    }
}

/// Acquires each key exclusively after all other clients have exited, and checks for keys that
/// remain in the store.
///
/// `leasehold verify` and the fault campaign call this function.
///
/// # Panics
///
/// Panics if the options are not valid.
pub async fn until_free(client: &LockClient, ttl: Duration, record: &Record) {
    let ended = Instant::now();
    let free = async |key: &'static str| {
        let taken = timeout(UNTIL_GIVEN_UP, take_all(client, key, ttl)).await;
        let (key, after) = (key.to_owned(), ended.elapsed());
        let kind = match taken {
            Ok(()) => EventKind::Freed { key, after },
            Err(_elapsed) => EventKind::Left { key },
        };
        record.add(0, kind);
    };
    join_all(KEYS.map(free)).await;
    let give_up = Instant::now() + ttl * 2 + Duration::from_secs(5);
    let mut keys = left(client).await;
    while !keys.is_empty() && Instant::now() < give_up {
        sleep(PAUSE).await;
        keys = left(client).await;
    }
    for key in keys {
        record.add(0, EventKind::Left { key });
    }
}

/// Waits for all permits of a key and releases them.
async fn take_all(client: &LockClient, key: &str, ttl: Duration) {
    let locks = Lock::all(client);
    let lock = locks.iter().find(|lock| lock.name() == key && lock.kind() != Kind::Reader);
    let Some(lock) = lock else { return };
    loop {
        match lock.take(options(ttl), ttl, PERMITS).await {
            Ok(Some(guards)) => return drop(guards.release().await),
            Err(error) if error.kind() == ErrorKind::Invalid => panic!("{error}"),
            Ok(None) | Err(_) => sleep(PAUSE).await,
        }
    }
}

/// Returns the campaign's keys that still exist in the store. Returns an empty list if the store
/// does not support listing.
async fn left(client: &LockClient) -> Vec<String> {
    let mut keys = client.admin().list("").expect("the prefix is short");
    let mut left = Vec::new();
    while let Ok(Some(page)) = keys.next_page().await {
        let ours = page.iter().map(ToString::to_string);
        left.extend(ours.filter(|key| KEYS.contains(&key.as_str())));
    }
    left
}
