//! Applies the queued changes of a key together. Otherwise, each change would replace the row that the
//! remaining callers have read, and these callers would have to start again.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::mem;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::backend::unpoisoned;
use leasehold_core::{Error, ErrorKind, LockKey};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};
use uuid::Uuid;

use crate::news::News;
use crate::remote::Urgency;
use crate::remote::per_runtime::{PerRuntime, turn};
use crate::remote::together::Acquirer;
use crate::rows::{Acquire, Change, Clock, State};

/// Acquisitions and releases that read and replace the row of a single key.
pub(super) struct Changes {
    pub(super) acquirer: Acquirer,
    pub(super) news: News,
    /// A runtime may be blocked, so each runtime has its own queues.
    pub(super) queues: PerRuntime<KeyQueues>,
}

/// The queued changes. The queue of a key exists as long as a task applies its changes. Acquisitions and
/// releases have separate queues, because they use different connections.
pub(super) type KeyQueues = Mutex<HashMap<(LockKey, Urgency), Vec<Box<dyn QueuedChange>>>>;

/// A change of one caller.
pub(super) trait QueuedChange: Send {
    /// Returns the tags of the leases that the change may grant or release.
    fn leases(&self) -> &[Uuid];

    /// Returns whether the caller still waits for the reply.
    fn is_open(&self) -> bool;

    /// Applies the change to the state of the key.
    fn apply(&mut self, states: &mut [State], clock: Clock);

    /// Replies to the caller with the result of the change, or with the error `failed` if the row could
    /// not be read or written.
    fn reply(self: Box<Self>, failed: Option<Error>);
}

struct ChangeOf<T, F> {
    leases: Vec<Uuid>,
    step: F,
    done: Option<Result<T, Error>>,
    caller: oneshot::Sender<Result<T, Error>>,
}

impl Changes {
    /// Applies a change of one key, which must not require a membership. `turns` limits the acquisitions
    /// in progress.
    ///
    /// # Cancel safety
    ///
    /// If the caller leaves while the change is queued, the change is not applied.
    pub(super) async fn change<T, F>(
        self: &Arc<Self>,
        change: Change,
        turns: Arc<Semaphore>,
        step: F,
    ) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnMut(&mut [State], Clock) -> Result<T, Error> + Send + 'static,
    {
        let Change { mut keys, leases, membership: _, urgency } = change;
        let key = keys.pop().expect("a change has a key");
        let runtime = Handle::try_current().map_err(|_none| outside_of_runtime())?;
        let queues = self.queues.current()?;
        let (caller, reply) = oneshot::channel();
        let queued = Box::new(ChangeOf { leases, step, done: None, caller });
        let is_first = match unpoisoned(&queues).entry((key.clone(), urgency)) {
            Entry::Occupied(queue) => {
                let queue = queue.into_mut();
                if queue.len() == queue.capacity() {
                    queue.retain(|queued| queued.is_open());
                }
                queue.push(queued);
                false
            }
            Entry::Vacant(queue) => {
                queue.insert(vec![queued]);
                true
            }
        };
        if is_first {
            let changes = Arc::clone(self);
            let of = (key, urgency);
            let queue = KeyQueue { changes, queues, turns, of, has_ended: false };
            runtime.spawn(queue.apply_all());
        }
        reply.await.map_err(|_dropped| task_ended())?
    }

    /// Reads the row, applies the changes to its state, and writes the row.
    async fn apply(
        &self,
        key: &LockKey,
        urgency: Urgency,
        batch: &mut [Box<dyn QueuedChange>],
    ) -> Result<(), Error> {
        let Acquirer { runner, purge, .. } = &self.acquirer;
        let leases: Vec<_> = batch.iter().flat_map(|queued| queued.leases()).copied().collect();
        let change = Change { keys: vec![key.clone()], leases, membership: None, urgency };
        let known = match (urgency, batch.len()) {
            (Urgency::Releases, 1) => self.news.known_row(key),
            _ => None,
        };
        let mut longest = None;
        let step = |states: &mut [State], clock: Clock| {
            batch.iter_mut().for_each(|queued| queued.apply(states, clock));
            if urgency == Urgency::Asks {
                longest = longest_lease(states, &change.leases, clock);
            }
            Ok(())
        };
        runner.within_limit(urgency).change(&change, known, step).await?;
        if let Some(longest) = longest {
            runner.connections.keep_for_renewals(longest);
            purge.count(&change.keys, runner);
        }
        Ok(())
    }
}

/// The queue of a key, in the task that applies its changes. If the task is dropped, the callers get an
/// error.
struct KeyQueue {
    changes: Arc<Changes>,
    queues: Arc<KeyQueues>,
    turns: Arc<Semaphore>,
    /// The key, and the urgency of its changes.
    of: (LockKey, Urgency),
    has_ended: bool,
}

