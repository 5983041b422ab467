//! First come, first served, across processes: 16 clients in 4 of them.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::clock::{Clock, Instant, SystemClock};
use leasehold_core::{
    Attempt, Capabilities, Claim, Error, KeyWatch, Lease, LockBackend, LockClient, LockKey,
    LockOptions, Release, Renewal,
};
use leasehold_testbed::Redis;
use tokio::time::timeout;

use crate::Backend;

const PROCESSES: usize = 4;
const CLIENTS: usize = 4;
/// Acquisitions of each client, those that it cancels not counted.
const ROUNDS: usize = 63;

/// Set in the processes that the test starts: where the server is.
const SERVER: &str = "LEASEHOLD_FAIR_TEST_SERVER";

/// A backend that notes when an acquisition was first sent, and when the store first answered.
#[derive(Debug)]
struct Noting {
    inner: Backend,
    noted: Arc<Mutex<Option<(Instant, Instant)>>>,
}

#[async_trait]
impl LockBackend for Noting {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        let sent = SystemClock.now();
        let attempt = self.inner.try_acquire(claim).await?;
        self.noted.lock().unwrap().get_or_insert((sent, SystemClock.now()));
        Ok(attempt)
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
        self.inner.renew(lease).await
    }

    async fn release(&self, lease: &Lease) -> Result<Release, Error> {
        self.inner.release(lease).await
    }

    fn watch(&self, key: &LockKey) -> KeyWatch {
        self.inner.watch(key)
    }
}

/// One client: acquires again and again, and says when it asked, when that was acknowledged, and what token came of it.
async fn acquire_and_tell(url: String) {
    let noted = Arc::default();
    let backend =
        Noting { inner: Backend::connect(&url).await.unwrap(), noted: Arc::clone(&noted) };
    let options = LockOptions::new().fair(true);
    let client = LockClient::builder(backend).options(options).build().unwrap();
    let mutex = client.mutex("job").unwrap();
    let mut rounds = 0;
    while rounds < ROUNDS {
        noted.lock().unwrap().take();
        let guard = if fastrand::u8(..5) == 0 {
            let patience = Duration::from_micros(fastrand::u64(..6_000));
            match timeout(patience, mutex.lock()).await {
                Ok(guard) => guard.unwrap(),
                Err(_cancelled) => continue,
            }
        } else {
            mutex.lock().await.unwrap()
        };
        let (sent, acknowledged) = noted.lock().unwrap().take().unwrap();
        let since_start = |instant: Instant| instant.since(Instant::from_zero(Duration::ZERO));
        println!(
            "acquired {} {} {}",
            since_start(sent).as_nanos(),
            since_start(acknowledged).as_nanos(),
            guard.token()
        );
        tokio::task::yield_now().await;
        guard.release().await.unwrap();
        rounds += 1;
    }
    client.shutdown(Duration::from_secs(5)).await.unwrap();
}

/// What a process of the test runs; nothing when it is called as a test of its own.
#[tokio::test]
async fn a_process() {
    let Ok(url) = std::env::var(SERVER) else { return };
    let clients = (0..CLIENTS).map(|_| tokio::spawn(acquire_and_tell(url.clone())));
    for client in clients.collect::<Vec<_>>() {
        client.await.unwrap();
    }
}

struct Process(Child);

impl Process {
    fn start(url: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "family::fair::a_process", "--nocapture"]).env(SERVER, url);
        Self(command.stdout(Stdio::piped()).spawn().unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[tokio::test]
async fn nobody_is_served_before_one_whose_place_was_acknowledged_before_it_asked() {
    let redis = Redis::start().await;
    let mut processes: Vec<Process> =
        (0..PROCESSES).map(|_| Process::start(&redis.url())).collect();
    let readers = processes.iter_mut().map(|process| {
        let lines = BufReader::new(process.0.stdout.take().unwrap()).lines();
        tokio::task::spawn_blocking(move || {
            let lines = lines.map_while(Result::ok);
            let rows = lines.filter_map(|line| {
                let (_, numbers) = line.split_once("acquired ")?;
                let numbers: Vec<u64> =
                    numbers.split(' ').map(|number| number.parse().unwrap()).collect();
                Some((numbers[0], numbers[1], numbers[2]))
            });
            rows.collect::<Vec<_>>()
        })
    });
    let mut acquired = Vec::new();
    for reader in readers.collect::<Vec<_>>() {
        acquired.extend(reader.await.unwrap());
    }
    for process in &mut processes {
        assert!(process.0.wait().unwrap().success());
    }
    assert_eq!(acquired.len(), PROCESSES * CLIENTS * ROUNDS);
    assert!(acquired.len() >= 1_000);

    // In the order of the grants: none of the later ones may have been acknowledged before an earlier one was sent.
    acquired.sort_by_key(|(_, _, token)| *token);
    let mut earliest_acknowledged_after = u64::MAX;
    let mut inversions = 0;
    for (sent, acknowledged, _) in acquired.iter().rev() {
        inversions += u32::from(earliest_acknowledged_after < *sent);
        earliest_acknowledged_after = earliest_acknowledged_after.min(*acknowledged);
    }
    assert_eq!(inversions, 0);
}
