//! Stage 4: one task per client renews all leases, in batches, and ends those whose deadline passes.

use std::collections::{BTreeMap, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};

use crate::backend::LockBackend;
use crate::capabilities::{Capabilities, Feature};
use crate::clock::{self, Clock, Instant};
use crate::lease::Lease;
use crate::lock::hold::{Alarm, Hold, Place, Renewing};
use crate::sync::lock;

/// Leases renewed together. Enough to make the round trip cheap per lease, and few enough that one
/// batch does not keep a store busy for long (a few hundred microseconds for Redis).
const BATCH: usize = 256;

/// Batches under way at once. A slow one leaves room for the others.
const MAX_BATCHES: usize = 8;

/// What watches over the leases of one client.
#[derive(Debug)]
pub(crate) struct Watchdog {
    clock: Arc<dyn Clock>,
    schedule: Mutex<Schedule>,
    alarm: Arc<Alarm>,
}

#[derive(Debug)]
struct Schedule {
    /// By when they are due: for renewal, or at their deadline.
    holds: BTreeMap<Place, Arc<Hold>>,
    next_id: u64,
    /// When those that fall due for renewal with a TTL do so together, where that saves something.
    rounds: Option<HashMap<Duration, Instant>>,
    /// When the task looks again by itself.
    wakes_at: Instant,
}

impl Watchdog {
    pub(crate) fn new(clock: Arc<dyn Clock>, store: &Capabilities) -> Self {
        let schedule = Schedule {
            holds: BTreeMap::new(),
            next_id: 0,
            rounds: store.supports(Feature::Sessions).then(HashMap::new),
            wakes_at: Instant::FAR_FUTURE,
        };
        Self { clock, schedule: Mutex::new(schedule), alarm: Arc::default() }
    }

    pub(crate) fn alarm(&self) -> &Arc<Alarm> {
        &self.alarm
    }

    /// Begins to watch over `hold`.
    pub(crate) fn add(&self, hold: &Arc<Hold>) {
        hold.listen();
        self.file(hold);
    }

    /// Files `hold` anew, after its due time has changed.
    pub(crate) fn file(&self, hold: &Arc<Hold>) {
        let now = self.clock.now();
        let mut schedule = lock(&self.schedule);
        schedule.remove(hold);
        if hold.is_over(now) {
            return;
        }
        let due = schedule.round(hold, now);
        schedule.insert(due, hold);
        if due < schedule.wakes_at {
            drop(schedule);
            self.alarm.wake();
        }
    }

    /// Stops watching over `hold`, which must be over.
    pub(crate) fn remove(&self, hold: &Hold) {
        lock(&self.schedule).remove(hold);
    }

    /// All leases in force.
    pub(crate) fn holds(&self) -> Vec<Arc<Hold>> {
        lock(&self.schedule).holds.values().cloned().collect()
    }

    /// The task. It ends only by being dropped.
    pub(crate) async fn run(&self, backend: &dyn LockBackend) {
        let mut batches = FuturesUnordered::new();
        loop {
            self.answer_alarms();
            while batches.len() < MAX_BATCHES {
                let due = self.take_due();
                if due.is_empty() {
                    break;
                }
                batches.extend(self.start(due).into_iter().map(|batch| self.renew(backend, batch)));
            }
            let wakes_at = self.next_look(batches.len());
            tokio::select! {
                Some(()) = batches.next() => {}
                () = self.clock.sleep_until(wakes_at) => {}
                () = self.alarm.heard() => {}
            }
        }
    }

    fn answer_alarms(&self) {
        for hold in self.alarm.answer() {
            hold.listen();
            self.file(&hold);
        }
    }

    fn take_due(&self) -> Vec<Arc<Hold>> {
        lock(&self.schedule).take_due(self.clock.now())
    }

    /// Begins the renewals that are due, the earliest deadline first, and ends leases that are past theirs.
    ///
    /// One batch, and one more for each lease whose renewal got no reply the last time.
    fn start(&self, due: Vec<Arc<Hold>>) -> Vec<Vec<Renewing>> {
        let now = self.clock.now();
        let mut batch = Vec::with_capacity(due.len());
        let mut batches = Vec::new();
        for hold in due {
            let renewing = hold.start_renewal(now);
            self.file(&hold);
            if hold.renews_alone() {
                batches.extend(renewing.map(|renewing| vec![renewing]));
            } else {
                batch.extend(renewing);
            }
        }
        if !batch.is_empty() {
            batch.sort_by_key(|renewing: &Renewing| renewing.hold().deadline());
            batches.insert(0, batch);
        }
        batches
    }

    /// When to look again: when the next lease is due, unless there is no room to renew it.
    fn next_look(&self, batches: usize) -> Instant {
        let mut schedule = lock(&self.schedule);
        let next_due = schedule.holds.keys().next().map(|(due, _)| *due);
        schedule.wakes_at = match next_due {
            Some(due) if batches < MAX_BATCHES => due,
            _ => Instant::FAR_FUTURE,
        };
        schedule.wakes_at
    }

    async fn renew(&self, backend: &dyn LockBackend, batch: Vec<Renewing>) {
        let give_up = batch.iter().map(Renewing::attempt_end).min().unwrap_or(Instant::FAR_FUTURE);
        let leases: Vec<Lease> = batch.iter().map(|renewing| renewing.lease().clone()).collect();
        // A backend that panics must not take the watchdog of all leases along.
        let replies = AssertUnwindSafe(backend.renew_all(&leases)).catch_unwind();
        let replies = clock::until(&*self.clock, give_up, replies).await;
        let now = self.clock.now();
        let mut replies = replies.and_then(Result::ok).into_iter().flatten();
        let (of, mut failed, mut first_error) = (batch.len(), 0, None);
        for renewing in batch {
            let hold = Arc::clone(renewing.hold());
            match replies.next() {
                Some(Ok(renewal)) => renewing.settle(Some(renewal), now),
                Some(Err(error)) => {
                    failed += 1;
                    first_error.get_or_insert(error);
                    renewing.settle(None, now);
                }
                None => {
                    failed += 1;
                    renewing.give_up(now);
                }
            }
            self.file(&hold);
        }
        if failed > 0 {
            let error =
                first_error.map_or_else(|| "no reply in time".to_owned(), |e| e.to_string());
            tracing::warn!(failed, of, %error, "leases not renewed, trying until their deadlines");
        }
    }
}

impl Schedule {
    /// When `hold` is due: earlier than it need be, if others are renewed then anyway.
    fn round(&mut self, hold: &Hold, now: Instant) -> Instant {
        let due = hold.due();
        let (Some(rounds), Some(ttl)) = (&mut self.rounds, hold.renews_next()) else {
            return due;
        };
        rounds.retain(|_, round| now < *round);
        let round = rounds.entry(ttl).or_insert(due);
        *round = due.min(*round);
        *round
    }

    fn insert(&mut self, due: Instant, hold: &Arc<Hold>) {
        let place = (due, self.next_id);
        self.next_id += 1;
        *lock(hold.filed()) = Some(place);
        self.holds.insert(place, Arc::clone(hold));
    }

    fn remove(&mut self, hold: &Hold) {
        if let Some(place) = lock(hold.filed()).take() {
            self.holds.remove(&place);
        }
    }

    fn take_due(&mut self, now: Instant) -> Vec<Arc<Hold>> {
        let mut due = Vec::new();
        while due.len() < BATCH
            && let Some(first) = self.holds.first_entry()
            && first.key().0 <= now
        {
            let hold = first.remove();
            lock(hold.filed()).take();
            due.push(hold);
        }
        due
    }
}
