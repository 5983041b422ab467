//! Runs calls on the caller's thread if the file is open and idle, and otherwise on a thread that
//! opens the file.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};
use std::{iter, process, slice, thread};

use leasehold_core::backend::unpoisoned;
use leasehold_core::{Error, ErrorKind};
use leasehold_sql_support::remote::Urgency;
use leasehold_sql_support::rows::Clock;
use leasehold_sql_support::{Concerns, Failure, News};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::config::SqliteConfig;
use crate::poll::{Poller, longest_interval};
use crate::store::Store;
use crate::tables::{Stop, Tables};

/// The maximum number of calls in one transaction. Most of the time of a single call is the commit,
/// and a transaction of this size takes less than 1 ms.
const TOGETHER: usize = 64;

/// How long the thread sleeps if there is nothing to poll.
const FOREVER: Duration = Duration::from_secs(24 * 60 * 60);

/// A handle to the thread. The thread ends when the handle is dropped.
#[derive(Debug)]
pub(crate) struct Worker {
    queue: Arc<Queue>,
    store: Arc<Mutex<Option<Store>>>,
    timeout: Duration,
    /// The process in which the thread was started.
    process: u32,
}

/// The queue of calls that wait for the thread.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    jobs: Mutex<Jobs>,
    wake: Condvar,
}

#[derive(Default)]
struct Jobs {
    /// Renewals precede all other jobs, because a late renewal may lose its lease.
    renewals: VecDeque<Job>,
    /// A release must not precede an acquisition, which may be the acquisition of the same lease.
    others: VecDeque<Job>,
    /// When the thread wakes up, if it sleeps.
    sleeps_until: Option<Instant>,
    /// Whether the thread runs a job.
    is_working: bool,
    /// The average number of calls in the last transactions of the thread.
    together: usize,
    is_closed: bool,
}

/// Work for the thread, and the caller that waits for it.
struct Job {
    work: Work,
    /// When the work must be done.
    until: Instant,
    /// Set either by the thread, to start the work, or by the caller, to cancel it.
    is_begun: Arc<AtomicBool>,
    done: oneshot::Sender<Result<(), Error>>,
}

enum Work {
    /// The steps of a write transaction, which other steps may precede and follow. They may run
    /// several times, but their changes are committed at most once.
    Write(Box<Steps>),
    Other(Box<Task>),
}

type Steps = dyn FnMut(&Tables, Clock) -> Result<(), Stop> + Send;

type Task = dyn FnOnce(&mut Thread, Instant) -> Result<(), Error> + Send;

/// The next step of the thread.
enum Next {
    /// Either one job of any kind, or several transactions.
    Jobs(Vec<Job>),
    Poll,
    End,
}

impl Job {
    /// Returns whether the caller still waits. If so, the thread starts the work.
    fn begin(&self) -> bool {
        !self.done.is_closed() && !self.is_begun.swap(true, Ordering::AcqRel)
    }
}

impl Worker {
    /// Starts the thread. The thread opens the file for its first call.
    pub(crate) fn start(
        config: SqliteConfig,
        queue: Arc<Queue>,
        news: News,
    ) -> Result<Self, Error> {
        let timeout = config.timeout;
        let store = Arc::default();
        let poller = Poller::new(news);
        let mut state = Thread { config, store: Arc::clone(&store), poller };
        let worker = Self { queue: Arc::clone(&queue), store, timeout, process: process::id() };
        let thread = thread::Builder::new().name("leasehold-sqlite".to_owned());
        let started = thread.spawn(move || state.run(&queue));
        started.map_err(|error| Failure::NotApplied.because("cannot start a thread", error))?;
        Ok(worker)
    }

