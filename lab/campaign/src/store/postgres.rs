//! A PostgreSQL server with a replica that has all commits which the server acknowledges.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_conformance::FaultKind;
use leasehold_testbed::{FaultProxy, Postgres, PostgresOptions};
use tokio::time::{Instant, sleep};

use super::databases::{self, TABLE};
use super::network_fault::{self, change};
use super::{Store, version};

/// Ends segments of the log until there is no room for another.
const USE_UP_LOG: &str = "DO $$ BEGIN FOR i IN 1..64 LOOP
  PERFORM pg_logical_emit_message(false, '', 'x'); PERFORM pg_switch_wal(); END LOOP; END $$";

const CANCEL_WAITS: &str =
    "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";

/// Clients wait for less than this, and so believe that the store works.
const BETWEEN_CANCELS: Duration = Duration::from_millis(50);

pub(super) struct WithReplica {
    proxies: [FaultProxy; 2],
    servers: [Postgres; 2],
    primary: usize,
}

impl WithReplica {
    pub(super) async fn start() -> Self {
        let options = PostgresOptions::new().small_log_disk();
        // The log of a replica that stands still for seconds, on a disk of 32 MB.
        let options = options.set("wal_keep_size", "8MB").set("max_wal_size", "8MB");
        let (primary, mut replica) = tokio::join!(options.clone().start(), options.start());
        replica.follow(&primary).await;
        primary.wait_for_replica().await;
        let proxies = [primary.proxy().await, replica.proxy().await];
        Self { proxies, servers: [primary, replica], primary: 0 }
    }

    fn primary(&mut self) -> &mut Postgres {
        &mut self.servers[self.primary]
    }

    fn replica(&mut self) -> &mut Postgres {
        &mut self.servers[1 - self.primary]
    }

    /// The replica takes over.
    async fn fail_over(&mut self) {
        self.primary = 1 - self.primary;
        self.primary().promote().await;
    }

    /// The former primary, or its machine, comes back as a replica.
    async fn rebuild_replica(&mut self) {
        let [first, second] = &mut self.servers;
        let (primary, replica) = if self.primary == 0 { (first, second) } else { (second, first) };
        replica.follow(primary).await;
        primary.wait_for_replica().await;
    }

    /// The primary has commits that its replica lacks, and acknowledges them with a warning.
    async fn cancel_waits(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.primary().sql(CANCEL_WAITS).await;
            sleep(BETWEEN_CANCELS).await;
        }
    }

    /// The primary ends for want of room for its log. An operator makes room and starts it again.
    async fn fill_disk(&mut self, time: Duration) {
        let primary = self.primary();
        primary.fill_disk();
        // Its connection breaks.
        drop(primary.try_sql(USE_UP_LOG).await);
        sleep(time).await;
        primary.clear_disk();
        primary.restart().await;
    }
}

#[async_trait]
impl Store for WithReplica {
    fn url(&self) -> String {
        let addresses = self.proxies.each_ref().map(FaultProxy::address).join(",");
        let url = self.servers[self.primary].url_at("postgres", &addresses);
        format!("{url}?target_session_attrs=read-write")
    }

    fn ports(&self) -> Vec<u16> {
        network_fault::ports(&self.proxies.each_ref())
    }

    async fn versions(&self) -> BTreeMap<String, String> {
        version("postgres", self.servers[self.primary].sql("SHOW server_version").await)
    }

    async fn disturb(&mut self, kind: FaultKind, time: Duration) -> String {
        let target = match matches!(kind, FaultKind::ReplicaKilled | FaultKind::ReplicaStopped) {
            true => 1 - self.primary,
            false => self.primary,
        };
        match kind {
            FaultKind::FailoverCommanded => {
                self.primary().shut_down();
                self.fail_over().await;
                sleep(time).await;
                self.rebuild_replica().await;
            }
            FaultKind::PrimaryKilled => {
                self.primary().kill();
                self.fail_over().await;
                sleep(time).await;
                self.rebuild_replica().await;
            }
            FaultKind::PrimaryStopped => {
                self.primary().pause();
                self.fail_over().await;
                sleep(time / 2).await;
                // Both take themselves for the primary until an operator sees to it.
                self.replica().resume();
                sleep(time / 2).await;
                self.rebuild_replica().await;
            }
            FaultKind::WaitsCancelled => {
                self.replica().kill();
                self.cancel_waits(time).await;
                self.primary().kill();
                self.replica().restart().await;
                self.fail_over().await;
                self.rebuild_replica().await;
            }
            FaultKind::ReplicaKilled => {
                self.replica().kill();
                sleep(time).await;
                self.replica().restart().await;
            }
            FaultKind::ReplicaStopped => {
                self.replica().pause();
                sleep(time).await;
                self.replica().resume();
            }
            FaultKind::ConnectionsKilled => {
                let others = "backend_type = 'client backend' AND pid <> pg_backend_pid()";
                let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE";
                self.primary().sql(&format!("{end} {others}")).await;
                sleep(time).await;
            }
            FaultKind::TablesLocked => {
                let sleep = format!("SELECT pg_sleep({})", time.as_secs_f64());
                let lock = format!("LOCK TABLE {TABLE} IN ACCESS EXCLUSIVE MODE");
                self.primary().sql(&format!("BEGIN; {lock}; {sleep}; COMMIT")).await;
            }
            FaultKind::DiskFull => self.fill_disk(time).await,
            _ if databases::disturb(self.primary(), kind, time).await => {}
            _ => {
                let changed = change(&self.proxies.each_ref(), kind, time).await;
                return changed.expect("it is in the catalogue");
            }
        }
        self.primary().until_synchronous().await;
        format!("server {target}")
    }
}
