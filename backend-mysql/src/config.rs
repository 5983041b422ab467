//! Which database, and how to speak to it.

mod tls;
mod url;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Error;
use leasehold_sql_support::{Layout, mysql};
use mysql_async::{Opts, OptsBuilder};

use crate::error::invalid;
use crate::run::Run;

/// Which database to use, and how. `Debug` shows neither user nor password.
#[derive(Clone)]
pub struct MysqlConfig {
    pub(crate) source: Source,
    pub(crate) prefix: String,
    pub(crate) schema: Option<String>,
    pub(crate) timeout: Duration,
    pub(crate) connections: usize,
    pub(crate) create_tables: bool,
    pub(crate) clock: Option<String>,
}

/// Where connections come from.
#[derive(Clone)]
pub(crate) enum Source {
    /// We make them.
    Own(Box<OptsBuilder>),
    /// The application has some.
    Theirs(Arc<dyn Run>),
}

impl MysqlConfig {
    /// Three times the shortest time for which InnoDB waits for a lock: a transaction that waited in vain is asked for once more, and the server
    /// gives up again before the client does. Short enough that a renewal is tried several times within a lease.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(3);

    /// A transaction takes some milliseconds: so many connections keep a database of a few cores busy.
    pub const DEFAULT_CONNECTIONS: usize = 4;

    /// Reads a URL: `mysql://[user[:password]@]host[:port]/database[?…]`, also `mariadb://`, for both servers.
    ///
    /// Parameters as other clients have them: `socket`, the path of a Unix socket; `ssl-mode`, one of `disabled` (the default), `required`, `verify_ca` and
    /// `verify_identity`, of which all but the first ask for a server with a certificate for its name, by an authority from the PEM file
    /// `ssl-ca` or, without that, by one that the system trusts; `ssl-cert` and `ssl-key` name PEM files of a client's certificate. Parameters
    /// of our own are `prefix`, `schema`, `timeout-ms` and `connections`, as the methods of those names, and `tables=exist`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](leasehold_core::ErrorKind::Invalid) if it cannot be understood,
    /// [`ErrorKind::Unsupported`](leasehold_core::ErrorKind::Unsupported) for TLS without the Cargo feature `tls`. Neither shows the URL, which may
    /// hold a password.
    pub fn from_url(url: &str) -> Result<Self, Error> {
        url::read(url)
    }

    /// Takes what `options` knows of servers, credentials, the database and TLS. Those for pools are not used.
    pub fn from_options(options: OptsBuilder) -> Self {
        Self::from_source(Source::Own(Box::new(options)))
    }

    /// Has `run` execute all transactions: the connections stay those of the application.
    pub fn from_run(run: impl Run) -> Self {
        Self::from_source(Source::Theirs(Arc::new(run)))
    }

    fn from_source(source: Source) -> Self {
        Self {
            source,
            prefix: Layout::DEFAULT_PREFIX.to_owned(),
            schema: None,
            timeout: Self::DEFAULT_TIMEOUT,
            connections: Self::DEFAULT_CONNECTIONS,
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
        self.layout()?;
        Ok(self)
    }

    /// In which schema, which is a database of the server, the tables are. Default: the one of the connection.
    ///
    /// # Errors
    ///
    /// As [`MysqlConfig::prefix`].
    pub fn schema(mut self, schema: impl Into<String>) -> Result<Self, Error> {
        self.schema = Some(schema.into());
        self.layout()?;
        Ok(self)
    }

    /// How long a call may take in all. Default: [`MysqlConfig::DEFAULT_TIMEOUT`].
    ///
    /// The server is told to give up a little earlier, so that most calls that are too slow have not been applied. MySQL waits for locks in
    /// whole seconds, so less than three seconds leave more outcomes unknown there.
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

    /// How many connections acquire at the same time. Default: [`MysqlConfig::DEFAULT_CONNECTIONS`].
    ///
    /// One more is for renewals alone, and one for releases.
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
        Ok(mysql::migration(&self.layout()?))
    }