    /// Runs `work` in a write transaction, either immediately on the caller's thread, or on the
    /// thread.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If it is dropped before `work` has started, `work` does not run.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        urgency: Urgency,
        mut work: impl FnMut(&Tables, Clock) -> Result<T, Stop> + Send + 'static,
    ) -> Result<T, Error> {
        if let Some(done) = self.try_now(&mut work) {
            return done;
        }
        let reply = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&reply);
        let steps = move |tables: &Tables, clock| {
            *unpoisoned(&slot) = Some(work(tables, clock)?);
            Ok(())
        };
        self.queue(urgency, Work::Write(Box::new(steps)))?.await?;
        Ok(taken(&reply))
    }

    /// Runs `work`, which must not change the tables, on the thread.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If it is dropped before `work` has started, `work` does not run.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Store, Instant) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let reply = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&reply);
        let work = move |thread: &mut Thread, until| {
            *unpoisoned(&slot) = Some(thread.with_store(until, |store, _| work(store, until))?);
            Ok(())
        };
        self.queue(Urgency::Asks, Work::Other(Box::new(work)))?.await.map_err(harmless)?;
        Ok(taken(&reply))
    }

    /// Runs `work` on the caller's thread, if the thread is idle and the file is open and not busy.
    /// Returns `None` otherwise.
    ///
    /// A short transaction does not wait for other processes, and usually does not wait for the disk.
    /// On the thread, the transaction would take three times as long.
    fn try_now<T>(
        &self,
        work: impl FnOnce(&Tables, Clock) -> Result<T, Stop>,
    ) -> Option<Result<T, Error>> {
        if self.process != process::id() || !self.queue.is_idle() {
            return None;
        }
        let store = match self.store.try_lock() {
            Ok(store) => store,
            // `write_now` does not use a connection on which a panic has left a transaction open.
            Err(TryLockError::Poisoned(store)) => store.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let open = store.as_ref()?;
        let done = open.write_now(work)?;
        if open.needs_upkeep() {
            // The thread does the upkeep after each job.
            drop(self.queue(Urgency::Asks, Work::Other(Box::new(|_, _| Ok(())))));
        }
        Some(done)
    }

    /// Adds a job to the queue. Returns a future that waits for the job. If the future is dropped
    /// before the job has started, the job does not start.
    fn queue(
        &self,
        urgency: Urgency,
        work: Work,
    ) -> Result<impl Future<Output = Result<(), Error>> + use<>, Error> {
        if self.process != process::id() {
            let message = "the process was forked after it opened the file; open the file again in the forked process";
            return Err(Failure::NotApplied.error(message));
        }
        // The remaining quarter of the timeout is enough time to report the outcome of a
        // transaction that has started.
        let until = Instant::now() + self.timeout * 3 / 4;
        let (done, reply) = oneshot::channel();
        let is_begun = Arc::<AtomicBool>::default();
        self.queue.push(urgency, Job { work, until, is_begun: Arc::clone(&is_begun), done })?;
        let limit = self.timeout;
        Ok(async move {
            match timeout(limit, reply).await {
                Ok(Ok(done)) => done,
                Ok(Err(_)) => {
                    Err(Failure::Unknown.error("the thread that accesses the file has terminated"))
                }
                Err(_) if !is_begun.swap(true, Ordering::AcqRel) => Err(Failure::NotApplied
                    .error("earlier calls kept the file busy for longer than the timeout")),
                Err(_) => Err(Failure::Unknown
                    .error("the disk did not respond in time, so the outcome is unknown")),
            }
        })
    }

    /// Closes the file after all earlier calls, and rejects later calls.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. Even if it is dropped, the file is closed.
    pub(crate) async fn close(&self) {
        // In a forked process, the queue may still be locked by a thread that exists only in the
        // parent process.
        if self.process != process::id() {
            return;
        }
        let close = |thread: &mut Thread, _| {
            thread.close();
            Ok(())
        };
        let closed = self.queue(Urgency::Asks, Work::Other(Box::new(close)));
        self.queue.close();
        if let Ok(closed) = closed {
            // The result does not matter, because nothing is left to report.
            drop(closed.await);
        }
    }
}

/// Converts an error of opening or reading the file, which can be repeated.
fn harmless(error: Error) -> Error {
    if error.kind() == ErrorKind::Indeterminate {
        Failure::NotApplied.because("the file did not respond in time", error)
    } else {
        error
    }
}

