//! The thread that owns the connection.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{process, thread};

use leasehold_core::{Error, LockKey};
use leasehold_sql_support::{Failure, News};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::config::SqliteConfig;
use crate::look::Looker;
use crate::store::Store;

/// A handle to the thread. The thread ends when the handle is dropped.
#[derive(Debug)]
pub(crate) struct Worker {
    line: Arc<Line>,
    timeout: Duration,
    /// The process in which the thread was started.
    process: u32,
}

/// The priority of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lane {
    /// Renewals and releases, which keep leases alive and allow waiters to acquire locks.
    First,
    /// All remaining calls.
    Then,
}

/// The queue of calls that wait for the thread.
#[derive(Debug, Default)]
pub(crate) struct Line {
    jobs: Mutex<Jobs>,
    wake: Condvar,
}

#[derive(Default)]
struct Jobs {
    lanes: [VecDeque<Job>; 2],
    is_closed: bool,
}

type Job = Box<dyn FnOnce(&mut Desk) + Send>;

/// The next step of the thread.
enum Next {
    Job(Job),
    Look,
    End,
}

impl Worker {
    /// Starts the thread. The thread opens the file for its first call.
    pub(crate) fn start(config: SqliteConfig, line: Arc<Line>, news: News) -> Result<Self, Error> {
        let timeout = config.timeout;
        let mut desk = Desk { config, store: None, looker: Looker::new(news) };
        let worker = Self { line: Arc::clone(&line), timeout, process: process::id() };
        let thread = thread::Builder::new().name("leasehold-sqlite".to_owned());
        let started = thread.spawn(move || desk.run(&line));
        started.map_err(|error| Failure::NotApplied.because("cannot start a thread", error))?;
        Ok(worker)
    }

    /// Runs `work` on the thread, and then polls `keys`, which `work` may have changed.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If it is dropped before `work` has started, `work` does not run.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        lane: Lane,
        keys: Vec<LockKey>,
        mut work: impl FnMut(&mut Store, Instant) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        if self.process != process::id() {
            let message = "the process was forked after it opened the file; open the file again in the forked process";
            return Err(Failure::NotApplied.error(message));
        }
        // The remaining quarter of the timeout is enough time to report the outcome of a
        // transaction that has started.
        let until = Instant::now() + self.timeout * 3 / 4;
        let (sender, receiver) = oneshot::channel();
        let turn = Turn::default();
        let begins = turn.clone();
        self.line.push(lane, move |desk| {
            if !begins.take() {
                return;
            }
            let done = desk.with_store(until, |store, _| work(store, until));
            let is_done = done.is_ok();
            // The caller may have been dropped.
            drop(sender.send(done));
            if is_done {
                desk.look_at(&keys, until);
            }
        })?;
        let waiting = GivesUp(turn);
        match timeout(self.timeout, receiver).await {
            Ok(Ok(done)) => done,
            Ok(Err(_)) => {
                Err(Failure::Unknown.error("the thread that accesses the file has terminated"))
            }
            Err(_) if waiting.0.take() => Err(Failure::NotApplied
                .error("earlier calls kept the file busy for longer than the timeout")),
            Err(_) => Err(Failure::Unknown
                .error("the disk did not respond in time, so the outcome is unknown")),
        }
    }

    /// Closes the file after all earlier calls, and rejects later calls.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. Even if it is dropped, the file is closed.
    pub(crate) async fn close(&self) {
        let (sender, receiver) = oneshot::channel();
        let closes = self.line.push(Lane::Then, |desk| {
            desk.store = None;
            // The caller may have been dropped.
            let _ = sender.send(());
        });
        self.line.close();
        if closes.is_ok() {
            // The result does not matter, because nothing is left to report.
            drop(timeout(self.timeout, receiver).await);
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // In a forked process, the queue may still be locked by a thread that exists only in the
        // parent process.
        if self.process == process::id() {
            self.line.close();
        }
    }
}

