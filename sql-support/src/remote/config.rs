//! Which database, and how to speak to it.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Error, ErrorKind};

use crate::layout::Layout;
use crate::remote::{Driver, Hears, Run};

/// Which database to use with the driver `D`, and how. `Debug` shows neither user nor password.
pub struct Config<D: Driver> {
    pub(crate) source: Source<D>,
    pub(crate) settings: Settings,
}

/// Where connections come from.
pub(crate) enum Source<D: Driver> {
    /// We make them.
    Own(D::Servers),
    /// The application has some.
    Theirs(Arc<dyn Run>),
}

/// All that a [`Config`] says beside where the database is.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The names of the tables.
    pub layout: Layout,
    /// How long a call may take in all.
    pub timeout: Duration,
    /// How many connections acquire at the same time.
    pub connections: usize,
    /// Whether to hear of other clients, if the database tells.
    pub push: bool,
    /// Whether to create missing tables.
    pub create_tables: bool,
    /// A query for microseconds, in place of the database's clock.
    pub clock: Option<String>,
}

/// A transaction takes some milliseconds: so many connections keep a database of a few cores busy.
const DEFAULT_CONNECTIONS: usize = 4;

impl<D: Driver> Config<D> {
    /// The driver's own: short enough that a renewal is tried several times within a lease.
    pub const DEFAULT_TIMEOUT: Duration = D::DEFAULT_TIMEOUT;

    /// How many connections acquire at the same time, if the application does not say.
    pub const DEFAULT_CONNECTIONS: usize = DEFAULT_CONNECTIONS;

    /// Reads a URL as the ecosystem of the database writes them; the type's own documentation has the parameters.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if it cannot be understood, [`ErrorKind::Unsupported`] for TLS without the Cargo feature `tls`. Neither
    /// shows the URL, which may hold a password.
    pub fn from_url(url: &str) -> Result<Self, Error> {
        let mut settings = Settings::new(Self::DEFAULT_TIMEOUT);
        let servers = D::read_url(url, &mut settings).map_err(in_backend::<D>)?;
        Ok(Self { source: Source::Own(servers), settings })
    }

    /// Takes servers, credentials, the database and TLS from the driver's own `options`.
    pub fn from_options(options: impl Into<D::Servers>) -> Self {
        Self { source: Source::Own(options.into()), settings: Settings::new(Self::DEFAULT_TIMEOUT) }
    }

    /// Has `run` execute all transactions: the connections stay the application's.
    ///
    /// Waiters poll then: hearing of changes takes a connection of our own.
    pub fn from_run(run: impl Run) -> Self {
        Self {
            source: Source::Theirs(Arc::new(run)),
            settings: Settings::new(Self::DEFAULT_TIMEOUT),
        }
    }

    /// Sets the beginning of the tables' names. Default: `leasehold_`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] unless it has 1 to 32 of the characters `a-z 0-9 _` and does not begin with a digit.
    pub fn prefix(self, prefix: impl Into<String>) -> Result<Self, Error> {
        self.with(|settings| settings.set_prefix(prefix))
    }

    /// Sets the schema of the tables, which in MySQL is a database of the server. Default: the one where the connection finds the tables,
    /// or would make them.
    ///
    /// # Errors
    ///
    /// As [`Config::prefix`].
    pub fn schema(self, schema: impl Into<String>) -> Result<Self, Error> {
        self.with(|settings| settings.set_schema(schema))
    }

    /// Sets how long a call may take in all. Default: [`Config::DEFAULT_TIMEOUT`].
    ///
    /// The server is told to give up a little earlier, so that most calls that are too slow have not been applied. MySQL waits for locks in
    /// whole seconds, so less than three seconds leave more outcomes unknown there.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if it is less than 10 ms or more than a minute.
    pub fn timeout(self, timeout: Duration) -> Result<Self, Error> {
        self.with(|settings| settings.set_timeout(timeout))
    }

    /// Sets how many connections acquire at the same time. Default: [`Config::DEFAULT_CONNECTIONS`].
    ///
    /// One more is for renewals alone, and one for releases; a database that tells of changes has one that listens while anything is waited
    /// for or held.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] unless there are 1 to 100.
    pub fn connections(self, connections: usize) -> Result<Self, Error> {
        self.with(|settings| settings.set_connections(connections))
    }

    /// Does not listen to the database: waiters poll.
    ///
    /// For poolers that hand each transaction to another connection, where nothing is heard.
    #[must_use]
    pub fn without_push(mut self) -> Self
    where
        D: Hears,
    {
        self.settings.push = false;
        self
    }

    /// Expects the tables to be there: an administrator ran the statements of [`migration`](Self::migration).
    #[must_use]
    pub fn without_creating_tables(mut self) -> Self {
        self.settings.create_tables = false;
        self
    }

    /// The statements that create the tables, for an administrator to run where the application may not.
    pub fn migration(&self) -> String {
        D::migration(&self.settings.layout)
    }

    /// Goes by another clock than the database's: a query for microseconds. For tests of time.
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
    /// Creates the settings of an application that chooses none but how long a call may take.
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

    /// Sets the value of a parameter that the URLs of all databases have: `prefix`, `schema`, `timeout-ms`, `connections`, `tables=exist`.
    ///
    /// Returns whether it is one of these.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] for a value that is not possible. It does not show the value, which may be the rest of a password.
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

/// Creates the error of a setting that is not possible.
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
