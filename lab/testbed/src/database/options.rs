//! How a server is started.

use std::marker::PhantomData;

use crate::certificates::TlsClients;

/// How a server is started.
#[derive(Clone, Debug, Default)]
pub struct DatabaseOptions<K> {
    kind: PhantomData<K>,
    pub(crate) args: Vec<String>,
    pub(crate) tls: Option<TlsClients>,
    pub(crate) passwords: bool,
    pub(crate) small_disk: Option<Small>,
    pub(crate) durable: bool,
}

/// The files that lie on a small disk.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Small {
    /// The files of tables.
    Tables,
    /// The log of transactions.
    Log,
}

impl<K: Default> DatabaseOptions<K> {
    /// A server that loopback may use without a password.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a setting of the server, such as `max_connections` and `20`.
    #[must_use]
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.args.push(format!("--{name}={value}"));
        self
    }

    /// Also speaks TLS, with certificates made on the spot.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.tls = Some(TlsClients::NeedNoCertificate);
        self
    }

    /// Has its data on the disk, and waits for that at each commit, as servers do by default.
    ///
    /// Without this, its data lies in memory, if the machine has room for it.
    #[must_use]
    pub fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// Puts tables on a disk of 32 MiB, which [`DatabaseServer::fill_disk`](super::DatabaseServer::fill_disk) fills. The server's own
    /// files, such as its log, are on a different disk, because a server without space for these
    /// files exits instead of rejecting a transaction.
    #[must_use]
    pub fn small_disk(mut self) -> Self {
        self.small_disk = Some(Small::Tables);
        self
    }

    /// Puts the log of transactions on a disk of 32 MiB, which [`DatabaseServer::fill_disk`](super::DatabaseServer::fill_disk) fills:
    /// the write-ahead log of PostgreSQL, the binary log of MariaDB, which is enabled only by this
    /// option. Without room for it, no transaction commits, and the server may end.
    #[must_use]
    pub fn small_log_disk(mut self) -> Self {
        self.small_disk = Some(Small::Log);
        self
    }
}
