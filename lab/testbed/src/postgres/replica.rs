//! A server that copies another.

use tokio::process::Command;

use crate::database::display;
use crate::postgres::Postgres;
use crate::until;

use super::program::program;

/// The name by which a replica asks for the log.
const REPLICA: &str = "walreceiver";

impl Postgres {
    /// Becomes a replica of `primary`, with a new copy of its data, and waits until it follows the log. Its own data is gone.
    ///
    /// # Panics
    ///
    /// If the primary does not answer.
    pub async fn follow(&mut self, primary: &Self) {
        self.kill();
        self.remove_data().await;
        let mut copy = self.command(program("pg_basebackup"));
        copy.args([
            "-D",
            "data",
            "-c",
            "fast",
            "-U",
            "postgres",
            "-p",
            &primary.port().to_string(),
        ]);
        copy.arg("-h").arg(primary.folder());
        run(copy.into()).await;
        // With `-R`, the program would write settings that an older server rejects.
        let mut configure = self.command("sh");
        let script = "touch data/standby.signal && echo \"$0\" >>data/postgresql.auto.conf";
        configure.args(["-c", script]).arg(format!(
            "primary_conninfo = 'user=postgres host={} port={}'",
            display(primary.folder()),
            primary.port()
        ));
        run(configure.into()).await;
        self.move_log();
        self.restart().await;
        primary.until_followed("async").await;
    }

    /// Has a replica take over. It waits for no other replica until it is told to.
    ///
    /// # Panics
    ///
    /// If the server is not a replica.
    pub async fn promote(&self) {
        // A query that asks for it may hold up the log that is still to be read.
        let mut promote = self.command(program("pg_ctl"));
        promote.args(["promote", "-D", "data"]);
        run(promote.into()).await;
    }

    /// Acknowledges no commit that its replica has not on its disk, from now on.
    ///
    /// # Panics
    ///
    /// If it has no replica.
    pub async fn wait_for_replica(&self) {
        self.sql(&format!("ALTER SYSTEM SET synchronous_standby_names = '{REPLICA}'")).await;
        self.sql("SELECT pg_reload_conf()").await;
        self.until_synchronous().await;
    }

    /// Waits until a replica has all commits that this server acknowledges.
    ///
    /// # Panics
    ///
    /// If it is not so for long.
    pub async fn until_synchronous(&self) {
        self.until_followed("sync").await;
    }

    async fn until_followed(&self, state: &str) {
        let follows = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'";
        let follows =
            format!("{follows} AND application_name = '{REPLICA}' AND sync_state = '{state}'");
        until("a replica follows", async || {
            self.try_sql(&follows).await.is_ok_and(|found| found == "1")
        })
        .await;
    }

    async fn remove_data(&self) {
        let mut remove = self.command("sh");
        remove.args(["-c", "rm -rf data transactions/*"]);
        run(remove.into()).await;
    }
}

async fn run(mut command: Command) {
    let output = command.output().await.expect("the program can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
