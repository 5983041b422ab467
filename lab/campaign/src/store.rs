//! The stores, which a campaign disturbs.

mod cluster;
mod databases;
mod etcd;
mod given;
mod launch;
mod mariadb;
mod network_fault;
mod postgres;
mod quorum;
mod redis;
mod sentinel;
mod sqlite;
mod zookeeper;

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_conformance::FaultKind;

use crate::firewall::Peer;

pub use launch::start;

/// A store, whose servers end when it is dropped.
#[async_trait]
pub trait Store: Send + Sync {
    /// Its URL, for clients.
    fn url(&self) -> String;

    /// The ports on which clients reach it.
    fn ports(&self) -> Vec<u16> {
        Vec::new()
    }

    /// The server that leads the others, by the packets between them; none where proxies stand between servers, or there is only one.
    async fn leader(&self) -> Option<Peer> {
        None
    }

    /// The versions of its programs.
    async fn versions(&self) -> BTreeMap<String, String>;

    /// Causes a fault for `time`, repairs the store, and returns the name of the fault's target.
    ///
    /// # Panics
    ///
    /// Panics if this store does not support the fault.
    async fn disturb(&mut self, kind: FaultKind, time: Duration) -> String;
}

/// Returns the command that causes a fault of a primary, if a single command is sufficient.
fn of_a_primary(kind: FaultKind, time: Duration) -> Option<String> {
    Some(match kind {
        FaultKind::ScriptsFlushed => "SCRIPT FLUSH".to_owned(),
        FaultKind::ConnectionsKilled => "CLIENT KILL TYPE normal".to_owned(),
        FaultKind::CommandsPaused => format!("CLIENT PAUSE {} WRITE", time.as_millis()),
        _ => return None,
    })
}

/// One version, by its program.
fn version(program: &str, version: impl Into<String>) -> BTreeMap<String, String> {
    BTreeMap::from([(program.to_owned(), version.into())])
}

/// The version in a reply to `INFO server`.
fn redis_version(info: &str) -> BTreeMap<String, String> {
    let line = info.lines().find_map(|line| line.strip_prefix("redis_version:"));
    version("redis", line.unwrap_or("unknown").trim())
}
