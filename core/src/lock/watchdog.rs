//! Stage 4: renews all leases of a client, in batches, and ends those whose deadline passes.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU64;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tracing::Instrument;

use crate::backend::{Capabilities, Feature, Lease, LockBackend, Operation};
use crate::clock::{self, Clock, Instant};
use crate::lock::hold::{Alarm, BATCH, Hold, Place, Renewing};
use crate::lock::reaper::{Debt, Reaper};
use crate::observe::{self, Events};
use crate::sync::{Mutex, lock};

/// Leases whose renewal is under way at once: enough that slow ones, which go alone, leave room for the others.
const MAX_UNDER_WAY: usize = 8 * BATCH;

/// Renewals that share a request, at least one and at most [`BATCH`].
type Batch = Vec<(Renewing, Lease)>;

/// What watches over the leases of one client.
#[derive(Debug)]
pub(crate) struct Watchdog {
    clock: Arc<dyn Clock>,
    schedule: Mutex<Schedule>,
    alarm: Arc<Alarm>,
    events: Events,
}

#[derive(Debug)]
struct Schedule {
    /// By when they are due: for renewal, or at their deadline.
    holds: BTreeMap<Place, Arc<Hold>>,
    next_id: NonZeroU64,
    /// When all with a TTL fall due for renewal, however far apart they would, where one renewal serves them all: if the store has
    /// sessions.
    rounds: Option<HashMap<Duration, Instant>>,
    /// When a task looks again by itself: no task without a call looks later, except one without room for more renewals.
    wakes_at: Instant,
}

impl Watchdog {
    pub(crate) fn new(clock: Arc<dyn Clock>, store: &Capabilities, events: Events) -> Self {
        let schedule = Schedule {
            holds: BTreeMap::new(),
            next_id: NonZeroU64::MIN,
            rounds: store.supports(Feature::Sessions).then(HashMap::new),
            wakes_at: Instant::FAR_FUTURE,
        };
        Self { clock, schedule: Mutex::new(schedule), alarm: Arc::default(), events }
    }

    pub(crate) fn alarm(&self) -> &Arc<Alarm> {
        &self.alarm
    }

    /// Begins to watch over `hold`.
    pub(crate) fn add(&self, hold: &Arc<Hold>) {
        hold.listen(self.clock.now());
        self.file([hold]);
    }

