//! The servers of a database, and how to connect to them.

mod url;

use std::fmt;
use std::time::Duration;

use leasehold_sql_support::remote;
use tokio_postgres::config::{Host, SslMode};

use crate::tls::Tls;

/// The servers of one database. `Debug` shows neither user nor password.
#[derive(Clone)]
pub struct Servers {
    options: tokio_postgres::Config,
    tls: Option<Tls>,
}

/// The server is asked so often whether it is still there, on an idle connection.
const KEEPALIVE: Duration = Duration::from_secs(10);

const DEFAULT_PORT: u16 = 5432;

impl Servers {
    /// The driver's options for each connection.
    pub(crate) fn driver_options(&self, timeout: Duration) -> tokio_postgres::Config {
        let mut options = self.options.clone();
        if options.get_application_name().is_none() {
            options.application_name("leasehold");
        }
        options.ssl_mode(if self.tls.is_some() { SslMode::Require } else { SslMode::Disable });
        options.keepalives(true).keepalives_idle(KEEPALIVE).connect_timeout(timeout);
        options
    }

    /// The hosts and ports, or the sockets.
    pub(crate) fn address(&self) -> String {
        let (hosts, ports) = (self.options.get_hosts(), self.options.get_ports());
        // One port is that of all hosts.
        let port = |i| ports.get(i).or(ports.first()).copied().unwrap_or(DEFAULT_PORT);
        let addresses = hosts.iter().enumerate().map(|(i, host)| match host {
            Host::Tcp(host) => remote::host_and_port(host, port(i)),
            #[cfg(unix)]
            Host::Unix(folder) => {
                folder.join(format!(".s.PGSQL.{}", port(i))).display().to_string()
            }
        });
        addresses.collect::<Vec<_>>().join(", ")
    }

    /// The encryption of connections, if there is any.
    pub(crate) fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }
}

/// Connections to these servers are not encrypted.
impl From<tokio_postgres::Config> for Servers {
    fn from(options: tokio_postgres::Config) -> Self {
        Self { options, tls: None }
    }
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Servers")
            .field("hosts", &self.options.get_hosts())
            .field("ports", &self.options.get_ports())
            .field("is_encrypted", &self.tls.is_some())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::ErrorKind;
    use leasehold_sql_support::Layout;
    use leasehold_sql_support::remote::Settings;

    use super::*;
    use crate::PostgresConfig;

    #[test]
    fn urls_say_everything() {
        let url = "postgresql://locker:S3CR3T@a.example:7000,b.example/app\
                   ?target_session_attrs=read-write&prefix=app_&schema=locks&timeout-ms=250&connections=7&push=off&tables=exist";
        let mut settings = Settings::new(PostgresConfig::DEFAULT_TIMEOUT);
        let servers = Servers::from_url(url, &mut settings).unwrap();

        let shown = format!("{servers:?}");
        assert!(shown.contains("a.example") && shown.contains("7000"), "{shown}");
        assert_eq!(servers.address(), "a.example:7000, b.example:5432");
        assert_eq!((settings.timeout, settings.connections), (Duration::from_millis(250), 7));
        assert!(!settings.push && !settings.create_tables);
        assert_eq!(settings.layout, Layout::new("app_").unwrap().in_schema("locks").unwrap());
        assert_eq!(servers.options.get_password(), Some(&b"S3CR3T"[..]));
        assert_eq!(servers.options.get_dbname(), Some("app"));
        assert!(servers.tls.is_none());
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
