//! The least that a lock on Redis can be, with the `fred` crate.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fred::clients::Client;
use fred::interfaces::ClientLike;
use fred::types::config::{Config, ConnectionConfig, PerformanceConfig, TcpConfig};
use fred::types::{ClusterHash, CustomCommand, Value};

use super::redis_floor::RELEASE;
use super::{Lock, Locker, TTL};

pub(super) struct FredFloor {
    client: Client,
    release: Arc<str>,
}

impl FredFloor {
    pub(super) async fn connect(url: &str) -> Self {
        let config = Config::from_url(url).expect("it is a server's URL");
        let no_timers = Duration::ZERO;
        let performance = PerformanceConfig {
            default_command_timeout: no_timers,
            ..PerformanceConfig::default()
        };
        let connection = ConnectionConfig {
            internal_command_timeout: no_timers,
            tcp: TcpConfig { nodelay: Some(true), ..TcpConfig::default() },
            ..ConnectionConfig::default()
        };
        let client = Client::new(config, Some(performance), Some(connection), None);
        // The returned task has the connection, and ends with the process.
        drop(client.init().await.expect("the server is up"));
        let load = command("SCRIPT");
        let hash: String =
            client.custom(load, vec!["LOAD", RELEASE]).await.expect("the server is up");
        Self { client, release: hash.into() }
    }
}

fn command(name: &'static str) -> CustomCommand {
    // There is one server, and so no key to choose it by.
    CustomCommand::new_static(name, ClusterHash::Random, false)
}

impl Locker for FredFloor {
    type Lock = Key;

    fn lock(&self, key: &str) -> Key {
        Key {
            client: self.client.clone(),
            release: Arc::clone(&self.release),
            key: key.to_owned(),
            count: AtomicU64::new(0),
        }
    }
}

pub(super) struct Key {
    client: Client,
    release: Arc<str>,
    key: String,
    count: AtomicU64,
}

impl Lock for Key {
    async fn turn<W>(&self, work: W) -> W::Output
    where
        W: Future<Output: Send + 'static> + Send + 'static,
    {
        let value = format!("holder {}", self.count.fetch_add(1, Ordering::Relaxed));
        let (key, value) = (self.key.as_str(), value.as_str());
        let ttl = TTL.as_millis() as i64;
        let set: Vec<Value> = vec![key.into(), value.into(), "NX".into(), "PX".into(), ttl.into()];
        let locked = Box::pin(self.client.custom::<Option<String>, _>(command("SET"), set)).await;
        assert!(locked.expect("the server is up").is_some(), "the key is free");
        let done = work.await;
        let delete: Vec<Value> = vec![(&*self.release).into(), 1.into(), key.into(), value.into()];
        let deleted = Box::pin(self.client.custom::<u32, _>(command("EVALSHA"), delete)).await;
        assert_eq!(deleted.expect("the server is up"), 1, "the key is still locked");
        done
    }
}
