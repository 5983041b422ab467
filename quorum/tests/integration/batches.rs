//! Members that send the requests of several callers in batches.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use leasehold_core::backend::{
    Attempt, Claim, Layer, Lease, LockBackend, Reply, Request, StoreAdmin,
};
use leasehold_core::batch::{BatchLimits, BatchStats, Batcher, LANES, Lane, SendBatch};
use leasehold_core::clock::TokioClock;
use leasehold_core::memory::MemoryBackend;
use leasehold_core::{Error, LockKey};
use leasehold_quorum::Quorum;
use tokio::time::{Instant, sleep};

use crate::servers::{MAX_TTL, TTL};

const CALLS: usize = 100;
const ROUND_TRIP: Duration = Duration::from_millis(10);
const SLOW: Duration = Duration::from_millis(200);

/// A member that sends all requests in batches. Clones share the queue.
#[derive(Clone, Debug)]
struct Batching {
    store: MemoryBackend,
    batcher: Batcher<Connection>,
}

struct Connection {
    store: MemoryBackend,
    round_trip: Duration,
}

impl SendBatch for Connection {
    type Request = Request<'static>;
    type Reply = Result<Reply, Error>;

    async fn send_next(&self, lane: &mut Lane<Self>) {
        let Some(mut batch) = lane.next_batch() else { return };
        let sent: Vec<_> = batch.open().map(|(index, request)| (index, request.clone())).collect();
        sleep(self.round_trip).await;
        for (index, request) in sent {
            batch.answer(index, request.send(&self.store).await);
        }
    }
}

impl Batching {
    fn new(round_trip: Duration) -> Self {
        let store = MemoryBackend::with_clock(TokioClock::new());
        let connection = Connection { store: store.clone(), round_trip };
        let limits = BatchLimits::new(Duration::from_secs(5));
        Self { store, batcher: Batcher::new("memory", connection, limits) }
    }

    /// Returns the numbers of batches and requests since `before`.
    fn sent_since(&self, before: BatchStats) -> (u64, u64) {
        let stats = self.batcher.stats();
        (stats.batches - before.batches, stats.requests - before.requests)
    }
}

#[async_trait]
impl Layer for Batching {
    fn inner(&self) -> &dyn LockBackend {
        &self.store
    }

    async fn request(&self, request: Request<'_>) -> Result<Reply, Error> {
        self.batcher.submit(request.into_owned())?.reply().await?
    }
}

/// Makes many calls at the same time, one of whose members is slow.
#[tokio::test(start_paused = true)]
async fn requests_that_no_call_waits_for_share_the_batches_of_their_member() {
    let members = [ROUND_TRIP, ROUND_TRIP, SLOW].map(Batching::new);
    let names = ["a", "b", "c"].into_iter();
    let quorum = Quorum::builder(names.zip(members.clone())).max_ttl(MAX_TTL);
    let quorum = quorum.clock(TokioClock::new()).build().unwrap();
    quorum.establish().await.unwrap();
    sleep(2 * SLOW).await;
    let before = members.each_ref().map(|member| member.batcher.stats());
    let keys: Vec<_> = (0..CALLS).map(|n| LockKey::new(format!("k{n}")).unwrap()).collect();
    let claims = keys.iter().map(|key| Claim::new(Lease::new(key, TTL)));
    let claims: Vec<_> = claims.collect();
    let begun_at = Instant::now();

    for attempt in join_all(claims.iter().map(|claim| quorum.acquire(claim))).await {
        assert!(matches!(attempt, Ok(Attempt::Granted(_))), "{attempt:?}");
    }

    assert!(begun_at.elapsed() < SLOW, "{:?}", begun_at.elapsed());
    sleep(2 * SLOW).await;
    for (member, before) in members.iter().zip(before) {
        let (batches, requests) = member.sent_since(before);
        assert!(requests >= CALLS as u64, "{requests}");
        assert!(batches <= 2 * LANES as u64, "{batches}");
        for key in &keys {
            assert!(member.store.inspect(key).await.unwrap().is_held());
        }
    }
}
