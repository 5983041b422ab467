//! The suite on one real Redis, through a proxy that can fail.

use std::time::Duration;

use async_trait::async_trait;
use leasehold_conformance::document::assert_documented;
use leasehold_conformance::{Disturbance, Harness, Need, suite};
use leasehold_core::{Description, Fingerprint, Holder, LockKey};
use leasehold_redis::RedisBackend;
use leasehold_testbed::{FaultProxy, Redis, RedisOptions, Weather};
use tokio::sync::Mutex;

struct OneRedis {
    server: Mutex<Redis>,
    proxy: FaultProxy,
}

#[async_trait]
impl Harness for OneRedis {
    type Backend = RedisBackend;

    const NAME: &str = "redis";
    const HOOKS: &[Need] =
        &[Need::Advance, Need::BlackHole, Need::Disconnect, Need::Pause, Need::Restart];

    async fn start() -> Self {
        let server = RedisOptions::new().start().await;
        let proxy = FaultProxy::start(server.address()).await;
        Self { server: Mutex::new(server), proxy }
    }

    async fn connect(&self) -> RedisBackend {
        let url = format!("redis://{}", self.proxy.address());
        RedisBackend::connect(&url).await.unwrap()
    }

    async fn witness(&self, key: &LockKey) -> Option<Holder> {
        let server = self.server.lock().await;
        let name = format!("lock:{key}");
        let value = bulk(&server.command(&["GET", &name]).await)?;
        let remaining = server.command(&["PTTL", &name]).await;
        let remaining = remaining.trim_start_matches(':').parse().ok().map(Duration::from_millis);
        let (id, description) = value.split_once(' ').unwrap_or((&value, ""));
        let holder = Holder::new(Fingerprint::of(id.as_bytes()));
        Some(holder.with_description(Description::new(description).ok()).with_remaining(remaining))
    }

    async fn disturb(&self, disturbance: Disturbance) {
        let mut server = self.server.lock().await;
        match disturbance {
            Disturbance::Disconnect => {
                self.proxy.set_weather(Weather::Reset);
                tokio::time::sleep(Duration::from_millis(20)).await;
                self.proxy.set_weather(Weather::Fair);
            }
            Disturbance::BlackHole => self.proxy.set_weather(Weather::BlackHole),
            Disturbance::Pause => server.pause(),
            Disturbance::Restart => server.restart().await,
            Disturbance::Heal => {
                self.proxy.set_weather(Weather::Fair);
                server.resume();
            }
            other => unreachable!("{other:?}"),
        }
    }

    async fn advance(&self, keys: &[LockKey], time: Duration) {
        let server = self.server.lock().await;
        for key in keys {
            let name = format!("lock:{key}");
            let remaining = server.command(&["PTTL", &name]).await;
            let remaining: i64 = remaining.trim_start_matches(':').parse().unwrap();
            if remaining < 0 {
                continue;
            }
            // What is not left any more, the server deletes at once.
            let left = remaining - i64::try_from(time.as_millis()).unwrap();
            server.command(&["PEXPIRE", &name, &left.to_string()]).await;
        }
    }
}

/// The text of a string reply; `None` if there is none.
fn bulk(reply: &str) -> Option<String> {
    let (len, text) = reply.split_once("\r\n")?;
    len.starts_with('$').then(|| text.to_owned())
}

suite!(OneRedis);

#[test]
fn what_runs_here_is_documented() {
    assert_documented::<OneRedis>(include_str!("../../docs/conformance.md"));
}
