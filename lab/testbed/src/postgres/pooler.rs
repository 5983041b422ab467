//! A pooler of connections.

use std::fs;
use std::net::Ipv4Addr;

use tokio::net::TcpStream;

use crate::memory::Folder;
use crate::port::free_port;
use crate::postgres::Postgres;
use crate::process::Process;
use crate::{unprivileged, until};

/// How long a client of a pooler keeps a connection to the server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PoolMode {
    /// Until the client disconnects.
    Session,
    /// For one transaction.
    Transaction,
}

/// More clients than the tests of one server have.
const MANY: usize = 800;

/// A running PgBouncer in front of a server. It dies when dropped.
#[derive(Debug)]
pub struct PgBouncer {
    // Before the folder, so that it is gone when that is removed.
    _process: Process,
    _folder: Folder,
    port: u16,
}

impl PgBouncer {
    /// Starts a pooler that opens up to `connections` connections to the server and uses them in
    /// rotation.
    ///
    /// # Panics
    ///
    /// If the program is missing or does not start.
    pub async fn start(server: &Postgres, mode: PoolMode, connections: usize) -> Self {
        Self::start_for(MANY, server, mode, connections).await
    }

    /// As [`Self::start`], with this limit for the number of clients.
    ///
    /// # Panics
    ///
    /// As [`Self::start`].
    pub async fn start_for(
        clients: usize,
        server: &Postgres,
        mode: PoolMode,
        connections: usize,
    ) -> Self {
        let mode = match mode {
            PoolMode::Session => "session",
            PoolMode::Transaction => "transaction",
        };
        let (folder, port) = (Folder::on_disk("pgbouncer-"), free_port());
        let settings = format!(
            "[databases]\npostgres = host=127.0.0.1 port={} user=postgres\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n\
             pool_mode = {mode}\nserver_round_robin = 1\ndefault_pool_size = {connections}\n\
             max_client_conn = {clients}\nserver_login_retry = 1\n",
            server.port()
        );
        let file = folder.path().join("pgbouncer.ini");
        fs::write(&file, settings).expect("temporary files can be written");
        unprivileged::give(folder.path());
        let log = folder.path().join("log");
        let mut command = unprivileged::command("pgbouncer", folder.path());
        let process = Process::spawn(command.arg(&file), &log);
        let process = process.expect("PgBouncer is missing: run scripts/install");
        let address = (Ipv4Addr::LOCALHOST, port);
        until("the pooler is up", async || TcpStream::connect(address).await.is_ok()).await;
        Self { _process: process, _folder: folder, port }
    }

    /// Its address, `127.0.0.1:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}
