//! Stage 4: renews all leases of a client, in batches, and ends those whose deadline passes.
//!
//! A lease is young at first: it has a place in a list, no due time, and no task that wakes up for it or for news of it. The watchdog takes
//! charge of the leases that come of age. Loss needs no watchdog, since every look at a hold compares its deadline with the clock.

mod pause;
mod schedule;

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tracing::Instrument;

use self::pause::Pauses;
use self::schedule::Schedule;
use crate::clock::{self, Clock, Instant};
use crate::contract::backend::{Capabilities, Feature, Lease, LockBackend, Operation};
use crate::contract::error::{Error, ErrorKind};
use crate::engine::hold::{Alarm, BATCH, Hold, Renewing};
use crate::engine::reaper::{Debt, Reaper};
use crate::observe::{self, Events};
use crate::sync::{Mutex, lock};

/// Leases whose renewal is under way at once: enough that slow ones, which go alone, leave room for the others.
const MAX_UNDER_WAY: usize = 8 * BATCH;

/// Renewals that share a request, at least one and at most [`BATCH`].
type Batch = Vec<(Renewing, Lease)>;

/// The watchdog over the leases of one client.
#[derive(Debug)]
pub(crate) struct Watchdog {
    clock: Arc<dyn Clock>,
    schedule: Mutex<Schedule>,
    pauses: Pauses,
    alarm: Arc<Alarm<Hold>>,
    events: Events,
}

impl Watchdog {
    pub(crate) fn new(clock: Arc<dyn Clock>, store: &Capabilities, events: Events) -> Self {
        let schedule = Mutex::new(Schedule::new(store.supports(Feature::Sessions)));
        let pauses = Pauses::new(&*clock);
        Self { clock, schedule, pauses, alarm: Arc::default(), events }
    }

    pub(crate) fn alarm(&self) -> &Arc<Alarm<Hold>> {
        &self.alarm
    }

    /// Begins to watch over `hold`.
    pub(crate) fn add(&self, hold: &Arc<Hold>) {
        if lock(&self.schedule).add(hold) {
            self.alarm.wake();
        }
    }

    /// Files `holds` anew, after their due times have changed.
    pub(crate) fn file<'a>(&self, holds: impl IntoIterator<Item = &'a Arc<Hold>>) {
        self.file_by(Schedule::file, holds);
    }

    fn file_by<'a>(
        &self,
        file: impl Fn(&mut Schedule, &Arc<Hold>, Instant) -> bool,
        holds: impl IntoIterator<Item = &'a Arc<Hold>>,
    ) {
        let now = self.clock.now();
        let mut schedule = lock(&self.schedule);
        let mut is_early = false;
        for hold in holds {
            is_early |= file(&mut schedule, hold, now);
        }
        drop(schedule);
        if is_early {
            self.alarm.wake();
        }
    }

    /// Stops watching over `hold`, which must be over; `false` if that was done before.
    pub(crate) fn remove(&self, hold: &Hold) -> bool {
        lock(&self.schedule).remove(hold)
    }

    /// All leases in force.
    pub(crate) fn holds(&self) -> Vec<Arc<Hold>> {
        lock(&self.schedule).holds().cloned().collect()
    }

    /// The task, of which each runtime has one: the one that runs first renews the leases that are due. It ends only by being dropped.
    ///
    /// It leaves to `reaper` each lost lease that the store may keep alive together with others.
    pub(crate) async fn run(&self, backend: &dyn LockBackend, reaper: &Arc<Reaper>) {
        let (mut batches, mut under_way) = (FuturesUnordered::new(), 0);
        loop {
            let mut heard = pin!(self.alarm.heard());
            self.take_charge();
            self.notice_pause();
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

    /// Listens for news of the leases that have come of age, or that the alarm was rung for, and files them by when they are due.
    fn take_charge(&self) {
        let now = self.clock.now();
        let mut holds = self.alarm.answer();
        holds.extend(lock(&self.schedule).of_age(now));
        if holds.is_empty() {
            return;
        }
        holds.iter().for_each(|hold| hold.listen(now));
        self.file_by(Schedule::file_by_due_time, &holds);
    }

    /// Has all leases renewed now if the machine seems to have been paused from outside.
    fn notice_pause(&self) {
        if !self.pauses.notice(&*self.clock) {
            return;
        }
        let (holds, now) = (self.holds(), self.clock.now());
        let message = "the time of day has advanced by at least 1 s more than the clock since boot; the machine may have been paused";
        let reason = Error::new(ErrorKind::Unavailable, message);
        for hold in &holds {
            hold.listen(now);
            hold.doubt(&reason, now);
        }
        self.file_by(Schedule::file_by_due_time, &holds);
    }

    /// When the task looks next, if nothing happens before.
    fn next_look(&self, has_room: bool) -> Instant {
        let mut schedule = lock(&self.schedule);
        let next = schedule.next_look(has_room);
        let may_be_paused = schedule.holds().next().is_some() && self.clock.time_of_day().is_some();
        if may_be_paused { next.min(self.clock.now() + pause::LOOK_EVERY) } else { next }
    }

    /// Some of those that are due.
    fn due(&self) -> Vec<Arc<Hold>> {
        lock(&self.schedule).due(self.clock.now(), BATCH)
    }

    /// Begins the renewals that are due, the earliest deadline first, and ends leases that are past theirs.
    fn start(&self, due: Vec<Arc<Hold>>, reaper: &Arc<Reaper>) -> Vec<Batch> {
        let now = self.clock.now();
        let has_sessions = lock(&self.schedule).has_sessions();
        let mut renewals = Vec::with_capacity(due.len());
        for hold in &due {
            match hold.start_renewal(now) {
                Some(renewal) => renewals.push(renewal),
                None if hold.may_outlast_its_loss(now) && has_sessions => {
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
