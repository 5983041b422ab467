//! A database's servers, and the options for connections to these servers.

mod url;

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use leasehold_sql_support::remote::{self, RunError};
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

use crate::tls::Tls;

/// The servers of a database. `Debug` shows neither the user nor the password.
///
/// The crate's example shows how to connect to a server.
#[derive(Clone)]
pub struct Servers {
    options: tokio_postgres::Config,
    tls: Option<Tls>,
    /// Addresses for tests, which replace the resolver for each host.
    #[cfg(test)]
    fixed: Option<Vec<IpAddr>>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Place {
    host: usize,
    address: Option<IpAddr>,
}

/// The interval at which an idle connection is checked.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// The time after which an unanswered check is retried. A single packet may be lost, but the loss
/// of [`KEEPALIVE_RETRIES`] packets in a row is unlikely.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(3);

const KEEPALIVE_RETRIES: u32 = 3;

/// The time after which a server that does not confirm packets is considered down. By default,
/// Linux would wait for 15 minutes.
const UNCONFIRMED: Duration = Duration::from_secs(10);

const DEFAULT_PORT: u16 = 5432;

impl Servers {
    fn new(options: tokio_postgres::Config, tls: Option<Tls>) -> Self {
        Self {
            options,
            tls,
            #[cfg(test)]
            fixed: None,
        }
    }

    /// Returns these servers, with the given addresses for their names.
    #[cfg(test)]
    pub(crate) fn resolved_to(mut self, addresses: Vec<IpAddr>) -> Self {
        self.fixed = Some(addresses);
        self
    }

    /// Returns all addresses of all hosts, in order. Skips hosts whose names cannot be resolved.
    /// Returns an error only if none of the names can be resolved.
    pub(crate) async fn places(&self) -> Result<Vec<Place>, RunError> {
        let (hosts, addresses) = (self.options.get_hosts(), self.options.get_hostaddrs());
        let (mut places, mut failure) = (Vec::new(), None);
        // At least one entry is necessary, so that the driver can report that the host is missing.
        for host in 0..hosts.len().max(addresses.len()).max(1) {
            match (addresses.get(host), hosts.get(host)) {
                (None, Some(Host::Tcp(name))) => match self.addresses_of(name).await {
                    Ok(found) => places.extend(
                        found.into_iter().map(|address| Place { host, address: Some(address) }),
                    ),
                    Err(error) => failure = Some(error),
                },
                (address, _) => places.push(Place { host, address: address.copied() }),
            }
        }
        match failure {
            Some(error) if places.is_empty() => Err(error),
            _ => Ok(places),
        }
    }

    async fn addresses_of(&self, name: &str) -> Result<Vec<IpAddr>, RunError> {
        #[cfg(test)]
        if let Some(fixed) = &self.fixed {
            return Ok(fixed.clone());
        }
        remote::addresses_of(name).await
    }

    /// Returns the driver's options for a connection to one address of one host.
    pub(crate) fn driver_options(&self, place: Place) -> tokio_postgres::Config {
        let mut options = of_host(&self.options, place.host);
        if let Some(address) = place.address.filter(|_| options.get_hostaddrs().is_empty()) {
            options.hostaddr(address);
        }
        // A standby cannot grant locks. With a single host, the standby's error is more helpful.
        let has_choice = self.options.get_hosts().len().max(self.options.get_hostaddrs().len()) > 1;
        if has_choice && options.get_target_session_attrs() == TargetSessionAttrs::Any {
            options.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        if options.get_application_name().is_none() {
            options.application_name("leasehold");
        }
        options.ssl_mode(if self.tls.is_some() { SslMode::Require } else { SslMode::Disable });
        options.keepalives(true).keepalives_idle(KEEPALIVE);
        if options.get_keepalives_interval().is_none() {
            options.keepalives_interval(KEEPALIVE_INTERVAL);
        }
        if options.get_keepalives_retries().is_none() {
            options.keepalives_retries(KEEPALIVE_RETRIES);
        }
        if options.get_tcp_user_timeout().is_none() {
            options.tcp_user_timeout(UNCONFIRMED);
        }
        options
    }

    /// Returns the hosts and ports, or the paths of the sockets.
    pub(crate) fn address(&self) -> String {
        let (hosts, ports) = (self.options.get_hosts(), self.options.get_ports());
        // A single port applies to all hosts.
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

    /// Returns the TLS settings, if connections are encrypted.
    pub(crate) fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }
}

/// Returns these options with only one host, because the driver cannot remove hosts.
fn of_host(all: &tokio_postgres::Config, host: usize) -> tokio_postgres::Config {
    let mut one = tokio_postgres::Config::new();
    all.get_user().map(|user| one.user(user));
    all.get_password().map(|password| one.password(password));
    all.get_dbname().map(|name| one.dbname(name));
    all.get_options().map(|options| one.options(options));
    all.get_application_name().map(|name| one.application_name(name));
    match all.get_hosts().get(host) {
        Some(Host::Tcp(name)) => _ = one.host(name),
        #[cfg(unix)]
        Some(Host::Unix(folder)) => _ = one.host_path(folder),
        None => {}
    }
    all.get_hostaddrs().get(host).map(|address| one.hostaddr(*address));
    // A single port applies to all hosts.
    all.get_ports().get(host).or(all.get_ports().first()).map(|port| one.port(*port));
    all.get_connect_timeout().map(|timeout| one.connect_timeout(*timeout));
    all.get_tcp_user_timeout().map(|timeout| one.tcp_user_timeout(*timeout));
    all.get_keepalives_interval().map(|interval| one.keepalives_interval(interval));
    all.get_keepalives_retries().map(|retries| one.keepalives_retries(retries));
    one.ssl_mode(all.get_ssl_mode()).ssl_negotiation(all.get_ssl_negotiation());
    one.keepalives(all.get_keepalives()).keepalives_idle(all.get_keepalives_idle());
    one.target_session_attrs(all.get_target_session_attrs());
    one.channel_binding(all.get_channel_binding());
    one.load_balance_hosts(all.get_load_balance_hosts());
    one
}

/// Connections to these servers are not encrypted.
impl From<tokio_postgres::Config> for Servers {
    fn from(options: tokio_postgres::Config) -> Self {
        Self::new(options, None)
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
                   ?target_session_attrs=read-write&prefix=app_&schema=locks&timeout-ms=250&connections=7&push=off&release=lazy&tables=exist";
        let mut settings = Settings::new(PostgresConfig::DEFAULT_TIMEOUT);
        let servers = Servers::from_url(url, &mut settings).unwrap();

        let shown = format!("{servers:?}");
        assert!(shown.contains("a.example") && shown.contains("7000"), "{shown}");
        assert_eq!(servers.address(), "a.example:7000, b.example:5432");
        assert_eq!((settings.timeout, settings.connections), (Duration::from_millis(250), 7));
        assert!(!settings.push && settings.lazy_releases && !settings.create_tables);
        assert_eq!(settings.layout, Layout::new("app_").unwrap().in_schema("locks").unwrap());
        assert_eq!(servers.options.get_password(), Some(&b"S3CR3T"[..]));
        assert_eq!(servers.options.get_dbname(), Some("app"));
        assert!(servers.tls.is_none());
    }

