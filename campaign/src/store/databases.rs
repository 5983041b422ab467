//! One server of a database.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_testbed::{DatabaseKind, DatabaseServer, FaultProxy, MariaDb, Postgres};
use tokio::time::sleep;

use super::weather::{self, change};
use super::{Store, version};

/// The table of leases.
const TABLE: &str = "leasehold_lease";

pub(super) struct OnPostgres {
    proxy: FaultProxy,
    server: Postgres,
}

pub(super) struct OnMariaDb {
    proxy: FaultProxy,
    server: MariaDb,
}

impl OnPostgres {
    pub(super) async fn start() -> Self {
        let server = Postgres::start().await;
        Self { proxy: server.proxy().await, server }
    }
}

impl OnMariaDb {
    pub(super) async fn start() -> Self {
        let server = MariaDb::start().await;
        Self { proxy: server.proxy().await, server }
    }

    async fn kill_connections(&self) {
        let ids = self.server.sql("SELECT id FROM information_schema.processlist WHERE user <> 'root' AND user <> 'system user'");
        for id in ids.await.lines() {
            // It may have ended by itself.
            drop(self.server.try_sql(&format!("KILL {id}")).await);
        }
    }
}

/// The faults that befall servers of all kinds.
async fn disturb_server<K: DatabaseKind>(
    server: &mut DatabaseServer<K>,
    kind: &str,
    time: Duration,
) -> bool {
    match kind {
        "server-stopped" => {
            server.pause();
            sleep(time).await;
            server.resume();
        }
        "server-killed" => {
            server.kill();
            sleep(time).await;
            server.restart().await;
        }
        "server-terminated" => {
            server.shut_down();
            sleep(time).await;
            server.restart().await;
        }
        "read-only" => {
            server.set_read_only(true).await;
            sleep(time).await;
            server.set_read_only(false).await;
        }
        _ => return false,
    }
    true
}

#[async_trait]
impl Store for OnPostgres {
    fn url(&self) -> String {
        self.server.url_at("postgres", &self.proxy.address())
    }

    fn ports(&self) -> Vec<u16> {
        weather::ports(&[&self.proxy])
    }

    async fn versions(&self) -> BTreeMap<String, String> {
        version("postgres", self.server.sql("SHOW server_version").await)
    }

    async fn disturb(&mut self, kind: &str, time: Duration) -> String {
        match kind {
            "connections-killed" => {
                let others = "backend_type = 'client backend' AND pid <> pg_backend_pid()";
                let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE";
                self.server.sql(&format!("{end} {others}")).await;
                sleep(time).await;
            }
            "tables-locked" => {
                let sleep = format!("SELECT pg_sleep({})", time.as_secs_f64());
                let lock = format!("LOCK TABLE {TABLE} IN ACCESS EXCLUSIVE MODE");
                self.server.sql(&format!("BEGIN; {lock}; {sleep}; COMMIT")).await;
            }
            _ if disturb_server(&mut self.server, kind, time).await => {}
            _ => return change(&[&self.proxy], kind, time).await.expect("it is in the catalogue"),
        }
        "the server".to_owned()
    }
}

#[async_trait]
impl Store for OnMariaDb {
    fn url(&self) -> String {
        let user = self.server.url();
        let user = user.split("://").nth(1).and_then(|rest| rest.split('@').next());
        self.server.url_at(user.expect("a URL names its user"), &self.proxy.address())
    }

    fn ports(&self) -> Vec<u16> {
        weather::ports(&[&self.proxy])
    }

    async fn versions(&self) -> BTreeMap<String, String> {
        version("mariadb", self.server.sql("SELECT VERSION()").await)
    }

    async fn disturb(&mut self, kind: &str, time: Duration) -> String {
        match kind {
            "connections-killed" => {
                self.kill_connections().await;
                sleep(time).await;
            }
            "tables-locked" => {
                let sleep = format!("SELECT SLEEP({})", time.as_secs_f64());
                self.server
                    .sql(&format!("LOCK TABLES {TABLE} WRITE; {sleep}; UNLOCK TABLES"))
                    .await;
            }
            _ if disturb_server(&mut self.server, kind, time).await => {}
            _ => return change(&[&self.proxy], kind, time).await.expect("it is in the catalogue"),
        }
        "the server".to_owned()
    }
}
