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

use self::pause::PauseDetector;
use self::schedule::Schedule;
use crate::clock::{self, Clock, Instant};
use crate::contract::backend::{Capabilities, Feature, Lease, LockBackend, Operation, Renewal};
use crate::contract::error::{Error, ErrorKind};
use crate::engine::record::{LeaseRecord, MAX_BATCH, SentRenewal, WakeList};
use crate::engine::releases::{PendingRelease, ReleaseQueue};
use crate::observe::{self, Events};
use crate::sync::{Mutex, lock};

/// The maximum number of leases with a renewal in progress. Slow renewals run in small batches, and
/// the limit leaves capacity for all other renewals.
const MAX_UNDER_WAY: usize = 8 * MAX_BATCH as usize;

/// Renewals that share a request. A batch contains at least one and at most [`MAX_BATCH`] renewals.
type Batch = Vec<(SentRenewal, Lease)>;

/// The watchdog for the leases of one client.
#[derive(Debug)]
pub(crate) struct Watchdog {
    clock: Arc<dyn Clock>,
    schedule: Mutex<Schedule>,
    pauses: PauseDetector,
    wake_list: Arc<WakeList>,
    events: Events,
}

impl Watchdog {
    pub(crate) fn new(clock: Arc<dyn Clock>, store: &Capabilities, events: Events) -> Self {
        let schedule = Mutex::new(Schedule::new(store.supports(Feature::Sessions)));
        let pauses = PauseDetector::new(&*clock);
        Self { clock, schedule, pauses, wake_list: Arc::default(), events }
    }

    pub(crate) fn wake_list(&self) -> &Arc<WakeList> {
        &self.wake_list
    }

    /// Starts watching `record`.
    pub(crate) fn add(&self, record: &Arc<LeaseRecord>) {
        if lock(&self.schedule).add(record) {
            self.wake_list.wake();
        }
    }

    /// Updates the schedule for `records` after their due times have changed.
    pub(crate) fn file<'a>(&self, records: impl IntoIterator<Item = &'a Arc<LeaseRecord>>) {
        self.file_by(Schedule::file, records);
    }

    fn file_by<'a>(
        &self,
        file: impl Fn(&mut Schedule, &Arc<LeaseRecord>, Instant) -> bool,
        records: impl IntoIterator<Item = &'a Arc<LeaseRecord>>,
    ) {
        let now = self.clock.now();
        let mut schedule = lock(&self.schedule);
        let mut is_early = false;
        for record in records {
            is_early |= file(&mut schedule, record, now);
        }
        drop(schedule);
        if is_early {
            self.wake_list.wake();
        }
    }

    /// Stops watching `record`, which must be over. Returns `false` if `record` was already
    /// removed.
    pub(crate) fn remove(&self, record: &LeaseRecord) -> bool {
        lock(&self.schedule).remove(record)
    }

    /// Returns all leases that are in force.
    pub(crate) fn records(&self) -> Vec<Arc<LeaseRecord>> {
        lock(&self.schedule).records().cloned().collect()
    }

    /// Runs the watchdog's task. Each runtime has one such task, and the first task to run renews
    /// the leases that are due. The task ends only when it is dropped.
    ///
    /// A lost lease may stay in force in the store together with other leases of its session. The
    /// task adds the release of such a lease to `releases`.
    pub(crate) async fn run(&self, backend: &dyn LockBackend, releases: &Arc<ReleaseQueue>) {
        let (mut batches, mut under_way) = (FuturesUnordered::new(), 0);
        loop {
            let mut woken = pin!(self.wake_list.woken());
            self.take_charge();
            self.notice_pause();
            while under_way < MAX_UNDER_WAY {
                let due = self.due();
                if due.is_empty() {
                    break;
                }
                for batch in self.start(due, releases) {
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
                () = &mut woken => {}
            }
        }
    }

    /// Starts to handle leases that are old enough or that are in the wake list. Subscribes to
    /// their notifications and adds them to the schedule by due time.
    fn take_charge(&self) {
        let now = self.clock.now();
        let mut records = self.wake_list.drain();
        records.extend(lock(&self.schedule).old_enough(now));
        if records.is_empty() {
            return;
        }
        records.iter().for_each(|record| record.listen(now));
        self.file_by(Schedule::file_by_due_time, &records);
    }

    /// Makes all leases due for renewal if the whole machine appears to have been paused.
    fn notice_pause(&self) {
        if !self.pauses.notice(&*self.clock) {
            return;
        }
        let (records, now) = (self.records(), self.clock.now());
        let message = "the wall clock has advanced at least 1 s more than the boot-time clock; the machine may have been paused";
        let reason = Error::new(ErrorKind::Unavailable, message);
        for record in &records {
            record.listen(now);
            record.suspect_pause(&reason, now);
        }
        self.file_by(Schedule::file_by_due_time, &records);
    }

    /// Returns when the task must run next if nothing happens before then.
    fn next_look(&self, has_room: bool) -> Instant {
        let mut schedule = lock(&self.schedule);
        let next = schedule.next_look(has_room);
        let may_be_paused =
            schedule.records().next().is_some() && self.clock.time_of_day().is_some();
        if may_be_paused { next.min(self.clock.now() + pause::CHECK_EVERY) } else { next }
    }

    /// Returns some of the leases that are due.
    fn due(&self) -> Vec<Arc<LeaseRecord>> {
        lock(&self.schedule).due(self.clock.now(), usize::from(MAX_BATCH))
    }

    /// Starts the renewals that are due, in the order of their deadlines, and ends leases whose
    /// deadline has passed.
    fn start(&self, due: Vec<Arc<LeaseRecord>>, releases: &Arc<ReleaseQueue>) -> Vec<Batch> {
        let now = self.clock.now();
        let has_sessions = lock(&self.schedule).has_sessions();
        let mut renewals = Vec::with_capacity(due.len());
        for record in &due {
            match record.start_renewal(now) {
                Some(renewal) => renewals.push(renewal),
                None if record.may_outlast_its_loss(now) && has_sessions => {
                    // The lost lease's guards may exist for a long time, so release the lease in
                    // the store now.
                    let mut release = PendingRelease::new(Arc::clone(record), releases);
                    release.arm();
                    if !self.remove(record) {
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
        let (mut batch, leases): (Vec<SentRenewal>, Vec<Lease>) = sent.unzip();
        let give_up =
            batch.iter().map(SentRenewal::attempt_end).max().unwrap_or(Instant::FAR_FUTURE);
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
        self.file(batch.iter().map(SentRenewal::record));
        of
    }
}

/// Divides renewals into requests. All renewals in a request have similar time limits, and no
/// request is larger than the batch size of any of its leases.
fn in_batches(mut renewals: Vec<(SentRenewal, Lease)>) -> Vec<Batch> {
    let group = |(renewing, _): &(SentRenewal, Lease)| (renewing.class(), renewing.batch_size());
    let deadline = |(renewing, _): &(SentRenewal, Lease)| renewing.record().deadline();
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
