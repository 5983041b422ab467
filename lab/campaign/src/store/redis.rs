//! One Redis server.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_conformance::FaultKind;
use leasehold_testbed::{FaultProxy, Pace, Redis, RedisOptions, until};
use tokio::time::sleep;

use super::network_fault::{self, change};
use super::{Store, redis_version};

/// A jump of the clock that no lease outlives.
const JUMP: Duration = Duration::from_secs(3);

/// A server that writes each command to its disk before it answers.
pub(super) struct OneRedis {
    proxy: FaultProxy,
    server: Redis,
}

impl OneRedis {
    pub(super) async fn start() -> Self {
        let server = RedisOptions::new()
            .append_only()
            .clock(Pace::Running)
            .acl("user default on nopass ~* &* +@all")
            .acl("user locker on >secret ~* &* +@all")
            .args(["--enable-debug-command", "yes"])
            .start()
            .await;
        Self { proxy: FaultProxy::start(server.address()).await, server }
    }

    async fn set(&self, setting: &str, value: &str) {
        self.server.command(&["CONFIG", "SET", setting, value]).await;
    }

    /// A snapshot in the place of a folder fails, and from then on writes are refused.
    async fn fail_snapshot(&self, time: Duration) {
        let place = self.server.folder().join("dump.rdb");
        self.set("save", "3600 1").await;
        fs::create_dir_all(&place).expect("temporary folders can be written");
        self.server.command(&["BGSAVE"]).await;
        until("the snapshot fails", async || {
            let info = self.server.command(&["INFO", "persistence"]).await;
            info.contains("rdb_last_bgsave_status:err")
        })
        .await;
        sleep(time).await;
        fs::remove_dir_all(&place).expect("temporary folders can be removed");
        self.set("save", "").await;
    }
}

#[async_trait]
impl Store for OneRedis {
    fn url(&self) -> String {
        format!("redis://locker:secret@{}", self.proxy.address())
    }

    fn ports(&self) -> Vec<u16> {
        network_fault::ports(&[&self.proxy])
    }

    async fn versions(&self) -> BTreeMap<String, String> {
        redis_version(&self.server.command(&["INFO", "server"]).await)
    }

    async fn disturb(&mut self, kind: FaultKind, time: Duration) -> String {
        let millis = time.as_millis().to_string();
        match kind {
            FaultKind::ServerStopped => {
                self.server.pause();
                sleep(time).await;
                self.server.resume();
            }
            FaultKind::ServerKilled => {
                self.server.kill();
                sleep(time).await;
                self.server.restart().await;
            }
            FaultKind::ServerTerminated => {
                self.server.terminate();
                sleep(time).await;
                self.server.restart().await;
            }
            FaultKind::ScriptsFlushed => {
                self.server.command(&["SCRIPT", "FLUSH"]).await;
                sleep(time).await;
            }
            FaultKind::ConnectionsKilled => {
                self.server.command(&["CLIENT", "KILL", "USER", "locker"]).await;
                sleep(time).await;
                self.server.command(&["CLIENT", "KILL", "USER", "locker"]).await;
            }
            FaultKind::CommandsPaused => {
                self.server.command(&["CLIENT", "PAUSE", &millis, "ALL"]).await;
                sleep(time).await;
            }
            FaultKind::ServerAsleep => {
                let seconds = time.as_secs_f64().to_string();
                self.server.command(&["DEBUG", "SLEEP", &seconds]).await;
            }
            FaultKind::MemoryFull => {
                self.set("maxmemory", "1").await;
                sleep(time).await;
                self.set("maxmemory", "0").await;
            }
            FaultKind::RightsRemoved => {
                self.server.command(&["ACL", "SETUSER", "locker", "-@all"]).await;
                sleep(time).await;
                self.server.command(&["ACL", "SETUSER", "locker", "+@all"]).await;
            }
            FaultKind::SnapshotFailed => self.fail_snapshot(time).await,
            FaultKind::ClockForward => {
                self.server.clock().advance(JUMP);
                sleep(time).await;
            }
            FaultKind::ClockBack => {
                self.server.clock().set_back(JUMP);
                sleep(time).await;
            }
            FaultKind::DataFlushed => {
                self.server.command(&["FLUSHALL"]).await;
                sleep(time).await;
            }
            FaultKind::DataWiped => {
                self.server.wipe();
                sleep(time).await;
                self.server.restart().await;
            }
            _ => return change(&[&self.proxy], kind, time).await.expect("it is in the catalogue"),
        }
        "the server".to_owned()
    }
}