impl KeyQueue {
    async fn apply_all(mut self) {
        let (changes, (key, urgency)) = (Arc::clone(&self.changes), self.of.clone());
        let Acquirer { runner, in_order, .. } = &changes.acquirer;
        let is_acquisition = urgency == Urgency::Asks;
        while let Some(queued) = self.len_or_end() {
            // Callers can join or leave the batch until a connection is free.
            let turn = match is_acquisition {
                true => Some(turn(Arc::clone(&self.turns), runner.timeout).await).transpose(),
                false => Ok(None),
            };
            let most = if turn.is_ok() { Acquire::MAX_TOGETHER } else { queued };
            let mut batch = self.take(most);
            let leases = batch.iter().flat_map(|queued| queued.leases()).copied();
            // The acquisitions are registered before callers that have left are removed, so that the
            // releases of these callers wait.
            let running = is_acquisition.then(|| in_order.begin(leases));
            batch.retain(|queued| queued.is_open());
            let applied = match turn {
                Err(error) => Err(error.into()),
                Ok(_) if batch.is_empty() => Ok(()),
                Ok(_turn) => changes.apply(&key, urgency, &mut batch).await,
            };
            drop(running);
            let mut failed = applied.err();
            while let Some(queued) = batch.pop() {
                let repeated = failed.as_ref().map(Error::repeated);
                // The last caller gets the error with its cause.
                queued.reply(if batch.is_empty() { failed.take() } else { repeated });
            }
        }
    }

    /// Returns the number of queued changes. Removes the queue and returns `None` if there are none.
    fn len_or_end(&mut self) -> Option<usize> {
        let mut queues = unpoisoned(&self.queues);
        let len = queues.get(&self.of).map_or(0, Vec::len);
        if len == 0 {
            queues.remove(&self.of);
            self.has_ended = true;
        }
        (len > 0).then_some(len)
    }

    /// Removes up to `most` changes from the queue, without the changes of callers that have left.
    fn take(&self, most: usize) -> Vec<Box<dyn QueuedChange>> {
        let mut queues = unpoisoned(&self.queues);
        let queue = queues.get_mut(&self.of).expect("the queue exists until this task ends");
        queue.retain(|queued| queued.is_open());
        let later = queue.split_off(most.min(queue.len()));
        mem::replace(queue, later)
    }
}

impl Drop for KeyQueue {
    fn drop(&mut self) {
        if !self.has_ended {
            // The mutex is unlocked before the changes are dropped, because this wakes their callers.
            let queue = unpoisoned(&self.queues).remove(&self.of);
            drop(queue);
        }
    }
}

impl<T, F> QueuedChange for ChangeOf<T, F>
where
    T: Send,
    F: FnMut(&mut [State], Clock) -> Result<T, Error> + Send,
{
    fn leases(&self) -> &[Uuid] {
        &self.leases
    }

    fn is_open(&self) -> bool {
        !self.caller.is_closed()
    }

    fn apply(&mut self, states: &mut [State], clock: Clock) {
        self.done = Some((self.step)(states, clock));
    }

    fn reply(self: Box<Self>, failed: Option<Error>) {
        let Self { done, caller, .. } = *self;
        let reply = failed.map_or_else(|| done.expect("the change was applied"), Err);
        // A caller that has left does not need the reply.
        let _ = caller.send(reply);
    }
}

/// Returns how long the leases are in force, or `None` if none of them is.
pub(super) fn longest_lease(
    states: &mut [State],
    leases: &[Uuid],
    clock: Clock,
) -> Option<Duration> {
    let entries = states.iter_mut().filter_map(|state| state.entry().ok());
    let held = entries.flat_map(|entry| &entry.holders);
    let ends = held.filter(|held| leases.contains(&held.name.id)).map(|held| held.ends).max()?;
    Some(Duration::from_micros((ends - clock.now).try_into().unwrap_or_default()))
}

fn outside_of_runtime() -> Error {
    let message = "the request was not sent, because the caller is outside of a tokio runtime";
    Error::new(ErrorKind::Unavailable, message)
}

