//! The settings for the connection to a database.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Error, ErrorKind};

use crate::layout::Layout;
use crate::remote::{Driver, Hears, Run};

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

/// All settings of a [`Config`] except the database's location.
///
/// [`Driver::read_url`] and [`Driver::open`] receive these settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The names of the tables.
    pub layout: Layout,
    /// The time limit for a call.
    pub timeout: Duration,
    /// The number of connections for acquisitions.
    pub connections: usize,
    /// Whether the client listens for changes by other clients, if the database supports
    /// notifications.
    pub push: bool,
    /// Whether missing tables are created.
    pub create_tables: bool,
    /// A query that returns the current time in microseconds, and is used instead of the database's
    /// clock.
    pub clock: Option<String>,
}

/// The default number of connections for acquisitions. A transaction takes a few milliseconds, so
/// four connections keep a database with a few cores busy.
const DEFAULT_CONNECTIONS: usize = 4;

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
    /// Returns [`ErrorKind::Invalid`] if the URL is not valid, and [`ErrorKind::Unsupported`] if
    /// the URL requires TLS and the `tls` Cargo feature is disabled. No error shows the URL,
    /// because it may contain a password.
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
    /// Returns [`ErrorKind::Invalid`] if the prefix is empty, is longer than 32 characters,
    /// contains characters other than `a-z 0-9 _`, or begins with a digit.
    pub fn prefix(self, prefix: impl Into<String>) -> Result<Self, Error> {
        self.with(|settings| settings.set_prefix(prefix))
    }

    /// Sets the schema of the tables. In MySQL, this is a database. The default is the schema in
    /// which the connection finds the tables or would create them.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if the schema is empty, is longer than 32 characters,
    /// contains characters other than `a-z 0-9 _`, or begins with a digit.
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
    /// Returns [`ErrorKind::Invalid`] if the limit is less than 10 ms or more than 60 s.
    pub fn timeout(self, timeout: Duration) -> Result<Self, Error> {
        self.with(|settings| settings.set_timeout(timeout))
    }

    /// Sets the number of connections for acquisitions. The default is
    /// [`Config::DEFAULT_CONNECTIONS`].
    ///
    /// In addition, the client opens one connection for renewals and one for releases. If the
    /// database supports notifications, the client opens an additional connection for as long as a
    /// lock is held or waited for.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if the number is 0 or more than 100.
    pub fn connections(self, connections: usize) -> Result<Self, Error> {
        self.with(|settings| settings.set_connections(connections))
    }

    /// Disables listening for changes, so that waiters poll.
    ///
    /// Use this option with a pooler that may run each transaction on a different connection,
    /// because such a pooler does not forward notifications.
    #[must_use]
    pub fn without_push(mut self) -> Self
    where
        D: Hears,
    {
        self.settings.push = false;
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

impl Settings {
    /// Creates default settings with this time limit for a call.
    pub fn new(timeout: Duration) -> Self {
        Self {
            layout: Layout::default(),
            timeout,
            connections: DEFAULT_CONNECTIONS,
            push: true,
            create_tables: true,
            clock: None,
        }
    }

    /// Sets a parameter that the URLs of all databases support: `prefix`, `schema`, `timeout-ms`,
    /// `connections` or `tables=exist`. Returns whether `name` is one of these parameters.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if the value is not valid. The error does not show the value,
    /// because the value may be a part of a password.
    pub fn read(&mut self, name: &str, value: &str) -> Result<bool, Error> {
        match name {
            "prefix" => self.set_prefix(value)?,
            "schema" => self.set_schema(value)?,
            "timeout-ms" => self.set_timeout(Duration::from_millis(number(name, value)?))?,
            "connections" => self.set_connections(number(name, value)?)?,
            "tables" if value == "exist" => self.create_tables = false,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn set_prefix(&mut self, prefix: impl Into<String>) -> Result<(), Error> {
        self.layout = self.layout.clone().with_prefix(prefix)?;
        Ok(())
    }

    fn set_schema(&mut self, schema: impl Into<String>) -> Result<(), Error> {
        self.layout = self.layout.clone().in_schema(schema)?;
        Ok(())
    }

    fn set_timeout(&mut self, timeout: Duration) -> Result<(), Error> {
        if timeout < Duration::from_millis(10) || timeout > Duration::from_secs(60) {
            return Err(invalid(format!(
                "timeout (timeout-ms in a URL) must be between 10 ms and 60 s, not {} ms",
                timeout.as_millis()
            )));
        }
        self.timeout = timeout;
        Ok(())
    }

    fn set_connections(&mut self, connections: usize) -> Result<(), Error> {
        if !(1..=100).contains(&connections) {
            return Err(invalid("connections must be between 1 and 100"));
        }
        self.connections = connections;
        Ok(())
    }
}

fn number<T: FromStr>(name: &str, value: &str) -> Result<T, Error> {
    value.parse().map_err(|_| invalid(format!("{name} in the URL must be a number")))
}

/// Creates the error for an invalid setting.
///
/// ```
/// use leasehold_core::ErrorKind;
/// use leasehold_sql_support::remote::invalid;
///
/// assert_eq!(invalid("the limit is too large").kind(), ErrorKind::Invalid);
/// ```
pub fn invalid(message: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Invalid, message)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_values_are_refused_without_showing_them() {
        let mut settings = Settings::new(Duration::from_secs(1));
        for (name, value) in [
            ("prefix", "S3CR3T"),
            ("schema", "1S3CR3T"),
            ("timeout-ms", "S3CR3T"),
            ("timeout-ms", "1"),
            ("timeout-ms", "60001"),
            ("connections", "S3CR3T"),
            ("connections", "0"),
            ("connections", "101"),
        ] {
            let error = settings.read(name, value).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{name}={value}");
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains("S3CR3T"), "{shown}");
        }
    }

    #[test]
    fn refused_timeouts_are_named_with_those_that_are_possible() {
        let mut settings = Settings::new(Duration::from_secs(1));
        let said = "timeout (timeout-ms in a URL) must be between 10 ms and 60 s, not 9 ms";
        assert_eq!(settings.read("timeout-ms", "9").unwrap_err().to_string(), said);
    }

    #[test]
    fn other_parameters_are_left_to_the_driver() {
        let mut settings = Settings::new(Duration::from_secs(1));

        for (name, value) in [("sslmode", "require"), ("tables", "maybe"), ("push", "off")] {
            assert!(!settings.read(name, value).unwrap(), "{name}={value}");
        }

        assert!(settings.create_tables && settings.push);
    }
}
