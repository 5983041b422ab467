//! Which database, and how to speak to it.

mod url;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Error;
use leasehold_sql_support::{Layout, postgres};
use tokio_postgres::config::SslMode;

use crate::error::invalid;
use crate::run::Run;
use crate::tls::Tls;

/// Which database to use, and how. `Debug` shows neither user nor password.
#[derive(Clone)]
pub struct PostgresConfig {
    pub(crate) source: Source,
    pub(crate) prefix: String,
    pub(crate) schema: Option<String>,
    pub(crate) timeout: Duration,
    pub(crate) connections: usize,
    pub(crate) push: bool,
    pub(crate) create_tables: bool,
    pub(crate) clock: Option<String>,
}

/// Where connections come from.
#[derive(Clone)]
pub(crate) enum Source {
    /// We make them.
    Own { options: Box<tokio_postgres::Config>, tls: Option<Tls> },
    /// The application has some.
    Theirs(Arc<dyn Run>),
}

impl PostgresConfig {
    /// Long for a database in the same region, where a transaction takes milliseconds; short enough that a renewal is tried several
    /// times within a lease.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1);

    /// A transaction takes about a millisecond: so many connections keep a database of a few cores busy.
    pub const DEFAULT_CONNECTIONS: usize = 4;

    /// Idle connections are asked so often whether the server is still there.
    const KEEPALIVE: Duration = Duration::from_secs(10);

    /// Reads a URL as `libpq` and its like do: `postgres://[user[:password]@][host][:port][,…][/database][?…]`, also `postgresql://`.
    ///
    /// Of their parameters, `sslmode` is one of `disable` (the default), `require`, `verify-ca` and `verify-full`, of which
    /// all but the first ask for a server with a certificate for its name, by an authority from the PEM file `sslrootcert` or, without that, by one that the
    /// system trusts; `sslcert` and `sslkey` name PEM files of a client's certificate. With several hosts,
    /// `target_session_attrs=read-write` finds the primary among them. Parameters of our own are `prefix`, `schema`, `timeout-ms` and
    /// `connections`, as the methods of those names, `push=off` and `tables=exist`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](leasehold_core::ErrorKind::Invalid) if it cannot be understood,
    /// [`ErrorKind::Unsupported`](leasehold_core::ErrorKind::Unsupported) for TLS without the Cargo feature `tls`. Neither shows the URL, which may
    /// hold a password.
    pub fn from_url(url: &str) -> Result<Self, Error> {
        url::read(url)
    }

    /// Takes what `options` knows of servers and credentials. Connections are not encrypted.
    pub fn from_options(options: tokio_postgres::Config) -> Self {
        Self::from_source(Source::Own { options: Box::new(options), tls: None })
    }

    /// Has `run` execute all transactions: the connections stay those of the application.
    ///
    /// Those who wait poll: hearing of changes takes a connection of our own.
    pub fn from_run(run: impl Run) -> Self {
        Self { push: false, ..Self::from_source(Source::Theirs(Arc::new(run))) }
    }

    fn from_source(source: Source) -> Self {
        Self {
            source,
            prefix: Layout::DEFAULT_PREFIX.to_owned(),
            schema: None,
            timeout: Self::DEFAULT_TIMEOUT,
            connections: Self::DEFAULT_CONNECTIONS,
            push: true,
            create_tables: true,
            clock: None,
        }
    }