/// Takes the reply of a job that has succeeded.
fn taken<T>(reply: &Mutex<Option<T>>) -> T {
    unpoisoned(reply).take().expect("a job that has succeeded has stored its reply")
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.process == process::id() {
            self.queue.close();
        }
    }
}

impl Queue {
    fn push(&self, urgency: Urgency, job: Job) -> Result<(), Error> {
        let mut jobs = self.lock();
        if jobs.is_closed {
            return Err(Failure::NotApplied.error("the backend was closed"));
        }
        match urgency {
            Urgency::Renews => jobs.renewals.push_back(job),
            _ => jobs.others.push_back(job),
        }
        self.wake.notify_one();
        Ok(())
    }

    /// Returns whether calls may run on their callers' threads.
    ///
    /// No job may be queued or running. A call must not overtake a job, because the job may acquire
    /// the lease that the call releases. If several calls usually run in one transaction, all calls
    /// wait for the thread, because one transaction per call would take longer.
    fn is_idle(&self) -> bool {
        let jobs = self.lock();
        !jobs.is_working && jobs.waiting().next().is_none() && jobs.together < 2
    }

    /// Makes the thread end after all earlier jobs.
    fn close(&self) {
        self.lock().is_closed = true;
        self.wake.notify_one();
    }

    /// Wakes the thread, because there is a new watch, unless the thread wakes up soon enough. Without
    /// this exception, each acquired lock would wake the thread.
    pub(crate) fn begin_to_watch(&self, concerns: Concerns) {
        let soon = Instant::now() + longest_interval(concerns);
        if self.lock().sleeps_until.is_some_and(|until| until > soon) {
            self.wake.notify_one();
        }
    }

    /// Waits for the next step, which is a poll if a poll is `due`.
    fn next(&self, due: impl Fn() -> Option<Instant>) -> Next {
        let mut jobs = self.lock();
        jobs.is_working = false;
        loop {
            let left = due().map(|due| due.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) && !jobs.is_closed {
                return Next::Poll;
            }
            let next = jobs.take();
            if !next.is_empty() {
                return Next::Jobs(next);
            }
            if jobs.is_closed {
                return Next::End;
            }
            let left = left.unwrap_or(FOREVER);
            jobs.sleeps_until = Some(Instant::now() + left);
            let woken = self.wake.wait_timeout(jobs, left);
            jobs = woken.unwrap_or_else(PoisonError::into_inner).0;
            jobs.sleeps_until = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Jobs> {
        // The queue is consistent after every statement, so a panic cannot corrupt it.
        unpoisoned(&self.jobs)
    }
}

impl Jobs {
    /// Removes the first job, or the first transactions, which then run together.
    fn take(&mut self) -> Vec<Job> {
        let is_write = |job: &&Job| matches!(job.work, Work::Write(_));
        let writes = self.waiting().take(TOGETHER).take_while(is_write).count();
        if writes > 0 {
            self.together = self.together.midpoint(writes);
        }
        let first = || self.renewals.pop_front().or_else(|| self.others.pop_front());
        let next: Vec<Job> = iter::from_fn(first).take(writes.max(1)).collect();
        self.is_working = !next.is_empty();
        next
    }

    /// Returns the jobs in the order in which they run.
    fn waiting(&self) -> impl Iterator<Item = &Job> {
        self.renewals.iter().chain(&self.others)
    }
}

impl std::fmt::Debug for Jobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Jobs").field("waiting", &self.waiting().count()).finish_non_exhaustive()
    }
}

/// The state of the thread.
struct Thread {
    config: SqliteConfig,
    /// The open file. The thread keeps this mutex locked during a transaction, a poll or a different
    /// job.
    store: Arc<Mutex<Option<Store>>>,
    poller: Poller,
}

impl Thread {
    fn run(&mut self, queue: &Queue) {
        loop {
            match queue.next(|| self.poller.due()) {
                Next::Jobs(jobs) => self.run_together(jobs),
                Next::Poll => self.poll(),
                Next::End => break,
            }
            self.do_upkeep();
        }
        self.close();
    }

    fn close(&mut self) {
        let shared = Arc::clone(&self.store);
        drop(take_store(&mut unpoisoned(&shared), &mut self.poller));
    }