fn task_ended() -> Error {
    let message = "the task of the request ended without a reply, so the outcome is unknown";
    Error::new(ErrorKind::Indeterminate, message)
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use futures_util::future::join_all;
    use leasehold_core::backend::{Claim, Lease, Mode};
    use leasehold_core::batch::InOrder;
    use leasehold_entry::Tag;
    use tokio::task::{JoinHandle, yield_now};

    use super::*;
    use crate::call::Call;
    use crate::failure::Failure;
    use crate::layout::Layout;
    use crate::postgres::KeyTable;
    use crate::remote::purge::Purge;
    use crate::remote::runner::Runner;
    use crate::remote::{Connections, Reply, RunError};

    /// A database whose row is always free. Reads wait for a permit, and fail after the permits are
    /// closed.
    #[derive(Debug)]
    struct Free {
        reads: Semaphore,
        swaps: AtomicUsize,
    }

    #[async_trait]
    impl Connections for Free {
        async fn run(&self, call: &Call, _: Urgency, _: Duration) -> Result<Reply, RunError> {
            let columns: &[&str] = if call.text().contains("LEFT JOIN LATERAL") {
                let permit = self.reads.acquire().await;
                permit
                    .map_err(|closed| RunError::new(Failure::NotApplied, "no reply", closed))?
                    .forget();
                &["job", "3", "9", "0", "", "-1", "", "", "", "", "0", "2"]
            } else {
                self.swaps.fetch_add(1, Ordering::Relaxed);
                &["job", "0"]
            };
            let column = |text: &&str| (!text.is_empty()).then(|| (*text).to_owned());
            Ok(Reply { rows: vec![columns.iter().map(column).collect()], ..Reply::default() })
        }
    }

    struct Fixture {
        database: Arc<Free>,
        changes: Arc<Changes>,
    }

    impl Fixture {
        fn new() -> Self {
            let database = Arc::new(Free { reads: Semaphore::new(0), swaps: AtomicUsize::new(0) });
            let table = Arc::new(KeyTable::new(&Layout::default(), None));
            let connections = Arc::clone(&database) as Arc<dyn Connections>;
            let runner = Runner { connections, table, timeout: Duration::from_secs(60) };
            let acquirer =
                Acquirer { runner, in_order: Arc::new(InOrder::new()), purge: Purge::new() };
            let queues = PerRuntime::new(KeyQueues::default);
            let changes = Arc::new(Changes { acquirer, news: News::local(), queues });
            Self { database, changes }
        }

        /// Starts to acquire one of ten permits. The step fails if `fails` is true.
        async fn acquire(&self, fails: bool) -> JoinHandle<Result<usize, Error>> {
            let key = LockKey::new("job").unwrap();
            let mode = Mode::Units { units: 1, limit: 10 };
            let claim = Claim::new(Lease::new(&key, Duration::from_secs(60)).with_mode(mode));
            let tag = Tag::of(&claim.id());
            let change = Change {
                keys: vec![key],
                leases: vec![tag.id],
                membership: None,
                urgency: Urgency::Asks,
            };
            let step = move |states: &mut [State], clock: Clock| {
                if fails {
                    return Err(claim.wrong_type());
                }
                let tokens = states[0].tokens(0, clock);
                let entry = states[0].entry()?;
                entry.acquire(tag, &claim, tokens, clock.now)?;
                Ok(entry.holders.len())
            };
            let (changes, turns) = (Arc::clone(&self.changes), Arc::new(Semaphore::new(4)));
            let acquired = tokio::spawn(async move { changes.change(change, turns, step).await });
            // The change joins its queue.
            yield_now().await;
            acquired
        }
    }

    #[tokio::test]
    async fn changes_that_wait_are_written_together() {
        let fixture = Fixture::new();
        let mut acquired = Vec::new();
        for _ in 0..10 {
            acquired.push(fixture.acquire(false).await);
        }

        fixture.database.reads.add_permits(2);
        let holders = join_all(acquired).await.into_iter().map(|holders| holders.unwrap().unwrap());

        assert_eq!(holders.collect::<Vec<_>>(), [1, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(fixture.database.swaps.load(Ordering::Relaxed), 2);
        assert!(unpoisoned(&fixture.changes.queues.current().unwrap()).is_empty());
    }

    #[tokio::test]
    async fn a_change_whose_caller_has_left_or_that_fails_does_not_affect_the_others() {
        let fixture = Fixture::new();
        let first = fixture.acquire(false).await;
        let left = fixture.acquire(false).await;
        let failed = fixture.acquire(true).await;
        let last = fixture.acquire(false).await;
        left.abort();
        assert!(left.await.unwrap_err().is_cancelled());

        fixture.database.reads.add_permits(2);

        assert_eq!(first.await.unwrap().unwrap(), 1);
        assert_eq!(failed.await.unwrap().unwrap_err().kind(), ErrorKind::WrongType);
        assert_eq!(last.await.unwrap().unwrap(), 1);
    }

    #[tokio::test]
    async fn one_caller_gets_the_cause_of_an_error_and_the_others_get_copies() {
        let fixture = Fixture::new();
        let first = fixture.acquire(false).await;
        let others = [fixture.acquire(false).await, fixture.acquire(false).await];

        fixture.database.reads.close();

        let mut errors = vec![first.await.unwrap().unwrap_err()];
        for other in others {
            errors.push(other.await.unwrap().unwrap_err());
        }
        assert!(errors.iter().all(|error| error.kind() == ErrorKind::Unavailable), "{errors:?}");
        let with_cause = errors.iter().filter(|error| error.source().is_some()).count();
        assert_eq!(with_cause, 2, "one for each batch");
    }

    #[tokio::test]
    async fn a_batch_has_at_most_64_changes() {
        let fixture = Fixture::new();
        let mut acquired = vec![fixture.acquire(true).await];
        for _ in 0..65 {
            acquired.push(fixture.acquire(true).await);
        }

        fixture.database.reads.add_permits(2);
        let unread = acquired.pop().unwrap();
        for acquired in acquired {
            assert_eq!(acquired.await.unwrap().unwrap_err().kind(), ErrorKind::WrongType);
        }
        assert!(!unread.is_finished());

        fixture.database.reads.add_permits(1);
        assert_eq!(unread.await.unwrap().unwrap_err().kind(), ErrorKind::WrongType);
    }
}
