//! Applies the waiting changes of a key together. Otherwise, each of them would replace the row that the
//! others have read.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::mem;
use std::slice;
use std::sync::{Arc, Mutex};

use leasehold_core::backend::unpoisoned;
use leasehold_core::{Error, ErrorKind, LockKey};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};
use uuid::Uuid;

use crate::news::News;
use crate::remote::Urgency;
use crate::remote::database::longest_lease;
use crate::remote::per_runtime::{PerRuntime, turn};
use crate::remote::together::Acquirer;
use crate::rows::{Change, Clock, State};

/// The changes of documents by acquisitions and releases.
pub(super) struct Changes {
    pub(super) acquirer: Acquirer,
    pub(super) news: News,
    /// The changes that wait. A runtime may be blocked, so each runtime applies its own changes.
    pub(super) lines: PerRuntime<Lines>,
}

/// The changes that wait, by key. A line exists as long as a task applies its changes. Acquisitions and
/// releases have different lines, because they use different connections.
pub(super) type Lines = Mutex<HashMap<(LockKey, Urgency), Vec<Box<dyn Waiting>>>>;

/// A change that waits.
pub(super) trait Waiting: Send {
    /// Returns the tags of the leases that the change may grant or release.
    fn leases(&self) -> &[Uuid];

    /// Returns whether the caller still waits for the reply.
    fn is_open(&self) -> bool;

    /// Applies the change to the state of the key. A change that fails does not modify the state.
    fn apply(&mut self, states: &mut [State], clock: Clock);

    /// Sends the reply to the caller. If the row could not be written, the reply is `failed`.
    fn answer(self: Box<Self>, failed: Option<Error>);
}

/// A change by one caller.
struct One<T, F> {
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
    /// If the caller leaves before the row is read, the change is not applied.
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
        let (lines, (caller, reply)) = (self.lines.current()?, oneshot::channel());
        let waiting = Box::new(One { leases, step, done: None, caller });
        let is_first = match unpoisoned(&lines).entry((key.clone(), urgency)) {
            Entry::Occupied(line) => {
                line.into_mut().push(waiting);
                false
            }
            Entry::Vacant(line) => {
                line.insert(vec![waiting]);
                true
            }
        };
        if is_first {
            let (changes, of) = (Arc::clone(self), (key, urgency));
            runtime.spawn(Line { changes, lines, turns, of, has_ended: false }.apply_all());
        }
        reply.await.map_err(|_dropped| task_ended())?
    }

    /// Reads the row, applies the changes to its state, and writes the row.
    async fn apply(
        &self,
        key: &LockKey,
        urgency: Urgency,
        waiting: &mut [Box<dyn Waiting>],
    ) -> Option<Error> {
        let Acquirer { runner, purge, .. } = &self.acquirer;
        let leases: Vec<_> = waiting.iter().flat_map(|one| one.leases()).copied().collect();
        let change = Change { keys: vec![key.clone()], leases, membership: None, urgency };
        let known = if urgency == Urgency::Releases { self.news.known_row(key) } else { None };
        let mut longest = None;
        let step = |states: &mut [State], clock: Clock| {
            waiting.iter_mut().for_each(|one| one.apply(states, clock));
            longest = longest_lease(states, &change.leases, clock);
            Ok(())
        };
        let failed = runner.within_limit(urgency).change(&change, known, step).await.err();
        if let Some(longest) = longest.filter(|_| urgency == Urgency::Asks && failed.is_none()) {
            runner.connections.keep_for_renewals(longest);
            purge.count(&change.keys, runner);
        }
        failed
    }
}

/// A line whose changes a task applies. If the task is dropped, its callers get an error.
struct Line {
    changes: Arc<Changes>,
    lines: Arc<Lines>,
    turns: Arc<Semaphore>,
    of: (LockKey, Urgency),
    has_ended: bool,
}

