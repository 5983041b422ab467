//! A process that locks, works and releases, again and again, and says all that it believes before it acts on it.

mod teller;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::LockBackend;
use leasehold_core::{Error, ErrorKind, LockClient, LockGuard, LockOptions, RenewalMode};
use leasehold_simulation::EventKind;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use self::teller::Teller;
use crate::line::Plan;
use crate::{now, since_boot};

/// More than one, so that some wait for others of their process.
const TASKS: usize = 3;

type Client = LockClient<Arc<dyn LockBackend>>;

/// A key, and its units.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    limit: u32,
}

/// Fewer than there are tasks, so that most of them wait.
pub(crate) const KEYS: [Key; 7] = [
    Key { name: "mutex/1", limit: 1 },
    Key { name: "mutex/2", limit: 1 },
    Key { name: "mutex/3", limit: 1 },
    Key { name: "mutex/4", limit: 1 },
    Key { name: "mutex/5", limit: 1 },
    Key { name: "mutex/6", limit: 1 },
    Key { name: "permits", limit: 2 },
];

pub(crate) async fn client(url: &str, ttl: Duration) -> Client {
    let backend = leasehold::backend::connect(url).await.expect("the store is up");
    let options = LockOptions::new().ttl(ttl);
    LockClient::builder(backend).options(options).build().expect("such leases are possible")
}

impl Key {
    /// Waits for all units of the key.
    pub(crate) async fn take_all(self, client: &Client) -> Result<LockGuard, Error> {
        if self.limit == 1 {
            return client.mutex(self.name)?.lock().await;
        }
        client.semaphore(self.name, self.limit)?.acquire(self.limit).await
    }

    async fn take_one(
        self,
        client: &Client,
        options: LockOptions,
        wait: Duration,
    ) -> Result<Option<LockGuard>, Error> {
        if self.limit == 1 {
            let mutex = client.mutex(self.name)?.with_options(options)?;
            return Ok(mutex.try_lock_for(wait).await?.ok());
        }
        let semaphore = client.semaphore(self.name, self.limit)?.with_options(options)?;
        Ok(semaphore.try_acquire_for(1, wait).await?.ok())
    }
}

/// Runs a plan until it is killed.
pub(crate) async fn run(plan: &str) -> ExitCode {
    let plan: Plan =
        serde_json::from_str(plan).expect("parents and children share the type of plans");
    let client = client(&plan.url, plan.ttl).await;
    let teller = Arc::new(Teller::new(plan.process));
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let worker = Worker { client: client.clone(), teller: Arc::clone(&teller), ttl: plan.ttl };
        tasks.spawn(worker.work());
    }
    tasks.join_all().await;
    ExitCode::FAILURE
}

struct Worker {
    client: Client,
    teller: Arc<Teller>,
    ttl: Duration,
}

impl Worker {
    async fn work(self) {
        loop {
            let key = KEYS[fastrand::usize(..KEYS.len())];
            let renewal =
                if fastrand::u8(..3) == 0 { RenewalMode::Off } else { RenewalMode::Watchdog };
            let options = self.client.options().renewal(renewal).fair(fastrand::u8(..4) == 0);
            if let Some(guard) = self.acquire(key, options).await
                && let Some(held) = Held::enter(&self, key, guard)
            {
                held.live(renewal).await;
            }
        }
    }

    /// Some calls are cancelled at odd moments.
    async fn acquire(&self, key: Key, options: LockOptions) -> Option<LockGuard> {
        let patience = self.ttl.mul_f64(2.0 * fastrand::f64());
        let taking = key.take_one(&self.client, options, patience);
        let taken = if fastrand::u8(..5) == 0 {
            timeout(Duration::from_micros(fastrand::u64(..20_000)), taking).await.ok()?
        } else {
            taking.await
        };
        taken.unwrap_or_else(|error| match error.kind() {
            // A process that was stopped for long, or a store that another one has kept busy.
            ErrorKind::Indeterminate | ErrorKind::Unavailable | ErrorKind::LeaseLost => None,
            _ => panic!("{error}"),
        })
    }
}

/// A guard, with a number.
struct Held<'a> {
    worker: &'a Worker,
    key: Key,
    hold: u64,
    guard: LockGuard,
}

impl<'a> Held<'a> {
    /// Says that the lock is had, unless it is lost already.
    fn enter(worker: &'a Worker, key: Key, guard: LockGuard) -> Option<Self> {
        let at = now();
        if !guard.is_held() {
            return None;
        }
        let hold = worker.teller.next_hold();
        let entered = EventKind::Entered {
            key: key.name.to_owned(),
            token: guard.token().number(),
            units: guard.units(),
            limit: key.limit,
            deadline: since_boot(guard.deadline()),
        };
        worker.teller.tell(at, hold, entered);
        Some(Self { worker, key, hold, guard })
    }

    async fn live(self, renewal: RenewalMode) {
        for _ in 0..fastrand::u8(1..8) {
            sleep(Duration::from_micros(fastrand::u64(..20_000))).await;
            match fastrand::u8(..8) {
                // Without another look: a process that is stopped before writes when it is too late.
                0..3 if self.key.limit == 1 => self.write().await,
                3 => drop(self.guard.extend(self.worker.ttl).await),
                _ => {}
            }
            if !self.look() {
                return;
            }
        }
        self.end(renewal).await;
    }

    async fn write(&self) {
        let token = self.guard.token().number();
        self.worker.teller.write(self.hold, self.key.name, token).await;
    }

    /// Says whether the guard is held.
    fn look(&self) -> bool {
        let at = now();
        let is_held = self.guard.is_held();
        let deadline = since_boot(self.guard.deadline());
        let kind = if is_held { EventKind::Held { deadline } } else { EventKind::Lost };
        self.worker.teller.tell(at, self.hold, kind);
        is_held
    }

    /// Releases the lock, drops the guard, or leaves the lease to its TTL.
    async fn end(self, renewal: RenewalMode) {
        if renewal == RenewalMode::Off && fastrand::u8(..8) == 0 {
            std::mem::forget(self.guard);
            return;
        }
        self.worker.teller.tell(now(), self.hold, EventKind::Ends);
        // A release that fails goes on in the background, as that of a guard that is dropped.
        if fastrand::u8(..4) != 0 {
            drop(self.guard.release().await);
        }
    }
}
