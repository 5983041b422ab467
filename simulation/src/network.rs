//! The network: each client's link to the store.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use fastrand::Rng;
use leasehold_core::clock::Instant;
use leasehold_core::memory::Outcome;
use leasehold_core::{
    Attempt, AttemptAll, Capabilities, Claim, Error, ErrorKind, ForcedRelease, Inspection,
    KeyWatch, KeyWatches, Lease, LockBackend, LockKey, MemoryBackend, Release, Renewal, Revocation,
};
use tokio::sync::oneshot;
use tokio::time::{self, sleep, timeout};

use crate::incident::{Fault, Incident};
use crate::judge::Judge;
use crate::schedule::{Schedule, Stream};
use crate::store::{Request, Store};

/// How long a client waits for a reply.
const REPLY_LIMIT: Duration = Duration::from_millis(400);

/// How the network treats every message, incidents apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    /// The longest delay of most messages, in microseconds.
    pub(crate) delay: u64,
    /// The longest delay of the others, in microseconds.
    pub(crate) long_delay: u64,
    /// Messages in a hundred with a long delay.
    pub(crate) slow: u8,
    /// Requests in a hundred that are lost.
    pub(crate) lost: u8,
    /// Replies and news in a hundred that are lost.
    pub(crate) unheard: u8,
    /// Requests in a hundred that arrive twice.
    pub(crate) repeated: u8,
    /// Requests in a hundred that are refused before they leave.
    pub(crate) refused: u8,
}

impl Weather {
    const CALM: Self = Self {
        delay: 2_000,
        long_delay: 2_000,
        slow: 0,
        lost: 0,
        unheard: 0,
        repeated: 0,
        refused: 0,
    };

    pub(crate) fn draw(rng: &mut Rng) -> Self {
        match rng.u8(..4) {
            0 => Self::CALM,
            1 => Self {
                delay: 80_000,
                long_delay: 1_200_000,
                slow: 5,
                lost: 3,
                unheard: 3,
                repeated: 3,
                refused: 2,
            },
            2 => Self {
                delay: 300_000,
                long_delay: 1_200_000,
                slow: 20,
                lost: 10,
                unheard: 10,
                repeated: 20,
                refused: 5,
            },
            _ => Self {
                delay: 20_000,
                long_delay: 600_000,
                slow: 2,
                lost: 2,
                unheard: 30,
                repeated: 10,
                refused: 30,
            },
        }
    }

    fn delay(&self, rng: &mut Rng) -> Duration {
        let longest = if rng.u8(..100) < self.slow { self.long_delay } else { self.delay };
        Duration::from_micros(rng.u64(..longest))
    }
}

/// The part of a simulation that all clients share.
pub(crate) struct World {
    pub(crate) schedule: Schedule,
    pub(crate) incidents: Vec<Incident>,
    pub(crate) judge: Judge,
    weather: Mutex<Weather>,
    zero: time::Instant,
    store: Store,
    links: Mutex<Vec<Link>>,
    messages: AtomicU64,
    trace: AtomicU64,
}

impl World {
    pub(crate) fn new(schedule: Schedule, incidents: Vec<Incident>, weather: Weather) -> Self {
        Self {
            schedule,
            incidents,
            judge: Judge::default(),
            weather: Mutex::new(weather),
            zero: time::Instant::now(),
            store: Store::default(),
            links: Mutex::default(),
            messages: AtomicU64::new(0),
            trace: AtomicU64::new(0),
        }
    }

    pub(crate) fn zero(&self) -> time::Instant {
        self.zero
    }

    pub(crate) fn now(&self) -> Duration {
        self.zero.elapsed()
    }

    pub(crate) fn messages(&self) -> u64 {
        self.messages.load(Ordering::Relaxed)
    }

    /// A digest of all messages in their order: equal runs have equal traces.
    pub(crate) fn trace(&self) -> u64 {
        self.trace.load(Ordering::Relaxed)
    }

    pub(crate) fn keys_in_store(&self) -> usize {
        self.store.keys()
    }

    /// Ends all faults of the network.
    pub(crate) fn calm_down(&self) {
        *self.weather.lock().unwrap_or_else(PoisonError::into_inner) = Weather::CALM;
    }

