//! Two clients that want one key on etcd: how long after the one begins to give it back the other has it.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use leasehold_core::{LockGuard, Mutex};
use leasehold_testbed::EtcdOptions;
use tokio::time::sleep;

use super::etcd_lock::{OURS, RPC, Rpc, mutex};
use crate::args::Args;
use crate::contest::{Contest, Contestant, Turn};
use crate::measure::{Measure, percentile};
use crate::outcome::Outcome;
use crate::round::Round;
use crate::target::{Bound, Target};

/// Long enough for the waiter to stand in line and to watch.
const UNTIL_IT_WAITS: Duration = Duration::from_millis(30);

pub(super) async fn run(args: &Args) -> Outcome {
    let etcd = EtcdOptions::new().durable().start().await;
    let title = "etcd, two clients, one key: from the release to the other's lock";
    let mut contest = Contest::new("etcd-hand-over", title);
    let count = args.scale(40, 2);
    let rpc = [Rpc::new(&etcd).await, Rpc::new(&etcd).await];
    contest.add(args, Pair { sides: rpc, count });
    let ours = [mutex(&etcd, "pair").await, mutex(&etcd, "pair").await];
    contest.add(args, Pair { sides: ours, count });
    let target = Target::new(OURS, Measure::P50, Bound::AtMost(1.0 / 40.0));
    contest.targets = vec![target.beside(RPC)];
    contest.run(args).await
}

/// One of two clients.
#[async_trait]
trait Side: Clone + Send + Sync + 'static {
    const NAME: &str;

    type Guard: Send + 'static;

    async fn lock(&mut self) -> Self::Guard;

    async fn release(&mut self, guard: Self::Guard);
}

#[async_trait]
impl Side for Mutex {
    const NAME: &str = OURS;

    type Guard = LockGuard;

    async fn lock(&mut self) -> LockGuard {
        Self::lock(self).await.expect("the server is up")
    }

    async fn release(&mut self, guard: LockGuard) {
        guard.release().await.expect("the server is up");
    }
}

#[async_trait]
impl Side for Rpc {
    const NAME: &str = RPC;

    type Guard = Vec<u8>;

    async fn lock(&mut self) -> Vec<u8> {
        Self::lock(self).await
    }

    async fn release(&mut self, key: Vec<u8>) {
        self.unlock(key).await;
    }
}

/// Two clients, and how often one hands over to the other.
struct Pair<S> {
    sides: [S; 2],
    count: usize,
}

#[async_trait]
impl<S: Side> Contestant for Pair<S> {
    fn name(&self) -> String {
        S::NAME.to_owned()
    }

    async fn round(&mut self, _turn: Turn) -> Round {
        let mut times = Vec::with_capacity(self.count);
        let mut guard = self.sides[0].lock().await;
        for count in 0..self.count {
            let mut next = self.sides[(count + 1) % 2].clone();
            let waiting = tokio::spawn(async move {
                let guard = next.lock().await;
                (guard, Instant::now())
            });
            sleep(UNTIL_IT_WAITS).await;
            let began = Instant::now();
            self.sides[count % 2].release(guard).await;
            let locked_at;
            (guard, locked_at) = waiting.await.expect("it does not panic");
            times.push(locked_at.duration_since(began));
        }
        self.sides[self.count % 2].release(guard).await;
        Round::new()
            .with(Measure::P50, percentile(&mut times, 50))
            .with(Measure::P99, percentile(&mut times, 99))
    }
}
