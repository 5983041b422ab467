//! Stage 4 of the pipeline: the watchdog, which renews all leases of a client in batches and ends
//! leases whose deadline has passed.
//!
//! During a lease's first 50 ms, the watchdog only keeps the lease in a list, and neither schedules
//! renewals nor handles notifications for it. The detection of a loss does not depend on the
//! watchdog, because every query of a lease's state compares the deadline with the clock.

mod pause;
mod schedule;

use std::future::ready;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tracing::Instrument;

use self::pause::Pauses;
use self::schedule::Schedule;
use crate::clock::{self, Clock, Instant};
use crate::contract::backend::{Capabilities, Feature, Lease, LockBackend, Operation, Renewal};
use crate::contract::error::{Error, ErrorKind};
use crate::engine::hold::{Alarm, Hold, MAX_BATCH, Renewing};
use crate::engine::reaper::{PendingRelease, Reaper};
use crate::observe::{self, Events};
use crate::sync::{Mutex, lock};

/// The maximum number of leases with a renewal in progress. Slow renewals run in small batches, and
/// the limit leaves capacity for all other renewals.
const MAX_UNDER_WAY: usize = 8 * MAX_BATCH as usize;

/// Renewals that share a request. A batch contains at least one and at most [`MAX_BATCH`] renewals.
type Batch = Vec<(Renewing, Lease)>;

/// The watchdog for the leases of one client.
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

    /// Starts watching `hold`.
    pub(crate) fn add(&self, hold: &Arc<Hold>) {
        if lock(&self.schedule).add(hold) {
            self.alarm.wake();
        }
    }

    /// Updates the schedule for `holds` after their due times have changed.
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

    /// Stops watching `hold`, which must be over. Returns `false` if `hold` was already removed.
    pub(crate) fn remove(&self, hold: &Hold) -> bool {
        lock(&self.schedule).remove(hold)
    }

    /// Returns all leases that are in force.
    pub(crate) fn holds(&self) -> Vec<Arc<Hold>> {
        lock(&self.schedule).holds().cloned().collect()
    }

    /// Runs the watchdog's task. Each runtime has one such task, and the first task to run renews
    /// the leases that are due. The task ends only when it is dropped.
    ///
    /// A lost lease may stay in force in the store together with other leases of its session. The
    /// task passes such a lease to `reaper`.
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
            // Polled in a fixed order, so that equal schedules lead to equal runs. Each iteration
            // checks everything.
            tokio::select! {
                biased;
                Some(renewed) = batches.next() => under_way -= renewed,
                () = self.clock.sleep_until(wakes_at) => {}
                () = &mut heard => {}
            }
        }
    }

    /// Starts to handle leases that are old enough or that triggered the alarm. Subscribes to their
    /// notifications and adds them to the schedule by due time.
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

    /// Makes all leases due for renewal if the whole machine appears to have been paused.
    fn notice_pause(&self) {
        if !self.pauses.notice(&*self.clock) {
            return;
        }
        let (holds, now) = (self.holds(), self.clock.now());
        let message = "the wall clock has advanced at least 1 s more than the boot-time clock; the machine may have been paused";
        let reason = Error::new(ErrorKind::Unavailable, message);
        for hold in &holds {
            hold.listen(now);
            hold.doubt(&reason, now);
        }
        self.file_by(Schedule::file_by_due_time, &holds);
    }

    /// Returns when the task must run next if nothing happens before then.
    fn next_look(&self, has_room: bool) -> Instant {
        let mut schedule = lock(&self.schedule);
        let next = schedule.next_look(has_room);
        let may_be_paused = schedule.holds().next().is_some() && self.clock.time_of_day().is_some();
        if may_be_paused { next.min(self.clock.now() + pause::LOOK_EVERY) } else { next }
    }

    /// Returns some of the leases that are due.
    fn due(&self) -> Vec<Arc<Hold>> {
        lock(&self.schedule).due(self.clock.now(), usize::from(MAX_BATCH))
    }

    /// Starts the renewals that are due, in the order of their deadlines, and ends leases whose
    /// deadline has passed.
    fn start(&self, due: Vec<Arc<Hold>>, reaper: &Arc<Reaper>) -> Vec<Batch> {
        let now = self.clock.now();
        let has_sessions = lock(&self.schedule).has_sessions();
        let mut renewals = Vec::with_capacity(due.len());
        for hold in &due {
            match hold.start_renewal(now) {
                Some(renewal) => renewals.push(renewal),
                None if hold.may_outlast_its_loss(now) && has_sessions => {
                    // The lost lease's guards may exist for a long time, so release the lease in
                    // the store now.
                    let mut release = PendingRelease::new(Arc::clone(hold), reaper);
                    release.arm();
                    if !self.remove(hold) {
                        release.disarm();
                    }
                }
                None => {}
            }
        }
        self.file(&due);
        in_batches(renewals)
    }

    /// Renews a batch and returns the number of its leases.
    ///
    /// A lease with a shorter time limit than the batch becomes due again in the meantime.
    async fn renew(&self, backend: &dyn LockBackend, batch: Batch) -> usize {
        let of = batch.len();
        let size = u16::try_from(of).unwrap_or(MAX_BATCH);
        let sent =
            batch.into_iter().map(|(renewing, lease)| (renewing.with_batch_size(size), lease));
        let (mut batch, leases): (Vec<Renewing>, Vec<Lease>) = sent.unzip();
        let give_up = batch.iter().map(Renewing::attempt_end).max().unwrap_or(Instant::FAR_FUTURE);
        // If the backend panics, the watchdog must continue for all other leases.
        let replies = match flaw!("renewals-not-sent") {
            true => Box::pin(ready(leases.iter().map(|_| Ok(Renewal::Renewed)).collect())),
            false => backend.renew_all(&leases),
        };
        let replies = AssertUnwindSafe(replies).catch_unwind();
        let replies = replies.instrument(observe::renew_span(of));
        let replies = clock::until(&*self.clock, give_up, replies).await;
        let now = self.clock.now();
        let mut replies = replies.and_then(Result::ok).into_iter().flatten();
        // The first error is reported for the whole request.
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

/// Divides renewals into requests. All renewals in a request have similar time limits, and no
/// request is larger than the batch size of any of its leases.
fn in_batches(mut renewals: Vec<(Renewing, Lease)>) -> Vec<Batch> {
    let group = |(renewing, _): &(Renewing, Lease)| (renewing.class(), renewing.batch_size());
    let deadline = |(renewing, _): &(Renewing, Lease)| renewing.hold().deadline();
    renewals.sort_by_cached_key(|renewal| (group(renewal), deadline(renewal)));
    let mut batches: Vec<Batch> = Vec::new();
    for renewal in renewals {
        let (_, size) = group(&renewal);
        match batches.last_mut() {
            Some(batch)
                if group(&batch[0]) == group(&renewal) && batch.len() < usize::from(size) =>
            {
                batch.push(renewal);
            }
            _ => batches.push(vec![renewal]),
        }
    }
    batches.sort_by_cached_key(|batch| deadline(&batch[0]));
    batches
}
