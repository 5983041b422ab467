//! A thread that combines the requests of many callers in transactions.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};
use std::{fmt, iter, mem, process, slice, thread};

use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::contract::backend::unpoisoned;
use crate::contract::error::{Error, ErrorKind};

/// The maximum number of requests in one transaction. Most of the time of a small transaction is
/// the commit.
const TOGETHER: usize = 64;

/// How long the thread sleeps if the store has nothing to do.
const FOREVER: Duration = Duration::from_secs(24 * 60 * 60);

/// A store that a [`Worker`] changes in transactions, such as the file of an embedded database.
///
/// See [`Worker`] for an example.
pub trait Transactional: Send + 'static {
    /// The transaction that the steps of a request use.
    type Transaction<'a>;

    /// Why a step fails.
    type Stop;

    /// Runs `steps` in one transaction, and commits the transaction if they succeed. Otherwise,
    /// nothing may be changed. This method may run `steps` again in a new transaction, for example
    /// after a conflict, until the time `until`.
    ///
    /// # Errors
    ///
    /// Returns an error of the kind [`ErrorKind::Indeterminate`] only if it is unknown whether the
    /// changes were committed.
    #[expect(clippy::type_complexity, reason = "an alias would hide how the steps are called")]
    fn transact(
        &mut self,
        until: Instant,
        steps: &mut dyn FnMut(&mut Self::Transaction<'_>) -> Result<(), Self::Stop>,
    ) -> Result<(), Error>;

    /// Returns when the thread calls [`act`](Self::act) next, or `None` if it need not. `act` must
    /// move this time, because it precedes all requests.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// Does the work that is [due](Self::due), such as a poll.
    fn act(&mut self) {}

    /// Is called after each step of the thread and after each [wake-up](Waker), for example to
    /// purge old rows.
    fn tidy(&mut self) {}

    /// Closes the store after the last request. No call follows.
    fn close(&mut self) {}
}

/// A thread that changes a store for many callers. Requests that wait are committed in one
/// transaction, so that they share one wait for the disk.
///
/// The requests run in the order in which they were made, except that urgent requests precede all
/// others. A request whose caller leaves before its transaction has started is not applied. If a
/// transaction of several requests fails, the requests run one by one, so that a failure affects
/// only its caller. If the outcome is unknown, no request runs again, and all callers get the
/// error.
///
/// The thread ends when the worker is dropped, and closes the store some time later. To open the
/// store again, await [`close`](Self::close) first. If a step panics, the thread ends, and later
/// requests get [`ErrorKind::Unavailable`]. In a forked process, requests get errors.
///
/// # Example
///
/// ```
/// use std::time::{Duration, Instant};
///
/// use leasehold_core::Error;
/// use leasehold_core::batch::{Transactional, Worker};
///
/// #[derive(Default)]
/// struct Memory(Vec<String>);
///
/// impl Transactional for Memory {
///     type Transaction<'a> = Vec<String>;
///     type Stop = Error;
///
///     fn transact(
///         &mut self,
///         _: Instant,
///         steps: &mut dyn FnMut(&mut Vec<String>) -> Result<(), Error>,
///     ) -> Result<(), Error> {
///         let mut rows = self.0.clone();
///         steps(&mut rows)?;
///         self.0 = rows;
///         Ok(())
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let worker = Worker::start("memory", Duration::from_secs(5), |_| Memory::default())?;
/// let insert = |rows: &mut Vec<String>| {
///     rows.push("a row".to_owned());
///     Ok(rows.len())
/// };
/// assert_eq!(worker.write(insert).await?, 1);
/// assert_eq!(worker.read(|store, _| Ok(store.0.len())).await?, 1);
/// // The thread calls `tidy` if it sleeps.
/// worker.waker().wake_by(Instant::now());
/// worker.close().await;
/// # Ok(())
/// # }
/// ```
pub struct Worker<S: Transactional> {
    waker: Waker<S>,
    /// The thread keeps the store locked during each of its steps.
    store: Arc<Mutex<S>>,
    timeout: Duration,
    /// The process in which the thread was started.
    process: u32,
}

