//! The configuration of a client: the database and the settings.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Error;

use crate::remote::settings::DEFAULT_CONNECTIONS;
use crate::remote::{Driver, Hears, Run, Settings};

/// The database to connect to with the driver `D`, and the options for the connections. `Debug`
/// shows neither the user nor the password.
///
/// Each database's crate defines a type alias for this type, for example `PostgresConfig`, and
/// documents the URL.
pub struct Config<D: Driver> {
    pub(crate) source: Source<D>,
    pub(crate) settings: Settings,
}

/// The source of connections.
pub(crate) enum Source<D: Driver> {
    /// Leasehold opens the connections.
    Own(D::Servers),
    /// The application provides the connections.
    Theirs(Arc<dyn Run>),
}

impl<D: Driver> Config<D> {
    /// The default time limit for a call, which depends on the driver. The default is short enough
    /// for several renewal attempts within one TTL.
    pub const DEFAULT_TIMEOUT: Duration = D::DEFAULT_TIMEOUT;

    /// The default number of connections for acquisitions.
    pub const DEFAULT_CONNECTIONS: usize = DEFAULT_CONNECTIONS;

    /// Reads a URL in the usual format of the database. The documentation of the type alias lists
    /// the parameters.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](leasehold_core::ErrorKind::Invalid) if the URL is not valid,
    /// and [`ErrorKind::Unsupported`](leasehold_core::ErrorKind::Unsupported) if the URL requires
    /// TLS and the `tls` Cargo feature is disabled. No error shows the URL, because it may contain
    /// a password.
    pub fn from_url(url: &str) -> Result<Self, Error> {
        let mut settings = Settings::new(Self::DEFAULT_TIMEOUT);
        let servers = D::read_url(url, &mut settings).map_err(in_backend::<D>)?;
        Ok(Self { source: Source::Own(servers), settings })
    }

    /// Creates a configuration from the driver's own `options`, which contain the servers, the
    /// credentials, the database and the TLS settings.
    pub fn from_options(options: impl Into<D::Servers>) -> Self {
        Self { source: Source::Own(options.into()), settings: Settings::new(Self::DEFAULT_TIMEOUT) }
    }

    /// Creates a configuration that runs all transactions on the application's own connections.
    ///
    /// Waiters poll, because Leasehold can listen for changes only on a connection that it has
    /// opened.
    pub fn from_run(run: impl Run) -> Self {
        Self {
            source: Source::Theirs(Arc::new(run)),
            settings: Settings::new(Self::DEFAULT_TIMEOUT),
        }
    }

    /// Sets the prefix of all table names. The default is `leasehold_`.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](leasehold_core::ErrorKind::Invalid) if the prefix is empty,
    /// is longer than 32 characters, contains characters other than `a-z 0-9 _`, or begins with a
    /// digit.
    pub fn prefix(self, prefix: impl Into<String>) -> Result<Self, Error> {
        self.with(|settings| settings.set_prefix(prefix))
    }

    /// Sets the schema of the tables. The default is `public` in PostgreSQL, for every user and
    /// search path. In MySQL, a schema is a database, and the default is the database in the URL.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](leasehold_core::ErrorKind::Invalid) if the schema is empty,
    /// is longer than 32 characters, contains characters other than `a-z 0-9 _`, or begins with a
    /// digit.
    pub fn schema(self, schema: impl Into<String>) -> Result<Self, Error> {
        self.with(|settings| settings.set_schema(schema))
    }

    /// Sets the time limit for a call. The default is [`Config::DEFAULT_TIMEOUT`].
    ///
    /// The server gets a slightly shorter limit than the client, so that for most calls that time
    /// out, the client can be sure that the call was not applied. MySQL waits for locks in whole
    /// seconds, so on MySQL, a limit below 3 s increases the number of calls with an unknown
    /// outcome.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](leasehold_core::ErrorKind::Invalid) if the limit is less than
    /// 10 ms or more than 60 s.
    pub fn timeout(self, timeout: Duration) -> Result<Self, Error> {
        self.with(|settings| settings.set_timeout(timeout))
    }

    /// Sets the number of connections for acquisitions. The default is
    /// [`Config::DEFAULT_CONNECTIONS`].
    ///
    /// In addition, the client opens one connection for renewals and one for releases. If the
    /// database supports notifications, the client opens an additional connection for as long as a
    /// lock is held or waited for. If several tokio runtimes share the client, each runtime opens its
    /// own connections for acquisitions, renewals and releases.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](leasehold_core::ErrorKind::Invalid) if the number is 0 or
    /// more than 100.
    pub fn connections(self, connections: usize) -> Result<Self, Error> {
        self.with(|settings| settings.set_connections(connections))
    }

    /// Disables listening for changes, so that waiters poll.
    ///
    /// Waiters also poll without this option if a pooler does not forward notifications, because it
    /// runs each transaction on a different connection. The option skips the check and its warning.
    #[must_use]
    pub fn without_push(mut self) -> Self
    where
        D: Hears,
    {
        self.settings.push = false;
        self
    }

    /// Does not let the release of a mutex wait for the disk or for replicas, unless clients wait or
    /// recently waited for the mutex. All other requests still wait, so the guarantees do not change.
    ///
    /// If the server crashes shortly after the release, or if a failover promotes a replica that has not
    /// received the release, the lock stays locked until its TTL has passed.
    #[must_use]
    pub fn with_lazy_releases(mut self) -> Self
    where
        D: Hears,
    {
        self.settings.lazy_releases = true;
        self
    }

    /// Disables creating tables. An administrator must have run the statements of
    /// [`migration`](Self::migration).
    #[must_use]
    pub fn without_creating_tables(mut self) -> Self {
        self.settings.create_tables = false;
        self
    }

    /// Returns the statements that create the tables. If the application's user is not allowed to
    /// create tables, an administrator must run these statements.
    pub fn migration(&self) -> String {
        D::migration(&self.settings.layout)
    }

    /// For tests, replaces the database's clock with a query that returns the current time in
    /// microseconds.
    #[doc(hidden)]
    #[must_use]
    pub fn with_clock(mut self, query: impl Into<String>) -> Self {
        self.settings.clock = Some(query.into());
        self
    }

    fn with(mut self, set: impl FnOnce(&mut Settings) -> Result<(), Error>) -> Result<Self, Error> {
        set(&mut self.settings).map_err(in_backend::<D>)?;
        Ok(self)
    }
}

fn in_backend<D: Driver>(error: Error) -> Error {
    error.with_backend(D::NAME)
}

impl<D: Driver> Clone for Config<D> {
    fn clone(&self) -> Self {
        let source = match &self.source {
            Source::Own(servers) => Source::Own(servers.clone()),
            Source::Theirs(run) => Source::Theirs(Arc::clone(run)),
        };
        Self { source, settings: self.settings.clone() }
    }
}

impl<D: Driver> fmt::Debug for Config<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source: &dyn fmt::Debug = match &self.source {
            Source::Own(servers) => servers,
            Source::Theirs(run) => run,
        };
        f.debug_struct("Config")
            .field("source", source)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