    /// Goes by another clock than the database's: a query for microseconds. For tests of time.
    #[doc(hidden)]
    #[must_use]
    pub fn with_clock(mut self, query: impl Into<String>) -> Self {
        self.clock = Some(query.into());
        self
    }

    pub(crate) fn layout(&self) -> Result<Layout, Error> {
        let layout = Layout::new(self.prefix.as_str())?;
        match &self.schema {
            Some(schema) => layout.in_schema(schema.as_str()),
            None => Ok(layout),
        }
    }
}

impl fmt::Debug for MysqlConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlConfig")
            .field("source", &self.source)
            .field("prefix", &self.prefix)
            .field("schema", &self.schema)
            .field("timeout", &self.timeout)
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own(options) => {
                let options = Opts::from((**options).clone());
                f.debug_struct("Own")
                    .field("host", &options.ip_or_hostname())
                    .field("port", &options.tcp_port())
                    .field("database", &options.db_name())
                    .field("is_encrypted", &options.ssl_opts().is_some())
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
        let url = "mariadb://locker:S3CR3T%40@[::1]:7000/app?prefix=app_&schema=locks&timeout-ms=250&connections=7&tables=exist";
        let config = MysqlConfig::from_url(url).unwrap();

        assert_eq!((config.timeout, config.connections), (Duration::from_millis(250), 7));
        assert!(!config.create_tables);
        assert!(config.migration().unwrap().contains("`locks`.`app_lease`"));
        let Source::Own(options) = &config.source else { panic!("{config:?}") };
        let options = Opts::from((**options).clone());
        assert_eq!((options.ip_or_hostname(), options.tcp_port()), ("::1", 7000));
        assert_eq!(options.user(), Some("locker"));
        assert_eq!(options.pass(), Some("S3CR3T@"));
        assert_eq!(options.db_name(), Some("app"));
    }

    #[test]
    fn a_url_may_be_short() {
        let config = MysqlConfig::from_url("mysql://db.example/app").unwrap();

        let shown = format!("{config:?}");
        assert!(shown.contains("db.example") && shown.contains("3306"), "{shown}");
    }

    #[test]
    fn urls_that_make_no_sense_are_refused_without_showing_them() {
        for url in [
            "",
            "S3CR3T",
            "postgres://S3CR3T@host/db",
            "mysql://u:S3CR3T@/db",
            "mysql://u:S3CR3T@host",
            "mysql://u:S3CR3T@host/",
            "mysql://u:S3CR3T@host/a/b",
            "mysql://u:S3CR3T@host:x/db",
            "mysql://u:S3CR3T%FF@host/db",
            "mysql://u:S3CR3T@host/db?S3CR3T",
            "mysql://u:S3CR3T@host/db?S3CR3T=1",
            "mysql://u:pass?S3CR3T@host/db",
            "mysql://u:S3CR3T@host/db?prefix=A",
            "mysql://u:S3CR3T@host/db?schema=1a",
            "mysql://u:S3CR3T@host/db?timeout-ms=x",
            "mysql://u:S3CR3T@host/db?timeout-ms=1",
            "mysql://u:S3CR3T@host/db?connections=0",
            "mysql://u:S3CR3T@host/db?tables=S3CR3T",
            "mysql://u:S3CR3T@host/db?ssl-mode=preferred",
            "mysql://u:S3CR3T@host/db?ssl-ca=/S3CR3T",
            "mysql://u:S3CR3T@host/db#S3CR3T",
        ] {
            let error = MysqlConfig::from_url(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains("S3CR3T"), "{shown}");
        }
    }

    #[test]
    fn nothing_shows_the_password() {
        let config = MysqlConfig::from_url("mysql://locker:S3CR3T@host/db").unwrap();

        let shown = format!("{config:?}");
        assert!(!shown.contains("S3CR3T") && !shown.contains("locker"), "{shown}");
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn without_its_feature_tls_is_refused() {
        let url = "mysql://host/db?ssl-mode=verify_identity";

        assert_eq!(MysqlConfig::from_url(url).unwrap_err().kind(), ErrorKind::Unsupported);
    }
}
