//! The work of one task: random calls of all kinds of lock.

use std::pin::pin;
use std::slice;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use fastrand::Rng;
use leasehold_core::{
    Error, LockClient, LockGuard, LockOptions, MultiGuard, OwnerId, RenewalMode, WriteGuard,
};
use tokio::time::{Instant, sleep, timeout};

use crate::incident::{Fault, Incident};
use crate::network::{Link, World};

/// The keys of a simulation. Few, so that callers meet.
pub(crate) const KEYS: [&str; 5] = ["mutex-0", "mutex-1", "reentrant", "rw", "semaphore"];

/// The permits of the semaphore.
const PERMITS: u32 = 3;

/// The readers that a reader-writer lock admits, to the judge: more than a simulation has.
const READERS: u64 = 1_000;

/// How late a call may return after its wait is over: the time that a caller takes to leave the line, and two steps of a timer.
const LATE: Duration = Duration::from_millis(52);

/// The options that all clients of a simulation share.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    pub(crate) options: LockOptions,
    pub(crate) rounds: usize,
}

impl Profile {
    /// The TTL of most leases.
    pub(crate) const TTL: Duration = Duration::from_secs(1);

    /// The longest TTL of any lease.
    const LONGEST: u64 = 2_400;

    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let mut options = LockOptions::new().ttl(Self::TTL).outage_wait(Duration::from_secs(3));
        options = options.hand_over(rng.bool()).fair(rng.u8(..3) == 0);
        if rng.u8(..4) == 0 {
            options = options.renewal(RenewalMode::Off);
        }
        if rng.u8(..4) == 0 {
            options = options.lock_delay(Duration::from_millis(300));
        }
        if rng.u8(..4) == 0 {
            options = options.max_hold(Duration::from_millis(1_700));
        }
        Self { options, rounds: 6 }
    }
}

/// The leases of one acquisition.
pub(crate) enum Taken {
    One(LockGuard),
    Several(MultiGuard),
}

impl Taken {
    pub(crate) fn guards(&self) -> &[LockGuard] {
        match self {
            Self::One(guard) => slice::from_ref(guard),
            Self::Several(guard) => guard.guards(),
        }
    }

    fn is_held(&self) -> bool {
        self.guards().iter().all(LockGuard::is_held)
    }

    async fn release(self) -> Result<(), Error> {
        match self {
            Self::One(guard) => guard.release().await,
            Self::Several(guard) => guard.release().await,
        }
    }
}

/// A lock that a task asks for.
#[derive(Clone, Copy, Debug)]
enum Wanted {
    Mutex(&'static str),
    Both,
    Reentrant,
    Reader,
    Writer,
    Permits(u32),
}

impl Wanted {
    fn draw(rng: &mut Rng) -> Self {
        match rng.u8(..10) {
            0..3 => Self::Mutex(KEYS[0]),
            3 => Self::Mutex(KEYS[1]),
            4 => Self::Both,
            5 => Self::Reentrant,
            6..8 => Self::Reader,
            8 => Self::Writer,
            _ => Self::Permits(rng.u32(1..=PERMITS)),
        }
    }

    /// The units of its key that may be held at once, in the units of its guards.
    fn limit(self, guard: &LockGuard) -> u64 {
        match self {
            Self::Mutex(_) | Self::Both | Self::Reentrant | Self::Writer => guard.units().into(),
            Self::Reader => READERS,
            Self::Permits(_) => PERMITS.into(),
        }
    }
}

/// How long a task waits.
#[derive(Clone, Copy, Debug)]
enum Patience {
    Once,
    For(Duration),
    Unlimited,
}

/// One task of a process.
pub(crate) struct Task {
    pub(crate) world: Arc<World>,
    pub(crate) link: Link,
    pub(crate) client: LockClient<Link>,
    pub(crate) number: usize,
    pub(crate) profile: Profile,
    pub(crate) rng: Rng,
}

impl Task {
    pub(crate) async fn run(mut self) {
        for _ in 0..self.profile.rounds {
            self.link.awake().await;
            let wanted = Wanted::draw(&mut self.rng);
            match self.acquire(wanted).await {
                Some(taken) => self.hold(wanted, taken).await,
                None => self.pause(300).await,
            }
        }
    }

    async fn acquire(&mut self, wanted: Wanted) -> Option<Taken> {
        let mut options = self.profile.options.clone();
        if self.rng.u8(..5) == 0 {
            options = options.ttl(Duration::from_millis(self.rng.u64(300..2_000)));
        }
        let wait = Duration::from_millis(self.rng.u64(1..2_500));
        let (client, asked_at) = (self.client.clone(), Instant::now());
        match self.rng.u8(..5) {
            0 => take(&client, wanted, options, Patience::Once).await.ok().flatten(),
            1 => {
                let polls = self.rng.usize(..12);
                let taken = take(&client, wanted, options, Patience::For(wait));
                dropped_after(polls, taken).await?.ok().flatten()
            }
            2 => {
                let taken = take(&client, wanted, options, Patience::Unlimited);
                timeout(wait, taken).await.ok()?.ok().flatten()
            }
            _ => {
                let taken = take(&client, wanted, options, Patience::For(wait)).await;
                self.judge_wait(asked_at, wait);
                taken.ok().flatten()
            }
        }
    }