/// A flag that is set once, either by the thread to start the work or by the caller to cancel it.
#[derive(Clone, Debug, Default)]
struct Turn(Arc<AtomicBool>);

impl Turn {
    fn take(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }
}

struct GivesUp(Turn);

impl Drop for GivesUp {
    fn drop(&mut self) {
        self.0.take();
    }
}

impl Line {
    fn push(&self, lane: Lane, job: impl FnOnce(&mut Desk) + Send + 'static) -> Result<(), Error> {
        let mut jobs = self.lock();
        if jobs.is_closed {
            return Err(Failure::NotApplied.error("the backend was closed"));
        }
        jobs.lanes[lane as usize].push_back(Box::new(job));
        self.wake.notify_one();
        Ok(())
    }

    /// Makes the thread end after all earlier jobs.
    fn close(&self) {
        self.lock().is_closed = true;
        self.wake.notify_one();
    }

    /// Wakes the thread, because there is a new watch.
    pub(crate) fn wake(&self) {
        let _jobs = self.lock();
        self.wake.notify_one();
    }

    /// Waits for the next step, which is a poll if a poll is `due`.
    fn next(&self, due: impl Fn() -> Option<Instant>) -> Next {
        let mut jobs = self.lock();
        loop {
            let left = due().map(|due| due.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) && !jobs.is_closed {
                return Next::Look;
            }
            if let Some(job) = jobs.lanes.iter_mut().find_map(VecDeque::pop_front) {
                return Next::Job(job);
            }
            if jobs.is_closed {
                return Next::End;
            }
            jobs = match left {
                None => self.wake.wait(jobs).unwrap_or_else(PoisonError::into_inner),
                Some(left) => {
                    let woken = self.wake.wait_timeout(jobs, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    fn lock(&self) -> MutexGuard<'_, Jobs> {
        // The queues are consistent after every statement, so a panic cannot corrupt them.
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Jobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.lanes.iter().map(VecDeque::len)).finish()
    }
}

/// The state of the thread.
struct Desk {
    config: SqliteConfig,
    store: Option<Store>,
    looker: Looker,
}

impl Desk {
    fn run(&mut self, line: &Line) {
        loop {
            match line.next(|| self.looker.due()) {
                Next::Job(job) => job(self),
                Next::Look => self.look(),
                Next::End => return,
            }
        }
    }

    /// Uses the open file. Opens the file again if it was replaced or if the last call failed.
    fn with_store<T>(
        &mut self,
        until: Instant,
        work: impl FnOnce(&mut Store, &mut Looker) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut store = match self.take_store() {
            Some(store) => store,
            None => {
                let store = Store::open(&self.config, until)?;
                self.looker.forget();
                self.looker.look(&store, until)?;
                store
            }
        };
        let done = work(&mut store, &mut self.looker);
        if done.as_ref().err().is_none_or(Error::is_retryable) {
            self.store = Some(store);
        }
        done
    }

    /// Returns the open file. If the file was deleted or replaced, closes it and notifies holders,
    /// which then check their leases.
    fn take_store(&mut self) -> Option<Store> {
        let store = self.store.take()?;
        if store.is_in_place() {
            return Some(store).filter(Store::is_between_transactions);
        }
        store.abandon();
        self.looker.abandon();
        None
    }

    fn look(&mut self) {
        if self.looker.is_idle() {
            // No caller needs the file at this point, so it is not opened again.
            self.store = self.take_store();
            self.looker.rest();
            return;
        }
        let until = Instant::now() + self.config.timeout;
        let looked = self.with_store(until, |store, looker| looker.look(store, until));
        if looked.is_err() || self.store.as_ref().is_some_and(Store::is_snapshot) {
            self.looker.failed();
        }
    }

    /// Polls `keys` in the same way as after a change by another process.
    fn look_at(&mut self, keys: &[LockKey], until: Instant) {
        if let Some(store) = &self.store
            && self.looker.look_at(keys, store, until).is_err()
        {
            self.looker.forget();
        }
    }
}
