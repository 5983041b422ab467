//! What the suite must know of the Redis family: one server, a master that sentinels know, a cluster; each behind proxies that
//! can fail.
//!
//! What includes this says with what type: `Backend`.

use std::time::Duration;

use async_trait::async_trait;
use leasehold_conformance::document::assert_documented;
use leasehold_conformance::{AsMutex, Disturbance, Harness, Need, suite};
use leasehold_core::{Description, Fingerprint, Holder, LockKey};
use leasehold_redis::RedisBackend;
use leasehold_redis_support::{Call, Layout};
use leasehold_testbed::{FaultProxy, Redis, RedisOptions, Weather};
use tokio::sync::Mutex;

/// A server, and a proxy before it.
struct Server {
    redis: Mutex<Redis>,
    proxy: FaultProxy,
}

impl Server {
    async fn start() -> Self {
        let redis = RedisOptions::new().start().await;
        let proxy = FaultProxy::start(redis.address()).await;
        Self { redis: Mutex::new(redis), proxy }
    }

    async fn connect(&self) -> RedisBackend {
        let url = format!("redis://{}", self.proxy.address());
        RedisBackend::connect(&url).await.unwrap()
    }

    /// Who holds `key`: as a mutex, or the first of those who hold units.
    async fn witness(&self, key: &LockKey) -> Option<Holder> {
        const WITNESS: &str = "
            local value = redis.call('GET', KEYS[1])
            if value then
              return value .. '\\n' .. redis.call('PTTL', KEYS[1])
            end
            local time = redis.call('TIME')
            local now = time[1] * 1000 + math.floor(time[2] / 1000)
            local first = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
            if first[1] then
              local known = string.gsub(redis.call('HGET', KEYS[3], first[1]), '^%d+ ?', '')
              return first[1] .. ' ' .. known .. '\\n' .. (first[2] - now)
            end";

        let of = Places::of(key);
        let redis = self.redis.lock().await;
        let witness = ["EVAL", WITNESS, "3", &of.lock, &of.held, &of.units];
        let reply = bulk(&redis.command(&witness).await)?;
        let (value, remaining) = reply.rsplit_once('\n').unwrap();
        let remaining = remaining.trim().parse().ok().map(Duration::from_millis);
        let (id, description) = value.split_once(' ').unwrap_or((value, ""));
        let holder = Holder::new(Fingerprint::of(id.as_bytes()));
        Some(holder.with_description(Description::new(description).ok()).with_remaining(remaining))
    }

    async fn disturb(&self, disturbance: Disturbance) {
        let mut redis = self.redis.lock().await;
        match disturbance {
            Disturbance::Disconnect => {
                self.proxy.set_weather(Weather::Reset);
                tokio::time::sleep(Duration::from_millis(20)).await;
                self.proxy.set_weather(Weather::Fair);
            }
            Disturbance::BlackHole => self.proxy.set_weather(Weather::BlackHole),
            Disturbance::Pause => redis.pause(),
            Disturbance::Restart => redis.restart().await,
            Disturbance::Heal => {
                self.proxy.set_weather(Weather::Fair);
                redis.resume();
            }
            other => unreachable!("{other:?}"),
        }
    }

    /// Moves all ends of leases and places, wherever they are written down.
    async fn advance(&self, keys: &[LockKey], time: Duration) {
        const ADVANCE: &str = "
            local passed = tonumber(ARGV[1])
            for i, key in ipairs(KEYS) do
              local kind = redis.call('TYPE', key).ok
              if string.find(key, '~held:') and kind == 'zset' then
                for _, id in ipairs(redis.call('ZRANGE', key, 0, -1)) do
                  redis.call('ZINCRBY', key, -passed, id)
                end
              elseif string.find(key, '~places:') and kind == 'hash' then
                local places = redis.call('HGETALL', key)
                for j = 1, #places, 2 do
                  local ends, units = string.match(places[j + 1], '(%d+) (%d+)')
                  redis.call('HSET', key, places[j], string.format('%.0f %s', ends - passed, units))
                end
              end
              local left = redis.call('PTTL', key)
              if left > 0 then
                -- What is not left any more, the server deletes at once.
                redis.call('PEXPIRE', key, string.format('%.0f', left - passed))
              end
            end";

        let redis = self.redis.lock().await;
        let passed = time.as_millis().to_string();
        for key in keys {
            let of = Places::of(key);
            let mut command = vec!["EVAL", ADVANCE];
            let keys = [&of.lock, &of.held, &of.units, &of.queue, &of.places, &of.revoke];
            let count = keys.len().to_string();
            command.push(&count);
            command.extend(keys.map(String::as_str));
            command.push(&passed);
            let reply = redis.command(&command).await;
            assert!(!reply.starts_with('-'), "{reply}");
        }
    }
}

/// Where the server has what belongs to a key.
struct Places {
    lock: String,
    held: String,
    units: String,
    queue: String,
    places: String,
    revoke: String,
}

impl Places {
    fn of(key: &LockKey) -> Self {
        let inspect = Call::inspect(&Layout::default(), key);
        let find = |part: &str| {
            let held = inspect.keys().iter().find(|key| key.contains("~held:")).unwrap();
            held.replace("~held:", &format!("~{part}:"))
        };
        Self {
            lock: inspect.keys()[0].clone(),
            held: find("held"),
            units: find("units"),
            queue: find("queue"),
            places: find("places"),
            revoke: find("revoke"),
        }
    }
}

/// The text of a string reply; `None` if there is none.
fn bulk(reply: &str) -> Option<String> {
    assert!(!reply.starts_with('-'), "{reply}");
    let (len, text) = reply.split_once("\r\n")?;
    len.starts_with('$').then(|| text.to_owned())
}

