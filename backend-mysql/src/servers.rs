//! A database's server, and the options for connections to the server.

mod url;

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use leasehold_sql_support::remote::{self, RunError};
use mysql_async::{Opts, OptsBuilder};

/// The server of a database. `Debug` shows neither the user nor the password.
///
/// The crate's example shows how to connect to a server.
#[derive(Clone)]
pub struct Servers {
    options: OptsBuilder,
    /// Addresses for tests, which replace the resolver.
    #[cfg(test)]
    fixed: Option<Vec<IpAddr>>,
}

/// The interval at which the operating system checks whether the peer of an idle connection still
/// exists.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// The packet limit. Without this value, the driver would query the server's limit. Leasehold's
/// query batches are shorter than the limit of any server.
const MAX_PACKET: usize = 64 * 1024 * 1024;

impl Servers {
    /// Returns this server, with the given addresses for its name.
    #[cfg(test)]
    pub(crate) fn resolved_to(mut self, addresses: Vec<IpAddr>) -> Self {
        self.fixed = Some(addresses);
        self
    }

    /// Returns the addresses of the host. A Unix socket does not have an address.
    pub(crate) async fn addresses(&self) -> Result<Vec<Option<IpAddr>>, RunError> {
        let options = Opts::from(self.options.clone());
        if options.socket().is_some() || options.resolved_ips().is_some() {
            return Ok(vec![None]);
        }
        #[cfg(test)]
        if let Some(fixed) = &self.fixed {
            return Ok(fixed.iter().copied().map(Some).collect());
        }
        let addresses = remote::addresses_of(options.ip_or_hostname()).await?;
        Ok(addresses.into_iter().map(Some).collect())
    }

    /// Returns the driver's options for a connection to this address.
    pub(crate) fn driver_options(&self, address: Option<IpAddr>) -> OptsBuilder {
        let options = self.options.clone();
        let options = match address {
            Some(address) => options.resolved_ips(Some(vec![address])),
            None => options,
        };
        options
            .tcp_keepalive(Some(KEEPALIVE))
            // Without this option, the driver would also try a Unix socket.
            .prefer_socket(false)
            .max_allowed_packet(Some(MAX_PACKET))
            // This option affects only the driver's connection pool, which is not used.
            .wait_timeout(Some(28_800))
            // The client caches the prepared statements of each connection.
            .stmt_cache_size(0)
            // The outcome of a statement is the number of changed rows.
            .client_found_rows(false)
    }

    /// Returns the host and the port, or the path of the socket.
    pub(crate) fn address(&self) -> String {
        let options = Opts::from(self.options.clone());
        match options.socket() {
            Some(socket) => socket.to_owned(),
            None => remote::host_and_port(options.ip_or_hostname(), options.tcp_port()),
        }
    }
}

/// Options for pools are ignored.
impl From<OptsBuilder> for Servers {
    fn from(options: OptsBuilder) -> Self {
        Self {
            options,
            #[cfg(test)]
            fixed: None,
        }
    }
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options = Opts::from(self.options.clone());
        f.debug_struct("Servers")
            .field("host", &options.ip_or_hostname())
            .field("port", &options.tcp_port())
            .field("database", &options.db_name())
            .field("is_encrypted", &options.ssl_opts().is_some())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::ErrorKind;
    use leasehold_sql_support::Layout;
    use leasehold_sql_support::remote::Settings;

    use super::*;
    use crate::MysqlConfig;

    #[test]
    fn urls_say_everything() {
        let url = "mariadb://locker:S3CR3T%40@[::1]:7000/app?prefix=app_&schema=locks&timeout-ms=250&connections=7&tables=exist";
        let mut settings = Settings::new(MysqlConfig::DEFAULT_TIMEOUT);
        let servers = Servers::from_url(url, &mut settings).unwrap();

        assert_eq!((settings.timeout, settings.connections), (Duration::from_millis(250), 7));
        assert!(!settings.create_tables);
        assert_eq!(settings.layout, Layout::new("app_").unwrap().in_schema("locks").unwrap());
        let options = Opts::from(servers.options.clone());
        assert_eq!((options.ip_or_hostname(), options.tcp_port()), ("::1", 7000));
        assert_eq!(servers.address(), "[::1]:7000");
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
            "mysql://u:123/S3CR3T@host/db",
            "mysql://u:123/S3CR3T@host",
            "mysql://u:S3CR3T@host/db?prefix=A",
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