/// Wakes the thread of a [`Worker`]. See [`Worker`] for an example.
pub struct Waker<S: Transactional>(Arc<Queue<S>>);

/// The requests that wait for the thread.
struct Queue<S: Transactional> {
    jobs: Mutex<Jobs<S>>,
    wake: Condvar,
}

struct Jobs<S: Transactional> {
    urgent: VecDeque<Job<S>>,
    others: VecDeque<Job<S>>,
    /// When the thread wakes up, if it sleeps.
    sleeps_until: Option<Instant>,
    /// Whether the thread was woken while it did not sleep.
    is_woken: bool,
    /// The average number of requests in the last transactions of the thread.
    together: usize,
    is_closed: bool,
    /// Whether the thread has ended. If the queue is not closed, the thread has panicked.
    has_ended: bool,
    /// The callers that wait for the end of the thread. The end drops the senders.
    closing: Vec<oneshot::Sender<()>>,
}

/// Work for the thread, and the caller that waits for it.
struct Job<S: Transactional> {
    work: Work<S>,
    /// When the work must be done.
    until: Instant,
    /// Set either by the thread, to start the work, or by the caller, to cancel it.
    is_begun: Arc<AtomicBool>,
    done: oneshot::Sender<Result<(), Error>>,
}

enum Work<S: Transactional> {
    /// The steps of a transaction, which other steps may precede and follow. They may run several
    /// times, but their changes are committed at most once.
    Write(Box<Steps<S>>),
    Other(Box<Task<S>>),
}