    /// Connects a new process in the place of a client.
    pub(crate) fn connect(self: &Arc<Self>, client: usize, muted: bool) -> Link {
        let link = Link(Arc::new(Connection {
            client,
            muted,
            world: Arc::clone(self),
            is_dead: AtomicBool::new(false),
            numbers: AtomicU64::new(0),
            waiters: KeyWatches::default(),
            holders: KeyWatches::default(),
        }));
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        links.push(link.clone());
        link
    }

    /// Forgets all links, each of which knows the world.
    pub(crate) fn disconnect_all(&self) {
        self.links.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Applies a request, has the outcome judged, and sends the news of it.
    pub(crate) fn apply(&self, request: &Request) -> Outcome {
        self.messages.fetch_add(1, Ordering::Relaxed);
        let (outcome, changed) = self.store.apply(request, Instant::from_zero(self.now()));
        self.note(request);
        for (key, grant) in request.grants(&outcome) {
            self.judge.granted(key, grant);
        }
        self.judge.check(self.now());
        if changed || request.concerns_holders() {
            let links = self.links.lock().unwrap_or_else(PoisonError::into_inner).clone();
            for link in links {
                link.tell(request);
            }
        }
        outcome
    }

    /// Lets the incidents of the store that are a moment only happen.
    pub(crate) fn strike(&self, fault: Fault, keys: &[LockKey]) {
        let now = Instant::from_zero(self.now());
        match fault {
            Fault::Wipe => self.store.wipe(now),
            Fault::Failover => self.store.fail_over(now),
            Fault::ForcedRelease => {
                for key in keys {
                    self.apply(&Request::ForceRelease(key.clone()));
                }
            }
            _ => return,
        }
        self.judge.leases_were_lost(self.now());
    }

    fn is_on(&self, fault: Fault) -> bool {
        let now = self.now();
        self.incidents.iter().any(|incident| incident.fault == fault && incident.is_on(now))
    }

    /// Waits until no incident with this fault is on.
    pub(crate) async fn outlast(&self, fault: Fault) {
        loop {
            let now = self.now();
            let on = |incident: &&Incident| incident.fault == fault && incident.is_on(now);
            let Some(end) = self.incidents.iter().filter(on).map(Incident::end).max() else {
                return;
            };
            time::sleep_until(self.zero + end).await;
        }
    }

    fn note(&self, request: &Request) {
        let mut hasher = DefaultHasher::new();
        (self.trace(), self.now(), mem::discriminant(request), request.keys()).hash(&mut hasher);
        self.trace.store(hasher.finish(), Ordering::Relaxed);
    }

    fn weather(&self) -> Weather {
        *self.weather.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One process's link to the store.
#[derive(Clone)]
pub(crate) struct Link(Arc<Connection>);

struct Connection {
    client: usize,
    /// No news comes over it.
    muted: bool,
    world: Arc<World>,
    /// The process has ended.
    is_dead: AtomicBool,
    numbers: AtomicU64,
    waiters: KeyWatches,
    holders: KeyWatches,
}

/// The fate of one request.
struct Fate {
    there: Duration,
    back: Duration,
    again: Option<Duration>,
    is_lost: bool,
    is_unheard: bool,
}

impl Link {
    /// Ends the process: no message leaves it any more.
    pub(crate) fn die(&self) {
        self.0.is_dead.store(true, Ordering::Relaxed);
    }

    pub(crate) async fn awake(&self) {
        self.0.world.outlast(Fault::Pause { client: self.0.client }).await;
    }

    async fn exchange<T: TryFrom<Outcome>>(&self, request: Request) -> Result<T, Error> {
        let Connection { client, world, .. } = &*self.0;
        self.awake().await;
        let weather = world.weather();
        let number = self.0.numbers.fetch_add(1, Ordering::Relaxed);
        let mut rng = world.schedule.stream(Stream::Message { client: *client, number });
        let mut happens = |percent: u8| rng.u8(..100) < percent;
        if self.0.is_dead.load(Ordering::Relaxed)
            || world.is_on(Fault::Restart)
            || happens(weather.refused)
        {
            return Err(Error::new(ErrorKind::Unavailable, "connection refused"));
        }
        let (is_lost, is_unheard, repeats) =
            (happens(weather.lost), happens(weather.unheard), happens(weather.repeated));
        let fate = Fate {
            there: weather.delay(&mut rng),
            back: weather.delay(&mut rng),
            again: repeats.then(|| weather.delay(&mut rng)),
            is_lost,
            is_unheard,
        };
        let (sender, receiver) = oneshot::channel();
        tokio::spawn(self.clone().deliver(request.clone(), fate, sender));
        // A reply that is lost is as late as any limit.
        let heard = async {
            match receiver.await {
                Ok(outcome) => outcome,
                Err(_lost) => std::future::pending().await,
            }
        };
        let outcome = timeout(REPLY_LIMIT, heard).await;
        self.awake().await;
        let outcome = outcome.map_err(|_| Error::new(ErrorKind::Indeterminate, "no reply"))?;
        read(outcome)
    }

    async fn deliver(self, request: Request, fate: Fate, sender: oneshot::Sender<Outcome>) {
        let Connection { client, world, .. } = &*self.0;
        if fate.is_lost || world.is_on(Fault::CutRequests { client: *client }) {
            return;
        }
        sleep(fate.there).await;
        world.outlast(Fault::Freeze).await;
        if world.is_on(Fault::Restart) {
            return;
        }
        let outcome = world.apply(&request);
        if let Some(again) = fate.again {
            let world = Arc::clone(world);
            tokio::spawn(async move {
                sleep(again).await;
                world.outlast(Fault::Freeze).await;
                world.apply(&request);
            });
        }
        sleep(fate.back).await;
        if fate.is_unheard || world.is_on(Fault::CutReplies { client: *client }) {
            return;
        }
        self.awake().await;
        // A caller that has given up hears no reply.
        drop(sender.send(outcome));
    }

    /// Sends news of a request that the store has applied.
    fn tell(&self, request: &Request) {
        let Connection { client, world, muted, .. } = &*self.0;
        if *muted || self.0.is_dead.load(Ordering::Relaxed) {
            return;
        }
        let weather = world.weather();
        let number = self.0.numbers.fetch_add(1, Ordering::Relaxed);
        let mut rng = world.schedule.stream(Stream::News { client: *client, number });
        if rng.u8(..100) < weather.unheard {
            return;
        }
        let (delay, keys, to_holders) =
            (weather.delay(&mut rng), request.keys(), request.concerns_holders());
        let link = self.clone();
        tokio::spawn(async move {
            let Connection { client, world, waiters, holders, .. } = &*link.0;
            sleep(delay).await;
            if world.is_on(Fault::CutReplies { client: *client }) {
                return;
            }
            link.awake().await;
            for key in keys {
                waiters.notify(key.as_str());
                if to_holders {
                    holders.notify(key.as_str());
                }
            }
        });
    }
}

fn read<T: TryFrom<Outcome>>(outcome: Outcome) -> Result<T, Error> {
    if let Outcome::WrongType(key) = &outcome {
        let message = "it is held as a lock of another kind";
        return Err(Error::new(ErrorKind::WrongType, message).with_key(key));
    }
    Ok(T::try_from(outcome).ok().expect("each request has its own outcome"))
}

#[async_trait]
impl LockBackend for Link {
    fn capabilities(&self) -> Capabilities {
        // Those of the state machine that both stores run.
        MemoryBackend::new().capabilities()
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        self.exchange(Request::TryAcquire(claim.clone())).await
    }

    async fn try_acquire_all(&self, claims: &[Claim]) -> Result<AttemptAll, Error> {
        self.exchange(Request::TryAcquireAll(claims.to_vec())).await
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
        self.exchange(Request::Renew(lease.clone())).await
    }

    async fn release(&self, lease: &Lease) -> Result<Release, Error> {
        self.exchange(Request::Release(lease.clone())).await
    }

    fn watch(&self, key: &LockKey) -> KeyWatch {
        self.0.waiters.watch(key)
    }

    fn watch_lease(&self, lease: &Lease) -> KeyWatch {
        self.0.holders.watch(lease.key())
    }

    async fn inspect(&self, key: &LockKey) -> Result<Inspection, Error> {
        self.exchange(Request::Inspect(key.clone())).await
    }

    async fn force_release(&self, key: &LockKey) -> Result<ForcedRelease, Error> {
        self.exchange(Request::ForceRelease(key.clone())).await
    }

    async fn request_revocation(&self, key: &LockKey) -> Result<Revocation, Error> {
        self.exchange(Request::Revoke(key.clone())).await
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("client", &self.0.client).finish_non_exhaustive()
    }
}
