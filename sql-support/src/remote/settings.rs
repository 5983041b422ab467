//! The settings that all databases share.

use std::time::Duration;

use leasehold_core::Error;
use leasehold_settings::{Options, REQUEST_TIMEOUT, count_in, duration_in};

use crate::layout::Layout;

/// All settings of a [`Config`](super::Config) except the database's location.
///
/// [`Driver::read_url`](super::Driver::read_url) and [`Driver::open`](super::Driver::open) receive
/// these settings.
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
    /// Whether the release of a mutex without waiters does not wait for the disk, if the database
    /// supports this for single transactions.
    pub lazy_releases: bool,
    /// Whether missing tables are created.
    pub create_tables: bool,
    /// A query that returns the current time in microseconds, and is used instead of the database's
    /// clock.
    pub clock: Option<String>,
}

/// The default number of connections for acquisitions. A transaction takes a few milliseconds, so
/// four connections keep a database with a few cores busy.
pub(super) const DEFAULT_CONNECTIONS: usize = 4;

impl Settings {
    /// Creates default settings with this time limit for a call.
    pub fn new(timeout: Duration) -> Self {
        Self {
            layout: Layout::default(),
            timeout,
            connections: DEFAULT_CONNECTIONS,
            push: true,
            lazy_releases: false,
            create_tables: true,
            clock: None,
        }
    }

    /// Reads the parameters that the URLs of all databases support: `prefix`, `schema`,
    /// `timeout-ms`, `connections` and `tables=exist`.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](leasehold_core::ErrorKind::Invalid) if a value is not valid.
    /// The error does not show the value, because the value may be a part of a password.
    pub fn read(&mut self, options: &mut Options) -> Result<(), Error> {
        if let Some(prefix) = options.text("prefix")? {
            self.set_prefix(prefix)?;
        }
        if let Some(schema) = options.text("schema")? {
            self.set_schema(schema)?;
        }
        if let Some(timeout) = options.millis("timeout-ms")? {
            self.set_timeout(timeout)?;
        }
        if let Some(connections) = options.number("connections")? {
            self.set_connections(connections)?;
        }
        if let Some(create_tables) = options.choice("tables", [("exist", false)])? {
            self.create_tables = create_tables;
        }
        Ok(())
    }

    pub(super) fn set_prefix(&mut self, prefix: impl Into<String>) -> Result<(), Error> {
        self.layout = self.layout.clone().with_prefix(prefix)?;
        Ok(())
    }

    pub(super) fn set_schema(&mut self, schema: impl Into<String>) -> Result<(), Error> {
        self.layout = self.layout.clone().in_schema(schema)?;
        Ok(())
    }

    pub(super) fn set_timeout(&mut self, timeout: Duration) -> Result<(), Error> {
        let limits = Duration::from_millis(10)..=*REQUEST_TIMEOUT.end();
        self.timeout = duration_in(&limits, "timeout (timeout-ms in a URL)", timeout)?;
        Ok(())
    }

    pub(super) fn set_connections(&mut self, connections: usize) -> Result<(), Error> {
        self.connections = count_in(&(1..=100), "connections", connections)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::ErrorKind;
    use leasehold_settings::StoreUrl;

    use super::*;

    fn read(settings: &mut Settings, query: &str) -> Result<(), Error> {
        let url = format!("mysql://host/db?{query}");
        settings.read(&mut StoreUrl::parse(&url)?.options()?)
    }

    #[test]
    fn impossible_values_are_refused_without_showing_them() {
        let mut settings = Settings::new(Duration::from_secs(1));
        for query in [
            "prefix=S3CR3T",
            "schema=1S3CR3T",
            "timeout-ms=S3CR3T",
            "timeout-ms=1",
            "timeout-ms=60001",
            "connections=S3CR3T",
            "connections=0",
            "connections=101",
            "tables=S3CR3T",
        ] {
            let error = read(&mut settings, query).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{query}");
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains("S3CR3T"), "{shown}");
        }
    }

    #[test]
    fn refused_timeouts_are_named_with_those_that_are_possible() {
        let mut settings = Settings::new(Duration::from_secs(1));
        let said = "timeout (timeout-ms in a URL) must be between 10 ms and 60 s, not 9 ms";
        assert_eq!(read(&mut settings, "timeout-ms=9").unwrap_err().to_string(), said);
    }
}