type Steps<S> = dyn FnMut(&mut <S as Transactional>::Transaction<'_>) -> Result<(), <S as Transactional>::Stop>
    + Send;

type Task<S> = dyn FnOnce(&mut S, Instant) -> Result<(), Error> + Send;

/// The next step of the thread.
enum Next<S: Transactional> {
    /// Either one job of any kind, or several transactions.
    Jobs(Vec<Job<S>>),
    /// [`Transactional::act`] is due.
    Act,
    /// The thread was woken, and reads [`Transactional::due`] again.
    Look,
    End,
}

impl<S: Transactional> Worker<S> {
    /// Calls `create`, and starts a thread with this name. A request waits for at most `timeout`.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unavailable`] if the thread cannot be started.
    pub fn start(
        name: &str,
        timeout: Duration,
        create: impl FnOnce(Waker<S>) -> S,
    ) -> Result<Self, Error> {
        let timeout = timeout.min(FOREVER);
        let waker = Waker(Arc::default());
        let store = Arc::new(Mutex::new(create(waker.clone())));
        let worker = Self { waker, store, timeout, process: process::id() };
        let (queue, store) = (Arc::clone(&worker.waker.0), Arc::clone(&worker.store));
        let started =
            thread::Builder::new().name(name.to_owned()).spawn(move || run(&queue, &store));
        match started {
            Ok(_) => Ok(worker),
            Err(error) => Err(unavailable("cannot start a thread").with_source(error)),
        }
    }

    /// Runs `steps` in a transaction on the thread, and returns their result after the commit.
    ///
    /// If the steps fail, the transaction is rolled back, and the requests of other callers run
    /// again. An error that concerns one caller, such as [`ErrorKind::WrongType`], is therefore
    /// better returned as a value.
    ///
    /// # Errors
    ///
    /// Returns the error of the transaction, [`ErrorKind::Unavailable`] if the store was busy for
    /// too long, [`ErrorKind::Closed`] after [`close`](Self::close), and
    /// [`ErrorKind::Indeterminate`] if the outcome is unknown.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If it is dropped before `steps` have started, they do not run.
    pub async fn write<T: Send + 'static>(
        &self,
        steps: impl FnMut(&mut S::Transaction<'_>) -> Result<T, S::Stop> + Send + 'static,
    ) -> Result<T, Error> {
        self.run(false, steps).await
    }

    /// Runs `steps` as [`write`](Self::write) does, but before all requests that are not urgent.
    /// Renewals are urgent, because a late renewal may lose its lease. A release must not be
    /// urgent, because it would precede an acquisition of the same lease.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`write`](Self::write).
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe, as [`write`](Self::write) is.
    pub async fn write_urgent<T: Send + 'static>(
        &self,
        steps: impl FnMut(&mut S::Transaction<'_>) -> Result<T, S::Stop> + Send + 'static,
    ) -> Result<T, Error> {
        self.run(true, steps).await
    }

    async fn run<T: Send + 'static>(
        &self,
        is_urgent: bool,
        mut steps: impl FnMut(&mut S::Transaction<'_>) -> Result<T, S::Stop> + Send + 'static,
    ) -> Result<T, Error> {
        let reply = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&reply);
        let steps = move |transaction: &mut S::Transaction<'_>| {
            *unpoisoned(&slot) = Some(steps(transaction)?);
            Ok(())
        };
        self.queue(is_urgent, Work::Write(Box::new(steps)))?.await?;
        Ok(taken(&reply))
    }

    /// Runs `work`, which must not change the store's data, on the thread. The work must be done by
    /// the time in its second argument.
    ///
    /// # Errors
    ///
    /// Returns the error of `work`, [`ErrorKind::Unavailable`] if the store did not respond in
    /// time, and [`ErrorKind::Closed`] after [`close`](Self::close).
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If it is dropped before `work` has started, `work` does not run.
    pub async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut S, Instant) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let reply = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&reply);
        let work = move |store: &mut S, until| {
            *unpoisoned(&slot) = Some(work(store, until)?);
            Ok(())
        };
        let done = self.queue(false, Work::Other(Box::new(work)))?.await;
        done.map_err(|error| match error.kind() {
            ErrorKind::Indeterminate => {
                unavailable("the store did not respond in time").with_source(error)
            }
            _ => error,
        })?;
        Ok(taken(&reply))
    }

    /// Returns the store if no request waits or runs, and if the last transactions had one request
    /// each. The caller may then change the store on its own thread, which takes a third of the
    /// time if the commit does not wait for the disk.
    pub fn if_idle(&self) -> Option<MutexGuard<'_, S>> {
        // In a forked process, a thread that exists only in the parent may have locked the mutexes.
        if self.process != process::id() || !self.waker.0.is_idle() {
            return None;
        }
        match self.store.try_lock() {
            Ok(store) => Some(store),
            Err(TryLockError::Poisoned(store)) => Some(store.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Returns the waker of the thread.
    pub fn waker(&self) -> &Waker<S> {
        &self.waker
    }

    /// Adds a job to the queue. Returns a future that waits for the job. If the future is dropped
    /// before the job has started, the job does not start.
    fn queue(
        &self,
        is_urgent: bool,
        work: Work<S>,
    ) -> Result<impl Future<Output = Result<(), Error>> + use<S>, Error> {
        if self.process != process::id() {
            return Err(unavailable(
                "the process was forked after it opened the store; open the store again in the forked process",
            ));
        }
        // The remaining quarter of the time limit is enough to report the outcome of a transaction
        // that has started.
        let until = Instant::now() + self.timeout * 3 / 4;
        let (done, reply) = oneshot::channel();
        let is_begun = Arc::<AtomicBool>::default();
        self.waker.0.push(is_urgent, Job { work, until, is_begun: Arc::clone(&is_begun), done })?;
        let limit = self.timeout;
        Ok(async move {
            let unknown =
                |message: &'static str| Err(Error::new(ErrorKind::Indeterminate, message));
            let reply = timeout(limit, reply).await;
            let was_begun = || is_begun.swap(true, Ordering::AcqRel);
            match reply {
                Ok(Ok(done)) => done,
                Ok(Err(_)) if was_begun() => {
                    unknown("the thread of the store has panicked, so the outcome is unknown")
                }
                Ok(Err(_)) => Err(unavailable("the thread of the store has panicked")),
                Err(_) if was_begun() => {
                    unknown("the store did not respond in time, so the outcome is unknown")
                }
                Err(_) => Err(unavailable(
                    "earlier requests kept the store busy for longer than the timeout",
                )),
            }
        })
    }

    /// Closes the store after all earlier requests, and rejects later requests.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. Even if it is dropped, the store is closed.
    pub async fn close(&self) {
        // In a forked process, a thread that exists only in the parent may have locked the queue.
        if self.process != process::id() {
            return;
        }
        // The end of the thread drops the sender.
        let _ = timeout(self.timeout, self.waker.0.close()).await;
    }
}

impl<S: Transactional> Drop for Worker<S> {
    fn drop(&mut self) {
        if self.process == process::id() {
            drop(self.waker.0.close());
        }
    }
}

impl<S: Transactional> Waker<S> {
    /// Makes the thread read [`Transactional::due`] again, and call [`Transactional::tidy`], unless
    /// it wakes up by `at` without that.
    pub fn wake_by(&self, at: Instant) {
        let mut jobs = unpoisoned(&self.0.jobs);
        match jobs.sleeps_until {
            Some(until) if until > at => self.0.wake.notify_one(),
            Some(_) => {}
            // The thread may have read the time already.
            None => jobs.is_woken = true,
        }
    }
}

impl<S: Transactional> Clone for Waker<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: Transactional> Job<S> {
    /// Returns whether the caller still waits. If so, the thread starts the work.
    fn begin(&self) -> bool {
        !self.done.is_closed() && !self.is_begun.swap(true, Ordering::AcqRel)
    }
}

impl<S: Transactional> Queue<S> {
    fn push(&self, is_urgent: bool, job: Job<S>) -> Result<(), Error> {
        let mut jobs = unpoisoned(&self.jobs);
        if jobs.is_closed {
            return Err(Error::new(ErrorKind::Closed, "the backend was closed"));
        }
        if jobs.has_ended {
            return Err(unavailable("the thread of the store has panicked"));
        }
        if is_urgent {
            jobs.urgent.push_back(job);
        } else {
            jobs.others.push_back(job);
        }
        self.wake.notify_one();
        Ok(())
    }

    /// Returns whether requests may run on their callers' threads.
    ///
    /// The thread must sleep, and no job may be queued. A request must not overtake a job, because
    /// the job may acquire the lease that the request releases. A thread that is awake might not
    /// get the store from callers that use the store one after the other. If several requests
    /// usually run in one transaction, all requests wait for the thread, because one transaction
    /// per request would take longer.
    fn is_idle(&self) -> bool {
        let jobs = unpoisoned(&self.jobs);
        let sleeps = jobs.sleeps_until.is_some();
        sleeps && !jobs.is_closed && jobs.waiting().next().is_none() && jobs.together < 2
    }

    /// Makes the thread end after all earlier jobs. The receiver gets an error at the end.
    fn close(&self) -> oneshot::Receiver<()> {
        let (caller, ended) = oneshot::channel();
        let mut jobs = unpoisoned(&self.jobs);
        jobs.is_closed = true;
        if !jobs.has_ended {
            jobs.closing.push(caller);
        }
        self.wake.notify_one();
        ended
    }

    /// Waits for the next step, which is [`Transactional::act`] at the time `due`.
    fn next(&self, due: Option<Instant>) -> Next<S> {
        let mut jobs = unpoisoned(&self.jobs);
        let left = due.map(|due| due.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) && !jobs.is_closed {
            return Next::Act;
        }
        let next = jobs.take();
        if !next.is_empty() {
            return Next::Jobs(next);
        }
        if jobs.is_closed {
            return Next::End;
        }
        if !mem::take(&mut jobs.is_woken) {
            let left = left.unwrap_or(FOREVER);
            jobs.sleeps_until = Some(Instant::now() + left);
            let woken = self.wake.wait_timeout(jobs, left);
            woken.unwrap_or_else(PoisonError::into_inner).0.sleeps_until = None;
        }
        Next::Look
    }
}

impl<S: Transactional> Jobs<S> {
    /// Removes the first job, or the first transactions, which then run together.
    fn take(&mut self) -> Vec<Job<S>> {
        let is_write = |job: &&Job<S>| matches!(job.work, Work::Write(_));
        let writes = self.waiting().take(TOGETHER).take_while(is_write).count();
        if writes > 0 {
            self.together = self.together.midpoint(writes);
        }
        let first = || self.urgent.pop_front().or_else(|| self.others.pop_front());
        iter::from_fn(first).take(writes.max(1)).collect()
    }

    /// Returns the jobs in the order in which they run.
    fn waiting(&self) -> impl Iterator<Item = &Job<S>> {
        self.urgent.iter().chain(&self.others)
    }
}

/// Runs the thread.
fn run<S: Transactional>(queue: &Queue<S>, store: &Mutex<S>) {
    let _end = End(queue);
    loop {
        // A caller that has locked the store may lock the queue, so both are never locked here.
        let due = unpoisoned(store).due();
        let next = queue.next(due);
        let mut store = unpoisoned(store);
        match next {
            Next::Jobs(jobs) => run_together(&mut *store, jobs),
            Next::Act => store.act(),
            Next::Look => {}
            Next::End => return store.close(),
        }
        store.tidy();
    }
}

/// Rejects all requests after the thread has ended, possibly by a panic.
struct End<'a, S: Transactional>(&'a Queue<S>);

