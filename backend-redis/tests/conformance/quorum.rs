//! The suite on a quorum of five servers in driven time: all of them, and with two killed.
//!
//! The logic of quorums passes the whole suite in memory. Here are the groups for several servers of the same store.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use leasehold_conformance::{Groups, Harness, Need, Time};
use leasehold_core::clock::{Clock, Instant, Sleep};
use leasehold_core::quorum::Quorum;
use leasehold_core::{Holder, LockKey};
use leasehold_redis::{RedisBackend, RedisConfig};
use leasehold_redis_tests::{self as redis_tests, Driven, Servers as _};
use leasehold_testbed::patiently;

/// A clock that gives members on a busy machine thirty times as long to answer. Killed members refuse at once.
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

/// The servers that live, and where all of them are.
struct Members {
    alive: Vec<Driven>,
    urls: Vec<String>,
}

impl Members {
    /// Starts five, founds the quorum, and kills some.
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

    /// The holder whose lease a majority has, for as long as a majority keeps it: a renewal may not have reached the others yet.
    async fn witness(&self, key: &LockKey) -> Option<Holder> {
        let mut seen: HashMap<_, Vec<Holder>> = HashMap::new();
        for server in &self.alive {
            if let Some(holder) = redis_tests::witness(server, key).await {
                seen.entry(holder.fingerprint()).or_default().push(holder);
            }
        }
        let half = self.urls.len() / 2;
        let mut holders = seen.into_values().find(|holders| holders.len() > half)?;
        holders.sort_by_key(|holder| Reverse(holder.remaining()));
        holders.into_iter().nth(half)
    }
}

/// A harness of five servers of which so many are killed.
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
            const LACKS: &[Need] = &[Need::Membership, Need::Queue, Need::Together, Need::Units];

            async fn start() -> Self {
                Self(Members::start($killed).await)
            }

            async fn connect(&self) -> Quorum<RedisBackend> {
                self.0.quorum()
            }

            async fn witness(&self, key: &LockKey) -> Option<Holder> {
                self.0.witness(key).await
            }

            async fn advance_store(&self, by: Duration) {
                for server in &self.0.alive {
                    server.advance(by).await;
                }
            }
        }
    };
}

/// The groups of a topology without renewals: where one races a release, the three members that are left may each see another of the two
/// first, and then no majority says whether the lease was renewed.
const WITHOUT_RACES: Groups = Groups::Named(&["fencing", "lost", "mutual_exclusion", "waiting"]);

members!(AllAlive, "quorum of 5 redis", 0, Groups::OF_TOPOLOGY);
members!(TwoKilled, "quorum of 5 redis, two killed", 2, WITHOUT_RACES);
