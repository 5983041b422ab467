//! Tests of the recovery after a pause of the server, while callers give up early.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold_core::LockClient;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::start;
use crate::{Backend, Server};

const CALLERS: usize = 50;

const KEYS: u32 = 200;

/// The pause of a caller between two locks. Without a pause, a busy machine would be overloaded.
const PAUSE_MILLIS: std::ops::Range<u64> = 100..400;

/// How long the server is paused, and how long the recovery may take afterwards.
const PAUSED: Duration = Duration::from_secs(3);
const RECOVERS_WITHIN: Duration = Duration::from_secs(5);

/// The time in which locks are counted.
const COUNTED: Duration = Duration::from_secs(1);

const CONNECTIONS_PER_SECOND: f64 = 20.0;

/// Locks and unlocks keys, and gives up each call after 100 to 200 ms.
async fn call(client: LockClient<Backend>, locks: Arc<AtomicU64>) {
    loop {
        let mutex = client.mutex(format!("order:{}", fastrand::u32(..KEYS))).unwrap();
        let patience = Duration::from_millis(fastrand::u64(100..200));
        if let Ok(Ok(())) = timeout(patience, mutex.run(async |_| ())).await {
            locks.fetch_add(1, Ordering::Relaxed);
        }
        sleep(Duration::from_millis(fastrand::u64(PAUSE_MILLIS))).await;
    }
}

async fn connections(server: &Server) -> u64 {
    let row = server.sql(crate::COUNT_CONNECTIONS).await;
    // On MySQL, the first column is the name of the counter.
    row.split('\t').next_back().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(crate) async fn locks_recover_from_a_pause_of_the_server_although_callers_give_up() {
    let server = start().await;
    let client = LockClient::new(Backend::connect(&server.url()).await.unwrap());
    let (locks, mut callers) = (Arc::new(AtomicU64::new(0)), JoinSet::new());
    for _ in 0..CALLERS {
        callers.spawn(call(client.clone(), Arc::clone(&locks)));
    }
    // A busy machine is slower.
    let rate = async || {
        let (before, begun_at) = (locks.load(Ordering::Relaxed), Instant::now());
        sleep(COUNTED).await;
        (locks.load(Ordering::Relaxed) - before) as f64 / begun_at.elapsed().as_secs_f64()
    };
    rate().await;
    let before = rate().await;
    assert!(before > 0.0);
    let (connections_before, begun_at) = (connections(&server).await, Instant::now());

    server.pause();
    sleep(PAUSED).await;
    server.resume();

    let (resumed, mut best) = (Instant::now(), 0.0_f64);
    while best < 0.9 * before && resumed.elapsed() < RECOVERS_WITHIN {
        best = best.max(rate().await);
    }
    let made = (connections(&server).await - connections_before) as f64;
    let per_second = made / begun_at.elapsed().as_secs_f64();
    callers.shutdown().await;
    println!(
        "{before:.0} locks/s before, {best:.0} after {:?}, {per_second:.1} connections/s",
        resumed.elapsed()
    );
    assert!(best >= 0.9 * before, "{best:.0} of {before:.0} locks per second after the pause");
    assert!(per_second <= CONNECTIONS_PER_SECOND, "{made} connections");
}