    /// Runs `work` on the open file. Opens the file if it is not open, was replaced, or cannot be used
    /// after the last call.
    fn with_store<T>(
        &mut self,
        until: Instant,
        work: impl FnOnce(&mut Store, &mut Poller) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let shared = Arc::clone(&self.store);
        let mut slot = unpoisoned(&shared);
        let mut store = match take_store(&mut slot, &mut self.poller) {
            Some(store) => store,
            None => {
                let opened = Store::open(&self.config, self.poller.news(), until);
                let store = opened.map_err(harmless)?;
                self.poller.forget();
                self.poller.poll(&store, until)?;
                store
            }
        };
        let done = work(&mut store, &mut self.poller);
        if done.as_ref().err().is_none_or(Store::is_usable_after) {
            *slot = Some(store);
        }
        done
    }

    /// Runs one job of any kind, or several transactions together. If the transactions fail, they run
    /// again one by one, so that a failure affects only its caller. There are two exceptions:
    ///
    /// - If the outcome is unknown, the transactions may have been applied and do not run again. All
    ///   callers get the error.
    /// - If the file was busy until the time limit of some jobs had passed, only these jobs run alone.
    ///   Without this rule, these jobs would wait for jobs with later time limits.
    fn run_together(&mut self, mut jobs: Vec<Job>) {
        jobs.retain(Job::begin);
        while jobs.len() > 1 {
            let done = self.write(&mut jobs);
            if done.as_ref().err().is_none_or(|error| error.kind() == ErrorKind::Indeterminate) {
                for job in jobs {
                    // The caller may have been dropped.
                    drop(job.done.send(done.as_ref().copied().map_err(Error::repeated)));
                }
                return;
            }
            let now = Instant::now();
            let late: Vec<Job> = jobs.extract_if(.., |job| job.until <= now).collect();
            if late.is_empty() {
                break;
            }
            late.into_iter().for_each(|job| self.run_alone(job));
        }
        jobs.into_iter().for_each(|job| self.run_alone(job));
    }

    fn run_alone(&mut self, mut job: Job) {
        let done = match job.work {
            Work::Write(_) => self.write(slice::from_mut(&mut job)),
            Work::Other(work) => work(self, job.until),
        };
        drop(job.done.send(done));
    }

    /// Runs the steps of all `jobs` in one transaction.
    fn write(&mut self, jobs: &mut [Job]) -> Result<(), Error> {
        let until = jobs.iter().map(|job| job.until).min().expect("there is a job");
        let mut run = |tables: &Tables, clock| {
            jobs.iter_mut().try_for_each(|job| match &mut job.work {
                Work::Write(steps) => steps(tables, clock),
                Work::Other(_) => unreachable!("only transactions run together"),
            })
        };
        self.with_store(until, |store, _| store.write(until, &mut run))
    }

    fn poll(&mut self) {
        if self.poller.is_idle() {
            // No caller needs the file at this point, so a replaced file is not opened again.
            let mut slot = unpoisoned(&self.store);
            *slot = take_store(&mut slot, &mut self.poller);
            self.poller.rest();
            return;
        }
        let until = Instant::now() + self.config.timeout;
        let polled = self.with_store(until, |store, poller| poller.poll(store, until));
        if polled.is_err() || unpoisoned(&self.store).as_ref().is_some_and(Store::is_snapshot) {
            self.poller.failed();
        }
    }

    fn do_upkeep(&self) {
        if let Some(store) = &mut *unpoisoned(&self.store)
            && store.needs_upkeep()
        {
            store.do_upkeep();
        }
    }
}

/// Returns the open file if it can be used again, and closes it otherwise. If the file was deleted or
/// replaced, or is a snapshot, notifies holders, which then check their leases.
fn take_store(slot: &mut Option<Store>, poller: &mut Poller) -> Option<Store> {
    let store = slot.take()?;
    if store.is_in_place() {
        return Some(store).filter(Store::is_usable);
    }
    store.close_replaced();
    poller.notify_replaced();
    None
}
