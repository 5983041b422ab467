//! How a server is started.

use super::MariaDb;

/// How a server is started.
#[derive(Clone, Debug, Default)]
pub struct MariaDbOptions {
    pub(super) args: Vec<String>,
    pub(super) tls: bool,
    pub(super) small_disk: bool,
}

impl MariaDbOptions {
    /// A server with the user `leasehold`, who needs no password.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds arguments of `mariadbd`, such as `["--max-connections=20"]`.
    #[must_use]
    pub fn args<A: Into<String>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Also speaks TLS, with certificates made on the spot. Users may be made that must use it, or need a certificate.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Puts the tables of its database on a disk of 32 MiB, which [`MariaDb::fill_disk`] fills. InnoDB's own files stay
    /// elsewhere: without room for those, MariaDB does not refuse a transaction, it ends.
    #[must_use]
    pub fn small_disk(mut self) -> Self {
        self.small_disk = true;
        self
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Panics
    ///
    /// If it cannot be started. `mariadbd` is searched on the path and in `/usr/sbin`; the environment variable
    /// `LEASEHOLD_MARIADBD` names another program.
    pub async fn start(self) -> MariaDb {
        for _ in 0..10 {
            if let Some(mariadb) = MariaDb::launch(self.clone()).await {
                return mariadb;
            }
            // Somebody else took the port.
        }
        panic!("mariadbd does not start, see its output above");
    }
}
