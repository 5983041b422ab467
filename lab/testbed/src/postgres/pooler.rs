//! A pooler of connections.

use std::fs;
use std::net::Ipv4Addr;

use tokio::net::TcpStream;

use crate::memory::Folder;
use crate::port::free_port;
use crate::postgres::Postgres;
use crate::process::Process;
use crate::{unprivileged, until};

/// A running PgBouncer in front of a server, which hands each transaction to a connection of its own choice. It dies when dropped.
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
    pub async fn start(server: &Postgres, connections: usize) -> Self {
        let (folder, port) = (Folder::on_disk("pgbouncer-"), free_port());
        let settings = format!(
            "[databases]\npostgres = host=127.0.0.1 port={} user=postgres\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n\
             pool_mode = transaction\nserver_round_robin = 1\ndefault_pool_size = {connections}\n",
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
