//! How a server is started.

use crate::certificates::TlsClients;

use super::Postgres;

/// How a server is started.
#[derive(Clone, Debug, Default)]
pub struct PostgresOptions {
    pub(super) settings: Vec<(String, String)>,
    pub(super) tls: Option<TlsClients>,
    pub(super) passwords: bool,
    pub(super) small_disk: bool,
}

impl PostgresOptions {
    /// A server that loopback may use without a password.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a setting of `postgresql.conf`, such as `max_connections` and `20`.
    #[must_use]
    pub fn set(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }

    /// Asks for passwords (SCRAM), for users that the test makes by [`Postgres::sql`].
    #[must_use]
    pub fn passwords(mut self) -> Self {
        self.passwords = true;
        self
    }

    /// Also speaks TLS, with certificates made on the spot.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.tls = Some(TlsClients::NeedNoCertificate);
        self
    }

    /// Speaks TLS only, and asks clients for a certificate.
    #[must_use]
    pub fn tls_with_client_certificates(mut self) -> Self {
        self.tls = Some(TlsClients::NeedCertificate);
        self
    }

    /// Puts tables on a disk of 32 MiB, which [`Postgres::fill_disk`] fills. The write-ahead log stays elsewhere:
    /// without room for that, PostgreSQL does not refuse a transaction, it ends.
    #[must_use]
    pub fn small_disk(mut self) -> Self {
        self.small_disk = true;
        self
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Panics
    ///
    /// If it cannot be started. The newest version under `/usr/lib/postgresql` is; the environment variable
    /// `LEASEHOLD_POSTGRES` names the folder of another one's programs.
    pub async fn start(self) -> Postgres {
        for _ in 0..10 {
            if let Some(postgres) = Postgres::launch(self.clone()).await {
                return postgres;
            }
            // Somebody else took the port.
        }
        panic!("postgres does not start, see its output above");
    }
}