impl<S: Transactional> Drop for End<'_, S> {
    fn drop(&mut self) {
        let callers = {
            let mut jobs = unpoisoned(&self.0.jobs);
            jobs.has_ended = true;
            let waiting = (mem::take(&mut jobs.urgent), mem::take(&mut jobs.others));
            (waiting, mem::take(&mut jobs.closing))
        };
        // This wakes the callers.
        drop(callers);
    }
}

/// Runs one job of any kind, or several transactions together. If the transactions fail, they run
/// again one by one, so that a failure affects only its caller. There are two exceptions:
///
/// - If the outcome is unknown, the transactions may have been applied and do not run again. All callers
///   get the error.
/// - If the store was busy until the time limit of some jobs had passed, only these jobs run alone.
///   Without this rule, these jobs would wait for jobs with later time limits.
fn run_together<S: Transactional>(store: &mut S, mut jobs: Vec<Job<S>>) {
    jobs.retain(Job::begin);
    while jobs.len() > 1 {
        let done = write(store, &mut jobs);
        if done.as_ref().err().is_none_or(|error| error.kind() == ErrorKind::Indeterminate) {
            for job in jobs {
                // The caller may have left.
                drop(job.done.send(done.as_ref().copied().map_err(Error::repeated)));
            }
            return;
        }
        let now = Instant::now();
        let late: Vec<_> = jobs.extract_if(.., |job| job.until <= now).collect();
        if late.is_empty() {
            break;
        }
        late.into_iter().for_each(|job| run_alone(store, job));
    }
    jobs.into_iter().for_each(|job| run_alone(store, job));
}

