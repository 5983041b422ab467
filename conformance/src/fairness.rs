//! Checks that a lock is granted first come, first served across processes.
//!
//! A test starts its own test binary several times. Each process runs a second test, in which
//! clients [`take_turns`](Contest::take_turns):
//!
//! ```no_run
//! use leasehold_conformance::fairness::Contest;
//! use leasehold_core::LockOptions;
//! use leasehold_core::memory::MemoryBackend;
//!
//! const CONTEST: Contest = Contest::new(20);
//!
//! // Runs the clients of one process. As an ordinary test, this function does nothing.
//! # async fn a_process() {
//! let connect = async |server| MemoryBackend::new(); // in a real test: a shared store
//! CONTEST.take_turns(LockOptions::new().fair(true), connect).await;
//! # }
//!
//! // Starts processes that run the test above by its full name.
//! # async fn test() {
//! CONTEST.assert_first_come_first_served("fair::a_process", "redis://127.0.0.1").await;
//! # }
//! ```

use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::{Layer, LockBackend, Reply, Request};
use leasehold_core::clock::{Clock, Instant, SystemClock};
use leasehold_core::{Error, LockClient, LockOptions};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::timeout;

/// The prefix of a line in which a client describes an acquisition.
const MARK: &str = "acquired ";

/// The environment variable that contains the server's address. The test sets this variable for the
/// processes that it starts.
const SERVER: &str = "LEASEHOLD_FAIRNESS_SERVER";

const PROCESSES: usize = 4;

/// The number of clients in each process.
const CLIENTS: usize = 4;

/// A test in which sixteen clients in four processes compete for one lock.
///
/// The example for [`fairness`](self) runs a contest.
#[derive(Clone, Copy, Debug)]
pub struct Contest {
    rounds: usize,
}

impl Contest {
    /// Creates a test in which each client acquires the lock `rounds` times. Cancelled acquisitions
    /// do not count.
    pub const fn new(rounds: usize) -> Self {
        Self { rounds }
    }

    /// Runs the clients of one process. Does nothing unless
    /// [`assert_first_come_first_served`](Self::assert_first_come_first_served) has started the
    /// process.
    ///
    /// Each client connects to the given server, and repeatedly acquires and releases the lock.
    /// Each client also cancels some acquisitions at random times. For each acquisition, the client
    /// prints when the request was sent, when the store acknowledged it, and the token of the
    /// grant.
    ///
    /// # Panics
    ///
    /// Panics if the store fails.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the clients stop printing. Acquisitions in progress are cancelled
    /// and the lock is released in the background, as long as the runtime exists. If the runtime no
    /// longer exists, the lease expires after its TTL.
    pub async fn take_turns<B: LockBackend>(
        self,
        options: LockOptions,
        connect: impl AsyncFn(String) -> B,
    ) {
        let Ok(server) = env::var(SERVER) else { return };
        let mut clients = JoinSet::new();
        for _ in 0..CLIENTS {
            clients.spawn(take_turns(connect(server.clone()).await, options.clone(), self.rounds));
        }
        clients.join_all().await;
    }

    /// Starts this test binary several times. Each process runs the test `test`. The test `test`
    /// must call [`take_turns`](Self::take_turns) with `server`.
    ///
    /// # Panics
    ///
    /// Panics if a process fails. Also panics if the store granted a later claim before an earlier
    /// claim. A claim counts as earlier than another claim if the store acknowledged it before the
    /// other claim was sent.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the processes continue until they finish.
    pub async fn assert_first_come_first_served(self, test: &str, server: &str) {
        let process = || {
            let program = env::current_exe().expect("a test knows its program");
            let mut command = Command::new(program);
            command.args(["--exact", test, "--nocapture"]).env(SERVER, server);
            command
        };
        let processes: Vec<_> = (0..PROCESSES).map(|_| process()).collect();
        let acquired = spawn_blocking(|| run(processes)).await.expect("processes can be run");
        let count = acquired.len();
        assert_eq!(count, PROCESSES * CLIENTS * self.rounds);
        assert_eq!(
            inversions(acquired),
            0,
            "clients were served out of order, in a test of {count} acquisitions"
        );
    }
}