    #[test]
    fn one_of_the_hosts_keeps_all_other_options() {
        let others = "user:S3CR3T@host:7000/app?options=-c%20a%3Db&application_name=app&connect_timeout=1&tcp_user_timeout=2\
                      &keepalives=0&keepalives_idle=3&keepalives_interval=4&keepalives_retries=5&target_session_attrs=read-write\
                      &channel_binding=require&load_balance_hosts=random&hostaddr=127.0.0.1&sslmode=require&sslnegotiation=direct";
        let options: tokio_postgres::Config = format!("postgres://{others}").parse().unwrap();

        assert_eq!(of_host(&options, 0), options);
    }

    #[test]
    fn silent_server_is_missed_soon_unless_the_url_says_when() {
        let limits = |url: &str| {
            let servers = Servers::from(url.parse::<tokio_postgres::Config>().unwrap());
            let options = servers.driver_options(Place { host: 0, address: None });
            let interval = options.get_keepalives_interval().map(|interval| interval.as_secs());
            let silence = options.get_tcp_user_timeout().map(Duration::as_secs);
            (interval, options.get_keepalives_retries(), silence)
        };
        let stated = "keepalives_interval=4&keepalives_retries=5&tcp_user_timeout=6";

        assert_eq!(limits("postgres://host"), (Some(3), Some(3), Some(10)));
        assert_eq!(limits(&format!("postgres://host?{stated}")), (Some(4), Some(5), Some(6)));
    }

    #[test]
    fn primary_is_chosen_where_there_are_several_hosts() {
        let wanted = |url: &str| {
            let servers = Servers::from(url.parse::<tokio_postgres::Config>().unwrap());
            servers.driver_options(Place { host: 0, address: None }).get_target_session_attrs()
        };

        assert_eq!(wanted("postgres://one"), TargetSessionAttrs::Any);
        assert_eq!(wanted("postgres://one,two"), TargetSessionAttrs::ReadWrite);
        let stated = "postgres://one,two?target_session_attrs=read-only";
        assert_eq!(wanted(stated), TargetSessionAttrs::ReadOnly);
    }

    #[tokio::test]
    async fn all_addresses_of_all_hosts_are_tried() {
        let mut options = tokio_postgres::Config::new();
        options.host("one").host("two").host_path("/run");
        let both = ["192.0.2.1", "2001:db8::1"].map(|address| address.parse().unwrap());
        let servers = Servers::from(options).resolved_to(both.to_vec());

        let places = servers.places().await.unwrap();

        let [v4, v6] = both.map(Some);
        let expected = [(0, v4), (0, v6), (1, v4), (1, v6), (2, None)];
        assert_eq!(places, expected.map(|(host, address)| Place { host, address }));
        let options = servers.driver_options(places[3]);
        assert_eq!(options.get_hosts(), [Host::Tcp("two".to_owned())], "for TLS");
        assert_eq!(options.get_hostaddrs(), [both[1]]);
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
            "postgres://u:123@b/S3CR3T@host/db",
            "postgres://u:S3CR3T@host/?prefix=A",
            "postgres://u:S3CR3T@host/?push=S3CR3T",
            "postgres://u:S3CR3T@host/?tables=S3CR3T",
            "postgres://u:S3CR3T@host/?sslmode=prefer",
            "postgres://u:S3CR3T@host/?sslrootcert=/S3CR3T",
            "postgres://u:S3CR3T@host/#S3CR3T",
            "postgres:///S3CR3T",
            "postgres://S3CR3T@/app",
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

    #[test]
    fn password_may_contain_an_at_sign() {
        let mut settings = Settings::new(PostgresConfig::DEFAULT_TIMEOUT);
        let servers = Servers::from_url("postgres://u:123@S3CR3T@host/db", &mut settings).unwrap();

        assert_eq!(servers.options.get_password(), Some(&b"123@S3CR3T"[..]));
        assert_eq!(servers.address(), "host:5432");
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn without_its_feature_tls_is_refused() {
        let error = PostgresConfig::from_url("postgres://host/?sslmode=verify-full").unwrap_err();

        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }
}