    /// What the names of tables begin with. Default: `leasehold_`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](leasehold_core::ErrorKind::Invalid) unless it has 1 to 32 of the characters `a-z 0-9 _` and does not begin
    /// with a digit.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Result<Self, Error> {
        self.prefix = prefix.into();
        self.layout(self.schema.as_deref())?;
        Ok(self)
    }

    /// In which schema the tables are. Default: where the user's search path finds them or would make them.
    ///
    /// # Errors
    ///
    /// As [`PostgresConfig::prefix`].
    pub fn schema(mut self, schema: impl Into<String>) -> Result<Self, Error> {
        self.schema = Some(schema.into());
        self.layout(self.schema.as_deref())?;
        Ok(self)
    }

    /// How long a call may take in all. Default: [`PostgresConfig::DEFAULT_TIMEOUT`].
    ///
    /// The server is told to give up a little earlier, so that most calls that are too slow have not been applied.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](leasehold_core::ErrorKind::Invalid) if it is less than 10 ms or more than a minute.
    pub fn timeout(mut self, timeout: Duration) -> Result<Self, Error> {
        if timeout < Duration::from_millis(10) || timeout > Duration::from_secs(60) {
            return Err(invalid(format!("timeout: 10 ms to 60 s are possible, not {timeout:?}")));
        }
        self.timeout = timeout;
        Ok(self)
    }

    /// How many connections acquire at the same time. Default: [`PostgresConfig::DEFAULT_CONNECTIONS`].
    ///
    /// One more is for renewals alone, one for releases, and one hears of changes while anything is waited for or held.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](leasehold_core::ErrorKind::Invalid) unless there are 1 to 100.
    pub fn connections(mut self, connections: usize) -> Result<Self, Error> {
        if !(1..=100).contains(&connections) {
            return Err(invalid("connections: 1 to 100 are possible"));
        }
        self.connections = connections;
        Ok(self)
    }

    /// Does not listen to the database: those who wait poll.
    ///
    /// For poolers that hand each transaction to another connection, where nothing is heard.
    #[must_use]
    pub fn without_push(mut self) -> Self {
        self.push = false;
        self
    }

    /// Expects the tables to be there: they were made by the statements of [`migration`](Self::migration).
    #[must_use]
    pub fn without_creating_tables(mut self) -> Self {
        self.create_tables = false;
        self
    }

    /// The statements that create the tables, for an administrator to run where the application may not.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](leasehold_core::ErrorKind::Invalid) for names that are not possible.
    pub fn migration(&self) -> Result<String, Error> {
        Ok(postgres::migration(&self.layout(self.schema.as_deref())?))
    }

    /// Goes by another clock than the database's: a query for microseconds. For tests of time.
    #[doc(hidden)]
    #[must_use]
    pub fn with_clock(mut self, query: impl Into<String>) -> Self {
        self.clock = Some(query.into());
        self
    }

    pub(crate) fn layout(&self, schema: Option<&str>) -> Result<Layout, Error> {
        let layout = Layout::new(self.prefix.as_str())?;
        match schema {
            Some(schema) => layout.in_schema(schema),
            None => Ok(layout),
        }
    }

    /// What the driver is told for each connection.
    pub(crate) fn driver_options(
        options: &tokio_postgres::Config,
        is_encrypted: bool,
        timeout: Duration,
    ) -> tokio_postgres::Config {
        let mut options = options.clone();
        if options.get_application_name().is_none() {
            options.application_name("leasehold");
        }
        options.ssl_mode(if is_encrypted { SslMode::Require } else { SslMode::Disable });
        options.keepalives(true).keepalives_idle(Self::KEEPALIVE).connect_timeout(timeout);
        options
    }
}

impl fmt::Debug for PostgresConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresConfig")
            .field("source", &self.source)
            .field("prefix", &self.prefix)
            .field("schema", &self.schema)
            .field("timeout", &self.timeout)
            .field("connections", &self.connections)
            .field("push", &self.push)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own { options, tls } => {
                let (hosts, ports) = (options.get_hosts(), options.get_ports());
                let is_encrypted = tls.is_some();
                f.debug_struct("Own")
                    .field("hosts", &hosts)
                    .field("ports", &ports)
                    .field("is_encrypted", &is_encrypted)
                    .finish_non_exhaustive()
            }
            Self::Theirs(run) => f.debug_tuple("Theirs").field(run).finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::ErrorKind;

    use super::*;

    #[test]
    fn urls_say_everything() {
        let url = "postgresql://locker:S3CR3T@a.example:7000,b.example/app\
                   ?target_session_attrs=read-write&prefix=app_&schema=locks&timeout-ms=250&connections=7&push=off&tables=exist";
        let config = PostgresConfig::from_url(url).unwrap();

        let shown = format!("{config:?}");
        assert!(shown.contains("a.example") && shown.contains("7000"), "{shown}");
        assert_eq!((config.timeout, config.connections), (Duration::from_millis(250), 7));
        assert!(!config.push && !config.create_tables);
        assert!(config.migration().unwrap().contains(r#""locks"."app_lease""#));
        let Source::Own { options, tls: None } = &config.source else { panic!("{shown}") };
        assert_eq!(options.get_password(), Some(&b"S3CR3T"[..]));
        assert_eq!(options.get_dbname(), Some("app"));
    }

    #[test]
    fn urls_that_make_no_sense_are_refused_without_showing_them() {
        for url in [
            "",
            "S3CR3T",
            "mysql://S3CR3T@host",
            "postgres://u:S3CR3T@host:x",
            "postgres://u:S3CR3T@host/db?S3CR3T",
            "postgres://u:S3CR3T@host/db?S3CR3T=1",
            "postgres://u:pass?S3CR3T@host",
            "postgres://u:S3CR3T@host/?prefix=A",
            "postgres://u:S3CR3T@host/?schema=1a",
            "postgres://u:S3CR3T@host/?timeout-ms=x",
            "postgres://u:S3CR3T@host/?timeout-ms=1",
            "postgres://u:S3CR3T@host/?connections=0",
            "postgres://u:S3CR3T@host/?push=on",
            "postgres://u:S3CR3T@host/?tables=S3CR3T",
            "postgres://u:S3CR3T@host/?sslmode=prefer",
            "postgres://u:S3CR3T@host/?sslrootcert=/S3CR3T",
            "postgres://u:S3CR3T@host/#S3CR3T",
        ] {
            let error = PostgresConfig::from_url(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains("S3CR3T"), "{shown}");
        }
    }

    #[test]
    fn nothing_shows_the_password() {
        let config = PostgresConfig::from_url("postgres://locker:S3CR3T@host/db").unwrap();

        let shown = format!("{config:?}");
        assert!(!shown.contains("S3CR3T") && !shown.contains("locker"), "{shown}");
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn without_its_feature_tls_is_refused() {
        let error = PostgresConfig::from_url("postgres://host/?sslmode=verify-full").unwrap_err();

        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }
}