impl Line {
    async fn apply_all(mut self) {
        let (changes, (key, urgency)) = (Arc::clone(&self.changes), self.of.clone());
        let Acquirer { runner, in_order, .. } = &changes.acquirer;
        loop {
            // Callers can join or leave until a connection is free.
            let turn = match urgency {
                Urgency::Asks => Some(turn(Arc::clone(&self.turns), runner.timeout).await),
                _ => None,
            };
            let Some(mut waiting) = self.next() else { return };
            let acquired: Vec<_> = match urgency {
                Urgency::Asks => waiting.iter().flat_map(|one| one.leases()).copied().collect(),
                _ => Vec::new(),
            };
            // The acquisitions are registered before the check for callers that have left, so that
            // the releases of these callers wait.
            let _running = in_order.begin(acquired);
            waiting.retain(|one| one.is_open());
            let failed = match turn {
                Some(Err(error)) => Some(error.into()),
                _ if waiting.is_empty() => None,
                _ => changes.apply(&key, urgency, &mut waiting).await,
            };
            if failed.as_ref().is_some_and(|error| error.kind() == ErrorKind::Unexpected) {
                // One of the changes may have caused the error.
                for mut one in waiting {
                    let failed = changes.apply(&key, urgency, slice::from_mut(&mut one)).await;
                    one.answer(failed);
                }
                continue;
            }
            for one in waiting {
                one.answer(failed.as_ref().map(Error::repeated));
            }
        }
    }

    /// Returns the changes that wait. Removes the line if there are none.
    fn next(&mut self) -> Option<Vec<Box<dyn Waiting>>> {
        let mut lines = unpoisoned(&self.lines);
        let waiting = mem::take(lines.get_mut(&self.of).expect("the line has not ended"));
        if waiting.is_empty() {
            lines.remove(&self.of);
            self.has_ended = true;
        }
        Some(waiting).filter(|_| !self.has_ended)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if !self.has_ended {
            // The mutex is unlocked before the changes are dropped, because they are foreign code.
            let waiting = unpoisoned(&self.lines).remove(&self.of);
            drop(waiting);
        }
    }
}

impl<T, F> Waiting for One<T, F>
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
        let before = states.to_vec();
        let done = (self.step)(states, clock);
        if done.is_err() {
            states.clone_from_slice(&before);
        }
        self.done = Some(done);
    }

    fn answer(self: Box<Self>, failed: Option<Error>) {
        let Self { done, caller, .. } = *self;
        let reply = match (done, failed) {
            (Some(Err(error)), _) | (_, Some(error)) => Err(error),
            (done, None) => done.expect("the change was applied"),
        };
        // A caller that has left does not need the reply.
        let _ = caller.send(reply);
    }
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
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use async_trait::async_trait;
    use futures_util::future::join_all;
    use leasehold_core::backend::{Claim, Lease, Mode};
    use leasehold_core::batch::InOrder;
    use leasehold_entry::Tag;
    use tokio::task::{JoinHandle, yield_now};

    use super::*;
    use crate::call::Call;
    use crate::layout::Layout;
    use crate::postgres::KeyTable;
    use crate::remote::purge::Purge;
    use crate::remote::runner::Runner;
    use crate::remote::{Connections, Reply, RunError};

    /// A database whose row is always free, and whose reads wait for a permit.
    #[derive(Debug)]
    struct Free {
        reads: Semaphore,
        swaps: AtomicUsize,
    }

    #[async_trait]
    impl Connections for Free {
        async fn run(&self, call: &Call, _: Urgency, _: Duration) -> Result<Reply, RunError> {
            let columns: &[&str] = if call.text().contains("LEFT JOIN LATERAL") {
                self.reads.acquire().await.unwrap().forget();
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
            let lines = PerRuntime::new(Lines::default);
            let changes = Arc::new(Changes { acquirer, news: News::local(), lines });
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
                let tokens = states[0].tokens(0, clock);
                let entry = states[0].entry()?;
                entry.acquire(tag, &claim, tokens, clock.now)?;
                let holders = entry.holders.len();
                if fails { Err(claim.wrong_type()) } else { Ok(holders) }
            };
            let (changes, turns) = (Arc::clone(&self.changes), Arc::new(Semaphore::new(4)));
            let acquired = tokio::spawn(async move { changes.change(change, turns, step).await });
            // The change joins its line.
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
        assert!(unpoisoned(&fixture.changes.lines.current().unwrap()).is_empty());
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
}
