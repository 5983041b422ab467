//! Locks that are held on etcd: how often the server hears of them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use leasehold_core::{LockClient, LockGuard, LockOptions};
use leasehold_etcd::EtcdBackend;
use leasehold_testbed::Etcd;
use tokio::time::sleep;

use crate::args::Args;
use crate::contest::{Contest, Contestant, Turn};
use crate::measure::Measure;
use crate::outcome::Outcome;
use crate::round::Round;
use crate::target::{Bound, Target};

const KEEP_ALIVES: Measure = Measure::less("keep-alives per second", "/s");
const LOST: Measure = Measure::less("lost", "");

const ONE: &str = "leasehold, etcd, 1 lock";
const MANY: &str = "leasehold, etcd, 1,000 locks";

const TTL: Duration = Duration::from_secs(3);

/// The server's counter of keep-alives.
const HEARD: &str = r#"grpc_server_msg_received_total{grpc_method="LeaseKeepAlive"}"#;

pub(super) async fn run(args: &Args) -> Outcome {
    let etcd = Arc::new(Etcd::start().await);
    let hold = args.scale(TTL * 4, TTL / 2);
    let title = format!("etcd, locks with a TTL of {TTL:?}, held for {hold:?}");
    let mut contest = Contest::new("etcd-keep-alive", title);
    for (name, locks) in [(ONE, 1), (MANY, 1_000)] {
        contest.add(args, Held { name, locks, hold, etcd: Arc::clone(&etcd) });
    }
    contest.warms_up = false;
    contest.targets = vec![
        // With twelve of them, one more or less is chance.
        Target::new(MANY, KEEP_ALIVES, Bound::AtMost(1.2)).beside(ONE),
        Target::new(MANY, LOST, Bound::AtMost(0.0)),
    ];
    contest.run(args).await
}

struct Held {
    name: &'static str,
    locks: usize,
    hold: Duration,
    etcd: Arc<Etcd>,
}

#[async_trait]
impl Contestant for Held {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    async fn round(&mut self, turn: Turn) -> Round {
        let backend = EtcdBackend::connect(&self.etcd.url()).await.expect("the server is up");
        let options = LockOptions::new().ttl(TTL);
        let client = LockClient::builder(backend).options(options).build().expect("they are fine");
        let mutex = |number| client.mutex(format!("{}/{number:04}", turn.prefix()));
        let mutexes: Vec<_> =
            (0..self.locks).map(|number| mutex(number).expect("so is it")).collect();
        let guards = join_all(mutexes.iter().map(|mutex| mutex.lock())).await;
        let guards: Vec<LockGuard> =
            guards.into_iter().map(|guard| guard.expect("the server is up")).collect();

        let before = self.etcd.metric(0, HEARD).await;
        sleep(self.hold).await;
        let heard = self.etcd.metric(0, HEARD).await - before;
        let lost = guards.iter().filter(|guard| !guard.is_held()).count();

        drop(guards);
        client.shutdown(TTL).await.expect("the server is up");
        Round::new().with(KEEP_ALIVES, heard / self.hold.as_secs_f64()).with(LOST, lost as f64)
    }
}