    /// Files `holds` anew, after their due times have changed.
    pub(crate) fn file<'a>(&self, holds: impl IntoIterator<Item = &'a Arc<Hold>>) {
        let mut schedule = lock(&self.schedule);
        let first = holds.into_iter().filter_map(|hold| schedule.file(hold, &*self.clock)).min();
        if first.is_some_and(|first| first < schedule.wakes_at) {
            drop(schedule);
            self.alarm.wake();
        }
    }

    /// Stops watching over `hold`, which must be over; `false` if that was done before.
    pub(crate) fn remove(&self, hold: &Hold) -> bool {
        lock(&self.schedule).remove(hold)
    }

    /// All leases in force.
    pub(crate) fn holds(&self) -> Vec<Arc<Hold>> {
        lock(&self.schedule).holds.values().cloned().collect()
    }

    /// The task, of which each runtime has one: the one that runs first renews the leases that are due. It ends only by being dropped.
    ///
    /// It leaves to `reaper` each lost lease that the store may keep alive together with others.
    pub(crate) async fn run(&self, backend: &dyn LockBackend, reaper: &Arc<Reaper>) {
        let (mut batches, mut under_way) = (FuturesUnordered::new(), 0);
        loop {
            let mut heard = pin!(self.alarm.heard());
            self.answer_alarms();
            while under_way < MAX_UNDER_WAY {
                let due = self.due();
                if due.is_empty() {
                    break;
                }
                for batch in self.start(due, reaper) {
                    under_way += batch.len();
                    batches.push(self.renew(backend, batch));
                }
            }
            let wakes_at = self.next_look(under_way < MAX_UNDER_WAY);
            // In one order, so that equal schedules have equal runs: each turn of the loop looks at everything.
            tokio::select! {
                biased;
                Some(renewed) = batches.next() => under_way -= renewed,
                () = self.clock.sleep_until(wakes_at) => {}
                () = &mut heard => {}
            }
        }
    }

    fn answer_alarms(&self) {
        for hold in self.alarm.answer() {
            hold.listen(self.clock.now());
            self.file([&hold]);
        }
    }

    /// Some of those that are due, the earliest first. They stay where they are filed until they are filed anew, so that a
    /// shutdown misses none.
    fn due(&self) -> Vec<Arc<Hold>> {
        let now = self.clock.now();
        let schedule = lock(&self.schedule);
        let due = schedule.holds.range(..=(now, NonZeroU64::MAX));
        due.take(BATCH).map(|(_, hold)| Arc::clone(hold)).collect()
    }

    /// Begins the renewals that are due, the earliest deadline first, and ends leases that are past theirs.
    fn start(&self, due: Vec<Arc<Hold>>, reaper: &Arc<Reaper>) -> Vec<Batch> {
        let now = self.clock.now();
        let mut renewals = Vec::with_capacity(due.len());
        for hold in &due {
            match hold.start_renewal(now) {
                Some(renewal) => renewals.push(renewal),
                None if hold.may_outlast_its_loss(now) && self.has_sessions() => {
                    // Its guards may be there for long.
                    let mut debt = Debt::new(hold.unwanted(), reaper);
                    debt.incur();
                    if !self.remove(hold) {
                        debt.forgive();
                    }
                }
                None => {}
            }
        }
        self.file(&due);
        in_batches(renewals)
    }

    /// Whether the store keeps leases alive together.
    fn has_sessions(&self) -> bool {
        lock(&self.schedule).rounds.is_some()
    }

    /// When to look again: when the next lease is due, unless there is no room to renew it.
    fn next_look(&self, has_room: bool) -> Instant {
        let mut schedule = lock(&self.schedule);
        let next_due = schedule.holds.keys().next().map(|(due, _)| *due);
        schedule.wakes_at = match next_due {
            Some(due) if has_room => due,
            _ => Instant::FAR_FUTURE,
        };
        schedule.wakes_at
    }

    /// Renews a batch, and tells how many leases it was.
    ///
    /// A lease with a shorter time limit than the batch falls due again meanwhile.
    async fn renew(&self, backend: &dyn LockBackend, batch: Batch) -> usize {
        let of = batch.len();
        let sent = batch.into_iter().map(|(renewing, lease)| (renewing.in_company_of(of), lease));
        let (mut batch, leases): (Vec<Renewing>, Vec<Lease>) = sent.unzip();
        let give_up = batch.iter().map(Renewing::attempt_end).max().unwrap_or(Instant::FAR_FUTURE);
        // A backend that panics must not take the watchdog of all leases along.
        let replies = AssertUnwindSafe(backend.renew_all(&leases)).catch_unwind();
        let replies = replies.instrument(observe::renew_span(of));
        let replies = clock::until(&*self.clock, give_up, replies).await;
        let now = self.clock.now();
        let mut replies = replies.and_then(Result::ok).into_iter().flatten();
        // The first failure speaks for the request.
        let mut heard = Some(Ok(()));
        for renewing in &mut batch {
            let reply = replies.next();
            renewing.settle(reply.as_ref(), now);
            if matches!(heard, Some(Ok(()))) {
                heard = reply.map(|reply| reply.map(drop));
            }
        }
        self.events.heard(Operation::Renew, heard.as_ref(), &*self.clock);
        self.file(batch.iter().map(Renewing::hold));
        of
    }
}

/// Divides renewals into requests: those that share one wait for its reply for about as long, and have no more company than they may.
fn in_batches(mut renewals: Vec<(Renewing, Lease)>) -> Vec<Batch> {
    let group = |(renewing, _): &(Renewing, Lease)| (renewing.class(), renewing.company());
    let deadline = |(renewing, _): &(Renewing, Lease)| renewing.hold().deadline();
    renewals.sort_by_cached_key(|renewal| (group(renewal), deadline(renewal)));
    let mut batches: Vec<Batch> = Vec::new();
    for renewal in renewals {
        let (_, company) = group(&renewal);
        match batches.last_mut() {
            Some(batch) if group(&batch[0]) == group(&renewal) && batch.len() < company => {
                batch.push(renewal);
            }
            _ => batches.push(vec![renewal]),
        }
    }
    batches.sort_by_cached_key(|batch| deadline(&batch[0]));
    batches
}

impl Schedule {
    /// Files `hold` where it belongs now; `None` if it is over.
    fn file(&mut self, hold: &Arc<Hold>, clock: &dyn Clock) -> Option<Instant> {
        self.remove(hold);
        let due = self.round(hold, hold.due()?, clock);
        let place = (due, self.next_id);
        self.next_id = self.next_id.saturating_add(1);
        *lock(hold.filed()) = Some(place);
        self.holds.insert(place, Arc::clone(hold));
        Some(due)
    }

    /// When `hold` is looked at if it is due then: earlier than it need be, if others are renewed anyway.
    fn round(&mut self, hold: &Hold, due: Instant, clock: &dyn Clock) -> Instant {
        let Some(rounds) = &mut self.rounds else { return due };
        let Some(ttl) = hold.renews_next() else { return due };
        let now = clock.now();
        rounds.retain(|_, round| now < *round);
        let round = rounds.entry(ttl).or_insert(due);
        *round = due.min(*round);
        *round
    }

    fn remove(&mut self, hold: &Hold) -> bool {
        let place = lock(hold.filed()).take();
        place.is_some_and(|place| self.holds.remove(&place).is_some())
    }
}