    /// A process that did not run may be late.
    fn judge_wait(&self, asked_at: Instant, wait: Duration) {
        let waited = asked_at.elapsed();
        let asked_at = asked_at - self.world.zero();
        let paused = |incident: &Incident| {
            let fault = Fault::Pause { client: self.number };
            incident.fault == fault && incident.end() >= asked_at && incident.at <= self.world.now()
        };
        if waited > wait + wait / 50 + LATE && !self.world.incidents.iter().any(paused) {
            self.world.judge.violate(format!("V5: a wait of {wait:?} took {waited:?}"));
        }
    }

    async fn hold(&mut self, wanted: Wanted, taken: Taken) {
        let now = self.world.now();
        let exclusive = !matches!(wanted, Wanted::Reader | Wanted::Permits(_) | Wanted::Reentrant);
        let taken = self.world.judge.entered(taken, |guard| wanted.limit(guard), exclusive, now);
        let until = Instant::now() + Duration::from_millis(self.rng.u64(1..2_600));
        let mut was_lost = false;
        while Instant::now() < until && !was_lost {
            self.pause(120).await;
            self.link.awake().await;
            self.world.judge.check(self.world.now());
            let is_held = taken.is_held();
            for guard in taken.guards() {
                if exclusive && guard.is_held() {
                    self.world.judge.write(guard, self.world.now());
                }
                if self.rng.u8(..8) == 0 {
                    self.extend(guard).await;
                }
            }
            was_lost = !is_held;
        }
        if was_lost {
            // A reply that is late must not revive it.
            self.pause(600).await;
        }
        if was_lost && taken.is_held() {
            self.world.judge.violate("V4: a lost lease is held again".to_owned());
        }
        let taken = Arc::into_inner(taken).expect("the judge only looks at it");
        self.end(taken).await;
    }

    async fn extend(&mut self, guard: &LockGuard) {
        let ttl = Duration::from_millis(self.rng.u64(200..Profile::LONGEST));
        let patience = Duration::from_millis(self.rng.u64(1..400));
        // The call may be dropped, refused or unanswered: the deadline tells.
        drop(timeout(patience, guard.extend(ttl)).await);
        self.world.judge.check(self.world.now());
    }

    async fn end(&mut self, taken: Taken) {
        match self.rng.u8(..3) {
            0 => drop(taken),
            1 => {
                let polls = self.rng.usize(..6);
                drop(dropped_after(polls, taken.release()).await);
            }
            _ => drop(taken.release().await),
        }
    }

    async fn pause(&mut self, longest: u64) {
        sleep(Duration::from_micros(self.rng.u64(1_000..longest * 1_000))).await;
    }
}

async fn take(
    client: &LockClient<Link>,
    wanted: Wanted,
    options: LockOptions,
    patience: Patience,
) -> Result<Option<Taken>, Error> {
    let one = |guard: Option<LockGuard>| guard.map(Taken::One);
    let writer = |guard: Option<WriteGuard>| guard.map(|guard| Taken::One(guard.into_guard()));
    match wanted {
        Wanted::Mutex(key) => {
            let mutex = client.mutex(key)?.with_options(options)?;
            match patience {
                Patience::Once => mutex.try_lock().await.map(one),
                Patience::For(wait) => mutex.try_lock_for(wait).await.map(one),
                Patience::Unlimited => mutex.lock().await.map(Some).map(one),
            }
        }
        Wanted::Both => {
            let both = client.multi_lock().with_options(options)?.mutexes([KEYS[1], KEYS[0]])?;
            let several = |guard: Option<MultiGuard>| guard.map(Taken::Several);
            match patience {
                Patience::Once => both.try_lock().await.map(several),
                Patience::For(wait) => both.try_lock_for(wait).await.map(several),
                Patience::Unlimited => both.lock().await.map(Some).map(several),
            }
        }
        Wanted::Reentrant => {
            let mutex = client.reentrant_mutex(KEYS[2])?.with_options(options)?;
            let owner = OwnerId::new();
            match patience {
                Patience::Once => owner.scope(mutex.try_lock()).await.map(one),
                Patience::For(wait) => owner.scope(mutex.try_lock_for(wait)).await.map(one),
                Patience::Unlimited => owner.scope(mutex.lock()).await.map(Some).map(one),
            }
        }
        Wanted::Reader => {
            let lock = client.rw_lock(KEYS[3])?.with_options(options)?;
            match patience {
                Patience::Once => lock.try_read().await.map(one),
                Patience::For(wait) => lock.try_read_for(wait).await.map(one),
                Patience::Unlimited => lock.read().await.map(Some).map(one),
            }
        }
        Wanted::Writer => {
            let lock = client.rw_lock(KEYS[3])?.with_options(options)?;
            match patience {
                Patience::Once => lock.try_write().await.map(writer),
                Patience::For(wait) => lock.try_write_for(wait).await.map(writer),
                Patience::Unlimited => lock.write().await.map(Some).map(writer),
            }
        }
        Wanted::Permits(permits) => {
            let semaphore = client.semaphore(KEYS[4], PERMITS)?.with_options(options)?;
            match patience {
                Patience::Once => semaphore.try_acquire(permits).await.map(one),
                Patience::For(wait) => semaphore.try_acquire_for(permits, wait).await.map(one),
                Patience::Unlimited => semaphore.acquire(permits).await.map(Some).map(one),
            }
        }
    }
}

/// Polls a future at most so many times, and drops it then: a call may be cancelled at every await.
async fn dropped_after<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    std::future::poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        future.as_mut().poll(cx).map(Some)
    })
    .await
}