async fn take_turns<B: LockBackend>(backend: B, options: LockOptions, rounds: usize) {
    let noted = Noted::default();
    let backend = Noting { inner: backend, noted: Arc::clone(&noted) };
    let client = LockClient::builder(backend).options(options).build();
    let client = client.expect("the options are not valid for the store");
    let mutex = client.mutex("fairness").expect("it is a key");
    let (mut round, mut cancelled) = (0, 0);
    while round < rounds {
        take(&noted);
        let guard = if (round + cancelled) % 5 == 4 {
            cancelled += 1;
            // The wait is random and lasts for at most a full turn plus a part of the queue.
            let patience = Duration::from_micros(fastrand::u64(..12_000));
            match timeout(patience, mutex.lock()).await {
                Ok(guard) => guard,
                Err(_cancelled) => continue,
            }
        } else {
            mutex.lock().await
        };
        let guard = guard.expect("the lock could not be acquired");
        let (sent, acknowledged) = take(&noted).expect("it was sent");
        println!("{MARK}{} {} {}", nanos(sent), nanos(acknowledged), guard.token());
        tokio::task::yield_now().await;
        guard.release().await.expect("the lock could not be released");
        round += 1;
    }
    client.shutdown(Duration::from_secs(5)).await.expect("the client could not be shut down");
}

/// Runs the processes until they exit, and returns the acquisitions that their clients printed.
fn run(processes: Vec<Command>) -> Vec<Acquired> {
    let running: Vec<_> = processes.into_iter().map(Process::start).collect();
    let readers: Vec<_> =
        running.into_iter().map(|process| thread::spawn(|| process.acquired())).collect();
    readers
        .into_iter()
        .flat_map(|reader| reader.join().expect("the output of a process can be read"))
        .collect()
}

/// Returns the number of acquisitions that were requested only after a later grant had been
/// acknowledged.
fn inversions(mut acquired: Vec<Acquired>) -> usize {
    // The loop starts at the last grant. No later grant may have been acknowledged before an
    // earlier grant was requested.
    acquired.sort_by_key(|acquired| acquired.token);
    let mut earliest_acknowledged = u64::MAX;
    let mut inversions = 0;
    for Acquired { sent, acknowledged, .. } in acquired.iter().rev() {
        inversions += usize::from(earliest_acknowledged < *sent);
        earliest_acknowledged = earliest_acknowledged.min(*acknowledged);
    }
    inversions
}

/// Returns the nanoseconds since a reference time that all processes of a machine share.
fn nanos(instant: Instant) -> u128 {
    instant.since(Instant::from_zero(Duration::ZERO)).as_nanos()
}

/// The time when an acquisition was first sent, and the time of the store's first reply.
type Noted = Arc<Mutex<Option<(Instant, Instant)>>>;

fn take(noted: &Noted) -> Option<(Instant, Instant)> {
    noted.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// A backend that records when each acquisition was sent and acknowledged.
#[derive(Debug)]
struct Noting<B> {
    inner: B,
    noted: Noted,
}

#[async_trait]
impl<B: LockBackend> Layer for Noting<B> {
    fn inner(&self) -> &dyn LockBackend {
        &self.inner
    }

    async fn request(&self, request: Request<'_>) -> Result<Reply, Error> {
        let sent = SystemClock.now();
        let reply = request.send(&self.inner).await?;
        if matches!(request, Request::Acquire(_)) {
            let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
            noted.get_or_insert((sent, SystemClock.now()));
        }
        Ok(reply)
    }
}

/// An acquisition, as printed by its client.
struct Acquired {
    sent: u64,
    acknowledged: u64,
    token: u64,
}

/// A process that is killed when the test ends.
struct Process(Child);

impl Process {
    fn start(mut command: Command) -> Self {
        Self(command.stdout(Stdio::piped()).spawn().expect("a process can be started"))
    }

    fn acquired(mut self) -> Vec<Acquired> {
        let lines = BufReader::new(self.0.stdout.take().expect("it is piped")).lines();
        let acquired = lines.map_while(Result::ok).filter_map(|line| {
            let (_, numbers) = line.split_once(MARK)?;
            let mut numbers = numbers.split(' ').map(|number| number.parse().expect("a number"));
            let mut next = || numbers.next().expect("three numbers");
            Some(Acquired { sent: next(), acknowledged: next(), token: next() })
        });
        let acquired = acquired.collect();
        assert!(self.0.wait().expect("it is our child").success(), "a process failed");
        acquired
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
