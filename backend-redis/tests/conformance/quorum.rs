//! Runs the suite on a quorum of five servers with a driven clock, with all servers and with two of
//! them killed.
//!
//! The implementation of quorums passes the whole suite in memory. This test only runs the groups
//! for stores with several servers.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use leasehold_conformance::{Groups, Harness, Need, Time};
use leasehold_core::clock::{Clock, Instant, Sleep};
use leasehold_core::{Holder, LockKey};
use leasehold_quorum::Quorum;
use leasehold_redis::{RedisBackend, RedisConfig};
use leasehold_redis_tests::{self as redis_tests, Driven, Servers as _};
use leasehold_testbed::patiently;

/// A slow clock, so that members on a busy machine have thirty times as long to reply. Killed
/// members refuse connections immediately.
#[derive(Clone, Copy, Debug)]
struct Slow(tokio::time::Instant);

impl Slow {
    const PACE: u32 = 30;

    fn new() -> Self {
        Self(tokio::time::Instant::now())
    }
}

impl Clock for Slow {
    fn now(&self) -> Instant {
        Instant::from_zero(self.0.elapsed() / Self::PACE)
    }

    fn sleep_until(&self, deadline: Instant) -> Sleep {
        Box::pin(tokio::time::sleep(deadline.since(self.now()) * Self::PACE))
    }
}

/// The running servers, and the URLs of all servers.
struct Members {
    alive: Vec<Driven>,
    urls: Vec<String>,
}

impl Members {
    /// Starts five servers, establishes the quorum, and kills `killed` servers.
    async fn start(killed: usize) -> Self {
        let mut alive = join_all((0..5).map(|_| Driven::start())).await;
        let urls = alive.iter().map(|server| server.url()).collect();
        let members = Self { urls, alive: Vec::new() };
        members.quorum().establish().await.unwrap();
        alive.truncate(5 - killed);
        Self { alive, ..members }
    }

    fn quorum(&self) -> Quorum<RedisBackend> {
        let member = |url: &String| {
            let config = RedisConfig::from_url(&patiently(url)).unwrap();
            (url.clone(), RedisBackend::connect_lazily(config))
        };
        let members = self.urls.iter().map(member);
        let longest = Duration::from_secs(3_600);
        let quorum = Quorum::builder(members).max_ttl(longest).clock(Slow::new());
        quorum.build().unwrap()
    }

    /// Returns the holder whose lease is in force on a majority. The remaining time is the time for
    /// which a majority keeps the lease, because a renewal may not have reached all members yet.
    async fn probe(&self, key: &LockKey) -> Option<Holder> {
        let mut seen: HashMap<_, Vec<Holder>> = HashMap::new();
        for server in &self.alive {
            if let Some(holder) = redis_tests::probe(server, key).await {
                seen.entry(holder.fingerprint()).or_default().push(holder);
            }
        }
        let half = self.urls.len() / 2;
        let mut holders = seen.into_values().find(|holders| holders.len() > half)?;
        holders.sort_by_key(|holder| Reverse(holder.remaining()));
        holders.into_iter().nth(half)
    }
}

/// Defines a harness of five servers, of which `$killed` are killed.
macro_rules! members {
    ($harness:ident, $name:literal, $killed:literal, $groups:expr) => {
        pub(crate) struct $harness(Members);

        #[async_trait]
        impl Harness for $harness {
            type Backend = Quorum<RedisBackend>;

            const NAME: &str = $name;
            const TIME: Time = Time::Driven;
            const POOLED: bool = true;
            const GROUPS: Groups = $groups;
            const LACKS: &[Need] = &[Need::Member, Need::Queue, Need::Together, Need::Units];

            async fn start() -> Self {
                Self(Members::start($killed).await)
            }

            async fn connect(&self) -> Quorum<RedisBackend> {
                self.0.quorum()
            }

            async fn probe(&self, key: &LockKey) -> Option<Holder> {
                self.0.probe(key).await
            }

            async fn advance_store(&self, by: Duration) {
                for server in &self.0.alive {
                    server.advance(by).await;
                }
            }
        }
    };
}

/// The groups of a topology without `renewal`. If a renewal races with a release, the three
/// remaining members may receive the two requests in different orders. Then no majority confirms
/// whether the lease was renewed.
const WITHOUT_RACES: Groups = Groups::Named(&["fencing", "lost", "mutual_exclusion", "waiting"]);

members!(AllAlive, "quorum of 5 redis", 0, Groups::OF_TOPOLOGY);
members!(TwoKilled, "quorum of 5 redis, two killed", 2, WITHOUT_RACES);