fn run_alone<S: Transactional>(store: &mut S, mut job: Job<S>) {
    let done = match job.work {
        Work::Write(_) => write(store, slice::from_mut(&mut job)),
        Work::Other(work) => work(store, job.until),
    };
    drop(job.done.send(done));
}

/// Runs the steps of all `jobs` in one transaction.
fn write<S: Transactional>(store: &mut S, jobs: &mut [Job<S>]) -> Result<(), Error> {
    let until = jobs.iter().map(|job| job.until).min().expect("there is a job");
    store.transact(until, &mut |transaction| {
        jobs.iter_mut().try_for_each(|job| match &mut job.work {
            Work::Write(steps) => steps(transaction),
            Work::Other(_) => unreachable!("only transactions run together"),
        })
    })
}

/// Takes the reply of a job that has succeeded.
fn taken<T>(reply: &Mutex<Option<T>>) -> T {
    unpoisoned(reply).take().expect("a job that has succeeded has stored its reply")
}

fn unavailable(message: &'static str) -> Error {
    Error::new(ErrorKind::Unavailable, message)
}

impl<S: Transactional> Default for Queue<S> {
    fn default() -> Self {
        let jobs = Jobs {
            urgent: VecDeque::new(),
            others: VecDeque::new(),
            sleeps_until: None,
            is_woken: false,
            together: 0,
            is_closed: false,
            has_ended: false,
            closing: Vec::new(),
        };
        Self { jobs: Mutex::new(jobs), wake: Condvar::new() }
    }
}

impl<S: Transactional> fmt::Debug for Worker<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl<S: Transactional> fmt::Debug for Waker<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waker").finish_non_exhaustive()
    }
}
