//! A MariaDB server.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_conformance::FaultKind;
use leasehold_testbed::{FaultProxy, MariaDb, MariaDbOptions};
use tokio::time::sleep;

use super::databases::{self, TABLE};
use super::network_fault::{self, change};
use super::{Store, version};

/// A server with a binary log, as those that others copy.
pub(super) struct OneMariaDb {
    proxy: FaultProxy,
    server: MariaDb,
}

impl OneMariaDb {
    pub(super) async fn start() -> Self {
        let options = MariaDbOptions::new().small_log_disk().set("sync_binlog", "1");
        // A soak of hours must not fill the disk.
        let options = options.set("max_binlog_size", "1M").set("binlog_expire_logs_seconds", "10");
        let server = options.start().await;
        Self { proxy: server.proxy().await, server }
    }

    async fn kill_connections(&self) {
        let ids = self.server.sql("SELECT id FROM information_schema.processlist WHERE user <> 'root' AND user <> 'system user'");
        for id in ids.await.lines() {
            // It may have ended by itself.
            drop(self.server.try_sql(&format!("KILL {id}")).await);
        }
    }

    /// Commits find no room in the binary log. The server looks for room once a minute: an operator makes some and starts it again.
    async fn fill_disk(&mut self, time: Duration) {
        self.server.fill_disk();
        sleep(time).await;
        self.server.clear_disk();
        self.server.restart().await;
    }
}

#[async_trait]
impl Store for OneMariaDb {
    fn url(&self) -> String {
        let user = self.server.url();
        let user = user.split("://").nth(1).and_then(|rest| rest.split('@').next());
        self.server.url_at(user.expect("a URL names its user"), &self.proxy.address())
    }

    fn ports(&self) -> Vec<u16> {
        network_fault::ports(&[&self.proxy])
    }

    async fn versions(&self) -> BTreeMap<String, String> {
        version("mariadb", self.server.sql("SELECT VERSION()").await)
    }

    async fn disturb(&mut self, kind: FaultKind, time: Duration) -> String {
        match kind {
            FaultKind::ConnectionsKilled => {
                self.kill_connections().await;
                sleep(time).await;
            }
            FaultKind::TablesLocked => {
                let sleep = format!("SELECT SLEEP({})", time.as_secs_f64());
                self.server
                    .sql(&format!("LOCK TABLES {TABLE} WRITE; {sleep}; UNLOCK TABLES"))
                    .await;
            }
            FaultKind::DiskFull => self.fill_disk(time).await,
            _ if databases::disturb(&mut self.server, kind, time).await => {}
            _ => return change(&[&self.proxy], kind, time).await.expect("it is in the catalogue"),
        }
        "the server".to_owned()
    }
}
